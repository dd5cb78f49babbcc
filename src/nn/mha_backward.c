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
#include "nn/mha.h"

#include "nn/check.h"
#include "nn/gradient_products.h"
#include "nn/linear_backward.h"
#include "nn/tensor_rows.h"

#include "driver/ranges.h"
#include "driver/threads.h"

/** What everything follows from. */
struct shape {
    attn_mha_config config; /* completed */
    attn_dtype dtype;       /* of x: that of queries, keys, values and heads */
    int64_t batch, q_tokens, k_tokens;
    int crosses;                 /* there is a memory */
    int narrow_x, narrow_memory; /* their gradients are not f32 */
};

/** Working memory. What is not f32 is of the type of x. */
struct pieces {
    void *q, *kv, *heads;  /* [B][Tq][heads*head_dim], [B][Tk][keys, values], [B][Tq][heads*value_dim] */
    float *lse;            /* [B][heads][Tq] */
    float *d_q, *d_kv;     /* gradients of q and kv; before that their sums without biases */
    float *d_heads;        /* of heads */
    float *d_x, *d_memory; /* of what is not f32, before rounding */
    float *turned;         /* a matrix with rows and columns exchanged */
    float *biases;         /* of q, then of kv */
    void *scratch, *core;  /* of products; of attention */
    size_t scratch_size, core_size;
};

/** A call. */
struct call {
    struct shape shape;
    attn_mha_weights weights;
    const attn_tensor *x, *memory, *d_out; /* memory: x without one */
    attn_params params;
    attn_mha_gradients gradients;
    attn_mha_weights sums; /* where those of weights go */
    attn_gradients options;
    struct pieces pieces;
};

static int64_t q_channels(const struct shape *s)
{
    return s->config.heads * s->config.head_dim;
}

static int64_t k_channels(const struct shape *s)
{
    return s->config.kv_heads * s->config.head_dim;
}

static int64_t kv_channels(const struct shape *s)
{
    return k_channels(s) + s->config.kv_heads * s->config.value_dim;
}

static int64_t heads_channels(const struct shape *s)
{
    return s->config.heads * s->config.value_dim;
}

/* ------------------------------------------------------- views and memory -- */

static attn_tensor rows_of(void *data, attn_dtype dtype, int64_t batch, int64_t tokens, int64_t channels)
{
    attn_tensor t = attn_btc(data, batch, tokens, channels);
    t.dtype = dtype;
    return t;
}

/** Tensors of the attention, or of their gradients. */
struct core_tensors {
    attn_tensor q_rows, kv_rows, k_rows, v_rows, heads_rows;
    attn_tensor q, k, v, out;
};

static struct core_tensors core_of(const struct shape *s, attn_dtype dtype, void *q, void *kv, void *heads)
{
    const attn_mha_config *c = &s->config;
    struct core_tensors t;
    t.q_rows = rows_of(q, dtype, s->batch, s->q_tokens, q_channels(s));
    t.kv_rows = rows_of(kv, dtype, s->batch, s->k_tokens, kv_channels(s));
    t.heads_rows = rows_of(heads, dtype, s->batch, s->q_tokens, heads_channels(s));
    t.k_rows = nn_heads_of(&t.kv_rows, 0, 1, k_channels(s));
    t.v_rows = nn_heads_of(&t.kv_rows, k_channels(s), 1, kv_channels(s) - k_channels(s));
    t.q = nn_heads_of(&t.q_rows, 0, c->heads, c->head_dim);
    t.k = nn_heads_of(&t.kv_rows, 0, c->kv_heads, c->head_dim);
    t.v = nn_heads_of(&t.kv_rows, k_channels(s), c->kv_heads, c->value_dim);
    t.out = nn_heads_of(&t.heads_rows, 0, c->heads, c->value_dim);
    return t;
}

static attn_tensor lse_of(const struct shape *s, float *lse)
{
    const int64_t heads = s->config.heads, t = s->q_tokens;
    return (attn_tensor){
        .data = lse, .dtype = ATTN_F32, .shape = {s->batch, heads, t, 1}, .stride = {heads * t, t, 1, 1}};
}

