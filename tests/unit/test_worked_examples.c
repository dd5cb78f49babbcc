/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases small enough to compute by hand. Logits are natural logarithms of
 * small integers, or 0, so that the weights are fractions known exactly; each
 * test derives its numbers in a comment, the expected values are written as
 * those fractions, and the only slack is the rounding of the f32 result (a few
 * ULP), on every instruction set.
 *
 * Keys are unit vectors scaled so that the logits can be read off: with d = 1,
 * q = 1 and scale = 1 the logit of key j is k[j].
 */
#include "dtype.h"
#include "fixture.h"
#include "random.h"
#include "test_isa.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LN2 0.6931471805599453

/** Calls check for every instruction set. */
static void everywhere(void (*check)(attn_params params))
{
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (!attn_isa_supported(attn_isa_name(isa)))
            continue;
        attn_params params = attn_params_default();
        params.isa = attn_isa_name(isa);
        params.scale = 1;
        check(params);
    }
}

static void must_equal(const char *what, float got, double expected)
{
    if (fabs((double)got - expected) > 8 * 0x1p-24 * fabs(expected))
        fail_msg("%s is %.9g, expected %.9g", what, (double)got, expected);
}

/** One head of tq queries with d = 1: logits q[i] * k[j]; dv channels. */
static void attend(int64_t tq, int64_t tk, int64_t dv, const float *q, const float *k, const float *v, float *out,
                   const attn_params *params)
{
    const attn_tensor qt = attn_bhtd(q, 1, 1, tq, 1), kt = attn_bhtd(k, 1, 1, tk, 1), vt = attn_bhtd(v, 1, 1, tk, dv),
                      ot = attn_bhtd(out, 1, 1, tq, dv);
    if (attn_forward(&qt, &kt, &vt, &ot, params) != ATTN_OK)
        fail_msg("%s", attn_last_error());
}

/* The step that is easy to get wrong on paper: 0.1 * 0.7 + 0.2 * 0.8 = 0.07 + 0.16 = 0.23. As attention: the weights
 * of three keys are 1/10, 2/10, 7/10 when their logits are ln 1, ln 2, ln 7; the values 0.7, 0.8, 0 give 0.23. */
static void check_products(attn_params params)
{
    const float q[1] = {1}, k[3] = {0, (float)LN2, (float)1.9459101490553132}, v[3] = {0.7f, 0.8f, 0};
    float out[1], weights[3], lse[1];
    const attn_tensor w = attn_bhtd(weights, 1, 1, 1, 3), l = attn_bhtd(lse, 1, 1, 1, 1);
    params.weights = &w;
    params.lse = &l;
    attend(1, 3, 1, q, k, v, out, &params);
    must_equal("out", out[0], 0.23);
    must_equal("weight 0", weights[0], 0.1);
    must_equal("weight 1", weights[1], 0.2);
    must_equal("weight 2", weights[2], 0.7);
    must_equal("lse", lse[0], log(10)); /* ln(1 + 2 + 7) */
}

/* Equal logits: the weights are 1/n, exactly for n a power of two, and out is the mean: (1 + 2 + 3 + 6) / 4 = 3. */
static void check_mean(attn_params params)
{
    const float q[1] = {0}, k[4] = {5, -3, 2, 100}, v[8] = {1, -8, 2, 8, 3, -16, 6, 16};
    float out[2], lse[1];
    const attn_tensor l = attn_bhtd(lse, 1, 1, 1, 1);
    params.lse = &l;
    attend(1, 4, 2, q, k, v, out, &params);
    assert_true(out[0] == 3 && out[1] == 0);
    must_equal("lse", lse[0], 2 * LN2); /* ln 4 */
}

/* Causal, top-left, three keys with logits 0, ln 2, ln 4 for q = 1: sums 1, 3, 7. Values 7, 3, 1:
 * row 0: 7; row 1: (1*7 + 2*3) / 3 = 13/3; row 2: (1*7 + 2*3 + 4*1) / 7 = 17/7.
 * Key sums: key 0: 1 + 1/3 + 1/7 = 31/21; key 1: 2/3 + 2/7 = 20/21; key 2: 4/7. */
