/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Additive scores v·tanh(a + b) of a query's channels a and those b of some keys.
 *
 *     tanh(a + b) = 1 - 2 / (1 + e^2a e^2b)
 *
 * so the exponentials of a key, which are most of the work, serve all queries of a
 * block, and what is left for each pair is two multiply-adds and a division: one
 * for two channels, as 1 / x = y / (x y). A query alone has those of keys made
 * where they are used, with the same operations, so its bits are those that it has
 * among others. The error is some 2^-24 of v for each channel; it does not shrink
 * with a + b, as that of the tanh itself does, but a score's terms are as large as
 * v wherever it matters, and weights follow differences of scores.
 *
 * Channels beyond TANH_TAME would overflow in a product of two exponentials, or lose
 * the other one's digits: such rows are wild, and pairs with one of them take the
 * tanh itself. That is a choice of the pair alone.
 *
 * Lanes are channels: keys and queries are read as they lie, one query alone keeps
 * the vectors as full as many do, and a key that a mask hides costs at most its
 * exponentials. As many keys as there are lanes leave their sums in as many vectors,
 * of which vf_sum_across() makes one vector of scores.
 */
#ifndef ATTN_NN_ADDITIVE_SCORES_H
#define ATTN_NN_ADDITIVE_SCORES_H

#include "nn/kernels/typed.h"

/** Chains of tanh that are side by side, as many as registers have room for. */
#define ADDITIVE_CHAINS (VF_STRIP * VF_CHANNELS > 16 ? TANH_CHAINS : TANH_CHAINS / 2)

/** Keys that go together where so many vectors of channels are left of each: as many as make up the chains, about. */
#define ADDITIVE_KEYS(vectors) (ADDITIVE_CHAINS / (vectors) < VF_LEN ? ADDITIVE_CHAINS / (vectors) : VF_LEN)

/** Rows of up to VF_LEN keys. */
struct additive_rows {
    const char *k[VF_LEN];    /**< the last one is there again behind it */
    const char *exps[VF_LEN]; /**< likewise, their exponentials */
    int key[VF_LEN];          /**< which they are, in the block */
    const char *v[VF_LEN];    /**< values to be asked for, which will be wanted when the step's scores are there */
    int keys;
    int asks, near; /**< whether any are, and into L1 */
};

/** How the terms of scores come about. */
enum additive_form {
    ADDITIVE_DIRECT, /**< tanh(q + k) */
    ADDITIVE_STORED, /**< from e^2q and e^2k, which are there */
    ADDITIVE_FUSED   /**< the same, where e^2k is wanted once: the bits are the same */
};

/** The largest size that a lane has seen, which is wild beyond TANH_TAME. A NaN is none, and makes its score one. */
ATTN_INLINE vf additive_mark(vf x, vf size)
{
    return vf_max(vf_abs(x), size);
}

/** tanh(q + k) of n vectors, nc at a time of one key, from 1 + e^2q e^2k. */
ATTN_INLINE void additive_tanh_of_exps(vf *x, const int n, const int nc)
{
    const vf one = vf_set1(1.0f), minus_two = vf_set1(-2.0f);
    if (nc == 1) {
        ATTN_UNROLL
        for (int i = 0; i < n; i++)
            x[i] = vf_add(vf_div(minus_two, x[i]), one);
        return;
    }
    ATTN_UNROLL
    for (int i = 0; i < n; i += 2) { /* one division for two: each is the other's share of it */
        const vf both = vf_div(minus_two, vf_mul(x[i], x[i + 1])), first = vf_fma(x[i + 1], both, one);
        x[i + 1] = vf_fma(x[i], both, one);
        x[i] = first;
    }
}

/** A vector of floats, or the n that are left. */
ATTN_INLINE vf additive_load(const float *p, const int n)
{
    return n < VF_LEN ? vf_load_tail(p, n) : vf_load(p);
}

/**
 * The terms of nc vectors of channels from c on, or of the n channels that are left, added up for nk keys; *size as
 * additive_mark() has it, where exponentials are made. The few ULP of the fast tanh are lost in the sum. Sums are made
 * of few terms at a time, so errors grow slowly.
 */
ATTN_INLINE void additive_terms(const attn_dtype dtype, const enum additive_form form, const int nk, const int nc,
                                const int n, const struct nn_additive_work *work, const float *q, const char *const *k,
                                int64_t c, vf *size, vf *sums)
{
    vf x[TANH_CHAINS];
    ATTN_UNROLL
    for (int i = 0; i < nk * nc; i++) {
        const int64_t at = c + i % nc * VF_LEN;
        const vf key = typed_load(dtype, k[i / nc], at, n);
        x[i] = form == ADDITIVE_DIRECT ? vf_add(additive_load(q + at, n), key) : key;
        if (form == ADDITIVE_FUSED)
            *size = additive_mark(key, *size);
    }
    if (form == ADDITIVE_DIRECT)
        vf_tanh_many(x, nk * nc);
    if (form == ADDITIVE_FUSED)
        vf_exp_twice_many(x, nk * nc);
    if (form != ADDITIVE_DIRECT) {
        ATTN_UNROLL
        for (int i = 0; i < nk * nc; i++)
            x[i] = vf_fma(additive_load(q + c + i % nc * VF_LEN, n), x[i], vf_set1(1.0f));
        additive_tanh_of_exps(x, nk * nc, nc);
    }
    ATTN_UNROLL
    for (int u = 0; u < nk; u++) {
        sums[u] = vf_zero();
        ATTN_UNROLL
        for (int i = 0; i < nc; i++)
            sums[u] = vf_fma(additive_load(work->score + c + i * VF_LEN, n), x[u * nc + i], sums[u]);
    }
}

