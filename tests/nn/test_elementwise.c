/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms, activations, gates, embeddings and positions: against the oracle, in
 * place, bit by bit under any number of threads, and wrong arguments.
 */
#include "floats.h"
#include "memory.h"

#include <float.h>

static int64_t width(struct memory *m)
{
    return RNG_PICK(&m->rng, 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 33, 47, 48, 49, 95, 96, 97, 128, 129,
                    300);
}

static int64_t tokens_of(struct memory *m)
{
    return RNG_PICK(&m->rng, 0, 1, 1, 2, 5, 9, 17);
}

/** out, or x itself, which then is no input any more. */
static attn_tensor out_or(struct memory *m, const attn_tensor *x)
{
    if (rng_percent(&m->rng, 60))
        return place_rows(m, x->shape[0], x->shape[2], x->shape[3]);
    mark_output(m, x);
    return *x;
}

/* ------------------------------------------------------------------- norms -- */

/** What the elements of a normalised row are made from: terms before the mean is taken off may cancel. */
static double *norm_sizes(struct memory *m, const struct oracle_norm *norm, int64_t rows, const double *x)
{
    const int64_t n = norm->channels;
    double *sizes = zeros(m, rows * n);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, absolute = 0, squares = 0;
        for (int64_t c = 0; c < n; c++) {
            sum += x[r * n + c];
            absolute += fabs(x[r * n + c]);
        }
        const double mean = norm->kind == ATTN_NORM_LAYER ? sum / (double)n : 0;
        for (int64_t c = 0; c < n; c++)
            squares += (x[r * n + c] - mean) * (x[r * n + c] - mean);
        const double divisor = sqrt(squares / (double)n + norm->eps);
        const double of_mean = norm->kind == ATTN_NORM_LAYER ? absolute / (double)n : 0;
        for (int64_t c = 0; c < n; c++)
            sizes[r * n + c] = (fabs(x[r * n + c]) + of_mean) / divisor * (norm->gamma ? fabs(norm->gamma[c]) : 1) +
                               (norm->beta ? fabs(norm->beta[c]) : 0);
    }
    return sizes;
}

static void test_norms(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(300); n++) {
        struct memory *m = memory_create("elementwise norms", n);
        const attn_norm kind = n % 2 ? ATTN_NORM_RMS : ATTN_NORM_LAYER;
        const int64_t batch = rng_range(&m->rng, 0, 3), tokens = tokens_of(m), channels = width(m);
        const double shift = (double)RNG_PICK(&m->rng, 0, 0, 1, 100), scale = rng_percent(&m->rng, 20) ? 1e-4 : 1;
        struct oracle_norm norm = {kind, channels, NULL, NULL, (double)(n % 5 == 0 ? 1e-3f : 1e-5f)};
        const attn_tensor x = place_rows(m, batch, tokens, channels);
        attn_tensor gamma, beta;
        fill(m, &x, scale);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = 0; i < tokens; i++)
                for (int64_t c = 0; c < channels; c++)
                    tensor_set(&x, b, 0, i, c, tensor_get(&x, b, 0, i, c) + (float)shift);
        const int has_gamma = rng_percent(&m->rng, 70);
        const int has_beta = kind == ATTN_NORM_LAYER && rng_percent(&m->rng, 70);
        if (has_gamma) {
            gamma = random_vector(m, random_dtype(m), channels, 0.5, 1);
            norm.gamma = read_all(m, &gamma);
        }
        if (has_beta) {
            beta = random_vector(m, random_dtype(m), channels, 0.5, 0);
            norm.beta = read_all(m, &beta);
        }
        const double *values = read_all(m, &x);
        const attn_tensor out = out_or(m, &x);
        memory_seal(m);
        OK(attn_normalise(kind, &x, has_gamma ? &gamma : NULL, has_beta ? &beta : NULL, (float)norm.eps, &out,
                          (int)rng_range(&m->rng, 0, 3)));
        const struct trio y = trio(m, batch * tokens * channels);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->normalise(&norm, batch * tokens, values, y.of[k]);
        judge(NN_NORM, "out", &out, y.of, norm_sizes(m, &norm, batch * tokens, values));
        memory_destroy(m);
    }
}

