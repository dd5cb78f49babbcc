/* SPDX-License-Identifier: Apache-2.0 */
/* What stands where a model's folder is expected. */
#ifndef ATTN_TOOLS_MODELS_MODEL_PATH_H
#define ATTN_TOOLS_MODELS_MODEL_PATH_H

#include "io/error.h"

/*
 * Refuses a file in the place of the folder, and says what to do with one of another program, such as GGUF. With
 * or_tokenizer a tokenizer.json will do, which is anything else here. What does not exist is left to whoever opens it.
 */
attn_status model_path_check(const char *path, bool or_tokenizer);

#endif
