/* SPDX-License-Identifier: Apache-2.0 */
/* Scores in int8 on AMX: exports attn_kernels_amx_int8 and nothing else. */
#define VF_NAME(x)  x##_amx_int8
#define ATTN_SIMD   "simd/simd_avx512.h"
#define ATTN_DOT    "simd/dot_bf16_avx512.h"
#define ATTN_SCORE  "simd/score_int8_signed_avx512.h"
#define ATTN_MATRIX "simd/matrix_amx.h"
#define ATTN_SCORES "kernels/scores_matrix.h"
#include "isa/kernels.h"
