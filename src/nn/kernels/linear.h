/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x times a panel of packed weights:
 *
 *     y[row][o] = activation(sum_c x[row][c] * panel[c][o] + bias[o]) + residual[row][o]
 *
 * The register tile is that of attention's scores (kernels/score_tile.h): lanes are
 * outputs, an element of x is broadcast against VF_STRIP vectors of weights, and
 * VF_KEYS rows accumulate at a time, so that with 8 x 3 vectors on AVX-512 11
 * loads feed 24 multiply-adds.
 *
 *     for each block of LINEAR_INPUTS inputs        its part of the panel: L1
 *         for each VF_KEYS rows                     accumulators: registers
 *             for each input of the block           one row of the panel, one element of each row
 *
 * Weights are used by few rows at a time where there is one sentence or one step of decoding, so they come from far.
 * They lie in the order in which they are read, and while one block is used the next is asked for: by each tile of rows
 * a part of it, so that memory is kept busy all the time.
 *
 * Weights in bf16 and f16 are widened, which is exact: as they are loaded where rows are few, for many rows a block at
 * a time, into a copy. The bits are those of the same weights in f32.
 *
 * What a row has of its sums between two blocks waits in `unfinished`. The order of
 * summation of an output is that of the inputs, whatever the tile's shape, so
 * neither other rows nor the cut of the work change a bit.
 */
#ifndef ATTN_NN_LINEAR_KERNEL_H
#define ATTN_NN_LINEAR_KERNEL_H

#include "kernels/rows.h"
#include "nn/kernels/activation.h"
#include "nn/kernels/typed.h"

/** Inputs of a block: with a full panel 24 KiB on AVX-512, 12 KiB on AVX2. */
#define LINEAR_INPUTS 128

/** The weights of some inputs, c0..c1-1, and those behind them, which are wanted next. */
struct linear_weights {
    int64_t c0, c1;
    const char *at, *next;
};

/**
 * Where n elements of rows x[0..nr-1] stand as floats, from the input on at which a block begins: in place, or widened
 * into wide.
 */
ATTN_INLINE void linear_x(const int nr, const struct attn_rows *rows, int64_t r, int64_t c0, int64_t n,
                          float wide[VF_KEYS][LINEAR_INPUTS], const float *x[VF_KEYS])
{
    if (rows->dtype == ATTN_F32) {
        for (int i = 0; i < nr; i++)
            x[i] = (const float *)(const void *)row_at(rows, r + i) + c0;
        return;
    }
    for (int i = 0; i < nr; i++) {
        const struct attn_rows row = {row_at(rows, r + i) + c0 * 2, 0, rows->dtype};
        if (rows->dtype == ATTN_BF16)
            widen_rows(ATTN_BF16, wide[i], &row, 1, n);
        else
            widen_rows(ATTN_F16, wide[i], &row, 1, n);
        x[i] = wide[i];
    }
}

/**
 * Adds the products of a block of inputs to the unfinished sums of nr rows from row r on. Of every row of the next
 * block's weights, asks for ahead vectors from next on.
 */
ATTN_INLINE void linear_rows(const attn_dtype dtype, const int nr, const int nv, const int ahead,
                             const struct nn_linear_work *work, int64_t r, const struct linear_weights *block,
                             float *unfinished)
{
    vf acc[VF_KEYS][VF_STRIP];
    const float *x[VF_KEYS];
    float wide[VF_KEYS][LINEAR_INPUTS];
    linear_x(nr, &work->x, r, block->c0, block->c1 - block->c0, wide, x);
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] = block->c0 == 0 ? vf_zero() : vf_load(unfinished + ((r + i) * nv + v) * VF_LEN);
    }
    const ptrdiff_t step = VF_LEN * attn_element_size(dtype);
    const int64_t n = block->c1 - block->c0;
    const char *at = block->at, *next = block->next;
#pragma GCC unroll 4
    for (int64_t c = 0; c < n; c++) {
        vf w[VF_STRIP];
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            w[v] = row_load(dtype, at + (c * nv + v) * step);
        ATTN_UNROLL
        for (int v = 0; v < ahead; v++)
            __builtin_prefetch(next + (c * nv + v) * step, 0, 2);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vf b = vf_set1(x[i][c]);
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] = vf_fma(b, w[v], acc[i][v]);
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            vf_store(unfinished + ((r + i) * nv + v) * VF_LEN, acc[i][v]);
    }
}

