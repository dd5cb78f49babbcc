/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention pooling: additive attention of one query without a part of its own,
 * whose values are the tokens themselves.
 */
#include "nn/additive.h"
#include "nn/alignment.h"
#include "nn/check.h"
#include "nn/linear.h"
#include "nn/memory.h"

#include <inttypes.h>
#include <stdlib.h>

struct attn_pool {
    const struct attn_nn_kernels *kernels;
    attn_linear *w;
    float *v; /* as nn_additive_vector() makes it */
};

attn_status attn_pool_create(attn_pool **pool_out, const attn_tensor *w, const attn_tensor *bias, const attn_tensor *v)
{
    if (!pool_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "pool is NULL; expected where to put the pool");
    *pool_out = NULL;
    CHECK(nn_check_matrix("w", w, NN_ANY, NN_ANY));
    CHECK(nn_check_length("w.shape[2]", w->shape[2], 1));
    CHECK(nn_check_length("w.shape[3]", w->shape[3], 1));
    if (bias)
        CHECK(nn_check_vector("bias", bias, w->shape[2]));
    CHECK(nn_check_vector("v", v, w->shape[2]));
    struct attn_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a pool of %zu bytes could not be allocated", sizeof *pool);
    pool->kernels = attn_nn_kernels_active();
    attn_status status = nn_additive_vector(&pool->v, "v", v, 1.0f);
    if (!status)
        status = attn_linear_create(&pool->w, 1, w, bias);
    if (status) {
        attn_pool_destroy(pool);
        return status;
    }
    *pool_out = pool;
    return ATTN_OK;
}

void attn_pool_destroy(attn_pool *pool)
{
    if (!pool)
        return;
    attn_linear_destroy(pool->w);
    free(pool->v);
    free(pool);
}

/** Working memory: the projected tokens, and the query's part, which is nothing. */
struct pieces {
    float *projected, *query;
    void *attention;
    size_t attention_size;
};

static struct pieces take_pieces(struct nn_arena *arena, const attn_pool *pool, int64_t batch, int64_t tokens,
                                 struct nn_need attention)
{
    const int64_t channels = attn_linear_outputs(pool->w, 0);
    struct pieces pieces;
    pieces.projected = nn_take(arena, batch, tokens, channels, sizeof(float));
    pieces.query = nn_take(arena, channels, 1, 1, sizeof(float));
    pieces.attention = nn_take_workspace(arena, attention, &pieces.attention_size);
    return pieces;
}

/** The attention of a call, of which only shapes are known. */
static struct attn_problem problem_of(const attn_pool *pool, int64_t batch, int64_t tokens, const attn_params *params)
{
    const int64_t channels = attn_linear_outputs(pool->w, 0), values = attn_linear_inputs(pool->w);
    const attn_tensor q = {.shape = {batch, 1, 1, channels}}, k = {.shape = {batch, 1, tokens, channels}};
    const attn_tensor v = {.shape = {batch, 1, tokens, values}}, out = {.shape = {batch, 1, 1, values}};
    return nn_additive_problem(&q, &k, &v, &out, params);
}

size_t attn_pool_workspace_size(const attn_pool *pool, int64_t batch, int64_t tokens)
{
    if (!pool || batch < 0 || tokens < 0)
        return SIZE_MAX;
    const attn_params params = attn_params_default();
    const struct attn_problem problem = problem_of(pool, batch, tokens, &params);
    struct nn_arena arena = {0};
    take_pieces(&arena, pool, batch, tokens, nn_additive_need(&problem));
    return nn_arena_size(&arena);
}

static attn_status check_pool(const attn_pool *pool, const attn_tensor *x, const int64_t *lengths,
                              const attn_tensor *out, const attn_tensor *weights, int num_threads)
{
    if (!pool)
        return attn_fail(ATTN_INVALID_ARGUMENT, "pool is NULL; expected a pool");
    CHECK(nn_check_activations("x", x, NN_ANY, NN_ANY, attn_linear_inputs(pool->w)));
    CHECK(nn_check_lengths("lengths", lengths, x->shape[0], x->shape[2], "the tokens of x"));
    CHECK(nn_check_output("out", out, x->shape[0], 1, x->shape[3]));
    CHECK(attn_check_apart("out", out, "x", x, 0));
    if (weights) {
        CHECK(nn_check_output("weights", weights, x->shape[0], 1, x->shape[2]));
        CHECK(attn_check_apart("weights", weights, "x", x, 0));
        CHECK(attn_check_apart("weights", weights, "out", out, 0));
    }
    return nn_check_threads(num_threads);
}

attn_status attn_pool_forward(const attn_pool *pool, const attn_tensor *x, const int64_t *lengths,
                              const attn_tensor *out, const attn_tensor *weights, int num_threads, void *workspace,
                              size_t workspace_size)
{
    CHECK(check_pool(pool, x, lengths, out, weights, num_threads));
    const int64_t batch = x->shape[0], tokens = x->shape[2], channels = attn_linear_outputs(pool->w, 0);
    attn_params params = attn_params_default();
    params.kv_len = lengths;
    params.weights = weights;
    params.num_threads = num_threads;
    struct attn_problem problem = problem_of(pool, batch, tokens, &params);
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    take_pieces(&measured, pool, batch, tokens, nn_additive_need(&problem));
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    const struct pieces pieces = take_pieces(&memory.arena, pool, batch, tokens, (struct nn_need){0});
    memset(pieces.query, 0, (size_t)channels * sizeof(float));
    problem.k = attn_btc(pieces.projected, batch, tokens, channels);
    problem.q = attn_btc(pieces.query, batch, 1, channels);
    problem.q.stride[0] = 0;
    problem.v = *x;
    problem.out = *out;
    const attn_linear_options options = nn_linear_threads(num_threads);
    const attn_status status = attn_linear_forward(pool->w, x, &problem.k, &options);
    if (!status)
        nn_additive_run(&(struct nn_additive){.kernels = pool->kernels, .score = pool->v, .problem = &problem},
                        pieces.attention, pieces.attention_size);
    nn_workspace_close(&memory);
    return status;
}
