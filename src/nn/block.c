/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Transformer layer at work. Each sublayer's last product adds the residual,
 * so between two products there is nothing but a normalisation,
 * if none stands between sublayer and residual:
 *
 *     post-norm:  a = sublayer(x) + x,  a = norm(a),  and so on; the last norm writes out
 *     pre-norm:   a = norm(x),  out = sublayer(a) + x,  a = norm(out),  out = sublayer(a) + out, ...
 *     and with norms behind sublayers:  a = norm(x),  a = norm(sublayer(a)),  out = a + x, ...
 */
#include "nn/block.h"

#include "api/executor.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/linear.h"
#include "nn/mha.h"
#include "nn/product_rows.h"

#include <inttypes.h>

/** A call that has been checked, with its memory. */
struct block_call {
    const attn_block *block;
    attn_dtype dtype; /* of x */
    int num_threads;
    attn_params self_params, cross_params;
    struct nn_mha_call self, cross;
    struct nn_mha_pieces self_pieces, cross_pieces;
    attn_tensor normed;      /* (B, 1, T, d_model) in the workspace: a above */
    attn_tensor hidden;      /* (B, 1, T, d_ff), */
    attn_tensor hidden_2;    /* and the second one if gated */
    attn_tensor seen, added; /* of the cache: what x sees, where its own keys and values go */
};

/** Tokens of the memory that a call brings, in one form or the other. */
static int64_t memory_tokens(const attn_block_inputs *inputs)
{
    return inputs->memory ? inputs->memory->shape[2] : inputs->cross_kv ? inputs->cross_kv->shape[2] : 0;
}

/** Activations of the type of x. */
static attn_tensor take_rows(struct nn_arena *arena, const struct block_call *call, int64_t batch, int64_t tokens,
                             int64_t channels)
{
    void *data = nn_take(arena, batch, tokens, channels, attn_dtype_size(call->dtype));
    attn_tensor rows = attn_btc(data, batch, tokens, channels);
    rows.dtype = call->dtype;
    return rows;
}

static void take_pieces(struct nn_arena *arena, struct block_call *call, int64_t batch, int64_t tokens,
                        const attn_block_inputs *inputs)
{
    const attn_block *block = call->block;
    const attn_block_config *c = &block->config;
    const int64_t keys = inputs->cache ? inputs->cached + tokens : tokens;
    const struct nn_mha_shape self = {
        .dtype = call->dtype,
        .batch = batch,
        .q_tokens = tokens,
        .k_tokens = keys,
        .kv = inputs->cache,
        .elsewhere = inputs->kv_cache != NULL,
        .rotates = inputs->rotation != NULL,
    };
    const struct nn_mha_shape cross = {
        .dtype = call->dtype,
        .batch = batch,
        .q_tokens = tokens,
        .k_tokens = memory_tokens(inputs),
        .kv = inputs->cross_kv,
    };
    call->normed = take_rows(arena, call, batch, tokens, block->attention.d_model);
    call->hidden = take_rows(arena, call, batch, tokens, c->d_ff);
    if (c->gated)
        call->hidden_2 = take_rows(arena, call, batch, tokens, c->d_ff);
    call->self_pieces = nn_mha_take(arena, block->self, &self, &call->self_params);
    if (c->cross)
        call->cross_pieces = nn_mha_take(arena, block->cross, &cross, &call->cross_params);
}

/* ------------------------------------------------------------------ checks -- */

static attn_status take_inputs(attn_block_inputs *ours, const attn_block_inputs *theirs)
{
    CHECK(attn_take_struct("inputs", ours, sizeof *ours, NN_BLOCK_INPUTS_FIRST, theirs));
    CHECK(attn_check_executor("inputs.executor", ours->executor));
    return nn_check_threads(ours->num_threads);
}

static attn_status take_all_params(struct block_call *call, const attn_block_inputs *inputs)
{
    call->num_threads = inputs->num_threads;
    CHECK(attn_take_params(&call->self_params, inputs->self));
    CHECK(attn_take_params(&call->cross_params, inputs->cross));
    call->self_params.num_threads = call->cross_params.num_threads = inputs->num_threads;
    return ATTN_OK;
}

