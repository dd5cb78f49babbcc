/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of arrays that a command writes. Every output is declared before
 * anything is computed, so that a bad name costs nothing, and all are written
 * together at the end: either every file is replaced or none. Outputs named
 * FILE.safetensors:NAME or FILE.npz:NAME with the same FILE make one file, which
 * replaces an existing one as a whole. "-" is standard output, one .npy file, and
 * -:NAME makes a container of it; it is written when all files are complete, before
 * they are put in place.
 */
#ifndef ATTN_IO_OUTPUT_H
#define ATTN_IO_OUTPUT_H

#include "io/array.h"

struct json_t;

struct output {
    const char *option; /* the option that asked for it, for sentences */
    char *path;         /* canonical; "-" for standard output */
    char *name;         /* of the array in its file; NULL for .npy */
    const struct array *array;
};

/* A zeroed one is empty. */
struct output_set {
    int count, space;
    struct output *items;
    bool standard_npz;                         /* a container on standard output is .npz, not safetensors */
    bool compressed;                           /* arrays in .npz files are deflated */
    struct json_t *metadata;                   /* of safetensors files, or NULL; the caller's */
    void (*written)(void *user, size_t bytes); /* is told of bytes as they are written, or NULL */
    void *user;
};

/* Declares an output; the array is looked at only by output_write(). */
attn_status output_add(struct output_set *set, const char *option, const char *spec, const struct array *array);
/* Refuses an output that would replace the file of the given input. */
attn_status output_spare_input(const struct output_set *set, const char *option, const char *input_spec);
attn_status output_write(const struct output_set *set);
void output_free(struct output_set *set);

#endif
