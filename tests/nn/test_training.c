/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loss and its gradient, clipping, AdamW and learning rates: against the
 * formulas in double, written for reading, and these against finite differences;
 * bit by bit under any number of threads; special numbers; wrong arguments.
 */
#include "floats.h"
#include "memory.h"

#include <float.h>

/* -------------------------------------------------------------------- loss -- */

/** A batch of rows in double. */
struct rows {
    int64_t num, classes;
    const double *logits;
    const int32_t *labels;
    double smoothing;
};

static double target(const struct rows *x, int64_t row, int64_t c)
{
    return (x->labels[row] == c ? 1 - x->smoothing : 0) + x->smoothing / (double)x->classes;
}

/** log p of each class of a row. */
static void log_softmax(const struct rows *x, int64_t row, double *log_p)
{
    const double *const logits = x->logits + row * x->classes;
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < x->classes; c++)
        top = fmax(top, logits[c]);
    for (int64_t c = 0; c < x->classes; c++)
        sum += exp(logits[c] - top);
    for (int64_t c = 0; c < x->classes; c++)
        log_p[c] = logits[c] - top - log(sum);
}

static int64_t counted_of(const struct rows *x)
{
    int64_t counted = 0;
    for (int64_t r = 0; r < x->num; r++)
        counted += x->labels[r] >= 0;
    return counted;
}

/** The mean loss, and its gradient unless it is NULL. */
static double reference(struct memory *m, const struct rows *x, double *gradient)
{
    const int64_t counted = counted_of(x);
    double *log_p = zeros(m, x->classes), loss = 0;
    for (int64_t r = 0; r < x->num; r++) {
        if (x->labels[r] < 0)
            continue;
        log_softmax(x, r, log_p);
        for (int64_t c = 0; c < x->classes; c++) {
            const double t = target(x, r, c);
            loss -= t > 0 ? t * log_p[c] : 0;
            if (gradient)
                gradient[r * x->classes + c] = (exp(log_p[c]) - t) / (double)counted;
        }
    }
    return counted ? loss / (double)counted : 0;
}

static int64_t classes_of(struct memory *m)
{
    return RNG_PICK(&m->rng, 1, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 129, 1000, 2500);
}

static int32_t *random_labels(struct memory *m, int64_t rows, int64_t classes, int left_out_percent)
{
    int32_t *labels = bytes(m, (size_t)rows * sizeof *labels);
    for (int64_t r = 0; r < rows; r++)
        labels[r] = rng_percent(&m->rng, left_out_percent) ? (int32_t)RNG_PICK(&m->rng, -1, -100, INT32_MIN)
                                                           : (int32_t)rng_range(&m->rng, 0, classes - 1);
    return labels;
}

static float random_smoothing(struct memory *m)
{
    static const float some[] = {0, 0, 0.1f, 0.3f, 1};
    return some[rng_range(&m->rng, 0, 4)];
}

/** It is no input any more. */
static void is_written(struct memory *m, const attn_tensor *t)
{
    for (int i = 0; i < m->num_buffers; i++)
        m->buffers[i].is_input &= m->buffers[i].tensor.data != t->data;
}

/**
 * What a gradient may be off by, in f32: of p an ULP of exp (2 u), its argument's rounding, which counts times its
 * size, the sum's (12: its terms are added 64 at a time) and two roundings; of the target two.
 */
static double allowed(const struct rows *x, int64_t row, int64_t c, const double *log_p, double spread)
{
    const double p = exp(log_p[c]), counted = (double)counted_of(x);
    return 0x1p-24 * (p * (18 + spread) + 3 * target(x, row, c)) / counted + 0x1p-140;
}

static void check_gradient(struct memory *m, const struct rows *x, const attn_tensor *d, const double *expected)
{
    double *log_p = zeros(m, x->classes);
    const double u = d->dtype == ATTN_F32 ? 0 : d->dtype == ATTN_BF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t r = 0; r < x->num; r++) {
        double least = 0;
        log_softmax(x, r, log_p);
        for (int64_t c = 0; c < x->classes; c++)
            least = fmin(least, log_p[c]);
        for (int64_t c = 0; c < x->classes; c++) {
            const double got = (double)tensor_get(d, r / d->shape[2], 0, r % d->shape[2], c);
            const double e = expected[r * x->classes + c];
            const double most =
                allowed(x, r, c, log_p, fmin(-least, 100)) + fabs(e) * u * 1.01 + (d->dtype == ATTN_F16 ? 0x1p-25 : 0);
            if (x->labels[r] < 0 ? got != 0 : !(fabs(got - e) <= most))
                fail_msg("%s: gradient of row %lld, class %lld is %.9g; expected %.9g to %g", guard_case_line,
                         (long long)r, (long long)c, got, e, most);
        }
    }
}

