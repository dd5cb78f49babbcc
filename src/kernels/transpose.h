/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves matrices between memory order (a row per query) and lane order (a
 * column per query), VF_LEN x VF_LEN elements at a time in registers. Rows
 * are found through pointers, so that they may lie anywhere.
 */
#ifndef ATTN_TRANSPOSE_H
#define ATTN_TRANSPOSE_H

#include "kernels/rows.h"

/* So few rows take a fraction of the shuffles, and are what a short sequence has. */
#define FEW_ROWS  (VF_LEN < 4 ? VF_LEN : 4)
#define SOME_ROWS (VF_LEN < 8 ? VF_LEN : 8)

/** One block of read_rows: n rows of most, of VF_LEN, 8 or 4, from column c on, cols <= VF_LEN of them; the others are
 * 0.
 */
ATTN_INLINE void transpose_block(const attn_dtype dtype, const int most, float *dst, ptrdiff_t pitch,
                                 const char *const *rows, int64_t c, int n, int cols, vf factor)
{
    const ptrdiff_t at = c * attn_element_size(dtype);
    vf a[VF_LEN];
    if (cols == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < most; i++)
            a[i] = i < n ? vf_mul(row_load(dtype, rows[i] + at), factor) : vf_zero();
    } else {
        for (int i = 0; i < most; i++)
            a[i] = i < n ? vf_mul(row_load_tail(dtype, rows[i] + at, cols), factor) : vf_zero();
    }
    if (most == 4)
        vf_transpose_from4(a);
    else if (most == 8)
        vf_transpose_from8(a);
    else
        vf_transpose(a);
    if (cols == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            vf_store(dst + (c + i) * pitch, a[i]);
    } else {
        for (int i = 0; i < cols; i++)
            vf_store(dst + (c + i) * pitch, a[i]);
    }
}

ATTN_INLINE void read_rows_body(const attn_dtype dtype, float *dst, ptrdiff_t pitch, int width, const char *const *rows,
                                int n, int64_t cols, float factor)
{
    const vf f = vf_set1(factor);
    for (int r = 0; r < width; r += VF_LEN) {
        const int nr = n - r < VF_LEN ? (n > r ? n - r : 0) : VF_LEN;
        for (int64_t c = 0; c < cols; c += VF_LEN) {
            const int nc = cols - c < VF_LEN ? (int)(cols - c) : VF_LEN;
            if (nr <= FEW_ROWS)
                transpose_block(dtype, FEW_ROWS, dst + r, pitch, rows + r, c, nr, nc, f);
            else if (nr <= SOME_ROWS)
                transpose_block(dtype, SOME_ROWS, dst + r, pitch, rows + r, c, nr, nc, f);
            else
                transpose_block(dtype, VF_LEN, dst + r, pitch, rows + r, c, nr, nc, f);
        }
    }
}

static void read_rows(float *dst, ptrdiff_t pitch, int width, const char *const *rows, attn_dtype dtype, int n,
                      int64_t cols, float factor)
{
    ATTN_BY_DTYPE(dtype, read_rows_body, dst, pitch, width, rows, n, cols, factor);
}

/** vf_transpose() of which the first most rows, VF_LEN, 8 or 4, are wanted. */
ATTN_INLINE void transpose_to(const int most, vf a[VF_LEN])
{
    if (most == 4)
        vf_transpose_to4(a);
    else if (most == 8)
        vf_transpose_to8(a);
    else
        vf_transpose(a);
}

/** One block of write_rows: n rows of most, of VF_LEN, 8 or 4, cols <= VF_LEN columns from column c on. */
ATTN_INLINE void write_block(const attn_dtype dtype, const int most, char *const *rows, const float *src, int width,
                             int64_t c, int n, int cols, vf factor)
{
    const ptrdiff_t at = c * attn_element_size(dtype);
    vf a[VF_LEN];
    if (cols == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            a[i] = vf_fma(vf_load(src + (c + i) * width), factor, vf_zero());
    } else {
        for (int i = 0; i < VF_LEN; i++)
            a[i] = i < cols ? vf_fma(vf_load(src + (c + i) * width), factor, vf_zero()) : vf_zero();
    }
    transpose_to(most, a);
    if (cols == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < most; i++)
            if (i < n)
                row_store(dtype, rows[i] + at, a[i]);
    } else {
        for (int i = 0; i < n; i++)
            row_store_tail(dtype, rows[i] + at, a[i], cols);
    }
}

