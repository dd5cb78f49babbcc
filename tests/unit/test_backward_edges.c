/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass where there is nothing to compute, whatever the lengths of
 * the other axes; in a child made by fork(), which has none of its parent's
 * threads; from inside a callback of another one; and where floats have no room for
 * a product of rows.
 */
#include "fixture.h"
#include "large.h"

#include "attn/backward.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, TIME_LIMIT = 60, ELEMENTS = LARGE_HEADS * LARGE_TOKENS * LARGE_CHANNELS };

#define HUGE ((int64_t)1 << 40)

/* ------------------------------------------------------------------- nothing -- */

/** A call whose tensors have no elements. */
static void must_do_nothing(int64_t batch, int64_t heads, int64_t tq, int64_t tk, int64_t dk, int64_t dv)
{
    const attn_tensor q = attn_bhtd(NULL, batch, heads, tq, dk), k = attn_bhtd(NULL, batch, heads, tk, dk);
    const attn_tensor v = attn_bhtd(NULL, batch, heads, tk, dv), out = attn_bhtd(NULL, batch, heads, tq, dv);
    const attn_tensor lse = attn_bhtd(NULL, batch, heads, tq, 1);
    attn_params params = attn_params_default();
    params.lse = &lse;
    attn_gradients g = attn_gradients_default();
    g.out = &out;
    g.lse = &lse;
    g.q = &q;
    g.k = &k;
    g.v = &v;
    alarm(TIME_LIMIT); /* a loop over HUGE would never end */
    assert_int_equal(attn_backward(&q, &k, &v, &out, &params, &g), ATTN_OK);
    alarm(0);
}

static void test_nothing(void **state)
{
    (void)state;
    must_do_nothing(0, 1, 1, 1, 1, 1);
    must_do_nothing(0, 2, HUGE >> 8, HUGE >> 8, 64, 64);
    must_do_nothing(1, 0, 1, 1, 1, 1);
    must_do_nothing(HUGE, 0, 5, 7, 64, 64);
    must_do_nothing(1, 1, 0, 0, 8, 8);
    must_do_nothing(2, 3, 0, 0, 0, 0);
}

/** Without queries dk and dv are 0, without keys dq is; without channels of v nothing depends on a score. */
static void test_one_side(void **state)
{
    (void)state;
    enum { T = 5, D = 4 };
    static const float ones[T * D] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int which = 0; which < 3; which++) {
        float d_q[T * D], d_k[T * D], d_v[T * D], lse_data[T], out_data[T * D], d_table[2][T * D];
        const int64_t tq = which == 0 ? 0 : T, tk = which == 1 ? 0 : T, dv = which == 2 ? 0 : D;
        const attn_tensor q = attn_bhtd((void *)(uintptr_t)ones, 1, 1, tq, D);
        const attn_tensor k = attn_bhtd((void *)(uintptr_t)ones, 1, 1, tk, D);
        const attn_tensor v = attn_bhtd((void *)(uintptr_t)ones, 1, 1, tk, dv);
        const attn_tensor d_out = attn_bhtd((void *)(uintptr_t)ones, 1, 1, tq, dv);
        const attn_tensor out = attn_bhtd(out_data, 1, 1, tq, dv), lse = attn_bhtd(lse_data, 1, 1, tq, 1);
        const attn_tensor dq = attn_bhtd(d_q, 1, 1, tq, D), dk = attn_bhtd(d_k, 1, 1, tk, D);
        const attn_tensor dv_tensor = attn_bhtd(d_v, 1, 1, tk, dv);
        const attn_tensor table = attn_bhtd((void *)(uintptr_t)ones, 1, 1, 4, D); /* which nothing depends on, too */
        const attn_tensor d_rel_k = attn_bhtd(d_table[0], 1, 1, 4, D), d_rel_q = attn_bhtd(d_table[1], 1, 1, 4, D);
        const attn_disentangled terms = {.span = 2, .rel_k = &table, .rel_q = &table};
        attn_params params = attn_params_default();
        params.lse = &lse;
        params.disentangled = &terms;
        assert_int_equal(attn_forward(&q, &k, &v, &out, &params), ATTN_OK);
        attn_gradients g = attn_gradients_default();
        g.out = &d_out;
        g.q = &dq;
        g.k = &dk;
        g.v = &dv_tensor;
        g.rel_k = &d_rel_k;
        g.rel_q = &d_rel_q;
        memset(d_table, CANARY, sizeof d_table);
        memset(d_q, CANARY, sizeof d_q);
        memset(d_k, CANARY, sizeof d_k);
        memset(d_v, CANARY, sizeof d_v);
        assert_int_equal(attn_backward(&q, &k, &v, &out, &params, &g), ATTN_OK);
        for (int i = 0; i < 4 * D; i++)
            assert_true(d_table[0][i] == 0 && d_table[1][i] == 0);
        for (int i = 0; i < T * D; i++) {
            assert_true(which == 0 ? all_canary(&d_q[i], sizeof(float)) : d_q[i] == 0);
            assert_true(which == 1 ? all_canary(&d_k[i], sizeof(float)) : d_k[i] == 0);
            assert_true(which == 0 ? d_v[i] == 0 : all_canary(&d_v[i], sizeof(float)));
        }
    }
}

