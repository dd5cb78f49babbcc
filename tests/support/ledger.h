/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations of the library, counted, and made to fail. The linker turns its
 * calls of malloc and its relatives into the functions of ledger.c (--wrap), so
 * the test has to be linked statically with ledger_link_args; OpenMP's and
 * libc's own allocations are not touched.
 */
#ifndef TEST_LEDGER_H
#define TEST_LEDGER_H

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **p, size_t alignment, size_t size);
void __real_free(void *p);

/** Allocations until one fails (0: none will), whether all after it fail too, and what has happened, on any thread. */
extern struct ledger {
    atomic_int active, countdown, persistent;
    atomic_int made, live;
    atomic_llong bytes; /**< of those that live, as malloc rounds them up */
} ledger;

/** Allocations of this thread until one fails; 0: none will. Counts down beside that of all threads. */
extern _Thread_local int ledger_countdown_here;

/** Starts counting; allocation countdown fails, and with persistent all after it. ledger.active = 0 ends it. */
void ledger_begin(int countdown, int persistent);

#endif
