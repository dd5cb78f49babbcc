/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding (Su et al. 2021, section 3.4.2): channels are
 * turned in pairs, (x, y) to (x cos - y sin, y cos + x sin), in f32.
 *
 * A row of the table has the cosines of all pairs and then their sines, so
 * that VF_LEN pairs read each with one load. Rows are rotated one at a time,
 * and a vector of pairs is read in full before any of it is written: a row may
 * be rotated in place. A pair's result depends on nothing but the pair, and is
 * computed alike in vectors and in the tail.
 */
#ifndef ATTN_KERNELS_ROPE_H
#define ATTN_KERNELS_ROPE_H

#include "kernels/rows.h"

#include <assert.h>

/** n of VF_LEN elements, the rest 0. */
ATTN_INLINE vf rope_load(const attn_dtype dtype, const char *p, const int n)
{
    return n == VF_LEN ? row_load(dtype, p) : row_load_tail(dtype, p, n);
}

ATTN_INLINE void rope_store(const attn_dtype dtype, char *p, vf a, const int n)
{
    if (n == VF_LEN)
        row_store(dtype, p, a);
    else
        row_store_tail(dtype, p, a, n);
}

/** The pairs first to first + n - 1 of a row, n <= VF_LEN. */
ATTN_INLINE void rotate_pairs(const attn_dtype from, const attn_dtype to, const attn_rope_layout layout, char *dst,
                              const char *src, const float *table, int64_t pairs, int64_t first, const int n)
{
    const ptrdiff_t in = attn_element_size(from), out = attn_element_size(to);
    const vf cosine = rope_load(ATTN_F32, (const char *)(table + first), n);
    const vf sine = rope_load(ATTN_F32, (const char *)(table + pairs + first), n);
    /* Interleaved pairs fill a vector and as much of a second one as is left over. */
    const int head = 2 * n < VF_LEN ? 2 * n : VF_LEN, rest = 2 * n - head;
    vf x, y;
    if (layout == ATTN_ROPE_HALF_SPLIT) {
        x = rope_load(from, src + first * in, n);
        y = rope_load(from, src + (pairs + first) * in, n);
    } else {
        const vf a = rope_load(from, src + 2 * first * in, head);
        const vf b = rest > 0 ? rope_load(from, src + (2 * first + VF_LEN) * in, rest) : vf_zero();
        vf_deinterleave(a, b, &x, &y);
    }
    vf turned_x = vf_fma(y, vf_mul(sine, vf_set1(-1)), vf_mul(x, cosine));
    vf turned_y = vf_fma(x, sine, vf_mul(y, cosine));
    if (layout == ATTN_ROPE_HALF_SPLIT) {
        rope_store(to, dst + first * out, turned_x, n);
        rope_store(to, dst + (pairs + first) * out, turned_y, n);
    } else {
        vf_interleave(turned_x, turned_y, &x, &y);
        rope_store(to, dst + 2 * first * out, x, head);
        if (rest > 0)
            rope_store(to, dst + (2 * first + VF_LEN) * out, y, rest);
    }
}

/** Channels first to width - 1, which are not rotated. */
ATTN_INLINE void rope_copy(const attn_dtype from, const attn_dtype to, char *dst, const char *src, int64_t first,
                           int64_t width)
{
    const ptrdiff_t in = attn_element_size(from), out = attn_element_size(to);
    if (from == to) { /* bit by bit, so that in place, where nothing is to be done, is no different */
        if (dst != src && first < width)
            memcpy(dst + first * out, src + first * in, (size_t)((width - first) * out));
        return;
    }
    int64_t c = first;
    for (; c + VF_LEN <= width; c += VF_LEN)
        row_store(to, dst + c * out, row_load(from, src + c * in));
    if (c < width)
        row_store_tail(to, dst + c * out, row_load_tail(from, src + c * in, (int)(width - c)), (int)(width - c));
}

/** To memory, or past the caches where streams. */
ATTN_INLINE void copy_store(char *p, vu a, const int streams)
{
    if (streams)
        vu_stream(p, a);
    else
        vu_store(p, a);
}

