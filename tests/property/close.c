/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comparison of two results that rounding tells apart.
 */
#include "close.h"

#include <math.h>
#include <stdio.h>

double close_units(enum test_output kind, const double *expected, const double *unit, const double *naive_error,
                   int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(expected[i]) && unit[i] > 0)
            worst = fmax(worst, naive_error[i] / unit[i]);
    return TOLERANCE_PAIR * (TOLERANCE_FACTOR * worst + tolerance_floor(kind, 0));
}

double close_rounding(attn_dtype dtype, double x)
{
    return dtype == ATTN_F32 ? 0 : dtype == ATTN_BF16 ? fabs(x) * 0x1p-8 : fabs(x) * 0x1p-11 + 0x1p-25;
}

int close_enough(const char *what, int64_t at, double a, double b, double difference)
{
    if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= difference)
        return 1;
    if (what)
        printf("  %s[%d]: %.9g and %.9g differ by more than %.3g\n", what, (int)at, a, b, difference);
    return 0;
}

/** Compares by a reference; NULL: nothing but the rounding of out may differ. Says so of a difference if says is set.
 */
static int close_by(const struct reference *ref, const struct result *a, const struct result *b, double shift, int says)
{
    const int64_t rows = a->batch * a->heads * a->tq;
    const double out_units =
        ref ? close_units(TEST_OUT, ref->out, ref->out_unit, ref->naive_out_error, rows * a->dv) : 0;
    const double lse_units = ref ? close_units(TEST_LSE, ref->lse, ref->lse_unit, ref->naive_lse_error, rows) : 0;
    /* The shift makes the terms of each score larger, and so the size of a rounding. */
    const double rounding = 2 * fabs(shift) * 0x1p-24;
    int close = 1;
    for (int64_t i = 0; i < rows * a->dv && close; i++) {
        const double x = (double)result_out(a, i), y = (double)result_out(b, i);
        const double computed =
            ref ? out_units * (ref->out_unit[i] + 10 * rounding) + TOLERANCE_PAIR * ref->out_slack[i] : 0;
        close = close_enough(says ? "out" : NULL, i, x, y,
                             computed + close_rounding(a->dtype, x) + close_rounding(b->dtype, y));
    }
    for (int64_t i = 0; i < rows && close; i++)
        close = close_enough(says ? "lse" : NULL, i, (double)a->lse[i] + shift, (double)b->lse[i],
                             ref ? lse_units * (ref->lse_unit[i] + rounding) + TOLERANCE_PAIR * ref->lse_slack[i] : 0);
    return close;
}

/* Each of the first two permits less than what follows it, and takes less time. */
int close_results(const struct problem *p, const struct result *a, const struct result *b, double shift)
{
    if (close_by(NULL, a, b, shift, 0))
        return 1;
    struct reference ref = reference_compute_alone(&p->q, &p->k, &p->v, &p->params);
    int close = close_by(&ref, a, b, shift, 0);
    reference_free(&ref);
    if (close)
        return 1;
    ref = reference_compute(&p->q, &p->k, &p->v, &p->params, NAIVE_F32);
    close = close_by(&ref, a, b, shift, 1);
    reference_free(&ref);
    return close;
}

int close_and_free(struct problem *p, struct problem *changed, const struct problem *tolerance, double shift)
{
    struct result a = problem_run(p), b = problem_run(changed);
    const int holds = close_results(tolerance, &a, &b, shift);
    result_free(&a);
    result_free(&b);
    problem_free(changed);
    problem_free(p);
    return holds;
}

int same_and_free(struct problem *p, struct problem *changed)
{
    struct result a = problem_run(p), b = problem_run(changed);
    const int holds = results_equal(&a, &b);
    result_free(&a);
    result_free(&b);
    problem_free(changed);
    problem_free(p);
    return holds;
}
