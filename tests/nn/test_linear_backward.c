/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of products: against the oracle, whose products they are with other
 * operands; sums that are longer than a span; the same bits on any threads, in
 * any workspace and among any other rows; NaN that stays where it belongs; wrong
 * arguments.
 */
#include "differences.h"

enum { CASES = 400 };

static int64_t width(struct memory *m)
{
    return RNG_PICK(&m->rng, 0, 1, 2, 5, 6, 7, 8, 15, 16, 17, 33, 48, 65, 95, 96, 97, 128, 129, 193, 300);
}

/** A product, its gradients, and what the oracle multiplies for them. */
struct product {
    int64_t batch, tokens, in, out;
    attn_tensor weights, x, d_out, d_x, d_weights, d_bias;
    attn_linear_gradients gradients;
};

static void product_create(struct product *p, struct memory *m, int64_t tokens, int64_t in, int64_t out)
{
    memset(p, 0, sizeof *p);
    p->batch = RNG_PICK(&m->rng, 1, 1, 2, 3, 0);
    p->tokens = tokens;
    p->in = in;
    p->out = out;
    p->weights = random_matrix(m, random_dtype(m), out, in, 0.3);
    p->x = place_rows_of(m, random_dtype(m), p->batch, tokens, in);
    p->d_out = place_rows_of(m, random_dtype(m), p->batch, tokens, out);
    fill(m, &p->x, 1);
    fill(m, &p->d_out, 1);
    p->d_x = place_rows_of(m, ATTN_F32, p->batch, tokens, in);
    p->d_weights = place_sums(m, out, in);
    p->d_bias = place_sums(m, 1, out);
    p->gradients = attn_linear_gradients_default();
    p->gradients.x = rng_percent(&m->rng, 80) ? &p->d_x : NULL;
    p->gradients.weights = rng_percent(&m->rng, 80) ? &p->d_weights : NULL;
    p->gradients.bias = rng_percent(&m->rng, 80) || (!p->gradients.x && !p->gradients.weights) ? &p->d_bias : NULL;
    p->gradients.num_threads = (int)rng_range(&m->rng, 0, 3);
    p->gradients.accumulate = rng_percent(&m->rng, 40);
}

/** [columns][rows] of [rows][columns]. */
static double *turned(struct memory *m, const double *a, int64_t rows, int64_t columns)
{
    double *t = zeros(m, rows * columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            t[c * rows + r] = a[r * columns + c];
    return t;
}

/** Judges got = a bᵀ + before, a [rows][terms] and b [columns][terms]. */
static void judge_sums(struct memory *m, const char *what, const attn_tensor *got, int64_t rows, int64_t columns,
                       int64_t terms, const double *a, const double *b, const double *before)
{
    const struct trio y = trio(m, rows * columns);
    double *sizes = zeros(m, rows * columns);
    const struct oracle_dense dense = {columns, terms, b, NULL},
                              absolutes = {columns, terms, absolute(m, b, columns * terms), NULL};
    for (int k = 0; k < ORACLES; k++)
        oracle_take(k)->linear(&dense, rows, a, ATTN_ACTIVATION_NONE, before, y.of[k]);
    oracle_take(0)->linear(&absolutes, rows, absolute(m, a, rows * terms), ATTN_ACTIVATION_NONE,
                           before ? absolute(m, before, rows * columns) : NULL, sizes);
    judge(NN_LINEAR_BACKWARD, what, got, y.of, sizes);
}

/** Runs a product and judges what it was asked for. */
static void check(struct memory *m, struct product *p)
{
    const int64_t rows = p->batch * p->tokens;
    const double *weights = read_all(m, &p->weights), *x = read_all(m, &p->x), *d_out = read_all(m, &p->d_out);
    const double *weights_before = NULL, *bias_before = NULL, *x_before = NULL;
    p->gradients.accumulate_x = p->gradients.x && p->gradients.x->dtype == ATTN_F32 && rng_percent(&m->rng, 30);
    if (p->gradients.accumulate_x) {
        fill(m, &p->d_x, 1);
        x_before = read_all(m, &p->d_x);
        mark_output(m, &p->d_x);
    }
    if (p->gradients.accumulate) {
        fill(m, &p->d_weights, 1);
        fill(m, &p->d_bias, 1);
        weights_before = read_all(m, &p->d_weights);
        bias_before = read_all(m, &p->d_bias);
        mark_output(m, &p->d_weights);
        mark_output(m, &p->d_bias);
    }
    memory_seal(m);
    OK(attn_linear_backward(&p->weights, p->gradients.weights || rng_percent(&m->rng, 50) ? &p->x : NULL, &p->d_out,
                            &p->gradients, NULL, 0));
    const double *d_turned = turned(m, d_out, rows, p->out);
    if (p->gradients.x) {
        judge_sums(m, "d_x", &p->d_x, rows, p->in, p->out, d_out, turned(m, weights, p->out, p->in), x_before);
        const attn_tensor narrow =
            place_rows_of(m, rng_percent(&m->rng, 50) ? ATTN_BF16 : ATTN_F16, p->batch, p->tokens, p->in);
        attn_linear_gradients gradients = attn_linear_gradients_default();
        gradients.x = &narrow;
        OK(attn_linear_backward(&p->weights, NULL, &p->d_out, &gradients, NULL, 0));
        if (!x_before)
            assert_rounded("d_x", &narrow, &p->d_x);
    }
    if (p->gradients.weights)
        judge_sums(m, "d_weights", &p->d_weights, p->out, p->in, rows, d_turned, turned(m, x, rows, p->in),
                   weights_before);
    if (p->gradients.bias) {
        double *ones = zeros(m, rows);
        for (int64_t i = 0; i < rows; i++)
            ones[i] = 1;
        judge_sums(m, "d_bias", &p->d_bias, p->out, 1, rows, d_turned, ones, bias_before);
    }
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(CASES); n++) {
        struct memory *m = memory_create("linear_backward against_oracle", n);
        struct product p;
        product_create(&p, m, RNG_PICK(&m->rng, 0, 1, 1, 2, 5, 7, 17, 63, 130), width(m), width(m));
        check(m, &p);
        memory_destroy(m);
    }
}

