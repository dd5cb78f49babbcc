/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors format: eight bytes of header length, a JSON object that maps
 * each name to dtype, shape and data_offsets, then the data. The functions work
 * on memory, so that they can be fuzzed; array.c reads and output.c writes.
 */
#ifndef ATTN_IO_SAFETENSORS_H
#define ATTN_IO_SAFETENSORS_H

#include "io/array.h"

#define SAFETENSORS_PREFIX 8
/* The limit that the format itself sets. */
#define SAFETENSORS_MAX_HEADER ((uint64_t)100000000)

struct safetensors_entry {
    const char *name, *dtype; /* owned by the struct safetensors */
    size_t ndim;
    int64_t shape[ARRAY_MAX_DIMS]; /* the first ARRAY_MAX_DIMS lengths */
    uint64_t begin, end;           /* bytes from the start of the data */
};

struct json_t;

struct safetensors {
    struct json_t *root;
    size_t count;
    struct safetensors_entry *entries; /* in the order of the data */
};

/* Takes the header's length from the first bytes of a file of file_size bytes, all 8 if it has them. */
attn_status safetensors_header_length(size_t *length, const unsigned char prefix[SAFETENSORS_PREFIX],
                                      uint64_t file_size, const char *path);

/* Parses and checks the header of a file whose data part has data_size bytes. On failure there is nothing to free. */
attn_status safetensors_parse(struct safetensors *index, const char *text, size_t length, uint64_t data_size,
                              const char *path);
void safetensors_free(struct safetensors *index);

attn_status safetensors_find(const struct safetensors *index, const char *name, const char *path,
                             const struct safetensors_entry **entry);
/* Whether the tensor's dtype and rank are among those that the tools read. */
attn_status safetensors_usable(const struct safetensors_entry *entry, const char *path, struct array_shape *is,
                               struct array_storage *stored);

/*
 * Makes everything that stands before the data of the given arrays, which follow
 * each other in this order: length bytes, a multiple of 8, that the caller frees.
 * metadata is an object of strings for __metadata__, or NULL.
 */
attn_status safetensors_header_write(char **out, size_t *length, const char *const *names,
                                     const struct array *const *arrays, size_t count, struct json_t *metadata,
                                     const char *path);
/* The file's object of strings, or NULL; it belongs to the index. */
struct json_t *safetensors_metadata(const struct safetensors *index);

#endif
