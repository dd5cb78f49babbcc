/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of attention with additive scores. Tanh of queries x keys x
 * channels numbers is nearly all of the work, as in the forward pass, and is
 * computed once where sequences keep the threads busy:
 *
 *     part = q W_qᵀ
 *     for each sequence                                              tasks
 *         for each query, in order
 *             u = tanh(part + k) of its live keys, weights, gradients of scores
 *             d_v, d_part; u becomes the gradient before tanh
 *             for each of its keys
 *                 d_k += that of u,  d_values += p d_out
 *     d_q = d_part W_q,  d_W_q = d_partᵀ q,  sum of d_v
 *
 * With fewer sequences than threads, queries are the tasks, and leave the three
 * numbers of their softmax behind; then blocks of keys are the tasks, which go
 * through the queries in the same order with tanh computed again. A key's
 * numbers are the same both times, and its sums are made in one order: neither way
 * changes a bit of the other's results. u is of one query and its keys, and of as
 * many of them as there are threads: nothing is stored for all pairs.
 */
#include "nn/additive_backward.h"

#include "driver/ranges.h"
#include "nn/additive.h"
#include "nn/check.h"
#include "nn/linear_backward.h"
#include "nn/product_rows.h"
#include "nn/tensor_rows.h"

#include <math.h>

/* Operations for a channel of a pair, in the units of nn_threads(): tanh and its slope. */
#define PAIR_OPERATIONS 12

/* Keys of a task: their part of u stays in a near cache. */
#define BLOCK_KEYS 32

/** What a thread has for one query: arrays of [keys]. */
struct keys {
    int64_t *live;
    float *p, *d_s;
    float *u; /* [keys][inner] */
};

static struct keys take_keys(struct nn_arena *arena, int64_t inner, int64_t keys)
{
    struct keys k = {0};
    k.live = nn_take(arena, keys, 1, 1, sizeof(int64_t));
    k.p = nn_take(arena, keys, 1, 1, sizeof(float));
    k.d_s = nn_take(arena, keys, 1, 1, sizeof(float));
    k.u = nn_take(arena, keys, inner, 1, sizeof(float));
    return k;
}

/** Bytes of a thread's. */
static size_t keys_size(int64_t inner, int64_t keys, attn_status *status)
{
    struct nn_arena arena = {0};
    take_keys(&arena, inner, keys);
    *status = arena.status;
    return arena.status ? 0 : arena.used ? arena.used : ATTN_ALIGN;
}

/** Bytes of what is known of documents. */
static size_t labels_size(const attn_params *params, int64_t batch, int64_t q_tokens, int64_t k_tokens)
{
    const attn_tensor q = {.shape = {batch, 1, q_tokens, 1}}, k = {.shape = {batch, 1, k_tokens, 1}};
    const struct attn_problem problem = nn_additive_problem(&q, &k, &k, &q, params);
    return attn_labels_size(&problem, ATTN_KEY_BLOCK);
}

struct nn_additive_gradient_pieces nn_take_additive_gradient(struct nn_arena *arena,
                                                             const attn_alignment_config *config, int64_t batch,
                                                             int64_t q_tokens, int64_t k_tokens,
                                                             const attn_params *params)
{
    const int64_t inner = config->d_attention;
    const int num_threads = params->num_threads;
    struct nn_additive_gradient_pieces p = {0};
    p.v = nn_take(arena, inner, 1, 1, sizeof(float));
    p.turned = nn_take(arena, config->d_query, inner, 1, sizeof(float));
    p.q = nn_take(arena, batch, q_tokens, config->d_query, sizeof(float));
    p.part = nn_take(arena, batch, q_tokens, inner, sizeof(float));
    p.d_part = nn_take(arena, batch, q_tokens, inner, sizeof(float));
    p.d_v = nn_take(arena, batch, q_tokens, inner, sizeof(float));
    p.row = nn_take(arena, batch, q_tokens, 1, sizeof *p.row);
    p.scratch = nn_take_workspace(arena, nn_linear_backward_need(num_threads), &p.scratch_size);
    p.labels = nn_take_bytes(arena, labels_size(params, batch, q_tokens, k_tokens));
    attn_status status;
    struct nn_need need = {0};
    need.least = keys_size(inner, k_tokens, &status);
    if (status && !arena->status)
        arena->status = status;
    /* As many threads as there is memory for. */
    const size_t threads = (size_t)nn_all_threads(num_threads), most = SIZE_MAX / 2;
    need.size = need.least > most / threads ? need.least : need.least * threads;
    p.keys = nn_take_workspace(arena, need, &p.keys_size);
    return p;
}

