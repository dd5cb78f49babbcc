/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for int8 scores and f32 values on AVX-512: exports attn_kernels_avx512_int8 and nothing else. */
#include "simd/simd_avx512.h"
#include "simd/dot_f32.h"
#include "simd/score_int8_avx512.h"

#define VF_NAME(x) x##_avx512_int8
#define VF_ISA     ATTN_ISA_AVX512
#include "isa/kernels.h"
