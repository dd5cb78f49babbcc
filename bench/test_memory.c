/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the bench counts as bytes, and how it goes through memory: that every word is read or
 * written, that keys and values of a case are what its row says, and that they stand for the
 * numbers that results are compared with. Nothing is timed.
 */
#include "append.h"
#include "attn/quantise.h"
#include "problem.h"
#include "rounding.h"
#include "rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MIB 1048576.0

static const struct bench_case *find(const char *id)
{
    const struct bench_case *c = bench_case_find(id);
    if (c == NULL)
        print_error("there is no case %s\n", id);
    assert_non_null(c);
    return c;
}

/* Loops of every set go through all words and through no others. */
static void test_loops(void **state)
{
    (void)state;
    enum { WORDS = 3 * 1024, AROUND = 64 };
    uint32_t *const all = aligned_alloc(64, (WORDS + 2 * AROUND) * sizeof *all), *const words = all + AROUND;
    int sets = 0;
    for (int n = 0; attn_isa_name(n) != NULL; n++) {
        const struct bench_isa_kernels *const kernels = bench_isa_kernels_get(attn_isa_name(n));
        if (kernels == NULL)
            continue;
        sets++;
        uint32_t sum = 0;
        for (int i = 0; i < WORDS + 2 * AROUND; i++)
            all[i] = 2654435761u * (uint32_t)i;
        for (int i = 0; i < WORDS; i++)
            sum += words[i];
        assert_int_equal(kernels->read(words, WORDS), sum);
        for (int way = 0; way < 2; way++) {
            void (*const write)(uint32_t *, int64_t) = way == 0 ? kernels->write : kernels->stream;
            if (write == NULL)
                continue;
            for (int i = 0; i < WORDS + 2 * AROUND; i++)
                all[i] = 7;
            write(words, WORDS);
            for (int i = 0; i < WORDS + 2 * AROUND; i++)
                assert_int_equal(all[i], i >= AROUND && i < AROUND + WORDS ? 1 : 7);
        }
    }
    assert_true(sets > 0);
    free(all);
}

/* All threads together go through all regions, as often as the rate counts them. */
static void test_regions(void **state)
{
    (void)state;
    enum { FIRST = 9 * 1024, SECOND = 5 * 1024 + 1023 }; /* what is no whole grain is left out, and not counted */
    uint32_t *const first = calloc(FIRST, sizeof *first), *const second = calloc(SECOND, sizeof *second);
    struct bench_bandwidth memory = {.kernels = bench_isa_kernels_get("scalar"),
                                     .threads = 2,
                                     .regions = {{first, FIRST}, {second, SECOND}},
                                     .num_regions = 2};
    for (int access = BENCH_WRITE; access >= BENCH_READ; access--) {
        memory.access = (enum bench_access)access;
        memory.best = 0.0;
        const double rate = bench_bandwidth_sample(&memory);
        assert_true(rate > 0.0 && rate == memory.best);
    }
    const int64_t words = FIRST + 5 * 1024, bytes = 4 * words, passes = ((256 << 20) + bytes - 1) / bytes;
    assert_int_equal(memory.sum, (uint32_t)(passes * words)); /* of ones, which the writes have left */
    assert_true(memory.best * memory.best_seconds > 1e-9 * (double)(passes * bytes) * 0.999);
    for (int i = 0; i < SECOND; i++)
        assert_int_equal(second[i], i < 5 * 1024);
    assert_string_equal(bench_access_name(BENCH_READ), "read");
    assert_string_equal(bench_access_name(BENCH_WRITE), "write");
    assert_string_equal(bench_access_name(BENCH_STREAM), "write-streaming");
    free(first);
    free(second);
}

