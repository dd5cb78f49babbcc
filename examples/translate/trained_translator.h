/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The translator in training: the encoder-decoder of train_translator.py, on
 * parameters that change at every step, under the names that they have there.
 */
#ifndef ATTN_EXAMPLES_TRAINED_TRANSLATOR_H
#define ATTN_EXAMPLES_TRAINED_TRANSLATOR_H

#include <attn/nn.h>

#include "date_pairs.h"
#include "parameters.h"

enum { TRAINED_LAYERS = 4 }; /* of each side, at most */

/* Layers' parameters, or their gradients, as attn_transformer_weights has them. */
struct trained_layers {
    attn_mha_weights self[TRAINED_LAYERS], cross[TRAINED_LAYERS];
    attn_block_weights all[TRAINED_LAYERS];
    const attn_block_weights *list[TRAINED_LAYERS];
};

struct trained_weights {
    struct trained_layers encoder, decoder;
    attn_transformer_weights all;
};

struct trained_translator {
    /* Set by the program. */
    attn_transformer_config config;                 /* with norm_first and final_norms */
    int64_t most_pairs, longest_text, longest_date; /* of a batch */
    uint64_t seed;                                  /* of the first weights */

    struct parameters parameters;
    struct trained_weights weights, gradients;
    float *logits; /* [target tokens][vocabulary] */
    size_t kept_size, workspace_size;
    void *kept, *workspace;
};

/* Makes one with the weights that PyTorch's modules begin with, but for chance. */
attn_status trained_translator_create(struct trained_translator *t);
void trained_translator_destroy(struct trained_translator *t);

/* The mean loss of a batch's target tokens, and its gradients. */
attn_status trained_translator_learn(struct trained_translator *t, const struct pair_batch *batch, double *loss);
/* The weights as they are, by name; they stay the translator's. */
attn_status trained_translator_weights(const struct trained_translator *t, attn_weights **weights);

#endif
