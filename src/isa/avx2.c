/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AVX2 and FMA: exports attn_kernels_avx2 and nothing else. */
#include "simd/simd_avx2.h"
#include "simd/dot_f32.h"
#include "simd/score_dot.h"

#define VF_NAME(x) x##_avx2
#define VF_ISA     ATTN_ISA_AVX2
#include "isa/kernels.h"
