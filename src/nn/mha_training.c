/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head attention in training: memory, and the forward pass. Products run
 * on weights as they lie, which change between any two calls.
 */
#include "nn/mha_training.h"

#include "api/call.h"
#include "attn/backward.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/linear_backward.h"
#include "nn/product_rows.h"

/* ------------------------------------------------------- views and memory -- */

static attn_tensor rows_of(void *data, attn_dtype dtype, int64_t batch, int64_t tokens, int64_t channels)
{
    attn_tensor t = attn_btc(data, batch, tokens, channels);
    t.dtype = dtype;
    return t;
}

struct nn_mha_core nn_mha_core_of(const struct nn_mha_pass *pass, attn_dtype dtype, void *q, void *kv, void *heads)
{
    const attn_mha_config *c = &pass->config;
    const int64_t k_channels = nn_mha_k_channels(c), kv_channels = nn_mha_kv_channels(c);
    struct nn_mha_core t;
    t.q_rows = rows_of(q, dtype, pass->batch, pass->q_tokens, nn_mha_q_channels(c));
    t.kv_rows = rows_of(kv, dtype, pass->batch, pass->k_tokens, kv_channels);
    t.heads_rows = rows_of(heads, dtype, pass->batch, pass->q_tokens, nn_mha_heads_channels(c));
    t.k_rows = nn_heads_of(&t.kv_rows, 0, 1, k_channels);
    t.v_rows = nn_heads_of(&t.kv_rows, k_channels, 1, kv_channels - k_channels);
    t.q = nn_heads_of(&t.q_rows, 0, c->heads, c->head_dim);
    t.k = nn_heads_of(&t.kv_rows, 0, c->kv_heads, c->head_dim);
    t.v = nn_heads_of(&t.kv_rows, k_channels, c->kv_heads, c->value_dim);
    t.out = nn_heads_of(&t.heads_rows, 0, c->heads, c->value_dim);
    return t;
}

static attn_tensor lse_of(const struct nn_mha_pass *pass, float *lse)
{
    const int64_t heads = pass->config.heads, t = pass->q_tokens;
    return (attn_tensor){
        .data = lse, .dtype = ATTN_F32, .shape = {pass->batch, heads, t, 1}, .stride = {heads * t, t, 1, 1}};
}

static struct nn_mha_kept take_kept(struct nn_arena *arena, const attn_mha_config *c, attn_dtype dtype, int64_t batch,
                                    int64_t q_tokens, int64_t k_tokens)
{
    const size_t size = attn_dtype_size(dtype);
    struct nn_mha_kept kept;
    kept.q = nn_take(arena, batch, q_tokens, nn_mha_q_channels(c), size);
    kept.kv = nn_take(arena, batch, k_tokens, nn_mha_kv_channels(c), size);
    kept.heads = nn_take(arena, batch, q_tokens, nn_mha_heads_channels(c), size);
    kept.lse = nn_take(arena, batch, q_tokens, c->heads, sizeof(float));
    return kept;
}

size_t nn_mha_kept_size(const attn_mha_config *config, attn_dtype dtype, int64_t batch, int64_t q_tokens,
                        int64_t k_tokens)
{
    struct nn_arena arena = {0};
    take_kept(&arena, config, dtype, batch, q_tokens, k_tokens);
    return nn_arena_size(&arena);
}

/** Whether queries, keys, values and heads are computed. */
static int runs_heads(const struct nn_mha_pass *pass)
{
    return !pass->is_backward || !pass->is_kept;
}

attn_gradients nn_mha_core_gradients(const struct nn_mha_pass *pass, const struct nn_mha_core *d)
{
    attn_gradients g = pass->options;
    g.out = &d->out;
    g.q = &d->q;
    g.k = &d->k;
    g.v = &d->v;
    return g;
}

