/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_mpi_forward(): the results of rectangles of queries and keys, joined by their log-sum-exps (Rabe and Staats
 * 2021, "Self-attention Does Not Need O(n^2) Memory", section 3) in the order of the steps.
 */
#include "mpi/plan.h"

#include "api/error.h"

struct forward {
    attn_tensor sums, lse; /**< this rank's queries so far */
};

/** Some queries of a range against a range of keys; the first result of a query is written, others are joined. */
static attn_status join(struct mpi_run *run, struct forward *f, attn_mpi_range queries, int64_t row,
                        attn_mpi_range keys, const attn_tensor *k, const attn_tensor *v, int first)
{
    struct attn_mpi_plan *plan = run->plan;
    struct mpi_rectangle rectangle;
    mpi_make_rectangle(&run->rectangles, &rectangle, &run->params, queries, row, keys);
    const attn_tensor q = mpi_tokens(&run->q, row, queries.count);
    const attn_tensor sums = mpi_tokens(&f->sums, row, queries.count), lse = mpi_tokens(&f->lse, row, queries.count);
    if (first) {
        rectangle.params.lse = &lse;
        rectangle.params.sinks = run->params.sinks; /* a sink counts once */
        return attn_forward(&q, k, v, &sums, &rectangle.params);
    }
    const attn_tensor part = attn_bhtd(plan->part, q.shape[0], q.shape[1], queries.count, sums.shape[3]);
    const attn_tensor part_lse = attn_bhtd(plan->part_lse, q.shape[0], q.shape[1], queries.count, 1);
    rectangle.params.lse = &part_lse;
    CHECK(attn_forward(&q, k, v, &part, &rectangle.params));
    return attn_merge(2, (const attn_tensor[]){sums, part}, (const attn_tensor[]){lse, part_lse}, &sums, &lse,
                      run->params.num_threads);
}

/** A range of queries against a range of keys, so many queries at a time that messages go on meanwhile. */
static attn_status cross(struct mpi_run *run, struct forward *f, int64_t i, int64_t row, attn_mpi_range keys,
                         const attn_tensor *k, const attn_tensor *v)
{
    const attn_mpi_range queries = mpi_my_queries(run->plan)->ranges[i];
    for (int64_t done = 0; done < queries.count; done += run->plan->rows) {
        const int64_t left = queries.count - done, count = left < run->plan->rows ? left : run->plan->rows;
        CHECK(join(run, f, (attn_mpi_range){queries.first + done, count}, row + done, keys, k, v, !run->begun[i]));
        CHECK(mpi_lane_progress(&run->plan->lane));
    }
    run->begun[i] = 1;
    return ATTN_OK;
}

/** All ranges of this rank's queries against those of a block of keys that they see. */
static attn_status cross_block(struct mpi_run *run, struct forward *f, int step, const attn_tensor *k,
                               const attn_tensor *v)
{
    const struct attn_mpi_plan *plan = run->plan;
    const struct mpi_share *queries = mpi_my_queries(plan), *keys = &plan->keys[mpi_source(plan, step)];
    int64_t row = 0;
    for (int64_t i = 0; i < queries->num; row += queries->ranges[i++].count) {
        int64_t key = 0;
        for (int64_t j = 0; j < keys->num; key += keys->ranges[j++].count) {
            if (!mpi_sees(&run->rectangles, plan->team.rank, i, mpi_source(plan, step), j))
                continue;
            const attn_tensor some_k = mpi_tokens(k, key, keys->ranges[j].count);
            const attn_tensor some_v = mpi_tokens(v, key, keys->ranges[j].count);
            CHECK(cross(run, f, i, row, keys->ranges[j], &some_k, &some_v));
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
static attn_status finish_blind(struct mpi_run *run, struct forward *f)
{
    const struct mpi_share *queries = mpi_my_queries(run->plan);
    const attn_tensor none_k = mpi_tokens(&run->k, 0, 0), none_v = mpi_tokens(&run->v, 0, 0);
    int64_t row = 0;
    for (int64_t i = 0; i < queries->num; row += queries->ranges[i++].count)
        if (!run->begun[i])
            CHECK(cross(run, f, i, row, (attn_mpi_range){0, 0}, &none_k, &none_v));
    return ATTN_OK;
}

static attn_status compute(struct mpi_run *run, struct forward *f, const attn_tensor *out)
{
    CHECK(mpi_walk(run, visit, f));
    if (!run->failed)
        run->failed = finish_blind(run, f);
    if (!run->failed && out->dtype != ATTN_F32) /* rounded once */
        run->failed = attn_merge(1, &f->sums, &f->lse, out, NULL, run->params.num_threads);
    return ATTN_OK;
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
        struct forward f;
        f.sums = out->dtype == ATTN_F32
                     ? *out
                     : attn_bhtd(plan->sums, out->shape[0], out->shape[1], out->shape[2], out->shape[3]);
        f.lse = run.params.lse ? *run.params.lse : attn_bhtd(plan->lse, out->shape[0], out->shape[1], out->shape[2], 1);
        status = compute(&run, &f, out);
    }
    return mpi_run_end(&run, status);
}
