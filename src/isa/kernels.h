/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file of an instruction set compiles, after it has named its headers
 * and what it brings: the templates, and the one table that it exports.
 *
 *     VF_NAME(x)    x with the name of the set behind it
 *     ATTN_SIMD     its vectors;  ATTN_DOT, ATTN_SCORE  its words, where they are not floats
 *     ATTN_SCORE_PRODUCTS  the header of score_products(), where words are multiplied in groups (score_tile.h)
 *     ATTN_VECTORS, ATTN_SCORES, ATTN_VALUES, ATTN_GRADIENTS
 *                   defined for the tables that it has: the first one by itself, the others as the header of the
 *                   words, e.g. "kernels/scores_f32.h"
 *     ATTN_WEIGHTS  for values_bf16.h: the header of its exponentials, by a polynomial or a table
 *     ATTN_MATRIX   its matrix registers, where these headers use some;  ATTN_EMULATED  they are none
 */
#ifndef ATTN_ISA_KERNELS_H
#define ATTN_ISA_KERNELS_H

#include "kernels/kernels.h"

#ifdef ATTN_SCORES
#include ATTN_SCORES
#endif
#ifdef ATTN_VALUES
#include ATTN_VALUES
#endif
#ifdef ATTN_GRADIENTS
#include ATTN_GRADIENTS
#endif
#ifdef ATTN_VECTORS
#include "kernels/state_kernels.h"
#include "kernels/vectors.h"
#endif

extern const struct attn_isa_kernels VF_NAME(attn_kernels);

const struct attn_isa_kernels VF_NAME(attn_kernels) = {
#ifdef ATTN_VECTORS
    .vectors = &vector_kernels,
    .states = &state_kernels,
#endif
#ifdef ATTN_GRADIENTS
    .gradients = &gradient_kernels,
#endif
#ifdef ATTN_SCORES
    .scores = &score_kernels,
#endif
#ifdef ATTN_VALUES
    .values = &value_kernels,
#endif
#ifdef ATTN_EMULATED
    .emulated = 1,
#endif
};

#endif