/* ------------------------------------------------------------------ queries -- */

/** A run and its cut. */
struct additive_run {
    const struct nn_additive_gradient *call;
    const struct attn_nn_kernels *kernels;
    struct attn_problem problem; /**< that of the forward pass, out being d_out */
    struct attn_run core;        /**< what says which keys a query sees: blocks of queries are single ones */
    int64_t inner, values;
    int by_sequence;
    int64_t blocks; /* of keys, of a sequence */
    int64_t tasks;
    size_t share;       /* bytes of a share's keys */
    atomic_llong *next; /* task to be handed out */
    void (*task)(const struct additive_run *run, int64_t task, const struct keys *keys);
};

/** Finds the keys from begin to end - 1 that the query of a pass sees, and what masks add to their scores. */
static int64_t find_live(const struct pass *pass, int64_t begin, int64_t end, const struct keys *keys)
{
    const struct strip *strip = &pass->strips[0];
    struct nn_additive_seen seen;
    int64_t count = 0, block = begin / ATTN_KEY_BLOCK * ATTN_KEY_BLOCK;
    end = end < pass->end ? end : pass->end;
    for (; block < end && (block = attn_next_block(pass, strip, 1, block)) < end; block += ATTN_KEY_BLOCK) {
        const int64_t first = block > begin ? block : begin;
        const int64_t stop = block + ATTN_KEY_BLOCK < end ? block + ATTN_KEY_BLOCK : end;
        const struct span span = attn_span_at(pass->work, first, (int)(stop - first));
        nn_additive_see(pass, strip, &span, NN_ADDITIVE_NATURAL, &seen);
        for (int j = seen.lo; j < seen.hi; j++) {
            const float bias = seen.listed ? seen.bias[j] : 0.0f;
            if (bias == -INFINITY)
                continue;
            keys->live[count] = first + j;
            keys->p[count++] = bias;
        }
    }
    return count;
}

/** Rows of a tensor from that of a block's first live key on. */
static struct nn_rows rows_of(const attn_tensor *t, int64_t batch, int64_t key)
{
    if (!t || !t->data)
        return (struct nn_rows){NULL, 0};
    return (struct nn_rows){nn_row_address(t, batch, key), (ptrdiff_t)(t->shape[2] > 1 ? t->stride[2] : 0)};
}

/** Number of a work's query among all rows. */
static int64_t row_number(const struct additive_run *run, const struct attn_work *work)
{
    const int64_t batch = run->problem.params.ragged ? 0 : work->drop.batch;
    return batch * run->problem.q.shape[2] + work->first_query;
}

static struct nn_additive_gradient_work work_of(const struct additive_run *run, const struct attn_work *work,
                                                int64_t count, const struct keys *keys)
{
    const struct nn_additive_gradient *call = run->call;
    const struct nn_additive_gradient_pieces *p = &call->pieces;
    const float temperature = call->config->temperature;
    const int64_t row = row_number(run, work), batch = run->problem.params.ragged ? 0 : work->drop.batch;
    return (struct nn_additive_gradient_work){
        .k = rows_of(call->projected, batch, work->keys_before),
        .x = rows_of(call->v, batch, work->keys_before),
        .live = keys->live,
        .bias = p->part + row * run->inner,
        .v = p->v,
        .d_out = nn_row_address(call->d_out, batch, work->first_query),
        .u = keys->u,
        .p = keys->p,
        .d_s = keys->d_s,
        .row = p->row + row,
        .d_bias = p->d_part + row * run->inner,
        .d_v = p->d_v + row * run->inner,
        .v_scale = temperature != 0.0f ? (float)(1.0 / (double)temperature) : 1.0f,
        .d_k = rows_of(call->d_projected, batch, work->keys_before),
        .d_x = rows_of(call->d_values, batch, work->keys_before),
        .adds_to_x = 1,
        .keys = count,
        .inner = run->inner,
        .channels = run->values,
    };
}

static void run_query(const struct additive_run *run, const struct attn_work *query, const struct keys *keys)
{
    struct pass pass;
    nn_additive_begin(&pass, query);
    const int64_t count = find_live(&pass, 0, query->num_keys, keys), inputs = run->call->config->d_query;
    const struct nn_additive_gradient_work work = work_of(run, query, count, keys);
    if (!count) /* whatever the query holds has no part in the gradient of W_q */
        memset(run->call->pieces.q + row_number(run, query) * inputs, 0, (size_t)inputs * sizeof(float));
    run->kernels->additive_scores_backward(&work);
    run->kernels->additive_projections_backward(&work);
    if (run->by_sequence)
        run->kernels->additive_keys_backward(&work);
}

