/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products: against the oracle on random shapes, types and options; rows whose
 * bits depend on nothing else; NaN and infinities that stay in their rows;
 * wrong arguments.
 */
#include "memory.h"

enum { CASES = 400, MAX_PARTS = 3 };

/** A layer with the oracle's view of its parts. */
struct layer {
    int64_t num_parts, in;
    attn_tensor weights[MAX_PARTS], biases[MAX_PARTS];
    struct oracle_dense dense[MAX_PARTS], sizes[MAX_PARTS]; /**< the second of absolute values */
    attn_linear *linear;
};

static int64_t width(struct memory *m)
{
    return RNG_PICK(&m->rng, 0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 47, 48, 49, 63, 95, 96, 97, 127, 128,
                    129);
}

static void layer_create(struct layer *l, struct memory *m, int64_t num_parts, int64_t in, const int64_t *out)
{
    const int some_biases = rng_percent(&m->rng, 80);
    memset(l, 0, sizeof *l);
    l->num_parts = num_parts;
    l->in = in;
    for (int64_t n = 0; n < num_parts; n++) {
        l->weights[n] = random_matrix(m, random_dtype(m), out[n], in, 0.3);
        l->dense[n] = (struct oracle_dense){out[n], in, read_all(m, &l->weights[n]), NULL};
        if (some_biases && rng_percent(&m->rng, 80)) {
            l->biases[n] = random_vector(m, random_dtype(m), out[n], 1, 0);
            l->dense[n].b = read_all(m, &l->biases[n]);
        }
        l->sizes[n] = l->dense[n];
        l->sizes[n].w = absolute(m, l->dense[n].w, out[n] * in);
        l->sizes[n].b = l->dense[n].b ? absolute(m, l->dense[n].b, out[n]) : NULL;
    }
    OK(attn_linear_create(&l->linear, num_parts, l->weights, some_biases ? l->biases : NULL));
    assert_int_equal(attn_linear_inputs(l->linear), in);
    for (int64_t n = 0; n < num_parts; n++)
        assert_int_equal(attn_linear_outputs(l->linear, n), out[n]);
    assert_int_equal(attn_linear_outputs(l->linear, num_parts), 0);
    assert_int_equal(attn_linear_outputs(l->linear, -1), 0);
}

