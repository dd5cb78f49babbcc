/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file models.h
 * @brief Whole models: a BERT-style encoder, a Llama-style decoder, the encoder-decoder Transformer.
 *
 * A model holds packed copies of its weights and is immutable. What grows while decoding, keys and values, is in a
 * session, of which any number may run at once. Weights take the memory of their type or of config.format.
 */
#ifndef ATTN_NN_MODELS_H
#define ATTN_NN_MODELS_H

#include "attn/nn/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------- BERT -- */

/** Sizes of a BERT-style encoder (Devlin et al. 2019), as in the config.json of Transformers. */
typedef struct attn_bert_config {
    size_t struct_size;         /**< sizeof of this struct as the caller compiled it */
    int64_t layers;             /**< num_hidden_layers */
    int64_t d_model;            /**< hidden_size */
    int64_t heads;              /**< num_attention_heads */
    int64_t d_ff;               /**< intermediate_size */
    int64_t vocabulary;         /**< vocab_size */
    int64_t positions;          /**< max_position_embeddings */
    attn_activation activation; /**< hidden_act */
    float eps;                  /**< layer_norm_eps */
    int64_t token_types;        /**< type_vocab_size; 0 means 2; -1: there is no table of them (DistilBERT) */
    int64_t first_position;     /**< position of a sequence's first token: 0 in BERT, pad_token_id + 1 = 2 in RoBERTa */
    /**
     * How the matrices of all products are kept and multiplied; NULL: as they are in weights, in f32. Embeddings and
     * norms keep the values that they have. Only looked at while the model is made. @since 0.1, experimental
     */
    const attn_linear_format *format;
    /**
     * f32 (0), bf16 or f16: the type of what lies between products, hidden states first of all. Products, norms and the
     * statistics of softmax are f32 in any case. @since 0.1, experimental
     */
    attn_dtype activations;
} attn_bert_config;

