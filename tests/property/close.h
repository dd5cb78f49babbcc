/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far two results may be apart that are equal in exact arithmetic only.
 * The unit of each comparison is the oracle's; how many units follows from the
 * table in support/tolerance.h. To that come, for each of the two, the rounding
 * of out to its type and the oracle's slack where weights are rounded to bf16.
 */
#ifndef PROPERTY_CLOSE_H
#define PROPERTY_CLOSE_H

#include "compare.h"
#include "problem.h"

/** Units by which two results of the library may differ, for an output with its naive errors. */
double close_units(enum test_output kind, const double *expected, const double *unit, const double *naive_error,
                   int64_t n);

/** Half a unit in the last place of x, at most. */
double close_rounding(attn_dtype dtype, double x);

/** Whether a and b differ by no more than that; otherwise says so, unless what is NULL. */
int close_enough(const char *what, int64_t at, double a, double b, double difference);

/** Compares out and lse of two results; shift is what the second lse has more. */
int close_results(const struct problem *p, const struct result *a, const struct result *b, double shift);

/** Runs both problems, compares so, by the tolerance of one of them, and frees both. */
int close_and_free(struct problem *p, struct problem *changed, const struct problem *tolerance, double shift);

/** Runs both, compares their bits, and frees both. */
int same_and_free(struct problem *p, struct problem *changed);

#endif
