/* SPDX-License-Identifier: Apache-2.0 */
/* What a language model's folder says about itself, in the files that Transformers writes. */
#ifndef ATTN_EXAMPLES_SMOLLM_SETTINGS_H
#define ATTN_EXAMPLES_SMOLLM_SETTINGS_H

#include <attn/nn.h>

#include "io/error.h"

struct settings {
    attn_llama_config llama; /* its rope is the next one */
    attn_rope_config rope;
    int64_t positions;   /* tokens of a text at most */
    int64_t end_of_turn; /* the id that ends what the model says */
    bool chats;          /* the folder has SmolLM2's chat template */
};

/*
 * Reads config.json, and tokenizer_config.json if it is there. What is asked for beyond what attn_llama computes, or
 * another chat template than SmolLM2's, is refused.
 */
attn_status settings_read(struct settings *settings, const char *folder);

#endif
