/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations of the library, counted, and made to fail. The linker turns its
 * calls of malloc and its relatives into the functions of ledger.c (--wrap), so
 * the test has to be linked statically with ledger_link_args; OpenMP's and
 * libc's own allocations are not touched.
 */
#ifndef TEST_LEDGER_H
#define TEST_LEDGER_H

#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **p, size_t alignment, size_t size);
void __real_free(void *p);

/** Allocations until one fails (0: none will), whether all after it fail too, and what has happened. */
extern struct ledger {
    int active, countdown, persistent;
    int made, live;
    long long bytes; /**< of those that live, as malloc rounds them up */
} ledger;

/** Starts counting; allocation countdown fails, and with persistent all after it. ledger.active = 0 ends it. */
void ledger_begin(int countdown, int persistent);

#endif
