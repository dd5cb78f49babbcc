/* SPDX-License-Identifier: Apache-2.0 */
/* The model: its files, its words, and a pass over a batch of texts. */
#include "classifier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/config.h"

struct classifier {
    int64_t vocabulary_size, embedding, hidden, attention, classes;
    struct vocabulary words;
    struct lines names;
    attn_weights *weights; /* what table is a view of */
    attn_tensor table;     /* (1, 1, vocabulary, embedding) */
    attn_lstm *lstm;
    attn_pool *pool;
    attn_linear *head;
};

/* ----------------------------------------------------------------- opening -- */

static attn_status read_words(struct classifier *c, const char *path)
{
    char *bytes;
    size_t size;
    CHECK(vocabulary_read(&bytes, &size, path));
    const attn_status status = vocabulary_parse(&c->words, bytes, size, path);
    free(bytes);
    if (status == ATTN_OK && c->words.count != c->vocabulary_size)
        return io_fail(ATTN_INVALID_FILE, "%s has %lld lines; expected %lld, the vocab_size", path,
                       (long long)c->words.count, (long long)c->vocabulary_size);
    return status;
}

static attn_status read_names(struct classifier *c, const char *folder)
{
    char *vocabulary = config_beside(folder, "vocab.txt"), *classes = config_beside(folder, "classes.txt");
    attn_status status = vocabulary && classes ? read_words(c, vocabulary) : ATTN_OUT_OF_MEMORY;
    if (status == ATTN_OK)
        status = lines_read(&c->names, classes);
    if (status == ATTN_OK && c->names.count != c->classes)
        status = io_fail(ATTN_INVALID_FILE, "%s has %lld lines; expected %lld, the classes", classes,
                         (long long)c->names.count, (long long)c->classes);
    free(vocabulary);
    free(classes);
    return status;
}

static attn_status read_config(struct classifier *c, const char *folder)
{
    struct config config;
    bool bidirectional;
    int64_t layers;
    CHECK(config_open(&config, folder));
    attn_status status = config_integer(&config, "vocab_size", WORD_UNKNOWN + 1, &c->vocabulary_size);
    if (status == ATTN_OK)
        status = config_integer(&config, "embedding_size", 1, &c->embedding);
    if (status == ATTN_OK)
        status = config_integer(&config, "hidden_size", 1, &c->hidden);
    if (status == ATTN_OK)
        status = config_integer(&config, "attention_size", 1, &c->attention);
    if (status == ATTN_OK)
        status = config_integer(&config, "classes", 1, &c->classes);
    if (status == ATTN_OK)
        status = config_integer(&config, "n_layers", 1, &layers);
    if (status == ATTN_OK)
        status = config_boolean(&config, "bidirectional", &bidirectional);
    if (status == ATTN_OK && (layers != 1 || !bidirectional))
        status = io_fail(ATTN_INVALID_FILE, "%s: the LSTM has %lld layers and %s; expected 1 layer and two directions",
                         config.path, (long long)layers, bidirectional ? "two directions" : "one direction");
    config_close(&config);
    return status;
}

static attn_status load_layers(struct classifier *c, const attn_weights *weights)
{
    const int64_t states = 2 * c->hidden;
    attn_tensor w, bias, v, head, head_bias;
    attn_lstm_config lstm = attn_lstm_config_default();
    lstm.input = c->embedding;
    lstm.hidden = c->hidden;
    lstm.bidirectional = 1;
    attn_status status = attn_lstm_load(&c->lstm, &lstm, weights, "lstm.");
    if (!status)
        status = attn_weights_get(weights, "attention.weight", c->attention, states, &w);
    if (!status)
        status = attn_weights_get(weights, "attention.bias", 0, c->attention, &bias);
    if (!status)
        status = attn_weights_get(weights, "attention.score", 0, c->attention, &v);
    if (!status)
        status = attn_pool_create(&c->pool, &w, &bias, &v);
    if (!status)
        status = attn_weights_get(weights, "classifier.weight", c->classes, states, &head);
    if (!status)
        status = attn_weights_get(weights, "classifier.bias", 0, c->classes, &head_bias);
    if (!status)
        status = attn_linear_create(&c->head, 1, &head, &head_bias);
    if (!status)
        status = attn_weights_get(weights, "embedding.weight", c->vocabulary_size, c->embedding, &c->table);
    return status;
}

static attn_status load(struct classifier *c, const char *folder)
{
    char *path = config_beside(folder, "classifier.safetensors");
    attn_status status = path ? attn_weights_open(&c->weights, path) : ATTN_OUT_OF_MEMORY;
    if (status == ATTN_OK)
        status = load_layers(c, c->weights);
    free(path);
    return status;
}

