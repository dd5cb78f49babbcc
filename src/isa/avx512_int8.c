/* SPDX-License-Identifier: Apache-2.0 */
/* Scores in int8 on AVX512-VNNI: exports attn_kernels_avx512_int8 and nothing else. */
#define VF_NAME(x)  x##_avx512_int8
#define ATTN_SIMD   "simd/simd_avx512.h"
#define ATTN_SCORE  "simd/score_int8_avx512.h"
#define ATTN_SCORES "kernels/scores_int8.h"
#include "isa/kernels.h"
