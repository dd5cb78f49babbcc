/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of cosines and sines against formulas in long double that are written
 * here from the papers, for every scaling, at positions up to a million; and
 * what zero stands for in a config.
 *
 * It prints the largest error that it finds: docs/rope.md quotes it.
 */
#include "fixture.h"

#include "attn/rope.h"
#include "guard.h"
#include "random.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI_L 3.141592653589793238462643383279502884L

enum { MAX_PAIRS = 2048, POSITIONS = 400 };

static attn_rope_config config_of(int64_t pairs, double base, attn_rope_scaling scaling, double factor, int64_t length)
{
    attn_rope_config c = attn_rope_config_default();
    c.pairs = pairs;
    c.base = base;
    c.scaling = scaling;
    c.factor = factor;
    c.original_length = length;
    return c;
}

static long double or_default(double value, long double otherwise)
{
    return value != 0 ? (long double)value : otherwise;
}

/** How often the pair of an index turns in the positions of the training. */
static long double rotations(const attn_rope_config *c, long double index)
{
    return (long double)c->original_length * powl(or_default(c->base, 10000), -index / (long double)c->pairs) /
           (2 * PI_L);
}

/** The index, a number from 0 to last, from which on pairs turn less often, found by halving. */
static long double index_of_rotations(const attn_rope_config *c, long double wanted, long double last)
{
    long double low = 0, high = last;
    for (int step = 0; step < 200; step++) {
        const long double middle = (low + high) / 2;
        *(rotations(c, middle) > wanted ? &low : &high) = middle;
    }
    return low;
}

/** YaRN's share of interpolation: the ends of the ramp are looked for among the whole numbers, or among all. */
static long double yarn_ramp(const attn_rope_config *c, int64_t index)
{
    const int64_t last = 2 * c->pairs - 1;
    int64_t low = 0, high = last;
    if (c->no_truncation) {
        const long double from = index_of_rotations(c, or_default(c->beta_fast, 32), (long double)last);
        long double to = index_of_rotations(c, or_default(c->beta_slow, 1), (long double)last);
        to += from == to ? 0.001L : 0;
        const long double share = ((long double)index - from) / (to - from);
        return share < 0 ? 0 : share > 1 ? 1 : share;
    }
    while (low < last && rotations(c, (long double)(low + 1)) >= or_default(c->beta_fast, 32))
        low++;
    while (high > 0 && rotations(c, (long double)(high - 1)) <= or_default(c->beta_slow, 1))
        high--;
    if (index <= low)
        return 0;
    return index >= high ? 1 : (long double)(index - low) / (long double)(high - low);
}

static long double exact_frequency(const attn_rope_config *c, int64_t index)
{
    const long double pairs = (long double)c->pairs, factor = (long double)c->factor;
    const long double base = or_default(c->base, 10000), f = powl(base, -(long double)index / pairs);
    switch (c->scaling) {
    case ATTN_ROPE_LINEAR:
        return f / factor;
    case ATTN_ROPE_NTK: /* the base of which the last frequency is f / factor */
        return powl(base * powl(factor, pairs / (pairs - 1)), -(long double)index / pairs);
    case ATTN_ROPE_YARN: {
        const long double gamma = 1 - yarn_ramp(c, index);
        return (1 - gamma) * f / factor + gamma * f;
    }
    case ATTN_ROPE_LLAMA3: {
        const long double wavelength = 2 * PI_L / f, length = (long double)c->original_length;
        const long double low = or_default(c->low_freq_factor, 1), high = or_default(c->high_freq_factor, 4);
        if (wavelength < length / high)
            return f;
        if (wavelength > length / low)
            return f / factor;
        const long double smooth = (length / wavelength - low) / (high - low);
        return (1 - smooth) * f / factor + smooth * f;
    }
    case ATTN_ROPE_LONGROPE:
        return f / (long double)(c->length > c->original_length ? c->long_factor : c->short_factor)[index];
    default:
        return f;
    }
}