/** The same of 2 * VF_LEN columns of half the size of a float: rounded first, they are half as many to be turned. */
ATTN_INLINE void write_pairs(const attn_dtype dtype, const int most, char *const *rows, const float *src, int width,
                             int64_t c, int n, vf factor)
{
    vf a[VF_LEN];
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++) {
        const float *const at = src + (c + 2 * i) * width;
        const vf first = vf_fma(vf_load(at), factor, vf_zero()),
                 second = vf_fma(vf_load(at + width), factor, vf_zero());
        a[i] = vf_of_bits(dtype == ATTN_BF16 ? vf_pair_bf16(first, second) : vf_pair_f16(first, second));
    }
    transpose_to(most, a);
    ATTN_UNROLL
    for (int i = 0; i < most; i++)
        if (i < n)
            vu_store(rows[i] + c * attn_element_size(dtype), vu_bits_of(a[i]));
}

/** Columns of n rows of most. */
ATTN_INLINE void write_columns(const attn_dtype dtype, const int most, char *const *rows, const float *src, int width,
                               int n, int64_t cols, vf factor)
{
    int64_t c = 0;
    for (; dtype != ATTN_F32 && c + 2 * VF_LEN <= cols; c += 2 * VF_LEN)
        write_pairs(dtype, most, rows, src, width, c, n, factor);
    for (; c < cols; c += VF_LEN)
        write_block(dtype, most, rows, src, width, c, n, cols - c < VF_LEN ? (int)(cols - c) : VF_LEN, factor);
}

ATTN_INLINE void write_rows_body(const attn_dtype dtype, char *const *rows, const float *src, int width, int n,
                                 int64_t cols, const float *factor)
{
    for (int r = 0; r < n; r += VF_LEN) {
        const int nr = n - r < VF_LEN ? n - r : VF_LEN;
        const vf f = vf_load_tail(factor + r, nr);
        if (nr <= FEW_ROWS)
            write_columns(dtype, FEW_ROWS, rows + r, src + r, width, nr, cols, f);
        else if (nr <= SOME_ROWS)
            write_columns(dtype, SOME_ROWS, rows + r, src + r, width, nr, cols, f);
        else
            write_columns(dtype, VF_LEN, rows + r, src + r, width, nr, cols, f);
    }
}

ATTN_INLINE void write_few_body(const attn_dtype dtype, char *const *rows, const float *src, int n, int64_t cols,
                                const float *factor)
{
    for (int r = 0; r < n; r++, src += cols) {
        const vf f = vf_set1(factor[r]);
        for (int64_t c = 0; c < cols; c += VF_LEN) {
            const int rest = cols - c < VF_LEN ? (int)(cols - c) : VF_LEN;
            char *const at = rows[r] + c * attn_element_size(dtype);
            if (rest == VF_LEN)
                row_store(dtype, at, vf_fma(vf_load(src + c), f, vf_zero()));
            else
                row_store_tail(dtype, at, vf_fma(vf_load_tail(src + c, rest), f, vf_zero()), rest);
        }
    }
}

/** struct attn_vector_kernels, write_few. */
static void write_few(char *const *rows, attn_dtype dtype, const float *src, int n, int64_t cols, const float *factor)
{
    ATTN_BY_DTYPE(dtype, write_few_body, rows, src, n, cols, factor);
}

static void write_rows(char *const *rows, attn_dtype dtype, const float *src, int width, int n, int64_t cols,
                       const float *factor)
{
    ATTN_BY_DTYPE(dtype, write_rows_body, rows, src, width, n, cols, factor);
}

#endif
