/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How values become places on a scale, and which values are written beside it.
 */
#ifndef ATTN_TOOLS_PLOT_SCALE_H
#define ATTN_TOOLS_PLOT_SCALE_H

#include <stddef.h>
#include <stdint.h>

enum scale_kind { SCALE_LINEAR, SCALE_SQRT, SCALE_LOG };

struct scale {
    enum scale_kind kind;
    double low, high; /* low < high; of SCALE_SQRT low is 0, of SCALE_LOG above 0 */
};

/* From 0 at low to 1 at high; what lies outside is at the ends. value is not NaN. */
double scale_place(const struct scale *scale, double value);

/*
 * Writes the round values that are marked on a scale of so many units, lowest
 * first, and returns how many. *step is what scale_number() needs to write them.
 */
enum { SCALE_MOST_TICKS = 24 };
int scale_ticks(const struct scale *scale, double length, double values[SCALE_MOST_TICKS], double *step);

/* The smallest of 1, 2, 5 times a power of ten with which range has at most max_ticks steps. */
double scale_step(double range, int max_ticks);
/* The same for whole numbers, at least 1. */
int64_t scale_index_step(int64_t count, int max_ticks);
/* Writes value with the decimals that step needs; step 0: with the digits that it has itself. */
void scale_number(char *text, size_t size, double value, double step);

#endif
