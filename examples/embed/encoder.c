/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the model and runs it. Memory for states and workspace belongs to the
 * encoder and grows with the largest batch, so that a program that embeds again
 * and again allocates nothing.
 */
#include "encoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

struct encoder {
    attn_bert_config config;
    struct wordpiece *tokenizer;
    attn_bert *bert;
    float *hidden;
    size_t hidden_size;
    void *workspace;
    size_t workspace_size;
};

static bool library_fail(struct io_error *error)
{
    return io_fail(error, "%s", attn_last_error());
}

/* ----------------------------------------------------------------- opening -- */

static bool read_config(attn_bert_config *c, const char *folder, struct io_error *error)
{
    static const struct {
        const char *name;
        attn_activation activation;
    } activations[] = {
        {"gelu", ATTN_ACTIVATION_GELU}, {"gelu_new", ATTN_ACTIVATION_GELU_TANH}, {"relu", ATTN_ACTIVATION_RELU}};
    enum { KNOWN = sizeof activations / sizeof *activations };
    struct config config;
    const char *act;
    double eps;
    int known = 0;
    *c = (attn_bert_config){.struct_size = sizeof *c};
    if (!config_open(&config, folder, error))
        return false;
    bool ok = config_text(&config, "hidden_act", &act, error) &&
              config_number(&config, "layer_norm_eps", &eps, error) &&
              config_integer(&config, "num_hidden_layers", 1, &c->layers, error) &&
              config_integer(&config, "hidden_size", 1, &c->d_model, error) &&
              config_integer(&config, "num_attention_heads", 1, &c->heads, error) &&
              config_integer(&config, "intermediate_size", 1, &c->d_ff, error) &&
              config_integer(&config, "vocab_size", 1, &c->vocabulary, error) &&
              config_integer(&config, "max_position_embeddings", 1, &c->positions, error);
    while (ok && known < KNOWN && strcmp(act, activations[known].name) != 0)
        known++;
    if (ok && known == KNOWN)
        ok = io_fail(error, "%s: 'hidden_act' is '%s'; expected gelu, gelu_new or relu", config.path, act);
    if (ok) {
        c->activation = activations[known].activation;
        c->eps = (float)eps;
    }
    config_close(&config);
    return ok;
}

static bool load(struct encoder *encoder, const char *path, struct io_error *error)
{
    attn_weights *weights;
    if (attn_weights_open(&weights, path) != ATTN_OK)
        return library_fail(error);
    const attn_status status = attn_bert_load(&encoder->bert, &encoder->config, weights, "");
    attn_weights_destroy(weights);
    return status == ATTN_OK || library_fail(error);
}

static bool open_files(struct encoder *encoder, const char *folder, struct io_error *error)
{
    char *vocabulary = config_beside(folder, "vocab.txt", error);
    char *weights = config_beside(folder, "model.safetensors", error);
    bool ok = vocabulary && weights && read_config(&encoder->config, folder, error) &&
              wordpiece_open(&encoder->tokenizer, vocabulary, error);
    if (ok && wordpiece_size(encoder->tokenizer) > encoder->config.vocabulary)
        ok = io_fail(error, "%s has %d tokens; expected at most %lld, the model's vocab_size", vocabulary,
                     (int)wordpiece_size(encoder->tokenizer), (long long)encoder->config.vocabulary);
    ok = ok && load(encoder, weights, error);
    free(vocabulary);
    free(weights);
    return ok;
}

bool encoder_open(struct encoder **out, const char *folder, struct io_error *error)
{
    *out = NULL;
    struct encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return io_fail(error, "%s: out of memory", folder);
    if (!open_files(encoder, folder, error)) {
        encoder_close(encoder);
        return false;
    }
    *out = encoder;
    return true;
}

void encoder_close(struct encoder *encoder)
{
    if (!encoder)
        return;
    wordpiece_close(encoder->tokenizer);
    attn_bert_destroy(encoder->bert);
    free(encoder->hidden);
    free(encoder->workspace);
    free(encoder);
}

int64_t encoder_width(const struct encoder *encoder)
{
    return encoder->config.d_model;
}

int64_t encoder_layers(const struct encoder *encoder)
{
    return encoder->config.layers;
}

int64_t encoder_heads(const struct encoder *encoder)
{
    return encoder->config.heads;
}

const struct wordpiece *encoder_tokenizer(const struct encoder *encoder)
{
    return encoder->tokenizer;
}

/* ------------------------------------------------------------------ tokens -- */

/* Room for count elements, at least doubling what there is. */
static bool grow(void **array, int64_t *room, int64_t count, size_t size)
{
    if (count <= *room)
        return true;
    const int64_t wanted = count > 2 * *room ? count : 2 * *room;
    void *larger = realloc(*array, (size_t)wanted * size);
    if (!larger)
        return false;
    *array = larger;
    *room = wanted;
    return true;
}

