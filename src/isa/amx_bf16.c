/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of bf16 on AMX: exports attn_kernels_amx_bf16 and nothing else. */
#define VF_NAME(x)     x##_amx_bf16
#define ATTN_SIMD      "simd/simd_avx512.h"
#define ATTN_DOT       "simd/dot_bf16_avx512.h"
#define ATTN_MATRIX    "simd/matrix_amx.h"
#define ATTN_SCORES    "kernels/scores_matrix.h"
#define ATTN_VALUES    "kernels/values_matrix.h"
#define ATTN_GRADIENTS "kernels/row_sums_matrix.h"
#include "isa/kernels.h"
