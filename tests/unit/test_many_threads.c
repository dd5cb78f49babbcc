/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are cut for many threads: smaller blocks of queries, sequences in an
 * order of their own, gradients in small tasks or in two passes. All of them have
 * the bits of one thread, and the largest workspace that was asked for is enough
 * for any number of threads.
 */
#include "fixture.h"
#include "arguments.h"
#include "random.h"

#include "attn/backward.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, HEADS = 4, KV_HEADS = 2, TOKENS = 400, CHANNELS = 16, ELEMENTS = BATCH * HEADS * TOKENS * CHANNELS };

/* Lengths of a ragged batch that has all tokens but the last ones, the short sequences first. */
static const int64_t offsets[] = {0, 3, 3, 60, 64, 190, BATCH *TOKENS - 9};
static const int64_t lengths[BATCH] = {90, TOKENS, 1};

enum form { PLAIN, CAUSAL, LENGTHS, RAGGED, RAGGED_CAUSAL, WINDOW, DOCUMENTS, FORMS };

/** A call and its results. */
struct call {
    attn_tensor q, k, v, out, lse, dout, dq, dk, dv;
    attn_params params;
    attn_gradients gradients;
    attn_ragged ragged;
    attn_window window;
    attn_segments segments;
    attn_executor executor;
    float results[4][ELEMENTS], sums[BATCH * HEADS * TOKENS];
};

/** All shares on the calling thread: a call cut for any number of threads runs anywhere. */
static void run_alone(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    (void)user;
    for (int ith = shares - 1; ith >= 0; ith--)
        share(context, ith);
}

static float inputs[4][ELEMENTS];

/* Documents of 130, 7, 200 and 63 tokens: borders within the keys of a task, whatever their number. */
static int32_t labels[BATCH * TOKENS];

static attn_tensor tensor(float *data, enum form form, int64_t heads, int64_t channels)
{
    const int ragged = form == RAGGED || form == RAGGED_CAUSAL;
    return attn_bhtd(data, ragged ? 1 : BATCH, heads, ragged ? BATCH * TOKENS : TOKENS, channels);
}

static void initialize(struct call *c, enum form form)
{
    memset(c, 0, sizeof *c);
    memset(c->results, 0x5a, sizeof c->results);
    memset(c->sums, 0x5a, sizeof c->sums);
    c->q = tensor(inputs[0], form, HEADS, CHANNELS);
    c->k = tensor(inputs[1], form, KV_HEADS, CHANNELS);
    c->v = tensor(inputs[2], form, KV_HEADS, CHANNELS);
    c->dout = tensor(inputs[3], form, HEADS, CHANNELS);
    c->out = tensor(c->results[0], form, HEADS, CHANNELS);
    c->dq = tensor(c->results[1], form, HEADS, CHANNELS);
    c->dk = tensor(c->results[2], form, KV_HEADS, CHANNELS);
    c->dv = tensor(c->results[3], form, KV_HEADS, CHANNELS);
    c->lse = tensor(c->sums, form, HEADS, 1);
    c->params = attn_params_default();
    c->params.lse = &c->lse;
    if (form == CAUSAL || form == RAGGED_CAUSAL || form == WINDOW)
        c->params.causal = ATTN_CAUSAL_TOP_LEFT;
    if (form == LENGTHS)
        c->params.kv_len = lengths;
    if (form == WINDOW) {
        c->window = (attn_window){.left = 70, .right = 0};
        c->params.window = &c->window;
    }
    c->segments = (attn_segments){labels, labels};
    if (form == DOCUMENTS)
        c->params.segments = &c->segments;
    c->ragged = (attn_ragged){sizeof offsets / sizeof *offsets - 1, offsets, offsets};
    if (form == RAGGED || form == RAGGED_CAUSAL)
        c->params.ragged = &c->ragged;
    c->gradients = attn_gradients_default();
    c->gradients.out = &c->dout;
    c->gradients.q = &c->dq;
    c->gradients.k = &c->dk;
    c->gradients.v = &c->dv;
}

