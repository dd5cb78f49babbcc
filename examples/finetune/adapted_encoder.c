/* SPDX-License-Identifier: Apache-2.0 */
/* An encoder with a classifier, forwards and backwards, on parameters that change at every step. */
#include "adapted_encoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

/* ----------------------------------------------------------------- creation -- */

/* Adds a parameter; rows 0 stands for a vector. Vectors, biases and norms, are not pulled towards 0. */
static attn_status add(struct adapted_encoder *e, const char *prefix, const char *name, int64_t rows, int64_t columns,
                       int *which)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    CHECK(parameters_add(&e->parameters, full, rows, columns, which));
    e->parameters.all[*which].decays = rows > 0;
    return ATTN_OK;
}

static attn_status add_embeddings(struct adapted_encoder *e)
{
    const attn_bert_config *c = &e->config;
    const int64_t types = c->token_types ? c->token_types : 2;
    int which;
    CHECK(add(e, "bert.embeddings.", "word_embeddings.weight", c->vocabulary, c->d_model, &which));
    CHECK(add(e, "bert.embeddings.", "position_embeddings.weight", c->positions, c->d_model, &which));
    CHECK(add(e, "bert.embeddings.", "token_type_embeddings.weight", types, c->d_model, &which));
    CHECK(add(e, "bert.embeddings.", "LayerNorm.weight", 0, c->d_model, &which));
    return add(e, "bert.embeddings.", "LayerNorm.bias", 0, c->d_model, &which);
}

/* Weights of a layer, or their gradients, in 16 parameters from the first on. */
static void place(const attn_tensor *p, attn_mha_weights *attention, attn_block_weights *weights)
{
    *attention = attn_mha_weights_default();
    *weights = attn_block_weights_default();
    attention->w_q = p[0], attention->b_q = p[1], attention->w_k = p[2], attention->b_k = p[3];
    attention->w_v = p[4], attention->b_v = p[5], attention->w_o = p[6], attention->b_o = p[7];
    weights->self = attention;
    weights->self_gamma = p[8], weights->self_beta = p[9];
    weights->w_up = p[10], weights->b_up = p[11], weights->w_down = p[12], weights->b_down = p[13];
    weights->network_gamma = p[14], weights->network_beta = p[15];
}

static attn_status add_layer(struct adapted_encoder *e, int layer)
{
    static const char *const names[] = {
        "attention.self.query",       "attention.self.key", "attention.self.value", "attention.output.dense",
        "attention.output.LayerNorm", "intermediate.dense", "output.dense",         "output.LayerNorm"};
    const int64_t d = e->config.d_model, ff = e->config.d_ff;
    const int64_t shapes[][2] = {{d, d}, {d, d}, {d, d}, {d, d}, {0, d}, {ff, d}, {d, ff}, {0, d}};
    const int first = e->parameters.count;
    char prefix[48], name[48];
    int which;
    snprintf(prefix, sizeof prefix, "bert.encoder.layer.%d.", layer);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s.weight", names[i]);
        CHECK(add(e, prefix, name, shapes[i][0], shapes[i][1], &which));
        snprintf(name, sizeof name, "%s.bias", names[i]);
        CHECK(add(e, prefix, name, 0, shapes[i][0] ? shapes[i][0] : d, &which));
    }
    struct adapted_layer *l = &e->layers[layer];
    place(&e->parameters.values[first], &l->attention, &l->weights);
    place(&e->parameters.gradients[first], &l->d_attention, &l->gradients);
    return ATTN_OK;
}

/* The classifier begins as PyTorch's linear layers do. */
static attn_status add_classifier(struct adapted_encoder *e)
{
    const int64_t d = e->config.d_model;
    const double bound = 1 / sqrt((double)d);
    int bias;
    CHECK(add(e, "classifier.", "weight", e->classes, d, &e->head));
    CHECK(add(e, "classifier.", "bias", 0, e->classes, &bias));
    for (int which = e->head; which <= bias; which++)
        for (int64_t i = 0; i < e->parameters.all[which].count; i++)
            e->parameters.all[which].values[i] =
                (float)(bound * (2 * random_uniform((struct stream){e->seed, (uint64_t)which}, (uint64_t)i) - 1));
    return ATTN_OK;
}

