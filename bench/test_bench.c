/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the bench counts as work: live pairs against a count of every single one, and
 * operations of a peak's loop against its sums; its cases and their names. Nothing is timed.
 */
#include "bars.h"
#include "forms.h"
#include "pairs.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

/* Which peak a case is held against: bf16 that of the set that is asked for, all else that of the set for f32. */
static void test_peaks_of_sets(void **state)
{
    (void)state;
    static const char *const sets[][2] = {
        {"avx512_bf16", "avx512"}, {"amx_bf16", "avx512"}, {"emulated_amx_bf16", "avx512"},
        {"neon_bf16", "neon"},     {"avx512", "avx512"},   {"neon", "neon"}};
    const struct bench_case *const bf16 = bench_case_find("bf16-t2048-d64");
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        assert_string_equal(bench_f32_isa(sets[i][0]), sets[i][1]);
        assert_string_equal(bench_case_isa(bf16, sets[i][0]), sets[i][0]);
        assert_string_equal(bench_case_isa(bench_case_find("h8-t2048"), sets[i][0]), sets[i][1]);
        assert_string_equal(bench_case_isa(bench_case_find("f16-t2048-d64"), sets[i][0]), sets[i][1]);
        /* Its weights are widened. */
        assert_string_equal(bench_case_isa(bench_case_find("linear-bf16-1x1152x384"), sets[i][0]), sets[i][1]);
    }
}

/* Each of the operations that a loop counts adds half a product, all of which are the same. Returns how many loops. */
static int count_operations(const struct bench_isa_kernels *kernels, double product)
{
    const struct bench_peak_loop *const both[] = {&kernels->registers, &kernels->loads};
    for (int n = 0; n < 2; n++)
        for (int steps = 1; steps <= 3; steps++) {
            const double added = (double)both[n]->run(steps) - (double)both[n]->run(0);
            assert_true(added == 0.5 * product * steps * both[n]->flops_per_step);
        }
    return 2;
}

/* A multiply-add of the loops for bf16 adds 3/4 * 1/4 and counts two operations: sums of few steps are exact. */
static void test_operations_of_peaks(void **state)
{
    (void)state;
    int loops = 0, supported = 0, int8 = 0;
    for (int i = 0; attn_isa_name(i) != NULL; i++) {
        const bool pairs = strstr(attn_isa_name(i), "bf16") != NULL;
        const struct bench_isa_kernels *const kernels = bench_dot_kernels_get(attn_isa_name(i));
        supported += pairs && attn_isa_supported(attn_isa_name(i));
        if (kernels == NULL)
            continue;
        assert_string_equal(kernels->isa, attn_isa_name(i));
        assert_string_equal(kernels->factors, "bf16");
        loops += count_operations(kernels, 0.1875);
        const struct bench_isa_kernels *const bytes = bench_int8_kernels_get(attn_isa_name(i));
        if (bytes == NULL)
            continue;
        assert_string_equal(bytes->factors, "int8");
        assert_memory_equal(bytes->isa, kernels->isa, strlen(kernels->isa) - strlen("bf16"));
        count_operations(bytes, 1.0);
        int8++;
    }
    assert_int_equal(loops, 2 * supported);
    /* Processors with AMX for bf16 and without it for int8 are not known. */
    assert_int_equal(int8, attn_isa_supported("amx_bf16") + attn_isa_supported("emulated_amx_bf16"));
}

/* A step takes a microsecond at least. */
static float sleep_steps(int64_t steps)
{
    const struct timespec duration = {.tv_sec = steps / 1000000, .tv_nsec = steps % 1000000 * 1000};
    nanosleep(&duration, NULL);
    return 1.0f;
}

/* However slow the last sample was, the next one is long enough: not 10 steps. */
static void test_length_of_samples(void **state)
{
    (void)state;
    static const struct bench_peak_loop loop = {.flops_per_step = 1, .run = sleep_steps};
    const struct bench_limit slow = {.loop = &loop, .steps_per_second = 1.0};
    struct bench_peak peak = {.threads = 1, .registers = slow, .loads = slow};
    bench_peak_take(&peak, 0.02);
    assert_true(peak.registers.best_seconds >= 0.01 && peak.loads.best_seconds >= 0.01);
    assert_int_equal(peak.registers.samples, 1);
    assert_int_equal(peak.loads.samples, 1);
}