/** Threads of OpenMP's, or as many shares as there are threads. */
static void use_threads(struct call *c, int threads, int executor)
{
    c->params.num_threads = threads;
    c->executor = attn_executor_default();
    c->executor.num_threads = threads;
    c->executor.run = run_alone;
    c->params.executor = executor ? &c->executor : NULL;
}

static void run(struct call *c)
{
    if (attn_forward(&c->q, &c->k, &c->v, &c->out, &c->params) != ATTN_OK ||
        attn_backward(&c->q, &c->k, &c->v, &c->out, &c->params, &c->gradients) != ATTN_OK)
        fail_msg("%s", attn_last_error());
}

/** Whether the gradients of a call are computed in two passes. */
static int is_apart(const struct call *c)
{
    attn_backward_plan *plan = NULL;
    char text[512];
    assert_int_equal(attn_backward_plan_create(&plan, &c->q, &c->k, &c->v, &c->out, &c->params, &c->gradients),
                     ATTN_OK);
    attn_backward_plan_describe(plan, text, sizeof text);
    attn_backward_plan_destroy(plan);
    return strstr(text, "dq apart") != NULL;
}

static void expect_equal(const struct call *c, const struct call *expected, int form, int threads)
{
    static const char *const names[] = {"out", "dq", "dk", "dv"};
    for (int i = 0; i < 4; i++)
        if (memcmp(c->results[i], expected->results[i], sizeof c->results[i]) != 0)
            fail_msg("form %d on %d threads: %s has other bits than on one", form, threads, names[i]);
    assert_memory_equal(c->sums, expected->sums, sizeof c->sums);
}

static void test_bits(void **state)
{
    (void)state;
    static struct call expected, c;
    static const int counts[] = {64, 2, 7, 24, 200};
    const int most = surroundings_are_slow() ? 1 : (int)(sizeof counts / sizeof *counts);
    int apart = 0, together = 0;
    for (int form = 0; form < FORMS; form++) {
        initialize(&expected, (enum form)form);
        use_threads(&expected, 1, 0);
        run(&expected);
        for (int i = 0; i < most; i++) {
            initialize(&c, (enum form)form);
            use_threads(&c, counts[i], counts[i] > 8);
            is_apart(&c) ? apart++ : together++;
            run(&c);
            expect_equal(&c, &expected, form, counts[i]);
        }
    }
    assert_true(apart > 0 && (together > 0 || most == 1)); /* else this tests less than it says */
}

