/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_mpi_forward(): the results of rectangles of queries and keys, joined by their log-sum-exps (Rabe and Staats
 * 2021, "Self-attention Does Not Need O(n^2) Memory", section 3) in the order of the steps.
 */
#include "mpi/plan.h"

#include "api/call.h"
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
    CHECK(attn_forward_rectangle(&rectangle.place, &q, k, v, first ? &some.out : &part, &rectangle.params));
    if (first)
        mpi_begin_sums(&some, &part_lse);
    else
        mpi_join(&some, &part, &part_lse, run->params.num_threads);
    return ATTN_OK;
}

/** A range of queries against a range of keys, so many queries at a time that messages go on meanwhile. */
static attn_status cross(struct mpi_run *run, void *context, const struct mpi_pair *pair)
{
    attn_mpi_range some;
    for (int64_t done = 0; done < pair->queries.count; done += some.count) {
        some = mpi_next_queries(run, pair->queries, done, run->plan->rows);
        CHECK(join(run, context, some, pair->row + done, pair->keys, &pair->k, &pair->v, !run->begun[pair->number]));
        CHECK(mpi_lane_progress(&run->plan->lane));
    }
    return ATTN_OK;
}

static attn_status visit(struct mpi_run *run, void *context, int step, const attn_tensor *k, const attn_tensor *v)
{
    if (!run->failed)
        run->failed = mpi_cross_block(run, step, k, v, cross, context);
    return run->plan->lost ? run->failed : ATTN_OK;
}

static attn_status compute(struct mpi_run *run, struct mpi_sums *sums, const attn_tensor *out)
{
    struct attn_mpi_plan *plan = run->plan;
    CHECK(mpi_walk(run, visit, sums));
    if (!run->failed)
        run->failed = mpi_cross_blind(run, cross, sums); /* 0 and -inf, or what their sinks give */
    if (!run->failed && run->out.dtype != ATTN_F32)      /* rounded once */
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
        struct mpi_sums sums = {
            .out = run.out.dtype == ATTN_F32 ? run.out : attn_bhtd(plan->sums, n[0], n[1], n[2], n[3]),
            .lse = plan->exact_lse,
            .lse_stride = {n[1] * n[2], n[2]},
        };
        status = compute(&run, &sums, out);
    }
    return mpi_run_end(&run, status);
}
