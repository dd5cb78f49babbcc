/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM, gated recurrent unit, and Bahdanau's step (recurrent.h). */
#include "real.h"

/** W_ih x + b_ih + W_hh h + b_hh of one gate row. */
static real gate_row(int64_t row, const double *w_ih, int64_t inputs, const double *x, const double *b_ih)
{
    const real product = (real)ORACLE(oracle_dot)(inputs, w_ih + row * inputs, x);
    return b_ih ? product + (real)b_ih[row] : product;
}

static void lstm_step(const struct oracle_lstm_weights *w, int64_t inputs, int64_t hidden, const double *x, double *h,
                      double *c)
{
    double *gates = new_array(4 * hidden);
    for (int64_t n = 0; n < 4 * hidden; n++)
        gates[n] = KEPT((real)KEPT(gate_row(n, w->w_ih, inputs, x, w->b_ih)) +
                        (real)KEPT(gate_row(n, w->w_hh, hidden, h, w->b_hh)));
    for (int64_t n = 0; n < hidden; n++) {
        const real in = sigmoid((real)gates[n]), forget = sigmoid((real)gates[hidden + n]);
        const real cell = tanh((real)gates[2 * hidden + n]), out = sigmoid((real)gates[3 * hidden + n]);
        const real next = forget * (real)c[n] + in * cell;
        c[n] = KEPT(next);
        h[n] = KEPT(out * tanh(next));
    }
    free(gates);
}

void ORACLE(oracle_lstm)(const struct oracle_lstm *l, int64_t batch, int64_t tokens, const double *x,
                         const int64_t *lengths, double *h, double *c, double *out)
{
    const int64_t width = l->directions * l->hidden, most = width > l->input ? width : l->input;
    double *below = new_array(batch * tokens * most);
    memcpy(below, x, (size_t)(batch * tokens * l->input) * sizeof *below);
    for (int64_t layer = 0; layer < l->layers; layer++) {
        const int64_t inputs = layer == 0 ? l->input : width;
        for (int64_t i = 0; i < batch * tokens * width; i++)
            out[i] = 0;
        for (int64_t direction = 0; direction < l->directions; direction++)
            for (int64_t b = 0; b < batch; b++) {
                const int64_t part = layer * l->directions + direction, length = lengths ? lengths[b] : tokens;
                double *hidden = h + (part * batch + b) * l->hidden, *cell = c + (part * batch + b) * l->hidden;
                for (int64_t step = 0; step < length; step++) {
                    const int64_t t = b * tokens + (direction ? length - 1 - step : step);
                    lstm_step(&l->weights[part], inputs, l->hidden, below + t * inputs, hidden, cell);
                    memcpy(out + t * width + direction * l->hidden, hidden, (size_t)l->hidden * sizeof *out);
                }
            }
        memcpy(below, out, (size_t)(batch * tokens * width) * sizeof *below);
    }
    free(below);
}

void ORACLE(oracle_gru)(const struct oracle_gru *g, const double *x, double *state)
{
    const int64_t n = g->hidden;
    double *next = new_array(n);
    for (int64_t i = 0; i < n; i++) {
        const real reset =
            sigmoid(gate_row(i, g->w_ih, g->input, x, g->b_ih) + gate_row(i, g->w_hh, n, state, g->b_hh));
        const real update =
            sigmoid(gate_row(n + i, g->w_ih, g->input, x, g->b_ih) + gate_row(n + i, g->w_hh, n, state, g->b_hh));
        const real new_state = tanh(gate_row(2 * n + i, g->w_ih, g->input, x, g->b_ih) +
                                    reset * gate_row(2 * n + i, g->w_hh, n, state, g->b_hh));
        next[i] = (1 - update) * new_state + update * (real)state[i];
    }
    memcpy(state, next, (size_t)n * sizeof *state);
    free(next);
}

void ORACLE(oracle_bahdanau)(const struct oracle_alignment *a, const struct oracle_gru *gru, int64_t batch,
                             int64_t tokens, int64_t annotation, const double *word, const double *annotations,
                             const int64_t *lengths, double *state, double *context, double *weights)
{
    const int64_t embedding = gru->input - annotation;
    attn_params params = attn_params_default();
    params.kv_len = lengths;
    double *projected = new_array(batch * tokens * a->d_attention), *input = new_array(gru->input);
    ORACLE(oracle_align_project)(a, batch * tokens, annotations, projected);
    ORACLE(oracle_align)
    (a, batch, 1, tokens, annotation, state, projected, annotations, &params, context, weights, NULL);
    for (int64_t b = 0; b < batch; b++) {
        memcpy(input, word + b * embedding, (size_t)embedding * sizeof *input);
        memcpy(input + embedding, context + b * annotation, (size_t)annotation * sizeof *input);
        ORACLE(oracle_gru)(gru, input, state + b * gru->hidden);
    }
    free(projected);
    free(input);
}
