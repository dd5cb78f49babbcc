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
 * Narrow weights are widened, which is exact: as they are loaded where rows are few, for many rows a block at a time,
 * into a copy. The bits are the same. Integers are multiplied as they are; where groups of inputs have scales, the sums
 * of each group begin at 0, and are added to those before them times the scale.
 *
 * What a row has of its sums between two blocks waits in `unfinished`. The order of
 * summation of an output is that of the inputs, whatever the tile's shape, so
 * neither other rows nor the cut of the work change a bit.
 */
#ifndef ATTN_NN_LINEAR_KERNEL_H
#define ATTN_NN_LINEAR_KERNEL_H

#include "nn/kernels/activation.h"
#include "nn/kernels/linear_sums.h"
#include "nn/kernels/typed.h"

/** Rows up to which narrow weights are widened as they are loaded, once for each tile of rows. */
#define LINEAR_FEW_ROWS VF_KEYS

/** Where rows of x stand as floats, from the input on at which a block begins. */
struct linear_x {
    const float *row[VF_KEYS];
    float wide[VF_KEYS][LINEAR_INPUTS] __attribute__((aligned(ATTN_ALIGN)));
};

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
 * n elements of nr rows from row r and input c0 on: in place, or as floats in x->wide, with -0 behind them up to
 * padded. The sum of anything and -0 times +0 is what it was.
 */
static void linear_take_x(int nr, const struct nn_linear_work *work, int64_t r, int64_t c0, int64_t n, int64_t padded,
                          struct linear_x *x)
{
    const ptrdiff_t at = c0 * attn_element_size(work->x.dtype);
    if (work->x.dtype == ATTN_F32 && !work->round_x && n == padded) {
        for (int i = 0; i < nr; i++)
            x->row[i] = (const float *)(const void *)(row_at(&work->x, r + i) + at);
        return;
    }
    for (int i = 0; i < nr; i++) {
        const struct attn_rows row = {row_at(&work->x, r + i) + at, 0, work->x.dtype};
        ATTN_BY_DTYPE(work->x.dtype, widen_rows, x->wide[i], &row, 1, n);
        for (int64_t c = n; c < padded; c++)
            x->wide[i][c] = -0.0f;
        if (work->round_x)
            linear_round(x->wide[i], padded);
        x->row[i] = x->wide[i];
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

/** Adds the products of the words at p, of which one row is the inputs from c on, to the sums of a tile. */
ATTN_INLINE void linear_words(const enum nn_panel kind, const int nr, const int nv, const char *p,
                              const float *const x[VF_KEYS], int64_t c, vf acc[VF_KEYS][VF_STRIP])
{
    ATTN_UNROLL
    for (int k = 0; k < nn_panel_inputs(kind); k++) {
        vf w[VF_STRIP];
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            w[v] = linear_input(kind, p + v * VF_LEN * nn_panel_word(kind), k);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vf b = vf_set1(x[i][c + k]);
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] = vf_fma(b, w[v], acc[i][v]);
        }
    }
}

/**
 * Adds the products of a block of inputs to the unfinished sums of nr rows from row r on. Of every row of words of what
 * comes next, asks for ahead vectors.
 */
