/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single narrow floats in portable C. To f32 both conversions are exact; from
 * f32 they round to nearest, ties to even, and a NaN stays a NaN, made quiet.
 *
 *   bf16: sign 1, exponent 8, significand 7: the upper half of an f32
 *   f16:  sign 1, exponent 5, significand 10 (IEEE 754 binary16)
 *   f8:   sign 1, exponent 4, significand 3, no infinities (OCP's E4M3); only to f32
 */
#ifndef ATTN_HALF_H
#define ATTN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t half_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bf16_to_f32(uint16_t h)
{
    return half_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float x)
{
    const uint32_t bits = half_to_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) /* Inf, or a NaN made quiet */
        return half_from_bits(sign | 0x7f800000u | magnitude << 13 | (magnitude > 0x7c00u ? 0x400000u : 0));
    if (magnitude >= 0x400u)
        return half_from_bits(sign | ((magnitude << 13) + (112u << 23)));
    const float denormal = (float)magnitude * 0x1p-24f;
    return sign ? -denormal : denormal;
}

static inline uint16_t f16_from_f32(float x)
{
    const uint32_t bits = half_to_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and above round to Inf */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) /* 2^-14: normal */
        return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
    /* A sum with 1/2 leaves the multiple of 2^-24 in the low bits of the sum, rounded to even. */
    return (uint16_t)(sign | (half_to_bits(half_from_bits(magnitude) + 0.5f) - half_to_bits(0.5f)));
}

static inline float f8_to_f32(uint8_t x)
{
    const uint16_t size = (uint16_t)((x & 0x7f) << 7), nan = size == 0x3f80 ? 0x4000 : 0;
    return f16_to_f32((uint16_t)((x & 0x80) << 8 | size | nan)) * 256.0f;
}

#endif
