/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of libattn_mpi: who holds which tokens, buffers, and the messages that are prepared.
 */
#include "mpi/plan.h"

#include "api/error.h"
#include "cpu/large.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/** Of a call of the core between two looks at messages: some tens of milliseconds of a core; and what it gives. */
static const double MULTIPLY_ADDS_AT_ONCE = 2e9, BYTES_AT_ONCE = 16 << 20;

/** Tells the others that there is no memory for a plan, with what needs none. */
static attn_status tell_no_plan(const struct mpi_transport *transport, double timeout)
{
    static struct mpi_transport kept; /* messages may reach it after a failure */
    static struct mpi_team team;
    static int lost;
    const struct mpi_marks marks = mpi_marks_begin();
    kept = *transport;
    lost = 0;
    team = mpi_team_of(&kept, timeout, &lost);
    const attn_status status = mpi_agree(&team, attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a plan"), &marks);
    if (!lost)
        kept.functions->close(&kept);
    return status;
}

/** So many elements for a buffer, one at least; *buffer is set, NULL without memory or if they cannot be counted. */
static int take(float **buffer, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    int64_t n = (int64_t)sizeof **buffer;
    *buffer = NULL;
    if (__builtin_mul_overflow(n, n0, &n) || __builtin_mul_overflow(n, n1, &n) || __builtin_mul_overflow(n, n2, &n) ||
        __builtin_mul_overflow(n, n3, &n))
        return 0;
    *buffer = attn_alloc_large((size_t)n + sizeof **buffer);
    return *buffer != NULL;
}

static int take_block(void **buffer, size_t size)
{
    *buffer = size ? attn_alloc_large(size) : NULL;
    return *buffer != NULL;
}

static int64_t longest(const struct mpi_share *share)
{
    int64_t tokens = 0;
    for (int64_t n = 0; n < share->num; n++)
        tokens = share->ranges[n].count > tokens ? share->ranges[n].count : tokens;
    return tokens;
}

/** The most keys of a rank. */
static int64_t most_keys(const struct attn_mpi_plan *plan)
{
    int64_t tokens = 0;
    for (int rank = 0; rank < plan->ring.ranks; rank++)
        tokens = plan->ring_keys[rank].tokens > tokens ? plan->ring_keys[rank].tokens : tokens;
    return tokens;
}

/**
 * Queries that are computed at once: between two calls messages go on, so no call should last long; and what it gives
 * takes memory. It may depend on nothing that differs from run to run.
 */
static int64_t rows_at_once(const struct attn_mpi_plan *plan)
{
    const int64_t rows = longest(mpi_my_queries(plan));
    if (plan->ring.ranks == 1 && rows == mpi_my_queries(plan)->tokens)
        return rows;
    const attn_tensor *q = &plan->ring_q, *v = &plan->ring_v;
    const double heads = (double)(q->shape[0] * q->shape[1]);
    const double products = heads * (double)longest(mpi_my_keys(plan)) * (double)(q->shape[3] + v->shape[3]);
    const double bytes = heads * (double)(v->shape[3] + 1) * (double)sizeof(float);
    const double few = MULTIPLY_ADDS_AT_ONCE / (products + 1), small = BYTES_AT_ONCE / (bytes + 1);
    const double most = few < small ? few : small;
    const int64_t least = 384;
    return most >= (double)rows ? rows : rows < least || most < (double)least ? least : (int64_t)most / least * least;
}

/** Bytes of a block of this rank's tokens and all heads. */
static size_t own_block_size(const struct attn_mpi_plan *plan, const struct mpi_block *like)
{
    struct mpi_block block = *like;
    block.heads = plan->k.shape[1];
    return mpi_block_size(&block, plan->k.shape[2]);
}

/** What is exchanged in groups. */
static attn_status make_exchange(struct attn_mpi_plan *plan)
{
    const attn_tensor *own[] = {&plan->q, &plan->k, &plan->v, &plan->out};
    const attn_tensor *all[] = {&plan->ring_q, &plan->ring_k, &plan->ring_v, &plan->ring_out};
    int64_t most = 0;
    for (int i = 0; i < 4; i++)
        for (int side = 0; side < 2; side++) {
            const int64_t *n = (side ? own[i] : all[i])->shape;
            int64_t bytes;
            if (__builtin_mul_overflow(n[0] * n[1], n[2] * (int64_t)sizeof(float), &bytes) ||
                __builtin_mul_overflow(bytes, n[3] + 1, &bytes))
                bytes = INT64_MAX / 2; /* which nobody has */
            most = bytes > most ? bytes : most;
        }
    const int64_t *q = plan->ring_q.shape, *out = plan->ring_out.shape;
    if (!take((float **)&plan->all_q, q[0], q[1], q[2], q[3]) ||
        !take((float **)&plan->all_out, out[0], out[1], out[2], out[3]) ||
        !take_block(&plan->converted, own_block_size(plan, &plan->block)))
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for %" PRId64 " queries of a group", q[2]);
    plan->ring_q.data = plan->all_q;
    plan->ring_out.data = plan->all_out;
    return mpi_exchange_make(&plan->exchange, &plan->group, (size_t)most);
}

/** The memory and the requests of the way of keys and values. */
static attn_status make_keys(struct attn_mpi_plan *plan)
{
    const int ranks = plan->ring.ranks;
    const attn_tensor *q = &plan->ring_q, *v = &plan->ring_v;
    const int64_t rows = plan->rows = rows_at_once(plan);
    const int64_t own = mpi_my_keys(plan)->tokens, queries = mpi_my_queries(plan)->tokens;
    const int64_t held = plan->k.shape[2] > plan->q.shape[2] ? plan->k.shape[2] : plan->q.shape[2];
    const int64_t tokens = held > queries ? held : queries;
    size_t *sizes = malloc(2 * (size_t)ranks * sizeof *sizes);
    int good = sizes != NULL && take(&plan->part, q->shape[0], q->shape[1], rows, v->shape[3]) &&
               take(&plan->part_lse, q->shape[0], q->shape[1], rows, 1) &&
               take(&plan->lse, q->shape[0], q->shape[1], queries, 1) &&
               take((float **)&plan->exact_lse, q->shape[0], q->shape[1], queries, 2) &&
               (plan->out.dtype == ATTN_F32 || take(&plan->sums, q->shape[0], q->shape[1], queries, v->shape[3])) &&
               (!plan->rotated || take(&plan->turned, q->shape[0], plan->q.shape[1], plan->q.shape[2], q->shape[3]));
    plan->slots = good ? malloc(((size_t)tokens + 1) * sizeof *plan->slots) : NULL;
    good = good && plan->slots;
    for (int64_t t = 0; good && t < tokens; t++)
        plan->slots[t] = t;
    const size_t own_size = mpi_block_size(&plan->block, own),
                 most_size = mpi_block_size(&plan->block, most_keys(plan));
    plan->packs =
        plan->team.ranks > 1 || plan->rotated || plan->block.k_type != plan->k.dtype || plan->block.v_type != v->dtype;
    good = good && own_size && most_size && (!plan->packs || take_block(&plan->own, own_size));
    for (int i = 0; i < 2 && ranks > 1; i++)
        good = good && take_block(&plan->arriving[i], most_size);
    attn_status status = ATTN_OK;
    if (!good)
        status =
            attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a plan of %" PRId64 " queries and blocks of %zu bytes of keys",
                      queries, most_size);
    for (int step = 0; good && step < ranks; step++) {
        sizes[step] = own_size;
        sizes[ranks + step] = mpi_block_size(&plan->block, plan->ring_keys[mpi_source(plan, step)].tokens);
    }
    if (!status)
        status = mpi_lane_make(&plan->lane, &plan->ring, 1, (void *const[]){plan->own, plan->own}, sizes,
                               plan->arriving, sizes + ranks, 1);
    free(sizes);
    return status;
}

