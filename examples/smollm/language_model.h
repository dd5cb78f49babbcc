/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A language model of the kind of SmolLM2: byte-pair tokens, a Llama, and the
 * cache that keeps the keys and values of what it has read.
 *
 *     struct language_model *model;
 *     language_model_open(&model, "folder", &format, ATTN_F32);
 *     language_model_chat(model, NULL, "What is a cache?", &ids);
 *     language_model_start(model, ids.count + 100, &kept);
 *     language_model_read(model, ids.ids, ids.count, threads, &logits);      prefill
 *     ... choose an id by the logits ...
 *     language_model_read(model, &id, 1, threads, &logits);                  decoding
 */
#ifndef ATTN_EXAMPLES_SMOLLM_LANGUAGE_MODEL_H
#define ATTN_EXAMPLES_SMOLLM_LANGUAGE_MODEL_H

#include <attn/nn.h>

#include "byte_pairs.h"
#include "drafts.h"

struct language_model;

/* Opens a folder with config.json, tokenizer.json and model.safetensors, and perhaps tokenizer_config.json. */
attn_status language_model_open(struct language_model **model, const char *folder, const attn_linear_format *format,
                                attn_dtype activations);
/* NULL is fine. */
void language_model_close(struct language_model *model);

const struct byte_pairs *language_model_tokenizer(const struct language_model *model);
int64_t language_model_vocabulary(const struct language_model *model);
/* Tokens of a text at most. */
int64_t language_model_positions(const struct language_model *model);
/* Whether an id ends what the model says. */
bool language_model_ends(const struct language_model *model, int32_t id);

/*
 * Appends the tokens of a conversation up to where the model's answer begins: system (NULL: what the model was tuned
 * with), then the user's prompt. Fails if the folder has no chat template.
 */
attn_status language_model_chat(const struct language_model *model, const char *system, const char *prompt,
                                struct token_ids *ids);

/* How keys and values are kept: their type, and the tokens of a page; 0: all of a text side by side. */
struct kept_keys {
    attn_dtype dtype;
    int64_t page;
};

/* Begins a text of at most capacity tokens, and drafts. */
attn_status language_model_start(struct language_model *model, int64_t capacity, const struct kept_keys *kept);
/* Reads count tokens behind those before; *logits[vocabulary] are those after the last, valid until the next call. */
attn_status language_model_read(struct language_model *model, const int32_t *ids, int64_t count, int threads,
                                const float **logits);
/* Reads a tree behind the tokens before; *logits[drafts->count][vocabulary] are those after each node. */
attn_status language_model_verify(struct language_model *model, const struct drafts *drafts, int threads,
                                  const float **logits);
/* Of the tree that was read last, keeps the nodes from the root to one; the others have never been there. */
attn_status language_model_accept(struct language_model *model, const struct drafts *drafts, int node);

#endif
