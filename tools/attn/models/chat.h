/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation as models that were tuned on ChatML read it. */
#ifndef ATTN_TOOLS_MODELS_CHAT_H
#define ATTN_TOOLS_MODELS_CHAT_H

#include "models/text_model.h"

/* Refuses tokenizers without the special tokens of ChatML. */
attn_status chat_check(const struct text_model *m);

/*
 * Appends the tokens of a conversation up to where the model's answer begins: what system says (NULL: nothing), then
 * the user's prompt. Names of special tokens in these are text, so that a prompt cannot end its turn.
 */
attn_status chat_encode(const struct text_model *m, const char *system, const char *prompt, size_t size,
                        attn_encoding *out);

#endif
