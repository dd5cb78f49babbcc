/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversions between f32, bf16 and f16, through the front door: the
 * weight of a single key is 1, so attention over it copies v to out, widened
 * on its way in and rounded once on its way out. Every bf16 and f16 is widened,
 * and every f32 that matters to a rounding is rounded (each number of both
 * types, each midpoint between neighbours, and the floats beside those), on
 * every instruction set, in whole vectors and in tails. The expected bits come
 * from support/dtype.c, which shares no code with the library.
 */
#include "dtype.h"
#include "fixture.h"
#include "random.h"
#include "test_isa.h"
#include "tolerance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Rows of q that see the same key: more than a vector, and no multiple of one. */
enum { QUERIES = 17 };

static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16};

static float next_float(float x, int steps)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += (uint32_t)steps;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/** An emulator is slow, and says so by ATTN_CHECK_CASES: then every 16th pattern will do, from a random one. */
static uint32_t pattern_step(void)
{
    return getenv("ATTN_CHECK_CASES") ? 16 : 1;
}

/** Every number of a type, as f32. Returns how many. */
static int64_t all_numbers(attn_dtype dtype, float *values)
{
    struct rng rng = {rng_seed_of_run(NULL)};
    int64_t n = 0;
    for (uint32_t bits = (uint32_t)rng_range(&rng, 0, pattern_step() - 1); bits < 65536; bits += pattern_step())
        values[n++] = dtype_widen(dtype, (uint16_t)bits);
    return n;
}

/** What rounding to a type can go wrong with: its numbers, the midpoints up to the one before Inf, and neighbours. */
static int64_t delicate_numbers(attn_dtype dtype, float *values)
{
    const float largest = dtype_max(dtype), beyond = dtype == ATTN_F16 ? 65536.0f : INFINITY;
    int64_t n = 0;
    for (uint32_t bits = 0; bits < 65536; bits += pattern_step()) {
        const float x = dtype_widen(dtype, (uint16_t)bits), size = fabsf(x);
        values[n++] = x;
        if (!(size <= largest))
            continue;
        float next = dtype_widen(dtype, (uint16_t)(bits + 1));
        if (size == largest)
            next = copysignf(beyond, x);
        /* Of bf16, the midpoint before Inf is no sum of floats halved: the largest, and half a step. */
        const float midpoint = isinf(next) ? copysignf(0x1.ffp127f, x) : (float)(((double)x + (double)next) / 2);
        for (int i = -1; i <= 1; i++)
            values[n++] = next_float(midpoint, midpoint == 0 ? 0 : i);
    }
    return n;
}

enum { MAX_VALUES = 5 * 65536 + 64 };

/** One key per head, or several whose weights are equal: q and k are 0. */
static void average(const char *isa, int keys, const attn_tensor *v, const attn_tensor *out)
{
    static const uint32_t zero; /* of any type */
    attn_tensor q = attn_bhtd(&zero, v->shape[0], v->shape[1], out->shape[2], 1);
    attn_tensor k = attn_bhtd(&zero, v->shape[0], v->shape[1], keys, 1);
    q.dtype = k.dtype = v->dtype == ATTN_BF16 ? ATTN_BF16 : ATTN_F32;
    memset(q.stride, 0, sizeof q.stride);
    memset(k.stride, 0, sizeof k.stride);
    attn_params params = attn_params_default();
    params.isa = isa;
    params.num_threads = 1;
    if (attn_forward(&q, &k, v, out, &params) != ATTN_OK)
        fail_msg("%s", attn_last_error());
}

/** Whether two elements have the same bits, but that any NaN is as good as another. */
static int same(attn_dtype dtype, const void *a, const void *b, int64_t at)
{
    const size_t size = attn_dtype_size(dtype);
    const float x = dtype_load(dtype, a, at), y = dtype_load(dtype, b, at);
    return isnan(x) ? isnan(y)
                    : memcmp((const char *)a + (size_t)at * size, (const char *)b + (size_t)at * size, size) == 0;
}

