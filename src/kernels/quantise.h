/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows rounded to 8 bits, each with a scale of its own.
 *
 *     top = max |x|;  scale = top / most;  out = x * (most / top), rounded to nearest even
 *
 * A row is read twice, from L1 the second time. Every step is one operation in
 * f32, so all sets make the same numbers.
 *
 * To int8: x + 1.5 * 2^23 has the integer in its low bits, rounded by the sum. To
 * E4M3: above 2^-6, where its numbers are normal, bits of the float are cut off
 * with a rounding in integers, and a carry runs into the exponent as it should;
 * below, the sum with 2^14 has units of 2^-9, those of a denormal.
 */
#ifndef ATTN_QUANTISE_ROWS_H
#define ATTN_QUANTISE_ROWS_H

#include "kernels/rows.h"

#include <math.h>

/** The largest number of a type. */
ATTN_INLINE float quantised_most(const attn_dtype dtype)
{
    return dtype == ATTN_I8 ? 127.0f : 448.0f;
}

/** n elements of a row from element c on, the rest 0. */
ATTN_INLINE vf row_part(const attn_dtype from, const char *row, int64_t c, int64_t n)
{
    const char *const at = row + c * attn_element_size(from);
    return n >= VF_LEN ? row_load(from, at) : row_load_tail(from, at, (int)n);
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
    float tops[VF_LEN], checks[VF_LEN], largest = 0.0f;
    vf_store(tops, top);
    vf_store(checks, check);
    for (int i = 0; i < VF_LEN; i++) {
        if (checks[i] != 0.0f)
            return NAN;
        largest = tops[i] > largest ? tops[i] : largest;
    }
    return largest;
}

/** Codes of numbers up to the type's largest, in the low bytes of lanes. */
ATTN_INLINE vu codes_of(const attn_dtype to, vf x)
{
    if (to == ATTN_I8)
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
        memset(dst, 0, (size_t)width);
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

ATTN_INLINE void quantise_body(const attn_dtype from, const attn_dtype to, const struct attn_quantisation *x)
{
    for (int64_t i = 0; i < x->num_rows; i++)
        x->scale[i * x->scale_stride] =
            quantise_row(from, to, (uint8_t *)row_at(&x->out, i), row_at(&x->x, i), x->width);
}

ATTN_INLINE void quantise_from(const attn_dtype from, const struct attn_quantisation *x)
{
    if (x->out.dtype == ATTN_I8)
        quantise_body(from, ATTN_I8, x);
    else
        quantise_body(from, ATTN_F8_E4M3, x);
}

/** struct attn_vector_kernels, quantise. */
static void quantise_rows(const struct attn_quantisation *x)
{
    ATTN_BY_DTYPE(x->x.dtype, quantise_from, x);
}

#endif
