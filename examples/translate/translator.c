/* SPDX-License-Identifier: Apache-2.0 */
/* The model: its files, its alphabet, a pass over a batch of texts, and a look at the attention of one. */
#include "translator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

struct translator {
    attn_transformer_config config;
    int64_t max_output, beams;
    struct lines alphabet; /* line n is token n */
    int32_t tokens[256];   /* of a byte, or -1 */
    attn_transformer *model;
};

static bool library_fail(struct io_error *error)
{
    return io_fail(error, "%s", attn_last_error());
}

/* ----------------------------------------------------------------- opening -- */

/* An entry that can have one value only. */
static bool expect_text(const struct config *config, const char *name, const char *expected, struct io_error *error)
{
    const char *text;
    return config_text(config, name, &text, error) &&
           (strcmp(text, expected) == 0 ||
            io_fail(error, "%s: '%s' is '%s'; expected '%s'", config->path, name, text, expected));
}

static bool read_activation(const struct config *config, attn_activation *activation, struct io_error *error)
{
    const char *text;
    if (!config_text(config, "activation", &text, error))
        return false;
    *activation = strcmp(text, "gelu") == 0 ? ATTN_ACTIVATION_GELU : ATTN_ACTIVATION_RELU;
    return *activation == ATTN_ACTIVATION_GELU || strcmp(text, "relu") == 0 ||
           io_fail(error, "%s: 'activation' is '%s'; expected relu or gelu", config->path, text);
}

static bool read_entries(struct translator *t, const struct config *config, struct io_error *error)
{
    attn_transformer_config *c = &t->config;
    int64_t bos, eos;
    double eps;
    bool norm_first, final_norm;
    const bool ok =
        config_integer(config, "n_encoder_layers", 0, &c->encoder_layers, error) &&
        config_integer(config, "n_decoder_layers", 1, &c->decoder_layers, error) &&
        config_integer(config, "d_model", 1, &c->d_model, error) &&
        config_integer(config, "n_head", 1, &c->heads, error) && config_integer(config, "d_ff", 1, &c->d_ff, error) &&
        config_integer(config, "vocab_size", 1, &c->source_vocabulary, error) &&
        config_integer(config, "max_length", 1, &c->positions, error) &&
        config_integer(config, "max_output_length", 1, &t->max_output, error) &&
        config_integer(config, "beam", 1, &t->beams, error) && config_integer(config, "bos", 0, &bos, error) &&
        config_integer(config, "eos", 0, &eos, error) && config_number(config, "layer_norm_eps", &eps, error) &&
        config_boolean(config, "norm_first", &norm_first, error) &&
        config_boolean(config, "final_norm", &final_norm, error) &&
        expect_text(config, "embedding_scale", "sqrt(d_model)", error) &&
        expect_text(config, "positions", "sinusoidal", error) && read_activation(config, &c->activation, error);
    if (!ok)
        return false;
    if (bos >= c->source_vocabulary || eos >= c->source_vocabulary || bos > INT32_MAX || eos > INT32_MAX)
        return io_fail(error, "%s: 'bos' or 'eos' is no token; expected numbers below 'vocab_size'", config->path);
    c->struct_size = sizeof *c;
    c->target_vocabulary = c->source_vocabulary;
    c->eps = (float)eps;
    c->norm_first = norm_first;
    c->final_norms = final_norm;
    c->bos = (int32_t)bos;
    c->eos = (int32_t)eos;
    return true;
}

static bool read_config(struct translator *t, const char *folder, struct io_error *error)
{
    struct config config;
    if (!config_open(&config, folder, error))
        return false;
    const bool ok = read_entries(t, &config, error);
    config_close(&config);
    return ok;
}

static bool read_alphabet(struct translator *t, const char *folder, struct io_error *error)
{
    char *path = config_beside(folder, "alphabet.txt", error);
    bool ok = path && lines_read(&t->alphabet, path, error);
    if (ok && t->alphabet.count != t->config.source_vocabulary)
        ok = io_fail(error, "%s has %lld lines; expected %lld, the 'vocab_size'", path, (long long)t->alphabet.count,
                     (long long)t->config.source_vocabulary);
    for (int byte = 0; byte < 256; byte++)
        t->tokens[byte] = -1;
    /* Longer lines are names of tokens that stand for no character. */
    for (int64_t i = 0; ok && i < t->alphabet.count; i++)
        if (t->alphabet.size[i] == 1)
            t->tokens[(unsigned char)t->alphabet.text[i][0]] = (int32_t)i;
    free(path);
    return ok;
}

