/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file model_training.h
 * @brief Training whole models: the forward and the backward pass of BERT and of the encoder-decoder Transformer.
 *
 * A step of training is
 *
 *     attn_bert_train()  ->  a head and a loss of one's own  ->  attn_bert_backward()  ->  attn_adamw_step()
 *
 * on weights that lie where the caller has them, in PyTorch's orientation, and on sequences without padding. Both
 * passes are given the same weights, tokens and attn_model_pass. Models for inference (attn/nn/models.h) hold packed
 * copies instead and are several times as fast at single sequences. docs/training.md has an example.
 */
#ifndef ATTN_NN_MODEL_TRAINING_H
#define ATTN_NN_MODEL_TRAINING_H

#include "attn/nn/models.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a forward pass keeps of each layer for the backward pass. */
typedef enum attn_keep {
    ATTN_KEEP_ALL = 0, /**< its input, and what attn_block_pass.kept holds */
    /** Its input alone: the backward pass runs the layer's forward pass again (gradient checkpointing, Chen et al.
     * 2016), with the same results bit for bit. */
    ATTN_KEEP_INPUTS = 1
} attn_keep;
/** The last value of attn_keep. */
#define ATTN_KEEP_LAST ATTN_KEEP_INPUTS

/**
 * A pass through a model: what a forward pass and the backward pass that belongs to it are both given. Zero is every
 * field's default except struct_size.
 *
 * Dropout is that of attn_drop_activations(), and of attn_params in attention, with this seed and an offset of
 * step * places + place, where a model of L layers has places = 8 (L + 1). The sums of embeddings have place 0, those
 * of a decoder 1. Layer l, decoders' layers counted behind those of the encoder, has from place 8 (l + 1) on: what the
 * self-attention adds, what the cross-attention adds, what the network adds, the network's hidden states, the weights
 * of the self-attention, those of the cross-attention.
 */
typedef struct attn_model_pass {
    size_t struct_size;      /**< sizeof of this struct as the caller compiled it */
    float dropout;           /**< probability, 0 or more and less than 1: of embeddings and of what a sublayer adds */
    float attention_dropout; /**< the same, of attention weights */
    float hidden_dropout;    /**< the same, between the two products of a feed-forward network */
    uint64_t seed;           /**< of all dropout */
    uint64_t step;           /**< another one in each step of a training: which elements are dropped */
    attn_keep keep;          /**< what goes into kept */
    /**
     * Memory of the caller's, of attn_bert_kept_size() or attn_transformer_kept_size() bytes, which the forward pass
     * fills and the backward pass reads, unchanged in between. NULL: no backward pass follows, and nothing is kept.
     */
    void *kept;
    size_t kept_size;              /**< bytes of it */
    int num_threads;               /**< as in attn_params */
    const attn_executor *executor; /**< NULL: the process's (attn_set_executor()), else OpenMP */
} attn_model_pass;

/** A pass with every field at its default. @since 0.1, experimental */
static inline attn_model_pass attn_model_pass_default(void)
{
    attn_model_pass p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    return p;
}

/* -------------------------------------------------------------------- BERT -- */

/**
 * Weights of a BERT-style encoder, or where their gradients go. Weights are f32, bf16 or f16, matrices of any strides,
 * tables with contiguous channels. Gradients are f32, contiguous and of the same shapes; data, or the entry of layers,
 * is NULL where one is not wanted.
 */
typedef struct attn_bert_weights {
    size_t struct_size;                      /**< sizeof of this struct as the caller compiled it */
    attn_tensor words;                       /**< (1, 1, vocabulary, d_model) */
    attn_tensor positions;                   /**< (1, 1, positions, d_model) */
    attn_tensor types;                       /**< (1, 1, token_types, d_model); all tokens have type 0 */
    attn_tensor gamma;                       /**< (1, 1, 1, d_model): of the norm of the embeddings; data NULL: ones */
    attn_tensor beta;                        /**< the same; data NULL: zeros */
    const attn_block_weights *const *layers; /**< [layers]; as gradients NULL if none is wanted */
} attn_bert_weights;