/** eps 0 is allowed: a row of equal channels is 0/0 then. Rows with NaN or infinities are NaN and alone. */
static void test_norm_special(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        float x[4][5] = {{1, 2, 3, 4, 5}, {3, NAN, 1, 0, 2}, {1, INFINITY, 2, 3, 4}, {5, 4, 3, 2, 1}}, out[4][5];
        const attn_tensor tx = attn_btc(x, 1, 4, 5), to = attn_btc(out, 1, 4, 5);
        OK(attn_normalise((attn_norm)kind, &tx, NULL, NULL, 0, &to, 0));
        for (int c = 0; c < 5; c++) {
            const double root = kind == ATTN_NORM_RMS ? sqrt(11.0) : sqrt(2.0), mean = kind == ATTN_NORM_RMS ? 0 : 3;
            assert_true(fabs((double)out[0][c] - (c + 1 - mean) / root) < 1e-6);
            assert_true(fabs((double)out[3][c] - (5 - c - mean) / root) < 1e-6);
            assert_true(isnan(out[1][c]));
        }
        assert_true(isnan(out[2][1])); /* inf / inf */
        float same[1][3] = {{0, 0, 0}};
        const attn_tensor ts = attn_btc(same, 1, 1, 3);
        OK(attn_normalise((attn_norm)kind, &ts, NULL, NULL, 0, &ts, 0));
        assert_true(isnan(same[0][0])); /* 0 / 0: the formula's own result */
    }
}

/* ------------------------------------------------- activations and gates -- */

/** Elements that matter to some activation: large ones, tiny ones, zeros of both signs, infinities. */
static void fill_wide(struct memory *m, const attn_tensor *t, int specials)
{
    fill(m, t, 2);
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t i = 0; i < t->shape[2]; i++)
            for (int64_t c = 0; c < t->shape[3]; c++) {
                const float x = tensor_get(t, b, 0, i, c);
                const int64_t which = rng_range(&m->rng, 0, 19);
                if (which < 4)
                    tensor_set(t, b, 0, i, c,
                               x * (which == 0   ? 20.0f
                                    : which == 1 ? 1e-3f
                                    : which == 2 ? 1e-20f
                                                 : 6.0f));
                else if (which == 4)
                    tensor_set(t, b, 0, i, c, x > 0 ? 0.0f : -0.0f);
                else if (which == 5 && specials)
                    tensor_set(t, b, 0, i, c, x > 1 ? INFINITY : x < -1 ? -INFINITY : NAN);
            }
}

/** What an element of activation(x) is made from: x where a sum may cancel, else the result itself. */
static double activation_size(attn_activation activation, double x, double y)
{
    return activation == ATTN_ACTIVATION_GELU || activation == ATTN_ACTIVATION_GELU_TANH ? fabs(x) : fabs(y);
}

static void test_activations(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(280); n++) {
        struct memory *m = memory_create("elementwise activations", n);
        const attn_activation activation = (attn_activation)(n % (ATTN_ACTIVATION_LAST + 1));
        const attn_tensor x = place_rows(m, rng_range(&m->rng, 0, 3), tokens_of(m), width(m));
        const int64_t all = x.shape[0] * x.shape[2] * x.shape[3];
        fill_wide(m, &x, 0);
        const double *values = read_all(m, &x);
        const attn_tensor out = out_or(m, &x);
        memory_seal(m);
        OK(attn_activate(activation, &x, &out, (int)rng_range(&m->rng, 0, 3)));
        const struct trio y = trio(m, all);
        double *sizes = zeros(m, all);
        for (int k = 0; k < ORACLES; k++)
            for (int64_t i = 0; i < all; i++)
                y.of[k][i] = oracle_take(k)->activate(activation, values[i]);
        for (int64_t i = 0; i < all; i++)
            sizes[i] = activation_size(activation, values[i], y.of[0][i]) + (double)FLT_MIN;
        judge(NN_ACTIVATION, "out", &out, y.of, sizes);
        memory_destroy(m);
    }
}

