/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures one case.
 *
 * The variants of a case (both kinds of exp, and the naive implementation)
 * share its inputs and take turns with samples of the multiply-add peak:
 *
 *     peak sleef peak fast peak naive peak sleef peak ...
 *
 * A neighbour that takes processor time, or a clock that changes, so meets all
 * of them alike. Of a variant's samples the fastest is reported, relative to
 * the fastest peak sample of the same case; see the help text for why. Peak
 * samples are as long as the sample before them, within limits, so that both
 * have the same chance to find an undisturbed moment.
 *
 * The peak is that of the kernels that run the case: of products of bf16 where
 * they multiply pairs of bf16, else of floats.
 *
 * The library runs from a plan and a workspace made before, which is how a
 * caller with a fixed shape uses it. Its output is compared with the naive
 * one before and after measuring: figures of a wrong result are worth nothing.
 * The naive one is always f32, of the values that the 16-bit inputs stand for.
 * Forms that it does not know, and lengths whose scores it has no memory for,
 * are compared in some rows with the definition in double, of the same values.
 */
#include "numbers.h"
#include "naive.h"
#include "rows.h"
#include "runner.h"
#include "timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* sleef, fast, naive. */
#define MAX_VARIANTS 3

/*
 * A sample comes after one of another variant, which has filled the caches with
 * its own matrices: one run that is not timed puts this variant's back, as in a
 * loop of its own. Runs of this length and more do not notice.
 */
#define LONGEST_WARM_UP  0.1

#define MIN_PEAK_SECONDS 0.005
#define MAX_PEAK_SECONDS 0.05

/*
 * Outputs are averages of standard normal values, so of order 1, and both
 * sides compute in f32: with scores of up to about 6 known to 2^-22 of their
 * size, weights differ by a few 1e-6 of theirs.
 */
#define TOLERANCE 2e-5

/*
 * 16-bit outputs are held to the size of their row instead, as they are known
 * to 2^-8 (bf16) or 2^-11 (f16) of it only. Kernels for pairs of bf16 round
 * the weights too, to 2^-8 each. A key too many or too few shows in a row of
 * 2048 keys as 2^-5 and more.
 */
#define TOLERANCE_BF16 0x1p-6
#define TOLERANCE_INT8 0x1p-5 /* scores known to 2^-7 of the size of Q and K */
#define TOLERANCE_F16  0x1p-10

struct variant {
    struct bench_problem *problem;
    struct bench_naive *naive; /**< NULL: the library */
    attn_isa isa;              /**< of the kernels that run */
    attn_params params;
    attn_plan *plan;
    void *workspace;
    size_t workspace_size;

    int64_t iterations;
    double *real, *cpu, *ratio; /**< one for each repetition */
    double best_peak;
    double max_abs_diff;
};

static int run_variant(void *context)
{
    struct variant *v = context;
    struct bench_problem *p = v->problem;
    if (v->naive != NULL)
        return bench_naive_run(v->naive);
    return attn_plan_run(v->plan, &p->typed[0], &p->typed[1], &p->typed[2], &p->out, &v->params, v->workspace,
                         v->workspace_size) == ATTN_OK;
}

static int library_error(const struct variant *v)
{
    fprintf(stderr, "attn-bench: case %s with exp %s failed: %s\n", v->problem->bcase->id,
            bench_exp_name(v->params.exp, v->isa), attn_last_error());
    return -1;
}

/* Computes the output afresh and holds it against what is expected. */
static int check_variant(struct variant *v)
{
    struct bench_problem *p = v->problem;
    bench_problem_spoil(p);
    if (!run_variant(v))
        return library_error(v);
    const attn_dtype dtype = p->bcase->dtype;
    const bool whole = dtype == ATTN_F32 && p->bcase->qk == ATTN_QK_DEFAULT;
    const double tolerance = p->bcase->qk == ATTN_QK_INT8 ? TOLERANCE_INT8
                             : whole                      ? TOLERANCE
                             : dtype == ATTN_BF16         ? TOLERANCE_BF16
                                                          : TOLERANCE_F16;
    const struct bench_difference difference = bench_problem_difference(p);
    const double judged = whole ? difference.largest : difference.of_row;
    if (!(judged <= tolerance)) {
        fprintf(stderr, "attn-bench: case %s with exp %s differs from the %s by %g%s; expected at most %g\n",
                p->bcase->id, bench_exp_name(v->params.exp, v->isa),
                bench_case_sampled(p->bcase) ? "definition" : "naive result", judged,
                whole ? "" : " of the size of a row", tolerance);
        return -1;
    }
    v->max_abs_diff = fmax(v->max_abs_diff, difference.largest);
    return 0;
}

