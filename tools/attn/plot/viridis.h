/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The viridis colour map: perceptually uniform, readable in print and for
 * colour-blind eyes.
 */
#ifndef ATTN_TOOLS_PLOT_VIRIDIS_H
#define ATTN_TOOLS_PLOT_VIRIDIS_H

#include "canvas.h"

/* The colour at t from 0 to 1; values outside are clamped. */
struct rgb viridis(double t);

/* What is no place on the map: keys that a query does not see, and values that are no number. */
extern const struct rgb colour_hidden, colour_nan;

#endif
