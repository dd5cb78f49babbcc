/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A BERT encoder whose weights are adapted to a task: embeddings, layers, the
 * mean of the states of each text, and a linear layer that gives the logits of
 * classes. Parameters have the names of BertModel in Transformers behind
 * "bert.", and those of the linear layer behind "classifier.".
 */
#ifndef ATTN_EXAMPLES_ADAPTED_ENCODER_H
#define ATTN_EXAMPLES_ADAPTED_ENCODER_H

#include <attn/nn.h>

#include "parameters.h"
#include "token_texts.h"

enum { ADAPTED_LAYERS = 12 };

/* Parameters of the embeddings. Those of the layers follow, 16 of each, and then the classifier's. */
enum {
    ADAPTED_WORDS,
    ADAPTED_POSITIONS,
    ADAPTED_TYPES,
    ADAPTED_GAMMA,
    ADAPTED_BETA,
};

/* A layer's parameters as attn_block_train() and attn_block_backward() take them. */
struct adapted_layer {
    attn_mha_weights attention, d_attention;
    attn_block_weights weights, gradients;
    void *kept;
};

struct adapted_encoder {
    /* Set by the program. */
    attn_bert_config config;
    int64_t classes, most_texts, longest; /* of a batch */
    float dropout;                        /* of embeddings, of what layers add, of what is pooled; and of attention */
    uint64_t seed;                        /* of dropout and of the classifier's first weights */

    struct parameters parameters;
    int head; /* the classifier's matrix among them; its bias follows */
    attn_mha_config attention;
    attn_block_config block;
    struct adapted_layer layers[ADAPTED_LAYERS];
    float *embedded;                   /* [tokens][d_model] sums before the first norm */
    float *states[ADAPTED_LAYERS + 1]; /* [tokens][d_model] */
    float *pooled, *logits;            /* [texts][d_model]; [texts][classes] */
    float *d_states, *d_pooled;
    size_t kept_size, workspace_size;
    void *workspace;
};

/* Makes one with the weights of a file: BertModel's, behind prefix. */
attn_status adapted_encoder_create(struct adapted_encoder *e, const char *path, const char *prefix);
void adapted_encoder_destroy(struct adapted_encoder *e);

/* What is pooled and the logits of a batch, without dropout. */
attn_status adapted_encoder_predict(struct adapted_encoder *e, const struct token_batch *batch);
/* The mean loss of a batch with the dropout of a step, and its gradients. */
attn_status adapted_encoder_learn(struct adapted_encoder *e, const struct token_batch *batch, int64_t step,
                                  double *loss);

#endif
