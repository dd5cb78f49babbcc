/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls at the edges of what is allowed, which must be accepted: refusing too
 * much breaks users just as refusing too little does. Empty axes, lengths of 0
 * and of everything, strides of axes with one element, offsets at the ends of
 * int64_t, the largest head size; and the small functions of the API.
 */
#include "fixture.h"
#include "oracle.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void must_be_zero(const float *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(data[i] == 0);
}

static void test_valid_call(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    assert_false(fixture_outputs_untouched(&f));
    f.params_arg = NULL;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
}

static void test_no_keys(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    f.k.shape[2] = f.v.shape[2] = 0;
    f.k.data = f.v.data = NULL;
    f.weights.shape[3] = f.key_sums.shape[3] = f.mask.shape[3] = 0;
    f.weights.data = f.key_sums.data = f.mask.data = NULL;
    f.params.kv_len = f.params.kv_start = NULL;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    must_be_zero(f.out_data, sizeof f.out_data / sizeof(float));
    for (size_t i = 0; i < sizeof f.lse_data / sizeof(float); i++)
        assert_true(f.lse_data[i] == -INFINITY);
}

static void test_no_queries(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    f.q.shape[2] = f.out.shape[2] = f.lse.shape[2] = f.weights.shape[2] = f.mask.shape[2] = 0;
    f.q.data = f.out.data = f.lse.data = f.weights.data = f.mask.data = NULL;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    must_be_zero(f.key_sums_data, sizeof f.key_sums_data / sizeof(float)); /* sums over no queries */
}

static void test_no_batch(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    f.q.shape[0] = f.k.shape[0] = f.v.shape[0] = f.out.shape[0] = 0;
    f.lse.shape[0] = f.weights.shape[0] = f.key_sums.shape[0] = f.mask.shape[0] = 0;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    assert_true(fixture_outputs_untouched(&f));
}

static void test_no_heads(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    f.q.shape[1] = f.out.shape[1] = f.k.shape[1] = f.v.shape[1] = 0;
    f.lse.shape[1] = f.weights.shape[1] = f.key_sums.shape[1] = f.mask.shape[1] = 0;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    assert_true(fixture_outputs_untouched(&f));
}

static void test_no_channels(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    f.q.shape[3] = f.k.shape[3] = 0; /* all scores are 0: the mean of the values */
    f.params = attn_params_default();
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    for (int c = 0; c < FIX_DV; c++) {
        double mean = 0;
        for (int j = 0; j < FIX_TK; j++)
            mean += (double)f.v_data[j * FIX_DV + c] / FIX_TK;
        assert_true(fabs((double)f.out_data[c] - mean) < 1e-6);
    }
    fixture_initialize(&f);
    f.v.shape[3] = f.out.shape[3] = 0;
    f.v.data = f.out.data = NULL;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    assert_true(isfinite(f.lse_data[0]) || f.lse_data[0] == -INFINITY);
}

/** A mask that ends before the keys do is one that hides those behind it: the same bits, with any lengths. */
static void test_short_masks(void **state)
{
    (void)state;
    static struct fixture shorter, whole;
    for (int n = 0; n < 2 * 2 * (FIX_TK + 1); n++) {
        const int length = n % (FIX_TK + 1), boolean = n / (FIX_TK + 1) % 2, lengths = n / (FIX_TK + 1) / 2;
        struct fixture *const both[] = {&whole, &shorter};
        if (length == 1) /* which is broadcast */
            continue;
        for (int i = 0; i < 2; i++) {
            struct fixture *f = both[i];
            fixture_initialize(f);
            if (!lengths) /* else a key of the second sequence is padding on the left, and one on the right */
                f->params.kv_len = f->params.kv_start = NULL;
            for (int j = 0; j < FIX_B * FIX_HQ * FIX_TQ * FIX_TK; j++) {
                const int hidden = j % FIX_TK >= length;
                if (boolean)
                    ((uint8_t *)f->mask_data)[j] = (uint8_t)(!hidden && j % 5 != 0);
                else if (hidden)
                    f->mask_data[j] = -INFINITY;
            }
            f->mask.dtype = boolean ? ATTN_BOOL : ATTN_F32;
        }
        shorter.mask.shape[3] = length; /* with the strides of the whole one */
        if (length == 0)
            shorter.mask.data = NULL;
        assert_int_equal(fixture_forward(&whole), ATTN_OK);
        assert_int_equal(fixture_forward(&shorter), ATTN_OK);
        assert_true(fixture_outputs_equal(&whole, &shorter));
    }
}

