/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of arrays that a command writes. Every output is declared before
 * anything is computed, so that a bad name costs nothing, and all are written
 * together at the end: either every file is replaced or none. Outputs named
 * FILE.safetensors:NAME with the same FILE make one file, which replaces an
 * existing one as a whole.
 */
#ifndef ATTN_IO_OUTPUT_H
#define ATTN_IO_OUTPUT_H

#include "io/array.h"

#define OUTPUT_MAX 128

struct output {
    const char *option; /* the option that asked for it, for sentences */
    char *path;         /* canonical */
    char *name;         /* of the tensor; NULL for .npy */
    const struct array *array;
};

struct output_set {
    int count;
    struct output items[OUTPUT_MAX];
};

/* Declares an output; the array is looked at only by output_write(). */
attn_status output_add(struct output_set *set, const char *option, const char *spec, const struct array *array);
/*
 * Refuses bfloat16 for an output in a .npy file, which cannot hold it. Call it as
 * soon as the type is known; why says where it comes from.
 */
attn_status output_holds(const struct output_set *set, const struct array *array, enum array_dtype dtype,
                         const char *why);
/* Refuses an output that would replace the file of the given input. */
attn_status output_spare_input(const struct output_set *set, const char *option, const char *input_spec);
attn_status output_write(const struct output_set *set);
void output_free(struct output_set *set);

#endif
