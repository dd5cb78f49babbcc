/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promises, as data. They are fractions of the multiply-add peak measured
 * in the same run, so that they mean the same on any machine of a kind; they
 * were set for two threads on two cores with AVX-512 and AVX512-BF16 (Zen 5),
 * and on the same machine under ATTN_MAX_CPU_ISA=avx2. Other instruction sets
 * have no figures of their own: there only memory and the comparison with the
 * naive implementation are checked. What counts is the set of the kernels that
 * ran, which on a processor with AVX512-BF16 is AVX-512 for f32 and f16.
 *
 * A bar may be relative to another case of the same run: a layout or a head
 * size that must not cost more than a few percent, f16, which is widened to
 * f32 and must not cost much more than f32, or a form that has the work of
 * another case to do and something besides. Where a form has less work to do,
 * the bar is how many times faster it is, which is what a pattern is used for.
 *
 * Whatever is compared must not be slower than its baseline: attention than
 * the naive implementation, a linear layer than OpenBLAS. That needs no row here.
 */
#include "bars.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Working memory of one thread, whatever the sequence length. */
#define THREAD_BYTES (2.0 * 1024 * 1024)

/*
 * The growth of the resident set also holds pages of stack and heap that the
 * run touched first, and the kernel counts in batches of pages for each thread.
 */
#define RSS_SLACK_BYTES (512.0 * 1024)

enum bar_kind {
    FRACTION,    /* of the peak; with `of`, of that case's fraction */
    TIMES_FASTER /* than `of`, both relative to the peak samples of their turns */
};

/* A bar of 0 is none. */
struct bar {
    const char *id; /* of the case */
    enum bar_kind kind;
    const char *of; /* another case or NULL */
    double avx512_sleef, avx2_sleef, avx512_fast, avx2_fast;
    double avx512_bf16; /* where exp makes no difference */
};

/* Figures for both kinds of exp, and for the kernels where there is one only. */
#define BAR(id_, of_, avx512_sleef_, avx2_sleef_, avx512_fast_, avx2_fast_)                                            \
    {                                                                                                                  \
        .id = id_, .of = of_, .avx512_sleef = avx512_sleef_, .avx2_sleef = avx2_sleef_, .avx512_fast = avx512_fast_,   \
        .avx2_fast = avx2_fast_                                                                                        \
    }
#define BAR_FASTER(id_, of_, f32_, bf16_)                                                                              \
    {                                                                                                                  \
        .id = id_, .kind = TIMES_FASTER, .of = of_, .avx512_sleef = f32_, .avx2_sleef = f32_, .avx512_fast = f32_,     \
        .avx2_fast = f32_, .avx512_bf16 = bf16_                                                                        \
    }
#define BAR_LINEAR(id_, f32_)                                                                                          \
    {                                                                                                                  \
        .id = id_, .avx512_sleef = f32_, .avx2_sleef = f32_                                                            \
    }
#define BAR_BF16(id_, of_, avx512_bf16_)                                                                               \
    {                                                                                                                  \
        .id = id_, .of = of_, .avx512_bf16 = avx512_bf16_                                                              \
    }

/* A fraction is the reciprocal of the time: generating the random bits takes a third more at most, ... */
#define DROPOUT (1.0 / 1.35)
/* ... and sequences of any length a tenth more than their share of the work. */
#define RAGGED (1.0 / 1.1)

