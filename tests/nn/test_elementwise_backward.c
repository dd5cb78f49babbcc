/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of norms, activations, gates and lookups, against formulas in double
 * that are checked by differences of the oracle's forward passes; in every mix of
 * types, in place, at the ends of the numbers, bit by bit under any number of
 * threads; and wrong arguments.
 *
 * A result may be off by so many units of 2^-24 of what it is a sum of, the sizes
 * of its terms; narrow ones are compared with the result in f32, rounded.
 */
#include "floats.h"
#include "memory.h"

#define UNIT 0x1p-24

static int64_t width(struct memory *m)
{
    return RNG_PICK(&m->rng, 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 48, 65, 97, 128, 300);
}

static int64_t tokens_of(struct memory *m)
{
    return RNG_PICK(&m->rng, 0, 1, 1, 2, 5, 9, 17, 70);
}

static void expect_near(const char *what, int64_t at, double got, double expected, double bound)
{
    if (isnan(expected) ? !isnan(got) : got != expected && !(fabs(got - expected) <= bound))
        fail_msg("%s: %s[%d] is %.9g; expected %.9g within %.3g", guard_case_line, what, (int)at, got, expected, bound);
}

/** Both f32 and, as a tensor of another type, what rounds it. */
static attn_tensor narrow_like(struct memory *m, const attn_tensor *t)
{
    return place_rows_of(m, rng_percent(&m->rng, 50) ? ATTN_BF16 : ATTN_F16, t->shape[0], t->shape[2], t->shape[3]);
}

/* -------------------------------------------------------------- activations -- */

/** A derivative, and the size of what it is a sum of. */
struct slope {
    double value, size;
};

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static struct slope slope_of(attn_activation activation, double x)
{
    const double phi = exp(-x * x / 2) / sqrt(2 * M_PI), below = erfc(-x / M_SQRT2) / 2;
    const double inner = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), cosh_inner = cosh(inner);
    const double bent = isinf(x) || isinf(cosh_inner)
                            ? 0
                            : 0.5 * x * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x) / cosh_inner / cosh_inner;
    const double over = isinf(x) ? 0 : x * logistic(x) * logistic(-x), c = cosh(x);
    switch (activation) {
    case ATTN_ACTIVATION_RELU:
        return (struct slope){isnan(x) ? NAN : x > 0, 1};
    case ATTN_ACTIVATION_GELU:
        return (struct slope){below + (isinf(x) ? 0 : x * phi), below + (isinf(x) ? 0 : fabs(x) * phi)};
    case ATTN_ACTIVATION_GELU_TANH:
        return (struct slope){logistic(2 * inner) + bent, 1 + fabs(bent)};
    case ATTN_ACTIVATION_SILU:
        return (struct slope){logistic(x) + over, logistic(x) + fabs(over)};
    case ATTN_ACTIVATION_TANH:
        return (struct slope){isnan(x) ? NAN : 1 / c / c, 1};
    case ATTN_ACTIVATION_SIGMOID:
        return (struct slope){logistic(x) * logistic(-x), logistic(x) * logistic(-x)};
    default:
        return (struct slope){1, 1};
    }
}

/** Two roundings of products, and what an exponential whose argument is off by 2^-24 is off by. */
static double units_of_slope(double x)
{
    return 12 + 2 * fmin(fabs(x), 100) * (1 + fmin(fabs(x), 20));
}

static void test_slopes(void **state)
{
    (void)state;
    for (int a = 0; a <= ATTN_ACTIVATION_LAST; a++)
        for (double x = -12; x < 12; x += 0.0937) {
            const double step = 1e-4;
            if (a == ATTN_ACTIVATION_RELU && fabs(x) < 2 * step)
                continue;
            const double rise = oracle_take(0)->activate((attn_activation)a, x + step) -
                                oracle_take(0)->activate((attn_activation)a, x - step);
            assert_true(fabs(rise / (2 * step) - slope_of((attn_activation)a, x).value) < 1e-7);
        }
}

static const float ends[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-42f, 0.5f,     -0.5f,     3,   -3,
                             9,    -9,    20,     -20,     60,     -60,      95,        -95, 200,
                             -200, 1e10f, -1e10f, 3e38f,   -3e38f, INFINITY, -INFINITY, NAN};
