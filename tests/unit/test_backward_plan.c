/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of the backward pass, its calls in a caller's memory, and its shares on
 * threads that are not OpenMP's: the bits of attn_backward(), whoever runs them;
 * workspaces one byte too small, arguments of a share, and runs that are not what
 * was planned.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "attn/attn.h"
#include "attn/backward.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, HQ = 4, HKV = 2, TQ = 60, TK = 520, DK = 10, DV = 6, THREADS = 3, BUCKETS = 9 };
enum { SPAN = 20, TABLE_SIZE = 2 * SPAN * DK };
enum { Q_SIZE = B * HQ * TQ * DK, K_SIZE = B * HKV * TK * DK, V_SIZE = B * HKV * TK * DV, OUT_SIZE = B * HQ * TQ * DV };

/** What a backward call writes. */
struct written {
    float q[Q_SIZE], k[K_SIZE], v[V_SIZE], mask[TQ * TK], slopes[HQ], sinks[HQ], head_scale[HQ], table[HQ * BUCKETS];
    float rel_k[HQ * TABLE_SIZE], rel_q[TABLE_SIZE];
};

/** A forward call that has been made, and its gradients. */
struct training {
    float q_data[Q_SIZE], k_data[K_SIZE], v_data[V_SIZE], out_data[OUT_SIZE], d_out_data[OUT_SIZE];
    float lse_data[B * HQ * TQ], d_lse_data[B * HQ * TQ], mask_data[TQ * TK], numbers[3][HQ], table[HQ * BUCKETS];
    attn_tensor q, k, v, out, lse, mask, d_out, d_lse, d_q, d_k, d_v, d_mask;
    float rel_k_data[HQ * TABLE_SIZE], rel_q_data[TABLE_SIZE];
    attn_tensor rel_k, rel_q, d_rel_k, d_rel_q;
    attn_relative_bias bias;
    attn_disentangled disentangled;
    attn_params params;
    attn_gradients gradients;
    struct written written;
};

static void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/** Points the gradients to where they go. */
static void write_to(struct training *t, struct written *to)
{
    t->d_q.data = to->q, t->d_k.data = to->k, t->d_v.data = to->v, t->d_mask.data = to->mask;
    t->gradients.alibi_slopes = to->slopes;
    t->gradients.sinks = to->sinks;
    t->gradients.head_scale = to->head_scale;
    t->gradients.relative_bias = to->table;
    t->d_rel_k.data = to->rel_k, t->d_rel_q.data = to->rel_q;
    memset(to, 0x5A, sizeof *to);
}

static struct training *training_of(int threads)
{
    struct training *t = calloc(1, sizeof *t);
    assert_non_null(t);
    float *const data[] = {t->q_data,    t->k_data, t->v_data,     t->d_out_data, t->d_lse_data,
                           t->mask_data, t->table,  t->rel_k_data, t->rel_q_data};
    const size_t sizes[] = {Q_SIZE,  K_SIZE,       V_SIZE,          OUT_SIZE,  B * HQ * TQ,
                            TQ * TK, HQ * BUCKETS, HQ * TABLE_SIZE, TABLE_SIZE};
    for (unsigned i = 0; i < sizeof data / sizeof *data; i++)
        fill(data[i], sizes[i], i + 1);
    fill(t->numbers[0], 3 * HQ, 20);
    t->q = attn_bhtd(t->q_data, B, HQ, TQ, DK), t->d_q = attn_bhtd(NULL, B, HQ, TQ, DK);
    t->k = attn_bhtd(t->k_data, B, HKV, TK, DK), t->d_k = attn_bhtd(NULL, B, HKV, TK, DK);
    t->v = attn_bhtd(t->v_data, B, HKV, TK, DV), t->d_v = attn_bhtd(NULL, B, HKV, TK, DV);
    t->out = attn_bhtd(t->out_data, B, HQ, TQ, DV), t->d_out = attn_bhtd(t->d_out_data, B, HQ, TQ, DV);
    t->lse = attn_bhtd(t->lse_data, B, HQ, TQ, 1), t->d_lse = attn_bhtd(t->d_lse_data, B, HQ, TQ, 1);
    t->mask = attn_bhtd(t->mask_data, 1, 1, TQ, TK), t->d_mask = attn_bhtd(NULL, 1, 1, TQ, TK);
    t->bias = (attn_relative_bias){ATTN_BUCKETS_CLIPPED, BUCKETS, (BUCKETS - 1) / 2, t->table};
    t->rel_k = attn_bhtd(t->rel_k_data, 1, HQ, 2 * SPAN, DK), t->d_rel_k = attn_bhtd(NULL, 1, HQ, 2 * SPAN, DK);
    t->rel_q = attn_bhtd(t->rel_q_data, 1, 1, 2 * SPAN, DK), t->d_rel_q = attn_bhtd(NULL, 1, 1, 2 * SPAN, DK);
    t->disentangled = (attn_disentangled){.span = SPAN, .rel_k = &t->rel_k, .rel_q = &t->rel_q};
    t->params = attn_params_default();
    t->params.disentangled = &t->disentangled;
    t->params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    t->params.alibi_slopes = t->numbers[0];
    t->params.sinks = t->numbers[1];
    t->params.head_scale = t->numbers[2];
    t->params.relative_bias = &t->bias;
    t->params.mask = &t->mask;
    t->params.lse = &t->lse;
    t->params.num_threads = threads;
    t->gradients = attn_gradients_default();
    t->gradients.out = &t->d_out, t->gradients.lse = &t->d_lse;
    t->gradients.q = &t->d_q, t->gradients.k = &t->d_k, t->gradients.v = &t->d_v, t->gradients.mask = &t->d_mask;
    t->gradients.rel_k = &t->d_rel_k, t->gradients.rel_q = &t->d_rel_q;
    write_to(t, &t->written);
    assert_int_equal(attn_forward(&t->q, &t->k, &t->v, &t->out, &t->params), ATTN_OK);
    return t;
}

