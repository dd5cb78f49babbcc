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

/* Weights of the encoder, or their gradients, in parameters: those of the embeddings, and 16 of each layer. */
static void place(const attn_tensor *p, int64_t layers, struct adapted_weights *w)
{
    w->all = attn_bert_weights_default();
    w->all.words = p[ADAPTED_WORDS], w->all.positions = p[ADAPTED_POSITIONS], w->all.types = p[ADAPTED_TYPES];
    w->all.gamma = p[ADAPTED_GAMMA], w->all.beta = p[ADAPTED_BETA];
    w->all.layers = w->list;
    p += ADAPTED_BETA + 1;
    for (int64_t i = 0; i < layers; i++, p += ADAPTED_OF_LAYER) {
        struct adapted_layer *l = &w->layers[i];
        attn_mha_weights *attention = &l->attention;
        *attention = attn_mha_weights_default();
        l->all = attn_block_weights_default();
        attention->w_q = p[0], attention->b_q = p[1], attention->w_k = p[2], attention->b_k = p[3];
        attention->w_v = p[4], attention->b_v = p[5], attention->w_o = p[6], attention->b_o = p[7];
        l->all.self = attention;
        l->all.self_gamma = p[8], l->all.self_beta = p[9];
        l->all.w_up = p[10], l->all.b_up = p[11], l->all.w_down = p[12], l->all.b_down = p[13];
        l->all.network_gamma = p[14], l->all.network_beta = p[15];
        w->list[i] = &l->all;
    }
}

static attn_status add_layer(struct adapted_encoder *e, int layer)
{
    static const char *const names[] = {
        "attention.self.query",       "attention.self.key", "attention.self.value", "attention.output.dense",
        "attention.output.LayerNorm", "intermediate.dense", "output.dense",         "output.LayerNorm"};
    const int64_t d = e->config.d_model, ff = e->config.d_ff;
    const int64_t shapes[][2] = {{d, d}, {d, d}, {d, d}, {d, d}, {0, d}, {ff, d}, {d, ff}, {0, d}};
    char prefix[48], name[48];
    int which;
    snprintf(prefix, sizeof prefix, "bert.encoder.layer.%d.", layer);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s.weight", names[i]);
        CHECK(add(e, prefix, name, shapes[i][0], shapes[i][1], &which));
        snprintf(name, sizeof name, "%s.bias", names[i]);
        CHECK(add(e, prefix, name, 0, shapes[i][0] ? shapes[i][0] : d, &which));
    }
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

/* What a pass is told; step: its dropout, negative: none, and no backward pass. */
static attn_model_pass pass_of(const struct adapted_encoder *e, int64_t step)
{
    attn_model_pass pass = attn_model_pass_default();
    if (step < 0)
        return pass;
    pass.dropout = pass.attention_dropout = e->dropout;
    pass.seed = e->seed;
    pass.step = (uint64_t)step;
    pass.kept = e->kept;
    pass.kept_size = e->kept_size;
    return pass;
}

static attn_status make_memory(struct adapted_encoder *e)
{
    const int64_t tokens = e->most_texts * e->longest, texts = e->most_texts;
    const size_t d = (size_t)e->config.d_model, rows = (size_t)tokens * d * sizeof(float);
    const attn_model_pass pass = pass_of(e, 0);
    e->kept_size = attn_bert_kept_size(&e->config, tokens, ATTN_KEEP_ALL);
    e->workspace_size = attn_bert_training_workspace_size(&e->config, texts, tokens, &pass);
    if (e->kept_size == SIZE_MAX || e->workspace_size == SIZE_MAX)
        return io_fail(ATTN_UNSUPPORTED, "%s", attn_last_error());
    const bool there = (e->kept = malloc(e->kept_size)) && (e->workspace = malloc(e->workspace_size)) &&
                       (e->states = malloc(rows)) && (e->d_states = malloc(rows)) &&
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
    place(e->parameters.values, c->layers, &e->weights);
    place(e->parameters.gradients, c->layers, &e->gradients);
    return make_memory(e);
}

void adapted_encoder_destroy(struct adapted_encoder *e)
{
    void *const all[] = {e->kept, e->workspace, e->states, e->d_states, e->pooled, e->d_pooled, e->logits};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    parameters_free(&e->parameters);
}

/* ------------------------------------------------------------------- passes -- */

static attn_tensor tokens_of(const struct adapted_encoder *e, const struct token_batch *b, float *data)
{
    return attn_btc(data, 1, b->offsets[b->count], e->config.d_model);
}

static attn_tensor texts_of(const struct token_batch *b, float *data, int64_t channels)
{
    return attn_btc(data, 1, b->count, channels);
}

/* Dropout of what is pooled, in place, unless step is negative. Its numbers are others than the encoder's. */
static attn_status drop(const struct adapted_encoder *e, int64_t step, const attn_tensor *pooled)
{
    const attn_dropout dropout = {.p = e->dropout, .seed = ~e->seed, .offset = (uint64_t)step};
    return step < 0 ? ATTN_OK : attn_drop_activations(&dropout, pooled, pooled, 0);
}

static attn_status run_head(struct adapted_encoder *e, const attn_tensor *x, const attn_tensor *out)
{
    attn_linear *head;
    CHECK(attn_linear_create(&head, 1, &e->parameters.values[e->head], &e->parameters.values[e->head + 1]));
    const attn_status status = attn_linear_forward(head, x, out, NULL);
    attn_linear_destroy(head);
    return status;
}

static attn_status forward(struct adapted_encoder *e, const struct token_batch *b, int64_t step)
{
    const attn_model_pass pass = pass_of(e, step);
    const attn_tensor states = tokens_of(e, b, e->states), pooled = texts_of(b, e->pooled, e->config.d_model),
                      logits = texts_of(b, e->logits, e->classes);
    CHECK(attn_bert_train(&e->config, &e->weights.all, b->count, b->offsets, b->ids, &pass, &states, e->workspace,
                          e->workspace_size));
    CHECK(attn_mean_pool(&states, b->count, b->offsets, 0, &pooled));
    CHECK(drop(e, step, &pooled));
    return run_head(e, &pooled, &logits);
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
    CHECK(drop(e, step, &d_pooled));
    CHECK(attn_mean_pool_backward(NULL, b->count, b->offsets, 0, &d_pooled, &d));
    const attn_model_pass pass = pass_of(e, step);
    return attn_bert_backward(&e->config, &e->weights.all, b->count, b->offsets, b->ids, &pass, &d, &e->gradients.all,
                              0, e->workspace, e->workspace_size);
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
