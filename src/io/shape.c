/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and shapes of arrays: names, sizes, words for sentences. The data is
 * array.c's, and libattn_nn, which reads no arrays but tensors, needs only these.
 */
#include <inttypes.h>
#include <stdio.h>

#include "io/array.h"

const char *array_dtype_name(enum array_dtype dtype)
{
    static const char *const names[] = {"float32", "bool", "int32", "int64", "float16", "bfloat16"};
    return names[dtype];
}

size_t array_dtype_size(enum array_dtype dtype)
{
    static const size_t sizes[] = {4, 1, 4, 8, 2, 2};
    return sizes[dtype];
}

const char *array_shape_text(const struct array_shape *is, char text[ARRAY_SHAPE_TEXT])
{
    /* Eight lengths of at most 20 characters and separators always fit. */
    int at = snprintf(text, ARRAY_SHAPE_TEXT, "(");
    for (int i = 0; i < is->ndim; i++)
        at += snprintf(text + at, ARRAY_SHAPE_TEXT - (size_t)at, i > 0 ? ", %" PRId64 : "%" PRId64, is->shape[i]);
    snprintf(text + at, ARRAY_SHAPE_TEXT - (size_t)at, is->ndim == 1 ? ",)" : ")");
    return text;
}

bool array_bytes(const int64_t *shape, int ndim, size_t element_size, uint64_t *bytes)
{
    uint64_t bound = element_size, product = element_size;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return false;
        uint64_t length = (uint64_t)shape[i];
        if (length > 0 && bound > (uint64_t)INT64_MAX / length)
            return false;
        bound *= length > 0 ? length : 1;
        product *= length;
    }
    *bytes = product;
    return true;
}