/** NaN stays, and at the ends the functions have their limits. */
static void test_activation_limits(void **state)
{
    (void)state;
    static const float x[6] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 0};
    for (int activation = 0; activation <= ATTN_ACTIVATION_LAST; activation++) {
        float y[6];
        const attn_tensor tx = attn_btc(x, 1, 1, 6), ty = attn_btc(y, 1, 1, 6);
        OK(attn_activate((attn_activation)activation, &tx, &ty, 0));
        const int bounded = activation == ATTN_ACTIVATION_TANH || activation == ATTN_ACTIVATION_SIGMOID;
        assert_true(isnan(y[0]));
        assert_true(y[1] == (bounded ? 1 : INFINITY));
        assert_true(y[3] == (bounded ? 1 : FLT_MAX) || (activation == ATTN_ACTIVATION_GELU_TANH && y[3] == FLT_MAX));
        if (activation == ATTN_ACTIVATION_NONE)
            assert_true(y[2] == -INFINITY && y[4] == -FLT_MAX);
        else if (activation == ATTN_ACTIVATION_TANH)
            assert_true(y[2] == -1 && y[4] == -1);
        else
            assert_true(y[4] == 0);
        if (activation == ATTN_ACTIVATION_RELU || activation == ATTN_ACTIVATION_GELU ||
            activation == ATTN_ACTIVATION_SIGMOID)
            assert_true(y[2] == 0);
        assert_true(y[5] == (activation == ATTN_ACTIVATION_SIGMOID ? 0.5f : 0));
    }
}

/** Some hundred thousand floats, denormals too, up to where nothing is left of the tail: what linear.h promises. */
static void test_gelu_digits(void **state)
{
    (void)state;
    enum { COUNT = 1024, STEP = 4001 };
    float x[COUNT], y[COUNT];
    const attn_tensor tx = attn_btc(x, 1, 1, COUNT), ty = attn_btc(y, 1, 1, COUNT);
    const uint32_t end = bits_of(20.0f);
    for (uint32_t bits = 1; bits < end;) {
        for (int i = 0; i < COUNT; i++, bits += i % 2 ? 0 : STEP)
            x[i] = (i % 2 ? -1.0f : 1.0f) * float_of(bits < end ? bits : end);
        OK(attn_activate(ATTN_ACTIVATION_GELU, &tx, &ty, 1));
        for (int i = 0; i < COUNT; i++) {
            const double exact = (double)x[i] * 0.5 * erfc(-(double)x[i] * M_SQRT1_2);
            const double allowed = x[i] > 0 ? 2 : 4 + (double)x[i] * (double)x[i];
            const double off = fabs((double)y[i] - exact) / ulp_of(exact);
            if (!(off <= allowed))
                fail_msg("gelu(%a) is %a, off by %g ULP", (double)x[i], (double)y[i], off);
        }
    }
}

static void test_gates(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(140); n++) {
        struct memory *m = memory_create("elementwise gates", n);
        const attn_activation activation = (attn_activation)(n % (ATTN_ACTIVATION_LAST + 1));
        const attn_tensor gate = place_rows(m, rng_range(&m->rng, 0, 3), tokens_of(m), width(m));
        const attn_tensor up = random_rows(m, gate.shape[0], gate.shape[2], gate.shape[3]);
        const int64_t all = gate.shape[0] * gate.shape[2] * gate.shape[3];
        fill_wide(m, &gate, 0);
        const double *gates = read_all(m, &gate), *ups = read_all(m, &up);
        const attn_tensor out = out_or(m, n % 2 ? &gate : &up);
        memory_seal(m);
        OK(attn_gate(activation, &gate, &up, &out, (int)rng_range(&m->rng, 0, 3)));
        const struct trio y = trio(m, all);
        double *sizes = zeros(m, all);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->gate(activation, all, gates, ups, y.of[k]);
        for (int64_t i = 0; i < all; i++)
            sizes[i] =
                activation_size(activation, gates[i] * ups[i], y.of[0][i]) + (double)FLT_MIN * (1 + fabs(ups[i]));
        judge(NN_GATE, "out", &out, y.of, sizes);
        memory_destroy(m);
    }
}