enum { ENDS = sizeof ends / sizeof *ends };

static void test_activations(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(280); n++) {
        struct memory *m = memory_create("activations_backward", n);
        const attn_activation activation = (attn_activation)(n % (ATTN_ACTIVATION_LAST + 1));
        const int64_t batch = RNG_PICK(&m->rng, 1, 2, 3), tokens = tokens_of(m), channels = width(m);
        const attn_tensor x = place_rows_of(m, random_dtype(m), batch, tokens, channels),
                          d_out = place_rows_of(m, random_dtype(m), batch, tokens, channels),
                          d_x = place_rows(m, batch, tokens, channels);
        fill(m, &x, (double)RNG_PICK(&m->rng, 1, 4, 30));
        fill(m, &d_out, 1);
        const double *xs = read_all(m, &x), *ds = read_all(m, &d_out);
        memory_seal(m);
        OK(attn_activate_backward(activation, &x, &d_out, &d_x, (int)rng_range(&m->rng, 0, 3)));
        const double *got = read_all(m, &d_x);
        for (int64_t i = 0; i < batch * tokens * channels; i++) {
            const struct slope slope = slope_of(activation, xs[i]);
            expect_near("d_x", i, got[i], ds[i] * slope.value,
                        units_of_slope(xs[i]) * UNIT * fabs(ds[i]) * slope.size + 1e-37);
        }
        const attn_tensor narrow = narrow_like(m, &d_x);
        OK(attn_activate_backward(activation, &x, &d_out, &narrow, 2));
        assert_rounded("d_x", &narrow, &d_x);
        memory_destroy(m);
    }
}

/** Where x is 0, tiny, huge or not finite the slope has its limit; in place, of x and of d_out. */
static void test_ends(void **state)
{
    (void)state;
    for (int a = 0; a <= ATTN_ACTIVATION_LAST; a++)
        for (int in_place = 0; in_place < 3; in_place++) {
            float x[ENDS], d[ENDS], out[ENDS];
            for (int i = 0; i < ENDS; i++)
                x[i] = ends[i], d[i] = 2;
            float *const to = in_place == 0 ? out : in_place == 1 ? x : d;
            const attn_tensor tx = attn_btc(x, 1, 2, ENDS / 2), td = attn_btc(d, 1, 2, ENDS / 2),
                              tt = attn_btc(to, 1, 2, ENDS / 2);
            OK(attn_activate_backward((attn_activation)a, &tx, &td, &tt, 1));
            snprintf(guard_case_line, sizeof guard_case_line, "activation %d, in place %d", a, in_place);
            for (int i = 0; i < ENDS; i++) {
                if (isnan(ends[i]) && a == ATTN_ACTIVATION_NONE)
                    continue; /* 2, whatever x is */
                const struct slope slope = slope_of((attn_activation)a, (double)ends[i]);
                expect_near("d_x", i, (double)to[i], 2 * slope.value,
                            2 * units_of_slope((double)ends[i]) * UNIT * slope.size + 1e-36);
            }
        }
}

static void test_gates(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(280); n++) {
        struct memory *m = memory_create("gates_backward", n);
        const attn_activation activation = (attn_activation)(n % (ATTN_ACTIVATION_LAST + 1));
        const int64_t batch = RNG_PICK(&m->rng, 1, 2, 3), tokens = tokens_of(m), channels = width(m);
        const int64_t all = batch * tokens * channels;
        attn_tensor in[3], out[2];
        double *values[3];
        for (int i = 0; i < 3; i++) {
            in[i] = place_rows_of(m, random_dtype(m), batch, tokens, channels);
            fill(m, &in[i], 2);
            values[i] = read_all(m, &in[i]);
        }
        for (int i = 0; i < 2; i++)
            out[i] = place_rows(m, batch, tokens, channels);
        const int wanted = (int)rng_range(&m->rng, 1, 3);
        memory_seal(m);
        OK(attn_gate_backward(activation, &in[0], &in[1], &in[2], wanted & 1 ? &out[0] : NULL,
                              wanted & 2 ? &out[1] : NULL, (int)rng_range(&m->rng, 0, 3)));
        double *got[2] = {read_all(m, &out[0]), read_all(m, &out[1])};
        for (int64_t i = 0; i < all; i++) {
            const double x = values[0][i], up = values[1][i], d = values[2][i];
            const struct slope slope = slope_of(activation, x);
            const double y = oracle_take(0)->activate(activation, x), units = units_of_slope(x) * UNIT;
            if (wanted & 1)
                expect_near("d_gate", i, got[0][i], d * up * slope.value, units * fabs(d * up) * slope.size + 1e-37);
            if (wanted & 2)
                expect_near("d_up", i, got[1][i], d * y,
                            units * fabs(d * y) + 1e-15 * fabs(d * x) + 1e-37); /* 1 + erf */
        }
        for (int i = 0; i < 2; i++) {
            const attn_tensor narrow = narrow_like(m, &out[i]);
            if (!(wanted & 1 << i))
                continue;
            OK(attn_gate_backward(activation, &in[0], &in[1], &in[2], i ? NULL : &narrow, i ? &narrow : NULL, 1));
            assert_rounded(i ? "d_up" : "d_gate", &narrow, &out[i]);
        }
        memory_destroy(m);
    }
}

