/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of libattn_mpi: a communicator of their own, who holds which tokens, buffers, and persistent requests.
 */
#include "mpi/plan.h"

#include "api/error.h"
#include "cpu/large.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/** That MPI can be used as it will be: by this thread, between processes of one group. */
static attn_status check_engine(MPI_Comm comm)
{
    int begun = 0, ended = 0, threads = MPI_THREAD_SINGLE, inter = 0;
    MPI_Initialized(&begun);
    if (begun)
        MPI_Finalized(&ended);
    if (!begun || ended)
        return attn_fail(ATTN_INVALID_ARGUMENT, "MPI is %s; expected a call between MPI_Init_thread and MPI_Finalize",
                         begun ? "finalized" : "not initialised");
    if (comm == MPI_COMM_NULL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "comm is MPI_COMM_NULL; expected an intracommunicator");
    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        return attn_fail(ATTN_INVALID_ARGUMENT, "comm is an intercommunicator; expected an intracommunicator");
    MPI_Query_thread(&threads);
    if (threads < MPI_THREAD_FUNNELED && attn_default_num_threads() > 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "MPI was initialised without support of threads; expected "
                                                "MPI_THREAD_FUNNELED or more, or ATTN_NUM_THREADS=1");
    return ATTN_OK;
}

static attn_status make_team(struct mpi_team *team, MPI_Comm comm, double timeout)
{
    team->timeout = timeout;
    CHECK(mpi_status_of(team, MPI_Comm_dup(comm, &team->comm), "a communicator of the plan's own"));
    CHECK(mpi_status_of(team, MPI_Comm_set_errhandler(team->comm, MPI_ERRORS_RETURN), "setting an error handler"));
    CHECK(mpi_status_of(team, MPI_Comm_rank(team->comm, &team->rank), "asking for the rank"));
    return mpi_status_of(team, MPI_Comm_size(team->comm, &team->ranks), "asking for the number of ranks");
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
    for (int rank = 0; rank < plan->team.ranks; rank++)
        tokens = plan->keys[rank].tokens > tokens ? plan->keys[rank].tokens : tokens;
    return tokens;
}

/**
 * Queries that are computed at once: between two calls messages go on, so no call should last long; and what it gives
 * takes memory. It may depend on nothing that differs from run to run.
 */
static int64_t rows_at_once(const struct attn_mpi_plan *plan)
{
    const int64_t rows = longest(mpi_my_queries(plan));
    if (plan->team.ranks == 1)
        return rows;
    const double heads = (double)(plan->q.shape[0] * plan->q.shape[1]);
    const double products = heads * (double)longest(mpi_my_keys(plan)) * (double)(plan->q.shape[3] + plan->v.shape[3]);
    const double bytes = heads * (double)(plan->v.shape[3] + 1) * (double)sizeof(float);
    const double few = 2e9 / (products + 1), small = 16777216.0 / (bytes + 1);
    const double most = few < small ? few : small;
    const int64_t least = 384;
    return most >= (double)rows ? rows : rows < least || most < (double)least ? least : (int64_t)most / least * least;
}

