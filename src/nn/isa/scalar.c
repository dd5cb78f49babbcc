/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' kernels for portable C: exports attn_nn_kernels_scalar and nothing else. */
#define VF_NAME(x) x##_scalar
#define ATTN_SIMD  "simd/simd_scalar.h"
#define ATTN_BYTES "simd/bytes_scalar.h"
#include "nn/isa/nn_kernels.h"
