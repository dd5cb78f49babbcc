/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for lines that will be wanted soon, for kernels and for the passes that call them.
 *
 * Each is an empty statement, too, which a compiler may not drop. A function that does nothing but prefetch is one
 * without effect to gcc 12: where it has not been inlined, calls of it go. What is always inlined into a kernel needs
 * no such care.
 */
#ifndef ATTN_PREFETCH_H
#define ATTN_PREFETCH_H

#include "kernels/kernels.h"

/** A line that will be read or, with write, written: into L2, which has room for it. */
static inline void prefetch_line(const char *p, const int write)
{
    __asm__ volatile("");
    if (write)
        __builtin_prefetch(p, 1, 2);
    else
        __builtin_prefetch(p, 0, 2);
}

/** All lines of a row of so many bytes. */
static inline void prefetch_row(const char *row, ptrdiff_t bytes, const int write)
{
    for (ptrdiff_t c = 0; c < bytes; c += ATTN_ALIGN)
        prefetch_line(row + c, write);
}

/** Rows first..end-1, of so many elements. */
static inline void prefetch_rows(const struct attn_rows *rows, int64_t first, int64_t end, int64_t width,
                                 const int write)
{
    const ptrdiff_t bytes = (ptrdiff_t)attn_row_bytes(rows->dtype, width);
    for (int64_t r = first; r < end; r++)
        prefetch_row((const char *)rows->data + r * rows->stride, bytes, write);
}

#endif