/** Both gradients where gate and up were: an element is read before it is written. */
static void test_gates_in_place(void **state)
{
    (void)state;
    enum { N = 77 };
    float gate[N], up[N], d[N], apart[2][N];
    struct rng rng = rng_for_case(5, 1);
    for (int i = 0; i < N; i++)
        gate[i] = rng_normal(&rng), up[i] = rng_normal(&rng), d[i] = rng_normal(&rng);
    const attn_tensor tg = attn_btc(gate, 1, 7, 11), tu = attn_btc(up, 1, 7, 11), td = attn_btc(d, 1, 7, 11),
                      a = attn_btc(apart[0], 1, 7, 11), b = attn_btc(apart[1], 1, 7, 11);
    OK(attn_gate_backward(ATTN_ACTIVATION_SILU, &tg, &tu, &td, &a, &b, 1));
    OK(attn_gate_backward(ATTN_ACTIVATION_SILU, &tg, &tu, &td, &tg, &tu, 1));
    assert_memory_equal(gate, apart[0], sizeof gate);
    assert_memory_equal(up, apart[1], sizeof up);
}

/* -------------------------------------------------------------------- norms -- */

/** Gradients of a norm in double, and the sizes of their terms. */
struct norm_gradients {
    double *x, *gamma, *beta, *x_size, *gamma_size, *beta_size;
};

static struct norm_gradients norm_backward(struct memory *m, attn_norm kind, int64_t rows, int64_t n, const double *x,
                                           const double *gamma, double eps, const double *d)
{
    struct norm_gradients g = {zeros(m, rows * n), zeros(m, n), zeros(m, n),
                               zeros(m, rows * n), zeros(m, n), zeros(m, n)};
    for (int64_t r = 0; r < rows; r++) {
        const double *row = x + r * n, *dr = d + r * n;
        double mean = 0, squares = 0, of_g = 0, of_gx = 0, largest = 0, sum_g = 0, sum_gx = 0;
        for (int64_t c = 0; c < n; c++) {
            mean += kind == ATTN_NORM_LAYER ? row[c] / (double)n : 0;
            largest = fmax(largest, fabs(row[c]));
        }
        for (int64_t c = 0; c < n; c++)
            squares += (row[c] - mean) * (row[c] - mean);
        const double inverse = 1 / sqrt(squares / (double)n + eps);
        for (int64_t c = 0; c < n; c++) {
            const double w = dr[c] * (gamma ? gamma[c] : 1), xh = (row[c] - mean) * inverse;
            of_g += w / (double)n;
            of_gx += w * xh / (double)n;
            sum_g += fabs(w) / (double)n;
            sum_gx += fabs(w) * (fabs(xh) + largest * inverse) / (double)n;
        }
        for (int64_t c = 0; c < n; c++) {
            const double w = dr[c] * (gamma ? gamma[c] : 1), xh = (row[c] - mean) * inverse;
            const double xh_size = fabs(xh) + largest * inverse;
            g.x[r * n + c] = (w - (kind == ATTN_NORM_LAYER ? of_g : 0) - xh * of_gx) * inverse;
            g.x_size[r * n + c] = (fabs(w) + sum_g + xh_size * sum_gx) * inverse;
            g.gamma[c] += dr[c] * xh;
            g.gamma_size[c] += fabs(dr[c]) * xh_size;
            g.beta[c] += dr[c];
            g.beta_size[c] += fabs(dr[c]);
        }
    }
    return g;
}