static const struct bar bars[] = {
    BAR("t2048-d128", NULL, 0.88, 0.89, 0.90, 0.92),
    BAR("h8-t2048", NULL, 0.83, 0.85, 0.88, 0.90),
    BAR("h8-causal-t2048", NULL, 0.80, 0.82, 0.84, 0.88),
    BAR("h8-t512", NULL, 0.80, 0.82, 0.86, 0.88),
    BAR("encoder", NULL, 0.68, 0.72, 0.74, 0.76),
    BAR("t2048-d64-bthd", "h8-t2048", 0.97, 0.97, 0.0, 0.0),
    BAR("t2048-d32", NULL, 0.72, 0.75, 0.81, 0.83),
    BAR("t2048-d256", NULL, 0.88, 0.89, 0.90, 0.92),
    BAR("h1-causal-t8192", NULL, 0.80, 0.82, 0.84, 0.88),
    BAR("t2048-d80", "t2048-d128", 0.94, 0.94, 0.0, 0.0),
    BAR("t2048-d96", "t2048-d128", 0.94, 0.94, 0.0, 0.0),
    BAR("t2048-d64-mask", NULL, 0.72, 0.76, 0.0, 0.0),
    BAR_BF16("bf16-t2048-d128", NULL, 0.87),
    BAR_BF16("bf16-t2048-d64", NULL, 0.82),
    BAR_BF16("bf16-t2048-d128-causal", NULL, 0.83),
    BAR_BF16("bf16-t2048-d64-causal", NULL, 0.78),
    BAR_BF16("bf16-t2048-d32", NULL, 0.66),
    BAR_BF16("bf16-t2048-d256", NULL, 0.87),
    BAR_BF16("bf16-t512-d64", NULL, 0.76),
    BAR_BF16("bf16-encoder", NULL, 0.62),
    BAR_BF16("int8-bf16-t4096-d128", "bf16-t4096-d128", 1.0), /* or int8 scores would not be worth their errors */
    BAR("f16-t2048-d128", "t2048-d128", 0.93, 0.93, 0.93, 0.93),
    BAR("f16-t2048-d64", "h8-t2048", 0.93, 0.93, 0.93, 0.93),
    BAR("f16-t2048-d128-causal", "t2048-d128-causal", 0.93, 0.93, 0.93, 0.93),
    BAR("f16-t2048-d64-causal", "h8-causal-t2048", 0.93, 0.93, 0.93, 0.93),
    BAR("form-dropout", "h8-t2048", DROPOUT, DROPOUT, DROPOUT, DROPOUT),
    BAR_BF16("bf16-form-dropout", "bf16-t2048-d64", DROPOUT),
    BAR("form-ragged", "h8-t2048", RAGGED, RAGGED, RAGGED, RAGGED),
    BAR_FASTER("form-blocks-10", "dense-t16384", 7.0, 0.0), /* of about 10, as one block in ten is live */
    BAR_FASTER("bf16-form-blocks-10", "bf16-dense-t16384", 0.0, 7.0),
    BAR_LINEAR("linear-1300x1152x384", 0.85),
    BAR_LINEAR("linear-1300x1536x384", 0.85),
    BAR_LINEAR("linear-1300x384x1536", 0.85),
    BAR_LINEAR("linear-4096x2304x768", 0.85),
    BAR_LINEAR("linear-4096x768x768", 0.85),
    BAR_LINEAR("linear-4096x3072x2048", 0.85),
    BAR_LINEAR("linear-4096x2048x2048", 0.85),
};

#define NUM_BARS (sizeof bars / sizeof *bars)

static double bar_value(const struct bar *bar, attn_isa isa, attn_exp exp)
{
    if (isa == ATTN_ISA_AVX512_BF16)
        return bar->avx512_bf16;
    if (isa == ATTN_ISA_AVX512)
        return exp == ATTN_EXP_FAST ? bar->avx512_fast : bar->avx512_sleef;
    if (isa == ATTN_ISA_AVX2)
        return exp == ATTN_EXP_FAST ? bar->avx2_fast : bar->avx2_sleef;
    return 0.0;
}

bool bench_bars_need(const struct bench_case *c, attn_isa isa)
{
    if (c->compare)
        return true;
    for (size_t i = 0; i < NUM_BARS; i++) {
        const bool named = strcmp(bars[i].id, c->id) == 0 || (bars[i].of != NULL && strcmp(bars[i].of, c->id) == 0);
        if (named && (bar_value(&bars[i], isa, ATTN_EXP_SLEEF) > 0.0 || bar_value(&bars[i], isa, ATTN_EXP_FAST) > 0.0))
            return true;
    }
    return false;
}

