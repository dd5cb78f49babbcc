/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of calls share: their numbers, and the backward passes for the table of all. */
#ifndef TEST_NN_CALLS_SHARED_H
#define TEST_NN_CALLS_SHARED_H

#include "calls.h"

enum { HEADS = 4, HIDDEN = 128, BATCH = 8 };

extern float x_data[MOST_TOKENS * D], model_data[MOST_TOKENS * D], matrix[8 * D * D];
extern int32_t small_ids[MOST_TOKENS]; /* below D */

/** All tokens of x_data in one sequence. */
attn_tensor x_rows(void);

size_t block_backward_size(const struct how *how);
size_t elementwise_backward_size(const struct how *how);
size_t linear_backward_size(const struct how *how);
size_t lstm_backward_size(const struct how *how);
size_t mha_backward_size(const struct how *how);
size_t model_backward_size(const struct how *how);
size_t pool_backward_size(const struct how *how);
attn_status run_block_backward(const struct how *how, float *to);
attn_status run_elementwise_backward(const struct how *how, float *to);
attn_status run_linear_backward(const struct how *how, float *to);
attn_status run_lstm_backward(const struct how *how, float *to);
attn_status run_mha_backward(const struct how *how, float *to);
attn_status run_model_backward(const struct how *how, float *to);
attn_status run_pool_backward(const struct how *how, float *to);
attn_status run_score_backward(const struct how *how, float *to);
attn_status run_step_backward(const struct how *how, float *to);
size_t score_backward_size(const struct how *how);
size_t step_backward_size(const struct how *how);

#endif
