/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grouped heads of a single token: the query heads of a key head become queries
 * of one head, so that each byte of K and V is read once for all of them.
 *
 * (B, H, 1, d) is (B, H / f, f, d) with other strides, and so is everything that
 * belongs to a query. The last of all tokens sees every live key, so causality
 * can be left out. Lanes do not depend on each other: no bit changes.
 */
#include "driver/driver.h"

#include <string.h>

/**
 * Whether nothing is asked for that heads have of their own beside a mask and a log-sum-exp, or that counts queries.
 * Fields are not listed, so that a further option is not forgotten here; what padding holds may make it say no, which
 * costs time and nothing else.
 */
static int is_same_for_heads(const attn_params *params)
{
    attn_params rest = *params;
    if (rest.causal == ATTN_CAUSAL_BOTTOM_RIGHT)
        rest.causal = ATTN_CAUSAL_NONE;
    rest.struct_size = 0;
    rest.scale = rest.temperature = rest.softcap = 0.0f;
    rest.num_threads = 0;
    rest.executor = NULL;
    rest.lse = rest.mask = NULL;
    rest.kv_len = rest.kv_start = NULL;
    rest.qk = ATTN_QK_DEFAULT;
    rest.inputs = (attn_inputs)0;
    uint64_t any = 0, word;
    _Static_assert(sizeof rest % sizeof word == 0, "words are all there is of it");
    for (size_t at = 0; at < sizeof rest; at += sizeof word) {
        memcpy(&word, (const char *)&rest + at, sizeof word);
        any |= word;
    }
    return any == 0;
}

int64_t attn_heads_together(const struct attn_problem *problem, int threads)
{
    const int64_t batch = problem->q.shape[0], heads = problem->q.shape[1], kv_heads = problem->k.shape[1];
    if (problem->q.shape[2] != 1 || kv_heads == 0 || heads == kv_heads || !is_same_for_heads(&problem->params))
        return 1;
    /* Work for all threads comes first: a second one finds K and V in the last level of cache. */
    int64_t together = heads / kv_heads;
    while (together > 1 && (heads / kv_heads % together || batch * (heads / together) < threads))
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
    t->stride[1] *= together;
}

void attn_fold_heads(struct attn_problem *problem, int64_t together)
{
    fold(&problem->q, together);
    fold(&problem->out, together);
    fold(&problem->lse, together);
    fold(&problem->mask, together);
    problem->params.causal = ATTN_CAUSAL_NONE;
}
