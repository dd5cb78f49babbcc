/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for portable C: exports attn_kernels_scalar and nothing else. */
#include "simd/simd_scalar.h"
#include "simd/dot_f32.h"
#include "simd/score_dot.h"

#define VF_NAME(x) x##_scalar
#define VF_ISA     ATTN_ISA_SCALAR
#include "isa/kernels.h"
