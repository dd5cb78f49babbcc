/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate-threads: how evenly 2 to 256 threads would finish. For each shape of
 * the table the library cuts the call for so many threads, and its schedule is
 * replayed on tasks whose costs are estimated, or measured one after the other.
 *
 * The geometry of every instruction set of the build can be looked at, whatever
 * this processor has: what the library learns of it goes through two functions,
 * in whose place the linker puts those below. Kernels run with --measure alone.
 */
#include "replay.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 256

/* Multiply-adds of a thread at least, for evenness to count: 20 times what a thread is woken for
 * (src/driver/threads.h), so that waking it costs no more than the unevenness that is allowed. */
#define WORK_OF_THREAD (20 * 512.0 * 1024)

/* The part of a thread's share that a chain of tasks that wait for each other may take. */
#define MOST_CHAIN (1.0 / 16)

/* What --check asks for: of evenness where there is work, and of speed wherever there are so many multiply-adds. */
#define LEAST_EVENNESS 0.95
#define LEAST_SPEED    0.35

struct options {
    const char *isa;    /**< NULL: all */
    const char *filter; /**< a part of a shape's name */
    bool check;
    int measure; /**< repeats; 0: estimates */
};

/* ----------------------------------------------------------- the processor -- */

static bool any_processor;

int __real_attn_cpu_has(const char *features);
int __wrap_attn_cpu_has(const char *features);
int __real_attn_cpu_permits_matrix(void);
int __wrap_attn_cpu_permits_matrix(void);

int __wrap_attn_cpu_has(const char *features)
{
    return any_processor || __real_attn_cpu_has(features);
}

int __wrap_attn_cpu_permits_matrix(void)
{
    return any_processor || __real_attn_cpu_permits_matrix();
}

/* -------------------------------------------------------------- the figures -- */

/** A shape on some threads. */
struct figure {
    struct scaling_evenness replayed;
    double work;   /**< multiply-adds */
    double chain;  /**< the longest chain of tasks, in the unit of costs */
    double chains; /**< equal ones; 0: there are none, or they differ */
};

/** The time of the longest chain: what no number of threads goes below. A step of 128 keys and a strip of queries is
 * taken for the smallest. */
static void look_at_chains(const struct scaling_call *call, const struct scaling_tasks *tasks, struct figure *figure)
{
    const struct scaling_shape *shape = call->shape;
    for (int p = 0; p < tasks->num_phases; p++)
        if (tasks->phases[p].steps > 0) {
            const double keys = (double)shape->tk / 128, queries = (double)shape->tq / 48;
            const double steps = keys * queries * (shape->causal == ATTN_CAUSAL_NONE ? 1.0 : 0.5);
            const double part =
                2.5 * 2 * (double)(shape->d * shape->tq * shape->tk) * (shape->causal == ATTN_CAUSAL_NONE ? 1.0 : 0.5);
            figure->chain = part * (keys + queries) / steps;
            figure->chains = shape->lengths == SCALING_EQUAL ? (double)(shape->batch * shape->kv_heads) : 0;
        }
}

static int look_at(const struct scaling_shape *shape, const char *isa, int threads, int measure, struct figure *figure)
{
    struct scaling_call call;
    struct scaling_tasks tasks;
    *figure = (struct figure){.work = 0};
    if (scaling_call_open(&call, shape, isa, threads, true, measure > 0))
        return -1;
    int status = scaling_call_begin(&call);
    if (status == 0 && (status = scaling_tasks_estimate(&call, &tasks)) == 0) {
        if (measure > 0)
            status = scaling_tasks_measure(&call, measure, &tasks);
        if (status == 0)
            status = scaling_replay(&tasks, threads, &figure->replayed);
        figure->work = call.work;
        look_at_chains(&call, &tasks, figure);
        scaling_tasks_free(&tasks);
    }
    scaling_call_close(&call);
    return status;
}

static bool has_operations(const struct figure *figure, int threads)
{
    return figure->work >= WORK_OF_THREAD * threads;
}

/** Whether there is work for so many threads. */
static bool has_work(const struct figure *figure, int threads)
{
    return has_operations(figure, threads) &&
           (threads <= figure->chains || figure->chain <= MOST_CHAIN * figure->work / threads);
}

