/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the error of the exp2 function that the kernels use, against
 * exp2() in double, over the range a softmax can produce: [-150, 0], from 1
 * down to where f32 ends.
 *
 *     check_exp --isa avx512 [--cases N] [--seed N] [--full]
 *
 * The floats of the range, 1.1 thousand million of them, are taken in steps
 * from a random start, N of them altogether; --full takes every one. Special
 * arguments, the neighbours of every integer, and arrays of every length up to
 * three vectors follow, the latter flush against a guard page, since a lane
 * must give the same bits wherever in a vector it stands.
 *
 * Of a set that makes weights by a table it measures these instead: mean, root
 * mean square and largest relative error over N fractions of an octave, which
 * are the same in every other one.
 */
#include "arguments.h"
#include "dispatch.h"
#include "guard.h"
#include "random.h"
#include "test_isa.h"
#include "tolerance.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096

/** Bits of -150.0f without the sign: the floats 0 .. LAST_BITS, negated, are the range. */
#define LAST_BITS 0x43160000u

struct subject {
    double limit;
    void (*function)(float *dst, const float *src, int64_t n);
    double worst;
    float worst_at;
    int failures;
};

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/** Distance of got from exact in units in the last place of a float at exact. */
static double error_in_ulp(float got, double exact)
{
    int exponent;
    frexp(exact, &exponent); /* exact = m * 2^exponent with m in [0.5, 1) */
    const int last_place = exponent - 24 > -149 ? exponent - 24 : -149;
    return fabs((double)got - exact) / ldexp(1, last_place);
}

static void fail(struct subject *s, float x, float got, const char *expected)
{
    if (s->failures++ < 10)
        printf("FAILED: exp2(%a) is %a, expected %s\n", (double)x, (double)got, expected);
}

static void check_values(struct subject *s, const float *x, int64_t n)
{
    static float got[BLOCK];
    s->function(got, x, n);
    for (int64_t i = 0; i < n; i++) {
        const double exact = exp2((double)x[i]);
        const double error = error_in_ulp(got[i], exact);
        if (error > s->worst) {
            s->worst = error;
            s->worst_at = x[i];
        }
        if (!(error <= s->limit)) {
            char expected[64];
            snprintf(expected, sizeof expected, "%a within %.2f ULP (off by %.3g)", exact, s->limit, error);
            fail(s, x[i], got[i], expected);
        }
    }
}

/** Every step-th float of the range, from a start below step. */
static void check_range(struct subject *s, uint32_t start, uint32_t step)
{
    static float x[BLOCK];
    int64_t n = 0;
    for (uint64_t bits = start; bits <= LAST_BITS; bits += step) {
        x[n++] = -from_bits((uint32_t)bits);
        if (n == BLOCK) {
            check_values(s, x, n);
            n = 0;
        }
    }
    check_values(s, x, n);
}

/** Rounding to an integer is where a polynomial's range reduction goes wrong. */
static void check_neighbours(struct subject *s)
{
    float x[3];
    for (int half = 0; half <= 300; half++) {
        x[1] = -0.5f * (float)half;
        x[0] = nextafterf(x[1], -INFINITY);
        x[2] = half ? nextafterf(x[1], INFINITY) : -0x1p-149f;
        check_values(s, x, 3);
    }
}

static void check_special(struct subject *s)
{
    const float x[] = {0.0f, -0.0f, -INFINITY, NAN, -NAN, -200.0f, -1e4f, -3e38f};
    float got[sizeof x / sizeof *x];
    s->function(got, x, sizeof x / sizeof *x);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        if (isnan(x[i])) {
            if (!isnan(got[i]))
                fail(s, x[i], got[i], "NaN");
        } else if (x[i] == 0) {
            if (got[i] != 1)
                fail(s, x[i], got[i], "exactly 1");
        } else if (got[i] != 0) {
            fail(s, x[i], got[i], "exactly 0");
        }
    }
}

