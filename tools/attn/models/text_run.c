/* SPDX-License-Identifier: Apache-2.0 */
/* Lines in, rows of numbers out, with what the user should know of it on stderr. */
#include "models/text_run.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "progress.h"

enum { DEFAULT_BATCH = 4096, MOST_BATCH = 1000000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

attn_status text_run_operands(struct text_run *r, const char *command, const struct operands *operands)
{
    r->command = command;
    if (operands->count == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "no model is given; expected attn %s FOLDER [FILE]", command);
    if (operands->count == 2 && strcmp(operands->values[1], "-") != 0)
        r->file = operands->values[1];
    return ATTN_OK;
}

attn_status text_run_read(struct text_run *r, const struct option *max_tokens, const struct option *batch,
                          const struct option *threads)
{
    long long count = 0;
    r->batch = DEFAULT_BATCH;
    CHECK(option_integer(max_tokens, 1, INT32_MAX, &r->max_tokens));
    CHECK(option_integer(batch, 1, MOST_BATCH, &r->batch));
    CHECK(option_integer(threads, 0, 1024, &count));
    r->threads = (int)count;
    return ATTN_OK;
}

attn_status text_run_lines(struct text_run *r)
{
    CHECK(lines_read(&r->lines, r->file));
    if (r->lines.count == 0)
        return io_fail(ATTN_INVALID_FILE, "%s has no lines; expected a text on each",
                       r->file != NULL ? r->file : "standard input");
    return lines_check_text(&r->lines, "line");
}

attn_status text_run_encode(const struct text_run *r, const struct text_model *m, const char *first, bool may_be_empty,
                            struct encoded_texts *texts)
{
    int64_t most;
    CHECK(text_model_max_tokens(m, r->max_tokens, &most));
    CHECK(encoded_texts_add_lines(texts, m, most, first, &r->lines));
    for (int64_t i = 0; !may_be_empty && i < texts->count; i++)
        if (texts->offsets[i + 1] == texts->offsets[i])
            return io_fail(ATTN_INVALID_FILE, "line %" PRId64 " has no tokens; expected one or more", i + 1);
    if (texts->cut == 1)
        command_note("line %" PRId64 " has more than %" PRId64 " tokens; the rest is left off", texts->first_cut + 1,
                     most);
    else if (texts->cut > 1)
        command_note("%" PRId64 " lines have more than %" PRId64 " tokens, line %" PRId64
                     " the first of them; the rest of each is left off",
                     texts->cut, most, texts->first_cut + 1);
    return ATTN_OK;
}

static void show(void *user, int64_t texts)
{
    progress_set(user, texts);
}

attn_status text_run_batches(struct text_run *r, const struct text_model *m, const struct encoded_texts *texts,
                             bool logits, float *rows)
{
    struct progress progress;
    const struct encoded_run run = {
        .logits = logits, .batch_tokens = r->batch, .threads = r->threads, .done = show, .user = &progress};
    progress_start(&progress, texts->count, "texts", command_is_quiet());
    const double begin = now();
    const attn_status status = encoded_texts_run(texts, m, &run, rows);
    r->seconds = now() - begin;
    progress_finish(&progress);
    return status;
}

void text_run_report(const struct text_run *r, const struct encoded_texts *texts)
{
    const int64_t tokens = texts->offsets[texts->count];
    command_note("%" PRId64 " texts, %" PRId64 " tokens in %.2f s: %.1f texts/s, %.0f tokens/s", texts->count, tokens,
                 r->seconds, (double)texts->count / r->seconds, (double)tokens / r->seconds);
}

void text_run_free(struct text_run *r)
{
    lines_free(&r->lines);
}
