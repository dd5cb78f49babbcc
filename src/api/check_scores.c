/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what changes scores and weights: factors and terms of a head, positions, dropout. */
#include "api/check_internal.h"

#include "api/error.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

/* Their rows take working memory beside the queries', of which 2 MiB a thread are promised (pass/scratch.h). */
#define MAX_DISENTANGLED_HEAD 1024
#define MAX_ROPE_HEAD         2048

/** Scores are in base 2: the factor from natural units, as kernels have it. */
#define LOG2E    0x1.715476p+0f

#define MAX_SPAN ((int64_t)1 << 30)

/** Which numbers an array of floats may hold. */
enum admitted {
    FINITE,
    FINITE_OR_HIDING /**< -inf as well */
};

static attn_status check_numbers(const char *name, const float *numbers, int64_t count, enum admitted admitted)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(numbers[i]) && (admitted == FINITE || numbers[i] != -INFINITY))
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s[%" PRId64 "] is %g; expected a finite number%s", name, i,
                             (double)numbers[i], admitted == FINITE ? "" : ", or -inf");
    return ATTN_OK;
}

/** An array with a number for each head of q. */
static attn_status check_heads(const char *name, const float *numbers, const struct attn_problem *problem,
                               enum admitted admitted, enum check_depth depth)
{
    if (!numbers)
        return ATTN_OK;
    CHECK(attn_check_count(name, sizeof(float), problem->q.shape[1], 1, 1));
    return depth & CHECK_ARRAYS ? check_numbers(name, numbers, problem->q.shape[1], admitted) : ATTN_OK;
}

/** That the scale of every head fits a float, with room for the factor log2 e. */
static attn_status check_scales(const struct attn_problem *problem, enum check_depth depth)
{
    const float *factors = problem->params.head_scale;
    for (int64_t h = 0; factors && (depth & CHECK_ARRAYS) && h < problem->q.shape[1]; h++)
        if (!isfinite(problem->scale * factors[h] * 2.0f))
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.head_scale[%" PRId64
                             "] is %g; expected a product with the scale, %g, that a float can hold",
                             h, (double)factors[h], (double)problem->scale);
    return ATTN_OK;
}

static attn_status check_buckets(const attn_relative_bias *bias)
{
    const int64_t buckets = bias->buckets, furthest = bias->max_distance;
    if ((unsigned)bias->kind > ATTN_BUCKETS_T5_BIDIRECTIONAL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.relative_bias->kind is %d; expected an attn_buckets",
                         (int)bias->kind);
    if (bias->kind == ATTN_BUCKETS_CLIPPED) {
        if (furthest < 0)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.relative_bias->max_distance is %" PRId64 "; expected 0 or more", furthest);
        if (furthest > (INT64_MAX - 1) / 2)
            return attn_fail(ATTN_SIZE_OVERFLOW,
                             "params.relative_bias->max_distance is %" PRId64
                             "; expected a number of buckets, twice that and 1, below 2^63",
                             furthest);
        if (buckets != 2 * furthest + 1)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.relative_bias->buckets is %" PRId64 "; expected %" PRId64
                             ", twice max_distance and 1",
                             buckets, 2 * furthest + 1);
        return ATTN_OK;
    }
    const int both = bias->kind == ATTN_BUCKETS_T5_BIDIRECTIONAL;
    if (buckets < (both ? 4 : 2) || (both && buckets % 2))
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.relative_bias->buckets is %" PRId64 "; expected %s", buckets,
                         both ? "an even number, 4 or more" : "2 or more");
    const int64_t single = buckets / (both ? 4 : 2);
    if (furthest <= single)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.relative_bias->max_distance is %" PRId64 "; expected more than %" PRId64
                         ", the buckets of one distance each",
                         furthest, single);
    return ATTN_OK;
}

static attn_status check_relative_bias(const struct attn_problem *problem, enum check_depth depth)
{
    static const char name[] = "params.relative_bias->table";
    const attn_relative_bias *bias = problem->params.relative_bias;
    const int64_t heads = problem->q.shape[1];
    CHECK(check_buckets(bias));
    CHECK(attn_check_count(name, sizeof(float), heads, bias->buckets, 1));
    if (!bias->table && heads > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %" PRId64 " x %" PRId64 " numbers", name, heads,
                         bias->buckets);
    return depth & CHECK_ARRAYS ? check_numbers(name, bias->table, heads * bias->buckets, FINITE_OR_HIDING) : ATTN_OK;
}

/** What a table of rows must be besides its shape. */
static attn_status check_table(const char *name, const attn_tensor *t, enum check_depth depth)
{
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_f32(name, t->dtype));
    return depth & CHECK_TENSORS ? attn_check_contiguous(name, t) : ATTN_OK;
}

static attn_status check_relative_rows(const char *name, const attn_tensor *t, const struct attn_problem *problem,
                                       enum check_depth depth)
{
    CHECK(check_table(name, t, depth));
    CHECK(attn_check_axis(name, t, 0, 1, "as all sequences share it"));
    CHECK(attn_check_one_or(name, t, 1, problem->q.shape[1]));
    CHECK(attn_check_axis(name, t, 2, 2 * problem->params.disentangled->span, "twice the span"));
    return attn_check_axis(name, t, 3, problem->q.shape[3], "the head size of q");
}

