/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for bf16 dot products on AVX-512: exports attn_kernels_avx512_bf16 and nothing else. */
#include "simd/simd_avx512.h"
#include "simd/dot_bf16_avx512.h"
#include "simd/score_dot.h"

#define VF_NAME(x) x##_avx512_bf16
#define VF_ISA     ATTN_ISA_AVX512_BF16
#include "isa/kernels.h"