/** Differences of sum d * norm(x) by x and gamma. */
static void test_norm_formula(void **state)
{
    (void)state;
    for (int kind = 0; kind <= ATTN_NORM_RMS; kind++) {
        enum { ROWS = 3, N = 5 };
        struct memory *m = memory_create("norm_formula", (uint64_t)kind);
        double x[ROWS * N], gamma[N], d[ROWS * N], y[ROWS * N];
        for (int i = 0; i < ROWS * N; i++)
            x[i] = (double)rng_normal(&m->rng), d[i] = (double)rng_normal(&m->rng);
        for (int i = 0; i < N; i++)
            gamma[i] = (double)rng_normal(&m->rng);
        const struct norm_gradients g = norm_backward(m, (attn_norm)kind, ROWS, N, x, gamma, 1e-3, d);
        const struct oracle_norm norm = {(attn_norm)kind, N, gamma, NULL, 1e-3};
        for (int i = 0; i < ROWS * N + N; i++) {
            double *const at = i < ROWS * N ? &x[i] : &gamma[i - ROWS * N], kept = *at, step = 1e-5;
            double rise = 0;
            for (int side = 1; side >= -1; side -= 2) {
                *at = kept + side * step;
                oracle_take(0)->normalise(&norm, ROWS, x, y);
                for (int k = 0; k < ROWS * N; k++)
                    rise += side * d[k] * y[k];
            }
            *at = kept;
            assert_true(fabs(rise / (2 * step) - (i < ROWS * N ? g.x[i] : g.gamma[i - ROWS * N])) < 1e-7);
        }
        memory_destroy(m);
    }
}

/** Roundings: those of the mean, the variance, and sums of n terms in lanes and of rows in order. */
static double units_of_norm(int64_t n)
{
    return 20 + 2 * sqrt((double)n);
}

static void test_norms(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(300); n++) {
        struct memory *m = memory_create("norms_backward", n);
        const attn_norm kind = (attn_norm)(n % 2);
        const int64_t batch = RNG_PICK(&m->rng, 1, 2, 3), tokens = rng_percent(&m->rng, 10) ? 400 : tokens_of(m);
        const int64_t channels = width(m), rows = batch * tokens;
        const attn_tensor x = place_rows_of(m, random_dtype(m), batch, tokens, channels),
                          d_out = place_rows_of(m, random_dtype(m), batch, tokens, channels),
                          d_x = place_rows(m, batch, tokens, channels), d_gamma = place_rows(m, 1, 1, channels),
                          d_beta = place_rows(m, 1, 1, channels);
        fill(m, &x, 1);
        fill(m, &d_out, 1);
        const int scaled = rng_percent(&m->rng, 70), wanted = (int)rng_range(&m->rng, 1, kind == ATTN_NORM_RMS ? 3 : 7);
        attn_tensor gamma = {0};
        if (scaled) {
            gamma = place_rows_of(m, random_dtype(m), 1, 1, channels);
            fill(m, &gamma, 1);
        }
        attn_norm_gradients gradients = attn_norm_gradients_default();
        gradients.x = wanted & 1 ? &d_x : NULL;
        gradients.gamma = wanted & 2 ? &d_gamma : NULL;
        gradients.beta = wanted & 4 ? &d_beta : NULL;
        gradients.num_threads = (int)rng_range(&m->rng, 0, 3);
        gradients.accumulate = rng_percent(&m->rng, 40);
        for (int64_t c = 0; c < channels; c++) {
            ((float *)d_gamma.data)[c] = 3;
            ((float *)d_beta.data)[c] = -2;
        }
        memory_seal(m);
        OK(attn_normalise_backward(kind, &x, scaled ? &gamma : NULL, 1e-5f, &d_out, &gradients, NULL, 0));
        const struct norm_gradients g =
            norm_backward(m, kind, rows, channels, read_all(m, &x), scaled ? read_all(m, &gamma) : NULL, (double)1e-5f,
                          read_all(m, &d_out));
        const double units = units_of_norm(channels) * UNIT,
                     sums = (units_of_norm(channels) + 2 * sqrt((double)rows)) * UNIT;
        const double *got = read_all(m, &d_x);
        for (int64_t i = 0; wanted & 1 && i < rows * channels; i++)
            expect_near("d_x", i, got[i], g.x[i], units * g.x_size[i] + 1e-37);
        for (int64_t c = 0; c < channels; c++) {
            const double before = gradients.accumulate ? 1 : 0;
            if (wanted & 2)
                expect_near("d_gamma", c, (double)((float *)d_gamma.data)[c], g.gamma[c] + 3 * before,
                            sums * (g.gamma_size[c] + 3) + 1e-37);
            if (wanted & 4)
                expect_near("d_beta", c, (double)((float *)d_beta.data)[c], g.beta[c] - 2 * before,
                            sums * (g.beta_size[c] + 2) + 1e-37);
        }
        const attn_tensor narrow = narrow_like(m, &d_x);
        gradients.x = &narrow;
        gradients.gamma = gradients.beta = NULL;
        OK(attn_normalise_backward(kind, &x, scaled ? &gamma : NULL, 1e-5f, &d_out, &gradients, NULL, 0));
        if (wanted & 1)
            assert_rounded("d_x", &narrow, &d_x);
        memory_destroy(m);
    }
}

