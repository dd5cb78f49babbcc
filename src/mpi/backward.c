/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_mpi_backward(): with the log-sum-exp of all keys the weights of a rectangle are its part of the whole softmax,
 * so that the gradients of rectangles add up (Liu et al. 2023, appendix; Dao et al. 2022, appendix B).
 *
 * Keys and values travel as in the forward pass. What a rank's queries give to the gradients of another's keys goes
 * back to that one, which adds what comes in the order of the steps. While a rank waits for anything it takes in what
 * has come, so that none waits for another in a circle.
 */
#include "mpi/plan.h"

#include "api/call.h"
#include "api/error.h"

#include <stdlib.h>
#include <string.h>

struct backward {
    struct mpi_run *run;
    const attn_gradients *wanted;
    attn_tensor d_k, d_v; /**< f32 sums of the block that is worked with */
    attn_tensor d_q;      /**< f32 sums */
    int num_returns,
        taken;   /**< of run->steps, those whose ranks send gradients of this rank's keys; how many were added */
    int leaving; /**< the buffer that the next gradients leave from */
    struct mpi_message *last[2]; /**< the messages that last sent from either, or NULL */
};

/** to += from, tensors of f32 of one shape with channels side by side. */
static void add(const attn_tensor *to, const attn_tensor *from)
{
    for (int64_t b = 0; b < to->shape[0]; b++)
        for (int64_t h = 0; h < to->shape[1]; h++)
            for (int64_t t = 0; t < to->shape[2]; t++) {
                float *sums = (float *)to->data + b * to->stride[0] + h * to->stride[1] + t * to->stride[2];
                const float *x =
                    (const float *)from->data + b * from->stride[0] + h * from->stride[1] + t * from->stride[2];
                for (int64_t c = 0; c < to->shape[3]; c++)
                    sums[c] += x[c];
            }
}

static void add_block(struct attn_mpi_plan *plan, void *to, void *from, int64_t tokens)
{
    attn_tensor k, v, dk, dv;
    mpi_block_view(&plan->gradients_block, to, tokens, &k, &v);
    mpi_block_view(&plan->gradients_block, from, tokens, &dk, &dv);
    add(&k, &dk);
    add(&v, &dv);
}

/** Some queries against a range of keys; the block of gradients gets these keys' besides what it has. */
static attn_status cross_some(struct mpi_run *run, const struct backward *b, const struct mpi_pair *pair,
                              attn_mpi_range queries, int64_t row)
{
    struct attn_mpi_plan *plan = run->plan;
    const attn_mpi_range keys = pair->keys;
    struct mpi_rectangle rectangle;
    mpi_make_rectangle(&run->rectangles, &rectangle, &run->own, queries, row, keys);
    const attn_tensor q = mpi_tokens(&run->q, row, queries.count), out = mpi_tokens(&run->out, row, queries.count);
    const attn_tensor lse = mpi_tokens(&run->lse, row, queries.count);
    const attn_tensor d_out = mpi_tokens(&run->d_out, row, queries.count);
    const attn_tensor d_lse = b->wanted->lse ? mpi_tokens(&run->d_lse, row, queries.count) : d_out;
    const attn_tensor part_q = attn_bhtd(plan->part_q, q.shape[0], q.shape[1], queries.count, q.shape[3]);
    attn_tensor part_k, part_v;
    mpi_block_view(&plan->gradients_block, plan->part_keys, keys.count, &part_k, &part_v);
    attn_gradients g = attn_gradients_default();
    g.out = &d_out;
    g.lse = b->wanted->lse ? &d_lse : NULL;
    g.q = &part_q;
    g.k = &part_k;
    g.v = &part_v;
    g.callback = b->wanted->callback;
    g.callback_user = b->wanted->callback_user;
    mpi_options_ask(&run->options, run->rectangles.first_head, q.shape[1], &g);
    g.sinks = NULL;
    rectangle.params.lse = &lse;
    CHECK(attn_backward_rectangle(&rectangle.place, &q, &pair->k, &pair->v, &out, &rectangle.params, &g));
    const attn_tensor d_q = mpi_tokens(&b->d_q, row, queries.count);
    add(&d_q, &part_q);
    const attn_tensor d_k = mpi_tokens(&b->d_k, pair->key, keys.count),
                      d_v = mpi_tokens(&b->d_v, pair->key, keys.count);
    add(&d_k, &part_k);
    add(&d_v, &part_v);
    mpi_options_add(&run->options);
    return mpi_lane_progress(&plan->lane);
}