/** The gradients that attention reads and writes between the projections, beside those of its options. */
struct core_gradients {
    struct core_tensors tensors;
    attn_gradients of;
};

static void set_core_gradients(struct core_gradients *g, const struct shape *s, const struct pieces *p,
                               const attn_gradients *options)
{
    g->tensors = core_of(s, ATTN_F32, p->d_q, p->d_kv, p->d_heads);
    g->of = *options;
    g->of.out = &g->tensors.out;
    g->of.q = &g->tensors.q;
    g->of.k = &g->tensors.k;
    g->of.v = &g->tensors.v;
}

/** The workspace of both passes of attention; params has no lse. */
static attn_status measure_core(struct nn_need *need, const struct shape *s, const attn_params *params,
                                const attn_gradients *options)
{
    const struct pieces nothing = {0};
    const struct core_tensors t = core_of(s, s->dtype, NULL, NULL, NULL);
    const attn_tensor lse = lse_of(s, NULL);
    struct core_gradients g;
    struct attn_call forward;
    attn_params with_lse = *params;
    with_lse.lse = &lse;
    set_core_gradients(&g, s, &nothing, options);
    CHECK(attn_call_make(&forward, &t.q, &t.k, &t.v, &t.out, &with_lse, CHECK_SHAPES));
    struct nn_need backward;
    CHECK(attn_backward_workspace_size(&t.q, &t.k, &t.v, &t.out, &with_lse, &g.of, &backward.size));
    with_lse.num_threads = 1;
    CHECK(attn_backward_workspace_size(&t.q, &t.k, &t.v, &t.out, &with_lse, &g.of, &backward.least));
    *need = nn_larger_need((struct nn_need){attn_call_size(&forward), attn_call_least_size(&forward)}, backward);
    return ATTN_OK;
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct pieces take_pieces(struct nn_arena *arena, const struct shape *s, const attn_params *params,
                                 const attn_gradients *options)
{
    const attn_mha_config *c = &s->config;
    const int64_t in = largest(c->d_model, c->d_memory), out = largest(q_channels(s), kv_channels(s));
    const size_t size = attn_dtype_size(s->dtype);
    struct pieces p = {0};
    p.q = nn_take(arena, s->batch, s->q_tokens, q_channels(s), size);
    p.kv = nn_take(arena, s->batch, s->k_tokens, kv_channels(s), size);
    p.heads = nn_take(arena, s->batch, s->q_tokens, heads_channels(s), size);
    p.lse = nn_take(arena, s->batch, s->q_tokens, c->heads, sizeof(float));
    p.d_q = nn_take(arena, s->batch, s->q_tokens, q_channels(s), sizeof(float));
    p.d_kv = nn_take(arena, s->batch, s->k_tokens, kv_channels(s), sizeof(float));
    p.d_heads = nn_take(arena, s->batch, s->q_tokens, heads_channels(s), sizeof(float));
    p.d_x = nn_take(arena, s->narrow_x ? s->batch : 0, s->q_tokens, c->d_model, sizeof(float));
    p.d_memory = nn_take(arena, s->narrow_memory ? s->batch : 0, s->k_tokens, c->d_memory, sizeof(float));
    p.turned = nn_take(arena, in, out, 1, sizeof(float));
    p.biases = nn_take(arena, q_channels(s) + kv_channels(s), 1, 1, sizeof(float));
    p.scratch = nn_take_workspace(arena, nn_linear_backward_need(params->num_threads), &p.scratch_size);
    struct nn_need need = {0};
    if (!arena->status && !arena->base)
        arena->status = measure_core(&need, s, params, options);
    p.core = nn_take_workspace(arena, need, &p.core_size);
    return p;
}

/* -------------------------------------------------------------- forward pass -- */

static void multiply(const struct call *call, const struct nn_gradient_product *product)
{
    nn_gradient_product(product, nn_all_threads(call->params.num_threads), call->pieces.scratch,
                        call->pieces.scratch_size);
}

/** to = rows Wᵀ. */
static void project(const struct call *call, const attn_tensor *rows, const attn_tensor *w, const attn_tensor *to)
{
    const attn_tensor turned = attn_matrix(call->pieces.turned, w->shape[3], w->shape[2]);
    nn_turn_weights(w, call->pieces.turned);
    multiply(call, &(struct nn_gradient_product){
                       .left = {rows, 0},
                       .right = {&turned, 1},
                       .rows = rows->shape[0] * rows->shape[2],
                       .columns = w->shape[2],
                       .terms = w->shape[3],
                       .to = to,
                   });
}

/** Rows that get a bias and are rounded. */
struct rounding {
    const attn_tensor *from, *to; /* one after the other */
    const float *biases;
};

static void round_rows(const void *context, int64_t first, int64_t end)
{
    const struct rounding *w = context;
    const int64_t channels = w->from->shape[3];
    const struct attn_nn_kernels *kernels = attn_nn_kernels_active();
    for (int64_t r = first; r < end; r++)
        kernels->embed(&(struct nn_embed_work){
            .row = {(const float *)w->from->data + r * channels, ATTN_F32},
            .scale = 1,
            .place = {{w->biases, ATTN_F32}, {NULL, ATTN_F32}},
            .n = channels,
            .out = (char *)w->to->data + r * channels * attn_element_size(w->to->dtype),
            .out_dtype = w->to->dtype,
        });
}

/** to = from + biases, rounded once. */
static void finish(const struct call *call, const attn_tensor *from, const float *biases, const attn_tensor *to)
{
    const int64_t rows = from->shape[0] * from->shape[2];
    const int threads = nn_threads(call->params.num_threads, (double)rows * (double)from->shape[3] / 4);
    attn_run_ranges(rows, threads, round_rows, &(struct rounding){from, to, biases});
}

static void take_bias(float *to, const attn_tensor *bias, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = bias->data ? nn_weight_at(bias, 0, i) : 0.0f;
}

/** Queries, keys and values, by way of the memory of their gradients. */
static void run_projections(const struct call *call, const struct core_tensors *t, const struct core_tensors *d)
{
    const struct shape *s = &call->shape;
    float *q = call->pieces.biases, *k = q + q_channels(s), *v = k + k_channels(s);
    take_bias(q, &call->weights.b_q, q_channels(s));
    take_bias(k, &call->weights.b_k, k_channels(s));
    take_bias(v, &call->weights.b_v, kv_channels(s) - k_channels(s));
    project(call, call->x, &call->weights.w_q, &d->q_rows);
    project(call, call->memory, &call->weights.w_k, &d->k_rows);
    project(call, call->memory, &call->weights.w_v, &d->v_rows);
    finish(call, &d->q_rows, q, &t->q_rows);
    finish(call, &d->kv_rows, k, &t->kv_rows);
}

/* ------------------------------------------------------------- backward pass -- */

/** The gradients of a matrix and its bias. */
static void run_weights(const struct call *call, const attn_tensor *w, const attn_tensor *rows, const attn_tensor *d,
                        const attn_tensor *to, const attn_tensor *to_bias)
{
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.weights = nn_wanted(to);
    gradients.bias = nn_wanted(to_bias);
    gradients.accumulate = call->gradients.accumulate;
    gradients.num_threads = call->params.num_threads;
    nn_linear_backward(w, rows, d, &gradients, call->pieces.scratch, call->pieces.scratch_size);
}

/** to = d W, or += with accumulate. */
static void project_back(const struct call *call, const attn_tensor *d, const attn_tensor *w, const attn_tensor *to,
                         int accumulate)
{
    multiply(call, &(struct nn_gradient_product){
                       .left = {d, 0},
                       .right = {w, 1},
                       .rows = d->shape[0] * d->shape[2],
                       .columns = w->shape[3],
                       .terms = w->shape[2],
                       .to = to,
                       .accumulate = accumulate,
                   });
}

/** Where sums for a gradient are made: in it, or in memory from which they are rounded. */
static attn_tensor sums_of(const attn_tensor *gradient, float *memory)
{
    return gradient->dtype == ATTN_F32 ? *gradient
                                       : attn_btc(memory, gradient->shape[0], gradient->shape[2], gradient->shape[3]);
}

/** Rows of a tensor that are rounded to another one. */
struct narrowing {
    const attn_tensor *from, *to;
};

static void narrow_rows(const void *context, int64_t first, int64_t end)
{
    const struct narrowing *w = context;
    const int64_t tokens = w->to->shape[2];
    for (int64_t r = first; r < end; r++)
        nn_copy_row(attn_nn_kernels_active(), nn_row_address(w->to, r / tokens, r % tokens), w->to->dtype,
                    nn_row_address(w->from, r / tokens, r % tokens), w->from->dtype, w->to->shape[3]);
}

static void narrow(const struct call *call, const attn_tensor *sums, const attn_tensor *to)
{
    const int64_t rows = to->shape[0] * to->shape[2];
    if (to->dtype != ATTN_F32)
        attn_run_ranges(rows, nn_threads(call->params.num_threads, (double)rows * (double)to->shape[3] / 4),
                        narrow_rows, &(struct narrowing){sums, to});
}

/** Gradients of x and of the memory. */
static void run_inputs(const struct call *call, const struct core_tensors *d)
{
    const attn_mha_gradients *g = &call->gradients;
    const attn_tensor *of_kv = call->shape.crosses ? g->memory : g->x;
    attn_tensor x, kv;
    if (g->x) {
        x = sums_of(g->x, call->pieces.d_x);
        project_back(call, &d->q_rows, &call->weights.w_q, &x, 0);
    }
    if (of_kv) {
        kv = call->shape.crosses ? sums_of(g->memory, call->pieces.d_memory) : x;
        project_back(call, &d->k_rows, &call->weights.w_k, &kv, !call->shape.crosses);
        project_back(call, &d->v_rows, &call->weights.w_v, &kv, 1);
    }
    if (g->x)
        narrow(call, &x, g->x);
    if (g->memory)
        narrow(call, &kv, g->memory);
}

static attn_status run(const struct call *call)
{
    const struct shape *s = &call->shape;
    const struct pieces *p = &call->pieces;
    const struct core_tensors t = core_of(s, s->dtype, p->q, p->kv, p->heads);
    const attn_tensor lse = lse_of(s, p->lse);
    struct core_gradients g;
    struct attn_call forward;
    attn_params params = call->params;
    params.lse = &lse;
    set_core_gradients(&g, s, p, &call->options);
    CHECK(attn_call_make(&forward, &t.q, &t.k, &t.v, &t.out, &params, CHECK_ALL));
    run_projections(call, &t, &g.tensors);
    CHECK(attn_call_run(&forward, p->core, p->core_size));
    project_back(call, call->d_out, &call->weights.w_o, &g.tensors.heads_rows, 0);
    CHECK(attn_backward_in(&t.q, &t.k, &t.v, &t.out, &params, &g.of, p->core, p->core_size));
    const attn_mha_weights *w = &call->weights, *to = &call->sums;
    run_weights(call, &w->w_o, &t.heads_rows, call->d_out, &to->w_o, &to->b_o);
    run_weights(call, &w->w_q, call->x, &g.tensors.q_rows, &to->w_q, &to->b_q);
    run_weights(call, &w->w_k, call->memory, &g.tensors.k_rows, &to->w_k, &to->b_k);
    run_weights(call, &w->w_v, call->memory, &g.tensors.v_rows, &to->w_v, &to->b_v);
    run_inputs(call, &g.tensors);
    return ATTN_OK;
}

/* ------------------------------------------------------------------- checks -- */

static attn_status take_config(attn_mha_config *ours, const attn_mha_config *config)
{
    CHECK(nn_complete_mha_config(ours, "config", config));
    if (ours->format)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.format is set; expected NULL: gradients are those of weights "
                                                "as they are given");
    return ATTN_OK;
}