static long double exact_magnitude(const attn_rope_config *c)
{
    if (c->scaling == ATTN_ROPE_LONGROPE)
        return or_default(c->attention_factor,
                          sqrtl(1 + logl((long double)c->factor) / logl((long double)c->original_length)));
    return c->scaling == ATTN_ROPE_YARN ? or_default(c->attention_factor, 0.1L * logl((long double)c->factor) + 1) : 1;
}

static void make_table(const attn_rope_config *c, const int64_t *positions, int64_t num, float *table)
{
    if (attn_rope_table(c, positions, num, table) != ATTN_OK)
        fail_msg("%s", attn_last_error());
}

/** The largest error of an element, in units of the magnitude of the row. */
static double largest_error(const attn_rope_config *c, const int64_t *positions, int64_t num)
{
    static float table[POSITIONS * 2 * 128];
    assert_true(num <= POSITIONS && c->pairs <= 128);
    const long double magnitude = exact_magnitude(c);
    long double worst = 0;
    make_table(c, positions, num, table);
    for (int64_t i = 0; i < c->pairs; i++) {
        const long double f = exact_frequency(c, i);
        for (int64_t n = 0; n < num; n++) {
            const float *row = table + n * 2 * c->pairs;
            const long double angle = (long double)positions[n] * f;
            worst = fmaxl(worst, fabsl((long double)row[i] / magnitude - cosl(angle)));
            worst = fmaxl(worst, fabsl((long double)row[c->pairs + i] / magnitude - sinl(angle)));
        }
    }
    return (double)worst;
}

static void test_errors(void **state)
{
    (void)state;
    static const char *const names[] = {"plain", "linear", "ntk", "yarn", "llama3", "longrope"};
    /* Heads of 64 and 128 with the bases and lengths of published models, and some that no model has. */
    attn_rope_config configs[] = {
        config_of(32, 0, ATTN_ROPE_PLAIN, 0, 0),
        config_of(64, 500000, ATTN_ROPE_PLAIN, 0, 0),
        config_of(1, 1, ATTN_ROPE_PLAIN, 0, 0),
        config_of(128, 1e300, ATTN_ROPE_PLAIN, 0, 0),
        config_of(64, 0, ATTN_ROPE_LINEAR, 8, 0),
        config_of(37, 26.5, ATTN_ROPE_LINEAR, 1.0001, 0),
        config_of(64, 0, ATTN_ROPE_NTK, 4, 0),
        config_of(2, 3, ATTN_ROPE_NTK, 1000, 0),
        config_of(64, 0, ATTN_ROPE_YARN, 16, 4096),
        config_of(64, 1e6, ATTN_ROPE_YARN, 4, 32768),
        config_of(32, 150000, ATTN_ROPE_YARN, 32, 4096),
        config_of(32, 2.5, ATTN_ROPE_YARN, 2, 1 << 20), /* all pairs turn often: all are kept */
        config_of(5, 10000, ATTN_ROPE_YARN, 3, 100),
        config_of(6, 10000, ATTN_ROPE_YARN, 7, 5), /* no pair turns once: all but the first are divided */
        config_of(64, 500000, ATTN_ROPE_LLAMA3, 8, 8192),
        config_of(64, 500000, ATTN_ROPE_LLAMA3, 32, 8192),
        config_of(16, 0, ATTN_ROPE_LLAMA3, 5, 200),
        config_of(32, 150000, ATTN_ROPE_YARN, 32, 4096), /* those from here on are changed below */
        config_of(5, 10000, ATTN_ROPE_YARN, 3, 100),
        config_of(6, 10000, ATTN_ROPE_YARN, 7, 5),
        config_of(48, 0, ATTN_ROPE_LONGROPE, 32, 4096),
        config_of(48, 0, ATTN_ROPE_LONGROPE, 32, 4096),
        config_of(64, 1e6, ATTN_ROPE_LONGROPE, 1, 2),
    };
    static double shorter[64], longer[64];
    for (int i = 0; i < 64; i++) {
        shorter[i] = 1 + 0.03 * i;
        longer[i] = i < 20 ? 0.9 : 1.0 + i * i / 40.0;
    }
    const size_t num = sizeof configs / sizeof *configs;
    configs[9].beta_fast = 64, configs[9].beta_slow = 0.5, configs[9].attention_factor = 0.75;
    configs[12].beta_fast = 3, configs[12].beta_slow = 3;
    configs[16].low_freq_factor = 0.5, configs[16].high_freq_factor = 20;
    configs[17].no_truncation = configs[18].no_truncation = configs[19].no_truncation = 1;
    configs[18].beta_fast = 3, configs[18].beta_slow = 3;
    for (int i = 20; i < 23; i++)
        configs[i].short_factor = shorter, configs[i].long_factor = longer;
    configs[21].length = 4097;
    configs[22].length = 2, configs[22].attention_factor = 1.25;
    int64_t positions[POSITIONS] = {0, 1, -1, 2, 1000000, -1000000, 999999, 131071, 131072, -65536};
    struct rng rng = rng_for_case(11, 1);
    for (int n = 10; n < POSITIONS; n++)
        positions[n] = rng_range(&rng, -1000000, 1000000);
    double worst[6] = {0};
    for (size_t i = 0; i < num; i++) {
        const double error = largest_error(&configs[i], positions, POSITIONS);
        worst[configs[i].scaling] = fmax(worst[configs[i].scaling], error);
        if (!(error <= 7e-8))
            fail_msg("config %zu (%s): an element is off by %.3g", i, names[configs[i].scaling], error);
    }
    for (int s = 0; s < 6; s++)
        print_message("largest error of an element up to position 1,000,000, %s: %.3g\n", names[s], worst[s]);
}