bool encoder_tokenize(const struct encoder *encoder, const char *text, size_t size, struct sentences *s,
                      struct io_error *error)
{
    struct token_ids tokens = {0};
    const int64_t most = encoder->config.positions < WORDPIECE_DEFAULT_TOKENS ? encoder->config.positions : 0;
    if (!wordpiece_encode(encoder->tokenizer, text, size, (size_t)most, &tokens, error))
        return false;
    const int64_t before = s->count ? s->offsets[s->count] : 0, after = before + (int64_t)tokens.count;
    const bool ok = grow((void **)&s->offsets, &s->room, s->count + 2, sizeof *s->offsets) &&
                    grow((void **)&s->ids, &s->id_room, after, sizeof *s->ids);
    if (ok) {
        memcpy(s->ids + before, tokens.ids, tokens.count * sizeof *s->ids);
        s->offsets[s->count] = before;
        s->offsets[++s->count] = after;
    }
    token_ids_free(&tokens);
    return ok || io_fail(error, "out of memory for the tokens of %lld sentences", (long long)s->count + 1);
}

void sentences_free(struct sentences *s)
{
    free(s->offsets);
    free(s->ids);
}

/* --------------------------------------------------------------- embedding -- */

/* States of sentences first to first + count - 1 in encoder->hidden; offsets are theirs alone. */
static bool run(struct encoder *e, const struct sentences *s, int64_t first, int64_t count, const int64_t *offsets,
                const attn_bert_outputs *outputs, int threads, attn_tensor *hidden, struct io_error *error)
{
    const int64_t tokens = offsets[count];
    const size_t states = (size_t)tokens * (size_t)e->config.d_model * sizeof *e->hidden;
    const size_t needed = attn_bert_workspace_size(e->bert, count, tokens, threads);
    if (states > e->hidden_size) {
        free(e->hidden);
        e->hidden = malloc(states);
        e->hidden_size = e->hidden ? states : 0;
    }
    if (needed > e->workspace_size) {
        free(e->workspace);
        e->workspace = malloc(needed);
        e->workspace_size = e->workspace ? needed : 0;
    }
    if (states > e->hidden_size || needed > e->workspace_size)
        return io_fail(error, "out of memory for %lld tokens", (long long)tokens);
    *hidden = attn_btc(e->hidden, 1, tokens, e->config.d_model);
    return attn_bert_forward(e->bert, count, offsets, s->ids + s->offsets[first], hidden, outputs, threads,
                             e->workspace, e->workspace_size) == ATTN_OK ||
           library_fail(error);
}

bool encoder_embed(struct encoder *e, const struct sentences *s, int64_t first, int64_t count, int threads,
                   float *embeddings, struct io_error *error)
{
    int64_t *offsets = malloc((size_t)(count + 1) * sizeof *offsets);
    if (!offsets)
        return io_fail(error, "out of memory for %lld sentences", (long long)count);
    for (int64_t i = 0; i <= count; i++)
        offsets[i] = s->offsets[first + i] - s->offsets[first];
    attn_tensor hidden;
    bool ok = run(e, s, first, count, offsets, NULL, threads, &hidden, error);
    if (ok) {
        const attn_tensor out = attn_btc(embeddings, 1, count, e->config.d_model);
        ok = attn_mean_pool(&hidden, count, offsets, 1, &out) == ATTN_OK || library_fail(error);
    }
    free(offsets);
    return ok;
}

bool encoder_weights(struct encoder *e, const struct sentences *s, int64_t which, int threads, float *weights,
                     struct io_error *error)
{
    const int64_t offsets[] = {0, s->offsets[which + 1] - s->offsets[which]}, tokens = offsets[1];
    const size_t layers = (size_t)e->config.layers;
    attn_tensor *tensors = calloc(layers + 1, sizeof *tensors);
    const attn_tensor **wanted = calloc(layers + 1, sizeof *wanted);
    bool ok = (tensors && wanted) || io_fail(error, "out of memory for the weights of %zu layers", layers);
    for (size_t l = 0; ok && l < layers; l++) {
        float *from = weights + (int64_t)l * e->config.heads * tokens * tokens;
        tensors[l] = attn_bhtd(from, 1, e->config.heads, tokens, tokens);
        wanted[l] = &tensors[l];
    }
    attn_tensor hidden;
    const attn_bert_outputs outputs = {.weights = wanted};
    ok = ok && run(e, s, which, 1, offsets, &outputs, threads, &hidden, error);
    free(tensors);
    free(wanted);
    return ok;
}