static void test_loss(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(400); n++) {
        struct memory *m = memory_create("training loss", n);
        const int64_t batch = rng_range(&m->rng, 0, 3), tokens = RNG_PICK(&m->rng, 0, 1, 2, 5, 17);
        const int64_t classes = classes_of(m), rows = batch * tokens;
        const attn_dtype from = (attn_dtype)(n % 3), to = (attn_dtype)(n / 3 % 3);
        const attn_tensor logits = place_rows_of(m, from, batch, tokens, classes);
        fill(m, &logits, rng_percent(&m->rng, 30) ? 8 : 1);
        const int32_t *labels = random_labels(m, rows, classes, (int)RNG_PICK(&m->rng, 0, 30, 100));
        const float smoothing = random_smoothing(m);
        const struct rows x = {rows, classes, read_all(m, &logits), labels, (double)smoothing};
        attn_tensor d = logits;
        if (rng_percent(&m->rng, 70))
            d = place_rows_of(m, to, batch, tokens, classes);
        else
            is_written(m, &logits);
        double loss = 7, alone = 7;
        double *expected = zeros(m, rows * classes);
        memory_seal(m);
        OK(attn_cross_entropy(&logits, labels, smoothing, &alone, NULL, (int)rng_range(&m->rng, 0, 3)));
        OK(attn_cross_entropy(&logits, labels, smoothing, n % 5 ? &loss : NULL, &d, (int)rng_range(&m->rng, 0, 3)));
        assert_true(n % 5 ? loss == alone : loss == 7); /* does not depend on whether a gradient is wanted */
        const double exact = reference(m, &x, expected);
        if (!(fabs(alone - exact) <= 4e-6 * (1 + exact)))
            fail_msg("%s: loss is %.9g; expected %.9g", guard_case_line, alone, exact);
        check_gradient(m, &x, &d, expected);
        memory_destroy(m);
    }
}

/** The reference itself: its gradient is the difference quotient of its loss. */
static void test_reference(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 20; n++) {
        struct memory *m = memory_create("training reference", n);
        enum { ROWS = 4, CLASSES = 6 };
        double logits[ROWS * CLASSES], gradient[ROWS * CLASSES] = {0};
        for (int i = 0; i < ROWS * CLASSES; i++)
            logits[i] = (double)rng_normal(&m->rng);
        const struct rows x = {ROWS, CLASSES, logits, random_labels(m, ROWS, CLASSES, 20), (double)random_smoothing(m)};
        reference(m, &x, gradient);
        for (int i = 0; i < ROWS * CLASSES; i++) {
            const double h = 1e-5, at = logits[i];
            logits[i] = at + h;
            const double above = reference(m, &x, NULL);
            logits[i] = at - h;
            const double below = reference(m, &x, NULL);
            logits[i] = at;
            assert_true(fabs((above - below) / (2 * h) - gradient[i]) < 1e-9);
        }
        memory_destroy(m);
    }
}

/** One row without smoothing, or with. */
static double loss_of(const float *logits, int64_t classes, int32_t label, float smoothing, float *gradient)
{
    double loss = 7;
    const attn_tensor x = attn_btc(logits, 1, 1, classes), d = attn_btc(gradient, 1, 1, classes);
    OK(attn_cross_entropy(&x, &label, smoothing, &loss, &d, 1));
    return loss;
}

static void test_loss_special(void **state)
{
    (void)state;
    float d[20];
    /* -Inf has no probability: no part in the loss, unless it is the label's or targets are smooth. */
    const float hidden[] = {1, -INFINITY, 1, -INFINITY};
    assert_true(fabs(loss_of(hidden, 4, 2, 0, d) - log(2.0)) < 1e-7);
    assert_true(d[0] == 0.5f && d[1] == 0 && d[2] == -0.5f && d[3] == 0);
    assert_true(loss_of(hidden, 4, 1, 0, d) == INFINITY);
    assert_true(d[0] == 0.5f && d[1] == -1 && d[2] == 0.5f && d[3] == 0);
    assert_true(loss_of(hidden, 4, 2, 0.2f, d) == INFINITY);
    assert_true(fabs((double)d[1] + 0.05) < 1e-7 && fabs((double)d[2] + 0.35) < 1e-7);
    assert_true(loss_of(hidden, 4, 1, 1, d) == INFINITY);
    assert_true(fabs((double)d[1] + 0.25) < 1e-7);
    /* With smoothing 1 the label's own target is that of all. */
    const float plain[] = {3, 1, 2};
    assert_true(loss_of(plain, 3, 0, 1, d) == loss_of(plain, 3, 2, 1, d));
    /* NaN in each place, +Inf, -Inf alone: NaN everywhere in the row; the row beside it has its own. */
    for (int bad = 0; bad < 19; bad++) {
        float x[2][17];
        int32_t labels[] = {5, 5};
        for (int c = 0; c < 17; c++)
            x[0][c] = bad == 18 ? -INFINITY : (float)c, x[1][c] = 0;
        if (bad < 17)
            x[0][bad] = NAN;
        else if (bad == 17)
            x[0][3] = INFINITY;
        double loss = 7;
        const attn_tensor t = attn_btc(x, 1, 2, 17);
        OK(attn_cross_entropy(&t, labels, bad % 2 ? 0.1f : 0, &loss, NULL, 1));
        assert_true(isnan(loss));
        labels[0] = -1;
        OK(attn_cross_entropy(&t, labels, 0, &loss, NULL, 1)); /* left out: not read */
        assert_true(fabs(loss - log(17.0)) < 1e-6);
        labels[0] = 5;
        OK(attn_cross_entropy(&t, labels, 0, NULL, &t, 1));
        for (int c = 0; c < 17; c++) {
            assert_true(isnan(x[0][c]) || (bad == 17 && c != 3));
            assert_true(fabs((double)x[1][c] - (1.0 / 17 - (c == 5)) / 2) < 1e-7);
        }
    }
    /* Huge logits: differences count, and may exceed a float. */
    const float huge[] = {1e30f, 1e30f, -1e30f};
    assert_true(fabs(loss_of(huge, 3, 0, 0, d) - log(2.0)) < 1e-7);
    assert_true(d[0] == -0.5f && d[1] == 0.5f && d[2] == 0);
    assert_true(fabs(loss_of(huge, 3, 2, 0, d) / (2 * (double)1e30f) - 1) < 1e-6);
    for (int32_t label = 0; label < 20; label++) {
        float x[20];
        for (int c = 0; c < 20; c++)
            x[c] = c == 7 ? 3e38f : -3e38f;
        const double far = (double)x[7] - (double)x[0], s = (double)0.5f;
        const double expected = (label == 7 ? 0 : (1 - s) * far) + s / 20 * 19 * far;
        assert_true(fabs(loss_of(x, 20, label, 0.5f, d) / expected - 1) < 1e-6);
        assert_true(fabs((double)d[0] - (label == 0 ? -0.525 : -0.025)) < 1e-7);
    }
    /* One class: nothing to learn. */
    const float one[] = {-12345};
    assert_true(loss_of(one, 1, 0, 0, d) == 0 && d[0] == 0);
    assert_true(loss_of(one, 1, 0, 0.3f, d) == 0 && d[0] == 0);
    /* No rows. */
    double loss = 7;
    const attn_tensor none = attn_btc(NULL, 0, 3, 5);
    OK(attn_cross_entropy(&none, NULL, 0, &loss, &none, 0));
    assert_true(loss == 0);
}

