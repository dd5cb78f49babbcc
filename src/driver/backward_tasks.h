/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of the sums over keys and queries, and of what stands before and behind them. */
#ifndef ATTN_DRIVER_BACKWARD_TASKS_H
#define ATTN_DRIVER_BACKWARD_TASKS_H

#include "driver/backward_call.h"

/** The block of queries that a task of the phase behind the main one has. Where it computes dQ, those of all heads that
 * see most keys come first: the last ones. */
static inline int64_t attn_backward_end_block(const struct attn_backward *b, int64_t task)
{
    if (!b->apart)
        return task;
    const int64_t blocks = b->steps.query_blocks, heads = b->query_tasks / blocks;
    return task % heads * blocks + blocks - 1 - task / heads;
}

/** What each task of keys has reached: steps that are done, a step for each block of queries of each head. */
static inline atomic_llong *attn_backward_reached(const struct attn_run *run)
{
    return (atomic_llong *)(void *)(run->partials - run->geometry->labels_size + run->backward->reached_at);
}

/** A task of keys. */
struct attn_backward_keys {
    int64_t task, stride;        /**< its number; that of the task of the keys before is so much less */
    int64_t before;              /**< tasks of keys before */
    int64_t open;                /**< of these, how many have been seen to be done, from the first on */
    int64_t s, head, first, end; /**< sequence, key head, keys counted from the first live one */
};

/** The one that a number stands for. */
struct attn_backward_keys attn_backward_keys_of(const struct attn_run *run, int64_t task);

/** Those of a ragged batch in the order in which they are handed out: what stands at a place is the number of the keys
 * among those of all sequences. */
static inline int64_t *attn_backward_order(const struct attn_run *run)
{
    return (int64_t *)(void *)(run->partials - run->geometry->labels_size + run->backward->order_at);
}

/** @name A task of each of these phases */
/**@{*/
void attn_backward_begin_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_order_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_key_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_end_task(const struct attn_run *run, int64_t task, void *scratch);
/**@}*/

#endif
