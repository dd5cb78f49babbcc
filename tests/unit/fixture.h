/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small valid call with every output, which unit tests change in one point.
 * q (2,4,5,8), k (2,2,7,8), v (2,2,7,6), out (2,4,5,6); outputs start as a
 * canary pattern, so that a write after an error is seen.
 */
#ifndef UNIT_FIXTURE_H
#define UNIT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "attn/attn.h"

enum { FIX_B = 2, FIX_HQ = 4, FIX_HKV = 2, FIX_TQ = 5, FIX_TK = 7, FIX_DK = 8, FIX_DV = 6 };

struct fixture {
    float q_data[FIX_B * FIX_HQ * FIX_TQ * FIX_DK], k_data[FIX_B * FIX_HKV * FIX_TK * FIX_DK];
    float v_data[FIX_B * FIX_HKV * FIX_TK * FIX_DV], mask_data[FIX_B * FIX_HQ * FIX_TQ * FIX_TK];
    float out_data[FIX_B * FIX_HQ * FIX_TQ * FIX_DV], lse_data[FIX_B * FIX_HQ * FIX_TQ];
    float weights_data[FIX_B * FIX_HQ * FIX_TQ * FIX_TK], key_sums_data[FIX_B * FIX_HQ * FIX_TK];
    int64_t kv_len[FIX_B], kv_start[FIX_B], query_offset[FIX_B], weight_rows[FIX_TQ];
    attn_tensor q, k, v, out, mask, lse, weights, key_sums;
    const attn_tensor *q_arg, *k_arg, *v_arg, *out_arg; /**< what is passed */
    attn_params params;
    const attn_params *params_arg;
};

/** Fills in the valid call: f32 mask, kv_len and kv_start, bottom-right causality, lse, all weights, key sums. */
void fixture_initialize(struct fixture *f);

/** Makes q, k, v, out and the mask tensors of another type, their values rounded to it. Before anything else changes.
 */
void fixture_narrow(struct fixture *f, attn_dtype dtype);

/** attn_forward() with what the fixture holds. */
attn_status fixture_forward(const struct fixture *f);

/** What outputs hold before a call, and whether memory holds nothing else. */
#define CANARY 0xA5
int all_canary(const void *data, size_t size);

/** Whether no output has been written since fixture_initialize(). */
int fixture_outputs_untouched(const struct fixture *f);

/** Fails the test unless the call has that status, its sentence holds the words, and no output is written. */
void fixture_expect_refused(struct fixture *f, attn_status status, const char *words);

/** Callbacks that leave everything as it is. */
void fixture_keep_scores(const attn_score_tile *tile, void *user);
void fixture_keep_weights(const attn_weight_tile *tile, void *user);

/** A copy of the outputs' bits equals those of the other fixture. */
int fixture_outputs_equal(const struct fixture *a, const struct fixture *b);

/** Whether text holds every one of the words, which are separated by '|'. */
int holds_words(const char *text, const char *words);

/** That a call returns this status, with a sentence that has these words. */
#define FAILS_WITH(status, words, call)                                                                                \
    do {                                                                                                               \
        assert_int_equal(call, status);                                                                                \
        if (!holds_words(attn_last_error(), words))                                                                    \
            fail_msg("line %d: '%s' lacks one of '%s'", __LINE__, attn_last_error(), words);                           \
    } while (0)

#endif
