/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of queries of additive attention and the keys of its sequence:
 *
 *     for each split of NN_ADDITIVE_SPLIT keys, from the first live key on
 *         m = -inf, l = 0, o = 0 anew
 *         for each block of keys that some query may see
 *             for each group of NN_ADDITIVE_ROWS queries: additive()
 *         m, l and o are joined to those of the splits before
 *     out = o / l
 *
 * Whoever computes a split, it is joined in the order of the keys, with the same
 * operations, so bits depend neither on threads nor on what else is in a call. A
 * split of which a query sees nothing leaves that query as it is.
 */
#include "nn/additive.h"

#include <math.h>

size_t nn_additive_sums_in(struct nn_additive_sums *sums, char *base, int64_t queries, int64_t values)
{
    const size_t m = attn_aligned((size_t)queries * sizeof(float));
    const size_t l = (size_t)queries * NN_ADDITIVE_LANES * sizeof(float);
    if (base) {
        sums->m = (float *)(void *)base;
        sums->l = (float *)(void *)(base + m);
        sums->o = (float *)(void *)(base + m + l);
    }
    return m + l + attn_aligned((size_t)queries * (size_t)values * sizeof(float));
}

size_t nn_additive_exps_in(struct nn_additive_exps *exps, char *base, int64_t channels)
{
    const size_t pitch = attn_aligned((size_t)channels * sizeof(float)), sizes = ATTN_KEY_BLOCK * sizeof(float);
    if (base) {
        *exps = (struct nn_additive_exps){.pitch = (ptrdiff_t)(pitch / sizeof(float))};
        exps->size = (float *)(void *)base;
        exps->q = (float *)(void *)(base + sizes);
        exps->k = (float *)(void *)(base + sizes + NN_ADDITIVE_ROWS * pitch);
    }
    return sizes + (NN_ADDITIVE_ROWS + ATTN_KEY_BLOCK) * pitch;
}

/** Whether a query has seen no key. */
static int has_seen_nothing(const struct nn_additive_sums *sums, int64_t r)
{
    for (int i = 0; i < NN_ADDITIVE_LANES; i++)
        if (sums->l[r * NN_ADDITIVE_LANES + i] != 0.0f) /* a NaN is not */
            return 0;
    return 1;
}

int nn_additive_is_empty(const struct nn_additive_sums *sums, int64_t queries)
{
    for (int64_t r = 0; r < queries; r++)
        if (!has_seen_nothing(sums, r))
            return 0;
    return 1;
}

struct nn_additive_range nn_additive_splits(const struct pass *pass)
{
    const int64_t first = attn_next_block(pass, pass->strips, pass->num_strips, 0);
    if (first >= pass->end)
        return (struct nn_additive_range){0, 0};
    return (struct nn_additive_range){first / NN_ADDITIVE_SPLIT, (pass->end - 1) / NN_ADDITIVE_SPLIT + 1};
}

/** Some queries of a block of them meet a block of keys. */
static void meet(const struct nn_additive *call, const struct pass *pass, const struct span *span, int64_t first,
                 struct nn_additive_exps *exps, struct nn_additive_sums *sums)
{
    const struct attn_work *work = pass->work;
    struct nn_additive_seen seen[NN_ADDITIVE_ROWS];
    struct nn_additive_query queries[NN_ADDITIVE_ROWS];
    const int64_t left = work->num_queries - first;
    const int count = left < NN_ADDITIVE_ROWS ? (int)left : NN_ADDITIVE_ROWS;
    int any = 0;
    for (int i = 0; i < count; i++) {
        const int64_t r = first + i;
        nn_additive_see(pass, &pass->strips[r], span, NN_ADDITIVE_BASE2, &seen[i]);
        any |= seen[i].lo < seen[i].hi;
        queries[i] = (struct nn_additive_query){
            .q = (const float *)(const void *)row_of(&work->q, r),
            .o = sums->o + r * work->dv,
            .m = sums->m[r],
            .l = sums->l + r * NN_ADDITIVE_LANES,
            .lo = seen[i].lo,
            .hi = seen[i].hi,
            .bias = seen[i].listed ? seen[i].bias : NULL,
        };
        if (work->weights.data) {
            const struct attn_grid *weights = &work->weights;
            queries[i].scores = (float *)weights->data + (work->first_query + r) * weights->query_stride +
                                span->first * weights->key_stride;
            queries[i].score_stride = weights->key_stride;
        }
    }
    if (!any)
        return;
    call->kernels->additive(&(struct nn_additive_work){
        .queries = queries,
        .num_queries = count,
        .k = attn_rows_from(&work->k, span->first),
        .v = attn_rows_from(&work->v, span->first),
        .score = call->score,
        .channels = work->dk,
        .values = work->dv,
        .exps = exps,
    });
    for (int i = 0; i < count; i++)
        sums->m[first + i] = queries[i].m;
}

