/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of anything on threads.
 */
#ifndef ATTN_RANGES_H
#define ATTN_RANGES_H

#include <stdint.h>

/**
 * Calls body for ranges first..end-1 that together are 0..items-1, on up to threads threads of the executor in use, or
 * OpenMP's. No range is empty. Which thread has which range is not fixed.
 */
void attn_run_ranges(int64_t items, int threads, void (*body)(const void *context, int64_t first, int64_t end),
                     const void *context);

#endif
