/* SPDX-License-Identifier: Apache-2.0 */
/* The model: its files, its alphabet, a pass over a batch of texts, and a look at the attention of one. */
#include "translator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/config.h"

struct translator {
    struct translator_sizes sizes;
    struct alphabet alphabet;
    attn_transformer *model;
};

/* ----------------------------------------------------------------- opening -- */

/* An entry that can have one value only. */
static attn_status expect_text(const struct config *config, const char *name, const char *expected)
{
    const char *text;
    CHECK(config_text(config, name, &text));
    return strcmp(text, expected) == 0
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: '%s' is '%s'; expected '%s'", config->path, name, text, expected);
}

static attn_status read_activation(const struct config *config, attn_activation *activation)
{
    const char *text;
    CHECK(config_text(config, "activation", &text));
    *activation = strcmp(text, "gelu") == 0 ? ATTN_ACTIVATION_GELU : ATTN_ACTIVATION_RELU;
    return *activation == ATTN_ACTIVATION_GELU || strcmp(text, "relu") == 0
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: 'activation' is '%s'; expected relu or gelu", config->path, text);
}

static attn_status read_entries(struct translator_sizes *sizes, const struct config *config)
{
    attn_transformer_config *c = &sizes->config;
    *c = attn_transformer_config_default();
    int64_t bos, eos;
    double eps;
    bool norm_first, final_norm;
    CHECK(config_integer(config, "n_encoder_layers", 0, &c->encoder_layers));
    CHECK(config_integer(config, "n_decoder_layers", 1, &c->decoder_layers));
    CHECK(config_integer(config, "d_model", 1, &c->d_model));
    CHECK(config_integer(config, "n_head", 1, &c->heads));
    CHECK(config_integer(config, "d_ff", 1, &c->d_ff));
    CHECK(config_integer(config, "vocab_size", 1, &c->source_vocabulary));
    CHECK(config_integer(config, "max_length", 1, &c->positions));
    CHECK(config_integer(config, "max_output_length", 1, &sizes->max_output));
    CHECK(config_integer(config, "beam", 1, &sizes->beams));
    CHECK(config_integer(config, "bos", 0, &bos));
    CHECK(config_integer(config, "eos", 0, &eos));
    CHECK(config_number(config, "layer_norm_eps", &eps));
    CHECK(config_boolean(config, "norm_first", &norm_first));
    CHECK(config_boolean(config, "final_norm", &final_norm));
    CHECK(expect_text(config, "embedding_scale", "sqrt(d_model)"));
    CHECK(expect_text(config, "positions", "sinusoidal"));
    CHECK(read_activation(config, &c->activation));
    if (bos >= c->source_vocabulary || eos >= c->source_vocabulary || bos > INT32_MAX || eos > INT32_MAX)
        return io_fail(ATTN_INVALID_FILE, "%s: 'bos' or 'eos' is no token; expected numbers below 'vocab_size'",
                       config->path);
    c->target_vocabulary = c->source_vocabulary;
    c->eps = (float)eps;
    c->norm_first = norm_first;
    c->final_norms = final_norm;
    c->bos = (int32_t)bos;
    c->eos = (int32_t)eos;
    return ATTN_OK;
}

static attn_status read_sizes(struct translator_sizes *sizes, const char *folder)
{
    struct config config;
    CHECK(config_open(&config, folder));
    attn_status status = read_entries(sizes, &config);
    config_close(&config);
    return status;
}

attn_status translator_create(struct translator **out, const struct translator_sizes *sizes,
                              const struct alphabet *alphabet, const attn_weights *weights)
{
    *out = NULL;
    struct translator *t = calloc(1, sizeof *t);
    if (!t)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a translator");
    t->sizes = *sizes;
    attn_status status = alphabet_copy(&t->alphabet, alphabet);
    if (status == ATTN_OK)
        status = attn_transformer_load(&t->model, &sizes->config, weights, "");
    if (status == ATTN_OK)
        *out = t;
    else
        translator_close(t);
    return status;
}

static attn_status read_alphabet(struct alphabet *alphabet, const struct translator_sizes *sizes, const char *folder)
{
    CHECK(alphabet_read(alphabet, folder));
    return alphabet->names.count == sizes->config.source_vocabulary
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s/alphabet.txt has %lld lines; expected %lld, the 'vocab_size'", folder,
                         (long long)alphabet->names.count, (long long)sizes->config.source_vocabulary);
}

attn_status translator_open(struct translator **out, const char *folder)
{
    struct translator_sizes sizes;
    struct alphabet alphabet = {0};
    attn_weights *weights = NULL;
    *out = NULL;
    CHECK(read_sizes(&sizes, folder));
    char *path = config_beside(folder, "translator.safetensors");
    attn_status status = path ? read_alphabet(&alphabet, &sizes, folder) : ATTN_OUT_OF_MEMORY;
    if (status == ATTN_OK)
        status = attn_weights_open(&weights, path);
    if (status == ATTN_OK)
        status = translator_create(out, &sizes, &alphabet, weights);
    attn_weights_destroy(weights);
    alphabet_free(&alphabet);
    free(path);
    return status;
}

void translator_close(struct translator *t)
{
    if (!t)
        return;
    alphabet_free(&t->alphabet);
    attn_transformer_destroy(t->model);
    free(t);
}