static void check_causal(attn_params params)
{
    const float q[3] = {1, 1, 1}, k[3] = {0, (float)LN2, (float)(2 * LN2)}, v[3] = {7, 3, 1};
    float out[3], sums[3];
    const attn_tensor s = attn_bhtd(sums, 1, 1, 1, 3);
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.key_sums = &s;
    attend(3, 3, 1, q, k, v, out, &params);
    assert_true(out[0] == 7);
    must_equal("row 1", out[1], 13.0 / 3);
    must_equal("row 2", out[2], 17.0 / 7);
    must_equal("key 0", sums[0], 31.0 / 21);
    must_equal("key 1", sums[1], 20.0 / 21);
    must_equal("key 2", sums[2], 4.0 / 7);
}

/* Two queries, four keys, values 1, 2, 4, 8, equal logits. The alignments of the diagonal differ:
 * top-left: 1 and 3/2; bottom-right (offset 2): (1+2+4)/3 = 7/3 and 15/4; offset -1: nothing and 1;
 * bottom-right with kv_len 3 (offset 1): 3/2 and 7/3. */
static void check_alignments(attn_params params)
{
    static const double expected[4][2] = {{1, 1.5}, {7.0 / 3, 3.75}, {0, 1}, {1.5, 7.0 / 3}};
    static const attn_causal causal[4] = {ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_BOTTOM_RIGHT, ATTN_CAUSAL_OFFSET,
                                          ATTN_CAUSAL_BOTTOM_RIGHT};
    const float q[2] = {0, 0}, k[4] = {1, 1, 1, 1}, v[4] = {1, 2, 4, 8};
    const int64_t offset = -1, length = 3;
    for (int i = 0; i < 4; i++) {
        float out[2], lse[2];
        const attn_tensor l = attn_bhtd(lse, 1, 1, 2, 1);
        params.causal = causal[i];
        params.query_offset = causal[i] == ATTN_CAUSAL_OFFSET ? &offset : NULL;
        params.kv_len = i == 3 ? &length : NULL;
        params.lse = &l;
        attend(2, 4, 1, q, k, v, out, &params);
        must_equal("first query", out[0], expected[i][0]);
        must_equal("second query", out[1], expected[i][1]);
        assert_true((lse[0] == -INFINITY) == (expected[i][0] == 0));
    }
}

/* Scale and temperature: the logit is q k scale / T = ln 2 * 6 * 0.5 / 3 = ln 2 against 0: weights 2/3 and 1/3.
 * The default scale is 1/sqrt(d): with d = 4 and q . k = 2 ln 3 the logit is ln 3: weights 3/4 and 1/4. */
static void check_scale(attn_params params)
{
    const float q[4] = {6, 0, 0, 0}, k[2] = {(float)LN2, 0}, v[2] = {3, 0};
    float out[1];
    params.scale = 0.5f;
    params.temperature = 3;
    attend(1, 2, 1, q, k, v, out, &params);
    must_equal("out", out[0], 2);

    const float wide_q[4] = {1, 1, 1, 1}, wide_k[8] = {(float)1.0986122886681098, (float)1.0986122886681098};
    const attn_tensor qt = attn_bhtd(wide_q, 1, 1, 1, 4), kt = attn_bhtd(wide_k, 1, 1, 2, 4),
                      vt = attn_bhtd(v, 1, 1, 2, 1), ot = attn_bhtd(out, 1, 1, 1, 1);
    params.scale = 0;
    params.temperature = 0;
    assert_int_equal(attn_forward(&qt, &kt, &vt, &ot, &params), ATTN_OK);
    must_equal("out with the default scale", out[0], 2.25);
}

/* An additive mask of 0, ln 3, -Inf on equal logits: weights 1/4, 3/4, 0, whatever stands in the hidden slot.
 * Values 8, 4: 2 + 3 = 5. */
