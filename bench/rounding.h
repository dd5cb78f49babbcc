/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers in narrow types: what a case's tensors hold, and the floats that they stand for.
 */
#ifndef BENCH_ROUNDING_H
#define BENCH_ROUNDING_H

#include "attn/attn.h"

#include <stdbool.h>

/** Whether rows of that type have a scale each. */
static inline bool bench_quantised(attn_dtype dtype)
{
    return dtype == ATTN_I8 || dtype == ATTN_F8_E4M3;
}

/** Rounds n rows of width floats to out, of any type but f32, and x to what out stands for. scales: [n], of 8 bits. */
void bench_round_rows(float *x, void *out, attn_dtype dtype, float *scales, int64_t n, int64_t width);

/** Element n of an array, in 8 bits without its scale. */
float bench_element(const void *data, attn_dtype dtype, int64_t n);

#endif
