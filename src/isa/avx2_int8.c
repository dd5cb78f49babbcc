/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for int8 scores and f32 values on AVX2 with AVX-VNNI: exports attn_kernels_avx2_int8 and nothing else. */
#include "simd/simd_avx2.h"
#include "simd/dot_f32.h"
#include "simd/score_int8_avx2.h"

#ifndef VF_NAME /* a test compiles this file once more, with other flags and under another name */
#define VF_NAME(x) x##_avx2_int8
#endif
#define VF_ISA ATTN_ISA_AVX2
#include "isa/kernels.h"
