/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promises of speed and memory, as data. Most are fractions of the multiply-add peak measured
 * in the same run, so that they mean the same on any machine of a kind; they
 * were set for two threads on two cores. What counts is the set of the kernels
 * that ran, which on a processor with AVX512-BF16 is AVX-512 for f32 and f16.
 *
 * Processors with the same instructions differ in what they can reach: Zen 4 has
 * AVX-512 on multiply-adds of 256 bits, so that all else takes half the share of
 * the time that it takes on Zen 5; on Intel the clock falls with the loads of any
 * product. So a bar names the processors that it holds on. Where there are none
 * for a processor only memory, costs, bars relative to other cases and the
 * comparison with the naive implementation are checked. Beside products of
 * matrix registers the exponentials take as long as these, so their bars are
 * about half the peak; nothing is promised of emulated ones.
 *
 * A bar may be relative to another case of the same run: a layout or a head
 * size that must not cost more than a few percent, f16, which is widened to
 * f32 and must not cost much more than f32, or a form that has the work of
 * another case to do and something besides. Where a form has less work to do,
 * the bar is how many times faster it is, which is what a pattern is used for.
 *
 * Two promises need no row here. Whatever is compared must not be slower than
 * its baseline: attention than the naive implementation, a linear layer than
 * OpenBLAS. And cases that share a cost take the same time per token.
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

/* Most time per token at any length, relative to the length at which it is least. */
#define COST_SPREAD 1.3

/* A later row that fits as well is the more particular one. A family of -1 is any. */
static const struct {
    unsigned processor; /* bits of bench_processor: a processor has those of every group that it belongs to */
    const char *name, *vendor;
    int family;
} processors[] = {
    {BENCH_AMD, "AMD", "AuthenticAMD", -1},
    {BENCH_ZEN4, "AMD Zen 3 or 4", "AuthenticAMD", 0x19},
    {BENCH_INTEL, "Intel", "GenuineIntel", -1},
};

unsigned bench_processor_find(const char *vendor, int family)
{
    unsigned found = BENCH_ANY_PROCESSOR;
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++)
        if (strcmp(processors[i].vendor, vendor) == 0 && (processors[i].family < 0 || processors[i].family == family))
            found = processors[i].processor;
    return found;
}

const char *bench_processor_name(unsigned processor)
{
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++)
        if (processors[i].processor == processor)
            return processors[i].name;
    return "other";
}

enum bar_kind {
    FRACTION,     /* of the peak; with `of`, of that case's fraction */
    TIMES_FASTER, /* than `of`, both relative to the peak samples of their turns */
    TIMES_TOKENS, /* of `of`, of decoding, both relative to the read bandwidth of their turns */
    TIMES_RATE,   /* tokens/s over those of `of`, as they are: what the two read lies in different places */
    OF_BANDWIDTH  /* fraction of the bandwidth, of writing where bytes are written, else of reading */
};

/* A bar of 0 is none. */
struct bar {
    const char *id; /* of the case */
    enum bar_kind kind;
    const char *of;                        /* another case or NULL */
    unsigned processor;                    /* bits that a processor must have */
    double avx512, avx2, avx512_bf16, amx; /* by the kernels that ran */
    double any;                            /* whatever kernels ran */
};

#define BAR(processor_, id_, avx512_, avx2_)                                                                           \
    {                                                                                                                  \
        .id = id_, .processor = processor_, .avx512 = avx512_, .avx2 = avx2_                                           \
    }
/* Relative to a case, on any processor. */
#define BAR_OF(id_, of_, f32_)                                                                                         \
    {                                                                                                                  \
        .id = id_, .of = of_, .avx512 = f32_, .avx2 = f32_                                                             \
    }
#define BAR_FASTER(id_, of_, f32_, bf16_)                                                                              \
    {                                                                                                                  \
        .id = id_, .kind = TIMES_FASTER, .of = of_, .avx512 = f32_, .avx2 = f32_, .avx512_bf16 = bf16_                 \
    }
#define BAR_BF16(processor_, id_, avx512_bf16_)                                                                        \
    {                                                                                                                  \
        .id = id_, .processor = processor_, .avx512_bf16 = avx512_bf16_                                                \
    }
