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

/** What a loss depends on in a layer: entries of list, which has room for BLOCK_VARIED; returns how many. */
enum { BLOCK_VARIED = 23 };
size_t random_block_varied(const struct random_block *block, struct varied *list);

/** What is usual of its gradients: what a norm takes away again is the rounding of terms, whose size is that of what
 * values get. */
double random_block_usual(struct memory *m, const struct random_block *block);

/** A norm's vectors, or none, and their gradients. */
struct oracle_norm random_training_norm(struct memory *m, attn_norm norm, float eps, int64_t d, attn_tensor *gamma,
                                        attn_tensor *beta, attn_tensor *d_gamma, attn_tensor *d_beta);

#endif