/** Of more rows, or outputs, than a span has. */
static void test_long_sums(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 12; n++) {
        struct memory *m = memory_create("linear_backward long_sums", n);
        struct product p;
        const int64_t length = RNG_PICK(&m->rng, 1023, 1024, 1025, 2049, 2600);
        product_create(&p, m, n % 2 ? length : 3, 9, n % 2 ? 7 : length);
        check(m, &p);
        memory_destroy(m);
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    const float w[2][3] = {{1, 2, 3}, {-1, 0, 4}}, x[2][3] = {{1, 1, 1}, {2, 0, -1}}, d_out[2][2] = {{1, 2}, {-1, 1}};
    float d_x[2][3], d_w[2][3], d_b[2] = {100, 200};
    const attn_tensor tw = attn_matrix(w, 2, 3), tx = attn_btc(x, 1, 2, 3), td = attn_btc(d_out, 1, 2, 2);
    const attn_tensor gx = attn_btc(d_x, 1, 2, 3), gw = attn_matrix(d_w, 2, 3), gb = attn_vector(d_b, 2);
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.x = &gx;
    gradients.weights = &gw;
    OK(attn_linear_backward(&tw, &tx, &td, &gradients, NULL, 0));
    assert_memory_equal(d_x, ((const float[2][3]){{-1, 2, 11}, {-2, -2, 1}}), sizeof d_x);
    assert_memory_equal(d_w, ((const float[2][3]){{-1, 1, 2}, {4, 2, 1}}), sizeof d_w);
    gradients = attn_linear_gradients_default();
    gradients.bias = &gb;
    gradients.accumulate = 1;
    OK(attn_linear_backward(&tw, NULL, &td, &gradients, NULL, 0));
    assert_memory_equal(d_b, ((const float[2]){100, 203}), sizeof d_b);
}

/** Threads, workspaces, and for d_x the other rows change no bit. */
static void test_bits(void **state)
{
    (void)state;
    enum { B = 2, T = 150, IN = 300, OUT = 210 };
    struct memory *m = memory_create("linear_backward bits", 0);
    const attn_tensor weights = random_matrix(m, ATTN_F32, OUT, IN, 0.3), x = random_rows(m, B, T, IN),
                      d_out = random_rows(m, B, T, OUT);
    attn_tensor d_x[2], d_weights[2], d_bias[2];
    for (int i = 0; i < 2; i++) {
        d_x[i] = place_rows(m, B, T, IN);
        d_weights[i] = place_sums(m, OUT, IN);
        d_bias[i] = place_sums(m, 1, OUT);
    }
    attn_linear_gradients gradients = attn_linear_gradients_default();
    for (int threads = 1; threads <= 8; threads++) {
        const int i = threads > 1;
        gradients.x = &d_x[i];
        gradients.weights = &d_weights[i];
        gradients.bias = &d_bias[i];
        gradients.num_threads = threads;
        const size_t told = attn_linear_backward_workspace_size(&gradients);
        char byte;
        REFUSES(m, attn_linear_backward(&weights, &x, &d_out, &gradients, &byte, 1), ATTN_WORKSPACE_TOO_SMALL,
                "workspace_size is 1");
        const size_t least = said_least();
        assert_true(least <= told);
        for (int some = 0; some < 2; some++) {
            const size_t size = some ? told : least;
            struct guard guard = guard_create(size);
            OK(attn_linear_backward(&weights, &x, &d_out, &gradients, guard_place(&guard, size, 1), size));
            assert_true(guard_intact(&guard));
            guard_destroy(&guard);
            assert_true(equal_bits(&d_x[0], &d_x[i]));
            assert_true(equal_bits(&d_weights[0], &d_weights[i]));
            assert_true(equal_bits(&d_bias[0], &d_bias[i]));
        }
    }
    gradients = attn_linear_gradients_default();
    for (int64_t t = 0; t < T; t += 37) {
        const attn_tensor row = slice(&d_out, 1, t, 1), expected = slice(&d_x[0], 1, t, 1),
                          got = slice(&d_x[1], 0, 0, 1);
        gradients.x = &got;
        OK(attn_linear_backward(&weights, NULL, &row, &gradients, NULL, 0));
        assert_true(equal_bits(&got, &expected));
    }
    nn_end_refusals();
    memory_destroy(m);
}

