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

struct nn_additive_gradient_pieces nn_take_additive_gradient(struct nn_arena *arena,
                                                             const attn_alignment_config *config, int64_t batch,
                                                             int64_t q_tokens, int64_t k_tokens, int num_threads)
{
    const int64_t inner = config->d_attention;
    struct nn_additive_gradient_pieces p = {0};
    p.v = nn_take(arena, inner, 1, 1, sizeof(float));
    p.turned = nn_take(arena, config->d_query, inner, 1, sizeof(float));
    p.q = nn_take(arena, batch, q_tokens, config->d_query, sizeof(float));
    p.part = nn_take(arena, batch, q_tokens, inner, sizeof(float));
    p.d_part = nn_take(arena, batch, q_tokens, inner, sizeof(float));
    p.d_v = nn_take(arena, batch, q_tokens, inner, sizeof(float));
    p.row = nn_take(arena, batch, q_tokens, 1, sizeof *p.row);
    p.scratch = nn_take_workspace(arena, nn_linear_backward_need(num_threads), &p.scratch_size);
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
struct run {
    const struct nn_additive_gradient *call;
    const struct attn_nn_kernels *kernels;
    int64_t batch, queries, tokens, inner, values;
    int by_sequence;
    int64_t blocks; /* of keys, of a sequence */
    int64_t tasks;
    int shares;
    size_t share; /* bytes of a task's keys */
    void (*task)(const struct run *run, int64_t task, const struct keys *keys);
};

/** A byte or number of a mask for a pair. */
static float mask_at(const attn_tensor *mask, int64_t batch, int64_t query, int64_t key)
{
    attn_tensor of_sequence = *mask;
    const int64_t row = mask->shape[2] > 1 ? query : 0, column = mask->shape[3] > 1 ? key : 0;
    const int64_t at = mask->shape[0] > 1 ? batch * mask->stride[0] : 0;
    of_sequence.data = (char *)mask->data + at * (int64_t)attn_dtype_size(mask->dtype);
    if (mask->dtype != ATTN_BOOL)
        return nn_weight_at(&of_sequence, row, column);
    const uint8_t *bytes = of_sequence.data;
    return bytes[row * mask->stride[2] + column * mask->stride[3]] ? 0.0f : -INFINITY;
}

/** Finds the keys from first to end - 1 that a query sees, and what masks add to their scores. */
static int64_t find_live(const struct run *run, int64_t batch, int64_t query, int64_t first, int64_t end,
                         const struct keys *keys)
{
    const attn_params *p = run->call->params;
    const int64_t stop = p->kv_len ? p->kv_len[batch] : run->tokens, begin = p->kv_start ? p->kv_start[batch] : 0;
    const int64_t seen = nn_additive_diagonal(p, batch, run->queries, stop) + query + 1;
    int64_t count = 0;
    first = first < begin ? begin : first;
    end = end > stop ? stop : end;
    end = end > seen ? seen : end;
    for (int64_t key = first; key < end; key++) {
        const float bias = p->mask ? mask_at(p->mask, batch, query, key) : 0.0f;
        if (bias == -INFINITY)
            continue;
        keys->live[count] = key;
        keys->p[count++] = bias;
    }
    return count;
}

static struct nn_rows rows_of(const attn_tensor *t, int64_t batch)
{
    if (!t || !t->data)
        return (struct nn_rows){NULL, 0};
    return (struct nn_rows){nn_row_address(t, batch, 0), (ptrdiff_t)(t->shape[2] > 1 ? t->stride[2] : 0)};
}

static struct nn_additive_gradient_work work_of(const struct run *run, int64_t batch, int64_t query, int64_t count,
                                                const struct keys *keys)
{
    const struct nn_additive_gradient *call = run->call;
    const struct nn_additive_gradient_pieces *p = &call->pieces;
    const float temperature = call->config->temperature;
    const int64_t row = batch * run->queries + query;
    return (struct nn_additive_gradient_work){
        .k = rows_of(call->projected, batch),
        .x = rows_of(call->v, batch),
        .live = keys->live,
        .bias = p->part + row * run->inner,
        .v = p->v,
        .d_out = nn_row_address(call->d_out, batch, query),
        .u = keys->u,
        .p = keys->p,
        .d_s = keys->d_s,
        .row = p->row + row,
        .d_bias = p->d_part + row * run->inner,
        .d_v = p->d_v + row * run->inner,
        .v_scale = temperature != 0.0f ? (float)(1.0 / (double)temperature) : 1.0f,
        .d_k = rows_of(call->d_projected, batch),
        .d_x = rows_of(call->d_values, batch),
        .adds_to_x = 1,
        .keys = count,
        .inner = run->inner,
        .channels = run->values,
    };
}

static void run_query(const struct run *run, int64_t batch, int64_t query, const struct keys *keys)
{
    const int64_t count = find_live(run, batch, query, 0, run->tokens, keys);
    const struct nn_additive_gradient_work work = work_of(run, batch, query, count, keys);
    if (!count) /* whatever the query holds has no part in the gradient of W_q */
        memset(run->call->pieces.q + (batch * run->queries + query) * run->call->config->d_query, 0,
               (size_t)run->call->config->d_query * sizeof(float));
    run->kernels->additive_scores_backward(&work);
    run->kernels->additive_projections_backward(&work);
    if (run->by_sequence)
        run->kernels->additive_keys_backward(&work);
}

/* -------------------------------------------------------------------- tasks -- */

static void run_sequence(const struct run *run, int64_t task, const struct keys *keys)
{
    for (int64_t query = 0; query < run->queries; query++)
        run_query(run, task, query, keys);
}

static void run_one_query(const struct run *run, int64_t task, const struct keys *keys)
{
    run_query(run, task / run->queries, task % run->queries, keys);
}

/** What all queries of a sequence give to a block of its keys. */
static void run_keys(const struct run *run, int64_t task, const struct keys *keys)
{
    const int64_t batch = task / run->blocks, first = task % run->blocks * BLOCK_KEYS;
    const int64_t end = run->tokens - first < BLOCK_KEYS ? run->tokens : first + BLOCK_KEYS;
    for (int64_t query = 0; query < run->queries; query++) {
        const int64_t count = find_live(run, batch, query, first, end, keys);
        struct nn_additive_gradient_work work = work_of(run, batch, query, count, keys);
        work.is_known = 1;
        work.d_bias = work.d_v = NULL;
        if (!count)
            continue;
        run->kernels->additive_scores_backward(&work);
        run->kernels->additive_projections_backward(&work);
        run->kernels->additive_keys_backward(&work);
    }
}

/** Every so manieth task, in memory of its own. */
static void run_shares(const void *context, int64_t first, int64_t end)
{
    const struct run *run = context;
    for (int64_t share = first; share < end; share++) {
        struct nn_arena arena = {.base = (char *)run->call->pieces.keys + (size_t)share * run->share};
        const struct keys keys = take_keys(&arena, run->inner, run->tokens);
        for (int64_t task = share; task < run->tasks; task += run->shares)
            run->task(run, task, &keys);
    }
}

static void run_tasks(struct run *run, int64_t tasks, int threads,
                      void (*task)(const struct run *run, int64_t task, const struct keys *keys))
{
    run->tasks = tasks;
    run->task = task;
    run->shares = tasks < threads ? (int)tasks : threads;
    attn_run_ranges(run->shares, run->shares, run_shares, run);
}

static int is_wanted(const attn_tensor *t)
{
    return t && t->data;
}

static void run_pairs(struct run *run)
{
    const struct nn_additive_gradient *call = run->call;
    const double pairs = (double)run->batch * (double)run->queries * (double)run->tokens;
    attn_status status;
    run->share = keys_size(run->inner, run->tokens, &status);
    const size_t room = call->pieces.keys_size / run->share;
    int threads =
        nn_threads(call->params->num_threads, pairs * (double)(run->inner * PAIR_OPERATIONS + run->values / 4));
    if ((size_t)threads > room)
        threads = (int)room;
    run->by_sequence = run->queries == 1 || threads <= run->batch;
    run->blocks = (run->tokens + BLOCK_KEYS - 1) / BLOCK_KEYS;
    if (run->by_sequence) {
        run_tasks(run, run->batch, threads, run_sequence);
        return;
    }
    run_tasks(run, run->batch * run->queries, threads, run_one_query);
    if (is_wanted(call->d_projected) || is_wanted(call->d_values))
        run_tasks(run, run->batch * run->blocks, threads, run_keys);
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
    struct run run = {
        .call = call,
        .kernels = attn_nn_kernels_active(),
        .batch = call->q->shape[0],
        .queries = call->q->shape[2],
        .tokens = call->projected->shape[2],
        .inner = c->d_attention,
        .values = call->v->shape[3],
    };
    const attn_tensor q = attn_btc(p->q, run.batch, run.queries, c->d_query);
    const attn_tensor part = attn_btc(p->part, run.batch, run.queries, run.inner);
    const attn_tensor d_part = attn_btc(p->d_part, run.batch, run.queries, run.inner);
    const attn_tensor d_v = attn_btc(p->d_v, run.batch, run.queries, run.inner);
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