static void check_additive_mask(attn_params params)
{
    float mask[3] = {0, (float)1.0986122886681098, -INFINITY};
    const float q[1] = {1}, k[3] = {2, 2, NAN}, v[3] = {8, 4, NAN};
    float out[1], lse[1];
    const attn_tensor m = attn_bhtd(mask, 1, 1, 1, 3), l = attn_bhtd(lse, 1, 1, 1, 1);
    params.mask = &m;
    params.lse = &l;
    attend(1, 3, 1, q, k, v, out, &params);
    must_equal("out", out[0], 5);
    must_equal("lse", lse[0], 2 + 2 * LN2); /* 2 + ln(1 + 3) */
}

/* The smallest float as a mask, in the place of -Inf, is common. It hides a key beside others, but it is finite: where
 * all keys of a row have it the logits are equal (the dot product is lost in rounding) and out is the mean. */
static void check_smallest_float_mask(attn_params params)
{
    float mask[8] = {0, 0, -FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX};
    const float q[2] = {1, 1}, k[4] = {0, 0, 1, 2}, v[4] = {1, 3, 8, 4};
    float out[2];
    const attn_tensor m = attn_bhtd(mask, 1, 1, 2, 4);
    params.mask = &m;
    attend(2, 4, 1, q, k, v, out, &params);
    must_equal("out beside visible keys", out[0], 2);
    must_equal("out of a row of the smallest float", out[1], 4);
}

/* A row that sees nothing gives 0 and -Inf; a NaN in a live slot gives NaN; neither touches the other rows. */
static void check_rows_apart(attn_params params)
{
    uint8_t live[9] = {1, 1, 0, 0, 0, 0, 1, 1, 1};
    const float q[3] = {0, 0, 0}, k[3] = {1, 2, 3}, v[3] = {1, 2, NAN};
    float out[3], lse[3];
    attn_tensor m = attn_bhtd(live, 1, 1, 3, 3);
    const attn_tensor l = attn_bhtd(lse, 1, 1, 3, 1);
    m.dtype = ATTN_BOOL;
    params.mask = &m;
    params.lse = &l;
    attend(3, 3, 1, q, k, v, out, &params);
    assert_true(out[0] == 1.5f);
    assert_true(out[1] == 0 && lse[1] == -INFINITY);
    assert_true(isnan(out[2]));
    must_equal("lse", lse[2], log(3));
}

