/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of the bench held against rows that are made up here: of processors,
 * kernels, decoding, gradients and costs per token. Nothing is timed.
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

static struct bench_result *add_row(struct bench_results *results, const char *id, const char *isa)
{
    const struct bench_case *c = bench_case_find(id);
    struct bench_result *row = bench_results_add(results);
    assert_non_null(c);
    assert_non_null(row);
    row->kind = BENCH_FORWARD;
    row->bcase = c;
    row->isa = isa;
    row->flops = 1e9;
    row->peak_gflops = 100.0;
    snprintf(row->name, sizeof row->name, "%s", id);
    return row;
}

static void add_fraction(struct bench_results *results, const char *id, const char *isa, double fraction)
{
    struct bench_result *row = add_row(results, id, isa);
    row->peak_gflops = bench_same_isa(isa, "amx_bf16") ? 1600.0 : bench_same_isa(isa, "avx512_bf16") ? 200.0 : 100.0;
    row->fraction = fraction;
    row->gflops = fraction * row->peak_gflops;
}

/* The check whose quantity begins like that, or NULL. */
static const struct bench_check *find_check(const struct bench_checks *checks, const char *name, const char *what)
{
    for (int i = 0; i < checks->count; i++)
        if (strcmp(checks->items[i].name, name) == 0 && strncmp(checks->items[i].what, what, strlen(what)) == 0)
            return &checks->items[i];
    return NULL;
}

static struct bench_checks check_all(struct bench_results *results, unsigned processor)
{
    struct bench_checks checks = {.count = 0};
    assert_int_equal(bench_bars_check(results, processor, &checks), 0);
    return checks;
}

/* The verdict on a fraction, or -1 where nothing is promised. */
static int fraction_met(const char *id, const char *isa, unsigned processor, double fraction)
{
    struct bench_results results = {.count = 0};
    add_fraction(&results, id, isa, fraction);
    struct bench_checks checks = check_all(&results, processor);
    const struct bench_check *check = find_check(&checks, id, "fraction of the peak");
    const int met = check == NULL ? -1 : check->met;
    bench_checks_destroy(&checks);
    bench_results_destroy(&results);
    return met;
}

static void test_processors(void **state)
{
    (void)state;
    assert_int_equal(bench_processor_find("AuthenticAMD", 0x19), BENCH_ZEN4);
    assert_int_equal(bench_processor_find("AuthenticAMD", 0x1a), BENCH_AMD);
    assert_int_equal(bench_processor_find("GenuineIntel", 6), BENCH_INTEL);
    assert_int_equal(bench_processor_find("HygonGenuine", 0x18), BENCH_ANY_PROCESSOR);
    assert_string_equal(bench_processor_name(BENCH_INTEL), "Intel");
    assert_string_equal(bench_processor_name(BENCH_ANY_PROCESSOR), "other");
}

static void test_bars_of_processors(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        const char *isa;
        double zen4, amd, intel; /* 0: nothing is promised */
    } expected[] = {
        {"t2048-d128", "avx512", 0.92, 0.88, 0.83},
        {"t2048-d128", "avx2", 0.91, 0.89, 0.0},
        {"h8-t2048", "avx512", 0.90, 0.83, 0.80},
        {"h8-t2048", "avx2", 0.87, 0.85, 0.0},
        {"h8-causal-t2048", "avx512", 0.87, 0.80, 0.76},
        {"h8-causal-t2048", "avx2", 0.85, 0.82, 0.0},
        {"t2048-d32", "avx512", 0.84, 0.72, 0.0},
        {"t2048-d32", "avx2", 0.80, 0.75, 0.0},
        {"encoder", "avx512", 0.79, 0.79, 0.66},
        {"t2048-d256", "avx512", 0.88, 0.88, 0.0},
        {"h8-t2048", "neon", 0.0, 0.0, 0.0},
    };
    static const unsigned processors[] = {BENCH_ZEN4, BENCH_AMD, BENCH_INTEL};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const double values[] = {expected[i].zen4, expected[i].amd, expected[i].intel};
        for (int n = 0; n < 3; n++) {
            const int short_of = fraction_met(expected[i].id, expected[i].isa, processors[n], values[n] - 0.001);
            const int reached = fraction_met(expected[i].id, expected[i].isa, processors[n], values[n] + 0.001);
            assert_int_equal(short_of, values[n] == 0.0 ? -1 : 0);
            assert_int_equal(reached, values[n] == 0.0 ? -1 : 1);
        }
        assert_int_equal(fraction_met(expected[i].id, expected[i].isa, BENCH_ANY_PROCESSOR, 0.01), -1);
    }
}