/** Of a ragged batch it covers the first tokens of k, whichever sequence they belong to. */
static void test_short_mask_of_a_ragged_batch(void **state)
{
    (void)state;
    static struct fixture shorter, whole;
    static const int64_t cu_q[] = {0, 2, 4, 5}, cu_k[] = {0, 3, 5, 7};
    const attn_ragged ragged = {3, cu_q, cu_k};
    for (int length = 0; length <= FIX_TK; length++) {
        struct fixture *const both[] = {&whole, &shorter};
        for (int i = 0; i < 2 && length != 1; i++) {
            struct fixture *f = both[i];
            attn_tensor *const all[] = {&f->q, &f->k, &f->v, &f->out, &f->mask, &f->lse, &f->weights, &f->key_sums};
            fixture_initialize(f);
            for (int t = 0; t < 8; t++)
                all[t]->shape[0] = 1;
            f->params.kv_len = f->params.kv_start = NULL;
            f->params.ragged = &ragged;
            for (int j = 0; j < FIX_HQ * FIX_TQ * FIX_TK; j++)
                if (j % FIX_TK >= length)
                    f->mask_data[j] = -INFINITY;
            if (i == 1)
                f->mask.shape[3] = length;
            assert_int_equal(fixture_forward(f), ATTN_OK);
        }
        assert_true(fixture_outputs_equal(&whole, &shorter));
    }
}

static void test_lengths_at_their_ends(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    f.kv_len[0] = 0;
    f.kv_start[0] = 0;
    f.kv_len[1] = FIX_TK;
    f.kv_start[1] = FIX_TK;
    f.params.causal = ATTN_CAUSAL_NONE;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    must_be_zero(f.out_data, sizeof f.out_data / sizeof(float));
    must_be_zero(f.weights_data, sizeof f.weights_data / sizeof(float));
    must_be_zero(f.key_sums_data, sizeof f.key_sums_data / sizeof(float));
}

static void test_extreme_offsets(void **state)
{
    (void)state;
    struct fixture f, all;
    fixture_initialize(&f);
    f.params.causal = ATTN_CAUSAL_OFFSET;
    f.params.query_offset = f.query_offset;
    f.query_offset[0] = f.query_offset[1] = INT64_MIN; /* sees nothing */
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    must_be_zero(f.out_data, sizeof f.out_data / sizeof(float));
    f.query_offset[0] = f.query_offset[1] = INT64_MAX; /* sees everything */
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    fixture_initialize(&all);
    all.params.causal = ATTN_CAUSAL_NONE;
    assert_int_equal(fixture_forward(&all), ATTN_OK);
    assert_true(fixture_outputs_equal(&f, &all));
}

static void test_strides_of_single_elements(void **state)
{
    (void)state;
    struct fixture f, plain;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        fixture_initialize(&plain);
        fixture_initialize(&f);
        struct fixture *const both[] = {&plain, &f};
        for (int i = 0; i < 2; i++) {
            fixture_narrow(both[i], (attn_dtype)dtype);
            attn_tensor *const tensors[] = {&both[i]->q, &both[i]->k, &both[i]->v, &both[i]->out};
            for (int n = 0; n < 4; n++) {
                tensors[n]->shape[0] = tensors[n]->shape[1] = 1;
                for (int axis = 0; i == 1 && axis < 2; axis++)
                    tensors[n]->stride[axis] = axis ? INT64_MAX : INT64_MIN; /* of axes that nothing steps along */
            }
            both[i]->params = attn_params_default();
            assert_int_equal(fixture_forward(both[i]), ATTN_OK);
        }
        assert_true(fixture_outputs_equal(&f, &plain));
    }
}

/** The same of a single token, whose stride a kernel would turn into bytes. */
static void test_strides_of_a_single_token(void **state)
{
    (void)state;
    struct fixture f, plain;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        fixture_initialize(&plain);
        fixture_initialize(&f);
        struct fixture *const both[] = {&plain, &f};
        for (int i = 0; i < 2; i++) {
            fixture_narrow(both[i], (attn_dtype)dtype);
            attn_tensor *const tensors[] = {&both[i]->q, &both[i]->k, &both[i]->v, &both[i]->out, &both[i]->mask};
            both[i]->params = attn_params_default();
            both[i]->params.mask = &both[i]->mask;
            both[i]->mask.shape[3] = 1;
            for (int n = 0; n < 5; n++) {
                tensors[n]->shape[2] = 1;
                if (i == 1)
                    tensors[n]->stride[2] = n % 2 ? INT64_MAX : INT64_MIN;
            }
            both[i]->mask.stride[3] = i == 1 ? INT64_MAX : 1;
            assert_int_equal(fixture_forward(both[i]), ATTN_OK);
        }
        assert_true(fixture_outputs_equal(&f, &plain));
    }
}

