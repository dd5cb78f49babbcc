/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON with the keys of google-benchmark, so that its tools (compare.py and
 * others) read it: "context", and "benchmarks" with name, run_name, run_type,
 * iterations, real_time, cpu_time, time_unit. Each case is one row of run_type
 * "iteration" whose time is that of the fastest repetition; the median stands
 * beside it. Our own figures are further keys, as user counters are. A figure
 * that a row does not have is left out. With --check there is also "checks".
 */
#include "naive.h"
#include "report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Adds a number unless it is 0, which stands for "none", or no JSON number. */
static int set_figure(json_t *object, const char *key, double x)
{
    return x != 0.0 && isfinite(x) ? json_object_set_new(object, key, json_real(x)) : 0;
}

static int set_integer(json_t *object, const char *key, int64_t x)
{
    return json_object_set_new(object, key, json_integer((json_int_t)x));
}

static int set_text(json_t *object, const char *key, const char *text)
{
    return json_object_set_new(object, key, json_string(text));
}

static json_t *make_caches(void)
{
    json_t *caches = json_array();
    for (int level = 1; level <= 3; level++)
        if (attn_cache_size(level) > 0)
            json_array_append_new(caches, json_pack("{s:s, s:i, s:I}", "type", level == 1 ? "Data" : "Unified", "level",
                                                    level, "size", (json_int_t)attn_cache_size(level)));
    return caches;
}

/* An argument as a shell takes it. */
static void write_argument(FILE *file, const char *text)
{
    const bool plain = text[0] != '\0' && text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                            "0123456789_./:=,+@-")] == '\0';
    if (plain) {
        fputs(text, file);
        return;
    }
    fputc('\'', file);
    for (; *text != '\0'; text++)
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, file);
    fputc('\'', file);
}

/* How to get these figures again: the variable that caps the instruction set, and the arguments. NULL without memory.
 */
static json_t *make_command(char *const *argv)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (file == NULL)
        return NULL;
    const char *cap = getenv("ATTN_MAX_CPU_ISA");
    if (cap != NULL) {
        fputs("ATTN_MAX_CPU_ISA=", file);
        write_argument(file, cap);
        fputc(' ', file);
    }
    fputs("attn-bench", file);
    for (char *const *argument = argv + 1; argv[0] != NULL && *argument != NULL; argument++) {
        fputc(' ', file);
        write_argument(file, *argument);
    }
    json_t *command = fclose(file) == 0 ? json_string(text) : NULL;
    free(text);
    return command;
}

static json_t *make_context(const struct bench_options *options, const struct bench_machine *machine)
{
    char date[64] = "", host[256] = "unknown";
    const time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local) != NULL)
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S%z", &local);
    if (gethostname(host, sizeof host) != 0)
        snprintf(host, sizeof host, "unknown");
    host[sizeof host - 1] = '\0';
    double load[3] = {0.0, 0.0, 0.0};
    if (getloadavg(load, 3) < 0)
        load[0] = load[1] = load[2] = 0.0;

    json_t *context = json_object();
    int failed = set_text(context, "date", date);
    failed |= set_text(context, "host_name", host);
    failed |= set_text(context, "executable", "attn-bench");
    failed |= json_object_set_new(context, "command", make_command(options->argv));
    failed |= set_integer(context, "num_cpus", sysconf(_SC_NPROCESSORS_ONLN));
    failed |= json_object_set_new(context, "caches", make_caches());
    failed |= json_object_set_new(context, "load_avg", json_pack("[f, f, f]", load[0], load[1], load[2]));
    failed |= set_text(context, "library_version", attn_version_string());
    failed |= set_text(context, "compiler", __VERSION__);
    failed |= set_text(context, "cpu", bench_cpu_name());
    failed |= set_text(context, "processor", bench_processor_name(bench_processor()));
    failed |= set_text(context, "isa", options->isa);
    failed |= set_integer(context, "threads", options->threads);
    failed |= set_integer(context, "repetitions", options->repetitions);
    failed |= set_figure(context, "min_time", options->min_time);
    failed |= set_text(context, "blas_kernels", bench_naive_blas_core());
    json_t *peaks = json_object(), *loads = json_object();
    for (int i = 0; i < machine->num_peaks; i++) {
        const char *isa = machine->peaks[i].kernels->isa;
        failed |= set_figure(peaks, isa, machine->peaks[i].registers.best);
        failed |= set_figure(loads, isa, machine->peaks[i].loads.best);
    }
    failed |= json_object_set_new(context, "peak_gflops", peaks);
    failed |= json_object_set_new(context, "peak_loads_gflops", loads);
    failed |= set_figure(context, "read_gb_per_second", machine->memory[BENCH_READ].best);
    failed |= set_figure(context, "write_gb_per_second", machine->memory[BENCH_WRITE].best);
    failed |= set_figure(context, "update_gb_per_second", machine->memory[BENCH_UPDATE].best);
    failed |= set_figure(context, "write_streaming_gb_per_second", machine->memory[BENCH_STREAM].best);
    if (failed != 0) {
        json_decref(context);
        return NULL;
    }
    return context;
}