/* ---------------------------------------------------------------------- fork -- */

/** Exit codes of a child. */
enum { SAME = 0, CALL_FAILED = 10, OTHER_BITS = 11 };

struct backward {
    struct large l;
    float of[3][ELEMENTS];
};

/** Forward and backward by num_threads; compares with expected unless that is NULL. */
static int compute(struct backward *b, const struct backward *expected, int num_threads)
{
    large_initialize(&b->l, num_threads);
    const attn_tensor d[3] = {attn_bhtd(b->of[0], 1, LARGE_HEADS, LARGE_TOKENS, LARGE_CHANNELS),
                              attn_bhtd(b->of[1], 1, LARGE_HEADS, LARGE_TOKENS, LARGE_CHANNELS),
                              attn_bhtd(b->of[2], 1, LARGE_HEADS, LARGE_TOKENS, LARGE_CHANNELS)};
    attn_gradients g = attn_gradients_default();
    g.out = &b->l.v; /* any numbers will do */
    g.q = &d[0];
    g.k = &d[1];
    g.v = &d[2];
    if (large_forward(&b->l) != ATTN_OK ||
        attn_backward(&b->l.q, &b->l.k, &b->l.v, &b->l.out, &b->l.params, &g) != ATTN_OK)
        return CALL_FAILED;
    return expected && memcmp(b->of, expected->of, sizeof b->of) != 0 ? OTHER_BITS : SAME;
}