static attn_status take_weights(struct adapted_encoder *e, const attn_weights *weights, const char *prefix)
{
    const struct parameters *p = &e->parameters;
    for (int i = 0; i < e->head; i++) {
        char name[96];
        attn_tensor t;
        snprintf(name, sizeof name, "%s%s", prefix, p->names[i] + strlen("bert."));
        CHECK(attn_weights_get(weights, name, p->vector[i] ? 0 : p->values[i].shape[2], p->values[i].shape[3], &t));
        if (t.dtype != ATTN_F32)
            return io_fail(ATTN_UNSUPPORTED, "%s is not f32, in which this program trains", name);
        memcpy(p->all[i].values, t.data, (size_t)p->all[i].count * sizeof(float));
    }
    return ATTN_OK;
}

static attn_status read_weights(struct adapted_encoder *e, const char *path, const char *prefix)
{
    attn_weights *weights;
    CHECK(attn_weights_open(&weights, path));
    const attn_status status = take_weights(e, weights, prefix);
    attn_weights_destroy(weights);
    return status;
}

static attn_block_pass pass_of(const struct adapted_encoder *e, int layer, const attn_params *params)
{
    attn_block_pass pass = attn_block_pass_default();
    pass.self = params;
    pass.kept = e->layers[layer].kept;
    pass.kept_size = e->kept_size;
    return pass;
}

static attn_status make_memory(struct adapted_encoder *e)
{
    static const int64_t no_offsets[1] = {0};
    const int64_t tokens = e->most_texts * e->longest, texts = e->most_texts;
    const size_t d = (size_t)e->config.d_model, rows = (size_t)tokens * d * sizeof(float);
    const attn_ragged ragged = {texts, no_offsets, no_offsets}; /* offsets are looked at when a call runs */
    attn_params params = attn_params_default();
    params.ragged = &ragged;
    const attn_block_pass pass = pass_of(e, 0, &params);
    attn_block_gradients gradients = attn_block_gradients_default();
    gradients.weights = &e->layers[0].gradients;
    e->kept_size = attn_block_kept_size(&e->block, ATTN_F32, 1, tokens, 0);
    const size_t forward = attn_block_train_workspace_size(&e->block, 1, tokens, 0, &pass);
    const size_t backward = attn_block_backward_workspace_size(&e->block, 1, tokens, 0, &pass, &gradients);
    e->workspace_size = forward > backward ? forward : backward;
    bool there = e->kept_size != SIZE_MAX && e->workspace_size != SIZE_MAX;
    for (int64_t layer = 0; there && layer < e->config.layers; layer++)
        there = (e->layers[layer].kept = malloc(e->kept_size)) && (e->states[layer + 1] = malloc(rows));
    there = there && (e->workspace = malloc(e->workspace_size)) && (e->embedded = malloc(rows)) &&
            (e->states[0] = malloc(rows)) && (e->d_states = malloc(rows)) &&
            (e->pooled = malloc((size_t)texts * d * sizeof(float))) &&
            (e->d_pooled = malloc((size_t)texts * d * sizeof(float))) &&
            (e->logits = malloc((size_t)(texts * e->classes) * sizeof(float)));
    return there ? ATTN_OK
                 : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for batches of %lld texts of %lld tokens",
                           (long long)texts, (long long)e->longest);
}

attn_status adapted_encoder_create(struct adapted_encoder *e, const char *path, const char *prefix)
{
    const attn_bert_config *c = &e->config;
    if (c->layers > ADAPTED_LAYERS)
        return io_fail(ATTN_UNSUPPORTED, "the model has %lld layers; expected at most %d", (long long)c->layers,
                       ADAPTED_LAYERS);
    CHECK(add_embeddings(e));
    for (int layer = 0; layer < c->layers; layer++)
        CHECK(add_layer(e, layer));
    CHECK(add_classifier(e));
    CHECK(read_weights(e, path, prefix));
    e->attention = attn_mha_config_default();
    e->attention.d_model = c->d_model, e->attention.heads = c->heads;
    e->block = attn_block_config_default();
    e->block.attention = &e->attention;
    e->block.d_ff = c->d_ff, e->block.activation = c->activation, e->block.eps = c->eps;
    return make_memory(e);
}

