/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how fast memory is read and written: all threads go through some regions
 * at once, each through a part of its own, in several streams. The buffer that stands
 * for memory is several times as large as the last level of cache, and each thread's
 * part is the one that it touched first, so that on a machine with several memory
 * nodes each uses its own. Its size is bounded on both sides. Below 256 MiB a cache
 * that the system under-reports (virtual machines often do) would be measured instead;
 * above 1 GiB nothing is gained.
 *
 * Keys and values of a case are regions, too. What lies in a cache is read as often as
 * makes a sample that the start of the threads does not shorten.
 *
 * Plain stores take twice the traffic that they are counted as, where a processor fetches
 * each line before it is written. Attention reads far more than it writes.
 */
#include "numbers.h"
#include "peak.h"
#include "team.h"
#include "timing.h"

#include <stdlib.h>

/* Parts are multiples of this many words, as the loops want them. */
#define GRAIN 1024

/* Bytes that a sample goes through at least. */
#define SAMPLE_BYTES ((int64_t)256 << 20)

/* First word of part i of n. */
static int64_t part_begin(const struct bench_region *region, int i, int threads)
{
    return region->count / GRAIN * i / threads * GRAIN;
}

size_t bench_bandwidth_buffer(struct bench_region *buffer, int threads)
{
    const size_t least = (size_t)256 << 20, most = (size_t)1 << 30, cached = 4 * attn_cache_size(3);
    const size_t bytes = cached < least ? least : cached > most ? most : cached;
    *buffer = (struct bench_region){.count = (int64_t)(bytes / sizeof *buffer->words) / GRAIN * GRAIN};
    buffer->words = bench_alloc_large(bytes); /* as the weights of large layers */
    if (buffer->words == NULL)
        return bytes;
#pragma omp parallel num_threads(threads)
    {
        const int i = omp_get_thread_num();
        for (int64_t at = part_begin(buffer, i, threads); at < part_begin(buffer, i + 1, threads); at++)
            buffer->words[at] = 1;
    }
    return 0;
}

/* One thread's part of a region; returns the sum of what it has read. */
static uint32_t go_through(const struct bench_bandwidth *b, const struct bench_region *region, int i)
{
    const int64_t from = part_begin(region, i, b->threads), to = part_begin(region, i + 1, b->threads);
    switch (b->access) {
    case BENCH_READ:
        return b->kernels->read(region->words + from, to - from);
    case BENCH_WRITE:
        b->kernels->write(region->words + from, to - from);
        break;
    case BENCH_UPDATE:
        b->kernels->update(region->words + from, to - from);
        break;
    case BENCH_STREAM:
        b->kernels->stream(region->words + from, to - from);
        break;
    }
    return 0;
}

double bench_bandwidth_sample(struct bench_bandwidth *b)
{
    int64_t bytes = 0;
    for (int n = 0; n < b->num_regions; n++)
        bytes += b->regions[n].count / GRAIN * GRAIN * (int64_t)sizeof(uint32_t);
    if (bytes == 0)
        return 0.0;
    const int64_t passes = (SAMPLE_BYTES + bytes - 1) / bytes;
    uint32_t sum = 0;
    const double start = bench_now();
#pragma omp parallel num_threads(b->threads) reduction(+ : sum)
    for (int64_t pass = 0; pass < passes; pass++)
        for (int n = 0; n < b->num_regions; n++)
            sum += go_through(b, &b->regions[n], omp_get_thread_num());
    const double took = bench_now() - start;
    b->sum = sum; /* which keeps the loop alive */
    const double rate = 1e-9 * (double)(passes * bytes) / took;
    b->samples++;
    if (rate > b->best) {
        b->best = rate;
        b->best_seconds = took;
    }
    return rate;
}

const char *bench_access_name(enum bench_access access)
{
    static const char *const names[] = {
        [BENCH_READ] = "read", [BENCH_WRITE] = "write", [BENCH_UPDATE] = "update", [BENCH_STREAM] = "write-streaming"};
    return names[access];
}
