/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of a model that is trained: by name, with their gradients and
 * what AdamW keeps of each; and the files that hold them, in safetensors. A
 * checkpoint has, for a parameter w, the tensors w, mean.w and square.w.
 */
#ifndef ATTN_EXAMPLES_PARAMETERS_H
#define ATTN_EXAMPLES_PARAMETERS_H

#include <attn/nn.h>
#include <stdbool.h>

#include "io/array.h"

enum { PARAMETERS_MOST = 256 };

/* Begins as {0}. */
struct parameters {
    int count;
    char *names[PARAMETERS_MOST];
    attn_tensor values[PARAMETERS_MOST], gradients[PARAMETERS_MOST]; /* (1, 1, rows, columns) */
    attn_parameter all[PARAMETERS_MOST];
    bool vector[PARAMETERS_MOST]; /* of one axis in files */
};

/* Adds one of zeros and returns its number in *which; rows 0 stands for a vector. */
attn_status parameters_add(struct parameters *p, const char *name, int64_t rows, int64_t columns, int *which);
void parameters_free(struct parameters *p);

/* An array of a checkpoint that is no parameter. */
struct extra {
    const char *name;
    struct array *array;
};

/* Writes the values, with moments those too, and what there is besides; the file appears whole or not at all. */
attn_status parameters_write(const struct parameters *p, const char *path, bool moments, const struct extra *extras,
                             int num_extras);
/* Reads values and moments, and extras, whose arrays the caller frees. */
attn_status parameters_read(struct parameters *p, const char *path, const struct extra *extras, int num_extras);

#endif
