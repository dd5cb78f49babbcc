/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounding to 16, 8 and 4 bits by arithmetic on exponents, not by the library's bit patterns: a
 * mistake there must not hide itself here.
 */
#include "rounding.h"

#include <math.h>
#include <string.h>

/* The significand's bits with the implicit one, the exponent's bias, the bit of the sign. */
struct format {
    int precision, bias, sign;
};

static struct format format_of(attn_dtype dtype)
{
    return dtype == ATTN_BF16  ? (struct format){8, 127, 0x8000}
           : dtype == ATTN_F16 ? (struct format){11, 15, 0x8000}
                               : (struct format){4, 7, 0x80};
}

/*
 * x = n * 2^e with |n| <= 2^precision, rounded to even. Numbers of one exponent
 * are neighbours in their encoding, and so are the largest of one and the
 * smallest of the next, so a carry needs no care. x is finite and in range.
 */
static unsigned to_bits(float x, struct format f)
{
    const int least = 2 - f.bias - f.precision; /* exponent of the smallest denormal */
    int e;
    frexpf(x, &e);
    e = x != 0.0f && e - f.precision > least ? e - f.precision : least;
    const int n = (int)nearbyintf(ldexpf(fabsf(x), -e));
    return (unsigned)(((e - least) << (f.precision - 1)) + n + (signbit(x) ? f.sign : 0));
}

/* E4M3 has no infinities, and finite numbers where other types have them. */
static float from_bits(unsigned bits, struct format f)
{
    const int one = 1 << (f.precision - 1), size = (int)bits & (f.sign - 1), exponent = size / one, n = size % one;
    const int least = 2 - f.bias - f.precision;
    float x;
    if (f.sign == 0x80 && size == 0x7f)
        x = NAN;
    else if (f.sign == 0x8000 && exponent == 2 * f.bias + 1)
        x = n != 0 ? NAN : INFINITY;
    else
        x = exponent == 0 ? ldexpf((float)n, least) : ldexpf((float)(n + one), least + exponent - 1);
    return ((int)bits & f.sign) != 0 ? -x : x;
}

/* One row in 8 bits, as attn/quantise.h says; returns its scale. No row is all zeros. */
static float round_row(float *x, uint8_t *out, attn_dtype dtype, int64_t width)
{
    const struct format f = format_of(dtype);
    float top = 0.0f;
    for (int64_t c = 0; c < width; c++)
        top = fmaxf(top, fabsf(x[c]));
    const float most = dtype == ATTN_I8 ? 127.0f : 448.0f, scale = top / most, factor = most / top;
    for (int64_t c = 0; c < width; c++) {
        const float ratio = x[c] * factor;
        if (dtype == ATTN_I8) {
            const int n = (int)nearbyintf(ratio);
            out[c] = (uint8_t)n;
            x[c] = (float)n * scale;
        } else {
            out[c] = (uint8_t)to_bits(ratio, f);
            x[c] = from_bits(out[c], f) * scale;
        }
    }
    return scale;
}

/* One group in 4 bits, of which width channels exist; returns its scale. */
static float round_group(float *x, uint8_t *out, int64_t width)
{
    float low = 0.0f, high = 0.0f;
    for (int64_t c = 0; c < width; c++) {
        low = fmaxf(low, -x[c]);
        high = fmaxf(high, x[c]);
    }
    /* The wider side has the eight steps below zero. */
    const float wide = fmaxf(low, high), narrow = fminf(low, high), sign = low >= high ? 1.0f : -1.0f;
    const float scale = sign * fmaxf(wide / 8.0f, narrow / 7.0f), factor = sign * fminf(8.0f / wide, 7.0f / narrow);
    memset(out, 0, ATTN_I4_GROUP / 2);
    for (int64_t c = 0; c < width; c++) {
        const int n = (int)nearbyintf(x[c] * factor);
        out[c % (ATTN_I4_GROUP / 2)] |= (uint8_t)((unsigned)n % 16 << (c < ATTN_I4_GROUP / 2 ? 0 : 4));
        x[c] = (float)n * scale;
    }
    return scale;
}

static void round_groups(float *x, uint8_t *out, float *scales, int64_t n, int64_t width)
{
    const int64_t groups = bench_scales(ATTN_I4, width);
    for (int64_t i = 0; i < n; i++)
        for (int64_t g = 0; g < groups; g++) {
            const int64_t left = width - g * ATTN_I4_GROUP, at = i * groups + g;
            scales[at] = round_group(x + i * width + g * ATTN_I4_GROUP, out + at * (ATTN_I4_GROUP / 2),
                                     left < ATTN_I4_GROUP ? left : ATTN_I4_GROUP);
        }
}

/* The low four bits of each byte are a channel of the first half of a group, the high ones one of the second. */
static float element_of_group(const uint8_t *data, int64_t n)
{
    const int64_t half = ATTN_I4_GROUP / 2, c = n % ATTN_I4_GROUP;
    const int bits = data[n / ATTN_I4_GROUP * half + c % half] >> (c < half ? 0 : 4) & 15;
    return (float)(bits < 8 ? bits : bits - 16);
}

void bench_round_rows(float *x, void *out, attn_dtype dtype, float *scales, int64_t n, int64_t width)
{
    if (dtype == ATTN_I4) {
        round_groups(x, out, scales, n, width);
        return;
    }
    if (bench_quantised(dtype)) {
        for (int64_t i = 0; i < n; i++)
            scales[i] = round_row(x + i * width, (uint8_t *)out + i * width, dtype, width);
        return;
    }
    const struct format f = format_of(dtype);
    uint16_t *h = out;
    for (int64_t i = 0; i < n * width; i++) {
        h[i] = (uint16_t)to_bits(x[i], f);
        x[i] = from_bits(h[i], f);
    }
}

float bench_element(const void *data, attn_dtype dtype, int64_t n)
{
    switch (dtype) {
    case ATTN_F32:
        return ((const float *)data)[n];
    case ATTN_I8:
        return (float)((const int8_t *)data)[n];
    case ATTN_I4:
        return element_of_group(data, n);
    case ATTN_F8_E4M3:
        return from_bits(((const uint8_t *)data)[n], format_of(dtype));
    default:
        return from_bits(((const uint16_t *)data)[n], format_of(dtype));
    }
}
