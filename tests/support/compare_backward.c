/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comparison of gradients with the reference, element by element.
 *
 * What is not finite in the reference must not be finite in the result, of
 * whatever kind it is; for the others the largest error in units counts, as in
 * compare.c.
 */
#include "compare_backward.h"

#include "dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/** A number beyond the largest of a 16-bit type is written as Inf: that is a matter of distance. */
static int right_kind(attn_dtype dtype, double expected, float got)
{
    if (!isfinite(expected))
        return !isfinite(got);
    return dtype == ATTN_F32 ? isfinite(got) : !isnan(got);
}

int compare_gradient(const struct backward_reference *reference, enum gradient_of of, const attn_tensor *got,
                     struct gradient_comparison *comparison, char *message, size_t message_size)
{
    const struct gradient *g = &reference->of[of];
    const char *const name = tolerance_gradient_table[of].output;
    const int64_t *n = got->shape;
    double naive = 0, worst = 0;
    int64_t worst_at = 0;
    memset(comparison, 0, sizeof *comparison);
    comparison->elements = g->count;
    for (int64_t at = 0; at < g->count; at++) {
        const int64_t c = at % n[3], i = at / n[3] % n[2], h = at / n[3] / n[2] % n[1], b = at / n[3] / n[2] / n[1];
        const float x = tensor_get(got, b, h, i, c);
        comparison->zeros += g->value[at] == 0;
        if (isinf(g->unit[at])) { /* f32 says nothing of it */
            comparison->unknown++;
            continue;
        }
        if (!right_kind(got->dtype, g->value[at], x)) {
            snprintf(message, message_size,
                     "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %g, expected %g (unit %g)", name, b, h, i,
                     c, (double)x, g->value[at], g->unit[at]);
            return 0;
        }
        if (!isfinite(g->value[at]))
            continue;
        const double difference = dtype_distance(got->dtype, x, g->value[at]) - g->slack[at];
        const double error = difference <= 0 ? 0 : difference / g->unit[at];
        if (g->unit[at] > 0)
            naive = fmax(naive, g->naive_error[at] / g->unit[at]);
        if (error > worst) {
            worst = error;
            worst_at = at;
        }
    }
    comparison->error = worst;
    comparison->allowed = TOLERANCE_GRADIENT_FACTOR * naive + tolerance_gradient_floor(of);
    if (worst <= comparison->allowed)
        return 1;
    const int64_t c = worst_at % n[3], i = worst_at / n[3] % n[2], h = worst_at / n[3] / n[2] % n[1];
    const int64_t b = worst_at / n[3] / n[2] / n[1];
    snprintf(message, message_size,
             "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.9g, expected %.9g: error %.3g units of %.3g "
             "(beside the rounding of %s%s), allowed %.3g (naive f32 has %.3g)",
             name, b, h, i, c, (double)tensor_get(got, b, h, i, c), g->value[worst_at], worst, g->unit[worst_at],
             attn_dtype_name(got->dtype), reference->rounds_weights ? " and of weights" : "", comparison->allowed,
             naive);
    return 0;
}

int compare_backward_call(const struct backward_inputs *inputs, const attn_tensor *const got[GRADIENTS],
                          struct gradient_comparison comparison[GRADIENTS], char *message, size_t message_size)
{
    int passes = 0;
    for (int naively = 0; naively < 2 && !passes; naively++) {
        struct backward_reference reference =
            naively ? backward_reference_compute(inputs) : backward_reference_compute_alone(inputs);
        passes = 1;
        for (int of = 0; of < GRADIENTS && passes; of++)
            if (got[of])
                passes =
                    compare_gradient(&reference, (enum gradient_of)of, got[of], &comparison[of], message, message_size);
        backward_reference_free(&reference);
    }
    if (passes) /* perhaps in the second round */
        message[0] = '\0';
    return passes;
}
