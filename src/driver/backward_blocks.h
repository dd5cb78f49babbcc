/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of queries, as tasks of the backward pass have them: where what belongs to them lies, and walks over their
 * keys. */
#ifndef ATTN_DRIVER_BACKWARD_BLOCKS_H
#define ATTN_DRIVER_BACKWARD_BLOCKS_H

#include "driver/backward_call.h"

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

/** Points a block of a head, which counts on through the batch, to the ends of its queries. */
void attn_backward_query_ends(const struct attn_run *run, int64_t head, struct attn_backward_block *block);

/** Blocks of queries of a sequence. */
int64_t attn_backward_blocks(const struct attn_run *run, int64_t s);

/** The pass over a block of queries and all keys of its sequence, for what block->gradients is told to sum up. */
void attn_backward_walk(const struct attn_run *run, struct attn_backward_block *block, int64_t s);

/** The same for the sums of dQ, over those keys that some of the queries may see. */
void attn_backward_walk_queries(const struct attn_run *run, struct attn_backward_block *block, int64_t s);

/** The products of the live keys of a sequence with the sums of rows of rel_q that query head h has given them. */
float *attn_backward_key_dots(const struct attn_run *run, const struct attn_sequence *sequence, int64_t h);

#endif
