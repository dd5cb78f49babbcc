/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that fail, for tests. The linker puts these
 * functions between the tested code and malloc (--wrap), so that every allocation can
 * be made to fail. One file of a program includes this.
 */
#ifndef UNIT_IO_FAILING_MEMORY_H
#define UNIT_IO_FAILING_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

static struct {
    int made, fails_at; /* 0: none fails */
} allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool refused(void)
{
    return ++allocations.made == allocations.fails_at;
}

void *__wrap_malloc(size_t size)
{
    return refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return refused() ? NULL : __real_realloc(p, size);
}

#endif