/** Weights may go away after attn_linear_create(). */
static void scribble(struct layer *l)
{
    for (int64_t n = 0; n < l->num_parts; n++) {
        for (int64_t i = 0; i < l->dense[n].out; i++)
            for (int64_t c = 0; c < l->in; c++)
                tensor_set(&l->weights[n], 0, 0, i, c, 77);
        for (int64_t i = 0; i < l->dense[n].out && l->biases[n].data; i++)
            tensor_set(&l->biases[n], 0, 0, 0, i, 77);
    }
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(CASES); n++) {
        struct memory *m = memory_create("linear against_oracle", n);
        const int64_t batch = RNG_PICK(&m->rng, 1, 1, 2, 3, 0),
                      tokens = RNG_PICK(&m->rng, 0, 1, 1, 2, 5, 7, 8, 9, 13, 33);
        const int64_t num_parts = RNG_PICK(&m->rng, 1, 1, 2, 3), out[MAX_PARTS] = {width(m), width(m), width(m)};
        const int64_t in = rng_percent(&m->rng, 10) ? 500 : width(m);
        struct layer l;
        layer_create(&l, m, num_parts, in, out);
        scribble(&l);
        const attn_tensor x = random_rows(m, batch, tokens, in);
        const double *x_values = read_all(m, &x), *x_sizes = absolute(m, x_values, batch * tokens * in);
        attn_linear_options options = {.struct_size = sizeof options,
                                       .activation = (attn_activation)rng_range(&m->rng, 0, ATTN_ACTIVATION_LAST),
                                       .num_threads = (int)rng_range(&m->rng, 0, 3)};
        attn_tensor outs[MAX_PARTS], residual;
        const attn_tensor *out_args[MAX_PARTS];
        const double *residual_values = NULL;
        for (int64_t p = 0; p < num_parts; p++) {
            outs[p] = place_rows(m, batch, tokens, out[p]);
            out_args[p] = num_parts > 1 && rng_percent(&m->rng, 20) ? NULL : &outs[p];
        }
        if (num_parts == 1 && rng_percent(&m->rng, 50)) {
            residual = rng_percent(&m->rng, 50) ? outs[0] : place_rows(m, batch, tokens, out[0]);
            fill(m, &residual, 1);
            residual_values = read_all(m, &residual);
            options.residual = residual.data == outs[0].data ? &outs[0] : &residual;
        }
        mark_output(m, &outs[0]);
        memory_seal(m);
        if (num_parts == 1 && rng_percent(&m->rng, 70))
            OK(attn_linear_forward(l.linear, &x, &outs[0], &options));
        else if (options.residual) /* not with parts */
            OK(attn_linear_forward(l.linear, &x, &outs[0], &options));
        else
            OK(attn_linear_forward_parts(l.linear, &x, out_args, &options));
        for (int64_t p = 0; p < num_parts; p++) {
            if (!out_args[p])
                continue;
            const int64_t all = batch * tokens * out[p];
            const struct trio y = trio(m, all);
            double *sizes = zeros(m, all);
            for (int k = 0; k < ORACLES; k++)
                oracle_take(k)->linear(&l.dense[p], batch * tokens, x_values, options.activation, residual_values,
                                       y.of[k]);
            oracle_take(0)->linear(&l.sizes[p], batch * tokens, x_sizes, ATTN_ACTIVATION_NONE,
                                   residual_values ? absolute(m, residual_values, all) : NULL, sizes);
            for (int64_t i = 0; i < all; i++) /* tanh and sigmoid of 0 are not 0 of 0 */
                sizes[i] += fabs(y.of[0][i]);
            judge(NN_LINEAR, "out", &outs[p], y.of, sizes);
        }
        attn_linear_destroy(l.linear);
        memory_destroy(m);
    }
}

/** options NULL is a plain product. */
static void test_by_hand(void **state)
{
    (void)state;
    const float w[2][3] = {{1, 2, 3}, {-1, 0, 4}}, b[2] = {10, -20}, x[2][3] = {{1, 1, 1}, {2, 0, -1}};
    float out[2][2], residual[2][2] = {{1, 2}, {3, 4}};
    const attn_tensor weights = attn_matrix(w, 2, 3), biases = attn_vector(b, 2), tx = attn_btc(x, 1, 2, 3);
    const attn_tensor to = attn_btc(out, 1, 2, 2), tr = attn_btc(residual, 1, 2, 2);
    attn_linear *linear;
    OK(attn_linear_create(&linear, 1, &weights, &biases));
    OK(attn_linear_forward(linear, &tx, &to, NULL));
    assert_true(out[0][0] == 16 && out[0][1] == -17 && out[1][0] == 9 && out[1][1] == -26);
    const attn_linear_options options = {
        .struct_size = sizeof options, .activation = ATTN_ACTIVATION_RELU, .residual = &tr};
    OK(attn_linear_forward(linear, &tx, &to, &options));
    assert_true(out[0][0] == 17 && out[0][1] == 2 && out[1][0] == 12 && out[1][1] == 4);
    attn_linear_destroy(linear);
    attn_linear_destroy(NULL);
}

