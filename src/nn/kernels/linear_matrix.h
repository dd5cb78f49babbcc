/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x times panels of packed weights on matrix registers: pairs of bf16, or
 * fours of int8 where ATTN_MATRIX_INT8 is defined. A row of words of a panel is a
 * row of the second operand, so weights are used as they lie, and 64 bytes of a row
 * of x are one of the first.
 *
 *     registers   0 1 2   sums of 16 rows, for each vector of the panel
 *                 3 4 5   of the next 16 rows
 *                 6, 7    x, weights
 *
 * A step takes 64 bytes of each row: with 32 rows and 3 vectors 7 loads for 6
 * products. Sums stay in their registers through all inputs of rows that can be
 * read where they lie; rows of x that have to become bf16 do so in spans, once for a
 * run of panels. Every row of x takes the same steps, whatever rows there are
 * beside it; where there are fewer than 16, zeros are multiplied in their place.
 */
#ifndef ATTN_NN_LINEAR_MATRIX_H
#define ATTN_NN_LINEAR_MATRIX_H

#ifdef ATTN_MATRIX_INT8
#include "nn/kernels/linear_int8.h"
#define MATRIX_PANEL NN_PANEL_QUADS
#define MATRIX_DOT   matrix_dot_int8
#else
#include "nn/kernels/linear_sums.h"
#include "nn/kernels/typed.h"
#define MATRIX_PANEL NN_PANEL_PAIRS
#define MATRIX_DOT   matrix_dot_bf16
#endif
#include ATTN_MATRIX

/** Bytes of a row of x that a step takes, and rows of words of a panel. */
#define STEP_BYTES 64
#define STEP_WORDS 16

/** Rows that are multiplied together. */
#define PAIR_ROWS (2 * MATRIX_ROWS)

/** Some rows of x, as they are multiplied. */
struct matrix_rows {
    const char *at;  /* the first */
    ptrdiff_t pitch; /* from row to row */
    int count;       /* 1 to PAIR_ROWS */
    int64_t bytes;   /* of each; behind them lies something else, if they are no whole steps */
};

/** The products of a step: 32 rows if two, else 16. */
ATTN_INLINE void matrix_step(const int two, const int nv, const char *x, ptrdiff_t pitch, const char *weights)
{
    const ptrdiff_t row = (ptrdiff_t)nv * STEP_BYTES, next = MATRIX_ROWS * pitch;
    matrix_load(7, weights, row);
    matrix_load(6, x, pitch);
    MATRIX_DOT(0, 6, 7);
    if (two) {
        matrix_load(6, x + next, pitch);
        MATRIX_DOT(3, 6, 7);
    }
    if (nv > 1) {
        matrix_load(7, weights + STEP_BYTES, row);
        if (two) { /* the second 16 rows are there */
            MATRIX_DOT(4, 6, 7);
            matrix_load(6, x, pitch);
        }
        MATRIX_DOT(1, 6, 7);
    }
    if (nv > 2) {
        matrix_load(7, weights + 2 * STEP_BYTES, row);
        MATRIX_DOT(2, 6, 7);
        if (two) {
            matrix_load(6, x + next, pitch);
            MATRIX_DOT(5, 6, 7);
        }
    }
}

/** A step's rows of x, or of words of a panel, with zeros for those that are missing and behind what there is of each.
 */
static void matrix_stage(char *to, int rows, ptrdiff_t width, const char *from, ptrdiff_t pitch, int count,
                         ptrdiff_t bytes)
{
    for (int i = 0; i < rows; i++, to += width) {
        const ptrdiff_t n = i < count ? bytes : 0;
        memset(to, 0, (size_t)width);
        if (n)
            memcpy(to, from + i * pitch, (size_t)n);
    }
}

/** Loads or stores the registers of sums that are in use; at sums lie rows of nv vectors. */
#define MATRIX_EACH_SUM(move, two, nv, sums)                                                                           \
    do {                                                                                                               \
        move(0, sums, (nv)*STEP_BYTES);                                                                                \
        if ((nv) > 1)                                                                                                  \
            move(1, (sums) + STEP_BYTES, (nv)*STEP_BYTES);                                                             \
        if ((nv) > 2)                                                                                                  \
            move(2, (sums) + 2 * STEP_BYTES, (nv)*STEP_BYTES);                                                         \
        if (two)                                                                                                       \
            move(3, (sums) + MATRIX_ROWS * (nv)*STEP_BYTES, (nv)*STEP_BYTES);                                          \
        if ((two) && (nv) > 1)                                                                                         \
            move(4, (sums) + (MATRIX_ROWS * (nv) + 1) * STEP_BYTES, (nv)*STEP_BYTES);                                  \
        if ((two) && (nv) > 2)                                                                                         \
            move(5, (sums) + (MATRIX_ROWS * (nv) + 2) * STEP_BYTES, (nv)*STEP_BYTES);                                  \
    } while (0)

/** A register of sums at 0, where nothing has been summed. */
#define MATRIX_FRESH(r, at, stride) matrix_zero(r)

