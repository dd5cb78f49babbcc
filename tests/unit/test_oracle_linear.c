/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of linear attention held to numbers worked out by hand, where NaN goes
 * by the formulas, and the comparison to what it must accept and refuse.
 */
#include "fixture.h"

#include "compare_linear.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 3, DK = 2, DV = 2 };

/** Two columns, of which the second is twice the first. */
struct example {
    float q[TOKENS * DK], k[TOKENS * DK], v[TOKENS * DV], decay[TOKENS * DK], beta[TOKENS], s[DK * DV];
    float out[TOKENS * DV], after[DK * DV];
    attn_tensor qt, kt, vt, ot, decays, betas, before, state;
    attn_linear_attention_params params;
};

static void initialize(struct example *x)
{
    static const float q[] = {1, 0, 0, 1, 1, 1}, k[] = {1, 0, 0, 1, 1, 0}, v[] = {2, 4, 4, 8, 6, 12};
    static const float s[] = {8, 16, 16, 32}, beta[] = {0.5f, 1, 1};
    memset(x, 0, sizeof *x);
    memcpy(x->q, q, sizeof q);
    memcpy(x->k, k, sizeof k);
    memcpy(x->v, v, sizeof v);
    memcpy(x->s, s, sizeof s);
    memcpy(x->beta, beta, sizeof beta);
    for (int i = 0; i < TOKENS * DK; i++)
        x->decay[i] = logf(0.5f);
    x->qt = attn_bhtd(x->q, 1, 1, TOKENS, DK);
    x->kt = attn_bhtd(x->k, 1, 1, TOKENS, DK);
    x->vt = attn_bhtd(x->v, 1, 1, TOKENS, DV);
    x->ot = attn_bhtd(x->out, 1, 1, TOKENS, DV);
    x->decays = attn_bhtd(x->decay, 1, 1, TOKENS, DK);
    x->betas = attn_bhtd(x->beta, 1, 1, TOKENS, 1);
    x->before = attn_bhtd(x->s, 1, 1, DK, DV);
    x->state = attn_bhtd(x->after, 1, 1, DK, DV);
    x->params = attn_linear_attention_params_default();
    x->params.scale = 1;
    x->params.state_in = &x->before;
}

static struct linear_inputs inputs_of(const struct example *x)
{
    return (struct linear_inputs){&x->qt, &x->kt, &x->vt, &x->ot, &x->params};
}

/** Column 0 of out and of S after the last token. */
static void must_give(const struct example *x, const double out[TOKENS], const double s[DK])
{
    const struct linear_inputs inputs = inputs_of(x);
    struct linear_reference r = linear_reference_compute(&inputs);
    for (int t = 0; t < TOKENS; t++)
        for (int e = 0; e < DV; e++)
            assert_true(fabs(r.of[LINEAR_OUT].value[t * DV + e] - (e + 1) * out[t]) < 1e-6);
    for (int d = 0; d < DK; d++)
        for (int e = 0; e < DV; e++)
            assert_true(fabs(r.of[LINEAR_STATE].value[d * DV + e] - (e + 1) * s[d]) < 1e-6);
    for (int i = 0; i < TOKENS * DV; i++)
        assert_true(r.of[LINEAR_OUT].unit[i] > 0 && r.of[LINEAR_OUT].unit[i] < 1e-4);
    linear_reference_free(&r);
}

/** The numbers of test_linear_attention.c, where they are followed step by step. */
static void test_rules(void **state)
{
    (void)state;
    struct example x;
    initialize(&x);
    must_give(&x, (double[]){10, 20, 36}, (double[]){16, 20});
    x.params.decay = &x.decays;
    must_give(&x, (double[]){6, 8, 11.5}, (double[]){7.5, 4});
    x.params.beta = &x.betas;
    must_give(&x, (double[]){3, 4, 8}, (double[]){6, 2});
    x.params.decay = NULL;
    must_give(&x, (double[]){5, 4, 10}, (double[]){6, 4});
    uint8_t marks[TOKENS] = {0, 3, 0};
    attn_tensor resets = attn_bhtd(marks, 1, 1, TOKENS, 1);
    resets.dtype = ATTN_BOOL;
    x.params.beta = NULL;
    x.params.resets = &resets; /* (8,16), (10,16), cleared, (0,4), (6,4) */
    must_give(&x, (double[]){10, 4, 10}, (double[]){6, 4});
}

/** Which numbers are not finite, as bits: of out, and of the state. */
static void must_reach(const struct example *x, unsigned out, unsigned s)
{
    const struct linear_inputs inputs = inputs_of(x);
    struct linear_reference r = linear_reference_compute_alone(&inputs);
    for (int i = 0; i < TOKENS * DV; i++)
        assert_int_equal(!isfinite(r.of[LINEAR_OUT].value[i]), out >> i & 1);
    for (int i = 0; i < DK * DV; i++)
        assert_int_equal(!isfinite(r.of[LINEAR_STATE].value[i]), s >> i & 1);
    linear_reference_free(&r);
}

static void test_not_finite(void **state)
{
    (void)state;
    for (int with_beta = 0; with_beta < 2; with_beta++) {
        struct example x;
        initialize(&x);
        x.params.beta = with_beta ? &x.betas : NULL;
        x.q[DK] = NAN; /* token 1: its own row of out */
        must_reach(&x, 0x0c, 0);
        initialize(&x);
        x.params.beta = with_beta ? &x.betas : NULL;
        x.v[DV] = INFINITY; /* token 1, column 0: that column from there on */
        must_reach(&x, 0x14, 0x5);
        initialize(&x);
        x.params.beta = with_beta ? &x.betas : NULL;
        x.k[DK] = NAN; /* token 1, row 0: that row, or with beta all */
        must_reach(&x, 0x3c, with_beta ? 0xf : 0x3);
        initialize(&x);
        x.params.beta = with_beta ? &x.betas : NULL;
        x.params.decay = &x.decays;
        x.s[2] = NAN; /* row 1, column 0, which no decay clears */
        x.decay[1] = -INFINITY;
        must_reach(&x, 0x15, with_beta ? 0x5 : 0x4);
    }
}

static int passes(const struct example *x)
{
    struct linear_comparison comparison[LINEAR_OUTPUTS];
    char message[512];
    const struct linear_inputs inputs = inputs_of(x);
    return compare_linear_call(&inputs, &x->ot, &x->state, comparison, message, sizeof message);
}

static void test_comparison(void **state)
{
    (void)state;
    static const float out[] = {10, 20, 20, 40, 36, 72}, s[] = {16, 32, 20, 40};
    struct example x;
    initialize(&x);
    memcpy(x.out, out, sizeof out);
    memcpy(x.after, s, sizeof s);
    assert_true(passes(&x));
    for (int i = 0; i < TOKENS * DV; i++) {
        static const float wrongs[] = {1.0001f, 0.9999f, 0, -1, INFINITY};
        for (size_t n = 0; n < sizeof wrongs / sizeof *wrongs; n++) {
            x.out[i] = out[i] * wrongs[n];
            assert_false(passes(&x));
        }
        x.out[i] = NAN;
        assert_false(passes(&x));
        x.out[i] = nextafterf(out[i], 100); /* what rounding may do */
        assert_true(passes(&x));
        x.out[i] = out[i];
    }
    x.after[3] *= 1.0001f;
    assert_false(passes(&x));
    x.after[3] = s[3];
    x.v[5] = NAN; /* then a number that is finite is wrong, and Inf as good as NaN */
    assert_false(passes(&x));
    x.out[5] = INFINITY;
    x.after[1] = NAN, x.after[3] = -INFINITY;
    assert_true(passes(&x));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
