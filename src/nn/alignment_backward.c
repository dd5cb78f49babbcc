/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass of alignments: its checks, and what the two dot products and
 * the general score do, whose attention is that of the core:
 *
 *     out, lse of the forward pass, again
 *     d_q, d_k, d_v of attention
 *     what is accumulated is added to what is there
 *
 * Additive scores have a driver of their own (additive_backward.c).
 */
#include "nn/additive.h"
#include "nn/additive_backward.h"

#include "api/call.h"
#include "api/executor.h"
#include "attn/backward.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/product_rows.h"

/** A call. */
struct call {
    attn_alignment_config config;
    const attn_tensor *q, *projected, *v, *d_out;
    attn_params params;
    attn_alignment_gradients gradients;
};

/* --------------------------------------------------------- scores of the core -- */

/** Sizes that the core's memory follows from. */
struct shape {
    int64_t batch, q_tokens, k_tokens, width, values; /* width: channels of q and of projected keys */
};

/** Working memory of the core's scores. */
struct pieces {
    float *out, *lse;      /* [B][Tq][values], [B][Tq] */
    float *d_k, *d_values; /* [B][Tk][..], for what is added to */
    void *core;
    size_t core_size;
};

/** (B, 1, T, C), or without memory its shape alone: sizes may be too large for strides. */
static attn_tensor view(float *data, int64_t batch, int64_t tokens, int64_t channels)
{
    if (data)
        return attn_btc(data, batch, tokens, channels);
    return (attn_tensor){.dtype = ATTN_F32, .shape = {batch, 1, tokens, channels}, .stride = {0, 0, 0, 1}};
}

static attn_status measure_core(struct nn_need *need, const struct shape *s, const attn_params *params,
                                const attn_alignment_gradients *gradients)
{
    const attn_tensor q = view(NULL, s->batch, s->q_tokens, s->width), k = view(NULL, s->batch, s->k_tokens, s->width);
    const attn_tensor v = view(NULL, s->batch, s->k_tokens, s->values),
                      out = view(NULL, s->batch, s->q_tokens, s->values);
    const attn_tensor lse = view(NULL, s->batch, s->q_tokens, 1);
    struct attn_call forward;
    struct nn_need backward;
    attn_params with_lse = *params;
    attn_gradients of = attn_gradients_default();
    with_lse.lse = &lse;
    of.out = &out;
    of.q = gradients->q ? &q : NULL;
    of.k = gradients->projected ? &k : NULL;
    of.v = gradients->v ? &v : NULL;
    CHECK(attn_call_make(&forward, &q, &k, &v, &out, &with_lse, CHECK_SHAPES));
    CHECK(attn_backward_workspace_size(&q, &k, &v, &out, &with_lse, &of, &backward.size));
    with_lse.num_threads = 1;
    CHECK(attn_backward_workspace_size(&q, &k, &v, &out, &with_lse, &of, &backward.least));
    *need = nn_larger_need((struct nn_need){attn_call_size(&forward), attn_call_least_size(&forward)}, backward);
    return ATTN_OK;
}

static struct pieces take_pieces(struct nn_arena *arena, const struct shape *s, const attn_params *params,
                                 const attn_alignment_gradients *gradients)
{
    const int adds = gradients->accumulate_keys;
    struct pieces p = {0};
    p.out = nn_take(arena, s->batch, s->q_tokens, s->values, sizeof(float));
    p.lse = nn_take(arena, s->batch, s->q_tokens, 1, sizeof(float));
    p.d_k = nn_take(arena, adds && gradients->projected ? s->batch : 0, s->k_tokens, s->width, sizeof(float));
    p.d_values = nn_take(arena, adds && gradients->v ? s->batch : 0, s->k_tokens, s->values, sizeof(float));
    struct nn_need need = {0};
    if (!arena->status && !arena->base)
        arena->status = measure_core(&need, s, params, gradients);
    p.core = nn_take_workspace(arena, need, &p.core_size);
    return p;
}

static void add(const struct call *call, const attn_tensor *from, const attn_tensor *to)
{
    nn_finish_rows(&(struct nn_finish){.from = from, .to = to, .residual = to}, call->params.num_threads);
}

