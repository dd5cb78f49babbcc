/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for bf16 dot products on AArch64: exports attn_kernels_neon_bf16 and nothing else. */
#include "simd/simd_neon.h"
#include "simd/dot_bf16_neon.h"
#include "simd/score_dot.h"

#define VF_NAME(x) x##_neon_bf16
#define VF_ISA     ATTN_ISA_NEON_BF16
#include "isa/kernels.h"
