/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head attention: projections around the core.
 *
 *     x -- W_q --> q [B][Tq][heads][head_dim]  \
 *     m -- W_k --> k [B][Tk][kv_heads][...]     > core -> [B][Tq][heads][value_dim] -- W_o --> out
 *       \- W_v --> v, in the same row as k     /
 *
 * Q, K and V are three parts of one linear layer where they read rows of one
 * length, so self-attention is one product; keys and values of a token are
 * neighbours, as a cache has them.
 */
#include "nn/mha.h"

#include "attn/nn/elementwise.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/linear.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PART_Q, PART_K, PART_V, NUM_PARTS };

struct attn_mha {
    attn_mha_config config;
    attn_linear *qkv; /* three parts; NULL if memory and x have different lengths of rows */
    attn_linear *q;   /* else this one, of one part, */
    attn_linear *kv;  /* and this one, of two */
    attn_linear *o;
    float *query_norm, *key_norm; /* [head_dim] of norms behind the projections; NULL: there are none */
    float norm_eps;
};

/* ------------------------------------------------------------------ making -- */

attn_status nn_complete_mha_config(attn_mha_config *c, const char *name, const attn_mha_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected an attn_mha_config", name);
    CHECK(attn_take_struct(name, c, sizeof *c, NN_MHA_CONFIG_FIRST, theirs));
    CHECK(nn_check_length("config.d_model", c->d_model, 1));
    CHECK(nn_check_length("config.heads", c->heads, 1));
    CHECK(nn_check_length("config.kv_heads", c->kv_heads, 0));
    CHECK(nn_check_length("config.head_dim", c->head_dim, 0));
    CHECK(nn_check_length("config.value_dim", c->value_dim, 0));
    CHECK(nn_check_length("config.d_memory", c->d_memory, 0));
    CHECK(nn_check_length("config.d_out", c->d_out, 0));
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (c->heads % c->kv_heads != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.kv_heads is %" PRId64 "; expected a divisor of the %" PRId64 " heads", c->kv_heads,
                         c->heads);
    if (!c->head_dim && c->d_model % c->heads != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.head_dim is 0; expected a value, as d_model, %" PRId64
                         ", is not a multiple of the %" PRId64 " heads",
                         c->d_model, c->heads);
    if (!c->head_dim)
        c->head_dim = c->d_model / c->heads;
    if (!c->value_dim)
        c->value_dim = c->head_dim;
    if (!c->d_memory)
        c->d_memory = c->d_model;
    if (!c->d_out)
        c->d_out = c->d_model;
    int64_t product;
    if (__builtin_mul_overflow(c->heads, c->head_dim, &product) || product > INT32_MAX ||
        __builtin_mul_overflow(c->heads, c->value_dim, &product) || product > INT32_MAX)
        return attn_fail(ATTN_SIZE_OVERFLOW,
                         "config.heads is %" PRId64 " of %" PRId64 " and %" PRId64
                         " channels; expected fewer than 2^31 channels in all",
                         c->heads, c->head_dim, c->value_dim);
    return ATTN_OK;
}

static attn_status make_linears(attn_mha *mha, const attn_linear_format *format, const attn_mha_weights *w)
{
    const attn_tensor matrices[] = {w->w_q, w->w_k, w->w_v}, biases[] = {w->b_q, w->b_k, w->b_v};
    if (mha->config.d_memory == mha->config.d_model) {
        CHECK(attn_linear_quantize(&mha->qkv, format, NUM_PARTS, matrices, biases));
    } else {
        CHECK(attn_linear_quantize(&mha->q, format, 1, matrices, biases));
        CHECK(attn_linear_quantize(&mha->kv, format, 2, matrices + PART_K, biases + PART_K));
    }
    return attn_linear_quantize(&mha->o, format, 1, &w->w_o, &w->b_o);
}

attn_status attn_mha_create(attn_mha **mha_out, const attn_mha_config *config, const attn_mha_weights *weights)
{
    if (!mha_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "mha is NULL; expected where to put the layer");
    *mha_out = NULL;
    attn_mha_config completed;
    attn_mha_weights ours;
    CHECK(nn_complete_mha_config(&completed, "config", config));
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected an attn_mha_weights");
    CHECK(attn_take_struct("weights", &ours, sizeof ours, NN_MHA_WEIGHTS_FIRST, weights));
    CHECK(nn_check_mha_weights(&completed, "weights.", &ours));
    attn_mha *mha = calloc(1, sizeof *mha);
    if (!mha)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a layer of multi-head attention could not be allocated");
    mha->config = completed;
    mha->config.format = NULL;
    const attn_status status = make_linears(mha, completed.format, &ours);
    if (status)
        attn_mha_destroy(mha);
    else
        *mha_out = mha;
    return status;
}

