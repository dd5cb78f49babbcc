/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of bf16 on Advanced SIMD with FEAT_BF16: exports attn_kernels_neon_bf16 and nothing else. */
#define VF_NAME(x)     x##_neon_bf16
#define ATTN_SIMD      "simd/simd_neon.h"
#define ATTN_DOT       "simd/dot_bf16_neon.h"
#define ATTN_SCORES    "kernels/scores_bf16.h"
#define ATTN_VALUES    "kernels/values_bf16.h"
#define ATTN_WEIGHTS   "kernels/weights_polynomial.h"
#define ATTN_GRADIENTS "kernels/row_sums.h"
#include "isa/kernels.h"