static attn_status take_gradients(struct call *call, const attn_mha_gradients *gradients)
{
    call->options = attn_gradients_default();
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected what to write");
    CHECK(attn_take_struct("gradients", &call->gradients, sizeof call->gradients, NN_MHA_GRADIENTS_FIRST, gradients));
    if (call->gradients.weights)
        CHECK(attn_take_struct("gradients.weights", &call->sums, sizeof call->sums, NN_MHA_WEIGHTS_FIRST,
                               call->gradients.weights));
    const attn_gradients *options = call->gradients.options;
    if (!options)
        return ATTN_OK;
    CHECK(attn_take_struct("gradients.options", &call->options, sizeof call->options,
                           ATTN_FIRST_SIZE(attn_gradients, mask), options));
    if (call->options.out || call->options.lse || call->options.q || call->options.k || call->options.v)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "gradients.options has out, lse, q, k or v; expected NULL: they are made "
                         "in between");
    return ATTN_OK;
}

static attn_status take_params(struct call *call, const attn_params *params)
{
    CHECK(attn_take_params(&call->params, params));
    CHECK(nn_check_threads(call->params.num_threads));
    if (call->params.lse || call->params.weights || call->params.key_sums || call->params.scores)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params has an output on request; expected none: they are those of the "
                                                "forward pass");
    return ATTN_OK;
}