/** Rows do not depend on their neighbours or on the number of threads, and special numbers stay where they are. */
static void test_row_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("elementwise row_bits", n);
        const int64_t channels = width(m) + 1;
        const attn_tensor x = place_rows(m, 1, 100, channels), first = place_rows(m, 1, 100, channels);
        const attn_tensor gated = place_rows(m, 1, 100, channels), normed = place_rows(m, 1, 100, channels);
        const attn_activation activation = (attn_activation)(n % (ATTN_ACTIVATION_LAST + 1));
        const attn_norm norm = n % 2 ? ATTN_NORM_RMS : ATTN_NORM_LAYER;
        fill_wide(m, &x, 1);
        OK(attn_activate(activation, &x, &first, 1));
        OK(attn_gate(activation, &x, &x, &gated, 1));
        OK(attn_normalise(norm, &x, NULL, NULL, 1e-5f, &normed, 1));
        for (int64_t i = 0; i < 100; i++)
            for (int64_t c = 0; c < channels; c++)
                assert_true(isnan(tensor_get(&first, 0, 0, i, c)) == isnan(tensor_get(&x, 0, 0, i, c)) ||
                            tensor_get(&x, 0, 0, i, c) == -INFINITY);
        for (int threads = 1; threads <= 3; threads++) {
            const int64_t tokens = RNG_PICK(&m->rng, 1, 2, 7, 31, 100), at = rng_range(&m->rng, 0, 100 - tokens);
            const attn_tensor some = slice(&x, 0, at, tokens), out = place_rows(m, 1, tokens, channels);
            attn_tensor expected = slice(&first, 0, at, tokens);
            OK(attn_activate(activation, &some, &out, threads));
            assert_true(equal_bits(&out, &expected));
            expected = slice(&gated, 0, at, tokens);
            OK(attn_gate(activation, &some, &some, &out, threads));
            assert_true(equal_bits(&out, &expected));
            expected = slice(&normed, 0, at, tokens);
            OK(attn_normalise(norm, &some, NULL, NULL, 1e-5f, &out, threads));
            assert_true(equal_bits(&out, &expected));
        }
        memory_destroy(m);
    }
}

/* ------------------------------------------------- embeddings and positions -- */

static void test_embed(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(200); n++) {
        struct memory *m = memory_create("elementwise embed", n);
        const int64_t batch = rng_range(&m->rng, 0, 3), tokens = tokens_of(m), channels = width(m);
        const int64_t num = rng_range(&m->rng, 1, 40), all = batch * tokens * channels;
        const int accumulate = rng_percent(&m->rng, 40) ? (int)rng_range(&m->rng, 1, 2) : 0;
        const float scale = rng_percent(&m->rng, 40) ? 0 : rng_normal(&m->rng);
        attn_tensor table = place_rows(m, 1, num, channels);
        table.dtype = ATTN_F32;
        fill(m, &table, 1);
        attn_tensor narrow = table;
        if (rng_percent(&m->rng, 50)) {
            narrow = attn_matrix(bytes(m, (size_t)(num * channels) * 2), num, channels);
            narrow.dtype = rng_percent(&m->rng, 50) ? ATTN_BF16 : ATTN_F16;
            for (int64_t i = 0; i < num; i++)
                for (int64_t c = 0; c < channels; c++)
                    tensor_set(&narrow, 0, 0, i, c, rng_normal(&m->rng));
        }
        const double *rows = read_all(m, &narrow);
        int32_t *ids = bytes(m, (size_t)(batch * tokens) * sizeof *ids);
        for (int64_t i = 0; i < batch * tokens; i++)
            ids[i] = (int32_t)rng_range(&m->rng, 0, num - 1);
        const attn_tensor out = place_rows(m, batch, tokens, channels);
        const struct trio y = trio(m, all);
        if (accumulate) {
            fill(m, &out, 1);
            mark_output(m, &out);
            for (int k = 0; k < ORACLES; k++)
                memcpy(y.of[k], read_all(m, &out), (size_t)all * sizeof(double));
        }
        memory_seal(m);
        OK(attn_embed(&narrow, ids, scale, accumulate, &out, (int)rng_range(&m->rng, 0, 3)));
        double *sizes = zeros(m, all);
        const double factor = scale != 0 ? (double)scale : 1;
        for (int64_t i = 0; i < all; i++)
            sizes[i] = fabs(y.of[0][i]) + fabs(factor * rows[ids[i / channels] * channels + i % channels]);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->embed(rows, channels, batch * tokens, ids, factor, accumulate, y.of[k]);
        judge(NN_EMBED, "out", &out, y.of, sizes);
        if (!accumulate && scale == 0) /* a copy, to the bit */
            for (int64_t i = 0; i < all; i++)
                assert_true((double)tensor_get(&out, i / channels / tokens, 0, i / channels % tokens, i % channels) ==
                            y.of[0][i]);
        memory_destroy(m);
    }
}

