/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products on matrix registers with weights of other keys made beside them, and
 * those of a group of keys with V: what the tile of values shares with walks over
 * many keys.
 *
 * Registers 0 to 3 hold two groups of P for both vectors, 4 and 5 V^T, and 6 and
 * 7 the sums of the first and the second vector, which are stored when the
 * products of the next one are under way.
 */
#ifndef ATTN_GROUPS_H
#define ATTN_GROUPS_H

#include ATTN_MATRIX

#include "kernels/weights_table.h"

/** Vectors of a strip. */
#define MATRIX_VECTORS 2

/** Bytes of a row of a register. */
#define CHUNK_BYTES (MATRIX_WORDS * ATTN_WORD)

/** Keys and words of a group, and bytes of a piece of V^T. */
#define GROUP_KEYS  32
#define GROUP_WORDS 16
#define PIECE_BYTES 1024

/** 1 for elements of bf16 that are NaN or Inf, of 32. */
ATTN_INLINE __mmask32 not_finite(const void *p)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    return _mm512_cmpeq_epi16_mask(_mm512_and_si512(_mm512_loadu_si512(p), exponent), exponent);
}

/** What a register would load, stride bytes from row to row, as a piece, with 0 for what is not finite; returns whether
 * there was any. */
static inline int clean_piece(char *dst, const char *src, ptrdiff_t stride)
{
    __mmask32 found = 0;
    for (int i = 0; i < MATRIX_ROWS; i++, src += stride) {
        const __mmask32 bad = not_finite(src);
        _mm512_store_si512(dst + i * CHUNK_BYTES, _mm512_maskz_loadu_epi16((__mmask32)~bad, src));
        found |= bad;
    }
    return found != 0;
}

/** A product, and weights of other keys that are made while it is under way. */
#define MULTIPLY(dot, c, a, b)                                                                                         \
    do {                                                                                                               \
        dot(c, a, b);                                                                                                  \
        if (beside)                                                                                                    \
            advance_weights(nv, beside);                                                                               \
    } while (0)

/** Loads group g of P for vector v into register r. */
#define LOAD_WEIGHTS(r, g, v)                                                                                          \
    matrix_load(r, x->p + (((ptrdiff_t)(g)*GROUP_WORDS) * nv + (v)) * VF_LEN, nv * PIECE_BYTES / VF_LEN)

/** Register r, and the sums of 16 channels from c on of vector v. */
#define LOAD_SUMS(r, c, v)  matrix_load(r, x->o + ((c)*nv + (v)) * VF_LEN, nv * PIECE_BYTES / VF_LEN)
#define STORE_SUMS(r, c, v) matrix_store(r, x->o + ((c)*nv + (v)) * VF_LEN, nv * PIECE_BYTES / VF_LEN)

/** Groups g and, if there are two, g + 1 of the pieces from v on, stride bytes from group to group, that are dv
 * channels. */
ATTN_INLINE void add_groups(const int two, const int nv, const struct attn_value_operands *x, const char *v,
                            ptrdiff_t stride, int g, const int *groups, int from_zero, int64_t first_channel,
                            int64_t end_channel, struct weight_stream *beside)
{
    const char *piece = v + g * stride;
    /* Of a vector that sees fewer groups the others' registers are not used. */
    const int first = g < groups[0], second = two && g + 1 < groups[0];
    if (first)
        LOAD_WEIGHTS(0, g, 0);
    if (second)
        LOAD_WEIGHTS(1, g + 1, 0);
    if (nv > 1) {
        LOAD_WEIGHTS(2, g, 1);
        if (two)
            LOAD_WEIGHTS(3, g + 1, 1);
    }
    for (int64_t c = first_channel; c < end_channel; c += MATRIX_ROWS, piece += PIECE_BYTES) {
        matrix_stream(4, piece, PIECE_BYTES / MATRIX_ROWS);
        if (two)
            matrix_stream(5, piece + stride, PIECE_BYTES / MATRIX_ROWS);
        if (first || from_zero) {
            if (from_zero)
                matrix_zero(6);
            else
                LOAD_SUMS(6, c, 0);
            if (first)
                MULTIPLY(matrix_dot_bf16, 6, 4, 0);
            if (second)
                MULTIPLY(matrix_dot_bf16, 6, 5, 1);
        }
        if (nv > 1) {
            if (c > first_channel)
                STORE_SUMS(7, c - MATRIX_ROWS, 1);
            if (from_zero)
                matrix_zero(7);
            else
                LOAD_SUMS(7, c, 1);
            MULTIPLY(matrix_dot_bf16, 7, 4, 2);
            if (two)
                MULTIPLY(matrix_dot_bf16, 7, 5, 3);
        }
        if (first || from_zero)
            STORE_SUMS(6, c, 0);
        if (nv > 1 && c + MATRIX_ROWS >= end_channel)
            STORE_SUMS(7, c, 1);
    }
}

#endif
