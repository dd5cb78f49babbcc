/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of decoding, for the searches: hypotheses that live are rows of a
 * batch whose keys and values are kept from step to step.
 */
#ifndef ATTN_NN_DECODE_H
#define ATTN_NN_DECODE_H

#include "nn/memory.h"
#include "nn/transformer.h"

/** The state of one sequence's hypotheses. */
struct nn_decoder {
    const attn_transformer *model;
    int64_t rows, length; /**< hypotheses; tokens that each has put into the cache */
    int64_t capacity;     /**< tokens that a row of the cache has room for */
    int64_t most_rows;
    int64_t source_tokens;
    int num_threads;
    /* Of the model's activations: */
    char *cache, *other_cache; /**< [layers][most_rows][capacity][keys and values]; where rows are moved to */
    char *cross;               /**< [layers][source tokens][keys and values] */
    void *x;                   /**< [most_rows][d_model] */
    float *logits;             /**< [most_rows][target_vocabulary] */
    void *workspace;           /**< of a layer; grows as the cache does */
    size_t workspace_size;
};

/** Takes the memory for sources of up to most_source_tokens. model, capacity and most_rows are set. */
void nn_decoder_take(struct nn_decoder *decoder, struct nn_arena *arena, int64_t most_source_tokens);

/** Starts with one hypothesis without tokens; source (1, 1, tokens, d_model) is the encoder's states. */
attn_status nn_decoder_start(struct nn_decoder *decoder, const attn_tensor *source);

/** Adds ids[rows], a token to each hypothesis, and sets logits to those after it. */
attn_status nn_decoder_step(struct nn_decoder *decoder, const int32_t *ids);

/** Makes row r go on from what was row parents[r], for rows of them. */
void nn_decoder_reorder(struct nn_decoder *decoder, int64_t rows, const int64_t *parents);

#endif
