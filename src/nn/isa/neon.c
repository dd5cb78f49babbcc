/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' kernels for NEON: exports attn_nn_kernels_neon and nothing else. */
#define VF_NAME(x) x##_neon
#define ATTN_SIMD  "simd/simd_neon.h"
#define ATTN_BYTES "simd/bytes_neon.h"
#include "nn/isa/nn_kernels.h"
