/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What forward and backward runs have in common: checks that all ranks pass or none, tensors as they are multiplied,
 * and the walk over the keys of all ranks.
 */
#include "mpi/plan.h"

#include "api/check_internal.h"
#include "api/error.h"
#include "attn/cache.h"
#include "driver/threads.h"

#include <inttypes.h>
#include <stdlib.h>

/** That a tensor has the shape and the type that the plan was made with. */
static attn_status check_planned(const char *name, const attn_tensor *t, const attn_tensor *planned)
{
    for (int axis = 0; axis < 4; axis++)
        CHECK(attn_check_axis(name, t, axis, planned->shape[axis], "as in the plan"));
    if (t->dtype != planned->dtype)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.dtype is %s; expected %s, as in the plan", name,
                         attn_dtype_name(t->dtype), attn_dtype_name(planned->dtype));
    return ATTN_OK;
}

/** What a rank finds out by itself. */
static attn_status check_run(struct mpi_run *run, const struct mpi_tensors *t, const attn_params *params,
                             const attn_gradients *gradients, int backward, struct mpi_marks *marks)
{
    const struct attn_mpi_plan *plan = run->plan;
    CHECK(attn_take_params(&run->params, params));
    CHECK(mpi_check(&run->whole, t, &run->params, &plan->config, plan->queries[plan->team.rank].tokens,
                    plan->keys[plan->team.rank].tokens, CHECK_ALL));
    CHECK(check_planned("q", t->q, &plan->q));
    CHECK(check_planned("k", t->k, &plan->k));
    CHECK(check_planned("v", t->v, &plan->v));
    CHECK(check_planned("out", t->out, &plan->out));
    if ((run->params.rope != NULL) != plan->rotated)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.rope is %s; expected it %s, as in the plan",
                         run->params.rope ? "set" : "NULL", plan->rotated ? "set" : "NULL");
    if (run->params.mask && mpi_has_groups(plan))
        return attn_fail(ATTN_UNSUPPORTED, "params.mask is set; expected NULL, as config.head_ranks is %d",
                         plan->config.head_ranks);
    if (backward) {
        if (!plan->config.backward)
            return attn_fail(ATTN_INVALID_ARGUMENT, "config.backward of the plan is 0; expected 1 for gradients");
        if (!gradients)
            return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL");
        CHECK(attn_take_struct("gradients", &run->gradients, sizeof run->gradients,
                               ATTN_FIRST_SIZE(attn_gradients, mask), gradients));
        CHECK(mpi_check_gradients(t, &run->params, &run->gradients));
        CHECK(mpi_options_make(&run->options, &run->params, &run->gradients, plan->q.shape[1], plan->team.ranks));
    }
    run->begun = calloc((size_t)mpi_my_queries(plan)->num + 1, sizeof *run->begun);
    run->steps = calloc((size_t)plan->ring.ranks, sizeof *run->steps);
    if (!run->begun || !run->steps)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for the ranges of this rank");
    *marks = mpi_marks_of(&run->whole, &plan->config, backward ? &run->gradients : NULL);
    return mpi_rectangles_make(&run->rectangles, &run->whole.problem, plan->group.rank * plan->ring_q.shape[1],
                               plan->ring.ranks, plan->ring_queries, plan->ring_keys);
}

attn_status mpi_copy(const struct attn_mpi_plan *plan, const attn_tensor *x, const attn_tensor *table,
                     attn_rope_layout layout, const attn_tensor *out, int num_threads)
{
    for (int64_t b = 0; b < x->shape[0]; b++) {
        attn_tensor from = *x, to = *out, rows;
        from.shape[0] = to.shape[0] = 1;
        const int64_t size = (int64_t)attn_dtype_size(x->dtype);
        if (b) {
            from.data = (char *)x->data + b * x->stride[0] * size;
            to.data = (char *)out->data + b * out->stride[0] * (int64_t)attn_dtype_size(out->dtype);
        }
        if (table) {
            rows = *table;
            if (b && table->shape[0] > 1)
                rows.data = (float *)table->data + b * table->stride[0];
            rows.shape[0] = 1;
        }
        CHECK(attn_store(&from, plan->slots, table ? &rows : NULL, table ? layout : 0, &to, NULL, num_threads));
    }
    return ATTN_OK;
}

/** A tensor of some heads: those from head on, of an axis that may be 1 for all. */
static const attn_tensor *of_heads(attn_tensor *some, const attn_tensor *all, int64_t head, int64_t heads)
{
    if (!all || all->shape[1] == 1)
        return all;
    *some = *all;
    some->data = (float *)all->data + head * all->stride[1];
    some->shape[1] = heads;
    return some;
}

