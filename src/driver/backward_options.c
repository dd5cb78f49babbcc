/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of options: sums over all queries of a head, or over whatever a
 * number of a mask is for, in the order of sequences, heads, queries and keys.
 *
 * Biases by distance are shared by all pairs of a head: its blocks of queries are
 * cut into spans, whose number follows from shapes alone. A task has the sums of
 * a span of a head to itself, in double, and when all have ended they are added
 * in their order. A number of a mask has one task.
 */
#include "driver/backward_options.h"

#include "driver/backward_blocks.h"
#include "driver/backward_rows.h"

#include <math.h>
#include <string.h>

/* Channels of a row that are floats at once. */
#define SOME_CHANNELS 64

struct attn_run attn_backward_fixed_run(const struct attn_run *run)
{
    const struct attn_backward_steps *fixed = &run->backward->fixed;
    return (struct attn_run){.problem = run->problem,
                             .geometry = &fixed->geometry,
                             .labels = run->labels,
                             .backward = run->backward,
                             .steps = fixed,
                             .partials = run->partials};
}

int64_t attn_backward_head_tasks(const struct attn_backward *b)
{
    const int rows = attn_has_elements(&b->drel_k) || attn_has_elements(&b->drel_q);
    return b->dhead_scale || b->dsinks || b->dslopes || b->dtable || rows ? b->forward.q.shape[1] : 0;
}

/** The gradients of scores of a block of queries and all its keys, added to those of biases. */
static void add_biases(const struct attn_run *run, struct attn_backward_block *block, int64_t s,
                       struct attn_bias_gradients *biases)
{
    block->gradients.biases = biases;
    attn_backward_walk(run, block, s);
}

/** What keys of a sequence give to the gradient of a head's factor by way of rel_q. */
static double position_part(const struct attn_run *run, int64_t s, int64_t h)
{
    const struct attn_problem *problem = run->problem;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    if (!attn_has_elements(&problem->rel_q) || sequence.queries == 0)
        return 0.0;
    const float *const dots = attn_backward_key_dots(run, &sequence, h);
    double sum = 0.0;
    for (int64_t j = 0; j < sequence.end - sequence.begin; j++)
        sum += (double)dots[j];
    return sum;
}

/** Channel c and those behind it of row i, SOME_CHANNELS at most, as floats. Returns how many. */
static int some_channels(const struct attn_work *work, const struct attn_rows *rows, int64_t i, int64_t c, float *dst)
{
    const int n = (int)(work->dv - c < SOME_CHANNELS ? work->dv - c : SOME_CHANNELS);
    struct attn_rows some = *rows;
    some.data = (char *)rows->data + i * rows->stride + c * attn_element_size(rows->dtype);
    work->kernels->vectors->widen(dst, &some, 1, n);
    return n;
}

/** delta of a row, in double: floats have no room for the product of some rows. */
static double exact_delta(const struct attn_run *run, int64_t h, const struct attn_backward_block *block, int64_t i)
{
    const struct attn_work *work = &block->work;
    const attn_tensor *dlse = &run->backward->dlse;
    double sum = 0.0;
    for (int64_t c = 0; c < work->dv; c += SOME_CHANNELS) {
        float out[SOME_CHANNELS], dout[SOME_CHANNELS];
        const int n = some_channels(work, &work->out, i, c, out);
        some_channels(work, &block->gradients.dout, i, c, dout);
        for (int j = 0; j < n; j++)
            sum += (double)out[j] * (double)dout[j];
    }
    if (attn_has_elements(dlse))
        sum -= (double)((const float *)dlse->data)[block->batch * attn_step_of(dlse, 0) + h * attn_step_of(dlse, 1) +
                                                   (block->first + i) * attn_step_of(dlse, 2)];
    return sum;
}

/** What a row gives to the gradient of its head's sink. */
static double sink_part(const struct attn_run *run, int64_t h, const struct attn_backward_block *block, int64_t i)
{
    const struct attn_work *work = &block->work;
    const float sink = *work->sinks, lse = work->lse[i * work->lse_stride], delta = block->delta[i];
    if (sink == -INFINITY)
        return 0.0;
    return -exp((double)sink - (double)lse) * (isfinite(delta) ? (double)delta : exact_delta(run, h, block, i));
}

