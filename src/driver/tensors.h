/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of which rows are handed to kernels. The stride of an axis of length 1, and
 * those of tensors without elements, may be anything: here they are 0, so that they can
 * be multiplied by any index.
 */
#ifndef ATTN_DRIVER_TENSORS_H
#define ATTN_DRIVER_TENSORS_H

#include "kernels/kernels.h"

static inline int attn_has_elements(const attn_tensor *t)
{
    return t->shape[0] && t->shape[1] && t->shape[2] && t->shape[3];
}

/** Elements from one index of an axis to the next. */
static inline int64_t attn_step_of(const attn_tensor *t, int axis)
{
    return t->shape[axis] > 1 && attn_has_elements(t) ? t->stride[axis] : 0;
}

/** The same tensor with such steps for strides, and with axes 1 and 2 exchanged if they are to be. */
static inline attn_tensor attn_arranged(const attn_tensor *t, int swapped)
{
    attn_tensor a = *t;
    for (int axis = 0; axis < 3; axis++) {
        const int from = swapped && axis > 0 ? 3 - axis : axis;
        a.shape[axis] = t->shape[from];
        a.stride[axis] = attn_step_of(t, from);
    }
    return a;
}

/** The address of a row of an arranged tensor. */
static inline void *attn_row_at(const attn_tensor *t, int64_t b, int64_t far, int64_t near)
{
    return (char *)t->data + attn_bytes_of(t->dtype, b * t->stride[0] + far * t->stride[1] + near * t->stride[2]);
}

/** Its rows from there on, along axis 2. */
static inline struct attn_rows attn_rows_at(const attn_tensor *t, int64_t b, int64_t far, int64_t near)
{
    return (struct attn_rows){.data = attn_row_at(t, b, far, near),
                              .stride = (ptrdiff_t)attn_bytes_of(t->dtype, t->stride[2]),
                              .dtype = t->dtype};
}

#endif