/** Gradients of options, which are sums over blocks of queries and keys. */
static void test_options(void **state)
{
    (void)state;
    enum {
        BUCKETS = 9,
        REACH = 4,
        ROWS = 2 * REACH,
        NUMBERS = 3 * HEADS + HEADS * BUCKETS + TOKENS + 2 * ROWS * CHANNELS
    };
    static struct call c;
    static float factors[3][HEADS], biases[HEADS * BUCKETS], mask_data[TOKENS], rows[2][ROWS * CHANNELS];
    static float got[2][NUMBERS];
    static const int counts[] = {1, 64, 2, 7, 24, 200};
    struct rng rng = rng_for_case(18, 0);
    rng_fill_normal(&rng, factors[0], 3 * HEADS);
    rng_fill_normal(&rng, biases, HEADS * BUCKETS);
    rng_fill_normal(&rng, mask_data, TOKENS);
    rng_fill_normal(&rng, rows[0], 2 * ROWS * CHANNELS);
    const attn_tensor mask = attn_bhtd(mask_data, 1, 1, 1, TOKENS);
    const attn_tensor rel_k = attn_bhtd(rows[0], 1, 1, ROWS, CHANNELS),
                      rel_q = attn_bhtd(rows[1], 1, 1, ROWS, CHANNELS);
    const attn_relative_bias table = {
        .kind = ATTN_BUCKETS_CLIPPED, .buckets = BUCKETS, .max_distance = BUCKETS / 2, .table = biases};
    const attn_disentangled terms = {.span = REACH, .rel_k = &rel_k, .rel_q = &rel_q};
    for (int which = 0; which < 2; which++) /* biases, and terms by distance */
        for (size_t i = 0; i < (surroundings_are_slow() ? 2 : sizeof counts / sizeof *counts); i++) {
            float *at = got[i > 0];
            memset(at, 0, sizeof got[0]);
            initialize(&c, CAUSAL);
            use_threads(&c, counts[i], counts[i] > 8);
            c.params.head_scale = factors[0];
            c.params.sinks = factors[1];
            c.gradients.head_scale = at, at += HEADS;
            c.gradients.sinks = at, at += HEADS;
            const attn_tensor d_mask = attn_bhtd(at + HEADS + HEADS * BUCKETS, 1, 1, 1, TOKENS);
            const attn_tensor d_rel_k = attn_bhtd(at, 1, 1, ROWS, CHANNELS),
                              d_rel_q = attn_bhtd(at + ROWS * CHANNELS, 1, 1, ROWS, CHANNELS);
            if (which) {
                c.params.disentangled = &terms;
                c.gradients.rel_k = &d_rel_k, c.gradients.rel_q = &d_rel_q;
            } else {
                c.params.alibi_slopes = factors[2];
                c.params.relative_bias = &table;
                c.params.mask = &mask;
                c.gradients.alibi_slopes = at;
                c.gradients.relative_bias = at + HEADS;
                c.gradients.mask = &d_mask;
            }
            run(&c);
            for (int n = 0; n < NUMBERS; n++)
                if (memcmp(&got[0][n], &got[i > 0][n], sizeof got[0][n]) != 0)
                    fail_msg("%s, number %d on %d threads is %.9g; on one %.9g", which ? "terms" : "biases", n,
                             counts[i], (double)got[1][n], (double)got[0][n]);
        }
}

/** What was asked for with some threads is enough for others. */
static void test_workspace(void **state)
{
    (void)state;
    static struct call expected, c;
    static const int counts[] = {1, 2, 12, 64, 512};
    enum { COUNTS = sizeof counts / sizeof *counts };
    initialize(&expected, CAUSAL);
    use_threads(&expected, 1, 0);
    run(&expected);
    for (int asked = 0; asked < COUNTS; asked++)
        for (int used = surroundings_are_slow() ? COUNTS - 1 - asked : 0; used < COUNTS; used++) {
            size_t size = 0;
            initialize(&c, CAUSAL);
            use_threads(&c, counts[asked], 1);
            assert_int_equal(attn_backward_workspace_size(&c.q, &c.k, &c.v, &c.out, &c.params, &c.gradients, &size),
                             ATTN_OK);
            void *workspace = malloc(size);
            assert_non_null(workspace);
            use_threads(&c, counts[used], 1);
            assert_int_equal(attn_forward(&c.q, &c.k, &c.v, &c.out, &c.params), ATTN_OK);
            if (attn_backward_in(&c.q, &c.k, &c.v, &c.out, &c.params, &c.gradients, workspace, size) != ATTN_OK)
                fail_msg("asked for %d threads, used by %d: %s", counts[asked], counts[used], attn_last_error());
            expect_equal(&c, &expected, CAUSAL, counts[used]);
            free(workspace);
            if (surroundings_are_slow())
                break;
        }
}

int main(void)
{
    struct rng rng = rng_for_case(17, 0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < ELEMENTS; j++)
            inputs[i][j] = rng_normal(&rng);
    for (int i = 0; i < BATCH * TOKENS; i++) {
        const int token = i % TOKENS;
        labels[i] = token < 130 ? 5 : token < 137 ? 2 : token < 337 ? 9 : 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_workspace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
