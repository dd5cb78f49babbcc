/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers that keep narrow weights: what each format keeps, to the bit and
 * to half a step; products against the oracle, which gets the numbers that the
 * formats stand for; rows whose bits depend on nothing else; special values;
 * wrong arguments. On every instruction set that this processor runs, whatever
 * the environment allows.
 */
#include "linear_sets.h"
#include "memory.h"

enum { CASES = 500, MAX_PARTS = 2 };

struct layer {
    attn_linear_format format;
    int64_t num_parts, in, out[MAX_PARTS];
    attn_tensor weights[MAX_PARTS], biases[MAX_PARTS];
    double *kept[MAX_PARTS], *step[MAX_PARTS]; /**< [out][in] what weights become, and the size of their steps */
    double *bias[MAX_PARTS];                   /**< or NULL */
    attn_linear *linear;
};

static int is_integer(const attn_linear_format *f)
{
    return f->weights == ATTN_WEIGHTS_INT8 || f->weights == ATTN_WEIGHTS_INT4;
}

/** The least bf16 that is not below x > 0. */
static double bf16_above(double x)
{
    const float near = dtype_widen(ATTN_BF16, dtype_narrow(ATTN_BF16, x));
    return (double)near >= x ? (double)near
                             : (double)dtype_widen(ATTN_BF16, (uint16_t)(dtype_narrow(ATTN_BF16, x) + 1));
}

/** What n weights of an output with one scale become, by the rules of the header. */
static void quantize_group(const attn_linear_format *f, const double *w, int64_t n, double *kept, double *step)
{
    double above = 0, below = 0, scale;
    for (int64_t c = 0; c < n; c++) {
        above = fmax(above, w[c]);
        below = fmax(below, -w[c]);
    }
    const double size = fmax(above, below);
    const int most = f->weights == ATTN_WEIGHTS_INT8 ? 127 : 7, least = f->weights == ATTN_WEIGHTS_INT8 ? -127 : -8;
    if (size == 0)
        scale = 0;
    else if (f->weights == ATTN_WEIGHTS_INT8)
        scale = f->group ? bf16_above(size / 127) : (double)(float)(size / 127);
    else
        scale = fmax(above / 7, below / 8) <= fmax(above / 8, below / 7) ? bf16_above(fmax(above / 7, below / 8))
                                                                         : -bf16_above(fmax(above / 8, below / 7));
    for (int64_t c = 0; c < n; c++) {
        const double q = scale != 0 ? rint(w[c] / scale) : 0;
        kept[c] = fmin(fmax(q, least), most) * scale;
        step[c] = fabs(scale);
    }
}

static void keep(const struct layer *l, const double *w, int64_t out, double *kept, double *step)
{
    const attn_linear_format *f = &l->format;
    const int64_t group = f->weights == ATTN_WEIGHTS_INT4 ? 32 : f->group ? f->group : l->in;
    for (int64_t o = 0; o < out; o++)
        for (int64_t c = 0; c < l->in; c += group) {
            const int64_t at = o * l->in + c, n = l->in - c < group ? l->in - c : group;
            if (is_integer(f))
                quantize_group(f, w + at, n, kept + at, step + at);
            else
                for (int64_t i = 0; i < n; i++)
                    kept[at + i] =
                        f->weights == ATTN_WEIGHTS_BF16 ? (double)dtype_round(ATTN_BF16, (float)w[at + i]) : w[at + i];
        }
}

static int64_t width(struct memory *m)
{
    return RNG_PICK(&m->rng, 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 97, 127, 128,
                    129, 160);
}

static int64_t inputs(struct memory *m)
{
    return rng_percent(&m->rng, 30)  ? rng_range(&m->rng, 130, 420)
           : rng_percent(&m->rng, 5) ? rng_range(&m->rng, 500, 1100)
                                     : width(m);
}

