/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of Transformer layers in training, where their gradients go, and the oracle's. */
#ifndef ATTN_TESTS_NN_RANDOM_BLOCK_H
#define ATTN_TESTS_NN_RANDOM_BLOCK_H

#include "differences.h"

struct random_block {
    attn_mha_weights self, cross, d_self, d_cross;
    attn_block_weights weights, gradients; /**< that point to these */
    struct oracle_block oracle;
};

/** Fills one for a config whose attention has all of its sizes; any type, any vector that may be missing. */
void random_block(struct random_block *block, struct memory *m, const attn_block_config *config, int64_t d_memory);

/** A norm's vectors, or none, and their gradients. */
struct oracle_norm random_training_norm(struct memory *m, attn_norm norm, float eps, int64_t d, attn_tensor *gamma,
                                        attn_tensor *beta, attn_tensor *d_gamma, attn_tensor *d_beta);

#endif
