/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of models from a folder share: model.c opens one and knows the
 * architectures, model_encoder.c and model_decoder.c read what their kind has in
 * config.json and load it, model_t5.c is T5, model_rope.c reads rotations, model_sentence.c what a
 * sentence encoder has beside it, model_run.c runs a model, model_memory.c keeps what a decoder sees of texts.
 */
#ifndef ATTN_NN_MODEL_INTERNAL_H
#define ATTN_NN_MODEL_INTERNAL_H

#include "attn/nn/model.h"
#include "io/config.h"
#include "nn/block.h"
#include "nn/names.h"

struct nn_t5;

/** The head of an encoder that gives logits of each token: of words behind a layer and its norm, of labels at once. */
struct nn_token_head {
    attn_linear *dense; /**< NULL: there is no such layer */
    attn_activation activation;
    struct nn_norm norm; /**< LayerNorm, of eps */
    float eps;
    attn_linear *head; /**< NULL: there is no such head */
};

struct attn_model {
    attn_model_info info; /**< its texts and arrays are the next ones */
    char *model_type, *architecture;
    int32_t *eos;
    attn_dtype activations;
    attn_bert *bert;  /**< an encoder, */
    struct nn_t5 *t5; /**< or that of T5, */
    attn_linear *pooler;
    attn_linear *head_dense;         /**< of classes: a layer of the first token's state, NULL for the pooler, */
    attn_activation head_activation; /**< with this behind it, */
    attn_linear *head;               /**< and the layer of the classes; NULL: there is no such head */
    struct nn_token_head tokens;
    attn_llama *llama; /**< or a decoder; that of T5 beside its encoder, whose embedding it has */
};

/** A folder while its model is made. */
struct nn_folder {
    const char *path;
    attn_model_options options; /**< completed */
    struct config config;       /**< config.json */
    struct nn_reader reader;    /**< of its weights */
    const char *class_name;     /**< how the names of the architecture's classes begin: "Bert" */
};

/** Encoders by config.json: BERT, RoBERTa and XLM-RoBERTa, DistilBERT. */
attn_status nn_model_load_bert(attn_model *model, struct nn_folder *folder);
attn_status nn_model_load_roberta(attn_model *model, struct nn_folder *folder);
attn_status nn_model_load_distilbert(attn_model *model, struct nn_folder *folder);

/** T5, with its decoder or without. */
struct nn_bert_call;
attn_status nn_model_load_t5(attn_model *model, struct nn_folder *folder);
attn_status nn_model_load_mt5(attn_model *model, struct nn_folder *folder);
void nn_t5_destroy(struct nn_t5 *t5);
/** nn_bert_encode() of it; offsets have been checked. */
attn_status nn_t5_encode(const struct nn_t5 *t5, const struct nn_bert_call *call);

/** Decoders by config.json. */
attn_status nn_model_load_llama(attn_model *model, struct nn_folder *folder);
attn_status nn_model_load_mistral(attn_model *model, struct nn_folder *folder);
attn_status nn_model_load_qwen2(attn_model *model, struct nn_folder *folder);
attn_status nn_model_load_qwen3(attn_model *model, struct nn_folder *folder);
attn_status nn_model_load_gemma2(attn_model *model, struct nn_folder *folder);
attn_status nn_model_load_gpt2(attn_model *model, struct nn_folder *folder);

/** Pooling and the longest sentence, by the files of sentence-transformers; without them nothing changes. */
attn_status nn_model_read_sentence(attn_model *model, const struct nn_folder *folder);

/** How keys and queries of heads of head_dim channels are rotated. */
attn_status nn_model_read_rope(attn_rope_config *rope, const struct config *config, int64_t head_dim);

/** A batch, with all of it checked but ids and types. */
attn_status nn_model_take_batch(attn_model_batch *ours, const attn_model_batch *theirs);

/** A step of an encoder-decoder: call without what is the memory's. */
struct nn_llama_call;
attn_status nn_model_step_with_memory(const attn_model *model, attn_cache *cache, const attn_model_tokens *tokens,
                                      struct nn_llama_call *call);

/** "FILE: 'NAME' is VALUE; expected EXPECTED", for an entry that asks for what is not computed. */
attn_status nn_model_refuse(const struct config *config, const char *name, const char *expected);
/** Refuses an entry that is there, and neither null nor false. */
attn_status nn_model_expect_off(const struct config *config, const char *name);
/** An activation by its name in Transformers; *activation stays where the entry is missing. */
attn_status nn_model_read_activation(const struct config *config, const char *name, attn_activation *activation);
/** Whether the class of config.json ends in suffix. */
int nn_model_is(const attn_model *model, const char *suffix);

#endif