/** Sums of biases by distance that a span of a head has: that of the slope, then those of the table. */
static double *span_sums(const struct attn_run *run, int64_t span, int64_t h)
{
    const struct attn_backward *b = run->backward;
    double *const all = (double *)(void *)attn_backward_floats(run, b->spans_at);
    return all + (span * run->problem->q.shape[1] + h) * attn_backward_distance_sums(b);
}

/** The blocks of a span: of all sequences, one after the other. */
static void sum_distances(const struct attn_run *run, int64_t span, int64_t h, void *scratch)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    double *const sums = span_sums(run, span, h);
    memset(sums, 0, (size_t)attn_backward_distance_sums(b) * sizeof *sums);
    struct attn_bias_gradients biases = {.distances = 1, .table = b->dtable ? sums + 1 : NULL};
    const int64_t blocks = attn_backward_elements(problem) * run->steps->query_blocks;
    const int64_t end = attn_backward_span_begin(blocks, b->spans, span + 1);
    for (int64_t i = attn_backward_span_begin(blocks, b->spans, span); i < end; i++) {
        struct attn_backward_block block;
        int64_t number = i % run->steps->query_blocks, s = i / run->steps->query_blocks;
        if (problem->params.ragged)
            s = attn_ragged_block(run, &number);
        if (s < problem->num_sequences && attn_backward_block_of(run, s, h, number, scratch, &block))
            add_biases(run, &block, s, &biases);
    }
    sums[0] = biases.slope;
}

/** The sums of a head's spans, added. */
static void join_distances(const struct attn_run *run, int64_t h)
{
    const struct attn_backward *b = run->backward;
    double slope = 0.0;
    for (int64_t span = 0; span < b->spans; span++)
        slope += span_sums(run, span, h)[0];
    if (b->dslopes)
        b->dslopes[h] = (float)slope;
    for (int64_t i = 0; b->dtable && i < b->buckets; i++) {
        double sum = 0.0;
        for (int64_t span = 0; span < b->spans; span++)
            sum += span_sums(run, span, h)[1 + i];
        b->dtable[h * b->buckets + i] = (float)sum;
    }
}

/** What the rows of a sequence give to the gradients of its head's sink and factor. */
static void add_rows(const struct attn_run *run, int64_t s, int64_t h, void *scratch, double *sink, double *factor)
{
    const struct attn_backward *b = run->backward;
    struct attn_backward_block block;
    if (!b->dsinks && !b->dhead_scale)
        return;
    for (int64_t number = 0; number < attn_backward_blocks(run, s); number++) {
        if (!attn_backward_block_of(run, s, h, number, scratch, &block))
            continue;
        const int64_t queries = block.work.num_queries;
        for (int64_t i = 0; b->dsinks && i < queries; i++)
            *sink += sink_part(run, h, &block, i);
        const float *dots =
            attn_backward_floats(run, b->dots_at) + (block.delta - attn_backward_floats(run, b->delta_at));
        for (int64_t i = 0; b->dhead_scale && i < queries; i++)
            *factor += (double)dots[i];
    }
    if (b->dhead_scale)
        *factor += position_part(run, s, h);
}

void attn_backward_head_task(const struct attn_run *run, int64_t h, void *scratch)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    const struct attn_run fixed = attn_backward_fixed_run(run); /* where there are rows */
    struct attn_backward_rows rows = attn_backward_begin_rows(run, h);
    double sink = 0.0, factor = 0.0;
    for (int64_t s = 0; s < problem->num_sequences; s++) {
        add_rows(run, s, h, scratch, &sink, &factor);
        attn_backward_add_rows(&fixed, &rows, s, scratch);
    }
    if (b->dhead_scale)
        b->dhead_scale[h] = (float)(factor * (double)problem->scale);
    if (b->dsinks)
        b->dsinks[h] = (float)sink;
    join_distances(run, h);
}

