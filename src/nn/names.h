/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights by prefix and name, as the layers' loaders ask for them.
 */
#ifndef ATTN_NN_NAMES_H
#define ATTN_NN_NAMES_H

#include "attn/nn.h"

/** That there are weights and a prefix. */
attn_status nn_check_weights_set(const attn_weights *weights, const char *prefix);

/** Whether prefix followed by name is there. */
int nn_has(const attn_weights *weights, const char *prefix, const char *name);

/** attn_weights_get() of prefix followed by name. */
attn_status nn_get(const attn_weights *weights, const char *prefix, const char *name, int64_t rows, int64_t columns,
                   attn_tensor *tensor);

/** The same, or a tensor with data NULL if there is none of that name. */
attn_status nn_get_optional(const attn_weights *weights, const char *prefix, const char *name, int64_t rows,
                            int64_t columns, attn_tensor *tensor);

/** A copy of a vector or matrix as contiguous floats, in memory of its own; *copy is NULL for data NULL. */
attn_status nn_copy_floats(const attn_tensor *tensor, float **copy);

/** A prefix, or a name in full. */
struct nn_prefix {
    char text[512];
};
/** prefix followed by name; longer ones than there is room for are an error. */
attn_status nn_joined(struct nn_prefix *out, const char *prefix, const char *name);
/** The same followed by a number: "encoder.layers.3." */
attn_status nn_numbered(struct nn_prefix *out, const char *prefix, const char *middle, int64_t number);

#endif