/** The same rows in another batch, under another number of threads, with other neighbours. */
static void test_row_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("linear row_bits", n);
        const int64_t num_parts = 2, out[2] = {width(m) + 1, width(m) + 1}, in = width(m) + 1;
        struct layer l;
        layer_create(&l, m, num_parts, in, out);
        const attn_tensor x = random_rows(m, 1, 100, in);
        attn_tensor first[2] = {place_rows(m, 1, 100, out[0]), place_rows(m, 1, 100, out[1])};
        const attn_tensor *first_args[2] = {&first[0], &first[1]};
        attn_linear_options options = {.struct_size = sizeof options,
                                       .activation = (attn_activation)rng_range(&m->rng, 0, ATTN_ACTIVATION_LAST),
                                       .num_threads = 1};
        OK(attn_linear_forward_parts(l.linear, &x, first_args, &options));
        for (int try = 0; try < 6; try++) {
            const int64_t tokens = RNG_PICK(&m->rng, 1, 2, 3, 7, 8, 13, 31, 100);
            const int64_t at = rng_range(&m->rng, 0, 100 - tokens);
            const attn_tensor some = slice(&x, 0, at, tokens);
            attn_tensor again[2] = {place_rows(m, 1, tokens, out[0]), place_rows(m, 1, tokens, out[1])};
            const attn_tensor *again_args[2] = {&again[0], &again[1]};
            options.num_threads = 1 + try % 3;
            OK(attn_linear_forward_parts(l.linear, &some, again_args, &options));
            for (int p = 0; p < 2; p++) {
                const attn_tensor expected = slice(&first[p], 0, at, tokens);
                if (!equal_bits(&again[p], &expected))
                    fail_msg("%s: %lld rows from %lld on with %d threads, part %d", guard_case_line, (long long)tokens,
                             (long long)at, options.num_threads, p);
            }
        }
        /* A batch of one token each, and rows that stand alone among NaN. */
        attn_tensor columns = x;
        columns.shape[0] = 100, columns.shape[2] = 1, columns.stride[0] = x.stride[2];
        attn_tensor other = place_rows(m, 100, 1, out[0]);
        const attn_tensor *only_first[2] = {&other, NULL};
        OK(attn_linear_forward_parts(l.linear, &columns, only_first, &options));
        other = slice(&other, 0, 0, 1);
        attn_tensor lonely = place_rows(m, 1, 9, in), lonely_out = place_rows(m, 1, 9, out[0]);
        for (int64_t i = 0; i < 9; i++)
            for (int64_t c = 0; c < in; c++)
                tensor_set(&lonely, 0, 0, i, c, i == 4 ? tensor_get(&x, 0, 0, 0, c) : i % 2 ? NAN : INFINITY);
        only_first[0] = &lonely_out;
        OK(attn_linear_forward_parts(l.linear, &lonely, only_first, &options));
        const attn_tensor expected = slice(&first[0], 0, 0, 1), got = slice(&lonely_out, 0, 4, 1);
        assert_true(equal_bits(&other, &expected));
        assert_true(equal_bits(&got, &expected));
        attn_linear_destroy(l.linear);
        memory_destroy(m);
    }
}

/** Weights in bf16 and f16 stay narrow, and products have the bits that the same numbers in f32 give. */
static void test_narrow_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(100); n++) {
        struct memory *m = memory_create("linear narrow_bits", n);
        const int64_t out = width(m) + 1, in = rng_percent(&m->rng, 30) ? rng_range(&m->rng, 250, 400) : width(m);
        const attn_tensor narrow = random_matrix(m, n % 2 ? ATTN_BF16 : ATTN_F16, out, in, 0.3);
        const attn_tensor wide = place_dense(m, 1, 1, out, in);
        for (int64_t i = 0; i < out; i++)
            for (int64_t c = 0; c < in; c++)
                tensor_set(&wide, 0, 0, i, c, tensor_get(&narrow, 0, 0, i, c));
        attn_linear *linear[2];
        OK(attn_linear_create(&linear[0], 1, &narrow, NULL));
        OK(attn_linear_create(&linear[1], 1, &wide, NULL));
        for (int try = 0; try < 4; try++) {
            const int64_t tokens = RNG_PICK(&m->rng, 1, 1, 2, 3, 7, 8, 9, 31, 150);
            const attn_tensor x = random_rows(m, 1, tokens, in);
            const attn_tensor y[2] = {place_rows(m, 1, tokens, out), place_rows(m, 1, tokens, out)};
            for (int i = 0; i < 2; i++)
                OK(attn_linear_forward(linear[i], &x, &y[i], NULL));
            if (!equal_bits(&y[0], &y[1]))
                fail_msg("%s: %lld rows, %lld outputs, %lld inputs", guard_case_line, (long long)tokens, (long long)out,
                         (long long)in);
        }
        attn_linear_destroy(linear[0]);
        attn_linear_destroy(linear[1]);
        memory_destroy(m);
    }
}

