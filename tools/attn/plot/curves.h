/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Curves over a common horizontal axis, one panel below the other, each with a
 * scale of its own. The axis begins at 0 if the first curve begins within a tenth
 * of its length from there, else where that curve does.
 */
#ifndef ATTN_TOOLS_PLOT_CURVES_H
#define ATTN_TOOLS_PLOT_CURVES_H

#include <stdint.h>

#include "canvas.h"

struct curve {
    const char *name;
    const double *x, *y; /* [count], x ascending, up to last; a y that is not finite is left out */
    int64_t count;
    bool marks; /* a square at each point: they are few */
};

struct curves {
    const char *title, *subtitle, *x_name;
    const struct curve *curve; /* [panels] */
    int panels;
    double last; /* x at the right end, more than 0 */
};

/* Draws; the canvas is the caller's to free, whatever the result. */
attn_status plot_curves(struct canvas *canvas, const struct curves *curves);

#endif