/** Beyond the promise the error is that of the angle, which a double holds to some 2^-52 of its size. */
static void test_far_positions(void **state)
{
    (void)state;
    const int64_t far[] = {100000007, -3000000019, ((int64_t)1 << 40) + 12345, 1 - ((int64_t)1 << 53)};
    attn_rope_config c = config_of(64, 0, ATTN_ROPE_PLAIN, 0, 0);
    for (int i = 0; i < 4; i++) {
        const double size = fabs((double)far[i]);
        assert_true(largest_error(&c, &far[i], 1) <= 7e-8 + size * 0x1p-51);
    }
    float row[2];
    c.pairs = 1; /* an angle that is exact */
    make_table(&c, &far[3], 1, row);
    assert_true(fabsl((long double)row[0] - cosl((long double)far[3])) < 7e-8L);
    assert_true(fabsl((long double)row[1] - sinl((long double)far[3])) < 7e-8L);
}

/** Numbers from a table of functions: positions 0, 1, 2, 3 and the frequencies 1 and 1/100. */
static void test_worked_values(void **state)
{
    (void)state;
    static const double expected[4][4] = {{1, 1, 0, 0},
                                          {0.5403023059, 0.9999500004, 0.8414709848, 0.0099998333},
                                          {-0.4161468365, 0.9998000067, 0.9092974268, 0.0199986667},
                                          {-0.9899924966, 0.9995500337, 0.1411200081, 0.0299955002}};
    const attn_rope_config c = config_of(2, 0, ATTN_ROPE_PLAIN, 0, 0);
    float table[4][4];
    make_table(&c, NULL, 4, table[0]);
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 4; i++)
            assert_true(fabs((double)table[n][i] - expected[n][i]) < 1e-7);
}

/** Cosine and sine of a pair at position 1 give its frequency back. */
static double frequency(const attn_rope_config *c, int64_t pair)
{
    static float table[2 * MAX_PAIRS];
    const int64_t one = 1;
    make_table(c, &one, 1, table);
    return atan2((double)table[c->pairs + pair], (double)table[pair]);
}