static attn_status cross(struct mpi_run *run, void *context, const struct mpi_pair *pair)
{
    attn_mpi_range some;
    for (int64_t done = 0; done < pair->queries.count; done += some.count) {
        some = mpi_next_queries(run, pair->queries, done, pair->queries.count);
        CHECK(cross_some(run, context, pair, some, pair->row + done));
    }
    return ATTN_OK;
}

/**
 * What a range of queries gives to the gradients of sinks. A sink's weight does not depend on the keys, but a row
 * counts only if it sees one anywhere: so this is a rectangle of all keys of the whole, of which nothing but their
 * places is read: keys without channels, and for the values any row.
 */
static attn_status cross_sinks(struct mpi_run *run, const struct backward *b, attn_mpi_range queries, int64_t row)
{
    const int64_t *shape = run->q.shape, keys = run->whole.problem.k.shape[2];
    struct mpi_rectangle rectangle;
    mpi_make_rectangle(&run->rectangles, &rectangle, &run->own, queries, row, (attn_mpi_range){0, keys});
    const attn_tensor out = mpi_tokens(&run->out, row, queries.count), lse = mpi_tokens(&run->lse, row, queries.count);
    const attn_tensor d_out = mpi_tokens(&run->d_out, row, queries.count);
    const attn_tensor d_lse = b->wanted->lse ? mpi_tokens(&run->d_lse, row, queries.count) : d_out;
    const attn_tensor q = attn_bhtd(NULL, shape[0], shape[1], queries.count, 0);
    const attn_tensor k = attn_bhtd(NULL, shape[0], run->k.shape[1], keys, 0);
    attn_tensor v = d_out;
    v.shape[1] = k.shape[1], v.shape[2] = keys;
    v.stride[0] = v.stride[1] = v.stride[2] = 0;
    attn_gradients g = attn_gradients_default();
    mpi_options_ask(&run->options, run->rectangles.first_head, shape[1], &g);
    g.head_scale = g.alibi_slopes = g.relative_bias = NULL;
    g.rel_k = g.rel_q = NULL;
    g.out = &d_out;
    g.lse = b->wanted->lse ? &d_lse : NULL;
    rectangle.params.scale = 1.0f;
    rectangle.params.disentangled = NULL;
    rectangle.params.dropout = NULL;
    rectangle.params.callback = NULL;
    rectangle.params.callback_user = NULL;
    rectangle.params.lse = &lse;
    rectangle.params.sinks = run->own.sinks;
    CHECK(attn_backward_rectangle(&rectangle.place, &q, &k, &v, &out, &rectangle.params, &g));
    mpi_options_add(&run->options);
    return ATTN_OK;
}

/** The gradients of sinks, if they are wanted: no message is waited for. */
static attn_status sum_sinks(struct mpi_run *run, const struct backward *b)
{
    const struct mpi_share *queries = mpi_my_queries(run->plan);
    int64_t row = 0;
    for (int64_t n = 0; b->wanted->sinks && n < queries->num; n++) {
        const attn_mpi_range range = queries->ranges[n];
        attn_mpi_range some;
        for (int64_t done = 0; done < range.count; done += some.count, row += some.count) {
            some = mpi_next_queries(run, range, done, range.count);
            CHECK(cross_sinks(run, b, some, row));
        }
    }
    return ATTN_OK;
}

/** Takes in gradients of this rank's keys that have come, the next in order, and makes room for others. */
static attn_status collect(void *context)
{
    struct backward *b = context;
    struct attn_mpi_plan *plan = b->run->plan;
    struct mpi_lane *lane = &plan->gradients_lane;
    while (b->taken < b->num_returns) {
        const int buffer = b->taken % 2;
        int done = 0;
        CHECK(mpi_test(&plan->ring, &lane->receives[buffer][b->run->steps[b->taken]], &done, "a message of gradients"));
        if (!done)
            break;
        add_block(plan, plan->d_keys, plan->returning[buffer], mpi_my_keys(plan)->tokens);
        if (b->taken + 2 < b->num_returns)
            CHECK(mpi_start(&plan->ring, &lane->receives[buffer][b->run->steps[b->taken + 2]]));
        b->taken++;
    }
    return ATTN_OK;
}

static int have_all(void *context)
{
    const struct backward *b = context;
    return b->taken == b->num_returns;
}