static void test_sinusoidal(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("elementwise sinusoidal", n);
        const int64_t num = rng_range(&m->rng, 0, 20), channels = width(m) + 1;
        const attn_tensor table = place_dense(m, 1, 1, num, channels);
        const struct trio y = trio(m, num * channels);
        int64_t *positions = bytes(m, (size_t)num * sizeof *positions);
        for (int64_t i = 0; i < num; i++)
            positions[i] = n % 2 ? rng_range(&m->rng, -100000, 100000) : i;
        OK(attn_sinusoidal(n % 2 ? positions : NULL, num, channels, table.data));
        for (int k = 0; k < ORACLES; k++)
            for (int64_t i = 0; i < num; i++)
                oracle_take(k)->sinusoidal(positions[i], channels, y.of[k] + i * channels);
        double *sizes = zeros(m, num * channels);
        for (int64_t i = 0; i < num * channels; i++) /* the angle is good to 2^-50 of itself, at 10^5 that is 10^-10 */
            sizes[i] = fmax(fabs(y.of[0][i]), 0.1);
        judge(NN_SINUSOIDAL, "table", &table, y.of, sizes);
        memory_destroy(m);
    }
    float row[5];
    OK(attn_sinusoidal(NULL, 1, 5, row));
    assert_true(row[0] == 0 && row[1] == 1 && row[2] == 0 && row[3] == 1 && row[4] == 0);
}

/* --------------------------------------------------------------------- types -- */

/** Rows of a type with numbers that matter, and the same numbers in f32. */
static attn_tensor typed_rows(struct memory *m, attn_dtype dtype, const attn_tensor *like, attn_tensor *wide)
{
    const int64_t *n = like->shape;
    const attn_tensor t = place_rows_of(m, dtype, n[0], n[2], n[3]);
    *wide = place_rows(m, n[0], n[2], n[3]);
    fill_wide(m, &t, 1);
    mark_input(m, wide);
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t i = 0; i < n[2]; i++)
            for (int64_t c = 0; c < n[3]; c++)
                tensor_set(wide, b, 0, i, c, tensor_get(&t, b, 0, i, c));
    return t;
}

/** In every mixture of types: what f32 gives on the same numbers, rounded once; in place where types allow it. */
static void test_types(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(400); n++) {
        struct memory *m = memory_create("elementwise types", n);
        const int64_t num = rng_range(&m->rng, 1, 9);
        const attn_dtype from = (attn_dtype)(n % 3), to = (attn_dtype)(n / 3 % 3), other = (attn_dtype)(n / 9 % 3);
        const attn_tensor shape =
            attn_bhtd(NULL, rng_range(&m->rng, 0, 3), 1, tokens_of(m), rng_percent(&m->rng, 10) ? 1100 : width(m));
        const attn_activation activation = (attn_activation)rng_range(&m->rng, 0, ATTN_ACTIVATION_LAST);
        const attn_norm norm = n % 2 ? ATTN_NORM_RMS : ATTN_NORM_LAYER;
        const int threads = (int)rng_range(&m->rng, 0, 3), in_place = rng_percent(&m->rng, 30);
        attn_tensor wide_x, wide_up, wide_table;
        const attn_tensor x = typed_rows(m, from, &shape, &wide_x), up = typed_rows(m, other, &shape, &wide_up);
        const attn_tensor table_shape = attn_bhtd(NULL, 1, 1, num, shape.shape[3]);
        const attn_tensor table = typed_rows(m, from, &table_shape, &wide_table);
        const attn_tensor gamma = random_vector(m, random_dtype(m), shape.shape[3], 0.5, 1);
        const attn_tensor expected = place_rows(m, shape.shape[0], shape.shape[2], shape.shape[3]);
        const attn_tensor out = place_rows_of(m, to, shape.shape[0], shape.shape[2], shape.shape[3]);
        int32_t *ids = bytes(m, (size_t)(shape.shape[0] * shape.shape[2]) * sizeof *ids);
        for (int64_t i = 0; i < shape.shape[0] * shape.shape[2]; i++)
            ids[i] = (int32_t)rng_range(&m->rng, 0, num - 1);
        memory_seal(m);
        OK(attn_normalise(norm, &wide_x, &gamma, NULL, 1e-5f, &expected, 1));
        OK(attn_normalise(norm, &x, &gamma, NULL, 1e-5f, &out, threads));
        assert_rounded("norm", &out, &expected);
        OK(attn_activate(activation, &wide_x, &expected, 1));
        OK(attn_activate(activation, &x, &out, threads));
        assert_rounded("activation", &out, &expected);
        OK(attn_gate(activation, &wide_x, &wide_up, &expected, 1));
        OK(attn_gate(activation, &x, &up, &out, threads));
        assert_rounded("gate", &out, &expected);
        OK(attn_embed(&wide_table, ids, 0.7f, 0, &expected, 1));
        OK(attn_embed(&table, ids, 0.7f, 0, &out, threads));
        assert_rounded("embed", &out, &expected);
        if (in_place) {
            for (int i = 0; i < m->num_buffers; i++)
                m->buffers[i].is_input &= m->buffers[i].tensor.data != x.data && m->buffers[i].tensor.data != up.data;
            OK(attn_gate(activation, &wide_x, &wide_up, &expected, 1));
            OK(attn_gate(activation, &x, &up, &up, threads));
            assert_rounded("gate in place", &up, &expected);
            OK(attn_normalise(norm, &wide_x, &gamma, NULL, 1e-5f, &expected, 1));
            OK(attn_normalise(norm, &x, &gamma, NULL, 1e-5f, &x, threads));
            assert_rounded("norm in place", &x, &expected);
        }
        memory_destroy(m);
    }
}

