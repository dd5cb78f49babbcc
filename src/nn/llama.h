/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a Llama share: llama.c loads one and runs sessions, of as
 * many tokens for each sequence; llama_step.c runs steps of an attn_cache.
 */
#ifndef ATTN_NN_LLAMA_H
#define ATTN_NN_LLAMA_H

#include "attn/nn/models.h"

#include "nn/block.h"

/** What decoders of Llama's kind differ in beyond attn_llama_config. */
struct nn_llama_kind {
    const char *prefix; /**< before the names of all but the output matrix: "model.", or "" for a body alone */
    int headless;       /**< there is no output matrix */
    int qk_norm;        /**< as in attn_block_config */
    /** [layers] keys before its own that a query of a layer sees, ATTN_UNLIMITED for all; or NULL. Copied. */
    const int64_t *windows;
};

struct attn_llama {
    attn_llama_config config; /* completed; its rope is the next one */
    int64_t *windows;         /* those of its kind, or NULL */
    attn_rope_config rope;    /* completed */
    attn_tensor embedding;    /* (vocabulary, d_model), of the type that it came in */
    struct nn_norm norm;
    attn_linear *head; /* NULL: there is none */
    attn_block *blocks[];
};

/** attn_llama_load() of a kind, for a loader that reads more. */
attn_status nn_llama_load(attn_llama **llama, const attn_llama_config *config, const struct nn_llama_kind *kind,
                          struct nn_reader *reader);

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
};
attn_status nn_llama_step(const attn_llama *llama, attn_cache *cache, const struct nn_llama_call *call);

/** The last norm, in place, and the product with the output matrix, of rows (B, 1, T, d_model). */
attn_status nn_llama_logits(const attn_llama *llama, const attn_tensor *hidden, const attn_tensor *logits,
                            int num_threads);

#endif
