/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' kernels for NEON: exports attn_nn_kernels_neon and nothing else. */
#include "simd/simd_neon.h"

#define VF_NAME(x) x##_neon
#define VF_ISA     ATTN_ISA_NEON
#include "nn/isa/nn_kernels.h"
