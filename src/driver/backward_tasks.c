/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of the backward pass: what comes before the sums over keys and
 * queries, these sums, and the rows that they become.
 */
#include "driver/backward_tasks.h"

#include "driver/backward_blocks.h"

#include <sched.h>
#include <string.h>

/* What a task has reached when nothing is left of it. */
#define ALL_STEPS INT64_MAX

/* Looks at a counter before a thread that waits lets others run. */
#define PATIENCE 256

/** Query heads of a key head. */
static int64_t heads_of_group(const struct attn_problem *problem)
{
    return problem->k.shape[1] > 0 ? problem->q.shape[1] / problem->k.shape[1] : 0;
}

static void clear_rows(const attn_tensor *t, int64_t b, int64_t first, int64_t end)
{
    for (int64_t h = 0; h < t->shape[1]; h++) {
        const struct attn_rows rows = attn_head_rows(t, b, h, 0);
        for (int64_t i = first; i < end; i++)
            memset((char *)rows.data + i * rows.stride, 0, (size_t)(t->shape[3] * attn_element_size(t->dtype)));
    }
}

/** The block of a task of the phases around the main one. Returns the sequence, or -1. */
static int64_t block_of_task(const struct attn_run *run, int64_t task, void *scratch, int64_t *h,
                             struct attn_backward_block *block)
{
    const int64_t heads = run->problem->q.shape[1];
    int64_t number = task % run->steps->query_blocks, s = task / run->steps->query_blocks / heads;
    *h = task / run->steps->query_blocks % heads;
    if (run->problem->params.ragged)
        s = attn_ragged_block(run, &number);
    return attn_backward_block_of(run, s, *h, number, scratch, block) ? s : -1;
}

/* -------------------------------------------------------------------- tasks -- */

/** Rows of dK and dV that no query can see: around the live keys of a sequence, or behind the last one. */
static void clear_unseen(const struct attn_run *run, int64_t s)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    if (s == problem->num_sequences && !problem->params.ragged)
        return;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    int64_t first = sequence.k_first, begin = first + sequence.begin, end = first + sequence.end,
            last = first + sequence.keys;
    if (s == problem->num_sequences) {
        first = problem->params.ragged->cu_seqlens_k[s];
        begin = end = last = problem->k.shape[2];
    }
    const attn_tensor *const tensors[] = {&b->dk, &b->dv};
    for (int i = 0; i < 2; i++) {
        if (!attn_has_elements(tensors[i]))
            continue;
        clear_rows(tensors[i], sequence.batch, first, begin);
        clear_rows(tensors[i], sequence.batch, end, last);
    }
}

void attn_backward_begin_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_backward *b = run->backward;
    struct attn_backward_block block;
    int64_t h;
    if (task >= b->query_tasks) {
        clear_unseen(run, task - b->query_tasks);
        return;
    }
    if (block_of_task(run, task, scratch, &h, &block) < 0)
        return;
    const attn_tensor *dlse = &b->dlse;
    const float *const given = attn_has_elements(dlse)
                                   ? (const float *)dlse->data + block.batch * attn_step_of(dlse, 0) +
                                         h * attn_step_of(dlse, 1) + block.first * attn_step_of(dlse, 2)
                                   : NULL;
    attn_delta_pass(&block.work, &block.gradients.dout, given, (ptrdiff_t)attn_step_of(dlse, 2), block.delta);
    if (!block.gradients.dq)
        return;
    const int64_t lanes = run->geometry->kernels.vectors->lanes;
    const int64_t rows = (block.work.num_queries + lanes - 1) / lanes * lanes;
    const int64_t floats = b->dq_block ? b->dq_block : rows * run->steps->shape.dq_channels;
    memset(block.gradients.dq, 0, (size_t)floats * sizeof(float));
    if (!block.gradients.relative.dq)
        return;
    memset(block.gradients.relative.dq, 0, (size_t)floats * sizeof(float));
    attn_clear_ends(block.gradients.relative.query_ends, 0, block.work.num_queries);
}

void attn_backward_end_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_backward *b = run->backward;
    struct attn_backward_block block;
    int64_t h;
    const int64_t s = block_of_task(run, attn_backward_end_block(b, task), scratch, &h, &block);
    if (s < 0)
        return;
    if (b->apart)
        attn_backward_walk_queries(run, &block, s);
    const struct attn_rows none = {.data = NULL};
    const struct attn_rows rows =
        attn_has_elements(&b->dq) ? attn_head_rows(&b->dq, block.batch, h, block.first) : none;
    float *const dots =
        b->dhead_scale ? attn_backward_floats(run, b->dots_at) + (block.delta - attn_backward_floats(run, b->delta_at))
                       : NULL;
    attn_query_gradients(&block.work, &block.gradients, &rows, run->problem->scale * block.gradients.factor, dots);
}