static attn_status visit(struct mpi_run *run, void *context, int step, const attn_tensor *k, const attn_tensor *v)
{
    struct backward *b = context;
    struct attn_mpi_plan *plan = run->plan;
    void *block = step ? plan->leaving[b->leaving] : plan->d_keys;
    if (step && b->last[b->leaving])
        CHECK(mpi_wait(&plan->ring, 1, b->last[b->leaving], "the acceptance of gradients"));
    if (step) /* this rank's own was cleared before anything could come */
        memset(block, 0, mpi_block_size(&plan->gradients_block, plan->ring_keys[mpi_source(plan, step)].tokens));
    mpi_block_view(&plan->gradients_block, block, plan->ring_keys[mpi_source(plan, step)].tokens, &b->d_k, &b->d_v);
    if (!run->failed)
        run->failed = mpi_cross_block(run, step, k, v, cross, b);
    if (plan->lost)
        return run->failed;
    if (step) {
        b->last[b->leaving] = &plan->gradients_lane.sends[b->leaving][step];
        CHECK(mpi_start(&plan->ring, b->last[b->leaving]));
        b->leaving = !b->leaving;
    }
    return collect(b);
}

/** The messages and the computing of a pass; sums are in d_q, d_keys and options then. */
static attn_status compute(struct backward *b)
{
    struct mpi_run *run = b->run;
    struct attn_mpi_plan *plan = run->plan;
    struct mpi_team *team = &plan->ring;
    struct mpi_lane *lane = &plan->gradients_lane;
    memset(plan->d_keys, 0, mpi_block_size(&plan->gradients_block, mpi_my_keys(plan)->tokens));
    for (int64_t n = 0; n < b->d_q.shape[0] * b->d_q.stride[0]; n++)
        plan->d_q[n] = 0;
    for (int step = 1; step < team->ranks; step++)
        if (mpi_sees_any(&run->rectangles, (team->rank + step) % team->ranks, team->rank))
            b->run->steps[b->num_returns++] = step;
    for (int n = 0; n < 2 && n < b->num_returns; n++)
        CHECK(mpi_start(team, &lane->receives[n][b->run->steps[n]]));
    CHECK(mpi_walk(run, visit, b));
    CHECK(mpi_wait_until(team, have_all, b, "gradients of keys"));
    for (int n = 0; n < 2; n++)
        if (b->last[n])
            CHECK(mpi_wait(team, 1, b->last[n], "the acceptance of gradients"));
    if (!run->failed)
        run->failed = sum_sinks(run, b);
    return ATTN_OK;
}

/** Zeros in rows of out that are zeros in x: of a token that is hidden the rotation, too, may be anything. */
static void clear_unseen(const attn_tensor *x, const attn_tensor *out)
{
    const size_t size = attn_dtype_size(out->dtype);
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t h = 0; h < x->shape[1]; h++)
            for (int64_t t = 0; t < x->shape[2]; t++) {
                const float *row = (const float *)x->data + b * x->stride[0] + h * x->stride[1] + t * x->stride[2];
                int64_t zeros = 0;
                while (zeros < x->shape[3] && row[zeros] == 0)
                    zeros++;
                if (zeros == x->shape[3])
                    memset((char *)out->data +
                               (b * out->stride[0] + h * out->stride[1] + t * out->stride[2]) * (int64_t)size,
                           0, (size_t)zeros * size);
            }
}

/** A gradient with respect to what was rotated, as one of what it was before: the rotation the other way round. */
static attn_status turn_back(const struct mpi_run *run, const attn_tensor *x, const attn_tensor *table,
                             const attn_tensor *out)
{
    const int threads = run->params.num_threads;
    if (!table)
        return mpi_copy(run->plan, x, NULL, 0, out, threads);
    const int64_t *shape = table->shape;
    attn_tensor back = attn_bhtd(NULL, shape[0], shape[1], shape[2], shape[3]);
    back.data = malloc(((size_t)(back.shape[0] * back.stride[0]) + 1) * sizeof(float));
    if (!back.data)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a table of rotations");
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t t = 0; t < shape[2]; t++)
                for (int64_t c = 0; c < shape[3]; c++) {
                    const float x_c =
                        ((const float *)
                             table->data)[b * table->stride[0] + h * table->stride[1] + t * table->stride[2] + c];
                    ((float *)back.data)[b * back.stride[0] + h * back.stride[1] + t * back.stride[2] + c] =
                        c < shape[3] / 2 ? x_c : -x_c;
                }
    const attn_status status = mpi_copy(run->plan, x, &back, run->params.rope->layout, out, threads);
    free(back.data);
    if (!status)
        clear_unseen(x, out);
    return status;
}

