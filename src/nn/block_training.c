/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Transformer layer in training: memory, and the forward pass.
 */
#include "nn/block_training.h"

#include "driver/threads.h"
#include "nn/check.h"
#include "nn/linear_backward.h"

/* ------------------------------------------------------- views and memory -- */

attn_tensor nn_block_rows(const struct nn_block_run *run, void *data, attn_dtype dtype, int64_t channels)
{
    attn_tensor t = attn_btc(data, run->batch, run->tokens, channels);
    t.dtype = dtype;
    return t;
}

attn_tensor nn_block_sum(const struct nn_block_run *run, int sublayer)
{
    return nn_block_rows(run, run->pieces.kept.sums[sublayer], run->dtype, run->config.attention->d_model);
}

int nn_block_last_attention(const struct nn_block_run *run)
{
    return run->config.cross ? NN_CROSS : NN_SELF;
}

struct nn_product_place nn_block_place(const struct nn_block_run *run)
{
    return (struct nn_product_place){run->pass.num_threads, run->pieces.scratch, run->pieces.scratch_size};
}

const attn_dropout *nn_block_dropout(const struct nn_block_run *run, int sublayer, attn_dropout *of)
{
    if (!run->pass.dropout)
        return NULL;
    *of = *run->pass.dropout;
    of->offset += (uint64_t)sublayer;
    return of;
}

static int64_t keys_of(const struct nn_block_run *run, int attention)
{
    return attention == NN_CROSS ? run->memory_tokens : run->tokens;
}

static struct nn_block_kept take_kept(struct nn_arena *arena, const struct nn_block_run *run)
{
    const attn_block_config *c = &run->config;
    const size_t size = attn_dtype_size(run->dtype);
    struct nn_block_kept kept = {{NULL}, {NULL}, NULL, NULL};
    for (int s = NN_SELF; s < NN_SUBLAYERS; s++) {
        if (s == NN_CROSS && !c->cross)
            continue;
        if (s < NN_NETWORK)
            kept.attention[s] = nn_take_bytes(arena, nn_mha_kept_size(&run->attention[s].config, run->dtype, run->batch,
                                                                      run->tokens, keys_of(run, s)));
        if (s < NN_NETWORK || !c->norm_first)
            kept.sums[s] = nn_take(arena, run->batch, run->tokens, c->attention->d_model, size);
    }
    kept.hidden = nn_take(arena, run->batch, run->tokens, c->d_ff, size);
    if (c->gated)
        kept.gate = nn_take(arena, run->batch, run->tokens, c->d_ff, size);
    return kept;
}

size_t nn_block_kept_size(const struct nn_block_run *run)
{
    struct nn_arena arena = {0};
    take_kept(&arena, run);
    return nn_arena_size(&arena);
}

/** A pass through an attention as the run's own; x and others come when it runs. */
static void set_attention(struct nn_block_run *run, int s, int is_backward)
{
    struct nn_mha_pass *a = &run->attention[s];
    a->dtype = run->dtype;
    a->batch = run->batch;
    a->q_tokens = run->tokens;
    a->k_tokens = keys_of(run, s);
    a->crosses = s == NN_CROSS;
    a->narrow_memory = s == NN_CROSS && run->narrow_memory;
    a->is_kept = 1;
    a->kept = run->pieces.kept.attention[s];
    a->is_backward = is_backward;
}

/** Whether the forward pass runs, in whole or again. */
static int runs_forward(const struct nn_block_run *run)
{
    return !run->is_backward || !run->pass.kept;
}

/** What attentions and norms need, one at a time. */
static attn_status measure_inner(struct nn_block_run *run, struct nn_need *need)
{
    struct nn_need attention;
    *need = (struct nn_need){0};
    for (int s = NN_SELF; s <= nn_block_last_attention(run); s++)
        for (int backward = !runs_forward(run); backward <= run->is_backward; backward++) {
            set_attention(run, s, backward);
            CHECK(nn_mha_pass_need(&run->attention[s], &attention));
            *need = nn_larger_need(*need, attention);
        }
    if (run->is_backward) {
        static const attn_tensor wanted;
        attn_norm_gradients g = attn_norm_gradients_default();
        g.gamma = &wanted;
        g.beta = run->config.norm == ATTN_NORM_RMS ? NULL : &wanted;
        const size_t size =
            attn_normalise_backward_workspace_size(run->batch, run->tokens, run->config.attention->d_model, &g);
        *need = nn_larger_need(*need, (struct nn_need){size, size});
    }
    return ATTN_OK;
}

