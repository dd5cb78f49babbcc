/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grouped heads of a single token: the query heads of a key head become queries
 * of one head, so that each byte of K and V is read once for all of them.
 *
 * (B, H, 1, d) is (B, H / f, f, d) with other strides, and so is everything that
 * belongs to a query. All of them stand at one position (struct attn_view,
 * together). The last of all tokens sees every live key, so causality can be left
 * out. Lanes do not depend on each other: no bit changes.
 */
#include "driver/driver.h"

/** Heads that share what is read of K and V: a block of queries, about. There may be more heads than can be counted. */
#define MOST_TOGETHER 256

int64_t attn_heads_together(const struct attn_problem *problem, int threads)
{
    const int64_t batch = problem->q.shape[0], heads = problem->q.shape[1], kv_heads = problem->k.shape[1];
    if (problem->q.shape[2] != 1 || kv_heads == 0 || heads <= kv_heads || !problem->equal_heads)
        return 1;
    /* Work for all threads comes first: a second one finds K and V in the last level of cache. Many splits of the keys
     * are such work as well. */
    int64_t together = heads / kv_heads < MOST_TOGETHER ? heads / kv_heads : MOST_TOGETHER;
    int64_t wanted = batch > 0 ? (threads + batch - 1) / batch : 0; /* of each sequence */
    if (!problem->params.window && kv_heads * (problem->k.shape[2] / ATTN_SPLIT_KEYS) >= 2 * wanted)
        wanted = 1;
    while (together > 1 && (heads / kv_heads % together || heads / together < wanted))
        together--;
    return together;
}

/** A tensor, unless it is absent, whose axes 1 and 2 are heads and the one query. Of one head: the same for all. */
static void fold(attn_tensor *t, int64_t together)
{
    if (t->shape[2] == 0 || t->shape[1] == 1)
        return;
    t->shape[1] /= together;
    t->shape[2] = together;
    t->stride[2] = t->stride[1];
    t->stride[1] = (int64_t)((uint64_t)t->stride[1] * (uint64_t)together); /* of an empty tensor it may be anything */
}

void attn_fold_heads(struct attn_problem *problem, int64_t together)
{
    fold(&problem->q, together);
    fold(&problem->out, together);
    fold(&problem->lse, together);
    fold(&problem->mask, together);
    problem->together = together;
    if (!problem->params.window) /* which is counted from the query's place */
        problem->params.causal = ATTN_CAUSAL_NONE;
}