/* Linear attention, on any processor: a prompt, of the peak; a token, of the rate at which states can be updated. */
#define BAR_RULE(id_, fraction)                                                                                        \
    {                                                                                                                  \
        .id = "linear-attention-" id_, .any = fraction                                                                 \
    }
#define BAR_STEP(id_)                                                                                                  \
    {                                                                                                                  \
        .id = "linear-attention-" id_, .kind = OF_BANDWIDTH, .any = 0.85                                               \
    }
#define BAR_BF16_OF(id_, of_, avx512_bf16_)                                                                            \
    {                                                                                                                  \
        .id = id_, .of = of_, .avx512_bf16 = avx512_bf16_                                                              \
    }
/* Of the peak of matrix registers, which only one set has. */
#define BAR_AMX(id_, amx_)                                                                                             \
    {                                                                                                                  \
        .id = id_, .amx = amx_                                                                                         \
    }
/* Additive scores, of a bare loop of the same tanh. */
#define BAR_TANH(id_) BAR(BENCH_AMD, id_, 0.80, 0.80)
/* Layers with narrow weights from memory: one row reads them as fast as they can be read, ... */
#define BAR_READS(id_)                                                                                                 \
    {                                                                                                                  \
        .id = id_ "-1x4096x4096", .kind = OF_BANDWIDTH, .any = 0.9                                                     \
    }
/* ... and more rows are no slower than with weights of f32. */
#define BAR_NO_SLOWER(id_, m)                                                                                          \
    {                                                                                                                  \
        .id = id_ "-" m "x4096x4096", .kind = TIMES_FASTER, .of = "linear-" m "x4096x4096", .any = 1.0                 \
    }
#define BARS_NO_SLOWER(id_)                                                                                            \
    BAR_NO_SLOWER(id_, "8"), BAR_NO_SLOWER(id_, "24"), BAR_NO_SLOWER(id_, "128"), BAR_NO_SLOWER(id_, "1300")
/* Tokens of decoding, of the bandwidth that a core has: where it is a third more, so is what a key may cost. */
#define BAR_MOVES(id_, fraction)                                                                                       \
    {                                                                                                                  \
        .id = id_, .kind = OF_BANDWIDTH, .processor = BENCH_DECODES, .any = fraction                                   \
    }
#define BARS_DECODE(type, one, grouped, pages, order)                                                                  \
    BAR_MOVES(type "-decode" order, one), BAR_MOVES(type "-decode-gqa" order, grouped),                                \
        BAR_MOVES(type "-decode-pages" order, pages)
/* The same of one sequence, of the cache level in which its keys and values lie. */
#define BARS_DECODE_ONE(type, head, near, order)                                                                       \
    BAR_MOVES(type "-decode-t131072" order, head), BAR_MOVES(type "-decode-16mib" order, near)
#define BAR_TOKENS(id_, of_, times)                                                                                    \
    {                                                                                                                  \
        .id = id_, .kind = TIMES_TOKENS, .of = of_, .processor = BENCH_DECODES, .any = times                           \
    }
/* Pages that sequences have in common are read once, with ordered sums; read by each from a cache they would be 1.5 to
 * 1.8 times as fast as pages of each. With free sums they are, and cost no more than those. */
#define BAR_COMMON(order, times)                                                                                       \
    {                                                                                                                  \
        .id = "bf16-decode-common" order, .kind = TIMES_RATE, .of = "bf16-decode-own" order, .any = times              \
    }
/* Where products of bf16 are slower than those of floats the kernels without them run, on AVX-512. */
#define BAR_BF16_AS_FAST(id_, of_)                                                                                     \
    {.id = id_, .kind = TIMES_FASTER, .of = of_, .avx512_bf16 = 1.0, .amx = 1.0},                                      \
    {                                                                                                                  \
        .id = id_, .kind = TIMES_FASTER, .of = of_, .processor = BENCH_INTEL, .avx512 = 1.0                            \
    }

/* A fraction is the reciprocal of the time: generating the random bits takes a third more at most, ... */
#define DROPOUT (1.0 / 1.35)
/* ... and sequences of any length a tenth more than their share of the work. */
#define RAGGED (1.0 / 1.1)
/* Keys of a single head are shared among threads, for a tenth of the speed at most. */
#define ONE_HEAD 0.9

