/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files that check a request share. Every check returns ATTN_OK, or
 * keeps a sentence and returns its status.
 */
#ifndef ATTN_CHECK_INTERNAL_H
#define ATTN_CHECK_INTERNAL_H

#include "api/check.h"

/** @name Groups of options, in the order of the checks; each relies on those before it */
/**@{*/
/** page_size, block_table_stride; makes k and v what they are to all others, and keeps the pools. */
attn_status attn_check_pages(struct attn_problem *problem);
/** ragged, query_offset, kv_len, kv_start, prefix_len; sets num_sequences. */
attn_status attn_check_sequences(struct attn_problem *problem, enum check_depth depth);
/** head_scale to callback, dropout and weight_callback: what changes numbers. Needs scale. Copies the tensors. */
attn_status attn_check_scores(struct attn_problem *problem, enum check_depth depth);
/** window, block_mask, segments, tree, mask. Copies the mask. */
attn_status attn_check_masks(struct attn_problem *problem, enum check_depth depth);
/** The keys of a sequence in pages that some query may see: those before kept, and those from hidden on. */
struct attn_seen_keys {
    int64_t kept, hidden;
};
struct attn_seen_keys attn_seen_keys_of(const struct attn_problem *problem, int64_t s);
/** Whether a page of size keys has one of them; column of the row of block_table. */
static inline int attn_is_seen_page(const struct attn_seen_keys *seen, int64_t size, int64_t column)
{
    return column * size < seen->kept || (column + 1) * size > seen->hidden;
}
/** What is in block_table: needs the sequences, and the window. */
attn_status attn_check_block_table(const struct attn_problem *problem, enum check_depth depth);
/** lse, weights, key_sums, scores. Copies them. Then, as all is known, that no output overlaps anything. */
attn_status attn_check_outputs(struct attn_problem *problem, enum check_depth depth);
struct attn_backward;
/** That no gradient that a backward call writes lies on anything that it reads, or on another one. */
attn_status attn_check_gradients_apart(const struct attn_backward *backward);
/**@}*/

/** @name Of one tensor or array, by name */
/**@{*/
/** Whether a tensor of a checked shape has all that a run checks but its data, and has elements; 0 says nothing. */
int attn_is_sound(const attn_tensor *t, int written);
/** That params.isa, if it is given, is a set that this processor has: its row (dispatch.h), or 0. */
attn_status attn_check_isa(const char *isa, int *row);
/** That the type is one that k and v may have. */
attn_status attn_check_stored(const char *name, attn_dtype dtype);
/** What the last axis of the scales of a quantised type is, for sentences. */
const char *attn_scales_meaning(attn_dtype dtype);
/** That the type is one of numbers. */
attn_status attn_check_float(const char *name, attn_dtype dtype);
/** That the type is f32. */
attn_status attn_check_f32(const char *name, attn_dtype dtype);
/** Keeps the sentence about an axis that has not the expected length, which is what meaning says. */
attn_status attn_fail_axis(const char *name, const attn_tensor *t, int axis, int64_t expected, const char *meaning);
/** That an axis has it. */
static inline attn_status attn_check_axis(const char *name, const attn_tensor *t, int axis, int64_t expected,
                                          const char *meaning)
{
    return t->shape[axis] == expected ? ATTN_OK : attn_fail_axis(name, t, axis, expected, meaning);
}
/** That an axis has the expected length, or 1. */
attn_status attn_check_one_or(const char *name, const attn_tensor *t, int axis, int64_t expected);
/** That an array of n0 * n1 * n2 entries of size bytes, and one entry more, can be addressed. */
attn_status attn_check_count(const char *name, size_t size, int64_t n0, int64_t n1, int64_t n2);
/**@}*/

#endif