/** What is added to out, accumulating, is what out held, widened. */
static void test_accumulate_types(void **state)
{
    (void)state;
    static const float table[2][3] = {{1, 2, 1e-3f}, {256, 1, -1}};
    static const int32_t ids[2] = {1, 0};
    for (attn_dtype dtype = ATTN_BF16; dtype <= ATTN_F16; dtype++) {
        uint16_t sums[2][3];
        const attn_tensor t = attn_matrix(table, 2, 3), out = tensor_as(attn_btc(sums, 1, 2, 3), dtype);
        for (int c = 0; c < 6; c++)
            dtype_store(dtype, sums, c, 1.0f + (float)c);
        OK(attn_embed(&t, ids, 1, 1, &out, 0));
        for (int c = 0; c < 6; c++)
            assert_true(dtype_load(dtype, sums, c) == dtype_round(dtype, 1.0f + (float)c + table[ids[c / 3]][c % 3]));
    }
}

/* ------------------------------------------------------------------ refusals -- */

static void test_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("elementwise refuses", 0);
    const attn_tensor x = place_dense(m, 2, 1, 5, 8), out = place_dense(m, 2, 1, 5, 8), up = place_dense(m, 2, 1, 5, 8);
    const attn_tensor g = place_dense(m, 1, 1, 1, 8), b = place_dense(m, 1, 1, 1, 8),
                      table = place_dense(m, 1, 1, 6, 8);
    int32_t ids[10] = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3};
    fill(m, &x, 1), fill(m, &up, 1), fill(m, &g, 1), fill(m, &b, 1), fill(m, &table, 1);
    memory_seal(m);