/* Fractions of the peak of matrix registers are promised of the set that has them: where it runs, whoever made the
 * processor, and not of its emulation or of other sets. */
static void test_bars_of_matrix_registers(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        double amx;
        bool only; /* nothing else is promised of that case */
    } expected[] = {
        {"bf16-t2048-d64", 0.44, false},         {"bf16-t2048-d128", 0.48, false},
        {"bf16-t2048-d96", 0.48, true},          {"bf16-t2048-d32", 0.32, false},
        {"bf16-t2048-d256", 0.45, false},        {"bf16-t2048-d64-causal", 0.40, false},
        {"bf16-t2048-d128-causal", 0.44, false}, {"bf16-t512-d64", 0.34, false},
        {"bf16-t512-d64-causal", 0.27, true},    {"bf16-encoder", 0.22, false},
        {"bf16-gqa4-d128-causal", 0.36, true},
    };
    static const unsigned processors[] = {BENCH_INTEL, BENCH_ANY_PROCESSOR};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *const id = expected[i].id;
        for (int n = 0; n < 2; n++) {
            assert_int_equal(fraction_met(id, "amx_bf16", processors[n], expected[i].amx - 0.001), 0);
            assert_int_equal(fraction_met(id, "amx_bf16", processors[n], expected[i].amx + 0.001), 1);
            assert_int_equal(fraction_met(id, "emulated_amx_bf16", processors[n], 0.01), -1);
            assert_int_equal(fraction_met(id, "avx512_bf16", processors[n], 0.01), -1);
            assert_int_equal(fraction_met(id, "avx512", processors[n], 0.01), -1);
        }
        assert_int_equal(fraction_met(id, "avx512_bf16", BENCH_AMD, 0.5), expected[i].only ? -1 : 0);
        assert_true(bench_bars_need(bench_case_find(id), "amx_bf16", BENCH_INTEL));
        if (expected[i].only)
            assert_false(bench_bars_need(bench_case_find(id), "avx512_bf16", BENCH_AMD));
    }
}