/** The parts of a layer's weights under the names that sentences have for them. */
static void name_weights(struct nn_argument named[8], const char *const names[8], const attn_mha_weights *w)
{
    const attn_tensor *const tensors[] = {&w->w_q, &w->w_k, &w->w_v, &w->w_o, &w->b_q, &w->b_k, &w->b_v, &w->b_o};
    for (int i = 0; i < 8; i++)
        named[i] = (struct nn_argument){names[i], nn_wanted(tensors[i])};
}

static attn_status check_sums(const struct shape *s, const struct nn_argument sums[8])
{
    const attn_mha_config *c = &s->config;
    const int64_t q = q_channels(s), k = k_channels(s), v = kv_channels(s) - k;
    const int64_t shapes[8][2] = {{q, c->d_model}, {k, c->d_memory}, {v, c->d_memory}, {c->d_out, heads_channels(s)},
                                  {1, q},          {1, k},           {1, v},           {1, c->d_out}};
    for (int i = 0; i < 8; i++)
        if (sums[i].tensor)
            CHECK(nn_check_sums(sums[i].name, sums[i].tensor, shapes[i][0], shapes[i][1]));
    return ATTN_OK;
}

static attn_status check_apart(const struct call *call, const attn_tensor *memory, const struct nn_argument sums[8])
{
    static const char *const names[] = {"weights.w_q", "weights.w_k", "weights.w_v", "weights.w_o",
                                        "weights.b_q", "weights.b_k", "weights.b_v", "weights.b_o"};
    struct nn_argument inputs[11], outputs[10];
    name_weights(inputs, names, &call->weights);
    inputs[8] = (struct nn_argument){"x", call->x};
    inputs[9] = (struct nn_argument){"memory", memory};
    inputs[10] = (struct nn_argument){"d_out", call->d_out};
    memcpy(outputs, sums, 8 * sizeof *outputs);
    outputs[8] = (struct nn_argument){"gradients.x", call->gradients.x};
    outputs[9] = (struct nn_argument){"gradients.memory", call->gradients.memory};
    return nn_check_apart(outputs, 10, inputs, 11);
}

