/* SPDX-License-Identifier: Apache-2.0 */
/* What is checked of a backward pass through an LSTM before anything is written. */
#include "nn/check.h"
#include "nn/lstm_backward.h"

attn_status nn_take_lstm_backward_config(attn_lstm_config *ours, const attn_lstm_config *config)
{
    CHECK(nn_take_lstm_config(ours, config));
    if (ours->layers > 1)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.layers is %lld; expected 1: the backward pass reads what each layer wrote, so several "
                         "layers are trained as that many LSTMs of one",
                         (long long)ours->layers);
    if (ours->format)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.format is set; expected NULL: gradients are those of weights "
                                                "as they are given");
    return ATTN_OK;
}

attn_status nn_take_lstm_gradients(attn_lstm_gradients *ours, const attn_lstm_gradients *gradients)
{
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected what to write");
    CHECK(attn_take_struct("gradients", ours, sizeof *ours, NN_LSTM_GRADIENTS_FIRST, gradients));
    return nn_check_threads(ours->num_threads);
}

/** The matrices and vectors of a direction, under the names that sentences have for them. */
struct members {
    struct nn_name names[4];
    struct nn_argument arguments[4];
};

static void name_members(struct members *m, const char *array, const attn_lstm_weights *weights, int64_t direction)
{
    static const char *const names[] = {"w_ih", "w_hh", "b_ih", "b_hh"};
    const attn_tensor *const tensors[] = {&weights->w_ih, &weights->w_hh, &weights->b_ih, &weights->b_hh};
    for (int i = 0; i < 4; i++) {
        m->names[i] = nn_name_of(array, direction, names[i]);
        m->arguments[i] = (struct nn_argument){m->names[i].text, nn_wanted(tensors[i])};
    }
}

/** The gradients of a direction's weights have the shapes of these, and are apart from all else. */
static attn_status check_weight_gradients(const attn_lstm_config *c, const attn_lstm_gradients *g, int64_t direction)
{
    const int64_t gates = 4 * c->hidden;
    const int64_t shapes[4][2] = {{gates, c->input}, {gates, c->hidden}, {1, gates}, {1, gates}};
    struct members members;
    name_members(&members, "gradients.weights", &g->weights[direction], direction);
    for (int i = 0; i < 4; i++)
        if (members.arguments[i].tensor)
            CHECK(nn_check_sums(members.names[i].text, members.arguments[i].tensor, shapes[i][0], shapes[i][1]));
    return ATTN_OK;
}

/** All that is written is apart from all that is read, and from each other. */
static attn_status check_apart(const attn_lstm_weights *weights, int64_t directions, const struct nn_argument inputs[4],
                               const attn_lstm_gradients *g)
{
    struct members members[4];
    struct nn_argument all_inputs[12], outputs[10];
    int num_inputs = 0, num_outputs = 0;
    outputs[num_outputs++] = (struct nn_argument){"gradients.x", g->x};
    outputs[num_outputs++] = (struct nn_argument){"gradients.state", g->state};
    for (int i = 0; i < 4; i++)
        all_inputs[num_inputs++] = inputs[i];
    for (int64_t d = 0; d < directions; d++) {
        name_members(&members[d], "weights", &weights[d], d);
        for (int i = 0; i < 4; i++)
            all_inputs[num_inputs++] = members[d].arguments[i];
        if (!g->weights)
            continue;
        name_members(&members[2 + d], "gradients.weights", &g->weights[d], d);
        for (int i = 0; i < 4; i++)
            outputs[num_outputs++] = members[2 + d].arguments[i];
    }
    return nn_check_apart(outputs, num_outputs, all_inputs, num_inputs);
}

static attn_status check_state(const char *name, const attn_tensor *state, const attn_lstm_config *c, int64_t batch,
                               int is_written)
{
    CHECK(attn_check_count(name, sizeof(float), nn_lstm_directions(c), batch, 1));
    const int64_t rows = nn_lstm_directions(c) * batch;
    return is_written ? nn_check_typed_output(name, state, 2, rows, c->hidden)
                      : nn_check_typed_activations(name, state, 2, rows, c->hidden);
}

attn_status nn_check_lstm_backward(const attn_lstm_config *c, const attn_lstm_weights *weights, const attn_tensor *x,
                                   const int64_t *lengths, const attn_tensor *state, const attn_tensor *out,
                                   const attn_tensor *d_out, const attn_lstm_gradients *g)
{
    const int64_t channels = nn_lstm_directions(c) * c->hidden;
    CHECK(nn_check_lstm_weights(c, weights));
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, c->input));
    const int64_t batch = x->shape[0], tokens = x->shape[2];
    CHECK(nn_check_lengths("lengths", lengths, batch, tokens, "the tokens of x"));
    CHECK(nn_check_typed_activations("out", out, batch, tokens, channels));
    if (state)
        CHECK(check_state("state", state, c, batch, 0));
    if (d_out)
        CHECK(nn_check_typed_activations("d_out", d_out, batch, tokens, channels));
    if (!d_out && !g->state)
        return attn_fail(ATTN_INVALID_ARGUMENT, "d_out and gradients.state are NULL; expected one of them: there is no "
                                                "gradient to begin with");
    if (!g->x && !g->weights && !g->state)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients has nothing to write; expected x, weights or state");
    if (g->x)
        CHECK(nn_check_typed_output("gradients.x", g->x, batch, tokens, c->input));
    if (g->state)
        CHECK(check_state("gradients.state", g->state, c, batch, 1));
    for (int64_t d = 0; g->weights && d < nn_lstm_directions(c); d++)
        CHECK(check_weight_gradients(c, g, d));
    const struct nn_argument inputs[4] = {{"x", x}, {"state", state}, {"out", out}, {"d_out", d_out}};
    return check_apart(weights, nn_lstm_directions(c), inputs, g);
}
