/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows, decays and features of linear attention (state_rows.h): what struct
 * attn_state_kernels has of one operation after the other. All bits count, but for
 * exponentials, which have the bound of their function.
 *
 * Products of decays are computed one factor after the other, from the key on as the
 * recurrence has it, or from the end of the chunk back, so their bits are known, too.
 */
#include "state_operands.h"
#include "dtype.h"
#include "floats.h"
#include "tolerance.h"

#include <float.h>

/** decay_of(): kernels/state_rows.h says how large its error is. */
#define DECAY_MAX_ULP 1.32

/* ------------------------------------------------------------ rows, decays -- */

/** Rows of cols numbers that are written in their order and in whole vectors, so that one may begin in the end of the
 * one before. */
static struct matrix draw_written(const struct tile_case *c, int n, int64_t cols)
{
    const int64_t whole = whole_vectors(c, cols);
    const ptrdiff_t pitch = rng_percent(c->rng, 50) ? (ptrdiff_t)whole : draw_pitch(c, cols);
    struct matrix m = draw_matrix(c, n, whole, pitch);
    remember(&m);
    return m;
}

/** Zeros, or ones, behind the columns of row r up to whole vectors, and behind these nothing new. */
static void expect_filled(const struct tile_case *c, const struct matrix *dst, int64_t r, int64_t cols, float with)
{
    const int64_t whole = whole_vectors(c, cols), end = r + 1 < dst->rows && dst->pitch < whole ? dst->pitch : whole;
    for (int64_t i = cols; i < end; i++)
        expect_float(c, "padding", r, i, dst->x[r * dst->pitch + i] + 0.0f, with);
    expect_kept(c, "gap", dst, r, end);
}

static void check_take_rows(const struct tile_case *c)
{
    const int n = draw_tokens(c);
    const int64_t cols = c->shape.plain || rng_percent(c->rng, 80) ? c->shape.d : 1;
    const struct drawn_rows src = draw_rows(c, c->shape.dtype, n, cols);
    const struct matrix dst = draw_written(c, n, cols);
    const float factor = c->shape.plain || rng_percent(c->rng, 50) ? 1.0f : rng_normal(c->rng);
    TIME_IF_WANTED(c, states_of(c)->take_rows(dst.x, dst.pitch, &src.rows, n, cols, factor));
    states_of(c)->take_rows(dst.x, dst.pitch, &src.rows, n, cols, factor);
    for (int r = 0; r < n; r++) {
        for (int64_t i = 0; i < cols; i++)
            expect_float(c, "dst", r, i, dst.x[r * dst.pitch + i], element_of(&src, r, i) * factor);
        expect_filled(c, &dst, r, cols, 0.0f);
    }
}

/** A logarithm of a decay: usual, tiny, of the size where results are denormal or vanish, far below, and the ends. */
static float draw_logarithm(const struct tile_case *c)
{
    const float x = (float)rng_uniform(c->rng);
    switch (c->shape.plain ? 0 : rng_range(c->rng, 0, 7)) {
    case 1:
        return -1e-4f * x;
    case 2:
        return -20 * x;
    case 3:
        return -86 - 20 * x;
    case 4:
        return -190 - 20 * x;
    case 5:
        return rng_percent(c->rng, 50) ? -INFINITY : -1e30f;
    case 6:
        return rng_percent(c->rng, 50) ? 0.0f : -0.0f;
    default:
        return -x;
    }
}

static void expect_decay(const struct tile_case *c, int64_t r, int64_t i, float got, float logarithm)
{
    const double exact = exp((double)logarithm);
    expect_within(c, "decay", r, i, got, exact, DECAY_MAX_ULP * ulp_of(exact));
}

static void check_take_decays(const struct tile_case *c)
{
    const int together = !c->shape.plain && rng_percent(c->rng, 30); /* those of tokens, where they lie */
    const int n = together ? 1 : draw_tokens(c);
    const int64_t cols = together ? rng_range(c->rng, 1, ATTN_CHUNK) : c->shape.d;
    struct drawn_rows src = draw_rows(c, c->shape.dtype, n, cols);
    const struct matrix dst = draw_written(c, n, cols);
    if (together) {
        src.rows = (struct attn_rows){.data = dst.x, .dtype = ATTN_F32};
        src.pointers[0] = (const char *)dst.x;
    }
    float logarithms[ATTN_CHUNK * MAX_CHANNELS];
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < cols; i++) {
            dtype_store(src.rows.dtype, (char *)(uintptr_t)src.pointers[r], i, draw_logarithm(c));
            logarithms[r * cols + i] = element_of(&src, r, i);
        }
    TIME_IF_WANTED(c, states_of(c)->take_decays(dst.x, dst.pitch, &src.rows, n, cols));
    states_of(c)->take_decays(dst.x, together ? 0 : dst.pitch, &src.rows, n, cols);
    for (int r = 0; r < n; r++) {
        for (int64_t i = 0; i < cols; i++)
            expect_decay(c, r, i, dst.x[r * dst.pitch + i], logarithms[r * cols + i]);
        expect_filled(c, &dst, r, cols, 1.0f);
    }
}