/** Weights without data. @since 0.1, experimental */
static inline attn_bert_weights attn_bert_weights_default(void)
{
    attn_bert_weights w;
    memset(&w, 0, sizeof w);
    w.struct_size = sizeof w;
    return w;
}

/**
 * Bytes of attn_model_pass.kept for so many tokens in all; SIZE_MAX if that overflows, or after an error.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_bert_kept_size(const attn_bert_config *config, int64_t tokens, attn_keep keep);
/**
 * Bytes that attn_bert_train() and attn_bert_backward() can make use of with this pass (NULL: defaults); SIZE_MAX if
 * that overflows, or after an error. @since 0.1, experimental
 */
ATTN_API size_t attn_bert_training_workspace_size(const attn_bert_config *config, int64_t num_sequences, int64_t tokens,
                                                  const attn_model_pass *pass);

/**
 * The forward pass in training: attn_bert_forward() on weights as they lie, with dropout. The type of what lies between
 * products is config.activations, as there. No bit depends on the number of threads, on what is kept, or, without
 * dropout, on what other sequences there are.
 *
 * @param config  as of attn_bert_load(), without a format
 * @param weights as they are now
 * @param num_sequences, offsets, ids as in attn_bert_forward()
 * @param pass    NULL or the rest
 * @param hidden  f32, bf16 or f16 (1, 1, tokens, d_model): the last layer's states; must not overlap an input
 * @param workspace attn_bert_training_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_bert_train(const attn_bert_config *config, const attn_bert_weights *weights,
                                     int64_t num_sequences, const int64_t *offsets, const int32_t *ids,
                                     const attn_model_pass *pass, const attn_tensor *hidden, void *workspace,
                                     size_t workspace_size);

/**
 * The gradients of an encoder's weights from that of its states: attn_block_backward() of its layers, the last one
 * first, and those of the embeddings. It ends with the first layer that has a gradient to write: layers below cost
 * nothing if they are frozen. Gradients between layers are f32.
 *
 * @param config, weights, num_sequences, offsets, ids, pass as in the forward pass; pass->kept as that has left it
 * @param d_hidden f32, bf16 or f16 (1, 1, tokens, d_model)
 * @param gradients at least one. None may overlap an input or another; but with accumulate layers that share weights
 *                  may share their gradients
 * @param accumulate not 0: gradients are added to what they hold, which they replace else
 * @param workspace attn_bert_training_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_bert_backward(const attn_bert_config *config, const attn_bert_weights *weights,
                                        int64_t num_sequences, const int64_t *offsets, const int32_t *ids,
                                        const attn_model_pass *pass, const attn_tensor *d_hidden,
                                        const attn_bert_weights *gradients, int accumulate, void *workspace,
                                        size_t workspace_size);

/* ---------------------------------------------------------- encoder-decoder -- */

/**
 * Weights of an encoder-decoder Transformer, or where their gradients go, as in attn_bert_weights. Weights may share
 * memory, as in models whose embeddings are the generator's matrix, too.
 */
typedef struct attn_transformer_weights {
    size_t struct_size;                       /**< sizeof of this struct as the caller compiled it */
    attn_tensor source_embedding;             /**< (1, 1, source_vocabulary, d_model) */
    attn_tensor target_embedding;             /**< (1, 1, target_vocabulary, d_model) */
    const attn_block_weights *const *encoder; /**< [encoder_layers]; as gradients NULL if none is wanted */
    attn_tensor encoder_gamma;                /**< (1, 1, 1, d_model), with final_norms; data NULL: ones */
    attn_tensor encoder_beta;                 /**< the same; data NULL: zeros */
    const attn_block_weights *const *decoder; /**< [decoder_layers], with cross-attention */
    attn_tensor decoder_gamma;                /**< as of the encoder */
    attn_tensor decoder_beta;                 /**< the same */
    attn_tensor generator;                    /**< (1, 1, target_vocabulary, d_model) */
    attn_tensor generator_bias;               /**< (1, 1, 1, target_vocabulary); data NULL: zeros */
} attn_transformer_weights;

