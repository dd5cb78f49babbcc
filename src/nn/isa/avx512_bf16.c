/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' products of pairs of bf16 on AVX512-BF16: exports attn_nn_kernels_avx512_bf16 and nothing else. */
#define VF_NAME(x)       x##_avx512_bf16
#define ATTN_SIMD        "simd/simd_avx512.h"
#define ATTN_DOT         "simd/dot_bf16_avx512.h"
#define ATTN_NN_PRODUCTS "nn/kernels/linear_pairs.h"
#define ATTN_NN_TABLE    .linear_pairs = linear_pairs_panels
#include "nn/isa/nn_kernels.h"
