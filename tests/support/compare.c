/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comparison of all outputs with the reference, element by element.
 *
 * Numbers that are not finite are compared by kind, each element for itself;
 * for finite ones the largest error in units counts, since the naive
 * computation's largest error over the same elements is the yardstick.
 */
#include "compare.h"
#include "dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/** One output: where the library wrote, and the reference in the same order. */
struct view {
    enum test_output kind;
    const attn_tensor *tensor;
    const double *expected, *unit, *slack, *naive_error; /**< naive_error: distance from expected */
    const int64_t *rows; /**< row t of the tensor is row rows[t] of the reference; NULL: the same */
    int64_t ref_rows;    /**< rows of the reference per head */
    int64_t tq;          /**< queries that a key sum adds up */
    int rounds_weights;
};

/** A number beyond the largest of a 16-bit type is written as Inf, rightly or not: that is a matter of distance. */
static int right_kind(attn_dtype dtype, double expected, double unit, float got)
{
    if (isnan(expected))
        return isnan(got) || (isinf(unit) && isinf(got));
    if (isinf(expected))
        return got == (float)expected || (unit > 0 && isnan(got));
    return dtype == ATTN_F32 ? isfinite(got) : !isnan(got);
}

static int compare_view(const struct view *view, struct comparison *comparison, char *message, size_t message_size)
{
    const attn_tensor *t = view->tensor;
    double worst = 0, naive_worst = 0, worst_expected = 0, worst_unit = 0;
    float worst_got = 0;
    int64_t worst_at[4] = {0, 0, 0, 0};
    for (int64_t b = 0; b < t->shape[0]; b++) {
        for (int64_t h = 0; h < t->shape[1]; h++) {
            for (int64_t i = 0; i < t->shape[2]; i++) {
                const int64_t row = view->rows ? view->rows[i] : i;
                for (int64_t c = 0; c < t->shape[3]; c++) {
                    const int64_t at = ((b * t->shape[1] + h) * view->ref_rows + row) * t->shape[3] + c;
                    const float got = tensor_get(t, b, h, i, c);
                    const double expected = view->expected[at], unit = view->unit[at];
                    if (view->kind == TEST_OUT) {
                        comparison->elements++;
                        comparison->zeros += expected == 0;
                    }
                    if (view->kind == TEST_SCORES && isinf(unit)) /* beyond what f32 has: anything may be there */
                        continue;
                    if (!right_kind(t->dtype, expected, unit, got)) {
                        snprintf(message, message_size,
                                 "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %g, expected %g",
                                 tolerance_table[view->kind].output, b, h, i, c, (double)got, expected);
                        return 0;
                    }
                    if (!isfinite(expected))
                        continue;
                    const double difference = dtype_distance(t->dtype, got, expected) - view->slack[at];
                    const double error = difference <= 0 ? 0 : difference / unit;
                    const double naive_error = view->naive_error[at] == 0 ? 0 : view->naive_error[at] / unit;
                    if (naive_error > naive_worst && isfinite(naive_error))
                        naive_worst = naive_error;
                    if (error > worst || isnan(error)) {
                        worst = error;
                        worst_got = got;
                        worst_expected = expected;
                        worst_unit = unit;
                        memcpy(worst_at, (int64_t[]){b, h, i, c}, sizeof worst_at);
                    }
                }
            }
        }
    }
    comparison->error[view->kind] = worst;
    comparison->naive_error[view->kind] = naive_worst;
    const double allowed = TOLERANCE_FACTOR * naive_worst + tolerance_floor(view->kind, view->tq);
    comparison->allowed[view->kind] = allowed;
    if (worst <= allowed)
        return 1;
    snprintf(message, message_size,
             "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.9g, expected %.9g: error %.3g units of %.3g "
             "(beside the rounding of %s%s), allowed %.3g (naive f32 has %.3g)",
             tolerance_table[view->kind].output, worst_at[0], worst_at[1], worst_at[2], worst_at[3], (double)worst_got,
             worst_expected, worst, worst_unit, attn_dtype_name(t->dtype),
             view->rounds_weights ? " and of weights" : "", allowed, naive_worst);
    return 0;
}

int compare_call(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                 const attn_params *params, char *message, size_t message_size)
{
    struct comparison comparison;
    struct reference ref = reference_compute_alone(q, k, v, params);
    int passes = compare_with_reference(&ref, out, params, &comparison, message, message_size);
    reference_free(&ref);
    if (passes)
        return 1;
    ref = reference_compute(q, k, v, params, NAIVE_F32);
    passes = compare_with_reference(&ref, out, params, &comparison, message, message_size);
    reference_free(&ref);
    return passes;
}

int compare_with_reference(const struct reference *ref, const attn_tensor *out, const attn_params *params,
                           struct comparison *comparison, char *message, size_t message_size)
{
    const struct view views[TEST_OUTPUTS] = {
        {TEST_OUT, out, ref->out, ref->out_unit, ref->out_slack, ref->naive_out_error, NULL, ref->tq, ref->tq,
         ref->rounds_weights},
        {TEST_LSE, params->lse, ref->lse, ref->lse_unit, ref->lse_slack, ref->naive_lse_error, NULL, ref->tq, ref->tq,
         ref->rounds_weights},
        {TEST_WEIGHTS, params->weights, ref->weights, ref->weights_unit, ref->weights_slack, ref->naive_weights_error,
         params->weight_rows, ref->tq, ref->tq, ref->rounds_weights},
        {TEST_KEY_SUMS, params->key_sums, ref->key_sums, ref->key_sums_unit, ref->key_sums_slack,
         ref->naive_key_sums_error, NULL, 1, ref->tq, ref->rounds_weights},
        {TEST_SCORES, params->scores, ref->scores, ref->scores_unit, ref->scores_slack, ref->naive_scores_error,
         params->weight_rows, ref->tq, ref->tq, ref->rounds_weights},
    };
    memset(comparison, 0, sizeof *comparison);
    for (size_t i = 0; i < TEST_OUTPUTS; i++)
        if (views[i].tensor && !compare_view(&views[i], comparison, message, message_size))
            return 0;
    return 1;
}
