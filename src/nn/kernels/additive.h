/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Additive attention (Bahdanau et al. 2015, appendix A.1.2) of some queries and
 * a block of keys, whose parts W_q q and W_k k + b of the scores have been
 * computed:
 *
 *     for each step of 64 or 32 keys of the block
 *         for each query that sees one of them
 *             s[j] = v·tanh(q + k_j) + mask           16, 8 or 4 keys at a time
 *             m' = max(m, max s),  p = 2^(s - m'),  l = l 2^(m - m') + sum p
 *         o = o 2^(m - m') + sum_j p[j] values[j]     of all queries at once
 *
 * Nearly all of the time goes to the tanh of queries x keys x channels numbers,
 * and no product of matrices can take its place: additive_scores.h. Values are asked
 * for meanwhile: the keys of a step are as many as leave their values in L1 for
 * the sum.
 *
 * Nothing mixes queries, a step's sums have fixed places, and steps begin at fixed
 * keys: a query's bits depend on its own keys alone. Hidden keys have the score
 * -inf and are left out, so what stands in them reaches nothing.
 */
#ifndef ATTN_NN_ADDITIVE_KERNEL_H
#define ATTN_NN_ADDITIVE_KERNEL_H

#include "nn/kernels/additive_scores.h"
#include "nn/kernels/norm.h"
#include "nn/kernels/typed.h"

#include <math.h>

/** A step of one query. */
struct additive_step {
    float p[NN_ADDITIVE_STEP] __attribute__((aligned(ATTN_ALIGN))); /**< scores, base 2, then weights; -inf: hidden */
    int live[NN_ADDITIVE_STEP]; /**< keys of it that the query sees, rising; unless they are all of first..end-1 */
    int first, end, count;      /**< count: of live; -1: all */
    float factor;               /**< of what o holds */
};

/**
 * Keys of a step. Softmax costs some hundred cycles a step, so longer ones are better, as long as L1 has room for their
 * values. It shapes the bits, so it follows from the values' channels alone.
 */
static inline int additive_step_keys(int64_t values)
{
    return values > 128 ? NN_ADDITIVE_STEP / 2 : NN_ADDITIVE_STEP;
}

/** Bytes of values that are asked for into L1. */
#define ADDITIVE_NEAR 32768

/** Scores of the keys of the step that begins at key at of the block; with asks, its values are asked for. */
static void additive_scores(const struct nn_additive_work *work, const struct nn_additive_query *query,
                            const struct additive_queried *queried, int at, struct additive_step *step, int asks)
{
    struct additive_rows rows = {.asks = asks};
    rows.near = (step->end - step->first) * work->values * attn_element_size(work->v.dtype) <= ADDITIVE_NEAR;
    if (step->count < 0) {
        for (int j = step->first; j < step->end; j += VF_LEN) {
            additive_find_run(work, at + j, step->end - j < VF_LEN ? step->end - j : VF_LEN, &rows);
            additive_group(work, queried, &rows, step->p + j);
        }
        return;
    }
    int live[NN_ADDITIVE_STEP];
    for (int i = 0; i < step->count; i++)
        live[i] = at + step->live[i];
    for (int i = 0; i < step->count; i += VF_LEN) {
        float lanes[VF_LEN];
        const int n = step->count - i < VF_LEN ? step->count - i : VF_LEN;
        additive_find_listed(work, live + i, n, &rows);
        additive_group(work, queried, &rows, lanes);
        for (int u = 0; u < n; u++)
            step->p[step->live[i + u]] = lanes[u] + query->bias[live[i + u]];
    }
}

/** Finds the keys of the step that begins at key at of the block. Returns whether there are any. */
static int additive_begin(const struct nn_additive_query *query, int at, int keys, struct additive_step *step)
{
    step->first = query->lo > at ? query->lo - at : 0;
    step->end = query->hi - at < keys ? query->hi - at : keys;
    step->count = -1;
    if (step->first >= step->end)
        return 0;
    for (int j = 0; j < keys; j += VF_LEN)
        vf_store(step->p + j, vf_set1(-INFINITY));
    if (!query->bias)
        return 1;
    step->count = 0;
    for (int j = step->first; j < step->end; j++)
        if (query->bias[at + j] != -INFINITY)
            step->live[step->count++] = j;
    return step->count > 0;
}

/** The largest of top and the scores; a NaN is none. */
static float additive_maximum(const struct additive_step *step, int keys, float top)
{
    vf most = vf_set1(top);
    for (int j = 0; j < keys; j += VF_LEN)
        most = vf_max(vf_load(step->p + j), most);
    return vf_max_across(most);
}

/** What is subtracted from scores with the maximum m: 0 where no key has been live yet. */
static inline float additive_base(float m)
{
    return m == -INFINITY ? 0.0f : m;
}

static inline float additive_exp2(float x)
{
    float lanes[VF_LEN];
    vf_store(lanes, vf_exp2(vf_set1(x)));
    return lanes[0];
}

/** Scores become weights; m and l are brought up to date. */
static void additive_update(struct nn_additive_query *query, int keys, struct additive_step *step)
{
    const float top = additive_maximum(step, keys, query->m), base = additive_base(top);
    const vf factor = vf_exp2(vf_set1(query->m - base));
    float lanes[VF_LEN];
    vf sum = vf_mul(vf_load(query->l), factor);
    for (int j = 0; j < keys; j += VF_LEN) {
        const vf p = vf_exp2(vf_sub(vf_load(step->p + j), vf_set1(base)));
        vf_store(step->p + j, p);
        sum = vf_add(sum, p);
    }
    vf_store(query->l, sum);
    vf_store(lanes, factor);
    step->factor = lanes[0];
    query->m = top;
}

/** The scores wait where the weights will be. */
static void additive_keep(const struct nn_additive_query *query, int at, const struct additive_step *step)
{
    for (int j = step->first; j < step->end; j++)
        query->scores[(at + j) * query->score_stride] = step->p[j];
}

/* ------------------------------------------------------------------- values -- */

/** Vectors of o that one query, or several at once, have in registers at most while values pass by. */
#define ADDITIVE_ALONE    8
#define ADDITIVE_TOGETHER (VF_STRIP * VF_CHANNELS > 16 ? 4 : 2)

/** Rows of o, what they are multiplied by, and the weights of a step. */
struct additive_sums {
    float *o[NN_ADDITIVE_ROWS];
    const float *p[NN_ADDITIVE_ROWS];
    float factor[NN_ADDITIVE_ROWS];
};

/** nv vectors of nr rows from channel c on, or the first rest floats of one: with the values of keys live[i] or,
 * without live, first + i. */
ATTN_INLINE void additive_columns(const attn_dtype dtype, const int nr, const int nv, const int rest, int64_t c,
                                  const struct additive_sums *x, const struct attn_rows *values, const int *live,
                                  int first, int count)
{
    vf acc[NN_ADDITIVE_ROWS][ADDITIVE_ALONE];
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        const vf factor = vf_set1(x->factor[r]);
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            const float *o = x->o[r] + c + v * VF_LEN;
            acc[r][v] = vf_mul(rest ? vf_load_tail(o, rest) : vf_load(o), factor);
        }
    }
    for (int i = 0; i < count; i++) {
        const int key = live ? live[i] : first + i;
        const char *const row = row_at(values, key);
        vf value[ADDITIVE_ALONE];
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            value[v] = typed_load(dtype, row, c + v * VF_LEN, rest ? rest : VF_LEN);
        ATTN_UNROLL
        for (int r = 0; r < nr; r++) {
            const vf w = vf_set1(x->p[r][key]);
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                acc[r][v] = vf_fma(w, value[v], acc[r][v]);
        }
    }
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            float *o = x->o[r] + c + v * VF_LEN;
            if (rest)
                vf_store_tail(o, acc[r][v], rest);
            else
                vf_store(o, acc[r][v]);
        }
    }
}