/* Rounding to 8 and 4 bits is what attn/quantise.h says. In 4 bits rows are whole groups. */
static void test_rounding(void **state)
{
    (void)state;
    enum { ROWS = 50, WIDTH = 37, STEPS = 64 };
    static const attn_dtype types[] = {ATTN_I8, ATTN_F8_E4M3, ATTN_I4};
    for (int n = 0; n < 3; n++) {
        const int64_t groups = bench_scales(types[n], WIDTH), steps = types[n] == ATTN_I4 ? STEPS : WIDTH;
        const size_t size = ROWS * attn_row_size(types[n], WIDTH);
        float x[ROWS * WIDTH], scales[ROWS * 2], expected_scales[ROWS * 2];
        uint8_t bytes[ROWS * WIDTH], expected[ROWS * WIDTH];
        assert_int_equal(groups, types[n] == ATTN_I4 ? 2 : 1);
        for (int i = 0; i < ROWS * WIDTH; i++)
            x[i] = (float)((i * 7919) % 2003 - 1001) * 1e-3f * (float)(i % 5 == 0 ? 1e-3 : 1.0);
        attn_tensor from = attn_bhtd(x, 1, 1, ROWS, WIDTH), to = attn_bhtd(expected, 1, 1, ROWS, steps),
                    scale = attn_bhtd(expected_scales, 1, 1, ROWS, groups);
        to.dtype = types[n];
        to.shape[3] = WIDTH;
        assert_int_equal(attn_quantise(&from, &to, &scale, 1), ATTN_OK);
        bench_round_rows(x, bytes, types[n], scales, ROWS, WIDTH);
        assert_memory_equal(bytes, expected, size);
        assert_memory_equal(scales, expected_scales, (size_t)(ROWS * groups) * sizeof *scales);
        for (int i = 0; i < ROWS * WIDTH; i++) {
            const int64_t row = i / WIDTH, c = i % WIDTH, group = groups == 1 ? 0 : c / ATTN_I4_GROUP;
            assert_true(x[i] == bench_element(bytes, types[n], row * steps + c) * scales[row * groups + group]);
        }
    }
}

/* Rows of decoding read at least 512 MiB, or the 16 MiB that their name has, and count scales, and values in keys once.
 */
static void test_bytes(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "bf16", "f16", "int8", "e4m3", "int4"};
    static const char *const kinds[] = {"", "-gqa", "-gqa8", "-pages", "-16mib", "-t131072", "-split"};
    for (int t = 0; t < 6; t++)
        for (int k = 0; k < (t < 4 ? 7 : 4); k++)
            for (int order = 0; order < 2; order++) {
                char id[64];
                snprintf(id, sizeof id, "%s-decode%s%s", types[t], kinds[k], order == 0 ? "" : "-free");
                const struct bench_case *c = find(id);
                const double bytes[] = {4.0, 2.0, 2.0, 1.0, 1.0, 0.5}, scales[] = {0.0, 0.0, 0.0, 4.0, 4.0, 16.0};
                const double size = 1.0 + scales[t] / (128.0 * bytes[t]);
                const double mib = k == 4 ? 16.0 : k == 5 ? 32.0 * bytes[t] : 512.0;
                assert_true(bench_case_key_bytes(c) / MIB == mib * size);
                assert_true(bench_case_reads_keys(c));
                assert_int_equal(c->free_sums, order);
            }
    static const char *const latent[] = {"f32-latent", "f32-latent-h128", "bf16-latent", "bf16-latent-pages"};
    for (int n = 0; n < 4; n++) {
        const struct bench_case *c = find(latent[n]);
        const double bytes = (double)(c->batch * 4096 * 576) * (n < 2 ? 4.0 : 2.0);
        assert_true(bench_case_key_bytes(c) == bytes && bytes >= 512.0 * MIB);
        assert_int_equal(bench_case_dv(c), 512);
    }
    /* Pages that all sequences have count once. */
    assert_true(bench_case_key_bytes(find("bf16-decode-own-free")) == 2.0 * 16 * 2048 * 8 * 128 * 2);
    assert_true(bench_case_key_bytes(find("bf16-decode-common-free")) == 2.0 * (1920 + 16 * 128) * 8 * 128 * 2);
    assert_true(bench_case_key_bytes(find("bf16-append")) == 2.0 * 256 * 8 * 128 * 2);
    assert_true(bench_case_key_bytes(find("bf16-append-int8")) == 2.0 * 256 * 8 * (128 + 4));
    assert_false(bench_case_reads_keys(find("bf16-append")));
}

