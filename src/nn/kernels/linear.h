/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x times panels of packed weights:
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
 * Narrow weights and rows of x are widened, which is exact: where rows are few, and where the processor does so beside
 * multiply-adds, as they are loaded; else for many rows a block at a time, into copies, that of x for a run of panels.
 * The bits are the same. Integers are multiplied as they are; where groups of inputs have scales, the sums of each
 * group begin at 0, and are added to those before them times the scale.
 *
 * What a row has of its sums between two blocks waits in `sums`. Behind the last block each tile goes to out at once:
 * its sums are in L1, and lines of out come from memory while the next tile is multiplied. The order of
 * summation of an output is that of the inputs, whatever the tile's shape, so
 * neither other rows nor the cut of the work change a bit.
 */
#ifndef ATTN_NN_LINEAR_KERNEL_H
#define ATTN_NN_LINEAR_KERNEL_H

#include "nn/kernels/activation.h"
#include "nn/kernels/linear_sums.h"
#include "nn/kernels/typed.h"

/** Rows up to which narrow weights are widened as they are loaded on any processor. */
#define LINEAR_FEW_ROWS VF_KEYS

/** The bf16 nearest to each of n floats. */
static inline void linear_round(float *x, int64_t n)
{
    for (int64_t c = 0; c < n; c += VF_LEN) { /* behind the last there is room */
        uint16_t t[VF_LEN];
        vf_store_bf16(t, vf_load(x + c));
        vf_store(x + c, vf_load_bf16(t));
    }
}

/**
 * n inputs of all rows from input c on as floats: rows of LINEAR_INPUTS in room, with -0 behind them up to padded. The
 * sum of anything and -0 times +0 is what it was.
 */
static void linear_take_x(const struct nn_linear_work *work, int64_t c, int64_t n, int64_t padded, float *room)
{
    const attn_dtype dtype = work->x.dtype;
    for (int64_t r = 0; r < work->rows; r++, room += LINEAR_INPUTS) {
        const struct attn_rows row = {row_at(&work->x, r) + c * attn_element_size(dtype), 0, dtype, NULL, 0};
        ATTN_BY_DTYPE(dtype, widen_rows, room, &row, 1, n);
        for (int64_t i = n; i < padded; i++)
            room[i] = -0.0f;
        if (work->round_x && dtype != ATTN_BF16)
            linear_round(room, padded);
    }
}

/** A vector of inputs k of the words at p. */
ATTN_INLINE vf linear_input(const enum nn_panel kind, const char *p, const int k)
{
    switch (kind) {
    case NN_PANEL_F16:
        return vf_load_f16((const uint16_t *)(const void *)p);
    case NN_PANEL_PAIRS:
        return vf_of_bits(k == 0 ? vu_shift_left(vu_load(p), 16) : vu_and(vu_load(p), vu_set1(0xffff0000u)));
    case NN_PANEL_INT8:
        return vf_load_int8((const int8_t *)p);
    case NN_PANEL_NIBBLES:
        return vf_nibble(vu_load(p), 8 * (k & 3) + (k & 4));
    default:
        return vf_load((const float *)(const void *)p);
    }
}

/** Adds the products of the words at p, of which one row is the inputs at x, to the sums of a tile. */
ATTN_INLINE void linear_words(const enum nn_panel kind, const int nr, const int nv, const char *p, const float *x,
                              const ptrdiff_t pitch, vf acc[VF_KEYS][VF_STRIP])
{
    ATTN_UNROLL
    for (int k = 0; k < nn_panel_inputs(kind); k++) {
        vf w[VF_STRIP];
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            w[v] = linear_input(kind, p + v * VF_LEN * nn_panel_word(kind), k);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vf b = vf_set1(x[i * pitch + k]);
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] = vf_fma(b, w[v], acc[i][v]);
        }
    }
}

/** Sums of rows plus bias, through the activation, in their place. */
ATTN_INLINE void linear_activate(const attn_activation activation, const struct nn_linear_work *work, int64_t rows,
                                 float *sums)
{
    const int nv = work->vectors;
    for (int64_t r = 0; r < rows; r++, sums += nv * VF_LEN)
        for (int v = 0; v < nv; v++) {
            const vf sum = vf_add(vf_load(sums + v * VF_LEN), vf_load(work->bias + v * VF_LEN));
            vf_store(sums + v * VF_LEN, activated(activation, sum));
        }
}

