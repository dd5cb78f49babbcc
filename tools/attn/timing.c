/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A turn is a sample of the peak, one of the call, and one of the keys and values read by threads that do nothing else.
 * The pairs of query and key that see each other, and the keys that some query sees, are counted by a callback, on a
 * run of its own before the others: that counts any combination of options as the library takes it, and skips what the
 * library skips.
 */
#include "timing.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peak.h"
#include "bench/timing.h"
#include "io/error.h"
#include "wording.h"

/* ------------------------------------------------------------------ pairs -- */

/* What a call looks at. */
struct seen {
    const struct timed_call *call;
    atomic_llong pairs;
    _Atomic unsigned char *keys; /* [batch][head][key] of k, whether some query sees it */
};

static void count_seen(const attn_score_tile *tile, void *user)
{
    struct seen *s = user;
    const attn_ragged *ragged = s->call->params.ragged;
    const int64_t *k = s->call->k.shape, head = tile->head / (s->call->q.shape[1] / k[1]);
    const int64_t batch = ragged != NULL ? 0 : tile->batch,
                  begin = ragged != NULL ? ragged->cu_seqlens_k[tile->batch] : 0;
    _Atomic unsigned char *keys = s->keys + (batch * k[1] + head) * k[2] + begin + tile->first_key;
    long long pairs = 0;
    for (int64_t j = 0; j < tile->num_keys; j++) {
        const long long before = pairs;
        for (int64_t i = 0; i < tile->num_queries; i++)
            pairs += tile->scores[j * tile->key_stride + i] != -INFINITY;
        if (pairs > before)
            atomic_store_explicit(&keys[j], 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&s->pairs, pairs, memory_order_relaxed);
}

/* Pairs of query and key, and bytes of the keys and values that some query sees. */
static attn_status count_work(const struct timed_call *c, struct timed *t)
{
    const int64_t *k = c->k.shape;
    const size_t keys = (size_t)k[0] * (size_t)k[1] * (size_t)k[2];
    struct seen seen = {.call = c, .keys = calloc(keys, sizeof *seen.keys)};
    size_t used = 0;
    if (seen.keys == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the %zu keys", keys);
    attn_params params = c->params;
    params.callback = count_seen;
    params.callback_user = &seen;
    attn_status status = reworded(WORDING_RUN, attn_forward(&c->q, &c->k, &c->v, &c->out, &params));
    for (size_t i = 0; i < keys; i++)
        used += seen.keys[i];
    free((void *)seen.keys);
    const double scales =
        c->params.k_scale == NULL ? 0 : 4 * (double)(c->params.k_scale->shape[3] + c->params.v_scale->shape[3]);
    const double row =
        (double)attn_row_size(c->k.dtype, k[3]) + (double)attn_row_size(c->v.dtype, c->v.shape[3]) + scales;
    t->pairs = (double)atomic_load(&seen.pairs);
    t->operations = 2 * t->pairs * (double)(c->q.shape[3] + c->v.shape[3]);
    t->bytes = (double)used * row;
    return status;
}

/* ----------------------------------------------------------------- limits -- */

/* The set whose kernels the plan has, as a loop that reaches what they may. */
static const struct bench_isa_kernels *loops_of(const char *plan)
{
    for (int i = 0; attn_isa_name(i) != NULL; i++) {
        const char *isa = attn_isa_name(i);
        if (!bench_plan_names(plan, isa))
            continue;
        const struct bench_isa_kernels *dot = bench_dot_kernels_get(isa);
        return dot != NULL ? dot : bench_isa_kernels_get(isa);
    }
    return NULL;
}

static struct bench_region region_of(const attn_tensor *t)
{
    const double row = (double)attn_row_size(t->dtype, t->shape[3]);
    const double bytes = (double)t->shape[0] * (double)t->shape[1] * (double)t->shape[2] * row;
    return (struct bench_region){.words = t->data, .count = (int64_t)(bytes / 4)};
}

/* ------------------------------------------------------------------ turns -- */

/* Seconds of a sample of the peak: long enough for the start of the threads not to matter. */
#define PEAK_SECONDS 0.005

struct run {
    const struct timed_call *call;
    attn_plan *plan;
    void *workspace;
    size_t size;
    attn_status status;
};

static int run_once(void *context)
{
    struct run *r = context;
    const struct timed_call *c = r->call;
    r->status = attn_plan_run(r->plan, &c->q, &c->k, &c->v, &c->out, &c->params, r->workspace, r->size);
    return r->status == ATTN_OK;
}

static attn_status take_turns(struct run *run, struct bench_peak *peak, struct bench_bandwidth *read, struct timed *t,
                              double *times, double *fractions, void (*turn_done)(void *user), void *user)
{
    const struct timed_call *c = run->call;
    int64_t iterations;
    if (bench_calibrate(run_once, run, c->min_time, &iterations) != 0)
        return reworded(WORDING_RUN, run->status);
    double before = bench_peak_take(peak, PEAK_SECONDS).registers;
    t->fastest = INFINITY;
    for (int i = 0; i < c->repetitions; i++) {
        struct bench_sample sample;
        run_once(run); /* puts the call's data back into the caches */
        if (bench_measure(run_once, run, iterations, &sample) != 0)
            return reworded(WORDING_RUN, run->status);
        const double after = bench_peak_take(peak, PEAK_SECONDS).registers;
        times[i] = sample.real;
        fractions[i] = 1e-9 * t->operations / sample.real / (0.5 * (before + after));
        before = after;
        t->fastest = fmin(t->fastest, sample.real);
        bench_bandwidth_sample(read);
        turn_done(user);
    }
    return ATTN_OK;
}

static attn_status measure(struct run *run, const struct bench_isa_kernels *loops, struct timed *t,
                           void (*turn_done)(void *user), void *user)
{
    const struct timed_call *c = run->call;
    struct bench_peak peak;
    const int threads = c->params.num_threads, used = bench_peak_init(&peak, loops, threads);
    if (used != threads)
        return io_fail(ATTN_UNSUPPORTED, "--threads is %d, but there are %d here (is OMP_THREAD_LIMIT set?)", threads,
                       used);
    struct bench_bandwidth read = {.kernels = bench_isa_kernels_get(loops->isa),
                                   .threads = threads,
                                   .access = BENCH_READ,
                                   .regions = {region_of(&c->k), region_of(&c->v)},
                                   .num_regions = 2};
    double *times = calloc(2 * (size_t)c->repetitions, sizeof *times), *fractions = times + c->repetitions;
    if (times == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %d repetitions", c->repetitions);
    attn_status status = take_turns(run, &peak, &read, t, times, fractions, turn_done, user);
    t->median = bench_median(times, c->repetitions);
    t->peak_fraction_median = bench_median(fractions, c->repetitions);
    free(times);
    t->peak_isa = loops->isa;
    t->peak_of = loops->factors;
    t->peak = peak.registers.best;
    t->loads = peak.loads.best;
    t->read = read.best;
    t->peak_fraction = 1e-9 * t->operations / t->fastest / t->peak;
    t->read_fraction = t->read > 0 ? 1e-9 * t->bytes / t->fastest / t->read : 0;
    return status;
}

attn_status time_call(const struct timed_call *c, struct timed *t, void (*turn_done)(void *user), void *user)
{
    struct run run = {.call = c};
    CHECK(reworded(WORDING_RUN, attn_plan_create(&run.plan, &c->q, &c->k, &c->v, &c->out, &c->params)));
    attn_plan_describe(run.plan, t->plan, sizeof t->plan);
    run.size = attn_plan_workspace_size(run.plan);
    run.workspace = malloc(run.size);
    const struct bench_isa_kernels *loops = loops_of(t->plan);
    attn_status status = ATTN_OK;
    if (run.workspace == NULL)
        status = io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a workspace of %zu bytes", run.size);
    else if (loops == NULL)
        status = io_fail(ATTN_UNSUPPORTED, "there is no loop that measures the peak of these kernels");
    if (status == ATTN_OK)
        status = count_work(c, t);
    if (status == ATTN_OK)
        status = measure(&run, loops, t, turn_done, user);
    free(run.workspace);
    attn_plan_destroy(run.plan);
    return status;
}