/* -------------------------------------------------------- products of decays -- */

static void check_within(const struct tile_case *c)
{
    const int n = draw_tokens(c);
    struct matrix decay = draw_decays(c, 1, n), within = draw_matrix(c, n, whole_vectors(c, n), ATTN_CHUNK);
    remember(&decay);
    remember(&within);
    TIME_IF_WANTED(c, states_of(c)->within(within.x, decay.x, n));
    states_of(c)->within(within.x, decay.x, n);
    for (int j = 0; j < n; j++) {
        float product = 1.0f;
        for (int i = j; i < n; i++) {
            product *= i > j ? decay.x[i] : 1.0f;
            expect_float(c, "within", i, j, within.x[i * ATTN_CHUNK + j], product);
        }
    }
    for (int i = 0; i < n; i++) {
        for (int64_t j = i + 1; j < whole_vectors(c, i + 1); j++)
            expect_float(c, "behind", i, j, within.x[i * ATTN_CHUNK + j] + 0.0f, 0.0f);
        expect_kept(c, "gap", &within, i, whole_vectors(c, i + 1));
    }
    expect_read(c, "decay", &decay);
}

static void check_scale_keys(const struct tile_case *c)
{
    const int n = draw_tokens(c);
    const int64_t dk = c->shape.d, whole = whole_vectors(c, n);
    struct matrix kt = draw_matrix(c, dk, whole, ATTN_CHUNK), by = draw_matrix(c, 1, whole, (ptrdiff_t)whole);
    for (int64_t i = 0; i < whole && c->shape.plain; i++)
        by.x[i] = 1.0f;
    plant(c, &kt);
    plant(c, &by);
    remember(&kt);
    remember(&by);
    TIME_IF_WANTED(c, states_of(c)->scale_keys(kt.x, dk, by.x, n));
    states_of(c)->scale_keys(kt.x, dk, by.x, n);
    for (int64_t i = 0; i < dk; i++) {
        for (int64_t j = 0; j < whole; j++)
            expect_float(c, "kt", i, j, kt.x[i * ATTN_CHUNK + j], kt.before[i * ATTN_CHUNK + j] * by.x[j]);
        expect_kept(c, "gap", &kt, i, whole);
    }
    expect_read(c, "by", &by);
}

/** Rows that fade, and what they fade by. */
struct fading {
    struct matrix src, decay, dst;
    int n;
    int64_t dk;
};

static struct fading draw_fading(const struct tile_case *c)
{
    struct fading f = {.n = draw_tokens(c), .dk = c->shape.d};
    f.src = draw_rows_apart(c, f.n, f.dk);
    f.decay = draw_decays(c, f.n, f.dk);
    f.dst = draw_matrix(c, f.n, f.dk, (ptrdiff_t)f.dk);
    plant(c, &f.src);
    remember(&f.src);
    remember(&f.decay);
    remember(&f.dst);
    return f;
}

static void check_decay_since(const struct tile_case *c)
{
    const struct fading f = draw_fading(c);
    TIME_IF_WANTED(c, states_of(c)->decay_since(f.dst.x, f.src.x, f.src.pitch, f.decay.x, f.n, f.dk));
    states_of(c)->decay_since(f.dst.x, f.src.x, f.src.pitch, f.decay.x, f.n, f.dk);
    for (int64_t e = 0; e < f.dk; e++) {
        float product = 1.0f;
        for (int i = 0; i < f.n; i++) {
            product *= f.decay.x[i * f.dk + e];
            expect_float(c, "dst", i, e, f.dst.x[i * f.dk + e], f.src.x[i * f.src.pitch + e] * product);
        }
    }
    expect_read(c, "src", &f.src);
    expect_read(c, "decay", &f.decay);
}