/** The memory and the requests of the way of keys and values. */
static attn_status make_keys(struct attn_mpi_plan *plan)
{
    const int ranks = plan->team.ranks;
    const attn_tensor *q = &plan->q, *v = &plan->v;
    const int64_t rows = plan->rows = rows_at_once(plan);
    const int64_t own = mpi_my_keys(plan)->tokens, queries = mpi_my_queries(plan)->tokens;
    const int64_t tokens = own > queries ? own : queries;
    size_t *sizes = malloc(2 * (size_t)ranks * sizeof *sizes);
    int good = sizes != NULL && take(&plan->part, q->shape[0], q->shape[1], rows, v->shape[3]) &&
               take(&plan->part_lse, q->shape[0], q->shape[1], rows, 1) &&
               take(&plan->lse, q->shape[0], q->shape[1], queries, 1) &&
               (plan->out.dtype == ATTN_F32 || take(&plan->sums, q->shape[0], q->shape[1], queries, v->shape[3])) &&
               (!plan->rotated || take(&plan->turned, q->shape[0], q->shape[1], queries, q->shape[3]));
    plan->slots = good ? malloc(((size_t)tokens + 1) * sizeof *plan->slots) : NULL;
    good = good && plan->slots;
    for (int64_t t = 0; good && t < tokens; t++)
        plan->slots[t] = t;
    const size_t own_size = mpi_block_size(&plan->block, own),
                 most_size = mpi_block_size(&plan->block, most_keys(plan));
    plan->packs = ranks > 1 || plan->rotated || plan->block.k_type != plan->k.dtype || plan->block.v_type != v->dtype;
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
        sizes[ranks + step] = mpi_block_size(&plan->block, plan->keys[mpi_source(plan, step)].tokens);
    }
    if (!status)
        status = mpi_lane_make(&plan->lane, &plan->team, 1, (void *const[]){plan->own, plan->own}, sizes,
                               plan->arriving, sizes + ranks, 1);
    free(sizes);
    return status;
}

/** The same of the way of their gradients, with what a backward pass keeps. */
static attn_status make_gradients(struct attn_mpi_plan *plan)
{
    const int ranks = plan->team.ranks;
    const attn_tensor *q = &plan->q;
    const int64_t queries = mpi_my_queries(plan)->tokens, own = mpi_my_keys(plan)->tokens;
    struct mpi_block *block = &plan->gradients_block;
    *block = plan->block;
    block->k_type = block->v_type = ATTN_F32;
    int64_t range = 0;
    for (int rank = 0; rank < ranks; rank++)
        range = longest(&plan->keys[rank]) > range ? longest(&plan->keys[rank]) : range;
    const size_t own_size = mpi_block_size(block, own), most_size = mpi_block_size(block, most_keys(plan));
    size_t *sizes = malloc(2 * (size_t)ranks * sizeof *sizes);
    int good = sizes && own_size && most_size && take(&plan->d_q, q->shape[0], q->shape[1], queries, q->shape[3]) &&
               take(&plan->part_q, q->shape[0], q->shape[1], longest(mpi_my_queries(plan)), q->shape[3]) &&
               take_block((void **)&plan->part_keys, mpi_block_size(block, range)) &&
               take_block((void **)&plan->d_keys, own_size);
    for (int i = 0; i < 2 && ranks > 1; i++)
        good = good && take_block(&plan->leaving[i], most_size) && take_block(&plan->returning[i], own_size);
    attn_status status = ATTN_OK;
    if (!good)
        status = attn_fail(ATTN_OUT_OF_MEMORY, "no memory for gradients of %" PRId64 " queries and %" PRId64 " keys",
                           queries, own);
    for (int step = 0; good && step < ranks; step++) {
        sizes[step] = mpi_block_size(block, plan->keys[mpi_source(plan, step)].tokens);
        sizes[ranks + step] = own_size;
    }
    if (!status)
        status = mpi_lane_make(&plan->gradients_lane, &plan->team, -1, plan->leaving, sizes, plan->returning,
                               sizes + ranks, 2);
    free(sizes);
    return status;
}

static attn_status make_shares(struct attn_mpi_plan *plan)
{
    plan->queries = mpi_shares_of(&plan->config, plan->config.queries, plan->team.ranks);
    plan->keys = mpi_shares_of(&plan->config, plan->config.keys, plan->team.ranks);
    if (!plan->queries || !plan->keys)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for the ranges of %d ranks", plan->team.ranks);
    return ATTN_OK;
}

