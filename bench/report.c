/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables for people and CSV for programs.
 *
 * CSV is one table, with a header line and the same columns in every row; a
 * figure that a row does not have is empty. Names hold no comma or quote, but
 * descriptions of plans may, and are left to JSON.
 */
#include "naive.h"
#include "report.h"

#include <inttypes.h>

static const char *verdict_name(enum bench_verdict verdict)
{
    return verdict == BENCH_MET ? "met" : verdict == BENCH_NOT_MET ? "not met" : "";
}

/* Seconds with the unit that leaves one to three digits before the point. */
static void print_time(FILE *file, double seconds)
{
    if (seconds >= 1.0)
        fprintf(file, " %9.3f s ", seconds);
    else if (seconds >= 1e-3)
        fprintf(file, " %9.3f ms", seconds * 1e3);
    else if (seconds >= 1e-6)
        fprintf(file, " %9.3f us", seconds * 1e6);
    else
        fprintf(file, " %9.3f ns", seconds * 1e9);
}

/* A figure in a column, or a dash. */
static void print_figure(FILE *file, int width, int digits, double x)
{
    if (x != 0.0)
        fprintf(file, " %*.*f", width, digits, x);
    else
        fprintf(file, " %*s", width, "-");
}

static int name_width(const struct bench_results *results)
{
    int width = 4;
    for (int i = 0; i < results->count; i++) {
        const int length = (int)strlen(results->rows[i].name);
        width = length > width ? length : width;
    }
    return width;
}

static void print_context(FILE *file, const struct bench_options *options)
{
    fprintf(file, "attn-bench %s on %s\n", attn_version_string(), bench_cpu_name());
    fprintf(file, "instruction set %s, %d thread%s, %d repetition%s of %g s, OpenBLAS kernels %s\n\n", options->isa,
            options->threads, options->threads == 1 ? "" : "s", options->repetitions,
            options->repetitions == 1 ? "" : "s", options->min_time, bench_naive_blas_core());
}

static void print_table(FILE *file, const struct bench_results *results)
{
    const int width = name_width(results);
    fprintf(file, "%-*s %12s %9s %9s %8s %8s %8s %8s %8s %8s %9s %9s %8s\n", width, "name", "time", "GFLOP/s", "peak",
            "fraction", "median", "of loads", "GB/s", "of read", "of write", "tokens/s", "max diff", "vs naive");
    for (int i = 0; i < results->count; i++) {
        const struct bench_result *r = &results->rows[i];
        fprintf(file, "%-*s", width, r->name);
        print_time(file, r->real_time);
        print_figure(file, 9, 1, r->gflops);
        print_figure(file, 9, 1, r->peak_gflops);
        print_figure(file, 8, 3, r->fraction);
        print_figure(file, 8, 3, r->fraction_median);
        print_figure(file, 8, 3, r->fraction_of_loads);
        print_figure(file, 8, 1, r->gb_per_second);
        print_figure(file, 8, 3, r->written ? 0.0 : r->bandwidth_fraction);
        print_figure(file, 8, 3, r->written ? r->bandwidth_fraction : 0.0);
        print_figure(file, 9, 1, r->tokens_per_second);
        if (bench_result_of_library(r))
            fprintf(file, " %9.1e", r->max_abs_diff);
        else
            fprintf(file, " %9s", "-");
        print_figure(file, 8, 2, r->speedup);
        fputc('\n', file);
    }
    for (int i = 0; i < results->count; i++) {
        const struct bench_result *r = &results->rows[i];
        if (r->kind == BENCH_MEMORY)
            fprintf(
                file,
                "\n%s:\n  peak resident set %.1f MiB, beyond inputs and outputs %.1f MiB, of which the run %.2f MiB;"
                "\n  workspace %.2f MiB for each of %d threads\n",
                r->name, (double)r->peak_rss / 0x1p20, (double)(r->peak_rss - r->tensor_bytes) / 0x1p20,
                (double)r->rss_growth / 0x1p20, (double)r->workspace_bytes / 0x1p20 / r->threads, r->threads);
    }
}

/* A line for each form, of the lengths that were measured. */
static void print_costs(FILE *file, const struct bench_results *results)
{
    const char *form = NULL;
    for (int i = 0; i < results->count; i++) {
        const struct bench_result *r = &results->rows[i];
        if (r->kind != BENCH_FORWARD || r->token_time == 0.0)
            continue;
        if (form == NULL)
            fputs("\nns per token (of a tree, per key):", file);
        if (form == NULL || strcmp(form, r->bcase->cost) != 0)
            fprintf(file, "\n  %-14s", r->bcase->cost);
        form = r->bcase->cost;
        fprintf(file, "  T=%" PRId64 " %.1f", r->bcase->tk, r->token_time * 1e9);
    }
    if (form != NULL)
        fputc('\n', file);
}