/** Compares every row of out with what is expected of n values in heads of d. */
static void compare_rows(const char *what, const char *isa, const attn_tensor *out, const void *expected,
                         const float *values)
{
    const int64_t d = out->shape[3];
    for (int64_t h = 0; h < out->shape[1]; h++)
        for (int64_t i = 0; i < out->shape[2]; i++) {
            const char *row =
                (const char *)out->data + (size_t)((h * out->shape[2] + i) * d) * attn_dtype_size(out->dtype);
            const char *right = (const char *)expected + (size_t)(h * d) * attn_dtype_size(out->dtype);
            if (memcmp(row, right, (size_t)d * attn_dtype_size(out->dtype)) == 0)
                continue;
            for (int64_t c = 0; c < d; c++)
                if (!same(out->dtype, right, row, c))
                    fail_msg("%s, %s, head size %d: %a becomes %a in %s, expected %a", what, isa, (int)d,
                             (double)values[h * d + c], (double)dtype_load(out->dtype, row, c),
                             attn_dtype_name(out->dtype), (double)dtype_load(out->dtype, right, c));
        }
}

/** What out must hold for a value: -0 is written as +0, like every zero. */
static void expect(attn_dtype dtype, void *expected, int64_t at, float x)
{
    dtype_store(dtype, expected, at, x == 0 ? 0.0f : x);
}

/**
 * What counts as 0 in v: nothing in f32, a denormal in pairs of bf16. Weights by a table lie 2^-24 below those of 1, so
 * that products become denormal that much sooner.
 */
static float least_value(const char *isa, attn_dtype dtype)
{
    return !test_isa_has_pairs(isa) ? 0.0f : dtype_min_normal(dtype) * (test_isa_has_table(isa) ? 0x1p24f : 1.0f);
}

/** n values as v of one type, through attention, to out of another; those below least become 0. */
static void check_copy(const char *isa, attn_dtype from, attn_dtype to, const float *values, int64_t n, int64_t d,
                       float least)
{
    static float v_data[MAX_VALUES], expected[MAX_VALUES], out_data[MAX_VALUES * QUERIES];
    const int64_t heads = n / d; /* the last few values go untested in this head size, not in d = 1 */
    for (int64_t i = 0; i < heads * d; i++) {
        dtype_store(from, v_data, i, values[i]);
        const float x = dtype_load(from, v_data, i);
        expect(to, expected, i, fabsf(x) < least ? 0 : x);
    }
    const attn_tensor v = tensor_as(attn_bhtd(v_data, 1, heads, 1, d), from);
    const attn_tensor out = tensor_as(attn_bhtd(out_data, 1, heads, d == 1 ? 1 : QUERIES, d), to);
    average(isa, 1, &v, &out);
    compare_rows(attn_dtype_name(from), isa, &out, expected, values);
}

static int multiplies_pairs(const char *isa)
{
    return test_isa_has_pairs(isa);
}

/** Every bf16 and f16 as v, to out of each type. On pairs of bf16 a denormal counts as 0. */
static void test_every_number(void **state)
{
    (void)state;
    static float values[MAX_VALUES];
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int from = 1; from < 3 && attn_isa_supported(attn_isa_name(isa)); from++) {
            const int pairs = multiplies_pairs(attn_isa_name(isa));
            if (pairs && types[from] != ATTN_BF16)
                continue;
            const int64_t n = all_numbers(types[from], values);
            const float least = least_value(attn_isa_name(isa), types[from]);
            for (int to = 0; to < 3; to++) {
                check_copy(attn_isa_name(isa), types[from], types[to], values, n, 1, least);
                check_copy(attn_isa_name(isa), types[from], types[to], values, n, 61, least);
                check_copy(attn_isa_name(isa), types[from], types[to], values, n, 64, least);
            }
        }
}