/** A row of the table; returns how many figures are too low, or -1. */
static int show_shape(const struct scaling_shape *shape, const char *isa, const struct options *options)
{
    struct figure one, figure;
    int low = 0;
    bool wrong = false; /* the figure before */
    if (look_at(shape, isa, 1, options->measure, &one))
        return -1;
    printf("%-22s", shape->name);
    for (int threads = 2; threads <= MOST_THREADS; threads *= 2) {
        if (look_at(shape, isa, threads, options->measure, &figure))
            return -1;
        const double evenness = figure.replayed.evenness,
                     speed = one.replayed.finish / figure.replayed.finish / threads;
        const bool work = has_work(&figure, threads);
        if (threads > 2)
            printf("%c", wrong ? '!' : ' ');
        wrong = (work && evenness < LEAST_EVENNESS) || (has_operations(&figure, threads) && speed < LEAST_SPEED);
        low += wrong;
        printf(" %c%.3f%c%.2f", work ? ' ' : '(', evenness, work ? ' ' : ')', speed);
    }
    printf("%s\n", wrong ? "!" : "");
    fflush(stdout); /* measured, the next row takes its time */
    return low;
}

static int show_isa(const char *isa, const struct options *options)
{
    int low = 0, rows = 0;
    for (const struct scaling_shape *shape = scaling_shapes; shape->name; shape++) {
        if (!scaling_shape_has(shape, isa) || (options->filter && !strstr(shape->name, options->filter)))
            continue;
        if (rows++ == 0) {
            printf("%-22s", isa);
            for (int threads = 2; threads <= MOST_THREADS; threads *= 2)
                printf(" %12d", threads);
            printf("\n");
        }
        const int of_shape = show_shape(shape, isa, options);
        if (of_shape < 0)
            return -1;
        low += of_shape;
    }
    return low;
}

/* -------------------------------------------------------------- the program -- */

static const char usage[] = "Usage: simulate-threads [options]\n"
                            "\n"
                            "Shows how evenly 2 to 256 threads finish the calls of a table, by a replay of the\n"
                            "library's own tasks and schedule: the time in which threads compute, as a part of\n"
                            "all time until the last one ends; behind it the speed, as a part of so many times\n"
                            "that of one thread. In parentheses: there is no work for so many threads\n"
                            "(docs/scaling.md). An exclamation mark: lower than --check allows.\n"
                            "\n"
                            "      --isa NAME     only the tasks for that instruction set (default: all sets of the\n"
                            "                     build, whether this processor has them or not)\n"
                            "      --filter TEXT  only shapes in whose names it occurs\n"
                            "      --measure R    runs the tasks, one after the other, R times, 1 to 100, and takes\n"
                            "                     the fastest times instead of estimates; only sets that this\n"
                            "                     processor has. It takes minutes and some GiB of memory\n"
                            "      --check        exit code 1 if a figure is too low\n"
                            "      --help         this text\n"
                            "\n"
                            "Exit codes: 0 done, 1 failure or a figure that is too low, 2 wrong usage.\n";

static int usage_error(const char *option, const char *value, const char *expected)
{
    fprintf(stderr, "simulate-threads: %s is '%s'; expected %s\n", option, value, expected);
    return 2;
}

static bool knows_isa(const char *name)
{
    for (int i = 0; attn_isa_name(i); i++)
        if (strcmp(attn_isa_name(i), name) == 0)
            return true;
    return false;
}

/** -1 to go on, or an exit code. */
static int parse(int argc, char **argv, struct options *options)
{
    static const struct option table[] = {
        {"isa", required_argument, NULL, 'i'},     {"filter", required_argument, NULL, 'f'},
        {"measure", required_argument, NULL, 'm'}, {"check", no_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        char *end;
        switch (option) {
        case 'i':
            options->isa = optarg;
            break;
        case 'f':
            options->filter = optarg;
            break;
        case 'm':
            options->measure = (int)strtol(optarg, &end, 10);
            if (*end || options->measure < 1 || options->measure > 100)
                return usage_error("--measure", optarg, "a number from 1 to 100");
            break;
        case 'c':
            options->check = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs("Try 'simulate-threads --help'.\n", stderr);
            return 2;
        }
    }
    if (optind < argc)
        return usage_error("an argument", argv[optind], "none");
    any_processor = options->measure == 0; /* before the library asks for the first time */
    if (options->isa && !knows_isa(options->isa))
        return usage_error("--isa", options->isa, "the name of an instruction set of this build");
    if (options->isa && !attn_isa_supported(options->isa))
        return usage_error("--isa", options->isa, "with --measure, a set that this processor has");
    return -1;
}

int main(int argc, char **argv)
{
    struct options options = {.isa = NULL};
    const int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    int low = 0;
    for (int i = 0; attn_isa_name(i); i++) {
        const char *const isa = attn_isa_name(i);
        if ((options.isa && strcmp(options.isa, isa) != 0) || !attn_isa_supported(isa))
            continue;
        const int of_isa = show_isa(isa, &options);
        if (of_isa < 0)
            return 1;
        low += of_isa;
    }
    if (options.check && low > 0) {
        fprintf(stderr,
                "simulate-threads: %d figures are too low: of evenness where there is work below %.2f, or of speed "
                "below %.2f\n",
                low, LEAST_EVENNESS, LEAST_SPEED);
        return 1;
    }
    return 0;
}