/** What the scalings are for, at pairs where it can be said without a formula. */
static void test_meaning_of_scalings(void **state)
{
    (void)state;
    const attn_rope_config plain = config_of(64, 0, ATTN_ROPE_PLAIN, 0, 0);
    attn_rope_config ntk = config_of(64, 0, ATTN_ROPE_NTK, 8, 0), yarn = config_of(64, 0, ATTN_ROPE_YARN, 8, 4096);
    attn_rope_config llama = config_of(64, 0, ATTN_ROPE_LLAMA3, 8, 4096);
    const attn_rope_config *const stretched[] = {&ntk, &yarn, &llama};
    for (int i = 0; i < 3; i++) { /* the fastest pair is kept, the slowest one divided */
        assert_true(fabs(frequency(stretched[i], 0) / frequency(&plain, 0) - 1) < 1e-6);
        assert_true(fabs(frequency(stretched[i], 63) / frequency(&plain, 63) - 1.0 / 8) < 1e-6);
    }
    float row[128], longer[128];
    const int64_t position = 70, last = 8 * 70; /* position interpolation */
    attn_rope_config linear = config_of(64, 0, ATTN_ROPE_LINEAR, 8, 0);
    make_table(&plain, &position, 1, row);
    make_table(&linear, &last, 1, longer);
    for (int i = 0; i < 128; i++)
        assert_true(fabsf(row[i] - longer[i]) < 1e-6f);
    make_table(&yarn, NULL, 1, row); /* the temperature: position 0 has the cosine 1 */
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(row[i] - 1.2079442f) < 2e-7f && row[64 + i] == 0);
}

/** Frequencies of published configurations, from the formulas in double in Python. */
static void test_published_configs(void **state)
{
    (void)state;
    static const struct {
        int pair;
        double whole, cut; /**< with truncation, and without */
    } gpt_oss[] = {{0, 1, 1},
                   {8, 0.050813274815461475, 0.050813274815461475},
                   {9, 0.031620752275346484, 0.03170569618466377},
                   {12, 0.007015713910504388, 0.006794959489732219},
                   {17, 0.00022794779579512524, 0.0001293187012450632},
                   {18, 3.8308812373753384e-05, 3.8308812373753384e-05},
                   {31, 3.0235114281192144e-07, 3.0235114281192144e-07}};
    attn_rope_config yarn = config_of(32, 150000, ATTN_ROPE_YARN, 32, 4096);
    yarn.attention_factor = 1;
    for (size_t i = 0; i < sizeof gpt_oss / sizeof *gpt_oss; i++) {
        yarn.no_truncation = 0;
        assert_true(fabs(frequency(&yarn, gpt_oss[i].pair) / gpt_oss[i].whole - 1) < 2e-7);
        yarn.no_truncation = 1;
        assert_true(fabs(frequency(&yarn, gpt_oss[i].pair) / gpt_oss[i].cut - 1) < 2e-7);
    }
    static const struct {
        int pair;
        double near, far;
    } phi3[] = {{0, 1, 1},
                {1, 0.7860992240647794, 0.4344232554042202},
                {20, 0.010772173450159416, 0.0011339129947536227},
                {47, 3.616500473518175e-05, 2.7979853548004357e-06}};
    double shorter[48], longer[48];
    float row[96];
    for (int i = 0; i < 48; i++) {
        shorter[i] = 1 + 0.05 * i;
        longer[i] = 1 + 0.9 * i;
    }
    attn_rope_config longrope = config_of(48, 0, ATTN_ROPE_LONGROPE, 32, 4096);
    longrope.short_factor = shorter;
    longrope.long_factor = longer;
    for (size_t i = 0; i < sizeof phi3 / sizeof *phi3; i++)
        for (int64_t length = 0; length <= 8192; length += 4096) {
            for (int more = 0; more < 2; more++) {
                longrope.length = length + more;
                const double expected = length + more > 4096 ? phi3[i].far : phi3[i].near;
                assert_true(fabs(frequency(&longrope, phi3[i].pair) / expected - 1) < 2e-7);
            }
        }
    make_table(&longrope, NULL, 1, row); /* position 0: cosines alone */
    for (int i = 0; i < 48; i++)
        assert_true(fabsf(row[i] - 1.1902380714f) < 2e-7f && row[48 + i] == 0);
    longrope.factor = 1;
    make_table(&longrope, NULL, 1, row);
    assert_true(row[0] == 1);
}

