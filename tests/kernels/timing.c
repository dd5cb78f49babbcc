/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cycles without counters of the processor's own, which virtual machines
 * seldom have. The time-stamp counter of x86 and the virtual counter of AArch64
 * run at a rate of their own; so beside each sample stands a chain of dependent
 * additions, of which every processor does one a cycle at whatever clock it has
 * at that moment, and the sample is divided by the chain's time for one. (What
 * is added comes from a register: some processors add constants while they
 * rename registers, several a cycle.) Where no such chain is known, the unit is a
 * nanosecond.
 */
#include "timing.h"

#include <stdlib.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#define ADD(x, y) __asm__ volatile("add %1, %0" : "+r"(x) : "r"(y) : "cc")
#elif defined(__aarch64__)
#define ADD(x, y) __asm__ volatile("add %0, %0, %1" : "+r"(x) : "r"(y))
#endif

#define CHAIN 4096

static uint64_t now(void)
{
#if defined(__x86_64__)
    unsigned processor;
    _mm_lfence();
    const uint64_t ticks = __rdtscp(&processor);
    _mm_lfence();
    return ticks;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(ticks) : : "memory");
    return ticks;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

#if defined(ADD)
const char *timing_unit(void)
{
    return "cycles";
}

/** Ticks of a cycle. */
static double ticks_of_cycle(void)
{
    uint64_t x = 0, y = 1;
    const uint64_t start = now();
    for (int i = 0; i < CHAIN; i++) {
        ADD(x, y);
        ADD(x, y);
        ADD(x, y);
        ADD(x, y);
        ADD(x, y);
        ADD(x, y);
        ADD(x, y);
        ADD(x, y);
    }
    return (double)(now() - start) / (8 * CHAIN);
}
#else
const char *timing_unit(void)
{
    return "nanoseconds";
}

static double ticks_of_cycle(void)
{
    return 1;
}
#endif

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int timing_goes_on(struct timing *t)
{
    const uint64_t end = now();
    if (t->repeat == 0) { /* once, to warm up */
        t->repeat = 1;
    } else if (!t->ready) {
        const double enough = 20000 * ticks_of_cycle(); /* far above what reading the counter takes */
        if ((double)(end - t->start) < enough)
            t->repeat *= 2;
        else
            t->ready = 1;
    } else {
        t->cycles[t->samples++] = (double)(end - t->start) / ticks_of_cycle() / (double)t->repeat;
    }
    t->start = now();
    return t->samples < TIMING_SAMPLES;
}

double timing_result(struct timing *t)
{
    qsort(t->cycles, TIMING_SAMPLES, sizeof *t->cycles, compare_doubles);
    return t->cycles[TIMING_SAMPLES / 2];
}
