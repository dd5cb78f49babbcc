/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of few queries and more keys than a split has (ATTN_SPLIT_KEYS), one for
 * everything that can hide keys or change scores: often so that a query sees
 * nothing of a whole split.
 */
#ifndef UNIT_SPLIT_CASE_H
#define UNIT_SPLIT_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "attn/attn.h"

/** Keys of a split, and the most that a case has. */
enum { SPLIT = 4096, MOST_KEYS = 3 * SPLIT, MOST_ROWS = 64, MOST_HEADS = 4 };

enum split_kind {
    PLAIN,
    LENGTHS, /**< kv_start and kv_len, a sequence without keys among them */
    SINKS,   /**< the same, so one sequence sees nothing but sinks; some heads have none */
    LAST,    /**< causality from the last key */
    OFFSET,  /**< causality from positions in several splits */
    PREFIX,
    BOOL_MASK,     /**< of which a query sees nothing in the second split */
    FLOAT_MASK,    /**< with softcap */
    NAN_KEY,       /**< in a slot that some queries see, and NaN values in one that others do */
    WINDOW,        /**< that begins in the second split for some queries and in the third for others, with sinks */
    WINDOW_TOKENS, /**< with first and global tokens, sinks: splits that nobody sees lie between */
    PATTERN,
    SEGMENTS, /**< in any order, with one that no query has */
    TREE,
    ALIBI,
    ROPE,
    CALLBACK, /**< hides a split from every other query */
    DROPOUT,
    INT8,
    KINDS
};

struct split_case {
    attn_tensor q, k, v, mask, out[2], lse[2], rope_q, rope_k;
    attn_params params;
    int64_t kv_len[2], kv_start[2], offset[2], prefix[2], globals[2];
    float numbers[MOST_HEADS];
    attn_window window;
    attn_block_mask pattern;
    int64_t offsets[MOST_ROWS / 16 + 2];
    int32_t columns[(MOST_ROWS / 16 + 1) * (MOST_KEYS / 16)];
    attn_segments segments;
    int32_t q_labels[2 * MOST_ROWS], k_labels[2 * MOST_KEYS];
    attn_tree tree;
    uint64_t ancestors[2 * MOST_ROWS];
    attn_rope_tables rope;
    attn_dropout dropout;
};

/** Memory of contiguous tensors of a case. */
attn_tensor split_tensor(attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c);

/**
 * Case number of a kind. shape: heads, key heads, queries, dk, dv. There is memory for two results; params ask for none
 * but out.
 */
struct split_case *split_case_make(const char *isa, attn_dtype dtype, enum split_kind kind, const int64_t shape[5],
                                   uint64_t number);
void split_case_free(struct split_case *c);

#endif
