/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_mpi_forward(): the results of rectangles of queries and keys, joined by their log-sum-exps (Rabe and Staats
 * 2021, "Self-attention Does Not Need O(n^2) Memory", section 3) in the order of the steps.
 */
#include "mpi/plan.h"

#include "api/error.h"
#include "mpi/join.h"

/** Some queries of a range against a range of keys; the first result of a query is written, others are joined. */
static attn_status join(struct mpi_run *run, const struct mpi_sums *sums, attn_mpi_range queries, int64_t row,
                        attn_mpi_range keys, const attn_tensor *k, const attn_tensor *v, int first)
{
    struct attn_mpi_plan *plan = run->plan;
    struct mpi_rectangle rectangle;
    mpi_make_rectangle(&run->rectangles, &rectangle, &run->own, queries, row, keys);
    const attn_tensor q = mpi_tokens(&run->q, row, queries.count);
    const struct mpi_sums some = mpi_sums_of(sums, row, queries.count);
    const attn_tensor part = attn_bhtd(plan->part, q.shape[0], q.shape[1], queries.count, some.out.shape[3]);
    const attn_tensor part_lse = attn_bhtd(plan->part_lse, q.shape[0], q.shape[1], queries.count, 1);
    rectangle.params.lse = &part_lse;
    if (first)
        rectangle.params.sinks = run->own.sinks; /* a sink counts once */
    CHECK(attn_forward(&q, k, v, first ? &some.out : &part, &rectangle.params));
    if (first)
        mpi_begin_sums(&some, &part_lse);
    else
        mpi_join(&some, &part, &part_lse, run->params.num_threads);
    return ATTN_OK;
}

/** A range of queries against a range of keys, so many queries at a time that messages go on meanwhile. */
static attn_status cross(struct mpi_run *run, const struct mpi_sums *sums, int64_t i, int64_t row, attn_mpi_range keys,
                         const attn_tensor *k, const attn_tensor *v)
{
    const attn_mpi_range queries = mpi_my_queries(run->plan)->ranges[i];
    for (int64_t done = 0; done < queries.count; done += run->plan->rows) {
        const int64_t left = queries.count - done, count = left < run->plan->rows ? left : run->plan->rows;
        CHECK(join(run, sums, (attn_mpi_range){queries.first + done, count}, row + done, keys, k, v, !run->begun[i]));
        CHECK(mpi_lane_progress(&run->plan->lane));
    }
    run->begun[i] = 1;
    return ATTN_OK;
}

/** All ranges of this rank's queries against those of a block of keys that they see. */
static attn_status cross_block(struct mpi_run *run, const struct mpi_sums *sums, int step, const attn_tensor *k,
                               const attn_tensor *v)
{
    const struct attn_mpi_plan *plan = run->plan;
    const struct mpi_share *queries = mpi_my_queries(plan), *keys = &plan->ring_keys[mpi_source(plan, step)];
    int64_t row = 0;
    for (int64_t i = 0; i < queries->num; row += queries->ranges[i++].count) {
        int64_t key = 0;
        for (int64_t j = 0; j < keys->num; key += keys->ranges[j++].count) {
            if (!mpi_sees(&run->rectangles, plan->ring.rank, i, mpi_source(plan, step), j))
                continue;
            const attn_tensor some_k = mpi_tokens(k, key, keys->ranges[j].count);
            const attn_tensor some_v = mpi_tokens(v, key, keys->ranges[j].count);
            CHECK(cross(run, sums, i, row, keys->ranges[j], &some_k, &some_v));
        }
    }
    return ATTN_OK;
}

static attn_status visit(struct mpi_run *run, void *context, int step, const attn_tensor *k, const attn_tensor *v)
{
    if (!run->failed)
        run->failed = cross_block(run, context, step, k, v);
    return ATTN_OK;
}

/** Queries that see no key: 0 and -inf, or what their sinks give. */
static attn_status finish_blind(struct mpi_run *run, const struct mpi_sums *sums)
{
    const struct mpi_share *queries = mpi_my_queries(run->plan);
    const attn_tensor none_k = mpi_tokens(&run->k, 0, 0), none_v = mpi_tokens(&run->v, 0, 0);
    int64_t row = 0;
    for (int64_t i = 0; i < queries->num; row += queries->ranges[i++].count)
        if (!run->begun[i])
            CHECK(cross(run, sums, i, row, (attn_mpi_range){0, 0}, &none_k, &none_v));
    return ATTN_OK;
}

static attn_status compute(struct mpi_run *run, const struct mpi_sums *sums, const attn_tensor *out)
{
    struct attn_mpi_plan *plan = run->plan;
    CHECK(mpi_walk(run, visit, (void *)(uintptr_t)sums));
    if (!run->failed)
        run->failed = finish_blind(run, sums);
    if (!run->failed && run->out.dtype != ATTN_F32) /* rounded once */
        run->failed = mpi_copy(plan, &sums->out, NULL, 0, &run->out, run->params.num_threads);
    if (!run->failed)
        mpi_write_lse(sums, &run->lse);
    if (!mpi_has_groups(plan))
        return ATTN_OK;
    CHECK(mpi_to_tokens(&plan->exchange, mpi_my_pool(plan, 0), &run->out, out));
    return run->params.lse ? mpi_to_tokens(&plan->exchange, mpi_my_pool(plan, 0), &run->lse, run->params.lse) : ATTN_OK;
}

attn_status attn_mpi_forward(attn_mpi_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                             const attn_tensor *out, const attn_params *params)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL");
    struct mpi_run run;
    const struct mpi_tensors t = {q, k, v, out};
    attn_status status = mpi_run_begin(&run, plan, &t, params, NULL, 0);
    if (!status) {
        const int64_t *n = run.out.shape;
        const struct mpi_sums sums = {
            .out = run.out.dtype == ATTN_F32 ? run.out : attn_bhtd(plan->sums, n[0], n[1], n[2], n[3]),
            .lse = plan->exact_lse,
            .lse_stride = {n[1] * n[2], n[2]},
        };
        status = compute(&run, &sums, out);
    }
    return mpi_run_end(&run, status);
}
