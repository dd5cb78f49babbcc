/* SPDX-License-Identifier: Apache-2.0 */
/* Scores in int8 on Advanced SIMD with FEAT_DotProd: exports attn_kernels_neon_int8 and nothing else. */
#define VF_NAME(x)  x##_neon_int8
#define ATTN_SIMD   "simd/simd_neon.h"
#define ATTN_SCORE  "simd/score_int8_neon.h"
#define ATTN_SCORES "kernels/scores_int8.h"
#include "isa/kernels.h"
