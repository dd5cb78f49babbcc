/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' kernels for AVX-512: exports attn_nn_kernels_avx512 and nothing else. */
#define VF_NAME(x) x##_avx512
#define ATTN_SIMD  "simd/simd_avx512.h"
#define ATTN_BYTES "simd/bytes_avx512.h"
#include "nn/isa/nn_kernels.h"
