/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x times a panel of packed weights, both as small integers. Words hold
 * four inputs of an output, and so do the broadcast words of x; of a word of
 * eight int4 the low halves of its bytes come first, then the high ones. Sums are exact, so
 * every instruction set has the same. They begin at what makes up for an offset
 * of the weights, which some sets multiply as unsigned bytes.
 *
 * A group of inputs has a scale of its own, in the weights of each output and in
 * each row of x, and ends a sum: as a float times both scales it is added to those
 * before it. So a large element costs only its own group its precision. Without
 * groups the int32 sums of all inputs are the unfinished ones.
 */
#ifndef ATTN_NN_LINEAR_INT8_H
#define ATTN_NN_LINEAR_INT8_H

#include "nn/kernels/linear_sums.h"
#include "nn/kernels/typed.h"

#ifndef ATTN_BYTES
#define ATTN_BYTES "simd/bytes_scalar.h"
#endif
#include ATTN_BYTES

#include <math.h>

/** Inputs of a block: with a full panel of bytes 24 KiB on AVX-512, as LINEAR_INPUTS of floats. */
#define INT8_INPUTS (4 * LINEAR_INPUTS)

/** Sums of a tile, with the products of one row of words of weights at p and of four inputs of each row at x + c. */
ATTN_INLINE void int8_words(const int nr, const int nv, const int high, const enum nn_panel kind, const char *p,
                            const int8_t *const x[VF_KEYS], int64_t c, vs acc[VF_KEYS][VF_STRIP])
{
    vq w[VF_STRIP];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        const char *const at = p + v * VF_LEN * 4;
        w[v] = kind == NN_PANEL_QUADS
                   ? vq_load(at)
                   : (vq)vu_and(high ? vu_shift_right(vu_load(at), 4) : vu_load(at), vu_set1(0x0f0f0f0fu));
    }
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        const vq b = vq_set1(x[i] + c);
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] = kind == NN_PANEL_QUADS ? vs_dot(b, w[v], acc[i][v]) : vs_dot_nibbles(b, w[v], acc[i][v]);
    }
}

/** The scales of a row's groups. */
ATTN_INLINE float *int8_scales(const struct nn_integer_rows *rows, int8_t *row)
{
    return (float *)(void *)(row + rows->scales);
}

/** linear_rows() of integers; sums are int32 without groups, else floats. Of every row of words of what comes next,
 * asks for the first ahead vectors. */
ATTN_INLINE void int8_rows(const int nr, const enum nn_panel kind, const int nv, const int ahead,
                           const struct nn_linear_work *work, int64_t r, const struct linear_weights *block,
                           float *unfinished)
{
    const struct nn_integer_rows *quants = work->quants;
    const int unit = nn_panel_inputs(kind);
    const ptrdiff_t step = (ptrdiff_t)VF_LEN * 4;
    const int64_t n = (block->c1 - block->c0 + unit - 1) / unit * unit, span = work->group ? work->group : n;
    const int8_t *x[VF_KEYS];
    const char *at = block->at, *next = block->next;
    ATTN_UNROLL
    for (int i = 0; i < nr; i++)
        x[i] = quants->bytes + (r + i) * quants->pitch + block->c0;
    int64_t from = 0;
    do {
        const int64_t to = n - from < span ? n : from + span;
        vs acc[VF_KEYS][VF_STRIP];
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const int64_t group = work->group ? (block->c0 + from) / work->group : 0;
            const int8_t *const starts = quants->bytes + (r + i) * quants->pitch + quants->starts;
            int32_t start;
            memcpy(&start, starts + group * (int64_t)sizeof start, sizeof start);
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] = work->group || block->c0 == 0 ? vs_set1(start)
                                                          : (vs)vu_load(unfinished + ((r + i) * nv + v) * VF_LEN);
        }
        for (int64_t c = from; c < to; c += unit, at += nv * step, next += nv * step) {
            linear_ask(next, ahead * step);
            int8_words(nr, nv, 0, kind, at, x, c, acc);
            if (kind == NN_PANEL_NIBBLES)
                int8_words(nr, nv, 1, kind, at, x, c + 4, acc);
        }
        if (ahead && work->group)
            linear_ask_scales(kind, nv, work, block->c0 + from);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            ATTN_UNROLL
            for (int v = 0; v < nv; v++) {
                float *const sum = unfinished + ((r + i) * nv + v) * VF_LEN;
                if (work->group) {
                    const vf before = block->c0 + from == 0 ? vf_zero() : vf_load(sum);
                    const float scale =
                        int8_scales(quants, quants->bytes + (r + i) * quants->pitch)[(block->c0 + from) / work->group];
                    const vf of_row = vf_mul(vs_float(acc[i][v]), vf_set1(scale));
                    vf_store(sum, vf_fma(of_row, linear_scale(nv, work, block->c0 + from, v), before));
                } else {
                    vu_store(sum, (vu)acc[i][v]);
                }
            }
        }
        from = to;
    } while (from < n);
}