/** Elements from index 0 to index i of an axis that may be broadcast. */
static int64_t broadcast_offset(const attn_tensor *t, int axis, int64_t i)
{
    return t->shape[axis] > 1 ? i * t->stride[axis] : 0;
}

/** The gradient of some rows of a mask for a block of queries. */
static void add_mask(const struct attn_run *run, int64_t s, int64_t h, int64_t number, void *scratch)
{
    const attn_tensor *mask = &run->backward->dmask;
    struct attn_backward_block block;
    if (!attn_backward_block_of(run, s, h, number, scratch, &block) || s == run->problem->num_sequences)
        return;
    const struct attn_sequence sequence = attn_sequence_of(run->problem, s);
    const int64_t key = sequence.k_first + sequence.begin;
    float *const data = mask->data;
    struct attn_bias_gradients biases = {
        .mask = {.data = data + broadcast_offset(mask, 0, block.batch) + broadcast_offset(mask, 1, h) +
                         broadcast_offset(mask, 2, block.first) + broadcast_offset(mask, 3, key),
                 .query_stride = (ptrdiff_t)attn_step_of(mask, 2),
                 .key_stride = (ptrdiff_t)attn_step_of(mask, 3),
                 .dtype = ATTN_F32}};
    add_biases(run, &block, s, &biases);
}

/** 0 in rows first..end-1 of a head of a mask's gradient. */
static void clear_mask(const attn_tensor *mask, int64_t b, int64_t h, int64_t first, int64_t end)
{
    float *const data = (float *)mask->data + broadcast_offset(mask, 0, b) + broadcast_offset(mask, 1, h);
    for (int64_t i = first; i < end; i++)
        for (int64_t j = 0; j < mask->shape[3]; j++)
            data[broadcast_offset(mask, 2, i) + broadcast_offset(mask, 3, j)] = 0.0f;
}

/** All that is summed up in one number of a mask, for those of a head and, if it has rows, of a block of queries. */
static void mask_option(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    const attn_tensor *mask = &run->backward->dmask;
    const int has_rows = mask->shape[2] > 1, ragged = problem->params.ragged != NULL;
    const int64_t blocks = has_rows ? run->steps->query_blocks : 1;
    const int64_t mh = task / blocks % mask->shape[1], mb = task / blocks / mask->shape[1];
    const int64_t first_head = mask->shape[1] > 1 ? mh : 0,
                  end_head = mask->shape[1] > 1 ? mh + 1 : problem->q.shape[1];
    if (problem->q.shape[1] == 0 || problem->q.shape[0] == 0) { /* there are no queries */
        clear_mask(mask, mb, mh, 0, task % blocks == 0 ? mask->shape[2] : 0);
        return;
    }
    int64_t number = task % blocks, first = mask->shape[0] > 1 ? mb : 0;
    int64_t end = mask->shape[0] > 1 ? mb + 1 : problem->num_sequences;
    if (ragged) {
        first = has_rows ? attn_ragged_block(run, &number) : 0;
        end = has_rows ? first + 1 : problem->num_sequences;
    }
    if (!has_rows)
        clear_mask(mask, mb, mh, 0, 1);
    struct attn_backward_block block;
    const int64_t some = ragged ? first : 0;
    if (has_rows && attn_backward_block_of(run, some, 0, number, scratch, &block))
        clear_mask(mask, mb, mh, block.first, block.first + block.work.num_queries);
    for (int64_t s = first; s < end; s++)
        for (int64_t h = first_head; h < end_head; h++)
            for (int64_t i = has_rows ? number : 0; i < (has_rows ? number + 1 : attn_backward_blocks(run, s)); i++)
                add_mask(run, s, h, i, scratch);
}

void attn_backward_option_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_run fixed = attn_backward_fixed_run(run);
    const int64_t spans = run->backward->spans, heads = run->problem->q.shape[1];
    if (task < spans * heads) /* the last queries, which may see most keys, come first */
        sum_distances(&fixed, spans - 1 - task / heads, task % heads, scratch);
    else
        mask_option(&fixed, task - spans * heads, scratch);
}