attn_status classifier_open(struct classifier **out, const char *folder)
{
    *out = NULL;
    struct classifier *c = calloc(1, sizeof *c);
    if (!c)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", folder);
    attn_status status = read_config(c, folder);
    if (status == ATTN_OK)
        status = read_names(c, folder);
    if (status == ATTN_OK)
        status = load(c, folder);
    if (status != ATTN_OK) {
        classifier_close(c);
        return status;
    }
    *out = c;
    return ATTN_OK;
}

void classifier_close(struct classifier *c)
{
    if (!c)
        return;
    vocabulary_free(&c->words);
    lines_free(&c->names);
    attn_lstm_destroy(c->lstm);
    attn_pool_destroy(c->pool);
    attn_linear_destroy(c->head);
    attn_weights_destroy(c->weights);
    free(c);
}

int64_t classifier_classes(const struct classifier *c)
{
    return c->classes;
}

const struct vocabulary *classifier_vocabulary(const struct classifier *c)
{
    return &c->words;
}

const char *classifier_class(const struct classifier *c, int64_t i)
{
    return c->names.text[i];
}

/* ----------------------------------------------------------------- running -- */

/* Buffers of a batch that is padded to the longest text. */
struct batch {
    int64_t count, longest, *lengths;
    int32_t *ids;
    float *embedded, *states, *pooled, *weights;
};

static attn_status make_batch(struct batch *b, const struct classifier *c, const struct words *texts, int64_t count)
{
    *b = (struct batch){.count = count};
    for (int64_t i = 0; i < count; i++)
        if (texts[i].text.count > b->longest)
            b->longest = texts[i].text.count;
    const size_t tokens = (size_t)count * (size_t)b->longest;
    b->lengths = calloc((size_t)count + 1, sizeof *b->lengths);
    b->ids = calloc(tokens + 1, sizeof *b->ids);
    b->embedded = calloc(tokens * (size_t)c->embedding + 1, sizeof *b->embedded);
    b->states = calloc(tokens * 2 * (size_t)c->hidden + 1, sizeof *b->states);
    b->pooled = calloc((size_t)count * 2 * (size_t)c->hidden + 1, sizeof *b->pooled);
    b->weights = calloc(tokens + 1, sizeof *b->weights);
    if (!b->lengths || !b->ids || !b->embedded || !b->states || !b->pooled || !b->weights)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld texts of %lld words", (long long)count,
                       (long long)b->longest);
    for (int64_t i = 0; i < count; i++) {
        b->lengths[i] = texts[i].text.count;
        memcpy(b->ids + i * b->longest, texts[i].ids, (size_t)b->lengths[i] * sizeof *b->ids);
    }
    return ATTN_OK;
}

static void free_batch(struct batch *b)
{
    free(b->lengths);
    free(b->ids);
    free(b->embedded);
    free(b->states);
    free(b->pooled);
    free(b->weights);
}

static attn_status run_layers(const struct classifier *c, const struct batch *b, float *logits)
{
    const attn_tensor embedded = attn_btc(b->embedded, b->count, b->longest, c->embedding);
    const attn_tensor states = attn_btc(b->states, b->count, b->longest, 2 * c->hidden);
    const attn_tensor pooled = attn_btc(b->pooled, b->count, 1, 2 * c->hidden);
    const attn_tensor weights = attn_btc(b->weights, b->count, 1, b->longest);
    const attn_tensor out = attn_btc(logits, b->count, 1, c->classes);
    attn_status status = attn_embed(&c->table, b->ids, 1, 0, &embedded, 0);
    if (!status)
        status = attn_lstm_forward(c->lstm, &embedded, b->lengths, NULL, &states, 0, NULL, 0);
    if (!status)
        status = attn_pool_forward(c->pool, &states, b->lengths, &pooled, &weights, 0, NULL, 0);
    return status ? status : attn_linear_forward(c->head, &pooled, &out, NULL);
}

attn_status classifier_run(const struct classifier *c, const struct words *texts, int64_t count, float *logits,
                           float *const *weights)
{
    struct batch b;
    attn_status status = make_batch(&b, c, texts, count);
    if (status == ATTN_OK)
        status = run_layers(c, &b, logits);
    for (int64_t i = 0; status == ATTN_OK && weights && i < count; i++)
        memcpy(weights[i], b.weights + i * b.longest, (size_t)b.lengths[i] * sizeof **weights);
    free_batch(&b);
    return status;
}
