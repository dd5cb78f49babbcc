/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the classifier that is trained, forwards and backwards. */
#include "network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "random.h"

/* ----------------------------------------------------------------- creation -- */

static attn_status add(struct network *n, int number, const char *name, int64_t rows, int64_t columns)
{
    int which;
    CHECK(parameters_add(&n->parameters, name, rows, columns, &which));
    return which == number ? ATTN_OK : io_fail(ATTN_INVALID_ARGUMENT, "%s is parameter %d", name, which);
}

static attn_status add_direction(struct network *n, int direction)
{
    const struct network_sizes *s = &n->sizes;
    static const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const int64_t shapes[4][2] = {
        {4 * s->hidden, s->embedding}, {4 * s->hidden, s->hidden}, {0, 4 * s->hidden}, {0, 4 * s->hidden}};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "lstm.%s_l0%s", kinds[i], direction ? "_reverse" : "");
        CHECK(add(n, NETWORK_LSTM + 4 * direction + i, name, shapes[i][0], shapes[i][1]));
    }
    const attn_tensor *values = &n->parameters.values[NETWORK_LSTM + 4 * direction];
    const attn_tensor *gradients = &n->parameters.gradients[NETWORK_LSTM + 4 * direction];
    n->lstm[direction] = (attn_lstm_weights){values[0], values[1], values[2], values[3]};
    n->d_lstm[direction] = (attn_lstm_weights){gradients[0], gradients[1], gradients[2], gradients[3]};
    return ATTN_OK;
}

static attn_status add_all(struct network *n)
{
    const struct network_sizes *s = &n->sizes;
    CHECK(add(n, NETWORK_TABLE, "embedding.weight", s->words, s->embedding));
    CHECK(add_direction(n, 0));
    CHECK(add_direction(n, 1));
    CHECK(add(n, NETWORK_POOL_W, "attention.weight", s->attention, 2 * s->hidden));
    CHECK(add(n, NETWORK_POOL_BIAS, "attention.bias", 0, s->attention));
    CHECK(add(n, NETWORK_POOL_V, "attention.score", 0, s->attention));
    CHECK(add(n, NETWORK_HEAD, "classifier.weight", s->classes, 2 * s->hidden));
    return add(n, NETWORK_HEAD_BIAS, "classifier.bias", 0, s->classes);
}

static void set_uniform(struct network *n, int which, double bound)
{
    const struct stream stream = {n->seed, (uint64_t)which};
    for (int64_t i = 0; i < n->parameters.all[which].count; i++)
        n->parameters.all[which].values[i] = (float)(bound * (2 * random_uniform(stream, (uint64_t)i) - 1));
}

static void set_normal(struct network *n, int which, int64_t first, double deviation)
{
    const struct stream stream = {n->seed, (uint64_t)which};
    for (int64_t i = first; i < n->parameters.all[which].count; i++)
        n->parameters.all[which].values[i] = (float)(deviation * random_normal(stream, (uint64_t)i));
}

/* As PyTorch's layers begin, and train_classifier.py: its embedding is small, and 0 for padding. */
static void initialise(struct network *n)
{
    const struct network_sizes *s = &n->sizes;
    set_normal(n, NETWORK_TABLE, s->embedding, 0.1);
    for (int i = 0; i < 8; i++)
        set_uniform(n, NETWORK_LSTM + i, 1 / sqrt((double)s->hidden));
    set_uniform(n, NETWORK_POOL_W, sqrt(6 / (double)(s->attention + 2 * s->hidden)));
    set_normal(n, NETWORK_POOL_V, 0, 1 / sqrt((double)s->attention));
    set_uniform(n, NETWORK_HEAD, 1 / sqrt(2 * (double)s->hidden));
    set_uniform(n, NETWORK_HEAD_BIAS, 1 / sqrt(2 * (double)s->hidden));
}

