/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention by hand, where there is nothing to compute, and what the calling
 * process must find as it was: the four rules on numbers that can be followed, axes
 * of the length 0, the floating-point environment, and a child made by fork().
 */
#include "linear_fixture.h"

#include "random.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ------------------------------------------------------------------ by hand -- */

/** Three tokens, two channels of keys, one of values; scale 1. Numbers are exact in f32. */
enum { TOKENS = 3 };

/** out and S expected of a rule, on every set. */
static void must_give(const float *decay, int decay_channels, const float *beta, const float out[TOKENS],
                      const float s[2])
{
    static const float q[] = {1, 0, 0, 1, 1, 1}, k[] = {1, 0, 0, 1, 1, 0}, v[] = {2, 4, 6};
    for (int isa = 0; attn_isa_name(isa); isa++) {
        float got[TOKENS], state[2] = {8, 16};
        if (!attn_isa_supported(attn_isa_name(isa)))
            continue;
        const attn_tensor qt = attn_bhtd(q, 1, 1, TOKENS, 2), kt = attn_bhtd(k, 1, 1, TOKENS, 2);
        const attn_tensor vt = attn_bhtd(v, 1, 1, TOKENS, 1), ot = attn_bhtd(got, 1, 1, TOKENS, 1);
        const attn_tensor st = attn_bhtd(state, 1, 1, 2, 1);
        const attn_tensor dt = attn_bhtd(decay, 1, 1, TOKENS, decay_channels), bt = attn_bhtd(beta, 1, 1, TOKENS, 1);
        attn_linear_attention_params p = attn_linear_attention_params_default();
        p.isa = attn_isa_name(isa);
        p.scale = 1;
        p.decay = decay ? &dt : NULL;
        p.beta = beta ? &bt : NULL;
        p.state_in = p.state_out = &st;
        assert_int_equal(attn_linear_attention(&qt, &kt, &vt, &ot, &p), ATTN_OK);
        for (int t = 0; t < TOKENS; t++)
            assert_true(fabsf(got[t] - out[t]) <= 1e-5f);
        assert_true(fabsf(state[0] - s[0]) <= 1e-5f && fabsf(state[1] - s[1]) <= 1e-5f);
    }
}

static void test_rules(void **state)
{
    (void)state;
    const float half = logf(0.5f), halves[] = {half, half, half}, first_row[] = {half, 0, half, 0, half, 0};
    static const float betas[] = {0.5f, 1, 1};
    /* linear: S = (8,16), (10,16), (10,20), (16,20) */
    must_give(NULL, 0, NULL, (float[]){10, 20, 36}, (float[]){16, 20});
    /* gated, by 1/2: (4,8) -> (6,8); (3,4) -> (3,8); (1.5,4) -> (7.5,4) */
    must_give(halves, 1, NULL, (float[]){6, 8, 11.5f}, (float[]){7.5f, 4});
    /* gated, the first row by 1/2: (4,16) -> (6,16); (3,16) -> (3,20); (1.5,20) -> (7.5,20) */
    must_give(first_row, 2, NULL, (float[]){6, 20, 27.5f}, (float[]){7.5f, 20});
    /* delta: u = (2-8)/2 = -3: (5,16); u = 4-16 = -12: (5,4); u = 6-5 = 1: (6,4) */
    must_give(NULL, 0, betas, (float[]){5, 4, 10}, (float[]){6, 4});
    /* gated delta: (4,8), u = -1: (3,8); (1.5,4), u = 0: (1.5,4); (0.75,2), u = 5.25: (6,2) */
    must_give(halves, 1, betas, (float[]){3, 4, 8}, (float[]){6, 2});
}

/**
 * A chunk of tokens of the same key but for its sign, whose values are large beside what S has to say of them: a
 * token's sum with those before it must not round as coarsely as values are large, in the same way each time.
 */
