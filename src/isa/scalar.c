/* SPDX-License-Identifier: Apache-2.0 */
/* Portable C: exports attn_kernels_scalar and nothing else. */
#define VF_NAME(x) x##_scalar
#define ATTN_SIMD  "simd/simd_scalar.h"
#define ATTN_VECTORS
#define ATTN_GRADIENTS "kernels/row_sums.h"
#define ATTN_SCORES    "kernels/scores_f32.h"
#define ATTN_VALUES    "kernels/values_f32.h"
#include "isa/kernels.h"
