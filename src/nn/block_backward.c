/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of a Transformer layer: sublayers from the last to the first.
 * d is the gradient of the residual stream; of each sublayer
 *
 *     post-norm:  d = d_sum of norm(sum);  d += d_rows of sublayer(rows)
 *     pre-norm:   d += d_r of norm(r), from d_rows of sublayer(norm(r))
 */
#include "nn/block_training.h"

#include "driver/threads.h"
#include "nn/check.h"
#include "nn/linear_backward.h"

/** Gradients on their way. */
struct gradients {
    attn_tensor d;    /* of the residual stream, f32 */
    attn_tensor rows; /* of what a sublayer reads, f32: d itself in post-norm layers, which the sublayer adds to */
};

/** The gradients of the norm of a sublayer, whose input was rows; in place. */
static attn_status normalise_back(const struct nn_block_run *run, int sublayer, const attn_tensor *rows,
                                  const attn_tensor *d_out, const attn_tensor *d)
{
    const struct nn_norm_tensors sums = nn_block_norm(&run->sums, sublayer);
    attn_norm_gradients g = attn_norm_gradients_default();
    g.x = d;
    g.gamma = sums.gamma;
    g.beta = sums.beta;
    g.accumulate = run->gradients.accumulate;
    g.num_threads = run->pass.num_threads;
    return attn_normalise_backward(run->config.norm, rows, nn_block_norm(&run->weights, sublayer).gamma,
                                   run->config.eps, d_out, &g, run->pieces.inner, run->pieces.inner_size);
}

/** In pre-norm layers: the norm before a sublayer, which has read r, and the residual past it. */
static attn_status join_residual(const struct nn_block_run *run, int sublayer, const attn_tensor *r,
                                 const struct gradients *g)
{
    CHECK(normalise_back(run, sublayer, r, &g->rows, &g->rows));
    nn_finish_rows(&(struct nn_finish){.from = &g->rows, .to = &g->d, .residual = &g->d}, run->pass.num_threads);
    return ATTN_OK;
}

/** The gradient of what a sublayer has added, before its dropout: d, or in memory of its own. */
static attn_tensor branch_of(const struct nn_block_run *run, int sublayer, const attn_tensor *d)
{
    attn_dropout dropout;
    if (!nn_block_dropout(run, sublayer, &dropout))
        return *d;
    const attn_tensor branch = nn_block_rows(run, run->pieces.branch, ATTN_F32, d->shape[3]);
    nn_finish_rows(&(struct nn_finish){.from = d, .to = &branch, .dropout = &dropout}, run->pass.num_threads);
    return branch;
}

static void weigh_back(const struct nn_block_run *run, const attn_tensor *w, const attn_tensor *rows,
                       const attn_tensor *d, const attn_tensor *to, const attn_tensor *to_bias)
{
    attn_linear_gradients g = attn_linear_gradients_default();
    g.weights = nn_wanted(to);
    g.bias = nn_wanted(to_bias);
    g.accumulate = run->gradients.accumulate;
    g.num_threads = run->pass.num_threads;
    nn_linear_backward(w, rows, d, &g, run->pieces.scratch, run->pieces.scratch_size);
}

/** The activation or gate: d_hidden becomes the gradient of what up has given, d_gate that of the gate. */
static attn_status activate_back(const struct nn_block_run *run, const attn_tensor *d_hidden, const attn_tensor *d_gate)
{
    const attn_block_config *c = &run->config;
    const struct nn_block_kept *kept = &run->pieces.kept;
    const int threads = run->pass.num_threads;
    const attn_tensor hidden = nn_block_rows(run, kept->hidden, run->dtype, c->d_ff);
    const attn_tensor gate = nn_block_rows(run, kept->gate, run->dtype, c->d_ff);
    if (run->pass.hidden_dropout)
        CHECK(attn_drop_activations(run->pass.hidden_dropout, d_hidden, d_hidden, threads));
    if (c->gated)
        return attn_gate_backward(c->activation, &gate, &hidden, d_hidden, d_gate, d_hidden, threads);
    return attn_activate_backward(c->activation, &hidden, d_hidden, d_hidden, threads);
}

/** The network, which has read rows. */
static attn_status network_back(const struct nn_block_run *run, const attn_tensor *rows, const struct gradients *g)
{
    const attn_block_config *c = &run->config;
    const attn_block_weights *w = &run->weights, *to = &run->sums;
    const struct nn_product_place place = nn_block_place(run);
    const attn_tensor d_hidden = nn_block_rows(run, run->pieces.wide[0], ATTN_F32, c->d_ff);
    const attn_tensor d_gate = nn_block_rows(run, run->pieces.wide[1], ATTN_F32, c->d_ff);
    const attn_tensor branch = branch_of(run, NN_NETWORK, &g->d);
    attn_tensor activated;
    CHECK(nn_block_activate(run, &activated));
    weigh_back(run, &w->w_down, &activated, &branch, &to->w_down, &to->b_down);
    nn_multiply_back(&place, &branch, &w->w_down, &d_hidden, 0);
    CHECK(activate_back(run, &d_hidden, &d_gate));
    weigh_back(run, &w->w_up, rows, &d_hidden, &to->w_up, &to->b_up);
    nn_multiply_back(&place, &d_hidden, &w->w_up, &g->rows, !c->norm_first);
    if (c->gated) {
        weigh_back(run, &w->w_gate, rows, &d_gate, &to->w_gate, &to->b_gate);
        nn_multiply_back(&place, &d_gate, &w->w_gate, &g->rows, 1);
    }
    return ATTN_OK;
}

