/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the model of a sentence encoder and runs it. Memory for states and workspace belongs to the
 * encoder and grows with the largest batch, so that a program that embeds again
 * and again allocates nothing.
 */
#include "encoder.h"

#include <stdlib.h>
#include <string.h>

#include "io/config.h"
#include "settings.h"

struct encoder {
    struct settings settings;
    struct wordpiece *tokenizer;
    attn_bert *bert;
    float *hidden;
    size_t hidden_size;
    void *workspace;
    size_t workspace_size;
};

/* ----------------------------------------------------------------- opening -- */

static attn_status load(struct encoder *encoder, const char *path, enum precision precision)
{
    attn_weights *weights;
    attn_bert_config config = encoder->settings.bert;
    attn_linear_format format = attn_linear_format_default();
    config.format = &format;
    if (precision == PRECISION_BF16) {
        format.weights = ATTN_WEIGHTS_BF16;
        format.multiply = ATTN_MULTIPLY_BF16;
        config.activations = ATTN_BF16;
    } else if (precision == PRECISION_INT8) {
        format.weights = ATTN_WEIGHTS_INT8;
        format.multiply = ATTN_MULTIPLY_INT8;
        format.group = 64; /* a few channels of these models are large: they would leave the others few steps */
    }
    CHECK(attn_weights_open(&weights, path));
    const attn_status status = attn_bert_load(&encoder->bert, &config, weights, "");
    attn_weights_destroy(weights);
    return status;
}

static attn_status open_files(struct encoder *encoder, const char *folder, enum precision precision)
{
    CHECK(settings_read(&encoder->settings, folder));
    CHECK(settings_open_tokenizer(&encoder->settings, folder, &encoder->tokenizer));
    char *weights = config_beside(folder, "model.safetensors");
    const attn_status status = weights ? load(encoder, weights, precision) : ATTN_OUT_OF_MEMORY;
    free(weights);
    return status;
}

attn_status encoder_open(struct encoder **out, const char *folder, enum precision precision)
{
    *out = NULL;
    struct encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", folder);
    attn_status status = open_files(encoder, folder, precision);
    if (status != ATTN_OK) {
        encoder_close(encoder);
        return status;
    }
    *out = encoder;
    return ATTN_OK;
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
    return encoder->settings.bert.d_model;
}

int64_t encoder_layers(const struct encoder *encoder)
{
    return encoder->settings.bert.layers;
}

int64_t encoder_heads(const struct encoder *encoder)
{
    return encoder->settings.bert.heads;
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

int64_t encoder_max_tokens(const struct encoder *encoder)
{
    return encoder->settings.max_tokens;
}

attn_status encoder_tokenize(const struct encoder *encoder, const char *text, size_t size, struct sentences *s,
                             bool *cut)
{
    struct token_ids tokens = {0};
    CHECK(wordpiece_encode(encoder->tokenizer, text, size, (size_t)encoder->settings.max_tokens, &tokens));
    *cut = tokens.cut;
    const int64_t before = s->count ? s->offsets[s->count] : 0, after = before + (int64_t)tokens.count;
    const bool room = grow((void **)&s->offsets, &s->room, s->count + 2, sizeof *s->offsets) &&
                      grow((void **)&s->ids, &s->id_room, after, sizeof *s->ids);
    if (room) {
        memcpy(s->ids + before, tokens.ids, tokens.count * sizeof *s->ids);
        s->offsets[s->count] = before;
        s->offsets[++s->count] = after;
    }
    token_ids_free(&tokens);
    return room
               ? ATTN_OK
               : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the tokens of %lld sentences", (long long)s->count + 1);
}

void sentences_free(struct sentences *s)
{
    free(s->offsets);
    free(s->ids);
}

/* --------------------------------------------------------------- embedding -- */

/* States of sentences first to first + count - 1 in encoder->hidden; offsets are theirs alone. */
static attn_status run(struct encoder *e, const struct sentences *s, int64_t first, int64_t count,
                       const int64_t *offsets, const attn_bert_outputs *outputs, int threads, attn_tensor *hidden)
{
    const int64_t tokens = offsets[count];
    const size_t states = (size_t)tokens * (size_t)e->settings.bert.d_model * sizeof *e->hidden;
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
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld tokens", (long long)tokens);
    *hidden = attn_btc(e->hidden, 1, tokens, e->settings.bert.d_model);
    return attn_bert_forward(e->bert, count, offsets, s->ids + s->offsets[first], hidden, outputs, threads,
                             e->workspace, e->workspace_size);
}

attn_status encoder_embed(struct encoder *e, const struct sentences *s, int64_t first, int64_t count, int threads,
                          float *embeddings)
{
    int64_t *offsets = malloc((size_t)(count + 1) * sizeof *offsets);
    if (!offsets)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld sentences", (long long)count);
    for (int64_t i = 0; i <= count; i++)
        offsets[i] = s->offsets[first + i] - s->offsets[first];
    attn_tensor hidden;
    attn_status status = run(e, s, first, count, offsets, NULL, threads, &hidden);
    if (status == ATTN_OK) {
        const attn_tensor out = attn_btc(embeddings, 1, count, e->settings.bert.d_model);
        status = attn_mean_pool(&hidden, count, offsets, e->settings.normalise, &out);
    }
    free(offsets);
    return status;
}

attn_status encoder_weights(struct encoder *e, const struct sentences *s, int64_t which, int threads, float *weights)
{
    const int64_t offsets[] = {0, s->offsets[which + 1] - s->offsets[which]}, tokens = offsets[1];
    const size_t layers = (size_t)e->settings.bert.layers;
    attn_tensor *tensors = calloc(layers + 1, sizeof *tensors);
    const attn_tensor **wanted = calloc(layers + 1, sizeof *wanted);
    attn_status status = (tensors && wanted)
                             ? ATTN_OK
                             : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the weights of %zu layers", layers);
    for (size_t l = 0; status == ATTN_OK && l < layers; l++) {
        float *from = weights + (int64_t)l * e->settings.bert.heads * tokens * tokens;
        tensors[l] = attn_bhtd(from, 1, e->settings.bert.heads, tokens, tokens);
        wanted[l] = &tensors[l];
    }
    attn_tensor hidden;
    attn_bert_outputs outputs = attn_bert_outputs_default();
    outputs.weights = wanted;
    if (status == ATTN_OK)
        status = run(e, s, which, 1, offsets, &outputs, threads, &hidden);
    free(tensors);
    free(wanted);
    return status;
}
