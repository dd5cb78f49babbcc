/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of libattn_mpi among threads, without MPI: results and gradients against one call over the whole sequence, and
 * every call of a transport that can fail.
 */
#include "api/error.h"
#include "mpi/plan.h"
#include "random.h"
#include "sentences.h"
#include "thread_ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, TOKENS = 90, D = 16 };
enum { Q, K, V, OUT, LSE, D_OUT, D_Q, D_K, D_V, TABLE, TENSORS };

/** A call over a whole sequence: tensors, options, and what a single process gives. */
struct call {
    attn_mpi_config config;
    attn_params params;
    attn_tensor whole[TENSORS];
    float d_slopes[HEADS];
    int rotated, documents;
};

/** The same among ranks. */
struct job {
    const struct call *call;
    struct thread_ranks *all;
    attn_status status[MOST_RANKS];
    double error[MOST_RANKS]; /**< the largest difference */
    char sentence[MOST_RANKS][256];
};

static int32_t labels[BATCH * TOKENS];
static const float SLOPES[HEADS] = {0.5f, 0.25f, 0.125f, 0.0625f};

static attn_tensor make(int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    attn_tensor t = attn_bhtd(NULL, batch, heads, tokens, channels);
    t.data = calloc((size_t)(batch * heads * tokens * channels) + 1, sizeof(float));
    if (!t.data)
        abort();
    return t;
}

static attn_tensor like(const attn_tensor *t, int64_t tokens)
{
    return make(t->shape[0], t->shape[1], tokens, t->shape[3]);
}

static int64_t elements(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

/** Keeps the larger one; not fmax(), over whose loops gcc 12 for AArch64 breaks down. */
static void keep_larger(double *largest, double x)
{
    if (isnan(x))
        x = INFINITY;
    if (x > *largest)
        *largest = x;
}

/** For each number of a rank's tensor: itself and where it is in the whole one. */
static void visit(const struct call *c, int rank, int ranks, attn_tensor *part, const attn_tensor *whole, int to_part,
                  double *error)
{
    attn_mpi_range ranges[TOKENS];
    int64_t num = 0;
    if (attn_mpi_ranges(&c->config, TOKENS, ranks, rank, ranges, TOKENS, &num) != ATTN_OK)
        abort(); /* cmocka's asserts are for its own thread */
    const int64_t width = part->shape[3];
    for (int64_t row = 0; row < part->shape[0] * part->shape[1]; row++) {
        int64_t t = 0;
        for (int64_t n = 0; n < num; n++)
            for (int64_t i = 0; i < ranges[n].count; i++, t++)
                for (int64_t x = 0; x < width; x++) {
                    float *near = (float *)part->data + (row * part->shape[2] + t) * width + x;
                    const float far = ((const float *)whole->data)[(row * TOKENS + ranges[n].first + i) * width + x];
                    if (to_part)
                        *near = far;
                    else if (isfinite(far) || isfinite(*near)) /* -inf: no key is seen */
                        keep_larger(error, fabs((double)*near - (double)far));
                }
    }
}

/** One rank's call, from its plan to its gradients. */
static void run_rank(void *context, int rank)
{
    struct job *job = context;
    const struct call *c = job->call;
    const int ranks = job->all->ranks;
    const int64_t mine = attn_mpi_local_tokens(&c->config, TOKENS, ranks, rank);
    attn_tensor t[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        t[i] = like(&c->whole[i], mine);
        if (i < OUT || i == D_OUT || i == TABLE)
            visit(c, rank, ranks, &t[i], &c->whole[i], 1, NULL);
    }
    float d_slopes[HEADS];
    attn_params params = c->params;
    attn_gradients gradients = attn_gradients_default();
    attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &t[TABLE], &t[TABLE]};
    params.lse = &t[LSE];
    params.rope = c->rotated ? &rope : NULL;
    gradients.out = &t[D_OUT];
    gradients.q = &t[D_Q], gradients.k = &t[D_K], gradients.v = &t[D_V];
    gradients.alibi_slopes = params.alibi_slopes ? d_slopes : NULL;

    struct mpi_transport transport = thread_ranks_open(job->all, rank);
    const struct mpi_tensors given = {&t[Q], &t[K], &t[V], &t[OUT]};
    attn_mpi_plan *plan = NULL;
    attn_status status = mpi_plan_create(&plan, &transport, ATTN_OK, &given, &params, &c->config);
    for (int time = 0; time < 2 && !status; time++) /* messages are started again */
        status = attn_mpi_forward(plan, &t[Q], &t[K], &t[V], &t[OUT], &params);
    if (!status)
        status = attn_mpi_backward(plan, &t[Q], &t[K], &t[V], &t[OUT], &params, &gradients);
    if (status)
        snprintf(job->sentence[rank], sizeof job->sentence[rank], "%s", attn_last_error());
    attn_mpi_plan_destroy(plan);
    job->status[rank] = status;

    const int compared[] = {OUT, LSE, D_Q, D_K, D_V};
    for (size_t i = 0; !status && i < sizeof compared / sizeof *compared; i++)
        visit(c, rank, ranks, &t[compared[i]], &c->whole[compared[i]], 0, &job->error[rank]);
    for (int h = 0; !status && params.alibi_slopes && h < HEADS; h++)
        keep_larger(&job->error[rank], fabs((double)d_slopes[h] - (double)c->d_slopes[h]) / TOKENS);
    for (int i = 0; i < TENSORS; i++)
        free(t[i].data);
}