/**
 * Activations of other types give the bits of the same numbers in f32, rounded once on the way out; a residual counts
 * as what it holds.
 */
static void test_typed_activations(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(200); n++) {
        struct memory *m = memory_create("linear typed_activations", n);
        const int64_t out = width(m) + 1, in = rng_percent(&m->rng, 30) ? rng_range(&m->rng, 250, 400) : width(m);
        const int64_t batch = RNG_PICK(&m->rng, 1, 2, 3), tokens = RNG_PICK(&m->rng, 1, 1, 2, 3, 7, 8, 9, 31, 90);
        struct layer l;
        layer_create(&l, m, 1, in, &out);
        const attn_tensor x = place_rows_of(m, random_dtype(m), batch, tokens, in),
                          wide_x = place_rows(m, batch, tokens, in),
                          r = place_rows_of(m, random_dtype(m), batch, tokens, out),
                          wide_r = place_rows(m, batch, tokens, out),
                          y = rng_percent(&m->rng, 30) ? r : place_rows_of(m, random_dtype(m), batch, tokens, out),
                          expected = place_rows_of(m, y.dtype, batch, tokens, out),
                          wide_y = place_rows(m, batch, tokens, out);
        const int in_place = y.data == r.data;
        fill(m, &x, 1);
        fill(m, &r, 1);
        m->buffers[m->num_buffers - (in_place ? 4 : 5)].is_input = !in_place;
        for (int64_t b = 0; b < batch; b++)
            for (int64_t t = 0; t < tokens; t++) {
                for (int64_t c = 0; c < in; c++)
                    tensor_set(&wide_x, b, 0, t, c, tensor_get(&x, b, 0, t, c));
                for (int64_t c = 0; c < out; c++)
                    tensor_set(&wide_r, b, 0, t, c, tensor_get(&r, b, 0, t, c));
            }
        memory_seal(m);
        attn_linear_options options = {.struct_size = sizeof options,
                                       .activation = (attn_activation)rng_range(&m->rng, 0, ATTN_ACTIVATION_LAST)};
        const int adds = in_place || rng_percent(&m->rng, 60);
        options.residual = adds ? &wide_r : NULL;
        OK(attn_linear_forward(l.linear, &wide_x, &wide_y, &options));
        options.residual = adds ? &r : NULL;
        OK(attn_linear_forward(l.linear, &x, &y, &options));
        for (int64_t b = 0; b < batch; b++)
            for (int64_t t = 0; t < tokens; t++)
                for (int64_t c = 0; c < out; c++)
                    tensor_set(&expected, b, 0, t, c, tensor_get(&wide_y, b, 0, t, c));
        if (!equal_bits(&y, &expected))
            fail_msg("%s: x %s, out %s, %lld inputs, %lld outputs", guard_case_line, attn_dtype_name(x.dtype),
                     attn_dtype_name(y.dtype), (long long)in, (long long)out);
        attn_linear_destroy(l.linear);
        memory_destroy(m);
    }
}

/** A NaN or an infinity in a row makes that row what the definition says and leaves the others. */
static void test_special_values(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("linear special_values", n);
        const int64_t out = width(m) + 1, in = width(m) + 1, tokens = 12;
        struct layer l;
        layer_create(&l, m, 1, in, &out);
        const attn_tensor x = random_rows(m, 1, tokens, in), y = place_rows(m, 1, tokens, out);
        for (int64_t i = 0; i < tokens; i += 3)
            tensor_set(&x, 0, 0, i, rng_range(&m->rng, 0, in - 1), i % 2 ? NAN : i % 4 ? INFINITY : -INFINITY);
        const attn_linear_options options = {.struct_size = sizeof options,
                                             .activation = n % 2 ? ATTN_ACTIVATION_RELU : ATTN_ACTIVATION_NONE};
        OK(attn_linear_forward(l.linear, &x, &y, &options));
        const double *x_values = read_all(m, &x);
        const struct trio exact = trio(m, tokens * out);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->linear(&l.dense[0], tokens, x_values, options.activation, NULL, exact.of[k]);
        for (int64_t i = 0; i < tokens; i++) {
            const attn_tensor row = slice(&y, 0, i, 1);
            double *const of[ORACLES] = {exact.of[0] + i * out, exact.of[1] + i * out, exact.of[2] + i * out};
            double *sizes = zeros(m, out);
            oracle_take(0)->linear(&l.sizes[0], 1, absolute(m, x_values + i * in, in), ATTN_ACTIVATION_NONE, NULL,
                                   sizes);
            judge(NN_LINEAR, "a row", &row, of, sizes);
        }
        attn_linear_destroy(l.linear);
        memory_destroy(m);
    }
}

