/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits of vectors, and small integers and floats of 16 and 8 bits, on AVX-512: what
 * narrow numbers are made from and rounded to. Every bits_*.h defines the same
 * names:
 *   vu_shift_left, vu_shift_right   by n < 32 bits, zeros come in
 *   vu_shift_right_signed           the same, copies of the highest bit come in
 *   vu_and_xor(a, mask, b)          (a & mask) ^ b
 *   vf_of_bits, vf_of_ints          lanes as the floats of these bits, and as signed integers
 *   vu_bits_of                      the way back to the bits
 *   vu_rounded                      the nearest integers of floats up to 2^22 in size, ties to even
 *   vf_load_int8                    VF_LEN floats from as many int8
 *   vf_load_f8                      the same of numbers in E4M3, exact
 *   vf_load_int4(p, bit)            the same of four bits of each byte, from bit 0 or 4 on, two's complement
 *   vf_scaled_int4(p, scale, low, high)  both at once, times a scale
 *   vf_nibble(words, shift)         the four bits from shift on, less 8
 *   vu_store_bytes                  the lowest byte of each lane
 *   vu_bytes_of4                    lanes of -128 to 127 as bytes, four vectors one behind the other
 *   vf_load_pair_bf16, vu_bytes_of_pairs  the same of pairs of vectors, loaded in an order that suits both
 *   vf_narrow_bf16, vf_narrow_f16   two vectors as vf_store_bf16() and vf_store_f16() would round them, side by side
 *   vf_pair_bf16, vf_pair_f16       the same in words: those of the first are the lower halves
 *   vu_stream                       vu_store() to an aligned address, past the caches where VU_STREAMS
 *   vu_stream_end                   what has been streamed is there for other threads, too
 *   VF_NIBBLE_BY_TABLE              defined where vf_nibble() is faster than arithmetic
 */
#ifndef ATTN_BITS_H
#define ATTN_BITS_H

#include "simd/simd_avx512.h"

static inline vu vu_shift_left(vu a, int n)
{
    return (vu)((__v16su)a << n);
}

static inline vu vu_shift_right(vu a, int n)
{
    return (vu)((__v16su)a >> n);
}

static inline vu vu_shift_right_signed(vu a, int n)
{
    return (vu)((__v16si)a >> n);
}

static inline vu vu_and_xor(vu a, vu mask, vu b)
{
    return _mm512_ternarylogic_epi32(a, mask, b, 0x6a);
}

static inline vf vf_of_bits(vu a)
{
    return _mm512_castsi512_ps(a);
}

static inline vu vu_bits_of(vf a)
{
    return _mm512_castps_si512(a);
}

static inline vf vf_of_ints(vu a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline vu vu_rounded(vf a)
{
    return _mm512_cvtps_epi32(a);
}

static inline vf vf_load_int8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/** As f16 with the bias of E4M3, 7 instead of 15; all ones, which is NaN there, get an exponent that is so here. */
static inline vf vf_load_f8(const uint8_t *p)
{
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), ones = _mm256_set1_epi16(0x3f80);
    const __m256i size = _mm256_and_si256(_mm256_slli_epi16(wide, 7), ones);
    const __m256i carry = _mm256_add_epi16(size, _mm256_set1_epi16(0x80)); /* all ones: into the next bit */
    const __m256i half = _mm256_ternarylogic_epi32(size, carry, _mm256_set1_epi16(0x4000), 0xf8); /* a | (b & c) */
    const __m256i bits = _mm256_ternarylogic_epi32(half, wide, _mm256_set1_epi16((short)0x8000), 0xf8);
    return _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(256.0f));
}

/** VPERMPS looks at the four lowest bits alone: a table in a register instead of a sign and a conversion. */
static inline vf vf_load_int4(const uint8_t *p, int bit)
{
    const vf table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    return _mm512_permutexvar_ps(vu_shift_right(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), bit), table);
}

/** The table is multiplied instead of the numbers: the products are the same. */
static inline void vf_scaled_int4(const uint8_t *p, const float *scale, vf *low, vf *high)
{
    const vf table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const vf scaled = vf_mul(table, vf_set1(*scale));
    const vu bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    *low = _mm512_permutexvar_ps(bytes, scaled);
    *high = _mm512_permutexvar_ps(vu_shift_right(bytes, 4), scaled);
}

static inline void vu_store_bytes(uint8_t *p, vu a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a));
}

static inline vu vu_bytes_of4(vu a, vu b, vu c, vu d)
{
    const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)); /* in quarters */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, packed);
}

/** With zeros for the lower halves of floats, so that each quarter of the one vector has a quarter of both. */
static inline void vf_load_pair_bf16(const uint16_t *p, vf *a, vf *b)
{
    const __m512i both = _mm512_loadu_si512(p), zero = _mm512_setzero_si512();
    *a = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, both));
    *b = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, both));
}

static inline vu vu_bytes_of_pairs(vu a, vu b, vu c, vu d)
{
    const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)); /* in quarters */
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
}

static inline vu vf_narrow_f16(vf a, vf b)
{
    const __m256i low = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i high = _mm512_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/** In the upper halves of lanes. */
static inline __m512i rounded_to_bf16(vf a)
{
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
}

static inline vu vf_narrow_bf16(vf a, vf b)
{
    const __m512i order = /* 1, 3, 5, ...: the upper halves */
        _mm512_setr_epi32(0x00030001, 0x00070005, 0x000b0009, 0x000f000d, 0x00130011, 0x00170015, 0x001b0019,
                          0x001f001d, 0x00230021, 0x00270025, 0x002b0029, 0x002f002d, 0x00330031, 0x00370035,
                          0x003b0039, 0x003f003d);
    return _mm512_permutex2var_epi16(rounded_to_bf16(a), order, rounded_to_bf16(b));
}

static inline vu vf_pair_bf16(vf a, vf b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(rounded_to_bf16(a), 16), rounded_to_bf16(b));
}

static inline vu vf_pair_f16(vf a, vf b)
{
    const __m256i low = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i high = _mm512_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return vu_or(_mm512_cvtepu16_epi32(low), vu_shift_left(_mm512_cvtepu16_epi32(high), 16));
}

#define VU_STREAMS 1

static inline void vu_stream(void *p, vu a)
{
    _mm512_stream_si512(p, a);
}

static inline void vu_stream_end(void)
{
    _mm_sfence();
}

/** vf_nibble() is a look into a table, and faster than arithmetic. */
#define VF_NIBBLE_BY_TABLE

/** VPERMPS looks at the four bits alone: a table in a register instead of a conversion. */
static inline vf vf_nibble(vu words, int shift)
{
    const vf table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_permutexvar_ps(vu_shift_right(words, shift), table);
}

#endif