/** What attn_backward() gives on one thread. */
static struct written *expected_of(struct training *t)
{
    struct written *expected = malloc(sizeof *expected);
    assert_non_null(expected);
    const int threads = t->params.num_threads;
    write_to(t, expected);
    t->params.num_threads = 1;
    assert_int_equal(attn_backward(&t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients), ATTN_OK);
    t->params.num_threads = threads;
    write_to(t, &t->written);
    return expected;
}

static attn_backward_plan *plan_of(const struct training *t)
{
    attn_backward_plan *plan = NULL;
    assert_int_equal(attn_backward_plan_create(&plan, &t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients),
                     ATTN_OK);
    assert_non_null(plan);
    return plan;
}

static attn_status run(const attn_backward_plan *plan, const struct training *t, void *workspace, size_t size)
{
    return attn_backward_plan_run(plan, &t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients, workspace, size);
}

static attn_status begin(const attn_backward_plan *plan, const struct training *t, void *workspace, size_t size)
{
    return attn_backward_plan_begin(plan, &t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients, workspace, size);
}

static int is_untouched(const struct written *w)
{
    const unsigned char *const bytes = (const unsigned char *)w;
    for (size_t i = 0; i < sizeof *w; i++)
        if (bytes[i] != 0x5A)
            return 0;
    return 1;
}

