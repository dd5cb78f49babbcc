/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of cosines and sines: frequencies, and what stretches them.
 *
 * All of it is in double until the last step, so that an angle of a million
 * radians is known to 1e-9. Functions are SLEEF's portable ones rather than
 * the processor's best or libm's, which makes a table the same on every
 * processor of an architecture.
 */
#include "attn/rope.h"

#include "api/check.h"
#include "api/error.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <sleef.h>

#define MAX_PAIRS 2048

#define TWO_PI    6.283185307179586

/** Integers up to here are exact in double. */
#define MAX_POSITION ((int64_t)1 << 53)

static const char *const scaling_names[] = {"ATTN_ROPE_PLAIN", "ATTN_ROPE_LINEAR", "ATTN_ROPE_NTK",
                                            "ATTN_ROPE_YARN",  "ATTN_ROPE_LLAMA3", "ATTN_ROPE_LONGROPE"};

/** Takes over the caller's config, whose struct may be older or newer than ours. */
static attn_status take_config(attn_rope_config *ours, const attn_rope_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_rope_config");
    return attn_take_struct("config", ours, sizeof *ours, ATTN_FIRST_SIZE(attn_rope_config, high_freq_factor), theirs);
}

/** That no field is set which the scaling does not look at. */
static attn_status check_unused(const attn_rope_config *c)
{
    enum { LINEAR = 1 << ATTN_ROPE_LINEAR, NTK = 1 << ATTN_ROPE_NTK, YARN = 1 << ATTN_ROPE_YARN };
    enum { LLAMA3 = 1 << ATTN_ROPE_LLAMA3, LONGROPE = 1 << ATTN_ROPE_LONGROPE };
    const struct {
        const char *name;
        double value;
        int users;
    } fields[] = {
        {"factor", c->factor, LINEAR | NTK | YARN | LLAMA3 | LONGROPE},
        {"original_length", (double)c->original_length, YARN | LLAMA3 | LONGROPE},
        {"beta_fast", c->beta_fast, YARN},
        {"beta_slow", c->beta_slow, YARN},
        {"attention_factor", c->attention_factor, YARN | LONGROPE},
        {"low_freq_factor", c->low_freq_factor, LLAMA3},
        {"high_freq_factor", c->high_freq_factor, LLAMA3},
        {"no_truncation", c->no_truncation, YARN},
        {"length", (double)c->length, LONGROPE},
    };
    const struct {
        const char *name;
        const double *array;
    } arrays[] = {{"short_factor", c->short_factor}, {"long_factor", c->long_factor}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value != 0 && !(fields[i].users >> c->scaling & 1))
            return attn_fail(ATTN_INVALID_ARGUMENT, "config.%s is %g; expected 0, as %s does not use it",
                             fields[i].name, fields[i].value, scaling_names[c->scaling]);
    for (int i = 0; i < 2; i++)
        if (arrays[i].array && c->scaling != ATTN_ROPE_LONGROPE)
            return attn_fail(ATTN_INVALID_ARGUMENT, "config.%s is set; expected NULL, as %s does not use it",
                             arrays[i].name, scaling_names[c->scaling]);
    return ATTN_OK;
}

/** Puts the default in the place of 0; anything else must be a number from lowest to highest. */
static attn_status take_number(const char *name, double *value, double lowest, double highest, const char *expected,
                               double otherwise)
{
    if (*value == 0)
        *value = otherwise;
    else if (!(*value >= lowest && *value <= highest))
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.%s is %g; expected %s, or 0 for %g", name, *value, expected,
                         otherwise);
    return ATTN_OK;
}

/** attention_factor, and what 0 stands for. */
static attn_status take_attention_factor(attn_rope_config *c, double by_default)
{
    return take_number("attention_factor", &c->attention_factor, (double)FLT_MIN, (double)FLT_MAX,
                       "a positive number that a float can hold", by_default);
}

static attn_status check_yarn(attn_rope_config *c)
{
    const double by_default = 0.1 * Sleef_logd1_u10purec(c->factor) + 1;
    if (c->base == 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.base is 1; expected more than 1 for ATTN_ROPE_YARN");
    CHECK(take_number("beta_fast", &c->beta_fast, DBL_MIN, DBL_MAX, "a positive number", 32));
    CHECK(take_number("beta_slow", &c->beta_slow, DBL_MIN, DBL_MAX, "a positive number", 1));
    if (c->beta_fast < c->beta_slow)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.beta_fast is %g; expected at least beta_slow, %g", c->beta_fast,
                         c->beta_slow);
    return take_attention_factor(c, by_default);
}