/** Draws tensors and computes what is right. */
static void begin_call(struct call *c, uint64_t seed)
{
    struct rng rng = rng_for_case(seed, 1);
    const int64_t heads[TENSORS] = {HEADS, KV_HEADS, KV_HEADS, HEADS, HEADS, HEADS, HEADS, KV_HEADS, KV_HEADS, 1};
    for (int i = 0; i < TENSORS; i++) {
        c->whole[i] = make(i == TABLE ? 1 : BATCH, heads[i], TOKENS, i == LSE ? 1 : i == TABLE ? 2 * (D / 2) : D);
        if (i < OUT || i == D_OUT)
            rng_fill_normal(&rng, c->whole[i].data, elements(&c->whole[i]));
    }
    float *table = c->whole[TABLE].data;
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < D / 2; i++) {
            const double angle = t * pow(0.3, i);
            table[t * D + i] = (float)cos(angle);
            table[t * D + D / 2 + i] = (float)sin(angle);
        }
    for (int t = 0; t < BATCH * TOKENS; t++)
        labels[t] = t % TOKENS / 37;
    static const attn_segments documents = {labels, labels};
    c->params.segments = c->documents ? &documents : NULL;
    c->params.num_threads = 1;
    c->config.queries = c->config.keys = TOKENS;
    c->config.backward = 1;

    attn_params params = c->params;
    attn_gradients gradients = attn_gradients_default();
    attn_tensor *t = c->whole;
    const attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &t[TABLE], &t[TABLE]};
    params.rope = c->rotated ? &rope : NULL;
    params.lse = &t[LSE];
    gradients.out = &t[D_OUT];
    gradients.q = &t[D_Q], gradients.k = &t[D_K], gradients.v = &t[D_V];
    gradients.alibi_slopes = params.alibi_slopes ? c->d_slopes : NULL;
    assert_int_equal(attn_forward(&t[Q], &t[K], &t[V], &t[OUT], &params), ATTN_OK);
    assert_int_equal(attn_backward(&t[Q], &t[K], &t[V], &t[OUT], &params, &gradients), ATTN_OK);
}

static void end_call(struct call *c)
{
    for (int i = 0; i < TENSORS; i++)
        free(c->whole[i].data);
}

/* What follows from indices: of the ranks' own they would say other things. */
static const int64_t GLOBAL[] = {30}, STARTS[BATCH] = {0, 10}, PREFIXES[BATCH] = {20, 40};
static const attn_window WITH_GLOBAL = {.left = 5, .right = 2, .global = GLOBAL, .num_global = 1};
static const attn_window WITH_FIRST = {.left = 5, .right = 0, .first_tokens = 3};
static const int64_t ROWS[] = {0, 1, 3, 4, 6, 7, 9};
static const int32_t COLUMNS[] = {0, 0, 1, 2, 0, 3, 4, 1, 5};
static const attn_block_mask PATTERN = {.size = 16, .rows = 6, .offsets = ROWS, .columns = COLUMNS};
static const attn_dropout DROPOUT = {.p = 0.25f, .seed = 3, .offset = 4};