/** The result of a child that computes with num_threads; 1014: it hung until the alarm. */
static int result_in_child(const struct backward *expected, int num_threads)
{
    static struct backward b;
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(TIME_LIMIT);
        _exit(compute(&b, expected, num_threads));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void test_fork(void **state)
{
    (void)state;
    static struct backward expected, again;
    assert_int_equal(compute(&expected, NULL, 1), SAME);
    assert_int_equal(result_in_child(&expected, THREADS), SAME);
    assert_int_equal(compute(&again, &expected, THREADS), SAME);
    for (int threads = 0; threads <= THREADS; threads++) /* 0: the default */
        assert_int_equal(result_in_child(&expected, threads), SAME);
    assert_int_equal(compute(&again, &expected, THREADS), SAME); /* the parent's threads are still there */
}

/* ------------------------------------------------------------ calls inside -- */

enum { INSIDE_TOKENS = 70, INSIDE_CHANNELS = 20, INSIDE = INSIDE_TOKENS * INSIDE_CHANNELS };

/** A small call in bf16, whose callbacks do nothing, or the same once more. */
struct inside {
    uint16_t in[4][INSIDE]; /**< q, k, v and the gradient of out */
    float out[INSIDE], lse[INSIDE_TOKENS], of[3][INSIDE];
    const char *isa;
    struct inside *other; /**< NULL: nothing */
};

static void run_inside(struct inside *c);

static void call_inside(const attn_score_tile *tile, void *user)
{
    const struct inside *c = user;
    (void)tile;
    if (c->other)
        run_inside(c->other);
}

static void call_inside_back(const attn_score_gradient_tile *tile, void *user)
{
    const struct inside *c = user;
    (void)tile;
    if (c->other)
        run_inside(c->other);
}

static void run_inside(struct inside *c)
{
    attn_tensor t[4], d[3];
    for (int i = 0; i < 4; i++) {
        t[i] = attn_bhtd(c->in[i], 1, 1, INSIDE_TOKENS, INSIDE_CHANNELS);
        t[i].dtype = ATTN_BF16;
        for (int n = 0; n < INSIDE; n++) /* 1 to 2, or less than -1 */
            c->in[i][n] = (uint16_t)(0x3f80 + (n * 37 + i * 11) % 128 + (n * 13 + i) % 2 * 0x8000);
    }
    for (int i = 0; i < 3; i++)
        d[i] = attn_bhtd(c->of[i], 1, 1, INSIDE_TOKENS, INSIDE_CHANNELS);
    const attn_tensor out = attn_bhtd(c->out, 1, 1, INSIDE_TOKENS, INSIDE_CHANNELS);
    const attn_tensor lse = attn_bhtd(c->lse, 1, 1, INSIDE_TOKENS, 1);
    attn_params params = attn_params_default();
    params.isa = c->isa;
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.lse = &lse;
    params.callback = call_inside;
    params.callback_user = c;
    attn_gradients g = attn_gradients_default();
    g.out = &t[3];
    g.q = &d[0];
    g.k = &d[1];
    g.v = &d[2];
    g.callback = call_inside_back;
    g.callback_user = c;
    assert_int_equal(attn_forward(&t[0], &t[1], &t[2], &out, &params), ATTN_OK);
    assert_int_equal(attn_backward(&t[0], &t[1], &t[2], &out, &params, &g), ATTN_OK);
}

/** Registers that a call inside has released are there again: on every set the bits are those without it. */
static void test_inside(void **state)
{
    (void)state;
    static struct inside alone, around, other;
    for (int n = 0; attn_isa_name(n); n++) {
        if (!attn_isa_supported(attn_isa_name(n)))
            continue;
        alone.isa = around.isa = other.isa = attn_isa_name(n);
        around.other = &other;
        run_inside(&alone);
        run_inside(&around);
        assert_memory_equal(alone.of, around.of, sizeof alone.of);
        assert_memory_equal(alone.of, other.of, sizeof alone.of);
    }
}

/* --------------------------------------------------------------------- sinks -- */

/** The gradient of a sink is a small weight times a product of rows for which floats may have no room. */
static void test_sink_of_large_rows(void **state)
{
    (void)state;
    enum { D = 70 };
    const struct {
        float sink, row, expected;
    } cases[] = {
        {-22.0f, 1e20f, (float)(-1.0261879631701891e-10 * 7e41)}, /* e^-23 of a product of 7e41 */
        {-2000.0f, 1e20f, 0.0f},                                  /* a weight that is 0 */
        {-1.0f, INFINITY, NAN},
        {-2000.0f, NAN, NAN},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        float one = 1.0f, v_data[D], out_data[D], lse_data, d_out_data[D], d_sink = 77.0f;
        for (int c = 0; c < D; c++) {
            v_data[c] = 1e20f;
            d_out_data[c] = cases[n].row;
        }
        const attn_tensor q = attn_bhtd(&one, 1, 1, 1, 1), v = attn_bhtd(v_data, 1, 1, 1, D);
        const attn_tensor out = attn_bhtd(out_data, 1, 1, 1, D), lse = attn_bhtd(&lse_data, 1, 1, 1, 1);
        const attn_tensor d_out = attn_bhtd(d_out_data, 1, 1, 1, D);
        attn_params params = attn_params_default();
        params.lse = &lse;
        params.sinks = &cases[n].sink;
        assert_int_equal(attn_forward(&q, &q, &v, &out, &params), ATTN_OK);
        attn_gradients g = attn_gradients_default();
        g.out = &d_out;
        g.sinks = &d_sink;
        assert_int_equal(attn_backward(&q, &q, &v, &out, &params, &g), ATTN_OK);
        if (isnan(cases[n].expected) ? isfinite(d_sink)
                                     : !(fabsf(d_sink - cases[n].expected) <= 1e-4f * fabsf(cases[n].expected)))
            fail_msg("case %zu: %g instead of %g", n, (double)d_sink, (double)cases[n].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing), cmocka_unit_test(test_one_side),           cmocka_unit_test(test_fork),
        cmocka_unit_test(test_inside),  cmocka_unit_test(test_sink_of_large_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