/** A row of whole vectors, as many as are written; the same bytes where types are the same. */
ATTN_INLINE void copy_vectors(const attn_dtype from, const attn_dtype to, char *dst, const char *src, int64_t width,
                              const int streams)
{
    const ptrdiff_t in = attn_element_size(from), out = attn_element_size(to), bytes = VF_LEN * ATTN_WORD;
    for (ptrdiff_t at = 0; at < width * out; at += bytes) {
        const char *const some = src + at / out * in;
        if (from == to) {
            copy_store(dst + at, vu_load(some), streams);
        } else if (to == ATTN_F32) {
            copy_store(dst + at, vu_bits_of(row_load(from, some)), streams);
        } else {
            const vf a = row_load(from, some), b = row_load(from, some + VF_LEN * in);
            copy_store(dst + at, to == ATTN_BF16 ? vf_narrow_bf16(a, b) : vf_narrow_f16(a, b), streams);
        }
    }
}

ATTN_INLINE void copy_from_to(const attn_dtype from, const attn_dtype to, const struct attn_rows *dst,
                              const struct attn_rows *src, int64_t n, int64_t width, int streams)
{
    const int whole = width * attn_element_size(to) % (VF_LEN * ATTN_WORD) == 0;
    for (int64_t i = 0; i < n; i++) {
        if (streams)
            copy_vectors(from, to, row_at(dst, i), row_at(src, i), width, 1);
        else if (whole && from != to)
            copy_vectors(from, to, row_at(dst, i), row_at(src, i), width, 0);
        else
            rope_copy(from, to, row_at(dst, i), row_at(src, i), 0, width);
    }
}

ATTN_INLINE void copy_to(const attn_dtype to, const struct attn_rows *dst, const struct attn_rows *src, int64_t n,
                         int64_t width, int streams)
{
    ATTN_BY_DTYPE(src->dtype, copy_from_to, to, dst, src, n, width, streams);
}

/** rotate_rows() of rows without pairs, which are copied, or rounded to dst's type. */
static void copy_rows(const struct attn_rows *dst, const struct attn_rows *src, int64_t n, int64_t width, int streams)
{
    ATTN_BY_DTYPE(dst->dtype, copy_to, dst, src, n, width, streams);
}

ATTN_INLINE void rotate_row(const attn_dtype from, const attn_dtype to, const attn_rope_layout layout, char *dst,
                            const char *src, const float *table, int64_t pairs, int64_t width)
{
    int64_t c = 0;
    for (; c + VF_LEN <= pairs; c += VF_LEN)
        rotate_pairs(from, to, layout, dst, src, table, pairs, c, VF_LEN);
    if (c < pairs)
        rotate_pairs(from, to, layout, dst, src, table, pairs, c, (int)(pairs - c));
    rope_copy(from, to, dst, src, 2 * pairs, width);
}

ATTN_INLINE void rotate_from_to(const attn_dtype from, const attn_dtype to, const struct attn_rows *dst,
                                const struct attn_rows *src, const float *table, ptrdiff_t table_stride, int64_t n,
                                int64_t pairs, int64_t width, attn_rope_layout layout)
{
    if (layout == ATTN_ROPE_HALF_SPLIT) {
        for (int64_t i = 0; i < n; i++)
            rotate_row(from, to, ATTN_ROPE_HALF_SPLIT, row_at(dst, i), row_at(src, i), table + i * table_stride, pairs,
                       width);
    } else {
        for (int64_t i = 0; i < n; i++)
            rotate_row(from, to, ATTN_ROPE_INTERLEAVED, row_at(dst, i), row_at(src, i), table + i * table_stride, pairs,
                       width);
    }
}

ATTN_INLINE void rotate_to(const attn_dtype to, const struct attn_rows *dst, const struct attn_rows *src,
                           const float *table, ptrdiff_t table_stride, int64_t n, int64_t pairs, int64_t width,
                           attn_rope_layout layout)
{
    ATTN_BY_DTYPE(src->dtype, rotate_from_to, to, dst, src, table, table_stride, n, pairs, width, layout);
}

/**
 * Rotates n rows of width channels: row i of dst is row i of src turned by row i
 * of the table (table_stride floats apart, 0: all by the same one). Channels
 * behind 2 * pairs are copied. Where dst has another type than f32, numbers are
 * rounded once, on their way out. It may be src, but must not overlap it in
 * another way.
 */
static void rotate_rows(const struct attn_rows *dst, const struct attn_rows *src, const float *table,
                        ptrdiff_t table_stride, int64_t n, int64_t pairs, int64_t width, attn_rope_layout layout)
{
    assert(2 * pairs <= width);
    assert(dst->dtype == src->dtype || dst->data != src->data);
    ATTN_BY_DTYPE(dst->dtype, rotate_to, dst, src, table, table_stride, n, pairs, width, layout);
}

#endif
