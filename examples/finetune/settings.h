/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model's folder says about itself, in the files that Sentence
 * Transformers writes. A setting that this program cannot do is an error: the
 * embeddings would be other ones.
 *
 *     config.json                  model_type, the sizes; must be there
 *     modules.json                 the steps: a Transformer, Pooling, perhaps Normalize
 *     1_Pooling/config.json        how states become an embedding; modules.json may name another folder
 *     sentence_bert_config.json    max_seq_length
 *     tokenizer_config.json        do_lower_case
 */
#ifndef ATTN_EXAMPLES_FINETUNE_SETTINGS_H
#define ATTN_EXAMPLES_FINETUNE_SETTINGS_H

#include <attn/nn.h>

#include "io/error.h"
#include "wordpiece.h"

struct settings {
    attn_bert_config bert;
    int64_t max_tokens; /* of a sentence, [CLS] and [SEP] included */
    bool keep_case;
    bool normalise; /* embeddings are brought to length 1 */
};

attn_status settings_read(struct settings *settings, const char *folder);
/* The tokenizer of the folder, whose vocab.txt must have the model's tokens. */
attn_status settings_open_tokenizer(const struct settings *settings, const char *folder, struct wordpiece **tokenizer);

#endif
