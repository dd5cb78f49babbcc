/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of the additive kernel: cuts a call into blocks of queries of one
 * sequence each, and tells the kernel where the live keys begin and end. A
 * block of 16 queries reads each block of keys from a far cache once; blocks are
 * smaller where there would be too few of them for the threads, which changes
 * no bit, as queries do not meet.
 */
#include "driver/ranges.h"
#include "nn/alignment.h"
#include "nn/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/** A call and its cut. */
struct additive_run {
    const struct nn_additive *call;
    int64_t block_queries, blocks; /* of each sequence */
};

static int64_t step_of(const attn_tensor *t, int axis)
{
    return t->shape[axis] > 1 ? t->stride[axis] : 0;
}

/** Rows of a sequence from a token on; an empty tensor has none. */
static struct nn_rows rows_of(const attn_tensor *t, int64_t batch, int64_t token)
{
    if (!t->data)
        return (struct nn_rows){NULL, 0};
    return (struct nn_rows){(float *)t->data + batch * step_of(t, 0) + token * step_of(t, 2), (ptrdiff_t)step_of(t, 2)};
}

/** A tensor of a number for each query and key, from a query and a key on. */
static struct attn_grid grid_of(const attn_tensor *t, int64_t batch, int64_t query, int64_t key)
{
    if (!t || !t->data)
        return (struct attn_grid){0};
    const int64_t at = batch * step_of(t, 0) + query * step_of(t, 2) + key * step_of(t, 3);
    return (struct attn_grid){
        .data = (char *)t->data + at * (int64_t)attn_dtype_size(t->dtype),
        .query_stride = (ptrdiff_t)step_of(t, 2),
        .key_stride = (ptrdiff_t)step_of(t, 3),
        .dtype = t->dtype,
    };
}

int64_t nn_additive_diagonal(const attn_params *p, int64_t batch, int64_t queries, int64_t end)
{
    switch (p->causal) {
    case ATTN_CAUSAL_TOP_LEFT:
        return 0;
    case ATTN_CAUSAL_BOTTOM_RIGHT:
        return end - queries;
    case ATTN_CAUSAL_OFFSET:
        /* Offsets may be anything; beyond this no key is in reach. */
        return p->query_offset[batch] > ATTN_FAR    ? ATTN_FAR
               : p->query_offset[batch] < -ATTN_FAR ? -ATTN_FAR
                                                    : p->query_offset[batch];
    default:
        return ATTN_FAR;
    }
}

static void run_block(const struct additive_run *run, int64_t task)
{
    const struct nn_additive *call = run->call;
    const attn_params *p = call->params;
    const int64_t batch = task / run->blocks, query = task % run->blocks * run->block_queries;
    const int64_t queries = call->out->shape[2], left = queries - query;
    const int64_t begin = p->kv_start ? p->kv_start[batch] : 0;
    const int64_t end = p->kv_len ? p->kv_len[batch] : call->k->shape[2];
    struct nn_additive_work work = {
        .q = rows_of(call->q, batch, query),
        .k = rows_of(call->k, batch, begin),
        .v = rows_of(call->v, batch, begin),
        .out = rows_of(call->out, batch, query),
        .score = call->score,
        .queries = left < run->block_queries ? left : run->block_queries,
        .keys = end - begin,
        .channels = call->k->shape[3],
        .values = call->v->shape[3],
        .diagonal = nn_additive_diagonal(p, batch, queries, end) + query - begin,
        .mask = grid_of(p->mask, batch, query, begin),
        .weights = grid_of(p->weights, batch, query, begin),
        .keys_before = begin,
        .keys_after = call->k->shape[2] - end,
    };
    if (p->lse) {
        const struct nn_rows lse = rows_of(p->lse, batch, query);
        work.lse = lse.data;
        work.lse_stride = lse.stride;
    }
    call->kernels->additive(&work);
}

static void run_blocks(const void *context, int64_t first, int64_t end)
{
    for (int64_t task = first; task < end; task++)
        run_block(context, task);
}

/* Operations of a tanh, in the units of nn_threads(). */
#define TANH_OPERATIONS 8

/* Blocks a thread should find: causal ones differ in length. */
#define BLOCKS_PER_THREAD 4

void nn_additive_run(const struct nn_additive *call)
{
    const int64_t batch = call->out->shape[0], queries = call->out->shape[2];
    const double numbers =
        (double)batch * (double)queries * (double)call->k->shape[2] * (double)(call->k->shape[3] + 1);
    const int threads = nn_threads(call->params->num_threads, numbers * TANH_OPERATIONS);
    if (batch == 0 || queries == 0)
        return;
    struct additive_run run = {.call = call, .block_queries = NN_ADDITIVE_QUERIES};
    const double share = (double)batch * (double)queries / ((double)threads * BLOCKS_PER_THREAD);
    if (threads > 1 && share < NN_ADDITIVE_QUERIES)
        run.block_queries = share > 1 ? (int64_t)share : 1;
    run.blocks = (queries - 1) / run.block_queries + 1;
    attn_run_ranges(batch * run.blocks, threads, run_blocks, &run);
}

attn_status nn_additive_vector(float **score, const char *name, const attn_tensor *v, float temperature)
{
    const int64_t n = v->shape[3];
    const double factor = 1.4426950408889634 / (temperature != 0.0f ? (double)temperature : 1.0);
    *score = NULL;
    for (int64_t i = 0; i < n; i++) {
        const float x = nn_weight_at(v, 0, i);
        if (isfinite(x) && !isfinite((float)((double)x * factor)))
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "%s[%" PRId64 "] is %g, with a temperature of %g; expected a quotient that a float can "
                             "hold",
                             name, i, (double)x, (double)temperature);
    }
    float *made = malloc((size_t)n * sizeof *made);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "%s, a vector of %" PRId64 " floats, could not be allocated", name, n);
    for (int64_t i = 0; i < n; i++)
        made[i] = (float)((double)nn_weight_at(v, 0, i) * factor);
    *score = made;
    return ATTN_OK;
}