void nn_additive_split(const struct nn_additive *call, const struct pass *pass, int64_t split,
                       struct nn_additive_exps *exps, struct nn_additive_sums *sums)
{
    const struct attn_work *work = pass->work;
    const int64_t behind = (split + 1) * NN_ADDITIVE_SPLIT, end = behind < pass->end ? behind : pass->end;
    int64_t first = split * NN_ADDITIVE_SPLIT;
    int started = 0;
    for (int64_t r = 0; r < work->num_queries; r++)
        sums->m[r] = -INFINITY;
    memset(sums->l, 0, (size_t)(work->num_queries * NN_ADDITIVE_LANES) * sizeof(float));
    for (; (first = attn_next_block(pass, pass->strips, pass->num_strips, first)) < end; first += ATTN_KEY_BLOCK) {
        const int64_t left = work->num_keys - first;
        const struct span span = attn_span_at(work, first, left < ATTN_KEY_BLOCK ? (int)left : ATTN_KEY_BLOCK);
        if (!started)
            memset(sums->o, 0, (size_t)(work->num_queries * work->dv) * sizeof(float));
        exps->from = exps->end = 0;
        for (int64_t r = 0; r < work->num_queries; r += NN_ADDITIVE_ROWS)
            meet(call, pass, &span, r, exps, sums);
        started = 1;
    }
}

static struct nn_additive_query query_in(const struct nn_additive_sums *sums, const struct attn_work *work, int64_t r)
{
    return (struct nn_additive_query){
        .o = sums->o + r * work->dv, .m = sums->m[r], .l = sums->l + r * NN_ADDITIVE_LANES};
}

void nn_additive_join(const struct nn_additive *call, const struct attn_work *work, const struct nn_additive_sums *next,
                      struct nn_additive_sums *sums)
{
    for (int64_t r = 0; r < work->num_queries; r++) {
        struct nn_additive_query query = query_in(sums, work, r);
        const struct nn_additive_query more = query_in(next, work, r);
        call->kernels->additive_join(&more, work->dv, &query);
        sums->m[r] = query.m;
    }
}

void nn_additive_clear(const struct attn_work *work, struct nn_additive_range splits)
{
    const struct attn_grid *weights = &work->weights;
    const int64_t first = splits.first * NN_ADDITIVE_SPLIT, behind = splits.end * NN_ADDITIVE_SPLIT;
    const int64_t end = behind < work->num_keys ? behind : work->num_keys;
    if (!weights->data)
        return;
    for (int64_t r = 0; r < work->num_queries; r++) {
        float *row = (float *)weights->data + (work->first_query + r) * weights->query_stride;
        for (int64_t j = first; j < end; j++)
            row[j * weights->key_stride] = -INFINITY;
    }
}

void nn_additive_finish(const struct nn_additive *call, const struct attn_work *work,
                        const struct nn_additive_sums *sums)
{
    const struct attn_grid *weights = &work->weights;
    for (int64_t r = 0; r < work->num_queries; r++) {
        const struct nn_additive_query query = query_in(sums, work, r);
        if (has_seen_nothing(sums, r)) /* perhaps nobody has written there */
            memset(query.o, 0, (size_t)work->dv * sizeof(float));
        call->kernels->additive_finish(&(struct nn_additive_result){
            .query = &query,
            .out = row_of(&work->out, r),
            .dtype = work->out.dtype,
            .values = work->dv,
            .lse = work->lse ? work->lse + r * work->lse_stride : NULL,
            .weights = weights->data ? (float *)weights->data + (work->first_query + r) * weights->query_stride : NULL,
            .weight_stride = weights->key_stride,
            .keys = work->num_keys,
            .keys_before = work->keys_before,
            .keys_after = work->keys_after,
        });
    }
}