static void test_largest_head_size(void **state)
{
    (void)state;
    enum { D = 4096, T = 3 };
    float *q = malloc(4 * T * D * sizeof *q);
    assert_non_null(q);
    for (int i = 0; i < 3 * T * D; i++)
        q[i] = (float)(i % 7) / 16;
    attn_tensor qt = attn_bhtd(q, 1, 1, T, D), kt = attn_bhtd(q + T * D, 1, 1, T, D);
    attn_tensor vt = attn_bhtd(q + 2 * T * D, 1, 1, T, D), out = attn_bhtd(q + 3 * T * D, 1, 1, T, D);
    assert_int_equal(attn_forward(&qt, &kt, &vt, &out, NULL), ATTN_OK);
    const attn_params params = attn_params_default();
    struct reference ref = reference_compute(&qt, &kt, &vt, &params, NAIVE_F32);
    for (int i = 0; i < T * D; i++)
        assert_true(fabs((double)q[3 * T * D + i] - ref.out[i]) < 1e-4);
    reference_free(&ref);
    free(q);
}

/** Every mix of the three types in q, k, v, out and an additive mask, by each instruction set. */
static void test_every_mix_of_types(void **state)
{
    (void)state;
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    static struct fixture f;
    for (int isa = -1; isa < 0 || attn_isa_name(isa); isa++) { /* -1: NULL */
        for (int mix = 0; mix < 243; mix++) {
            if (isa >= 0 && !attn_isa_supported(attn_isa_name(isa)))
                continue;
            fixture_initialize(&f);
            /* Zeros are zeros in every type, and so are equal scores: the mean of the values, which are 0. */
            memset(f.q_data, 0, sizeof f.q_data);
            memset(f.k_data, 0, sizeof f.k_data);
            memset(f.v_data, 0, sizeof f.v_data);
            memset(f.mask_data, 0, sizeof f.mask_data);
            f.q.dtype = types[mix % 3];
            f.k.dtype = types[mix / 3 % 3];
            f.v.dtype = types[mix / 9 % 3];
            f.out.dtype = types[mix / 27 % 3];
            f.mask.dtype = types[mix / 81];
            f.params.isa = attn_isa_name(isa);
            assert_int_equal(fixture_forward(&f), ATTN_OK);
            const size_t written = sizeof f.out_data / sizeof(float) * attn_dtype_size(f.out.dtype);
            const unsigned char *bytes = (const unsigned char *)f.out_data;
            for (size_t i = 0; i < sizeof f.out_data; i++)
                assert_int_equal(bytes[i], i < written ? 0 : 0xA5); /* the fixture's canary */
        }
    }
}

/** From the smallest number to the largest that is accepted, next to the first that is not. */
static void test_softcaps_at_their_ends(void **state)
{
    (void)state;
    static struct fixture f;
    const float largest = FLT_MAX / 0x1.715476p+0f; /* cap * log2(e) is a number */
    const float caps[] = {0x1p-149f, 1e-40f, FLT_MIN, 1e-30f, 1, 1e30f, 1.7e38f, 1.8e38f, 2.3e38f, largest};
    for (int isa = -1; isa < 0 || attn_isa_name(isa); isa++) { /* -1: NULL */
        for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
            if (isa >= 0 && !attn_isa_supported(attn_isa_name(isa)))
                continue;
            fixture_initialize(&f);
            f.params.isa = attn_isa_name(isa);
            f.params.softcap = caps[i];
            assert_int_equal(fixture_forward(&f), ATTN_OK);
            struct reference ref = reference_compute(&f.q, &f.k, &f.v, &f.params, NAIVE_F32);
            for (size_t n = 0; n < sizeof f.out_data / sizeof(float); n++)
                assert_true(fabs((double)f.out_data[n] - ref.out[n]) < 1e-5);
            reference_free(&ref);
        }
    }
    fixture_initialize(&f);
    f.params.softcap = nextafterf(largest, INFINITY);
    assert_int_equal(fixture_forward(&f), ATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_last_error(), "params.softcap is 2.35865"));
}

/** v at the end of its range: right where docs/numerics.md says so, and beyond it as it says. */
static void test_values_near_the_largest(void **state)
{
    (void)state;
    static float zeros[16], v[300 * 4], out[4];
    for (int tk = 1; tk <= 300; tk = 2 * tk + 1) {
        const float value = FLT_MAX / (float)tk * 0.999f;
        for (int i = 0; i < 4 * tk; i++)
            v[i] = i % 4 < 2 ? value : -value;
        attn_tensor q = attn_bhtd(zeros, 1, 1, 1, 4), k = attn_bhtd(zeros, 1, 1, tk, 4);
        attn_tensor values = attn_bhtd(v, 1, 1, tk, 4), o = attn_bhtd(out, 1, 1, 1, 4);
        k.stride[2] = 0;
        assert_int_equal(attn_forward(&q, &k, &values, &o, NULL), ATTN_OK);
        for (int c = 0; c < 4; c++)
            assert_true(fabsf(out[c] / (c < 2 ? value : -value) - 1) < 1e-5f);
        if (tk == 3) {
            for (int i = 0; i < 8; i++)
                v[i] = 3e38f;
            k.shape[2] = values.shape[2] = 2;
            assert_int_equal(attn_forward(&q, &k, &values, &o, NULL), ATTN_OK);
            assert_true(isinf(out[0]));
        }
    }
}

