/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for int8 scores and f32 values on AArch64: exports attn_kernels_neon_int8 and nothing else. */
#include "simd/simd_neon.h"
#include "simd/dot_f32.h"
#include "simd/score_int8_neon.h"

#define VF_NAME(x) x##_neon_int8
#define VF_ISA     ATTN_ISA_NEON
#include "isa/kernels.h"
