/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file model.h
 * @brief Models from a folder: config.json and safetensors as Transformers writes them.
 *
 * attn_model_open() reads what a model is from its folder and makes it: sizes, activation, positions, rotations and
 * ties of weights from config.json, weights from model.safetensors or the shards of model.safetensors.index.json, and
 * what a sentence encoder does with its states from modules.json. docs/models.md lists the architectures. What is not
 * computed as Transformers computes it is refused, by the entry of the file that asks for it. The page has an
 * example, too.
 *
 * A decoder runs over an attn_cache, as attn_llama_step() does: attn_model_cache_config(), attn_model_step(). That of
 * an encoder-decoder does so, too, and looks at texts in an attn_model_memory beside it.
 *
 * A model is immutable, and any number of threads may use it at once. Its functions allocate working memory for a call.
 */
#ifndef ATTN_NN_MODEL_H
#define ATTN_NN_MODEL_H

#include "attn/nn/models.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a model makes of tokens. */
typedef enum attn_model_kind {
    ATTN_MODEL_ENCODER = 0, /**< hidden states of whole sequences: attn_model_encode() */
    ATTN_MODEL_DECODER = 1, /**< the next token of sequences that grow: attn_model_step() */
    /** Both: the next token of sequences that see a text each, which attn_model_memory_add() has encoded. */
    ATTN_MODEL_ENCODER_DECODER = 2
} attn_model_kind;

/** How a sequence's hidden states become one vector. */
typedef enum attn_pooling {
    ATTN_POOLING_NONE = 0,  /**< not at all */
    ATTN_POOLING_MEAN = 1,  /**< their mean */
    ATTN_POOLING_FIRST = 2, /**< that of the first token ("cls") */
    ATTN_POOLING_LAST = 3,  /**< that of the last token */
    ATTN_POOLING_MAX = 4    /**< the largest of each channel */
} attn_pooling;

/** How to make a model. Zero is the default of all but struct_size. */
typedef struct attn_model_options {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    /** How the matrices of all products are kept and multiplied; NULL: as they are in the files, in f32. Only looked at
     * while the model is made. */
    const attn_linear_format *format;
    attn_dtype activations; /**< f32 (0), bf16 or f16: the type of what lies between products */
    attn_pooling pooling;   /**< ATTN_POOLING_NONE: as the folder says; else this one, whatever it says */
    int normalise;          /**< with pooling: not 0 brings embeddings to length 1 */
    /**
     * Not NULL: told how far the work is, by the thread that opens the model: before each tensor of the files is taken
     * how many bytes the tensors before it have, and in the end that all total bytes are done. done never falls. A
     * model that is refused may have been told of.
     */
    void (*progress)(void *user, int64_t done, int64_t total);
    void *progress_user; /**< progress gets it as user; NULL without progress */
} attn_model_options;

/** Options with every field at its default. @since 0.1, experimental */
static inline attn_model_options attn_model_options_default(void)
{
    attn_model_options o;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    return o;
}

/** What a model is; written by attn_model_describe(). Texts and arrays are the model's. */
typedef struct attn_model_info {
    size_t struct_size;       /**< sizeof of this struct as the caller compiled it */
    attn_model_kind kind;     /**< what can be done with it */
    const char *model_type;   /**< of config.json: "bert" */
    const char *architecture; /**< the class in config.json: "BertForSequenceClassification"; "" if it names none */
    int64_t layers;           /**< of attention and feed-forward network */
    int64_t d_model;          /**< channels of a hidden state */
    int64_t heads;            /**< query heads */
    int64_t kv_heads;         /**< heads of keys and values */
    int64_t head_dim;         /**< channels of a head */
    int64_t d_ff;             /**< channels inside the feed-forward networks */
    int64_t vocabulary;       /**< ids are 0 to vocabulary - 1 */
    int64_t
        max_positions;    /**< tokens of a sequence that the model has positions for; T5, which needs none: INT32_MAX */
    int64_t max_tokens;   /**< of a sentence, special tokens counted, as the folder says; else max_positions */
    int64_t token_types;  /**< types are 0 to token_types - 1; 0: the model has none */
    int pooler;           /**< not 0: outputs.pooled can be had */
    int64_t logits;       /**< channels of outputs.logits: labels, or vocabulary; 0: there is no such head */
    attn_pooling pooling; /**< of outputs.embeddings; ATTN_POOLING_NONE: there are none */
    int normalise;        /**< not 0: embeddings have length 1 */
    int64_t num_eos;      /**< how many ids end a text */
    const int32_t *eos;   /**< [num_eos] these (eos_token_id) */
    int64_t decoder_layers; /**< of an encoder-decoder, whose layers are those of its encoder; else 0 */
    int64_t decoder_start;  /**< of an encoder-decoder: the id that a sequence begins with; -1: it is not known */
    int64_t pad;            /**< of an encoder-decoder: pad_token_id; -1: none */
    int64_t token_logits;   /**< channels of outputs.token_logits: labels, or vocabulary; 0: there is no such head */
} attn_model_info;

