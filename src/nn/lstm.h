/* SPDX-License-Identifier: Apache-2.0 */
/* An LSTM as it is made (lstm_create.c) and run (lstm.c). */
#ifndef ATTN_NN_LSTM_H
#define ATTN_NN_LSTM_H

#include "attn/nn/recurrent.h"
#include "nn/kernels/nn_kernels.h"

struct nn_lstm_layer {
    attn_linear *from_x;    /**< a part for each direction, with the sum of both biases */
    attn_linear *from_h[2]; /**< of each direction */
};

struct attn_lstm {
    const struct attn_nn_kernels *kernels;
    int64_t input, hidden;
    int64_t num_layers, directions;
    struct nn_lstm_layer layers[];
};

static inline int64_t nn_lstm_directions(const attn_lstm_config *c)
{
    return c->bidirectional ? 2 : 1;
}

/** A config whose sizes are those of an LSTM, and can be multiplied. */
attn_status nn_take_lstm_config(attn_lstm_config *ours, const attn_lstm_config *config);

/** Weights of the shapes that a config says. */
attn_status nn_check_lstm_weights(const attn_lstm_config *config, const attn_lstm_weights *weights);

/** The sums of both biases of each direction, sums[directions][gates]. */
void nn_add_lstm_biases(const attn_lstm_weights *weights, int64_t directions, int64_t gates, float *sums);

#endif
