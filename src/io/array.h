/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays in files, whatever the format. An input is named FILE.npy or
 * FILE.safetensors:NAME; array_open() checks the whole description against the
 * size of the file and allocates nothing for the data, array_load() then reads
 * it all, array_read() a part. Arrays are dense, in C order, little-endian.
 */
#ifndef ATTN_IO_ARRAY_H
#define ATTN_IO_ARRAY_H

#include <stddef.h>
#include <stdint.h>

#include "io/error.h"

#define ARRAY_MAX_DIMS 8

/* The element types that the tools compute with. */
enum array_dtype { ARRAY_F32, ARRAY_BOOL, ARRAY_I32, ARRAY_I64, ARRAY_F16, ARRAY_BF16 };

/* numpy's name: "float32", "bool", "int32", "int64", "float16"; and "bfloat16", which numpy itself lacks. */
const char *array_dtype_name(enum array_dtype dtype);
size_t array_dtype_size(enum array_dtype dtype);

/* What an array is, without its data. */
struct array_shape {
    enum array_dtype dtype;
    int ndim;
    int64_t shape[ARRAY_MAX_DIMS];
};

struct array {
    struct array_shape is;
    void *data;  /* NULL only before it is loaded or allocated */
    size_t size; /* bytes */
};

/* An array in a file that has been checked but not read. */
struct array_file {
    struct array_shape is;
    int fd;
    char *spec; /* as the user named it, for sentences */
    char *path;
    uint64_t offset; /* of the first element */
    uint64_t size;   /* bytes */
};

/* FILE.npy or FILE.safetensors:NAME taken apart; name is NULL for a .npy file. */
struct file_spec {
    char *path;
    char *name;
};

attn_status file_spec_parse(struct file_spec *out, const char *spec);
void file_spec_free(struct file_spec *spec);

/*
 * Bytes of an array, counting every length as at least 1, so that a shape which
 * overflows is found even when another length is 0. False when it exceeds 63 bits.
 */
bool array_bytes(const int64_t *shape, int ndim, size_t element_size, uint64_t *bytes);

attn_status array_open(struct array_file *file, const char *spec);
/*
 * The names of the tensors of a safetensors file that match a shell pattern, layer9 before layer10: *count of them, at
 * least 1, for array_names_free(). spec is FILE.safetensors:PATTERN, or FILE.safetensors for all.
 */
attn_status array_names(const char *spec, char ***names, size_t *count);
void array_names_free(char **names, size_t count);
/* Reads size bytes that start first bytes into the data; the range is the caller's to keep inside. */
attn_status array_read(const struct array_file *file, uint64_t first, void *dst, size_t size);
void array_close(struct array_file *file);

/* Opens, reads all, closes. */
attn_status array_load(struct array *array, const char *spec);
/* Allocates a zeroed array of the given shape. what names it in a sentence. */
attn_status array_allocate(struct array *array, const char *what, const struct array_shape *is);
void array_free(struct array *array);

/* Writes "(2, 3)" and returns text. */
#define ARRAY_SHAPE_TEXT 192
const char *array_shape_text(const struct array_shape *is, char text[ARRAY_SHAPE_TEXT]);

#endif
