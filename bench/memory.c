/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the memory of one call with T = 131072, one head, d = 64, causal: a score matrix would take 64 GiB.
 *
 * The peak resident set is taken from VmHWM of /proc/self/status, not from
 * getrusage: Linux carries ru_maxrss across exec, so a child would report what
 * its parent had used. getrusage serves where /proc is missing.
 *
 * Two figures come of it. The peak beyond the tensors includes the program
 * itself and its libraries. The growth is the peak after the run less the
 * resident set just before the plan was made, when the tensors were touched
 * and the threads started: what the library used. Some rows of the output are
 * checked in double precision.
 */
#include "numbers.h"
#include "memory.h"
#include "peak.h"
#include "problem.h"
#include "restart.h"
#include "timing.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOKENS    131072
#define HEAD_DIM  64
#define TOLERANCE 2e-5

/* Length of the peak samples before and after the run. */
#define PEAK_SECONDS 0.05

/* What the child writes: real, cpu, flops, GFLOP/s of both peaks, tensor bytes, peak, growth, workspace, difference,
 * description. */
#define REPORT_WRITE "%.9g %.9g %.9g %.9g %.9g %lld %lld %lld %zu %.9g %s\n"
#define REPORT_READ  "%lf %lf %lf %lf %lf %lld %lld %lld %zu %lf %255[^\n]"

const char *bench_memory_name(void)
{
    static const struct bench_case c = {.id = "memory",
                                        .batch = 1,
                                        .heads = 1,
                                        .kv_heads = 1,
                                        .tq = TOKENS,
                                        .tk = TOKENS,
                                        .d = HEAD_DIM,
                                        .causal = ATTN_CAUSAL_TOP_LEFT};
    static char name[BENCH_NAME_SIZE];
    char forward[BENCH_NAME_SIZE];
    bench_forward_name(&c, forward);
    snprintf(name, sizeof name, "memory%.*s", (int)sizeof name - 8, forward + strlen("forward"));
    return name;
}

/* Bytes of a line such as "VmHWM:  1234 kB" of /proc/self/status, or -1. */
static int64_t status_bytes(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL)
        return -1;
    char line[256];
    int64_t bytes = -1;
    const size_t length = strlen(key);
    while (bytes < 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, length) == 0 && line[length] == ':')
            bytes = (int64_t)strtoll(line + length + 1, NULL, 10) * 1024;
    fclose(file);
    return bytes;
}

static int64_t peak_rss(void)
{
    const int64_t peak = status_bytes("VmHWM");
    struct rusage usage;
    if (peak >= 0)
        return peak;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static int64_t current_rss(void)
{
    const int64_t now = status_bytes("VmRSS");
    return now >= 0 ? now : peak_rss();
}

/* The largest error of one output row against the definition, in double. */
static double row_error(const float *q, const float *k, const float *v, const float *out, int64_t i)
{
    double top = -INFINITY, sum = 0.0, value[HEAD_DIM] = {0.0}, largest = 0.0;
    for (int64_t j = 0; j <= i; j++) {
        double score = 0.0;
        for (int c = 0; c < HEAD_DIM; c++)
            score += (double)q[i * HEAD_DIM + c] * (double)k[j * HEAD_DIM + c];
        score /= sqrt((double)HEAD_DIM);
        if (score > top) {
            const double shrink = exp(top - score);
            sum *= shrink;
            for (int c = 0; c < HEAD_DIM; c++)
                value[c] *= shrink;
            top = score;
        }
        const double weight = exp(score - top);
        sum += weight;
        for (int c = 0; c < HEAD_DIM; c++)
            value[c] += weight * (double)v[j * HEAD_DIM + c];
    }
    for (int c = 0; c < HEAD_DIM; c++) {
        const double diff = fabs(value[c] / sum - (double)out[i * HEAD_DIM + c]);
        if (isnan(diff))
            return diff;
        largest = diff > largest ? diff : largest;
    }
    return largest;
}

int bench_memory_child(const struct bench_options *options)
{
    const int64_t n = (int64_t)TOKENS * HEAD_DIM;
    float *data[4];
    for (int i = 0; i < 4; i++) {
        data[i] = bench_alloc_floats(n);
        if (data[i] == NULL) {
            fputs("attn-bench: there is not enough memory for the tensors of the memory case\n", stderr);
            return BENCH_FAILURE;
        }
        if (i < 3)
            bench_fill_normal(data[i], n, (uint64_t)i + 1);
        else
            memset(data[i], 0xff, (size_t)n * sizeof(float));
    }
    const attn_tensor q = attn_bhtd(data[0], 1, 1, TOKENS, HEAD_DIM), k = attn_bhtd(data[1], 1, 1, TOKENS, HEAD_DIM);
    const attn_tensor v = attn_bhtd(data[2], 1, 1, TOKENS, HEAD_DIM), out = attn_bhtd(data[3], 1, 1, TOKENS, HEAD_DIM);
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.isa = options->isa;
    params.num_threads = options->threads;

    /* The first peak sample also starts the threads: their stacks are OpenMP's, not the library's. */
    struct bench_peak limit;
    const struct bench_isa_kernels *kernels = bench_isa_kernels_get(options->isa);
    if (kernels == NULL || bench_peak_init(&limit, kernels, options->threads) != options->threads)
        return BENCH_FAILURE;
    bench_peak_take(&limit, PEAK_SECONDS);
    const int64_t before = current_rss();
    attn_plan *plan;
    attn_status status = attn_plan_create(&plan, &q, &k, &v, &out, &params);
    const size_t size = status == ATTN_OK ? attn_plan_workspace_size(plan) : 0;
    void *workspace = bench_alloc_workspace(size);
    if (workspace == NULL)
        return BENCH_FAILURE;
    const double cpu = bench_cpu_now(), real = bench_now();
    if (status == ATTN_OK)
        status = attn_plan_run(plan, &q, &k, &v, &out, &params, workspace, size);
    const double real_time = bench_now() - real, cpu_time = bench_cpu_now() - cpu;
    const int64_t peak = peak_rss();
    bench_peak_take(&limit, PEAK_SECONDS);
    if (status != ATTN_OK) {
        fprintf(stderr, "attn-bench: the memory case failed: %s\n", attn_last_error());
        return BENCH_FAILURE;
    }

    static const int64_t rows[] = {0, 1, TOKENS / 3, TOKENS - 1};
    double error = 0.0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double e = row_error(data[0], data[1], data[2], data[3], rows[i]);
        error = e > error || isnan(e) ? e : error;
    }
    const double live = 0.5 * (double)TOKENS * ((double)TOKENS + 1.0);
    char description[256];
    attn_plan_describe(plan, description, sizeof description);
    printf(REPORT_WRITE, real_time, cpu_time, 4.0 * HEAD_DIM * live, limit.registers.best, limit.loads.best,
           (long long)(4 * n * (int64_t)sizeof(float)), (long long)peak, (long long)(peak - before), size, error,
           description);
    attn_plan_destroy(plan);
    free(workspace);
    for (int i = 0; i < 4; i++)
        free(data[i]);
    return BENCH_OK;
}

