/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn-scaling: measures the table of shapes on 1, 2, 4 threads and so on up to
 * all processors, and writes what it finds, with the machine's topology, as
 * JSON. docs/scaling.md says where to send it.
 *
 * Times are the fastest of some runs, as in attn-bench: whatever else the
 * machine does only makes a run slower. Evenness comes from runs of its own, in
 * which each thread looks at the clock around its shares.
 */
#include "shared.h"
#include "topology.h"

#include "shapes.h"

#include <getopt.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Threads for each processor of an oversubscribed run, and the time that it may take, of that of a thread for each. */
#define CROWD      8
#define MOST_RATIO 1.3

/* The part of the free memory that a shape may take. */
#define MEMORY_PART  0.5

#define MOST_THREADS 1024

struct options {
    const char *filter, *out;
    int repetitions;
    bool oversubscribed, check;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *isa_of(const struct scaling_shape *shape)
{
    const char *found = NULL;
    for (int i = 0; attn_isa_name(i); i++)
        if (attn_isa_supported(attn_isa_name(i)) && scaling_shape_has(shape, attn_isa_name(i)) &&
            strncmp(attn_isa_name(i), "emulated", 8) != 0)
            found = attn_isa_name(i);
    return found;
}

static bool is_wanted(const struct scaling_shape *shape, const struct options *options)
{
    return isa_of(shape) && (!options->filter || strstr(shape->name, options->filter));
}

static bool fits(const struct scaling_shape *shape)
{
    const double rows = (double)shape->batch * ((double)(shape->tq * shape->heads) * (shape->backward ? 4 : 2) +
                                                (double)(shape->tk * shape->kv_heads) * (shape->backward ? 4 : 2));
    const double bytes = rows * (double)shape->d * (shape->dtype == ATTN_F32 ? 4 : 2), memory = scaling_memory();
    return memory == 0 || bytes < MEMORY_PART * memory;
}

/** Seconds of a run, or a negative number. */
static double time_of(struct scaling_call *call)
{
    const double start = now();
    return scaling_call_run(call) ? -1 : now() - start;
}

/** The part of the time that threads have shares to run, all phases together; or a negative number. */
static double evenness_of(struct scaling_call *call)
{
    const int threads =
        call->backward_plan ? attn_backward_plan_num_threads(call->backward_plan) : attn_plan_num_threads(call->plan);
    double busy = 0, whole = 0;
    int failures = 0;
    if (scaling_call_begin(call))
        return -1;
    for (int phase = 0; phase < scaling_call_phases(call); phase++) {
        const double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : busy, failures)
        {
            failures += scaling_call_share(call, phase, omp_get_thread_num(), threads) != 0;
            busy += now() - start;
        }
        whole += now() - start;
    }
    return failures ? -1 : busy / (whole * call->threads);
}

/** Measures a shape on some threads; one is the time of one thread, 0: this is it. NULL after a sentence on stderr. */
static json_t *measure(const struct scaling_shape *shape, int threads, int repetitions, double *one)
{
    struct scaling_call call;
    double least = 0, even = 0;
    if (scaling_call_open(&call, shape, isa_of(shape), threads, false, true))
        return NULL;
    bool failed = time_of(&call) < 0; /* brings the data, and starts threads */
    for (int i = 0; i < repetitions && !failed; i++) {
        const double time = time_of(&call), evenness = evenness_of(&call);
        failed = time < 0 || evenness < 0;
        least = i == 0 || time < least ? time : least;
        even = evenness > even ? evenness : even;
    }
    const double work = call.work;
    scaling_call_close(&call);
    if (failed)
        return NULL;
    if (*one == 0)
        *one = least * threads;
    return json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f}", "shape", shape->name, "isa", isa_of(shape), "threads",
                     threads, "seconds", least, "gflops", 2e-9 * work / least, "speed_up", *one / least, "evenness",
                     even);
}

/** Numbers of threads: powers of two, and all. */
static int next_count(int threads, int all)
{
    return threads < all && 2 * threads > all ? all : 2 * threads;
}

static int measure_all(const struct options *options, json_t *rows, json_t *left_out)
{
    const int all = scaling_processors();
    for (const struct scaling_shape *shape = scaling_shapes; shape->name; shape++) {
        double one = 0;
        if (!is_wanted(shape, options))
            continue;
        if (!fits(shape)) {
            json_array_append_new(left_out, json_string(shape->name));
            continue;
        }
        for (int threads = 1; threads <= all && threads <= MOST_THREADS; threads = next_count(threads, all)) {
            fprintf(stderr, "%s on %d of %d threads\n", shape->name, threads, all);
            json_t *row = measure(shape, threads, options->repetitions, &one);
            if (!row)
                return -1;
            json_array_append_new(rows, row);
        }
    }
    return 0;
}

/* ----------------------------------------------------------- oversubscribed -- */

