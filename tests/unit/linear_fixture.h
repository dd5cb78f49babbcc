/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small valid call of linear attention with every option but a ragged batch,
 * which unit tests change in one point: q (2,4,6,8), k (2,1,6,8), v (2,2,6,5), a
 * decay for each row, beta, resets, both states. Outputs start as a canary pattern.
 */
#ifndef UNIT_LINEAR_FIXTURE_H
#define UNIT_LINEAR_FIXTURE_H

#include "fixture.h"

#include "attn/linear_attention.h"

enum { LIN_B = 2, LIN_HQ = 4, LIN_HK = 1, LIN_H = 2, LIN_T = 6, LIN_DK = 8, LIN_DV = 5 };

struct linear_fixture {
    float q_data[LIN_B * LIN_HQ * LIN_T * LIN_DK], k_data[LIN_B * LIN_HK * LIN_T * LIN_DK];
    float v_data[LIN_B * LIN_H * LIN_T * LIN_DV], out_data[LIN_B * LIN_HQ * LIN_T * LIN_DV];
    float decay_data[LIN_B * LIN_H * LIN_T * LIN_DK], beta_data[LIN_B * LIN_H * LIN_T];
    float state_in_data[LIN_B * LIN_H * LIN_DK * LIN_DV], state_out_data[LIN_B * LIN_H * LIN_DK * LIN_DV];
    uint8_t resets_data[LIN_B * LIN_H * LIN_T];
    int64_t cu_seqlens[4];  /**< 0, 2, 2, 5: not set in params */
    int64_t lengths[LIN_B]; /**< 4, 6: the same */
    attn_tensor q, k, v, out, decay, beta, resets, state_in, state_out;
    const attn_tensor *q_arg, *k_arg, *v_arg, *out_arg; /**< what is passed */
    attn_linear_attention_params params;
    const attn_linear_attention_params *params_arg;
    char larger[2 * sizeof(attn_linear_attention_params)]; /**< options of a later version */
};

/** Fills in the valid call. */
void linear_fixture_initialize(struct linear_fixture *f);

/** Makes it a ragged one: a batch of one, with three sequences and a token behind them. */
void linear_fixture_make_ragged(struct linear_fixture *f);

/** attn_linear_attention() with what the fixture holds. */
attn_status linear_fixture_call(const struct linear_fixture *f);

/** Whether no output has been written. */
int linear_fixture_untouched(const struct linear_fixture *f);

#endif
