/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roundings to f32, bf16 and f16, from their definition. A type is a number of significand bits, the implicit one
 * included, and the exponent range of its normal numbers; all else follows from these three. A number x = m 2^e with m
 * in [1/2, 1) is normal from e = lowest + 1 on, and its last place is then 2^(e - bits); below, the last place stays
 * that of the smallest normal number.
 */
#include "dtype.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

struct format {
    int bits, lowest, highest; /**< normal numbers are 2^lowest up to less than 2^(highest + 1) */
};

static struct format format_of(attn_dtype dtype)
{
    return dtype == ATTN_BF16 ? (struct format){8, -126, 127} : (struct format){11, -14, 15};
}

/** Bits of the exponent field, and where it begins. */
static int exponent_shift(attn_dtype dtype)
{
    return format_of(dtype).bits - 1;
}

static float from_bits(attn_dtype dtype, uint16_t bits)
{
    const struct format f = format_of(dtype);
    const int shift = exponent_shift(dtype);
    const int field = (bits & 0x7fff) >> shift, fraction = bits & ((1 << shift) - 1);
    const int top = f.highest - f.lowest + 2;
    double size;
    if (field == top)
        size = fraction ? (double)NAN : (double)INFINITY;
    else if (field == 0)
        size = ldexp(fraction, f.lowest - shift);
    else
        size = ldexp(fraction + (1 << shift), f.lowest + field - 1 - shift);
    return (float)(bits & 0x8000 ? -size : size);
}

struct dtype_widened dtype_widened;

static void make_widened(void)
{
    for (int i = 0; i < 65536; i++) {
        dtype_widened.bf16[i] = from_bits(ATTN_BF16, (uint16_t)i);
        dtype_widened.f16[i] = from_bits(ATTN_F16, (uint16_t)i);
    }
    __atomic_store_n(&dtype_widened.made, 1, __ATOMIC_RELEASE);
}

void dtype_make_widened(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* tests with threads of their own look at results, too */
    pthread_once(&once, make_widened);
}

/** 2^e, of a normal double. */
static double power_of_two(int e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/** The exponent that frexp() gives, of a normal double; far below those of any type for 0 and denormal ones. */
static int exponent_of(double size)
{
    uint64_t bits;
    memcpy(&bits, &size, sizeof bits);
    return (int)(bits >> 52) - 1022;
}

/* Most of the tests' numbers pass through here, on emulated processors too: no calls of libm. */
uint16_t dtype_narrow(attn_dtype dtype, double x)
{
    const struct format f = format_of(dtype);
    const int shift = exponent_shift(dtype), top = f.highest - f.lowest + 2;
    const int sign = signbit(x) ? 0x8000 : 0;
    const double size = fabs(x);
    int exponent = exponent_of(size);
    if (isnan(x))
        return (uint16_t)(sign | top << shift | 1 << (shift - 1));
    if (exponent - 1 < f.lowest)
        exponent = f.lowest + 1;
    if (isinf(size) || exponent - 1 > f.highest)
        return (uint16_t)(sign | top << shift);
    /* An exact quotient below 2^(shift + 1), or just that, rounded to even by a sum whose last place is 1; a carry runs
     * into the exponent field, and there to Inf. */
    const double one = 0x1p52, quotient = size * power_of_two(shift - (exponent - 1));
    const int units = (int)(quotient + one - one);
    return (uint16_t)(sign | (units + ((exponent - 1 - f.lowest) << shift)));
}

float dtype_of_f8(uint8_t bits)
{
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    double size = exponent ? ldexp(1.0 + fraction / 8.0, exponent - 7) : ldexp(fraction / 8.0, -6);
    if (exponent == 15 && fraction == 7)
        size = (double)NAN;
    return (float)(bits & 0x80 ? -size : size);
}

/** By looking at all of them: of two that are equally near, that with an even last bit. */
uint8_t dtype_to_f8(float x)
{
    uint8_t best = 0;
    for (uint8_t i = 0; i < 0x7f; i++) {
        const double now = fabs((double)dtype_of_f8(i) - fabs((double)x));
        const double before = fabs((double)dtype_of_f8(best) - fabs((double)x));
        if (now < before || (now == before && i % 2 == 0))
            best = i;
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

float dtype_of_i4(uint8_t bits, int upper)
{
    const int number = upper ? bits / 16 : bits % 16;
    return (float)(number < 8 ? number : number - 16);
}

float dtype_i4_at(const void *row, int64_t c)
{
    const int64_t group = c / 32, within = c % 32;
    return dtype_of_i4(((const uint8_t *)row)[group * 16 + within % 16], within >= 16);
}

float dtype_round(attn_dtype dtype, float x)
{
    return dtype == ATTN_F32 ? x : dtype_widen(dtype, dtype_narrow(dtype, (double)x));
}

void dtype_store(attn_dtype dtype, void *data, int64_t at, float x)
{
    if (dtype == ATTN_F32)
        ((float *)data)[at] = x;
    else
        ((uint16_t *)data)[at] = dtype_narrow(dtype, (double)x);
}

float dtype_max(attn_dtype dtype)
{
    return dtype == ATTN_F32 ? FLT_MAX : dtype == ATTN_BF16 ? 0x1.fep127f : 65504.0f;
}

float dtype_min_normal(attn_dtype dtype)
{
    return dtype == ATTN_F16 ? 0x1p-14f : FLT_MIN;
}

/** The number halfway between the sizes of two neighbours, of which the upper may be Inf: 2^(highest + 1) then. */
static double halfway(attn_dtype dtype, int lower)
{
    const double low = (double)dtype_widen(dtype, (uint16_t)lower);
    const double high = (double)dtype_widen(dtype, (uint16_t)(lower + 1));
    return (low + (isinf(high) ? ldexp(1, format_of(dtype).highest + 1) : high)) / 2;
}

double dtype_distance(attn_dtype dtype, float got, double exact)
{
    if (dtype == ATTN_F32)
        return fabs((double)got - exact);
    const int bits = dtype_narrow(dtype, (double)got) & 0x7fff;
    const double mirrored = signbit(got) ? -exact : exact; /* so that got counts as positive */
    const double high = isinf(got) ? (double)INFINITY : halfway(dtype, bits);
    const double low = bits ? halfway(dtype, bits - 1) : -high;
    return mirrored < low ? low - mirrored : mirrored > high ? mirrored - high : 0;
}

void tensor_set(const attn_tensor *t, int64_t b, int64_t h, int64_t token, int64_t c, float x)
{
    dtype_store(t->dtype, t->data, tensor_offset(t, b, h, token, c), x);
}