static attn_status check_divisors(const char *name, const double *divisors, int64_t pairs)
{
    if (!divisors)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.%s is NULL; expected %" PRId64 " divisors for ATTN_ROPE_LONGROPE", name, pairs);
    for (int64_t i = 0; i < pairs; i++)
        if (!(divisors[i] >= (double)FLT_MIN && divisors[i] <= (double)FLT_MAX))
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "config.%s[%" PRId64 "] is %g; expected a positive number that a float can hold", name, i,
                             divisors[i]);
    return ATTN_OK;
}

static attn_status check_longrope(attn_rope_config *c)
{
    CHECK(check_divisors("short_factor", c->short_factor, c->pairs));
    CHECK(check_divisors("long_factor", c->long_factor, c->pairs));
    if (c->length < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.length is %" PRId64 "; expected 0 or more", c->length);
    if (c->attention_factor == 0 && c->original_length < 2)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.original_length is %" PRId64
                         "; expected 2 or more for ATTN_ROPE_LONGROPE without attention_factor",
                         c->original_length);
    const double grown = Sleef_logd1_u10purec(c->factor);
    const double by_default =
        grown > 0 ? sqrt(1 + grown / Sleef_logd1_u10purec((double)c->original_length)) : 1; /* 1 of 1, too */
    return take_attention_factor(c, by_default);
}

static attn_status check_llama3(attn_rope_config *c)
{
    CHECK(take_number("low_freq_factor", &c->low_freq_factor, DBL_MIN, DBL_MAX, "a positive number", 1));
    CHECK(take_number("high_freq_factor", &c->high_freq_factor, DBL_MIN, DBL_MAX, "a positive number", 4));
    if (c->high_freq_factor <= c->low_freq_factor)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.high_freq_factor is %g; expected more than low_freq_factor, %g",
                         c->high_freq_factor, c->low_freq_factor);
    return ATTN_OK;
}

/** Folds factor into base: base' = base * factor^(pairs / (pairs - 1)), which makes the lowest frequency f / factor. */
static attn_status stretch_base(attn_rope_config *c)
{
    if (c->pairs == 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.pairs is 1; expected 2 or more for ATTN_ROPE_NTK");
    const double base = c->base * Sleef_powd1_u10purec(c->factor, (double)c->pairs / (double)(c->pairs - 1));
    if (!isfinite(base))
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.factor is %g; expected one by which a base of %g can be stretched in double",
                         c->factor, c->base);
    c->base = base;
    return ATTN_OK;
}

/** Checks every field, and puts in what 0 stands for. */
static attn_status check_config(attn_rope_config *c)
{
    if (c->pairs < 1 || c->pairs > MAX_PAIRS)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.pairs is %" PRId64 "; expected 1 to %d", c->pairs, MAX_PAIRS);
    CHECK(take_number("base", &c->base, 1, DBL_MAX, "a number from 1", 10000));
    if ((unsigned)c->scaling > ATTN_ROPE_LONGROPE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.scaling is %d; expected an attn_rope_scaling", (int)c->scaling);
    CHECK(check_unused(c));
    if (c->scaling == ATTN_ROPE_PLAIN)
        return ATTN_OK;
    if (!(c->factor >= 1 && c->factor <= DBL_MAX))
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.factor is %g; expected a number from 1 for %s", c->factor,
                         scaling_names[c->scaling]);
    if (c->scaling == ATTN_ROPE_NTK)
        return stretch_base(c);
    if (c->scaling == ATTN_ROPE_LINEAR)
        return ATTN_OK;
    if (c->original_length < 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.original_length is %" PRId64 "; expected 1 or more for %s",
                         c->original_length, scaling_names[c->scaling]);
    return c->scaling == ATTN_ROPE_YARN     ? check_yarn(c)
           : c->scaling == ATTN_ROPE_LLAMA3 ? check_llama3(c)
                                            : check_longrope(c);
}

static double clamp(double x, double lowest, double highest)
{
    return x < lowest ? lowest : x > highest ? highest : x;
}

/** YaRN: the index of the pair, not a whole number, that turns so many times in original_length positions. */
static double pair_of_rotations(const attn_rope_config *c, double rotations)
{
    const double length = (double)c->original_length;
    return (double)c->pairs * Sleef_logd1_u10purec(length / (rotations * TWO_PI)) / Sleef_logd1_u10purec(c->base);
}

/**
 * YaRN (Peng et al. 2023, section 3.2, "NTK-by-parts"): pairs that turn often keep their frequency, the slow ones get
 * f / factor, and a ramp over the index lies between. Its ends are numbers from 0 to 2 * pairs - 1, rounded outwards to
 * whole ones, as in the implementation that the authors published, unless no_truncation is set.
 */
