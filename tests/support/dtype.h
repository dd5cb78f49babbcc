/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of f32, bf16 and f16, read and written one at a time.
 *
 * The conversions are the tests' own, by arithmetic on significand and
 * exponent in double rather than on bits, so that they and the library's
 * (src/simd) check each other.
 */
#ifndef TEST_DTYPE_H
#define TEST_DTYPE_H

#include "attn/attn.h"

/** The values of all patterns, of which dtype_widen() makes use. */
extern struct dtype_widened {
    float bf16[65536], f16[65536];
    int made;
} dtype_widened;

/** Computes them, once, whichever thread is the first to ask. */
void dtype_make_widened(void);

/** The value of a 16-bit pattern of bf16 or f16, exact. */
static inline float dtype_widen(attn_dtype dtype, uint16_t bits)
{
    if (!__atomic_load_n(&dtype_widened.made, __ATOMIC_ACQUIRE))
        dtype_make_widened();
    return dtype == ATTN_F16 ? dtype_widened.f16[bits] : dtype_widened.bf16[bits];
}

/** The pattern nearest to x, ties to even; beyond the largest number Inf. A NaN gives the quiet one of its sign. */
uint16_t dtype_narrow(attn_dtype dtype, double x);

/** The value of a number of E4M3, exact. */
float dtype_of_f8(uint8_t bits);

/** The number of E4M3 nearest to x, of at most 448 in size, ties to even. */
uint8_t dtype_to_f8(float x);

/** The lower or the upper number of a byte of ATTN_I4. */
float dtype_of_i4(uint8_t bits, int upper);

/** Number c of a row of ATTN_I4. */
float dtype_i4_at(const void *row, int64_t c);

/** x rounded to a type, as a float. */
float dtype_round(attn_dtype dtype, float x);

/** Element at of an array of f32, bf16 or f16. */
static inline float dtype_load(attn_dtype dtype, const void *data, int64_t at)
{
    return dtype == ATTN_F32 ? ((const float *)data)[at] : dtype_widen(dtype, ((const uint16_t *)data)[at]);
}

/** Stores x, rounded. */
void dtype_store(attn_dtype dtype, void *data, int64_t at, float x);

/** The largest finite number. */
float dtype_max(attn_dtype dtype);

/** The smallest positive normal number: below are the denormals. */
float dtype_min_normal(attn_dtype dtype);

/**
 * How far exact is from all the numbers that round to got: 0 if exact itself
 * does. What is left is the error that a result had before it was rounded to
 * its type, at the least. For f32, whose rounding counts as one of the
 * computation's, it is the plain distance. got must not be NaN, exact must be
 * finite.
 */
double dtype_distance(attn_dtype dtype, float got, double exact);

/** Element offset of (b, h, t, c) in a tensor whose axes of size 1 broadcast. */
static inline int64_t tensor_offset(const attn_tensor *t, int64_t b, int64_t h, int64_t token, int64_t c)
{
    return (t->shape[0] > 1 ? b * t->stride[0] : 0) + (t->shape[1] > 1 ? h * t->stride[1] : 0) +
           (t->shape[2] > 1 ? token * t->stride[2] : 0) + (t->shape[3] > 1 ? c * t->stride[3] : 0);
}

/** Element (b, h, t, c) of a tensor of f32, bf16 or f16. */
static inline float tensor_get(const attn_tensor *t, int64_t b, int64_t h, int64_t token, int64_t c)
{
    return dtype_load(t->dtype, t->data, tensor_offset(t, b, h, token, c));
}

void tensor_set(const attn_tensor *t, int64_t b, int64_t h, int64_t token, int64_t c, float x);

/** The same view of memory as if it held elements of another type (and strides count those). */
static inline attn_tensor tensor_as(attn_tensor t, attn_dtype dtype)
{
    t.dtype = dtype;
    return t;
}

#endif