/** Arrays of n elements give the bits that each element gives alone, and touch nothing behind the end. */
static void check_lengths(struct subject *s, struct rng *rng)
{
    struct guard in = guard_create(4096), out = guard_create(4096);
    for (int64_t n = 0; n <= 50; n++) {
        for (int at_end = 0; at_end < 2; at_end++) {
            float *x = guard_place(&in, (size_t)n * sizeof *x, at_end);
            float *y = guard_place(&out, (size_t)n * sizeof *y, at_end);
            for (int64_t i = 0; i < n; i++)
                x[i] = (float)(-150 * rng_uniform(rng));
            s->function(y, x, n);
            for (int64_t i = 0; i < n; i++) {
                float alone;
                s->function(&alone, x + i, 1);
                if (memcmp(&alone, y + i, sizeof alone) != 0)
                    fail(s, x[i], y[i], "the bits that it has as an array of one");
            }
            if (!guard_intact(&out))
                fail(s, (float)n, 0, "memory beside an array of that length unchanged");
        }
    }
    guard_destroy(&in);
    guard_destroy(&out);
}

/* ------------------------------------------------------- weights by a table -- */

#define LANES_MOST 16

/** What simd/exp2_table_*.h says of a weight, to half of the last digit that it gives. */
#define TABLE_MEAN       4e-5
#define TABLE_MEAN_DIGIT 0.5e-5
#define TABLE_RMS        1.91e-3
#define TABLE_RMS_DIGIT  0.5e-5

struct table_subject {
    const struct attn_kernels *kernels;
    int lanes, failures;
    double sum, squares, worst, worst_at;
    int64_t n;
    float s[ATTN_KEY_BLOCK * LANES_MOST] __attribute__((aligned(ATTN_ALIGN)));
};

/** Weights 2^s of a block of keys, in place, as pairs of bf16; l is their sum. */
static void make_weights(struct table_subject *t, float *l)
{
    const float m[LANES_MOST] = {0};
    const int end = ATTN_KEY_BLOCK;
    memset(l, 0, LANES_MOST * sizeof *l);
    attn_enter(t->kernels);
    t->kernels->values->weights(1, m, &end, end, NULL, t->s, l);
    attn_leave(t->kernels);
}

static float weight_at(const struct table_subject *t, int key, int lane)
{
    uint32_t word;
    memcpy(&word, t->s + key / 2 * t->lanes + lane, sizeof word);
    return from_bits(key % 2 ? word & 0xffff0000u : word << 16);
}

static void table_fail(struct table_subject *t, double y, double got, const char *expected)
{
    if (t->failures++ < 10)
        printf("FAILED: the weight 2^%a is %a, expected %s\n", y, got, expected);
}

/** Arguments -octave - (first + i + 1/2) / n, for as many i as a block has. */
static void measure_block(struct table_subject *t, int octave, int64_t first, int64_t n)
{
    float l[LANES_MOST], y[ATTN_KEY_BLOCK * LANES_MOST];
    for (int i = 0; i < ATTN_KEY_BLOCK * t->lanes; i++)
        y[i] = t->s[i] = (float)(-octave - ((double)first + i + 0.5) / (double)n);
    make_weights(t, l);
    for (int i = 0; i < ATTN_KEY_BLOCK * t->lanes; i++) {
        const double error = (double)weight_at(t, i / t->lanes, i % t->lanes) / exp2((double)y[i]) - 1;
        t->sum += error;
        t->squares += error * error;
        t->n++;
        if (fabs(error) > t->worst) {
            t->worst = fabs(error);
            t->worst_at = (double)y[i];
        }
        if (!(fabs(error) <= EXP2_TABLE_MAX_RELATIVE))
            table_fail(t, (double)y[i], exp2((double)y[i]) * (1 + error), "what is nearer");
    }
}