static bool load(struct translator *t, const char *folder, struct io_error *error)
{
    attn_weights *weights = NULL;
    char *path = config_beside(folder, "translator.safetensors", error);
    bool ok = path != NULL;
    if (ok && (attn_weights_open(&weights, path) || attn_transformer_load(&t->model, &t->config, weights, "")))
        ok = library_fail(error);
    attn_weights_destroy(weights);
    free(path);
    return ok;
}

bool translator_open(struct translator **out, const char *folder, struct io_error *error)
{
    *out = NULL;
    struct translator *t = calloc(1, sizeof *t);
    if (!t)
        return io_fail(error, "%s: out of memory", folder);
    if (!read_config(t, folder, error) || !read_alphabet(t, folder, error) || !load(t, folder, error)) {
        translator_close(t);
        return false;
    }
    *out = t;
    return true;
}

void translator_close(struct translator *t)
{
    if (!t)
        return;
    lines_free(&t->alphabet);
    attn_transformer_destroy(t->model);
    free(t);
}

int64_t translator_beams(const struct translator *t)
{
    return t->beams;
}

/* ------------------------------------------------------------- translating -- */

/* A batch that is padded to its longest text. */
struct batch {
    int64_t count, longest, *lengths;
    int32_t *ids, *output;
    attn_hypothesis *best;
    float *memory;
};

static void batch_free(struct batch *b)
{
    free(b->lengths);
    free(b->ids);
    free(b->output);
    free(b->best);
    free(b->memory);
}

static bool set_ids(const struct translator *t, const char *text, size_t size, int32_t *ids, struct io_error *error)
{
    for (size_t i = 0; i < size; i++) {
        ids[i] = t->tokens[(unsigned char)text[i]];
        if (ids[i] < 0)
            return io_fail(error, "'%s' has a character at place %zu that is not in the alphabet", text, i + 1);
    }
    return true;
}

static bool make_batch(struct batch *b, const struct translator *t, const struct lines *texts, int64_t first,
                       struct io_error *error)
{
    for (int64_t i = first; i < first + b->count; i++) {
        const int64_t length = (int64_t)texts->size[i];
        if (length < 1 || length > t->config.positions)
            return io_fail(error, "'%s' has %lld characters; expected 1 to %lld", texts->text[i], (long long)length,
                           (long long)t->config.positions);
        b->longest = length > b->longest ? length : b->longest;
    }
    const size_t count = (size_t)b->count, longest = (size_t)b->longest, most = (size_t)t->max_output;
    b->lengths = calloc(count, sizeof *b->lengths);
    b->ids = calloc(count * longest, sizeof *b->ids);
    b->output = calloc(count * most, sizeof *b->output);
    b->best = calloc(count, sizeof *b->best);
    b->memory = calloc(count * longest * (size_t)t->config.d_model, sizeof *b->memory);
    if (!b->lengths || !b->ids || !b->output || !b->best || !b->memory)
        return io_fail(error, "out of memory for %zu texts", count);
    for (int64_t i = 0; i < b->count; i++) {
        b->lengths[i] = (int64_t)texts->size[first + i];
        b->best[i].ids = b->output + i * t->max_output;
        if (!set_ids(t, texts->text[first + i], texts->size[first + i], b->ids + i * b->longest, error))
            return false;
    }
    return true;
}

static bool run_batch(struct batch *b, const struct translator *t, int64_t beams, struct io_error *error)
{
    const attn_tensor memory = attn_btc(b->memory, b->count, b->longest, t->config.d_model);
    attn_decoding decoding = attn_decoding_default();
    decoding.beams = beams;
    decoding.max_length = t->max_output;
    return (!attn_transformer_encode(t->model, b->count, b->longest, b->ids, b->lengths, &memory, 0) &&
            !attn_transformer_decode(t->model, &memory, b->lengths, &decoding, b->best)) ||
           library_fail(error);
}

