/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the ticks of an axis go and how their numbers are written.
 */
#ifndef ATTN_TOOLS_PLOT_SCALE_H
#define ATTN_TOOLS_PLOT_SCALE_H

#include <stddef.h>
#include <stdint.h>

/* The smallest of 1, 2, 5 times a power of ten with which range has at most max_ticks steps. */
double scale_step(double range, int max_ticks);
/* The same for whole numbers, at least 1. */
int64_t scale_index_step(int64_t count, int max_ticks);
/* Writes value with the decimals that step needs. */
void scale_number(char *text, size_t size, double value, double step);

#endif
