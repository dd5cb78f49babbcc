/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of K and V as they are stored: their bytes and scales by type, and the order
 * that the numbers of ATTN_I4 have in their elements.
 */
#ifndef ATTN_STORED_H
#define ATTN_STORED_H

#include "attn/attn.h"

#include <stddef.h>
#include <stdint.h>

/** attn_dtype_size() of a type that has been checked, without a call; not of ATTN_I4, whose rows have bytes alone. */
static inline ptrdiff_t attn_element_size(attn_dtype dtype)
{
    return dtype == ATTN_F32 ? 4 : dtype == ATTN_BF16 || dtype == ATTN_F16 ? 2 : 1;
}

/** Bytes that n elements of a stride are: of ATTN_I4 a number of whole groups. */
static inline int64_t attn_bytes_of(attn_dtype dtype, int64_t n)
{
    return dtype == ATTN_I4 ? n / 2 : n * attn_element_size(dtype);
}

/** Groups of n channels that a type has a scale for, where that is not each row. */
static inline int64_t attn_groups_of(int64_t n)
{
    return n / ATTN_I4_GROUP + (n % ATTN_I4_GROUP != 0);
}

/** Bytes of a row of n channels. */
static inline int64_t attn_row_bytes(attn_dtype dtype, int64_t n)
{
    return dtype == ATTN_I4 ? attn_groups_of(n) * (ATTN_I4_GROUP / 2) : n * attn_element_size(dtype);
}

/** Scales of a row of n channels, of a type that has scales. */
static inline int64_t attn_row_scales(attn_dtype dtype, int64_t n)
{
    return dtype == ATTN_I4 ? attn_groups_of(n) : 1;
}

/** Whether rows of a type have scales: an element is its number times that of its row or group, rounded to f32. */
static inline int attn_is_quantised(attn_dtype dtype)
{
    return dtype == ATTN_I8 || dtype == ATTN_F8_E4M3 || dtype == ATTN_I4;
}

/** Whether turning keys of a type takes less time than adding up sums across lanes, as they are widened faster in
 * columns than in rows: where sums are free, they are ordered ones. scores_free() takes such keys in pairs alone
 * (struct attn_kernels exact_pairs). */
static inline int attn_turns_faster(attn_dtype dtype)
{
    return dtype == ATTN_F8_E4M3 || dtype == ATTN_I4;
}

/** Words of a row of Q for keys of ATTN_I4 in pairs: those of whole slices of 128 channels, in the order of the numbers
 * (kernels/int4_pairs.h). */
static inline int64_t attn_int4_words(int64_t channels)
{
    return (channels + 127) / 128 * 64;
}

/** The channel of a slice that element i of such a row belongs to: i is [number in its element][group][element]. */
static inline int attn_int4_channel(int i)
{
    const int number = i / 32, group = i % 32 / 8, element = i % 8;
    return group * ATTN_I4_GROUP + number % 2 * (ATTN_I4_GROUP / 2) + 2 * element + number / 2;
}

#endif
