/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AVX2 and FMA: exports attn_kernels_avx2 and nothing else. */
#include "simd/simd_avx2.h"
#include "isa/kernels.h"
