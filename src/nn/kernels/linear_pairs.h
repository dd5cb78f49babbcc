/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x times a panel of packed weights, both as pairs of bf16: a word of
 * weights holds two inputs of an output, the broadcast word of x the same two
 * inputs. So a panel is what matrix units want as their second operand, too.
 * The walk is that of linear.h. ATTN_DOT names the header with the words.
 */
#ifndef ATTN_NN_LINEAR_PAIRS_H
#define ATTN_NN_LINEAR_PAIRS_H

#include "nn/kernels/linear_sums.h"
#include "nn/kernels/typed.h"

#include ATTN_DOT

/** Inputs of a block: with a full panel 24 KiB, which stay in L1 while rows of x pass by, as LINEAR_INPUTS of floats.
 */
#define PAIRS_INPUTS (2 * LINEAR_INPUTS)

/** n elements of a row as bf16, with a zero behind an odd n. */
ATTN_INLINE void pairs_round_row(const attn_dtype dtype, const char *row, int64_t n, uint16_t *to)
{
    int64_t i = 0;
#pragma GCC unroll 4
    for (; i + VF_LEN <= n; i += VF_LEN)
        vw_round(to + i, row_load(dtype, row + i * attn_element_size(dtype)));
    if (i < n)
        vw_round(to + i, typed_load(dtype, row, i, (int)(n - i)));
}

/** Inputs c..c+n-1 of all rows as bf16: rows of pitch elements in room. */
static void pairs_take_x(const struct nn_linear_work *work, int64_t c, int64_t n, int64_t pitch, uint16_t *room)
{
    const attn_dtype dtype = work->x.dtype;
    for (int64_t r = 0; r < work->rows; r++, room += pitch) {
        const char *const row = row_at(&work->x, r) + c * attn_element_size(dtype);
        if (dtype == ATTN_F32) {
            pairs_round_row(ATTN_F32, row, n, room);
        } else if (dtype == ATTN_F16) {
            pairs_round_row(ATTN_F16, row, n, room);
        } else {
            memcpy(room, row, (size_t)n * sizeof *room);
            if (n % 2)
                room[n] = 0;
        }
    }
}