static attn_status check_call(struct call *call, const attn_tensor *memory)
{
    static const char *const names[] = {"gradients.weights.w_q", "gradients.weights.w_k", "gradients.weights.w_v",
                                        "gradients.weights.w_o", "gradients.weights.b_q", "gradients.weights.b_k",
                                        "gradients.weights.b_v", "gradients.weights.b_o"};
    const attn_mha_config *c = &call->shape.config;
    const attn_mha_gradients *g = &call->gradients;
    CHECK(nn_check_mha_weights(c, &call->weights));
    CHECK(nn_check_typed_activations("x", call->x, NN_ANY, NN_ANY, c->d_model));
    struct shape *s = &call->shape;
    s->dtype = call->x->dtype;
    s->batch = call->x->shape[0];
    s->q_tokens = s->k_tokens = call->x->shape[2];
    s->crosses = memory != NULL;
    if (memory) {
        CHECK(nn_check_typed_activations("memory", memory, s->batch, NN_ANY, c->d_memory));
        s->k_tokens = memory->shape[2];
    } else if (c->d_memory != c->d_model)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "memory is NULL; expected a tensor of %lld channels, as keys are not made from x",
                         (long long)c->d_memory);
    CHECK(nn_check_typed_activations("d_out", call->d_out, s->batch, s->q_tokens, c->d_out));
    if (!g->x && !g->memory && !g->weights && !g->options)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "gradients has nothing to write; expected x, memory, weights or options");
    if (g->memory && !memory)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.memory is set without memory; expected NULL");
    if (g->x)
        CHECK(nn_check_typed_output("gradients.x", g->x, s->batch, s->q_tokens, c->d_model));
    if (g->memory)
        CHECK(nn_check_typed_output("gradients.memory", g->memory, s->batch, s->k_tokens, c->d_memory));
    s->narrow_x = g->x && g->x->dtype != ATTN_F32;
    s->narrow_memory = g->memory && g->memory->dtype != ATTN_F32;
    struct nn_argument sums[8];
    name_weights(sums, names, &call->sums);
    CHECK(check_sums(s, sums));
    return check_apart(call, memory, sums);
}