static int add_check(struct bench_checks *checks, struct bench_result *row, const char *what, double measured,
                     double bar, bool at_most)
{
    if (checks->count == checks->capacity) {
        const int capacity = checks->capacity > 0 ? 2 * checks->capacity : 64;
        struct bench_check *items = realloc(checks->items, (size_t)capacity * sizeof *items);
        if (items == NULL) {
            fputs("attn-bench: there is not enough memory for the checks\n", stderr);
            return -1;
        }
        checks->items = items;
        checks->capacity = capacity;
    }
    struct bench_check *check = &checks->items[checks->count++];
    *check = (struct bench_check){.measured = measured, .bar = bar, .at_most = at_most};
    snprintf(check->name, sizeof check->name, "%s", row->name);
    snprintf(check->what, sizeof check->what, "%s", what);
    check->met = at_most ? measured <= bar : measured >= bar; /* false for a NaN */
    if (row->verdict != BENCH_NOT_MET)
        row->verdict = check->met ? BENCH_MET : BENCH_NOT_MET;
    return 0;
}

/* The forward row of that case and exp, or NULL when the filter left it out. */
static const struct bench_result *find_row(const struct bench_results *results, const char *id, attn_exp exp)
{
    for (int i = 0; i < results->count; i++) {
        const struct bench_result *row = &results->rows[i];
        if (row->kind == BENCH_FORWARD && row->exp == exp && strcmp(row->bcase->id, id) == 0)
            return row;
    }
    return NULL;
}

/* Time of `other` / time of `row`, had both met the same peak. */
static double times_faster(const struct bench_result *row, const struct bench_result *other)
{
    return row->fraction / other->fraction * (other->flops / row->flops);
}

static int check_forward(struct bench_results *results, struct bench_result *row, struct bench_checks *checks)
{
    for (size_t i = 0; i < NUM_BARS; i++) {
        const double value = bar_value(&bars[i], row->isa, row->exp);
        if (value == 0.0 || strcmp(bars[i].id, row->bcase->id) != 0)
            continue;
        if (bars[i].of == NULL) {
            if (add_check(checks, row, "fraction of the peak", row->fraction, value, false) != 0)
                return -1;
            continue;
        }
        const struct bench_result *other = find_row(results, bars[i].of, row->exp);
        char what[BENCH_NAME_SIZE];
        const bool faster = bars[i].kind == TIMES_FASTER;
        snprintf(what, sizeof what, "%s case %s", faster ? "times faster than" : "fraction relative to", bars[i].of);
        if (other != NULL &&
            add_check(checks, row, what, faster ? times_faster(row, other) : row->fraction / other->fraction, value,
                      false) != 0)
            return -1;
    }
    if (row->speedup > 0.0)
        return add_check(checks, row,
                         bench_case_linear(row->bcase) ? "OpenBLAS time / this time" : "naive time / this time",
                         row->speedup, 1.0, false);
    return 0;
}

static int check_memory(struct bench_result *row, struct bench_checks *checks)
{
    const double threads = row->threads;
    if (add_check(checks, row, "workspace bytes of a thread", (double)row->workspace_bytes / threads, THREAD_BYTES,
                  true) != 0)
        return -1;
    return add_check(checks, row, "growth of the resident set in bytes", (double)row->rss_growth,
                     threads * THREAD_BYTES + RSS_SLACK_BYTES, true);
}

int bench_bars_check(struct bench_results *results, struct bench_checks *checks)
{
    for (size_t i = 0; i < NUM_BARS; i++)
        if (bench_case_find(bars[i].id) == NULL || (bars[i].of != NULL && bench_case_find(bars[i].of) == NULL)) {
            fprintf(stderr, "attn-bench: a bar names the case %s or its reference, which does not exist\n", bars[i].id);
            return -1;
        }
    for (int i = 0; i < results->count; i++) {
        struct bench_result *row = &results->rows[i];
        if (row->kind == BENCH_FORWARD && check_forward(results, row, checks) != 0)
            return -1;
        if (row->kind == BENCH_MEMORY && check_memory(row, checks) != 0)
            return -1;
    }
    return 0;
}

void bench_checks_destroy(struct bench_checks *checks)
{
    free(checks->items);
    memset(checks, 0, sizeof *checks);
}