/** Whatever the threads, the same bits; of types, the gradient in f32, rounded once. */
static void test_loss_bits(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8, 0};
    for (uint64_t n = 0; n < cases(20); n++) {
        struct memory *m = memory_create("training loss_bits", n);
        const int64_t tokens = RNG_PICK(&m->rng, 3, 100, 255, 257, 700), classes = RNG_PICK(&m->rng, 33, 500, 1030);
        const attn_tensor x = place_rows(m, 2, tokens, classes), first = place_rows(m, 2, tokens, classes);
        const int32_t *labels = random_labels(m, 2 * tokens, classes, 20);
        const float smoothing = random_smoothing(m);
        double loss;
        fill(m, &x, 3);
        OK(attn_cross_entropy(&x, labels, smoothing, &loss, &first, 1));
        for (int i = 0; i < 4; i++) {
            const attn_tensor d = place_rows_of(m, (attn_dtype)(i % 3), 2, tokens, classes);
            double again;
            OK(attn_cross_entropy(&x, labels, smoothing, &again, &d, threads[i]));
            assert_true(memcmp(&again, &loss, sizeof loss) == 0);
            assert_rounded("gradient", &d, &first);
        }
        memory_destroy(m);
    }
}

/* ---------------------------------------------------------------- clipping -- */

enum { MOST = 40 };

/** Parameters of random sizes, each array before a guard; all arrays filled. */
static int64_t make_parameters(struct memory *m, attn_parameter *parameters, int64_t large)
{
    const int64_t num = rng_range(&m->rng, 0, MOST);
    for (int64_t i = 0; i < num; i++) {
        attn_parameter *const p = &parameters[i];
        const int64_t count = rng_percent(&m->rng, 10) ? large : RNG_PICK(&m->rng, 0, 1, 2, 3, 7, 8, 9, 17, 100, 1000);
        float **const arrays[] = {&p->values, &p->gradients, &p->mean, &p->square};
        for (int a = 0; a < 4; a++) {
            const attn_tensor t = place_dense(m, 1, 1, 1, count);
            fill(m, &t, 1);
            is_written(m, &t);
            *arrays[a] = t.data;
        }
        for (int64_t k = 0; k < count; k++)
            p->square[k] = p->square[k] * p->square[k];
        p->count = count;
        p->decays = (int)rng_range(&m->rng, 0, 1);
    }
    return num;
}

static double norm_of(const attn_parameter *parameters, int64_t num)
{
    long double sum = 0;
    for (int64_t i = 0; i < num; i++)
        for (int64_t k = 0; k < parameters[i].count; k++)
            sum += (long double)parameters[i].gradients[k] * (long double)parameters[i].gradients[k];
    return (double)sqrtl(sum);
}

