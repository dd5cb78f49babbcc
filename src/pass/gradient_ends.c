/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes before the sums of the backward pass, the products of the rows of dO
 * and O, and what follows them: rows of dQ, dK and dV, with the scale, and turned
 * back where Q and K were turned.
 */
#include "kernels/gradient_sums.h"
#include "pass/gradients.h"
#include "pass/pass.h"

#include <math.h>

/** Marks the lanes of a strip that see one of n keys. */
static void mark_seen(const struct attn_tile_mask *mask, int lanes, int n, uint8_t *sees)
{
    for (int r = 0; r < lanes; r++) {
        int any = mask->kind == MASK_NONE || (mask->kind == MASK_DIAGONAL && r + mask->diagonal >= 0);
        for (int j = 0; j < n && !any; j++)
            any = mask->kind == MASK_LIVE   ? mask->live[j * mask->live_pitch + r] != 0
                  : mask->kind == MASK_BIAS ? !(mask->bias[j * mask->bias_pitch + r] == -INFINITY)
                                            : 0;
        sees[r] |= (uint8_t)any;
    }
}

/** Marks the queries of a block that see a key: sees[i] is 0 for the others. */
static void find_seeing(const struct attn_work *work, uint8_t *sees)
{
    struct pass pass;
    attn_begin_pass(&pass, work);
    const int64_t size = pass.scratch.key_block;
    memset(sees, 0, (size_t)work->num_queries);
    for (int64_t i = 0; i < pass.num_strips; i++) {
        const struct strip *strip = &pass.strips[i];
        for (int64_t first = attn_next_block(&pass, strip, 1, 0); first < pass.end;
             first = attn_next_block(&pass, strip, 1, first + size)) {
            const struct span span =
                attn_span_at(work, first, (int)(pass.end - first < size ? pass.end - first : size));
            struct run run = {.hi = 0};
            while (attn_next_run(&pass, strip, &span, run.hi, &run)) {
                const int n = run.hi - run.lo;
                const struct attn_tile_mask mask = attn_mask_of(&pass, strip, first + run.lo, n, run.kind);
                mark_seen(&mask, strip->rows, n, sees + strip->first);
                if (!work->view.pattern_size)
                    break;
            }
        }
    }
}

/** Whether a row may have nothing but its sink: lse is that, about. */
static int may_see_nothing(const struct attn_work *work, int64_t i)
{
    const float lse = work->lse[i * work->lse_stride];
    return work->sinks && fabsf(lse - *work->sinks) <= 1e-5f * (1.0f + fabsf(lse));
}

void attn_delta_pass(const struct attn_work *work, const struct attn_rows *dout, const float *dlse,
                     ptrdiff_t dlse_stride, float *delta)
{
    uint8_t sees[ATTN_MAX_STRIPS * ATTN_MAX_STRIP];
    int looked = 0;
    work->kernels->vectors->dot_rows(delta, dout, &work->out, work->num_queries, work->dv);
    for (int64_t i = 0; i < work->num_queries; i++) {
        const int unseeing = work->lse[i * work->lse_stride] == -INFINITY;
        const int doubtful = !unseeing && may_see_nothing(work, i);
        if (doubtful && !looked) {
            find_seeing(work, sees);
            looked = 1;
        }
        if (unseeing || (doubtful && !sees[i])) /* its rows may hold anything */
            delta[i] = 0.0f;
        if (!unseeing && dlse)
            delta[i] -= dlse[i * dlse_stride];
    }
}

/** Turns a row of floats back, as a row of a table has turned it. */
static void turn_back(const struct attn_work *work, const float *table, float *row, float *inverse)
{
    const int64_t pairs = work->rope.pairs;
    if (attn_is_zero(row, work->dk))
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
    const int64_t stride = attn_sum_channels(work->kernels->gradients, channels);
    for (int64_t i = 0; i < n; i++) {
        char *row = row_of(rows, first + i);
        if (table && table->data)
            turn_back(work, (const float *)(const void *)row_of(table, first + i), sums + i * stride, scratch->table);
        work->kernels->vectors->write_few(&row, rows->dtype, sums + i * stride, 1, channels, &factor);
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
        const ptrdiff_t at = attn_strip_sums(work, block, strip->first, i);
        float *const sums = block->dq + at;
        if (block->relative.dq)
            attn_join_relative_queries(work, strip->first, strip->rows, strip->width, &block->relative,
                                       block->relative.dq + at, sums);
        const int turns = work->rope.q.data != NULL;
        const struct attn_rows floats =
            turns || dots ? query_sums(&pass, block, strip, sums) : (struct attn_rows){.data = NULL};
        if (dots) {
            const struct attn_rows q = attn_rows_from(&work->q, strip->first);
            pass.vectors->dot_rows(dots + strip->first, &q, &floats, strip->rows, work->dk);
            for (int r = 0; r < strip->rows; r++) /* a row of q that sees no key may hold anything */
                if (attn_is_zero((const float *)(const void *)row_of(&floats, r), work->dk))
                    dots[strip->first + r] = 0.0f;
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