static struct nn_block_pieces take_pieces(struct nn_arena *arena, struct nn_block_run *run)
{
    const attn_block_config *c = &run->config;
    const int64_t b = run->batch, t = run->tokens, d = c->attention->d_model;
    const size_t size = attn_dtype_size(run->dtype);
    const int narrow = run->dtype != ATTN_F32;
    struct nn_block_pieces p = {.kept = {{NULL}, {NULL}, NULL, NULL}};
    if (!run->pass.kept)
        p.kept = take_kept(arena, run);
    p.normed = nn_take(arena, b, t, d, size);
    p.activated = nn_take(arena, b, t, c->d_ff, size);
    if (run->is_backward || narrow)
        p.wide[0] = nn_take(arena, b, t, c->d_ff, sizeof(float));
    if (run->is_backward && c->gated)
        p.wide[1] = nn_take(arena, b, t, c->d_ff, sizeof(float));
    p.branch = nn_take(arena, b, t, d, sizeof(float));
    if (run->is_backward) {
        p.d = nn_take(arena, b, t, d, sizeof(float));
        if (c->norm_first)
            p.d_normed = nn_take(arena, b, t, d, sizeof(float));
    }
    if (runs_forward(run)) {
        p.turned = nn_take(arena, d, c->d_ff, 1, sizeof(float));
        p.biases = nn_take(arena, d > c->d_ff ? d : c->d_ff, 1, 1, sizeof(float));
    }
    p.scratch = nn_take_workspace(arena, nn_linear_backward_need(run->pass.num_threads), &p.scratch_size);
    struct nn_need need = {0};
    if (!arena->status && !arena->base)
        arena->status = measure_inner(run, &need);
    p.inner = nn_take_workspace(arena, need, &p.inner_size);
    return p;
}

attn_status nn_block_run_need(struct nn_block_run *run, struct nn_need *need)
{
    struct nn_arena arena = {0};
    take_pieces(&arena, run);
    *need = nn_arena_need(&arena);
    return arena.status;
}

size_t nn_block_most(struct nn_block_run *run)
{
    size_t most = 0;
    const attn_executor *before = attn_executor_enter(run->pass.executor);
    for (run->dtype = ATTN_F32; run->dtype <= ATTN_F16; run->dtype++) {
        struct nn_need need;
        nn_block_run_need(run, &need);
        most = need.size > most ? need.size : most;
    }
    attn_executor_leave(before);
    return most;
}

/** Pieces of the caller's memory, whose size has been checked. */
static attn_status open_kept(struct nn_block_run *run)
{
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    take_kept(&measured, run);
    CHECK(nn_workspace_open(&memory, run->pass.kept, run->pass.kept_size, &measured));
    run->pieces.kept = take_kept(&memory.arena, run);
    return ATTN_OK;
}

/** Checks the options of the attentions in the memory that they will run in. */
static attn_status check_attentions(struct nn_block_run *run)
{
    for (int s = NN_SELF; s <= nn_block_last_attention(run); s++)
        for (int backward = !runs_forward(run); backward <= run->is_backward; backward++) {
            set_attention(run, s, backward);
            CHECK(nn_mha_pass_open(&run->attention[s], run->pieces.inner, run->pieces.inner_size));
            nn_mha_pass_close(&run->attention[s]);
        }
    return ATTN_OK;
}

attn_status nn_block_open(struct nn_block_run *run, void *workspace, size_t workspace_size)
{
    struct nn_arena measured = {0};
    take_pieces(&measured, run);
    CHECK(nn_workspace_open(&run->workspace, workspace, workspace_size, &measured));
    run->pieces = take_pieces(&run->workspace.arena, run);
    attn_status status = run->pass.kept ? open_kept(run) : ATTN_OK;
    if (!status)
        status = check_attentions(run);
    if (status)
        nn_block_close(run);
    return status;
}

void nn_block_close(struct nn_block_run *run)
{
    nn_workspace_close(&run->workspace);
}

/* ------------------------------------------------------------- forward pass -- */