/* A call of a small case of that kind gives what the definition gives, of the memory that its row counts. */
static void check_small(struct bench_case c, double tolerance)
{
    struct bench_problem p;
    c.id = "test", c.batch = 3, c.tk = 96, c.sampled = true, c.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    assert_int_equal(bench_problem_create(&p, &c), 0);
    assert_int_equal(bench_rows_create(&p), 0);
    assert_int_equal(attn_forward(&p.typed[0], bench_problem_keys(&p, 1), bench_problem_keys(&p, 2), &p.out, &p.params),
                     ATTN_OK);
    assert_true(bench_problem_difference(&p).of_row <= tolerance);
    assert_true(bench_problem_difference(&p).largest > 0.0); /* 48 rows of two computations */
    struct bench_bandwidth memory = {.num_regions = 0};
    bench_problem_memory(&p, &memory);
    double bytes = 0.0;
    for (int n = 0; n < memory.num_regions; n++)
        bytes += 4.0 * (double)memory.regions[n].count;
    assert_true(bytes == bench_case_key_bytes(&c));
    assert_true((p.typed[1].data == p.typed[2].data) == (c.values_in_keys > 0));
    assert_true((p.params.k_scale != NULL) == bench_quantised(bench_case_kept(&c)));
    bench_problem_destroy(&p);
}

static void test_small_cases(void **state)
{
    (void)state;
    static const attn_dtype types[][2] = {{ATTN_F32, ATTN_F32}, {ATTN_BF16, ATTN_F32},    {ATTN_F16, ATTN_F32},
                                          {ATTN_BF16, ATTN_I8}, {ATTN_F32, ATTN_F8_E4M3}, {ATTN_F32, ATTN_I4},
                                          {ATTN_BF16, ATTN_I4}};
    for (int t = 0; t < 7; t++)
        for (int paged = 0; paged < 2; paged++) {
            struct bench_case c = {.dtype = types[t][0], .kept = types[t][1], .tq = 1, .page = paged ? 16 : 0};
            const double tolerance = c.dtype == ATTN_F32 ? 1e-5 : c.dtype == ATTN_BF16 ? 0x1p-6 : 0x1p-10;
            c.heads = 6, c.kv_heads = 2, c.d = 32;
            check_small(c, tolerance);
            if (bench_quantised(bench_case_kept(&c))) {
                c.d = 40; /* a group and a part of one */
                check_small(c, tolerance);
            }
            if (paged) {
                c.common = 80;
                check_small(c, tolerance);
                c.common = 0;
            }
            if (bench_quantised(bench_case_kept(&c)))
                continue;
            c.heads = 16, c.kv_heads = 1, c.d = 40, c.values_in_keys = 24;
            check_small(c, tolerance);
        }
}

/* What all sequences have is the same memory, and the same numbers, and nothing else is. */
static void test_common_pages(void **state)
{
    (void)state;
    enum { BATCH = 3, COLUMNS = 6, COMMON = 4 };
    const struct bench_case c = {.id = "test",
                                 .dtype = ATTN_BF16,
                                 .kept = ATTN_I4,
                                 .batch = BATCH,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .tq = 1,
                                 .tk = COLUMNS * 16,
                                 .d = 32,
                                 .page = 16,
                                 .common = COMMON * 16,
                                 .sampled = true};
    struct bench_problem p;
    assert_int_equal(bench_problem_create(&p, &c), 0);
    bool seen[COMMON + BATCH * (COLUMNS - COMMON)] = {false};
    assert_int_equal(p.pools[0].shape[0], sizeof seen);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < COLUMNS; i++) {
            const int32_t page = p.block_table[b * COLUMNS + i];
            assert_true(page >= 0 && page < (int32_t)sizeof seen);
            assert_true(seen[page] == (b > 0 && i < COMMON));
            assert_int_equal(page == p.block_table[i], b == 0 || i < COMMON);
            seen[page] = true;
        }
    const float *k = p.k.data;
    for (int n = 2; n < 2 * BATCH; n++) { /* heads of the other sequences */
        const float *const first = k + n % 2 * p.k.stride[1], *const other = k + n * p.k.stride[1];
        assert_memory_equal(first, other, sizeof(float) * 32 * 16 * COMMON);
        assert_memory_not_equal(first + 32 * 16 * COMMON, other + 32 * 16 * COMMON, sizeof(float) * 32);
    }
    bench_problem_destroy(&p);
}