/* The characters of a hypothesis; the end and other tokens that stand for none are left out. */
static bool add_text(const struct translator *t, const attn_hypothesis *h, struct lines *found, struct io_error *error)
{
    char *text = calloc((size_t)h->length + 1, 1);
    size_t size = 0;
    for (int64_t i = 0; text && i < h->length; i++)
        if (t->alphabet.size[h->ids[i]] == 1)
            text[size++] = t->alphabet.text[h->ids[i]][0];
    const bool ok = text ? lines_add(found, text, size, error) : io_fail(error, "out of memory for a translation");
    free(text);
    return ok;
}

bool translator_run(const struct translator *t, const struct lines *texts, int64_t first, int64_t count, int64_t beams,
                    struct lines *found, struct io_error *error)
{
    struct batch batch = {.count = count};
    bool ok = make_batch(&batch, t, texts, first, error) && run_batch(&batch, t, beams, error);
    for (int64_t i = 0; ok && i < count; i++)
        ok = add_text(t, &batch.best[i], found, error);
    batch_free(&batch);
    return ok;
}

/* ----------------------------------------------------------------- looking -- */

/* Token names for an axis; a blank would not be seen. */
static bool add_labels(const struct translator *t, const int32_t *ids, int64_t count, struct lines *labels,
                       struct io_error *error)
{
    bool ok = true;
    for (int64_t i = 0; ok && i < count; i++) {
        const char *name = t->alphabet.text[ids[i]];
        ok = strcmp(name, " ") == 0 ? lines_add(labels, "_", 1, error)
                                    : lines_add(labels, name, t->alphabet.size[ids[i]], error);
    }
    return ok;
}

/* Row t of the weights is where the model looked when it had read the tokens before, to write token t. */
static bool look(const struct translator *t, const struct batch *b, struct translator_view *view,
                 struct io_error *error)
{
    const attn_hypothesis *h = &b->best[0];
    const int64_t rows = h->length, columns = b->longest, heads = t->config.heads;
    const attn_tensor memory = attn_btc(b->memory, 1, columns, t->config.d_model);
    int32_t *target = calloc((size_t)rows, sizeof *target);
    float *logits = calloc((size_t)(rows * t->config.target_vocabulary), sizeof *logits);
    float *weights = calloc((size_t)(heads * rows * columns), sizeof *weights);
    view->rows = rows;
    view->columns = columns;
    view->weights = calloc((size_t)(rows * columns), sizeof *view->weights);
    bool ok = (target && logits && weights && view->weights) || io_fail(error, "out of memory for attention weights");
    if (ok) {
        const attn_tensor scores = attn_btc(logits, 1, rows, t->config.target_vocabulary);
        const attn_tensor seen = attn_bhtd(weights, 1, heads, rows, columns);
        target[0] = t->config.bos;
        memcpy(target + 1, h->ids, (size_t)(rows - 1) * sizeof *target);
        ok = !attn_transformer_score(t->model, &memory, NULL, rows, target, &scores, &seen, 0) || library_fail(error);
    }
    for (int64_t i = 0; ok && i < heads * rows * columns; i++)
        view->weights[i % (rows * columns)] += weights[i] / (float)heads;
    free(target);
    free(logits);
    free(weights);
    return ok && add_labels(t, h->ids, rows, &view->written, error) &&
           add_labels(t, b->ids, columns, &view->read, error);
}

bool translator_look(const struct translator *t, const char *text, size_t size, int64_t beams,
                     struct translator_view *view, struct io_error *error)
{
    struct batch batch = {.count = 1};
    struct lines texts = {0};
    const bool ok = lines_add(&texts, text, size, error) && make_batch(&batch, t, &texts, 0, error) &&
                    run_batch(&batch, t, beams, error) && look(t, &batch, view, error);
    batch_free(&batch);
    lines_free(&texts);
    return ok;
}

void translator_view_free(struct translator_view *view)
{
    free(view->weights);
    lines_free(&view->written);
    lines_free(&view->read);
    *view = (struct translator_view){0};
}