/** The options of the heads that this rank computes with. */
static void take_heads(struct mpi_run *run)
{
    const struct attn_mpi_plan *plan = run->plan;
    const attn_params *p = &run->params;
    const int64_t heads = plan->ring_q.shape[1], head = plan->group.rank * heads;
    run->own = *p;
    if (!mpi_has_groups(plan))
        return;
    run->own.head_scale = p->head_scale ? p->head_scale + head : NULL;
    run->own.sinks = p->sinks ? p->sinks + head : NULL;
    run->own.alibi_slopes = p->alibi_slopes ? p->alibi_slopes + head : NULL;
    if (p->relative_bias) {
        run->relative_bias = *p->relative_bias;
        run->relative_bias.table += head * p->relative_bias->buckets;
        run->own.relative_bias = &run->relative_bias;
    }
    if (p->disentangled) {
        run->disentangled = *p->disentangled;
        run->disentangled.rel_k = of_heads(&run->rel_k, p->disentangled->rel_k, head, heads);
        run->disentangled.rel_q = of_heads(&run->rel_q, p->disentangled->rel_q, head, heads);
        run->own.disentangled = &run->disentangled;
    }
}

/** Rotates and packs what this rank holds: q, and k and v to a block of its tokens. */
static attn_status convert(struct mpi_run *run, const struct mpi_tensors *t, attn_tensor *q, attn_tensor *k,
                           attn_tensor *v)
{
    const struct attn_mpi_plan *plan = run->plan;
    const attn_params *p = &run->params;
    const attn_rope_layout layout = p->rope ? p->rope->layout : 0;
    if (p->rope)
        CHECK(mpi_copy(plan, t->q, p->rope->q, layout, q, p->num_threads));
    if (plan->packs) {
        CHECK(mpi_copy(plan, t->k, p->rope ? p->rope->k : NULL, layout, k, p->num_threads));
        CHECK(mpi_copy(plan, t->v, NULL, 0, v, p->num_threads));
    }
    return ATTN_OK;
}

/** The tensors that are computed with. Messages go on where memory was short. */
static attn_status make_ready(struct mpi_run *run, const struct mpi_tensors *t)
{
    struct attn_mpi_plan *plan = run->plan;
    const int groups = mpi_has_groups(plan);
    attn_tensor q = *t->q, k = *t->k, v = *t->v;
    if (run->params.rope)
        q = attn_bhtd(plan->turned, q.shape[0], q.shape[1], q.shape[2], q.shape[3]);
    if (plan->packs) {
        struct mpi_block block = plan->block;
        block.heads = k.shape[1];
        mpi_block_view(&block, groups ? plan->converted : plan->own, k.shape[2], &k, &v);
    }
    run->failed = convert(run, t, &q, &k, &v);
    run->q = q, run->k = k, run->v = v, run->out = *t->out;
    run->lse = run->params.lse && !groups
                   ? *run->params.lse
                   : attn_bhtd(plan->lse, plan->ring_q.shape[0], plan->ring_q.shape[1], plan->ring_q.shape[2], 1);
    if (!groups)
        return ATTN_OK;
    run->q = plan->ring_q, run->out = plan->ring_out;
    mpi_block_view(&plan->block, plan->own, mpi_my_keys(plan)->tokens, &run->k, &run->v);
    CHECK(mpi_to_heads(&plan->exchange, mpi_my_pool(plan, 0), &q, &run->q));
    CHECK(mpi_to_heads(&plan->exchange, mpi_my_pool(plan, 1), &k, &run->k));
    return mpi_to_heads(&plan->exchange, mpi_my_pool(plan, 1), &v, &run->v);
}

attn_status mpi_run_begin(struct mpi_run *run, struct attn_mpi_plan *plan, const struct mpi_tensors *t,
                          const attn_params *params, const attn_gradients *gradients, int backward)
{
    *run = (struct mpi_run){.plan = plan};
    if (plan->lost)
        return mpi_agree(&plan->team, ATTN_OK, NULL);
    struct mpi_marks marks = mpi_marks_begin();
    CHECK(mpi_agree(&plan->team, check_run(run, t, params, gradients, backward, &marks), &marks));
    take_heads(run);
    run->around = attn_executor_enter(run->params.executor);
    run->has_entered = 1;
    /* Only what is the plan's is written; whether there was memory for it is told at the end. */
    return make_ready(run, t);
}