#define NORM(norm, xx, gg, bb, eps, oo) attn_normalise(norm, xx, gg, bb, eps, oo, 0)
#define X(assignment)                   CHANGED(attn_tensor, x, assignment)
#define OUT(assignment)                 CHANGED(attn_tensor, out, assignment)
#define G(assignment)                   CHANGED(attn_tensor, g, assignment)
#define B(assignment)                   CHANGED(attn_tensor, b, assignment)
    const attn_norm layer = ATTN_NORM_LAYER, rms = ATTN_NORM_RMS;
    REFUSES(m, NORM((attn_norm)2, &x, &g, &b, 0.1f, &out), ATTN_INVALID_ARGUMENT, "norm is 2; expected an attn_norm");
    REFUSES(m, NORM(layer, NULL, &g, &b, 0.1f, &out), ATTN_INVALID_ARGUMENT, "x |NULL");
    REFUSES(m, NORM(layer, &x, &g, &b, 0.1f, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, NORM(rms, &x, &g, &b, 0.1f, &out), ATTN_INVALID_ARGUMENT,
            "beta is set; expected NULL with ATTN_NORM_RMS");
    REFUSES(m, NORM(layer, &x, &g, &b, -0.5f, &out), ATTN_INVALID_ARGUMENT, "eps|-0.5");
    REFUSES(m, NORM(layer, &x, &g, &b, NAN, &out), ATTN_INVALID_ARGUMENT, "eps|nan");
    REFUSES(m, NORM(layer, &x, &g, &b, INFINITY, &out), ATTN_INVALID_ARGUMENT, "eps|inf");
    REFUSES(m, NORM(layer, X(dtype = ATTN_I8), &g, &b, 0.1f, &out), ATTN_UNSUPPORTED, "x.|i8|f32, bf16 or f16");
    REFUSES(m, NORM(layer, X(stride[3] = 3), &g, &b, 0.1f, &out), ATTN_INVALID_ARGUMENT, "x.|3");
    REFUSES(m, NORM(layer, X(shape[2] = -5), &g, &b, 0.1f, &out), ATTN_INVALID_ARGUMENT, "x.|-5");
    REFUSES(m, NORM(layer, X(stride[2] = INT64_MAX), &g, &b, 0.1f, &out), ATTN_SIZE_OVERFLOW, "x.|9223372036854775807");
    REFUSES(m, NORM(layer, &x, G(shape[3] = 7), &b, 0.1f, &out), ATTN_SHAPE_MISMATCH, "gamma|7|8");
    REFUSES(m, NORM(layer, &x, G(shape[2] = 2), &b, 0.1f, &out), ATTN_SHAPE_MISMATCH, "gamma|2");
    REFUSES(m, NORM(layer, &x, G(dtype = ATTN_I8), &b, 0.1f, &out), ATTN_UNSUPPORTED, "gamma|i8");
    REFUSES(m, NORM(layer, &x, &g, B(shape[3] = 9), 0.1f, &out), ATTN_SHAPE_MISMATCH, "beta|9|8");
    REFUSES(m, NORM(layer, &x, &g, B(data = NULL), 0.1f, &out), ATTN_INVALID_ARGUMENT, "beta|NULL");
    REFUSES(m, NORM(layer, &x, &g, &b, 0.1f, OUT(shape[3] = 7)), ATTN_SHAPE_MISMATCH, "out|7|8");
    REFUSES(m, NORM(layer, &x, &g, &b, 0.1f, OUT(shape[0] = 3)), ATTN_SHAPE_MISMATCH, "out|3|2");
    REFUSES(m, NORM(layer, &x, &g, &b, 0.1f, OUT(dtype = ATTN_U8)), ATTN_UNSUPPORTED, "out|u8");
    REFUSES(m, NORM(layer, &x, &g, &b, 0.1f, OUT(stride[2] = 4)), ATTN_INVALID_ARGUMENT, "out|4");
    REFUSES(m, NORM(layer, &x, &g, &b, 0.1f, OUT(data = (float *)x.data + 8)), ATTN_INVALID_ARGUMENT, "out|x");
    REFUSES(m, attn_normalise(layer, &x, &g, &b, 0.1f, &out, -4), ATTN_INVALID_ARGUMENT, "num_threads|-4");

    REFUSES(m, attn_activate((attn_activation)9, &x, &out, 0), ATTN_INVALID_ARGUMENT,
            "activation is 9; expected an attn_activation");
    REFUSES(m, attn_activate(ATTN_ACTIVATION_TANH, NULL, &out, 0), ATTN_INVALID_ARGUMENT, "x |NULL");
    REFUSES(m, attn_activate(ATTN_ACTIVATION_TANH, &x, NULL, 0), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, attn_activate(ATTN_ACTIVATION_TANH, &x, OUT(shape[2] = 4), 0), ATTN_SHAPE_MISMATCH, "out|4|5");
    REFUSES(m, attn_activate(ATTN_ACTIVATION_TANH, X(dtype = ATTN_BOOL), &out, 0), ATTN_UNSUPPORTED, "x.|bool");
    REFUSES(m, attn_activate(ATTN_ACTIVATION_TANH, X(shape[1] = 2), &out, 0), ATTN_SHAPE_MISMATCH, "2");
    REFUSES(m, attn_activate(ATTN_ACTIVATION_TANH, &x, &out, -1), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, attn_activate(ATTN_ACTIVATION_TANH, &x, OUT(data = (float *)x.data + 1), 0), ATTN_INVALID_ARGUMENT,
            "out|x");

    REFUSES(m, attn_gate((attn_activation)-2, &x, &up, &out, 0), ATTN_INVALID_ARGUMENT, "activation|-2");
    REFUSES(m, attn_gate(ATTN_ACTIVATION_SILU, NULL, &up, &out, 0), ATTN_INVALID_ARGUMENT, "gate |NULL");
    REFUSES(m, attn_gate(ATTN_ACTIVATION_SILU, &x, NULL, &out, 0), ATTN_INVALID_ARGUMENT, "up |NULL");
    REFUSES(m, attn_gate(ATTN_ACTIVATION_SILU, &x, &up, NULL, 0), ATTN_INVALID_ARGUMENT, "out |NULL");
    REFUSES(m, attn_gate(ATTN_ACTIVATION_SILU, &x, CHANGED(attn_tensor, up, shape[3] = 7), &out, 0),
            ATTN_SHAPE_MISMATCH, "up|7|8");
    REFUSES(m, attn_gate(ATTN_ACTIVATION_SILU, &x, CHANGED(attn_tensor, up, dtype = ATTN_U8), &out, 0),
            ATTN_UNSUPPORTED, "up|u8");
    REFUSES(m, attn_gate(ATTN_ACTIVATION_SILU, &x, &up, OUT(shape[0] = 1), 0), ATTN_SHAPE_MISMATCH, "out|1|2");
    REFUSES(m, attn_gate(ATTN_ACTIVATION_SILU, &x, &up, OUT(data = (float *)up.data + 8), 0), ATTN_INVALID_ARGUMENT,
            "out|up");

#define EMBED(tt, ii, scale, oo) attn_embed(tt, ii, scale, 0, oo, 0)
#define TABLE(assignment)        CHANGED(attn_tensor, table, assignment)
    REFUSES(m, EMBED(NULL, ids, 1, &out), ATTN_INVALID_ARGUMENT, "table|NULL");
    REFUSES(m, EMBED(&table, NULL, 1, &out), ATTN_INVALID_ARGUMENT, "ids is NULL; expected 10 row numbers");
    REFUSES(m, EMBED(&table, ids, 1, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, EMBED(&table, ids, NAN, &out), ATTN_INVALID_ARGUMENT, "scale|nan");
    REFUSES(m, EMBED(&table, ids, INFINITY, &out), ATTN_INVALID_ARGUMENT, "scale|inf");
    REFUSES(m, EMBED(TABLE(shape[3] = 7), ids, 1, &out), ATTN_SHAPE_MISMATCH, "7|8");
    REFUSES(m, EMBED(TABLE(shape[0] = 2), ids, 1, &out), ATTN_SHAPE_MISMATCH, "table|2");
    REFUSES(m, EMBED(TABLE(dtype = ATTN_BOOL), ids, 1, &out), ATTN_UNSUPPORTED, "table|bool");
    REFUSES(m, EMBED(TABLE(stride[3] = 2), ids, 1, &out), ATTN_INVALID_ARGUMENT, "table|2");
    REFUSES(m, EMBED(&table, ids, 1, OUT(dtype = ATTN_I8)), ATTN_UNSUPPORTED, "out|i8");
    REFUSES(m, EMBED(&table, ids, 1, OUT(data = table.data)), ATTN_INVALID_ARGUMENT, "out|table");
    ids[9] = 6;
    REFUSES(m, EMBED(&table, ids, 1, &out), ATTN_INVALID_ARGUMENT, "ids[9] is 6; expected 0 to 5, the rows of table");
    ids[9] = 0, ids[3] = -1;
    REFUSES(m, EMBED(&table, ids, 1, &out), ATTN_INVALID_ARGUMENT, "ids[3]|-1");
    ids[3] = 0;
    REFUSES(m, attn_embed(&table, ids, 1, 0, &out, -7), ATTN_INVALID_ARGUMENT, "num_threads|-7");

    REFUSES(m, attn_sinusoidal(NULL, -1, 4, out.data), ATTN_INVALID_ARGUMENT, "num|-1");
    REFUSES(m, attn_sinusoidal(NULL, 1, 0, out.data), ATTN_INVALID_ARGUMENT, "channels|0");
    REFUSES(m, attn_sinusoidal(NULL, 1, -8, out.data), ATTN_INVALID_ARGUMENT, "channels|-8");
    REFUSES(m, attn_sinusoidal(NULL, 1, 4, NULL), ATTN_INVALID_ARGUMENT, "table is NULL; expected 1 x 4 floats");
    REFUSES(m, attn_sinusoidal(NULL, INT64_MAX / 4, 8, out.data), ATTN_SIZE_OVERFLOW,
            "table has 2305843009213693951 x 8 x 1 entries of 4 bytes");
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms),
                                       cmocka_unit_test(test_norm_special),
                                       cmocka_unit_test(test_activations),
                                       cmocka_unit_test(test_activation_limits),
                                       cmocka_unit_test(test_gelu_digits),
                                       cmocka_unit_test(test_gates),
                                       cmocka_unit_test(test_row_bits),
                                       cmocka_unit_test(test_embed),
                                       cmocka_unit_test(test_sinusoidal),
                                       cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_accumulate_types),
                                       cmocka_unit_test(test_refuses)};
    return NN_MAIN(tests);
}
