/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an encoder-decoder holds; transformer_load.c makes it, transformer.c runs
 * it, decode.c and decode_step.c search with it, transformer_training.c trains it.
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

/** A config that has been taken, or what is wrong with it that its layers do not check themselves. */
attn_status nn_complete_transformer_config(attn_transformer_config *completed, const attn_transformer_config *config);

/** The config of the layers of a decoder, which have cross-attention, or of an encoder. */
attn_block_config nn_transformer_layer(const attn_transformer_config *config, int cross, attn_mha_config *attention);

/** By which embeddings are multiplied. */
float nn_transformer_scale(const attn_transformer_config *config);

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
