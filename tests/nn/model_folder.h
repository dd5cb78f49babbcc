/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of small models as attn_model_open() reads them: config.json and the
 * weights of small.h in a safetensors file. A test changes files and removes them.
 */
#ifndef TEST_NN_MODEL_FOLDER_H
#define TEST_NN_MODEL_FOLDER_H

#include "named.h"

/** A new folder under /tmp. */
struct model_folder {
    char path[64];
};

/** An empty one. */
struct model_folder model_folder_make(void);
/** good.bert as a BertModel. */
struct model_folder model_folder_bert(struct memory *m);
/** Its config.json with further entries, each with a comma before it. */
void model_folder_bert_config(const struct model_folder *folder, const char *more);
/** good.llama as a LlamaForCausalLM with an output matrix of its own. */
struct model_folder model_folder_llama(struct memory *m);
/** Its config.json as another of its kind, with further entries, each with a comma before it. */
void model_folder_llama_config(const struct model_folder *folder, const char *type, const char *architecture,
                               const char *more);
/** A GPT2LMHeadModel of one layer and PLACES positions. */
struct model_folder model_folder_gpt2(struct memory *m);
/** add_t5() as a T5ForConditionalGeneration. */
struct model_folder model_folder_t5(struct memory *m, int head);
/** config.json of it with further entries, each with a comma before it. */
void model_folder_t5_config(const struct model_folder *folder, const char *more);
/** Writes a file of the folder anew. */
void model_folder_write(const struct model_folder *folder, const char *name, const void *data, size_t size);
/** The same of a text. */
void model_folder_text(const struct model_folder *folder, const char *name, const char *text);
/** Writes weights to a file of the folder. */
void model_folder_weights(const struct model_folder *folder, const char *name, const struct named *n, struct memory *m);
/** That attn_model_open() refuses it, with a sentence that has these words. */
void model_folder_refused(const struct model_folder *folder, attn_status status, const char *words);
/** Takes a file away. */
void model_folder_drop(const struct model_folder *folder, const char *name);
/** Removes the folder with its files; there are no folders in it. */
void model_folder_remove(const struct model_folder *folder);

#endif