enum { CALLS = 10 };

/** Calls of every kind of way that messages go, and of what follows from indices. */
static struct call call_number(int n)
{
    struct call c = {.config = attn_mpi_config_default(), .params = attn_params_default()};
    c.config.placement = (attn_mpi_placement)(n % 3);
    c.config.stripe = c.config.placement == ATTN_MPI_STRIPED ? 7 : 0;
    c.params.causal = n % 2 ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    c.params.alibi_slopes = n % 4 == 1 ? SLOPES : NULL;
    c.rotated = n % 4 == 2;
    c.documents = n % 5 == 4;
    c.params.window = n == 6 ? &WITH_GLOBAL : n == 9 ? &WITH_FIRST : NULL;
    c.params.kv_start = n == 9 ? STARTS : NULL;
    c.params.prefix_len = n == 3 ? PREFIXES : NULL;
    c.params.dropout = n == 7 ? &DROPOUT : NULL;
    c.params.block_mask = n == 8 ? &PATTERN : NULL;
    return c;
}

static void test_results(void **state)
{
    (void)state;
    for (int n = 0; n < CALLS; n++) {
        struct call c = call_number(n);
        begin_call(&c, (uint64_t)n);
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int head_ranks = 1; head_ranks <= 2; head_ranks++) {
                if (ranks % head_ranks)
                    continue;
                struct thread_ranks all;
                struct job job = {.call = &c, .all = &all};
                c.config.head_ranks = head_ranks;
                thread_ranks_begin(&all, ranks);
                thread_ranks_run(&all, run_rank, &job);
                for (int rank = 0; rank < ranks; rank++) {
                    if (job.status[rank] || !(job.error[rank] < 2e-5))
                        fail_msg("call %d, rank %d of %d, %d of a group: error %g, %s", n, rank, ranks, head_ranks,
                                 job.error[rank], job.sentence[rank]);
                    assert_int_equal(all.opened[rank], 0);
                }
                assert_null(all.messages);
                thread_ranks_end(&all);
            }
        end_call(&c);
    }
}

/** One call of the transport fails after the other, on one rank: nobody hangs, and each says why. */
static void fail_each(int head_ranks, int ranks)
{
    struct call c = call_number(1);
    begin_call(&c, 1);
    c.config.head_ranks = head_ranks;
    int ended = 0;
    long n = 1;
    for (; !ended; n += n < 40 ? 1 : 7) {
        struct thread_ranks all;
        struct job job = {.call = &c, .all = &all};
        thread_ranks_begin(&all, ranks);
        all.failing_rank = 1;
        all.fails_at = n;
        thread_ranks_run(&all, run_rank, &job);
        ended = all.calls < n; /* it does not make so many */
        for (int rank = 0; rank < ranks; rank++) {
            char expected[64];
            snprintf(expected, sizeof expected, rank == 1 ? "failed: call %ld is to fail" : "failed: rank 1 is gone",
                     n);
            const int late = rank != 1 && job.status[rank] == ATTN_OK; /* that one was not needed any more */
            if (ended ? job.status[rank] != ATTN_OK
                      : !late && (job.status[rank] != ATTN_PEER_LOST || !strstr(job.sentence[rank], expected)))
                fail_msg("call %ld, rank %d: %s", n, rank, job.sentence[rank]);
        }
        assert_int_equal(all.opened[1], !ended); /* messages may be under way */
        thread_ranks_end(&all);
    }
    assert_true(n > 100);
    end_call(&c);
}

static void test_failures(void **state)
{
    (void)state;
    fail_each(1, 3);
    fail_each(2, 4);
}

/** A rank that never comes. */
static void come_but_one(void *context, int rank)
{
    if (rank != 1)
        run_rank(context, rank);
}

static void test_timeout(void **state)
{
    (void)state;
    struct call c = call_number(0);
    begin_call(&c, 2);
    c.config.timeout = 0.05;
    struct thread_ranks all;
    struct job job = {.call = &c, .all = &all};
    thread_ranks_begin(&all, 3);
    thread_ranks_run(&all, come_but_one, &job);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_int_equal(job.status[rank], ATTN_PEER_LOST);
        assert_non_null(strstr(job.sentence[rank], "did not come in 0.05 seconds, config.timeout"));
    }
    thread_ranks_end(&all);
    end_call(&c);
}