void adapted_encoder_destroy(struct adapted_encoder *e)
{
    for (int layer = 0; layer < ADAPTED_LAYERS; layer++)
        free(e->layers[layer].kept);
    for (int i = 0; i <= ADAPTED_LAYERS; i++)
        free(e->states[i]);
    void *const all[] = {e->workspace, e->embedded, e->d_states, e->pooled, e->d_pooled, e->logits};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    parameters_free(&e->parameters);
}

/* ------------------------------------------------------------------- passes -- */

/* Places of dropout in a step. A layer's takes as many offsets as it has sublayers. */
enum { PLACE_EMBEDDED, PLACE_POOLED, PLACE_LAYER, PLACES_OF_LAYER = 4, PLACES = 64 };

static attn_tensor tokens_of(const struct adapted_encoder *e, const struct token_batch *b, float *data)
{
    return attn_btc(data, 1, b->offsets[b->count], e->config.d_model);
}

static attn_tensor texts_of(const struct token_batch *b, float *data, int64_t channels)
{
    return attn_btc(data, 1, b->count, channels);
}

static attn_dropout dropout_of(const struct adapted_encoder *e, int64_t step, int place)
{
    return (attn_dropout){.p = e->dropout, .seed = e->seed, .offset = (uint64_t)step * PLACES + (uint64_t)place};
}

/* Dropout in place, unless step is negative. */
static attn_status drop(const struct adapted_encoder *e, int64_t step, int place, const attn_tensor *x)
{
    const attn_dropout dropout = dropout_of(e, step, place);
    return step < 0 ? ATTN_OK : attn_drop_activations(&dropout, x, x, 0);
}

/* What a layer is told, forwards and backwards alike. */
struct layer_call {
    attn_ragged ragged;
    attn_params params;
    attn_dropout of_weights, of_sublayers;
    attn_block_pass pass;
};

static void set_layer(struct layer_call *call, const struct adapted_encoder *e, const struct token_batch *b, int layer,
                      int64_t step)
{
    const int place = PLACE_LAYER + PLACES_OF_LAYER * layer;
    call->ragged = (attn_ragged){b->count, b->offsets, b->offsets};
    call->params = attn_params_default();
    call->params.ragged = &call->ragged;
    call->pass = pass_of(e, layer, &call->params);
    if (step < 0)
        return;
    call->of_sublayers = dropout_of(e, step, place);
    call->of_weights = dropout_of(e, step, place + PLACES_OF_LAYER - 1);
    call->params.dropout = &call->of_weights;
    call->pass.dropout = &call->of_sublayers;
}

static attn_status embed(struct adapted_encoder *e, const struct token_batch *b, int64_t step)
{
    const attn_tensor *w = e->parameters.values;
    const attn_tensor sums = tokens_of(e, b, e->embedded), out = tokens_of(e, b, e->states[0]);
    CHECK(attn_embed(&w[ADAPTED_WORDS], b->ids, 1, 0, &sums, 0));
    CHECK(attn_embed(&w[ADAPTED_POSITIONS], b->positions, 1, 1, &sums, 0));
    CHECK(attn_embed(&w[ADAPTED_TYPES], b->types, 1, 1, &sums, 0));
    CHECK(attn_normalise(ATTN_NORM_LAYER, &sums, &w[ADAPTED_GAMMA], &w[ADAPTED_BETA], e->config.eps, &out, 0));
    return drop(e, step, PLACE_EMBEDDED, &out);
}

static attn_status run_head(struct adapted_encoder *e, const attn_tensor *x, const attn_tensor *out)
{
    attn_linear *head;
    CHECK(attn_linear_create(&head, 1, &e->parameters.values[e->head], &e->parameters.values[e->head + 1]));
    const attn_status status = attn_linear_forward(head, x, out, NULL);
    attn_linear_destroy(head);
    return status;
}

