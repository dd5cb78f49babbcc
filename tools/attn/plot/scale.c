/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks at 1, 2 or 5 times a power of ten: the numbers that people count in.
 * A value is written with as many decimals as its step has, so that the ticks
 * of an axis look alike; very small and very large ones use an exponent.
 */
#include "scale.h"

#include <math.h>
#include <stdio.h>

double scale_step(double range, int max_ticks)
{
    double least = range / (max_ticks > 0 ? max_ticks : 1);
    double power = pow(10, floor(log10(least)));
    /* The small slack keeps 0.1 / 0.1 from becoming the next step through rounding. */
    double digits = least / power * (1 - 1e-9);
    return (digits <= 1 ? 1 : digits <= 2 ? 2 : digits <= 5 ? 5 : 10) * power;
}

int64_t scale_index_step(int64_t count, int max_ticks)
{
    double step = count > 0 ? scale_step((double)count, max_ticks) : 1;
    return step < 1 ? 1 : llrint(step);
}

void scale_number(char *text, size_t size, double value, double step)
{
    int decimals = (int)-floor(log10(step) + 1e-9);
    if (fabs(value) < step / 1e6)
        snprintf(text, size, "0");
    else if (decimals > 4 || fabs(value) >= 1e6)
        snprintf(text, size, "%.3g", value);
    else
        snprintf(text, size, "%.*f", decimals > 0 ? decimals : 0, value);
}