/** Where this rank's own gradients are in the end: of its tokens and all heads. */
static void own_keys(const struct attn_mpi_plan *plan, attn_tensor *d_k, attn_tensor *d_v)
{
    struct mpi_block block = plan->gradients_block;
    block.heads = plan->k.shape[1];
    mpi_block_view(&block, mpi_has_groups(plan) ? plan->own_d_keys : plan->d_keys, plan->k.shape[2], d_k, d_v);
}
static attn_tensor own_queries(const struct backward *b)
{
    const struct attn_mpi_plan *plan = b->run->plan;
    const int64_t *shape = plan->q.shape;
    return mpi_has_groups(plan) ? attn_bhtd(plan->own_d_q, shape[0], shape[1], shape[2], shape[3]) : b->d_q;
}

/** Sends the gradients of heads back to those whose tokens they are of. */
static attn_status return_tokens(const struct backward *b)
{
    struct attn_mpi_plan *plan = b->run->plan;
    attn_tensor d_k, d_v, all_k, all_v;
    if (!mpi_has_groups(plan))
        return ATTN_OK;
    const attn_tensor d_q = own_queries(b);
    own_keys(plan, &d_k, &d_v);
    mpi_block_view(&plan->gradients_block, plan->d_keys, mpi_my_keys(plan)->tokens, &all_k, &all_v);
    CHECK(mpi_to_tokens(&plan->exchange, mpi_my_pool(plan, 0), &b->d_q, &d_q));
    CHECK(mpi_to_tokens(&plan->exchange, mpi_my_pool(plan, 1), &all_k, &d_k));
    return mpi_to_tokens(&plan->exchange, mpi_my_pool(plan, 1), &all_v, &d_v);
}

/** What a backward pass reads besides, of the group's tokens and this rank's heads. */
static attn_status read_gradients(struct mpi_run *run, const attn_tensor *out)
{
    struct attn_mpi_plan *plan = run->plan;
    const attn_gradients *g = &run->gradients;
    run->d_out = *g->out;
    if (g->lse)
        run->d_lse = *g->lse;
    if (!mpi_has_groups(plan))
        return ATTN_OK;
    const int64_t *shape = plan->ring_out.shape;
    run->d_out = attn_bhtd(plan->all_d_out, shape[0], shape[1], shape[2], shape[3]);
    run->d_out.dtype = g->out->dtype;
    CHECK(mpi_to_heads(&plan->exchange, mpi_my_pool(plan, 0), out, &run->out));
    CHECK(mpi_to_heads(&plan->exchange, mpi_my_pool(plan, 0), run->params.lse, &run->lse));
    CHECK(mpi_to_heads(&plan->exchange, mpi_my_pool(plan, 0), g->out, &run->d_out));
    if (!g->lse)
        return ATTN_OK;
    run->d_lse = attn_bhtd(plan->all_d_lse, shape[0], shape[1], shape[2], 1);
    return mpi_to_heads(&plan->exchange, mpi_my_pool(plan, 0), g->lse, &run->d_lse);
}

/** Hands the sums out. */
static attn_status deliver(struct backward *b)
{
    struct mpi_run *run = b->run;
    const attn_rope_tables *rope = run->params.rope;
    attn_tensor d_k, d_v;
    own_keys(run->plan, &d_k, &d_v);
    const attn_tensor d_q = own_queries(b);
    if (b->wanted->q)
        CHECK(turn_back(run, &d_q, rope ? rope->q : NULL, b->wanted->q));
    if (b->wanted->k)
        CHECK(turn_back(run, &d_k, rope ? rope->k : NULL, b->wanted->k));
    if (b->wanted->v)
        CHECK(turn_back(run, &d_v, NULL, b->wanted->v));
    mpi_options_deliver(&run->options);
    return ATTN_OK;
}

attn_status attn_mpi_backward(attn_mpi_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                              const attn_tensor *out, const attn_params *params, const attn_gradients *gradients)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL");
    struct mpi_run run;
    const struct mpi_tensors t = {q, k, v, out};
    attn_status status = mpi_run_begin(&run, plan, &t, params, gradients, 1);
    if (!status) {
        struct backward b = {.run = &run, .wanted = &run.gradients};
        b.d_q = attn_bhtd(plan->d_q, run.q.shape[0], run.q.shape[1], run.q.shape[2], run.q.shape[3]);
        status = read_gradients(&run, out);
        if (!status) {
            plan->ring.meanwhile = collect;
            plan->ring.context = &b;
            status = compute(&b);
            plan->ring.meanwhile = NULL;
        }
        if (!status)
            status = return_tokens(&b);
        if (!status)
            status = mpi_options_sum(&run.options, &plan->team);
        if (!status && !run.failed)
            run.failed = deliver(&b);
    }
    return mpi_run_end(&run, status);
}
