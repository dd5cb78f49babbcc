/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slopes of ALiBi. Exponents are computed in double and rounded once; for
 * 1, 2, 4 or 8 heads they are integers and the slopes exact.
 */
#include "attn/patterns.h"

#include "api/error.h"

#include <inttypes.h>
#include <math.h>

/** Slope number i, from 0, of a power of two heads. */
static float slope(int64_t i, int64_t heads)
{
    return (float)exp2(-8.0 * (double)(i + 1) / (double)heads);
}

attn_status attn_alibi_slopes(float *slopes, int64_t heads)
{
    if (heads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "heads is %" PRId64 "; expected 0 or more", heads);
    if (!slopes && heads > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "slopes is NULL; expected room for %" PRId64 " slopes", heads);
    int64_t power = 1;
    while (power <= heads / 2)
        power *= 2;
    for (int64_t i = 0; i < heads; i++)
        slopes[i] = i < power ? slope(i, power) : slope(2 * (i - power), 2 * power);
    return ATTN_OK;
}
