/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks stand at 1, 2 or 5 times a power of ten: the numbers that people count in. On a linear scale they are evenly
 * spaced, and a value is written with as many decimals as the step has, so that the ticks of an axis look alike; very
 * small and very large ones use an exponent. On the other scales they are chosen from the top down, wherever the one
 * before is far enough; on a logarithm powers of ten come first.
 */
#include "scale.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

/* The least distance of two ticks, in units. */
static const double tick_pitch = 20;

double scale_place(const struct scale *scale, double value)
{
    double place;
    switch (scale->kind) {
    case SCALE_SQRT:
        place = sqrt(fmax(value, 0) / scale->high);
        break;
    case SCALE_LOG:
        place = value <= scale->low ? 0 : log(value / scale->low) / log(scale->high / scale->low);
        break;
    default:
        place = (value - scale->low) / (scale->high - scale->low);
    }
    return fmin(fmax(place, 0), 1);
}

static int linear_ticks(const struct scale *scale, double length, double values[SCALE_MOST_TICKS], double *step)
{
    int count = 0;
    *step = scale_step(scale->high - scale->low, (int)fmin(fmax(length / 26, 2), 10));
    for (double tick = ceil(scale->low / *step - 1e-6); tick * *step <= scale->high + *step * 1e-6; tick++) {
        if (count < SCALE_MOST_TICKS)
            values[count++] = tick * *step;
    }
    return count;
}

/* From high to low the values whose first digit is among digits, as far as each keeps its distance. */
static int curved_ticks(const struct scale *scale, double length, const char *digits, double values[SCALE_MOST_TICKS])
{
    double least = scale->kind == SCALE_LOG ? scale->low : scale->high * 1e-9, last = INFINITY;
    int count = 0;
    for (double power = pow(10, floor(log10(scale->high))); power * 10 > least; power /= 10) {
        for (const char *digit = digits; *digit != '\0'; digit++) {
            double value = power * (*digit - '0');
            double place = scale_place(scale, value) * length;
            bool inside = value <= scale->high * (1 + 1e-9) && value >= least * (1 - 1e-9);
            /* The zero of a square root comes last and must have room. */
            bool room = last - place >= tick_pitch && (scale->kind == SCALE_LOG || place >= tick_pitch);
            if (inside && room && count < SCALE_MOST_TICKS - 1) {
                values[count++] = value;
                last = place;
            }
        }
    }
    if (scale->kind == SCALE_SQRT)
        values[count++] = 0;
    for (int i = 0; i < count / 2; i++) {
        double value = values[i];
        values[i] = values[count - 1 - i];
        values[count - 1 - i] = value;
    }
    return count;
}

int scale_ticks(const struct scale *scale, double length, double values[SCALE_MOST_TICKS], double *step)
{
    if (scale->kind == SCALE_LINEAR)
        return linear_ticks(scale, length, values, step);
    *step = 0;
    if (scale->kind == SCALE_LOG) {
        int count = curved_ticks(scale, length, "1", values);
        if (count >= 3)
            return count;
    }
    return curved_ticks(scale, length, "521", values);
}

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
    if (step == 0) {
        snprintf(text, size, "%.3g", value);
        return;
    }
    int decimals = (int)-floor(log10(step) + 1e-9);
    if (fabs(value) < step / 1e6)
        snprintf(text, size, "0");
    else if (decimals > 4 || fabs(value) >= 1e6)
        snprintf(text, size, "%.3g", value);
    else
        snprintf(text, size, "%.*f", decimals > 0 ? decimals : 0, value);
}