static void check_table_special(struct table_subject *t)
{
    static const float x[] = {0.0f, -0.0f, -1.0f, -24.0f, -125.0f, -INFINITY, -1e4f, -3e38f, NAN, -NAN};
    enum { NUM = sizeof x / sizeof *x };
    for (int k = 0; k < NUM; k++) {
        float l[LANES_MOST];
        for (int i = 0; i < ATTN_KEY_BLOCK * t->lanes; i++)
            t->s[i] = x[k];
        make_weights(t, l);
        const float got = weight_at(t, 1, 1);
        if (isnan(x[k]) ? !isnan(got) || !isnan(l[1]) : x[k] < -1000 ? fabsf(got) >= 0x1p-126f || l[1] != 0 : 0)
            table_fail(t, (double)x[k], (double)got, isnan(x[k]) ? "NaN, as their sum" : "0, or a denormal for it");
        if (x[k] >= -125 && (got != exp2f(x[k]) || l[1] != ATTN_KEY_BLOCK * got))
            table_fail(t, (double)x[k], (double)got, "exactly that, and a sum of as many");
    }
}

static int check_table(const struct arguments *arguments)
{
    static struct table_subject t;
    struct attn_kernels kernels;
    const struct attn_demand demand = {.isa = attn_isa_row(arguments->isa), .pairs = 1, .insists = 1};
    attn_kernels_choose(&kernels, &demand);
    t.kernels = &kernels;
    t.lanes = kernels.vectors->lanes;
    const int64_t together = ATTN_KEY_BLOCK * t.lanes, least = 1 << 16; /* fewer do not tell the mean */
    const int64_t wanted = arguments->cases > least ? arguments->cases : least;
    const int64_t n = (wanted + together - 1) / together * together;
    for (int64_t first = 0; first < n; first += together)
        measure_block(&t, 0, first, n);
    const double mean = t.sum / (double)t.n, rms = sqrt(t.squares / (double)t.n);
    if (!(fabs(mean - TABLE_MEAN) <= TABLE_MEAN_DIGIT) || !(fabs(rms - TABLE_RMS) <= TABLE_RMS_DIGIT)) {
        printf("FAILED: relative errors have another mean or root mean square than %g and %g\n", TABLE_MEAN, TABLE_RMS);
        t.failures++;
    }
    for (int octave = 1; octave < 125; octave++)
        measure_block(&t, octave, 0, together);
    check_table_special(&t);
    printf("weights: mean error %.3g, root mean square %.4g, largest %.4g at %a, limit %.4g; %d failures\n", mean, rms,
           t.worst, t.worst_at, EXP2_TABLE_MAX_RELATIVE, t.failures);
    return t.failures != 0;
}

int main(int argc, char **argv)
{
    const struct arguments arguments = arguments_parse(argc, argv, 2000000);
    if (test_isa_has_table(arguments.isa))
        return check_table(&arguments);
    const struct attn_kernels kernels = attn_kernels_plain(attn_isa_row(arguments.isa));
    struct subject subject = {.limit = EXP2_SLEEF_MAX_ULP, .function = kernels.vectors->exp2};
    struct rng rng = rng_for_case(arguments.seed, 0);
    guard_catch_faults();
    snprintf(guard_case_line, sizeof guard_case_line, "repeat: check_exp --isa %s --seed %" PRIu64, arguments.isa,
             arguments.seed);
    const uint64_t spread = LAST_BITS / (uint64_t)arguments.cases;
    const uint32_t step = arguments.full || spread == 0 ? 1 : (uint32_t)spread;
    check_range(&subject, (uint32_t)rng_range(&rng, 0, step - 1), step);
    check_neighbours(&subject);
    check_special(&subject);
    check_lengths(&subject, &rng);
    printf("exp2: largest error %.4f ULP at %a, limit %.2f; %d failures\n", subject.worst, (double)subject.worst_at,
           subject.limit, subject.failures);
    if (subject.failures)
        printf("%s\n", guard_case_line);
    return subject.failures != 0;
}