void attn_mha_destroy(attn_mha *mha)
{
    if (!mha)
        return;
    attn_linear_destroy(mha->qkv);
    attn_linear_destroy(mha->q);
    attn_linear_destroy(mha->kv);
    attn_linear_destroy(mha->o);
    free(mha->query_norm);
    free(mha->key_norm);
    free(mha);
}

attn_status nn_mha_set_norms(attn_mha *mha, const attn_tensor *query, const attn_tensor *key, float eps)
{
    mha->norm_eps = eps;
    CHECK(nn_copy_floats(query, &mha->query_norm));
    return nn_copy_floats(key, &mha->key_norm);
}

const attn_mha_config *nn_mha_config(const attn_mha *mha)
{
    return &mha->config;
}

attn_status attn_mha_sizes(const attn_mha *mha, attn_mha_config *sizes)
{
    attn_mha_config known;
    if (!mha)
        return attn_fail(ATTN_INVALID_ARGUMENT, "mha is NULL; expected a layer");
    if (!sizes)
        return attn_fail(ATTN_INVALID_ARGUMENT, "sizes is NULL; expected an attn_mha_config");
    CHECK(attn_take_struct("sizes", &known, sizeof known, NN_MHA_CONFIG_FIRST, sizes));
    const size_t size = sizes->struct_size;
    memcpy(sizes, &mha->config, size < sizeof known ? size : sizeof known);
    sizes->struct_size = size;
    return ATTN_OK;
}

/* ------------------------------------------------------- views and memory -- */

static int64_t kv_channels(const attn_mha *mha)
{
    return mha->config.kv_heads * (mha->config.head_dim + mha->config.value_dim);
}

/** Channels first.. to first + n - 1 of a (B, 1, T, C) tensor. */
static attn_tensor channels_of(const attn_tensor *t, int64_t first, int64_t n)
{
    return nn_heads_of(t, first, 1, n);
}

attn_tensor attn_mha_keys(const attn_mha *mha, const attn_tensor *kv)
{
    return nn_heads_of(kv, 0, mha->config.kv_heads, mha->config.head_dim);
}

attn_tensor attn_mha_values(const attn_mha *mha, const attn_tensor *kv)
{
    const attn_mha_config *c = &mha->config;
    return nn_heads_of(kv, c->kv_heads * c->head_dim, c->kv_heads, c->value_dim);
}

/** What the core is given. */
struct core_tensors {
    attn_tensor q_rows, heads_rows; /* (B, 1, Tq, heads * channels) */
    attn_tensor q, k, v, out;
};

static struct core_tensors core_tensors_of(const attn_mha *mha, const struct nn_mha_pieces *pieces, int64_t batch,
                                           int64_t q_tokens, const attn_tensor *kv)
{
    const attn_mha_config *c = &mha->config;
    struct core_tensors t;
    t.q_rows = attn_btc(pieces->q, batch, q_tokens, c->heads * c->head_dim);
    t.heads_rows = attn_btc(pieces->heads, batch, q_tokens, c->heads * c->value_dim);
    t.q_rows.dtype = pieces->qkv;
    t.heads_rows.dtype = pieces->dtype;
    t.q = nn_heads_of(&t.q_rows, 0, c->heads, c->head_dim);
    t.out = nn_heads_of(&t.heads_rows, 0, c->heads, c->value_dim);
    t.k = attn_mha_keys(mha, kv);
    t.v = attn_mha_values(mha, kv);
    return t;
}

/** The attention of such a shape, with queries, keys and values of a type, unless a call brings these. */
static attn_status make_core(struct attn_call *core, const attn_mha *mha, const struct nn_mha_shape *shape,
                             const attn_params *params, attn_dtype qkv)
{
    const struct nn_mha_pieces shapes_only = {.dtype = shape->dtype, .qkv = qkv};
    attn_tensor kv = attn_btc(NULL, shape->batch, shape->k_tokens, kv_channels(mha));
    kv.dtype = shape->kv ? shape->kv->dtype : qkv;
    if (shape->kv && params->block_table)
        kv = *shape->kv;
    const struct core_tensors t = core_tensors_of(mha, &shapes_only, shape->batch, shape->q_tokens, &kv);
    return attn_call_make(core, &t.q, &t.k, &t.v, &t.out, params, CHECK_SHAPES);
}

