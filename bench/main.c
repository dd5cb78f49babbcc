/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn-bench: measures the library against the limits of the machine.
 *
 * The order matters in three places. OpenBLAS chooses its kernels when it is
 * loaded, so the program may start itself again before anything else. The
 * memory case comes before this process has used memory or started threads.
 * The file for the output is made before the first measurement and appears
 * after the last one.
 *
 * Data goes to standard output or --out, everything else to standard error;
 * progress only when that is a terminal.
 */
#include "memory.h"
#include "naive.h"
#include "report.h"
#include "runner.h"

#include <unistd.h>

/* Which rows of a case the mode and the filter ask for. */
static struct bench_selection select_rows(const struct bench_options *options, const struct bench_case *c)
{
    struct bench_selection s = {.library = false};
    if (!bench_case_supported(c, options->isa))
        return s;
    if ((options->compare && !c->compare) || (options->check && !bench_bars_need(c, options->isa, bench_processor())))
        return s;
    char name[BENCH_NAME_SIZE];
    bench_forward_name(c, name);
    s.library = bench_options_match(options, name);
    if (!c->compare)
        return s;
    if (options->compare || options->check) {
        s.naive = s.library; /* a comparison needs both sides, whatever the filter says of one */
    } else {
        bench_naive_name(c, name);
        s.naive = bench_options_match(options, name);
    }
    return s;
}

static bool selected(struct bench_selection s)
{
    return s.library || s.naive;
}

static bool memory_selected(const struct bench_options *options)
{
    return (options->memory || options->check) && bench_options_match(options, bench_memory_name());
}

/* Writes the names of the selected rows when file is not NULL; returns how many cases and memory rows there are. */
static int list_rows(const struct bench_options *options, FILE *file)
{
    int count = 0;
    char name[BENCH_NAME_SIZE];
    if (memory_selected(options)) {
        count++;
        if (file != NULL)
            fprintf(file, "%s\n", bench_memory_name());
    }
    for (int i = 0; i < bench_num_cases; i++) {
        const struct bench_case *c = &bench_cases[i];
        const struct bench_selection s = select_rows(options, c);
        count += selected(s);
        if (file == NULL)
            continue;
        bench_forward_name(c, name);
        if (s.library)
            fprintf(file, "%s\n", name);
        bench_naive_name(c, name);
        if (s.naive)
            fprintf(file, "%s\n", name);
    }
    return count;
}

/* The cursor returns to the start of the line, so that a message of an error does not follow the label. */
static void progress(const char *label)
{
    if (isatty(STDERR_FILENO) != 0)
        fprintf(stderr, "\r\033[K%s\r", label);
}

/* Measures everything that is selected. 0, or -1 after a sentence on stderr. */
static int measure(const struct bench_options *options, int total, struct bench_machine *machine,
                   struct bench_results *results)
{
    int done = 0;
    char label[BENCH_NAME_SIZE + 32];
    if (memory_selected(options)) {
        snprintf(label, sizeof label, "[%d/%d] memory", ++done, total);
        progress(label);
        if (bench_memory_run(options, results) != 0)
            return -1;
    }
    if (bench_machine_init(machine, options) != 0)
        return -1;
    bench_machine_sample(machine);
    for (int i = 0; i < bench_num_cases; i++) {
        const struct bench_selection s = select_rows(options, &bench_cases[i]);
        if (!selected(s))
            continue;
        snprintf(label, sizeof label, "[%d/%d] %s", ++done, total, bench_cases[i].id);
        progress(label);
        if (bench_run_case(machine, options, &bench_cases[i], s, results) != 0)
            return -1;
    }
    progress("");
    bench_machine_sample(machine);
    return bench_machine_report(machine, results);
}

/* A sentence for each promise that was not met, so that the reason for the exit code is seen in every format. */
static int complain(const struct bench_checks *checks)
{
    int code = BENCH_OK;
    for (int i = 0; i < checks->count; i++) {
        const struct bench_check *c = &checks->items[i];
        if (c->met)
            continue;
        fprintf(stderr, "attn-bench: %s: %s is %.9g; expected at %s %.9g\n", c->name, c->what, c->measured,
                c->at_most ? "most" : "least", c->bar);
        code = BENCH_FAILURE;
    }
    if (checks->count == 0) {
        fputs("attn-bench: no promise was checked: the rows that --filter selects have none\n", stderr);
        code = BENCH_FAILURE;
    }
    return code;
}

static int run(const struct bench_options *options, int total, struct bench_sink *sink)
{
    struct bench_machine machine = {.num_peaks = 0};
    struct bench_results results = {.count = 0};
    struct bench_checks checks = {.count = 0};
    int code = BENCH_FAILURE;
    if (measure(options, total, &machine, &results) != 0)
        goto done;
    if (options->check && bench_bars_check(&results, bench_processor(), &checks) != 0)
        goto done;
    if (bench_report(sink->file, options, &machine, &results, options->check ? &checks : NULL) != 0)
        goto done;
    if (bench_sink_commit(sink) != 0)
        goto done;
    code = options->check ? complain(&checks) : BENCH_OK;
done:
    bench_checks_destroy(&checks);
    bench_results_destroy(&results);
    bench_machine_destroy(&machine);
    return code;
}

/* Lists or measures what is selected. */
static int execute(const struct bench_options *options, char **argv)
{
    const int total = list_rows(options, NULL);
    if (total == 0) {
        fputs("attn-bench: --filter leaves no row; see --list for the names\n", stderr);
        return BENCH_USAGE;
    }
    if (!options->list && bench_naive_select_blas(options->isa, options->blas, argv) != 0)
        return BENCH_USAGE;
    struct bench_sink sink;
    if (bench_sink_open(&sink, options->out) != 0)
        return BENCH_FAILURE;
    int code;
    if (options->list) {
        list_rows(options, sink.file);
        code = bench_sink_commit(&sink) == 0 ? BENCH_OK : BENCH_FAILURE;
    } else {
        code = run(options, total, &sink);
    }
    bench_sink_discard(&sink);
    return code;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    int code = bench_options_parse(&options, argc, argv);
    if (code == -1)
        code = options.memory_child ? bench_memory_child(&options) : execute(&options, argv);
    bench_options_destroy(&options);
    return code;
}
