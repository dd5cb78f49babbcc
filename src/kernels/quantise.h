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
 * A row is read twice, from L1 the second time. Every step of the arithmetic is one
 * operation in f32, so all sets make the same numbers.
 *
 * Sizes are ordered as their bits are, as unsigned integers, with Inf and NaN above all
 * numbers: the largest size of f16 and bf16 is found without widening them. A row ends
 * with a vector that begins before the last one ended, which does the same work twice.
 *
 * To E4M3, whose unit is 2^(e - 3) between 2^e and 2^(e + 1), and 2^-9 below 2^-6: of
 * a size and 2^(e + 20) the sum has that unit, and the rounded significand in its low
 * bits; 8 for each exponent are added to these.
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
ATTN_INLINE float largest_of_floats(const char *row, int64_t width)
{
    const vu size = vu_set1(0x7fffffff);
    if (width < VF_LEN) {
        const vf some = vf_load_tail((const float *)row, (int)width);
        const vf check = vf_mul(some, vf_zero());
        return is_nan_free(check) ? vf_max_across(vf_abs(some)) : NAN;
    }
    const char *const last = row + (width - VF_LEN) * 4;
    vu top = vu_and(vu_load(last), size), other = top;
    for (; row + VF_LEN * 4 < last; row += VF_LEN * 8) {
        top = vu_max(top, vu_and(vu_load(row), size));
        other = vu_max(other, vu_and(vu_load(row + VF_LEN * 4), size));
    }
    if (row < last)
        top = vu_max(top, vu_and(vu_load(row), size));
    top = vu_max(top, other);
    const vu infinite = vu_at_least(top, vu_set1(half_to_bits(INFINITY))); /* as floats: NaN, or 0 */
    return is_nan_free(vf_of_bits(infinite)) ? vf_max_across(vf_of_bits(top)) : NAN;
}

/** The same of 16 bits. */
ATTN_INLINE float largest_of_halves(const attn_dtype from, const char *row, int64_t width)
{
    enum { HALVES = 2 * VF_LEN };
    const vu size = vu_set1(0x7fff7fff);
    uint16_t few[HALVES] = {0};
    if (width < HALVES) {
        memcpy(few, row, (size_t)width * 2);
        row = (const char *)few;
        width = HALVES;
    }
    const char *const last = row + (width - HALVES) * 2;
    vu top = vu_and(vu_load(last), size);
    for (; row < last; row += HALVES * 2)
        top = vu_max_halves(top, vu_and(vu_load(row), size));
    const vu words = vu_max(vu_and(top, vu_set1(0xffff)), vu_shift_right(top, 16));
    const uint16_t largest = (uint16_t)vf_max_across(vf_of_ints(words));
    if (largest >= (from == ATTN_BF16 ? 0x7f80 : 0x7c00)) /* Inf or NaN */
        return NAN;
    return from == ATTN_BF16 ? bf16_to_f32(largest) : f16_to_f32(largest);
}

ATTN_INLINE float largest_size(const attn_dtype from, const char *row, int64_t width)
{
    return from == ATTN_F32 ? largest_of_floats(row, width) : largest_of_halves(from, row, width);
}

/** Codes of numbers up to the type's largest, as signed integers. */
ATTN_INLINE vu codes_of(const attn_dtype to, vf x)
{
    if (to != ATTN_F8_E4M3)
        return vu_rounded(x);
    const vu bits = vu_bits_of(x);
    const vu power = vu_max(vu_and(bits, vu_set1(0x7f800000)), vu_set1(half_to_bits(0x1p-6f)));
    /* 56 units more, an even number, and the power's exponent, 127 above its own, are the code in the lowest 7 bits. */
    const vu sum = vu_bits_of(vf_fma(vf_of_bits(power), vf_set1(0x1.00007p20f), vf_abs(x)));
    const vu code = vu_add(sum, vu_shift_right(power, 20));
    return vu_choose(vu_set1(0xffffff80u), vu_shift_right_signed(bits, 24), code);
}

/** Codes of 4 * VF_LEN elements, times a factor. */
ATTN_INLINE vu bytes_of(const attn_dtype from, const attn_dtype to, const char *row, vf factor)
{
    vf x[4];
    if (from == ATTN_BF16) {
        vf_load_pair_bf16((const uint16_t *)(const void *)row, &x[0], &x[1]);
        vf_load_pair_bf16((const uint16_t *)(const void *)row + 2 * VF_LEN, &x[2], &x[3]);
    } else {
        ATTN_UNROLL
        for (int u = 0; u < 4; u++)
            x[u] = row_load(from, row + u * VF_LEN * attn_element_size(from));
    }
    vu codes[4];
    ATTN_UNROLL
    for (int u = 0; u < 4; u++)
        codes[u] = codes_of(to, vf_mul(x[u], factor));
    return from == ATTN_BF16 ? vu_bytes_of_pairs(codes[0], codes[1], codes[2], codes[3])
                             : vu_bytes_of4(codes[0], codes[1], codes[2], codes[3]);
}

/** A row times its factor, the inverse of its scale; zeros if that is not finite. */
ATTN_INLINE void quantise_row(const attn_dtype from, const attn_dtype to, uint8_t *dst, const char *row, int64_t width,
                              float inverse, int streams)
{
    const vf factor = vf_set1(inverse);
    const ptrdiff_t size = attn_element_size(from);
    if (!isfinite(inverse)) {
        memset(dst, 0, width > 0 ? (size_t)width : 0);
        return;
    }
    if (width < VF_LEN) {
        uint8_t few[VF_LEN];
        vu_store_bytes(few, codes_of(to, vf_mul(row_load_tail(from, row, (int)width), factor)));
        memcpy(dst, few, (size_t)width);
        return;
    }
    int64_t c = 0;
    for (; c + 4 * VF_LEN <= width; c += 4 * VF_LEN) {
        const vu bytes = bytes_of(from, to, row + c * size, factor);
        if (streams)
            vu_stream(dst + c, bytes);
        else
            vu_store(dst + c, bytes);
    }
    for (; c < width; c += VF_LEN) {
        const int64_t at = c + VF_LEN <= width ? c : width - VF_LEN;
        vu_store_bytes(dst + at, codes_of(to, vf_mul(row_load(from, row + at * size), factor)));
    }
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

/* Rows whose scales are found before any of them is rounded: what a row's scale waits for is long, and short in work.
 */
#define QUANTISE_TOGETHER 16

ATTN_INLINE void quantise_body(const attn_dtype from, const attn_dtype to, const struct attn_quantisation *x)
{
    const float most = quantised_most(to);
    for (int64_t first = 0; first < x->num_rows; first += QUANTISE_TOGETHER) {
        float inverse[QUANTISE_TOGETHER];
        const int64_t rest = x->num_rows - first, n = rest < QUANTISE_TOGETHER ? rest : QUANTISE_TOGETHER;
        for (int64_t i = 0; i < n; i++) {
            const float top = largest_size(from, row_at(&x->x, first + i), x->width);
            /* Not finite where there is nothing but zeros, or what is as good as zeros, or a NaN. */
            inverse[i] = most / top;
            x->scale[(first + i) * x->scale_stride] = isfinite(inverse[i]) ? top / most : isnan(top) ? NAN : 0.0f;
        }
        for (int64_t i = 0; i < n; i++)
            quantise_row(from, to, (uint8_t *)row_at(&x->out, first + i), row_at(&x->x, first + i), x->width,
                         inverse[i], x->streams);
    }
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