/** Weights without data. @since 0.1, experimental */
static inline attn_transformer_weights attn_transformer_weights_default(void)
{
    attn_transformer_weights w;
    memset(&w, 0, sizeof w);
    w.struct_size = sizeof w;
    return w;
}

/** Pairs of sequences without padding. */
typedef struct attn_transformer_pairs {
    size_t struct_size;            /**< sizeof of this struct as the caller compiled it */
    int64_t num_pairs;             /**< 0 or more */
    const int64_t *source_offsets; /**< [num_pairs + 1] from 0, not descending; 0 to config.positions tokens each */
    const int32_t *source_ids;     /**< [source_offsets[num_pairs]] 0 to source_vocabulary - 1 */
    const int64_t *target_offsets; /**< likewise */
    const int32_t *target_ids;     /**< [target_offsets[num_pairs]]: what the decoder reads, usually from bos on */
} attn_transformer_pairs;

/** No pairs. @since 0.1, experimental */
static inline attn_transformer_pairs attn_transformer_pairs_default(void)
{
    attn_transformer_pairs p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    return p;
}

/**
 * Bytes of attn_model_pass.kept for so many tokens in all; SIZE_MAX if that overflows, or after an error.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_transformer_kept_size(const attn_transformer_config *config, int64_t source_tokens,
                                           int64_t target_tokens, attn_keep keep);
/**
 * Bytes that attn_transformer_train() and attn_transformer_backward() can make use of with this pass (NULL: defaults);
 * SIZE_MAX if that overflows, or after an error. @since 0.1, experimental
 */
ATTN_API size_t attn_transformer_training_workspace_size(const attn_transformer_config *config, int64_t num_pairs,
                                                         int64_t source_tokens, int64_t target_tokens,
                                                         const attn_model_pass *pass);

/**
 * The forward pass in training, with teacher forcing: attn_transformer_encode() and attn_transformer_score() on weights
 * as they lie, with dropout. The type of what lies between products is config.activations, as there. No bit depends on
 * the number of threads, on what is kept, or, without dropout, on what other pairs there are.
 *
 * @param config  as of attn_transformer_load(), without a format
 * @param weights as they are now
 * @param pairs   what is read
 * @param pass    NULL or the rest
 * @param logits  f32 (1, 1, target tokens, target_vocabulary): row t of a pair is for the token behind ids 0..t; must
 *                not overlap an input
 * @param workspace attn_transformer_training_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_transformer_train(const attn_transformer_config *config,
                                            const attn_transformer_weights *weights,
                                            const attn_transformer_pairs *pairs, const attn_model_pass *pass,
                                            const attn_tensor *logits, void *workspace, size_t workspace_size);

/**
 * The gradients of all weights from that of the logits. It ends where nothing further down has a gradient to write, as
 * in attn_bert_backward(): with a frozen encoder no gradient of its states is computed.
 *
 * @param config, weights, pairs, pass as in the forward pass; pass->kept as that has left it
 * @param d_logits f32 (1, 1, target tokens, target_vocabulary)
 * @param gradients at least one. None may overlap an input or another; but with accumulate weights that are shared may
 *                  share their gradients: a generator with an embedding, a layer with another
 * @param accumulate not 0: gradients are added to what they hold, which they replace else
 * @param workspace attn_transformer_training_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_transformer_backward(const attn_transformer_config *config,
                                               const attn_transformer_weights *weights,
                                               const attn_transformer_pairs *pairs, const attn_model_pass *pass,
                                               const attn_tensor *d_logits, const attn_transformer_weights *gradients,
                                               int accumulate, void *workspace, size_t workspace_size);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_MODEL_TRAINING_H */