/** Asks for the values of nk keys. */
ATTN_INLINE void additive_ask(const struct nn_additive_work *work, const int nk, const struct additive_rows *rows,
                              int first)
{
    const int64_t bytes = work->values * attn_element_size(work->v.dtype);
    for (int i = first; i < first + nk && i < rows->keys; i++)
        for (int64_t at = 0; at < bytes; at += ATTN_ALIGN) {
            if (rows->near)
                __builtin_prefetch(rows->v[i] + at, 0, 3);
            else
                __builtin_prefetch(rows->v[i] + at, 0, 2);
        }
}

/** Vectors nc at a time, as long as so many are left from c on, for all keys; returns where the rest begins. */
ATTN_INLINE int64_t additive_columns_of(const attn_dtype dtype, const enum additive_form form, const int nc,
                                        const struct nn_additive_work *work, const float *q,
                                        const struct additive_rows *rows, int64_t c, vf *size, vf *totals)
{
    const int nk = ADDITIVE_KEYS(nc);
    const int64_t width = (int64_t)nc * VF_LEN, end = c + (work->channels - c) / width * width;
    if (c == end)
        return c;
    for (int i = 0; i < rows->keys; i += nk) {
        vf sums[VF_LEN], all[VF_LEN];
        if (c == 0 && rows->asks)
            additive_ask(work, nk, rows, i);
        ATTN_UNROLL
        for (int u = 0; u < nk; u++)
            all[u] = c == 0 ? vf_zero() : totals[i + u];
        for (int64_t at = c; at < end; at += width) {
            additive_terms(dtype, form, nk, nc, VF_LEN, work, q, (form == ADDITIVE_STORED ? rows->exps : rows->k) + i,
                           at, size, sums);
            ATTN_UNROLL
            for (int u = 0; u < nk; u++)
                all[u] = vf_add(all[u], sums[u]);
        }
        ATTN_UNROLL
        for (int u = 0; u < nk; u++)
            totals[i + u] = all[u];
    }
    return end;
}

/** The channels behind the last whole vector. */
ATTN_INLINE void additive_last_columns(const attn_dtype dtype, const enum additive_form form,
                                       const struct nn_additive_work *work, const float *q,
                                       const struct additive_rows *rows, int64_t c, vf *size, vf *totals)
{
    const int nk = ADDITIVE_KEYS(1);
    for (int i = 0; i < rows->keys; i += nk) {
        vf sums[VF_LEN];
        if (c == 0 && rows->asks)
            additive_ask(work, nk, rows, i);
        additive_terms(dtype, form, nk, 1, (int)(work->channels - c), work, q,
                       (form == ADDITIVE_STORED ? rows->exps : rows->k) + i, c, size, sums);
        ATTN_UNROLL
        for (int u = 0; u < nk; u++)
            totals[i + u] = c == 0 ? sums[u] : vf_add(totals[i + u], sums[u]);
    }
}

/** The scores of some keys. */
ATTN_INLINE void additive_group_of(const attn_dtype dtype, const enum additive_form form,
                                   const struct nn_additive_work *work, const float *q,
                                   const struct additive_rows *rows, vf *size, float *scores)
{
    vf totals[VF_LEN];
    totals[0] = vf_zero();
    for (int i = rows->keys; i < VF_LEN; i++)
        totals[i] = vf_zero();
    int64_t c = 0;
    if (ADDITIVE_CHAINS >= 8)
        c = additive_columns_of(dtype, form, 8, work, q, rows, c, size, totals);
    c = additive_columns_of(dtype, form, 4, work, q, rows, c, size, totals);
    c = additive_columns_of(dtype, form, 2, work, q, rows, c, size, totals);
    c = additive_columns_of(dtype, form, 1, work, q, rows, c, size, totals);
    if (VF_LEN > 1 && c < work->channels)
        additive_last_columns(dtype, form, work, q, rows, c, size, totals);
    const vf sums = vf_sum_across(totals);
    if (rows->keys < VF_LEN)
        vf_store_tail(scores, sums, rows->keys);
    else
        vf_store(scores, sums);
}

/* -------------------------------------------------------------- exponentials -- */

/** Vectors nc of a row from channel c on, or its n channels: e^2x; *size as additive_mark() has it. */
ATTN_INLINE void additive_exps_of(const attn_dtype dtype, const int nc, const int n, const void *row, int64_t c,
                                  float *to, vf *size)
{
    vf x[TANH_CHAINS];
    ATTN_UNROLL
    for (int i = 0; i < nc; i++) {
        x[i] = typed_load(dtype, row, c + i * VF_LEN, n);
        *size = additive_mark(x[i], *size);
    }
    vf_exp_twice_many(x, nc);
    ATTN_UNROLL
    for (int i = 0; i < nc; i++)
        vf_store(to + c + i * VF_LEN, x[i]);
}