/* Of bars that are alike but for the processor the last that fits counts. */
static const struct bar bars[] = {
    BAR(BENCH_AMD, "t2048-d128", 0.88, 0.89),
    BAR(BENCH_AMD, "h8-t2048", 0.83, 0.85),
    BAR(BENCH_AMD, "h8-causal-t2048", 0.80, 0.82),
    BAR(BENCH_AMD, "h8-t512", 0.80, 0.82),
    BAR(BENCH_AMD, "encoder", 0.79, 0.72),
    BAR(BENCH_AMD, "t2048-d32", 0.72, 0.75),
    BAR(BENCH_AMD, "t2048-d256", 0.88, 0.89),
    BAR(BENCH_AMD, "h1-causal-t8192", 0.80, 0.82),
    BAR(BENCH_AMD, "t2048-d64-mask", 0.72, 0.76),
    BAR(BENCH_ZEN4, "t2048-d128", 0.92, 0.91),
    BAR(BENCH_ZEN4, "h8-t2048", 0.90, 0.87),
    BAR(BENCH_ZEN4, "h8-causal-t2048", 0.87, 0.85),
    BAR(BENCH_ZEN4, "t2048-d32", 0.84, 0.80),
    BAR(BENCH_INTEL, "t2048-d128", 0.83, 0.0),
    BAR(BENCH_INTEL, "h8-t2048", 0.80, 0.0),
    BAR(BENCH_INTEL, "h8-causal-t2048", 0.76, 0.0),
    BAR(BENCH_INTEL, "encoder", 0.66, 0.0),
    BAR_OF("t2048-d64-bthd", "h8-t2048", 0.97),
    BAR_OF("t2048-d80", "t2048-d128", 0.94),
    BAR_OF("t2048-d96", "t2048-d128", 0.94),
    BAR_BF16(BENCH_AMD, "bf16-t2048-d128", 0.87),
    BAR_BF16(BENCH_AMD, "bf16-t2048-d64", 0.82),
    BAR_BF16(BENCH_AMD, "bf16-t2048-d128-causal", 0.83),
    BAR_BF16(BENCH_AMD, "bf16-t2048-d64-causal", 0.78),
    BAR_BF16(BENCH_AMD, "bf16-t2048-d32", 0.66),
    BAR_BF16(BENCH_AMD, "bf16-t2048-d256", 0.87),
    BAR_BF16(BENCH_AMD, "bf16-t512-d64", 0.76),
    BAR_BF16(BENCH_AMD, "bf16-encoder", 0.62),
    BAR_BF16_AS_FAST("bf16-t2048-d128", "t2048-d128"),
    BAR_BF16_AS_FAST("bf16-t2048-d64", "h8-t2048"),
    BAR_BF16_AS_FAST("bf16-t2048-d128-causal", "t2048-d128-causal"),
    BAR_BF16_AS_FAST("bf16-t2048-d64-causal", "h8-causal-t2048"),
    BAR_BF16_AS_FAST("bf16-encoder", "encoder"),
    BAR_AMX("bf16-t2048-d128", 0.48),
    BAR_AMX("bf16-t2048-d64", 0.44),
    BAR_AMX("bf16-t2048-d128-causal", 0.44),
    BAR_AMX("bf16-t2048-d64-causal", 0.40),
    BAR_AMX("bf16-t2048-d32", 0.32),
    BAR_AMX("bf16-t2048-d96", 0.48),
    BAR_AMX("bf16-t2048-d256", 0.45),
    BAR_AMX("bf16-t512-d64", 0.34),
    BAR_AMX("bf16-t512-d64-causal", 0.27),
    BAR_AMX("bf16-encoder", 0.22),
    BAR_AMX("bf16-gqa4-d128-causal", 0.36),
    /* Or int8 would not be worth its errors. */
    {.id = "int8-bf16-t4096-d128", .of = "bf16-t4096-d128", .avx512_bf16 = 1.0, .amx = 1.15},
    BARS_DECODE("f32", 0.86, 0.73, 0.78, ""),
    BARS_DECODE("bf16", 0.82, 0.62, 0.72, ""),
    BARS_DECODE("f16", 0.82, 0.60, 0.0, ""),
    BARS_DECODE("f32", 0.96, 0.82, 0.82, "-free"),
    BARS_DECODE("bf16", 0.92, 0.80, 0.78, "-free"),
    BARS_DECODE("f16", 0.92, 0.78, 0.0, "-free"),
    BAR_MOVES("f32-decode-gqa8", 0.64),
    BAR_MOVES("f32-decode-gqa8-free", 0.78),
    BAR_MOVES("int8-decode-free", 0.80),
    BAR_MOVES("int4-decode-free", 0.62),
    BAR_TOKENS("int8-decode-free", "bf16-decode-free", 1.7), /* of 1.94, as it has so many fewer bytes */
    BAR_TOKENS("int4-decode-free", "bf16-decode-free", 2.6), /* of 3.2 */
    BARS_DECODE_ONE("f32", 0.80, 0.85, ""),
    BARS_DECODE_ONE("bf16", 0.80, 0.85, ""),
    BARS_DECODE_ONE("f16", 0.80, 0.85, ""),
    BARS_DECODE_ONE("f32", 0.92, 0.85, "-free"),
    BARS_DECODE_ONE("bf16", 0.92, 0.85, "-free"),
    BARS_DECODE_ONE("f16", 0.92, 0.85, "-free"),
    BAR_COMMON("", 2.5),
    BAR_COMMON("-free", 1.0),
    BAR_MOVES("f32-append", 0.80),
    BAR_MOVES("bf16-append", 0.80),
    BAR_MOVES("f32-append-bf16", 0.80),
    BAR_MOVES("bf16-append-int8", 0.80),
    BAR_MOVES("bf16-append-e4m3", 0.80),
    BAR_OF("f16-t2048-d128", "t2048-d128", 0.93),
    BAR_OF("f16-t2048-d64", "h8-t2048", 0.93),
    BAR_OF("f16-t2048-d128-causal", "t2048-d128-causal", 0.93),
    BAR_OF("f16-t2048-d64-causal", "h8-causal-t2048", 0.93),
    BAR_OF("form-dropout", "h8-t2048", DROPOUT),
    BAR_BF16_OF("bf16-form-dropout", "bf16-t2048-d64", DROPOUT),
    BAR_OF("form-ragged", "h8-t2048", RAGGED),
    BAR_FASTER("form-blocks-10", "dense-t16384", 7.0, 0.0), /* of about 10, as one block in ten is live */
    BAR_FASTER("bf16-form-blocks-10", "bf16-dense-t16384", 0.0, 7.0),
    BAR_FASTER("linear-bf16-1x1152x384", "linear-1x1152x384", 1.3, 0.0), /* of 2, as it has half the bytes */
    BAR(BENCH_AMD, "backward-t2048-d128", 0.78, 0.78),
    BAR(BENCH_AMD, "backward-t2048-d64", 0.70, 0.70),
    BAR(BENCH_AMD, "backward-t2048-d128-causal", 0.70, 0.70),
    BAR(BENCH_AMD, "backward-t2048-d64-causal", 0.62, 0.62),
    BAR(BENCH_INTEL, "backward-t2048-d128", 0.78, 0.0),
    BAR(BENCH_INTEL, "backward-t2048-d64", 0.70, 0.0),
    BAR(BENCH_INTEL, "backward-t2048-d128-causal", 0.70, 0.0),
    BAR(BENCH_INTEL, "backward-t2048-d64-causal", 0.62, 0.0),
    BAR_BF16(BENCH_AMD, "backward-bf16-t2048-d128", 0.62),
    BAR_OF("backward-h1-t4096", "backward-h8-t4096", ONE_HEAD),
    BAR_FASTER("backward-blocks-10", "backward-dense-t16384", 7.0, 0.0),
    BAR_RULE("linear-t8192-d128", 0.50),
    BAR_RULE("gated-t8192-d128", 0.50),
    BAR_RULE("gated-rows-t8192-d128", 0.50),
    BAR_RULE("delta-t8192-d128", 0.35),
    BAR_RULE("gated-delta-t8192-d128", 0.35),
    BAR_RULE("gated-delta-rows-t8192-d128", 0.35),
    BAR_FASTER("linear-attention-gated-t16384-d128", "causal-t16384-d128", 10.0, 0.0),
    BAR_STEP("linear-step1"),
    BAR_STEP("gated-step1"),
    BAR_STEP("delta-step1"),
    BAR_STEP("gated-delta-step1"),
    BAR_TANH("additive-one-d64"),
    BAR_TANH("additive-one-d128"),
    BAR_TANH("additive-one-d256"),
    BAR_TANH("additive-one-d512"),
    BAR_TANH("additive-d64"),
    BAR_TANH("additive-d128"),
    BAR_TANH("additive-d256"),
    BAR_TANH("additive-d512"),
    BAR(BENCH_AMD, "linear-1300x1152x384", 0.85, 0.85),
    BAR(BENCH_AMD, "linear-1300x1536x384", 0.85, 0.85),
    BAR(BENCH_AMD, "linear-1300x384x1536", 0.85, 0.85),
    BAR(BENCH_AMD, "linear-4096x2304x768", 0.85, 0.85),
    BAR(BENCH_AMD, "linear-4096x768x768", 0.85, 0.85),
    BAR(BENCH_AMD, "linear-4096x3072x2048", 0.85, 0.85),
    BAR(BENCH_AMD, "linear-4096x2048x2048", 0.85, 0.85),
    BAR(BENCH_AMD, "linear-backward-1300x1152x384", 0.80, 0.80),
    BAR(BENCH_AMD, "linear-backward-4096x768x768", 0.80, 0.80),
    BAR(BENCH_AMD, "linear-backward-4096x3072x2048", 0.80, 0.80),
    BAR_READS("linear-bf16"),
    BAR_READS("linear-pairs"),
    BAR_READS("linear-int8"),
    BAR_READS("linear-int4"),
    BARS_NO_SLOWER("linear-bf16"),
    BARS_NO_SLOWER("linear-pairs"),
    BARS_NO_SLOWER("linear-int8"),
    BAR_AMX("linear-pairs-1300x4096x4096", 0.40),
    BAR_AMX("linear-int8-1300x4096x4096", 0.40),
    BAR_BF16(BENCH_AMD, "linear-pairs-1300x4096x4096", 0.85),
};

