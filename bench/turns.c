/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variants of a case share its inputs and take turns with samples of the
 * multiply-add peak:
 *
 *     peak library peak naive peak library peak naive ...
 *
 * A neighbour that takes processor time, or a clock that changes, so meets all
 * of them alike. Of a variant's samples the fastest is reported, relative to
 * the fastest peak sample of the same case; see the help text for why. Peak
 * samples are as long as the sample before them, within limits, so that both
 * have the same chance to find an undisturbed moment. Where a case is bound by
 * memory, samples of the bandwidth come behind those of the peak. What
 * neighbours leave of it may change by half from one minute to the next, so the
 * median of the ratios of each turn is reported.
 */
#include "turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * A sample comes after one of another variant, which has filled the caches with
 * its own matrices: one run that is not timed puts this variant's back, as in a
 * loop of its own. Runs of this length and more do not notice.
 */
#define LONGEST_WARM_UP  0.1

#define MIN_PEAK_SECONDS 0.005
#define MAX_PEAK_SECONDS 0.05

/* One for each repetition. */
struct samples {
    double *real, *cpu, *ratio;
    double *moved; /* the rate at which bytes are read or written, over the bandwidth behind it */
};

int bench_variant_error(const struct bench_variant *v)
{
    fprintf(stderr, "attn-bench: %s failed: %s\n", v->row.name, attn_last_error());
    return -1;
}

static int take_samples(struct bench_variant *variants, const struct samples *samples, int count,
                        struct bench_peak *peak, struct bench_bandwidth *bandwidth, const struct bench_options *options)
{
    for (int i = 0; i < count; i++)
        if (bench_calibrate(variants[i].body, variants[i].context, options->min_time, &variants[i].row.iterations) != 0)
            return bench_variant_error(&variants[i]);

    struct bench_peak_sample before = bench_peak_take(peak, fmax(MIN_PEAK_SECONDS, options->min_time / 4));
    for (int r = 0; r < options->repetitions; r++)
        for (int i = 0; i < count; i++) {
            struct bench_variant *v = &variants[i];
            struct bench_sample sample;
            if (r > 0 && samples[i].real[r - 1] < LONGEST_WARM_UP && !v->body(v->context))
                return bench_variant_error(v);
            if (bench_measure(v->body, v->context, v->row.iterations, &sample) != 0)
                return bench_variant_error(v);
            const double took = sample.real * (double)v->row.iterations;
            const struct bench_peak_sample after =
                bench_peak_take(peak, fmin(fmax(took, MIN_PEAK_SECONDS), MAX_PEAK_SECONDS));
            samples[i].real[r] = sample.real;
            samples[i].cpu[r] = sample.cpu;
            samples[i].ratio[r] = 1e-9 * v->row.flops / sample.real / (0.5 * (before.registers + after.registers));
            v->row.peak_gflops = fmax(v->row.peak_gflops, fmax(before.registers, after.registers));
            v->row.peak_loads_gflops = fmax(v->row.peak_loads_gflops, fmax(before.loads, after.loads));
            before = after;
            const double possible = bandwidth != NULL ? bench_bandwidth_sample(bandwidth) : 0.0;
            samples[i].moved[r] = possible > 0.0 ? 1e-9 * v->row.bytes / sample.real / possible : 0.0;
            v->row.bandwidth_gb_per_second = fmax(v->row.bandwidth_gb_per_second, possible);
        }
    return 0;
}

static int fastest_of(const double *real, int n)
{
    int fastest = 0;
    for (int r = 1; r < n; r++)
        fastest = real[r] < real[fastest] ? r : fastest;
    return fastest;
}

/* Baseline time / library time: of the fastest samples, and the median over the turns. */
static void compare(struct bench_result *row, const struct samples *library, const struct samples *naive,
                    double *scratch, int n)
{
    row->speedup = naive->real[fastest_of(naive->real, n)] / library->real[fastest_of(library->real, n)];
    for (int r = 0; r < n; r++)
        scratch[r] = naive->real[r] / library->real[r];
    row->speedup_median = bench_median(scratch, n);
}

/* Sorts the samples: call it when nothing needs their order any more. */
static void summarise(struct bench_result *row, struct samples *s, const struct bench_options *options,
                      struct bench_peak_sample best)
{
    const int n = options->repetitions, fastest = fastest_of(s->real, n);
    row->threads = options->threads;
    row->repetitions = n;
    row->real_time = s->real[fastest];
    row->cpu_time = s->cpu[fastest];
    row->real_time_median = bench_median(s->real, n);
    row->gflops = 1e-9 * row->flops / row->real_time;
    row->peak_gflops = best.registers;
    row->peak_loads_gflops = best.loads;
    row->fraction = row->gflops / best.registers;
    row->fraction_of_loads = row->gflops / best.loads;
    row->fraction_median = bench_median(s->ratio, n);
    if (row->bcase->cost != NULL)
        row->token_time = row->real_time / (double)row->bcase->tk;
    if (bench_case_reads_keys(row->bcase) || row->bcase->append || row->bcase->rule)
        row->tokens_per_second = (double)(row->bcase->batch * row->bcase->tq) / row->real_time;
    row->gb_per_second = 1e-9 * row->bytes / row->real_time;
    row->bandwidth_fraction = bench_median(s->moved, n);
}

int bench_turns_take(struct bench_variant *variants, int count, struct bench_peak *peak,
                     struct bench_bandwidth *bandwidth, const struct bench_options *options)
{
    const int n = options->repetitions;
    struct samples samples[BENCH_MAX_VARIANTS];
    double *memory = malloc((4 * (size_t)count + 1) * (size_t)n * sizeof *memory), *scratch = memory;
    if (memory == NULL) {
        fputs("attn-bench: there is not enough memory for the samples\n", stderr);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        samples[i].real = scratch + n + (ptrdiff_t)4 * i * n;
        samples[i].cpu = samples[i].real + n;
        samples[i].ratio = samples[i].cpu + n;
        samples[i].moved = samples[i].ratio + n;
    }
    const int status = take_samples(variants, samples, count, peak, bandwidth, options);
    if (status == 0) {
        const int last = count - 1;
        struct bench_peak_sample best = {0.0, 0.0};
        for (int i = 0; i < count; i++) {
            best.registers = fmax(best.registers, variants[i].row.peak_gflops);
            best.loads = fmax(best.loads, variants[i].row.peak_loads_gflops);
        }
        for (int i = 0; i < last && variants[last].row.kind == BENCH_NAIVE; i++)
            compare(&variants[i].row, &samples[i], &samples[last], scratch, n);
        for (int i = 0; i < count; i++)
            summarise(&variants[i].row, &samples[i], options, best);
    }
    free(memory);
    return status;
}

int bench_turns_report(const struct bench_variant *variants, int count, struct bench_results *results)
{
    for (int i = 0; i < count; i++) {
        struct bench_result *row = bench_results_add(results);
        if (row == NULL)
            return -1;
        *row = variants[i].row;
    }
    return 0;
}