/** Rows first..first+rows-1 of out: what has become of their sums, or the sums with the bias, and the residual. */
ATTN_INLINE void linear_store(const int nv, const attn_dtype dtype, const struct nn_linear_work *work, int64_t first,
                              int64_t rows, const float *sums)
{
    const int last = work->outputs - (nv - 1) * VF_LEN; /* live lanes of the last vector */
    const int sums_only = work->activation == ATTN_ACTIVATION_NONE;
    vf bias[VF_STRIP];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        bias[v] = vf_load(work->bias + v * VF_LEN);
    for (int64_t r = first; r < first + rows; r++, sums += nv * VF_LEN) {
        char *const out = row_at(&work->out, r);
        const char *const residual = work->residual.data ? row_at(&work->residual, r) : NULL;
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            const int live = v == nv - 1 ? last : VF_LEN;
            vf y = vf_load(sums + v * VF_LEN);
            if (sums_only)
                y = vf_add(y, bias[v]);
            if (residual)
                y = vf_add(y, typed_load(work->residual.dtype, residual, v * VF_LEN, live));
            typed_store(dtype, out, v * VF_LEN, y, live);
        }
    }
}

ATTN_INLINE void linear_store_rows(const attn_dtype dtype, const struct nn_linear_work *work, int64_t first,
                                   int64_t rows, const float *sums)
{
    ATTN_BY_WIDTH(work->vectors, linear_store, dtype, work, first, rows, sums);
}

static void linear_finish(const struct nn_linear_work *work, int64_t first, int64_t rows, float *sums)
{
    if (work->activation != ATTN_ACTIVATION_NONE)
        NN_BY_ACTIVATION(work->activation, linear_activate, work, rows, sums);
    ATTN_BY_DTYPE(work->out.dtype, linear_store_rows, work, first, rows, sums);
}

/** The sums of rows first..first+rows-1 to out; those of integers times the scales of their outputs first. */
static void linear_end(const struct nn_linear_work *work, int64_t first, int64_t rows, float *sums)
{
    const int nv = work->vectors;
    for (int64_t r = 0; work->scale && !work->group && r < rows; r++)
        for (int v = 0; v < nv; v++) {
            float *const sum = sums + (r * nv + v) * VF_LEN;
            vf_store(sum, vf_mul(vf_load(sum), vf_load((const float *)work->scale + v * VF_LEN)));
        }
    work->finish(work, first, rows, sums);
}

/**
 * Adds the products of a block of inputs to the sums of nr rows of x, which wait there from block to block. Of every
 * row of words of what comes next, asks for ahead vectors.
 */
ATTN_INLINE void linear_rows(const int nr, const enum nn_panel kind, const int nv, const int ahead,
                             const struct nn_linear_work *work, const float *x, const ptrdiff_t pitch,
                             const struct linear_weights *block, float *sums)
{
    const int unit = nn_panel_inputs(kind);
    const ptrdiff_t step = (ptrdiff_t)VF_LEN * nn_panel_word(kind);
    const int64_t n = block->c1 - block->c0, padded = (n + unit - 1) / unit * unit;
    const int64_t span = work->group ? work->group : padded;
    int64_t from = 0;
    do {
        const int64_t to = padded - from < span ? padded : from + span;
        const int fresh = work->group || block->c0 == 0;
        const char *at = block->at + from / unit * nv * step, *next = block->next + from / unit * ahead * step;
        vf acc[VF_KEYS][VF_STRIP];
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] = fresh ? vf_zero() : vf_load(sums + (i * nv + v) * VF_LEN);
        }
        const int some = unit > 2 ? 1 : 4 / unit; /* rows of words at a time */
        int64_t c = from;
        for (; c + some * unit <= to; c += some * unit) {
            linear_ask(next, some * ahead * step);
            ATTN_UNROLL
            for (int k = 0; k < some; k++)
                linear_words(kind, nr, nv, at + k * nv * step, x + c + k * unit, pitch, acc);
            at += some * nv * step;
            next += some * ahead * step;
        }
        for (; c < to; c += unit, at += nv * step)
            linear_words(kind, nr, nv, at, x + c, pitch, acc);
        if (kind != NN_PANEL_F32 && work->group)
            linear_ask_scales(kind, nv, work, block->c0 + from);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            ATTN_UNROLL
            for (int v = 0; v < nv; v++) {
                float *const sum = sums + (i * nv + v) * VF_LEN;
                if (work->group) {
                    const vf before = block->c0 + from == 0 ? vf_zero() : vf_load(sum);
                    acc[i][v] = vf_fma(acc[i][v], linear_scale(nv, work, block->c0 + from, v), before);
                }
                vf_store(sum, acc[i][v]);
            }
        }
        from = to;
    } while (from < n);
}