/** The workspace of attention. */
static attn_status measure_core(struct nn_need *need, const struct nn_mha_pass *pass)
{
    const struct nn_mha_core t = nn_mha_core_of(pass, pass->dtype, NULL, NULL, NULL);
    const struct nn_mha_core d = nn_mha_core_of(pass, ATTN_F32, NULL, NULL, NULL);
    const attn_tensor lse = lse_of(pass, NULL);
    attn_params params = pass->params;
    params.lse = &lse;
    *need = (struct nn_need){0};
    if (runs_heads(pass)) {
        struct attn_call forward;
        CHECK(attn_call_make(&forward, &t.q, &t.k, &t.v, &t.out, &params, CHECK_SHAPES));
        *need = (struct nn_need){attn_call_size(&forward), attn_call_least_size(&forward)};
    }
    if (!pass->is_backward)
        return ATTN_OK;
    const attn_gradients g = nn_mha_core_gradients(pass, &d);
    struct nn_need backward;
    CHECK(attn_backward_workspace_size(&t.q, &t.k, &t.v, &t.out, &params, &g, &backward.size));
    params.num_threads = 1;
    CHECK(attn_backward_workspace_size(&t.q, &t.k, &t.v, &t.out, &params, &g, &backward.least));
    *need = nn_larger_need(*need, backward);
    return ATTN_OK;
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct nn_mha_training_pieces take_pieces(struct nn_arena *arena, const struct nn_mha_pass *pass)
{
    const attn_mha_config *c = &pass->config;
    const int64_t q = nn_mha_q_channels(c), kv = nn_mha_kv_channels(c), heads = nn_mha_heads_channels(c);
    const int64_t in = largest(c->d_model, c->d_memory);
    struct nn_mha_training_pieces p = {0};
    if (!pass->is_kept)
        p.kept = take_kept(arena, c, pass->dtype, pass->batch, pass->q_tokens, pass->k_tokens);
    p.d_q = nn_take(arena, pass->batch, pass->q_tokens, q, sizeof(float));
    p.d_kv = nn_take(arena, pass->batch, pass->k_tokens, kv, sizeof(float));
    if (pass->is_backward) {
        p.d_heads = nn_take(arena, pass->batch, pass->q_tokens, heads, sizeof(float));
        p.d_x = nn_take(arena, pass->narrow_x ? pass->batch : 0, pass->q_tokens, c->d_model, sizeof(float));
        p.d_memory = nn_take(arena, pass->narrow_memory ? pass->batch : 0, pass->k_tokens, c->d_memory, sizeof(float));
    } else
        p.sums = nn_take(arena, pass->batch, pass->q_tokens, c->d_out, sizeof(float));
    if (runs_heads(pass)) {
        p.turned = nn_take(arena, largest(in, heads), largest(largest(q, kv), c->d_out), 1, sizeof(float));
        p.biases = nn_take(arena, q + kv + c->d_out, 1, 1, sizeof(float));
    }
    p.scratch = nn_take_workspace(arena, nn_linear_backward_need(pass->params.num_threads), &p.scratch_size);
    struct nn_need need = {0};
    if (!arena->status && !arena->base)
        arena->status = measure_core(&need, pass);
    p.core = nn_take_workspace(arena, need, &p.core_size);
    return p;
}

attn_status nn_mha_pass_need(const struct nn_mha_pass *pass, struct nn_need *need)
{
    struct nn_arena arena = {0};
    take_pieces(&arena, pass);
    *need = nn_arena_need(&arena);
    return arena.status;
}

size_t nn_mha_pass_most(struct nn_mha_pass *pass)
{
    size_t most = 0;
    const attn_executor *before = attn_executor_enter(pass->params.executor);
    for (pass->dtype = ATTN_F32; pass->dtype <= ATTN_F16; pass->dtype++) {
        struct nn_need need;
        nn_mha_pass_need(pass, &need);
        most = need.size > most ? need.size : most;
    }
    attn_executor_leave(before);
    return most;
}

/** Where a caller's memory begins for those who take pieces from it. */
static struct nn_mha_kept callers_kept(const struct nn_mha_pass *pass)
{
    struct nn_workspace memory;
    struct nn_arena measured = {0};
    take_kept(&measured, &pass->config, pass->dtype, pass->batch, pass->q_tokens, pass->k_tokens);
    nn_workspace_open(&memory, pass->kept, SIZE_MAX, &measured);
    return take_kept(&memory.arena, &pass->config, pass->dtype, pass->batch, pass->q_tokens, pass->k_tokens);
}

/** Checks the options of attention with the memory that it runs on. */
static attn_status check_core(struct nn_mha_pass *pass)
{
    const struct nn_mha_kept *kept = &pass->pieces.kept;
    const struct nn_mha_core t = nn_mha_core_of(pass, pass->dtype, kept->q, kept->kv, kept->heads);
    pass->lse = lse_of(pass, kept->lse);
    pass->core_params = pass->params;
    pass->core_params.lse = &pass->lse;
    if (runs_heads(pass))
        CHECK(attn_call_make(&pass->core, &t.q, &t.k, &t.v, &t.out, &pass->core_params, CHECK_ALL));
    if (!pass->is_backward)
        return ATTN_OK;
    const struct nn_mha_training_pieces *p = &pass->pieces;
    const struct nn_mha_core d = nn_mha_core_of(pass, ATTN_F32, p->d_q, p->d_kv, p->d_heads);
    const attn_gradients g = nn_mha_core_gradients(pass, &d);
    return attn_backward_check(&t.q, &t.k, &t.v, &t.out, &pass->core_params, &g);
}

attn_status nn_mha_pass_open(struct nn_mha_pass *pass, void *workspace, size_t workspace_size)
{
    struct nn_arena measured = {0};
    take_pieces(&measured, pass);
    CHECK(nn_workspace_open(&pass->workspace, workspace, workspace_size, &measured));
    pass->pieces = take_pieces(&pass->workspace.arena, pass);
    if (pass->is_kept)
        pass->pieces.kept = callers_kept(pass);
    const attn_status status = check_core(pass);
    if (status)
        nn_mha_pass_close(pass);
    return status;
}

void nn_mha_pass_close(struct nn_mha_pass *pass)
{
    nn_workspace_close(&pass->workspace);
}

/* ------------------------------------------------------------- forward pass -- */

/** Queries, keys and values, by way of the memory of their gradients. */
static void run_projections(const struct nn_mha_pass *pass, const struct nn_mha_core *t)
{
    const attn_mha_config *c = &pass->config;
    const attn_mha_weights *w = &pass->weights;
    const struct nn_mha_training_pieces *p = &pass->pieces;
    const struct nn_mha_core sums = nn_mha_core_of(pass, ATTN_F32, p->d_q, p->d_kv, NULL);
    const struct nn_product_place place = {pass->params.num_threads, p->scratch, p->scratch_size};
    float *q = p->biases, *k = q + nn_mha_q_channels(c), *v = k + nn_mha_k_channels(c);
    nn_take_bias(q, &w->b_q, nn_mha_q_channels(c));
    nn_take_bias(k, &w->b_k, nn_mha_k_channels(c));
    nn_take_bias(v, &w->b_v, nn_mha_kv_channels(c) - nn_mha_k_channels(c));
    nn_multiply_rows(&place, pass->x, &w->w_q, p->turned, &sums.q_rows, 0);
    nn_multiply_rows(&place, pass->memory, &w->w_k, p->turned, &sums.k_rows, 0);
    nn_multiply_rows(&place, pass->memory, &w->w_v, p->turned, &sums.v_rows, 0);
    nn_finish_rows(&(struct nn_finish){.from = &sums.q_rows, .to = &t->q_rows, .bias = q}, place.num_threads);
    nn_finish_rows(&(struct nn_finish){.from = &sums.kv_rows, .to = &t->kv_rows, .bias = k}, place.num_threads);
}

attn_status nn_mha_run_heads(const struct nn_mha_pass *pass)
{
    const struct nn_mha_kept *kept = &pass->pieces.kept;
    const struct nn_mha_core t = nn_mha_core_of(pass, pass->dtype, kept->q, kept->kv, kept->heads);
    run_projections(pass, &t);
    return attn_call_run(&pass->core, pass->pieces.core, pass->pieces.core_size);
}

attn_status nn_mha_run_forward(const struct nn_mha_pass *pass)
{
    const attn_mha_config *c = &pass->config;
    const struct nn_mha_training_pieces *p = &pass->pieces;
    CHECK(nn_mha_run_heads(pass));
    const struct nn_mha_core t = nn_mha_core_of(pass, pass->dtype, p->kept.q, p->kept.kv, p->kept.heads);
    const attn_tensor sums = attn_btc(p->sums, pass->batch, pass->q_tokens, c->d_out);
    float *bias = p->biases + nn_mha_q_channels(c) + nn_mha_kv_channels(c);
    const struct nn_product_place place = {pass->params.num_threads, p->scratch, p->scratch_size};
    nn_take_bias(bias, &pass->weights.b_o, c->d_out);
    nn_multiply_rows(&place, &t.heads_rows, &pass->weights.w_o, p->turned, &sums, 0);
    nn_finish_rows(
        &(struct nn_finish){
            .from = &sums, .to = pass->out, .bias = bias, .dropout = pass->dropout, .residual = pass->residual},
        place.num_threads);
    return ATTN_OK;
}

/* ---------------------------------------------------------- the public calls -- */

size_t attn_mha_kept_size(const attn_mha_config *config, attn_dtype dtype, int64_t batch, int64_t q_tokens,
                          int64_t k_tokens)
{
    attn_mha_config ours;
    if (nn_mha_take_training_config(&ours, config) || nn_check_layer_type("dtype", dtype) ||
        nn_check_length("batch", batch, 0) || nn_check_length("q_tokens", q_tokens, 0) ||
        nn_check_length("k_tokens", k_tokens, 0))
        return SIZE_MAX;
    return nn_mha_kept_size(&ours, dtype, batch, q_tokens, k_tokens);
}

size_t attn_mha_train_workspace_size(const attn_mha_config *config, int64_t batch, int64_t q_tokens, int64_t k_tokens,
                                     const attn_params *params, int keeps)
{
    struct nn_mha_pass pass = {.batch = batch, .q_tokens = q_tokens, .k_tokens = k_tokens, .is_kept = keeps != 0};
    if (nn_mha_take_training_config(&pass.config, config) || nn_mha_take_training_params(&pass, params) ||
        nn_check_length("batch", batch, 0) || nn_check_length("q_tokens", q_tokens, 0) ||
        nn_check_length("k_tokens", k_tokens, 0))
        return SIZE_MAX;
    pass.crosses = 1;
    return nn_mha_pass_most(&pass);
}

attn_status attn_mha_train(const attn_mha_config *config, const attn_mha_weights *weights, const attn_tensor *x,
                           const attn_tensor *memory, const attn_params *params, const attn_tensor *out, void *kept,
                           size_t kept_size, void *workspace, size_t workspace_size)
{
    struct nn_mha_pass pass = {.x = x, .out = out};
    CHECK(nn_mha_take_training_config(&pass.config, config));
    CHECK(nn_mha_take_training_params(&pass, params));
    CHECK(nn_mha_check_inputs(&pass, weights, memory, kept, kept_size, "kept_size"));
    CHECK(nn_mha_check_out(&pass, memory));
    const attn_executor *before = attn_executor_enter(pass.params.executor);
    attn_status status = nn_mha_pass_open(&pass, workspace, workspace_size);
    if (!status) {
        status = nn_mha_run_forward(&pass);
        nn_mha_pass_close(&pass);
    }
    attn_executor_leave(before);
    return status;
}