#define NUM_BARS (sizeof bars / sizeof *bars)

/* 0 where the bar does not hold. */
static double own_value(const struct bar *bar, unsigned processor, const char *isa)
{
    if ((bar->processor & processor) != bar->processor)
        return 0.0;
    if (bar->any > 0.0)
        return bar->any;
    if (bench_same_isa(isa, "amx_bf16") || bench_same_isa(isa, "amx_int8"))
        return bar->amx;
    if (bench_same_isa(isa, "avx512_bf16"))
        return bar->avx512_bf16;
    if (bench_same_isa(isa, "avx512"))
        return bar->avx512;
    if (bench_same_isa(isa, "avx2"))
        return bar->avx2;
    return 0.0;
}

static bool alike(const struct bar *a, const struct bar *b)
{
    return strcmp(a->id, b->id) == 0 && a->kind == b->kind &&
           (a->of == NULL || b->of == NULL ? a->of == b->of : strcmp(a->of, b->of) == 0);
}

/* 0 where the bar does not hold, or a more particular one stands for it. */
static double bar_value(const struct bar *bar, unsigned processor, const char *isa)
{
    for (const struct bar *later = bar + 1; later < bars + NUM_BARS; later++)
        if (alike(bar, later) && own_value(later, processor, isa) > 0.0)
            return 0.0;
    return own_value(bar, processor, isa);
}

