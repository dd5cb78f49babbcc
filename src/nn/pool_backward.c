/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of attention pooling:
 *
 *     live tokens of x to rows
 *     u = x Wᵀ                                                  all tokens
 *     for each sequence
 *         u = tanh(u + b), weights p, gradients d_s of scores
 *     d_v = sum of d_s u                                        all tokens
 *     for each sequence
 *         d_u = d_s v (1 - u²) in place of u
 *     d_W = d_uᵀ x,  d_b = sum of d_u                           all tokens
 *     d_x = p d_out, in place of x
 *     d_x += d_u W                                              all tokens
 */
#include "driver/ranges.h"
#include "nn/check.h"
#include "nn/gradient_products.h"
#include "nn/linear_backward.h"
#include "nn/memory.h"
#include "nn/product_rows.h"
#include "nn/tensor_rows.h"

#include "attn/nn/alignment.h"

/* Operations of a token for each channel of u, in the units of nn_threads(). */
#define TANH_OPERATIONS 30

/** Working memory; rows are the live tokens of the sequences, one after the other. */
struct pieces {
    int64_t *start;  /* [B + 1] rows of the sequences */
    float *bias, *v; /* [inner] */
    float *d_out;    /* [B][channels] */
    float *turned;   /* [channels][inner]: w with rows and columns exchanged */
    float *x;        /* [rows][channels]: x, in the end its gradient */
    float *u;        /* [rows][inner]: x Wᵀ, tanh, then the gradient of the first */
    float *p, *d_s;  /* [rows] */
    void *scratch;   /* of products */
    size_t scratch_size;
};

/** A call. */
struct call {
    const struct attn_nn_kernels *kernels;
    const attn_tensor *w, *bias, *v, *x, *d_out;
    const int64_t *lengths;
    attn_pool_gradients gradients;
    int64_t batch, tokens, channels, inner;
    struct pieces pieces;
};

static struct pieces take_pieces(struct nn_arena *arena, int64_t channels, int64_t inner, int64_t batch, int64_t tokens,
                                 int num_threads)
{
    struct pieces p = {0};
    p.start = nn_take(arena, batch < INT64_MAX ? batch + 1 : batch, 1, 1, sizeof(int64_t));
    p.bias = nn_take(arena, inner, 1, 1, sizeof(float));
    p.v = nn_take(arena, inner, 1, 1, sizeof(float));
    p.d_out = nn_take(arena, batch, channels, 1, sizeof(float));
    p.turned = nn_take(arena, channels, inner, 1, sizeof(float));
    p.x = nn_take(arena, batch, tokens, channels, sizeof(float));
    p.u = nn_take(arena, batch, tokens, inner, sizeof(float));
    p.p = nn_take(arena, batch, tokens, 1, sizeof(float));
    p.d_s = nn_take(arena, batch, tokens, 1, sizeof(float));
    p.scratch = nn_take_workspace(arena, nn_linear_backward_need(num_threads), &p.scratch_size);
    return p;
}

/* ---------------------------------------------------------------- sequences -- */

static int64_t length_of(const struct call *call, int64_t sequence)
{
    return call->lengths ? call->lengths[sequence] : call->tokens;
}

static void gather_sequences(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    const struct pieces *p = &call->pieces;
    const size_t bytes = (size_t)call->channels * sizeof(float);
    for (int64_t b = first; b < end; b++) {
        memcpy(p->d_out + b * call->channels, nn_row_address(call->d_out, b, 0), bytes);
        for (int64_t t = 0; t < length_of(call, b); t++)
            memcpy(p->x + (p->start[b] + t) * call->channels, nn_row_address(call->x, b, t), bytes);
    }
}

static void scatter_sequences(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    const struct pieces *p = &call->pieces;
    const size_t bytes = (size_t)call->channels * sizeof(float);
    for (int64_t b = first; b < end; b++)
        for (int64_t t = 0; t < call->tokens; t++) {
            void *to = nn_row_address(call->gradients.x, b, t);
            if (t < length_of(call, b))
                memcpy(to, p->x + (p->start[b] + t) * call->channels, bytes);
            else
                memset(to, 0, bytes);
        }
}