/** linear_rows() of pairs. Of every row of words of what comes next, asks for the first ahead vectors. */
ATTN_INLINE void pairs_rows(const int nr, const int nv, const int ahead, const char *x, const ptrdiff_t pitch,
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
        linear_ask(next, ahead * step);
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

/** What comes behind a block of inputs while its panels are multiplied. */
struct pairs_next {
    int64_t c, inputs; /**< inputs of x that are made pairs next, */
    int part, parts;   /**< and which part of them is asked for beside this panel */
};

/** Asks for some of the inputs that rows r..r+n-1 will have next: they come from far, as x has been gone over since. */
static void pairs_ask_x(const struct nn_linear_work *work, const struct pairs_next *next, int64_t r, int n)
{
    const ptrdiff_t size = attn_element_size(work->x.dtype);
    const ptrdiff_t from = next->part * next->inputs / next->parts * size,
                    to = (next->part + 1) * next->inputs / next->parts * size;
    for (int i = 0; i < n; i++)
        linear_ask(row_at(&work->x, r + i) + next->c * size + from, to - from);
}

/** One tile of rows: the weights behind its own are asked for, unless the processor does so by itself. */
ATTN_INLINE void pairs_few(const int nv, const struct nn_linear_work *work, const char *x, const ptrdiff_t pitch,
                           const struct linear_weights *block, float *sums)
{
    if (linear_is_fetched(work))
        pairs_rows(1, nv, 0, x, pitch, block, sums);
    else
        LINEAR_BY_ROWS((int)work->rows, pairs_rows, nv, nv, x, pitch, block, sums);
    if (block->c1 == work->inputs)
        work->finish(work, 0, work->rows, sums);
}

/** Tiles of rows: each of the first ones asks for a vector of each row of the weights that come next. */
ATTN_INLINE void pairs_block(const int nv, const struct nn_linear_work *work, const char *x, const ptrdiff_t pitch,
                             const struct pairs_next *next, struct linear_weights *block, float *sums)
{
    int64_t r = 0;
    for (int t = 0; r < work->rows; t++) {
        const int nr = linear_tile_rows(work->rows - r);
        if (next->inputs > 0)
            pairs_ask_x(work, next, r, nr);
        if (t < nv) {
            LINEAR_BY_ROWS(nr, pairs_rows, nv, 1, x + r * pitch, pitch, block, sums + r * nv * VF_LEN);
            block->next += VF_LEN * ATTN_WORD;
        } else {
            LINEAR_BY_ROWS(nr, pairs_rows, nv, 0, x + r * pitch, pitch, block, sums + r * nv * VF_LEN);
        }
        if (block->c1 == work->inputs)
            work->finish(work, r, nr, sums + r * nv * VF_LEN);
        r += nr;
    }
}

/* Elements of x that are made pairs at a time. */
#define PAIRS_ROOM (NN_LINEAR_ROWS * PAIRS_INPUTS)

/**
 * Rows times the panels of a run: one panel after the other if all of x fits, or is read where it lies, else block of
 * inputs by block.
 */
static void linear_pairs_panels(const struct nn_linear_work *work)
{
    uint16_t room[PAIRS_ROOM] __attribute__((aligned(ATTN_ALIGN)));
    float sums[NN_LINEAR_RUN][NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const int64_t blocks = work->inputs > 0 ? (work->inputs - 1) / PAIRS_INPUTS + 1 : 1;
    const int in_place = work->x.dtype == ATTN_BF16 && work->inputs % 2 == 0,
              fits = blocks <= PAIRS_ROOM / PAIRS_INPUTS / work->rows;
    const int64_t span = (in_place || fits ? blocks : 1) * PAIRS_INPUTS;
    const char *const x = in_place ? work->x.data : room;
    const ptrdiff_t pitch = in_place ? work->x.stride : span * (ptrdiff_t)sizeof *room;
    const int few = work->rows <= VF_KEYS && linear_tile_rows(work->rows) == work->rows;
    for (int64_t first = 0; first == 0 || first < work->inputs; first += span) {
        const int64_t n = work->inputs - first < span ? work->inputs - first : span;
        const int64_t left = work->inputs - first - n;
        if (!in_place)
            pairs_take_x(work, first, n, span, room);
        for (int p = 0; p < work->panels; p++) {
            const struct nn_linear_work panel = linear_panel_of(work, p);
            const int last = p + 1 == work->panels;
            const struct pairs_next next = {
                .c = first + n, .inputs = left < span ? left : span, .part = p, .parts = work->panels};
            for (int64_t c = 0; c == 0 || c < n; c += PAIRS_INPUTS) {
                struct linear_weights block =
                    linear_block_of(NN_PANEL_PAIRS, panel.vectors, &panel, first + c, PAIRS_INPUTS);
                const char *const at = x + c * (ptrdiff_t)sizeof *room;
                if (few) {
                    block.next = block.at + LINEAR_AHEAD;
                    ATTN_BY_WIDTH(panel.vectors, pairs_few, &panel, at, pitch, &block, sums[p]);
                    continue;
                }
                if (span > PAIRS_INPUTS) /* blocks of a panel, and panels, lie one behind the other */
                    block.next = block.at + PAIRS_INPUTS / 2 * panel.vectors * VF_LEN * ATTN_WORD;
                else if (!last)
                    block.next = block.at + work->panel_bytes;
                else
                    block.next = (const char *)work->panel + (block.next - (const char *)panel.panel);
                ATTN_BY_WIDTH(panel.vectors, pairs_block, &panel, at, pitch, &next, &block, sums[p]);
            }
        }
    }
}

#endif