bool bench_bars_need(const struct bench_case *c, const char *isa, unsigned processor)
{
    if (c->compare || c->cost != NULL)
        return true;
    for (size_t i = 0; i < NUM_BARS; i++) {
        const struct bench_case *bound = bench_case_find(bars[i].id);
        const bool named = strcmp(bars[i].id, c->id) == 0 || (bars[i].of != NULL && strcmp(bars[i].of, c->id) == 0);
        if (!named || bound == NULL)
            continue;
        if (bar_value(&bars[i], processor, bench_case_isa(bound, isa)) > 0.0)
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

/* The forward row of that case, or NULL when the filter left it out. */
static const struct bench_result *find_row(const struct bench_results *results, const char *id)
{
    for (int i = 0; i < results->count; i++) {
        const struct bench_result *row = &results->rows[i];
        if (row->kind == BENCH_FORWARD && strcmp(row->bcase->id, id) == 0)
            return row;
    }
    return NULL;
}

/* How fast the row is by its operations, had both met the same peak; peaks of two instruction sets cannot be compared.
 */
static double relative_speed(const struct bench_result *row, const struct bench_result *other)
{
    return bench_same_isa(row->isa, other->isa) ? row->fraction / other->fraction : row->gflops / other->gflops;
}

static double times_faster(const struct bench_result *row, const struct bench_result *other)
{
    return relative_speed(row, other) * (other->flops / row->flops);
}

/* How many more tokens than another row of decoding in the time in which as many bytes are read, in their turns. */
static double times_tokens(const struct bench_result *row, const struct bench_result *other)
{
    return row->bandwidth_fraction / row->bytes * (double)row->bcase->batch /
           (other->bandwidth_fraction / other->bytes * (double)other->bcase->batch);
}

static const char *const relation_names[] = {[FRACTION] = "fraction relative to",
                                             [TIMES_FASTER] = "times faster than",
                                             [TIMES_TOKENS] = "times the tokens of",
                                             [TIMES_RATE] = "times the tokens/s of"};

/* What a bar relative to another row compares. */
static double relation(enum bar_kind kind, const struct bench_result *row, const struct bench_result *other)
{
    switch (kind) {
    case TIMES_FASTER:
        return times_faster(row, other);
    case TIMES_TOKENS:
        return times_tokens(row, other);
    case TIMES_RATE:
        return row->tokens_per_second / other->tokens_per_second;
    default:
        return relative_speed(row, other);
    }
}

/* Time per token, in units of what the peak of the row's own turns would have taken for something. */
static double token_cost(const struct bench_result *row)
{
    return row->token_time * row->peak_gflops;
}

/* The length at which a token costs least is what the others are held against. */
static int check_cost(const struct bench_results *results, struct bench_result *row, struct bench_checks *checks)
{
    const struct bench_result *least = row;
    for (int i = 0; i < results->count; i++) {
        const struct bench_result *other = &results->rows[i];
        if (other->kind == BENCH_FORWARD && other->bcase->cost != NULL &&
            strcmp(other->bcase->cost, row->bcase->cost) == 0 && token_cost(other) < token_cost(least))
            least = other;
    }
    if (least == row)
        return 0;
    char what[BENCH_NAME_SIZE];
    snprintf(what, sizeof what, "time per token relative to case %s", least->bcase->id);
    return add_check(checks, row, what, token_cost(row) / token_cost(least), COST_SPREAD, true);
}

static int check_forward(struct bench_results *results, struct bench_result *row, unsigned processor,
                         struct bench_checks *checks)
{
    if (row->bcase->cost != NULL && check_cost(results, row, checks) != 0)
        return -1;
    for (size_t i = 0; i < NUM_BARS; i++) {
        const double value = bar_value(&bars[i], processor, row->isa);
        if (value == 0.0 || strcmp(bars[i].id, row->bcase->id) != 0)
            continue;
        if (bars[i].kind == OF_BANDWIDTH) {
            const char *const what = bench_case_updates_states(row->bcase) ? "fraction of the update bandwidth"
                                     : row->written                        ? "fraction of the write bandwidth"
                                                                           : "fraction of the read bandwidth";
            if (add_check(checks, row, what, row->bandwidth_fraction, value, false) != 0)
                return -1;
            continue;
        }
        if (bars[i].of == NULL) {
            const char *const what = row->bcase->additive ? "fraction of the bare tanh loop" : "fraction of the peak";
            if (add_check(checks, row, what, row->fraction, value, false) != 0)
                return -1;
            continue;
        }
        const struct bench_result *other = find_row(results, bars[i].of);
        char what[BENCH_NAME_SIZE];
        snprintf(what, sizeof what, "%s case %s", relation_names[bars[i].kind], bars[i].of);
        if (other != NULL && add_check(checks, row, what, relation(bars[i].kind, row, other), value, false) != 0)
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

int bench_bars_check(struct bench_results *results, unsigned processor, struct bench_checks *checks)
{
    for (size_t i = 0; i < NUM_BARS; i++)
        if (bench_case_find(bars[i].id) == NULL || (bars[i].of != NULL && bench_case_find(bars[i].of) == NULL)) {
            fprintf(stderr, "attn-bench: a bar names the case %s or its reference, which does not exist\n", bars[i].id);
            return -1;
        }
    for (int i = 0; i < results->count; i++) {
        struct bench_result *row = &results->rows[i];
        if (row->kind == BENCH_FORWARD && check_forward(results, row, processor, checks) != 0)
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
