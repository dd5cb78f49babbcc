/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures read bandwidth: all threads sum a buffer that is several times as
 * large as the last level of cache. Each thread reads one contiguous part, the
 * part that it touched first, so that on a machine with several memory nodes
 * each reads from its own. Reads only: attention reads far more than it writes.
 *
 * The size is bounded on both sides. Below 256 MiB a cache that the system
 * under-reports (virtual machines often do) would be measured instead; above
 * 1 GiB nothing is gained.
 */
#include "peak.h"
#include "problem.h"
#include "timing.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* Parts are multiples of this many floats, as the read loop wants them. */
#define GRAIN 1024

/* First float of part i of n. */
static int64_t part_begin(const struct bench_bandwidth *b, int i)
{
    const int64_t grains = b->num_floats / GRAIN;
    return (grains * i / b->threads) * GRAIN;
}

int bench_bandwidth_init(struct bench_bandwidth *b, const struct bench_isa_kernels *kernels, int threads)
{
    const size_t least = (size_t)256 << 20, most = (size_t)1 << 30, cached = 4 * attn_cache_size(3);
    const size_t bytes = cached < least ? least : cached > most ? most : cached;
    *b = (struct bench_bandwidth){.kernels = kernels, .threads = threads};
    b->num_floats = (int64_t)(bytes / sizeof(float)) / GRAIN * GRAIN;
    b->data = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (b->data == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for the %zu MiB that measure the bandwidth\n",
                bytes >> 20);
        return -1;
    }
#ifdef MADV_HUGEPAGE
    madvise(b->data, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* as the weights of large layers */
#endif
    float *data = b->data;
#pragma omp parallel num_threads(threads)
    {
        const int i = omp_get_thread_num();
        for (int64_t at = part_begin(b, i); at < part_begin(b, i + 1); at++)
            data[at] = 1.0f;
    }
    return 0;
}

double bench_bandwidth_sample(struct bench_bandwidth *b)
{
    float sink = 0.0f;
    const double start = bench_now();
#pragma omp parallel num_threads(b->threads) reduction(+ : sink)
    {
        const int i = omp_get_thread_num();
        const int64_t from = part_begin(b, i), to = part_begin(b, i + 1);
        sink += b->kernels->read(b->data + from, to - from);
    }
    const double took = bench_now() - start;
    /* All elements are 1; the test keeps the loop alive and would show a part that nobody read. */
    const double rate = sink > 0.0f ? 1e-9 * (double)b->num_floats * sizeof(float) / took : 0.0;
    b->samples++;
    if (rate > b->best) {
        b->best = rate;
        b->best_seconds = took;
    }
    return rate;
}

void bench_bandwidth_destroy(struct bench_bandwidth *b)
{
    free(b->data);
    b->data = NULL;
}