ATTN_INLINE void additive_rows_of_values(const attn_dtype dtype, const int nr, const struct nn_additive_work *work,
                                         const struct additive_sums *x, const struct attn_rows *values, const int *live,
                                         int first, int count)
{
    int64_t c = 0;
    for (; nr == 1 && c + 8 * VF_LEN <= work->values; c += 8 * VF_LEN)
        additive_columns(dtype, nr, 8, 0, c, x, values, live, first, count);
    for (; (nr == 1 || ADDITIVE_TOGETHER == 4) && c + 4 * VF_LEN <= work->values; c += 4 * VF_LEN)
        additive_columns(dtype, nr, 4, 0, c, x, values, live, first, count);
    for (; c + 2 * VF_LEN <= work->values; c += 2 * VF_LEN)
        additive_columns(dtype, nr, 2, 0, c, x, values, live, first, count);
    for (; c + VF_LEN <= work->values; c += VF_LEN)
        additive_columns(dtype, nr, 1, 0, c, x, values, live, first, count);
    if (c < work->values)
        additive_columns(dtype, nr, 1, (int)(work->values - c), c, x, values, live, first, count);
}

/** Values of the keys from to end - 1 for one query, or of those that are listed; the factor is used up. */
ATTN_INLINE void additive_alone(const attn_dtype dtype, const struct nn_additive_work *work,
                                const struct attn_rows *values, const struct nn_additive_query *query,
                                struct additive_step *step, int from, int end)
{
    const struct additive_sums x = {.o = {query->o}, .p = {step->p}, .factor = {step->factor}};
    if (step->count >= 0)
        additive_rows_of_values(dtype, 1, work, &x, values, step->live, 0, step->count);
    else if (from < end)
        additive_rows_of_values(dtype, 1, work, &x, values, NULL, from, end - from);
    else
        return;
    step->factor = 1.0f;
}

