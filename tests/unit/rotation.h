/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rotation is, for the tests of it: which channels make a pair, and the
 * definition in double.
 */
#ifndef UNIT_ROTATION_H
#define UNIT_ROTATION_H

#include "dtype.h"

#include <math.h>

/** Channel of the first (part 0) or second number of a pair. */
static inline int64_t channel_of(attn_rope_layout layout, int64_t pairs, int64_t pair, int part)
{
    return layout == ATTN_ROPE_INTERLEAVED ? 2 * pair + part : pair + part * pairs;
}

/** Whether two numbers are the rotation of a pair, but for three roundings and that to the type. */
static inline int is_rotated(attn_dtype type, const float got[2], const float x[2], float cosine, float sine)
{
    const double a = (double)x[0], b = (double)x[1], c = (double)cosine, s = (double)sine;
    const double slack = 0x1.1p-23 * (fabs(a) + fabs(b)) * fmax(fabs(c), fabs(s)) + 0x1p-148;
    return dtype_distance(type, got[0], a * c - b * s) <= slack && dtype_distance(type, got[1], b * c + a * s) <= slack;
}

#endif
