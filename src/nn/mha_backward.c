/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of multi-head attention. The forward pass up to the heads runs
 * again, on weights as they lie; then
 *
 *     d_heads = d_out W_o
 *     d_q, d_k, d_v of attention, and of its options
 *     d_W_o = d_outᵀ heads,  d_W_q = d_qᵀ x,  d_W_k = d_kᵀ m,  d_W_v = d_vᵀ m,  biases likewise
 *     d_x = d_q W_q,  d_m = d_k W_k + d_v W_v                   one sum where m is x
 *
 * Attention checks its options when it is called. Nothing but workspace has been
 * written by then.
 */
#include "nn/mha_training.h"

#include "driver/threads.h"
#include "nn/check.h"
#include "nn/linear_backward.h"
#include "nn/product_rows.h"

static struct nn_product_place place_of(const struct nn_mha_pass *pass)
{
    return (struct nn_product_place){pass->params.num_threads, pass->pieces.scratch, pass->pieces.scratch_size};
}

/** The gradients of a matrix and its bias. */
static void run_weights(const struct nn_mha_pass *pass, const attn_tensor *w, const attn_tensor *rows,
                        const attn_tensor *d, const attn_tensor *to, const attn_tensor *to_bias)
{
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.weights = nn_wanted(to);
    gradients.bias = nn_wanted(to_bias);
    gradients.accumulate = pass->gradients.accumulate;
    gradients.num_threads = pass->params.num_threads;
    nn_linear_backward(w, rows, d, &gradients, pass->pieces.scratch, pass->pieces.scratch_size);
}

/** Where sums for a gradient are made: in it, or in memory from which they are rounded. */
static attn_tensor sums_of(const attn_tensor *gradient, float *memory)
{
    return gradient->dtype == ATTN_F32 ? *gradient
                                       : attn_btc(memory, gradient->shape[0], gradient->shape[2], gradient->shape[3]);
}

static void narrow(const struct nn_mha_pass *pass, const attn_tensor *sums, const attn_tensor *to)
{
    if (to->dtype != ATTN_F32)
        nn_finish_rows(&(struct nn_finish){.from = sums, .to = to}, pass->params.num_threads);
}

/** Gradients of x and of the memory. */
static void run_inputs(const struct nn_mha_pass *pass, const struct nn_mha_core *d)
{
    const struct nn_product_place place = place_of(pass);
    const attn_mha_gradients *g = &pass->gradients;
    const attn_mha_weights *w = &pass->weights;
    attn_tensor x, memory;
    if (g->x) {
        x = sums_of(g->x, pass->pieces.d_x);
        nn_multiply_back(&place, &d->q_rows, &w->w_q, &x, pass->accumulate_x);
        if (!pass->crosses) {
            nn_multiply_back(&place, &d->k_rows, &w->w_k, &x, 1);
            nn_multiply_back(&place, &d->v_rows, &w->w_v, &x, 1);
        }
        narrow(pass, &x, g->x);
    }
    if (g->memory) {
        memory = sums_of(g->memory, pass->pieces.d_memory);
        nn_multiply_back(&place, &d->k_rows, &w->w_k, &memory, pass->accumulate_memory);
        nn_multiply_back(&place, &d->v_rows, &w->w_v, &memory, 1);
        narrow(pass, &memory, g->memory);
    }
}

attn_status nn_mha_run_backward(const struct nn_mha_pass *pass)
{
    const struct nn_mha_training_pieces *p = &pass->pieces;
    const struct nn_mha_core t = nn_mha_core_of(pass, pass->dtype, p->kept.q, p->kept.kv, p->kept.heads);
    const struct nn_mha_core d = nn_mha_core_of(pass, ATTN_F32, p->d_q, p->d_kv, p->d_heads);
    const attn_gradients g = nn_mha_core_gradients(pass, &d);
    const attn_mha_weights *w = &pass->weights, *to = &pass->sums;
    const struct nn_product_place place = place_of(pass);
    if (!pass->is_kept)
        CHECK(nn_mha_run_heads(pass));
    nn_multiply_back(&place, pass->d_out, &w->w_o, &d.heads_rows, 0);
    CHECK(attn_backward_in(&t.q, &t.k, &t.v, &t.out, &pass->core_params, &g, p->core, p->core_size));
    run_weights(pass, &w->w_o, &t.heads_rows, pass->d_out, &to->w_o, &to->b_o);
    run_weights(pass, &w->w_q, pass->x, &d.q_rows, &to->w_q, &to->b_q);
    run_weights(pass, &w->w_k, pass->memory, &d.k_rows, &to->w_k, &to->b_k);
    run_weights(pass, &w->w_v, pass->memory, &d.v_rows, &to->w_v, &to->b_v);
    run_inputs(pass, &d);
    return ATTN_OK;
}

/* ---------------------------------------------------------- the public calls -- */

size_t attn_mha_backward_workspace_size(const attn_mha_config *config, int64_t batch, int64_t q_tokens,
                                        int64_t k_tokens, const attn_params *params,
                                        const attn_mha_gradients *gradients)
{
    struct nn_mha_pass pass = {.is_backward = 1};
    if (nn_mha_take_training_config(&pass.config, config) || nn_mha_take_gradients(&pass, gradients) ||
        nn_mha_take_training_params(&pass, params) || nn_check_length("batch", batch, 0) ||
        nn_check_length("q_tokens", q_tokens, 0) || nn_check_length("k_tokens", k_tokens, 0))
        return SIZE_MAX;
    pass.batch = batch;
    pass.q_tokens = q_tokens;
    pass.k_tokens = k_tokens;
    pass.crosses = pass.narrow_x = pass.narrow_memory = 1;
    pass.is_kept = pass.gradients.kept != NULL;
    return nn_mha_pass_most(&pass);
}

attn_status attn_mha_backward(const attn_mha_config *config, const attn_mha_weights *weights, const attn_tensor *x,
                              const attn_tensor *memory, const attn_params *params, const attn_tensor *d_out,
                              const attn_mha_gradients *gradients, void *workspace, size_t workspace_size)
{
    struct nn_mha_pass pass = {.x = x, .d_out = d_out, .is_backward = 1};
    CHECK(nn_mha_take_training_config(&pass.config, config));
    CHECK(nn_mha_take_gradients(&pass, gradients));
    CHECK(nn_mha_take_training_params(&pass, params));
    CHECK(nn_mha_check_inputs(&pass, weights, memory, (void *)(uintptr_t)pass.gradients.kept, pass.gradients.kept_size,
                              "gradients.kept_size"));
    CHECK(nn_mha_check_gradients(&pass, memory));
    const attn_executor *before = attn_executor_enter(pass.params.executor);
    attn_status status = nn_mha_pass_open(&pass, workspace, workspace_size);
    if (!status) {
        status = nn_mha_run_backward(&pass);
        nn_mha_pass_close(&pass);
    }
    attn_executor_leave(before);
    return status;
}