static void test_clip(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("training clip", n);
        attn_parameter parameters[MOST];
        const int64_t num = make_parameters(m, parameters, RNG_PICK(&m->rng, 4095, 4097, 70000));
        const double exact = norm_of(parameters, num);
        double norm = 7, first = 7, clipped = 7;
        for (int i = 0; i < 4; i++) {
            OK(attn_gradient_norm(parameters, num, i ? &norm : &first, threads[i]));
            assert_true(!i || memcmp(&norm, &first, sizeof norm) == 0);
        }
        assert_true(fabs(first - exact) <= 1e-13 * exact);
        const double most = n % 4 == 0 ? exact * 1.01 : n % 4 == 1 ? exact * 0.3 : n % 4 == 2 ? 1e-3 : INFINITY;
        float *before[MOST];
        for (int64_t i = 0; i < num; i++) {
            before[i] = bytes(m, (size_t)parameters[i].count * sizeof(float) + 1);
            memcpy(before[i], parameters[i].gradients, (size_t)parameters[i].count * sizeof(float));
        }
        OK(attn_clip_gradients(parameters, num, most, n % 7 ? &clipped : NULL, (int)rng_range(&m->rng, 0, 3)));
        assert_true(n % 7 ? clipped == first : clipped == 7);
        for (int64_t i = 0; i < num; i++)
            for (int64_t k = 0; k < parameters[i].count; k++) {
                const double g = (double)before[i][k];
                assert_true(parameters[i].gradients[k] == (first > most ? (float)(g * (most / first)) : before[i][k]));
            }
        memory_destroy(m);
    }
}

static void test_clip_special(void **state)
{
    (void)state;
    double norm;
    float g[3] = {3, 4, 0}, h[2] = {0, 12};
    attn_parameter p[] = {{.gradients = g, .count = 3}, {.count = 0}, {.gradients = h, .count = 2}};
    OK(attn_gradient_norm(p, 3, &norm, 0));
    assert_true(norm == 13);
    OK(attn_clip_gradients(p, 3, 13, &norm, 0));
    assert_true(norm == 13 && g[0] == 3 && h[1] == 12);
    OK(attn_clip_gradients(p, 3, 6.5, &norm, 0));
    assert_true(norm == 13 && g[0] == 1.5f && g[1] == 2 && h[1] == 6);
    OK(attn_clip_gradients(p, 3, 0, &norm, 0));
    assert_true(norm == 6.5 && g[0] == 0 && h[1] == 0);
    OK(attn_clip_gradients(p, 3, 0, &norm, 0));
    assert_true(norm == 0);
    OK(attn_clip_gradients(NULL, 0, 1, &norm, 0));
    assert_true(norm == 0);
    OK(attn_gradient_norm(NULL, 0, &norm, 0));
    assert_true(norm == 0);
    /* What is not finite stays, and is told. */
    g[0] = 5, g[1] = NAN, h[0] = 7;
    OK(attn_clip_gradients(p, 3, 1, &norm, 0));
    assert_true(isnan(norm) && g[0] == 5 && isnan(g[1]) && h[0] == 7);
    g[1] = -INFINITY;
    OK(attn_clip_gradients(p, 3, 1, &norm, 0));
    assert_true(norm == INFINITY && g[0] == 5 && g[1] == -INFINITY && h[0] == 7);
    /* The largest floats, whose squares and norm no float holds. */
    for (int i = 0; i < 3; i++)
        g[i] = i < 2 ? FLT_MAX : -FLT_MAX;
    h[0] = FLT_MAX, h[1] = 0;
    OK(attn_clip_gradients(p, 3, 1, &norm, 0));
    assert_true(norm == 2 * (double)FLT_MAX);
    assert_true(g[0] == 0.5f && g[1] == 0.5f && g[2] == -0.5f && h[0] == 0.5f && h[1] == 0);
}

/* ------------------------------------------------------------------- AdamW -- */

/** A parameter in double. */
struct exact {
    double *values, *mean, *square;
};

static void exact_step(const attn_parameter *p, const struct exact *e, int64_t t, const attn_adamw_options *o)
{
    const double beta1 = o->beta1 > 0 ? (double)o->beta1 : (double)0.9f;
    const double beta2 = o->beta2 > 0 ? (double)o->beta2 : (double)0.999f, eps = o->eps > 0 ? (double)o->eps : 1e-8;
    const double rate = (double)o->learning_rate;
    for (int64_t k = 0; k < p->count; k++) {
        const double g = (double)p->gradients[k];
        if (p->decays)
            e->values[k] -= rate * (double)o->weight_decay * e->values[k];
        e->mean[k] = beta1 * e->mean[k] + (1 - beta1) * g;
        e->square[k] = beta2 * e->square[k] + (1 - beta2) * g * g;
        const double mean = e->mean[k] / (1 - pow(beta1, (double)t));
        const double square = e->square[k] / (1 - pow(beta2, (double)t));
        e->values[k] -= rate * mean / (sqrt(square) + eps);
    }
}