static attn_status check_cross(const attn_block *block, const attn_block_inputs *inputs, const attn_params *params,
                               const attn_tensor *x, const attn_tensor *out)
{
    if (!block->cross) {
        if (inputs->memory || inputs->cross_kv || inputs->cross)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "inputs.%s is set; expected NULL, as this layer has no cross-attention",
                             inputs->memory     ? "memory"
                             : inputs->cross_kv ? "cross_kv"
                                                : "cross");
        return ATTN_OK;
    }
    if (!inputs->memory == !inputs->cross_kv)
        return attn_fail(ATTN_INVALID_ARGUMENT, "inputs.memory and inputs.cross_kv are %s; expected one of them",
                         inputs->memory ? "both set" : "both NULL");
    const attn_mha_config c = *nn_mha_config(block->cross);
    const int64_t kv = c.kv_heads * (c.head_dim + c.value_dim);
    const char *name = inputs->memory ? "inputs.memory" : "inputs.cross_kv";
    const attn_tensor *t = inputs->memory ? inputs->memory : inputs->cross_kv;
    const int64_t batch = inputs->cross_kv && params->block_table ? NN_ANY : x->shape[0];
    CHECK(nn_check_typed_activations(name, t, batch, NN_ANY, inputs->memory ? c.d_memory : kv));
    return attn_check_apart("out", out, name, t, 0);
}

static attn_status check_cache(const attn_block *block, const attn_block_inputs *inputs, const attn_tensor *x,
                               const attn_tensor *out)
{
    if (!inputs->cache) {
        if (inputs->cached)
            return attn_fail(ATTN_INVALID_ARGUMENT, "inputs.cached is %" PRId64 "; expected 0 without a cache",
                             inputs->cached);
        return ATTN_OK;
    }
    const attn_mha_config c = *nn_mha_config(block->self);
    const int64_t channels = c.kv_heads * (c.head_dim + c.value_dim);
    CHECK(nn_check_typed_output("inputs.cache", inputs->cache, x->shape[0], NN_ANY, channels));
    if (inputs->cached < 0 || inputs->cached > inputs->cache->shape[2] ||
        x->shape[2] > inputs->cache->shape[2] - inputs->cached)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "inputs.cached is %" PRId64 "; expected 0 to %" PRId64 ", so that the %" PRId64
                         " tokens of x fit into the cache of %" PRId64,
                         inputs->cached, inputs->cache->shape[2] - x->shape[2], x->shape[2], inputs->cache->shape[2]);
    CHECK(attn_check_apart("inputs.cache", inputs->cache, "x", x, 0));
    return attn_check_apart("out", out, "inputs.cache", inputs->cache, 0);
}

static attn_status check_kv_cache(const attn_block_inputs *inputs, const attn_tensor *x)
{
    attn_tensor step;
    if (!inputs->kv_cache) {
        if (inputs->kv_layer)
            return attn_fail(ATTN_INVALID_ARGUMENT, "inputs.kv_layer is %" PRId64 "; expected 0 without a kv_cache",
                             inputs->kv_layer);
        return ATTN_OK;
    }
    if (inputs->cache || inputs->rotation)
        return attn_fail(ATTN_INVALID_ARGUMENT, "inputs.%s and inputs.kv_cache are both set; expected one of them",
                         inputs->cache ? "cache" : "rotation");
    CHECK(attn_cache_rotations(inputs->kv_cache, &step));
    if (x->shape[0] != 1)
        return attn_fail(ATTN_SHAPE_MISMATCH, "x.shape[0] is %" PRId64 "; expected 1, as sequences follow each other",
                         x->shape[0]);
    if (x->shape[2] != step.shape[2])
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "x.shape[2] is %" PRId64 "; expected %" PRId64 ", the tokens of the cache's step", x->shape[2],
                         step.shape[2]);
    return ATTN_OK;
}

static attn_status check_rotation(const attn_block *block, const attn_block_inputs *inputs, const attn_tensor *x,
                                  const attn_tensor *out)
{
    const attn_tensor *t = inputs->rotation;
    if ((unsigned)inputs->rope > ATTN_ROPE_INTERLEAVED)
        return attn_fail(ATTN_INVALID_ARGUMENT, "inputs.rope is %d; expected an attn_rope_layout", (int)inputs->rope);
    if (!t)
        return inputs->rope ? attn_fail(ATTN_INVALID_ARGUMENT, "inputs.rope is %d; expected 0 without a rotation",
                                        (int)inputs->rope)
                            : ATTN_OK;
    const int64_t head_dim = nn_mha_config(block->self)->head_dim;
    CHECK(nn_check_activations("inputs.rotation", t, NN_ANY, x->shape[2], NN_ANY));
    CHECK(attn_check_one_or("inputs.rotation", t, 0, x->shape[0]));
    if (t->shape[3] % 2 != 0 || t->shape[3] > head_dim)
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "inputs.rotation.shape[3] is %" PRId64 "; expected an even number up to %" PRId64
                         ", the head size",
                         t->shape[3], head_dim);
    return attn_check_apart("out", out, "inputs.rotation", t, 0);
}