static void test_create_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("linear create_refuses", 0);
    const attn_tensor w[2] = {place_dense(m, 1, 1, 6, 8), place_dense(m, 1, 1, 5, 8)};
    const attn_tensor b[2] = {place_dense(m, 1, 1, 1, 6), place_dense(m, 1, 1, 1, 5)};
    for (int i = 0; i < 2; i++) {
        fill(m, &w[i], 1);
        fill(m, &b[i], 1);
    }
    memory_seal(m);
    attn_linear *linear = (attn_linear *)m;
#define CREATE_REFUSES(which, assignment, status, words)                                                               \
    do {                                                                                                               \
        attn_tensor weights[2] = {w[0], w[1]}, biases[2] = {b[0], b[1]};                                               \
        which.assignment;                                                                                              \
        linear = (attn_linear *)m;                                                                                     \
        REFUSES(m, attn_linear_create(&linear, 2, weights, biases), status, words);                                    \
        assert_null(linear);                                                                                           \
    } while (0)
    REFUSES(m, attn_linear_create(NULL, 2, w, b), ATTN_INVALID_ARGUMENT, "linear|NULL");
    REFUSES(m, attn_linear_create(&linear, 0, w, b), ATTN_INVALID_ARGUMENT, "num_parts|0");
    assert_null(linear);
    REFUSES(m, attn_linear_create(&linear, -3, w, b), ATTN_INVALID_ARGUMENT, "num_parts|-3");
    REFUSES(m, attn_linear_create(&linear, 2, NULL, b), ATTN_INVALID_ARGUMENT, "weights is NULL; expected 2 matrices");
    CREATE_REFUSES(weights[1], data = NULL, ATTN_INVALID_ARGUMENT, "weights[1]|NULL");
    CREATE_REFUSES(weights[0], dtype = ATTN_I8, ATTN_UNSUPPORTED, "weights[0]|i8");
    CREATE_REFUSES(weights[1], dtype = (attn_dtype)99, ATTN_INVALID_ARGUMENT, "weights[1]|99");
    CREATE_REFUSES(weights[0], shape[0] = 2, ATTN_SHAPE_MISMATCH, "weights[0]|2");
    CREATE_REFUSES(weights[0], shape[1] = 3, ATTN_SHAPE_MISMATCH, "weights[0]|3");
    CREATE_REFUSES(weights[1], shape[3] = 7, ATTN_SHAPE_MISMATCH, "weights[1]|7|8");
    CREATE_REFUSES(weights[0], shape[2] = -6, ATTN_INVALID_ARGUMENT, "weights[0]|-6");
    CREATE_REFUSES(weights[0], stride[2] = INT64_MAX, ATTN_SIZE_OVERFLOW, "weights[0]|9223372036854775807");
    CREATE_REFUSES(biases[1], dtype = ATTN_BOOL, ATTN_UNSUPPORTED, "biases[1]|bool");
    CREATE_REFUSES(biases[0], shape[3] = 4, ATTN_SHAPE_MISMATCH, "biases[0]|4|6");
    CREATE_REFUSES(biases[1], shape[2] = 2, ATTN_SHAPE_MISMATCH, "biases[1]|2");
    CREATE_REFUSES(biases[1], shape[0] = 3, ATTN_SHAPE_MISMATCH, "biases[1]|3");
    /* 2^32 rows of 2^31 columns in one element: no memory is touched, and there is none for a copy. */
    attn_tensor huge = w[0];
    huge.shape[2] = (int64_t)1 << 32, huge.shape[3] = (int64_t)1 << 31;
    huge.stride[2] = huge.stride[3] = 0;
    REFUSES(m, attn_linear_create(&linear, 1, &huge, NULL), ATTN_SIZE_OVERFLOW, "weights[0]");
    huge.shape[2] = (int64_t)1 << 28, huge.shape[3] = (int64_t)1 << 28;
    const attn_status status = attn_linear_create(&linear, 1, &huge, NULL);
    assert_true(status == ATTN_OUT_OF_MEMORY || status == ATTN_SIZE_OVERFLOW);
    assert_null(linear);
    nn_end_refusals();
    memory_destroy(m);
}