static void test_defaults(void **state)
{
    (void)state;
    static float implied[50 * 32], given[50 * 32];
    for (int scaling = ATTN_ROPE_PLAIN; scaling <= ATTN_ROPE_LONGROPE; scaling++) {
        const double divisors[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        attn_rope_config c = attn_rope_config_default();
        c.pairs = 16;
        c.scaling = (attn_rope_scaling)scaling;
        c.factor = scaling == ATTN_ROPE_PLAIN ? 0 : 4;
        c.original_length = scaling >= ATTN_ROPE_YARN ? 2000 : 0;
        if (scaling == ATTN_ROPE_LONGROPE)
            c.short_factor = c.long_factor = divisors;
        make_table(&c, NULL, 50, implied);
        c.base = 10000;
        if (scaling == ATTN_ROPE_LONGROPE)
            c.length = 2000, c.attention_factor = sqrt(1 + log(4) / log(2000));
        if (scaling == ATTN_ROPE_YARN)
            c.beta_fast = 32, c.beta_slow = 1, c.attention_factor = 0.1 * log(4) + 1;
        if (scaling == ATTN_ROPE_LLAMA3)
            c.low_freq_factor = 1, c.high_freq_factor = 4;
        make_table(&c, NULL, 50, given);
        assert_memory_equal(implied, given, sizeof given);
        c.base = 10001; /* and it is looked at */
        make_table(&c, NULL, 50, given);
        assert_memory_not_equal(implied, given, sizeof given);
    }
}

/** Rows are those of their positions, whatever stands beside them; opposite positions turn the other way. */
static void test_positions(void **state)
{
    (void)state;
    enum { PAIRS = 13, NUM = 40 };
    static float table[NUM][2 * PAIRS], row[2 * PAIRS], opposite[2 * PAIRS];
    const attn_rope_config c = config_of(PAIRS, 0, ATTN_ROPE_YARN, 4, 500);
    make_table(&c, NULL, NUM, table[0]);
    for (int64_t n = 0; n < NUM; n++) {
        const int64_t minus = -n;
        make_table(&c, &n, 1, row);
        assert_memory_equal(row, table[n], sizeof row);
        make_table(&c, &minus, 1, opposite);
        assert_memory_equal(row, opposite, PAIRS * sizeof(float));
        for (int i = PAIRS; i < 2 * PAIRS; i++)
            assert_true(opposite[i] == -row[i]);
    }
}

/** Not a byte outside the table, for the smallest and the largest number of pairs. */
static void test_bounds(void **state)
{
    (void)state;
    struct guard guard = guard_create(3 * 2 * MAX_PAIRS * sizeof(float)), list = guard_create(64);
    for (int at_end = 0; at_end < 2; at_end++)
        for (int64_t pairs = 1; pairs <= MAX_PAIRS; pairs += MAX_PAIRS - 1) {
            const attn_rope_config c = config_of(pairs, 0, ATTN_ROPE_LINEAR, 2, 0);
            float *table = guard_place(&guard, (size_t)(3 * 2 * pairs) * sizeof *table, at_end);
            int64_t *positions = guard_place(&list, 3 * sizeof *positions, at_end);
            memcpy(positions, (const int64_t[]){5, -7, 1 << 20}, 3 * sizeof *positions);
            make_table(&c, positions, 3, table);
            assert_true(guard_intact(&guard) && guard_intact(&list));
        }
    guard_destroy(&guard);
    guard_destroy(&list);
}

static void test_rounding_mode_is_left(void **state)
{
    (void)state;
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    const attn_rope_config c = config_of(8, 0, ATTN_ROPE_LLAMA3, 8, 100);
    float table[16 * 16];
    for (int i = 0; i < 4; i++) {
        fesetround(modes[i]);
        const attn_status status = attn_rope_table(&c, NULL, 16, table);
        const int after = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(status, ATTN_OK);
        assert_int_equal(after, modes[i]);
    }
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_far_positions),
        cmocka_unit_test(test_worked_values),
        cmocka_unit_test(test_meaning_of_scalings),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_rounding_mode_is_left),
        cmocka_unit_test(test_published_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
