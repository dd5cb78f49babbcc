/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures one case of attention; those of linear layers are handed to linear.c, those of appending to append.c,
 * those of linear attention to linear_attention.c, of Performer and Linformer to the files of these names, those with
 * additive scores to additive.c, and those with gradients to backward.c.
 *
 * The variants are the library and the naive implementation. turns.c says how
 * they take turns with samples of the peak: that of the kernels that
 * run the case, of products of bf16 where they multiply pairs of bf16, else of
 * floats.
 *
 * The library runs from a plan and a workspace made before, which is how a
 * caller with a fixed shape uses it. Its output is compared with the naive
 * one before and after measuring: figures of a wrong result are worth nothing.
 * The naive one is always f32, of the values that the 16-bit inputs stand for.
 * Forms that it does not know, and lengths whose scores it has no memory for,
 * are compared in some rows with the definition in double, of the same values.
 */
#include "runner.h"
#include "additive.h"
#include "append.h"
#include "backward.h"
#include "linear.h"
#include "linear_attention.h"
#include "linformer.h"
#include "naive.h"
#include "numbers.h"
#include "performer.h"
#include "rows.h"
#include "turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

/* What a variant of the library runs with. */
struct planned {
    struct bench_problem *problem;
    attn_params params;
    attn_plan *plan;
    void *workspace;
    size_t workspace_size;
};

static int run_planned(void *context)
{
    struct planned *l = context;
    struct bench_problem *p = l->problem;
    return attn_plan_run(l->plan, &p->typed[0], bench_problem_keys(p, 1), bench_problem_keys(p, 2), &p->out, &l->params,
                         l->workspace, l->workspace_size) == ATTN_OK;
}

/* Computes the output afresh and holds it against what is expected. */
static int check_library(struct bench_variant *v)
{
    struct planned *l = v->context;
    struct bench_problem *p = l->problem;
    bench_problem_spoil(p);
    if (!v->body(l))
        return bench_variant_error(v);
    const attn_dtype dtype = p->bcase->dtype;
    const bool whole = dtype == ATTN_F32 && p->bcase->qk == ATTN_QK_DEFAULT;
    const double tolerance = p->bcase->qk == ATTN_QK_INT8 ? TOLERANCE_INT8
                             : whole                      ? TOLERANCE
                             : dtype == ATTN_BF16         ? TOLERANCE_BF16
                                                          : TOLERANCE_F16;
    const struct bench_difference difference = bench_problem_difference(p);
    const double judged = whole ? difference.largest : difference.of_row;
    if (!(judged <= tolerance)) {
        fprintf(stderr, "attn-bench: %s differs from the %s by %g%s; expected at most %g\n", v->row.name,
                bench_case_sampled(p->bcase) ? "definition" : "naive result", judged,
                whole ? "" : " of the size of a row", tolerance);
        return -1;
    }
    v->row.max_abs_diff = fmax(v->row.max_abs_diff, difference.largest);
    return 0;
}

static int prepare_library(struct bench_variant *v, struct planned *l, struct bench_problem *p,
                           const struct bench_options *options)
{
    const struct bench_case *c = p->bcase;
    *l = (struct planned){.problem = p, .params = p->params};
    l->params.qk = c->qk;
    l->params.isa = options->isa;
    l->params.num_threads = options->threads;
    *v = (struct bench_variant){.body = run_planned, .context = l};
    v->row.kind = BENCH_FORWARD;
    v->row.bcase = c;
    v->row.isa = bench_case_isa(c, options->isa);
    v->row.flops = p->flops;
    v->row.bytes = bench_case_reads_keys(c) ? bench_case_key_bytes(c) : 0.0;
    bench_forward_name(c, v->row.name);
    if (attn_plan_create(&l->plan, &p->typed[0], bench_problem_keys(p, 1), bench_problem_keys(p, 2), &p->out,
                         &l->params) != ATTN_OK)
        return bench_variant_error(v);
    attn_plan_describe(l->plan, v->row.plan, sizeof v->row.plan);
    if (bench_result_check_kernels(&v->row) != 0)
        return -1;
    l->workspace_size = v->row.workspace_bytes = attn_plan_workspace_size(l->plan);
    l->workspace = bench_alloc_workspace(l->workspace_size);
    if (l->workspace == NULL)
        return -1;
    return check_library(v);
}

static void prepare_naive(struct bench_variant *v, struct bench_naive *naive, const struct bench_problem *p,
                          const struct bench_options *options)
{
    *v = (struct bench_variant){.body = bench_naive_run, .context = naive};
    v->row.kind = BENCH_NAIVE;
    v->row.bcase = p->bcase;
    v->row.isa = bench_f32_isa(options->isa);
    v->row.flops = p->flops;
    v->row.strategy = bench_naive_strategy_name(naive->strategy);
    v->row.workspace_bytes = (size_t)(naive->num_buffers * p->bcase->tq * p->bcase->tk) * sizeof(float);
    bench_naive_name(p->bcase, v->row.name);
}

static int run_attention(struct bench_machine *machine, struct bench_peak *peak, const struct bench_options *options,
                         const struct bench_case *c, struct bench_selection selection, struct bench_results *results)
{
    struct bench_problem problem;
    struct bench_naive naive = {.scores = NULL};
    struct planned planned = {.plan = NULL};
    struct bench_variant variants[BENCH_MAX_VARIANTS];
    int count = 0, status = -1;

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

    if (selection.library && prepare_library(&variants[count++], &planned, &problem, options) != 0)
        goto done;
    if (selection.naive)
        prepare_naive(&variants[count++], &naive, &problem, options);
    /* Of the same bytes, wherever they are: in memory, or in a cache that the last call has left them in. */
    struct bench_bandwidth reading = {
        .kernels = machine->f32->kernels, .threads = options->threads, .access = BENCH_READ};
    bench_problem_memory(&problem, &reading);
    if (bench_turns_take(variants, count, peak, bench_case_reads_keys(c) ? &reading : NULL, options) != 0)
        goto done;
    if (selection.library && check_library(&variants[0]) != 0)
        goto done;
    status = bench_turns_report(variants, count, results);
done:
    attn_plan_destroy(planned.plan);
    free(planned.workspace);
    bench_naive_destroy(&naive);
    bench_problem_destroy(&problem);
    return status;
}

int bench_run_case(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                   struct bench_selection selection, struct bench_results *results)
{
    struct bench_peak *peak = bench_machine_peak(machine, bench_case_isa(c, options->isa));
    if (peak == NULL) {
        fprintf(stderr, "attn-bench: case %s: there is no peak of %s to compare with\n", c->id,
                bench_case_isa(c, options->isa));
        return -1;
    }
    bench_machine_sample(machine);
    if (bench_case_linear(c) && c->pass != BENCH_PASS_FORWARD)
        return bench_linear_backward_run(machine, options, c, selection, results);
    if (c->rule && c->pass != BENCH_PASS_FORWARD)
        return bench_linear_attention_backward_run(machine, options, c, results);
    return bench_case_linear(c)            ? bench_linear_run(machine, options, c, selection, results)
           : c->rule                       ? bench_linear_attention_run(machine, options, c, results)
           : c->features > 0               ? bench_performer_run(machine, options, c, results)
           : c->projected > 0              ? bench_linformer_run(machine, options, c, results)
           : c->additive                   ? bench_additive_run(machine, options, c, results)
           : c->append                     ? bench_append_run(machine, options, c, results)
           : c->pass != BENCH_PASS_FORWARD ? bench_backward_run(peak, options, c, results)
                                           : run_attention(machine, peak, options, c, selection, results);
}