/** One rank has failed before the plan, or has no tensors. */
static void refuse_rank(void *context, int rank)
{
    struct job *job = context;
    struct mpi_transport transport = thread_ranks_open(job->all, rank);
    const attn_mpi_config config = attn_mpi_config_default();
    attn_mpi_plan *plan = NULL;
    const attn_status before = rank == 1 ? attn_fail(ATTN_UNSUPPORTED, "what is asked for is not to be had") : ATTN_OK;
    job->status[rank] = mpi_plan_create(&plan, &transport, before, NULL, NULL, &config);
    snprintf(job->sentence[rank], sizeof job->sentence[rank], "%s", attn_last_error());
}

static void test_refusals(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct thread_ranks all;
        struct job job = {.all = &all};
        thread_ranks_begin(&all, ranks);
        thread_ranks_run(&all, refuse_rank, &job);
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(job.status[rank], ranks > 1 ? ATTN_UNSUPPORTED : ATTN_INVALID_ARGUMENT);
            assert_string_equal(job.sentence[rank], ranks > 1 ? "rank 1: what is asked for is not to be had"
                                                              : "no rank has tensors for a plan");
            assert_int_equal(all.opened[rank], 0);
        }
        thread_ranks_end(&all);
    }
}

/** Two tokens of four, of one head with one channel; row 3 sees no key, and row 0 only key 2, which is the other
 * rank's. */
enum { FEW = 4 };
struct few {
    struct thread_ranks all;
    float q[FEW], k[FEW], v[FEW], d_out[FEW];
    float d_sink[MOST_RANKS];
};
static const int32_t FEW_QUERIES[FEW] = {1, 0, 0, 5}, FEW_KEYS[FEW] = {0, 0, 1, 0};
static const float NO_WEIGHT_SINK = 0.0f;

/** Forward and backward of tokens [first, first + tokens): of a rank, or of them all without a plan. */
static void run_few(struct few *few, attn_mpi_plan *plan, int first, int tokens, const attn_segments *labels_of_all,
                    float *d_sink)
{
    float out[FEW] = {NAN, NAN, NAN, NAN}, lse[FEW];
    const attn_tensor q = attn_bhtd(few->q + first, 1, 1, tokens, 1), k = attn_bhtd(few->k + first, 1, 1, tokens, 1);
    const attn_tensor v = attn_bhtd(few->v + first, 1, 1, tokens, 1), o = attn_bhtd(out, 1, 1, tokens, 1);
    const attn_tensor d_o = attn_bhtd(few->d_out + first, 1, 1, tokens, 1), l = attn_bhtd(lse, 1, 1, tokens, 1);
    attn_params params = attn_params_default();
    params.sinks = &NO_WEIGHT_SINK;
    params.segments = labels_of_all;
    params.num_threads = 1;
    params.lse = &l;
    attn_gradients gradients = attn_gradients_default();
    gradients.out = &d_o;
    gradients.sinks = d_sink;
    attn_status status = plan ? attn_mpi_forward(plan, &q, &k, &v, &o, &params) : attn_forward(&q, &k, &v, &o, &params);
    if (!status)
        status = plan ? attn_mpi_backward(plan, &q, &k, &v, &o, &params, &gradients)
                      : attn_backward(&q, &k, &v, &o, &params, &gradients);
    if (status) {
        fprintf(stderr, "%s\n", attn_last_error());
        abort(); /* cmocka's asserts are for its own thread */
    }
}

static void run_few_rank(void *context, int rank)
{
    struct few *few = context;
    const attn_segments segments = {FEW_QUERIES, FEW_KEYS};
    const attn_tensor t = attn_bhtd(few->q, 1, 1, FEW / 2, 1), o = attn_bhtd(few->d_out, 1, 1, FEW / 2, 1);
    attn_tensor lse = attn_bhtd(few->k, 1, 1, FEW / 2, 1);
    attn_params params = attn_params_default();
    params.sinks = &NO_WEIGHT_SINK;
    params.segments = &segments;
    params.lse = &lse;
    attn_mpi_config config = attn_mpi_config_default();
    config.placement = ATTN_MPI_CONTIGUOUS;
    config.queries = config.keys = FEW;
    config.backward = 1;
    struct mpi_transport transport = thread_ranks_open(&few->all, rank);
    const attn_tensor v = attn_bhtd(few->v, 1, 1, FEW / 2, 1);
    const struct mpi_tensors given = {&t, &v, &v, &o};
    attn_mpi_plan *plan = NULL;
    if (mpi_plan_create(&plan, &transport, ATTN_OK, &given, &params, &config)) {
        fprintf(stderr, "%s\n", attn_last_error());
        abort();
    }
    run_few(few, plan, rank * FEW / 2, FEW / 2, &segments, &few->d_sink[rank]);
    attn_mpi_plan_destroy(plan);
}