static attn_status run_core(const struct call *call, const struct shape *s, const struct pieces *p)
{
    const attn_alignment_gradients *g = &call->gradients;
    const attn_tensor out = attn_btc(p->out, s->batch, s->q_tokens, s->values);
    const attn_tensor lse = attn_btc(p->lse, s->batch, s->q_tokens, 1);
    const attn_tensor d_k = attn_btc(p->d_k, s->batch, s->k_tokens, s->width);
    const attn_tensor d_values = attn_btc(p->d_values, s->batch, s->k_tokens, s->values);
    const int adds = g->accumulate_keys;
    struct attn_call forward;
    attn_params params = call->params;
    attn_gradients of = attn_gradients_default();
    params.lse = &lse;
    of.out = call->d_out;
    of.q = g->q;
    of.k = g->projected && adds ? &d_k : g->projected;
    of.v = g->v && adds ? &d_values : g->v;
    CHECK(attn_call_make(&forward, call->q, call->projected, call->v, &out, &params, CHECK_ALL));
    CHECK(attn_call_run(&forward, p->core, p->core_size));
    CHECK(attn_backward_in(call->q, call->projected, call->v, &out, &params, &of, p->core, p->core_size));
    if (g->projected && adds)
        add(call, &d_k, g->projected);
    if (g->v && adds)
        add(call, &d_values, g->v);
    return ATTN_OK;
}

static attn_status backward_core(const struct call *call, void *workspace, size_t workspace_size)
{
    const struct shape shape = {call->q->shape[0], call->q->shape[2], call->projected->shape[2], call->q->shape[3],
                                call->v->shape[3]};
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    take_pieces(&measured, &shape, &call->params, &call->gradients);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    const struct pieces pieces = take_pieces(&memory.arena, &shape, &call->params, &call->gradients);
    const attn_status status = run_core(call, &shape, &pieces);
    nn_workspace_close(&memory);
    return status;
}

/* ------------------------------------------------------------ additive scores -- */

static attn_status backward_additive(const struct call *call, void *workspace, size_t workspace_size)
{
    const attn_alignment_gradients *g = &call->gradients;
    const int64_t batch = call->q->shape[0], q_tokens = call->q->shape[2], k_tokens = call->projected->shape[2];
    struct nn_additive_gradient run = {
        .config = &call->config,
        .params = &call->params,
        .q = call->q,
        .projected = call->projected,
        .v = call->v,
        .d_out = call->d_out,
        .d_q = g->q,
        .d_projected = g->projected,
        .d_values = g->v,
        .d_w_q = g->w_q,
        .d_score_v = g->score_v,
        .accumulate = g->accumulate,
        .accumulate_keys = g->accumulate_keys,
    };
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    nn_take_additive_gradient(&measured, &call->config, batch, q_tokens, k_tokens, &call->params);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    run.pieces = nn_take_additive_gradient(&memory.arena, &call->config, batch, q_tokens, k_tokens, &call->params);
    nn_run_additive_gradient(&run);
    nn_workspace_close(&memory);
    return ATTN_OK;
}

/* ------------------------------------------------------------------- checks -- */

static attn_status take_options(struct call *call, const attn_alignment_config *config, const attn_params *params,
                                const attn_alignment_gradients *gradients)
{
    CHECK(nn_take_alignment_config(&call->config, "config", config));
    CHECK(nn_take_alignment_params(&call->params, call->config.score, call->config.temperature, params));
    const attn_params *p = &call->params;
    CHECK(nn_check_threads(p->num_threads));
    CHECK(attn_check_executor("params.executor", p->executor));
    if (p->lse || p->weights || p->key_sums || p->scores)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params has an output on request; expected none: they are those of the "
                                                "forward pass");
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected what to write");
    return attn_take_struct("gradients", &call->gradients, sizeof call->gradients, NN_ALIGNMENT_GRADIENTS_FIRST,
                            gradients);
}

/** That what is wanted exists and has its shape. */
static attn_status check_gradients(const struct call *call)
{
    const attn_alignment_config *c = &call->config;
    const attn_alignment_gradients *g = &call->gradients;
    const int64_t batch = call->q->shape[0], keys = call->projected->shape[2];
    const int is_additive = c->score == ATTN_SCORE_ADDITIVE;
    if (!g->q && !g->projected && !g->v && !g->w_q && !g->score_v)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients has no tensor; expected q, projected, v, w_q or score_v");
    if (!is_additive && (g->w_q || g->score_v))
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.%s is set; expected NULL, as this score has no such weight",
                         g->w_q ? "w_q" : "score_v");
    if (g->q)
        CHECK(nn_check_output("gradients.q", g->q, batch, call->q->shape[2], c->d_query));
    if (g->projected)
        CHECK(nn_check_output("gradients.projected", g->projected, batch, keys, call->projected->shape[3]));
    if (g->v)
        CHECK(nn_check_output("gradients.v", g->v, batch, keys, call->v->shape[3]));
    if (g->w_q)
        CHECK(nn_check_sums("gradients.w_q", g->w_q, c->d_attention, c->d_query));
    if (g->score_v)
        CHECK(nn_check_sums("gradients.score_v", g->score_v, 1, c->d_attention));
    return ATTN_OK;
}

