/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes before the sums of the backward pass, the products of the rows of dO
 * and O, and what follows them: rows of dQ, dK and dV, with the scale, and turned
 * back where Q and K were turned.
 */
#include "pass/gradients.h"
#include "pass/pass.h"

#include <math.h>

void attn_delta_pass(const struct attn_work *work, const struct attn_rows *dout, const float *dlse,
                     ptrdiff_t dlse_stride, float *delta)
{
    work->kernels->vectors->dot_rows(delta, dout, &work->out, work->num_queries, work->dv);
    for (int64_t i = 0; i < work->num_queries; i++) {
        const float lse = work->lse[i * work->lse_stride];
        /* Rows without a live key may hold anything. Of those that have a sink, lse is that, about. */
        const int sink_alone = work->sinks && !isfinite(delta[i]) && fabsf(lse - *work->sinks) <= 1e-6f * fabsf(lse);
        if (lse == -INFINITY || sink_alone)
            delta[i] = 0.0f;
        if (lse != -INFINITY && dlse)
            delta[i] -= dlse[i * dlse_stride];
    }
}

/** Whether a row is 0, as one is that nothing depends on: then its row of a table may hold anything. */
static int is_zero(const float *row, int64_t channels)
{
    int64_t c = 0;
    while (c < channels && row[c] == 0.0f)
        c++;
    return c == channels;
}

/** Turns a row of floats back, as a row of a table has turned it. */
static void turn_back(const struct attn_work *work, const float *table, float *row, float *inverse)
{
    const int64_t pairs = work->rope.pairs;
    if (is_zero(row, work->dk))
        return;
    for (int64_t i = 0; i < pairs; i++) {
        inverse[i] = table[i];
        inverse[pairs + i] = -table[pairs + i];
    }
    const struct attn_rows rows = {row, 0, ATTN_F32, NULL, 0};
    const struct attn_rotation rotation = {.x = rows,
                                           .out = rows,
                                           .table = inverse,
                                           .num_rows = 1,
                                           .pairs = pairs,
                                           .width = work->dk,
                                           .layout = work->rope.layout};
    work->kernels->vectors->rotate(&rotation);
}

void attn_key_gradients(const struct attn_work *work, const struct attn_rows *table, int64_t first, int64_t n,
                        float *sums, int64_t channels, float factor, const struct attn_gradient_scratch *scratch,
                        const struct attn_rows *rows)
{
    for (int64_t i = 0; i < n; i++) {
        char *row = row_of(rows, first + i);
        if (table && table->data)
            turn_back(work, (const float *)(const void *)row_of(table, first + i), sums + i * channels, scratch->table);
        work->kernels->vectors->write_few(&row, rows->dtype, sums + i * channels, 1, channels, &factor);
    }
}

/** A strip's rows of dq in f32, from its sums, in q_rows: without the scale, turned back. */
static struct attn_rows query_sums(const struct pass *pass, const struct attn_gradient_block *block,
                                   const struct strip *strip, const float *sums)
{
    const struct attn_work *work = pass->work;
    const struct attn_rows floats = {block->scratch->q_rows, work->dk * (ptrdiff_t)sizeof(float), ATTN_F32, NULL, 0};
    float one[ATTN_MAX_STRIP];
    char *rows[ATTN_MAX_STRIP];
    for (int r = 0; r < strip->rows; r++)
        one[r] = 1.0f;
    row_pointers(&floats, 0, strip->rows, rows);
    pass->vectors->write_rows(rows, ATTN_F32, sums, strip->width, strip->rows, work->dk, one);
    for (int r = 0; work->rope.q.data && r < strip->rows; r++)
        turn_back(work, (const float *)(const void *)row_of(&work->rope.q, strip->first + r), (float *)(void *)rows[r],
                  block->scratch->table);
    return floats;
}

void attn_query_gradients(const struct attn_work *work, const struct attn_gradient_block *block,
                          const struct attn_rows *dq, float factor, float *dots)
{
    struct pass pass;
    float factors[ATTN_MAX_STRIP];
    char *rows[ATTN_MAX_STRIP];
    attn_begin_pass(&pass, work);
    for (int r = 0; r < ATTN_MAX_STRIP; r++)
        factors[r] = factor;
    for (int64_t i = 0; i < pass.num_strips; i++) {
        const struct strip *strip = &pass.strips[i];
        const float *sums = block->dq + (block->dq_strip ? i * block->dq_strip : strip->first * work->dk);
        const int turns = work->rope.q.data != NULL;
        const struct attn_rows floats =
            turns || dots ? query_sums(&pass, block, strip, sums) : (struct attn_rows){.data = NULL};
        if (dots) {
            const struct attn_rows q = attn_rows_from(&work->q, strip->first);
            pass.vectors->dot_rows(dots + strip->first, &q, &floats, strip->rows, work->dk);
        }
        if (!dq->data)
            continue;
        row_pointers(dq, strip->first, strip->rows, rows);
        if (turns)
            pass.vectors->write_few(rows, dq->dtype, floats.data, strip->rows, work->dk, factors);
        else
            pass.vectors->write_rows(rows, dq->dtype, sums, strip->width, strip->rows, work->dk, factors);
    }
}
