/* SPDX-License-Identifier: Apache-2.0 */
/* attn rerank: how well each line answers a query, by a cross-encoder, which reads the two together. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "models/encoded_texts.h"
#include "models/precision.h"
#include "models/text_run.h"

enum {
    RERANK_HELP,
    RERANK_VERSION,
    RERANK_QUIET,
    RERANK_QUERY,
    RERANK_TOP,
    RERANK_SIGMOID,
    RERANK_JSON,
    RERANK_PRECISION,
    RERANK_MAX_TOKENS,
    RERANK_BATCH,
    RERANK_THREADS,
    RERANK_COUNT
};

struct rerank {
    const struct option *options;
    const char *folder;
    struct text_run run;
    struct precision precision;
    long long top;
    struct text_model model;
    struct encoded_texts pairs;
};

static void print_help(const struct option *options)
{
    printf("Usage: attn rerank FOLDER [FILE] --query TEXT [OPTION]...\n\n"
           "Scores the lines of FILE, or of standard input (also: -), as answers to a query with the\n"
           "cross-encoder in FOLDER, and prints them from the best on, each behind its score.\n\n");
    options_print(stdout, options, RERANK_COUNT);
    printf("\n"
           "  FOLDER is a model for pairs of texts as Transformers saves it, one of the classes\n"
           "  ...ForSequenceClassification with one label: config.json, model.safetensors and\n"
           "  tokenizer.json. Of a pair that is too long the end of the longer text is left off. The speed\n"
           "  comes last, on standard error.\n");
}

static attn_status check_model(const struct rerank *r)
{
    const attn_model_info *info = &r->model.info;
    if (info->kind != ATTN_MODEL_ENCODER)
        return io_fail(ATTN_UNSUPPORTED, "%s has a decoder (%s), which attn generate runs; expected a cross-encoder",
                       r->folder, info->model_type);
    if (info->logits == 0)
        return io_fail(ATTN_UNSUPPORTED,
                       "%s is %s, which gives no score of a pair; expected ...ForSequenceClassification with one label "
                       "(attn embed compares texts by their embeddings)",
                       r->folder, info->architecture[0] != '\0' ? info->architecture : info->model_type);
    if (info->logits > 1)
        return io_fail(ATTN_UNSUPPORTED,
                       "%s has %" PRId64 " labels, and so no one score of a pair; expected a model with one label",
                       r->folder, info->logits);
    return ATTN_OK;
}

/* -------------------------------------------------------------------- scores -- */

struct scored {
    double score;
    int64_t line;
};

/* The greatest first, NaN last, lines in their order among equals. */
static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (isnan(x->score) || isnan(y->score)) {
        if (isnan(x->score) != isnan(y->score))
            return isnan(x->score) ? 1 : -1;
    } else if (x->score != y->score) {
        return x->score < y->score ? 1 : -1;
    }
    return (x->line > y->line) - (x->line < y->line);
}

static attn_status print_json(const struct rerank *r, const struct scored *s)
{
    /* Numbers that are not finite have no place in JSON. */
    json_t *object = json_pack("{s:o, s:I, s:o}", "score", isfinite(s->score) ? json_real(s->score) : json_null(),
                               "line", (json_int_t)s->line + 1, "text",
                               json_stringn(r->run.lines.text[s->line], r->run.lines.size[s->line]));
    const bool written = object != NULL && json_dumpf(object, stdout, JSON_COMPACT) == 0;
    json_decref(object);
    putchar('\n');
    return written ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for line %" PRId64, s->line + 1);
}