/** Fifty steps with gradients that change, and all threads at once: the values stay within roundings of the steps. */
static void test_adamw(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(12); n++) {
        struct memory *m = memory_create("training adamw", n);
        attn_parameter parameters[MOST];
        struct exact exact[MOST];
        const int64_t num = make_parameters(m, parameters, 5000);
        attn_adamw_options o = attn_adamw_options_default();
        o.learning_rate = n % 2 ? 1e-2f : 1e-4f;
        o.weight_decay = n % 3 ? 0.1f : 0;
        if (n % 4 == 1)
            o.beta1 = 0.8f, o.beta2 = 0.95f, o.eps = 1e-5f;
        for (int64_t i = 0; i < num; i++) {
            const int64_t count = parameters[i].count;
            exact[i] = (struct exact){zeros(m, count), zeros(m, count), zeros(m, count)};
            for (int64_t k = 0; k < count; k++) {
                exact[i].values[k] = (double)parameters[i].values[k];
                parameters[i].mean[k] = parameters[i].square[k] = 0;
            }
        }
        for (int64_t t = 1; t <= 50; t++) {
            for (int64_t i = 0; i < num; i++)
                for (int64_t k = 0; k < parameters[i].count; k++)
                    parameters[i].gradients[k] = rng_normal(&m->rng) * (k % 3 ? 1 : 1e-4f) + (k % 2 ? 0 : 0.5f);
            o.num_threads = (int)(t % 4);
            OK(attn_adamw_step(parameters, num, t, &o));
            for (int64_t i = 0; i < num; i++)
                exact_step(&parameters[i], &exact[i], t, &o);
        }
        for (int64_t i = 0; i < num; i++)
            for (int64_t k = 0; k < parameters[i].count; k++) {
                const double e = exact[i].values[k], got = (double)parameters[i].values[k];
                const double most = 50 * 0x1p-24 * (1.1 * fmax(fabs(e), 1) + 50 * (double)o.learning_rate);
                if (!(fabs(got - e) <= most))
                    fail_msg("%s: value %lld of parameter %lld is %.9g; expected %.9g to %g", guard_case_line,
                             (long long)k, (long long)i, got, e, most);
                assert_true(fabs((double)parameters[i].mean[k] - exact[i].mean[k]) <= 2e-6);
                assert_true(fabs((double)parameters[i].square[k] - exact[i].square[k]) <=
                            2e-6 * exact[i].square[k] + 1e-12);
            }
        memory_destroy(m);
    }
}

/** By any number of threads, and as one parameter or in pieces: the same bits. */
static void test_adamw_bits(void **state)
{
    (void)state;
    enum { COUNT = 300001 };
    static float first[4][COUNT], again[4][COUNT], start[4][COUNT];
    static const int threads[] = {1, 2, 3, 8};
    struct memory *m = memory_create("training adamw_bits", 0);
    for (int a = 0; a < 4; a++)
        for (int k = 0; k < COUNT; k++)
            start[a][k] = a == 3 ? fabsf(rng_normal(&m->rng)) : rng_normal(&m->rng);
    attn_adamw_options o = attn_adamw_options_default();
    o.learning_rate = 0.01f, o.weight_decay = 0.1f;
    for (int i = 0; i < 4; i++) {
        float(*const to)[COUNT] = i ? again : first;
        const int64_t cut = i ? 1000 + 7 * i : 0;
        memcpy(to, start, sizeof start);
        const attn_parameter p[] = {{to[0], to[1], to[2], to[3], cut, 1},
                                    {to[0] + cut, to[1] + cut, to[2] + cut, to[3] + cut, COUNT - cut, 1}};
        o.num_threads = threads[i];
        OK(attn_adamw_step(p, 2, 3, &o));
        assert_true(i == 0 || memcmp(first, again, sizeof first) == 0);
        assert_true(memcmp(to[1], start[1], sizeof start[1]) == 0);
    }
    memory_destroy(m);
}

static void test_adamw_by_hand(void **state)
{
    (void)state;
    /* The first step is the rate in the gradient's direction, whatever its size; decay comes before it. */
    float w[] = {2, 2, 2, 2}, g[] = {5, -1e-3f, 0, 3e38f}, mean[4] = {0}, square[4] = {0};
    attn_parameter p = {w, g, mean, square, 4, 1};
    attn_adamw_options o = attn_adamw_options_default();
    o.learning_rate = 0.125f, o.weight_decay = 0.5f;
    OK(attn_adamw_step(&p, 1, 1, &o));
    assert_true(fabs((double)w[0] - 1.75) < 1e-6 && fabs((double)w[1] - 2) < 1e-5 && w[2] == 1.875f);
    assert_true(w[3] == 1.875f && square[3] == INFINITY); /* its square is no float: no step */
    assert_true(fabs((double)mean[0] - 0.5) < 1e-6 && fabs((double)square[0] - 0.025) < 1e-6);
    /* Without decay; and without options, which have a rate of 0. */
    float v[] = {2, INFINITY}, zero[6] = {0};
    attn_parameter q = {v, zero, zero + 2, zero + 4, 2, 0};
    OK(attn_adamw_step(&q, 1, 1, &o));
    assert_true(v[0] == 2 && v[1] == INFINITY);
    zero[0] = 1;
    OK(attn_adamw_step(&q, 1, 2, NULL));
    assert_true(v[0] == 2 && zero[2] > 0);
    /* Long after. */
    OK(attn_adamw_step(&q, 1, INT64_MAX, &o));
    assert_true(v[0] < 2 && isfinite(v[0]));
    const attn_parameter none = {.count = 0};
    OK(attn_adamw_step(&none, 1, 1, &o));
    OK(attn_adamw_step(NULL, 0, 1, &o));
}

