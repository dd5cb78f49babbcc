/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for int8 scores and bf16 values on AArch64: exports attn_kernels_neon_int8_bf16 and nothing else. */
#include "simd/simd_neon.h"
#include "simd/dot_bf16_neon.h"
#include "simd/score_int8_neon.h"

#define VF_NAME(x) x##_neon_int8_bf16
#define VF_ISA     ATTN_ISA_NEON_BF16
#include "isa/kernels.h"
