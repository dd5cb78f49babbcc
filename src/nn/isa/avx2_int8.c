/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' products of int8 on AVX-VNNI: exports attn_nn_kernels_avx2_int8 and nothing else. */
#define VF_NAME(x)       x##_avx2_int8
#define ATTN_SIMD        "simd/simd_avx2.h"
#define ATTN_BYTES       "simd/score_int8_avx2.h"
#define ATTN_NN_PRODUCTS "nn/kernels/linear_int8.h"
#define ATTN_NN_TABLE    ATTN_NN_INT8_TABLE
#include "nn/isa/nn_kernels.h"
