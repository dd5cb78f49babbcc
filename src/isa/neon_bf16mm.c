/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of bf16 in 2 x 2 blocks (BFMMLA) on Advanced SIMD: exports attn_kernels_neon_bf16mm and nothing else. */
#define VF_NAME(x)          x##_neon_bf16mm
#define ATTN_SIMD           "simd/simd_neon.h"
#define ATTN_DOT            "simd/dot_bf16mm_neon.h"
#define ATTN_SCORE          "simd/score_bf16mm_neon.h"
#define ATTN_SCORE_PRODUCTS "kernels/score_mm.h"
#define ATTN_SCORES         "kernels/scores_bf16.h"
#define ATTN_VALUES         "kernels/values_bf16mm.h"
#include "isa/kernels.h"