/** Any format that is allowed, on any set. */
static attn_linear_format random_format(struct memory *m)
{
    attn_linear_format f = attn_linear_format_default();
    f.weights = (attn_weight_format)rng_range(&m->rng, 0, ATTN_WEIGHT_FORMAT_LAST);
    f.isa = sets[rng_range(&m->rng, 0, num_sets - 1)];
    if (f.weights == ATTN_WEIGHTS_INT8)
        f.group = RNG_PICK(&m->rng, 0, 0, 32, 64, 128);
    else if (f.weights == ATTN_WEIGHTS_INT4)
        f.group = RNG_PICK(&m->rng, 0, 32);
    if (is_integer(&f))
        f.multiply = rng_percent(&m->rng, 60) ? ATTN_MULTIPLY_INT8 : ATTN_MULTIPLY_F32;
    else if (f.weights != ATTN_WEIGHTS_F32)
        f.multiply = rng_percent(&m->rng, 60) ? ATTN_MULTIPLY_BF16 : ATTN_MULTIPLY_F32;
    return f;
}

static const char *format_name(const attn_linear_format *f)
{
    static char name[80];
    snprintf(name, sizeof name, "weights %d, multiply %d, group %d, isa %s", (int)f->weights, (int)f->multiply,
             (int)f->group, f->isa ? f->isa : "NULL");
    return name;
}

static struct layer layer_create(struct memory *m, const attn_linear_format *format, int64_t num_parts, int64_t in)
{
    struct layer l = {.format = *format, .num_parts = num_parts, .in = in};
    const int given_bf16 = format->weights == ATTN_WEIGHTS_AS_GIVEN && format->multiply == ATTN_MULTIPLY_BF16;
    for (int64_t p = 0; p < num_parts; p++) {
        const attn_dtype dtype = given_bf16 ? ATTN_BF16 : random_dtype(m);
        const int64_t out = l.out[p] = width(m), all = out * in;
        l.weights[p] = random_matrix(m, dtype, out, in, rng_percent(&m->rng, 90) ? 0.3 : 1e-3);
        if (out && in && rng_percent(&m->rng, 20)) /* an output of zeros */
            for (int64_t c = 0; c < in; c++)
                tensor_set(&l.weights[p], 0, 0, 0, c, 0);
        if (rng_percent(&m->rng, 70)) {
            l.biases[p] = random_vector(m, random_dtype(m), out, 1, 0);
            l.bias[p] = read_all(m, &l.biases[p]);
        }
        l.kept[p] = zeros(m, all);
        l.step[p] = zeros(m, all);
        keep(&l, read_all(m, &l.weights[p]), out, l.kept[p], l.step[p]);
    }
    OK(attn_linear_quantize(&l.linear, format, num_parts, l.weights, l.biases));
    return l;
}

/** What rows of x are multiplied as: rounded to bf16, made integers, or as they are. */
static double *multiplied(struct memory *m, const attn_linear_format *f, const double *x, int64_t rows, int64_t in)
{
    double *y = zeros(m, rows * in);
    const int64_t group = f->weights == ATTN_WEIGHTS_INT4 ? 32 : f->group;
    for (int64_t r = 0; r < rows; r++) {
        float size = 0;
        for (int64_t c = 0; c < in; c++) {
            if (c % (group ? group : in) == 0) {
                size = 0;
                for (int64_t i = c; i < in && i < c + (group ? group : in); i++)
                    size = fmaxf(size, fabsf((float)x[r * in + i]));
            }
            const float v = (float)x[r * in + c];
            y[r * in + c] = f->multiply == ATTN_MULTIPLY_F32    ? x[r * in + c]
                            : f->multiply == ATTN_MULTIPLY_BF16 ? (double)dtype_round(ATTN_BF16, v)
                            : size > 0 ? (double)rintf(v * (127.0f / size)) * (double)(size / 127.0f)
                                       : 0;
        }
    }
    return y;
}

