/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times increments of one counter as the library hands out tasks by it
 * (src/driver/parallel.c), regions of threads, and first writes to pages.
 */
#include "shared.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES    20
#define INCREMENTS 10000
#define PAGES      4096

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/** What the slowest thread waits for an increment, while all make some. */
static double increment(int threads)
{
    static _Alignas(64) atomic_llong counter;
    double least = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        double longest = 0;
#pragma omp parallel num_threads(threads) reduction(max : longest)
        {
#pragma omp barrier
            const double start = now();
            for (int i = 0; i < INCREMENTS; i++)
                atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
            longest = (now() - start) / INCREMENTS;
        }
        least = sample == 0 || longest < least ? longest : least;
    }
    return least;
}

static double region(int threads)
{
    double least = 0;
    for (int sample = 0; sample < 10 * SAMPLES; sample++) {
        int together = 0;
        const double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : together)
        together++;
        const double time = now() - start;
        if (together == threads)
            least = least == 0 || time < least ? time : least;
    }
    return least;
}

static double first_write(size_t page)
{
    double least = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        char *memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return 0;
        madvise(memory, PAGES * page, MADV_NOHUGEPAGE);
        const double start = now();
        for (size_t i = 0; i < PAGES; i++)
            *(volatile char *)&memory[i * page] = 1;
        const double time = (now() - start) / PAGES;
        least = sample == 0 || time < least ? time : least;
        munmap(memory, PAGES * page);
    }
    return least;
}

json_t *scaling_prices(int threads)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return json_pack("{s:f, s:f, s:i, s:f, s:f, s:i}", "increment_alone_ns", increment(1), "increment_ns",
                     increment(threads), "threads", threads, "region_ns", region(threads), "first_write_ns",
                     first_write(page), "page_bytes", (int)page);
}
