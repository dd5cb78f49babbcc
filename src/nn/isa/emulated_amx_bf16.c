/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' products of pairs of bf16 on emulated matrix registers: exports attn_nn_kernels_emulated_amx_bf16 and
 * nothing else. For tests. */
#define VF_NAME(x)       x##_emulated_amx_bf16
#define ATTN_SIMD        "simd/simd_avx512.h"
#define ATTN_MATRIX      "simd/matrix_emulated.h"
#define ATTN_NN_PRODUCTS "nn/kernels/linear_matrix.h"
#define ATTN_NN_TABLE    .linear_pairs = pairs_matrix_panels
#include "nn/isa/nn_kernels.h"
