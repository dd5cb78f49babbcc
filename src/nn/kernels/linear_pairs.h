/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x times a panel of packed weights, both as pairs of bf16: a word of
 * weights holds two inputs of an output, the broadcast word of x the same two
 * inputs. So a panel is what matrix units want as their second operand, too.
 * The walk is that of linear.h.
 */
#ifndef ATTN_NN_LINEAR_PAIRS_H
#define ATTN_NN_LINEAR_PAIRS_H

#include "nn/kernels/linear_sums.h"
#include "nn/kernels/typed.h"

#ifndef ATTN_DOT
#define ATTN_DOT "simd/dot_f32.h"
#endif
#include ATTN_DOT

/** Where rows of x stand as bf16, from the input on at which a block begins. */
struct pairs_x {
    const char *row[VF_KEYS];
    uint16_t rounded[VF_KEYS][LINEAR_INPUTS] __attribute__((aligned(ATTN_ALIGN)));
};

/** n elements of nr rows from row r and input c0 on: in place, or as bf16 in x->rounded with a zero behind an odd n. */
static void pairs_take_x(int nr, const struct nn_linear_work *work, int64_t r, int64_t c0, int64_t n, struct pairs_x *x)
{
    const attn_dtype dtype = work->x.dtype;
    for (int i = 0; i < nr; i++) {
        const char *const row = row_at(&work->x, r + i) + c0 * attn_element_size(dtype);
        x->row[i] = row;
        if (dtype == ATTN_BF16 && n % 2 == 0)
            continue;
        x->row[i] = (const char *)x->rounded[i];
        for (int64_t c = 0; c < n; c += VF_LEN) {
            const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
            vf_store_bf16(x->rounded[i] + c, typed_load(dtype, row, c, left));
        }
        if (VF_LEN == 1 && n % 2) /* wider vectors have stored zeros there */
            x->rounded[i][n] = 0;
    }
}

/** linear_rows() of pairs. */
ATTN_INLINE void pairs_rows(const int nr, const int nv, int ask, const struct nn_linear_work *work, int64_t r,
                            const struct linear_weights *block, float *unfinished)
{
    const ptrdiff_t step = (ptrdiff_t)VF_LEN * ATTN_WORD;
    const int64_t n = block->c1 - block->c0;
    const char *at = block->at, *next = block->at + LINEAR_AHEAD;
    struct pairs_x x;
    vf acc[VF_KEYS][VF_STRIP];
    pairs_take_x(nr, work, r, block->c0, n, &x);
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] = block->c0 == 0 ? vf_zero() : vf_load(unfinished + ((r + i) * nv + v) * VF_LEN);
    }
#pragma GCC unroll 4
    for (int64_t c = 0; c < n; c += 2, at += nv * step, next += nv * step) {
        vw w[VF_STRIP];
        if (ask)
            linear_ask(next, nv * step);
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            w[v] = vw_load(at + v * step);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vw b = vw_set1(x.row[i] + c * 2);
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] = vf_dot(b, w[v], acc[i][v]);
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            vf_store(unfinished + ((r + i) * nv + v) * VF_LEN, acc[i][v]);
    }
}

ATTN_INLINE void pairs_body(const int nv, const struct nn_linear_work *work)
{
    float sums[NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    for (int64_t c = 0; c == 0 || c < work->inputs; c += LINEAR_INPUTS) {
        const struct linear_weights block = linear_block_at(NN_PANEL_PAIRS, nv, work, c);
        for (int64_t r = 0; r < work->rows;) {
            const int nr = linear_tile_rows(work->rows - r);
            LINEAR_BY_ROWS(nr, pairs_rows, nv, r == 0, work, r, &block, sums);
            r += nr;
        }
    }
    work->finish(work, sums);
}

static void linear_pairs_panel(const struct nn_linear_work *work)
{
    ATTN_BY_WIDTH(work->vectors, pairs_body, work);
}

#endif
