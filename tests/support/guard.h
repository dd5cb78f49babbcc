/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers between pages that cannot be touched.
 *
 * A guard is a mapping with an inaccessible page before and after it. Data is
 * placed flush with the end or flush with the beginning, so that reading or
 * writing one byte too far faults at once; canaries alone would miss reads.
 * The side that is not flush has a margin filled with a canary pattern, which
 * catches writes. A guard is mapped once and used for many cases.
 */
#ifndef TEST_GUARD_H
#define TEST_GUARD_H

#include <stddef.h>

struct guard {
    unsigned char *base; /**< first accessible byte */
    size_t size;         /**< accessible bytes, a multiple of the page size */
    unsigned char *data; /**< what guard_place() gave out last */
    size_t used;
};

/** Bytes of an unused output, and of the margin around data. */
#define GUARD_CANARY 0xA5

/** Maps a guard that can hold up to capacity bytes; ends the program with a sentence when it cannot. */
struct guard guard_create(size_t capacity);
void guard_destroy(struct guard *guard);

/**
 * Space for size bytes, flush with the end when at_end is set (then aligned to
 * what size allows), else flush with the beginning. All of it, and the margin
 * on the other side, is filled with GUARD_CANARY. NULL if size is beyond the
 * guard's capacity.
 */
void *guard_place(struct guard *guard, size_t size, int at_end);

/** Whether the margin beside the data that was placed last still holds the canary. */
int guard_intact(const struct guard *guard);

/**
 * Reports a fault in a readable manner: installs handlers for SIGSEGV, SIGBUS,
 * SIGILL and SIGFPE that write guard_case_line and end the program.
 */
void guard_catch_faults(void);

/** Describes what runs now, with the command that repeats it; the fault handler prints it. */
extern char guard_case_line[2048];

#endif