/** Adds the products of a span of inputs to the sums of 32 or 16 rows; ask: for weights that lie behind these. */
ATTN_INLINE void matrix_span(const int two, const int nv, int ask, const struct matrix_rows *x, const char *weights,
                             int fresh, char *sums)
{
    char staged[PAIR_ROWS][STEP_BYTES] __attribute__((aligned(64)));
    char last[STEP_WORDS * VF_STRIP * STEP_BYTES] __attribute__((aligned(64)));
    const int rows = two ? PAIR_ROWS : MATRIX_ROWS;
    const ptrdiff_t step = (ptrdiff_t)nv * STEP_WORDS * STEP_BYTES;
    if (fresh)
        MATRIX_EACH_SUM(MATRIX_FRESH, two, nv, sums);
    else
        MATRIX_EACH_SUM(matrix_load, two, nv, sums);
    for (int64_t at = 0; at < x->bytes; at += STEP_BYTES, weights += step) {
        const ptrdiff_t left = x->bytes - at < STEP_BYTES ? (ptrdiff_t)(x->bytes - at) : STEP_BYTES;
        const char *from = x->at + at, *words = weights;
        ptrdiff_t pitch = x->pitch;
        if (ask)
            linear_ask(weights + LINEAR_AHEAD, step);
        if (x->count < rows || left < STEP_BYTES) {
            matrix_stage(staged[0], rows, STEP_BYTES, from, pitch, x->count, left);
            from = staged[0];
            pitch = STEP_BYTES;
        }
        if (left < STEP_BYTES) { /* there are no more words */
            matrix_stage(last, STEP_WORDS, nv * STEP_BYTES, weights, nv * STEP_BYTES, (int)((left + 3) / 4),
                         nv * STEP_BYTES);
            words = last;
        }
        matrix_step(two, nv, from, pitch, words);
    }
    MATRIX_EACH_SUM(matrix_store, two, nv, sums);
}

/** The same for all rows of a task. */
ATTN_INLINE void matrix_panel(const int nv, int64_t rows, const struct matrix_rows *x, const char *weights, int fresh,
                              char *sums)
{
    struct matrix_rows some = *x;
    for (int64_t r = 0; r < rows; r += PAIR_ROWS) {
        some.count = rows - r < PAIR_ROWS ? (int)(rows - r) : PAIR_ROWS;
        some.at = x->at + r * x->pitch;
        char *const of_rows = sums + r * nv * STEP_BYTES;
        if (some.count > MATRIX_ROWS)
            matrix_span(1, nv, r == 0, &some, weights, fresh, of_rows);
        else
            matrix_span(0, nv, r == 0, &some, weights, fresh, of_rows);
    }
}

/** Sums of all rows and panels of a run: those of rows are rounded up to whole registers. */
struct matrix_sums {
    char of[NN_LINEAR_RUN][NN_LINEAR_ROWS * STRIP * sizeof(float)] __attribute__((aligned(ATTN_ALIGN)));
};

/** Adds the products of a span of inputs, from input c on, to the sums of a run. */
static void matrix_run(const struct nn_linear_work *work, const struct matrix_rows *x, int64_t c,
                       struct matrix_sums *sums)
{
    matrix_enter();
    for (int p = 0; p < work->panels; p++) {
        const struct nn_linear_work panel = linear_panel_of(work, p);
        const struct linear_weights block = linear_block_at(MATRIX_PANEL, panel.vectors, &panel, c);
        ATTN_BY_WIDTH(panel.vectors, matrix_panel, panel.rows, x, block.at, c == 0, sums->of[p]);
    }
    matrix_leave();
}

#ifdef ATTN_MATRIX_INT8

static void int8_matrix_panels(const struct nn_linear_work *work)
{
    if (work->group || work->kind != NN_PANEL_QUADS) { /* sums would end with every group */
        linear_int8_panels(work);
        return;
    }
    struct matrix_sums sums;
    /* Behind the last integer of a row there are zeros, up to a whole step, but not behind the last weight. */
    const struct matrix_rows x = {(const char *)work->quants->bytes, work->quants->pitch, 0,
                                  (work->inputs + 3) / 4 * 4};
    matrix_run(work, &x, 0, &sums);
    for (int p = 0; p < work->panels; p++) {
        const struct nn_linear_work panel = linear_panel_of(work, p);
        int8_finish(&panel, 0, panel.rows, (float *)(void *)sums.of[p]);
    }
}

#else

/** Inputs of a span: of 128 rows as many as stay in L2 beside weights. */
#define SPAN_INPUTS 512

/** Inputs c..c+n-1 of all rows as bf16: rows of SPAN_INPUTS in room. */
static void matrix_take_x(const struct nn_linear_work *work, int64_t c, int64_t n, uint16_t *room)
{
    const attn_dtype dtype = work->x.dtype;
    for (int64_t r = 0; r < work->rows; r++, room += SPAN_INPUTS)
        for (int64_t i = 0; i < n; i += VF_LEN) {
            const char *const row = row_at(&work->x, r) + c * attn_element_size(dtype);
            vf_store_bf16(room + i, typed_load(dtype, row, i, n - i < VF_LEN ? (int)(n - i) : VF_LEN));
        }
}

static void pairs_matrix_panels(const struct nn_linear_work *work)
{
    struct matrix_sums sums;
    if (work->x.dtype == ATTN_BF16) {
        const struct matrix_rows x = {work->x.data, work->x.stride, 0, work->inputs * 2};
        matrix_run(work, &x, 0, &sums);
    } else {
        uint16_t room[NN_LINEAR_ROWS * SPAN_INPUTS] __attribute__((aligned(ATTN_ALIGN)));
        for (int64_t c = 0; c == 0 || c < work->inputs; c += SPAN_INPUTS) {
            const int64_t n = work->inputs - c < SPAN_INPUTS ? work->inputs - c : SPAN_INPUTS;
            const struct matrix_rows x = {(const char *)room, SPAN_INPUTS * 2, 0, n * 2};
            matrix_take_x(work, c, n, room);
            matrix_run(work, &x, c, &sums);
        }
    }
    for (int p = 0; p < work->panels; p++) {
        const struct nn_linear_work panel = linear_panel_of(work, p);
        panel.finish(&panel, 0, panel.rows, (float *)(void *)sums.of[p]);
    }
}

#endif

#endif
