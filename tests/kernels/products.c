/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products as instructions have them: fused or not, of pairs of bf16 on x86,
 * which flush denormals, and on AArch64, which round to odd in between.
 */
#include "products.h"
#include "dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

float fma_of(const struct kernel_set *set, float a, float b, float c)
{
    return set->two_roundings ? a * b + c : fmaf(a, b, c);
}

float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

/*
 * a * b + c as VDPBF16PS has it: one rounding to nearest even, denormals of all
 * three and of the result being 0. Whether the result is denormal is asked
 * after rounding to 24 bits, as everywhere on x86: near there both sides are
 * moved up, where the rounding is to 24 bits.
 */
float fused_flushing(float a, float b, float c)
{
    a = flushed(a);
    b = flushed(b);
    c = flushed(c);
    const float result = fmaf(a, b, c);
    if (!(fabsf(result) < 0x1p-100f && fabsf(c) < 0x1p-60f)) /* a larger c leaves 0, or nothing as small as that */
        return result;
    const float larger = fabsf(a) > fabsf(b) ? a : b, smaller = fabsf(a) > fabsf(b) ? b : a;
    const float moved = fmaf(larger, smaller * 0x1p64f, c * 0x1p64f);
    return fabsf(moved) < FLT_MIN * 0x1p64f ? copysignf(0.0f, moved) : moved * 0x1p-64f;
}

/** x rounded to 24 bits as AArch64's BFDOT does: cut off, the last bit set if that loses something; denormals are 0. */
static float round_to_odd(double x)
{
    if (isnan(x) || isinf(x))
        return (float)x;
    if (fabs(x) < (double)FLT_MIN)
        return copysignf(0.0f, (float)x);
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (bits & 0x1fffffffu)
        bits |= 0x20000000u;
    bits &= ~(uint64_t)0x1fffffffu;
    memcpy(&x, &bits, sizeof bits);
    return (float)x; /* exact, or beyond the largest float */
}

/** a + b with that rounding, denormals being 0. */
static float add_to_odd(float a, float b)
{
    const double x = (double)flushed(a), y = (double)flushed(b), sum = x + y;
    if (!isfinite(sum))
        return (float)sum;
    const double back = sum - x, lost = (x - (sum - back)) + (y - back);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    const int even = (bits & 1) == 0;
    return round_to_odd(lost != 0 && even ? nextafter(sum, lost > 0 ? INFINITY : -INFINITY) : sum);
}

/** A word of two bf16 times another, added to c. */
static float dot_pairs(const struct kernel_set *set, uint32_t a, uint32_t b, float c)
{
    const float a0 = dtype_widen(ATTN_BF16, (uint16_t)a), a1 = dtype_widen(ATTN_BF16, (uint16_t)(a >> 16));
    const float b0 = dtype_widen(ATTN_BF16, (uint16_t)b), b1 = dtype_widen(ATTN_BF16, (uint16_t)(b >> 16));
    if (!set->round_to_odd)
        return fused_flushing(a0, b0, fused_flushing(a1, b1, c));
    const float first = round_to_odd((double)flushed(a0) * (double)flushed(b0));
    const float second = round_to_odd((double)flushed(a1) * (double)flushed(b1));
    return add_to_odd(c, add_to_odd(first, second));
}

float dot_of(const struct kernel_set *set, int pack, const void *a, const void *b, float c)
{
    if (pack == 1) {
        float x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        return fma_of(set, x, y, c);
    }
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return dot_pairs(set, x, y, c);
}
