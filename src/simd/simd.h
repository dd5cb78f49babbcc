/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vectors of the instruction set at hand. A file of src/isa names their
 * header before it includes any kernel; by itself this is plain C.
 */
#ifndef ATTN_SIMD_CHOICE_H
#define ATTN_SIMD_CHOICE_H

#ifndef ATTN_SIMD
#define ATTN_SIMD "simd/simd_scalar.h"
#endif
#include ATTN_SIMD

#endif
