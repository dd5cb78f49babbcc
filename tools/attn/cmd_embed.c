/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn embed: lines of text to embeddings, by a sentence encoder's folder; or the attention weights of one line, for
 * attn view and attn heatmap.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "io/output.h"
#include "io/replace.h"
#include "models/encoded_texts.h"
#include "models/precision.h"
#include "models/text_run.h"

enum {
    EMBED_HELP,
    EMBED_VERSION,
    EMBED_QUIET,
    EMBED_OUTPUT,
    EMBED_NEAREST,
    EMBED_POOLING,
    EMBED_NORMALIZE,
    EMBED_PRECISION,
    EMBED_MAX_TOKENS,
    EMBED_BATCH,
    EMBED_THREADS,
    EMBED_WEIGHTS,
    EMBED_LABELS,
    EMBED_LINE,
    EMBED_COUNT
};

struct embed {
    const struct option *options;
    const char *folder;
    struct text_run run;
    struct precision precision;
    attn_model_options model_options;
    long long nearest, line;
    struct output_set outputs;
    char *labels;      /* the file of --labels */
    struct array rows; /* embeddings */
    struct text_model model;
    struct encoded_texts texts;
};

static void print_help(const struct option *options)
{
    printf("Usage: attn embed FOLDER [FILE] [OPTION]...\n\n"
           "Embeds the lines of FILE, or of standard input (also: -), with the sentence encoder in\n"
           "FOLDER, and prints a line of numbers for each.\n\n");
    options_print(stdout, options, EMBED_COUNT);
    printf("\n"
           "  FOLDER is a model as Transformers or sentence-transformers save it: config.json,\n"
           "  model.safetensors, tokenizer.json, and modules.json, which says how the states of tokens\n"
           "  become an embedding. An empty line is a text, too. The speed comes last, on standard error.\n");
}

/* ----------------------------------------------------------------- options -- */

static attn_status read_pooling(struct embed *e)
{
    static const char *const names[] = {"mean", "first", "last", "max"};
    int pooling = -1;
    CHECK(option_choice(&e->options[EMBED_POOLING], names, 4, &pooling));
    e->model_options.pooling = (attn_pooling)(pooling + 1);
    e->model_options.normalise = e->options[EMBED_NORMALIZE].value != NULL;
    if (pooling < 0 && e->model_options.normalise)
        return io_fail(ATTN_INVALID_ARGUMENT, "--normalize is given without --pooling; the folder says what it does");
    return ATTN_OK;
}