static json_t *make_row(const struct bench_result *r, int index)
{
    json_t *row = json_object();
    int failed = set_text(row, "name", r->name);
    failed |= set_integer(row, "family_index", index);
    failed |= set_integer(row, "per_family_instance_index", 0);
    failed |= set_text(row, "run_name", r->name);
    failed |= set_text(row, "run_type", "iteration");
    failed |= set_integer(row, "repetitions", r->repetitions);
    failed |= set_integer(row, "repetition_index", 0);
    failed |= set_integer(row, "threads", r->threads);
    failed |= set_integer(row, "iterations", r->iterations);
    failed |= json_object_set_new(row, "real_time", json_real(r->real_time * 1e9));
    failed |= json_object_set_new(row, "cpu_time", json_real((r->cpu_time > 0.0 ? r->cpu_time : r->real_time) * 1e9));
    failed |= set_text(row, "time_unit", "ns");
    failed |= set_figure(row, "real_time_median", r->real_time_median * 1e9);
    failed |= set_text(row, "isa", r->isa);
    failed |= set_figure(row, "gflops", r->gflops);
    failed |= set_figure(row, "peak_gflops", r->peak_gflops);
    failed |= set_figure(row, "fraction", r->fraction);
    failed |= set_figure(row, "fraction_median", r->fraction_median);
    failed |= set_figure(row, "peak_loads_gflops", r->peak_loads_gflops);
    failed |= set_figure(row, "fraction_of_loads", r->fraction_of_loads);
    failed |= set_figure(row, "ns_per_token", r->token_time * 1e9);
    failed |= set_figure(row, "tokens_per_second", r->tokens_per_second);
    failed |= set_figure(row, "bytes_per_second", r->gb_per_second * 1e9);
    failed |= set_figure(row, r->written ? "write_bytes_per_second" : "read_bytes_per_second",
                         r->bandwidth_gb_per_second * 1e9);
    failed |= set_figure(row, r->written ? "fraction_of_write" : "fraction_of_read", r->bandwidth_fraction);
    if (bench_result_of_library(r))
        failed |= json_object_set_new(row, "max_abs_diff", json_real(r->max_abs_diff));
    failed |= set_figure(row, "speedup_over_naive", r->speedup);
    failed |= set_figure(row, "speedup_over_naive_median", r->speedup_median);
    if (r->bcase != NULL) {
        failed |= set_text(row, "case", r->bcase->id);
        failed |= set_text(row, "dtype", attn_dtype_name(r->bcase->dtype));
    }
    if (r->strategy != NULL)
        failed |= set_text(row, "thread_use", r->strategy);
    if (r->workspace_bytes > 0)
        failed |= set_integer(row, "workspace_bytes", (int64_t)r->workspace_bytes);
    if (r->kind == BENCH_MEMORY) {
        failed |= set_integer(row, "workspace_bytes_per_thread", (int64_t)r->workspace_bytes / r->threads);
        failed |= set_integer(row, "tensor_bytes", r->tensor_bytes);
        failed |= set_integer(row, "peak_rss_bytes", r->peak_rss);
        failed |= set_integer(row, "rss_beyond_tensors_bytes", r->peak_rss - r->tensor_bytes);
        failed |= set_integer(row, "rss_growth_bytes", r->rss_growth);
    }
    if (r->plan[0] != '\0')
        failed |= set_text(row, "plan", r->plan);
    if (r->verdict != BENCH_NO_BAR)
        failed |= json_object_set_new(row, "check_met", json_boolean(r->verdict == BENCH_MET));
    if (failed != 0) {
        json_decref(row);
        return NULL;
    }
    return row;
}

static json_t *make_check(const struct bench_check *c)
{
    json_t *check = json_object();
    int failed = set_text(check, "name", c->name);
    failed |= set_text(check, "what", c->what);
    failed |= json_object_set_new(check, "measured", isfinite(c->measured) ? json_real(c->measured) : json_null());
    failed |= set_text(check, "relation", c->at_most ? "at most" : "at least");
    failed |= json_object_set_new(check, "bar", json_real(c->bar));
    failed |= json_object_set_new(check, "met", json_boolean(c->met));
    if (failed != 0) {
        json_decref(check);
        return NULL;
    }
    return check;
}

int bench_report_json(FILE *file, const struct bench_options *options, const struct bench_machine *machine,
                      const struct bench_results *results, const struct bench_checks *checks)
{
    json_t *root = json_object(), *rows = json_array();
    int failed = json_object_set_new(root, "context", make_context(options, machine));
    for (int i = 0; i < results->count; i++)
        failed |= json_array_append_new(rows, make_row(&results->rows[i], i));
    failed |= json_object_set_new(root, "benchmarks", rows);
    if (checks != NULL) {
        json_t *list = json_array();
        for (int i = 0; i < checks->count; i++)
            failed |= json_array_append_new(list, make_check(&checks->items[i]));
        failed |= json_object_set_new(root, "checks", list);
    }
    if (failed == 0)
        failed = json_dumpf(root, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (failed != 0) {
        fputs("attn-bench: the JSON document cannot be built or written\n", stderr);
        return -1;
    }
    fputc('\n', file);
    return 0;
}
