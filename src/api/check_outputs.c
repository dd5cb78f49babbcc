/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the outputs on request. */
#include "api/check_internal.h"

#include "api/error.h"

#include <inttypes.h>

/** An output on request: f32 of the given shape. */
static attn_status check_output(const char *name, const attn_tensor *t, int64_t tokens, int64_t channels,
                                const struct attn_problem *problem, enum check_depth depth)
{
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_f32(name, t->dtype));
    CHECK(attn_check_axis(name, t, 0, problem->q.shape[0], "the batch of q"));
    CHECK(attn_check_axis(name, t, 1, problem->q.shape[1], "the heads of q"));
    CHECK(attn_check_axis(name, t, 2, tokens, "one per row that was asked for"));
    CHECK(attn_check_axis(name, t, 3, channels, "one per key, or 1"));
    return depth == CHECK_ALL ? attn_check_distinct(name, t) : ATTN_OK;
}

static attn_status check_weight_rows(const struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    const int64_t tq = problem->q.shape[2];
    if (p->num_weight_rows < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_weight_rows is %" PRId64 "; expected 0 or more",
                         p->num_weight_rows);
    if (p->weight_rows && !p->weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.weight_rows is set but params.weights is NULL");
    if (!p->weight_rows && p->num_weight_rows)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_weight_rows is %" PRId64 " but params.weight_rows is NULL",
                         p->num_weight_rows);
    for (int64_t i = 0; depth == CHECK_ALL && i < p->num_weight_rows; i++)
        if (p->weight_rows[i] < 0 || p->weight_rows[i] >= tq)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.weight_rows[%" PRId64 "] is %" PRId64 "; expected a query from 0 to %" PRId64, i,
                             p->weight_rows[i], tq - 1);
    return ATTN_OK;
}

attn_status attn_check_outputs(struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    const int64_t tq = problem->q.shape[2], tk = problem->k.shape[2];
    CHECK(check_weight_rows(problem, depth));
    if (p->lse) {
        problem->lse = *p->lse;
        CHECK(check_output("params.lse", p->lse, tq, 1, problem, depth));
    }
    if (p->weights) {
        problem->weights = *p->weights;
        CHECK(check_output("params.weights", p->weights, p->weight_rows ? p->num_weight_rows : tq, tk, problem, depth));
    }
    if (p->key_sums) {
        problem->key_sums = *p->key_sums;
        CHECK(check_output("params.key_sums", p->key_sums, 1, tk, problem, depth));
    }
    return ATTN_OK;
}