static void test_forward_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("linear forward_refuses", 0);
    const int64_t sizes[2] = {6, 5};
    struct layer l, two;
    layer_create(&l, m, 1, 8, sizes);
    layer_create(&two, m, 2, 8, sizes);
    const attn_tensor x = place_dense(m, 2, 1, 5, 8), out = place_dense(m, 2, 1, 5, 6), r = place_dense(m, 2, 1, 5, 6);
    const attn_tensor out5 = place_dense(m, 2, 1, 5, 5);
    const attn_tensor *outs[2] = {&out, &out5};
    attn_linear_options o = attn_linear_options_default();
    fill(m, &x, 1);
    fill(m, &r, 1);
    memory_seal(m);
#define FORWARD(linear, x_arg, out_arg, options) attn_linear_forward(linear, x_arg, out_arg, options)
#define X(assignment)                            CHANGED(attn_tensor, x, assignment)
#define OUT(assignment)                          CHANGED(attn_tensor, out, assignment)
    REFUSES(m, FORWARD(NULL, &x, &out, NULL), ATTN_INVALID_ARGUMENT, "linear is NULL; expected a layer");
    REFUSES(m, FORWARD(l.linear, NULL, &out, NULL), ATTN_INVALID_ARGUMENT, "x |NULL");
    REFUSES(m, FORWARD(l.linear, &x, NULL, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, FORWARD(two.linear, &x, &out, NULL), ANY_ERROR,
            "linear has 2 parts; expected 1, or a call of attn_linear_forward_parts()");
    REFUSES(m, FORWARD(l.linear, X(data = NULL), &out, NULL), ATTN_INVALID_ARGUMENT, "x.|NULL");
    REFUSES(m, FORWARD(l.linear, &x, OUT(data = NULL), NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, FORWARD(l.linear, X(dtype = ATTN_I8), &out, NULL), ATTN_UNSUPPORTED, "x.|i8");
    REFUSES(m, FORWARD(l.linear, X(dtype = (attn_dtype)42), &out, NULL), ATTN_INVALID_ARGUMENT, "x.|42");
    REFUSES(m, FORWARD(l.linear, &x, OUT(dtype = ATTN_I8), NULL), ATTN_UNSUPPORTED, "out|i8");
    REFUSES(m, FORWARD(l.linear, X(shape[3] = 7), &out, NULL), ATTN_SHAPE_MISMATCH, "x.|7|8");
    REFUSES(m, FORWARD(l.linear, X(shape[1] = 2), &out, NULL), ATTN_SHAPE_MISMATCH, "x.|2|1");
    REFUSES(m, FORWARD(l.linear, X(shape[2] = -1), &out, NULL), ATTN_INVALID_ARGUMENT, "x.|-1");
    REFUSES(m, FORWARD(l.linear, &x, OUT(shape[3] = 5), NULL), ATTN_SHAPE_MISMATCH, "out|5|6");
    REFUSES(m, FORWARD(l.linear, &x, OUT(shape[2] = 4), NULL), ATTN_SHAPE_MISMATCH, "out|4|5");
    REFUSES(m, FORWARD(l.linear, &x, OUT(shape[0] = 1), NULL), ATTN_SHAPE_MISMATCH, "out|1|2");
    REFUSES(m, FORWARD(l.linear, X(stride[3] = 2), &out, NULL), ATTN_INVALID_ARGUMENT, "x.|2|1");
    REFUSES(m, FORWARD(l.linear, &x, OUT(stride[3] = -1), NULL), ATTN_INVALID_ARGUMENT, "out|-1");
    REFUSES(m, FORWARD(l.linear, X(stride[0] = INT64_MAX), &out, NULL), ATTN_SIZE_OVERFLOW, "x.|9223372036854775807");
    REFUSES(m, FORWARD(l.linear, &x, OUT(stride[2] = INT64_MIN), NULL), ATTN_SIZE_OVERFLOW, "out|-9223372036854775808");
    REFUSES(m, FORWARD(l.linear, &x, OUT(stride[2] = 0), NULL), ATTN_INVALID_ARGUMENT, "out|0");
    REFUSES(m, FORWARD(l.linear, &x, OUT(stride[2] = 5), NULL), ATTN_INVALID_ARGUMENT, "out|5");
    REFUSES(m, FORWARD(l.linear, &x, OUT(data = x.data), NULL), ATTN_INVALID_ARGUMENT, "out|x");
    REFUSES(m, FORWARD(l.linear, &x, OUT(data = (char *)out.data + 2), NULL), ATTN_INVALID_ARGUMENT, "out");
    o.activation = (attn_activation)7;
    REFUSES(m, FORWARD(l.linear, &x, &out, &o), ATTN_INVALID_ARGUMENT, "activation|7");
    o.activation = (attn_activation)-1;
    REFUSES(m, FORWARD(l.linear, &x, &out, &o), ATTN_INVALID_ARGUMENT, "activation|-1");
    o.activation = ATTN_ACTIVATION_NONE, o.num_threads = -2;
    REFUSES(m, FORWARD(l.linear, &x, &out, &o), ATTN_INVALID_ARGUMENT, "num_threads|-2");
    o.num_threads = 0;
#define RESIDUAL(assignment) (o.residual = CHANGED(attn_tensor, r, assignment), &o)
    REFUSES(m, FORWARD(l.linear, &x, &out, RESIDUAL(dtype = ATTN_I8)), ATTN_UNSUPPORTED, "residual|i8");
    REFUSES(m, FORWARD(l.linear, &x, &out, RESIDUAL(shape[3] = 5)), ATTN_SHAPE_MISMATCH, "residual|5|6");
    REFUSES(m, FORWARD(l.linear, &x, &out, RESIDUAL(data = NULL)), ATTN_INVALID_ARGUMENT, "residual|NULL");
    REFUSES(m, FORWARD(l.linear, &x, &out, RESIDUAL(stride[3] = 2)), ATTN_INVALID_ARGUMENT, "residual|2");
    o.residual = &r;
    REFUSES(m, attn_linear_forward_parts(two.linear, &x, outs, &o), ANY_ERROR,
            "options.residual is set; expected NULL with several parts");
    REFUSES(m, attn_linear_forward_parts(two.linear, &x, NULL, NULL), ATTN_INVALID_ARGUMENT,
            "outs is NULL; expected 2 tensors");
    REFUSES(m, attn_linear_forward_parts(NULL, &x, outs, NULL), ATTN_INVALID_ARGUMENT, "linear|NULL");
    outs[1] = CHANGED(attn_tensor, out5, shape[3] = 6);
    REFUSES(m, attn_linear_forward_parts(two.linear, &x, outs, NULL), ATTN_SHAPE_MISMATCH, "outs[1]|6|5");
    outs[1] = CHANGED(attn_tensor, out5, data = out.data);
    REFUSES(m, attn_linear_forward_parts(two.linear, &x, outs, NULL), ATTN_INVALID_ARGUMENT, "outs[1]|outs[0]");
    nn_end_refusals();
    attn_linear_destroy(l.linear);
    attn_linear_destroy(two.linear);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),           cmocka_unit_test(test_against_oracle),
        cmocka_unit_test(test_row_bits),          cmocka_unit_test(test_narrow_bits),
        cmocka_unit_test(test_typed_activations), cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_create_refuses),    cmocka_unit_test(test_forward_refuses)};
    return NN_MAIN(tests);
}