attn_status network_create(struct network *n)
{
    const struct network_sizes *s = &n->sizes;
    CHECK(add_all(n));
    initialise(n);
    const size_t texts = (size_t)s->most_texts, tokens = texts * (size_t)s->longest;
    n->embedded = calloc(tokens * (size_t)s->embedding, sizeof *n->embedded);
    n->d_embedded = calloc(tokens * (size_t)s->embedding, sizeof *n->d_embedded);
    n->states = calloc(tokens * 2 * (size_t)s->hidden, sizeof *n->states);
    n->d_states = calloc(tokens * 2 * (size_t)s->hidden, sizeof *n->d_states);
    n->pooled = calloc(texts * 2 * (size_t)s->hidden, sizeof *n->pooled);
    n->d_pooled = calloc(texts * 2 * (size_t)s->hidden, sizeof *n->d_pooled);
    n->logits = calloc(texts * (size_t)s->classes, sizeof *n->logits);
    if (!n->embedded || !n->d_embedded || !n->states || !n->d_states || !n->pooled || !n->d_pooled || !n->logits)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for batches of %lld texts of %lld words",
                       (long long)s->most_texts, (long long)s->longest);
    return ATTN_OK;
}

void network_destroy(struct network *n)
{
    float *const all[] = {n->embedded, n->d_embedded, n->states, n->d_states, n->pooled, n->d_pooled, n->logits};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    parameters_free(&n->parameters);
}

/* ------------------------------------------------------------------- passes -- */

static attn_tensor tokens_of(const struct batch *b, float *data, int64_t channels)
{
    return attn_btc(data, b->count, b->longest, channels);
}

static attn_tensor texts_of(const struct batch *b, float *data, int64_t channels)
{
    return attn_btc(data, b->count, 1, channels);
}

static attn_lstm_config lstm_config(const struct network *n)
{
    attn_lstm_config config = attn_lstm_config_default();
    config.input = n->sizes.embedding;
    config.hidden = n->sizes.hidden;
    config.bidirectional = 1;
    return config;
}

/* The two places of a step: the embeddings, and what is pooled. NULL without dropout. */
static const attn_dropout *dropout_of(const struct network *n, int64_t step, int place, attn_dropout *dropout)
{
    *dropout = (attn_dropout){.p = n->dropout, .seed = n->seed, .offset = 2 * (uint64_t)step + (uint64_t)place};
    return step < 0 ? NULL : dropout;
}

static attn_status run_lstm(const struct network *n, const struct batch *b, const attn_tensor *x,
                            const attn_tensor *out)
{
    const attn_lstm_config config = lstm_config(n);
    attn_lstm *lstm;
    CHECK(attn_lstm_create(&lstm, &config, n->lstm));
    const attn_status status = attn_lstm_forward(lstm, x, b->lengths, NULL, out, 0, NULL, 0);
    attn_lstm_destroy(lstm);
    return status;
}

static attn_status run_pool(const struct network *n, const struct batch *b, const attn_tensor *x,
                            const attn_tensor *out)
{
    const attn_tensor *w = n->parameters.values;
    attn_pool *pool;
    CHECK(attn_pool_create(&pool, &w[NETWORK_POOL_W], &w[NETWORK_POOL_BIAS], &w[NETWORK_POOL_V]));
    const attn_status status = attn_pool_forward(pool, x, b->lengths, out, NULL, 0, NULL, 0);
    attn_pool_destroy(pool);
    return status;
}

static attn_status run_head(const struct network *n, const attn_tensor *x, const attn_tensor *out)
{
    attn_linear *head;
    CHECK(attn_linear_create(&head, 1, &n->parameters.values[NETWORK_HEAD], &n->parameters.values[NETWORK_HEAD_BIAS]));
    const attn_status status = attn_linear_forward(head, x, out, NULL);
    attn_linear_destroy(head);
    return status;
}