/**
 * The type in which queries, keys and values wait for the attention: that of x, or bf16 where this is all that the
 * attention would take of it and nothing comes in between.
 */
static attn_dtype waiting_type(const attn_mha *mha, const struct nn_mha_shape *shape, const attn_params *params)
{
    const int changes = shape->rotates || params->rope || mha->query_norm || mha->key_norm;
    if (params->inputs != ATTN_INPUTS_MAY_BE_BF16 || shape->kv || shape->elsewhere || changes)
        return shape->dtype;
    struct attn_call core;
    if (make_core(&core, mha, shape, params, shape->dtype)) /* which is said when its workspace is measured */
        return shape->dtype;
    return core.geometry.kernels.values->keys_per_word == 2 ? ATTN_BF16 : shape->dtype;
}

/** The workspace of the attention. */
static attn_status measure_core(struct nn_need *need, const attn_mha *mha, const struct nn_mha_shape *shape,
                                const attn_params *params, attn_dtype qkv)
{
    struct attn_call core;
    CHECK(make_core(&core, mha, shape, params, qkv));
    *need = (struct nn_need){attn_call_size(&core), attn_call_least_size(&core)};
    return ATTN_OK;
}

struct nn_mha_pieces nn_mha_take(struct nn_arena *arena, const attn_mha *mha, const struct nn_mha_shape *shape,
                                 const attn_params *params)
{
    const attn_mha_config *c = &mha->config;
    struct nn_mha_pieces pieces = {.dtype = shape->dtype, .qkv = waiting_type(mha, shape, params)};
    const size_t size = attn_dtype_size(pieces.dtype), waiting = attn_dtype_size(pieces.qkv);
    pieces.q = nn_take(arena, shape->batch, shape->q_tokens, c->heads * c->head_dim, waiting);
    pieces.heads = nn_take(arena, shape->batch, shape->q_tokens, c->heads * c->value_dim, size);
    pieces.kv = shape->kv ? NULL : nn_take(arena, shape->batch, shape->k_tokens, kv_channels(mha), waiting);
    struct nn_need need = {0};
    if (!arena->status && !arena->base && !shape->elsewhere)
        arena->status = measure_core(&need, mha, shape, params, pieces.qkv);
    pieces.core = nn_take_workspace(arena, need, &pieces.core_size);
    return pieces;
}

size_t attn_mha_workspace_size(const attn_mha *mha, int64_t batch, int64_t q_tokens, int64_t k_tokens,
                               const attn_params *params)
{
    attn_params p;
    if (!mha || batch < 0 || q_tokens < 0 || k_tokens < 0 || attn_take_params(&p, params))
        return SIZE_MAX;
    size_t most = 0;
    for (attn_dtype x = ATTN_F32; x <= ATTN_F16; x++)
        for (attn_dtype keys = ATTN_F32; keys <= ATTN_F16; keys++) {
            /* Of pages one stands for any number. */
            attn_tensor kv = attn_btc(NULL, 1, p.page_size, kv_channels(mha));
            kv.dtype = keys;
            const struct nn_mha_shape shape = {
                .dtype = x,
                .batch = batch,
                .q_tokens = q_tokens,
                .k_tokens = k_tokens,
                .kv = keys == x && !p.block_table ? NULL : &kv,
            };
            struct nn_arena arena = {0};
            nn_mha_take(&arena, mha, &shape, &p);
            const size_t size = nn_arena_size(&arena);
            most = size > most ? size : most;
        }
    return most;
}

/* ----------------------------------------------------------------- running -- */

/** The products of the parts of x and memory that have somewhere to go; k and v are views of one row. */
static attn_status multiply(const attn_mha *mha, const attn_tensor *x, const attn_tensor *q, const attn_tensor *memory,
                            const attn_tensor *k, const attn_tensor *v, int num_threads)
{
    const attn_linear_options options = nn_linear_threads(num_threads);
    const attn_tensor *outs[NUM_PARTS] = {q, k, v};
    if (!mha->qkv) {
        if (q)
            CHECK(attn_linear_forward(mha->q, x, q, &options));
        return k ? attn_linear_forward_parts(mha->kv, memory, outs + PART_K, &options) : ATTN_OK;
    }
    if (q && (!k || x == memory))
        return attn_linear_forward_parts(mha->qkv, x, outs, &options);
    if (q)
        CHECK(attn_linear_forward_parts(mha->qkv, x, (const attn_tensor *[NUM_PARTS]){q}, &options));
    outs[PART_Q] = NULL;
    return attn_linear_forward_parts(mha->qkv, memory, outs, &options);
}