/** out of a part against the oracle, for x as it is multiplied. */
static void judge_part(struct memory *m, const struct layer *l, int64_t p, const double *x, const attn_tensor *out,
                       attn_activation activation, const double *residual)
{
    const int64_t rows = out->shape[0] * out->shape[2], all = rows * l->out[p];
    const struct oracle_dense dense = {l->out[p], l->in, l->kept[p], l->bias[p]};
    const struct oracle_dense size = {l->out[p], l->in, absolute(m, l->kept[p], l->out[p] * l->in),
                                      l->bias[p] ? absolute(m, l->bias[p], l->out[p]) : NULL};
    const struct trio y = trio(m, all);
    double *sizes = zeros(m, all);
    for (int k = 0; k < ORACLES; k++)
        oracle_take(k)->linear(&dense, rows, x, activation, residual, y.of[k]);
    oracle_take(0)->linear(&size, rows, absolute(m, x, rows * l->in), ATTN_ACTIVATION_NONE,
                           residual ? absolute(m, residual, all) : NULL, sizes);
    for (int64_t i = 0; i < all; i++)
        sizes[i] += fabs(y.of[0][i]);
    judge(is_integer(&l->format) ? NN_LINEAR_INTEGERS : NN_LINEAR, format_name(&l->format), out, y.of, sizes);
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(CASES); n++) {
        struct memory *m = memory_create("formats against_oracle", n);
        const attn_linear_format format = random_format(m);
        const int64_t batch = RNG_PICK(&m->rng, 1, 1, 2, 0), tokens = RNG_PICK(&m->rng, 0, 1, 1, 2, 5, 8, 9, 17, 40);
        const int64_t num_parts = RNG_PICK(&m->rng, 1, 1, 2), in = inputs(m);
        struct layer l = layer_create(m, &format, num_parts, in);
        const attn_tensor x = place_rows_of(m, random_dtype(m), batch, tokens, in);
        fill(m, &x, 1);
        const double *values = read_all(m, &x), *used = multiplied(m, &format, values, batch * tokens, in);
        attn_linear_options options = attn_linear_options_default();
        options.activation = (attn_activation)rng_range(&m->rng, 0, ATTN_ACTIVATION_LAST);
        options.num_threads = (int)rng_range(&m->rng, 0, 3);
        attn_tensor outs[MAX_PARTS], residual;
        const attn_tensor *out_args[MAX_PARTS];
        double *added = NULL;
        for (int64_t p = 0; p < num_parts; p++) {
            outs[p] = place_rows(m, batch, tokens, l.out[p]);
            out_args[p] = num_parts > 1 && rng_percent(&m->rng, 20) ? NULL : &outs[p];
        }
        if (num_parts == 1 && rng_percent(&m->rng, 50)) {
            residual = place_rows_of(m, random_dtype(m), batch, tokens, l.out[0]);
            fill(m, &residual, 1);
            added = read_all(m, &residual);
            options.residual = &residual;
        }
        memory_seal(m);
        if (num_parts == 1)
            OK(attn_linear_forward(l.linear, &x, &outs[0], &options));
        else
            OK(attn_linear_forward_parts(l.linear, &x, out_args, &options));
        for (int64_t p = 0; p < num_parts; p++)
            if (out_args[p])
                judge_part(m, &l, p, used, &outs[p], options.activation, added);
        attn_linear_destroy(l.linear);
        memory_destroy(m);
    }
}

/** Rows of the unit matrix bring the weights to light: what the format says, at most half a step from what was given.
 */
static void test_weights(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(200); n++) {
        struct memory *m = memory_create("formats weights", n);
        attn_linear_format format = random_format(m);
        format.multiply = ATTN_MULTIPLY_F32;
        const int64_t in = RNG_PICK(&m->rng, 1, 2, 7, 8, 9, 31, 32, 33, 65, 130, 200);
        struct layer l = layer_create(m, &format, 1, in);
        const int64_t out = l.out[0];
        const attn_tensor x = place_rows(m, 1, in, in), y = place_rows(m, 1, in, out);
        const double *given = read_all(m, &l.weights[0]);
        const attn_tensor no_bias = {0};
        attn_linear_destroy(l.linear);
        OK(attn_linear_quantize(&l.linear, &format, 1, l.weights, &no_bias));
        for (int64_t t = 0; t < in; t++)
            for (int64_t c = 0; c < in; c++)
                tensor_set(&x, 0, 0, t, c, t == c);
        OK(attn_linear_forward(l.linear, &x, &y, NULL));
        for (int64_t o = 0; o < out; o++)
            for (int64_t c = 0; c < in; c++) {
                const double w = given[o * in + c], kept = l.kept[0][o * in + c], step = l.step[0][o * in + c];
                const float got = tensor_get(&y, 0, 0, c, o);
                if (got != (float)kept)
                    fail_msg("%s: %s: weight (%d, %d) of %.9g is %.9g; expected %.9g", guard_case_line,
                             format_name(&format), (int)o, (int)c, w, (double)got, kept);
                if (is_integer(&format) && fabs(w - kept) > step / 2 * (1 + 0x1p-20))
                    fail_msg("%s: %s: weight (%d, %d) of %.9g is %.9g, off by %.4g steps", guard_case_line,
                             format_name(&format), (int)o, (int)c, w, kept, fabs(w - kept) / step);
            }
        attn_linear_destroy(l.linear);
        memory_destroy(m);
    }
}

