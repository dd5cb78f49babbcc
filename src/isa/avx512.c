/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AVX-512: exports attn_kernels_avx512 and nothing else. */
#include "simd/simd_avx512.h"
#include "simd/dot_f32.h"
#include "simd/score_dot.h"

#define VF_NAME(x) x##_avx512
#define VF_ISA     ATTN_ISA_AVX512
#include "isa/kernels.h"
