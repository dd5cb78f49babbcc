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
 */
#include "arguments.h"
#include "dispatch.h"
#include "guard.h"
#include "random.h"
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

int main(int argc, char **argv)
{
    const struct arguments arguments = arguments_parse(argc, argv, 2000000);
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