/** Finished sums of rows first..first+rows-1, int32 without groups, become floats, times their scales. */
ATTN_INLINE void int8_scale(const int nv, const struct nn_linear_work *work, int64_t first, int64_t rows, float *sums)
{
    vf scale[VF_STRIP];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        scale[v] = work->group ? vf_zero() : vf_load((const float *)work->scale + v * VF_LEN);
    for (int64_t r = 0; r < rows; r++, sums += nv * VF_LEN) {
        const vf of_row = vf_set1(work->quants->scale[first + r]);
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            float *const sum = sums + v * VF_LEN;
            const vf y = work->group ? vf_load(sum) : vf_mul(vs_float((vs)vu_load(sum)), scale[v]);
            vf_store(sum, vf_mul(y, of_row));
        }
    }
}

/** The same, and to out. */
static void int8_finish(const struct nn_linear_work *work, int64_t first, int64_t rows, float *sums)
{
    ATTN_BY_WIDTH(work->vectors, int8_scale, work, first, rows, sums);
    work->finish(work, first, rows, sums);
}

/**
 * All rows of a block of inputs, and their end behind the last. A tile that is the only one asks for the weights behind
 * its own, unless the processor does so by itself; of several each of the first asks for a vector of each row of the
 * next block.
 */
ATTN_INLINE void int8_block(const enum nn_panel kind, const int nv, const struct nn_linear_work *work,
                            struct linear_weights block, float *unfinished)
{
    int nr = linear_tile_rows(work->rows);
    if (linear_is_fetched(work)) {
        int8_rows(1, kind, nv, 0, work, 0, &block, unfinished);
        if (block.c1 == work->inputs)
            int8_finish(work, 0, 1, unfinished);
        return;
    }
    if (nr == work->rows) {
        block.next = block.at + LINEAR_AHEAD;
        LINEAR_BY_ROWS(nr, int8_rows, kind, nv, nv, work, 0, &block, unfinished);
        if (block.c1 == work->inputs)
            int8_finish(work, 0, nr, unfinished);
        return;
    }
    block.next = block.at + INT8_INPUTS / nn_panel_inputs(kind) * nv * VF_LEN * 4;
    for (int64_t r = 0, t = 0; r < work->rows; r += nr, t++, block.next += VF_LEN * 4) {
        nr = linear_tile_rows(work->rows - r);
        if (t < nv)
            LINEAR_BY_ROWS(nr, int8_rows, kind, nv, 1, work, r, &block, unfinished);
        else
            LINEAR_BY_ROWS(nr, int8_rows, kind, nv, 0, work, r, &block, unfinished);
        if (block.c1 == work->inputs)
            int8_finish(work, r, nr, unfinished + r * nv * VF_LEN);
    }
}

