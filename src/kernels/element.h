/* SPDX-License-Identifier: Apache-2.0 */
/* One element of a tensor of floats of any width, for code that has no vectors or needs none. */
#ifndef ATTN_ELEMENT_H
#define ATTN_ELEMENT_H

#include "attn/types.h"
#include "simd/half.h"

/** Element i of an array of any of the three types. */
static inline float element_at(attn_dtype dtype, const void *p, ptrdiff_t i)
{
    if (dtype == ATTN_F32)
        return ((const float *)p)[i];
    const uint16_t half = ((const uint16_t *)p)[i];
    return dtype == ATTN_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

#endif
