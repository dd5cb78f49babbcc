/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clipping, AdamW and learning rates: against the formulas in double; bit by bit
 * under any number of threads; special numbers; wrong arguments.
 */
#include "floats.h"
#include "memory.h"

#include <float.h>

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
            mark_output(m, &t);
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
        struct memory *m = memory_create("clip", n);
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
        struct memory *m = memory_create("adamw", n);
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
    struct memory *m = memory_create("adamw_bits", 0);
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

static void test_refuses_parameters(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("refuses_parameters", 0);
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
    REFUSES(m, attn_gradient_norm(p, 2, NULL, 0), ATTN_INVALID_ARGUMENT, "norm is NULL; expected where to put it");
    REFUSES(m, attn_gradient_norm(p, 2, &norm, -1), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, attn_clip_gradients(p, 2, -1, &norm, 0), ATTN_INVALID_ARGUMENT, "max_norm is -1; expected 0 or more");
    REFUSES(m, attn_clip_gradients(p, 2, NAN, &norm, 0), ATTN_INVALID_ARGUMENT, "max_norm|nan");
    REFUSES(m, attn_clip_gradients(p, 2, 1e-3, &norm, -1), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, attn_adamw_step(NULL, 1, 1, NULL), ATTN_INVALID_ARGUMENT, "parameters is NULL; expected 1 parameters");
    REFUSES(m, attn_adamw_step(p, -1, 1, NULL), ATTN_INVALID_ARGUMENT, "num|-1");
    p[1].count = -3;
    REFUSES_ALL(ATTN_INVALID_ARGUMENT, "parameters[1].count|-3");
    p[1].count = INT64_MAX / 2;
    REFUSES_ALL(ATTN_SIZE_OVERFLOW, "parameters[1].count");
    const attn_parameter many[5] = {{.count = INT64_MAX / 4 - 1, .gradients = p[0].gradients},
                                    {.count = INT64_MAX / 4 - 1, .gradients = p[0].gradients},
                                    {.count = INT64_MAX / 4 - 1, .gradients = p[0].gradients},
                                    {.count = INT64_MAX / 4 - 1, .gradients = p[0].gradients},
                                    {.count = 8, .gradients = p[0].gradients}};
    REFUSES(m, attn_gradient_norm(many, 5, &norm, 0), ATTN_SIZE_OVERFLOW,
            "parameters[4].count is 8; expected less, with 9223372036854775800 before it");
    p[1].gradients = NULL;
    REFUSES_ALL(ATTN_INVALID_ARGUMENT, "parameters[1].gradients is NULL|10");
    p[1].values = NULL;
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].values is NULL|10");
    p[1].mean = NULL;
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].mean is NULL; expected 10 floats");
    p[1].square = NULL;
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].square is NULL|10");
    p[1].mean = row[4] + 9;
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].mean overlaps parameters[1].values");
    p[1].square = row[5];
    REFUSES_STEP(ATTN_INVALID_ARGUMENT, "parameters[1].square overlaps parameters[1].gradients");

    const attn_adamw_options o = attn_adamw_options_default();
#define STEP(t, assignment) attn_adamw_step(p, 2, t, CHANGED(attn_adamw_options, o, assignment))
    REFUSES(m, STEP(0, eps = 0), ATTN_INVALID_ARGUMENT, "step is 0; expected 1 or more");
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
    REFUSES(m, STEP(1, num_threads = -4), ATTN_INVALID_ARGUMENT, "options.num_threads is -4; expected 0 or more");
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
    REFUSES(NULL, attn_schedule_rate(NULL, 1, &rate), ATTN_INVALID_ARGUMENT, "schedule is NULL; expected a schedule");
    REFUSES(NULL, attn_schedule_rate(&s, 1, NULL), ATTN_INVALID_ARGUMENT, "rate is NULL; expected where to put it");
    REFUSES(NULL, RATE(-1, peak = 1), ATTN_INVALID_ARGUMENT, "step|-1");
    REFUSES(NULL, RATE(1, kind = (attn_schedule_kind)4), ATTN_INVALID_ARGUMENT,
            "schedule.kind is 4; expected an attn_schedule_kind");
    REFUSES(NULL, RATE(1, kind = (attn_schedule_kind)-1), ATTN_INVALID_ARGUMENT, "schedule.kind|-1");
    REFUSES(NULL, RATE(1, peak = -1), ATTN_INVALID_ARGUMENT, "schedule.peak|-1");
    REFUSES(NULL, RATE(1, peak = NAN), ATTN_INVALID_ARGUMENT, "schedule.peak|nan");
    REFUSES(NULL, RATE(1, final = -1), ATTN_INVALID_ARGUMENT, "schedule.final|-1");
    REFUSES(NULL, RATE(1, final = INFINITY), ATTN_INVALID_ARGUMENT, "schedule.final|inf");
    REFUSES(NULL, RATE(1, warmup = -1), ATTN_INVALID_ARGUMENT, "schedule.warmup|-1");
    REFUSES(NULL, RATE(1, steps = 4), ATTN_INVALID_ARGUMENT,
            "schedule.steps is 4; expected 5 or more, the end of warm-up");
    REFUSES(NULL, RATE(1, steps = 0), ATTN_INVALID_ARGUMENT, "schedule.steps|0|1");
    REFUSES(NULL, RATE(1, struct_size = 9), ATTN_INVALID_ARGUMENT, "schedule.struct_size|9");
    assert_true(rate == 7);
    nn_end_refusals();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_clip_special),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_bits),
        cmocka_unit_test(test_adamw_by_hand),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_refuses_parameters),
        cmocka_unit_test(test_refuses_schedules),
    };
    return NN_MAIN(tests);
}
