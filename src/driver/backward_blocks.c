/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of queries of the backward pass: where what belongs to them lies, and walks over their keys. */
#include "driver/backward_blocks.h"

/* ------------------------------------------------------------------- memory -- */

float *attn_backward_key_dots(const struct attn_run *run, const struct attn_sequence *sequence, int64_t h)
{
    const struct attn_problem *problem = run->problem;
    const int64_t head = sequence->batch * problem->q.shape[1] + h;
    return attn_backward_floats(run, run->backward->key_dots_at) + head * problem->k.shape[2] + sequence->k_first +
           sequence->begin;
}

void attn_backward_query_ends(const struct attn_run *run, int64_t head, struct attn_backward_block *block)
{
    float **const ends = block->gradients.relative.query_ends;
    const int64_t tokens = run->problem->q.shape[2];
    ends[0] = attn_backward_floats(run, run->backward->query_ends_at) + 2 * head * tokens + block->first;
    ends[1] = ends[0] + tokens;
}

int attn_backward_block_of(const struct attn_run *run, int64_t s, int64_t h, int64_t number, void *scratch,
                           struct attn_backward_block *block)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    if (!attn_work_of(run, s, h, number, scratch, &block->work))
        return 0;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const struct attn_work *work = &block->work;
    attn_gradient_layout(&block->scratch, (char *)scratch + run->steps->scratch_at, &run->steps->shape);
    block->batch = sequence.batch;
    block->first = work->first_query;
    const int64_t head = sequence.batch * problem->q.shape[1] + h;
    block->delta = attn_backward_floats(run, b->delta_at) + head * problem->q.shape[2] + block->first;
    block->gradients = (struct attn_gradient_block){
        .dout = attn_head_rows(&b->dout, block->batch, h, block->first),
        .delta = block->delta,
        .dq_strip = run->geometry->group ? run->geometry->kernels.strip * run->steps->shape.dq_channels : 0,
        .factor = problem->params.head_scale ? problem->params.head_scale[h] : 1.0f,
        .callback = b->callback,
        .callback_user = b->callback_user,
        .scratch = &block->scratch};
    if (!attn_backward_sums_queries(b))
        return 1;
    if (problem->params.ragged) /* blocks of all sequences count on */
        number += (problem->params.ragged->cu_seqlens_q[s] / run->geometry->unit + s) * run->geometry->pieces;
    const int64_t at = b->dq_block
                           ? number * b->dq_block
                           : (block->first + s * run->geometry->kernels.vectors->lanes) * run->steps->shape.dq_channels;
    block->gradients.dq = attn_backward_floats(run, run->geometry->labels_size) + head * b->dq_head + at;
    if (!attn_has_elements(&problem->rel_k))
        return 1;
    block->gradients.relative.dq = attn_backward_floats(run, b->relative_dq_at) + head * b->dq_head + at;
    attn_backward_query_ends(run, head, block);
    return 1;
}

int64_t attn_backward_blocks(const struct attn_run *run, int64_t s)
{
    const int64_t queries = attn_sequence_of(run->problem, s).queries, unit = run->geometry->unit;
    return (queries / unit + (queries % unit > 0)) * run->geometry->pieces;
}

/* -------------------------------------------------------------------- walks -- */

/** The pass over a block of queries and keys first to end - 1, a task's keys at a time. */
static void walk(const struct attn_run *run, struct attn_backward_block *block, int64_t first, int64_t end)
{
    const int64_t size = run->steps->shape.keys;
    const struct attn_gradient_scratch all = block->scratch;
    float *const ends[2] = {block->gradients.relative.key_ends[0], block->gradients.relative.key_ends[1]};
    for (; first < end; first += size) {
        struct attn_gradient_keys keys =
            attn_gradient_keys_of(&block->work, first, first + size < end ? first + size : end, &all);
        block->scratch.dk = block->scratch.dv = NULL;
        for (int side = 0; side < 2 && ends[side]; side++)
            block->gradients.relative.key_ends[side] = ends[side] + first;
        attn_gradient_pass(&block->work, &block->gradients, &keys);
    }
}

void attn_backward_walk(const struct attn_run *run, struct attn_backward_block *block, int64_t s)
{
    const struct attn_sequence sequence = attn_sequence_of(run->problem, s);
    block->gradients.dq = block->gradients.relative.dq = NULL;
    walk(run, block, 0, s < run->problem->num_sequences ? sequence.end - sequence.begin : 0);
}

void attn_backward_walk_queries(const struct attn_run *run, struct attn_backward_block *block, int64_t s)
{
    const struct attn_sequence sequence = attn_sequence_of(run->problem, s);
    const struct attn_view *view = &block->work.view;
    const int64_t size = run->steps->shape.keys, last = block->work.num_queries - 1;
    int64_t first = 0, end = s < run->problem->num_sequences ? sequence.end - sequence.begin : 0;
    if (view->num_global == 0 && view->first_tokens <= 0 && view->window_first > 0)
        first = view->window_first / size * size;
    if (view->num_global == 0 && last + view->window_last + 1 < end && view->first_tokens <= 0)
        end = last + view->window_last + 1;
    if (last + view->diagonal + 1 < end && view->prefix <= 0)
        end = last + view->diagonal + 1;
    walk(run, block, first, end);
}