static void interpolate_by_parts(const attn_rope_config *c, double *frequency)
{
    const double last = (double)(2 * c->pairs - 1);
    const double from = pair_of_rotations(c, c->beta_fast), to = pair_of_rotations(c, c->beta_slow);
    const double low = clamp(c->no_truncation ? from : floor(from), 0, last);
    double high = clamp(c->no_truncation ? to : ceil(to), 0, last);
    if (high == low)
        high += 0.001; /* a step */
    for (int64_t i = 0; i < c->pairs; i++) {
        const double ramp = clamp(((double)i - low) / (high - low), 0, 1);
        frequency[i] = frequency[i] / c->factor * ramp + frequency[i] * (1 - ramp);
    }
}

/**
 * Llama 3.1 (Grattafiori et al. 2024, "The Llama 3 herd of models", and the reference code that came with the model):
 * wavelengths beyond original_length / low_freq_factor are stretched, those below original_length / high_freq_factor
 * are kept, and between them the share that is kept grows linearly with the rotations in original_length.
 */
static void interpolate_by_wavelength(const attn_rope_config *c, double *frequency)
{
    for (int64_t i = 0; i < c->pairs; i++) {
        const double rotations = (double)c->original_length * frequency[i] / TWO_PI;
        const double kept = clamp((rotations - c->low_freq_factor) / (c->high_freq_factor - c->low_freq_factor), 0, 1);
        frequency[i] = frequency[i] / c->factor * (1 - kept) + frequency[i] * kept;
    }
}

/**
 * LongRoPE (Ding et al. 2024, "LongRoPE: extending LLM context window beyond 2 million tokens"): every pair has a
 * divisor of its own, and there are two sets of them, of which sequences beyond the length of the training take the
 * second.
 */
static void divide_each(const attn_rope_config *c, double *frequency)
{
    const double *divisors = c->length > c->original_length ? c->long_factor : c->short_factor;
    for (int64_t i = 0; i < c->pairs; i++)
        frequency[i] /= divisors[i];
}

static void compute_frequencies(const attn_rope_config *c, double *frequency)
{
    for (int64_t i = 0; i < c->pairs; i++) {
        frequency[i] = Sleef_powd1_u10purec(c->base, -(double)i / (double)c->pairs);
        if (c->scaling == ATTN_ROPE_LINEAR) /* Chen et al. 2023: positions are interpolated, p / factor */
            frequency[i] /= c->factor;
    }
    if (c->scaling == ATTN_ROPE_YARN)
        interpolate_by_parts(c, frequency);
    else if (c->scaling == ATTN_ROPE_LLAMA3)
        interpolate_by_wavelength(c, frequency);
    else if (c->scaling == ATTN_ROPE_LONGROPE)
        divide_each(c, frequency);
}

static attn_status check_rows(const attn_rope_config *c, const int64_t *positions, int64_t num, const float *table)
{
    int64_t bytes;
    if (num < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num is %" PRId64 "; expected 0 or more", num);
    if (__builtin_mul_overflow(num, 2 * c->pairs * (int64_t)sizeof *table, &bytes))
        return attn_fail(ATTN_SIZE_OVERFLOW,
                         "num is %" PRId64 "; expected fewer than 2^63 bytes for rows of %" PRId64 " pairs", num,
                         c->pairs);
    for (int64_t n = 0; positions && n < num; n++)
        if (positions[n] < -MAX_POSITION || positions[n] > MAX_POSITION)
            return attn_fail(ATTN_INVALID_ARGUMENT, "positions[%" PRId64 "] is %" PRId64 "; expected -2^53 to 2^53", n,
                             positions[n]);
    if (!table && num > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "table is NULL; expected room for %" PRId64 " bytes", bytes);
    if ((uintptr_t)table % sizeof *table)
        return attn_fail(ATTN_INVALID_ARGUMENT, "table is %p; expected an address aligned to %zu bytes",
                         (const void *)table, sizeof *table);
    return ATTN_OK;
}

attn_status attn_rope_table(const attn_rope_config *config, const int64_t *positions, int64_t num, float *table)
{
    attn_rope_config c;
    double frequency[MAX_PAIRS];
    CHECK(take_config(&c, config));
    CHECK(check_config(&c));
    CHECK(check_rows(&c, positions, num, table));
    compute_frequencies(&c, frequency);
    const double magnitude = c.scaling == ATTN_ROPE_YARN || c.scaling == ATTN_ROPE_LONGROPE ? c.attention_factor : 1;
    for (int64_t n = 0; n < num; n++) {
        const double position = (double)(positions ? positions[n] : n);
        float *row = table + n * 2 * c.pairs;
        for (int64_t i = 0; i < c.pairs; i++) {
            const Sleef_double_2 at = Sleef_sincosd1_u10purec(position * frequency[i]);
            row[i] = (float)(magnitude * at.y);
            row[c.pairs + i] = (float)(magnitude * at.x);
        }
    }
    return ATTN_OK;
}