/** An attention, which has read rows. */
static attn_status attention_back(struct nn_block_run *run, int s, const attn_tensor *rows, const struct gradients *g)
{
    struct nn_mha_pass *a = &run->attention[s];
    const attn_tensor branch = branch_of(run, s, &g->d);
    a->x = rows;
    a->memory = s == NN_CROSS ? run->pass.memory : rows;
    a->d_out = &branch;
    a->is_backward = 1;
    a->gradients.x = &g->rows;
    a->accumulate_x = !run->config.norm_first;
    a->gradients.memory = s == NN_CROSS ? run->gradients.memory : NULL;
    a->accumulate_memory = run->gradients.accumulate_memory;
    a->gradients.accumulate = run->gradients.accumulate;
    CHECK(nn_mha_pass_open(a, run->pieces.inner, run->pieces.inner_size));
    const attn_status status = nn_mha_run_backward(a);
    nn_mha_pass_close(a);
    return status;
}

/** Attentions, the last one first. */
static attn_status attentions_back(struct nn_block_run *run, const struct gradients *g)
{
    for (int s = nn_block_last_attention(run); s >= NN_SELF; s--) {
        const attn_tensor sum = nn_block_sum(run, s), before = s > NN_SELF ? nn_block_sum(run, s - 1) : *run->x;
        attn_tensor rows = *run->x;
        if (!run->config.norm_first)
            CHECK(normalise_back(run, s, &sum, &g->d, &g->d));
        if (run->config.norm_first)
            CHECK(nn_block_normalise(run, s, &before, &rows));
        else if (s > NN_SELF)
            CHECK(nn_block_normalise(run, s - 1, &before, &rows));
        CHECK(attention_back(run, s, &rows, g));
        if (run->config.norm_first)
            CHECK(join_residual(run, s, &before, g));
    }
    return ATTN_OK;
}

static attn_status run_backward(struct nn_block_run *run)
{
    const int64_t d_model = run->config.attention->d_model;
    const int norm_first = run->config.norm_first, threads = run->pass.num_threads;
    const int last = nn_block_last_attention(run);
    struct gradients g = {.d = nn_block_rows(run, run->pieces.d, ATTN_F32, d_model)};
    const attn_tensor sum = nn_block_sum(run, NN_NETWORK), before = nn_block_sum(run, last);
    attn_tensor rows;
    g.rows = norm_first ? nn_block_rows(run, run->pieces.d_normed, ATTN_F32, d_model) : g.d;
    if (!run->pass.kept)
        CHECK(nn_block_run_kept(run));
    if (norm_first)
        nn_finish_rows(&(struct nn_finish){.from = run->d_out, .to = &g.d}, threads);
    else
        CHECK(normalise_back(run, NN_NETWORK, &sum, run->d_out, &g.d));
    CHECK(nn_block_normalise(run, norm_first ? NN_NETWORK : last, &before, &rows));
    CHECK(network_back(run, &rows, &g));
    if (norm_first)
        CHECK(join_residual(run, NN_NETWORK, &before, &g));
    CHECK(attentions_back(run, &g));
    if (run->gradients.x)
        nn_finish_rows(&(struct nn_finish){.from = &g.d, .to = run->gradients.x}, threads);
    return ATTN_OK;
}

/* ---------------------------------------------------------- the public calls -- */

size_t attn_block_backward_workspace_size(const attn_block_config *config, int64_t batch, int64_t tokens,
                                          int64_t memory_tokens, const attn_block_pass *pass,
                                          const attn_block_gradients *gradients)
{
    struct nn_block_run run = {.batch = batch, .tokens = tokens, .memory_tokens = memory_tokens, .is_backward = 1};
    if (nn_block_take_pass(&run, config, pass) || nn_block_take_gradients(&run, gradients) ||
        nn_check_length("batch", batch, 0) || nn_check_length("tokens", tokens, 0) ||
        nn_check_length("memory_tokens", memory_tokens, 0))
        return SIZE_MAX;
    run.narrow_memory = 1;
    return nn_block_most(&run);
}

attn_status attn_block_backward(const attn_block_config *config, const attn_block_weights *weights,
                                const attn_tensor *x, const attn_block_pass *pass, const attn_tensor *d_out,
                                const attn_block_gradients *gradients, void *workspace, size_t workspace_size)
{
    struct nn_block_run run = {.is_backward = 1};
    CHECK(nn_block_take_pass(&run, config, pass));
    CHECK(nn_block_take_gradients(&run, gradients));
    CHECK(nn_block_check_inputs(&run, weights, x));
    run.d_out = d_out;
    CHECK(nn_block_check_gradients(&run, d_out));
    run.narrow_memory = run.gradients.memory && run.gradients.memory->dtype != ATTN_F32;
    const attn_executor *before = attn_executor_enter(run.pass.executor);
    attn_status status = nn_block_open(&run, workspace, workspace_size);
    if (!status) {
        status = run_backward(&run);
        nn_block_close(&run);
    }
    attn_executor_leave(before);
    return status;
}