/* Starts the child with its standard output in a pipe; the pipe's read end, or NULL. */
static FILE *start_child(const struct bench_options *options, pid_t *child)
{
    int ends[2];
    if (pipe(ends) != 0)
        return NULL;
    char threads[16], isa[16];
    snprintf(threads, sizeof threads, "%d", options->threads);
    snprintf(isa, sizeof isa, "%s", options->isa);
    char program[] = "attn-bench", child_flag[] = "--memory-child", threads_flag[] = "--threads", isa_flag[] = "--isa";
    char *const argv[] = {program, child_flag, threads_flag, threads, isa_flag, isa, NULL};
    *child = fork();
    if (*child == 0) {
        if (dup2(ends[1], STDOUT_FILENO) >= 0) {
            close(ends[0]);
            close(ends[1]);
            bench_restart(argv);
        }
        _exit(127);
    }
    close(ends[1]);
    if (*child > 0) {
        FILE *file = fdopen(ends[0], "r");
        if (file != NULL)
            return file;
    }
    close(ends[0]);
    return NULL;
}

int bench_memory_run(const struct bench_options *options, struct bench_results *results)
{
    pid_t child = -1;
    FILE *file = start_child(options, &child);
    if (file == NULL) {
        fprintf(stderr, "attn-bench: the process for the memory case cannot be started: %s\n", strerror(errno));
        return -1;
    }
    double flops = 0.0;
    long long tensor_bytes = 0, peak = 0, growth = 0;
    struct bench_result r = {.kind = BENCH_MEMORY, .isa = bench_f32_isa(options->isa), .threads = options->threads};
    const int fields =
        fscanf(file, REPORT_READ, &r.real_time, &r.cpu_time, &flops, &r.peak_gflops, &r.peak_loads_gflops,
               &tensor_bytes, &peak, &growth, &r.workspace_bytes, &r.max_abs_diff, r.plan);
    fclose(file);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (fields < 10 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fputs("attn-bench: the process for the memory case did not finish\n", stderr);
        return -1;
    }
    if (!(r.max_abs_diff <= TOLERANCE)) {
        fprintf(stderr, "attn-bench: the memory case differs from the definition by %g; expected at most %g\n",
                r.max_abs_diff, TOLERANCE);
        return -1;
    }
    snprintf(r.name, sizeof r.name, "%s", bench_memory_name());
    r.repetitions = 1;
    r.iterations = 1;
    r.real_time_median = r.real_time;
    r.gflops = 1e-9 * flops / r.real_time;
    r.fraction = r.fraction_median = r.gflops / r.peak_gflops;
    r.fraction_of_loads = r.gflops / r.peak_loads_gflops;
    r.tensor_bytes = tensor_bytes;
    r.peak_rss = peak;
    r.rss_growth = growth;
    struct bench_result *row = bench_results_add(results);
    if (row == NULL)
        return -1;
    *row = r;
    return 0;
}
