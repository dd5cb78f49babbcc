/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the arithmetic peak: the loops of isa_kernels.c and isa_dot_kernels.c on every thread at
 * once, the time taken outside of the parallel region. What this counts as the
 * peak is what all cores sustain together, with the clock frequency that they
 * keep under that load, not a figure from a data sheet.
 */
#include "peak.h"
#include "timing.h"

#include <omp.h>
#include <stdio.h>

const struct bench_isa_kernels *bench_isa_kernels_get(attn_isa isa)
{
    if (!attn_isa_supported(isa))
        return NULL;
    switch (bench_f32_isa(isa)) {
    case ATTN_ISA_SCALAR:
        return &bench_kernels_scalar;
#if defined(__x86_64__)
    case ATTN_ISA_AVX2:
        return &bench_kernels_avx2;
    case ATTN_ISA_AVX512:
        return &bench_kernels_avx512;
#elif defined(__aarch64__)
    case ATTN_ISA_NEON:
        return &bench_kernels_neon;
#endif
    default:
        return NULL;
    }
}

/* Seconds that steps of the loop take on every thread at once; *used is how many threads there were. */
static double run_steps(const struct bench_peak *peak, int64_t steps, int *used)
{
    float sink = 0.0f;
    int team = 0;
    const double start = bench_now();
#pragma omp parallel num_threads(peak->threads) reduction(+ : sink, team)
    {
        sink += peak->kernels->fma(steps);
        team++;
    }
    const double seconds = bench_now() - start;
    /* The comparison uses every thread's sum, so that no call may be dropped; it never holds. */
    *used = sink < 0.0f ? 0 : team;
    return seconds;
}

int bench_peak_init(struct bench_peak *peak, const struct bench_isa_kernels *kernels, int threads)
{
    *peak = (struct bench_peak){.kernels = kernels, .threads = threads};
    omp_set_dynamic(0);
    int used;
    run_steps(peak, 1000, &used);
    if (used != threads) {
        fprintf(stderr, "attn-bench: --threads is %d, but OpenMP gave %d (is OMP_THREAD_LIMIT set?)\n", threads, used);
        return -1;
    }
    /* Some processors take a millisecond to raise voltage or frequency for wide vectors. */
    int64_t steps = 10000;
    double seconds = run_steps(peak, steps, &used);
    while (seconds < 2e-3) {
        steps *= 2;
        seconds = run_steps(peak, steps, &used);
    }
    peak->steps_per_second = (double)steps / seconds;
    return 0;
}

double bench_peak_sample(struct bench_peak *peak, double seconds)
{
    const double wanted = peak->steps_per_second * seconds;
    const int64_t steps = wanted > 1000.0 ? (int64_t)wanted : 1000;
    int used;
    const double took = run_steps(peak, steps, &used);
    const double gflops = 1e-9 * (double)peak->kernels->flops_per_step * (double)steps * used / took;
    peak->steps_per_second = (double)steps / took;
    peak->samples++;
    if (gflops > peak->best) {
        peak->best = gflops;
        peak->best_seconds = took;
        peak->best_steps = steps;
    }
    return gflops;
}