static void test_many_threads(void **state)
{
    (void)state;
    struct fixture f, one;
    fixture_initialize(&f);
    fixture_initialize(&one);
    f.params.num_threads = 64;
    one.params.num_threads = 1;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    assert_int_equal(fixture_forward(&one), ATTN_OK);
    assert_true(fixture_outputs_equal(&f, &one));
}

static void test_last_error_stays(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    f.params.num_threads = -7;
    assert_int_equal(fixture_forward(&f), ATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_last_error(), "-7"));
    fixture_initialize(&f);
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    assert_non_null(strstr(attn_last_error(), "-7")); /* about the last call that failed */
}

static void test_names_and_numbers(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static const char *const names[] = {"scalar", "avx2", "avx512", "avx512_bf16", "amx_bf16", NULL};
#elif defined(__aarch64__)
    static const char *const names[] = {"scalar", "neon", "neon_bf16", "neon_bf16mm", NULL};
#else
    static const char *const names[] = {"scalar", NULL};
#endif
    int found = 0;
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (strncmp(attn_isa_name(isa), "emulated_", 9) == 0) /* an option of the build */
            continue;
        assert_non_null(names[found]);
        assert_string_equal(attn_isa_name(isa), names[found]);
        found++;
    }
    if (ALL_ISAS) /* an option of the build, too */
        assert_null(names[found]);
    assert_null(attn_isa_name(-1));
    assert_null(attn_isa_name(INT_MIN));
    assert_null(attn_isa_name(INT_MAX));
    for (int a = 0; a <= ATTN_PEER_LOST; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(attn_status_string((attn_status)a), attn_status_string((attn_status)b));
    assert_string_equal(attn_status_string((attn_status)99), "unknown status");
    static const size_t sizes[] = {4, 2, 2, 1, 1, 1, 1, 0};
    static const char *const dtypes[] = {"f32", "bf16", "f16", "bool", "i8", "u8", "f8_e4m3", "i4"};
    for (int dtype = 0; dtype < 8; dtype++) {
        assert_int_equal(attn_dtype_size((attn_dtype)dtype), sizes[dtype]);
        assert_string_equal(attn_dtype_name((attn_dtype)dtype), dtypes[dtype]);
    }
    assert_int_equal(attn_dtype_size((attn_dtype)8), 0);
    assert_int_equal(attn_dtype_size((attn_dtype)-1), 0);
    assert_string_equal(attn_dtype_name((attn_dtype)8), "unknown");
    assert_string_equal(attn_dtype_name((attn_dtype)-1), "unknown");
    assert_int_equal(attn_version(), ATTN_VERSION);
    assert_string_equal(attn_version_string(), "0.1.0");
    assert_true(attn_isa_supported("scalar"));
    assert_true(attn_isa_supported(attn_isa_active()));
    static const char *const no_names[] = {"",          "auto",      "unknown", "avx2_int8", "avx512_int8",
                                           "neon_int8", "neon_i8mm", "Scalar",  "scalar "};
    for (size_t i = 0; i < sizeof no_names / sizeof *no_names; i++)
        assert_false(attn_isa_supported(no_names[i]));
    assert_false(attn_isa_supported(NULL));
    /* A set of bf16 pairs is the set that it extends, and more. */
    assert_true(attn_isa_supported("avx512") || !attn_isa_supported("avx512_bf16"));
    assert_true(attn_isa_supported("neon") || !attn_isa_supported("neon_bf16"));
    assert_true(attn_default_num_threads() >= 1);
    assert_int_equal(attn_cache_size(0), 0);
    assert_int_equal(attn_cache_size(9), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_call),
        cmocka_unit_test(test_no_keys),
        cmocka_unit_test(test_no_queries),
        cmocka_unit_test(test_no_batch),
        cmocka_unit_test(test_no_heads),
        cmocka_unit_test(test_no_channels),
        cmocka_unit_test(test_short_masks),
        cmocka_unit_test(test_short_mask_of_a_ragged_batch),
        cmocka_unit_test(test_lengths_at_their_ends),
        cmocka_unit_test(test_extreme_offsets),
        cmocka_unit_test(test_strides_of_single_elements),
        cmocka_unit_test(test_strides_of_a_single_token),
        cmocka_unit_test(test_largest_head_size),
        cmocka_unit_test(test_every_mix_of_types),
        cmocka_unit_test(test_softcaps_at_their_ends),
        cmocka_unit_test(test_values_near_the_largest),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_last_error_stays),
        cmocka_unit_test(test_names_and_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
