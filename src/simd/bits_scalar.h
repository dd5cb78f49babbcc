/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of vectors and narrow numbers, one float at a time: the names of bits_avx512.h. */
#ifndef ATTN_BITS_H
#define ATTN_BITS_H

#include "simd/simd_scalar.h"

static inline vu vu_shift_left(vu a, int n)
{
    return a << n;
}

static inline vu vu_shift_right(vu a, int n)
{
    return a >> n;
}

static inline vu vu_shift_right_signed(vu a, int n)
{
    return a >> n | (a >> 31 ? ~(UINT32_MAX >> n) : 0u);
}

static inline vu vu_and_xor(vu a, vu mask, vu b)
{
    return (a & mask) ^ b;
}

static inline vf vf_of_bits(vu a)
{
    return half_from_bits(a);
}

static inline vu vu_bits_of(vf a)
{
    return half_to_bits(a);
}

static inline vf vf_of_ints(vu a)
{
    return (float)(int32_t)a;
}

/** The sum has a unit of 1, and the integer in its low bits. */
static inline vu vu_rounded(vf a)
{
    return half_to_bits(a + 0x1.8p23f) - half_to_bits(0x1.8p23f);
}

static inline vf vf_load_int8(const int8_t *p)
{
    return (float)*p;
}

static inline vf vf_load_f8(const uint8_t *p)
{
    return f8_to_f32(*p);
}

static inline vf vf_load_int4(const uint8_t *p, int bit)
{
    return (float)(((*p >> bit & 15) ^ 8) - 8);
}

static inline void vf_scaled_int4(const uint8_t *p, const float *scale, vf *low, vf *high)
{
    *low = vf_load_int4(p, 0) * *scale;
    *high = vf_load_int4(p, 4) * *scale;
}

static inline void vu_store_bytes(uint8_t *p, vu a)
{
    *p = (uint8_t)a;
}

static inline vu vu_bytes_of4(vu a, vu b, vu c, vu d)
{
    const uint8_t bytes[] = {(uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)d};
    return vu_load(bytes);
}

static inline void vf_load_pair_bf16(const uint16_t *p, vf *a, vf *b)
{
    *a = bf16_to_f32(p[0]);
    *b = bf16_to_f32(p[1]);
}

static inline vu vu_bytes_of_pairs(vu a, vu b, vu c, vu d)
{
    return vu_bytes_of4(a, b, c, d);
}

static inline vu vf_narrow_f16(vf a, vf b)
{
    const uint16_t both[] = {f16_from_f32(a), f16_from_f32(b)};
    return vu_load(both);
}

static inline vu vf_narrow_bf16(vf a, vf b)
{
    const uint16_t both[] = {bf16_from_f32(a), bf16_from_f32(b)};
    return vu_load(both);
}

static inline vu vf_pair_bf16(vf a, vf b)
{
    return vf_narrow_bf16(a, b);
}

static inline vu vf_pair_f16(vf a, vf b)
{
    return vf_narrow_f16(a, b);
}

#define VU_STREAMS 0

static inline void vu_stream(void *p, vu a)
{
    vu_store(p, a);
}

static inline void vu_stream_end(void)
{
}

static inline vf vf_nibble(vu words, int shift)
{
    return (float)((int)(words >> shift & 15) - 8);
}

#endif
