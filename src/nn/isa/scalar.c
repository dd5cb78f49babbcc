/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' kernels for portable C: exports attn_nn_kernels_scalar and nothing else. */
#include "simd/simd_scalar.h"

#define VF_NAME(x) x##_scalar
#define VF_ISA     ATTN_ISA_SCALAR
#include "nn/isa/nn_kernels.h"