/** attend() with q, k, v, an optional additive mask of one value a key, and out of one type. */
static void attend_in(attn_dtype dtype, int64_t tk, int64_t dv, float q, const float *k, const float *v,
                      const float *mask, float *out, attn_params params)
{
    float narrow[4][32], narrow_out[32];
    const float *const values[] = {&q, k, v, mask};
    const int64_t counts[] = {1, tk, tk * dv, mask ? tk : 0};
    for (int t = 0; t < 4; t++)
        for (int64_t i = 0; i < counts[t]; i++)
            dtype_store(dtype, narrow[t], i, values[t][i]);
    const attn_tensor qt = tensor_as(attn_bhtd(narrow[0], 1, 1, 1, 1), dtype);
    const attn_tensor kt = tensor_as(attn_bhtd(narrow[1], 1, 1, tk, 1), dtype);
    const attn_tensor vt = tensor_as(attn_bhtd(narrow[2], 1, 1, tk, dv), dtype);
    const attn_tensor mt = tensor_as(attn_bhtd(narrow[3], 1, 1, 1, tk), dtype);
    const attn_tensor ot = tensor_as(attn_bhtd(narrow_out, 1, 1, 1, dv), dtype);
    if (mask)
        params.mask = &mt;
    if (attn_forward(&qt, &kt, &vt, &ot, &params) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    for (int64_t c = 0; c < dv; c++)
        out[c] = dtype_load(dtype, narrow_out, c);
}

/* In bf16 and f16, with numbers that both hold. A scale of ln 2 makes the weight of key j 2^k[j], exact in any type:
 * 1 : 2 : 4 of 7, with values (7, 7), (14, -7), (7, 7): (7 + 28 + 28) / 7 = 9 and (7 - 14 + 28) / 7 = 3. The weights
 * themselves and the log-sum-exp, ln 7, are f32. */
static void check_narrow_powers(attn_params params)
{
    const float k[3] = {0, 1, 2}, v[6] = {7, 7, 14, -7, 7, 7};
    for (int dtype = ATTN_BF16; dtype <= ATTN_F16; dtype++) {
        float out[2], lse[1], weights[3];
        const attn_tensor l = attn_bhtd(lse, 1, 1, 1, 1), w = attn_bhtd(weights, 1, 1, 1, 3);
        params.scale = (float)LN2;
        params.lse = &l;
        params.weights = &w;
        attend_in((attn_dtype)dtype, 3, 2, 1, k, v, NULL, out, params);
        assert_true(out[0] == 9 && out[1] == 3);
        must_equal("lse", lse[0], log(7));
        must_equal("weight 0", weights[0], 1.0 / 7);
        must_equal("weight 1", weights[1], 2.0 / 7);
        must_equal("weight 2", weights[2], 4.0 / 7);
    }
}

/* An additive mask on equal scores, and five keys, so that the last has no partner in a pair: -Inf hides key 1, beside
 * key 0, and key 4 alone, whatever they hold. The other three weigh the same: values 3, 6, 9 give 6. */
static void check_narrow_mask(attn_params params)
{
    const float k[5] = {1, NAN, 1, 1, INFINITY}, v[5] = {3, NAN, 6, 9, INFINITY};
    const float mask[5] = {0.5f, -INFINITY, 0.5f, 0.5f, -INFINITY};
    for (int dtype = ATTN_BF16; dtype <= ATTN_F16; dtype++) {
        float out[1];
        attend_in((attn_dtype)dtype, 5, 1, 1, k, v, mask, out, params);
        assert_true(out[0] == 6);
    }
}

/* One bf16 denormal, 2^-130, of two equal keys; the other value is 0. f32 has the half of it. The instructions that
 * multiply pairs of bf16 take it for 0. The f16 denormal 2^-24 halves to 2^-25, a tie that goes to 0 in f16; 3 * 2^-24
 * halves to a tie that goes up to 2^-23. */
static void check_narrow_denormals(attn_params params)
{
    const int pairs = test_isa_has_pairs(params.isa);
    const float k[2] = {1, 1}, bf16[2] = {0x1p-130f, 0}, f16[4] = {0x1p-24f, 0x3p-24f, 0, 0};
    float out[2];
    attend_in(ATTN_BF16, 2, 1, 1, k, bf16, NULL, out, params);
    assert_true(out[0] == (pairs ? 0 : 0x1p-131f));
    attend_in(ATTN_F16, 2, 2, 1, k, f16, NULL, out, params);
    assert_true(out[0] == 0 && out[1] == 0x1p-23f);
}

#define EVERYWHERE(check)                                                                                              \
    static void test_##check(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        everywhere(check);                                                                                             \
    }

enum { DEBERTA_TOKENS = 37, DEBERTA_SPAN = 8, DEBERTA_D = 12 };

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/** result[i][j] = dot(x[i], y[j]) */
static void multiply_transposed(const float *x, int rows, const float *y, int columns, double *result)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            double sum = 0;
            for (int c = 0; c < DEBERTA_D; c++)
                sum += (double)x[i * DEBERTA_D + c] * (double)y[j * DEBERTA_D + c];
            result[i * columns + j] = sum;
        }
}

/*
 * DeBERTa as Transformers computes it (modeling_deberta_v2.py, disentangled_attention_bias), step for step: matrices of
 * all distances, a gather along their last axis, and for position to content a transpose behind it. Random data of one
 * head.
 */
