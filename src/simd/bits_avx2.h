/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of vectors and narrow numbers, on AVX2: the names of bits_avx512.h. */
#ifndef ATTN_BITS_H
#define ATTN_BITS_H

#include "simd/simd_avx2.h"

static inline vu vu_shift_left(vu a, int n)
{
    return (vu)((__v8su)a << n);
}

static inline vu vu_shift_right(vu a, int n)
{
    return (vu)((__v8su)a >> n);
}

static inline vu vu_shift_right_signed(vu a, int n)
{
    return (vu)((__v8si)a >> n);
}

static inline vu vu_and_xor(vu a, vu mask, vu b)
{
    return vu_xor(vu_and(a, mask), b);
}

static inline vf vf_of_bits(vu a)
{
    return _mm256_castsi256_ps(a);
}

static inline vu vu_bits_of(vf a)
{
    return _mm256_castps_si256(a);
}

static inline vf vf_of_ints(vu a)
{
    return _mm256_cvtepi32_ps(a);
}

static inline vu vu_rounded(vf a)
{
    return _mm256_cvtps_epi32(a);
}

static inline vf vf_load_int8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

static inline vf vf_load_f8(const uint8_t *p)
{
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p)), ones = _mm_set1_epi16(0x3f80);
    const __m128i size = _mm_and_si128(_mm_slli_epi16(wide, 7), ones);
    const __m128i half = _mm_or_si128(size, _mm_and_si128(wide, _mm_set1_epi16((short)0x8000)));
    const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(size, ones), _mm_set1_epi16(0x4000));
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, nan)), _mm256_set1_ps(256.0f));
}

static inline vf vf_load_int4(const uint8_t *p, int bit)
{
    const vu bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(vu_shift_left(bytes, 28 - bit), 28));
}

static inline void vf_scaled_int4(const uint8_t *p, const float *scale, vf *low, vf *high)
{
    const vu bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const vf factor = vf_set1(*scale);
    *low = vf_mul(_mm256_cvtepi32_ps(_mm256_srai_epi32(vu_shift_left(bytes, 28), 28)), factor);
    *high = vf_mul(_mm256_cvtepi32_ps(_mm256_srai_epi32(vu_shift_left(bytes, 24), 28)), factor);
}

static inline void vu_store_bytes(uint8_t *p, vu a)
{
    const __m256i low = _mm256_and_si256(a, _mm256_set1_epi32(0xff));
    const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(halves, halves));
}

static inline vu vu_bytes_of4(vu a, vu b, vu c, vu d)
{
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)); /* in halves */
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline void vf_load_pair_bf16(const uint16_t *p, vf *a, vf *b)
{
    const __m256i both = _mm256_loadu_si256((const __m256i *)p), zero = _mm256_setzero_si256();
    *a = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, both));
    *b = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, both));
}

static inline vu vu_bytes_of_pairs(vu a, vu b, vu c, vu d)
{
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)); /* in halves */
    return _mm256_permute4x64_epi64(packed, 0xd8);
}

static inline vu vf_narrow_f16(vf a, vf b)
{
    const __m128i low = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                   _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 1);
}

static inline __m256i rounded_to_bf16(vf a)
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}

static inline vu vf_narrow_bf16(vf a, vf b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded_to_bf16(a), rounded_to_bf16(b)), 0xd8);
}

static inline vu vf_pair_bf16(vf a, vf b)
{
    return vu_or(rounded_to_bf16(a), vu_shift_left(rounded_to_bf16(b), 16));
}

static inline vu vf_pair_f16(vf a, vf b)
{
    const __m128i low = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i high = _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return vu_or(_mm256_cvtepu16_epi32(low), vu_shift_left(_mm256_cvtepu16_epi32(high), 16));
}

#define VU_STREAMS 1

static inline void vu_stream(void *p, vu a)
{
    _mm256_stream_si256((__m256i *)p, a);
}

static inline void vu_stream_end(void)
{
    _mm_sfence();
}

static inline vf vf_nibble(vu words, int shift)
{
    const vu bits = _mm256_and_si256(vu_shift_right(words, shift), _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(bits, _mm256_set1_epi32(8)));
}

#endif