/* Sequences and heads have rows of their own, though numbers repeat. */
static void test_sequences_differ(void **state)
{
    (void)state;
    struct bench_case c = {.id = "test", .batch = 30, .heads = 2, .kv_heads = 2, .tq = 1, .tk = 4096, .d = 2};
    struct bench_problem p;
    c.sampled = true;
    assert_int_equal(bench_problem_create(&p, &c), 0);
    const float *k = p.k.data;
    for (int a = 0; a < 60; a++)
        for (int b = 0; b < a; b++)
            assert_memory_not_equal(k + a * 4096 * 2, k + b * 4096 * 2, 64);
    bench_problem_destroy(&p);
}

/* A name has what tells a row apart from others. */
static void test_names(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"int8-decode-gqa-free",
         "forward/bf16/B64/H32/Tq1/Tk4096/d128/causal:bottom-right/layout:bhtd/kv_heads:8/kv:i8/sums:free"},
        {"e4m3-decode-pages",
         "forward/bf16/B16/H32/Tq1/Tk4096/d128/causal:bottom-right/layout:bhtd/kv:f8_e4m3/page:16"},
        {"int4-decode-free", "forward/bf16/B32/H32/Tq1/Tk4096/d128/causal:bottom-right/layout:bhtd/kv:i4/sums:free"},
        {"bf16-decode-common-free", "forward/bf16/B16/H32/Tq1/Tk2048/d128/causal:bottom-right/layout:bhtd/kv_heads:8/"
                                    "page:16/common:1920/sums:free"},
        {"bf16-latent", "forward/bf16/B114/H16/Tq1/Tk4096/d576/causal:bottom-right/layout:bhtd/kv_heads:1/v_in_k:512"},
        {"f32-append-bf16", "append/f32/B256/H8/T1/Tk512/d128/kv:bf16/page:16"},
        {"linear-attention-gated-t8192-d128", "linear-attention/f32/B1/H8/T8192/d128/rule:gated"},
        {"linear-attention-cost-gated-delta-t1048576", "linear-attention/f32/B1/H2/T1048576/d64/rule:gated-delta/cost"},
    };
    for (size_t n = 0; n < sizeof expected / sizeof *expected; n++) {
        char name[BENCH_NAME_SIZE];
        bench_forward_name(find(expected[n][0]), name);
        assert_string_equal(name, expected[n][1]);
    }
}

/* Calls with free sums run on a set that has such kernels, and their peak is that set's. */
static void test_set_of_free_sums(void **state)
{
    (void)state;
    if (!attn_isa_supported("emulated_amx_bf16"))
        skip();
    assert_string_equal(bench_case_isa(find("bf16-decode"), "emulated_amx_bf16"), "emulated_amx_bf16");
    assert_string_equal(bench_case_isa(find("bf16-decode-free"), "emulated_amx_bf16"), "avx512_bf16");
    assert_string_equal(bench_case_isa(find("int8-decode"), "emulated_amx_bf16"), "avx512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loops),
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_small_cases),
        cmocka_unit_test(test_sequences_differ),
        cmocka_unit_test(test_common_pages),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_set_of_free_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