/** The same of the way of their gradients, with what a backward pass keeps. */
static attn_status make_gradients(struct attn_mpi_plan *plan)
{
    const int ranks = plan->ring.ranks;
    const attn_tensor *q = &plan->ring_q, *out = &plan->ring_out;
    const int64_t queries = mpi_my_queries(plan)->tokens, own = mpi_my_keys(plan)->tokens;
    struct mpi_block *block = &plan->gradients_block;
    *block = plan->block;
    block->k_type = block->v_type = ATTN_F32;
    int64_t range = 0;
    for (int rank = 0; rank < ranks; rank++)
        range = longest(&plan->ring_keys[rank]) > range ? longest(&plan->ring_keys[rank]) : range;
    const size_t own_size = mpi_block_size(block, own), most_size = mpi_block_size(block, most_keys(plan));
    size_t *sizes = malloc(2 * (size_t)ranks * sizeof *sizes);
    int good = sizes && own_size && most_size && take(&plan->d_q, q->shape[0], q->shape[1], queries, q->shape[3]) &&
               take(&plan->part_q, q->shape[0], q->shape[1], longest(mpi_my_queries(plan)), q->shape[3]) &&
               take_block((void **)&plan->part_keys, mpi_block_size(block, range)) &&
               take_block((void **)&plan->d_keys, own_size);
    if (mpi_has_groups(plan))
        good = good && take(&plan->all_d_out, out->shape[0], out->shape[1], out->shape[2], out->shape[3]) &&
               take(&plan->all_d_lse, out->shape[0], out->shape[1], out->shape[2], 1) &&
               take(&plan->own_d_q, plan->q.shape[0], plan->q.shape[1], plan->q.shape[2], plan->q.shape[3]) &&
               take_block((void **)&plan->own_d_keys, own_block_size(plan, block));
    for (int i = 0; i < 2 && ranks > 1; i++)
        good = good && take_block(&plan->leaving[i], most_size) && take_block(&plan->returning[i], own_size);
    attn_status status = ATTN_OK;
    if (!good)
        status = attn_fail(ATTN_OUT_OF_MEMORY, "no memory for gradients of %" PRId64 " queries and %" PRId64 " keys",
                           queries, own);
    for (int step = 0; good && step < ranks; step++) {
        sizes[step] = mpi_block_size(block, plan->ring_keys[mpi_source(plan, step)].tokens);
        sizes[ranks + step] = own_size;
    }
    if (!status)
        status = mpi_lane_make(&plan->gradients_lane, &plan->ring, -1, plan->leaving, sizes, plan->returning,
                               sizes + ranks, 2);
    free(sizes);
    return status;
}