/** Threads, workspaces, and d_x in the place of d_out change no bit. */
static void test_norm_bits(void **state)
{
    (void)state;
    enum { B = 2, T = 333, C = 65 };
    struct memory *m = memory_create("norm_bits", 0);
    const attn_tensor x = random_rows(m, B, T, C), d_out = random_rows(m, B, T, C);
    attn_tensor d_x[2], d_gamma[2], d_beta[2];
    for (int i = 0; i < 2; i++) {
        d_x[i] = place_rows(m, B, T, C);
        d_gamma[i] = place_rows(m, 1, 1, C);
        d_beta[i] = place_rows(m, 1, 1, C);
    }
    for (int threads = 1; threads <= 8; threads++) {
        const int i = threads > 1;
        attn_norm_gradients gradients = attn_norm_gradients_default();
        gradients.x = &d_x[i];
        gradients.gamma = &d_gamma[i];
        gradients.beta = &d_beta[i];
        gradients.num_threads = threads;
        const size_t size = attn_normalise_backward_workspace_size(B, T, C, &gradients);
        char byte;
        REFUSES(m, attn_normalise_backward(ATTN_NORM_LAYER, &x, NULL, 1e-5f, &d_out, &gradients, &byte, 1),
                ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 1");
        const size_t least = said_least();
        assert_true(least <= size);
        struct guard guard = guard_create(least);
        OK(attn_normalise_backward(ATTN_NORM_LAYER, &x, NULL, 1e-5f, &d_out, &gradients, guard_place(&guard, least, 1),
                                   least));
        assert_true(guard_intact(&guard));
        guard_destroy(&guard);
        assert_true(equal_bits(&d_x[0], &d_x[i]));
        assert_true(equal_bits(&d_gamma[0], &d_gamma[i]));
        assert_true(equal_bits(&d_beta[0], &d_beta[i]));
    }
    attn_norm_gradients gradients = attn_norm_gradients_default();
    gradients.x = &d_out;
    mark_output(m, &d_out);
    OK(attn_normalise_backward(ATTN_NORM_LAYER, &x, NULL, 1e-5f, &d_out, &gradients, NULL, 0));
    assert_true(equal_bits(&d_out, &d_x[0]));
    nn_end_refusals();
    memory_destroy(m);
}

/* ------------------------------------------------------------------ lookups -- */

static void test_lookups(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(150); n++) {
        struct memory *m = memory_create("lookups_backward", n);
        const int64_t batch = RNG_PICK(&m->rng, 1, 2, 3), tokens = tokens_of(m), channels = width(m);
        const int64_t rows = rng_range(&m->rng, 1, 40), count = batch * tokens;
        const attn_tensor d_out = place_rows_of(m, random_dtype(m), batch, tokens, channels);
        attn_tensor table[2];
        int32_t ids[3 * 70];
        fill(m, &d_out, 1);
        for (int64_t i = 0; i < count; i++)
            ids[i] = (int32_t)rng_range(&m->rng, 0, rng_percent(&m->rng, 50) ? 0 : rows - 1);
        const float scale = rng_percent(&m->rng, 50) ? 0 : 1.5f;
        const int accumulate = rng_percent(&m->rng, 50);
        for (int i = 0; i < 2; i++) {
            table[i] = place_rows(m, 1, rows, channels);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < channels; c++)
                    tensor_set(&table[i], 0, 0, r, c, 1);
        }
        double *expected = zeros(m, rows * channels), *sizes = zeros(m, rows * channels);
        const double *d = read_all(m, &d_out);
        for (int64_t i = 0; i < count; i++)
            for (int64_t c = 0; c < channels; c++) {
                expected[ids[i] * channels + c] += (double)(scale == 0 ? 1 : scale) * d[i * channels + c];
                sizes[ids[i] * channels + c] += 2 * fabs(d[i * channels + c]);
            }
        memory_seal(m);
        OK(attn_embed_backward(ids, scale, &d_out, &table[0], accumulate, 1));
        OK(attn_embed_backward(ids, scale, &d_out, &table[1], accumulate, (int)rng_range(&m->rng, 2, 8)));
        assert_true(equal_bits(&table[0], &table[1]));
        const double *got = read_all(m, &table[0]);
        for (int64_t i = 0; i < rows * channels; i++)
            expect_near("d_table", i, got[i], expected[i] + accumulate,
                        (4 + 2 * sqrt((double)count)) * UNIT * (sizes[i] + 1));
        memory_destroy(m);
    }
}

