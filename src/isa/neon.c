/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AArch64 Advanced SIMD: exports attn_kernels_neon and nothing else. */
#include "simd/simd_neon.h"
#include "simd/dot_f32.h"
#include "simd/score_dot.h"

#define VF_NAME(x) x##_neon
#define VF_ISA     ATTN_ISA_NEON
#include "isa/kernels.h"
