/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 with FMA and F16C: exports attn_kernels_avx2 and nothing else. */
#define VF_NAME(x) x##_avx2
#define ATTN_SIMD  "simd/simd_avx2.h"
#define ATTN_VECTORS
#define ATTN_GRADIENTS "kernels/row_sums.h"
#define ATTN_SCORES    "kernels/scores_f32.h"
#define ATTN_VALUES    "kernels/values_f32.h"
#include "isa/kernels.h"
