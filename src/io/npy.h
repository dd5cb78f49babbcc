/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's .npy format, versions 1.0, 2.0 and 3.0 (numpy/lib/format.py has the
 * description). npy_parse() works on bytes in memory and touches no file, so
 * that it can be fuzzed; array.c does the reading.
 */
#ifndef ATTN_IO_NPY_H
#define ATTN_IO_NPY_H

#include "io/array.h"

/* Real headers have about 120 bytes; more than this is refused unread. */
#define NPY_MAX_HEADER ((size_t)65536)
/* Magic, version and a four-byte length, then the header. */
#define NPY_MAX_PREFIX (NPY_MAX_HEADER + 12)

struct npy_header {
    struct array_shape is;       /* as it is after conversion */
    struct array_storage stored; /* as it is in the file */
    size_t data_offset;
    uint64_t data_size; /* bytes; data_offset + data_size is the size of the file */
};

/*
 * Parses the first available bytes of a file of file_size bytes; available is
 * the smaller of file_size and NPY_MAX_PREFIX. path is for sentences only.
 */
attn_status npy_parse(struct npy_header *header, const unsigned char *bytes, size_t available, uint64_t file_size,
                      const char *path);

/*
 * Writes everything that stands before the data (a multiple of 64 bytes) and
 * returns its length. bfloat16 is '<V2', two raw bytes, as ml_dtypes has it written:
 * numpy.load(FILE).view(ml_dtypes.bfloat16) reads it.
 */
#define NPY_HEADER_SPACE 512
size_t npy_header_write(char out[NPY_HEADER_SPACE], const struct array_shape *is);

#endif
