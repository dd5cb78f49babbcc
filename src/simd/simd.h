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
#include "simd/tanh.h"

/* Transposes of the first four or eight rows alone, for sets whose vectors hold no more: all rows. */
#if VF_LEN <= 4
#define vf_transpose_from4 vf_transpose
#define vf_transpose_to4   vf_transpose
#endif
#if VF_LEN <= 8
#define vf_transpose_from8 vf_transpose
#define vf_transpose_to8   vf_transpose
#endif

#endif
