/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of the backward pass, and what they find in the memory of a run.
 * driver/backward.c says which phases there are and what threads share.
 */
#ifndef ATTN_DRIVER_BACKWARD_TASKS_H
#define ATTN_DRIVER_BACKWARD_TASKS_H

#include "driver/backward.h"

/** Batch elements whose heads are cut one by one: all sequences of a ragged batch are one. */
static inline int64_t attn_backward_elements(const struct attn_problem *problem)
{
    return problem->params.ragged ? 1 : problem->q.shape[0];
}

/** Keys of a task and queries of a block, at most, and whether dQ has tasks of its own. */
struct attn_backward_sizes {
    int64_t keys, queries;
    int apart;
};

/**
 * What a step, some keys with a block of queries, takes besides its pairs: for each query the time of so many keys, as
 * its rows are turned (measured on AVX2 at d = 64, in tasks of 32 to 256 keys: 19). Where tasks follow each other: the
 * same for sums of dQ that come from another core's caches, and so many pairs for telling the others; both are guesses.
 */
#define ATTN_TURNED_KEYS 20.0
#define ATTN_FAR_KEYS    5.0
#define ATTN_TOLD_PAIRS  120.0

/** What each key takes with so many queries, in those of the widest strips. A strip of n vectors takes 1 + 2 n / 3
 * parts of the widest one's 3 (measured on AVX2: 1.6, 2.4 and 3). */
static inline double attn_backward_time_of_queries(int64_t strip, int64_t queries)
{
    const int64_t rest = queries % strip;
    return (double)(queries - rest) + (rest > 0 ? ((double)strip + 2.0 * (double)rest) / 3.0 : 0.0);
}

/** Makes those sizes such that so many threads are expected to end first. strip: queries of the widest one; step:
 * blocks have a multiple of it. */
void attn_backward_even_sizes(const struct attn_backward *b, int64_t strip, int64_t step, int threads,
                              struct attn_backward_sizes *sizes);

/** Whether sums of dQ are wanted. */
int attn_backward_sums_queries(const struct attn_backward *b);

/** Whether sums of rows of rel_q are wanted, for dK or for the gradient of a head's factor. */
int attn_backward_sums_positions(const struct attn_backward *b);

/** Heads whose options have gradients besides the mask: tasks. */
int64_t attn_backward_head_tasks(const struct attn_backward *b);

/** Numbers of biases by distance that a head sums up: that of its slope, then those of its table. */
static inline int64_t attn_backward_distance_sums(const struct attn_backward *b)
{
    return 1 + (b->dtable ? b->buckets : 0);
}

/** Of so many blocks of queries, cut into spans, where one begins; and so the end of the one before. */
static inline int64_t attn_backward_span_begin(int64_t blocks, int64_t spans, int64_t span)
{
    return blocks / spans * span + (span < blocks % spans ? span : blocks % spans);
}

/** Floats that threads share, by their place in that memory. */
float *attn_backward_floats(const struct attn_run *run, size_t at);

/** The products of the live keys of a sequence with the sums of rows of rel_q that query head h has given them. */
float *attn_backward_key_dots(const struct attn_run *run, const struct attn_sequence *sequence, int64_t h);

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

/** Tasks that write the gradients of tables of rows. */
int64_t attn_backward_row_tasks(const struct attn_backward *b);

/** A block of queries with what the backward pass has of it. */
struct attn_backward_block {
    struct attn_work work;
    struct attn_gradient_block gradients;
    struct attn_gradient_scratch scratch;
    int64_t batch, first; /**< the place of its first query on the tensors' axes */
    float *delta;
};

/** Block number number of a head of sequence s. Returns 0 if it holds none. */
int attn_backward_block_of(const struct attn_run *run, int64_t s, int64_t h, int64_t number, void *scratch,
                           struct attn_backward_block *block);

/** A run as those tasks see it that sum over several blocks: it lives as long as the run. */
struct attn_run attn_backward_fixed_run(const struct attn_run *run);

/** The pass over a block of queries and all keys of its sequence, for what block->gradients is told to sum up. */
void attn_backward_walk(const struct attn_run *run, struct attn_backward_block *block, int64_t s);

/** The same for the sums of dQ, over those keys that some of the queries may see. */
void attn_backward_walk_queries(const struct attn_run *run, struct attn_backward_block *block, int64_t s);

/** The sums of a head's rows of tables by distance, over all sequences. */
struct attn_backward_rows {
    struct attn_relative_sums sums;
    int64_t h;
};

/** Zeros in the sums of head h; all of them are NULL where no table's gradient is wanted. */
struct attn_backward_rows attn_backward_begin_rows(const struct attn_run *run, int64_t h);

/** Adds sequence s to them. */
void attn_backward_add_rows(const struct attn_run *run, struct attn_backward_rows *rows, int64_t s, void *scratch);

/** Points a block of a head, which counts on through the batch, to the ends of its queries. */
void attn_backward_query_ends(const struct attn_run *run, int64_t head, struct attn_backward_block *block);

/** Blocks of queries of a sequence. */
int64_t attn_backward_blocks(const struct attn_run *run, int64_t s);

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

/** @name A task of each phase */
/**@{*/
void attn_backward_begin_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_order_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_key_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_end_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_option_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_head_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_row_task(const struct attn_run *run, int64_t task, void *scratch);
/**@}*/

#endif