/* step: its dropout; negative: none. */
static attn_status forward(struct network *n, const struct batch *b, int64_t step)
{
    const struct network_sizes *s = &n->sizes;
    const attn_tensor embedded = tokens_of(b, n->embedded, s->embedding);
    const attn_tensor states = tokens_of(b, n->states, 2 * s->hidden), pooled = texts_of(b, n->pooled, 2 * s->hidden);
    const attn_tensor logits = texts_of(b, n->logits, s->classes);
    attn_dropout dropout;
    CHECK(attn_embed(&n->parameters.values[NETWORK_TABLE], b->ids, 1, 0, &embedded, 0));
    CHECK(attn_drop_activations(dropout_of(n, step, 0, &dropout), &embedded, &embedded, 0));
    CHECK(run_lstm(n, b, &embedded, &states));
    CHECK(run_pool(n, b, &states, &pooled));
    CHECK(attn_drop_activations(dropout_of(n, step, 1, &dropout), &pooled, &pooled, 0));
    return run_head(n, &pooled, &logits);
}

/* Gradients of all parameters, from that of the logits. */
static attn_status backward(struct network *n, const struct batch *b, int64_t step)
{
    const struct network_sizes *s = &n->sizes;
    const attn_tensor *w = n->parameters.values, *d = n->parameters.gradients;
    const attn_tensor embedded = tokens_of(b, n->embedded, s->embedding),
                      d_embedded = tokens_of(b, n->d_embedded, s->embedding);
    const attn_tensor states = tokens_of(b, n->states, 2 * s->hidden),
                      d_states = tokens_of(b, n->d_states, 2 * s->hidden);
    const attn_tensor pooled = texts_of(b, n->pooled, 2 * s->hidden),
                      d_pooled = texts_of(b, n->d_pooled, 2 * s->hidden);
    const attn_tensor d_logits = texts_of(b, n->logits, s->classes);
    attn_dropout dropout;

    attn_linear_gradients of_head = attn_linear_gradients_default();
    of_head.x = &d_pooled;
    of_head.weights = &d[NETWORK_HEAD];
    of_head.bias = &d[NETWORK_HEAD_BIAS];
    CHECK(attn_linear_backward(&w[NETWORK_HEAD], &pooled, &d_logits, &of_head, NULL, 0));
    CHECK(attn_drop_activations(dropout_of(n, step, 1, &dropout), &d_pooled, &d_pooled, 0));

    attn_pool_gradients of_pool = attn_pool_gradients_default();
    of_pool.x = &d_states;
    of_pool.w = &d[NETWORK_POOL_W];
    of_pool.bias = &d[NETWORK_POOL_BIAS];
    of_pool.v = &d[NETWORK_POOL_V];
    CHECK(attn_pool_backward(&w[NETWORK_POOL_W], &w[NETWORK_POOL_BIAS], &w[NETWORK_POOL_V], &states, b->lengths,
                             &d_pooled, &of_pool, NULL, 0));

    const attn_lstm_config config = lstm_config(n);
    attn_lstm_gradients of_lstm = attn_lstm_gradients_default();
    of_lstm.x = &d_embedded;
    of_lstm.weights = n->d_lstm;
    CHECK(attn_lstm_backward(&config, n->lstm, &embedded, b->lengths, NULL, &states, &d_states, &of_lstm, NULL, 0));
    CHECK(attn_drop_activations(dropout_of(n, step, 0, &dropout), &d_embedded, &d_embedded, 0));
    return attn_embed_backward(b->ids, 1, &d_embedded, &d[NETWORK_TABLE], 0, 0);
}

attn_status network_predict(struct network *n, const struct batch *batch)
{
    return forward(n, batch, -1);
}

attn_status network_learn(struct network *n, const struct batch *batch, int64_t step, double *loss)
{
    const attn_tensor logits = texts_of(batch, n->logits, n->sizes.classes);
    CHECK(forward(n, batch, step));
    CHECK(attn_cross_entropy(&logits, batch->labels, 0, loss, &logits, 0));
    return backward(n, batch, step);
}
