/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making an LSTM: checks of its weights, and packing. The two biases of a gate
 * are only ever added, so they become one.
 */
#include "attn/nn/linear.h"
#include "nn/check.h"
#include "nn/lstm.h"

#include <inttypes.h>
#include <stdlib.h>

static int64_t layers_of(const attn_lstm_config *c)
{
    return c->layers ? c->layers : 1;
}

attn_status nn_take_lstm_config(attn_lstm_config *c, const attn_lstm_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected the sizes of an LSTM");
    CHECK(attn_take_struct("config", c, sizeof *c, NN_LSTM_CONFIG_FIRST, theirs));
    CHECK(nn_check_length("config.input", c->input, 1));
    CHECK(nn_check_length("config.hidden", c->hidden, 1));
    CHECK(nn_check_length("config.layers", c->layers, 0));
    /* What is counted in products of these, rows of weights and channels of out, can be counted. */
    CHECK(attn_check_count("a gate of config.hidden", sizeof(float), 4, c->hidden, 1));
    return attn_check_count("config.layers", sizeof(attn_lstm_weights), layers_of(c), 2, 1);
}

attn_status nn_check_lstm_weights(const attn_lstm_config *c, const attn_lstm_weights *weights)
{
    const int64_t count = layers_of(c) * nn_lstm_directions(c), gates = 4 * c->hidden;
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected %" PRId64 " sets of weights", count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t reads = i < nn_lstm_directions(c) ? c->input : nn_lstm_directions(c) * c->hidden;
        CHECK(nn_check_matrix(nn_name_of("weights", i, "w_ih").text, &weights[i].w_ih, gates, reads));
        CHECK(nn_check_matrix(nn_name_of("weights", i, "w_hh").text, &weights[i].w_hh, gates, c->hidden));
        if (weights[i].b_ih.data)
            CHECK(nn_check_vector(nn_name_of("weights", i, "b_ih").text, &weights[i].b_ih, gates));
        if (weights[i].b_hh.data)
            CHECK(nn_check_vector(nn_name_of("weights", i, "b_hh").text, &weights[i].b_hh, gates));
    }
    return ATTN_OK;
}

void nn_add_lstm_biases(const attn_lstm_weights *weights, int64_t directions, int64_t gates, float *sums)
{
    for (int64_t d = 0; d < directions; d++)
        for (int64_t i = 0; i < gates; i++) {
            const attn_tensor *x = &weights[d].b_ih, *h = &weights[d].b_hh;
            *sums++ = (x->data ? nn_weight_at(x, 0, i) : 0.0f) + (h->data ? nn_weight_at(h, 0, i) : 0.0f);
        }
}

static attn_status pack_layer(struct nn_lstm_layer *layer, const attn_linear_format *format,
                              const attn_lstm_weights *weights, int64_t directions, float *sums)
{
    const int64_t gates = weights[0].w_hh.shape[2];
    const attn_tensor from_x[2] = {weights[0].w_ih, weights[directions - 1].w_ih};
    const attn_tensor biases[2] = {attn_vector(sums, gates), attn_vector(sums + (directions - 1) * gates, gates)};
    nn_add_lstm_biases(weights, directions, gates, sums);
    CHECK(attn_linear_quantize(&layer->from_x, format, directions, from_x, biases));
    for (int64_t d = 0; d < directions; d++)
        CHECK(attn_linear_quantize(&layer->from_h[d], format, 1, &weights[d].w_hh, NULL));
    return ATTN_OK;
}

static attn_status pack(struct attn_lstm *lstm, const attn_linear_format *format, const attn_lstm_weights *weights)
{
    attn_status status = ATTN_OK;
    float *sums = malloc((size_t)(lstm->directions * 4 * lstm->hidden) * sizeof *sums);
    if (!sums)
        return attn_fail(ATTN_OUT_OF_MEMORY, "biases of %" PRId64 " channels could not be added", lstm->hidden);
    for (int64_t l = 0; l < lstm->num_layers && !status; l++)
        status = pack_layer(&lstm->layers[l], format, weights + l * lstm->directions, lstm->directions, sums);
    free(sums);
    return status;
}

attn_status attn_lstm_create(attn_lstm **lstm_out, const attn_lstm_config *config, const attn_lstm_weights *weights)
{
    if (!lstm_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "lstm is NULL; expected where to put the LSTM");
    *lstm_out = NULL;
    attn_lstm_config ours;
    CHECK(nn_take_lstm_config(&ours, config));
    CHECK(nn_check_lstm_weights(&ours, weights));
    const int64_t layers = layers_of(&ours);
    struct attn_lstm *lstm = calloc(1, sizeof *lstm + (size_t)layers * sizeof *lstm->layers);
    if (!lstm)
        return attn_fail(ATTN_OUT_OF_MEMORY, "an LSTM of %" PRId64 " layers could not be allocated", layers);
    lstm->kernels = attn_nn_kernels_active();
    lstm->input = ours.input;
    lstm->hidden = ours.hidden;
    lstm->num_layers = layers;
    lstm->directions = nn_lstm_directions(&ours);
    const attn_status status = pack(lstm, ours.format, weights);
    if (status) {
        attn_lstm_destroy(lstm);
        return status;
    }
    *lstm_out = lstm;
    return ATTN_OK;
}

void attn_lstm_destroy(attn_lstm *lstm)
{
    if (!lstm)
        return;
    for (int64_t l = 0; l < lstm->num_layers; l++) {
        attn_linear_destroy(lstm->layers[l].from_x);
        attn_linear_destroy(lstm->layers[l].from_h[0]);
        attn_linear_destroy(lstm->layers[l].from_h[1]);
    }
    free(lstm);
}