/* --------------------------------------------------------------- schedules -- */

static double rate_at(attn_schedule_kind kind, int64_t warmup, int64_t steps, int64_t step)
{
    attn_schedule s = attn_schedule_default();
    double rate = 7;
    s.kind = kind, s.peak = 8, s.final = 2, s.warmup = warmup, s.steps = steps;
    OK(attn_schedule_rate(&s, step, &rate));
    return rate;
}

static void test_schedules(void **state)
{
    (void)state;
    for (int kind = 0; kind <= ATTN_SCHEDULE_LAST; kind++) {
        const attn_schedule_kind k = (attn_schedule_kind)kind;
        assert_true(rate_at(k, 4, 12, 0) == 0 && rate_at(k, 4, 12, 1) == 2 && rate_at(k, 4, 12, 3) == 6);
        assert_true(rate_at(k, 4, 12, 4) == 8 && rate_at(k, 0, 12, 0) == 8);
    }
    const attn_schedule_kind linear = ATTN_SCHEDULE_LINEAR, cosine = ATTN_SCHEDULE_COSINE;
    const attn_schedule_kind root = ATTN_SCHEDULE_INVERSE_SQRT, constant = ATTN_SCHEDULE_CONSTANT;
    assert_true(rate_at(constant, 4, 0, 5) == 8 && rate_at(constant, 0, -5, INT64_MAX) == 8);
    assert_true(rate_at(linear, 4, 12, 6) == 6.5 && rate_at(linear, 4, 12, 8) == 5 && rate_at(linear, 4, 12, 12) == 2);
    assert_true(rate_at(linear, 4, 12, 13) == 2 && rate_at(linear, 4, 12, INT64_MAX) == 2);
    assert_true(rate_at(linear, 4, 4, 4) == 2 && rate_at(linear, 4, 4, 3) == 6 && rate_at(linear, 0, 1, 1) == 2);
    assert_true(fabs(rate_at(cosine, 4, 12, 8) - 5) < 1e-14 && rate_at(cosine, 4, 12, 12) == 2);
    assert_true(fabs(rate_at(cosine, 4, 12, 6) - (5 + 3 * sqrt(0.5))) < 1e-14);
    assert_true(rate_at(cosine, 4, 12, 1000) == 2);
    assert_true(rate_at(root, 4, 0, 16) == 4 && rate_at(root, 4, 0, 64) == 2 && rate_at(root, 0, 0, 0) == 8);
    assert_true(rate_at(root, 0, 0, 1) == 8 && rate_at(root, 0, 0, 4) == 4 && rate_at(root, 1, 0, 4) == 4);
    /* That of Vaswani et al., d_model 512 and warm-up 4000: both sides of min(step^-0.5, step warmup^-1.5). */
    attn_schedule s = attn_schedule_default();
    s.kind = root, s.warmup = 4000, s.peak = pow(512, -0.5) * pow(4000, -0.5);
    for (int64_t step = 1; step < 20000; step += 37) {
        double rate;
        OK(attn_schedule_rate(&s, step, &rate));
        const double paper = pow(512, -0.5) * fmin(pow((double)step, -0.5), (double)step * pow(4000, -1.5));
        assert_true(fabs(rate / paper - 1) < 1e-13);
    }
}

/* ---------------------------------------------------------- wrong arguments -- */