/** Rounding of f32 to both types. */
static void test_every_rounding(void **state)
{
    (void)state;
    static float values[MAX_VALUES];
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int to = 1; to < 3 && attn_isa_supported(attn_isa_name(isa)); to++) {
            if (multiplies_pairs(attn_isa_name(isa)))
                continue;
            const int64_t n = delicate_numbers(types[to], values);
            check_copy(attn_isa_name(isa), ATTN_F32, types[to], values, n, 1, 0);
            check_copy(attn_isa_name(isa), ATTN_F32, types[to], values, n, 37, 0);
            check_copy(attn_isa_name(isa), ATTN_F32, types[to], values, n, 80, 0);
        }
}

/** The upper 8 bits of x's significand. */
static float upper_part(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/**
 * The same where v must be bf16: four keys of equal weight, whose values are 4 x
 * cut into three parts of 8 bits, and 0. Their sum is exact, and so is a quarter
 * of it. Values so large or small that the parts, times their weights, are not
 * are left out.
 */
static void test_every_rounding_of_sums(void **state)
{
    (void)state;
    static float values[MAX_VALUES], kept[MAX_VALUES], expected[MAX_VALUES], out_data[MAX_VALUES * QUERIES];
    static uint16_t v_data[4 * MAX_VALUES];
    const int64_t d = 37;
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int to = 1; to < 3 && attn_isa_supported(attn_isa_name(isa)); to++) {
            int64_t n = 0;
            const float least = test_isa_has_table(attn_isa_name(isa)) ? 0x1p-76f : 0x1p-100f;
            const int64_t all = delicate_numbers(types[to], values);
            for (int64_t i = 0; i < all; i++)
                if (fabsf(values[i]) > least && fabsf(values[i]) < 0x1p125f)
                    kept[n++] = values[i];
            const int64_t heads = n / d;
            assert_true(n > 1000);
            for (int64_t i = 0; i < heads * d; i++) {
                float rest = 4 * kept[i];
                for (int64_t j = 0; j < 4; j++) {
                    const float part = upper_part(rest);
                    dtype_store(ATTN_BF16, v_data, (i / d * 4 + j) * d + i % d, part);
                    rest -= part;
                }
                assert_true(rest == 0);
                expect(types[to], expected, i, kept[i]);
            }
            const attn_tensor v = tensor_as(attn_bhtd(v_data, 1, heads, 4, d), ATTN_BF16);
            const attn_tensor out = tensor_as(attn_bhtd(out_data, 1, heads, QUERIES, d), types[to]);
            average(attn_isa_name(isa), 4, &v, &out);
            compare_rows("sums of bf16", attn_isa_name(isa), &out, expected, kept);
        }
}

/** The log-sum-exp of single scores, one for each value of q, of k or of an additive mask. */
static void scores_of(const char *isa, int which, attn_dtype dtype, const void *data, int64_t n, float *lse_data)
{
    static const float one = 1, nothing;
    static float out_data[65536];
    attn_tensor tensors[3]; /* q, k, mask */
    for (int i = 0; i < 3; i++) {
        tensors[i] = attn_bhtd(i == 2 ? &nothing : &one, 1, n, 1, 1);
        memset(tensors[i].stride, 0, sizeof tensors[i].stride);
    }
    const attn_tensor v = tensors[1], out = attn_bhtd(out_data, 1, n, 1, 1), lse = attn_bhtd(lse_data, 1, n, 1, 1);
    tensors[which].data = (void *)(uintptr_t)data;
    tensors[which].dtype = dtype;
    tensors[which].stride[1] = 1;
    attn_params params = attn_params_default();
    params.isa = isa;
    params.scale = 1;
    params.num_threads = 1;
    params.mask = which == 2 ? &tensors[2] : NULL;
    params.lse = &lse;
    if (attn_forward(&tensors[0], &tensors[1], &v, &out, &params) != ATTN_OK)
        fail_msg("%s", attn_last_error());
}