/** Counts how often it was asked, and runs all shares on the calling thread. */
static void run_in_turn(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    ++*(int *)user;
    for (int ith = shares - 1; ith >= 0; ith--)
        share(context, ith);
}

/** The executor of the call, or of the process, has all products; one that cannot run is refused. */
static void test_executors(void **state)
{
    (void)state;
    enum { T = 150, IN = 300, OUT = 210 };
    struct memory *m = memory_create("linear_backward executors", 0);
    const attn_tensor weights = random_matrix(m, ATTN_F32, OUT, IN, 0.3), x = random_rows(m, 1, T, IN),
                      d_out = random_rows(m, 1, T, OUT);
    int asked = 0;
    attn_executor executor = attn_executor_default();
    executor.num_threads = 4;
    executor.run = run_in_turn;
    executor.user = &asked;
    attn_tensor d_x[3], d_weights[3];
    for (int i = 0; i < 3; i++) {
        d_x[i] = place_rows(m, 1, T, IN);
        d_weights[i] = place_sums(m, OUT, IN);
        attn_linear_gradients gradients = attn_linear_gradients_default();
        gradients.x = &d_x[i];
        gradients.weights = &d_weights[i];
        gradients.num_threads = i == 0;
        gradients.executor = i == 1 ? &executor : NULL;
        OK(attn_set_executor(i == 2 ? &executor : NULL));
        OK(attn_linear_backward(&weights, &x, &d_out, &gradients, NULL, 0));
        assert_int_equal(asked, 2 * i);
        assert_true(equal_bits(&d_x[0], &d_x[i]));
        assert_true(equal_bits(&d_weights[0], &d_weights[i]));
    }
    OK(attn_set_executor(NULL));
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.x = &d_x[0];
    gradients.executor = &executor;
    executor.num_threads = 0;
    memory_seal(m);
    REFUSES(m, attn_linear_backward(&weights, &x, &d_out, &gradients, NULL, 0), ATTN_INVALID_ARGUMENT,
            "gradients.executor.num_threads is 0; expected 1 or more");
    const attn_tensor narrow = place_rows_of(m, ATTN_BF16, d_out.shape[0], d_out.shape[2], weights.shape[3]);
    gradients.executor = NULL;
    gradients.x = &narrow;
    gradients.accumulate_x = 1;
    memory_seal(m);
    REFUSES(m, attn_linear_backward(&weights, &x, &d_out, &gradients, NULL, 0), ATTN_INVALID_ARGUMENT,
            "gradients.x.dtype is bf16|accumulate_x");
    gradients.executor = &executor;
    assert_true(attn_linear_backward_workspace_size(&gradients) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

/** A row of d_out that is not finite reaches its own row of d_x, and no column of d_weights but its own outputs'. */
static void test_not_finite(void **state)
{
    (void)state;
    enum { T = 9, IN = 20, OUT = 30 };
    struct memory *m = memory_create("linear_backward not_finite", 0);
    const attn_tensor weights = random_matrix(m, ATTN_F32, OUT, IN, 0.3), x = random_rows(m, 1, T, IN),
                      d_out = random_rows(m, 1, T, OUT), d_x = place_rows(m, 1, T, IN);
    const attn_tensor d_weights = place_sums(m, OUT, IN), d_bias = place_sums(m, 1, OUT);
    tensor_set(&d_out, 0, 0, 4, 7, NAN);
    tensor_set(&d_out, 0, 0, 5, 8, INFINITY);
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.x = &d_x;
    gradients.weights = &d_weights;
    gradients.bias = &d_bias;
    OK(attn_linear_backward(&weights, &x, &d_out, &gradients, NULL, 0));
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < IN; c++)
            assert_int_equal(isfinite(tensor_get(&d_x, 0, 0, t, c)) != 0, t != 4 && t != 5);
    for (int64_t o = 0; o < OUT; o++) {
        for (int64_t c = 0; c < IN; c++)
            assert_int_equal(isfinite(tensor_get(&d_weights, 0, 0, o, c)) != 0, o != 7 && o != 8);
        assert_int_equal(isfinite(tensor_get(&d_bias, 0, 0, 0, o)) != 0, o != 7 && o != 8);
    }
    memory_destroy(m);
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("linear_backward wrong_arguments", 0);
    const attn_tensor w = random_matrix(m, ATTN_F32, 5, 4, 1), x = random_rows(m, 2, 3, 4), d = random_rows(m, 2, 3, 5);
    const attn_tensor gx = place_rows(m, 2, 3, 4), gw = place_sums(m, 5, 4), gb = place_sums(m, 1, 5);
    attn_linear_gradients all = attn_linear_gradients_default();
    all.x = &gx;
    all.weights = &gw;
    all.bias = &gb;
    memory_seal(m);
#define WRONG(weights, input, gradient, gradients, words)                                                              \
    REFUSES(m, attn_linear_backward(weights, input, gradient, gradients, NULL, 0), ANY_ERROR, words)
#define GRADIENTS(assignment) CHANGED(attn_linear_gradients, all, assignment)
    const attn_linear_gradients none = attn_linear_gradients_default();
    WRONG(NULL, &x, &d, &all, "weights is NULL");
    WRONG(&w, NULL, &d, &all, "x is NULL");
    WRONG(&w, &x, NULL, &all, "d_out is NULL");
    WRONG(&w, &x, &d, NULL, "gradients is NULL");
    WRONG(&w, &x, &d, &none, "gradients has no tensor; expected x, weights or bias");
    WRONG(&w, CHANGED(attn_tensor, x, shape[3] = 3), &d, &all, "x.shape[3] is 3");
    WRONG(&w, CHANGED(attn_tensor, x, shape[2] = 2), &d, &all, "x.shape[2] is 2");
    WRONG(&w, &x, CHANGED(attn_tensor, d, shape[3] = 4), &all, "d_out.shape[3] is 4");
    WRONG(&w, &x, CHANGED(attn_tensor, d, stride[3] = 2), &all, "d_out.stride[3] is 2");
    WRONG(&w, &x, CHANGED(attn_tensor, d, dtype = ATTN_BOOL), &all, "d_out.dtype is bool");
    WRONG(&w, &x, &d, GRADIENTS(x = WITHIN(attn_tensor, gx, shape[2] = 2)), "gradients.x.shape[2] is 2");
    WRONG(&w, &x, &d, GRADIENTS(x = WITHIN(attn_tensor, gx, stride[2] = 0)), "gradients.x|stride");
    WRONG(&w, &x, &d, GRADIENTS(weights = WITHIN(attn_tensor, gw, shape[2] = 4)), "gradients.weights.shape[2] is 4");
    WRONG(&w, &x, &d, GRADIENTS(weights = WITHIN(attn_tensor, gw, dtype = ATTN_F16)), "gradients.weights.dtype is f16");
    WRONG(&w, &x, &d, GRADIENTS(weights = WITHIN(attn_tensor, gw, stride[2] = 0)), "gradients.weights|stride");
    WRONG(&w, &x, &d, GRADIENTS(bias = WITHIN(attn_tensor, gb, shape[3] = 4)), "gradients.bias.shape[3] is 4");
    WRONG(&w, &x, &d, GRADIENTS(bias = WITHIN(attn_tensor, gb, dtype = ATTN_BF16)), "gradients.bias.dtype is bf16");
    WRONG(&w, &x, &d, GRADIENTS(bias = WITHIN(attn_tensor, gb, stride[3] = 2)), "gradients.bias.stride[3] is 2");
    WRONG(&w, &x, &d, GRADIENTS(x = &x), "gradients.x|x|overlap");
    WRONG(&w, &x, &d, GRADIENTS(weights = &w), "gradients.weights|weights");
    WRONG(&w, &x, &d, GRADIENTS(bias = WITHIN(attn_tensor, gb, data = gw.data)), "gradients.bias|gradients.weights");
    WRONG(&w, &x, &d, GRADIENTS(num_threads = -1), "num_threads is -1");
    WRONG(&w, &x, &d, GRADIENTS(struct_size = 3), "gradients.struct_size is 3");
    assert_true(attn_linear_backward_workspace_size(NULL) == SIZE_MAX);
    assert_true(attn_linear_backward_workspace_size(GRADIENTS(num_threads = -1)) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_oracle),  cmocka_unit_test(test_long_sums), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_executors),       cmocka_unit_test(test_bits),      cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