static void test_alike_keys(void **state)
{
    (void)state;
    enum { N = ATTN_LINEAR_ATTENTION_CHUNK };
    float q[N], k[N], v[N], beta[N], got[N];
    double expected[N], s = 0, largest = 0;
    for (int t = 0; t < N; t++) {
        q[t] = beta[t] = 1;
        v[t] = 0.99f;
        k[t] = t % 2 ? 0.03f : -0.03f;
        s += (double)k[t] * ((double)v[t] - (double)k[t] * s);
        expected[t] = s;
        largest = fmax(largest, fabs(s));
    }
    const attn_tensor qt = attn_bhtd(q, 1, 1, N, 1), kt = attn_bhtd(k, 1, 1, N, 1), vt = attn_bhtd(v, 1, 1, N, 1);
    const attn_tensor ot = attn_bhtd(got, 1, 1, N, 1), bt = attn_bhtd(beta, 1, 1, N, 1);
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (!attn_isa_supported(attn_isa_name(isa)))
            continue;
        attn_linear_attention_params p = attn_linear_attention_params_default();
        p.isa = attn_isa_name(isa);
        p.scale = 1;
        p.beta = &bt;
        assert_int_equal(attn_linear_attention(&qt, &kt, &vt, &ot, &p), ATTN_OK);
        for (int t = 0; t < N; t++)
            if (!(fabs((double)got[t] - expected[t]) <= 16 * 0x1p-24 * largest))
                fail_msg("%s: out[%d] is %.9g, expected %.9g: off by %.1f units of the largest", p.isa, t,
                         (double)got[t], expected[t], fabs((double)got[t] - expected[t]) * 0x1p24 / largest);
    }
}

/** Four heads of q for two states, one head of k, the default scale; out_head 0 and 1 read state 0. */
static void test_heads_and_scale(void **state)
{
    (void)state;
    float q[4 * 4], k[4] = {1, 0, 0, 0}, v[2] = {3, 5}, out[4];
    for (int h = 0; h < 4; h++)
        for (int c = 0; c < 4; c++)
            q[4 * h + c] = (float)(h + 1);
    const attn_tensor qt = attn_bhtd(q, 1, 4, 1, 4), kt = attn_bhtd(k, 1, 1, 1, 4), vt = attn_bhtd(v, 1, 2, 1, 1);
    const attn_tensor ot = attn_bhtd(out, 1, 4, 1, 1);
    assert_int_equal(attn_linear_attention(&qt, &kt, &vt, &ot, NULL), ATTN_OK);
    assert_true(out[0] == 1.5f && out[1] == 3.0f && out[2] == 7.5f && out[3] == 10.0f); /* (h + 1) v / 2 */
    const attn_tensor one = attn_bhtd(q + 4, 1, 1, 1, 4); /* one head of q for both states */
    const attn_tensor two = attn_bhtd(out, 1, 2, 1, 1);
    assert_int_equal(attn_linear_attention(&one, &kt, &vt, &two, NULL), ATTN_OK);
    assert_true(out[0] == 3.0f && out[1] == 5.0f);
}

/* ------------------------------------------------------------------- nothing -- */

/** A call of these sizes with NULL for data that has no elements. Returns the status. */
static attn_status empty(int64_t b, int64_t h, int64_t t, int64_t dk, int64_t dv, float *out, const float *state_in,
                         float *state_out)
{
    static const float ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const attn_tensor q = attn_bhtd(ones, b, h, t, dk), v = attn_bhtd(ones, b, h, t, dv);
    const attn_tensor o = attn_bhtd(out, b, h, t, dv), in = attn_bhtd(state_in, b, h, dk, dv);
    const attn_tensor to = attn_bhtd(state_out, b, h, dk, dv), gate = attn_bhtd(ones, b, h, t, 1);
    float zeros[64] = {0};
    const attn_tensor decay = attn_bhtd(zeros, b, h, t, dk);
    attn_linear_attention_params p = attn_linear_attention_params_default();
    p.beta = &gate;
    p.decay = &decay;
    p.state_in = state_in ? &in : NULL;
    p.state_out = state_out ? &to : NULL;
    alarm(60);
    const attn_status status = attn_linear_attention(&q, &q, &v, &o, &p);
    alarm(0);
    return status;
}

#define HUGE ((int64_t)1 << 40)