static void test_refuses_loss(void **state)
{
    (void)state;
    struct memory *m = memory_create("training refuses_loss", 0);
    const attn_tensor x = random_rows(m, 2, 3, 8), d = place_rows(m, 2, 3, 8);
    int32_t labels[] = {0, 7, -1, 3, 4, 5};
    double loss = 7;
    memory_seal(m);
#define LOSS(xx, ll, s, dd) attn_cross_entropy(xx, ll, s, &loss, dd, 0)
#define X(assignment)       CHANGED(attn_tensor, x, assignment)
#define D(assignment)       CHANGED(attn_tensor, d, assignment)
    REFUSES(m, LOSS(NULL, labels, 0, &d), ATTN_INVALID_ARGUMENT, "logits|NULL");
    REFUSES(m, LOSS(X(dtype = ATTN_BOOL), labels, 0, &d), ATTN_UNSUPPORTED, "logits|bool");
    REFUSES(m, LOSS(X(shape[1] = 2), labels, 0, &d), ATTN_SHAPE_MISMATCH, "logits|2");
    REFUSES(m, LOSS(X(shape[3] = 0), labels, 0, &d), ATTN_INVALID_ARGUMENT, "logits.shape[3]|0|1");
    REFUSES(m, LOSS(X(stride[3] = 2), labels, 0, &d), ATTN_INVALID_ARGUMENT, "logits|2");
    REFUSES(m, LOSS(X(data = NULL), labels, 0, &d), ATTN_INVALID_ARGUMENT, "logits|NULL");
    REFUSES(m, LOSS(&x, NULL, 0, &d), ATTN_INVALID_ARGUMENT, "labels|NULL|6");
    labels[4] = 8;
    REFUSES(m, LOSS(&x, labels, 0, &d), ATTN_INVALID_ARGUMENT, "labels[4]|8|7");
    labels[4] = 0;
    REFUSES(m, LOSS(&x, labels, 1.5f, &d), ATTN_INVALID_ARGUMENT, "label_smoothing is 1.5; expected 0 to 1");
    REFUSES(m, LOSS(&x, labels, -0.5f, &d), ATTN_INVALID_ARGUMENT, "label_smoothing|-0.5");
    REFUSES(m, LOSS(&x, labels, NAN, &d), ATTN_INVALID_ARGUMENT, "label_smoothing|nan");
    REFUSES(m, attn_cross_entropy(&x, labels, 0, NULL, NULL, 0), ATTN_INVALID_ARGUMENT, "loss|d_logits|NULL");
    REFUSES(m, LOSS(&x, labels, 0, D(shape[2] = 2)), ATTN_SHAPE_MISMATCH, "d_logits|2|3");
    REFUSES(m, LOSS(&x, labels, 0, D(shape[3] = 7)), ATTN_SHAPE_MISMATCH, "d_logits|7|8");
    REFUSES(m, LOSS(&x, labels, 0, D(shape[0] = 1)), ATTN_SHAPE_MISMATCH, "d_logits|1|2");
    REFUSES(m, LOSS(&x, labels, 0, D(dtype = ATTN_U8)), ATTN_UNSUPPORTED, "d_logits|u8");
    REFUSES(m, LOSS(&x, labels, 0, D(stride[2] = 0)), ATTN_INVALID_ARGUMENT, "d_logits");
    REFUSES(m, LOSS(&x, labels, 0, D(data = (float *)x.data + 1)), ATTN_INVALID_ARGUMENT, "d_logits|logits");
    REFUSES(m, LOSS(&x, labels, 0, X(dtype = ATTN_BF16)), ATTN_INVALID_ARGUMENT, "d_logits|logits");
    REFUSES(m, attn_cross_entropy(&x, labels, 0, &loss, &d, -3), ATTN_INVALID_ARGUMENT, "num_threads|-3");
    assert_true(loss == 7);
    nn_end_refusals();
    memory_destroy(m);
}

static void test_refuses_parameters(void **state)
{
    (void)state;
    struct memory *m = memory_create("training refuses_parameters", 0);
    const attn_tensor data = random_rows(m, 1, 8, 10);
    float *row[8];
    for (int i = 0; i < 8; i++)
        row[i] = (float *)data.data + i * data.stride[2];
    attn_parameter p[] = {{row[0], row[1], row[2], row[3], 10, 1}, {row[4], row[5], row[6], row[7], 10, 1}};
    const attn_parameter kept = p[1];
    double norm = 7;
    memory_seal(m);
#define REFUSES_ALL(status, words)                                                                                     \
    REFUSES(m, attn_gradient_norm(p, 2, &norm, 0), status, words);                                                     \
    REFUSES(m, attn_clip_gradients(p, 2, 1e-3, &norm, 0), status, words);                                              \
    REFUSES_STEP(status, words)
#define REFUSES_STEP(status, words)                                                                                    \
    REFUSES(m, attn_adamw_step(p, 2, 1, NULL), status, words);                                                         \
    p[1] = kept
    REFUSES(m, attn_gradient_norm(NULL, 2, &norm, 0), ATTN_INVALID_ARGUMENT, "parameters is NULL|2");
    REFUSES(m, attn_gradient_norm(p, -2, &norm, 0), ATTN_INVALID_ARGUMENT, "num|-2");
    REFUSES(m, attn_gradient_norm(p, 2, NULL, 0), ATTN_INVALID_ARGUMENT, "norm is NULL");
    REFUSES(m, attn_gradient_norm(p, 2, &norm, -1), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, attn_clip_gradients(p, 2, -1, &norm, 0), ATTN_INVALID_ARGUMENT, "max_norm|-1");
    REFUSES(m, attn_clip_gradients(p, 2, NAN, &norm, 0), ATTN_INVALID_ARGUMENT, "max_norm|nan");
    REFUSES(m, attn_clip_gradients(p, 2, 1e-3, &norm, -1), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, attn_adamw_step(NULL, 1, 1, NULL), ATTN_INVALID_ARGUMENT, "parameters is NULL|1");
    REFUSES(m, attn_adamw_step(p, -1, 1, NULL), ATTN_INVALID_ARGUMENT, "num|-1");
    p[1].count = -3;
    REFUSES_ALL(ATTN_INVALID_ARGUMENT, "parameters[1].count|-3");
    p[1].count = INT64_MAX / 2;
    REFUSES_ALL(ATTN_SIZE_OVERFLOW, "parameters[1].count");
    p[1].gradients = NULL;
    REFUSES_ALL(ATTN_INVALID_ARGUMENT, "parameters[1].gradients is NULL|10");
    p[1].values = NULL;
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].values is NULL|10");
    p[1].mean = NULL;
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].mean is NULL|10");
    p[1].square = NULL;
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].square is NULL|10");
    p[1].mean = row[4] + 9;
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].mean overlaps parameters[1].values");
    p[1].square = row[5];
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].square overlaps parameters[1].gradients");

    const attn_adamw_options o = attn_adamw_options_default();