/** A shape with a thread for each processor and with CROWD, in turns. Returns whether it is fast enough, or -1. */
static int compare(const struct scaling_shape *shape, int repetitions, json_t *rows)
{
    const int all = scaling_processors(), counts[2] = {all, all * CROWD < MOST_THREADS ? all * CROWD : MOST_THREADS};
    struct scaling_call calls[2];
    double least[2] = {0, 0};
    bool failed = false;
    for (int i = 0; i < 2; i++)
        if (scaling_call_open(&calls[i], shape, isa_of(shape), counts[i], false, true)) {
            if (i > 0)
                scaling_call_close(&calls[0]);
            return -1;
        }
    for (int turn = -1; turn < repetitions && !failed; turn++)
        for (int i = 0; i < 2; i++) {
            const double time = time_of(&calls[i]);
            failed |= time < 0;
            if (turn >= 0)
                least[i] = turn == 0 || time < least[i] ? time : least[i];
        }
    scaling_call_close(&calls[0]);
    scaling_call_close(&calls[1]);
    if (failed)
        return -1;
    const double ratio = least[1] / least[0];
    json_array_append_new(rows,
                          json_pack("{s:s, s:i, s:f, s:i, s:f, s:f, s:b}", "shape", shape->name, "threads", counts[0],
                                    "seconds", least[0], "oversubscribed_threads", counts[1], "oversubscribed_seconds",
                                    least[1], "ratio", ratio, "met", ratio <= MOST_RATIO));
    return ratio <= MOST_RATIO;
}

/** Returns whether all shapes are fast enough, or -1. */
static int compare_all(const struct options *options, json_t *rows)
{
    static const char *const names[] = {"encoder-512", "heads-2048-causal", "ragged",
                                        "window",      "backward",          "backward-causal"};
    int met = 1;
    for (const struct scaling_shape *shape = scaling_shapes; shape->name; shape++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            if (strcmp(shape->name, names[i]) != 0 || !is_wanted(shape, options) || !fits(shape))
                continue;
            fprintf(stderr, "%s\n", shape->name);
            const int of_shape = compare(shape, options->repetitions, rows);
            if (of_shape < 0)
                return -1;
            met &= of_shape;
        }
    return met;
}

/* -------------------------------------------------------------- the program -- */

static const char usage[] =
    "Usage: attn-scaling [options]\n"
    "\n"
    "Measures calls of many kinds on 1, 2, 4 threads and so on, up to one for each processor\n"
    "that this process may use, and writes a JSON document: the machine's topology, the price\n"
    "of an increment, of a region of threads and of a page's first write, and for\n"
    "each call and number of threads the seconds of the fastest run, the speed-up and how\n"
    "evenly threads were busy. docs/scaling.md says what to do with it.\n"
    "\n"
    "      --filter TEXT      only calls in whose names it occurs\n"
    "  -r, --repetitions R    runs of each, 1 to 1000 (default: 5)\n"
    "  -o, --out FILE         writes there instead of standard output\n"
    "      --oversubscribed   compares 8 threads for each processor with one instead, in turns\n"
    "      --check            with --oversubscribed: exit code 1 if they take more than 1.3\n"
    "                         times as long\n"
    "  -h, --help             this text\n"
    "\n"
    "Exit codes: 0 done, 1 failure or not as fast as --check wants, 2 wrong usage.\n";

static int usage_error(const char *option, const char *value, const char *expected)
{
    fprintf(stderr, "attn-scaling: %s is '%s'; expected %s\n", option, value, expected);
    return 2;
}

/** -1 to go on, or an exit code. */
static int parse(int argc, char **argv, struct options *options)
{
    static const struct option table[] = {{"filter", required_argument, NULL, 'f'},
                                          {"repetitions", required_argument, NULL, 'r'},
                                          {"out", required_argument, NULL, 'o'},
                                          {"oversubscribed", no_argument, NULL, 's'},
                                          {"check", no_argument, NULL, 'c'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "r:o:h", table, NULL)) != -1;) {
        char *end;
        switch (option) {
        case 'f':
            options->filter = optarg;
            break;
        case 'r':
            options->repetitions = (int)strtol(optarg, &end, 10);
            if (*end || options->repetitions < 1 || options->repetitions > 1000)
                return usage_error("--repetitions", optarg, "a number from 1 to 1000");
            break;
        case 'o':
            options->out = optarg;
            break;
        case 's':
            options->oversubscribed = true;
            break;
        case 'c':
            options->check = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs("Try 'attn-scaling --help'.\n", stderr);
            return 2;
        }
    }
    if (optind < argc)
        return usage_error("an argument", argv[optind], "none");
    if (options->check && !options->oversubscribed) {
        fputs("attn-scaling: --check is given; expected --oversubscribed with it\n", stderr);
        return 2;
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct options options = {.repetitions = 5};
    const int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    FILE *const out = options.out ? fopen(options.out, "w") : stdout;
    if (!out) {
        fprintf(stderr, "attn-scaling: --out is '%s'; expected a file that can be written\n", options.out);
        return 1;
    }
    json_t *rows = json_array(), *left_out = json_array();
    int status = 0, met = 1;
    if (options.oversubscribed)
        status = (met = compare_all(&options, rows)) < 0 ? -1 : 0;
    else
        status = measure_all(&options, rows, left_out);
    json_t *document = json_pack("{s:s, s:s, s:s, s:o, s:o, s:i, s:o, s:o}", "version", attn_version_string(), "isa",
                                 attn_isa_active(), "compiler", __VERSION__, "topology", scaling_topology(), "prices",
                                 scaling_prices(scaling_processors()), "repetitions", options.repetitions,
                                 options.oversubscribed ? "oversubscribed" : "runs", rows, "left_out", left_out);
    if (!document || json_dumpf(document, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0 ||
        fputc('\n', out) == EOF || fflush(out) != 0) {
        fprintf(stderr, "attn-scaling: the document could not be written%s%s\n", options.out ? " to " : "",
                options.out ? options.out : "");
        status = -1;
    }
    json_decref(document);
    if (out != stdout)
        fclose(out);
    return status < 0 || (options.check && met == 0) ? 1 : 0;
}
