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
enum { ADAPTED_WORDS, ADAPTED_POSITIONS, ADAPTED_TYPES, ADAPTED_GAMMA, ADAPTED_BETA, ADAPTED_OF_LAYER = 16 };

/* A layer's parameters, or their gradients, as attn_bert_weights has them. */
struct adapted_layer {
    attn_mha_weights attention;
    attn_block_weights all;
};

/* The encoder's. */
struct adapted_weights {
    struct adapted_layer layers[ADAPTED_LAYERS];
    const attn_block_weights *list[ADAPTED_LAYERS];
    attn_bert_weights all;
};

struct adapted_encoder {
    /* Set by the program. */
    attn_bert_config config;
    int64_t classes, most_texts, longest; /* of a batch */
    float dropout;                        /* of embeddings, of what layers add, of what is pooled; and of attention */
    uint64_t seed;                        /* of dropout and of the classifier's first weights */

    struct parameters parameters;
    int head; /* the classifier's matrix among them; its bias follows */
    struct adapted_weights weights, gradients;
    float *states, *d_states; /* [tokens][d_model] */
    float *pooled, *d_pooled; /* [texts][d_model] */
    float *logits;            /* [texts][classes] */
    size_t kept_size, workspace_size;
    void *kept, *workspace;
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