/* ---------------------------------------------------------- wrong arguments -- */

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("elementwise_backward wrong_arguments", 0);
    const attn_tensor x = random_rows(m, 2, 3, 5), d = random_rows(m, 2, 3, 5), up = random_rows(m, 2, 3, 5);
    const attn_tensor to = place_rows(m, 2, 3, 5), other = place_rows(m, 2, 3, 5), sum = place_rows(m, 1, 1, 5),
                      beta = place_rows(m, 1, 1, 5), table = place_rows(m, 1, 4, 5);
    int32_t ids[6] = {0, 1, 2, 3, 0, 1};
    attn_norm_gradients all = attn_norm_gradients_default();
    all.x = &to;
    all.gamma = &sum;
    all.beta = &beta;
    memory_seal(m);
#define TENSOR(t, assignment) CHANGED(attn_tensor, t, assignment)
#define ACTIVATE(kind, input, gradient, out, threads, words)                                                           \
    REFUSES(m, attn_activate_backward(kind, input, gradient, out, threads), ANY_ERROR, words)
    ACTIVATE((attn_activation)99, &x, &d, &to, 0, "activation is 99");
    ACTIVATE(ATTN_ACTIVATION_TANH, NULL, &d, &to, 0, "x is NULL");
    ACTIVATE(ATTN_ACTIVATION_TANH, &x, NULL, &to, 0, "d_out is NULL");
    ACTIVATE(ATTN_ACTIVATION_TANH, &x, &d, NULL, 0, "d_x is NULL");
    ACTIVATE(ATTN_ACTIVATION_TANH, &x, TENSOR(d, shape[2] = 2), &to, 0, "d_out.shape[2] is 2");
    ACTIVATE(ATTN_ACTIVATION_TANH, &x, &d, TENSOR(to, shape[3] = 4), 0, "d_x.shape[3] is 4");
    ACTIVATE(ATTN_ACTIVATION_TANH, &x, &d, TENSOR(to, stride[2] = 0), 0, "d_x|stride");
    ACTIVATE(ATTN_ACTIVATION_TANH, &x, &d, TENSOR(x, dtype = ATTN_BF16), 0, "d_x|x");
    ACTIVATE(ATTN_ACTIVATION_TANH, &x, &d, &to, -1, "num_threads is -1");
#define GATE(gate, second, gradient, first, last, words)                                                               \
    REFUSES(m, attn_gate_backward(ATTN_ACTIVATION_SILU, gate, second, gradient, first, last, 0), ANY_ERROR, words)
    GATE(NULL, &up, &d, &to, &other, "gate is NULL");
    GATE(&x, NULL, &d, &to, &other, "up is NULL");
    GATE(&x, &up, NULL, &to, &other, "d_out is NULL");
    GATE(&x, &up, &d, NULL, NULL, "d_gate and d_up are NULL");
    GATE(&x, &up, &d, &to, &to, "d_up|d_gate");
    GATE(&x, TENSOR(up, shape[3] = 4), &d, &to, &other, "up.shape[3] is 4");
    GATE(&x, &up, &d, TENSOR(to, dtype = ATTN_I8), &other, "d_gate.dtype");
    REFUSES(m, attn_gate_backward((attn_activation)-1, &x, &up, &d, &to, NULL, 0), ANY_ERROR, "activation is -1");