/** What all ranks of the ring compute with. */
static attn_status make_ring(struct attn_mpi_plan *plan)
{
    const int group = plan->config.head_ranks;
    plan->ring_queries = plan->queries, plan->ring_keys = plan->keys;
    if (group > 1) {
        plan->pools[0] = mpi_pools_of(plan->queries, plan->ring.ranks, group, &plan->ring_queries);
        plan->pools[1] = mpi_pools_of(plan->keys, plan->ring.ranks, group, &plan->ring_keys);
        if (!plan->pools[0] || !plan->pools[1])
            return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for the ranges of groups of %d ranks", group);
    }
    attn_tensor *const ring[] = {&plan->ring_q, &plan->ring_k, &plan->ring_v, &plan->ring_out};
    const attn_tensor *own[] = {&plan->q, &plan->k, &plan->v, &plan->out};
    for (int i = 0; i < 4; i++) {
        const struct mpi_share *share = i == 1 || i == 2 ? mpi_my_keys(plan) : mpi_my_queries(plan);
        *ring[i] = attn_bhtd(NULL, own[i]->shape[0], own[i]->shape[1] / group, share->tokens, own[i]->shape[3]);
        ring[i]->dtype = own[i]->dtype;
    }
    if (plan->rotated)
        plan->ring_q.dtype = ATTN_F32;
    plan->block.heads = plan->ring_k.shape[1];
    CHECK(make_keys(plan));
    if (group > 1)
        CHECK(make_exchange(plan));
    return plan->config.backward ? make_gradients(plan) : ATTN_OK;
}

/** Everything of a plan that a rank finds out by itself; sets *marks where all is right. */
static attn_status begin(struct attn_mpi_plan *plan, const struct mpi_tensors *t, const attn_params *params,
                         const attn_mpi_config *config, struct mpi_marks *marks)
{
    attn_params p;
    struct mpi_whole whole;
    const int ranks = plan->team.ranks, rank = plan->team.rank;
    if (!config)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL");
    CHECK(mpi_take_config(&plan->config, config));
    CHECK(attn_take_params(&p, params));
    plan->queries = mpi_shares_of(&plan->config, plan->config.queries, ranks);
    plan->keys = mpi_shares_of(&plan->config, plan->config.keys, ranks);
    if (!plan->queries || !plan->keys)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for the ranges of %d ranks", ranks);
    CHECK(mpi_check(&whole, t, &p, &plan->config, plan->queries[rank].tokens, plan->keys[rank].tokens, CHECK_SHAPES));
    CHECK(mpi_choose_groups(&whole, ranks, &plan->config));
    *marks = mpi_marks_of(&whole, &plan->config, NULL);
    plan->waited_for = mpi_waited_for(&whole, ranks, plan->config.head_ranks);
    plan->without_groups = mpi_waited_for(&whole, ranks, 1);
    plan->q = *t->q, plan->k = *t->k, plan->v = *t->v, plan->out = *t->out;
    plan->rotated = p.rope != NULL;
    const int narrow = plan->config.wire == ATTN_MPI_BF16;
    plan->block = (struct mpi_block){.k_type = narrow          ? ATTN_BF16
                                               : plan->rotated ? ATTN_F32
                                                               : plan->k.dtype,
                                     .v_type = narrow ? ATTN_BF16 : plan->v.dtype,
                                     .batch = plan->k.shape[0],
                                     .dk = plan->k.shape[3],
                                     .dv = plan->v.shape[3]};
    return ATTN_OK;
}