/** The same for as many rows as are left of a block's, up to VF_KEYS; returns how many. */
ATTN_INLINE int linear_tile(const attn_dtype dtype, const int nv, const int ahead, const struct nn_linear_work *work,
                            int64_t r, const struct linear_weights *block, float *unfinished)
{
    const int64_t left = work->rows - r;
    if (left >= VF_KEYS) {
        linear_rows(dtype, VF_KEYS, nv, ahead, work, r, block, unfinished);
        return VF_KEYS;
    }
    if (VF_KEYS > 4 && left >= 4) {
        linear_rows(dtype, 4, nv, ahead, work, r, block, unfinished);
        return 4;
    }
    if (VF_KEYS > 2 && left >= 2) {
        linear_rows(dtype, 2, nv, ahead, work, r, block, unfinished);
        return 2;
    }
    linear_rows(dtype, 1, nv, ahead, work, r, block, unfinished);
    return 1;
}

/** The unfinished sums of a block of inputs, for all rows, with weights in f32. */
ATTN_INLINE void linear_block(const int nv, const struct nn_linear_work *work, struct linear_weights block,
                              float *unfinished)
{
    int64_t r = 0;
    if (work->rows <= VF_KEYS && nv > 1) { /* one or few tiles: the first asks for everything */
        r += linear_tile(ATTN_F32, nv, nv, work, r, &block, unfinished);
    } else {
        for (int v = 0; v < nv && r < work->rows; v++, block.next += VF_LEN * sizeof(float))
            r += linear_tile(ATTN_F32, nv, 1, work, r, &block, unfinished);
    }
    while (r < work->rows)
        r += linear_tile(ATTN_F32, nv, 0, work, r, &block, unfinished);
}

/** The same for weights in bf16 or f16, with as few rows as a tile has at most. */
ATTN_INLINE void linear_narrow_tile(const attn_dtype dtype, const int nv, const struct nn_linear_work *work,
                                    const struct linear_weights *block, float *unfinished)
{
    for (int64_t r = 0; r < work->rows;)
        r += linear_tile(dtype, nv, nv, work, r, block, unfinished);
}

/** A block's weights as floats. */
ATTN_INLINE void linear_widen(const attn_dtype dtype, const int nv, const struct linear_weights *block, float *wide)
{
    const int64_t vectors = (block->c1 - block->c0) * nv;
    for (int64_t i = 0; i < vectors; i++)
        vf_store(wide + i * VF_LEN, row_load(dtype, block->at + i * VF_LEN * attn_element_size(dtype)));
}

/** Finished sums to rows of out. */
ATTN_INLINE void linear_finish(const attn_activation activation, const int nv, const struct nn_linear_work *work,
                               const float *sums)
{
    const int last = work->outputs - (nv - 1) * VF_LEN; /* live lanes of the last vector */
    for (int64_t r = 0; r < work->rows; r++) {
        char *out = row_at(&work->out, r);
        const char *residual = work->residual.data ? row_at(&work->residual, r) : NULL;
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            const int tail = v == nv - 1 && last < VF_LEN;
            const vf sum = vf_add(vf_load(sums + (r * nv + v) * VF_LEN), vf_load(work->bias + v * VF_LEN));
            vf y = activated(activation, sum);
            if (residual)
                y = vf_add(y, typed_load(work->residual.dtype, residual, v * VF_LEN, tail ? last : VF_LEN));
            typed_store(work->out.dtype, out, v * VF_LEN, y, tail ? last : VF_LEN);
        }
    }
}

ATTN_INLINE void linear_body(const int nv, const struct nn_linear_work *work)
{
    float unfinished[NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float wide[LINEAR_INPUTS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const ptrdiff_t row = nv * VF_LEN * attn_element_size(work->dtype);
    for (int64_t c = 0; c == 0 || c < work->inputs; c += LINEAR_INPUTS) {
        const char *const at = (const char *)work->panel + c * row;
        struct linear_weights block = {c, work->inputs - c < LINEAR_INPUTS ? work->inputs : c + LINEAR_INPUTS, at,
                                       at + LINEAR_INPUTS * row};
        if (work->dtype == ATTN_BF16 && work->rows <= VF_KEYS) {
            linear_narrow_tile(ATTN_BF16, nv, work, &block, unfinished);
            continue;
        }
        if (work->dtype == ATTN_F16 && work->rows <= VF_KEYS) {
            linear_narrow_tile(ATTN_F16, nv, work, &block, unfinished);
            continue;
        }
        if (work->dtype == ATTN_BF16)
            linear_widen(ATTN_BF16, nv, &block, wide);
        else if (work->dtype == ATTN_F16)
            linear_widen(ATTN_F16, nv, &block, wide);
        if (work->dtype != ATTN_F32)
            block.at = (const char *)wide; /* asks for the next as if it were f32: twice as far as need be */
        linear_block(nv, work, block, unfinished);
    }
    NN_BY_ACTIVATION(work->activation, linear_finish, nv, work, unfinished);
}

static void linear_panel(const struct nn_linear_work *work)
{
    ATTN_BY_WIDTH(work->vectors, linear_body, work);
}

#endif
