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

/** Inputs c..c+n-1 of all rows as bf16: rows of pitch elements in room, with a zero behind an odd n. */
static void pairs_take_x(const struct nn_linear_work *work, int64_t c, int64_t n, int64_t pitch, uint16_t *room)
{
    const attn_dtype dtype = work->x.dtype;
    for (int64_t r = 0; r < work->rows; r++, room += pitch) {
        const char *const row = row_at(&work->x, r) + c * attn_element_size(dtype);
        for (int64_t i = 0; i < n; i += VF_LEN) {
            const int left = n - i < VF_LEN ? (int)(n - i) : VF_LEN;
            vf_store_bf16(room + i, typed_load(dtype, row, i, left));
        }
        if (VF_LEN == 1 && n % 2) /* wider vectors have stored zeros there */
            room[n] = 0;
    }
}

/** linear_rows() of pairs; ask: for weights that lie behind these. */
ATTN_INLINE void pairs_rows(const int nr, const int nv, int ask, const char *x, const ptrdiff_t pitch,
                            const struct linear_weights *block, float *sums)
{
    const ptrdiff_t step = (ptrdiff_t)VF_LEN * ATTN_WORD;
    const int64_t n = block->c1 - block->c0;
    const char *at = block->at, *next = block->next;
    vf acc[VF_KEYS][VF_STRIP];
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] = block->c0 == 0 ? vf_zero() : vf_load(sums + (i * nv + v) * VF_LEN);
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
            const vw b = vw_set1(x + i * pitch + c * 2);
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] = vf_dot(b, w[v], acc[i][v]);
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            vf_store(sums + (i * nv + v) * VF_LEN, acc[i][v]);
    }
}

/** All rows of a block of inputs; the first tile asks for what comes next, unless the processor does so by itself. */
ATTN_INLINE void pairs_block(const int nv, const struct nn_linear_work *work, const char *x, const ptrdiff_t pitch,
                             const struct linear_weights *block, float *sums)
{
    for (int64_t r = 0; r < work->rows;) {
        const int nr = linear_tile_rows(work->rows - r);
        LINEAR_BY_ROWS(nr, pairs_rows, nv, r == 0 && !linear_is_fetched(work), x + r * pitch, pitch, block,
                       sums + r * nv * VF_LEN);
        r += nr;
    }
}

/* Elements of x that are made pairs at a time. */
#define PAIRS_ROOM (NN_LINEAR_ROWS * LINEAR_INPUTS)

/** Rows times the panels of a run: one panel after the other if all of x fits, else block of inputs by block. */
static void linear_pairs_panels(const struct nn_linear_work *work)
{
    uint16_t room[PAIRS_ROOM] __attribute__((aligned(ATTN_ALIGN)));
    float sums[NN_LINEAR_RUN][NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const int64_t blocks = work->inputs > 0 ? (work->inputs - 1) / LINEAR_INPUTS + 1 : 1;
    const int64_t span = blocks <= PAIRS_ROOM / LINEAR_INPUTS / work->rows ? blocks * LINEAR_INPUTS : LINEAR_INPUTS;
    for (int64_t first = 0; first == 0 || first < work->inputs; first += span) {
        const int64_t n = work->inputs - first < span ? work->inputs - first : span;
        pairs_take_x(work, first, n, span, room);
        for (int p = 0; p < work->panels; p++) {
            const struct nn_linear_work panel = linear_panel_of(work, p);
            for (int64_t c = 0; c == 0 || c < n; c += LINEAR_INPUTS) {
                struct linear_weights block = linear_block_at(NN_PANEL_PAIRS, panel.vectors, &panel, first + c);
                block.next = block.at + LINEAR_AHEAD;
                ATTN_BY_WIDTH(panel.vectors, pairs_block, &panel, (const char *)(room + c), span * 2, &block, sums[p]);
            }
        }
    }
    for (int p = 0; p < work->panels; p++) {
        const struct nn_linear_work panel = linear_panel_of(work, p);
        panel.finish(&panel, sums[p]);
    }
}

#endif
