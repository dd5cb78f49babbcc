/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' products of int8 on emulated matrix registers: exports attn_nn_kernels_emulated_amx_int8 and nothing
 * else. For tests. */
#define VF_NAME(x)  x##_emulated_amx_int8
#define ATTN_SIMD   "simd/simd_avx512.h"
#define ATTN_BYTES  "simd/bytes_avx512.h"
#define ATTN_MATRIX "simd/matrix_emulated.h"
#define ATTN_MATRIX_INT8
#define ATTN_NN_PRODUCTS "nn/kernels/linear_matrix.h"
#define ATTN_NN_TABLE    .linear_int8 = int8_matrix_panels, .quantize = quantize_rows, .int8_offset = VS_OFFSET
#include "nn/isa/nn_kernels.h"
