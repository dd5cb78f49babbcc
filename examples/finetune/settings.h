/* SPDX-License-Identifier: Apache-2.0 */
/* What the folder of a sentence encoder says about itself, as far as its training needs it. */
#ifndef ATTN_EXAMPLES_FINETUNE_SETTINGS_H
#define ATTN_EXAMPLES_FINETUNE_SETTINGS_H

#include <attn/nn.h>

#include "io/error.h"

struct settings {
    attn_bert_config bert;
    int64_t max_tokens; /* of a sentence, special tokens included */
};

/* Reads a folder as attn_model_open() does; refused are other models than BERT, and other poolings than the mean. */
attn_status settings_read(struct settings *settings, const char *folder);

#endif