/** Everything of a plan whose team is there that a rank does by itself; sets *marks where all is right. */
static attn_status fill(struct attn_mpi_plan *plan, const struct mpi_tensors *t, const attn_params *params,
                        const attn_mpi_config *config, struct mpi_marks *marks)
{
    attn_params p;
    struct mpi_whole whole;
    if (!config)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL");
    CHECK(mpi_take_config(&plan->config, config));
    CHECK(attn_take_params(&p, params));
    CHECK(make_shares(plan));
    const int64_t queries = mpi_my_queries(plan)->tokens, keys = mpi_my_keys(plan)->tokens;
    CHECK(mpi_check(&whole, t, &p, &plan->config, queries, keys, CHECK_SHAPES));
    *marks = mpi_marks_of(&whole, &plan->config, NULL);
    plan->q = *t->q, plan->k = *t->k, plan->v = *t->v, plan->out = *t->out;
    plan->rotated = p.rope != NULL;
    const int narrow = plan->config.wire == ATTN_MPI_BF16;
    plan->block = (struct mpi_block){.k_type = narrow          ? ATTN_BF16
                                               : plan->rotated ? ATTN_F32
                                                               : plan->k.dtype,
                                     .v_type = narrow ? ATTN_BF16 : plan->v.dtype,
                                     .batch = plan->k.shape[0],
                                     .heads = plan->k.shape[1],
                                     .dk = plan->k.shape[3],
                                     .dv = plan->v.shape[3]};
    CHECK(make_keys(plan));
    return plan->config.backward ? make_gradients(plan) : ATTN_OK;
}

attn_status attn_mpi_plan_create(attn_mpi_plan **plan, MPI_Comm comm, const attn_tensor *q, const attn_tensor *k,
                                 const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                 const attn_mpi_config *config)
{
    if (plan)
        *plan = NULL;
    CHECK(check_engine(comm));
    /* From here on the others wait for what this rank says, so that every error is told. */
    struct attn_mpi_plan *made = calloc(1, sizeof *made);
    if (!made) /* nothing could be told without it: they find out by their timeout */
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a plan");
    struct mpi_marks marks = mpi_marks_begin();
    const struct mpi_tensors t = {q, k, v, out};
    attn_status status = make_team(&made->team, comm, config ? config->timeout : 0);
    if (!status) {
        status = plan ? fill(made, &t, params, config, &marks) : attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL");
        status = mpi_agree(&made->team, status, &marks);
    }
    if (status) {
        attn_mpi_plan_destroy(made);
        return status;
    }
    *plan = made;
    return ATTN_OK;
}

void attn_mpi_plan_destroy(attn_mpi_plan *plan)
{
    if (!plan)
        return;
    mpi_lane_free(&plan->lane);
    mpi_lane_free(&plan->gradients_lane);
    free(plan->queries);
    free(plan->keys);
    free(plan->slots);
    free(plan->turned);
    free(plan->sums);
    free(plan->lse);
    free(plan->part);
    free(plan->part_lse);
    free(plan->d_q);
    free(plan->part_q);
    free(plan->part_keys);
    free(plan->d_keys);
    if (plan->team.lost) /* messages may still come, and the engine still reads what it sends */
        return;
    for (int i = 0; i < 2; i++) {
        free(plan->arriving[i]);
        free(plan->leaving[i]);
        free(plan->returning[i]);
    }
    free(plan->own);
    if (plan->team.ranks) /* else there is no communicator */
        MPI_Comm_free(&plan->team.comm);
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
    const int length = snprintf(
        buffer, buffer ? size : 0,
        "rank %d of %d, %s: %" PRId64 " of %" PRId64 " queries in %" PRId64 " ranges, %" PRId64 " of %" PRId64
        " keys; a step sends %zu bytes, k in %s, v in %s; %" PRId64 " queries at once%s",
        plan->team.rank, plan->team.ranks, placement_name(plan->config.placement), mpi_my_queries(plan)->tokens,
        plan->config.queries, mpi_my_queries(plan)->num, mpi_my_keys(plan)->tokens, plan->config.keys,
        plan->team.ranks > 1 ? mpi_block_size(&plan->block, mpi_my_keys(plan)->tokens) : (size_t)0,
        attn_dtype_name(plan->block.k_type), attn_dtype_name(plan->block.v_type), plan->rows,
        plan->config.backward ? "; backward" : "");
    return length > 0 ? (size_t)length : 0;
}