static void check_deberta(attn_params params)
{
    enum { T = DEBERTA_TOKENS, S = DEBERTA_SPAN, D = DEBERTA_D };
    static float q[T * D], k[T * D], v[T * D], pos_key[2 * S * D], pos_query[2 * S * D], out[T * D];
    static double content[T * T], c2p[T * 2 * S], p2c[T * 2 * S], gathered[T * T];
    struct rng rng = rng_for_case(90, 1);
    rng_fill_normal(&rng, q, T * D);
    rng_fill_normal(&rng, k, T * D);
    rng_fill_normal(&rng, v, T * D);
    rng_fill_normal(&rng, pos_key, 2 * S * D);
    rng_fill_normal(&rng, pos_query, 2 * S * D);
    const attn_tensor qt = attn_bhtd(q, 1, 1, T, D), kt = attn_bhtd(k, 1, 1, T, D), vt = attn_bhtd(v, 1, 1, T, D);
    const attn_tensor ot = attn_bhtd(out, 1, 1, T, D);
    const attn_tensor rel_k = attn_bhtd(pos_key, 1, 1, 2 * S, D), rel_q = attn_bhtd(pos_query, 1, 1, 2 * S, D);
    attn_disentangled terms = {.span = S, .rel_k = &rel_k, .rel_q = &rel_q};
    const double scale = 1 / sqrt(3.0 * D);
    params.scale = (float)scale;
    params.disentangled = &terms;

    multiply_transposed(q, T, k, T, content);
    multiply_transposed(q, T, pos_key, 2 * S, c2p);
    multiply_transposed(k, T, pos_query, 2 * S, p2c);
    for (int a = 0; a < T; a++) /* relative_pos[a][b] = a - b; p2c_pos is clamp(-relative_pos + span) */
        for (int b = 0; b < T; b++)
            gathered[a * T + b] = p2c[a * 2 * S + clamp(-(a - b) + S, 0, 2 * S - 1)];
    for (int order = 0; order < 2; order++) {
        double largest = 0;
        terms.delta = order ? ATTN_DELTA_KEY_QUERY : ATTN_DELTA_QUERY_KEY;
        assert_int_equal(attn_forward(&qt, &kt, &vt, &ot, &params), ATTN_OK);
        for (int i = 0; i < T; i++) {
            double weight[T], sum = 0;
            for (int j = 0; j < T; j++) {
                const double bias = c2p[i * 2 * S + clamp(i - j + S, 0, 2 * S - 1)] + gathered[j * T + i];
                sum += weight[j] = exp(scale * (content[i * T + j] + bias));
            }
            for (int c = 0; c < D; c++) {
                double expected = 0;
                for (int j = 0; j < T; j++)
                    expected += weight[j] / sum * (double)v[j * D + c];
                largest = fmax(largest, fabs((double)out[i * D + c] - expected));
            }
        }
        if (order ? largest < 0.1 : largest > 1e-5) /* the equation as it is printed is something else */
            fail_msg("the largest difference is %g with delta %d", largest, order);
    }
}

EVERYWHERE(check_products)
EVERYWHERE(check_mean)
EVERYWHERE(check_causal)
EVERYWHERE(check_alignments)
EVERYWHERE(check_scale)
EVERYWHERE(check_additive_mask)
EVERYWHERE(check_smallest_float_mask)
EVERYWHERE(check_rows_apart)
EVERYWHERE(check_narrow_powers)
EVERYWHERE(check_narrow_mask)
EVERYWHERE(check_narrow_denormals)
EVERYWHERE(check_deberta)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_products),
        cmocka_unit_test(test_check_mean),
        cmocka_unit_test(test_check_causal),
        cmocka_unit_test(test_check_alignments),
        cmocka_unit_test(test_check_scale),
        cmocka_unit_test(test_check_additive_mask),
        cmocka_unit_test(test_check_smallest_float_mask),
        cmocka_unit_test(test_check_rows_apart),
        cmocka_unit_test(test_check_narrow_powers),
        cmocka_unit_test(test_check_narrow_mask),
        cmocka_unit_test(test_check_narrow_denormals),
        cmocka_unit_test(test_check_deberta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