/* Layers with narrow weights, on any set: one row by the bandwidth of the run, more by the layer in f32. */
static void test_bars_of_narrow_layers(void **state)
{
    (void)state;
    static const char *const sets[] = {"avx512", "avx512_int8", "avx512_bf16", "neon", "amx_int8"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        for (int met = 0; met < 2; met++) {
            struct bench_results results = {.count = 0};
            add_fraction(&results, "linear-int8-1x4096x4096", sets[i], 0.01);
            results.rows[0].bandwidth_fraction = met ? 0.91 : 0.89;
            add_fraction(&results, "linear-24x4096x4096", "avx512", 0.5);
            add_fraction(&results, "linear-pairs-24x4096x4096", sets[i], 0.5);
            results.rows[2].gflops = results.rows[1].gflops * (met ? 1.01 : 0.99);
            results.rows[2].fraction = results.rows[1].fraction * (met ? 1.01 : 0.99);
            struct bench_checks checks = check_all(&results, BENCH_ANY_PROCESSOR);
            const struct bench_check *const row =
                find_check(&checks, "linear-int8-1x4096x4096", "fraction of the read bandwidth");
            const struct bench_check *const rows =
                find_check(&checks, "linear-pairs-24x4096x4096", "times faster than case linear-24x4096x4096");
            assert_non_null(row);
            assert_non_null(rows);
            assert_int_equal(row->met, met);
            assert_int_equal(rows->met, met);
            bench_checks_destroy(&checks);
            bench_results_destroy(&results);
        }
    assert_int_equal(fraction_met("linear-int8-1300x4096x4096", "amx_int8", BENCH_INTEL, 0.39), 0);
    assert_int_equal(fraction_met("linear-pairs-1300x4096x4096", "amx_bf16", BENCH_INTEL, 0.41), 1);
    assert_int_equal(fraction_met("linear-pairs-1300x4096x4096", "avx512_bf16", BENCH_AMD, 0.84), 0);
    assert_int_equal(fraction_met("linear-pairs-1300x4096x4096", "avx512", BENCH_INTEL, 0.1), -1);
}

/* Decoding is held against what its own turns read or write, where that was measured. */
static void test_bars_of_decoding(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        double bar;
    } expected[] = {{"f32-decode", 0.86},
                    {"f32-decode-free", 0.96},
                    {"bf16-decode-gqa", 0.62},
                    {"bf16-decode-gqa-free", 0.80},
                    {"f16-decode-gqa-free", 0.78},
                    {"bf16-decode-pages-free", 0.78},
                    {"f32-decode-gqa8", 0.64},
                    {"f32-decode-gqa8-free", 0.78},
                    {"int8-decode-free", 0.80},
                    {"int4-decode-free", 0.62},
                    {"bf16-decode-t131072-free", 0.92},
                    {"f16-decode-16mib", 0.85},
                    {"f32-append", 0.80},
                    {"bf16-append-int8", 0.80},
                    {"f16-decode-pages", 0.0},
                    {"e4m3-decode", 0.0}};
    static const unsigned processors[] = {BENCH_ZEN4, BENCH_INTEL, BENCH_AMD, BENCH_ANY_PROCESSOR};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (int n = 0; n < 4; n++)
            for (int met = 0; met < 2; met++) {
                struct bench_results results = {.count = 0};
                struct bench_result *row = add_row(&results, expected[i].id, "avx512");
                row->bandwidth_fraction = expected[i].bar + (met ? 0.001 : -0.001);
                row->written = row->bcase->append;
                struct bench_checks checks = check_all(&results, processors[n]);
                assert_int_equal(checks.count, n < 2 && expected[i].bar > 0.0);
                if (checks.count > 0) {
                    assert_int_equal(checks.items[0].met, met);
                    assert_string_equal(checks.items[0].what, row->written ? "fraction of the write bandwidth"
                                                                           : "fraction of the read bandwidth");
                }
                bench_checks_destroy(&checks);
                bench_results_destroy(&results);
            }
}

