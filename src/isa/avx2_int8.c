/* SPDX-License-Identifier: Apache-2.0 */
/* Scores in int8 on AVX2 with AVX-VNNI: exports attn_kernels_avx2_int8 and nothing else. */
#ifndef VF_NAME /* a test compiles this file once more, with other flags and under another name */
#define VF_NAME(x) x##_avx2_int8
#endif
#define ATTN_SIMD   "simd/simd_avx2.h"
#define ATTN_SCORE  "simd/score_int8_avx2.h"
#define ATTN_SCORES "kernels/scores_int8.h"
#include "isa/kernels.h"