/** bf16 takes half of f32's bytes, int8 a quarter, int4 an eighth, and the scales. */
static void test_bytes(void **state)
{
    (void)state;
    enum { IN = 512, OUT = 96 };
    struct memory *m = memory_create("formats bytes", 0);
    const attn_tensor w[2] = {random_matrix(m, ATTN_F32, OUT, IN, 1), random_matrix(m, ATTN_F32, OUT, IN, 1)};
    const int64_t all = (int64_t)2 * IN * OUT;
    const struct {
        attn_weight_format weights;
        int64_t group, bytes;
    } expected[] = {{ATTN_WEIGHTS_AS_GIVEN, 0, 4 * all},
                    {ATTN_WEIGHTS_F32, 0, 4 * all},
                    {ATTN_WEIGHTS_BF16, 0, 2 * all},
                    {ATTN_WEIGHTS_INT8, 0, all + 2 * OUT * 4},
                    {ATTN_WEIGHTS_INT8, 32, all + all / 32 * 2},
                    {ATTN_WEIGHTS_INT8, 128, all + all / 128 * 2},
                    {ATTN_WEIGHTS_INT4, 0, all / 2 + all / 32 * 2}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (int multiply = 0; multiply <= ATTN_MULTIPLY_LAST; multiply++) {
            attn_linear_format f = attn_linear_format_default();
            attn_linear *linear;
            f.weights = expected[i].weights, f.group = expected[i].group, f.multiply = (attn_multiply)multiply;
            if (attn_linear_quantize(&linear, &f, 2, w, NULL) != ATTN_OK)
                continue;
            assert_int_equal(attn_linear_weight_bytes(linear), expected[i].bytes);
            attn_linear_destroy(linear);
        }
    memory_destroy(m);
}

/** The same rows in another batch, under another number of threads, with other neighbours, even such as are NaN. */
static void test_row_bits(void **state)
{
    (void)state;
    enum { ROWS = 150 };
    for (uint64_t n = 0; n < cases(120); n++) {
        struct memory *m = memory_create("formats row_bits", n);
        const attn_linear_format format = random_format(m);
        struct layer l = layer_create(m, &format, 1, inputs(m));
        const attn_tensor x = place_rows_of(m, random_dtype(m), 1, ROWS, l.in),
                          first = place_rows(m, 1, ROWS, l.out[0]);
        attn_linear_options options = attn_linear_options_default();
        fill(m, &x, 1);
        options.activation = (attn_activation)rng_range(&m->rng, 0, ATTN_ACTIVATION_LAST);
        options.num_threads = 1;
        OK(attn_linear_forward(l.linear, &x, &first, &options));
        for (int try = 0; try < 6; try++) {
            const int64_t tokens = RNG_PICK(&m->rng, 1, 1, 2, 3, 7, 8, 13, 31, 140);
            const int64_t at = rng_range(&m->rng, 0, ROWS - tokens);
            const attn_tensor some = slice(&x, 0, at, tokens), again = place_rows(m, 1, tokens, l.out[0]),
                              expected = slice(&first, 0, at, tokens);
            options.num_threads = 1 + try % 3;
            OK(attn_linear_forward(l.linear, &some, &again, &options));
            if (!equal_bits(&again, &expected))
                fail_msg("%s: %s: %d rows from %d on with %d threads", guard_case_line, format_name(&format),
                         (int)tokens, (int)at, options.num_threads);
        }
        const attn_tensor among = place_rows_of(m, x.dtype, 9, 1, l.in), out = place_rows(m, 9, 1, l.out[0]);
        for (int64_t i = 0; i < 9; i++)
            for (int64_t c = 0; c < l.in; c++)
                tensor_set(&among, i, 0, 0, c, i == 4 ? tensor_get(&x, 0, 0, 7, c) : i % 2 ? NAN : INFINITY);
        OK(attn_linear_forward(l.linear, &among, &out, &options));
        const attn_tensor expected = slice(&first, 0, 7, 1), got = slice(&out, 4, 0, 1);
        if (!equal_bits(&got, &expected))
            fail_msg("%s: %s: a row among rows of NaN", guard_case_line, format_name(&format));
        attn_linear_destroy(l.linear);
        memory_destroy(m);
    }
}

/**
 * Products of integers have the same bits on sets whose floats have the same lanes, and those of bf16 on matrix
 * registers and emulated ones.
 */
static void test_sets_agree(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"avx2", "avx2_int8"}, {"avx512", "avx512_int8"},        {"neon", "neon_int8"},
        {"avx2", "avx512"},    {"avx512", "emulated_amx_int8"},  {"avx512_int8", "amx_int8"},
        {"avx2", "avx512"},    {"emulated_amx_bf16", "amx_bf16"}};
    for (uint64_t n = 0; n < cases(200); n++) {
        struct memory *m = memory_create("formats sets_agree", n);
        const char *const *pair = pairs[n % 8];
        const int bf16 = strstr(pair[0], "_bf16") != NULL;
        attn_linear_format format = random_format(m);
        int there = 0;
        for (int i = 1; i < num_sets; i++)
            there += strcmp(sets[i], pair[0]) == 0 || strcmp(sets[i], pair[1]) == 0;
        if (bf16)
            format.weights = ATTN_WEIGHTS_BF16, format.group = 0;
        if (there == 2 && (bf16 || is_integer(&format))) {
            const int64_t in = inputs(m), tokens = RNG_PICK(&m->rng, 1, 2, 9, 30, 49, 130);
            const attn_tensor x = random_rows(m, 1, tokens, in), w = random_matrix(m, ATTN_F32, width(m), in, 1);
            const attn_tensor y[2] = {place_rows(m, 1, tokens, w.shape[2]), place_rows(m, 1, tokens, w.shape[2])};
            format.multiply = bf16 ? ATTN_MULTIPLY_BF16 : ATTN_MULTIPLY_INT8;
            for (int i = 0; i < 2; i++) {
                attn_linear *linear;
                format.isa = pair[i];
                OK(attn_linear_quantize(&linear, &format, 1, &w, NULL));
                assert_string_equal(attn_linear_isa(linear), pair[i]);
                OK(attn_linear_forward(linear, &x, &y[i], NULL));
                attn_linear_destroy(linear);
            }
            if (!equal_bits(&y[0], &y[1]))
                fail_msg("%s: %s and %s", guard_case_line, pair[0], format_name(&format));
        }
        memory_destroy(m);
    }
}