/* -------------------------------------------------------------------- tasks -- */

/** All queries of a sequence; of a ragged batch also those that belong to none. */
static void run_sequence(const struct additive_run *run, int64_t task, const struct keys *keys)
{
    const int64_t queries = attn_sequence_of(&run->problem, task).queries;
    struct attn_work work;
    for (int64_t query = 0; query < queries; query++)
        if (attn_work_of(&run->core, task, 0, query, NULL, &work))
            run_query(run, &work, keys);
}

static void run_one_query(const struct additive_run *run, int64_t task, const struct keys *keys)
{
    struct attn_work work;
    if (nn_additive_work_of(&run->core, task, &work))
        run_query(run, &work, keys);
}

/** Blocks of keys of all sequences; of a ragged batch some are empty, as attn_piece_of() counts. */
static int64_t count_key_blocks(const struct additive_run *run)
{
    return run->problem.params.ragged ? run->problem.k.shape[2] / BLOCK_KEYS + run->problem.num_sequences + 1
                                      : run->problem.q.shape[0] * run->blocks;
}

/** What all queries of a sequence give to a block of its keys. */
static void run_keys(const struct additive_run *run, int64_t task, const struct keys *keys)
{
    const struct attn_problem *problem = &run->problem;
    const attn_ragged *ragged = problem->params.ragged;
    int64_t block = task, s;
    if (ragged) {
        s = attn_piece_of(ragged->cu_seqlens_k, problem->num_sequences, BLOCK_KEYS, &block);
    } else {
        s = task / run->blocks;
        block %= run->blocks;
    }
    if (s == problem->num_sequences) /* keys of none */
        return;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    struct attn_work query;
    for (int64_t i = 0; i < sequence.queries; i++) {
        struct pass pass;
        if (!attn_work_of(&run->core, s, 0, i, NULL, &query))
            continue;
        nn_additive_begin(&pass, &query);
        const int64_t count = find_live(&pass, block * BLOCK_KEYS, (block + 1) * BLOCK_KEYS, keys);
        struct nn_additive_gradient_work work = work_of(run, &query, count, keys);
        work.is_known = 1;
        work.d_bias = work.d_v = NULL;
        if (!count)
            continue;
        run->kernels->additive_scores_backward(&work);
        run->kernels->additive_projections_backward(&work);
        run->kernels->additive_keys_backward(&work);
    }
}

/** Tasks that nobody else has, in memory of a share's own. */
static void run_shares(const void *context, int64_t first, int64_t end)
{
    const struct additive_run *run = context;
    for (int64_t share = first; share < end; share++) {
        struct nn_arena arena = {.base = (char *)run->call->pieces.keys + (size_t)share * run->share};
        const struct keys keys = take_keys(&arena, run->inner, run->problem.k.shape[2]);
        int64_t task;
        while ((task = atomic_fetch_add_explicit(run->next, 1, memory_order_relaxed)) < run->tasks)
            run->task(run, task, &keys);
    }
}

static void run_tasks(struct additive_run *run, int64_t tasks, int threads,
                      void (*task)(const struct additive_run *run, int64_t task, const struct keys *keys))
{
    atomic_llong next = 0;
    const int shares = tasks < threads ? (int)tasks : threads;
    run->tasks = tasks;
    run->task = task;
    run->next = &next;
    attn_run_ranges(shares, shares, run_shares, run);
}

static int is_wanted(const attn_tensor *t)
{
    return t && t->data;
}

/** The labels of sequences first to end - 1. */
static void run_labels(const void *context, int64_t first, int64_t end)
{
    const struct additive_run *run = context;
    for (int64_t s = first; s < end; s++)
        attn_summarise_labels(&run->core, s, NULL);
}

