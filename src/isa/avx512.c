/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AVX-512: exports attn_kernels_avx512 and nothing else. */
#include "simd/simd_avx512.h"
#include "isa/kernels.h"
