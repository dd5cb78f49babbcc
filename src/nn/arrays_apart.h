/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the many arrays of a model lie apart: a sweep over their extents in
 * the order of their addresses, where nn_check_apart() compares every pair.
 */
#ifndef ATTN_NN_ARRAYS_APART_H
#define ATTN_NN_ARRAYS_APART_H

#include "attn/types.h"

/** Where a tensor lies, and what it is called. */
struct nn_array {
    int64_t start, end; /**< addresses */
    const char *owner;  /**< "gradients." and the like, in front of name */
    const char *name;   /**< "words"; of a layer "encoder" */
    int64_t layer;      /**< -1: of none */
    int written;
    const void *weights; /**< of a gradient that is added to what there is: it may lie where that of the same weights
                              lies; NULL: it shares with none */
};

/** Begins with a list that has room. */
struct nn_arrays {
    struct nn_array *list;
    int64_t count;
};

/** Adds a tensor that has been checked as another array's data; without data or elements it is left out. */
void nn_arrays_add(struct nn_arrays *arrays, const attn_tensor *tensor, const struct nn_array *as);

/** That no array that is written overlaps another one; sorts the list. */
attn_status nn_arrays_check(struct nn_arrays *arrays);

#endif
