/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of an LSTM between its checks (lstm_backward_check.c) and its run (lstm_backward.c). */
#ifndef ATTN_NN_LSTM_BACKWARD_H
#define ATTN_NN_LSTM_BACKWARD_H

#include "nn/lstm.h"

/** A config of one layer and without format. */
attn_status nn_take_lstm_backward_config(attn_lstm_config *ours, const attn_lstm_config *config);
attn_status nn_take_lstm_gradients(attn_lstm_gradients *ours, const attn_lstm_gradients *gradients);

/** The arguments of attn_lstm_backward(), with config and gradients as they have been taken. */
attn_status nn_check_lstm_backward(const attn_lstm_config *c, const attn_lstm_weights *weights, const attn_tensor *x,
                                   const int64_t *lengths, const attn_tensor *state, const attn_tensor *out,
                                   const attn_tensor *d_out, const attn_lstm_gradients *g);

#endif