/* What is written or printed is one thing. */
static attn_status check_purpose(const struct embed *e)
{
    const struct option *o = e->options;
    const int others[] = {EMBED_OUTPUT, EMBED_NEAREST, EMBED_BATCH};
    for (int i = 0; o[EMBED_WEIGHTS].value != NULL && i < 3; i++)
        if (o[others[i]].value != NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "--%s is given with --weights, which are those of one line",
                           o[others[i]].name);
    if (o[EMBED_OUTPUT].value != NULL && o[EMBED_NEAREST].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--output and --nearest exclude each other; expected one of them");
    for (int i = EMBED_LABELS; o[EMBED_WEIGHTS].value == NULL && i <= EMBED_LINE; i++)
        if (o[i].value != NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "--%s is given without --weights", o[i].name);
    return ATTN_OK;
}

static attn_status parse(struct embed *e, const struct operands *operands)
{
    const struct option *o = e->options;
    CHECK(text_run_operands(&e->run, "embed", operands));
    e->folder = operands->values[0];
    e->line = 1;
    CHECK(option_integer(&o[EMBED_NEAREST], 1, 1000, &e->nearest));
    CHECK(option_integer(&o[EMBED_LINE], 1, INT64_MAX, &e->line));
    CHECK(text_run_read(&e->run, &o[EMBED_MAX_TOKENS], &o[EMBED_BATCH], &o[EMBED_THREADS]));
    CHECK(precision_read(&e->precision, &o[EMBED_PRECISION], NULL, NULL, NULL));
    e->model_options = attn_model_options_default();
    e->model_options.format = &e->precision.format;
    e->model_options.activations = e->precision.activations;
    CHECK(read_pooling(e));
    CHECK(check_purpose(e));
    if (o[EMBED_WEIGHTS].value != NULL) {
        /* Tensors have their names once the model has its layers. */
        struct output_set tried = {0};
        char *spec;
        if (asprintf(&spec, "%s:layer0", o[EMBED_WEIGHTS].value) < 0)
            return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
        const attn_status status = output_add(&tried, "--weights", spec, &e->rows);
        output_free(&tried);
        free(spec);
        CHECK(status);
        return o[EMBED_LABELS].value != NULL ? replace_target(&e->labels, o[EMBED_LABELS].value) : ATTN_OK;
    }
    return o[EMBED_OUTPUT].value != NULL ? output_add(&e->outputs, "--output", o[EMBED_OUTPUT].value, &e->rows)
                                         : ATTN_OK;
}

/* -------------------------------------------------------------- embeddings -- */

static attn_status check_model(const struct embed *e)
{
    const attn_model_info *info = &e->model.info;
    if (info->kind != ATTN_MODEL_ENCODER)
        return io_fail(ATTN_UNSUPPORTED,
                       "%s has a decoder (%s), which attn generate runs; expected an encoder of sentences", e->folder,
                       info->model_type);
    if (e->options[EMBED_WEIGHTS].value == NULL && info->pooling == ATTN_POOLING_NONE)
        return io_fail(ATTN_INVALID_FILE,
                       "%s has no modules.json, which says how the states of tokens become an embedding; expected it, "
                       "or --pooling",
                       e->folder);
    return ATTN_OK;
}

static void print_rows(const struct embed *e)
{
    const int64_t width = e->model.info.d_model;
    const float *row = e->rows.data;
    for (int64_t i = 0; i < e->texts.count; i++, row += width)
        for (int64_t c = 0; c < width; c++)
            printf("%.9g%c", (double)row[c], c + 1 < width ? ' ' : '\n');
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Prints each line with those whose embeddings have the greatest cosines with its own. */
static attn_status print_nearest(const struct embed *e)
{
    const int64_t count = e->texts.count, width = e->model.info.d_model;
    const int64_t shown = e->nearest < count - 1 ? e->nearest : count - 1;
    const float *rows = e->rows.data;
    double *lengths = calloc((size_t)count, sizeof *lengths);
    struct {
        double cosine;
        int64_t line;
    } *best = calloc((size_t)shown + 1, sizeof *best);
    const bool there = lengths != NULL && best != NULL;
    for (int64_t i = 0; there && i < count; i++)
        lengths[i] = sqrt(dot(rows + i * width, rows + i * width, width));
    for (int64_t i = 0; there && i < count; i++) {
        int64_t found = 0;
        for (int64_t j = 0; j < count; j++) {
            const double product = lengths[i] * lengths[j];
            const double cosine = product > 0 ? dot(rows + i * width, rows + j * width, width) / product : 0;
            int64_t at = found;
            if (j == i || (found == shown && (shown == 0 || !(cosine > best[shown - 1].cosine))))
                continue;
            for (at = found < shown ? found++ : shown - 1; at > 0 && cosine > best[at - 1].cosine; at--)
                best[at] = best[at - 1];
            best[at].cosine = cosine;
            best[at].line = j;
        }
        printf("%s\n", e->run.lines.text[i]);
        for (int64_t n = 0; n < found; n++)
            printf("    %.3f  %s\n", best[n].cosine, e->run.lines.text[best[n].line]);
    }
    free(lengths);
    free(best);
    return there ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " lines", count);
}

static attn_status embed_lines(struct embed *e)
{
    const struct array_shape is = {ARRAY_F32, 2, {e->texts.count, e->model.info.d_model}};
    CHECK(array_allocate(&e->rows, "the embeddings", &is));
    CHECK(text_run_batches(&e->run, &e->model, &e->texts, false, e->rows.data));
    if (e->outputs.count > 0)
        return output_write(&e->outputs);
    if (e->nearest > 0)
        return print_nearest(e);
    print_rows(e);
    return ATTN_OK;
}

/* ----------------------------------------------------------------- weights -- */

static attn_status write_labels(const struct embed *e, const int32_t *ids, int64_t count)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = e->labels != NULL ? open_memstream(&text, &size) : NULL;
    if (e->labels == NULL)
        return ATTN_OK;
    for (int64_t t = 0; memory != NULL && t < count; t++) {
        const char *token = attn_tokenizer_token(e->model.tokenizer, ids[t]);
        fprintf(memory, "%s\n", token != NULL ? token : "");
    }
    attn_status status = memory != NULL && fclose(memory) == 0
                             ? replace_whole(e->labels, text, size)
                             : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " labels", count);
    free(text);
    return status;
}

/* The weights of all layers behind each other in weights, and each as an array and a tensor of its own. */
struct layers {
    struct array weights, *views;
    attn_tensor *tensors;
    const attn_tensor **wanted;
};

static attn_status compute_weights(const struct embed *e, const int32_t *ids, int64_t tokens, struct layers *l)
{
    const int64_t layers = e->model.info.layers, heads = e->model.info.heads, offsets[] = {0, tokens};
    const struct array_shape all = {ARRAY_F32, 4, {layers, heads, tokens, tokens}};
    const struct array_shape one = {ARRAY_F32, 3, {heads, tokens, tokens}};
    l->views = calloc((size_t)layers, sizeof *l->views);
    l->tensors = calloc((size_t)layers, sizeof *l->tensors);
    l->wanted = calloc((size_t)layers, sizeof *l->wanted);
    if (l->views == NULL || l->tensors == NULL || l->wanted == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " layers", layers);
    CHECK(array_allocate(&l->weights, "the weights", &all));
    for (int64_t i = 0; i < layers; i++) {
        const size_t size = l->weights.size / (size_t)layers;
        l->views[i] = (struct array){.is = one, .data = (char *)l->weights.data + (size_t)i * size, .size = size};
        l->tensors[i] = attn_bhtd(l->views[i].data, 1, heads, tokens, tokens);
        l->wanted[i] = &l->tensors[i];
    }
    attn_model_batch batch = attn_model_batch_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    batch.num_sequences = 1, batch.offsets = offsets, batch.ids = ids, batch.num_threads = e->run.threads;
    outputs.weights = l->wanted;
    return attn_model_encode(e->model.model, &batch, &outputs);
}

