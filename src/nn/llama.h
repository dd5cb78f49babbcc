/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a Llama share: llama.c loads one and runs sessions, of as
 * many tokens for each sequence; llama_step.c runs steps of an attn_cache.
 */
#ifndef ATTN_NN_LLAMA_H
#define ATTN_NN_LLAMA_H

#include "attn/nn/models.h"

#include "nn/block.h"

/** What decoders of Llama's kind differ in beyond attn_llama_config. Texts are constants. */
struct nn_llama_kind {
    const char *prefix; /**< before the names of all but the output matrix: "model.", or "" for a body alone */
    const char *layers, *embedding, *norm;
    const char *positions; /**< the table of positions; NULL: queries and keys are rotated */
    attn_naming naming;
    attn_norm norm_kind;
    attn_activation activation;
    int gated;
    int qk_norm, post_norms, norm_plus_one; /**< as in attn_block_config */
    int headless;                           /**< there is no output matrix */
    int64_t num_positions;                  /**< rows of the table of positions */
    /** [layers] keys before its own that a query of a layer sees, ATTN_UNLIMITED for all; or NULL. Copied. */
    const int64_t *windows;
    const attn_relative_bias *bias; /**< of scores; NULL: queries and keys are rotated, or positions. Copied. */
    const attn_tensor *words;       /**< the embedding, which somebody else keeps; NULL: it is read */
    int cross;                      /**< layers have cross-attention: to nn_llama_call.sources */
    const char *const *known;       /**< names that need not be read; NULL: Llama's */
    float embedding_scale;          /**< of rows of the embedding, 0: 1 */
    float scale, softcap;           /**< as in attn_params */
    float logit_scale;              /**< of logits, 0: 1 */
    float logit_softcap;            /**< c > 0: logits are c tanh(x / c) */
};

/** Llama itself. */
extern const struct nn_llama_kind nn_llama_plain;

/** Whether queries and keys are rotated: positions come in nowhere else. */
static inline int nn_llama_rotates(const struct nn_llama_kind *kind)
{
    return !kind->positions && !kind->bias;
}

struct attn_llama {
    attn_llama_config config;  /* completed; its rope is the next one */
    attn_rope_config rope;     /* completed */
    struct nn_llama_kind kind; /* with windows and bias of its own; known and words are not looked at any more */
    attn_relative_bias bias;   /* that of kind, with a table of its own, or all 0 */
    attn_tensor embedding;     /* (vocabulary, d_model), of the type that it came in; kept elsewhere with kind.words */
    attn_tensor positions;     /* (positions, d_model) likewise, or without data */
    struct nn_norm norm;
    attn_linear *head; /* NULL: there is none */
    attn_block *blocks[];
};

/** attn_llama_load() of a kind, for a loader that reads more. */
attn_status nn_llama_load(attn_llama **llama, const attn_llama_config *config, const struct nn_llama_kind *kind,
                          struct nn_reader *reader);

/** What the cross-attention of a step sees. */
struct nn_llama_sources {
    attn_params params;   /**< block_table, ragged and kv_len */
    attn_tensor pool;     /**< keys and values of layer 0, as attn_block_inputs.cross_kv; */
    int64_t layer_stride; /**< bytes from one layer's to the next one's */
};

/** A step of a cache and all that can be had of it, each output NULL where it is not wanted. */
struct nn_llama_call {
    const int32_t *ids;
    const attn_tree *tree;
    int64_t num_rows;
    const int64_t *rows;
    const attn_tensor *logits;
    const attn_tensor *hidden;        /**< (1, 1, tokens, d_model): behind the last norm */
    const attn_tensor *const *states; /**< [layers + 1]: what each layer is given, and hidden */
    int num_threads;
    const struct nn_llama_sources *sources; /**< with kind.cross; else NULL */
};
attn_status nn_llama_step(const attn_llama *llama, attn_cache *cache, const struct nn_llama_call *call);

/** The last norm. */
attn_status nn_llama_normalise(const attn_llama *llama, const attn_tensor *hidden, const attn_tensor *out,
                               int num_threads);

/** The last norm, in place, and the product with the output matrix, of rows (B, 1, T, d_model). */
attn_status nn_llama_logits(const attn_llama *llama, const attn_tensor *hidden, const attn_tensor *logits,
                            int num_threads);

#endif