/** Makes a plan whose team is there. */
static attn_status make(struct attn_mpi_plan *plan, attn_status refused, const struct mpi_tensors *t,
                        const attn_params *params, const attn_mpi_config *config, int wanted)
{
    struct mpi_marks marks = mpi_marks_begin();
    attn_status status = refused;
    if (!status && t)
        status = wanted ? begin(plan, t, params, config, &marks) : attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL");
    CHECK(mpi_agree(&plan->team, status, &marks));
    if (!t)
        return attn_fail(ATTN_INVALID_ARGUMENT, "no rank has tensors for a plan");
    mpi_split_team(&plan->team, plan->config.head_ranks, &plan->ring, &plan->group);
    return mpi_agree(&plan->team, make_ring(plan), NULL);
}

attn_status mpi_plan_create(attn_mpi_plan **plan, const struct mpi_transport *transport, attn_status refused,
                            const struct mpi_tensors *t, const attn_params *params, const attn_mpi_config *config)
{
    /* The others wait for what this rank says, so that every error is told. */
    struct attn_mpi_plan *made = calloc(1, sizeof *made);
    if (!made)
        return tell_no_plan(transport, config ? config->timeout : 0);
    made->transport = *transport;
    made->team = mpi_team_of(&made->transport, config ? config->timeout : 0, &made->lost);
    const attn_status status = make(made, refused, t, params, config, plan != NULL);
    if (status) {
        attn_mpi_plan_destroy(made);
        return status;
    }
    *plan = made;
    return ATTN_OK;
}

/** Keeps what messages may reach for good: in a list, so that it is no leak for those who look for leaks. */
static void leave(struct attn_mpi_plan *plan)
{
    static _Atomic(struct attn_mpi_plan *) left;
    plan->left_before = atomic_load(&left);
    while (!atomic_compare_exchange_weak(&left, &plan->left_before, plan))
        ;
}

void attn_mpi_plan_destroy(attn_mpi_plan *plan)
{
    if (!plan)
        return;
    const int groups = mpi_has_groups(plan);
    mpi_lane_free(&plan->lane);
    mpi_lane_free(&plan->gradients_lane);
    mpi_exchange_free(&plan->exchange);
    if (groups) {
        for (int side = 0; side < 2; side++)
            mpi_pools_free(plan->pools[side], plan->ring.ranks);
        free(plan->ring_queries);
        free(plan->ring_keys);
    }
    void *const buffers[] = {plan->queries, plan->keys,      plan->slots,     plan->turned,    plan->sums,
                             plan->lse,     plan->exact_lse, plan->part,      plan->part_lse,  plan->d_q,
                             plan->part_q,  plan->part_keys, plan->d_keys,    plan->converted, plan->all_q,
                             plan->all_out, plan->all_d_out, plan->all_d_lse, plan->own_d_q,   plan->own_d_keys};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    if (plan->lost) { /* messages may still come, and the transport still reads what it sends */
        leave(plan);
        return;
    }
    for (int i = 0; i < 2; i++) {
        free(plan->arriving[i]);
        free(plan->leaving[i]);
        free(plan->returning[i]);
    }
    free(plan->own);
    plan->transport.functions->close(&plan->transport);
    free(plan);
}

static const char *placement_name(attn_mpi_placement placement)
{
    return placement == ATTN_MPI_ZIGZAG ? "zig-zag" : placement == ATTN_MPI_STRIPED ? "striped" : "contiguous";
}

size_t attn_mpi_plan_describe(const attn_mpi_plan *plan, char *buffer, size_t size)
{
    if (buffer && size)
        *buffer = '\0';
    if (!plan)
        return 0;
    char shared[160] = "";
    if (plan->team.ranks > 1)
        snprintf(shared, sizeof shared,
                 "; heads on %d ranks of a group: %.3g blocks of keys and values are waited for, %.3g without groups",
                 plan->config.head_ranks, plan->waited_for, plan->without_groups);
    const int length =
        snprintf(buffer, buffer ? size : 0,
                 "rank %d of %d, %s: %" PRId64 " of %" PRId64 " queries in %" PRId64 " ranges, %" PRId64 " of %" PRId64
                 " keys; a step sends %zu bytes, k in %s, v in %s; %" PRId64 " queries at once%s%s",
                 plan->team.rank, plan->team.ranks, placement_name(plan->config.placement), plan->q.shape[2],
                 plan->config.queries, plan->queries[plan->team.rank].num, plan->k.shape[2], plan->config.keys,
                 plan->ring.ranks > 1 ? mpi_block_size(&plan->block, mpi_my_keys(plan)->tokens) : (size_t)0,
                 attn_dtype_name(plan->block.k_type), attn_dtype_name(plan->block.v_type), plan->rows, shared,
                 plan->config.backward ? "; backward" : "");
    return length > 0 ? (size_t)length : 0;
}
