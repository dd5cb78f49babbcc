/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the arithmetic peaks: the loops of isa_kernels.c, isa_dot_kernels.c and isa_matrix_kernels.c on every thread
 * at once, the time taken outside of the parallel region. What this counts as the peak is what all cores sustain
 * together, with the clock frequency that they keep under that load, not a figure from a data sheet.
 */
#include "peak.h"
#include "team.h"
#include "timing.h"

#include <stdbool.h>

const char *bench_f32_isa(const char *isa)
{
    static const struct {
        const char *isa, *f32;
    } extending[] = {
        {"avx512_bf16", "avx512"}, {"amx_bf16", "avx512"},  {"emulated_amx_bf16", "avx512"},
        {"neon_bf16", "neon"},     {"neon_bf16mm", "neon"},
    };
    for (size_t i = 0; i < sizeof extending / sizeof *extending; i++)
        if (bench_same_isa(extending[i].isa, isa))
            return extending[i].f32;
    return isa;
}

const struct bench_isa_kernels *bench_isa_kernels_get(const char *isa)
{
    if (!attn_isa_supported(isa))
        return NULL;
    static const struct bench_isa_kernels *const all[] = {
        &bench_kernels_scalar,
#if defined(__x86_64__)
        &bench_kernels_avx2,
        &bench_kernels_avx512,
#elif defined(__aarch64__)
        &bench_kernels_neon,
#endif
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (bench_same_isa(all[i]->isa, bench_f32_isa(isa)))
            return all[i];
    return NULL;
}

/* Seconds that steps of the loop take on every thread at once; *used is how many threads there were. */
static double run_steps(const struct bench_limit *limit, int threads, int64_t steps, int *used)
{
    float sink = 0.0f;
    int team = 0;
    const double start = bench_now();
#pragma omp parallel num_threads(threads) reduction(+ : sink, team)
    {
        sink += limit->loop->run(steps);
        team++;
    }
    const double seconds = bench_now() - start;
    /* The comparison uses every thread's sum, so that no call may be dropped; it never holds. */
    *used = sink < 0.0f ? 0 : team;
    return seconds;
}

/* Warms up; false when there were not so many threads, of which *used says how many. */
static bool start(struct bench_limit *limit, const struct bench_peak_loop *loop, int threads, int *used)
{
    *limit = (struct bench_limit){.loop = loop};
    run_steps(limit, threads, 1000, used);
    if (*used != threads)
        return false;
    /* Some processors take a millisecond to raise voltage or frequency for wide vectors. */
    int64_t steps = 1000;
    double seconds = 0.0;
    while (seconds < 2e-3) {
        steps *= 2;
        seconds = run_steps(limit, threads, steps, used);
    }
    limit->steps_per_second = (double)steps / seconds;
    return true;
}

int bench_peak_init(struct bench_peak *peak, const struct bench_isa_kernels *kernels, int threads)
{
    *peak = (struct bench_peak){.kernels = kernels, .threads = threads};
    omp_set_dynamic(0);
    int used;
    if (!start(&peak->registers, &kernels->registers, threads, &used))
        return used;
    start(&peak->loads, &kernels->loads, threads, &used);
    return used;
}

/*
 * GFLOP/s of about that many seconds. On a busy machine the last sample may have been so slow that as many steps now
 * take no time beside the start of the threads; a peak that is too low would meet any bar.
 */
static double sample(struct bench_limit *limit, int threads, double seconds)
{
    double took;
    int64_t steps;
    int used;
    do {
        const double wanted = limit->steps_per_second * seconds;
        steps = wanted > 10.0 ? (int64_t)wanted : 10;
        took = run_steps(limit, threads, steps, &used);
        limit->steps_per_second = (double)steps / took;
    } while (took < seconds / 2);
    const double gflops = 1e-9 * (double)limit->loop->flops_per_step * (double)steps * used / took;
    limit->samples++;
    if (gflops > limit->best) {
        limit->best = gflops;
        limit->best_seconds = took;
        limit->best_steps = steps;
    }
    return gflops;
}

struct bench_peak_sample bench_peak_take(struct bench_peak *peak, double seconds)
{
    const double registers = sample(&peak->registers, peak->threads, seconds);
    return (struct bench_peak_sample){.registers = registers, .loads = sample(&peak->loads, peak->threads, seconds)};
}
