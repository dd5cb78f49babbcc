/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows rounded to 8 bits, each with a scale of its own, or to 4 bits, with a
 * scale for each group.
 *
 *     top = max |x|;  scale = top / most;  out = x * (most / top), rounded to nearest even
 *
 * To 4 bits, -8 to 7, the side with the larger size goes to -8 unless the other one
 * then passes 7: the smallest step of which neither end is cut off. A group that
 * is larger above than below 0 has a negative scale.
 *
 * A row is read twice, from L1 the second time. Every step is one operation in
 * f32, so all sets make the same numbers.
 *
 * To integers: x + 1.5 * 2^23 has one in its low bits, rounded by the sum. To
 * E4M3: above 2^-6, where its numbers are normal, bits of the float are cut off
 * with a rounding in integers, and a carry runs into the exponent as it should;
 * below, the sum with 2^14 has units of 2^-9, those of a denormal.
 */
#ifndef ATTN_QUANTISE_ROWS_H
#define ATTN_QUANTISE_ROWS_H

#include "kernels/rows.h"

#include <float.h>
#include <math.h>

/** The largest number of a type. */
ATTN_INLINE float quantised_most(const attn_dtype dtype)
{
    return dtype == ATTN_I8 ? 127.0f : 448.0f;
}

/** n elements of a row from element c on, the rest 0; n may be below 0. */
ATTN_INLINE vf row_part(const attn_dtype from, const char *row, int64_t c, int64_t n)
{
    if (n <= 0)
        return vf_zero();
    const char *const at = row + c * attn_element_size(from);
    return n >= VF_LEN ? row_load(from, at) : row_load_tail(from, at, (int)n);
}

/** Whether no lane is NaN. */
ATTN_INLINE int is_nan_free(vf a)
{
    return !vm_any(vf_gt(vf_select(vf_eq(a, a), vf_zero(), vf_set1(1.0f)), vf_zero()));
}

/** The largest size in a row; NaN if one is not finite. */
ATTN_INLINE float largest_size(const attn_dtype from, const char *row, int64_t width)
{
    vf top = vf_zero(), check = vf_zero();
    for (int64_t c = 0; c < width; c += VF_LEN) {
        const vf x = row_part(from, row, c, width - c);
        check = vf_fma(x, vf_zero(), check); /* NaN for Inf and NaN */
        top = vf_max(vf_abs(x), top);
    }
    return is_nan_free(check) ? vf_max_across(top) : NAN;
}

/** Codes of numbers up to the type's largest, in the low bytes of lanes. */
ATTN_INLINE vu codes_of(const attn_dtype to, vf x)
{
    if (to != ATTN_F8_E4M3)
        return vu_bits_of(vf_add(x, vf_set1(0x1.8p23f)));
    const vf size = vf_abs(x);
    const vu bits = vu_bits_of(size), least = vu_set1(half_to_bits(0x1p-6f));
    const vu odd = vu_and(vu_shift_right(bits, 20), vu_set1(1));
    const vu rounded = vu_shift_right(vu_add(bits, vu_add(odd, vu_set1(0x7ffff))), 20);
    const vu normal = vu_add(rounded, vu_set1((uint32_t) - (120 << 3))); /* the exponent's bias: 7 instead of 127 */
    const vu small = vu_add(vu_bits_of(vf_add(size, vf_set1(0x1p14f))), vu_set1((uint32_t)-half_to_bits(0x1p14f)));
    const vu code = vu_xor(small, vu_and(vu_at_least(bits, least), vu_xor(normal, small)));
    return vu_or(code, vu_and(vu_shift_right(vu_bits_of(x), 24), vu_set1(0x80)));
}

