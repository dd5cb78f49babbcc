/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multiply-adds of one lane in plain C, with the roundings that the sets have.
 */
#ifndef KERNELS_PRODUCTS_H
#define KERNELS_PRODUCTS_H

#include "rows.h"

/** A sum and a product in one lane, as vf_fma and as the words of a set have it. */
float fma_of(const struct kernel_set *set, float a, float b, float c);
float dot_of(const struct kernel_set *set, int pack, const void *a, const void *b, float c);

/** a * b + c rounded once to nearest even, denormals of all three and of the result being 0: x86's products of bf16. */
float fused_flushing(float a, float b, float c);

/** 0 with the sign of a denormal; other numbers as they are. */
float flushed(float x);

#endif