/** Rows with NaN or an infinity are NaN when they are to be integers; zeros and denormals are what they are. */
static void test_special_rows(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(100); n++) {
        struct memory *m = memory_create("formats special_rows", n);
        attn_linear_format format = random_format(m);
        format.weights = n % 2 ? ATTN_WEIGHTS_INT8 : ATTN_WEIGHTS_INT4;
        format.group = n % 2 ? RNG_PICK(&m->rng, 0, 32, 128) : 32;
        format.multiply = ATTN_MULTIPLY_INT8;
        struct layer l = layer_create(m, &format, 1, inputs(m) + 1);
        const int64_t out = l.out[0], in = l.in, tokens = 12;
        const attn_tensor x = random_rows(m, 1, tokens, in), y = place_rows(m, 1, tokens, out);
        const float bad[] = {NAN, INFINITY, -INFINITY}, sizes[] = {0x1p-140f, 0x1p-110f, 0x1p90f};
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t c = 0; c < in; c++)
                if (t % 4 == 1)
                    tensor_set(&x, 0, 0, t, c, 0);
                else if (t % 4 == 2)
                    tensor_set(&x, 0, 0, t, c, tensor_get(&x, 0, 0, t, c) * sizes[t / 4]);
        for (int64_t t = 0; t < tokens; t += 4)
            tensor_set(&x, 0, 0, t, rng_range(&m->rng, 0, in - 1), bad[t / 4]);
        OK(attn_linear_forward(l.linear, &x, &y, NULL));
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t o = 0; o < out; o++) {
                const float got = tensor_get(&y, 0, 0, t, o);
                const double bias = l.bias[0] ? l.bias[0][o] : 0;
                double exact = bias, size = fabs(bias), largest = 0;
                for (int64_t c = 0; c < in; c++) {
                    const double v = (double)tensor_get(&x, 0, 0, t, c), w = l.kept[0][o * in + c];
                    exact += v * w;
                    size += fabs(w);
                    largest = fmax(largest, fabs(v));
                }
                if (t % 4 == 0)
                    assert_true(isnan(got));
                else if (t % 4 == 1)
                    assert_true((double)got == bias);
                else /* half a step of x for each weight, and rounding */
                    assert_true(fabs((double)got - exact) <= largest / 127 * 0.51 * size +
                                                                 1e-5 * (fabs(bias) + largest * size) +
                                                                 0x1p-148 * (1 + 127 * size));
            }
        attn_linear_destroy(l.linear);
        memory_destroy(m);
    }
}

