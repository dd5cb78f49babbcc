/* SPDX-License-Identifier: Apache-2.0 */
/* A Transformer layer on whole sequences, without a cache (block.h). */
#include "real.h"

/** What one sublayer needs. */
struct sublayer {
    const struct oracle_block *block;
    const struct oracle_block_inputs *inputs;
    const attn_params *self; /**< with the rotation in it */
    int64_t batch, tokens;
    double *self_weights, *cross_weights;
};

/** Dropout of rows; its counters are those that offset more would have. */
static void drop(const attn_dropout *dropout, int offset, int64_t batch, int64_t tokens, int64_t channels, double *x)
{
    attn_dropout ours;
    if (!dropout)
        return;
    ours = *dropout;
    ours.offset += (uint64_t)offset;
    for (int64_t i = 0; i < batch * tokens * channels; i++)
        x[i] = attn_dropout_keeps(&ours, i / channels / tokens, 0, i / channels % tokens, i % channels)
                   ? KEPT((real)x[i] / (1 - (real)ours.p))
                   : 0;
}

static void feed_forward(const struct sublayer *s, const double *x, double *y)
{
    const struct oracle_block *b = s->block;
    const int64_t rows = s->batch * s->tokens;
    double *up = new_array(rows * b->d_ff);
    ORACLE(oracle_linear)(&b->up, rows, x, b->gated ? ATTN_ACTIVATION_NONE : b->activation, NULL, up);
    if (b->gated) {
        double *gate = new_array(rows * b->d_ff);
        ORACLE(oracle_linear)(&b->gate, rows, x, ATTN_ACTIVATION_NONE, NULL, gate);
        ORACLE(oracle_gate)(b->activation, rows * b->d_ff, gate, up, up);
        free(gate);
    }
    drop(s->inputs->hidden_dropout, 0, s->batch, s->tokens, b->d_ff, up);
    ORACLE(oracle_linear)(&b->down, rows, up, ATTN_ACTIVATION_NONE, NULL, y);
    free(up);
}

/** Sublayer 0, self-attention, 1, cross-attention, or 2, the network. */
static void run(const struct sublayer *s, int which, const double *x, double *y)
{
    if (which == 0)
        ORACLE(oracle_mha_forward)
    (&s->block->self, s->batch, s->tokens, x, s->tokens, NULL, s->self, y, s->self_weights);
    else if (which == 1) ORACLE(oracle_mha_forward)(&s->block->cross, s->batch, s->tokens, x, s->inputs->tm,
                                                    s->inputs->memory, s->inputs->cross, y, s->cross_weights);
    else feed_forward(s, x, y);
}

static void normalise(const struct oracle_block *b, const struct oracle_norm *norm, int64_t rows, const double *x,
                      double *y)
{
    struct oracle_norm ours = *norm;
    double *gamma = NULL;
    if (b->norm_plus_one) {
        ours.gamma = gamma = new_array(norm->channels);
        for (int64_t c = 0; c < norm->channels; c++)
            gamma[c] = (double)(1 + (real)norm->gamma[c]);
    }
    ORACLE(oracle_normalise)(&ours, rows, x, y);
    free(gamma);
}

void ORACLE(oracle_block_forward)(const struct oracle_block *block, int64_t batch, int64_t tokens, const double *x,
                                  const struct oracle_block_inputs *inputs, double *out, double *self_weights,
                                  double *cross_weights)
{
    const struct oracle_block_inputs none = {0};
    const int64_t rows = batch * tokens, n = rows * block->d_model;
    inputs = inputs ? inputs : &none;
    attn_params self = inputs->self ? *inputs->self : attn_params_default();
    const attn_rope_tables rope = {inputs->rope, inputs->rotation, inputs->rotation};
    if (inputs->rotation)
        self.rope = &rope;
    const struct sublayer s = {block, inputs, &self, batch, tokens, self_weights, cross_weights};
    double *state = new_array(n), *normed = new_array(n), *change = new_array(n);
    memcpy(state, x, (size_t)n * sizeof *state);
    int norm = 0;
    for (int which = 0; which < 3; which++) {
        if (which == 1 && !block->has_cross)
            continue;
        if (block->norm_first)
            normalise(block, &block->norms[norm], rows, state, normed);
        run(&s, which, block->norm_first ? normed : state, change);
        if (block->post_norms) {
            normalise(block, &block->after[which / 2], rows, change, normed);
            memcpy(change, normed, (size_t)n * sizeof *change);
        }
        drop(inputs->dropout, which, batch, tokens, block->d_model, change);
        for (int64_t i = 0; i < n; i++)
            state[i] = KEPT((real)state[i] + (real)change[i]);
        if (!block->norm_first) {
            normalise(block, &block->norms[norm], rows, state, normed);
            memcpy(state, normed, (size_t)n * sizeof *state);
        }
        norm++;
    }
    memcpy(out, state, (size_t)n * sizeof *out);
    free(state);
    free(normed);
    free(change);
}