/* Linear attention: prompts by the peak, tokens by the rate at which states are updated, on any processor. */
static void test_bars_of_states(void **state)
{
    (void)state;
    static const struct {
        const char *id, *what;
        double bar;
    } expected[] = {{"linear-attention-linear-t8192-d128", "fraction of the peak", 0.50},
                    {"linear-attention-gated-rows-t8192-d128", "fraction of the peak", 0.50},
                    {"linear-attention-gated-delta-t8192-d128", "fraction of the peak", 0.35},
                    {"linear-attention-delta-step1", "fraction of the update bandwidth", 0.85}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (int met = 0; met < 2; met++) {
            struct bench_results results = {.count = 0};
            struct bench_result *row = add_row(&results, expected[i].id, "avx2");
            row->fraction = row->bandwidth_fraction = expected[i].bar + (met ? 0.001 : -0.001);
            struct bench_checks checks = check_all(&results, BENCH_ANY_PROCESSOR);
            assert_int_equal(checks.count, 1);
            assert_int_equal(checks.items[0].met, met);
            assert_string_equal(checks.items[0].what, expected[i].what);
            bench_checks_destroy(&checks);
            bench_results_destroy(&results);
        }
}

/* Tokens in narrow types: as many sequences as have the bytes, so twice the tokens in the same time at the same rate.
 */
static void test_bars_of_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        double bytes, bar; /* of a token and head; of 256 in bf16 */
    } rows[] = {{"int8-decode-free", 132.0, 1.7}, {"int4-decode-free", 80.0, 2.6}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        for (int met = 0; met < 2; met++) {
            struct bench_results results = {.count = 0};
            add_row(&results, "bf16-decode-free", "avx512_bf16");
            add_row(&results, rows[n].id, "avx512");
            for (int i = 0; i < 2; i++)
                results.rows[i].bytes = bench_case_key_bytes(results.rows[i].bcase);
            /* A minute in which less can be read changes nothing: only fractions count. */
            results.rows[0].bandwidth_fraction = 0.9;
            results.rows[1].bandwidth_fraction = 0.9 * rows[n].bytes / 256.0 * (rows[n].bar + (met ? 0.01 : -0.01));
            struct bench_checks checks = check_all(&results, BENCH_ZEN4);
            const struct bench_check *const check =
                find_check(&checks, rows[n].id, "times the tokens of case bf16-decode-free");
            assert_non_null(check);
            assert_true(fabs(check->measured - rows[n].bar - (met ? 0.01 : -0.01)) < 1e-9);
            assert_int_equal(check->met, met);
            bench_checks_destroy(&checks);
            bench_results_destroy(&results);
        }
    /* Common pages and own ones lie in different places: tokens/s are compared as they are. */
    static const struct {
        const char *common, *own, *what;
        double bar;
    } pages[] = {
        {"bf16-decode-common", "bf16-decode-own", "times the tokens/s of case bf16-decode-own", 2.5},
        {"bf16-decode-common-free", "bf16-decode-own-free", "times the tokens/s of case bf16-decode-own-free", 1.0}};
    for (int n = 0; n < 4; n++) {
        const int met = n % 2;
        struct bench_results results = {.count = 0};
        add_row(&results, pages[n / 2].own, "avx512")->tokens_per_second = 1000.0;
        struct bench_result *const row = add_row(&results, pages[n / 2].common, "avx512");
        row->tokens_per_second = 1000.0 * pages[n / 2].bar + (met ? 10.0 : -10.0);
        row->bandwidth_fraction = 0.05;
        struct bench_checks checks = check_all(&results, BENCH_ANY_PROCESSOR);
        assert_int_equal(checks.count, 1);
        assert_string_equal(checks.items[0].what, pages[n / 2].what);
        assert_int_equal(checks.items[0].met, met);
        bench_checks_destroy(&checks);
        bench_results_destroy(&results);
    }
    assert_true(bench_bars_need(bench_case_find("bf16-decode-own-free"), "avx2", BENCH_ANY_PROCESSOR));
}

