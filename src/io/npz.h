/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's .npz files: zip archives of .npy files, stored or deflated, as
 * numpy.savez and savez_compressed write them. The member of an array NAME is
 * NAME.npy. libzip knows archives; here is what may be asked of one.
 */
#ifndef ATTN_IO_NPZ_H
#define ATTN_IO_NPZ_H

#include "io/array.h"
#include "io/npy.h"
#include "io/replace.h"

struct npz; /* an open archive */

/* Opens an archive whose bytes stay where they are until npz_close(). Archives of PyTorch's are refused. */
attn_status npz_open(struct npz **npz, const unsigned char *bytes, size_t size, const char *path);
void npz_close(struct npz *npz);

/* Entries that are no arrays count, too; their name is NULL. Names are paths in the archive alone, never of files. */
size_t npz_count(const struct npz *npz);
/* The array's name without ".npy", in memory that the caller frees. */
attn_status npz_name(struct npz *npz, size_t index, char **name);

/* Reads and checks the description of an array; *index is for npz_read(). */
attn_status npz_find(struct npz *npz, const char *name, size_t *index, struct npy_header *header);
/* Unpacks header->data_size bytes of data, and compares the archive's checksum. */
attn_status npz_read(struct npz *npz, size_t index, const struct npy_header *header, void *dst);

/* Writes an archive, of the same bytes for the same arrays. */
attn_status npz_write(struct replacement *file, const char *const *names, const struct array *const *arrays,
                      size_t count, bool compressed);

#endif