static attn_status print_scores(const struct rerank *r, const float *logits)
{
    const int64_t count = r->pairs.count, shown = r->top > 0 && r->top < count ? r->top : count;
    const bool sigmoid = r->options[RERANK_SIGMOID].value != NULL, json = r->options[RERANK_JSON].value != NULL;
    struct scored *scored = calloc((size_t)count, sizeof *scored);
    if (scored == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " scores", count);
    for (int64_t i = 0; i < count; i++)
        scored[i] = (struct scored){sigmoid ? 1 / (1 + exp(-(double)logits[i])) : (double)logits[i], i};
    qsort(scored, (size_t)count, sizeof *scored, by_score);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < shown; i++) {
        if (json)
            status = print_json(r, &scored[i]);
        else
            printf("%.6f  %s\n", scored[i].score, r->run.lines.text[scored[i].line]);
    }
    free(scored);
    return status;
}

/* ----------------------------------------------------------------------- run -- */

static attn_status parse(struct rerank *r, const struct operands *operands)
{
    const struct option *o = r->options;
    CHECK(text_run_operands(&r->run, "rerank", operands));
    r->folder = operands->values[0];
    CHECK(option_require(&o[RERANK_QUERY]));
    json_t *query = json_string(o[RERANK_QUERY].value);
    if (query == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--query is not UTF-8; expected text");
    json_decref(query);
    CHECK(option_integer(&o[RERANK_TOP], 1, INT64_MAX, &r->top));
    CHECK(text_run_read(&r->run, &o[RERANK_MAX_TOKENS], &o[RERANK_BATCH], &o[RERANK_THREADS]));
    return precision_read(&r->precision, &o[RERANK_PRECISION], NULL, NULL, NULL);
}

static attn_status run(struct rerank *r)
{
    attn_model_options options = attn_model_options_default();
    options.format = &r->precision.format;
    options.activations = r->precision.activations;
    CHECK(text_run_lines(&r->run));
    CHECK(text_model_open(&r->model, r->folder, &options));
    CHECK(check_model(r));
    CHECK(text_run_encode(&r->run, &r->model, r->options[RERANK_QUERY].value, false, &r->pairs));
    float *logits = calloc((size_t)r->pairs.count, sizeof *logits);
    if (logits == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " scores", r->pairs.count);
    attn_status status = text_run_batches(&r->run, &r->model, &r->pairs, true, logits);
    if (status == ATTN_OK)
        status = print_scores(r, logits);
    free(logits);
    return status;
}

attn_status command_rerank(int argc, char *const *argv)
{
    struct option options[RERANK_COUNT] = {
        [RERANK_HELP] = OPTION_ROW_HELP,
        [RERANK_VERSION] = OPTION_ROW_VERSION,
        [RERANK_QUIET] = OPTION_ROW_QUIET,
        [RERANK_QUERY] = {"query", 'q', "TEXT", "what the lines are to answer; must be given", NULL},
        [RERANK_TOP] = {"top", 0, "N", "print the N best lines alone", NULL},
        [RERANK_SIGMOID] = {"sigmoid", 0, NULL, "scores from 0 to 1, 1 / (1 + exp(-score))", NULL},
        [RERANK_JSON] = {"json", 0, NULL, "print an object with score, line and text on each line", NULL},
        [RERANK_PRECISION] = {"precision", 0, "NAME", PRECISION_HELP, NULL},
        [RERANK_MAX_TOKENS] = {"max-tokens", 0, "N", TEXT_RUN_MAX_TOKENS_HELP, NULL},
        [RERANK_BATCH] = {"batch", 0, "N", TEXT_RUN_BATCH_HELP, NULL},
        [RERANK_THREADS] = {"threads", 0, "N", "number of threads; default: all", NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, RERANK_COUNT, argc, argv, &operands, 2));
    if (options[RERANK_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[RERANK_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[RERANK_QUIET]);
    struct rerank r = {.options = options};
    attn_status status = parse(&r, &operands);
    if (status == ATTN_OK)
        status = run(&r);
    if (status == ATTN_OK)
        text_run_report(&r.run, &r.pairs);
    encoded_texts_free(&r.pairs);
    text_model_close(&r.model);
    text_run_free(&r.run);
    return status;
}
