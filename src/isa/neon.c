/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AArch64 Advanced SIMD: exports attn_kernels_neon and nothing else. */
#include "simd/simd_neon.h"
#include "isa/kernels.h"