#define STEP(t, assignment) attn_adamw_step(p, 2, t, CHANGED(attn_adamw_options, o, assignment))
    REFUSES(m, STEP(0, eps = 0), ATTN_INVALID_ARGUMENT, "step|0|1");
    REFUSES(m, STEP(-1, eps = 0), ATTN_INVALID_ARGUMENT, "step|-1");
    REFUSES(m, STEP(1, learning_rate = -1), ATTN_INVALID_ARGUMENT, "options.learning_rate|-1");
    REFUSES(m, STEP(1, learning_rate = NAN), ATTN_INVALID_ARGUMENT, "options.learning_rate|nan");
    REFUSES(m, STEP(1, beta1 = 1), ATTN_INVALID_ARGUMENT, "options.beta1|1");
    REFUSES(m, STEP(1, beta1 = -0.5f), ATTN_INVALID_ARGUMENT, "options.beta1|-0.5");
    REFUSES(m, STEP(1, beta2 = 1), ATTN_INVALID_ARGUMENT, "options.beta2|1");
    REFUSES(m, STEP(1, beta2 = NAN), ATTN_INVALID_ARGUMENT, "options.beta2|nan");
    REFUSES(m, STEP(1, eps = -1), ATTN_INVALID_ARGUMENT, "options.eps|-1");
    REFUSES(m, STEP(1, eps = INFINITY), ATTN_INVALID_ARGUMENT, "options.eps|inf");
    REFUSES(m, STEP(1, weight_decay = -1), ATTN_INVALID_ARGUMENT, "options.weight_decay|-1");
    REFUSES(m, STEP(1, num_threads = -4), ATTN_INVALID_ARGUMENT, "options.num_threads|-4");
    REFUSES(m, STEP(1, struct_size = 3), ATTN_INVALID_ARGUMENT, "options.struct_size|3");
    assert_true(norm == 7);
    nn_end_refusals();
    memory_destroy(m);
}

static void test_refuses_schedules(void **state)
{
    (void)state;
    attn_schedule s = attn_schedule_default();
    double rate = 7;
    s.kind = ATTN_SCHEDULE_LINEAR, s.peak = 1, s.warmup = 5, s.steps = 9;
#define RATE(step, assignment) attn_schedule_rate(CHANGED(attn_schedule, s, assignment), step, &rate)
    REFUSES(NULL, attn_schedule_rate(NULL, 1, &rate), ATTN_INVALID_ARGUMENT, "schedule is NULL");
    REFUSES(NULL, attn_schedule_rate(&s, 1, NULL), ATTN_INVALID_ARGUMENT, "rate is NULL");
    REFUSES(NULL, RATE(-1, peak = 1), ATTN_INVALID_ARGUMENT, "step|-1");
    REFUSES(NULL, RATE(1, kind = (attn_schedule_kind)4), ATTN_INVALID_ARGUMENT, "schedule.kind|4");
    REFUSES(NULL, RATE(1, kind = (attn_schedule_kind)-1), ATTN_INVALID_ARGUMENT, "schedule.kind|-1");
    REFUSES(NULL, RATE(1, peak = -1), ATTN_INVALID_ARGUMENT, "schedule.peak|-1");
    REFUSES(NULL, RATE(1, peak = NAN), ATTN_INVALID_ARGUMENT, "schedule.peak|nan");
    REFUSES(NULL, RATE(1, final = -1), ATTN_INVALID_ARGUMENT, "schedule.final|-1");
    REFUSES(NULL, RATE(1, final = INFINITY), ATTN_INVALID_ARGUMENT, "schedule.final|inf");
    REFUSES(NULL, RATE(1, warmup = -1), ATTN_INVALID_ARGUMENT, "schedule.warmup|-1");
    REFUSES(NULL, RATE(1, steps = 4), ATTN_INVALID_ARGUMENT, "schedule.steps|4|5");
    REFUSES(NULL, RATE(1, steps = 0), ATTN_INVALID_ARGUMENT, "schedule.steps|0|1");
    REFUSES(NULL, RATE(1, struct_size = 9), ATTN_INVALID_ARGUMENT, "schedule.struct_size|9");
    assert_true(rate == 7);
    nn_end_refusals();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loss),
                                       cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_loss_special),
                                       cmocka_unit_test(test_loss_bits),
                                       cmocka_unit_test(test_clip),
                                       cmocka_unit_test(test_clip_special),
                                       cmocka_unit_test(test_adamw),
                                       cmocka_unit_test(test_adamw_bits),
                                       cmocka_unit_test(test_adamw_by_hand),
                                       cmocka_unit_test(test_schedules),
                                       cmocka_unit_test(test_refuses_loss),
                                       cmocka_unit_test(test_refuses_parameters),
                                       cmocka_unit_test(test_refuses_schedules)};
    return NN_MAIN(tests);
}