static void test_nothing(void **state)
{
    (void)state;
    float out[16], s[16];
    static const float before[16] = {3, 1, 4, 1, 5, 9, 2, 6};
    assert_int_equal(empty(0, 2, 3, 4, 4, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(empty(0, 2, HUGE >> 8, 64, 64, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(empty(HUGE, 0, 5, 64, 64, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(empty(1, 0, 3, 4, 4, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(empty(1, 1, 0, 0, 0, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(empty(2, 1, 2, 2, 0, NULL, NULL, NULL), ATTN_OK);
    /* No token: the state stays, or is 0. */
    memset(s, CANARY, sizeof s);
    assert_int_equal(empty(1, 2, 0, 2, 2, NULL, before, s), ATTN_OK);
    assert_memory_equal(s, before, 8 * sizeof *s);
    assert_true(all_canary(s + 8, 8 * sizeof *s));
    assert_int_equal(empty(1, 2, 0, 2, 2, NULL, NULL, s), ATTN_OK);
    for (int i = 0; i < 8; i++)
        assert_true(s[i] == 0);
    memcpy(s, before, sizeof s); /* in place */
    assert_int_equal(empty(1, 2, 0, 2, 2, NULL, s, s), ATTN_OK);
    assert_memory_equal(s, before, sizeof s);
    /* No channel of keys: a sum of nothing. */
    memset(out, CANARY, sizeof out);
    assert_int_equal(empty(1, 2, 2, 0, 2, out, NULL, NULL), ATTN_OK);
    for (int i = 0; i < 8; i++)
        assert_true(out[i] == 0);
    assert_true(all_canary(out + 8, 8 * sizeof *out));
}

/** Whatever stands in v; of as many tokens as make chunks. */
static void test_no_channels_of_keys(void **state)
{
    (void)state;
    enum { T = 70, DV = 3 };
    static float v[T * DV], out[T * DV];
    for (int tokens = 1; tokens <= T; tokens += 69) {
        for (int i = 0; i < T * DV; i++)
            v[i] = i % 5 == 0 ? NAN : 1;
        const attn_tensor q = attn_bhtd(NULL, 1, 1, tokens, 0), vt = attn_bhtd(v, 1, 1, tokens, DV);
        const attn_tensor o = attn_bhtd(out, 1, 1, tokens, DV);
        assert_int_equal(attn_linear_attention(&q, &q, &vt, &o, NULL), ATTN_OK);
        for (int i = 0; i < tokens * DV; i++)
            assert_true(out[i] == 0);
    }
}

/** With NaN in the state before, a first token that is reset gives what one without a state does. */
static void test_reset_of_nan(void **state)
{
    (void)state;
    static struct linear_fixture f, clean;
    linear_fixture_initialize(&f);
    linear_fixture_initialize(&clean);
    for (size_t i = 0; i < sizeof f.state_in_data / sizeof(float); i++)
        f.state_in_data[i] = NAN;
    for (int64_t i = 0; i < LIN_B * LIN_H; i++)
        f.resets_data[i * LIN_T] = clean.resets_data[i * LIN_T] = 1;
    clean.params.state_in = NULL;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    assert_int_equal(linear_fixture_call(&clean), ATTN_OK);
    assert_memory_equal(f.out_data, clean.out_data, sizeof f.out_data);
    assert_memory_equal(f.state_out_data, clean.state_out_data, sizeof f.state_out_data);
}

/* ----------------------------------------------------------- a larger call -- */

enum { HEADS = 8, LARGE_T = 200, CHANNELS = 32, ELEMENTS = HEADS * LARGE_T * CHANNELS, THREADS = 3, TIME_LIMIT = 60 };

struct large_call {
    float data[3][ELEMENTS], decay[HEADS * LARGE_T * CHANNELS], beta[HEADS * LARGE_T];
    float out[ELEMENTS], s[HEADS * CHANNELS * CHANNELS];
};

static attn_status run_large(struct large_call *c, int threads)
{
    struct rng rng = rng_for_case(3, 3);
    for (int i = 0; i < 3; i++)
        rng_fill_normal(&rng, c->data[i], ELEMENTS);
    for (int64_t i = 0; i < ELEMENTS; i++)
        c->data[1][i] *= 0.15f; /* keys of about the length 1 */
    for (int64_t i = 0; i < HEADS * LARGE_T * CHANNELS; i++)
        c->decay[i] = -0.1f * (float)rng_uniform(&rng);
    for (int64_t i = 0; i < HEADS * LARGE_T; i++)
        c->beta[i] = (float)rng_uniform(&rng);
    memset(c->out, CANARY, sizeof c->out);
    memset(c->s, CANARY, sizeof c->s);
    attn_tensor t[4];
    for (int i = 0; i < 3; i++)
        t[i] = attn_bhtd(c->data[i], 1, HEADS, LARGE_T, CHANNELS);
    t[3] = attn_bhtd(c->out, 1, HEADS, LARGE_T, CHANNELS);
    const attn_tensor decay = attn_bhtd(c->decay, 1, HEADS, LARGE_T, CHANNELS);
    const attn_tensor beta = attn_bhtd(c->beta, 1, HEADS, LARGE_T, 1);
    const attn_tensor s = attn_bhtd(c->s, 1, HEADS, CHANNELS, CHANNELS);
    attn_linear_attention_params p = attn_linear_attention_params_default();
    p.decay = &decay;
    p.beta = &beta;
    p.state_out = &s;
    p.num_threads = threads;
    return attn_linear_attention(&t[0], &t[1], &t[2], &t[3], &p);
}

static int same_large(const struct large_call *a, const struct large_call *b)
{
    return memcmp(a->out, b->out, sizeof a->out) == 0 && memcmp(a->s, b->s, sizeof a->s) == 0;
}

static struct large_call large, expected_large;

/** The control bits of the vector unit, without the sticky exception flags. */
static uint64_t control_bits(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return (uint64_t)fegetround();
#endif
}

static void test_float_state(void **state)
{
    (void)state;
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (int threads = 1; threads <= 2; threads++) {
            assert_int_equal(fesetround(modes[i]), 0);
            const uint64_t before = control_bits();
            const attn_status status = run_large(&large, threads);
            const uint64_t after = control_bits();
            fesetround(FE_TONEAREST);
            assert_int_equal(status, ATTN_OK);
            assert_int_equal(before, after);
        }
}

/** Values that are denormal come out as they went in. */
static void test_denormal_values(void **state)
{
    (void)state;
    static const float q[2] = {1, 1}, v[4] = {0x1p-149f, -0x1p-140f, 0x1.8p-130f, 0x1p-126f};
    for (int isa = 0; attn_isa_name(isa); isa++) {
        float out[4], k[2] = {1, 0};
        if (!attn_isa_supported(attn_isa_name(isa)))
            continue;
        const attn_tensor qt = attn_bhtd(q, 1, 1, 1, 2), kt = attn_bhtd(k, 1, 1, 1, 2), vt = attn_bhtd(v, 1, 1, 1, 4);
        const attn_tensor ot = attn_bhtd(out, 1, 1, 1, 4);
        attn_linear_attention_params p = attn_linear_attention_params_default();
        p.scale = 1;
        p.isa = attn_isa_name(isa);
        assert_int_equal(attn_linear_attention(&qt, &kt, &vt, &ot, &p), ATTN_OK);
        assert_memory_equal(out, v, sizeof out);
    }
}

/** The exit code of a child that computes; 1000 and more: a signal, of which 1014 says that it hung. */
static int result_in_child(int threads)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(TIME_LIMIT);
        if (run_large(&large, threads) != ATTN_OK)
            _exit(10);
        _exit(same_large(&large, &expected_large) ? 0 : 11);
    }
    assert_true(child > 0);
    assert_true(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void test_fork(void **state)
{
    (void)state;
    assert_int_equal(run_large(&expected_large, THREADS), ATTN_OK);
    for (int threads = 0; threads <= THREADS; threads++)
        assert_int_equal(result_in_child(threads), 0);
    assert_int_equal(run_large(&large, THREADS), ATTN_OK);
    assert_true(same_large(&large, &expected_large));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_alike_keys),
        cmocka_unit_test(test_heads_and_scale),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_no_channels_of_keys),
        cmocka_unit_test(test_reset_of_nan),
        cmocka_unit_test(test_float_state),
        cmocka_unit_test(test_denormal_values),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