/* ------------------------------------------------------- weights as loaded -- */

/** The sums of rows whose weights are widened as they are loaded, once for each tile of rows. */
ATTN_INLINE void linear_as_loaded_sums(const int nv, const enum nn_panel kind, const struct nn_linear_work *work,
                                       float *sums)
{
    float room[LINEAR_FEW_ROWS * LINEAR_INPUTS] __attribute__((aligned(ATTN_ALIGN)));
    const int unit = nn_panel_inputs(kind);
    for (int64_t c = 0; c == 0 || c < work->inputs; c += LINEAR_INPUTS) {
        struct linear_weights block = linear_block_at(kind, nv, work, c);
        const int64_t n = block.c1 - block.c0, padded = (n + unit - 1) / unit * unit;
        const int in_place = work->x.dtype == ATTN_F32 && !work->round_x && n == padded;
        const float *x = room;
        ptrdiff_t pitch = LINEAR_INPUTS;
        if (in_place) {
            x = (const float *)(const void *)row_at(&work->x, 0) + c;
            pitch = work->x.stride / (ptrdiff_t)sizeof *x;
        } else {
            linear_take_x(work, c, n, padded, room);
        }
        if (kind != NN_PANEL_F32)
            block.next = block.at + LINEAR_AHEAD;
        if (linear_is_fetched(work)) {
            linear_rows(1, kind, nv, 0, work, x, pitch, &block, sums);
            if (block.c1 == work->inputs)
                linear_end(work, 0, 1, sums);
            continue;
        }
        for (int64_t r = 0; r < work->rows;) {
            const int nr = linear_tile_rows(work->rows - r);
            LINEAR_BY_ROWS(nr, linear_rows, kind, nv, nv, work, x + r * pitch, pitch, &block, sums + r * nv * VF_LEN);
            if (block.c1 == work->inputs)
                linear_end(work, r, nr, sums + r * nv * VF_LEN);
            r += nr;
        }
    }
}

