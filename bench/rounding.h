/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers in narrow types: what a case's tensors hold, and the floats that they stand for.
 */
#ifndef BENCH_ROUNDING_H
#define BENCH_ROUNDING_H

#include "attn/attn.h"

#include <stdbool.h>

/** Scales of a row of so many channels; 0 where the type has none. */
static inline int64_t bench_scales(attn_dtype dtype, int64_t width)
{
    return dtype == ATTN_I4 ? (width + ATTN_I4_GROUP - 1) / ATTN_I4_GROUP : dtype == ATTN_I8 || dtype == ATTN_F8_E4M3;
}

/** Whether rows of that type have scales. */
static inline bool bench_quantised(attn_dtype dtype)
{
    return bench_scales(dtype, 1) > 0;
}

/**
 * Rounds n rows of width floats to out, of any type but f32, and x to what out stands for. scales: [n][bench_scales()],
 * where the type has some.
 */
void bench_round_rows(float *x, void *out, attn_dtype dtype, float *scales, int64_t n, int64_t width);

/** Element n of an array, in 8 bits without its scale; in 4 bits of an array of whole groups. */
float bench_element(const void *data, attn_dtype dtype, int64_t n);

#endif