ATTN_INLINE void linear_rows(const int nr, const enum nn_panel kind, const int nv, const int ahead,
                             const struct nn_linear_work *work, int64_t r, const struct linear_weights *block,
                             float *unfinished)
{
    const int unit = nn_panel_inputs(kind);
    const ptrdiff_t step = (ptrdiff_t)VF_LEN * nn_panel_word(kind);
    const int64_t n = block->c1 - block->c0, padded = (n + unit - 1) / unit * unit;
    const int64_t span = work->group ? work->group : padded;
    struct linear_x x;
    linear_take_x(nr, work, r, block->c0, n, padded, &x);
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
                acc[i][v] = fresh ? vf_zero() : vf_load(unfinished + ((r + i) * nv + v) * VF_LEN);
        }
        const int some = unit > 2 ? 1 : 4 / unit; /* rows of words at a time */
        int64_t c = from;
        for (; c + some * unit <= to; c += some * unit) {
            linear_ask(next, some * ahead * step);
            ATTN_UNROLL
            for (int k = 0; k < some; k++)
                linear_words(kind, nr, nv, at + k * nv * step, x.row, c + k * unit, acc);
            at += some * nv * step;
            next += some * ahead * step;
        }
        for (; c < to; c += unit, at += nv * step)
            linear_words(kind, nr, nv, at, x.row, c, acc);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            ATTN_UNROLL
            for (int v = 0; v < nv; v++) {
                float *const sum = unfinished + ((r + i) * nv + v) * VF_LEN;
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

/** The unfinished sums of a block of inputs, for all rows, with weights in f32; ask: for those that come next. */
ATTN_INLINE void linear_block(const int nv, const int ask, const struct nn_linear_work *work,
                              struct linear_weights block, float *unfinished)
{
    int64_t r = 0;
    if (ask && work->rows <= VF_KEYS && nv > 1) { /* one or few tiles: the first asks for everything */
        const int nr = linear_tile_rows(work->rows);
        LINEAR_BY_ROWS(nr, linear_rows, NN_PANEL_F32, nv, nv, work, r, &block, unfinished);
        r += nr;
    } else if (ask) {
        for (int v = 0; v < nv && r < work->rows; v++, block.next += LINEAR_INPUTS * VF_LEN * sizeof(float)) {
            const int nr = linear_tile_rows(work->rows - r);
            LINEAR_BY_ROWS(nr, linear_rows, NN_PANEL_F32, nv, 1, work, r, &block, unfinished);
            r += nr;
        }
    }
    while (r < work->rows) {
        const int nr = linear_tile_rows(work->rows - r);
        LINEAR_BY_ROWS(nr, linear_rows, NN_PANEL_F32, nv, 0, work, r, &block, unfinished);
        r += nr;
    }
}

/** The same for few rows and narrow weights, as they are. */
ATTN_INLINE void linear_few(const enum nn_panel kind, const struct nn_linear_work *work, struct linear_weights block,
                            float *unfinished)
{
    block.next = block.at + LINEAR_AHEAD;
    for (int64_t r = 0; r < work->rows;) {
        const int nr = linear_tile_rows(work->rows - r);
        LINEAR_BY_ROWS(nr, linear_rows, kind, VF_STRIP, VF_STRIP, work, r, &block, unfinished);
        r += nr;
    }
}

/** A block's weights as floats, and the next block's asked for. */
ATTN_INLINE void linear_widen(const enum nn_panel kind, const int nv, const struct linear_weights *block, float *wide)
{
    const int unit = nn_panel_inputs(kind);
    const ptrdiff_t step = (ptrdiff_t)VF_LEN * nn_panel_word(kind);
    const int64_t n = block->c1 - block->c0;
    const char *at = block->at, *next = block->next;
    for (int64_t c = 0; c < n; c += unit, at += nv * step, next += nv * step) {
        linear_ask(next, nv * step);
        ATTN_UNROLL
        for (int k = 0; k < unit; k++) {
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                vf_store(wide + ((c + k) * nv + v) * VF_LEN, linear_input(kind, at + v * step, k));
        }
    }
}

/** Finished sums to rows of out. */
ATTN_INLINE void linear_finish_body(const attn_activation activation, const int nv, const struct nn_linear_work *work,
                                    const float *sums)
{
    const int last = work->outputs - (nv - 1) * VF_LEN; /* live lanes of the last vector */
    for (int64_t r = 0; r < work->rows; r++) {
        char *out = row_at(&work->out, r);
        const char *residual = work->residual.data ? row_at(&work->residual, r) : NULL;
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

static void linear_finish(const struct nn_linear_work *work, const float *sums)
{
    NN_BY_ACTIVATION(work->activation, linear_finish_body, work->vectors, work, sums);
}

/** Sums of integers times the scales of their outputs. */
ATTN_INLINE void linear_scale_sums(const int nv, const struct nn_linear_work *work, float *sums)
{
    for (int64_t r = 0; r < work->rows; r++)
        for (int v = 0; v < nv; v++) {
            float *const sum = sums + (r * nv + v) * VF_LEN;
            vf_store(sum, vf_mul(vf_load(sum), vf_load((const float *)work->scale + v * VF_LEN)));
        }
}

ATTN_INLINE void linear_body(const int nv, const struct nn_linear_work *work)
{
    float unfinished[NN_LINEAR_ROWS * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float wide[(LINEAR_INPUTS + 8) * STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const int few = nv == VF_STRIP && work->rows <= LINEAR_FEW_ROWS;
    for (int64_t c = 0; c == 0 || c < work->inputs; c += LINEAR_INPUTS) {
        struct linear_weights block = linear_block_at(work->kind, nv, work, c);
#define LINEAR_NARROW(kind)                                                                                            \
    case kind:                                                                                                         \
        if (few) {                                                                                                     \
            linear_few(kind, work, block, unfinished);                                                                 \
            continue;                                                                                                  \
        }                                                                                                              \
        linear_widen(kind, nv, &block, wide);                                                                          \
        break
        switch (work->kind) {
            LINEAR_NARROW(NN_PANEL_F16);
            LINEAR_NARROW(NN_PANEL_PAIRS);
            LINEAR_NARROW(NN_PANEL_INT8);
            LINEAR_NARROW(NN_PANEL_NIBBLES);
        default:
            linear_block(nv, 1, work, block, unfinished);
            continue;
        }
#undef LINEAR_NARROW
        block.at = (const char *)wide;
        linear_block(nv, 0, work, block, unfinished);
    }
    if (work->scale && !work->group)
        linear_scale_sums(nv, work, unfinished);
    work->finish(work, unfinished);
}

static void linear_panel(const struct nn_linear_work *work)
{
    ATTN_BY_WIDTH(work->vectors, linear_body, work);
}

#endif
