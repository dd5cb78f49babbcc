/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' kernels for AVX-512: exports attn_nn_kernels_avx512 and nothing else. */
#include "simd/simd_avx512.h"

#define VF_NAME(x) x##_avx512
#define VF_ISA     ATTN_ISA_AVX512
#include "nn/isa/nn_kernels.h"