/* The naive row that belongs to a forward row, or NULL. */
static const struct bench_result *naive_of(const struct bench_results *results, const struct bench_result *forward)
{
    for (int i = 0; i < results->count; i++)
        if (results->rows[i].kind == BENCH_NAIVE && results->rows[i].bcase == forward->bcase)
            return &results->rows[i];
    return NULL;
}

static void print_comparison(FILE *file, const struct bench_results *results)
{
    const int width = name_width(results);
    fprintf(file, "%-*s %12s %12s %8s %8s %8s\n", width, "name", "libattn", "naive", "threads", "ratio", "median");
    for (int i = 0; i < results->count; i++) {
        const struct bench_result *r = &results->rows[i];
        const struct bench_result *naive = r->kind == BENCH_FORWARD ? naive_of(results, r) : NULL;
        if (naive == NULL)
            continue;
        fprintf(file, "%-*s", width, r->name);
        print_time(file, r->real_time);
        print_time(file, naive->real_time);
        fprintf(file, " %8s %8.3f %8.3f%s\n", naive->strategy, r->speedup, r->speedup_median,
                r->speedup < 1.0 ? "  slower" : "");
    }
}

static void print_checks(FILE *file, const struct bench_checks *checks)
{
    int met = 0;
    fprintf(file, "\nbars of processors: %s\n", bench_processor_name(bench_processor()));
    for (int i = 0; i < checks->count; i++) {
        const struct bench_check *c = &checks->items[i];
        const int digits = c->bar > 1000.0 ? 0 : 3;
        fprintf(file, "%-7s  %.*f %s %.*f  %s  %s\n", c->met ? "met" : "NOT MET", digits, c->measured,
                c->at_most ? "<=" : ">=", digits, c->bar, c->name, c->what);
        met += c->met;
    }
    fprintf(file, "\n%d of %d met\n", met, checks->count);
}

/* An empty field for a figure that the row does not have. */
static void csv_figure(FILE *file, double x)
{
    if (x != 0.0)
        fprintf(file, ",%.9g", x);
    else
        fputc(',', file);
}

static void print_csv(FILE *file, const struct bench_results *results)
{
    fputs("name,isa,threads,repetitions,iterations,time_unit,real_time,real_time_median,cpu_time,gflops,"
          "peak_gflops,fraction,fraction_median,gb_per_second,max_abs_diff,speedup,speedup_median,strategy,"
          "workspace_bytes,peak_rss_bytes,rss_beyond_tensors_bytes,rss_growth_bytes,peak_loads_gflops,fraction_of_"
          "loads,ns_per_token,fraction_of_read,fraction_of_write,tokens_per_second,"
          "check\n",
          file);
    for (int i = 0; i < results->count; i++) {
        const struct bench_result *r = &results->rows[i];
        fprintf(file, "%s,%s,%d,%d,%" PRId64 ",ns", r->name, r->isa, r->threads, r->repetitions, r->iterations);
        csv_figure(file, r->real_time * 1e9);
        csv_figure(file, r->real_time_median * 1e9);
        csv_figure(file, r->cpu_time * 1e9);
        csv_figure(file, r->gflops);
        csv_figure(file, r->peak_gflops);
        csv_figure(file, r->fraction);
        csv_figure(file, r->fraction_median);
        csv_figure(file, r->gb_per_second);
        if (bench_result_of_library(r))
            fprintf(file, ",%.3g", r->max_abs_diff);
        else
            fputc(',', file);
        csv_figure(file, r->speedup);
        csv_figure(file, r->speedup_median);
        fprintf(file, ",%s", r->strategy != NULL ? r->strategy : "");
        csv_figure(file, (double)r->workspace_bytes);
        csv_figure(file, (double)r->peak_rss);
        csv_figure(file, (double)(r->peak_rss - r->tensor_bytes));
        csv_figure(file, (double)r->rss_growth);
        csv_figure(file, r->peak_loads_gflops);
        csv_figure(file, r->fraction_of_loads);
        csv_figure(file, r->token_time * 1e9);
        csv_figure(file, r->written ? 0.0 : r->bandwidth_fraction);
        csv_figure(file, r->written ? r->bandwidth_fraction : 0.0);
        csv_figure(file, r->tokens_per_second);
        fprintf(file, ",%s\n", verdict_name(r->verdict));
    }
}

int bench_report(FILE *file, const struct bench_options *options, const struct bench_machine *machine,
                 const struct bench_results *results, const struct bench_checks *checks)
{
    switch (options->format) {
    case BENCH_JSON:
        return bench_report_json(file, options, machine, results, checks);
    case BENCH_CSV:
        print_csv(file, results);
        return 0;
    case BENCH_TABLE:
        print_context(file, options);
        if (options->compare)
            print_comparison(file, results);
        else
            print_table(file, results);
        if (!options->compare)
            print_costs(file, results);
        if (checks != NULL)
            print_checks(file, checks);
        return 0;
    }
    return -1;
}