/** Waits until the tasks of earlier keys have done step number step. */
static void wait_for(const struct attn_run *run, struct attn_backward_keys *keys, int64_t step)
{
    atomic_llong *const reached = attn_backward_reached(run);
    for (int64_t i = keys->open; i < keys->before; i++) {
        atomic_llong *const other = &reached[keys->task - (keys->before - i) * keys->stride];
        long long at;
        for (int looks = 0; (at = atomic_load_explicit(other, memory_order_acquire)) <= step; looks++)
            if (looks >= PATIENCE)
                sched_yield();
        if (at == ALL_STEPS && i == keys->open)
            keys->open++;
    }
}

static void set_reached(const struct attn_run *run, const struct attn_backward_keys *keys, int64_t steps)
{
    atomic_store_explicit(&attn_backward_reached(run)[keys->task], steps, memory_order_release);
}

struct attn_backward_keys attn_backward_keys_of(const struct attn_run *run, int64_t task)
{
    const struct attn_problem *problem = run->problem;
    const int64_t size = run->steps->shape.keys, heads = problem->k.shape[1];
    const int64_t stride = attn_backward_elements(problem) * heads;
    if (run->backward->key_pieces > 0)
        task = attn_backward_order(run)[task / stride] * stride + task % stride;
    int64_t number = task / stride, s = task % stride / heads;
    if (problem->params.ragged)
        s = attn_piece_of(problem->params.ragged->cu_seqlens_k, problem->num_sequences, size, &number);
    struct attn_backward_keys keys = {.task = task, .stride = stride, .before = number, .s = s, .head = task % heads};
    if (s == problem->num_sequences)
        return keys;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const int64_t live = sequence.end - sequence.begin;
    keys.first = number * size;
    keys.end = keys.first + size < live ? keys.first + size : live;
    return keys;
}

/** Where the pieces of keys of sequence s begin among those of all (attn_piece_of()); at the end of all for what lies
 * behind the last sequence. */
static int64_t first_piece(const struct attn_run *run, int64_t s)
{
    const struct attn_problem *problem = run->problem;
    if (s > problem->num_sequences)
        return run->backward->key_pieces;
    return problem->params.ragged->cu_seqlens_k[s] / run->steps->shape.keys + s;
}

void attn_backward_order_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const int64_t num = run->problem->num_sequences + 1;
    int64_t *const order = attn_backward_order(run), *const active = order + run->backward->key_pieces;
    int64_t place = run->backward->key_pieces, left = num;
    (void)task;
    (void)scratch;
    for (int64_t s = 0; s < num; s++)
        active[s] = s;
    /* From the end: the last piece of each sequence, the last but one of those that have two, and so on. */
    for (int64_t last = 1; left > 0; last++) {
        const int64_t were = left;
        left = 0;
        for (int64_t i = 0; i < were; i++) {
            const int64_t s = active[i], first = first_piece(run, s), end = first_piece(run, s + 1);
            if (end - last >= first)
                order[--place] = end - last;
            if (end - last > first)
                active[left++] = s;
        }
    }
}

/** Blocks of queries of a head: from first to end - 1. */
struct blocks {
    int64_t first, end;
};

/**
 * Those, of so many, whose queries may see some of the keys, by causality and a window alone; view is that of the first
 * block. So a task does not look at each block of a long row of which it sees little.
 */
static struct blocks seeing_blocks(const struct attn_run *run, const struct attn_backward_keys *keys,
                                   const struct attn_view *view, int64_t blocks)
{
    const int64_t unit = run->geometry->unit, pieces = run->geometry->pieces;
    int64_t first = keys->first < view->prefix ? 0 : keys->first - view->diagonal, last = ATTN_FAR; /* queries */
    if (view->num_global == 0 && keys->first >= view->first_tokens) {
        const int64_t behind = keys->first - view->window_last;
        first = behind > first ? behind : first;
        last = keys->end - 1 - view->window_first;
    }
    return (struct blocks){
        .first = first > 0 ? first / unit * pieces : 0,
        .end = last < 0                        ? 0
               : last / unit < blocks / pieces ? (last / unit + 1) * pieces
                                               : blocks,
    };
}