/** Weights that are NaN reach the results of their own outputs alone: what is read beside them counts for nothing. */
static void test_nan_outputs(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(100); n++) {
        struct memory *m = memory_create("formats nan_outputs", n);
        attn_linear_format f = attn_linear_format_default();
        const int64_t out = 150, in = inputs(m) + 1, tokens = RNG_PICK(&m->rng, 1, 8, 19, 33);
        const int64_t first = rng_range(&m->rng, 0, out - 1), end = rng_range(&m->rng, first + 1, out);
        const attn_tensor w = random_matrix(m, ATTN_F32, out, in, 1), x = random_rows(m, 1, tokens, in);
        const attn_tensor y = place_rows(m, 1, tokens, out);
        attn_linear *linear;
        for (int64_t o = first; o < end; o++)
            for (int64_t c = 0; c < in; c++)
                tensor_set(&w, 0, 0, o, c, NAN);
        f.weights = ATTN_WEIGHTS_BF16;
        f.multiply = rng_percent(&m->rng, 70) ? ATTN_MULTIPLY_BF16 : ATTN_MULTIPLY_F32;
        f.isa = sets[n % (uint64_t)num_sets];
        OK(attn_linear_quantize(&linear, &f, 1, &w, NULL));
        OK(attn_linear_forward(linear, &x, &y, NULL));
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t o = 0; o < out; o++)
                if ((isnan(tensor_get(&y, 0, 0, t, o)) != 0) != (o >= first && o < end))
                    fail_msg("%s: %s: output %d of %d inputs, NaN from %d to %d", guard_case_line, format_name(&f),
                             (int)o, (int)in, (int)first, (int)end - 1);
        attn_linear_destroy(linear);
        memory_destroy(m);
    }
}