static attn_status check_call(const attn_block *block, const attn_tensor *x, const attn_tensor *out,
                              const attn_block_inputs *inputs, const attn_params *cross)
{
    const int64_t d = block->attention.d_model;
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, d));
    CHECK(nn_check_typed_output("out", out, x->shape[0], x->shape[2], d));
    CHECK(attn_check_apart("out", out, "x", x, 1));
    CHECK(check_cross(block, inputs, cross, x, out));
    CHECK(check_cache(block, inputs, x, out));
    CHECK(check_kv_cache(inputs, x));
    return check_rotation(block, inputs, x, out);
}

static attn_status check_block(const attn_block *block)
{
    return block ? ATTN_OK : attn_fail(ATTN_INVALID_ARGUMENT, "block is NULL; expected a layer");
}

/* ----------------------------------------------------------------- running -- */

static attn_status normalise(const struct block_call *call, const struct nn_norm *norm, const attn_tensor *x,
                             const attn_tensor *out)
{
    const attn_block *block = call->block;
    const attn_block_config *c = &block->config;
    const attn_tensor gamma = attn_vector(norm->gamma, block->attention.d_model);
    const attn_tensor beta = attn_vector(norm->beta, block->attention.d_model);
    return attn_normalise(c->norm, x, norm->gamma ? &gamma : NULL, norm->beta ? &beta : NULL, c->eps, out,
                          call->num_threads);
}

static attn_status run_network(struct block_call *call, const attn_tensor *x, const attn_tensor *residual,
                               const attn_tensor *out)
{
    const attn_block *block = call->block;
    const attn_block_config *c = &block->config;
    attn_linear_options options = nn_linear_threads(call->num_threads);
    if (c->gated) {
        const attn_tensor *const outs[] = {&call->hidden, &call->hidden_2};
        CHECK(attn_linear_forward_parts(block->up, x, outs, &options));
        CHECK(attn_gate(c->activation, &call->hidden, &call->hidden_2, &call->hidden, call->num_threads));
    } else {
        options.activation = c->activation;
        CHECK(attn_linear_forward(block->up, x, &call->hidden, &options));
    }
    options.activation = ATTN_ACTIVATION_NONE;
    options.residual = residual;
    return attn_linear_forward(block->down, &call->hidden, out, &options);
}

static attn_status run_attention(const attn_mha *mha, struct nn_mha_call *attention, const struct nn_mha_pieces *pieces,
                                 const attn_tensor *x, const attn_tensor *residual, const attn_tensor *out)
{
    attention->x = x;
    attention->residual = residual;
    attention->out = out;
    return nn_mha_run(mha, attention, pieces);
}

static attn_status run_post_norm(struct block_call *call, const attn_tensor *x, const attn_tensor *out)
{
    const attn_block *block = call->block;
    const attn_tensor *a = &call->normed;
    CHECK(run_attention(block->self, &call->self, &call->self_pieces, x, x, a));
    CHECK(normalise(call, &block->self_norm, a, a));
    if (block->cross) {
        CHECK(run_attention(block->cross, &call->cross, &call->cross_pieces, a, a, a));
        CHECK(normalise(call, &block->cross_norm, a, a));
    }
    CHECK(run_network(call, a, a, a));
    return normalise(call, &block->ff_norm, a, out);
}

/** What sublayers give is normalised before it is added; each writes over its input, of which it needs no more by then.
 */
static attn_status run_two_norms(struct block_call *call, const attn_tensor *x, const attn_tensor *out)
{
    const attn_block *block = call->block;
    const attn_tensor *a = &call->normed;
    CHECK(normalise(call, &block->self_norm, x, a));
    CHECK(run_attention(block->self, &call->self, &call->self_pieces, a, NULL, a));
    CHECK(normalise(call, &block->self_post_norm, a, a));
    nn_finish_rows(&(struct nn_finish){.from = a, .to = out, .residual = x}, call->num_threads);
    CHECK(normalise(call, &block->ff_norm, out, a));
    CHECK(run_network(call, a, NULL, a));
    CHECK(normalise(call, &block->ff_post_norm, a, a));
    nn_finish_rows(&(struct nn_finish){.from = a, .to = out, .residual = out}, call->num_threads);
    return ATTN_OK;
}

static attn_status run_pre_norm(struct block_call *call, const attn_tensor *x, const attn_tensor *out)
{
    const attn_block *block = call->block;
    const attn_tensor *a = &call->normed;
    if (block->config.post_norms)
        return run_two_norms(call, x, out);
    CHECK(normalise(call, &block->self_norm, x, a));
    CHECK(run_attention(block->self, &call->self, &call->self_pieces, a, x, out));
    if (block->cross) {
        CHECK(normalise(call, &block->cross_norm, out, a));
        CHECK(run_attention(block->cross, &call->cross, &call->cross_pieces, a, out, out));
    }
    CHECK(normalise(call, &block->ff_norm, out, a));
    return run_network(call, a, out, out);
}