static void run_pairs(struct additive_run *run)
{
    const struct nn_additive_gradient *call = run->call;
    const struct attn_problem *problem = &run->problem;
    const int64_t batch = problem->q.shape[0], queries = problem->q.shape[2], tokens = problem->k.shape[2];
    const double pairs = (double)batch * (double)queries * (double)tokens;
    attn_status status;
    run->share = keys_size(run->inner, tokens, &status);
    const size_t room = call->pieces.keys_size / run->share;
    int threads =
        nn_threads(call->params->num_threads, pairs * (double)(run->inner * PAIR_OPERATIONS + run->values / 4));
    if ((size_t)threads > room)
        threads = (int)room;
    if (batch == 0 || queries == 0)
        return;
    if (problem->params.segments)
        attn_run_ranges(problem->num_sequences, threads, run_labels, run);
    run->by_sequence = (queries == 1 && !problem->params.ragged) || threads <= problem->num_sequences;
    run->blocks = (tokens + BLOCK_KEYS - 1) / BLOCK_KEYS;
    if (run->by_sequence) {
        run_tasks(run, problem->num_sequences + (problem->params.ragged != NULL), threads, run_sequence);
        return;
    }
    run_tasks(run, nn_additive_blocks(problem, 1), threads, run_one_query);
    if (is_wanted(call->d_projected) || is_wanted(call->d_values))
        run_tasks(run, count_key_blocks(run), threads, run_keys);
}

/* ------------------------------------------------------------------- a call -- */

/** Rows that are copied, or without from become 0. */
struct rows {
    const attn_tensor *from, *to;
};

static void fill_rows(const void *context, int64_t first, int64_t end)
{
    const struct rows *rows = context;
    const int64_t tokens = rows->to->shape[2];
    const size_t bytes = (size_t)rows->to->shape[3] * sizeof(float);
    for (int64_t r = first; r < end; r++) {
        void *to = nn_row_address(rows->to, r / tokens, r % tokens);
        if (rows->from)
            memcpy(to, nn_row_address(rows->from, r / tokens, r % tokens), bytes);
        else
            memset(to, 0, bytes);
    }
}

static void fill(const attn_tensor *from, const attn_tensor *to, int num_threads)
{
    const int64_t rows = to->shape[0] * to->shape[2];
    if (to->shape[3])
        attn_run_ranges(rows, nn_threads(num_threads, (double)rows * (double)to->shape[3] / 4), fill_rows,
                        &(struct rows){from, to});
}

void nn_run_additive_gradient(const struct nn_additive_gradient *call)
{
    const attn_alignment_config *c = call->config;
    const struct nn_additive_gradient_pieces *p = &call->pieces;
    const int num_threads = call->params->num_threads;
    const double factor = c->temperature != 0.0f ? 1.0 / (double)c->temperature : 1.0;
    const int64_t batch = call->q->shape[0], queries = call->q->shape[2];
    const struct attn_geometry single = nn_additive_geometry(1);
    struct additive_run run = {
        .call = call,
        .kernels = attn_nn_kernels_active(),
        .core = {.geometry = &single, .labels = p->labels},
        .inner = c->d_attention,
        .values = call->v->shape[3],
    };
    const attn_tensor q = attn_btc(p->q, batch, queries, c->d_query);
    const attn_tensor part = attn_btc(p->part, batch, queries, run.inner);
    const attn_tensor d_part = attn_btc(p->d_part, batch, queries, run.inner);
    const attn_tensor d_v = attn_btc(p->d_v, batch, queries, run.inner);
    run.problem = nn_additive_problem(&part, call->projected, call->v, &part, call->params);
    run.core.problem = &run.problem;
    for (int64_t i = 0; i < run.inner; i++)
        p->v[i] = (float)((double)nn_weight_at(&c->v, 0, i) * factor);
    fill(call->q, &q, num_threads);
    const struct nn_product_place place = {num_threads, p->scratch, p->scratch_size};
    nn_multiply_rows(&place, &q, &c->w_q, p->turned, &part, 0);
    if (is_wanted(call->d_projected) && !call->accumulate_keys)
        fill(NULL, call->d_projected, num_threads);
    if (is_wanted(call->d_values) && !call->accumulate_keys)
        fill(NULL, call->d_values, num_threads);
    run_pairs(&run);
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.num_threads = num_threads;
    gradients.accumulate = call->accumulate;
    gradients.accumulate_x = call->accumulate_q;
    gradients.x = call->d_q;
    gradients.weights = call->d_w_q;
    nn_linear_backward(&c->w_q, &q, &d_part, &gradients, p->scratch, p->scratch_size);
    gradients.x = gradients.weights = NULL;
    gradients.bias = call->d_score_v;
    nn_linear_backward(&c->w_q, &q, &d_v, &gradients, p->scratch, p->scratch_size);
}