static double count_one_by_one(const struct bench_problem *p)
{
    double pairs = 0.0;
    for (int64_t s = 0; s < bench_num_sequences(p); s++)
        for (int64_t h = 0; h < p->bcase->heads; h++)
            for (int64_t i = 0; i < bench_num_queries(p, s); i++)
                for (int64_t j = 0; j < bench_num_keys(p, s); j++)
                    pairs += bench_pair_live(p, s, h, i, j);
    return pairs;
}

static void test_pairs(void **state)
{
    (void)state;
    static const enum bench_form forms[] = {BENCH_PLAIN,    BENCH_WINDOW, BENCH_WINDOW_GLOBAL, BENCH_BLOCKS,
                                            BENCH_SEGMENTS, BENCH_TREE,   BENCH_PREFIX,        BENCH_RAGGED};
    static const int64_t sizes[] = {0, 1, 2, 7, 48, 400};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            for (int causal = ATTN_CAUSAL_NONE; causal <= ATTN_CAUSAL_BOTTOM_RIGHT; causal++) {
                const bool tree = forms[f] == BENCH_TREE, sized = forms[f] != BENCH_BLOCKS || sizes[n] > 0;
                const struct bench_case c = {.id = "test",
                                             .batch = 2,
                                             .heads = 2,
                                             .kv_heads = 2,
                                             .tq = tree ? 40 : 300,
                                             .tk = 300,
                                             .d = 4,
                                             .causal = (attn_causal)causal,
                                             .form = forms[f],
                                             .listed = n % 2 == 0 ? 3 : 0,
                                             .size = sized ? sizes[n] : 16};
                struct bench_problem p;
                assert_int_equal(bench_problem_create(&p, &c), 0);
                if (forms[f] != BENCH_BLOCKS || causal == ATTN_CAUSAL_NONE) /* no case has both */
                    assert_true(p.live_pairs == count_one_by_one(&p));
                assert_true(p.live_pairs > 0.0);
                bench_problem_destroy(&p);
            }
}

/* Each query sees what the case's size says, and no more when there are more tokens. */
/* Rows of a report are told apart by their names, and bars find cases by their ids. */
static void test_names_differ(void **state)
{
    (void)state;
    for (int i = 0; i < bench_num_cases; i++) {
        char name[BENCH_NAME_SIZE], other[BENCH_NAME_SIZE];
        bench_forward_name(&bench_cases[i], name);
        for (int j = 0; j < i; j++) {
            bench_forward_name(&bench_cases[j], other);
            assert_string_not_equal(name, other);
            assert_string_not_equal(bench_cases[i].id, bench_cases[j].id);
        }
    }
}

/* A pattern lists each block once, in rising order, with the diagonal one. */
static void test_blocks(void **state)
{
    (void)state;
    const struct bench_case *c = bench_case_find("cost-blocks-t16384");
    struct bench_problem p = {.bcase = c, .batch = 1, .tq = c->tq, .tk = c->tk};
    assert_int_equal(bench_form_create(&p), 0);
    const attn_block_mask *blocks = p.params.block_mask;
    assert_int_equal(blocks->size, 64);
    for (int64_t row = 0; row < blocks->rows; row++) {
        const int32_t *columns = blocks->columns + blocks->offsets[row];
        assert_int_equal(blocks->offsets[row + 1] - blocks->offsets[row], 3);
        assert_true(columns[0] >= 0 && columns[0] < columns[1] && columns[1] < columns[2] && columns[2] < blocks->rows);
        assert_true(columns[0] == row || columns[1] == row || columns[2] == row);
    }
    bench_form_destroy(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peaks_of_sets),     cmocka_unit_test(test_operations_of_peaks),
        cmocka_unit_test(test_length_of_samples), cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_names_differ),      cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