static struct nn_additive_gradient_work work_of(const struct call *call, int64_t sequence)
{
    const struct pieces *p = &call->pieces;
    const int64_t row = p->start[sequence];
    float *x = p->x + row * call->channels, *u = p->u + row * call->inner;
    return (struct nn_additive_gradient_work){
        .k = {u, (ptrdiff_t)call->inner},
        .x = {x, (ptrdiff_t)call->channels},
        .bias = p->bias,
        .v = p->v,
        .d_out = p->d_out + sequence * call->channels,
        .u = u,
        .p = p->p + row,
        .d_s = p->d_s + row,
        .d_x = {x, (ptrdiff_t)call->channels},
        .keys = length_of(call, sequence),
        .inner = call->inner,
        .channels = call->channels,
    };
}

static void run_scores(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    for (int64_t b = first; b < end; b++) {
        struct nn_additive_row row;
        struct nn_additive_gradient_work work = work_of(call, b);
        work.row = &row;
        memset(work.p, 0, (size_t)work.keys * sizeof *work.p);
        call->kernels->additive_scores_backward(&work);
    }
}

static void run_projections(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    for (int64_t b = first; b < end; b++) {
        const struct nn_additive_gradient_work work = work_of(call, b);
        call->kernels->additive_projections_backward(&work);
    }
}

static void run_values(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    for (int64_t b = first; b < end; b++) {
        const struct nn_additive_gradient_work work = work_of(call, b);
        call->kernels->additive_keys_backward(&work);
    }
}

/* ------------------------------------------------------------------- a call -- */

static void multiply(const struct call *call, const struct nn_gradient_product *product)
{
    nn_gradient_product(product, nn_all_threads(call->gradients.num_threads), call->pieces.scratch,
                        call->pieces.scratch_size);
}

/** u = x Wᵀ. */
static void project(const struct call *call, const attn_tensor *x, const attn_tensor *u)
{
    const struct nn_product_place place = {call->gradients.num_threads, call->pieces.scratch,
                                           call->pieces.scratch_size};
    nn_multiply_rows(&place, x, call->w, call->pieces.turned, u, 0);
}

/** d_v. */
static void sum_scores(const struct call *call, const attn_tensor *u)
{
    const attn_tensor d_s = attn_btc(call->pieces.d_s, 1, u->shape[2], 1);
    multiply(call, &(struct nn_gradient_product){
                       .left = {&d_s, 0},
                       .right = {u, 0},
                       .turned = 1,
                       .rows = 1,
                       .columns = call->inner,
                       .terms = u->shape[2],
                       .to = call->gradients.v,
                       .accumulate = call->gradients.accumulate,
                   });
}

/** d_x += d_u W. */
static void project_back(const struct call *call, const attn_tensor *d_u, const attn_tensor *d_x)
{
    multiply(call, &(struct nn_gradient_product){
                       .left = {d_u, 0},
                       .right = {call->w, 1},
                       .rows = d_u->shape[2],
                       .columns = call->channels,
                       .terms = call->inner,
                       .to = d_x,
                       .accumulate = 1,
                   });
}

static void take_vector(float *to, const attn_tensor *vector, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = vector ? nn_weight_at(vector, 0, i) : 0.0f;
}

static void run(const struct call *call)
{
    const struct pieces *p = &call->pieces;
    const attn_pool_gradients *g = &call->gradients;
    p->start[0] = 0;
    for (int64_t b = 0; b < call->batch; b++)
        p->start[b + 1] = p->start[b] + length_of(call, b);
    const int64_t rows = p->start[call->batch];
    const attn_tensor x = attn_btc(p->x, 1, rows, call->channels), u = attn_btc(p->u, 1, rows, call->inner);
    const double elements = (double)rows * (double)(call->channels + call->inner);
    const int threads = nn_threads(g->num_threads, elements), copying = nn_threads(g->num_threads, elements / 4);
    take_vector(p->bias, call->bias, call->inner);
    take_vector(p->v, call->v, call->inner);
    attn_run_ranges(call->batch, copying, gather_sequences, call);
    project(call, &x, &u);
    attn_run_ranges(call->batch, nn_threads(g->num_threads, elements * TANH_OPERATIONS), run_scores, call);
    if (g->v)
        sum_scores(call, &u);
    if (!g->x && !g->w && !g->bias)
        return;
    attn_run_ranges(call->batch, threads, run_projections, call);
    if (g->w || g->bias) {
        attn_linear_gradients gradients = attn_linear_gradients_default();
        gradients.weights = g->w;
        gradients.bias = g->bias;
        gradients.accumulate = g->accumulate;
        gradients.num_threads = g->num_threads;
        nn_linear_backward(call->w, &x, &u, &gradients, p->scratch, p->scratch_size);
    }
    if (g->x) {
        attn_run_ranges(call->batch, threads, run_values, call);
        project_back(call, &u, &x);
        attn_run_ranges(call->batch, copying, scatter_sequences, call);
    }
}

