/* SPDX-License-Identifier: Apache-2.0 */
/* LSTMs from named weights, as PyTorch's nn.LSTM names them. */
#include "nn/check.h"
#include "nn/lstm.h"
#include "nn/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/** Where a direction of a layer is among the names. */
struct place {
    struct nn_reader *reader;
    const char *prefix;
    int64_t layer, direction;
};

struct parameter {
    char text[64];
};

/** "weight_ih_l0_reverse" and the like. */
static struct parameter parameter_of(const struct place *place, const char *kind)
{
    struct parameter name;
    snprintf(name.text, sizeof name.text, "%s_l%" PRId64 "%s", kind, place->layer, place->direction ? "_reverse" : "");
    return name;
}

static attn_status get(const struct place *place, const char *kind, int64_t rows, int64_t columns, attn_tensor *tensor)
{
    return nn_get(place->reader, place->prefix, parameter_of(place, kind).text, rows, columns, tensor);
}

static attn_status get_direction(const struct place *place, const attn_lstm_config *config, int biases,
                                 attn_lstm_weights *to)
{
    const int64_t gates = 4 * config->hidden, directions = config->bidirectional ? 2 : 1;
    CHECK(get(place, "weight_ih", gates, place->layer ? directions * config->hidden : config->input, &to->w_ih));
    CHECK(get(place, "weight_hh", gates, config->hidden, &to->w_hh));
    if (!biases)
        return ATTN_OK;
    CHECK(get(place, "bias_ih", 0, gates, &to->b_ih));
    return get(place, "bias_hh", 0, gates, &to->b_hh);
}

/** Whether there is any bias: PyTorch has all of them or none, so then all are asked for. */
static int has_biases(struct nn_reader *reader, const char *prefix, int64_t layers, int64_t directions)
{
    for (int64_t i = 0; i < layers * directions; i++) {
        const struct place place = {reader, prefix, i / directions, i % directions};
        if (!nn_has(reader, prefix, parameter_of(&place, "weight_ih").text))
            return 0; /* which will be said, however many layers config names */
        if (nn_has(reader, prefix, parameter_of(&place, "bias_ih").text) ||
            nn_has(reader, prefix, parameter_of(&place, "bias_hh").text))
            return 1;
    }
    return 0;
}

static attn_status load(attn_lstm **lstm, const attn_lstm_config *config, struct nn_reader *reader, const char *prefix)
{
    if (nn_has(reader, prefix, "weight_hr_l0"))
        return attn_fail(ATTN_UNSUPPORTED, "weights has %sweight_hr_l0; an LSTM with proj_size is not supported",
                         prefix);
    const int64_t layers = config->layers ? config->layers : 1, directions = config->bidirectional ? 2 : 1;
    const int biases = has_biases(reader, prefix, layers, directions);
    attn_lstm_weights *found = calloc((size_t)layers, (size_t)directions * sizeof *found);
    if (!found)
        return attn_fail(ATTN_OUT_OF_MEMORY, "views of %" PRId64 " layers could not be allocated", layers);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < layers * directions && !status; i++) {
        const struct place place = {reader, prefix, i / directions, i % directions};
        status = get_direction(&place, config, biases, &found[i]);
    }
    if (!status)
        status = nn_check_all_read(reader, prefix, NULL);
    if (!status)
        status = attn_lstm_create(lstm, config, found);
    free(found);
    return status;
}

attn_status attn_lstm_load(attn_lstm **lstm, const attn_lstm_config *config, const attn_weights *weights,
                           const char *prefix)
{
    if (!lstm)
        return attn_fail(ATTN_INVALID_ARGUMENT, "lstm is NULL; expected where to put the LSTM");
    *lstm = NULL;
    attn_lstm_config ours;
    struct nn_reader reader;
    CHECK(nn_take_lstm_config(&ours, config));
    CHECK(nn_reader_open(&reader, "attn_lstm_load", weights, prefix));
    const attn_status status = load(lstm, &ours, &reader, prefix);
    nn_reader_close(&reader);
    return status;
}