/** As many inputs as int32 sums have room for, at their largest. */
static void test_largest_sums(void **state)
{
    (void)state;
    enum { IN = ATTN_MULTIPLY_INT8_INPUTS };
    struct memory *m = memory_create("formats largest_sums", 0);
    const attn_tensor w = place_dense(m, 1, 1, 2, IN), x = place_dense(m, 1, 1, 3, IN), y = place_dense(m, 1, 1, 3, 2);
    for (int64_t c = 0; c < IN; c++) {
        tensor_set(&w, 0, 0, 0, c, 127), tensor_set(&w, 0, 0, 1, c, -127);
        for (int64_t t = 0; t < 3; t++)
            tensor_set(&x, 0, 0, t, c, t == 1 ? -127 : 127);
    }
    for (int i = 0; i < num_sets; i++)
        for (int64_t group = 0; group <= 32; group += 32) {
            attn_linear_format f = attn_linear_format_default();
            attn_linear *linear;
            f.weights = ATTN_WEIGHTS_INT8, f.multiply = ATTN_MULTIPLY_INT8, f.isa = sets[i], f.group = group;
            OK(attn_linear_quantize(&linear, &f, 1, &w, NULL));
            OK(attn_linear_forward(linear, &x, &y, NULL));
            for (int64_t t = 0; t < 3; t++)
                for (int64_t o = 0; o < 2; o++) {
                    const double exact = ((t == 1) == (o == 1) ? 127.0 : -127.0) * 127 * IN; /* a float */
                    const double off = fabs((double)tensor_get(&y, 0, 0, t, o) - exact);
                    assert_true(off <= (group ? 1e-4 * fabs(exact) : 0)); /* sums of groups are rounded */
                }
            attn_linear_destroy(linear);
        }
    memory_destroy(m);
}

static void test_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("formats refuses", 0);
    const attn_tensor w[2] = {place_dense(m, 1, 1, 3, 5), tensor_as(place_dense(m, 1, 1, 2, 5), ATTN_BF16)};
    attn_linear *linear;
    fill(m, &w[0], 1);
    fill(m, &w[1], 1);
#define QUANTIZE_REFUSES(status, words, ...)                                                                           \
    do {                                                                                                               \
        const attn_linear_format f = {.struct_size = sizeof f, __VA_ARGS__};                                           \
        linear = (attn_linear *)m;                                                                                     \
        REFUSES(m, attn_linear_quantize(&linear, &f, 2, w, NULL), status, words);                                      \
        assert_null(linear);                                                                                           \
    } while (0)
    REFUSES(m, attn_linear_quantize(NULL, NULL, 1, w, NULL), ATTN_INVALID_ARGUMENT,
            "linear is NULL; expected where to put the layer");
    QUANTIZE_REFUSES(ATTN_INVALID_ARGUMENT, "format.weights is 5; expected an attn_weight_format",
                     .weights = (attn_weight_format)5);
    QUANTIZE_REFUSES(ATTN_INVALID_ARGUMENT, "format.multiply|-1", .multiply = (attn_multiply)-1);
    QUANTIZE_REFUSES(ATTN_INVALID_ARGUMENT, "format.group|16|32, 64 or 128", .weights = ATTN_WEIGHTS_INT8, .group = 16);
    QUANTIZE_REFUSES(ATTN_INVALID_ARGUMENT, "format.group is 64; expected 0 or 32 with weights in int4",
                     .weights = ATTN_WEIGHTS_INT4, .group = 64);
    QUANTIZE_REFUSES(ATTN_INVALID_ARGUMENT, "format.group is 32; expected 0 with weights in bf16",
                     .weights = ATTN_WEIGHTS_BF16, .group = 32);
    QUANTIZE_REFUSES(ATTN_INVALID_ARGUMENT, "format.isa is 'sse9'; expected NULL or one of scalar", .isa = "sse9");
    for (int i = 0; i < num_missing; i++) {
        char words[100];
        snprintf(words, sizeof words, "format.isa is %s, which this processor does not have", missing[i]);
        QUANTIZE_REFUSES(ATTN_UNSUPPORTED, words, .isa = missing[i]);
    }
    QUANTIZE_REFUSES(ATTN_UNSUPPORTED, "format.multiply is int8|f32 or bf16|in bf16", .weights = ATTN_WEIGHTS_BF16,
                     .multiply = ATTN_MULTIPLY_INT8);
    QUANTIZE_REFUSES(ATTN_UNSUPPORTED, "format.multiply is int8|as given", .multiply = ATTN_MULTIPLY_INT8);
    QUANTIZE_REFUSES(ATTN_UNSUPPORTED, "format.multiply is bf16|expected f32 with weights in f32",
                     .weights = ATTN_WEIGHTS_F32, .multiply = ATTN_MULTIPLY_BF16);
    QUANTIZE_REFUSES(ATTN_UNSUPPORTED, "format.multiply is bf16|f32 or int8|in int4", .weights = ATTN_WEIGHTS_INT4,
                     .multiply = ATTN_MULTIPLY_BF16);
    QUANTIZE_REFUSES(ATTN_UNSUPPORTED, "format.multiply is bf16|weights[0] is f32", .multiply = ATTN_MULTIPLY_BF16);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        const float before = tensor_get(&w[1], 0, 0, 1, 3);
        tensor_set(&w[1], 0, 0, 1, 3, bad[i]);
        QUANTIZE_REFUSES(ATTN_INVALID_ARGUMENT, "weights[1] is|row 1, column 3|finite", .weights = ATTN_WEIGHTS_INT8);
        QUANTIZE_REFUSES(ATTN_INVALID_ARGUMENT, "weights[1] is|row 1, column 3|finite", .weights = ATTN_WEIGHTS_INT4,
                         .multiply = ATTN_MULTIPLY_INT8);
        tensor_set(&w[1], 0, 0, 1, 3, before);
    }
    attn_tensor wide = w[0];
    wide.shape[3] = ATTN_MULTIPLY_INT8_INPUTS + 1, wide.stride[3] = wide.stride[2] = 0;
    const attn_linear_format f = {
        .struct_size = sizeof f, .weights = ATTN_WEIGHTS_INT8, .multiply = ATTN_MULTIPLY_INT8};
    REFUSES(m, attn_linear_quantize(&linear, &f, 1, &wide, NULL), ATTN_UNSUPPORTED,
            "weights[0].shape[3] is 131073; expected at most 131072");
    attn_tensor endless = wide;
    endless.shape[2] = 1, endless.shape[3] = INT64_C(1) << 60, endless.stride[3] = 0;
    REFUSES(m, attn_linear_create(&linear, 1, &endless, NULL), ATTN_SIZE_OVERFLOW,
            "the packed weights would exceed 2^63 bytes");
    nn_end_refusals();
    memory_destroy(m);
}