/** One row; returns its scale. */
ATTN_INLINE float quantise_row(const attn_dtype from, const attn_dtype to, uint8_t *dst, const char *row, int64_t width)
{
    const float top = largest_size(from, row, width), most = quantised_most(to), inverse = most / top;
    if (!isfinite(inverse)) { /* nothing but zeros, or so small that they are as good as zeros; or a NaN */
        memset(dst, 0, width > 0 ? (size_t)width : 0);
        return isnan(top) ? NAN : 0.0f;
    }
    const vf factor = vf_set1(inverse);
    int64_t c = 0;
    for (; c + VF_LEN <= width; c += VF_LEN)
        vu_store_bytes(dst + c, codes_of(to, vf_mul(row_part(from, row, c, VF_LEN), factor)));
    if (c < width) {
        uint8_t rest[VF_LEN];
        vu_store_bytes(rest, codes_of(to, vf_mul(row_part(from, row, c, width - c), factor)));
        memcpy(dst + c, rest, (size_t)(width - c));
    }
    return top / most;
}

/** How far a group goes below and above 0; one of them is NaN if a number is not finite. c: its first channel. */
ATTN_INLINE void group_ends(const attn_dtype from, const char *row, int64_t c, int64_t width, float *low, float *high)
{
    vf below = vf_zero(), above = vf_zero(), check = vf_zero();
    for (int u = 0; u < ATTN_I4_GROUP; u += VF_LEN) {
        const vf x = row_part(from, row, c + u, width - c - u);
        check = vf_fma(x, vf_zero(), check); /* NaN for Inf and NaN */
        below = vf_max(vf_sub(vf_zero(), x), below);
        above = vf_max(x, above);
    }
    *low = is_nan_free(check) ? vf_max_across(below) : NAN;
    *high = vf_max_across(above);
}

/** A group from channel c on to 16 bytes; returns its scale. */
ATTN_INLINE float quantise_group(const attn_dtype from, uint8_t *dst, const char *row, int64_t c, int64_t width)
{
    const int half = ATTN_I4_GROUP / 2;
    float low, high;
    group_ends(from, row, c, width, &low, &high);
    const int turned = high > low;
    const float most = turned ? high : low, other = turned ? low : high;
    const float step = most / 8.0f > other / 7.0f ? most / 8.0f : other / 7.0f;
    const float inverse = 8.0f / most < 7.0f / other ? 8.0f / most : 7.0f / other;
    if (isnan(low) || step < FLT_MIN) { /* in the second case as good as zeros */
        memset(dst, 0, (size_t)half);
        return isnan(low) ? NAN : 0.0f;
    }
    const vf factor = vf_set1(turned ? -inverse : inverse);
    for (int u = 0; u < half; u += VF_LEN) {
        const vf near = row_part(from, row, c + u, width - c - u),
                 far = row_part(from, row, c + u + half, width - c - u - half);
        const vu first = codes_of(ATTN_I4, vf_mul(near, factor)), second = codes_of(ATTN_I4, vf_mul(far, factor));
        vu_store_bytes(dst + u, vu_or(vu_and(first, vu_set1(15)), vu_shift_left(second, 4)));
    }
    return turned ? -step : step;
}

ATTN_INLINE void quantise_body(const attn_dtype from, const attn_dtype to, const struct attn_quantisation *x)
{
    for (int64_t i = 0; i < x->num_rows; i++)
        x->scale[i * x->scale_stride] =
            quantise_row(from, to, (uint8_t *)row_at(&x->out, i), row_at(&x->x, i), x->width);
}

ATTN_INLINE void quantise_groups(const attn_dtype from, const struct attn_quantisation *x)
{
    for (int64_t i = 0; i < x->num_rows; i++) {
        uint8_t *dst = (uint8_t *)row_at(&x->out, i);
        float *scale = x->scale + i * x->scale_stride;
        for (int64_t c = 0; c < x->width; c += ATTN_I4_GROUP, dst += ATTN_I4_GROUP / 2)
            *scale++ = quantise_group(from, dst, row_at(&x->x, i), c, x->width);
    }
}

ATTN_INLINE void quantise_from(const attn_dtype from, const struct attn_quantisation *x)
{
    if (x->out.dtype == ATTN_I8)
        quantise_body(from, ATTN_I8, x);
    else if (x->out.dtype == ATTN_I4)
        quantise_groups(from, x);
    else
        quantise_body(from, ATTN_F8_E4M3, x);
}

/** struct attn_vector_kernels, quantise. */
static void quantise_rows(const struct attn_quantisation *x)
{
    ATTN_BY_DTYPE(x->x.dtype, quantise_from, x);
}

#endif
