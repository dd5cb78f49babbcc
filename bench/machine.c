/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of the machine as rows of the output. They are sampled between
 * all cases, besides the peak samples that each case takes for itself, so that
 * the figures of a run describe the time of that run.
 */
#include "machine.h"
#include "bars.h"

#include <stdio.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Long enough for the start of a parallel region not to matter. */
#define PEAK_SECONDS 0.005

const struct bench_isa_kernels *bench_int8_kernels_get(const char *isa)
{
    if (!attn_isa_supported(isa))
        return NULL;
    static const struct bench_isa_kernels *const all[] = {
#if defined(__x86_64__)
        &bench_dot_kernels_amx_int8,
#if BENCH_AMX_EMULATION
        &bench_dot_kernels_emulated_amx_int8,
#endif
#endif
        NULL,
    };
    for (size_t i = 0; all[i] != NULL; i++)
        if (bench_int8_scores_by(all[i]->isa, isa))
            return all[i];
    return NULL;
}

const struct bench_isa_kernels *bench_tanh_kernels_get(const char *isa)
{
    static const struct bench_isa_kernels *const all[] = {
        &bench_tanh_kernels_scalar,
#if defined(__x86_64__)
        &bench_tanh_kernels_avx2,
        &bench_tanh_kernels_avx512,
#elif defined(__aarch64__)
        &bench_tanh_kernels_neon,
#endif
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (bench_same_isa(all[i]->isa, isa))
            return all[i];
    return NULL;
}

unsigned bench_processor(void)
{
#if defined(__x86_64__)
    unsigned highest, family, registers[3], ignored;
    char vendor[13] = "";
    if (__get_cpuid(0, &highest, &registers[0], &registers[2], &registers[1]) == 0 ||
        __get_cpuid(1, &family, &ignored, &ignored, &ignored) == 0)
        return BENCH_ANY_PROCESSOR;
    memcpy(vendor, registers, 12);
    const int base = (int)(family >> 8 & 0xf);
    return bench_processor_find(vendor, base == 0xf ? base + (int)(family >> 20 & 0xff) : base);
#else
    return BENCH_ANY_PROCESSOR;
#endif
}

/* 0, or -1 after a sentence on stderr when OpenMP does not give so many threads. */
static int init_peak(struct bench_peak *peak, const struct bench_isa_kernels *kernels, int threads)
{
    const int used = bench_peak_init(peak, kernels, threads);
    if (used == threads)
        return 0;
    fprintf(stderr, "attn-bench: --threads is %d, but OpenMP gave %d (is OMP_THREAD_LIMIT set?)\n", threads, used);
    return -1;
}

int bench_machine_init(struct bench_machine *m, const struct bench_options *options)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; attn_isa_name(i) != NULL; i++) {
        const char *const isa = attn_isa_name(i);
        const bool dot = !bench_same_isa(bench_f32_isa(isa), isa);
        const struct bench_isa_kernels *const loops[] = {dot ? bench_dot_kernels_get(isa) : bench_isa_kernels_get(isa),
                                                         dot ? bench_int8_kernels_get(isa) : NULL};
        for (int n = 0; n < 2; n++)
            if (loops[n] != NULL && m->num_peaks < BENCH_MAX_PEAKS &&
                init_peak(&m->peaks[m->num_peaks++], loops[n], options->threads) != 0)
                return -1;
    }
    m->f32 = bench_machine_peak(m, bench_f32_isa(options->isa));
    if (m->f32 == NULL) {
        fprintf(stderr, "attn-bench: this machine cannot run the instruction set %s\n", options->isa);
        return -1;
    }
    const struct bench_isa_kernels *const bare = bench_tanh_kernels_get(m->f32->kernels->isa);
    if (bare != NULL && init_peak(&m->tanh, bare, options->threads) != 0)
        return -1;
    for (int access = 0; access < BENCH_NUM_ACCESSES; access++)
        m->memory[access] = (struct bench_bandwidth){
            .kernels = m->f32->kernels, .threads = options->threads, .access = (enum bench_access)access};
    const size_t lacking = bench_bandwidth_buffer(&m->buffer, options->threads);
    if (lacking > 0) {
        fprintf(stderr, "attn-bench: there is not enough memory for the %zu MiB that measure the bandwidth\n",
                lacking >> 20);
        return -1;
    }
    for (int access = 0; access < BENCH_NUM_ACCESSES; access++)
        if (access != BENCH_STREAM || m->f32->kernels->stream != NULL)
            m->memory[access].regions[m->memory[access].num_regions++] = m->buffer;
    return 0;
}

struct bench_peak *bench_machine_peak(struct bench_machine *m, const char *isa)
{
    for (int i = 0; i < m->num_peaks; i++)
        if (bench_same_isa(m->peaks[i].kernels->isa, isa))
            return &m->peaks[i];
    return NULL;
}

void bench_machine_sample(struct bench_machine *m)
{
    for (int i = 0; i < m->num_peaks; i++)
        bench_peak_take(&m->peaks[i], PEAK_SECONDS);
    if (m->tanh.kernels != NULL)
        bench_peak_take(&m->tanh, PEAK_SECONDS);
    for (int access = 0; access < BENCH_NUM_ACCESSES; access++)
        bench_bandwidth_sample(&m->memory[access]);
}

static int report_limit(const struct bench_peak *peak, const struct bench_limit *limit, const char *kind,
                        struct bench_results *results)
{
    struct bench_result *row = bench_results_add(results);
    if (row == NULL)
        return -1;
    row->kind = BENCH_PEAK;
    snprintf(row->name, sizeof row->name, "%s/%s/%s", kind, peak->kernels->factors, peak->kernels->isa);
    row->isa = peak->kernels->isa;
    row->threads = peak->threads;
    row->repetitions = limit->samples;
    row->iterations = limit->best_steps;
    row->real_time = limit->best_steps > 0 ? limit->best_seconds / (double)limit->best_steps : 0.0;
    row->gflops = limit->best;
    row->peak_gflops = peak->registers.best;
    row->peak_loads_gflops = peak->loads.best;
    row->fraction = row->gflops / row->peak_gflops;
    row->fraction_of_loads = row->gflops / row->peak_loads_gflops;
    return 0;
}

int bench_machine_report(const struct bench_machine *m, struct bench_results *results)
{
    for (int i = 0; i < m->num_peaks; i++)
        if (report_limit(&m->peaks[i], &m->peaks[i].registers, "peak", results) != 0 ||
            report_limit(&m->peaks[i], &m->peaks[i].loads, "peak-loads", results) != 0)
            return -1;
    if (m->tanh.kernels != NULL && (report_limit(&m->tanh, &m->tanh.registers, "peak", results) != 0 ||
                                    report_limit(&m->tanh, &m->tanh.loads, "peak-loads", results) != 0))
        return -1;
    for (int access = 0; access < BENCH_NUM_ACCESSES; access++) {
        const struct bench_bandwidth *memory = &m->memory[access];
        if (memory->samples == 0)
            continue;
        struct bench_result *row = bench_results_add(results);
        if (row == NULL)
            return -1;
        row->kind = BENCH_BANDWIDTH;
        snprintf(row->name, sizeof row->name, "bandwidth/%s", bench_access_name(memory->access));
        row->isa = memory->kernels->isa;
        row->threads = memory->threads;
        row->repetitions = memory->samples;
        row->iterations = 1;
        row->real_time = memory->best_seconds;
        row->gb_per_second = memory->best;
    }
    return 0;
}

void bench_machine_destroy(struct bench_machine *m)
{
    free(m->buffer.words);
}
