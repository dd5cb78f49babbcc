/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays in files, whatever the format. An input is named FILE.npy, FILE.npz:NAME
 * or FILE.safetensors:NAME, and of standard input - or -:NAME; array_open() checks
 * the whole description against the size of the file and allocates nothing for the
 * data, array_take() then gives it all, array_read() a part. Arrays are dense, in
 * C order, little-endian; what a file holds otherwise is converted, and a note says so.
 */
#ifndef ATTN_IO_ARRAY_H
#define ATTN_IO_ARRAY_H

#include <stddef.h>
#include <stdint.h>

#include "io/bytes.h"
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

/* Data of a file may be mapped, read-only: only an array that was allocated may be written to. */
struct array {
    struct array_shape is;
    void *data;               /* NULL only before it is loaded or allocated */
    size_t size;              /* bytes */
    struct file_bytes *bytes; /* the file that data points into, or NULL where data was allocated */
};

/* How an array lies in a file, where that differs from what the tools compute with. */
struct array_storage {
    size_t element_size;
    bool is_f64;  /* and becomes float32 */
    bool swapped; /* big-endian */
    bool fortran; /* the first axis is the innermost */
};

/* An array in a file that has been checked but not read. A zeroed one is closed. */
struct array_file {
    struct array_shape is;
    char *spec;    /* as the user named it, for sentences */
    uint64_t size; /* bytes, after conversion */
    struct array_contents *contents;
};

/* FILE:NAME taken apart; name is NULL where there is none. */
struct file_spec {
    char *path; /* "-" is standard input */
    char *name;
};

attn_status file_spec_parse(struct file_spec *out, const char *spec);
void file_spec_free(struct file_spec *spec);
/* Whether a path ends with the suffix of a file that holds several arrays: .safetensors or .npz. */
bool file_spec_is_container(const char *path);

/*
 * Bytes of an array, counting every length as at least 1, so that a shape which
 * overflows is found even when another length is 0. False when it exceeds 63 bits.
 */
bool array_bytes(const int64_t *shape, int ndim, size_t element_size, uint64_t *bytes);

attn_status array_open(struct array_file *file, const char *spec);
/* An array of a container that is open already. */
struct container;
attn_status array_open_member(struct array_file *file, struct container *container, const char *name);
/* Copies size bytes that start first bytes into the data; the range is the caller's to keep inside. */
attn_status array_read(const struct array_file *file, uint64_t first, void *dst, size_t size);
/* All of the data: mapped where it lies in the file as it is needed. The file may be closed before the array is freed.
 */
attn_status array_take(struct array *array, struct array_file *file);
void array_close(struct array_file *file);

/* Opens, takes all, closes. */
attn_status array_load(struct array *array, const char *spec);

/* The arrays of a file that holds several, which stays open. */
struct array_names {
    char *path;
    struct container *container;
    char **names;
    size_t count;
};

/*
 * Those whose names match a shell pattern, layer9 before layer10, at least one. spec is FILE:PATTERN, or FILE for all.
 * A .npy file is refused. A name that is the pattern matches whatever is in it.
 */
attn_status array_names_open(struct array_names *out, const char *spec);
void array_names_free(struct array_names *names);
/* Allocates a zeroed array of the given shape. what names it in a sentence. */
attn_status array_allocate(struct array *array, const char *what, const struct array_shape *is);
void array_free(struct array *array);

/* Writes "(2, 3)" and returns text. */
#define ARRAY_SHAPE_TEXT 192
const char *array_shape_text(const struct array_shape *is, char text[ARRAY_SHAPE_TEXT]);

#endif
