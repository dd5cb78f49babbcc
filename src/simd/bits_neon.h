/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of vectors and narrow numbers, on Advanced SIMD: the names of bits_avx512.h. */
#ifndef ATTN_BITS_H
#define ATTN_BITS_H

#include "simd/simd_neon.h"

static inline vu vu_shift_left(vu a, int n)
{
    return vshlq_u32(a, vdupq_n_s32(n));
}

static inline vu vu_shift_right(vu a, int n)
{
    return vshlq_u32(a, vdupq_n_s32(-n));
}

static inline vu vu_shift_right_signed(vu a, int n)
{
    return vreinterpretq_u32_s32(vshlq_s32(vreinterpretq_s32_u32(a), vdupq_n_s32(-n)));
}

static inline vu vu_and_xor(vu a, vu mask, vu b)
{
    return vu_xor(vu_and(a, mask), b);
}

static inline vf vf_of_bits(vu a)
{
    return vreinterpretq_f32_u32(a);
}

static inline vu vu_bits_of(vf a)
{
    return vreinterpretq_u32_f32(a);
}

static inline vf vf_of_ints(vu a)
{
    return vcvtq_f32_s32(vreinterpretq_s32_u32(a));
}

static inline vu vu_rounded(vf a)
{
    return vreinterpretq_u32_s32(vcvtnq_s32_f32(a));
}

static inline vf vf_load_int8(const int8_t *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

static inline vf vf_load_f8(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    const uint16x8_t wide = vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word))));
    const uint16x4_t number = vget_low_u16(wide), ones = vdup_n_u16(0x3f80);
    const uint16x4_t size = vand_u16(vshl_n_u16(number, 7), ones);
    const uint16x4_t half = vorr_u16(size, vand_u16(number, vdup_n_u16(0x8000)));
    const uint16x4_t nan = vand_u16(vceq_u16(size, ones), vdup_n_u16(0x4000));
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(half, nan))), 256.0f);
}

static inline vf vf_load_int4(const uint8_t *p, int bit)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    const int8x8_t bytes = vshl_s8(vreinterpret_s8_s32(vdup_n_s32(word)), vdup_n_s8((int8_t)(4 - bit)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vshr_n_s8(bytes, 4)))));
}

static inline void vf_scaled_int4(const uint8_t *p, const float *scale, vf *low, vf *high)
{
    const vf factor = vf_set1(*scale);
    *low = vf_mul(vf_load_int4(p, 0), factor);
    *high = vf_mul(vf_load_int4(p, 4), factor);
}

static inline void vu_store_bytes(uint8_t *p, vu a)
{
    const uint16x4_t halves = vmovn_u32(a);
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(halves, halves));
    const uint32_t word = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(p, &word, sizeof word);
}

static inline vu vu_bytes_of4(vu a, vu b, vu c, vu d)
{
    const uint16x8_t ab = vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
    const uint16x8_t cd = vuzp1q_u16(vreinterpretq_u16_u32(c), vreinterpretq_u16_u32(d));
    return vreinterpretq_u32_u8(vuzp1q_u8(vreinterpretq_u8_u16(ab), vreinterpretq_u8_u16(cd)));
}

static inline void vf_load_pair_bf16(const uint16_t *p, vf *a, vf *b)
{
    const uint16x8_t both = vld1q_u16(p);
    *a = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(both), 16));
    *b = vreinterpretq_f32_u32(vshll_high_n_u16(both, 16));
}

static inline vu vu_bytes_of_pairs(vu a, vu b, vu c, vu d)
{
    return vu_bytes_of4(a, b, c, d);
}

static inline vu vf_narrow_f16(vf a, vf b)
{
    return vreinterpretq_u32_f16(vcombine_f16(vcvt_f16_f32(a), vcvt_f16_f32(b)));
}

static inline vu vf_narrow_bf16(vf a, vf b)
{
    uint16_t both[8];
    vf_store_bf16(both, a);
    vf_store_bf16(both + 4, b);
    return vreinterpretq_u32_u16(vld1q_u16(both));
}

static inline vu vf_pair_bf16(vf a, vf b)
{
    const uint16x8_t both = vreinterpretq_u16_u32(vf_narrow_bf16(a, b));
    return vreinterpretq_u32_u16(vzip1q_u16(both, vextq_u16(both, both, 4)));
}

static inline vu vf_pair_f16(vf a, vf b)
{
    const uint16x8_t both = vreinterpretq_u16_u32(vf_narrow_f16(a, b));
    return vreinterpretq_u32_u16(vzip1q_u16(both, vextq_u16(both, both, 4)));
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
    const vu bits = vandq_u32(vu_shift_right(words, shift), vdupq_n_u32(15));
    return vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_u32(bits), vdupq_n_s32(8)));
}

#endif
