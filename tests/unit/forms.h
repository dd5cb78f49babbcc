/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A valid call with any of the forms of attention: what an option points to is
 * filled in for each, and those that are asked for are set. q (2,4,40,8),
 * k (2,2,50,8), v (2,2,50,4), or with FORM_RAGGED a batch of 1 with three
 * sequences of 20, 0 and 18 queries and 25, 5 and 18 keys. The outputs, out and
 * lse, start as a pattern.
 */
#ifndef UNIT_FORMS_H
#define UNIT_FORMS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "attn/attn.h"

enum form {
    FORM_HEAD_SCALE = 1 << 0,
    FORM_SOFTCAP = 1 << 1,
    FORM_SINKS = 1 << 2,
    FORM_SLOPES = 1 << 3,
    FORM_BIAS = 1 << 4, /**< clipped, 3 to each side */
    FORM_DISENTANGLED = 1 << 5,
    FORM_ROPE = 1 << 6,
    FORM_CALLBACK = 1 << 7,
    FORM_POSITIONS = 1 << 8, /**< query_offset, without causality */
    FORM_PREFIX = 1 << 9,    /**< with top-left causality */
    FORM_WINDOW = 1 << 10,
    FORM_BLOCKS = 1 << 11, /**< of 16, a pattern for each head, two columns in each row */
    FORM_SEGMENTS = 1 << 12,
    FORM_TREE = 1 << 13, /**< of 4 tokens */
    FORM_RAGGED = 1 << 14,
    FORM_DROPOUT = 1 << 15,
    FORM_LENGTHS = 1 << 16, /**< kv_start and kv_len: 50 and 20 live keys; ragged: 25, 5 and 12 */
    FORM_WEIGHT_CALLBACK = 1 << 17,
    FORM_END = 1 << 18
};

enum {
    FORM_B = 2,
    FORM_HQ = 4,
    FORM_HKV = 2,
    FORM_TQ = 40,
    FORM_TK = 50,
    FORM_DK = 8,
    FORM_DV = 4,
    FORM_SEQUENCES = 3,
    FORM_BUCKETS = 7,
    FORM_SPAN = 6,
    FORM_PAIRS = 3,
    FORM_GLOBALS = 4,
    FORM_ROWS = 3 /**< of blocks; 2 when ragged */
};

struct forms {
    float q_data[FORM_B * FORM_HQ * FORM_TQ * FORM_DK], k_data[FORM_B * FORM_HKV * FORM_TK * FORM_DK];
    float v_data[FORM_B * FORM_HKV * FORM_TK * FORM_DV];
    float out_data[FORM_B * FORM_HQ * FORM_TQ * FORM_DV], lse_data[FORM_B * FORM_HQ * FORM_TQ];
    attn_tensor q, k, v, out, lse;
    attn_params params;

    float head_scale[FORM_HQ], sinks[FORM_HQ], slopes[FORM_HQ];
    float bias_table[FORM_HQ * FORM_BUCKETS];
    attn_relative_bias bias;
    float rel_k_data[FORM_HQ * 2 * FORM_SPAN * FORM_DK], rel_q_data[2 * FORM_SPAN * FORM_DK];
    attn_tensor rel_k, rel_q; /**< with heads; without */
    attn_disentangled disentangled;
    float rope_q_data[FORM_B * FORM_TQ * 2 * FORM_PAIRS], rope_k_data[FORM_TK * 2 * FORM_PAIRS];
    attn_tensor rope_q, rope_k; /**< for each sequence; for all */
    attn_rope_tables rope;

    int64_t query_offset[FORM_SEQUENCES], kv_len[FORM_SEQUENCES], kv_start[FORM_SEQUENCES];
    int64_t prefix_len[FORM_SEQUENCES];
    int64_t globals[FORM_GLOBALS];
    attn_window window;
    int64_t offsets[FORM_HQ * FORM_ROWS + 1];
    int32_t columns[2 * FORM_HQ * FORM_ROWS];
    attn_block_mask blocks;
    int32_t segments_q[FORM_B * FORM_TQ], segments_k[FORM_B * FORM_TK];
    attn_segments segments;
    uint64_t ancestors[FORM_B * FORM_TQ];
    attn_tree tree;
    int64_t cu_seqlens_q[FORM_SEQUENCES + 1], cu_seqlens_k[FORM_SEQUENCES + 1];
    attn_ragged ragged;
    attn_dropout dropout;
};

/** Fills in the call with a set of enum form. */
void forms_initialize(struct forms *c, unsigned forms);

attn_status forms_forward(const struct forms *c);

/** attn_plan_create(); the plan, or NULL, in *plan. */
attn_status forms_plan(const struct forms *c, attn_plan **plan);

/** Whether no output has been written since forms_initialize(). */
int forms_untouched(const struct forms *c);

#endif