/* ------------------------------------------------------------------- checks -- */

static attn_status take_gradients(attn_pool_gradients *ours, const attn_pool_gradients *gradients)
{
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected what to write");
    CHECK(attn_take_struct("gradients", ours, sizeof *ours, NN_POOL_GRADIENTS_FIRST, gradients));
    return nn_check_threads(ours->num_threads);
}

static attn_status check_call(const struct call *call)
{
    const attn_pool_gradients *g = &call->gradients;
    CHECK(nn_check_matrix("w", call->w, NN_ANY, NN_ANY));
    CHECK(nn_check_length("w.shape[2]", call->w->shape[2], 1));
    CHECK(nn_check_length("w.shape[3]", call->w->shape[3], 1));
    const int64_t inner = call->w->shape[2], channels = call->w->shape[3];
    if (call->bias)
        CHECK(nn_check_vector("bias", call->bias, inner));
    CHECK(nn_check_vector("v", call->v, inner));
    CHECK(nn_check_activations("x", call->x, NN_ANY, NN_ANY, channels));
    const int64_t batch = call->x->shape[0], tokens = call->x->shape[2];
    CHECK(nn_check_lengths("lengths", call->lengths, batch, tokens, "the tokens of x"));
    CHECK(nn_check_activations("d_out", call->d_out, batch, 1, channels));
    if (!g->x && !g->w && !g->bias && !g->v)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients has no tensor; expected x, w, bias or v");
    if (g->x)
        CHECK(nn_check_output("gradients.x", g->x, batch, tokens, channels));
    if (g->w)
        CHECK(nn_check_sums("gradients.w", g->w, inner, channels));
    if (g->bias)
        CHECK(nn_check_sums("gradients.bias", g->bias, 1, inner));
    if (g->v)
        CHECK(nn_check_sums("gradients.v", g->v, 1, inner));
    const struct nn_argument outputs[] = {
        {"gradients.x", g->x}, {"gradients.w", g->w}, {"gradients.bias", g->bias}, {"gradients.v", g->v}};
    const struct nn_argument inputs[] = {
        {"w", call->w}, {"bias", call->bias}, {"v", call->v}, {"x", call->x}, {"d_out", call->d_out}};
    return nn_check_apart(outputs, 4, inputs, 5);
}

size_t attn_pool_backward_workspace_size(int64_t channels, int64_t inner, int64_t batch, int64_t tokens,
                                         const attn_pool_gradients *gradients)
{
    attn_pool_gradients g;
    if (take_gradients(&g, gradients) || nn_check_length("channels", channels, 1) ||
        nn_check_length("inner", inner, 1) || nn_check_length("batch", batch, 0) ||
        nn_check_length("tokens", tokens, 0))
        return SIZE_MAX;
    struct nn_arena arena = {0};
    take_pieces(&arena, channels, inner, batch, tokens, g.num_threads);
    return nn_arena_size(&arena);
}

attn_status attn_pool_backward(const attn_tensor *w, const attn_tensor *bias, const attn_tensor *v,
                               const attn_tensor *x, const int64_t *lengths, const attn_tensor *d_out,
                               const attn_pool_gradients *gradients, void *workspace, size_t workspace_size)
{
    struct call call = {.w = w, .bias = bias, .v = v, .x = x, .d_out = d_out, .lengths = lengths};
    CHECK(take_gradients(&call.gradients, gradients));
    CHECK(check_call(&call));
    call.kernels = attn_nn_kernels_active();
    call.batch = x->shape[0];
    call.tokens = x->shape[2];
    call.channels = w->shape[3];
    call.inner = w->shape[2];
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    const int num_threads = call.gradients.num_threads;
    take_pieces(&measured, call.channels, call.inner, call.batch, call.tokens, num_threads);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    call.pieces = take_pieces(&memory.arena, call.channels, call.inner, call.batch, call.tokens, num_threads);
    run(&call);
    nn_workspace_close(&memory);
    return ATTN_OK;
}