/** Everything that is known once there is memory: what the attentions are given. */
static void describe_attentions(struct block_call *call, const attn_tensor *x, const attn_block_inputs *inputs)
{
    call->self = (struct nn_mha_call){
        .x = x,
        .kv_cache = inputs->kv_cache,
        .layer = inputs->kv_layer,
        .rotation = inputs->rotation,
        .layout = inputs->rope,
        .params = &call->self_params,
    };
    if (inputs->cache) {
        call->seen = call->added = *inputs->cache;
        call->seen.shape[2] = inputs->cached + x->shape[2];
        call->added.shape[2] = x->shape[2];
        if (call->added.data)
            call->added.data = (char *)call->added.data +
                               inputs->cached * inputs->cache->stride[2] * attn_element_size(inputs->cache->dtype);
        call->self.kv = &call->seen;
        call->self.new_kv = &call->added;
    }
    call->cross = (struct nn_mha_call){
        .x = x,
        .memory = inputs->memory,
        .kv = inputs->cross_kv,
        .params = &call->cross_params,
    };
}

/** A call whose tensors have been checked: memory, the options of the attentions, and the run. */
static attn_status run_block(struct block_call *call, const attn_tensor *x, const attn_tensor *out,
                             const attn_block_inputs *in, void *workspace, size_t workspace_size)
{
    const attn_block *block = call->block;
    struct nn_arena measured = {0};
    take_pieces(&measured, call, x->shape[0], x->shape[2], in);
    struct nn_workspace w;
    CHECK(nn_workspace_open(&w, workspace, workspace_size, &measured));
    take_pieces(&w.arena, call, x->shape[0], x->shape[2], in);
    describe_attentions(call, x, in);
    attn_status status = nn_mha_check(block->self, &call->self, &call->self_pieces);
    if (!status && block->cross)
        status = nn_mha_check(block->cross, &call->cross, &call->cross_pieces);
    if (!status)
        status = block->config.norm_first ? run_pre_norm(call, x, out) : run_post_norm(call, x, out);
    nn_workspace_close(&w);
    return status;
}

attn_status attn_block_forward(const attn_block *block, const attn_tensor *x, const attn_tensor *out,
                               const attn_block_inputs *inputs, void *workspace, size_t workspace_size)
{
    attn_block_inputs in;
    struct block_call call = {.block = block};
    CHECK(check_block(block));
    CHECK(take_inputs(&in, inputs));
    CHECK(take_all_params(&call, &in));
    CHECK(check_call(block, x, out, &in, &call.cross_params));
    call.dtype = x->dtype;
    if (in.rotation && call.self_params.rope)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "inputs.rotation and inputs.self->rope are both set; expected one of them");
    const attn_executor *before = attn_executor_enter(in.executor);
    const attn_status status = run_block(&call, x, out, &in, workspace, workspace_size);
    attn_executor_leave(before);
    return status;
}

struct nn_need nn_block_need(const attn_block *block, attn_dtype dtype, int64_t batch, int64_t tokens,
                             const attn_block_inputs *inputs)
{
    const struct nn_need refused = {SIZE_MAX, SIZE_MAX};
    attn_block_inputs in;
    struct block_call call = {.block = block, .dtype = dtype};
    if (!block || batch < 0 || tokens < 0 || take_inputs(&in, inputs) || take_all_params(&call, &in) || in.cached < 0 ||
        in.cached > INT64_MAX - tokens)
        return refused;
    struct nn_arena arena = {0};
    const attn_executor *before = attn_executor_enter(in.executor);
    take_pieces(&arena, &call, batch, tokens, &in);
    attn_executor_leave(before);
    return nn_arena_need(&arena);
}

size_t attn_block_workspace_size(const attn_block *block, int64_t batch, int64_t tokens,
                                 const attn_block_inputs *inputs)
{
    size_t most = 0;
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        const size_t size = nn_block_need(block, dtype, batch, tokens, inputs).size;
        most = size > most ? size : most;
    }
    return most;
}

attn_status attn_block_project_memory(const attn_block *block, const attn_tensor *memory, const attn_tensor *kv,
                                      int num_threads)
{
    CHECK(check_block(block));
    if (!block->cross)
        return attn_fail(ATTN_INVALID_ARGUMENT, "block has no cross-attention; expected one made with config.cross");
    return attn_mha_project_kv(block->cross, memory, kv, num_threads);
}
