/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing memory, for every n: the nth allocation that the library makes
 * fails (and, in a second round, all from the nth on). The call must say
 * ATTN_OUT_OF_MEMORY without having written anything, or succeed with the
 * right bits; and in either case free what it got.
 *
 * ledger.h counts, and makes them fail.
 */
#include "fixture.h"
#include "large.h"
#include "ledger.h"
#include "sentences.h"

#include "attn/cache.h"
#include "attn/patterns.h"

#include <stdlib.h>
#include <string.h>

/** What the library says where memory is short. */
static struct sentences shortages[] = {
    {.words = "no memory for a workspace of | bytes"},
    {.words = "no memory for a plan of | bytes"},
    {.words = "no memory for | bytes about documents"},
    {.words = "no memory for a pattern of | bytes"},
    {.words = "no memory for a table of 700 slots"},
    {.words = "no memory for a cache"},
    {.words = "no memory for a table of 2 sequences of up to 128 pages, of 256 in all"},
    {.words = "no memory for | bytes of scales"},
    {.words = "no memory for a cache of | bytes"},
    {.words = "no memory for steps of 2 sequences"},
    {.words = "no memory for the factors of 4 pairs"},
    {.words = "no memory for a step of 2 tokens"},
    {.words = "no memory for a step of 6 tokens"},
    {0},
};

/** Makes allocation n fail in a call; returns whether n was beyond the last. */
static int nth_fails(int n, int persistent, const struct large *expected, int with_plan)
{
    static struct large l;
    large_initialize(&l, 2);
    large_narrow(&l, expected->q.dtype);
    attn_status status;
    ledger_begin(n, persistent);
    if (with_plan) {
        attn_plan *plan = NULL;
        status = attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params);
        assert_true((status == ATTN_OK) == (plan != NULL));
        attn_plan_destroy(plan);
    } else {
        status = large_forward(&l);
    }
    ledger.active = 0;
    assert_int_equal(ledger.live, 0);
    if (status == ATTN_OK) {
        assert_true(with_plan || large_equal(&l, expected));
    } else {
        assert_int_equal(status, ATTN_OUT_OF_MEMORY);
        sentences_meet(shortages, attn_last_error());
        assert_true(large_untouched(&l));
    }
    return ledger.made < n;
}

static void test_every_allocation(void **state)
{
    (void)state;
    static struct large expected;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) { /* narrow types take scratch of their own */
        large_initialize(&expected, 2);
        large_narrow(&expected, (attn_dtype)dtype);
        assert_int_equal(large_forward(&expected), ATTN_OK);
        for (int with_plan = 0; with_plan < 2; with_plan++) {
            for (int persistent = 0; persistent < 2; persistent++) {
                int n = 1;
                while (!nth_fails(n, persistent, &expected, with_plan))
                    assert_true(++n < 10000);
                assert_true(n > 1); /* else the library's allocations do not pass through here */
            }
        }
    }
}

/** attn_plan_run() allocates nothing. */
static void test_run_allocates_nothing(void **state)
{
    (void)state;
    static struct large l, expected;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        attn_plan *plan = NULL;
        large_initialize(&expected, 2); /* also starts OpenMP's threads */
        large_narrow(&expected, (attn_dtype)dtype);
        assert_int_equal(large_forward(&expected), ATTN_OK);
        large_initialize(&l, 2);
        large_narrow(&l, (attn_dtype)dtype);
        assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
        const size_t size = attn_plan_workspace_size(plan);
        void *workspace = __real_malloc(size);
        assert_non_null(workspace);
        ledger_begin(1, 1);
        const attn_status status = attn_plan_run(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace, size);
        ledger.active = 0;
        assert_int_equal(status, ATTN_OK);
        assert_int_equal(ledger.made, 0);
        assert_true(large_equal(&l, &expected));
        __real_free(workspace);
        attn_plan_destroy(plan);
    }
}

/** A pattern is one allocation, and there is none when it fails. */
static void test_patterns(void **state)
{
    (void)state;
    static const attn_longformer l = {.window = 1};
    static const attn_bigbird b = {.window = 1, .random = 2, .heads = 3};
    static const attn_strided s = {.stride = 2};
    for (int which = 0; which < 3; which++) {
        for (int n = 1; n <= 2; n++) { /* the allocation that fails: the one that there is, or one behind it */
            attn_pattern *p = (attn_pattern *)(uintptr_t)64;
            ledger_begin(n, 1);
            const attn_status status = which == 0   ? attn_pattern_longformer(&p, 500, 500, 16, &l)
                                       : which == 1 ? attn_pattern_bigbird(&p, 500, 500, 16, &b)
                                                    : attn_pattern_strided(&p, 500, 500, 16, &s);
            assert_int_equal(ledger.made, 1);
            assert_int_equal(status, n == 1 ? ATTN_OUT_OF_MEMORY : ATTN_OK);
            assert_true((status == ATTN_OK) == (p != NULL));
            if (status != ATTN_OK)
                sentences_meet(shortages, attn_last_error());
            attn_pattern_destroy(p);
            ledger.active = 0;
            assert_int_equal(ledger.live, 0);
        }
    }
}