#define NORM(kind, input, weight, e, gradient, gradients, words)                                                       \
    REFUSES(m, attn_normalise_backward(kind, input, weight, e, gradient, gradients, NULL, 0), ANY_ERROR, words)
#define GRADIENTS(assignment) CHANGED(attn_norm_gradients, all, assignment)
    const attn_norm_gradients none = attn_norm_gradients_default();
    NORM((attn_norm)7, &x, NULL, 0, &d, &all, "norm is 7");
    NORM(ATTN_NORM_LAYER, NULL, NULL, 0, &d, &all, "x is NULL");
    NORM(ATTN_NORM_LAYER, &x, NULL, 0, NULL, &all, "d_out is NULL");
    NORM(ATTN_NORM_LAYER, &x, NULL, 0, &d, NULL, "gradients is NULL; expected where to put gradients");
    NORM(ATTN_NORM_LAYER, &x, NULL, 0, &d, &none, "gradients.x, gamma and beta are NULL");
    NORM(ATTN_NORM_LAYER, &x, NULL, -1, &d, &all, "eps is -1; expected a finite number, 0 or more");
    NORM(ATTN_NORM_LAYER, &x, TENSOR(sum, shape[3] = 4), 0, &d, &all, "gamma.shape[3] is 4");
    NORM(ATTN_NORM_RMS, &x, NULL, 0, &d, &all, "gradients.beta is set; expected NULL with ATTN_NORM_RMS");
    NORM(ATTN_NORM_LAYER, &x, NULL, 0, &d, GRADIENTS(gamma = WITHIN(attn_tensor, sum, dtype = ATTN_BF16)),
         "gradients.gamma|bf16");
    NORM(ATTN_NORM_LAYER, &x, NULL, 0, &d, GRADIENTS(beta = &sum), "gradients.beta|gradients.gamma");
    NORM(ATTN_NORM_LAYER, &x, NULL, 0, &d, GRADIENTS(x = &x), "gradients.x|x");
    NORM(ATTN_NORM_LAYER, &x, NULL, 0, &d, GRADIENTS(num_threads = -2), "gradients.num_threads is -2");
    assert_true(attn_normalise_backward_workspace_size(1, 1, -1, &all) == SIZE_MAX);
    assert_true(attn_normalise_backward_workspace_size(1, 1, INT64_MAX / 2, &all) == SIZE_MAX);
#define EMBED(numbers, scale, gradient, out, threads, words)                                                           \
    REFUSES(m, attn_embed_backward(numbers, scale, gradient, out, 0, threads), ANY_ERROR, words)
    EMBED(NULL, 0, &d, &table, 0, "ids is NULL");
    EMBED(ids, 0, NULL, &table, 0, "d_out is NULL");
    EMBED(ids, 0, &d, NULL, 0, "d_table is NULL");
    EMBED(ids, INFINITY, &d, &table, 0, "scale is inf; expected a finite number");
    EMBED(ids, 0, &d, TENSOR(table, shape[2] = 3), 0, "ids[3] is 3");
    EMBED(ids, 0, &d, TENSOR(table, dtype = ATTN_F16), 0, "d_table|f16");
    EMBED(ids, 0, &d, TENSOR(table, stride[2] = 0), 0, "d_table|stride");
    EMBED(ids, 0, &d, &table, -1, "num_threads is -1");
    ids[4] = -1;
    EMBED(ids, 0, &d, &table, 0, "ids[4] is -1");
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slopes),         cmocka_unit_test(test_activations),
        cmocka_unit_test(test_ends),           cmocka_unit_test(test_gates),
        cmocka_unit_test(test_gates_in_place), cmocka_unit_test(test_norm_formula),
        cmocka_unit_test(test_norms),          cmocka_unit_test(test_norm_bits),
        cmocka_unit_test(test_lookups),        cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
