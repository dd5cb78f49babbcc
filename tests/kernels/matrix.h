/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of sets with matrix registers: their sizes, and the product of two of
 * them, one element after the other.
 */
#ifndef KERNELS_MATRIX_H
#define KERNELS_MATRIX_H

#include "operands.h"
#include "dtype.h"

enum { ROWS = 16, WORDS = 16, PAIRED = 2 * WORDS, REGISTERS = 8, ROW_BYTES = 64, PIECE = ROWS * ROW_BYTES };

static inline int rounded_up(int64_t n, int step)
{
    return (int)((n + step - 1) / step * step);
}

static inline int key_words(int keys)
{
    return (keys + 1) / 2;
}

static inline float widened(uint16_t half)
{
    return dtype_widen(ATTN_BF16, half);
}

/**
 * c and what a product adds to it: a row of 32 elements and a column of as many. Two sums from 0, of the first and of
 * the second elements of 16 pairs, then their sum, whatever MXCSR says: a processor that has the registers and an
 * emulation of them are held to the same bits.
 */
static inline float product(const uint16_t *a, const uint16_t *b, float c)
{
    float first = 0, second = 0;
    for (int i = 0; i < PAIRED; i += 2) {
        first = fused_flushing(widened(a[i]), widened(b[i]), first);
        second = fused_flushing(widened(a[i + 1]), widened(b[i + 1]), second);
    }
    return flushed(flushed(c) + flushed(first + second));
}

#endif