/** Every bf16 and f16 as q, as k and in a mask gives the bits of the f32 that it stands for. */
static void test_every_score(void **state)
{
    (void)state;
    static float values[MAX_VALUES], wide[65536], narrow[65536];
    static uint16_t data[65536];
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int type = 1; type < 3 && attn_isa_supported(attn_isa_name(isa)); type++) {
            const int64_t n = all_numbers(types[type], values);
            for (int64_t i = 0; i < n; i++)
                data[i] = dtype_narrow(types[type], (double)values[i]);
            for (int which = 0; which < 3; which++) {
                scores_of(attn_isa_name(isa), which, ATTN_F32, values, n, wide);
                scores_of(attn_isa_name(isa), which, types[type], data, n, narrow);
                for (int64_t i = 0; i < n; i++)
                    if (!same(ATTN_F32, wide, narrow, i))
                        fail_msg("%s: the score of %a in %s is %a, in f32 %a", attn_isa_name(isa), (double)values[i],
                                 attn_dtype_name(types[type]), (double)narrow[i], (double)wide[i]);
            }
        }
}

/**
 * On pairs of bf16 a weight is 2^x by a polynomial (7.5e-5, measured when it was
 * made; docs/numerics.md) and then rounded to bf16. Beside a key of weight 1 and
 * value 0, one of value 1 and weight p gives p / (1 + p) in out, and p again from
 * that, a bf16: the one nearest to some number within 8e-5 of the exact weight. By
 * a table it is one that is itself as near to it as tolerance.h says.
 */
static void test_rounded_weights(void **state)
{
    (void)state;
    enum { HEADS = 1024 }; /* every bf16 from -1 to -256 */
    static uint16_t k_data[2 * HEADS];
    static float out_data[HEADS];
    static const uint16_t v_data[2] = {0, 0x3f80}, one = 0x3f80;
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (!multiplies_pairs(attn_isa_name(isa)) || !attn_isa_supported(attn_isa_name(isa)))
            continue;
        for (int h = 0; h < HEADS; h++) {
            k_data[2 * h] = 0;
            k_data[2 * h + 1] = (uint16_t)(0xbf80 + h);
        }
        attn_tensor q = tensor_as(attn_bhtd(&one, 1, HEADS, 1, 1), ATTN_BF16);
        attn_tensor k = tensor_as(attn_bhtd(k_data, 1, HEADS, 2, 1), ATTN_BF16);
        attn_tensor v = tensor_as(attn_bhtd(v_data, 1, HEADS, 2, 1), ATTN_BF16);
        const attn_tensor out = attn_bhtd(out_data, 1, HEADS, 1, 1);
        q.stride[1] = v.stride[1] = 0;
        attn_params params = attn_params_default();
        params.isa = attn_isa_name(isa);
        params.num_threads = 1;
        for (int round = 0; round < 8; round++) { /* scores from -0.02 to -15, mostly not so far */
            params.scale = 0.0133f * (1 + (float)round * 0.577f);
            assert_int_equal(attn_forward(&q, &k, &v, &out, &params), ATTN_OK);
            for (int64_t h = 0; h < HEADS; h++) {
                const double x = (double)params.scale * (double)dtype_widen(ATTN_BF16, k_data[2 * h + 1]);
                const double exact = exp(x), got = (double)out_data[h] / (1 - (double)out_data[h]);
                const float p = dtype_round(ATTN_BF16, (float)got);
                if (fabs(got - (double)p) > 1e-6 * got)
                    fail_msg("%s: the weight e^%g is %.9g, no bf16", attn_isa_name(isa), x, got);
                const double error = test_isa_has_table(params.isa) ? fabs((double)p - exact) / EXP2_TABLE_MAX_RELATIVE
                                                                    : dtype_distance(ATTN_BF16, p, exact) / 8e-5;
                if (error > exact)
                    fail_msg("%s: the weight e^%g = %.9g is rounded to %.9g", attn_isa_name(isa), x, exact, (double)p);
            }
        }
    }
}