/** Normalises the heads of rows (B, 1, T, heads * head_dim), in place: those of a sequence are rows of one tensor. */
static attn_status normalise_heads(const attn_mha *mha, const attn_tensor *rows, float *gamma, int num_threads)
{
    const int64_t width = mha->config.head_dim;
    const attn_tensor weights = attn_vector(gamma, width);
    for (int64_t b = 0; b < rows->shape[0]; b++) {
        const attn_tensor heads = {
            .data = (char *)rows->data + b * rows->stride[0] * attn_element_size(rows->dtype),
            .dtype = rows->dtype,
            .shape = {rows->shape[2], 1, rows->shape[3] / width, width},
            .stride = {rows->stride[2], width, width, 1},
        };
        CHECK(attn_normalise(ATTN_NORM_RMS, &heads, &weights, NULL, mha->norm_eps, &heads, num_threads));
    }
    return ATTN_OK;
}

/** Projects the parts of x and memory that have somewhere to go, and normalises what is to be. */
static attn_status project(const attn_mha *mha, const attn_tensor *x, const attn_tensor *q, const attn_tensor *memory,
                           const attn_tensor *kv, int num_threads)
{
    const attn_mha_config *c = &mha->config;
    attn_tensor k, v;
    if (kv) {
        k = channels_of(kv, 0, c->kv_heads * c->head_dim);
        v = channels_of(kv, c->kv_heads * c->head_dim, c->kv_heads * c->value_dim);
    }
    CHECK(multiply(mha, x, q, memory, kv ? &k : NULL, kv ? &v : NULL, num_threads));
    if (q && mha->query_norm)
        CHECK(normalise_heads(mha, q, mha->query_norm, num_threads));
    return kv && mha->key_norm ? normalise_heads(mha, &k, mha->key_norm, num_threads) : ATTN_OK;
}

/** The keys and values that a call attends to; where it brings none, they lie in the workspace. */
static attn_tensor kv_of(const attn_mha *mha, const struct nn_mha_call *call, const struct nn_mha_pieces *pieces)
{
    if (call->kv)
        return *call->kv;
    const attn_tensor *from = call->memory ? call->memory : call->x;
    attn_tensor kv = attn_btc(pieces->kv, from->shape[0], from->shape[2], kv_channels(mha));
    kv.dtype = pieces->qkv;
    return kv;
}

attn_status nn_mha_check(const attn_mha *mha, struct nn_mha_call *call, const struct nn_mha_pieces *pieces)
{
    if (call->kv_cache) /* which checks what it is given when the keys are there */
        return ATTN_OK;
    const attn_tensor kv = kv_of(mha, call, pieces);
    const struct core_tensors t = core_tensors_of(mha, pieces, call->x->shape[0], call->x->shape[2], &kv);
    return attn_call_make(&call->core, &t.q, &t.k, &t.v, &t.out, call->params, CHECK_ALL);
}

/** The attention of what has been projected, in a cache: its step is that of x. */
static attn_status attend_in_cache(const attn_mha *mha, const struct nn_mha_call *call, const struct core_tensors *t,
                                   const attn_tensor *kv)
{
    const int num_threads = call->params->num_threads;
    const attn_tensor k = attn_mha_keys(mha, kv), v = attn_mha_values(mha, kv);
    CHECK(attn_cache_append(call->kv_cache, call->layer, &k, &v, num_threads));
    CHECK(attn_cache_rotate(call->kv_cache, &t->q, &t->q, num_threads));
    return attn_cache_attend(call->kv_cache, call->layer, &t->q, &t->out, call->params);
}

static attn_status run(const attn_mha *mha, const struct nn_mha_call *call, const struct nn_mha_pieces *pieces)
{
    const int num_threads = call->params->num_threads;
    const attn_tensor kv = kv_of(mha, call, pieces);
    const attn_tensor *written = call->kv ? call->new_kv : &kv;
    const struct core_tensors t = core_tensors_of(mha, pieces, call->x->shape[0], call->x->shape[2], &kv);
    CHECK(project(mha, call->x, &t.q_rows, call->memory ? call->memory : call->x, written, num_threads));
    if (call->rotation) {
        CHECK(attn_rope(&t.q, call->rotation, call->layout, &t.q, num_threads));
        if (written) {
            const attn_tensor keys = attn_mha_keys(mha, written);
            CHECK(attn_rope(&keys, call->rotation, call->layout, &keys, num_threads));
        }
    }
    CHECK(call->kv_cache ? attend_in_cache(mha, call, &t, &kv)
                         : attn_call_run(&call->core, pieces->core, pieces->core_size));
    attn_linear_options options = nn_linear_threads(num_threads);
    options.residual = call->residual;
    return attn_linear_forward(mha->o, &t.heads_rows, call->out, &options);
}