/** Writes what a task has summed up. */
static void write_keys(const struct attn_run *run, const struct attn_backward_keys *keys, const struct attn_work *work,
                       const struct attn_gradient_scratch *sums)
{
    const struct attn_backward *b = run->backward;
    const struct attn_sequence sequence = attn_sequence_of(run->problem, keys->s);
    const int64_t row = sequence.k_first + sequence.begin;
    const attn_dropout *dropout = run->problem->params.dropout;
    const float keep = dropout ? (float)(1.0 / (1.0 - (double)dropout->p)) : 1.0f;
    if (attn_has_elements(&b->dk)) {
        const struct attn_rows rows = attn_head_rows(&b->dk, sequence.batch, keys->head, row);
        attn_key_gradients(work, &work->rope.k, keys->first, keys->end - keys->first, sums->dk, run->steps->shape.dk,
                           run->problem->scale, sums, &rows);
    }
    if (attn_has_elements(&b->dv)) {
        const struct attn_rows rows = attn_head_rows(&b->dv, sequence.batch, keys->head, row);
        attn_key_gradients(work, NULL, keys->first, keys->end - keys->first, sums->dv, run->steps->shape.dv, keep, sums,
                           &rows);
    }
}

/** Points the sums of rows of rel_q to a task's memory, if they are wanted, and clears them. */
static void begin_positions(const struct attn_run *run, const struct attn_gradient_scratch *scratch,
                            struct attn_relative_sums *sums)
{
    const int64_t keys = run->steps->shape.keys;
    *sums = (struct attn_relative_sums){.keys = NULL};
    if (!attn_backward_sums_positions(run->backward))
        return;
    sums->keys = scratch->relative_dk;
    sums->key_ends[0] = scratch->key_ends;
    sums->key_ends[1] = scratch->key_ends + keys;
    memset(sums->keys, 0, (size_t)(keys * run->steps->shape.dk) * sizeof(float));
    attn_clear_ends(sums->key_ends, 0, keys);
}

/** Adds these sums of a head to dK, once all of its queries have been there. */
static void end_positions(const struct attn_run *run, const struct attn_backward_keys *keys, int64_t h,
                          const struct attn_relative_sums *sums, const struct attn_gradient_keys *words, void *scratch)
{
    const struct attn_backward *b = run->backward;
    struct attn_backward_block block;
    if (!sums->keys || !attn_backward_block_of(run, keys->s, h, 0, scratch, &block))
        return;
    const struct attn_sequence sequence = attn_sequence_of(run->problem, keys->s);
    float *const dots = b->dhead_scale ? attn_backward_key_dots(run, &sequence, h) + keys->first : NULL;
    attn_join_relative_keys(&block.work, words, sums, block.gradients.factor,
                            attn_has_elements(&b->dk) ? block.scratch.dk : NULL, dots);
}

void attn_backward_key_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    struct attn_backward_keys keys = attn_backward_keys_of(run, task);
    if (keys.first >= keys.end) {
        set_reached(run, &keys, ALL_STEPS);
        return;
    }
    const int64_t group = heads_of_group(problem);
    const int64_t blocks = attn_backward_blocks(run, keys.s);
    struct attn_backward_block block;
    struct attn_gradient_scratch sums;
    struct attn_gradient_keys words;
    attn_gradient_layout(&sums, (char *)scratch + run->steps->scratch_at, &run->steps->shape);
    memset(sums.dk, 0, (size_t)(run->steps->shape.keys * run->steps->shape.dk_sums) * sizeof(float));
    memset(sums.dv, 0, (size_t)(run->steps->shape.keys * run->steps->shape.dv_sums) * sizeof(float));
    const int any = group > 0 && attn_backward_block_of(run, keys.s, keys.head * group, 0, scratch, &block);
    struct blocks seeing = {0, 0};
    if (any) {
        words = attn_gradient_keys_of(&block.work, keys.first, keys.end, &sums);
        seeing = seeing_blocks(run, &keys, &block.work.view, blocks);
    }
    for (int64_t h = 0; h < group && any; h++) {
        struct attn_relative_sums positions;
        begin_positions(run, &sums, &positions);
        for (int64_t number = seeing.first; number < seeing.end; number++) {
            const int64_t step = h * blocks + number;
            set_reached(run, &keys, step); /* all before it are done, or not wanted */
            if (!attn_backward_block_of(run, keys.s, keys.head * group + h, number, scratch, &block))
                continue;
            block.scratch.dk = attn_has_elements(&b->dk) ? sums.dk : NULL;
            block.scratch.dv = attn_has_elements(&b->dv) ? sums.dv : NULL;
            block.gradients.relative.keys = positions.keys;
            block.gradients.relative.key_ends[0] = positions.key_ends[0];
            block.gradients.relative.key_ends[1] = positions.key_ends[1];
            if (b->apart)
                block.gradients.dq = NULL;
            if (block.gradients.dq)
                wait_for(run, &keys, step);
            attn_gradient_pass(&block.work, &block.gradients, &words);
        }
        end_positions(run, &keys, keys.head * group + h, &positions, &words, scratch);
    }
    set_reached(run, &keys, ALL_STEPS);
    if (!any) /* no query: nothing to turn back */
        block.work = (struct attn_work){.kernels = &run->geometry->kernels, .dk = (int)run->steps->shape.dk};
    write_keys(run, &keys, &block.work, &sums);
}