/** The tests' own conversions against numbers known from the formats' definitions. */
static void test_known_numbers(void **state)
{
    (void)state;
    static const struct {
        attn_dtype dtype;
        double x;
        uint16_t bits;
    } known[] = {{ATTN_BF16, 1, 0x3f80},
                 {ATTN_BF16, -2.5, 0xc020},
                 {ATTN_BF16, 0x1p-126, 0x0080},
                 {ATTN_BF16, 0x1p-133, 0x0001},
                 {ATTN_BF16, 0x1p-134, 0x0000},
                 {ATTN_BF16, 0x1.8p-133, 0x0002},
                 {ATTN_BF16, 1 + 0x1p-8, 0x3f80},
                 {ATTN_BF16, 1 + 0x3p-8, 0x3f82},
                 {ATTN_BF16, 0x1.fep127, 0x7f7f},
                 {ATTN_BF16, 0x1.ffp127, 0x7f80},
                 {ATTN_BF16, 0x1.fefffep127, 0x7f7f},
                 {ATTN_BF16, -(double)INFINITY, 0xff80},
                 {ATTN_F16, 1, 0x3c00},
                 {ATTN_F16, -2, 0xc000},
                 {ATTN_F16, 65504, 0x7bff},
                 {ATTN_F16, 65519.996, 0x7bff},
                 {ATTN_F16, 65520, 0x7c00},
                 {ATTN_F16, 0x1p-14, 0x0400},
                 {ATTN_F16, 0x1p-24, 0x0001},
                 {ATTN_F16, 0x1p-25, 0x0000},
                 {ATTN_F16, 0x1.8p-24, 0x0002},
                 {ATTN_F16, 1.0 / 3, 0x3555},
                 {ATTN_F16, 2049, 0x6800},
                 {ATTN_F16, 2051, 0x6802},
                 {ATTN_F16, 0x1.ffep-15, 0x0400},
                 {ATTN_F16, -0.0, 0x8000}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(dtype_narrow(known[i].dtype, known[i].x), known[i].bits);
    assert_true(dtype_widen(ATTN_F16, 0x3555) == 0x1.554p-2f && dtype_widen(ATTN_F16, 0x83ff) == -0x1.ff8p-15f);
    assert_true(dtype_widen(ATTN_BF16, 0x0001) == 0x1p-133f && dtype_widen(ATTN_BF16, 0x4049) == 3.140625f);
    assert_true(isnan(dtype_widen(ATTN_F16, 0x7c01)) && isinf(dtype_widen(ATTN_F16, 0xfc00)));
    for (int type = 1; type < 3; type++)
        for (int bits = 0; bits < 65536; bits++) {
            const float x = dtype_widen(types[type], (uint16_t)bits);
            if (isnan(x))
                assert_true(isnan(dtype_widen(types[type], dtype_narrow(types[type], (double)x))));
            else
                assert_int_equal(dtype_narrow(types[type], (double)x), bits);
        }
    assert_true(dtype_distance(ATTN_F16, 1, 1 + 0x1p-11) == 0 && dtype_distance(ATTN_F16, 1, 1 + 0x1.8p-11) == 0x1p-12);
    assert_true(dtype_distance(ATTN_BF16, -1, -1 + 0x1p-8) == 0x1p-9); /* below a power of two the steps are halved */
    assert_true(dtype_distance(ATTN_F16, INFINITY, 1e30) == 0 && dtype_distance(ATTN_F16, INFINITY, 65519) == 1);
    assert_true(dtype_distance(ATTN_F16, 0, -0x1p-24) == 0x1p-25 && dtype_distance(ATTN_F32, 1, 1.5) == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_numbers),  cmocka_unit_test(test_every_number),
        cmocka_unit_test(test_every_rounding), cmocka_unit_test(test_every_rounding_of_sums),
        cmocka_unit_test(test_every_score),    cmocka_unit_test(test_rounded_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
