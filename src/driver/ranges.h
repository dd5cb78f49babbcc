/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of anything on threads, and what a forked child needs to know: the
 * part of the driver that libattn and libattn_nn share.
 */
#ifndef ATTN_RANGES_H
#define ATTN_RANGES_H

#include <stdint.h>

/**
 * Calls body for ranges first..end-1 that together are 0..items-1, on up to threads OpenMP threads. No range is empty.
 * Which thread has which range is not fixed.
 */
void attn_run_ranges(int64_t items, int threads, void (*body)(const void *context, int64_t first, int64_t end),
                     const void *context);

/** OpenMP's own setting for the number of threads. */
int attn_driver_max_threads(void);

/** Whether this process is a forked child that must not start OpenMP threads. */
int attn_forked_from_threads(void);

/** Notes that this process has started OpenMP threads. */
void attn_note_threads(void);

#endif