static void check_decay_until(const struct tile_case *c)
{
    const struct fading f = draw_fading(c);
    struct matrix whole = draw_matrix(c, 1, f.dk, (ptrdiff_t)f.dk);
    const int wanted = c->shape.plain || rng_percent(c->rng, 50);
    remember(&whole);
    TIME_IF_WANTED(c, states_of(c)->decay_until(f.dst.x, f.src.x, f.src.pitch, f.decay.x, f.n, f.dk, whole.x));
    states_of(c)->decay_until(f.dst.x, f.src.x, f.src.pitch, f.decay.x, f.n, f.dk, wanted ? whole.x : NULL);
    for (int64_t e = 0; e < f.dk; e++) {
        float product = 1.0f;
        for (int i = f.n - 1; i >= 0; i--) {
            expect_float(c, "dst", i, e, f.dst.x[i * f.dk + e], f.src.x[i * f.src.pitch + e] * product);
            product *= f.decay.x[i * f.dk + e];
        }
        expect_float(c, "whole", 0, e, whole.x[e], wanted ? product : whole.before[e]);
    }
    expect_read(c, "src", &f.src);
    expect_read(c, "decay", &f.decay);
}

/* ---------------------------------------------------------------- features -- */

/** e^(x - less), but for NaN at most e^60. The difference is rounded before it is an exponent, so what it loses, u
 * times itself, is lost relative to the result; its function has the rest. */
static void expect_positive(const struct tile_case *c, int64_t r, int64_t i, float got, double x, double less)
{
    const double y = x - less > 60 ? 60 : x - less, exact = exp(y);
    const double lost = y < -200 ? 0 : 1.001 * UNIT * fabs(y) * exact;
    expect_within(c, "feature", r, i, got, exact, lost + SLEEF_U10_MAX_ULP * ulp_of(exact + lost));
}

/** elu(x) + 1 */
static void expect_elu(const struct tile_case *c, int64_t r, int64_t i, float got, float x)
{
    const double exact = exp((double)x);
    if (x > 0)
        expect_float(c, "feature", r, i, got, x + 1.0f);
    else
        expect_within(c, "feature", r, i, got, exact, SLEEF_U10_MAX_ULP * ulp_of(exact));
}

/** The largest of a row, NaN not being one; what is finite has it where only -Inf is there. */
static float largest(const float *row, int64_t m)
{
    float most = -FLT_MAX;
    for (int64_t i = 0; i < m; i++)
        most = row[i] > most ? row[i] : most;
    return most;
}

static void check_features(const struct tile_case *c)
{
    const int n = draw_tokens(c), positive = c->shape.plain || rng_percent(c->rng, 70);
    const int64_t m = c->shape.d;
    struct matrix rows = draw_rows_apart(c, n, m), half = draw_matrix(c, 1, n, n);
    const float scale = c->shape.plain ? 1.0f : (float)RNG_PICK(c->rng, 1, 1, 10, 60, 200);
    for (int r = 0; r < n; r++) {
        half.x[r] = fabsf(half.x[r]) * (rng_percent(c->rng, 50) ? 1.0f : scale);
        for (int64_t i = 0; i < m; i++)
            rows.x[r * rows.pitch + i] = scale * draw_number(c);
    }
    plant(c, &half);
    remember(&rows);
    remember(&half);
    const int keys = !c->shape.plain && rng_percent(c->rng, 50);
    const struct attn_features x = {
        .rows = rows.x, .pitch = rows.pitch, .n = n, .m = m, .positive = positive, .half = keys ? half.x : NULL};
    TIME_IF_WANTED(c, states_of(c)->features(&x));
    states_of(c)->features(&x);
    for (int r = 0; r < n; r++) {
        const float *const row = rows.before + r * rows.pitch;
        const float less = keys ? half.x[r] : largest(row, m);
        for (int64_t i = 0; i < m; i++) {
            const float got = rows.x[r * rows.pitch + i];
            if (positive)
                expect_positive(c, r, i, got, (double)row[i], (double)less);
            else
                expect_elu(c, r, i, got, row[i]);
        }
        expect_kept(c, "gap", &rows, r, m);
    }
    expect_read(c, "half", &half);
}

static const struct row rows[] = {
    TILE_ROW("take_rows", HAS_STATES, check_take_rows),     TILE_ROW("take_decays", HAS_STATES, check_take_decays),
    TILE_ROW("within", HAS_STATES, check_within),           TILE_ROW("scale_keys", HAS_STATES, check_scale_keys),
    TILE_ROW("decay_since", HAS_STATES, check_decay_since), TILE_ROW("decay_until", HAS_STATES, check_decay_until),
    TILE_ROW("features", HAS_STATES, check_features),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    const struct attn_state_kernels *k = set->kernels->states;
    (void)row;
    return k->take_rows && k->take_decays && k->within && k->scale_keys && k->decay_since && k->decay_until &&
           k->features;
}

const struct group group_states = {
    .name = "states",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