/** Rows times one panel, which is full if it is narrow. */
static void linear_as_loaded(const struct nn_linear_work *work)
{
    float sums[NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    switch (work->kind) {
    case NN_PANEL_F16:
        linear_as_loaded_sums(VF_STRIP, NN_PANEL_F16, work, sums);
        break;
    case NN_PANEL_PAIRS:
        linear_as_loaded_sums(VF_STRIP, NN_PANEL_PAIRS, work, sums);
        break;
    case NN_PANEL_INT8:
        linear_as_loaded_sums(VF_STRIP, NN_PANEL_INT8, work, sums);
        break;
    case NN_PANEL_NIBBLES:
        linear_as_loaded_sums(VF_STRIP, NN_PANEL_NIBBLES, work, sums);
        break;
    default:
        ATTN_BY_WIDTH(work->vectors, linear_as_loaded_sums, NN_PANEL_F32, work, sums);
    }
}

/* ----------------------------------------------------- weights made floats -- */

/** A block's weights as floats. */
ATTN_INLINE void linear_widen(const int nv, const enum nn_panel kind, const struct linear_weights *block, float *wide)
{
    const int unit = nn_panel_inputs(kind);
    const ptrdiff_t step = (ptrdiff_t)VF_LEN * nn_panel_word(kind);
    const int64_t n = block->c1 - block->c0;
    const char *at = block->at;
    for (int64_t c = 0; c < n; c += unit, at += nv * step) {
        ATTN_UNROLL
        for (int k = 0; k < unit; k++) {
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                vf_store(wide + ((c + k) * nv + v) * VF_LEN, linear_input(kind, at + v * step, k));
        }
    }
}

/** The block of a narrow panel as floats. */
static void linear_widen_block(const struct nn_linear_work *work, struct linear_weights *block, float *wide)
{
    switch (work->kind) {
    case NN_PANEL_F16:
        ATTN_BY_WIDTH(work->vectors, linear_widen, NN_PANEL_F16, block, wide);
        break;
    case NN_PANEL_PAIRS:
        ATTN_BY_WIDTH(work->vectors, linear_widen, NN_PANEL_PAIRS, block, wide);
        break;
    case NN_PANEL_INT8:
        ATTN_BY_WIDTH(work->vectors, linear_widen, NN_PANEL_INT8, block, wide);
        break;
    default:
        ATTN_BY_WIDTH(work->vectors, linear_widen, NN_PANEL_NIBBLES, block, wide);
    }
    block->at = (const char *)wide;
}

/**
 * Adds the products of a block of weights in f32 to the sums of all rows; behind the last block ends them. While it
 * does so asks for the weights that come next: each of the first tiles for as much as it has time for.
 */
ATTN_INLINE void linear_block(const int nv, const struct nn_linear_work *work, const float *x, const ptrdiff_t pitch,
                              struct linear_weights block, float *sums)
{
    const int unit = nn_panel_inputs(work->kind), asks = (nv * nn_panel_word(work->kind) + 4 * unit - 1) / (4 * unit);
    int64_t r = 0;
    for (int t = 0; r < work->rows; t++) {
        const int nr = linear_tile_rows(work->rows - r);
        float *const of_rows = sums + r * nv * VF_LEN;
        if (t < asks) {
            LINEAR_BY_ROWS(nr, linear_rows, NN_PANEL_F32, nv, 1, work, x + r * pitch, pitch, &block, of_rows);
            block.next += LINEAR_INPUTS * VF_LEN * sizeof(float);
        } else {
            LINEAR_BY_ROWS(nr, linear_rows, NN_PANEL_F32, nv, 0, work, x + r * pitch, pitch, &block, of_rows);
        }
        if (block.c1 == work->inputs)
            linear_end(work, r, nr, of_rows);
        r += nr;
    }
}

/** linear_block() with rows of LINEAR_INPUTS. */
ATTN_INLINE void linear_ready_block(const int nv, const struct nn_linear_work *work, const float *x,
                                    struct linear_weights block, float *sums)
{
    linear_block(nv, work, x, LINEAR_INPUTS, block, sums);
}

/** Rows of floats times one panel of floats, both as they are. */
static void linear_in_place(const struct nn_linear_work *work)
{
    float sums[NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const float *const x = work->x.data;
    const ptrdiff_t pitch = work->x.stride / (ptrdiff_t)sizeof *x;
    for (int64_t c = 0; c == 0 || c < work->inputs; c += LINEAR_INPUTS) {
        const struct linear_weights block = linear_block_at(NN_PANEL_F32, work->vectors, work, c);
        ATTN_BY_WIDTH(work->vectors, linear_block, work, x + c, pitch, block, sums);
    }
}

/**
 * Rows times the panels of a run: block of inputs by block x is made floats once for all panels, and the weights of a
 * panel once for all rows.
 */
static void linear_many(const struct nn_linear_work *work)
{
    float x[NN_LINEAR_ROWS * LINEAR_INPUTS] __attribute__((aligned(ATTN_ALIGN)));
    float wide[(LINEAR_INPUTS + 8) * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float sums[NN_LINEAR_RUN][NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    struct nn_linear_work panel[NN_LINEAR_RUN];
    for (int p = 0; p < work->panels; p++)
        panel[p] = linear_panel_of(work, p);
    for (int64_t c = 0; c == 0 || c < work->inputs; c += LINEAR_INPUTS) {
        const int64_t n = work->inputs - c < LINEAR_INPUTS ? work->inputs - c : LINEAR_INPUTS;
        linear_take_x(work, c, n, n, x);
        for (int p = 0; p < work->panels; p++) {
            const int last = p + 1 == work->panels;
            struct linear_weights block = linear_block_at(work->kind, work->vectors, &panel[p], c);
            block.next = last ? linear_block_at(work->kind, work->vectors, &panel[0], c + LINEAR_INPUTS).at
                              : linear_block_at(work->kind, work->vectors, &panel[p + 1], c).at;
            if (work->kind != NN_PANEL_F32)
                linear_widen_block(work, &block, wide);
            ATTN_BY_WIDTH(work->vectors, linear_ready_block, &panel[p], x, block, sums[p]);
        }
    }
}

/** Whether x can be read where it lies, through whole words of weights. */
static int linear_is_in_place(const struct nn_linear_work *work)
{
    return work->x.dtype == ATTN_F32 && !work->round_x && work->inputs % nn_panel_inputs(work->kind) == 0;
}

static void linear_panels(const struct nn_linear_work *work)
{
    const int wide = work->kind == NN_PANEL_F32, in_place = linear_is_in_place(work);
    const int few = work->rows <= LINEAR_FEW_ROWS, beside = !wide && in_place && work->widens_beside;
    const int as_loaded = (few || beside) && (wide || work->vectors == VF_STRIP);
    if (!as_loaded && !(wide && in_place)) {
        linear_many(work);
        return;
    }
    for (int p = 0; p < work->panels; p++) {
        const struct nn_linear_work panel = linear_panel_of(work, p);
        if (as_loaded)
            linear_as_loaded(&panel);
        else
            linear_in_place(&panel);
    }
}

#endif
