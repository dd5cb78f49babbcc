/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of the library, counted, and made to fail. */
#include "ledger.h"

#include <errno.h>
#include <malloc.h>

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **p, size_t alignment, size_t size);
void __wrap_free(void *p);

struct ledger ledger;
_Thread_local int ledger_countdown_here;

static int refused(void)
{
    if (!ledger.active)
        return 0;
    ledger.made++;
    if (ledger_countdown_here > 0 && --ledger_countdown_here == 0) {
        errno = ENOMEM;
        return 1;
    }
    if (ledger.countdown == 0)
        return 0;
    if (ledger.countdown > 1) {
        ledger.countdown--;
        return 0;
    }
    if (!ledger.persistent)
        ledger.countdown = 0;
    errno = ENOMEM;
    return 1;
}

static void *count(void *p)
{
    if (ledger.active && p) {
        ledger.live++;
        ledger.bytes += (long long)malloc_usable_size(p);
    }
    return p;
}

void *__wrap_malloc(size_t size)
{
    return refused() ? NULL : count(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : count(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t size)
{
    if (refused())
        return NULL;
    const long long before = p ? (long long)malloc_usable_size(p) : 0;
    void *moved = __real_realloc(p, size);
    if (ledger.active && p && moved)
        ledger.bytes += (long long)malloc_usable_size(moved) - before;
    return p ? moved : count(moved);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refused() ? NULL : count(__real_aligned_alloc(alignment, size));
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t size)
{
    if (refused())
        return ENOMEM;
    const int error = __real_posix_memalign(p, alignment, size);
    if (error == 0)
        count(*p);
    return error;
}

void __wrap_free(void *p)
{
    if (ledger.active && p) {
        ledger.live--;
        ledger.bytes -= (long long)malloc_usable_size(p);
    }
    __real_free(p);
}

void ledger_begin(int countdown, int persistent)
{
    ledger.made = ledger.live = 0;
    ledger.bytes = 0;
    ledger.countdown = countdown;
    ledger.persistent = persistent;
    ledger.active = 1;
}
