/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of bf16 on AVX512-BF16: exports attn_kernels_avx512_bf16 and nothing else. */
#define VF_NAME(x)     x##_avx512_bf16
#define ATTN_SIMD      "simd/simd_avx512.h"
#define ATTN_DOT       "simd/dot_bf16_avx512.h"
#define ATTN_SCORES    "kernels/scores_bf16.h"
#define ATTN_VALUES    "kernels/values_bf16.h"
#define ATTN_WEIGHTS   "kernels/weights_table.h"
#define ATTN_GRADIENTS "kernels/row_sums.h"
#include "isa/kernels.h"
