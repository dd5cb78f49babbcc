/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of rows whose type the layers choose: f32, bf16 or f16, computed with
 * in f32 and rounded once.
 *
 * Bodies that take the types of x and out as constants are compiled for f32 and
 * for bf16; any other pair goes through the same body with types that are known
 * at run time, for the same bits.
 */
#ifndef ATTN_NN_TYPED_H
#define ATTN_NN_TYPED_H

#include "kernels/rows.h"
#include "nn/kernels/nn_kernels.h"

#define NN_BY_TYPES(from, to, body, ...)                                                                               \
    do {                                                                                                               \
        if ((from) == ATTN_F32 && (to) == ATTN_F32)                                                                    \
            body(ATTN_F32, ATTN_F32, __VA_ARGS__);                                                                     \
        else if ((from) == ATTN_BF16 && (to) == ATTN_BF16)                                                             \
            body(ATTN_BF16, ATTN_BF16, __VA_ARGS__);                                                                   \
        else                                                                                                           \
            body(from, to, __VA_ARGS__);                                                                               \
    } while (0)

/** Elements c.. of a row, n of them: 1 to VF_LEN. */
ATTN_INLINE vf typed_load(const attn_dtype dtype, const void *row, int64_t c, int n)
{
    const char *p = (const char *)row + c * attn_element_size(dtype);
    return n < VF_LEN ? row_load_tail(dtype, p, n) : row_load(dtype, p);
}

ATTN_INLINE void typed_store(const attn_dtype dtype, void *row, int64_t c, vf a, int n)
{
    char *p = (char *)row + c * attn_element_size(dtype);
    if (n < VF_LEN)
        row_store_tail(dtype, p, a, n);
    else
        row_store(dtype, p, a);
}

#endif