static attn_status write_layers(struct embed *e, const struct layers *l)
{
    for (int64_t i = 0; i < e->model.info.layers; i++) {
        char *spec;
        if (asprintf(&spec, "%s:layer%" PRId64, e->options[EMBED_WEIGHTS].value, i) < 0)
            return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
        const attn_status status = output_add(&e->outputs, "--weights", spec, &l->views[i]);
        free(spec);
        CHECK(status);
    }
    return output_write(&e->outputs);
}

static attn_status write_weights(struct embed *e)
{
    struct layers layers = {.views = NULL};
    const int64_t first = e->texts.offsets[e->line - 1], tokens = e->texts.offsets[e->line] - first;
    attn_status status = compute_weights(e, e->texts.tokens.ids + first, tokens, &layers);
    if (status == ATTN_OK)
        status = write_layers(e, &layers);
    if (status == ATTN_OK)
        status = write_labels(e, e->texts.tokens.ids + first, tokens);
    array_free(&layers.weights);
    free(layers.views);
    free(layers.tensors);
    free(layers.wanted);
    return status;
}

/* --------------------------------------------------------------------- run -- */

static attn_status run(struct embed *e)
{
    CHECK(text_run_lines(&e->run));
    if (e->options[EMBED_WEIGHTS].value != NULL && e->line > e->run.lines.count)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--line is %lld; expected 1 to %" PRId64 ", as there are %" PRId64 " lines", e->line,
                       e->run.lines.count, e->run.lines.count);
    CHECK(text_model_open(&e->model, e->folder, &e->model_options));
    CHECK(check_model(e));
    const bool weights = e->options[EMBED_WEIGHTS].value != NULL;
    /* The mean of no states is 0; there is no first, last or largest one. */
    CHECK(text_run_encode(&e->run, &e->model, NULL, weights || e->model.info.pooling == ATTN_POOLING_MEAN, &e->texts));
    return weights ? write_weights(e) : embed_lines(e);
}

attn_status command_embed(int argc, char *const *argv)
{
    struct option options[EMBED_COUNT] = {
        [EMBED_HELP] = OPTION_ROW_HELP,
        [EMBED_VERSION] = OPTION_ROW_VERSION,
        [EMBED_QUIET] = OPTION_ROW_QUIET,
        [EMBED_OUTPUT] = {"output", 'o', "FILE",
                          "write the embeddings, float32 (lines, width), to FILE.npy or\n"
                          "FILE.safetensors:NAME, instead of printing them",
                          NULL},
        [EMBED_NEAREST] = {"nearest", 0, "N", "print each line with the N other lines that are most like it", NULL},
        [EMBED_POOLING] = {"pooling", 0, "NAME",
                           "mean, first, last or max: how states become an embedding,\n"
                           "whatever the folder says",
                           NULL},
        [EMBED_NORMALIZE] = {"normalize", 0, NULL, "with --pooling: bring embeddings to length 1", NULL},
        [EMBED_PRECISION] = {"precision", 0, "NAME", PRECISION_HELP, NULL},
        [EMBED_MAX_TOKENS] = {"max-tokens", 0, "N", TEXT_RUN_MAX_TOKENS_HELP, NULL},
        [EMBED_BATCH] = {"batch", 0, "N", TEXT_RUN_BATCH_HELP, NULL},
        [EMBED_THREADS] = {"threads", 0, "N", "number of threads; default: all", NULL},
        [EMBED_WEIGHTS] = {"weights", 0, "FILE.safetensors",
                           "write the attention weights of one line instead: layer0,\n"
                           "layer1, ..., float32 (head, query, key)",
                           NULL},
        [EMBED_LABELS] = {"labels", 0, "FILE", "with --weights: write its tokens, one a line", NULL},
        [EMBED_LINE] = {"line", 0, "N", "with --weights: which line, from 1 on; default 1", NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, EMBED_COUNT, argc, argv, &operands, 2));
    if (options[EMBED_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[EMBED_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[EMBED_QUIET]);
    struct embed e = {.options = options};
    attn_status status = parse(&e, &operands);
    if (status == ATTN_OK)
        status = run(&e);
    if (status == ATTN_OK && options[EMBED_WEIGHTS].value == NULL)
        text_run_report(&e.run, &e.texts);
    encoded_texts_free(&e.texts);
    text_model_close(&e.model);
    text_run_free(&e.run);
    output_free(&e.outputs);
    free(e.labels);
    array_free(&e.rows);
    return status;
}
