/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hours of mixed calls from several threads: random forward and backward calls, caches, linear attention, with other
 * numbers of threads from call to call, allocations that fail, and children that fork() makes.
 *
 *     soak [--seconds 5] [--threads 4] [--seed N]
 *     soak --seed N --case N [--backward 1]           one case that failed, by 1 to 4 threads, in turn
 *
 * A call that is made again, by other threads, after a failed allocation or in a child, has to give the same bits. In
 * the end the library holds no more memory than after the first tenth of the time, when the threads had ended, too.
 */
#include "arguments.h"
#include "attn/cache.h"
#include "attn/linear_attention.h"
#include "case.h"
#include "dtype.h"
#include "ledger.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum kind { FORWARD, BACKWARD, CACHE, LINEAR, CHILD, REFUSED, KINDS };
static const char *const KIND_NAMES[KINDS] = {"forward",          "backward", "caches",
                                              "linear attention", "children", "failed allocations"};

struct worker {
    pthread_t thread;
    struct test_case c;
    struct rng rng;
    uint64_t seed;
    double end;
    int64_t num[KINDS];
    int failures;
};

static const char *isa;
static pthread_mutex_t drawing = PTHREAD_MUTEX_INITIALIZER; /* cases are made for one thread at a time */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/** why: an error's sentence, or what is wrong where there is none. */
static void fail(struct worker *w, const char *what, const char *why, uint64_t index)
{
    char line[2048];
    case_describe(&w->c, line, sizeof line);
    printf("FAILED: %s: --seed %" PRIu64 " --case %" PRIu64 "%s: %s\n  %s\n", what, w->seed, index,
           w->c.backward ? " --backward 1" : "", why, line);
    fflush(stdout);
    w->failures++;
}

/** FNV-1a over the numbers of a tensor; a NaN is as good as another one. */
static uint64_t mark_of(const attn_tensor *t)
{
    uint64_t mark = 0xcbf29ce484222325U;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t x = 0; x < t->shape[3]; x++) {
                    const double number = tensor_get(t, b, h, i, x);
                    uint64_t bits = 1;
                    if (!isnan(number))
                        memcpy(&bits, &number, sizeof bits);
                    mark = (mark ^ bits) * 0x100000001b3U;
                }
    return mark;
}

/** The call of a worker's case, by so many threads; the mark of what it gives. */
static attn_status call(struct worker *w, int threads, uint64_t *mark)
{
    struct test_case *c = &w->c;
    attn_status status;
    if (c->backward) {
        c->params.num_threads = threads;
        status = attn_backward(&c->q, &c->k, &c->v, &c->out, &c->params, &c->gradients);
        *mark = 0;
        for (int g = 0; g < GRADIENTS; g++)
            *mark = *mark * 31 + (c->d_written[g] ? mark_of(c->d_written[g]) : 0);
    } else {
        c->called.params.num_threads = threads;
        status = attn_forward(&c->q, &c->called.k, &c->called.v, &c->out, &c->called.params);
        *mark = mark_of(&c->out);
        const attn_params *p = &c->called.params;
        const attn_tensor *others[] = {p->lse, p->weights, p->key_sums, p->scores};
        for (size_t n = 0; n < sizeof others / sizeof *others; n++)
            *mark = *mark * 31 + (others[n] ? mark_of(others[n]) : 0);
    }
    return status;
}

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

/* Sanitizers have locks that other threads may hold at a fork(): the child would wait for ever. */
enum { PERCENT_OF_CHILDREN = IS_SANITIZED ? 0 : 2 };

