/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for portable C: exports attn_kernels_scalar and nothing else. */
#include "simd/simd_scalar.h"
#include "isa/kernels.h"
