/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an encoder-decoder holds; transformer.c makes and runs it, decode.c and
 * decode_step.c search with it.
 */
#ifndef ATTN_NN_TRANSFORMER_INTERNAL_H
#define ATTN_NN_TRANSFORMER_INTERNAL_H

#include "attn/nn/models.h"
#include "nn/block.h"

struct attn_transformer {
    attn_transformer_config config;
    attn_tensor source_embedding, target_embedding; /**< (vocabulary, d_model), of the types that they came in */
    float embedding_scale;                          /**< sqrt(d_model) */
    float *positions;                               /**< [positions][d_model] */
    struct nn_norm encoder_norm, decoder_norm;      /**< with final_norms */
    attn_linear *generator;
    attn_block **encoder, **decoder;
};

/** That memory holds the encoder's states, and that each of lengths, if there are some, has 1 to all of its rows. */
attn_status nn_transformer_check_memory(const attn_transformer *model, const attn_tensor *memory,
                                        const int64_t *lengths);

/** Embeddings from one of the model's tables of ids[batch * tokens], the first of a sequence at position first. */
void nn_transformer_embed(const attn_transformer *model, const attn_tensor *table, const int32_t *ids, int64_t first,
                          const attn_tensor *out, int num_threads);

/** Contiguous states of the model's activations. */
attn_tensor nn_transformer_states(const attn_transformer *model, const void *data, int64_t batch, int64_t tokens,
                                  int64_t channels);

/** The last norm of the decoder, in place, and logits. */
attn_status nn_transformer_generate(const attn_transformer *model, const attn_tensor *hidden, const attn_tensor *logits,
                                    int num_threads);

#endif
