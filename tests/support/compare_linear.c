/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comparison of linear attention with the reference, element by element.
 *
 * What is not finite in the reference must not be finite in the result, of whatever
 * kind it is; for the others the largest error in units counts, as in compare.c.
 */
#include "compare_linear.h"

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

int compare_linear_numbers(const struct linear_numbers *numbers, const struct tolerance *tolerance,
                           const attn_tensor *got, struct linear_comparison *comparison, char *message,
                           size_t message_size)
{
    const char *const name = tolerance->output;
    const int64_t *n = got->shape;
    double naive = 0, worst = 0;
    int64_t worst_at[4] = {0, 0, 0, 0}, at = 0, worst_index = 0;
    memset(comparison, 0, sizeof *comparison);
    comparison->elements = numbers->count;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++)
                for (int64_t c = 0; c < n[3]; c++, at++) {
                    const float x = tensor_get(got, b, h, i, c);
                    const double expected = numbers->value[at], unit = numbers->unit[at];
                    comparison->zeros += expected == 0;
                    if (isfinite(expected) && isinf(unit)) { /* f32 says nothing of it */
                        comparison->unknown++;
                        continue;
                    }
                    if (!right_kind(got->dtype, expected, x)) {
                        snprintf(message, message_size,
                                 "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %g, expected %g", name, b, h,
                                 i, c, (double)x, expected);
                        return 0;
                    }
                    if (!isfinite(expected)) {
                        comparison->not_finite++;
                        continue;
                    }
                    const double difference = dtype_distance(got->dtype, x, expected);
                    const double error = difference <= 0 ? 0 : difference / unit;
                    if (unit > 0)
                        naive = fmax(naive, numbers->naive_error[at] / unit);
                    if (error > worst || isnan(error)) { /* NaN: the unit is none */
                        worst = error;
                        worst_index = at;
                        memcpy(worst_at, (int64_t[]){b, h, i, c}, sizeof worst_at);
                    }
                }
    comparison->error = worst;
    comparison->allowed = TOLERANCE_FACTOR * naive + tolerance->floor;
    if (worst <= comparison->allowed)
        return 1;
    snprintf(message, message_size,
             "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.9g, expected %.9g: error %.3g units of %.3g "
             "(beside the rounding of %s), allowed %.3g (naive f32 has %.3g)",
             name, worst_at[0], worst_at[1], worst_at[2], worst_at[3],
             (double)tensor_get(got, worst_at[0], worst_at[1], worst_at[2], worst_at[3]), numbers->value[worst_index],
             worst, numbers->unit[worst_index], attn_dtype_name(got->dtype), comparison->allowed, naive);
    return 0;
}

int compare_linear_call(const struct linear_inputs *inputs, const attn_tensor *out, const attn_tensor *state,
                        struct linear_comparison comparison[LINEAR_OUTPUTS], char *message, size_t message_size)
{
    const attn_tensor *const got[LINEAR_OUTPUTS] = {out, state};
    struct linear_reference reference = linear_reference_compute_alone(inputs);
    int passes = 0;
    for (int naively = 0; naively < 2 && !passes; naively++) {
        if (naively)
            linear_naive_compute(inputs, &reference);
        memset(comparison, 0, LINEAR_OUTPUTS * sizeof *comparison);
        passes = 1;
        for (int of = 0; of < LINEAR_OUTPUTS && passes; of++)
            if (got[of])
                passes = compare_linear_numbers(&reference.of[of], &tolerance_linear_table[of], got[of],
                                                &comparison[of], message, message_size);
    }
    linear_reference_free(&reference);
    if (passes) /* perhaps in the second round */
        message[0] = '\0';
    return passes;
}