/** The same call in a child. */
static int child_agrees(struct worker *w, uint64_t expected)
{
    const pid_t child = fork();
    if (child == 0) {
        uint64_t mark;
        alarm(120);
        _exit(call(w, 2, &mark) != ATTN_OK ? 2 : mark != expected);
    }
    int status = 0;
    w->num[CHILD]++;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void one_case(struct worker *w, uint64_t index)
{
    struct test_case *c = &w->c;
    struct rng *rng = &w->rng;
    uint64_t first, again;
    c->backward = rng_percent(rng, 30);
    pthread_mutex_lock(&drawing);
    case_generate(c, w->seed, index, isa);
    if (c->backward)
        case_draw_gradients(c, w->seed, index);
    pthread_mutex_unlock(&drawing);
    if (c->backward) {
        if (attn_forward(&c->q, &c->k, &c->v, &c->out, &c->params) != ATTN_OK) {
            fail(w, "a forward call", attn_last_error(), index);
            return;
        }
        case_begin_backward(c, w->seed, index);
    }
    if (call(w, (int)RNG_PICK(rng, 1, 2, 3, 4, 12), &first) != ATTN_OK) {
        fail(w, "a call", attn_last_error(), index);
        return;
    }
    w->num[c->backward ? BACKWARD : FORWARD]++;
    if (rng_percent(rng, 30)) {
        ledger_countdown_here = (int)rng_range(rng, 1, 20);
        const attn_status status = call(w, (int)RNG_PICK(rng, 1, 2, 3, 4, 12), &again);
        ledger_countdown_here = 0;
        w->num[REFUSED] += status == ATTN_OUT_OF_MEMORY;
        if (status != ATTN_OK && status != ATTN_OUT_OF_MEMORY)
            fail(w, "a call whose allocation failed", attn_last_error(), index);
    }
    if (call(w, (int)RNG_PICK(rng, 1, 2, 3, 4, 12), &again) != ATTN_OK)
        fail(w, "the same call again", attn_last_error(), index);
    else if (again != first)
        fail(w, "the same call again", "other numbers", index);
    if (rng_percent(rng, PERCENT_OF_CHILDREN) && !child_agrees(w, first))
        fail(w, "the same call in a child", "other numbers, or no end", index);
}

/** A cache that fills up, forks, is cut and thrown away; a failed allocation ends it. */
static void one_cache(struct worker *w, uint64_t index)
{
    enum { HEADS = 2, D = 16, MOST = 40 };
    static const float zeros[4 * HEADS * MOST * D];
    float out_data[HEADS * D * MOST];
    struct rng *rng = &w->rng;
    attn_cache *cache = NULL;
    attn_cache_config config = attn_cache_config_default();
    config.layers = 1, config.kv_heads = HEADS, config.dk = config.dv = D;
    config.dtype = rng_percent(rng, 50) ? ATTN_F32 : ATTN_BF16;
    config.max_tokens = MOST, config.max_sequences = 3, config.page_size = RNG_PICK(rng, 4, 16);
    ledger_countdown_here = rng_percent(rng, 50) ? (int)rng_range(rng, 1, 12) : 0;
    attn_status status = attn_cache_create(&cache, &config);
    int64_t id = -1, fork_id = -1;
    if (!status)
        status = attn_cache_add(cache, &id);
    for (int64_t length = 0; !status && length < MOST;) {
        const int64_t left = MOST - length, tokens = rng_range(rng, 1, left < 9 ? left : 9);
        const attn_tensor kv = attn_bhtd((void *)(uintptr_t)zeros, 1, HEADS, tokens, D);
        const attn_tensor out = attn_bhtd(out_data, 1, HEADS, tokens, D);
        attn_params params = attn_params_default();
        params.num_threads = (int)rng_range(rng, 1, 4);
        status = attn_cache_step(cache, 1, &id, &tokens, NULL);
        if (!status)
            status = attn_cache_append(cache, 0, &kv, &kv, params.num_threads);
        if (!status)
            status = attn_cache_attend(cache, 0, &kv, &out, &params);
        length += tokens;
        if (!status && fork_id < 0 && length > MOST / 2)
            status = attn_cache_fork(cache, id, &fork_id);
    }
    if (!status)
        status = attn_cache_truncate(cache, id, MOST / 3);
    ledger_countdown_here = 0;
    w->num[CACHE]++;
    w->num[REFUSED] += status == ATTN_OUT_OF_MEMORY;
    if (status != ATTN_OK && status != ATTN_OUT_OF_MEMORY)
        fail(w, "a cache", attn_last_error(), index);
    attn_cache_destroy(cache);
}

/** Linear attention twice, by other numbers of threads. */
static void one_state(struct worker *w, uint64_t index)
{
    enum { HEADS = 3, D = 16, TOKENS = 90 };
    float data[HEADS * TOKENS * D], out_data[2][HEADS * TOKENS * D];
    const int64_t tokens = rng_range(&w->rng, 1, TOKENS);
    rng_fill_normal(&w->rng, data, HEADS * tokens * D);
    const attn_tensor x = attn_bhtd(data, 1, HEADS, tokens, D);
    for (int n = 0; n < 2; n++) {
        const attn_tensor out = attn_bhtd(out_data[n], 1, HEADS, tokens, D);
        attn_linear_attention_params params = attn_linear_attention_params_default();
        params.num_threads = (int)rng_range(&w->rng, 1, 4);
        if (attn_linear_attention(&x, &x, &x, &out, &params) != ATTN_OK)
            fail(w, "linear attention", attn_last_error(), index);
    }
    if (memcmp(out_data[0], out_data[1], (size_t)(HEADS * tokens * D) * sizeof(float)) != 0)
        fail(w, "linear attention again", "other numbers", index);
    w->num[LINEAR]++;
}

static void *work(void *context)
{
    struct worker *w = context;
    for (uint64_t index = 0; now() < w->end && w->failures < 5; index++) {
        if (index % 8 == 3)
            one_cache(w, index);
        else if (index % 8 == 6)
            one_state(w, index);
        else
            one_case(w, index);
    }
    return NULL;
}

/** Kilobytes of this process in memory. */
static long resident(void)
{
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%ld %ld", &size, &pages) != 2)
            pages = 0;
        fclose(file);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/** So many threads for so many seconds; adds up what they did. The number of failures. */
static int soak(int threads, double seconds, uint64_t seed, int64_t num[KINDS])
{
    int failures = 0;
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    if (!workers)
        return 1;
    for (int n = 0; n < threads; n++) {
        struct worker *w = &workers[n];
        w->seed = seed + (uint64_t)n;
        w->rng = rng_for_case(w->seed, 77);
        w->end = now() + seconds;
        case_initialize(&w->c);
    }
    for (int n = 0; n < threads; n++)
        if (pthread_create(&workers[n].thread, NULL, work, &workers[n]) != 0) {
            printf("FAILED: no thread\n");
            exit(1);
        }
    for (int n = 0; n < threads; n++) {
        pthread_join(workers[n].thread, NULL);
        failures += workers[n].failures;
        for (int kind = 0; kind < KINDS; kind++)
            num[kind] += workers[n].num[kind];
        case_release(&workers[n].c);
    }
    free(workers);
    malloc_trim(0);
    return failures;
}

/** One case alone, again and again; the number of failures. */
static int repeat(uint64_t seed, uint64_t index, int backward)
{
    static struct worker w;
    uint64_t first = 0, mark;
    w.seed = seed;
    case_initialize(&w.c);
    w.c.backward = backward;
    case_generate(&w.c, seed, index, isa);
    if (backward) {
        case_draw_gradients(&w.c, seed, index);
        if (attn_forward(&w.c.q, &w.c.k, &w.c.v, &w.c.out, &w.c.params) != ATTN_OK)
            fail(&w, "a forward call", attn_last_error(), index);
        case_begin_backward(&w.c, seed, index);
    }
    for (int n = 0; n < 1000 && !w.failures; n++) {
        const attn_status status = call(&w, 1 + n % 4, &mark);
        first = n ? first : mark;
        if (status != ATTN_OK || mark != first)
            fail(&w, status ? "a call" : "the same call again", status ? attn_last_error() : "other numbers", index);
        if (w.failures)
            printf("%d threads, time %d\n", 1 + n % 4, n);
    }
    case_release(&w.c);
    return w.failures;
}

int main(int argc, char **argv)
{
    int64_t seconds = 5, threads = 4, only = -1, backward = 0;
    uint64_t seed = rng_seed_of_run("soak");
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = arguments_number("--seconds", value, 1);
        else if (strcmp(argv[i], "--threads") == 0)
            threads = arguments_number("--threads", value, 1);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = (uint64_t)arguments_number("--seed", value, 0);
        else if (strcmp(argv[i], "--case") == 0)
            only = arguments_number("--case", value, 0);
        else if (strcmp(argv[i], "--backward") == 0)
            backward = arguments_number("--backward", value, 0);
        else {
            fprintf(stderr, "Usage: %s [--seconds N] [--threads N] [--seed N] [--case N [--backward 1]]\n", argv[0]);
            return 2;
        }
    }
    isa = attn_isa_active();
    /* glibc would let each thread's arena keep twice the largest block that was ever freed. */
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    mallopt(M_TRIM_THRESHOLD, 64 * 1024);
    if (only >= 0)
        return repeat(seed, (uint64_t)only, backward != 0) != 0;
    int64_t num[KINDS] = {0};
    ledger_begin(0, 0);
    int failures = soak((int)threads, 0.1 * (double)seconds, seed, num);
    const long long bytes = ledger.bytes;
    const long before = resident();
    if (!failures)
        failures = soak((int)threads, 0.9 * (double)seconds, seed + 1000, num);
    const long long grown = ledger.bytes - bytes;
    const long after = resident();
    printf("%" PRId64 " seconds, %" PRId64 " threads, %s, seed %" PRIu64 ":", seconds, threads, isa, seed);
    for (int kind = 0; kind < KINDS; kind++)
        printf("%s %" PRId64 " %s", kind ? "," : "", num[kind], KIND_NAMES[kind]);
    printf("; the library's memory has grown by %lld bytes, the process from %ld to %ld KiB\n", grown, before, after);
    if (grown > 0) {
        printf("FAILED: the library holds more than after a tenth of the time\n");
        failures++;
    }
    const long spare = IS_SANITIZED ? 1024 * 1024 : 8 * 1024; /* sanitizers keep what was freed for a while */
    if (after > before + spare) {
        printf("FAILED: the process is larger than after a tenth of the time\n");
        failures++;
    }
    for (int kind = 0; kind < KINDS; kind++)
        if (num[kind] == 0 && num[FORWARD] >= 1000 && (kind != CHILD || PERCENT_OF_CHILDREN > 0)) {
            printf("FAILED: no %s\n", KIND_NAMES[kind]);
            failures++;
        }
    return failures != 0;
}