/**
 * Values of a step, for all queries that see keys of it. Where these are NN_ADDITIVE_ROWS that see all keys of a range
 * each, a value is loaded once for the keys that they have in common; the rest and other queries go one by one. Each
 * row has its terms in the order of the keys either way.
 */
ATTN_INLINE void additive_values_of(const attn_dtype dtype, const struct nn_additive_work *work, int at,
                                    struct additive_step *steps)
{
    struct additive_sums x;
    struct attn_rows values = work->v;
    int from = 0, end = NN_ADDITIVE_STEP, together = work->num_queries == NN_ADDITIVE_ROWS;
    values.data = row_at(&work->v, at);
    for (int r = 0; r < work->num_queries; r++) {
        from = steps[r].first > from ? steps[r].first : from;
        end = steps[r].end < end ? steps[r].end : end;
        together &= steps[r].count < 0;
    }
    together &= from < end;
    for (int r = 0; r < work->num_queries; r++)
        if (steps[r].count)
            additive_alone(dtype, work, &values, &work->queries[r], &steps[r], steps[r].first,
                           together ? from : steps[r].end);
    if (!together)
        return;
    for (int r = 0; r < NN_ADDITIVE_ROWS; r++) {
        x.o[r] = work->queries[r].o;
        x.p[r] = steps[r].p;
        x.factor[r] = steps[r].factor;
        steps[r].factor = 1.0f;
    }
    additive_rows_of_values(dtype, NN_ADDITIVE_ROWS, work, &x, &values, NULL, from, end - from);
    for (int r = 0; r < NN_ADDITIVE_ROWS; r++)
        additive_alone(dtype, work, &values, &work->queries[r], &steps[r], end, steps[r].end);
}

static void additive_values(const struct nn_additive_work *work, int at, struct additive_step *steps)
{
    ATTN_BY_DTYPE(work->v.dtype, additive_values_of, work, at, steps);
}

/* -------------------------------------------------------------------- blocks -- */

/** One step of all queries. */
static void additive_one_step(const struct nn_additive_work *work, const struct additive_queried *queried, int at,
                              int keys)
{
    struct additive_step steps[NN_ADDITIVE_ROWS];
    int any = 0;
    for (int r = 0; r < work->num_queries; r++) {
        struct nn_additive_query *query = &work->queries[r];
        if (!additive_begin(query, at, keys, &steps[r])) {
            steps[r].count = steps[r].first = steps[r].end = 0;
            continue;
        }
        if (!queried[r].wild && !queried[r].fused)
            additive_want(work, at + steps[r].first, at + steps[r].end);
        additive_scores(work, query, &queried[r], at, &steps[r], !any);
        if (query->scores)
            additive_keep(query, at, &steps[r]);
        additive_update(query, keys, &steps[r]);
        any = 1;
    }
    if (any)
        additive_values(work, at, steps);
}

/** struct attn_nn_kernels, additive. */
static void additive_block(const struct nn_additive_work *work)
{
    struct additive_queried queried[NN_ADDITIVE_ROWS];
    int lo = ATTN_KEY_BLOCK, hi = 0;
    for (int r = 0; r < work->num_queries; r++) {
        const struct nn_additive_query *query = &work->queries[r];
        if (query->lo >= query->hi)
            continue;
        lo = query->lo < lo ? query->lo : lo;
        hi = query->hi > hi ? query->hi : hi;
    }
    if (lo >= hi)
        return;
    for (int r = 0; r < work->num_queries; r++) {
        float *const exps = work->exps->q + r * work->exps->pitch;
        queried[r].q = work->queries[r].q;
        queried[r].exps = exps;
        queried[r].wild = additive_exps_row(ATTN_F32, queried[r].q, work->channels, exps) > TANH_TAME;
        queried[r].fused = work->num_queries == 1 && work->exps->from == work->exps->end;
    }
    const int keys = additive_step_keys(work->values);
    for (int at = lo / keys * keys; at < hi; at += keys)
        additive_one_step(work, queried, at, keys);
}

#endif