/** attn_merge() allocates nothing, whatever the number of parts. */
static void test_merge_allocates_nothing(void **state)
{
    (void)state;
    enum { PARTS = 100 };
    static float values[PARTS][8], x[PARTS], out_data[8];
    static attn_tensor parts[PARTS], lses[PARTS];
    for (int n = 0; n < PARTS; n++) {
        parts[n] = attn_bhtd(values[n], 1, 1, 1, 8);
        lses[n] = attn_bhtd(&x[n], 1, 1, 1, 1);
    }
    const attn_tensor out = attn_bhtd(out_data, 1, 1, 1, 8);
    ledger_begin(1, 1);
    const attn_status status = attn_merge(PARTS, parts, lses, &out, NULL, 1);
    ledger.active = 0;
    assert_int_equal(status, ATTN_OK);
    assert_int_equal(ledger.made, 0);
}

/** A plan that cannot keep what it derives goes on without. */
static void test_keep(void **state)
{
    (void)state;
    static float numbers[4][8];
    static const int32_t labels[8] = {0, 0, 0, 1, 1, 1, 1, 2};
    const attn_tensor q = attn_bhtd(numbers[0], 1, 1, 8, 1), k = attn_bhtd(numbers[1], 1, 1, 8, 1),
                      v = attn_bhtd(numbers[2], 1, 1, 8, 1), out = attn_bhtd(numbers[3], 1, 1, 8, 1);
    const attn_segments segments = {.q = labels, .k = labels};
    attn_params params = attn_params_default();
    params.segments = &segments;
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &q, &k, &v, &out, &params), ATTN_OK);
    const int phases = attn_plan_num_phases(plan);
    const size_t size = attn_plan_workspace_size(plan);
    ledger_begin(1, 0);
    const attn_status status = attn_plan_keep(plan, &params);
    ledger.active = 0;
    assert_int_equal(status, ATTN_OUT_OF_MEMORY);
    sentences_meet(shortages, attn_last_error());
    assert_int_equal(ledger.live, 0);
    assert_int_equal(attn_plan_num_phases(plan), phases);
    assert_int_equal(attn_plan_workspace_size(plan), size);
    assert_int_equal(attn_plan_keep(plan, &params), ATTN_OK);
    assert_int_equal(attn_plan_num_phases(plan), phases - 1);
    attn_plan_destroy(plan);
}