/* step: its dropout; negative: none. */
static attn_status forward(struct adapted_encoder *e, const struct token_batch *b, int64_t step)
{
    const int layers = (int)e->config.layers;
    const attn_tensor last = tokens_of(e, b, e->states[layers]), pooled = texts_of(b, e->pooled, e->config.d_model),
                      logits = texts_of(b, e->logits, e->classes);
    CHECK(embed(e, b, step));
    for (int layer = 0; layer < layers; layer++) {
        struct layer_call call;
        const attn_tensor x = tokens_of(e, b, e->states[layer]), out = tokens_of(e, b, e->states[layer + 1]);
        set_layer(&call, e, b, layer, step);
        CHECK(attn_block_train(&e->block, &e->layers[layer].weights, &x, &call.pass, &out, e->workspace,
                               e->workspace_size));
    }
    CHECK(attn_mean_pool(&last, b->count, b->offsets, 0, &pooled));
    CHECK(drop(e, step, PLACE_POOLED, &pooled));
    return run_head(e, &pooled, &logits);
}

static attn_status embed_back(struct adapted_encoder *e, const struct token_batch *b, int64_t step,
                              const attn_tensor *d)
{
    const attn_tensor *w = e->parameters.values, *to = e->parameters.gradients;
    const attn_tensor sums = tokens_of(e, b, e->embedded);
    attn_norm_gradients of_norm = attn_norm_gradients_default();
    of_norm.x = d, of_norm.gamma = &to[ADAPTED_GAMMA], of_norm.beta = &to[ADAPTED_BETA];
    CHECK(drop(e, step, PLACE_EMBEDDED, d));
    CHECK(attn_normalise_backward(ATTN_NORM_LAYER, &sums, &w[ADAPTED_GAMMA], e->config.eps, d, &of_norm, NULL, 0));
    CHECK(attn_embed_backward(b->ids, 1, d, &to[ADAPTED_WORDS], 0, 0));
    CHECK(attn_embed_backward(b->positions, 1, d, &to[ADAPTED_POSITIONS], 0, 0));
    return attn_embed_backward(b->types, 1, d, &to[ADAPTED_TYPES], 0, 0);
}

/* Gradients of all parameters, from that of the logits. */
static attn_status backward(struct adapted_encoder *e, const struct token_batch *b, int64_t step)
{
    const struct parameters *p = &e->parameters;
    const attn_tensor pooled = texts_of(b, e->pooled, e->config.d_model),
                      d_pooled = texts_of(b, e->d_pooled, e->config.d_model),
                      d_logits = texts_of(b, e->logits, e->classes), d = tokens_of(e, b, e->d_states);
    attn_linear_gradients of_head = attn_linear_gradients_default();
    of_head.x = &d_pooled, of_head.weights = &p->gradients[e->head], of_head.bias = &p->gradients[e->head + 1];
    CHECK(attn_linear_backward(&p->values[e->head], &pooled, &d_logits, &of_head, NULL, 0));
    CHECK(drop(e, step, PLACE_POOLED, &d_pooled));
    CHECK(attn_mean_pool_backward(NULL, b->count, b->offsets, 0, &d_pooled, &d));
    for (int layer = (int)e->config.layers - 1; layer >= 0; layer--) {
        struct layer_call call;
        const attn_tensor x = tokens_of(e, b, e->states[layer]);
        attn_block_gradients gradients = attn_block_gradients_default();
        gradients.x = &d, gradients.weights = &e->layers[layer].gradients;
        set_layer(&call, e, b, layer, step);
        CHECK(attn_block_backward(&e->block, &e->layers[layer].weights, &x, &call.pass, &d, &gradients, e->workspace,
                                  e->workspace_size));
    }
    return embed_back(e, b, step, &d);
}

attn_status adapted_encoder_predict(struct adapted_encoder *e, const struct token_batch *batch)
{
    return forward(e, batch, -1);
}

attn_status adapted_encoder_learn(struct adapted_encoder *e, const struct token_batch *batch, int64_t step,
                                  double *loss)
{
    const attn_tensor logits = texts_of(batch, e->logits, e->classes);
    CHECK(forward(e, batch, step));
    CHECK(attn_cross_entropy(&logits, batch->labels, 0, loss, &logits, 0));
    return backward(e, batch, step);
}