/** A description with struct_size set, to be filled in. @since 0.1, experimental */
static inline attn_model_info attn_model_info_default(void)
{
    attn_model_info i;
    memset(&i, 0, sizeof i);
    i.struct_size = sizeof i;
    return i;
}

/** A model with all its weights. */
typedef struct attn_model attn_model;

/**
 * Makes the model of a folder. Files are read and checked here; nothing of them is needed afterwards.
 *
 * @param model   set to the model, or to NULL on an error
 * @param folder  with config.json, and model.safetensors or model.safetensors.index.json and its shards. Also read, if
 *                they are there: modules.json and what it names, sentence_bert_config.json, generation_config.json
 * @param options NULL or how
 * @return ATTN_INVALID_FILE for a file that is missing or wrong, ATTN_UNSUPPORTED for an architecture or an entry of a
 *         file that is not supported; the sentence names file, entry and value. Errors of weights are those of
 *         attn_weights_open() and attn_weights_get()
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_model_open(attn_model **model, const char *folder, const attn_model_options *options);
/** Frees a model; NULL is allowed. @since 0.1, experimental */
ATTN_API void attn_model_close(attn_model *model);
/** Writes what a model is. info->struct_size, the caller's, says how many fields there are. @since 0.1, experimental */
ATTN_API attn_status attn_model_describe(const attn_model *model, attn_model_info *info);

/** Sequences of any lengths, behind each other without padding. */
typedef struct attn_model_batch {
    size_t struct_size;     /**< sizeof of this struct as the caller compiled it */
    int64_t num_sequences;  /**< 0 or more */
    const int64_t *offsets; /**< [num_sequences + 1] first tokens from 0 on, not descending, and the end of the last */
    const int32_t *ids;     /**< [offsets[num_sequences]], with special tokens */
    /** NULL: all 0. Else [offsets[num_sequences]] 0 to token_types - 1: 1 for the second text of a pair, say */
    const int32_t *token_types;
    int num_threads;               /**< as in attn_params */
    const attn_executor *executor; /**< NULL: the process's (attn_set_executor()), else OpenMP */
} attn_model_batch;

/** A batch with every field at its default; set num_sequences, offsets and ids. @since 0.1, experimental */
static inline attn_model_batch attn_model_batch_default(void)
{
    attn_model_batch b;
    memset(&b, 0, sizeof b);
    b.struct_size = sizeof b;
    return b;
}

/**
 * What is wanted of a call, each NULL where it is not; set at least one. T is the number of the call's tokens, S that
 * of its sequences. None may overlap another.
 */
typedef struct attn_model_outputs {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    /** f32, bf16 or f16 (1, 1, T, d_model): the last layer's states; of models with pre-norm layers behind the last
     * norm. */
    const attn_tensor *hidden;
    /**
     * [layers + 1], of an encoder-decoder's decoder [decoder_layers + 1]: entry l, if not NULL, f32, bf16 or f16
     * (1, 1, T, d_model): the states that layer l is given; the last one is hidden. Transformers' hidden_states.
     */
    const attn_tensor *const *states;
    /** [layers]: entry l, if not NULL, f32 (1, heads, T, T): the weights of layer l, as in attn_bert_outputs. Encoders
     * alone. */
    const attn_tensor *const *weights;
    /** f32 (1, 1, S, d_model): the pooler's tanh(W h + b) of each sequence's first token. Encoders alone, with
     * info.pooler; sequences have a token. */
    const attn_tensor *pooled;
    /** f32 (1, 1, S, d_model): sequences as the folder pools their states (info.pooling). Encoders alone; all but the
     * mean need a token. */
    const attn_tensor *embeddings;
    /**
     * f32. Encoders: (1, 1, S, info.logits), those of the classes of each sequence; a reranker's one is its score
     * before any sigmoid. Decoders: (1, 1, rows, vocabulary), those of the next token.
     */
    const attn_tensor *logits;
    /** f32 (1, 1, T, info.token_logits): those of the labels of each token, or of the word in its place. Encoders
     * alone. */
    const attn_tensor *token_logits;
} attn_model_outputs;

/** Outputs with every field at its default; set at least one. @since 0.1, experimental */
static inline attn_model_outputs attn_model_outputs_default(void)
{
    attn_model_outputs o;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    return o;
}

