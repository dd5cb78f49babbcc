/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exponential that the kernels compute has SLEEF's bits, whether they call
 * SLEEF or have its polynomial inline: for every float that the softmax can
 * meet, and positive ones as far as the set goes, it is compared with the linked
 * SLEEF's function of the same instruction set, and where there are fused
 * multiply-adds with SLEEF's finz_ form, whose bits are the same on all
 * processors that have them.
 *
 *   all of x <= 0     -0, every denormal, and -Inf
 *   x > 0             as far as the set says: up to 128, up to 62 or not at all
 *   NaN               every payload; the result is a NaN, of any payload
 *
 * --all takes the 3.3 thousand million of them one by one. Otherwise it is
 * every 257th, from a start that the seed draws, and the places where range
 * reduction and scaling go wrong: all floats around the integers and halves,
 * where the rounding turns, down to where the last denormal result ends; the
 * powers of two, up to those that no longer fit an int; and the first denormal
 * arguments. Few cases (emulators, sanitizers) make all of that thinner.
 */
#include "rows.h"
#include "timing.h"

#include <math.h>
#include <string.h>

#define BLOCK        4096

#define BITS_OF_INF  0x7f800000u
#define SIGN         0x80000000u
#define SAMPLE_STEP  257
#define AROUND       2048
#define AROUND_POWER 64

/** By how much the sample is thinner than usual. */
static int thinned(const struct run *run)
{
    return run->cases < DEFAULT_CASES ? (int)((DEFAULT_CASES + run->cases - 1) / run->cases) : 1;
}

struct comparison_with {
    const char *name;
    exp2_function *function;
    int64_t compared;
};

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static int is_nan(uint32_t bits)
{
    return (bits & ~SIGN) > BITS_OF_INF;
}

/** Whether a float is one for which there must be SLEEF's bits. */
static int is_argument(const struct kernel_set *set, uint32_t bits)
{
    return bits >= SIGN || bits < bits_of(set->exp2_most) || is_nan(bits);
}

/* Arguments that wait to be compared; the last block is filled up with repetitions. */
struct batch {
    const struct kernel_set *set;
    struct run *run;
    struct comparison_with with[2];
    int n;
    _Alignas(64) uint32_t x[BLOCK];
};

static void flush(struct batch *b)
{
    static _Alignas(64) float x[BLOCK], got[BLOCK], expected[BLOCK];
    const int lanes = b->set->lanes, compared = b->n;
    if (compared == 0)
        return;
    while (b->n % lanes)
        b->x[b->n++] = b->x[0];
    memcpy(x, b->x, sizeof x);
    b->set->exp2(got, x, b->n);
    for (size_t w = 0; w < 2 && b->with[w].function; w++) {
        b->with[w].function(expected, x, b->n);
        b->with[w].compared += compared;
        if (memcmp(got, expected, (size_t)b->n * sizeof *got) == 0)
            continue;
        for (int i = 0; i < compared; i++)
            if (bits_of(got[i]) != bits_of(expected[i]) && !(isnan(got[i]) && isnan(expected[i])))
                report_failure(b->run, -1, "exp2(%a) is %a, and %a by %s", (double)x[i], (double)got[i],
                               (double)expected[i], b->with[w].name);
    }
    b->n = 0;
}

static void add(struct batch *b, uint32_t bits)
{
    if (!is_argument(b->set, bits))
        return;
    b->x[b->n++] = bits;
    if (b->n == BLOCK)
        flush(b);
}

/** The floats at a distance of up to reach from x, in steps of the last place. */
static void add_around(struct batch *b, float x, int reach)
{
    for (int i = -reach; i <= reach; i++)
        add(b, bits_of(x) + (uint32_t)i);
}

static void check(const struct row *row, const struct kernel_set *set, struct run *run)
{
    (void)row;
    static struct batch b;
    b = (struct batch){.set = set,
                       .run = run,
                       .with = {{"the linked SLEEF", set->exp2_linked, 0}, {"SLEEF's finz form", set->exp2_finz, 0}}};
    struct rng rng = begin_case(run, 0);
    const int thin = thinned(run), around = AROUND / thin, around_power = AROUND_POWER / thin;
    const uint32_t step = run->all ? 1 : SAMPLE_STEP * (uint32_t)thin;
    for (uint64_t bits = (uint64_t)rng_range(&rng, 0, step - 1); bits <= UINT32_MAX; bits += step)
        add(&b, (uint32_t)bits);
    if (!run->all) {
        for (int half = -2 * 152; half <= 2 * 128; half++)
            add_around(&b, 0.5f * (float)half, around);
        for (int exponent = -149; exponent <= 127; exponent++) {
            add_around(&b, ldexpf(1, exponent), around_power);
            add_around(&b, -ldexpf(1, exponent), around_power);
        }
        for (uint32_t i = 0; i <= (uint32_t)around;
             i++) { /* both zeros; both ends of NaN's payloads; -Inf and its neighbours */
            add(&b, i);
            add(&b, SIGN + i);
            add(&b, SIGN + BITS_OF_INF - i);
            add(&b, BITS_OF_INF + 1 + i);
            add(&b, SIGN + BITS_OF_INF + 1 + i);
            add(&b, SIGN - 1 - i);
            add(&b, UINT32_MAX - i);
        }
    }
    flush(&b);
    const int64_t all = (int64_t)bits_of(set->exp2_most) + (int64_t)SIGN + (SIGN - 1 - BITS_OF_INF);
    const int64_t least = all / step;
    for (size_t w = 0; w < 2 && b.with[w].function; w++)
        if (b.with[w].compared < least)
            report_failure(run, -1, "only %lld floats were compared with %s, of %lld", (long long)b.with[w].compared,
                           b.with[w].name, (long long)least);
}

static int has_code(const struct row *row, const struct kernel_set *set)
{
    (void)row;
    return set->exp2 && set->exp2_linked;
}

/** Of the linked SLEEF's function, for one vector; what the kernels compute is the row vf_exp2. */
static double time_row(const struct row *row, const struct kernel_set *set)
{
    static _Alignas(64) float x[MAX_LANES], y[MAX_LANES];
    struct timing timing = {0};
    (void)row;
    for (int i = 0; i < MAX_LANES; i++)
        x[i] = -0.37f * (float)i;
    while (timing_goes_on(&timing))
        for (int64_t i = 0; i < timing.repeat; i++)
            set->exp2_linked(y, x, set->lanes);
    return timing_result(&timing);
}

static const struct row rows[] = {{"exp2_bits", 0, NULL}};

const struct group group_exp2 = {
    .name = "exponential",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check,
    .time = time_row,
};