static int alloc_samples(struct variant *v, int repetitions)
{
    v->real = malloc(3 * (size_t)repetitions * sizeof *v->real);
    if (v->real == NULL) {
        fputs("attn-bench: there is not enough memory for the samples\n", stderr);
        return -1;
    }
    v->cpu = v->real + repetitions;
    v->ratio = v->cpu + repetitions;
    return 0;
}

/* A fraction of another set's peak would mean nothing, so the plan is asked what it will run. */
static int check_kernels(const struct variant *v)
{
    char plan[512], wanted[64];
    attn_plan_describe(v->plan, plan, sizeof plan);
    snprintf(wanted, sizeof wanted, ": %s kernel,", attn_isa_name(v->isa));
    if (strstr(plan, wanted) != NULL)
        return 0;
    fprintf(stderr, "attn-bench: case %s: the plan is '%s'; expected the kernels of %s\n", v->problem->bcase->id, plan,
            attn_isa_name(v->isa));
    return -1;
}

static int prepare_library(struct variant *v, struct bench_problem *p, const struct bench_options *options,
                           attn_exp exp)
{
    *v = (struct variant){.problem = p, .isa = bench_case_isa(p->bcase, options->isa), .params = p->params};
    v->params.exp = exp;
    v->params.qk = p->bcase->qk;
    v->params.isa = options->isa;
    v->params.num_threads = options->threads;
    if (attn_plan_create(&v->plan, &p->typed[0], &p->typed[1], &p->typed[2], &p->out, &v->params) != ATTN_OK)
        return library_error(v);
    if (check_kernels(v) != 0)
        return -1;
    v->workspace_size = attn_plan_workspace_size(v->plan);
    v->workspace = bench_alloc_floats((int64_t)(v->workspace_size / sizeof(float) + 1));
    if (v->workspace == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for a workspace of %zu bytes\n", v->workspace_size);
        return -1;
    }
    return check_variant(v) == 0 ? alloc_samples(v, options->repetitions) : -1;
}

static int prepare_naive(struct variant *v, struct bench_problem *p, struct bench_naive *naive,
                         const struct bench_options *options)
{
    *v = (struct variant){.problem = p, .isa = bench_f32_isa(options->isa), .naive = naive};
    v->workspace_size = (size_t)(naive->num_buffers * p->bcase->tq * p->bcase->tk) * sizeof(float);
    return alloc_samples(v, options->repetitions);
}

static void destroy_variant(struct variant *v)
{
    attn_plan_destroy(v->plan);
    free(v->workspace);
    free(v->real);
}

/* The turns. */
static int take_samples(struct variant *variants, int count, struct bench_peak *peak,
                        const struct bench_options *options)
{
    for (int i = 0; i < count; i++)
        if (bench_calibrate(run_variant, &variants[i], options->min_time, &variants[i].iterations) != 0)
            return library_error(&variants[i]);

    double before = bench_peak_sample(peak, fmax(MIN_PEAK_SECONDS, options->min_time / 4));
    for (int r = 0; r < options->repetitions; r++)
        for (int i = 0; i < count; i++) {
            struct variant *v = &variants[i];
            struct bench_sample sample;
            if (r > 0 && v->real[r - 1] < LONGEST_WARM_UP && !run_variant(v))
                return library_error(v);
            if (bench_measure(run_variant, v, v->iterations, &sample) != 0)
                return library_error(v);
            const double took = sample.real * (double)v->iterations;
            const double after = bench_peak_sample(peak, fmin(fmax(took, MIN_PEAK_SECONDS), MAX_PEAK_SECONDS));
            v->real[r] = sample.real;
            v->cpu[r] = sample.cpu;
            v->ratio[r] = 1e-9 * v->problem->flops / sample.real / (0.5 * (before + after));
            v->best_peak = fmax(v->best_peak, fmax(before, after));
            before = after;
        }
    return 0;
}

/* The median over the turns of naive time / library time. */
static double median_speedup(const struct variant *library, const struct variant *naive, int repetitions)
{
    double *ratios = malloc((size_t)repetitions * sizeof *ratios);
    if (ratios == NULL)
        return NAN;
    for (int r = 0; r < repetitions; r++)
        ratios[r] = naive->real[r] / library->real[r];
    const double median = bench_median(ratios, repetitions);
    free(ratios);
    return median;
}