ATTN_INLINE void int8_body(const int nv, const struct nn_linear_work *work)
{
    float sums[NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    for (int64_t c = 0; c == 0 || c < work->inputs; c += INT8_INPUTS) {
        const struct linear_weights block = linear_block_of(work->kind, nv, work, c, INT8_INPUTS);
        if (work->kind == NN_PANEL_QUADS)
            int8_block(NN_PANEL_QUADS, nv, work, block, sums);
        else
            int8_block(NN_PANEL_NIBBLES, nv, work, block, sums);
    }
}

static void linear_int8_panels(const struct nn_linear_work *work)
{
    for (int p = 0; p < work->panels; p++) {
        const struct nn_linear_work panel = linear_panel_of(work, p);
        ATTN_BY_WIDTH(panel.vectors, int8_body, &panel);
    }
}

/* ---------------------------------------------------------------- rows of x -- */

/** The largest size in a row, NaN if not all of it is finite. */
ATTN_INLINE float int8_row_size(const attn_dtype dtype, const char *row, int64_t n)
{
    vf size = vf_zero(), poison = vf_zero();
    for (int64_t c = 0; c < n; c += VF_LEN) {
        const vf x = typed_load(dtype, row, c, n - c < VF_LEN ? (int)(n - c) : VF_LEN);
        size = vf_max(vf_abs(x), size);
        poison = vf_fma(x, vf_zero(), poison);
    }
    const vf bad = vf_select(vf_eq(poison, poison), vf_zero(), vf_set1(1));
    return vf_max_across(bad) > 0 ? NAN : vf_max_across(size);
}

/** The integers of n elements of a size, from element first of a row on, and their scale; returns their sum. */
ATTN_INLINE int32_t int8_elements(const attn_dtype dtype, const char *row, int64_t first, int64_t n, float size,
                                  int8_t *bytes, float *scale)
{
    const float lift = size < 0x1p-100f ? 0x1p100f : 1.0f; /* no inverse overflows */
    const float inverse = size > 0 ? 127.0f / (size * lift) : 0.0f;
    vs sum = vs_zero();
    for (int64_t c = 0; c < n; c += VF_LEN) {
        const vf x = typed_load(dtype, row, first + c, n - c < VF_LEN ? (int)(n - c) : VF_LEN);
        sum = vs_add(sum, vs_quantize(bytes + first + c, vf_mul(vf_mul(x, vf_set1(lift)), vf_set1(inverse))));
    }
    *scale = size * lift / 127.0f / lift;
    return vs_sum(sum);
}

/** The sizes of a row's groups where their scales will stand; returns the largest, NaN if not all of it is finite. */
ATTN_INLINE float int8_group_sizes(const attn_dtype dtype, const char *row, int64_t inputs, int64_t group, float *sizes)
{
    float largest = 0, check = 0;
    for (int64_t first = 0, g = 0; first < inputs; first += group, g++) {
        const int64_t n = inputs - first < group ? inputs - first : group;
        sizes[g] = int8_row_size(dtype, row + first * attn_element_size(dtype), n);
        largest = sizes[g] > largest ? sizes[g] : largest;
        check += sizes[g] * 0; /* NaN stays */
    }
    return largest + check;
}

ATTN_INLINE void int8_quantize_body(const attn_dtype dtype, const struct nn_quantize_work *work)
{
    struct nn_integer_rows *to = work->to;
    const int64_t inputs = work->inputs, group = work->group ? work->group : inputs;
    for (int64_t r = 0; r < work->rows; r++) {
        const char *const row = row_at(&work->x, r);
        int8_t *const bytes = to->bytes + r * to->pitch;
        int32_t *const starts = (int32_t *)(void *)(bytes + to->starts);
        float *const sizes = work->group ? int8_scales(to, bytes) : &to->scale[r];
        const float size = int8_group_sizes(dtype, row, inputs, group, sizes);
        if (!(size > 0)) { /* zeros, or NaN */
            memset(bytes, 0, (size_t)to->pitch);
            to->scale[r] = size;
            continue;
        }
        for (int64_t first = 0, g = 0; first < inputs; first += group, g++) {
            const int64_t n = inputs - first < group ? inputs - first : group;
            starts[g] = -work->offset * int8_elements(dtype, row, first, n, sizes[g], bytes, &sizes[g]);
        }
        if (work->group)
            to->scale[r] = 1;
        memset(bytes + inputs, 0, (size_t)(to->starts - inputs));
    }
}

static void quantize_rows(const struct nn_quantize_work *work)
{
    ATTN_BY_DTYPE(work->x.dtype, int8_quantize_body, work);
}

#endif