static void test_run(void **state)
{
    (void)state;
    struct training *t = training_of(THREADS);
    struct written *expected = expected_of(t);
    attn_backward_plan *plan = plan_of(t);
    const size_t size = attn_backward_plan_workspace_size(plan);
    char *workspace = malloc(size + 1);
    assert_non_null(workspace);
    assert_int_equal(run(plan, t, workspace + 1, size - 1), ATTN_WORKSPACE_TOO_SMALL);
    assert_int_equal(run(plan, t, NULL, size), ATTN_INVALID_ARGUMENT);
    assert_int_equal(run(NULL, t, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_int_equal(begin(plan, t, workspace, size - 1), ATTN_WORKSPACE_TOO_SMALL);
    assert_true(is_untouched(&t->written));
    /* To where the plan was made for, then elsewhere. */
    struct written *elsewhere = calloc(1, sizeof *elsewhere);
    assert_non_null(elsewhere);
    for (int i = 0; i < 2; i++) {
        struct written *const to = i ? elsewhere : &t->written;
        write_to(t, to);
        assert_int_equal(run(plan, t, workspace + 1, size), ATTN_OK);
        assert_memory_equal(to, expected, sizeof *expected);
    }
    attn_backward_plan_destroy(plan);
    attn_backward_plan_destroy(NULL);
    free(workspace), free(elsewhere), free(expected), free(t);
}

/** A call in a workspace for all threads, and for one. */
static void test_in(void **state)
{
    (void)state;
    struct training *t = training_of(THREADS);
    struct written *expected = expected_of(t);
    size_t size = 0, least = 0;
    assert_int_equal(attn_backward_workspace_size(&t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients, &size),
                     ATTN_OK);
    t->params.num_threads = 1;
    assert_int_equal(attn_backward_workspace_size(&t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients, &least),
                     ATTN_OK);
    t->params.num_threads = THREADS;
    assert_true(least > 0 && least <= size);
    char *workspace = malloc(size);
    assert_non_null(workspace);
    const size_t sizes[] = {size, least, least - 1};
    for (int i = 0; i < 3; i++) {
        write_to(t, &t->written);
        t->params.num_threads = i < 2 ? THREADS : 1; /* tasks for several may need less */
        const attn_status status = attn_backward_in(&t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients,
                                                    workspace + (size - sizes[i]), sizes[i]);
        assert_int_equal(status, i < 2 ? ATTN_OK : ATTN_WORKSPACE_TOO_SMALL);
        if (i < 2)
            assert_memory_equal(&t->written, expected, sizeof *expected);
        else
            assert_true(is_untouched(&t->written));
    }
    assert_int_equal(attn_backward_in(&t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients, NULL, size),
                     ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_backward_workspace_size(&t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients, NULL),
                     ATTN_INVALID_ARGUMENT);
    free(workspace), free(expected), free(t);
}

/** A thread of a pool: its shares of all phases. */
struct worker {
    const attn_backward_plan *plan;
    void *workspace;
    pthread_barrier_t *barrier;
    int ith, failures;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    for (int phase = 0; phase < attn_backward_plan_num_phases(w->plan); phase++) {
        w->failures += attn_backward_plan_run_share(w->plan, w->workspace, phase, w->ith, THREADS) != ATTN_OK;
        pthread_barrier_wait(w->barrier);
    }
    return NULL;
}

static void test_shares(void **state)
{
    (void)state;
    struct training *t = training_of(THREADS);
    struct written *expected = expected_of(t);
    attn_backward_plan *plan = plan_of(t);
    const size_t size = attn_backward_plan_workspace_size(plan);
    void *workspace = calloc(1, size);
    assert_non_null(workspace);
    assert_int_equal(attn_backward_plan_num_threads(plan), THREADS);
    assert_int_equal(attn_backward_plan_run_share(plan, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(),
                        "workspace is not prepared; expected one that attn_backward_plan_begin() has "
                        "prepared for this plan");
    assert_int_equal(begin(plan, t, workspace, size), ATTN_OK);
    static const struct {
        int phase, ith, nth;
        const char *words;
    } wrong[] = {{-1, 0, 1, "phase is -1; expected 0 to "},
                 {9, 0, 1, "phase is 9; expected 0 to "},
                 {0, -1, 1, "ith is -1; expected 0 to 0"},
                 {0, 1, 1, "ith is 1; expected 0 to 0"},
                 {0, 0, 0, "nth is 0; expected 1 to 3, the threads of the plan"},
                 {0, 0, THREADS + 1, "nth is 4; expected 1 to 3, the threads of the plan"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(attn_backward_plan_run_share(plan, workspace, wrong[i].phase, wrong[i].ith, wrong[i].nth),
                         ATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_last_error(), wrong[i].words));
    }
    assert_int_equal(attn_backward_plan_run_share(NULL, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "plan is NULL; expected one made by attn_backward_plan_create()");
    assert_int_equal(attn_backward_plan_run_share(plan, NULL, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(),
                        "workspace is NULL; expected one that attn_backward_plan_begin() has prepared "
                        "for this plan");
    /* One after the other, in falling order: no share waits for one that has not begun. */
    for (int phase = 0; phase < attn_backward_plan_num_phases(plan); phase++)
        for (int ith = THREADS - 1; ith >= 0; ith--)
            assert_int_equal(attn_backward_plan_run_share(plan, workspace, phase, ith, THREADS), ATTN_OK);
    assert_memory_equal(&t->written, expected, sizeof *expected);
    for (int round = 0; round < 5; round++) {
        struct worker workers[THREADS];
        pthread_t threads[THREADS];
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, THREADS);
        write_to(t, &t->written);
        assert_int_equal(begin(plan, t, workspace, size), ATTN_OK);
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){plan, workspace, &barrier, i, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(workers[i].failures, 0);
        }
        pthread_barrier_destroy(&barrier);
        assert_memory_equal(&t->written, expected, sizeof *expected);
    }
    attn_backward_plan_destroy(plan);
    free(workspace), free(expected), free(t);
}

static void test_other_runs(void **state)
{
    (void)state;
    struct training *t = training_of(THREADS);
    attn_backward_plan *plan = plan_of(t);
    const size_t size = attn_backward_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    static struct training was; /* larger than a frame may be under valgrind */
    was = *t;
#define EXPECT_REFUSAL(status, word)                                                                                   \
    do {                                                                                                               \
        assert_int_equal(run(plan, t, workspace, size), status);                                                       \
        assert_non_null(strstr(attn_last_error(), word));                                                              \
        assert_true(is_untouched(&t->written));                                                                        \
        *t = was;                                                                                                      \
    } while (0)
    t->gradients.v = NULL;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "gradients.v differs from what the plan was made with");
    t->gradients.lse = NULL;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "gradients.lse");
    t->gradients.sinks = NULL;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "gradients.sinks");
    t->gradients.mask = NULL;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "gradients.mask");
    t->gradients.rel_q = NULL;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "gradients.rel_q differs");
    t->gradients.rel_k = NULL;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "gradients.rel_k differs");
    t->disentangled.delta = ATTN_DELTA_KEY_QUERY;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "params.disentangled->delta");
    t->params.softcap = 3.0f;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "params.softcap");
    t->params.causal = ATTN_CAUSAL_NONE;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "params.causal");
    t->bias.buckets = BUCKETS - 2, t->bias.max_distance = (BUCKETS - 3) / 2;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "params.relative_bias->buckets is 7; the plan was made for 9");
    t->params.lse = NULL;
    EXPECT_REFUSAL(ATTN_INVALID_ARGUMENT, "params.lse");
