/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The classifier as it is trained: forward and backward passes of its layers on
 * parameters that change at every step.
 */
#ifndef ATTN_EXAMPLES_NETWORK_H
#define ATTN_EXAMPLES_NETWORK_H

#include <attn/nn.h>

#include "parameters.h"
#include "samples.h"

struct network_sizes {
    int64_t words, embedding, hidden, attention, classes;
    int64_t most_texts, longest; /* of a batch */
};

enum network_parameter {
    NETWORK_TABLE,
    NETWORK_LSTM, /* w_ih, w_hh, b_ih, b_hh forward, then the reverse direction's */
    NETWORK_POOL_W = NETWORK_LSTM + 8,
    NETWORK_POOL_BIAS,
    NETWORK_POOL_V,
    NETWORK_HEAD,
    NETWORK_HEAD_BIAS,
    NETWORK_PARAMETERS
};

struct network {
    struct network_sizes sizes;
    struct parameters parameters;      /* numbered as above */
    float dropout;                     /* of the embeddings and of what is pooled */
    uint64_t seed;                     /* of dropout */
    float *embedded, *states, *pooled; /* of the last forward pass */
    float *logits;                     /* [texts][classes] */
    float *d_embedded, *d_states, *d_pooled;
    attn_lstm_weights lstm[2], d_lstm[2];
};

/* Makes a network whose parameters follow from the seed. sizes, dropout and seed are set. */
attn_status network_create(struct network *n);
void network_destroy(struct network *n);

/* The logits of a batch, without dropout. */
attn_status network_predict(struct network *n, const struct batch *batch);
/* The mean loss of a batch with the dropout of a step, and its gradients. */
attn_status network_learn(struct network *n, const struct batch *batch, int64_t step, double *loss);

#endif
