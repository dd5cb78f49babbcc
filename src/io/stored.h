/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that a file holds in another way than the tools compute with: float64,
 * Fortran order, big-endian; and conversions between the types of floats.
 */
#ifndef ATTN_IO_STORED_H
#define ATTN_IO_STORED_H

#include "io/array.h"

/* Whether the bytes in the file are those of the array that is described by is. */
bool stored_as_is(const struct array_storage *stored);

/*
 * Converts the bytes of a file at src, at any address, to an array at dst, and notes
 * on stderr what has been converted. float64 is rounded to nearest, ties to even; what
 * is beyond float32 becomes an infinity, and the note counts these.
 */
void stored_convert(void *dst, const struct array_shape *is, const struct array_storage *stored,
                    const unsigned char *src, const char *spec);

/*
 * An array of floats in another type of floats, allocated; rounded as above, and
 * finite numbers that become infinite are noted. what names it in sentences.
 */
attn_status stored_as_dtype(struct array *out, const struct array *in, enum array_dtype dtype, const char *what);

#endif