/** A config with every field at its default; set the sizes, activation and eps. @since 0.1 */
static inline attn_bert_config attn_bert_config_default(void)
{
    attn_bert_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** A BERT-style encoder. */
typedef struct attn_bert attn_bert;

/**
 * Makes an encoder from the names of BertModel in Transformers behind prefix ("" or "bert."):
 * embeddings.word_embeddings.weight, ..., encoder.layer.0.attention.self.query.weight, ... Errors name the tensor.
 *
 * Any other name behind prefix is an error, as attn/nn/weights.h has it, except embeddings.position_ids, which holds
 * 0, 1, 2, ..., and pooler.dense.*, which makes something else of the hidden states. Heads (cls.*, classifier.*) stand
 * outside of "bert." and are not looked at.
 *
 * RoBERTa has BERT's names, but counts positions from 2 and has one token type: set first_position and token_types.
 * Without them its file is an error: its table of token types has one row, and row 1 of its table of positions, that of
 * padding, is zero.
 * @since 0.1
 */
ATTN_API attn_status attn_bert_load(attn_bert **bert, const attn_bert_config *config, const attn_weights *weights,
                                    const char *prefix);
/** Frees an encoder; NULL is allowed. @since 0.1 */
ATTN_API void attn_bert_destroy(attn_bert *bert);
/**
 * Bytes that attn_bert_forward() needs for so many tokens in so many sequences, whatever the type of hidden; SIZE_MAX
 * on overflow. @since 0.1
 */
ATTN_API size_t attn_bert_workspace_size(const attn_bert *bert, int64_t num_sequences, int64_t tokens, int num_threads);

/** What attn_bert_forward() can be asked for besides hidden states. */
typedef struct attn_bert_outputs {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    /**
     * [layers] or NULL: entry l, if not NULL, f32 (1, heads, tokens, tokens): the weights of layer l, of all sequences'
     * tokens as in attn_params.weights; a sequence's own are a square on the diagonal.
     */
    const attn_tensor *const *weights;
} attn_bert_outputs;

/** Outputs with nothing asked for. @since 0.1 */
static inline attn_bert_outputs attn_bert_outputs_default(void)
{
    attn_bert_outputs o;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    return o;
}

/**
 * Encodes sequences of any lengths without padding. Token t of sequence s is ids[offsets[s] + t] and has position
 * config.first_position + t and segment type 0.
 *
 * @param bert the encoder
 * @param num_sequences 0 or more
 * @param offsets [num_sequences + 1] from 0, not descending; a sequence has at most config.positions -
 *                config.first_position tokens
 * @param ids     [offsets[num_sequences]] 0 to config.vocabulary - 1
 * @param hidden  f32, bf16 or f16 (1, 1, offsets[num_sequences], d_model): the last layer's states, rounded to its type
 * @param outputs NULL or what else is wanted
 * @param num_threads as in attn_params
 * @param workspace attn_bert_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1
 */
ATTN_API attn_status attn_bert_forward(const attn_bert *bert, int64_t num_sequences, const int64_t *offsets,
                                       const int32_t *ids, const attn_tensor *hidden, const attn_bert_outputs *outputs,
                                       int num_threads, void *workspace, size_t workspace_size);

/**
 * Mean pooling of hidden states: out[s] = mean of its tokens, divided by its Euclidean length if normalise is not 0
 * (never by less than 1e-12). A sequence without tokens gives zeros.
 *
 * @param hidden f32, bf16 or f16 (1, 1, tokens, C); summed in f32
 * @param num_sequences 0 or more
 * @param offsets [num_sequences + 1] first tokens, and the end of the last
 * @param normalise whether rows are brought to length 1
 * @param out    f32 (1, 1, num_sequences, C)
 * @since 0.1
 */
ATTN_API attn_status attn_mean_pool(const attn_tensor *hidden, int64_t num_sequences, const int64_t *offsets,
                                    int normalise, const attn_tensor *out);

/**
 * The gradient of attn_mean_pool(): each token of a sequence gets the same.
 *
 * @param hidden  as in the forward pass; NULL, or not looked at, if normalise is 0
 * @param num_sequences, offsets, normalise as in the forward pass
 * @param d_out   f32 (1, 1, num_sequences, C)
 * @param d_hidden f32, bf16 or f16 (1, 1, tokens, C), written; rounded once. Must not overlap an input
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_mean_pool_backward(const attn_tensor *hidden, int64_t num_sequences, const int64_t *offsets,
                                             int normalise, const attn_tensor *d_out, const attn_tensor *d_hidden);

/* ------------------------------------------------------------------- Llama -- */

/** Sizes of a Llama-style decoder (Touvron et al. 2023). */
typedef struct attn_llama_config {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    int64_t layers;     /**< num_hidden_layers */
    int64_t d_model;    /**< hidden_size */
    int64_t heads;      /**< num_attention_heads */
    int64_t kv_heads;   /**< num_key_value_heads; 0 means heads */
    int64_t head_dim;   /**< 0 means d_model / heads */
    int64_t d_ff;       /**< intermediate_size */
    int64_t vocabulary; /**< vocab_size */
    float eps;          /**< of the RMS norms */
    /** NULL: the defaults; pairs 0 means head_dim / 2. Copied, but for arrays behind it, which must outlive the
     * decoder. */
    const attn_rope_config *rope;
    int tied; /**< not 0: the embedding is the output matrix, too, and lm_head.weight is not read */
    /**
     * How the matrices of all products are kept and multiplied; NULL: as they are in weights, in f32. Embeddings and
     * norms keep the values that they have. Only looked at while the model is made. @since 0.1, experimental
     */
    const attn_linear_format *format;
    /**
     * f32 (0), bf16 or f16: the type of what lies between products, the keys and values of a session among them.
     * Products, norms and the statistics of softmax are f32 in any case. @since 0.1, experimental
     */
    attn_dtype activations;
} attn_llama_config;

/** A config with every field at its default; set the sizes and eps. @since 0.1 */
static inline attn_llama_config attn_llama_config_default(void)
{
    attn_llama_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** A Llama-style decoder. */
typedef struct attn_llama attn_llama;
/** Its state while decoding: keys and values of every layer. */
typedef struct attn_llama_session attn_llama_session;

/**
 * Makes a decoder from the names of LlamaForCausalLM in Transformers: model.embed_tokens.weight, model.layers.0...
 *
 * Any other name in weights is an error, as attn/nn/weights.h has it: q_norm and k_norm of Qwen 3, the further norms of
 * Gemma 2 and 3, a layer more than config.layers. Not read are rotary_emb.inv_freq of older files, as config.rope says
 * how to turn, and with config.tied lm_head.weight, which is the embedding again.
 *
 * The first Gemma has exactly Llama's names and other arithmetic (1 + weight in its norms, a scaled embedding, GELU).
 * No name tells, so whoever reads its file has to know from model_type that this loader is not for it.
 * @since 0.1
 */
ATTN_API attn_status attn_llama_load(attn_llama **llama, const attn_llama_config *config, const attn_weights *weights);
/** Frees a decoder; NULL is allowed. @since 0.1 */
ATTN_API void attn_llama_destroy(attn_llama *llama);
/**
 * Makes a session for batch sequences of up to capacity tokens each; llama must outlive it. All its memory but that of
 * a call, which grows to what the largest has needed, is allocated here. One thread at a time may use a session.
 * @since 0.1
 */
ATTN_API attn_status attn_llama_session_create(attn_llama_session **session, const attn_llama *llama, int64_t batch,
                                               int64_t capacity);
/** Frees a session; NULL is allowed. @since 0.1 */
ATTN_API void attn_llama_session_destroy(attn_llama_session *session);
/** Tokens of each sequence that the session holds. @since 0.1 */
ATTN_API int64_t attn_llama_session_length(const attn_llama_session *session);
/** Forgets all tokens from length on; length is 0 to what it holds. @since 0.1 */
ATTN_API attn_status attn_llama_session_truncate(attn_llama_session *session, int64_t length);
/**
 * Adds tokens to all sequences of a session: a prompt, or one token a step.
 *
 * @param session whose tokens these follow
 * @param tokens 1 or more; session length + tokens is at most its capacity
 * @param ids    [batch*tokens]
 * @param logits f32 (batch, 1, 1, vocabulary): those after the last token; or (batch, 1, tokens, vocabulary): all
 * @param num_threads as in attn_params
 * @since 0.1
 */
ATTN_API attn_status attn_llama_forward(attn_llama_session *session, int64_t tokens, const int32_t *ids,
                                        const attn_tensor *logits, int num_threads);

/**
 * Completes the config of a cache for a decoder's keys and values: layers, kv_heads, dk, dv, rope and rope_layout, and
 * dtype, which is that of the activations; it may be set to another type afterwards. max_tokens, max_sequences,
 * page_size and num_pages are the caller's. llama must outlive the config, but not the cache.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_llama_cache_config(const attn_llama *llama, attn_cache_config *config);
/**
 * Runs the tokens of a cache's step: prompts, chunks of them, and single tokens of any number of sequences together.
 *
 * @param llama a decoder
 * @param cache one of attn_llama_cache_config(), in which attn_cache_step() has begun a step; kept in all layers
 * @param ids   [tokens of the step] those of the first sequence first
 * @param tree  NULL, or drafts that are verified: the last tokens of each sequence, of which each sees its ancestors
 * alone. Their positions go to attn_cache_step()
 * @param num_rows tokens whose logits are wanted; not looked at if rows is NULL
 * @param rows  [num_rows] these, 0 to tokens of the step - 1, in any order; NULL: all
 * @param logits f32 (1, 1, num_rows or tokens of the step, vocabulary)
 * @param num_threads as in attn_params
 *
 * Allocates working memory for the call. ATTN_OUT_OF_MEMORY, or an error in a later layer, may find keys in some layers
 * already: the step cannot be repeated, but its tokens be taken back with attn_cache_truncate().
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_llama_step(const attn_llama *llama, attn_cache *cache, const int32_t *ids,
                                     const attn_tree *tree, int64_t num_rows, const int64_t *rows,
                                     const attn_tensor *logits, int num_threads);

/* ---------------------------------------------------------- encoder-decoder -- */

/** Sizes of an encoder-decoder Transformer (Vaswani et al. 2017), PyTorch's nn.Transformer with embeddings. */
typedef struct attn_transformer_config {
    size_t struct_size;         /**< sizeof of this struct as the caller compiled it */
    int64_t encoder_layers;     /**< 0 or more */
    int64_t decoder_layers;     /**< 1 or more */
    int64_t d_model;            /**< channels of a token */
    int64_t heads;              /**< of every attention; a divisor of d_model */
    int64_t d_ff;               /**< channels inside the feed-forward networks */
    int64_t source_vocabulary;  /**< tokens known to the encoder */
    int64_t target_vocabulary;  /**< tokens known to the decoder */
    int64_t positions;          /**< longest sequence on either side */
    attn_activation activation; /**< of the feed-forward networks */
    float eps;                  /**< of the layer norms */
    int norm_first;             /**< pre-norm layers */
    int final_norms;            /**< encoder.norm and decoder.norm are there */
    int32_t bos;                /**< id that begins a target sequence */
    int32_t eos;                /**< id that ends one */
    /**
     * How the matrices of all products are kept and multiplied; NULL: as they are in weights, in f32. Embeddings and
     * norms keep the values that they have. Only looked at while the model is made. @since 0.1, experimental
     */
    const attn_linear_format *format;
    /**
     * f32 (0), bf16 or f16: the type of what lies between products, the keys and values of decoding among them.
     * Products, norms and the statistics of softmax are f32 in any case. @since 0.1, experimental
     */
    attn_dtype activations;
} attn_transformer_config;

/** A config with every field at its default; set the sizes, eps, bos and eos. @since 0.1 */
static inline attn_transformer_config attn_transformer_config_default(void)
{
    attn_transformer_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** An encoder-decoder Transformer. */
typedef struct attn_transformer attn_transformer;

/**
 * Makes a model from names behind prefix: src_embedding.weight, tgt_embedding.weight (multiplied by
 * sqrt(d_model); sinusoidal positions are added), encoder.layers.0..., encoder.norm.*, decoder.layers.0...,
 * decoder.norm.*, generator.weight, generator.bias (which may be missing). Any other name behind prefix is an error, as
 * attn/nn/weights.h has it: encoder.norm.* without final_norms, say.
 * @since 0.1
 */
ATTN_API attn_status attn_transformer_load(attn_transformer **model, const attn_transformer_config *config,
                                           const attn_weights *weights, const char *prefix);
/** Frees a model; NULL is allowed. @since 0.1 */
ATTN_API void attn_transformer_destroy(attn_transformer *model);

/**
 * The encoder's states for a padded batch.
 * @param model the model
 * @param batch sequences
 * @param tokens of each sequence
 * @param ids     [batch*tokens]; what stands behind a length is not looked at
 * @param lengths [batch] 0 to tokens, or NULL: tokens
 * @param memory  f32, bf16 or f16 (batch, 1, tokens, d_model); rows behind a length become 0
 * @param num_threads as in attn_params
 * @since 0.1
 */
ATTN_API attn_status attn_transformer_encode(const attn_transformer *model, int64_t batch, int64_t tokens,
                                             const int32_t *ids, const int64_t *lengths, const attn_tensor *memory,
                                             int num_threads);

/** A sequence that decoding has found. Callers have arrays of them: the struct is frozen. */
typedef struct attn_hypothesis {
    int64_t length;  /**< ids without bos, with eos if it ended */
    int32_t *ids;    /**< [max_length] of the caller's, written */
    double log_prob; /**< sum of the log-probabilities of its ids */
} attn_hypothesis;

/** How to decode. */
typedef struct attn_decoding {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    int64_t beams;      /**< 0 or 1: greedy; else beam search, at most target_vocabulary */
    int64_t max_length; /**< ids at most, eos included; 1 to config.positions - 1 */
    /**
     * Beam search compares log_prob / length^length_penalty (Wu et al. 2016 have a variant); 0: log_prob alone. Finite,
     * 0 or more.
     */
    float length_penalty;
    int num_threads;               /**< as in attn_params */
    const attn_executor *executor; /**< NULL: the process's (attn_set_executor()), else OpenMP */
} attn_decoding;

/** Decoding with every field at its default; set max_length. @since 0.1 */
static inline attn_decoding attn_decoding_default(void)
{
    attn_decoding d;
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    return d;
}

/**
 * Decodes one sequence after another from the encoder's states; keys and values are kept from step to step, those of
 * the memory are projected once.
 *
 * Greedy search takes the id with the greatest logit, the lowest among equals, until eos or max_length ids.
 *
 * Beam search starts with one hypothesis without ids. In a step the candidates are, for every hypothesis from the best
 * to the worst: itself if it has ended in eos, else its continuations by each id from 0 on. Of all of them the beams
 * best by log_prob / length^length_penalty, the earlier among equals, are the new beam in this order. The search ends
 * when all of the beam have ended, or after max_length ids, and its result is the first. (Without a length penalty it
 * stops as soon as the first has ended, which cannot change any more.) Log-probabilities are computed in double from
 * the f32 logits; a score or, in greedy search, a logit that is NaN counts as -inf.
 *
 * @param model the model
 * @param memory  f32, bf16 or f16 (batch, 1, Tm, d_model)
 * @param lengths [batch] live rows of memory, 1 to Tm, or NULL: Tm
 * @param decoding how
 * @param best    [batch]: the best hypothesis of each; ids are set by the caller, the rest is written
 * @since 0.1
 */
ATTN_API attn_status attn_transformer_decode(const attn_transformer *model, const attn_tensor *memory,
                                             const int64_t *lengths, const attn_decoding *decoding,
                                             attn_hypothesis *best);

/**
 * Logits of given target ids (teacher forcing): row t are those after ids 0..t.
 *
 * @param model the model
 * @param memory  f32, bf16 or f16 (batch, 1, Tm, d_model)
 * @param lengths [batch] live rows of memory, 1 to Tm, or NULL: Tm
 * @param tokens  0 to config.positions
 * @param ids     [batch*tokens], the first of each sequence usually bos
 * @param logits  f32 (batch, 1, tokens, target_vocabulary)
 * @param weights NULL or f32 (batch, heads, tokens, Tm): the cross-attention of the last decoder layer
 * @param num_threads as in attn_params
 * @since 0.1
 */
ATTN_API attn_status attn_transformer_score(const attn_transformer *model, const attn_tensor *memory,
                                            const int64_t *lengths, int64_t tokens, const int32_t *ids,
                                            const attn_tensor *logits, const attn_tensor *weights, int num_threads);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_MODELS_H */