/* Gradients: fractions of the peak, one head beside eight, and a pattern beside all pairs. */
static void test_bars_of_gradients(void **state)
{
    (void)state;
    static const struct {
        const char *id, *isa;
        double amd, intel; /* 0: nothing is promised */
    } expected[] = {
        {"backward-t2048-d128", "avx512", 0.78, 0.78},       {"backward-t2048-d128", "avx2", 0.78, 0.0},
        {"backward-t2048-d64", "avx512", 0.70, 0.70},        {"backward-t2048-d128-causal", "avx512", 0.70, 0.70},
        {"backward-t2048-d64-causal", "avx512", 0.62, 0.62}, {"backward-bf16-t2048-d128", "avx512_bf16", 0.62, 0.0},
        {"backward-bf16-t2048-d128", "avx512", 0.0, 0.0},    {"both-t2048-d128", "avx512", 0.0, 0.0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (int met = 0; met < 2; met++) {
            const double off = met ? 0.001 : -0.001, amd = expected[i].amd, intel = expected[i].intel;
            const char *const id = expected[i].id, *const isa = expected[i].isa;
            assert_int_equal(fraction_met(id, isa, BENCH_ZEN4, amd + off), amd > 0.0 ? met : -1);
            assert_int_equal(fraction_met(id, isa, BENCH_INTEL, intel + off), intel > 0.0 ? met : -1);
        }
    for (int met = 0; met < 2; met++) {
        struct bench_results results = {.count = 0};
        add_fraction(&results, "backward-h8-t4096", "avx512", 0.8);
        add_fraction(&results, "backward-h1-t4096", "avx512", 0.8 * (met ? 0.91 : 0.89));
        add_fraction(&results, "backward-dense-t16384", "avx512", 0.8);
        add_fraction(&results, "backward-blocks-10", "avx512", 0.8 * (met ? 0.71 : 0.69));
        results.rows[2].flops = 10.0 * results.rows[3].flops;
        struct bench_checks checks = check_all(&results, BENCH_ANY_PROCESSOR);
        assert_int_equal(checks.count, 2);
        assert_string_equal(checks.items[0].what, "fraction relative to case backward-h8-t4096");
        assert_string_equal(checks.items[1].what, "times faster than case backward-dense-t16384");
        assert_true(checks.items[0].met == met && checks.items[1].met == met);
        bench_checks_destroy(&checks);
        bench_results_destroy(&results);
    }
    assert_true(bench_bars_need(bench_case_find("backward-h8-t4096"), "avx2", BENCH_ANY_PROCESSOR));
    assert_false(bench_bars_need(bench_case_find("both-t2048-d128"), "avx512", BENCH_ZEN4));
}

/* What int8 scores must be worth, relative to bf16 on the same set. */
static void test_bars_of_int8_scores(void **state)
{
    (void)state;
    static const struct {
        const char *isa;
        double times;
        int met; /* -1: nothing is promised */
    } expected[] = {{"amx_bf16", 1.14, 0},    {"amx_bf16", 1.16, 1},          {"avx512_bf16", 0.99, 0},
                    {"avx512_bf16", 1.01, 1}, {"emulated_amx_bf16", 0.5, -1}, {"avx512", 0.5, -1}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct bench_results results = {.count = 0};
        add_fraction(&results, "bf16-t4096-d128", expected[i].isa, 0.5);
        add_fraction(&results, "int8-bf16-t4096-d128", expected[i].isa, 0.5 * expected[i].times);
        struct bench_checks checks = check_all(&results, BENCH_INTEL);
        const struct bench_check *check =
            find_check(&checks, "int8-bf16-t4096-d128", "fraction relative to case bf16-t4096-d128");
        assert_int_equal(check == NULL ? -1 : check->met, expected[i].met);
        bench_checks_destroy(&checks);
        bench_results_destroy(&results);
    }
}

/* Fractions of different peaks say nothing of each other; rates do. */
static void test_bars_across_peaks(void **state)
{
    (void)state;
    static const struct {
        const char *isa;
        double times, fraction; /* this peak / that of avx512, which is 100; 90 and 78 beside 80 */
        bool met;
    } rows[] = {{"avx512_bf16", 2.0, 0.45, true},
                {"avx512_bf16", 2.0, 0.39, false},
                {"amx_bf16", 16.0, 0.05625, true},
                {"amx_bf16", 16.0, 0.04875, false}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        struct bench_results results = {.count = 0};
        add_fraction(&results, "h8-t2048", "avx512", 0.80);
        add_fraction(&results, "bf16-t2048-d64", rows[n].isa, rows[n].fraction);
        struct bench_checks checks = check_all(&results, BENCH_INTEL);
        const struct bench_check *check = find_check(&checks, "bf16-t2048-d64", "times faster than case h8-t2048");
        const double times = rows[n].times * rows[n].fraction / 0.80;
        assert_non_null(check);
        assert_true(check->measured > times - 1e-9 && check->measured < times + 1e-9);
        assert_int_equal(check->met, rows[n].met);
        if (!bench_same_isa(rows[n].isa, "amx_bf16")) /* which has a bar of its own there */
            assert_int_equal(results.rows[1].verdict, rows[n].met ? BENCH_MET : BENCH_NOT_MET);
        bench_checks_destroy(&checks);
        bench_results_destroy(&results);
    }
}

static void test_not_slower_than_naive(void **state)
{
    (void)state;
    static const char *const ids[] = {"h8-t4", "h8-t8", "h1-t4", "h1-t8", "h8-causal-t4", "h1-causal-t4"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct bench_results results = {.count = 0};
        assert_true(bench_bars_need(bench_case_find(ids[i]), "scalar", BENCH_ANY_PROCESSOR));
        add_row(&results, ids[i], "scalar")->speedup = 0.99;
        struct bench_checks checks = check_all(&results, BENCH_ANY_PROCESSOR);
        assert_int_equal(checks.count, 1);
        assert_false(checks.items[0].met);
        bench_checks_destroy(&checks);
        bench_results_destroy(&results);
    }
}

static const char *const costs[] = {"window", "window-causal", "blocks", "segments", "ragged", "tree"};
static const char *const lengths[] = {"16384", "65536", "262144", "1048576"};

/* Times per token at the four lengths; returns whether all that is promised of them is met, or -1 where nothing is. */
static int costs_met(const char *cost, const double *times, const double *peaks, int count)
{
    struct bench_results results = {.count = 0};
    for (int n = 0; n < count; n++) {
        char id[64];
        snprintf(id, sizeof id, "cost-%s-t%s", cost, lengths[n]);
        struct bench_result *row = add_row(&results, id, "avx2");
        assert_string_equal(row->bcase->cost, cost);
        row->token_time = times[n];
        row->peak_gflops = peaks[n];
    }
    struct bench_checks checks = check_all(&results, BENCH_ANY_PROCESSOR);
    int met = checks.count > 0 ? 1 : -1;
    for (int i = 0; i < checks.count; i++) {
        assert_true(checks.items[i].at_most);
        met &= checks.items[i].met;
    }
    bench_checks_destroy(&checks);
    bench_results_destroy(&results);
    return met;
}

static void test_costs(void **state)
{
    (void)state;
    static const double even[] = {100.0, 100.0, 100.0, 100.0}, slowed[] = {100.0, 100.0, 100.0, 50.0};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        assert_int_equal(costs_met(costs[i], (double[]){1.0, 1.0, 1.0, 1.0}, even, 4), -1); /* nothing to hold */
        assert_int_equal(costs_met(costs[i], (double[]){1.0, 1.1, 1.2, 1.29}, even, 4), 1);
        assert_int_equal(costs_met(costs[i], (double[]){0.9, 1.0, 1.6, 3.4}, even, 4), 0);
        assert_int_equal(costs_met(costs[i], (double[]){1.2, 0.9, 1.0, 1.0}, even, 4), 0); /* 1.33 of the least */
        assert_int_equal(costs_met(costs[i], (double[]){1.0, 1.0, 1.0, 2.4}, slowed, 4), 1);
        assert_int_equal(costs_met(costs[i], (double[]){1.0, 1.0, 1.0, 2.8}, slowed, 4), 0);
        assert_int_equal(costs_met(costs[i], (double[]){3.0}, even, 1), -1);
        for (int n = 0; n < 4; n++) {
            char id[64];
            snprintf(id, sizeof id, "cost-%s-t%s", costs[i], lengths[n]);
            assert_true(bench_bars_need(bench_case_find(id), "scalar", BENCH_ANY_PROCESSOR));
        }
    }
}

static void test_cost_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        for (int n = 0; n < 2; n++) {
            char id[64];
            snprintf(id, sizeof id, "cost-%s-t%s", costs[i], lengths[n]);
            struct bench_problem p;
            assert_int_equal(bench_problem_create(&p, bench_case_find(id)), 0);
            assert_int_equal(p.batch, 1);
            assert_int_equal(p.tk, (strcmp(costs[i], "tree") == 0 ? 64 : 0) + (n == 0 ? 16384 : 65536));
            const double keys = p.live_pairs / (double)p.tq;
            if (strcmp(costs[i], "tree") == 0)
                assert_true(keys > (double)(p.tk - 64) && keys <= (double)p.tk);
            else
                assert_true(keys > 190.0 && keys <= 196.0); /* with the first tokens of a causal window */
            bench_problem_destroy(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processors),
        cmocka_unit_test(test_bars_of_processors),
        cmocka_unit_test(test_bars_of_matrix_registers),
        cmocka_unit_test(test_bars_of_gradients),
        cmocka_unit_test(test_bars_of_int8_scores),
        cmocka_unit_test(test_bars_of_narrow_layers),
        cmocka_unit_test(test_bars_of_decoding),
        cmocka_unit_test(test_bars_of_states),
        cmocka_unit_test(test_bars_of_tokens),
        cmocka_unit_test(test_bars_across_peaks),
        cmocka_unit_test(test_not_slower_than_naive),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_cost_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
