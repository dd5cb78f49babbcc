/* SPDX-License-Identifier: Apache-2.0 */
/* Scores in int8 in 2 x 2 blocks (SMMLA) on Advanced SIMD: exports attn_kernels_neon_i8mm and nothing else. */
#define VF_NAME(x)          x##_neon_i8mm
#define ATTN_SIMD           "simd/simd_neon.h"
#define ATTN_SCORE          "simd/score_i8mm_neon.h"
#define ATTN_SCORE_PRODUCTS "kernels/score_mm.h"
#define ATTN_SCORES         "kernels/scores_int8.h"
#include "isa/kernels.h"
