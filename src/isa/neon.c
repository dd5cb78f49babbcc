/* SPDX-License-Identifier: Apache-2.0 */
/* AArch64 Advanced SIMD: exports attn_kernels_neon and nothing else. */
#define VF_NAME(x) x##_neon
#define ATTN_SIMD  "simd/simd_neon.h"
#define ATTN_VECTORS
#define ATTN_GRADIENTS "kernels/row_sums.h"
#define ATTN_SCORES    "kernels/scores_f32.h"
#define ATTN_VALUES    "kernels/values_f32.h"
#include "isa/kernels.h"