/** That heads are no larger than an option can have them. */
static attn_status check_head_limit(const struct attn_problem *problem, const char *option, int limit)
{
    if (problem->q.shape[3] > limit)
        return attn_fail(ATTN_UNSUPPORTED, "q.shape[3] is %" PRId64 "; head sizes with params.%s go up to %d",
                         problem->q.shape[3], option, limit);
    return ATTN_OK;
}

static attn_status check_disentangled(struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    const attn_disentangled *terms = p->disentangled;
    if (terms->span < 1 || terms->span > MAX_SPAN)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.disentangled->span is %" PRId64 "; expected 1 to %" PRId64 ", 2^30", terms->span,
                         MAX_SPAN);
    if (!terms->rel_k && !terms->rel_q)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.disentangled->rel_k and rel_q are NULL; expected one of them, or "
                         "params.disentangled NULL");
    if ((unsigned)terms->delta > ATTN_DELTA_KEY_QUERY)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.disentangled->delta is %d; expected an attn_delta",
                         (int)terms->delta);
    if (terms->delta && !terms->rel_q)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.disentangled->delta is %d; expected 0 without params.disentangled->rel_q",
                         (int)terms->delta);
    if (terms->rel_k) {
        problem->rel_k = *terms->rel_k;
        CHECK(check_relative_rows("params.disentangled->rel_k", terms->rel_k, problem, depth));
    }
    if (terms->rel_q) {
        problem->rel_q = *terms->rel_q;
        CHECK(check_relative_rows("params.disentangled->rel_q", terms->rel_q, problem, depth));
    }
    if (p->qk == ATTN_QK_INT8)
        return attn_fail(ATTN_UNSUPPORTED, "params.disentangled is set and params.qk is ATTN_QK_INT8; expected one of "
                                           "the two");
    if (p->rope)
        return attn_fail(ATTN_UNSUPPORTED, "params.disentangled and params.rope are set; expected one of the two");
    return check_head_limit(problem, "disentangled", MAX_DISENTANGLED_HEAD);
}

static attn_status check_rotations(const char *name, const attn_tensor *t, const attn_tensor *rotated,
                                   const char *tokens, enum check_depth depth)
{
    CHECK(check_table(name, t, depth));
    CHECK(attn_check_one_or(name, t, 0, rotated->shape[0]));
    CHECK(attn_check_one_or(name, t, 1, rotated->shape[1]));
    CHECK(attn_check_axis(name, t, 2, rotated->shape[2], tokens));
    if (t->shape[3] < 2 || t->shape[3] % 2 || t->shape[3] > rotated->shape[3])
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "%s.shape[3] is %" PRId64 "; expected an even number from 2 to %" PRId64 ", the head size",
                         name, t->shape[3], rotated->shape[3]);
    return ATTN_OK;
}

static attn_status check_rope(struct attn_problem *problem, enum check_depth depth)
{
    const attn_rope_tables *rope = problem->params.rope;
    if ((unsigned)rope->layout > ATTN_ROPE_INTERLEAVED)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.rope->layout is %d; expected an attn_rope_layout",
                         (int)rope->layout);
    CHECK(check_rotations("params.rope->q", rope->q, &problem->q, "the tokens of q", depth));
    CHECK(check_rotations("params.rope->k", rope->k, &problem->k, "the tokens of k", depth));
    CHECK(attn_check_axis("params.rope->k", rope->k, 3, rope->q->shape[3], "as params.rope->q has"));
    problem->rope_q = *rope->q;
    problem->rope_k = *rope->k;
    return check_head_limit(problem, "rope", MAX_ROPE_HEAD);
}

static attn_status check_dropout(const attn_dropout *dropout)
{
    if (!(dropout->p >= 0.0f && dropout->p < 1.0f))
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.dropout->p is %g; expected 0 or more and less than 1",
                         (double)dropout->p);
    return ATTN_OK;
}

attn_status attn_check_scores(struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    CHECK(check_heads("params.head_scale", p->head_scale, problem, FINITE, depth));
    CHECK(check_scales(problem, depth));
    if (!isfinite(p->softcap) || p->softcap < 0.0f)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.softcap is %g; expected a positive number, or 0 for none",
                         (double)p->softcap);
    if (!isfinite(p->softcap * LOG2E))
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.softcap is %.9g; expected at most %.9g, whose product with log2(e) a float can hold",
                         (double)p->softcap, (double)(FLT_MAX / LOG2E));
    CHECK(check_heads("params.sinks", p->sinks, problem, FINITE_OR_HIDING, depth));
    CHECK(check_heads("params.alibi_slopes", p->alibi_slopes, problem, FINITE, depth));
    if (p->relative_bias)
        CHECK(check_relative_bias(problem, depth));
    if (p->disentangled)
        CHECK(check_disentangled(problem, depth));
    if (p->rope)
        CHECK(check_rope(problem, depth));
    if (p->callback_user && !p->callback)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.callback_user is set; expected NULL without params.callback");
    if (p->weight_callback_user && !p->weight_callback)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.weight_callback_user is set; expected NULL without params.weight_callback");
    return p->dropout ? check_dropout(p->dropout) : ATTN_OK;
}