int64_t translator_beams(const struct translator *t)
{
    return t->sizes.beams;
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

static attn_status make_batch(struct batch *b, const struct translator *t, const struct lines *texts, int64_t first)
{
    for (int64_t i = first; i < first + b->count; i++) {
        const int64_t length = (int64_t)texts->size[i];
        if (length < 1 || length > t->sizes.config.positions)
            return io_fail(ATTN_INVALID_FILE, "'%s' has %lld characters; expected 1 to %lld", texts->text[i],
                           (long long)length, (long long)t->sizes.config.positions);
        b->longest = length > b->longest ? length : b->longest;
    }
    const size_t count = (size_t)b->count, longest = (size_t)b->longest, most = (size_t)t->sizes.max_output;
    b->lengths = calloc(count, sizeof *b->lengths);
    b->ids = calloc(count * longest, sizeof *b->ids);
    b->output = calloc(count * most, sizeof *b->output);
    b->best = calloc(count, sizeof *b->best);
    b->memory = calloc(count * longest * (size_t)t->sizes.config.d_model, sizeof *b->memory);
    if (!b->lengths || !b->ids || !b->output || !b->best || !b->memory)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %zu texts", count);
    for (int64_t i = 0; i < b->count; i++) {
        b->lengths[i] = (int64_t)texts->size[first + i];
        b->best[i].ids = b->output + i * t->sizes.max_output;
        CHECK(alphabet_encode(&t->alphabet, texts->text[first + i], texts->size[first + i], b->ids + i * b->longest));
    }
    return ATTN_OK;
}

static attn_status run_batch(struct batch *b, const struct translator *t, int64_t beams)
{
    const attn_tensor memory = attn_btc(b->memory, b->count, b->longest, t->sizes.config.d_model);
    attn_decoding decoding = attn_decoding_default();
    decoding.beams = beams;
    decoding.max_length = t->sizes.max_output;
    CHECK(attn_transformer_encode(t->model, b->count, b->longest, b->ids, b->lengths, &memory, 0));
    return attn_transformer_decode(t->model, &memory, b->lengths, &decoding, b->best);
}

/* The characters of a hypothesis; the end and other tokens that stand for none are left out. */
static attn_status add_text(const struct translator *t, const attn_hypothesis *h, struct lines *found)
{
    char *text = calloc((size_t)h->length + 1, 1);
    size_t size = 0;
    for (int64_t i = 0; text && i < h->length; i++)
        if (t->alphabet.names.size[h->ids[i]] == 1)
            text[size++] = t->alphabet.names.text[h->ids[i]][0];
    attn_status status =
        text ? lines_add(found, text, size) : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a translation");
    free(text);
    return status;
}

attn_status translator_run(const struct translator *t, const struct lines *texts, int64_t first, int64_t count,
                           int64_t beams, struct lines *found)
{
    struct batch batch = {.count = count};
    attn_status status = make_batch(&batch, t, texts, first);
    if (status == ATTN_OK)
        status = run_batch(&batch, t, beams);
    for (int64_t i = 0; status == ATTN_OK && i < count; i++)
        status = add_text(t, &batch.best[i], found);
    batch_free(&batch);
    return status;
}

/* ----------------------------------------------------------------- looking -- */

/* Token names for an axis; a blank would not be seen. */
static attn_status add_labels(const struct translator *t, const int32_t *ids, int64_t count, struct lines *labels)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < count; i++) {
        const char *name = t->alphabet.names.text[ids[i]];
        status = strcmp(name, " ") == 0 ? lines_add(labels, "_", 1)
                                        : lines_add(labels, name, t->alphabet.names.size[ids[i]]);
    }
    return status;
}

/* Row t of the weights is where the model looked when it had read the tokens before, to write token t. */
static attn_status look(const struct translator *t, const struct batch *b, struct translator_view *view)
{
    const attn_hypothesis *h = &b->best[0];
    const int64_t rows = h->length, columns = b->longest, heads = t->sizes.config.heads;
    const attn_tensor memory = attn_btc(b->memory, 1, columns, t->sizes.config.d_model);
    int32_t *target = calloc((size_t)rows, sizeof *target);
    float *logits = calloc((size_t)(rows * t->sizes.config.target_vocabulary), sizeof *logits);
    float *weights = calloc((size_t)(heads * rows * columns), sizeof *weights);
    view->rows = rows;
    view->columns = columns;
    view->weights = calloc((size_t)(rows * columns), sizeof *view->weights);
    attn_status status = (target && logits && weights && view->weights)
                             ? ATTN_OK
                             : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for attention weights");
    if (status == ATTN_OK) {
        const attn_tensor scores = attn_btc(logits, 1, rows, t->sizes.config.target_vocabulary);
        const attn_tensor seen = attn_bhtd(weights, 1, heads, rows, columns);
        target[0] = t->sizes.config.bos;
        memcpy(target + 1, h->ids, (size_t)(rows - 1) * sizeof *target);
        status = attn_transformer_score(t->model, &memory, NULL, rows, target, &scores, &seen, 0);
    }
    for (int64_t i = 0; status == ATTN_OK && i < heads * rows * columns; i++)
        view->weights[i % (rows * columns)] += weights[i] / (float)heads;
    free(target);
    free(logits);
    free(weights);
    if (status != ATTN_OK)
        return status;
    CHECK(add_labels(t, h->ids, rows, &view->written));
    return add_labels(t, b->ids, columns, &view->read);
}

attn_status translator_look(const struct translator *t, const char *text, size_t size, int64_t beams,
                            struct translator_view *view)
{
    struct batch batch = {.count = 1};
    struct lines texts = {0};
    attn_status status = lines_add(&texts, text, size);
    if (status == ATTN_OK)
        status = make_batch(&batch, t, &texts, 0);
    if (status == ATTN_OK)
        status = run_batch(&batch, t, beams);
    if (status == ATTN_OK)
        status = look(t, &batch, view);
    batch_free(&batch);
    lines_free(&texts);
    return status;
}

void translator_view_free(struct translator_view *view)
{
    free(view->weights);
    lines_free(&view->written);
    lines_free(&view->read);
    *view = (struct translator_view){0};
}