/**
 * The gradient of a sink that has all the weight, as far as floats can tell: a row counts if its keys are another
 * rank's, even if what they give it is not a number, and does not if it has none, whatever its gradient is.
 */
static void test_sinks(void **state)
{
    (void)state;
    const attn_segments segments = {FEW_QUERIES, FEW_KEYS};
    for (int is_nan = 0; is_nan < 2; is_nan++) {
        struct few few = {.q = {1, 1, 1, 1}, .k = {-1, -1, -50, -1}, .v = {1, 2, 3, 4}, .d_out = {1, -1, 0.5f, NAN}};
        few.v[2] = is_nan ? NAN : 3.0f;
        float expected;
        run_few(&few, NULL, 0, FEW, &segments, &expected);
        assert_true(is_nan ? isnan(expected) : fabsf(expected) > 0.1f);
        thread_ranks_begin(&few.all, 2);
        thread_ranks_run(&few.all, run_few_rank, &few);
        for (int rank = 0; rank < 2; rank++)
            if (is_nan ? !isnan(few.d_sink[rank]) : !(fabsf(few.d_sink[rank] - expected) < 1e-5f))
                fail_msg("rank %d: %g instead of %g", rank, (double)few.d_sink[rank], (double)expected);
        thread_ranks_end(&few.all);
    }
}

/* Many queries and few keys: joining two results is worth several threads, and little else is. */
enum { MANY = 1200, SOME = 16, CHANNELS = 32 };
struct threads {
    struct thread_ranks all;
    int before, most; /**< threads of the process */
};

/** Runs all shares by itself. */
static void run_alone(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    (void)user;
    for (int ith = 0; ith < shares; ith++)
        share(context, ith);
}

static int count_threads(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    int threads = 0;
    while (file && fgets(line, sizeof line, file) && sscanf(line, "Threads: %d", &threads) != 1)
        ;
    if (file)
        fclose(file);
    return threads;
}

static void run_with_executor(void *context, int rank)
{
    struct threads *threads = context;
    attn_executor executor = attn_executor_default();
    executor.num_threads = 2;
    executor.run = run_alone;
    attn_params params = attn_params_default();
    params.executor = &executor;
    attn_mpi_config config = attn_mpi_config_default();
    config.queries = 2 * MANY;
    config.keys = 2 * SOME;
    attn_tensor q = make(1, HEADS, MANY, CHANNELS), k = make(1, HEADS, SOME, CHANNELS), out = like(&q, MANY);
    struct mpi_transport transport = thread_ranks_open(&threads->all, rank);
    const struct mpi_tensors given = {&q, &k, &k, &out};
    attn_mpi_plan *plan = NULL;
    if (mpi_plan_create(&plan, &transport, ATTN_OK, &given, &params, &config) ||
        attn_mpi_forward(plan, &q, &k, &k, &out, &params))
        abort();
    const int now = count_threads(); /* OpenMP keeps those that it has started */
    attn_mpi_plan_destroy(plan);
    pthread_mutex_lock(&threads->all.lock);
    threads->most = now > threads->most ? now : threads->most;
    pthread_mutex_unlock(&threads->all.lock);
    free(q.data);
    free(k.data);
    free(out.data);
}

/** With an executor nothing else has threads, the joining of results among it. */
static void test_executor(void **state)
{
    (void)state;
    struct threads threads = {.before = count_threads()};
    if (!threads.before)
        skip();
    thread_ranks_begin(&threads.all, 2);
    thread_ranks_run(&threads.all, run_with_executor, &threads);
    thread_ranks_end(&threads.all);
    assert_in_range(threads.most, 1, threads.before + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),  cmocka_unit_test(test_failures), cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_sinks),    cmocka_unit_test(test_executor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