/** Where weights of bf16 are multiplied as pairs follows from the set; a name of a set is a choice. */
static void test_isa(void **state)
{
    (void)state;
    const float one = 1;
    const attn_tensor w = attn_matrix(&one, 1, 1);
    for (int i = 1; i < num_sets; i++) {
        attn_linear_format f = attn_linear_format_default();
        attn_linear *linear;
        const int pairs = strstr(sets[i], "_bf16") != NULL, bytes = strstr(sets[i], "_int8") != NULL;
        f.isa = sets[i];
        OK(attn_linear_quantize(&linear, &f, 1, &w, NULL));
        assert_true((strcmp(attn_linear_isa(linear), sets[i]) == 0) == (!pairs && !bytes));
        attn_linear_destroy(linear);
        f.weights = ATTN_WEIGHTS_BF16, f.multiply = ATTN_MULTIPLY_BF16;
        OK(attn_linear_quantize(&linear, &f, 1, &w, NULL));
        assert_true((strcmp(attn_linear_isa(linear), sets[i]) == 0) == !bytes);
        attn_linear_destroy(linear);
        f.weights = ATTN_WEIGHTS_INT8, f.multiply = ATTN_MULTIPLY_INT8;
        OK(attn_linear_quantize(&linear, &f, 1, &w, NULL));
        assert_true((strcmp(attn_linear_isa(linear), sets[i]) == 0) == !pairs);
        attn_linear_destroy(linear);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights),        cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_against_oracle), cmocka_unit_test(test_row_bits),
                                       cmocka_unit_test(test_sets_agree),     cmocka_unit_test(test_special_rows),
                                       cmocka_unit_test(test_largest_sums),   cmocka_unit_test(test_nan_outputs),
                                       cmocka_unit_test(test_refuses),        cmocka_unit_test(test_isa)};
    find_sets();
    return NN_MAIN(tests);
}
