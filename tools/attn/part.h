/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of a call: some queries of one head and one sequence. Its parameters
 * mean for these queries what those of the whole call mean.
 */
#ifndef ATTN_TOOLS_PART_H
#define ATTN_TOOLS_PART_H

#include "inputs.h"

struct part {
    attn_tensor q, k;
    attn_params params; /* points into the rest; weights and the like are the caller's to set */
    /* In a ragged batch the part has two sequences: one without queries, whose keys are those to be skipped. */
    int64_t query_offset[2], kv_len[2], kv_start[2], prefix_len[2], cu_q[3], cu_k[3];
    attn_ragged ragged;
    attn_tensor mask, rope_q, rope_k;
    attn_rope_tables rope;
    attn_relative_bias bias;
    attn_disentangled disentangled;
    attn_tensor rel_k, rel_q;
    attn_segments segments;
    attn_block_mask blocks;
    int64_t *block_offsets; /* owned */
};

/*
 * The most queries from the given one on, up to count, that one part can hold.
 * 0 if there is no sequence that the query belongs to; then none of those up to count does.
 */
int64_t part_limit(const struct inputs *in, int64_t first, int64_t count);

/* Queries first to first + count - 1 of a head; count is at most part_limit()'s. */
bool part_create(struct part *part, const struct inputs *in, int64_t batch, int64_t head, int64_t first, int64_t count,
                 struct io_error *error);
void part_free(struct part *part);

#endif