struct nn_norm_tensors nn_block_norm(const attn_block_weights *weights, int sublayer)
{
    const attn_tensor *const norms[NN_SUBLAYERS][2] = {{&weights->self_gamma, &weights->self_beta},
                                                       {&weights->cross_gamma, &weights->cross_beta},
                                                       {&weights->network_gamma, &weights->network_beta}};
    return (struct nn_norm_tensors){nn_wanted(norms[sublayer][0]), nn_wanted(norms[sublayer][1])};
}

static attn_status normalise(const struct nn_block_run *run, int sublayer, const attn_tensor *rows,
                             const attn_tensor *out)
{
    const struct nn_norm_tensors n = nn_block_norm(&run->weights, sublayer);
    return attn_normalise(run->config.norm, rows, n.gamma, n.beta, run->config.eps, out, run->pass.num_threads);
}

attn_status nn_block_normalise(const struct nn_block_run *run, int sublayer, const attn_tensor *rows,
                               attn_tensor *normed)
{
    *normed = nn_block_rows(run, run->pieces.normed, run->dtype, run->config.attention->d_model);
    return normalise(run, sublayer, rows, normed);
}

/** to = rows Wᵀ + bias, by way of f32. */
static void project(const struct nn_block_run *run, const attn_tensor *rows, const attn_tensor *w,
                    const attn_tensor *bias, void *to)
{
    const struct nn_block_pieces *p = &run->pieces;
    const struct nn_product_place place = nn_block_place(run);
    const attn_tensor out = nn_block_rows(run, to, run->dtype, w->shape[2]);
    const attn_tensor sums = nn_block_rows(run, run->dtype == ATTN_F32 ? to : p->wide[0], ATTN_F32, w->shape[2]);
    nn_take_bias(p->biases, bias, w->shape[2]);
    nn_multiply_rows(&place, rows, w, p->turned, &sums, 0);
    nn_finish_rows(&(struct nn_finish){.from = &sums, .to = &out, .bias = p->biases}, place.num_threads);
}

attn_status nn_block_activate(const struct nn_block_run *run, attn_tensor *activated)
{
    const attn_block_config *c = &run->config;
    const struct nn_block_pieces *p = &run->pieces;
    const int threads = run->pass.num_threads;
    const attn_tensor hidden = nn_block_rows(run, p->kept.hidden, run->dtype, c->d_ff);
    const attn_tensor gate = nn_block_rows(run, p->kept.gate, run->dtype, c->d_ff);
    *activated = nn_block_rows(run, p->activated, run->dtype, c->d_ff);
    if (c->gated)
        CHECK(attn_gate(c->activation, &gate, &hidden, activated, threads));
    else
        CHECK(attn_activate(c->activation, &hidden, activated, threads));
    return run->pass.hidden_dropout ? attn_drop_activations(run->pass.hidden_dropout, activated, activated, threads)
                                    : ATTN_OK;
}

/** out = residual + dropout(down(...)), from what is kept. */
static attn_status run_down(const struct nn_block_run *run, const attn_tensor *residual, const attn_tensor *out)
{
    const struct nn_block_pieces *p = &run->pieces;
    const struct nn_product_place place = nn_block_place(run);
    const attn_tensor sums = nn_block_rows(run, p->branch, ATTN_F32, out->shape[3]);
    attn_tensor activated;
    attn_dropout dropout;
    CHECK(nn_block_activate(run, &activated));
    nn_take_bias(p->biases, &run->weights.b_down, out->shape[3]);
    nn_multiply_rows(&place, &activated, &run->weights.w_down, p->turned, &sums, 0);
    nn_finish_rows(&(struct nn_finish){.from = &sums,
                                       .to = out,
                                       .bias = p->biases,
                                       .dropout = nn_block_dropout(run, NN_NETWORK, &dropout),
                                       .residual = residual},
                   place.num_threads);
    return ATTN_OK;
}

/** sum = residual + dropout(attention(rows)). */
static attn_status run_attention(struct nn_block_run *run, int s, const attn_tensor *rows, const attn_tensor *residual,
                                 const attn_tensor *sum)
{
    struct nn_mha_pass *a = &run->attention[s];
    attn_dropout dropout;
    set_attention(run, s, 0);
    a->x = rows;
    a->memory = s == NN_CROSS ? run->pass.memory : rows;
    a->residual = residual;
    a->dropout = nn_block_dropout(run, s, &dropout);
    a->out = sum;
    CHECK(nn_mha_pass_open(a, run->pieces.inner, run->pieces.inner_size));
    const attn_status status = nn_mha_run_forward(a);
    nn_mha_pass_close(a);
    return status;
}