/* Sorts the variant's samples: call it when nothing needs their order any more. */
static void summarise(struct variant *v, const struct bench_options *options, double best_peak,
                      struct bench_result *row)
{
    const int n = options->repetitions;
    int fastest = 0;
    for (int r = 1; r < n; r++)
        fastest = v->real[r] < v->real[fastest] ? r : fastest;
    row->bcase = v->problem->bcase;
    row->isa = v->isa;
    row->exp = v->params.exp;
    row->threads = options->threads;
    row->repetitions = n;
    row->iterations = v->iterations;
    row->real_time = v->real[fastest];
    row->cpu_time = v->cpu[fastest];
    row->real_time_median = bench_median(v->real, n);
    row->flops = v->problem->flops;
    row->gflops = 1e-9 * row->flops / row->real_time;
    row->peak_gflops = best_peak;
    row->fraction = row->gflops / best_peak;
    row->fraction_median = bench_median(v->ratio, n);
    row->max_abs_diff = v->max_abs_diff;
    row->workspace_bytes = v->workspace_size;
    if (v->naive == NULL) {
        row->kind = BENCH_FORWARD;
        bench_forward_name(row->bcase, options->isa, v->params.exp, row->name);
        attn_plan_describe(v->plan, row->plan, sizeof row->plan);
    } else {
        row->kind = BENCH_NAIVE;
        bench_naive_name(row->bcase, row->name);
        row->strategy = bench_naive_strategy_name(v->naive->strategy);
    }
}

static int add_rows(struct variant *variants, int count, const struct bench_options *options,
                    struct bench_results *results)
{
    struct variant *naive = variants[count - 1].naive != NULL ? &variants[count - 1] : NULL;
    double speedup[MAX_VARIANTS] = {0.0}, best_peak = 0.0;
    for (int i = 0; i < count; i++) {
        best_peak = fmax(best_peak, variants[i].best_peak);
        if (naive != NULL && variants[i].naive == NULL)
            speedup[i] = median_speedup(&variants[i], naive, options->repetitions);
    }
    double fastest_naive = INFINITY;
    for (int r = 0; naive != NULL && r < options->repetitions; r++)
        fastest_naive = fmin(fastest_naive, naive->real[r]);
    for (int i = 0; i < count; i++) {
        struct bench_result *row = bench_results_add(results);
        if (row == NULL)
            return -1;
        summarise(&variants[i], options, best_peak, row);
        if (naive != NULL && variants[i].naive == NULL) {
            row->speedup = fastest_naive / row->real_time;
            row->speedup_median = speedup[i];
        }
    }
    return 0;
}

int bench_run_case(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                   struct bench_selection selection, struct bench_results *results)
{
    struct bench_problem problem;
    struct bench_naive naive = {.scores = NULL};
    struct variant variants[MAX_VARIANTS];
    int count = 0, status = -1;

    struct bench_peak *peak = bench_machine_peak(machine, bench_case_isa(c, options->isa));
    if (peak == NULL) {
        fprintf(stderr, "attn-bench: case %s: there is no peak of %s to compare with\n", c->id,
                attn_isa_name(bench_case_isa(c, options->isa)));
        return -1;
    }
    bench_machine_sample(machine);
    if (bench_problem_create(&problem, c) != 0)
        return -1;
    if (bench_case_sampled(c)) {
        if (bench_rows_create(&problem) != 0)
            goto done;
    } else {
        if (bench_naive_create(&naive, &problem, machine->f32->kernels, options->threads,
                               selection.naive ? options->min_time / 4 : 0.0) != 0)
            goto done;
        bench_naive_run(&naive);
    }

    if (selection.sleef && prepare_library(&variants[count++], &problem, options, ATTN_EXP_SLEEF) != 0)
        goto done;
    if (selection.fast && prepare_library(&variants[count++], &problem, options, ATTN_EXP_FAST) != 0)
        goto done;
    if (selection.naive && prepare_naive(&variants[count++], &problem, &naive, options) != 0)
        goto done;
    if (take_samples(variants, count, peak, options) != 0)
        goto done;
    for (int i = 0; i < count; i++)
        if (variants[i].naive == NULL && check_variant(&variants[i]) != 0)
            goto done;
    status = add_rows(variants, count, options, results);
done:
    for (int i = 0; i < count; i++)
        destroy_variant(&variants[i]);
    bench_naive_destroy(&naive);
    bench_problem_destroy(&problem);
    return status;
}
