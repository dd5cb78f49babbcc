/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of bf16 on emulated matrix registers: exports attn_kernels_emulated_amx_bf16 and nothing
 * else. For tests. */
#define VF_NAME(x)     x##_emulated_amx_bf16
#define ATTN_SIMD      "simd/simd_avx512.h"
#define ATTN_DOT       "simd/dot_bf16_avx512.h"
#define ATTN_MATRIX    "simd/matrix_emulated.h"
#define ATTN_SCORES    "kernels/scores_matrix.h"
#define ATTN_VALUES    "kernels/values_matrix.h"
#define ATTN_GRADIENTS "kernels/row_sums_matrix.h"
#define ATTN_EMULATED
#include "isa/kernels.h"