#undef EXPECT_REFUSAL
    attn_backward_plan *none = plan;
    t->q.shape[3] = DK - 1;
    assert_int_equal(attn_backward_plan_create(&none, &t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients),
                     ATTN_SHAPE_MISMATCH);
    assert_null(none);
    *t = was;
    assert_int_equal(attn_backward_plan_create(NULL, &t->q, &t->k, &t->v, &t->out, &t->params, &t->gradients),
                     ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "plan is NULL; expected the address of a pointer");
    assert_int_equal(run(plan, t, workspace, size), ATTN_OK);
    attn_backward_plan_destroy(plan);
    free(workspace), free(t);
}

static void test_describe(void **state)
{
    (void)state;
    struct training *t = training_of(THREADS);
    attn_backward_plan *plan = plan_of(t);
    char whole[1024], part[24];
    memset(part, '#', sizeof part);
    const size_t length = attn_backward_plan_describe(plan, whole, sizeof whole);
    assert_int_equal(length, strlen(whole));
    assert_non_null(strstr(whole, "backward dq dk dv q=f32"));
    assert_non_null(strstr(whole, "with head_scale, sinks, alibi_slopes, relative_bias, disentangled, mask"));
    assert_non_null(strstr(whole, "on 3 threads"));
    assert_int_equal(attn_backward_plan_describe(plan, part, 10), length);
    assert_int_equal(strlen(part), 9);
    assert_memory_equal(part, whole, 9);
    assert_true(part[10] == '#');
    assert_int_equal(attn_backward_plan_describe(plan, NULL, 0), length);
    assert_int_equal(attn_backward_plan_describe(NULL, part, sizeof part), 0);
    assert_int_equal(attn_backward_plan_num_threads(NULL), 0);
    assert_int_equal(attn_backward_plan_num_phases(NULL), 0);
    assert_true(attn_backward_plan_workspace_size(NULL) == SIZE_MAX);
    attn_backward_plan_destroy(plan);
    free(t);
}

/** Heads of so many channels in bf16 on a set: whether its plan says what text says. */
static int bf16_plan_says(const char *isa, int64_t dk, int64_t dv, const char *text)
{
    attn_tensor q = attn_bhtd(NULL, 1, 2, 65536, dk), v = attn_bhtd(NULL, 1, 2, 65536, dv);
    const attn_tensor lse = attn_bhtd(NULL, 1, 2, 65536, 1);
    const attn_dropout dropout = {0.1f, 1, 2};
    attn_gradients gradients = attn_gradients_default();
    attn_params params = attn_params_default();
    attn_backward_plan *plan = NULL;
    char described[1024];
    q.dtype = v.dtype = ATTN_BF16;
    params.lse = &lse;
    params.isa = isa;
    params.softcap = 5.0f;
    params.dropout = &dropout;
    gradients.out = gradients.v = &v;
    gradients.q = gradients.k = &q;
    assert_int_equal(attn_backward_plan_create(&plan, &q, &q, &v, &v, &params, &gradients), ATTN_OK);
    attn_backward_plan_describe(plan, described, sizeof described);
    attn_backward_plan_destroy(plan);
    return strstr(described, text) != NULL;
}