/** Makes a call again if memory was short, and counts that. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const attn_status first = (call);                                                                              \
        if (first != ATTN_OK) {                                                                                        \
            assert_int_equal(first, ATTN_OUT_OF_MEMORY);                                                               \
            sentences_meet(shortages, attn_last_error());                                                              \
            failed++;                                                                                                  \
            assert_int_equal(call, ATTN_OK);                                                                           \
        }                                                                                                              \
    } while (0)

/** A step of the type of cache, and a longer one after a fork while the first goes on; queries of each. */
static void run_cache(attn_dtype dtype, int v_in_k)
{
    enum { N = 6, D = 8 };
    static float numbers[4][N * D], expected[N * D];
    static const int64_t slots[N] = {3, 2, 1, 0, 5, 4};
    for (int i = 0; i < N * D; i++)
        numbers[0][i] = numbers[1][i] = numbers[2][i] = (float)(i % 7) - 3;
    attn_rope_config rope = attn_rope_config_default();
    rope.pairs = D / 2;
    rope.scaling = ATTN_ROPE_LONGROPE;
    rope.factor = 2, rope.original_length = 16;
    static const double factors[D / 2] = {1, 1, 2, 2};
    rope.short_factor = rope.long_factor = factors;
    attn_cache_config config = attn_cache_config_default();
    config.layers = config.kv_heads = 1;
    config.dk = D, config.max_tokens = 512, config.max_sequences = 2, config.page_size = 4;
    config.rope = v_in_k ? NULL : &rope;
    config.dtype = dtype;
    config.v_in_k = v_in_k;
    for (int n = 0, failed = 1; failed; n++) { /* 0: none fails */
        failed = n == 0;
        attn_cache *cache = NULL;
        int64_t ids[2];
        const int64_t few[2] = {2, 0}, more[2] = {4, 2};
        const attn_tensor x = attn_bhtd(numbers[0], 1, 1, N, D), out = attn_bhtd(numbers[3], 1, 1, N, D);
        attn_tensor some = x, some_out = out;
        some.shape[2] = some_out.shape[2] = 2;
        ledger_begin(n, 0);
        TRY(attn_cache_create(&cache, &config));
        TRY(attn_cache_add(cache, &ids[0]));
        TRY(attn_cache_step(cache, 1, ids, few, NULL));
        TRY(attn_cache_append(cache, 0, &some, v_in_k ? NULL : &some, 1));
        TRY(attn_cache_attend(cache, 0, &some, &some_out, NULL));
        TRY(attn_cache_fork(cache, ids[0], &ids[1]));
        TRY(attn_cache_step(cache, 1, ids, (int64_t[]){0}, NULL));
        /* A longer step, for which there may be no memory: the one that goes on is as it was. */
        attn_tensor before, after;
        assert_int_equal(attn_cache_rotations(cache, &before), ATTN_OK);
        const attn_status grown = attn_cache_step(cache, 2, ids, more, NULL);
        if (grown != ATTN_OK) {
            assert_int_equal(grown, ATTN_OUT_OF_MEMORY);
            sentences_meet(shortages, attn_last_error());
            failed++;
            assert_int_equal(attn_cache_length(cache, ids[0]), 2);
            assert_int_equal(attn_cache_length(cache, ids[1]), 2);
            assert_int_equal(attn_cache_rotations(cache, &after), ATTN_OK);
            assert_ptr_equal(before.data, after.data);
            assert_int_equal(before.shape[2], after.shape[2]);
            assert_int_equal(attn_cache_step(cache, 2, ids, more, NULL), ATTN_OK);
        }
        TRY(attn_cache_append(cache, 0, &x, v_in_k ? NULL : &x, 1));
        TRY(attn_cache_attend(cache, 0, &x, &out, NULL));
        attn_tensor k, v;
        attn_params params = attn_params_default();
        TRY(attn_cache_pools(cache, 0, &k, &v, &params));
        TRY(attn_store(&x, slots, NULL, ATTN_ROPE_HALF_SPLIT, &k, params.k_scale, 1));
        assert_int_equal(attn_cache_length(cache, ids[0]), N);
        if (n == 0) {
            attn_cache_usage usage = attn_cache_usage_default();
            assert_int_equal(attn_cache_get_usage(cache, &usage), ATTN_OK);
            /* What malloc has given, which rounds up; the tensors and factors that are left out are some 100 bytes. */
            if (!(usage.bytes <= ledger.bytes && usage.bytes > ledger.bytes - 1024))
                fail_msg("usage.bytes is %lld; %lld are allocated", (long long)usage.bytes, ledger.bytes);
        }
        attn_cache_destroy(cache);
        ledger.active = 0;
        assert_int_equal(ledger.live, 0);
        if (n == 0) {
            memcpy(expected, numbers[3], sizeof expected);
            assert_true(ledger.made > 10);
        }
        assert_memory_equal(expected, numbers[3], sizeof expected);
        assert_true(n < 1000);
    }
}

/** A cache goes on from where it was: what failed for want of memory works when it is tried again. */
static void test_cache(void **state)
{
    (void)state;
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_I8, ATTN_I4};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int v_in_k = 0; v_in_k < 2; v_in_k++)
            run_cache(dtypes[i], v_in_k);
}

/** Many places in no order are compared by a table: without memory for it nothing is stored. In order they need none.
 */
static void test_store(void **state)
{
    (void)state;
    enum { TOKENS = 700, SIZE = 4 };
    static float rows[TOKENS * SIZE], stored[TOKENS * SIZE];
    int64_t slots[TOKENS];
    for (int i = 0; i < TOKENS * SIZE; i++)
        rows[i] = (float)(i + 1);
    const attn_tensor x = attn_bhtd(rows, 1, 1, TOKENS, SIZE), pool = attn_bhtd(stored, 1, 1, TOKENS, SIZE);
    for (int backwards = 0; backwards < 2; backwards++) {
        for (int t = 0; t < TOKENS; t++)
            slots[t] = backwards ? TOKENS - 1 - t : t;
        for (int n = 1; n >= 0; n--) { /* the first allocation fails, then none */
            memset(stored, 0, sizeof stored);
            ledger_begin(n, 1);
            const attn_status status = attn_store(&x, slots, NULL, ATTN_ROPE_HALF_SPLIT, &pool, NULL, 1);
            ledger.active = 0;
            assert_int_equal(ledger.made, backwards);
            assert_int_equal(ledger.live, 0);
            assert_int_equal(status, n && backwards ? ATTN_OUT_OF_MEMORY : ATTN_OK);
            if (status != ATTN_OK)
                sentences_meet(shortages, attn_last_error());
            for (int t = 0; t < TOKENS; t++) {
                const float expected = status == ATTN_OK ? rows[SIZE * t] : 0.0f;
                assert_true(stored[SIZE * slots[t]] == expected);
            }
        }
    }
}

static void test_sentences(void **state)
{
    (void)state;
    sentences_end(shortages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_run_allocates_nothing),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_merge_allocates_nothing),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_sentences), /* the last */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