static attn_status check_call(const struct call *call)
{
    const attn_alignment_config *c = &call->config;
    const attn_alignment_gradients *g = &call->gradients;
    const int is_additive = c->score == ATTN_SCORE_ADDITIVE;
    attn_tensor mask = {0};
    CHECK(nn_check_activations("q", call->q, NN_ANY, NN_ANY, c->d_query));
    const int64_t batch = call->q->shape[0];
    CHECK(nn_check_activations("projected", call->projected, batch, NN_ANY, is_additive ? c->d_attention : c->d_query));
    CHECK(nn_check_activations("v", call->v, batch, call->projected->shape[2], NN_ANY));
    CHECK(nn_check_activations("d_out", call->d_out, batch, call->q->shape[2], call->v->shape[3]));
    if (is_additive) {
        CHECK(nn_check_additive(&call->params, call->q, call->projected, call->v, NULL, CHECK_ALL));
        if (call->params.mask)
            mask = nn_by_elements(call->params.mask);
    }
    CHECK(check_gradients(call));
    const struct nn_argument outputs[] = {{"gradients.q", g->q},
                                          {"gradients.projected", g->projected},
                                          {"gradients.v", g->v},
                                          {"gradients.w_q", g->w_q},
                                          {"gradients.score_v", g->score_v}};
    const struct nn_argument inputs[] = {{"q", call->q},
                                         {"projected", call->projected},
                                         {"v", call->v},
                                         {"d_out", call->d_out},
                                         {"config.w_q", nn_wanted(&c->w_q)},
                                         {"config.v", nn_wanted(&c->v)},
                                         {"params.mask", nn_wanted(&mask)}};
    return nn_check_apart(outputs, 5, inputs, 7);
}

/* -------------------------------------------------------------------- calls -- */

size_t attn_alignment_backward_workspace_size(const attn_alignment_config *config, int64_t batch, int64_t q_tokens,
                                              int64_t k_tokens, int64_t d_value, const attn_params *params,
                                              const attn_alignment_gradients *gradients)
{
    struct call call = {0};
    if (take_options(&call, config, params, gradients) || nn_check_length("batch", batch, 0) ||
        nn_check_length("q_tokens", q_tokens, 0) || nn_check_length("k_tokens", k_tokens, 0) ||
        nn_check_length("d_value", d_value, 0))
        return SIZE_MAX;
    if (call.config.score == ATTN_SCORE_ADDITIVE) {
        const attn_tensor q = view(NULL, batch, q_tokens, 0), k = view(NULL, batch, k_tokens, 0);
        if (nn_check_additive(&call.params, &q, &k, &k, NULL, CHECK_SHAPES))
            return SIZE_MAX;
    }
    const attn_executor *before = attn_executor_enter(call.params.executor);
    const struct shape shape = {batch, q_tokens, k_tokens, call.config.d_query, d_value};
    struct nn_arena arena = {0};
    if (call.config.score != ATTN_SCORE_ADDITIVE)
        take_pieces(&arena, &shape, &call.params, &call.gradients);
    else
        nn_take_additive_gradient(&arena, &call.config, batch, q_tokens, k_tokens, &call.params);
    attn_executor_leave(before);
    return nn_arena_size(&arena);
}

attn_status attn_alignment_backward(const attn_alignment_config *config, const attn_tensor *q,
                                    const attn_tensor *projected, const attn_tensor *v, const attn_params *params,
                                    const attn_tensor *d_out, const attn_alignment_gradients *gradients,
                                    void *workspace, size_t workspace_size)
{
    struct call call = {.q = q, .projected = projected, .v = v, .d_out = d_out};
    CHECK(take_options(&call, config, params, gradients));
    CHECK(check_call(&call));
    const attn_executor *before = attn_executor_enter(call.params.executor);
    const attn_status status = call.config.score == ATTN_SCORE_ADDITIVE
                                   ? backward_additive(&call, workspace, workspace_size)
                                   : backward_core(&call, workspace, workspace_size);
    attn_executor_leave(before);
    return status;
}
