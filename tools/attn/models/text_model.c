/* SPDX-License-Identifier: Apache-2.0 */
/* Opens what a folder has: the tokenizer first, whose mistakes are found sooner than those of weights. */
#include "models/text_model.h"

#include <inttypes.h>

#include "commands.h"
#include "models/model_path.h"
#include "progress.h"

static attn_status check_vocabulary(const struct text_model *m)
{
    const int64_t tokens = attn_tokenizer_size(m->tokenizer);
    if (tokens > m->info.vocabulary)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: tokenizer.json has %" PRId64 " tokens; expected at most %" PRId64 ", as the model has",
                       m->folder, tokens, m->info.vocabulary);
    return ATTN_OK;
}

static void show(void *user, int64_t done, int64_t total)
{
    struct progress *progress = user;
    progress->total = total; /* nobody knew before the files were open */
    progress_set(progress, done);
}

static attn_status open_model(struct text_model *m, const attn_model_options *options)
{
    struct progress progress;
    attn_model_options watched = *options;
    watched.progress = show;
    watched.progress_user = &progress;
    progress_start(&progress, 0, "B", command_is_quiet());
    const attn_status status = attn_model_open(&m->model, m->folder, &watched);
    progress_finish(&progress);
    return status;
}

attn_status text_model_open(struct text_model *m, const char *folder, const attn_model_options *options)
{
    *m = (struct text_model){.folder = folder, .info = attn_model_info_default()};
    attn_status status = model_path_check(folder, false);
    if (status == ATTN_OK)
        status = attn_tokenizer_open(&m->tokenizer, folder);
    if (status == ATTN_OK)
        status = open_model(m, options);
    if (status == ATTN_OK)
        status = attn_model_describe(m->model, &m->info);
    if (status == ATTN_OK)
        status = check_vocabulary(m);
    if (status != ATTN_OK)
        text_model_close(m);
    return status;
}

void text_model_close(struct text_model *m)
{
    attn_tokenizer_close(m->tokenizer);
    attn_model_close(m->model);
    m->tokenizer = NULL;
    m->model = NULL;
}

attn_status text_model_max_tokens(const struct text_model *m, long long wanted, int64_t *most)
{
    if (wanted > m->info.max_positions)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--max-tokens is %lld; expected at most %" PRId64 ", the model's positions", wanted,
                       m->info.max_positions);
    *most = wanted > 0 ? wanted : m->info.max_tokens;
    return ATTN_OK;
}
