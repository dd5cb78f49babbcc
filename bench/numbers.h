/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, and random numbers of a seed. Seeds are fixed: a figure must not depend on the
 * day's numbers.
 */
#ifndef BENCH_NUMBERS_H
#define BENCH_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

/** n floats aligned to 64 bytes, or NULL. Freed by free(). */
float *bench_alloc_floats(int64_t n);

/** A call's workspace of so many bytes, in the same way; NULL after a sentence on the error stream. */
void *bench_alloc_workspace(size_t bytes);

/** n normal numbers of mean 0 that depend on the seed only, as bench_alloc_floats() has them, or NULL. */
float *bench_normal(int64_t n, uint64_t seed, double deviation);

/** So many bytes in huge pages, where the system gives some, or NULL. Freed by free(). */
void *bench_alloc_large(size_t bytes);

/** The next 64 random bits of a stream, which starts with any number in state. */
uint64_t bench_random(uint64_t *state);

/** Fills x with standard normal numbers that depend on the seed only. */
void bench_fill_normal(float *x, int64_t n, uint64_t seed);

#endif