attn_status nn_mha_run(const attn_mha *mha, const struct nn_mha_call *call, const struct nn_mha_pieces *pieces)
{
    const attn_executor *before = attn_executor_enter(call->params->executor);
    const attn_status status = run(mha, call, pieces);
    attn_executor_leave(before);
    return status;
}

/** Checks, memory and run of the two public calls. */
static attn_status run_public(const attn_mha *mha, struct nn_mha_call *call, int64_t k_tokens,
                              const attn_params *params, void *workspace, size_t workspace_size)
{
    attn_params completed;
    CHECK(attn_take_params(&completed, params));
    CHECK(nn_check_threads(completed.num_threads));
    call->params = &completed;
    const struct nn_mha_shape shape = {
        .dtype = call->x->dtype,
        .batch = call->x->shape[0],
        .q_tokens = call->x->shape[2],
        .k_tokens = k_tokens,
        .kv = call->kv,
    };
    struct nn_arena measured = {0};
    nn_mha_take(&measured, mha, &shape, &completed);
    struct nn_workspace w;
    CHECK(nn_workspace_open(&w, workspace, workspace_size, &measured));
    const struct nn_mha_pieces pieces = nn_mha_take(&w.arena, mha, &shape, &completed);
    attn_status status = nn_mha_check(mha, call, &pieces);
    if (!status)
        status = nn_mha_run(mha, call, &pieces);
    nn_workspace_close(&w);
    return status;
}

static attn_status check_mha(const attn_mha *mha)
{
    return mha ? ATTN_OK : attn_fail(ATTN_INVALID_ARGUMENT, "mha is NULL; expected a layer");
}

attn_status attn_mha_forward(const attn_mha *mha, const attn_tensor *x, const attn_tensor *memory,
                             const attn_tensor *out, const attn_params *params, void *workspace, size_t workspace_size)
{
    CHECK(check_mha(mha));
    const attn_mha_config *c = &mha->config;
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, c->d_model));
    if (memory)
        CHECK(nn_check_typed_activations("memory", memory, x->shape[0], NN_ANY, c->d_memory));
    else if (c->d_memory != c->d_model)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "memory is NULL; expected a tensor of %" PRId64 " channels, as keys are not made from x",
                         c->d_memory);
    CHECK(nn_check_typed_output("out", out, x->shape[0], x->shape[2], c->d_out));
    CHECK(attn_check_apart("out", out, "x", x, 0));
    if (memory)
        CHECK(attn_check_apart("out", out, "memory", memory, 0));
    struct nn_mha_call call = {.x = x, .memory = memory, .out = out};
    return run_public(mha, &call, (memory ? memory : x)->shape[2], params, workspace, workspace_size);
}

attn_status attn_mha_attend(const attn_mha *mha, const attn_tensor *x, const attn_tensor *kv, const attn_tensor *out,
                            const attn_params *params, void *workspace, size_t workspace_size)
{
    attn_params completed;
    CHECK(check_mha(mha));
    CHECK(attn_take_params(&completed, params));
    const attn_mha_config *c = &mha->config;
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, c->d_model));
    CHECK(nn_check_typed_activations("kv", kv, completed.block_table ? NN_ANY : x->shape[0], NN_ANY, kv_channels(mha)));
    CHECK(nn_check_typed_output("out", out, x->shape[0], x->shape[2], c->d_out));
    CHECK(attn_check_apart("out", out, "x", x, 0));
    CHECK(attn_check_apart("out", out, "kv", kv, 0));
    struct nn_mha_call call = {.x = x, .kv = kv, .out = out};
    return run_public(mha, &call, kv->shape[2], params, workspace, workspace_size);
}

attn_status attn_mha_project_kv(const attn_mha *mha, const attn_tensor *memory, const attn_tensor *kv, int num_threads)
{
    CHECK(check_mha(mha));
    CHECK(nn_check_typed_activations("memory", memory, NN_ANY, NN_ANY, mha->config.d_memory));
    CHECK(nn_check_typed_output("kv", kv, memory->shape[0], memory->shape[2], kv_channels(mha)));
    CHECK(attn_check_apart("kv", kv, "memory", memory, 0));
    CHECK(nn_check_threads(num_threads));
    return project(mha, NULL, NULL, memory, kv, num_threads);
}
