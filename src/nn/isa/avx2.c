/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' kernels for AVX2: exports attn_nn_kernels_avx2 and nothing else. */
#define VF_NAME(x) x##_avx2
#define ATTN_SIMD  "simd/simd_avx2.h"
#define ATTN_BYTES "simd/bytes_avx2.h"
#include "nn/isa/nn_kernels.h"