attn_status nn_block_run_kept(struct nn_block_run *run)
{
    const attn_block_weights *w = &run->weights;
    const int norm_first = run->config.norm_first;
    attn_tensor residual = *run->x, rows = residual;
    for (int s = NN_SELF; s <= nn_block_last_attention(run); s++) {
        const attn_tensor sum = nn_block_sum(run, s);
        if (norm_first)
            CHECK(nn_block_normalise(run, s, &residual, &rows));
        CHECK(run_attention(run, s, &rows, &residual, &sum));
        residual = sum;
        if (!norm_first) {
            CHECK(nn_block_normalise(run, s, &sum, &rows));
            residual = rows;
        }
    }
    if (norm_first)
        CHECK(nn_block_normalise(run, NN_NETWORK, &residual, &rows));
    project(run, &rows, &w->w_up, &w->b_up, run->pieces.kept.hidden);
    if (run->config.gated)
        project(run, &rows, &w->w_gate, &w->b_gate, run->pieces.kept.gate);
    const attn_tensor sum = nn_block_sum(run, NN_NETWORK);
    return norm_first ? ATTN_OK : run_down(run, &residual, &sum);
}

/** The output, from what is kept. */
static attn_status run_out(const struct nn_block_run *run, const attn_tensor *out)
{
    const attn_tensor sum = nn_block_sum(run, run->config.norm_first ? nn_block_last_attention(run) : NN_NETWORK);
    if (!run->config.norm_first)
        return normalise(run, NN_NETWORK, &sum, out);
    if (out->dtype == run->dtype)
        return run_down(run, &sum, out);
    /* A residual has the type of what it is added to: out is rounded to that of x first. */
    const attn_tensor rounded = nn_block_rows(run, run->pieces.normed, run->dtype, out->shape[3]);
    CHECK(run_down(run, &sum, &rounded));
    nn_finish_rows(&(struct nn_finish){.from = &rounded, .to = out}, run->pass.num_threads);
    return ATTN_OK;
}

/* ---------------------------------------------------------- the public calls -- */

size_t attn_block_kept_size(const attn_block_config *config, attn_dtype dtype, int64_t batch, int64_t tokens,
                            int64_t memory_tokens)
{
    struct nn_block_run run = {.dtype = dtype, .batch = batch, .tokens = tokens, .memory_tokens = memory_tokens};
    if (nn_block_take_pass(&run, config, NULL) || nn_check_layer_type("dtype", dtype) ||
        nn_check_length("batch", batch, 0) || nn_check_length("tokens", tokens, 0) ||
        nn_check_length("memory_tokens", memory_tokens, 0))
        return SIZE_MAX;
    return nn_block_kept_size(&run);
}

size_t attn_block_train_workspace_size(const attn_block_config *config, int64_t batch, int64_t tokens,
                                       int64_t memory_tokens, const attn_block_pass *pass)
{
    struct nn_block_run run = {.batch = batch, .tokens = tokens, .memory_tokens = memory_tokens};
    if (nn_block_take_pass(&run, config, pass) || nn_check_length("batch", batch, 0) ||
        nn_check_length("tokens", tokens, 0) || nn_check_length("memory_tokens", memory_tokens, 0))
        return SIZE_MAX;
    return nn_block_most(&run);
}

attn_status attn_block_train(const attn_block_config *config, const attn_block_weights *weights, const attn_tensor *x,
                             const attn_block_pass *pass, const attn_tensor *out, void *workspace,
                             size_t workspace_size)
{
    struct nn_block_run run = {.batch = 0};
    CHECK(nn_block_take_pass(&run, config, pass));
    CHECK(nn_block_check_inputs(&run, weights, x));
    CHECK(nn_block_check_out(&run, out));
    const attn_executor *before = attn_executor_enter(run.pass.executor);
    attn_status status = nn_block_open(&run, workspace, workspace_size);
    if (!status) {
        status = nn_block_run_kept(&run);
        if (!status)
            status = run_out(&run, out);
        nn_block_close(&run);
    }
    attn_executor_leave(before);
    return status;
}