size_t attn_mha_backward_workspace_size(const attn_mha_config *config, int64_t batch, int64_t q_tokens,
                                        int64_t k_tokens, const attn_params *params,
                                        const attn_mha_gradients *gradients)
{
    struct call call = {0};
    if (take_config(&call.shape.config, config) || take_gradients(&call, gradients) || take_params(&call, params) ||
        nn_check_length("batch", batch, 0) || nn_check_length("q_tokens", q_tokens, 0) ||
        nn_check_length("k_tokens", k_tokens, 0))
        return SIZE_MAX;
    size_t most = 0;
    const attn_executor *before = attn_executor_enter(call.params.executor);
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        const struct shape shape = {call.shape.config, dtype, batch, q_tokens, k_tokens, 1, 1, 1};
        struct nn_arena arena = {0};
        take_pieces(&arena, &shape, &call.params, &call.options);
        const size_t size = nn_arena_size(&arena);
        most = size > most ? size : most;
    }
    attn_executor_leave(before);
    return most;
}

/** Memory and run of a call that has been checked. */
static attn_status run_checked(struct call *call, void *workspace, size_t workspace_size)
{
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    take_pieces(&measured, &call->shape, &call->params, &call->options);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    call->pieces = take_pieces(&memory.arena, &call->shape, &call->params, &call->options);
    const attn_status status = run(call);
    nn_workspace_close(&memory);
    return status;
}

attn_status attn_mha_backward(const attn_mha_config *config, const attn_mha_weights *weights, const attn_tensor *x,
                              const attn_tensor *memory, const attn_params *params, const attn_tensor *d_out,
                              const attn_mha_gradients *gradients, void *workspace, size_t workspace_size)
{
    struct call call = {.x = x, .memory = memory ? memory : x, .d_out = d_out};
    CHECK(take_config(&call.shape.config, config));
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected an attn_mha_weights");
    CHECK(attn_take_struct("weights", &call.weights, sizeof call.weights, NN_MHA_WEIGHTS_FIRST, weights));
    CHECK(take_gradients(&call, gradients));
    CHECK(take_params(&call, params));
    CHECK(check_call(&call, memory));
    const attn_executor *before = attn_executor_enter(call.params.executor);
    const attn_status status = run_checked(&call, workspace, workspace_size);
    attn_executor_leave(before);
    return status;
}