/** The exponentials of a row, up to whole vectors; returns the size of its largest number. */
ATTN_INLINE float additive_exps_row(const attn_dtype dtype, const void *row, int64_t channels, float *to)
{
    vf size = vf_zero();
    int64_t c = 0;
    for (; c + ADDITIVE_CHAINS * VF_LEN <= channels; c += ADDITIVE_CHAINS * VF_LEN)
        additive_exps_of(dtype, ADDITIVE_CHAINS, VF_LEN, row, c, to, &size);
    for (; c + VF_LEN <= channels; c += VF_LEN)
        additive_exps_of(dtype, 1, VF_LEN, row, c, to, &size);
    if (VF_LEN > 1 && c < channels)
        additive_exps_of(dtype, 1, (int)(channels - c), row, c, to, &size);
    return vf_max_across(size);
}

ATTN_INLINE void additive_exps_keys(const attn_dtype dtype, const struct nn_additive_work *work, int from, int end)
{
    const struct nn_additive_exps *exps = work->exps;
    for (int j = from; j < end; j++)
        exps->size[j] = additive_exps_row(dtype, row_at(&work->k, j), work->channels, exps->k + j * exps->pitch);
}

/** Sees to it that the keys from to end - 1 of the block have exponentials, or are known to have none. */
static void additive_want(const struct nn_additive_work *work, int from, int end)
{
    struct nn_additive_exps *exps = work->exps;
    if (exps->from == exps->end)
        exps->from = exps->end = from;
    if (from < exps->from) {
        ATTN_BY_DTYPE(work->k.dtype, additive_exps_keys, work, from, exps->from);
        exps->from = from;
    }
    if (end > exps->end) {
        ATTN_BY_DTYPE(work->k.dtype, additive_exps_keys, work, exps->end, end);
        exps->end = end;
    }
}

/* --------------------------------------------------------- scores of some keys -- */

/** Sets key i of some rows, which is key of the block. */
static inline void additive_set_row(const struct nn_additive_work *work, int i, int key, struct additive_rows *rows)
{
    rows->k[i] = row_at(&work->k, key);
    rows->exps[i] = (const char *)(work->exps->k + key * work->exps->pitch);
    rows->key[i] = key;
}

/** Finds the rows of n keys from first on. */
static void additive_find_run(const struct nn_additive_work *work, int first, int n, struct additive_rows *rows)
{
    const char *v = row_at(&work->v, first);
    for (int i = 0; i < VF_LEN; i++)
        additive_set_row(work, i, first + (i < n ? i : n - 1), rows);
    for (int i = 0; i < n && rows->asks; i++, v += work->v.stride)
        rows->v[i] = v;
    rows->keys = n;
}

/** The same of listed keys. */
static void additive_find_listed(const struct nn_additive_work *work, const int *live, int n,
                                 struct additive_rows *rows)
{
    for (int i = 0; i < VF_LEN; i++) {
        const int key = live[i < n ? i : n - 1];
        additive_set_row(work, i, key, rows);
        rows->v[i] = row_at(&work->v, key);
    }
    rows->keys = n;
}

/** A query as the kernel sees it. */
struct additive_queried {
    const float *q, *exps;
    int wild;  /**< it has no exponentials */
    int fused; /**< those of keys are for it alone, and not stored */
};

/** Scores of some keys, right for those that are not wild; returns whether one is. */
static int additive_tame_group(const struct nn_additive_work *work, const struct additive_queried *query,
                               const struct additive_rows *rows, float *scores)
{
    vf size = vf_zero();
    int any = 0;
    if (query->fused) {
        ATTN_BY_DTYPE(work->k.dtype, additive_group_of, ADDITIVE_FUSED, work, query->exps, rows, &size, scores);
        if (vf_max_across(size) <= TANH_TAME)
            return 0;
        additive_want(work, rows->key[0], rows->key[rows->keys - 1] + 1);
    } else {
        additive_group_of(ATTN_F32, ADDITIVE_STORED, work, query->exps, rows, &size, scores);
    }
    for (int i = 0; i < rows->keys; i++)
        any |= work->exps->size[rows->key[i]] > TANH_TAME;
    return any;
}

/** The scores of some keys: of those pairs of which one is wild from the tanh itself. */
static void additive_group(const struct nn_additive_work *work, const struct additive_queried *query,
                           const struct additive_rows *rows, float *scores)
{
    float lanes[VF_LEN];
    vf size = vf_zero();
    if (!query->wild && !additive_tame_group(work, query, rows, scores))
        return;
    ATTN_BY_DTYPE(work->k.dtype, additive_group_of, ADDITIVE_DIRECT, work, query->q, rows, &size, lanes);
    for (int i = 0; i < rows->keys; i++)
        if (query->wild || work->exps->size[rows->key[i]] > TANH_TAME)
            scores[i] = lanes[i];
}

#endif