/**
 * Encodes sequences. A row of an output does not depend on the other sequences.
 *
 * @param model   an encoder, or an encoder-decoder, of which this is the encoder: it has no logits here
 * @param batch   what; a sequence has at most info.max_positions tokens
 * @param outputs what is wanted
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_model_encode(const attn_model *model, const attn_model_batch *batch,
                                       const attn_model_outputs *outputs);

/**
 * Completes the config of a cache for a decoder, or that of an encoder-decoder, as attn_llama_cache_config() does. The
 * model must outlive the config, but not the cache.
 *
 * Where every layer has a sliding window, window is set to the largest, so that pages which no layer sees any more are
 * handed back; attn_cache_truncate() then goes back no further than to where the keys that are wanted are still there.
 * It may be set to 0 afterwards, which keeps all keys, with the same results. Where a layer sees all keys, it stays as
 * it is.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_model_cache_config(const attn_model *model, attn_cache_config *config);

/**
 * The texts that the decoder of an encoder-decoder looks at, its sources: for each of them the keys and values of every
 * layer's cross-attention, in the type of the model's activations. It grows as sources are added; the memory of those
 * that are removed is used again.
 *
 * @code
 *     attn_model_memory *memory;
 *     attn_model_memory_create(&memory, model);
 *     attn_model_memory_add(memory, &batch, NULL, sources);   // encodes the texts of a batch
 *     attn_cache_add(cache, &id);                             // a translation of the first one
 *     attn_cache_step(cache, 1, &id, &one, NULL);
 *     tokens.ids = &start, tokens.memory = memory, tokens.sources = &sources[0];
 *     attn_model_step(model, cache, &tokens, &outputs);       // start: info.decoder_start
 * @endcode
 *
 * Any number of threads may run steps with a memory at once, but not while it is changed.
 */
typedef struct attn_model_memory attn_model_memory;

/**
 * Makes a memory without sources; *memory is NULL on an error.
 *
 * @param memory set to the memory
 * @param model  an encoder-decoder, which must outlive it
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_model_memory_create(attn_model_memory **memory, const attn_model *model);
/** Frees a memory and all its sources; NULL is allowed. @since 0.1, experimental */
ATTN_API void attn_model_memory_destroy(attn_model_memory *memory);
/**
 * Adds the sequences of a batch as sources. On an error there is none more than before.
 *
 * @param memory  the memory
 * @param batch   what; with hidden its ids and token_types are not looked at. Of a source without tokens a decoder
 *                sees nothing
 * @param hidden  NULL: the batch is encoded. Else f32, bf16 or f16 (1, 1, offsets[num_sequences], d_model): the hidden
 *                states that attn_model_encode() has given for it
 * @param sources [batch->num_sequences] set to the number of each source: 0 or more, which no other source of this
 *                memory has ever had
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_model_memory_add(attn_model_memory *memory, const attn_model_batch *batch,
                                           const attn_tensor *hidden, int64_t *sources);
/** Forgets a source. @since 0.1, experimental */
ATTN_API attn_status attn_model_memory_remove(attn_model_memory *memory, int64_t source);
/** Tokens of a source; -1 if there is none of that number. @since 0.1, experimental */
ATTN_API int64_t attn_model_memory_length(const attn_model_memory *memory, int64_t source);

/** The tokens of a cache's step. */
typedef struct attn_model_tokens {
    size_t struct_size;              /**< sizeof of this struct as the caller compiled it */
    const int32_t *ids;              /**< [tokens of the step] those of the first sequence first */
    const attn_tree *tree;           /**< NULL, or drafts that are verified, as in attn_llama_step() */
    int64_t num_rows;                /**< tokens whose logits are wanted; not looked at if rows is NULL */
    const int64_t *rows;             /**< [num_rows] these, 0 to tokens of the step - 1, in any order; NULL: all */
    int num_threads;                 /**< as in attn_params */
    const attn_executor *executor;   /**< NULL: the process's (attn_set_executor()), else OpenMP */
    const attn_model_memory *memory; /**< of an encoder-decoder: where its sources are; else NULL */
    /** [sequences of the step] of an encoder-decoder: the source that each one looks at; several may have the same. */
    const int64_t *sources;
} attn_model_tokens;

/** Tokens with every field at its default; set ids. @since 0.1, experimental */
static inline attn_model_tokens attn_model_tokens_default(void)
{
    attn_model_tokens t;
    memset(&t, 0, sizeof t);
    t.struct_size = sizeof t;
    return t;
}

/**
 * Runs the tokens of a cache's step: prompts, chunks of them, and single tokens of any number of sequences together.
 *
 * @param model   a decoder, or an encoder-decoder. The biases of T5's follow from places in a sequence: tokens.tree,
 * and positions in attn_cache_step() that are not their places, are ATTN_UNSUPPORTED
 * @param cache   one of attn_model_cache_config(), in which attn_cache_step() has begun a step; kept in all layers
 * @param tokens  what
 * @param outputs hidden, states and logits
 *
 * An error in a later layer, ATTN_OUT_OF_MEMORY among them, may find keys in some layers already: the step cannot be
 * repeated, but its tokens be taken back with attn_cache_truncate().
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_model_step(const attn_model *model, attn_cache *cache, const attn_model_tokens *tokens,
                                     const attn_model_outputs *outputs);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_MODEL_H */