/** A set of matrix registers is the one that is named, as far as a thread has room for whole strips and groups of keys.
 */
static void test_matrix(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {64, 64}, {128, 128}, {1024, 1024}, {2047, 1}, {1, 2047}};
    for (int n = 0; attn_isa_name(n); n++) {
        const char *isa = attn_isa_name(n);
        char kernel[64];
        if (!strstr(isa, "amx") || !attn_isa_supported(isa))
            continue;
        snprintf(kernel, sizeof kernel, ": %s kernel, bf16 weights, strips of 32 queries", isa);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            assert_true(bf16_plan_says(isa, sizes[i][0], sizes[i][1], kernel));
        assert_true(bf16_plan_says(isa, 1024, 1025, ": avx512_bf16 kernel"));
        assert_true(bf16_plan_says(isa, 4096, 4096, ": avx512_bf16 kernel"));
    }
}

/** Bytes of workspace for a long sequence on so many threads. */
static size_t workspace_of(attn_dtype dtype, int64_t length, int64_t dk, int64_t dv, attn_params params, int threads)
{
    attn_tensor q = attn_bhtd(NULL, 1, 2, length, dk), v = attn_bhtd(NULL, 1, 2, length, dv);
    const attn_tensor lse = attn_bhtd(NULL, 1, 2, length, 1);
    attn_gradients gradients = attn_gradients_default();
    size_t size = 0;
    q.dtype = v.dtype = dtype;
    params.lse = &lse;
    params.num_threads = threads;
    gradients.out = gradients.v = &v;
    gradients.q = gradients.k = &q;
    assert_int_equal(attn_backward_workspace_size(&q, &q, &v, &v, &params, &gradients, &size), ATTN_OK);
    return size;
}

/** Memory is linear in the length, and 2 MiB a thread at most. */
static void test_memory(void **state)
{
    (void)state;
    const int64_t length = 65536;
    const size_t sums = 2 * (size_t)length * (64 + 1) * sizeof(float); /* of dq, and delta */
    assert_true(workspace_of(ATTN_F32, length, 64, 64, attn_params_default(), THREADS) <=
                sums + sums / 50 + (THREADS << 21));
    static const int64_t sizes[] = {1, 17, 64, 96, 128, 192, 256, 320, 512, 576, 1000, 1024, 2048, 3000, 4096};
    const int64_t num_sizes = sizeof sizes / sizeof *sizes;
    const attn_tensor table = attn_bhtd(NULL, 1, 1, length, 2);
    const attn_rope_tables rope = {ATTN_ROPE_INTERLEAVED, &table, &table};
    const attn_dropout dropout = {0.1f, 1, 2};
    for (int64_t i = 0; i < 3 * num_sizes * num_sizes; i++) {
        const int64_t dk = sizes[i / 3 % num_sizes], dv = sizes[i / 3 / num_sizes];
        const attn_dtype dtype = i % 3 == 0 ? ATTN_F32 : i % 3 == 1 ? ATTN_BF16 : ATTN_F16;
        const attn_tensor rows = attn_bhtd(NULL, 1, 1, 512, dk);
        const attn_disentangled terms = {.span = 256, .rel_k = &rows, .rel_q = &rows};
        for (int forms = 0; forms < 3; forms++) {
            attn_params params = attn_params_default();
            params.softcap = forms ? 5.0f : 0.0f;
            params.dropout = forms ? &dropout : NULL;
            params.rope = forms == 1 && dk > 1 && dk <= 2048 ? &rope : NULL;
            params.disentangled = forms == 2 && dk <= 1024 ? &terms : NULL;
            for (int n = -1; n < 0 || attn_isa_name(n); n++) { /* -1: NULL */
                params.isa = n < 0 ? NULL : attn_isa_name(n);
                if (n >= 0 && (!strstr(params.isa, "amx") || !attn_isa_supported(params.isa)))
                    continue;
                const size_t one = workspace_of(dtype, length, dk, dv, params, 1);
                const size_t two = workspace_of(dtype, length, dk, dv, params, 2);
                if (attn_default_num_threads() > 1)
                    assert_true(two > one);
                if (two - one > (size_t)2 << 20)
                    fail_msg("a thread has %zu bytes for heads of %d and %d in %s", two - one, (int)dk, (int)dv,
                             attn_dtype_name(dtype));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),        cmocka_unit_test(test_in),       cmocka_unit_test(test_shares),
        cmocka_unit_test(test_other_runs), cmocka_unit_test(test_describe), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
