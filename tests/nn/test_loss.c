/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy and its gradient: against the formulas in double, written for
 * reading, and these against finite differences; bit by bit under any number of
 * threads; special numbers; wrong arguments.
 */
#include "floats.h"
#include "memory.h"

#include <float.h>

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
        struct memory *m = memory_create("loss", n);
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
            mark_output(m, &logits);
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
        struct memory *m = memory_create("reference", n);
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
        struct memory *m = memory_create("loss_bits", n);
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

/* ---------------------------------------------------------- wrong arguments -- */

static void test_refuses_loss(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("refuses_loss", 0);
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
    REFUSES(m, LOSS(&x, NULL, 0, &d), ATTN_INVALID_ARGUMENT, "labels is NULL; expected 6 labels");
    labels[4] = 8;
    REFUSES(m, LOSS(&x, labels, 0, &d), ATTN_INVALID_ARGUMENT, "labels[4] is 8; expected at most 7, the last class");
    labels[4] = 0;
    REFUSES(m, LOSS(&x, labels, 1.5f, &d), ATTN_INVALID_ARGUMENT, "label_smoothing is 1.5; expected 0 to 1");
    REFUSES(m, LOSS(&x, labels, -0.5f, &d), ATTN_INVALID_ARGUMENT, "label_smoothing|-0.5");
    REFUSES(m, LOSS(&x, labels, NAN, &d), ATTN_INVALID_ARGUMENT, "label_smoothing|nan");
    REFUSES(m, attn_cross_entropy(&x, labels, 0, NULL, NULL, 0), ATTN_INVALID_ARGUMENT,
            "loss and d_logits are NULL; expected at least one of them");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss),      cmocka_unit_test(test_reference),    cmocka_unit_test(test_loss_special),
        cmocka_unit_test(test_loss_bits), cmocka_unit_test(test_refuses_loss),
    };
    return NN_MAIN(tests);
}
