/* SPDX-License-Identifier: Apache-2.0 */
/* A model and the tokenizer of its folder. */
#ifndef ATTN_TOOLS_MODELS_TEXT_MODEL_H
#define ATTN_TOOLS_MODELS_TEXT_MODEL_H

#include <attn/nn/model.h>
#include <attn/text.h>

#include "io/error.h"

/* Begins as {0}. */
struct text_model {
    const char *folder;
    attn_tokenizer *tokenizer;
    attn_model *model;
    attn_model_info info;
};

/*
 * Opens tokenizer.json of a folder and its model, with progress on a terminal; refused are tokenizers with more tokens
 * than the model has.
 */
attn_status text_model_open(struct text_model *m, const char *folder, const attn_model_options *options);
void text_model_close(struct text_model *m);

/* What --max-tokens (0: not given) leaves of the longest text that the model takes. */
attn_status text_model_max_tokens(const struct text_model *m, long long wanted, int64_t *most);

#endif