attn_status mpi_run_end(struct mpi_run *run, attn_status status)
{
    if (run->has_entered)
        attn_executor_leave(run->around);
    mpi_rectangles_free(&run->rectangles);
    free(run->begun);
    free(run->steps);
    if (run->plan->lost) /* messages may still reach them */
        run->plan->left_options = run->options.sums;
    else
        free(run->options.sums);
    free(run->options.part);
    return status ? status : mpi_agree(&run->plan->team, run->failed, NULL);
}

/** The block of keys of a step, as tensors: 0 is this rank's own; arrived is the buffer of another's. */
static void keys_of_step(const struct mpi_run *run, int step, void *arrived, attn_tensor *k, attn_tensor *v)
{
    const struct attn_mpi_plan *plan = run->plan;
    if (step == 0)
        *k = run->k, *v = run->v;
    else
        mpi_block_view(&plan->block, arrived, plan->ring_keys[mpi_source(plan, step)].tokens, k, v);
}

attn_mpi_range mpi_next_queries(const struct mpi_run *run, attn_mpi_range queries, int64_t done, int64_t most)
{
    attn_mpi_range some = {queries.first + done, queries.count - done};
    const int64_t at_once = mpi_queries_at_once(&run->rectangles, some.first);
    some.count = some.count < most ? some.count : most;
    some.count = some.count < at_once ? some.count : at_once;
    return some;
}

attn_status mpi_cross_block(struct mpi_run *run, int step, const attn_tensor *k, const attn_tensor *v, mpi_cross *cross,
                            void *context)
{
    const struct attn_mpi_plan *plan = run->plan;
    const int source = mpi_source(plan, step);
    const struct mpi_share *queries = mpi_my_queries(plan), *keys = &plan->ring_keys[source];
    struct mpi_pair pair = {.row = 0};
    for (pair.number = 0; pair.number < queries->num; pair.number++) {
        pair.queries = queries->ranges[pair.number];
        pair.key = 0;
        for (int64_t j = 0; j < keys->num; j++) {
            pair.keys = keys->ranges[j];
            pair.k = mpi_tokens(k, pair.key, pair.keys.count);
            pair.v = mpi_tokens(v, pair.key, pair.keys.count);
            if (mpi_sees(&run->rectangles, plan->ring.rank, pair.number, source, j)) {
                CHECK(cross(run, context, &pair));
                run->begun[pair.number] = 1;
            }
            pair.key += pair.keys.count;
        }
        pair.row += pair.queries.count;
    }
    return ATTN_OK;
}

attn_status mpi_cross_blind(struct mpi_run *run, mpi_cross *cross, void *context)
{
    const struct mpi_share *queries = mpi_my_queries(run->plan);
    struct mpi_pair pair = {.k = mpi_tokens(&run->k, 0, 0), .v = mpi_tokens(&run->v, 0, 0)};
    for (pair.number = 0; pair.number < queries->num; pair.number++) {
        pair.queries = queries->ranges[pair.number];
        if (!run->begun[pair.number])
            CHECK(cross(run, context, &pair));
        run->begun[pair.number] = 1;
        pair.row += pair.queries.count;
    }
    return ATTN_OK;
}

/** The next step from one on whose keys this rank needs; the number of ranks: none. */
static int next_step(const struct mpi_run *run, int step)
{
    const struct attn_mpi_plan *plan = run->plan;
    while (step < plan->ring.ranks && !mpi_sees_any(&run->rectangles, plan->ring.rank, mpi_source(plan, step)))
        step++;
    return step;
}

attn_status mpi_walk(struct mpi_run *run, mpi_visit *visit, void *context)
{
    struct attn_mpi_plan *plan = run->plan;
    struct mpi_team *team = &plan->ring;
    struct mpi_lane *lane = &plan->lane;
    const int ranks = team->ranks;
    for (int step = 1; step < ranks; step++)
        if (mpi_sees_any(&run->rectangles, (team->rank + step) % ranks, team->rank))
            CHECK(mpi_start(team, &lane->sends[0][step]));
    int arriving = 0, next;
    for (int step = 0; step < ranks; step = next) {
        attn_tensor k, v;
        next = next_step(run, step + 1);
        if (step)
            CHECK(mpi_wait(team, 1, &lane->receives[arriving][step], "a message of keys"));
        keys_of_step(run, step, plan->arriving[arriving], &k, &v);
        if (step)
            arriving = !arriving;
        if (next < ranks)
            CHECK(mpi_start(team, &lane->receives[arriving][next]));
        CHECK(visit(run, context, step, &k, &v));
    }
    return mpi_wait(team, ranks, lane->sends[0], "the acceptance of keys");
}
