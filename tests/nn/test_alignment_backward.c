/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of attention pooling: against the oracle's, which differences of its
 * forward pass check; the same bits on any threads, in any workspace and beside
 * any other sequences; NaN that stays where it belongs; wrong arguments.
 */
#include "options.h"

/** A pool with its input, and where its gradients go. */
struct pool {
    int64_t batch, tokens, channels, inner;
    attn_tensor w, bias, v, x, d_out, d_x, d_w, d_bias, d_v;
    int has_bias;
    int64_t *lengths;
    struct oracle_alignment oracle;
    attn_pool_gradients gradients;
};

static void pool_create(struct pool *p, struct memory *m, int64_t batch, int64_t tokens)
{
    memset(p, 0, sizeof *p);
    p->batch = batch;
    p->tokens = tokens;
    p->channels = RNG_PICK(&m->rng, 1, 8, 17, 33);
    p->inner = RNG_PICK(&m->rng, 1, 7, 16, 25);
    p->w = random_matrix(m, random_dtype(m), p->inner, p->channels, 1 / sqrt((double)p->channels));
    p->bias = random_vector(m, random_dtype(m), p->inner, 0.5, 0);
    p->v = random_vector(m, random_dtype(m), p->inner, 1, 0);
    p->has_bias = rng_percent(&m->rng, 60);
    p->oracle = (struct oracle_alignment){ATTN_SCORE_ADDITIVE,
                                          0,
                                          p->channels,
                                          p->inner,
                                          0,
                                          NULL,
                                          read_all(m, &p->w),
                                          p->has_bias ? read_all(m, &p->bias) : NULL,
                                          read_all(m, &p->v)};
    p->x = random_rows(m, batch, tokens, p->channels);
    p->d_out = random_rows(m, batch, 1, p->channels);
    p->d_x = place_rows(m, batch, tokens, p->channels);
    p->d_w = place_rows(m, 1, p->inner, p->channels);
    p->d_bias = place_rows(m, 1, 1, p->inner);
    p->d_v = place_rows(m, 1, 1, p->inner);
    if (rng_percent(&m->rng, 60)) {
        p->lengths = bytes(m, (size_t)batch * sizeof *p->lengths);
        for (int64_t b = 0; b < batch; b++)
            p->lengths[b] = rng_range(&m->rng, 0, tokens);
    }
    p->gradients = attn_pool_gradients_default();
    p->gradients.x = &p->d_x;
    p->gradients.w = &p->d_w;
    p->gradients.bias = &p->d_bias;
    p->gradients.v = &p->d_v;
}

static attn_status run_backward(const struct pool *p, void *workspace, size_t size)
{
    return attn_pool_backward(&p->w, p->has_bias ? &p->bias : NULL, &p->v, &p->x, p->lengths, &p->d_out, &p->gradients,
                              workspace, size);
}

static size_t workspace_of(const struct pool *p)
{
    return attn_pool_backward_workspace_size(p->channels, p->inner, p->batch, p->tokens, &p->gradients);
}

/* --------------------------------------------------------------- the oracle -- */

static struct oracle_sum no_sum(struct memory *m, int64_t n)
{
    return (struct oracle_sum){zeros(m, n), zeros(m, n)};
}

static struct oracle_pool_gradients no_gradients(struct memory *m, const struct pool *p)
{
    return (struct oracle_pool_gradients){no_sum(m, p->batch * p->tokens * p->channels),
                                          no_sum(m, p->inner * p->channels), no_sum(m, p->inner), no_sum(m, p->inner)};
}

/** A linear function of what is pooled: d_out are its factors. */
static double loss_of(struct memory *m, const struct pool *p, const double *x, const double *d_out)
{
    double *out = zeros(m, p->batch * p->channels), *weights = zeros(m, p->batch * p->tokens), sum = 0;
    oracle_take(0)->pool(&p->oracle, p->batch, p->tokens, x, p->lengths, out, weights);
    for (int64_t i = 0; i < p->batch * p->channels; i++)
        sum += out[i] * d_out[i];
    return sum;
}

static void test_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 10; n++) {
        struct memory *m = memory_create("alignment_backward oracle", n);
        struct pool p;
        pool_create(&p, m, 2, 4);
        double *x = read_all(m, &p.x), *d_out = read_all(m, &p.d_out);
        struct oracle_pool_gradients g = no_gradients(m, &p);
        oracle_take(0)->pool_backward(&p.oracle, 2, 4, x, p.lengths, d_out, &g);
        const struct {
            const char *name;
            double *values;
            const double *gradient;
            int64_t count;
        } all[] = {
            {"x", x, g.x.sum, 8 * p.channels},
            {"w", (double *)p.oracle.w_k, g.w.sum, p.inner * p.channels},
            {"bias", (double *)p.oracle.b, g.bias.sum, p.inner},
            {"v", (double *)p.oracle.v, g.v.sum, p.inner},
        };
        for (size_t a = 0; a < sizeof all / sizeof *all; a++)
            for (int some = 0; all[a].values && some < 8; some++) {
                const int64_t i = rng_range(&m->rng, 0, all[a].count - 1);
                const double was = all[a].values[i], step = 1e-5;
                all[a].values[i] = was + step;
                const double above = loss_of(m, &p, x, d_out);
                all[a].values[i] = was - step;
                const double below = loss_of(m, &p, x, d_out);
                all[a].values[i] = was;
                if (!(fabs((above - below) / (2 * step) - all[a].gradient[i]) < 1e-7))
                    fail_msg("%s: the oracle's gradient of %s[%d] is %.9g; expected %.9g", guard_case_line, all[a].name,
                             (int)i, all[a].gradient[i], (above - below) / (2 * step));
            }
        memory_destroy(m);
    }
}

/* ------------------------------------------------------------------- values -- */

static void begin_sums(struct memory *m, const attn_tensor *t, struct oracle_sum *const to[ORACLES])
{
    const int64_t count = t->shape[2] * t->shape[3];
    fill(m, t, 1);
    mark_output(m, t);
    const double *before = read_all(m, t);
    for (int k = 0; k < ORACLES; k++)
        memcpy(to[k]->sum, before, (size_t)count * sizeof *before);
    for (int64_t i = 0; i < count; i++)
        to[0]->size[i] = fabs(before[i]);
}

static void judge_sum(const char *what, const attn_tensor *got, const struct oracle_sum *const to[ORACLES])
{
    judge(NN_POOL_BACKWARD, what, got, (double *const[]){to[0]->sum, to[1]->sum, to[2]->sum}, to[0]->size);
}

#define OF(g, member) ((struct oracle_sum *const[]){&(g)[0].member, &(g)[1].member, &(g)[2].member})
#define JUDGE(what, got, g, member)                                                                                    \
    judge_sum(what, got, (const struct oracle_sum *const[]){&(g)[0].member, &(g)[1].member, &(g)[2].member})

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(160); n++) {
        struct memory *m = memory_create("alignment_backward against_oracle", n);
        struct pool p;
        pool_create(&p, m, RNG_PICK(&m->rng, 0, 1, 2, 7), RNG_PICK(&m->rng, 0, 1, 2, 16, 17, 70));
        const double *x = read_all(m, &p.x), *d_out = read_all(m, &p.d_out);
        struct oracle_pool_gradients to[ORACLES];
        for (int k = 0; k < ORACLES; k++)
            to[k] = no_gradients(m, &p);
        p.gradients.accumulate = rng_percent(&m->rng, 40);
        if (p.gradients.accumulate) {
            begin_sums(m, &p.d_w, OF(to, w));
            begin_sums(m, &p.d_bias, OF(to, bias));
            begin_sums(m, &p.d_v, OF(to, v));
        }
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->pool_backward(&p.oracle, p.batch, p.tokens, x, p.lengths, d_out, &to[k]);
        for (int64_t b = 0; b < p.batch && p.lengths; b++) /* padding may hold anything */
            for (int64_t t = p.lengths[b]; t < p.tokens; t++)
                tensor_set(&p.x, b, 0, t, t % p.channels, t % 2 ? NAN : INFINITY);
        p.gradients.num_threads = (int)(n % 4);
        memory_seal(m);
        const size_t size = workspace_of(&p);
        void *workspace = n % 2 ? place_workspace(m, size) : NULL;
        OK(run_backward(&p, workspace, workspace ? size : 0));
        JUDGE("d_x", &p.d_x, to, x);
        JUDGE("d_w", &p.d_w, to, w);
        JUDGE("d_bias", &p.d_bias, to, bias);
        JUDGE("d_v", &p.d_v, to, v);
        for (int64_t b = 0; b < p.batch && p.lengths; b++)
            for (int64_t t = p.lengths[b]; t < p.tokens; t++)
                for (int64_t c = 0; c < p.channels; c++)
                    assert_true(tensor_get(&p.d_x, b, 0, t, c) == 0);
        memory_destroy(m);
    }
}

/** Other threads and workspaces; some gradients without the others; each sequence alone. */
static void test_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(10); n++) {
        struct memory *m = memory_create("alignment_backward bits", n);
        struct pool p;
        pool_create(&p, m, 40, 30);
        struct pool q = p;
        OK(run_backward(&p, NULL, 0));
        for (int threads = 1; threads <= 4; threads++) {
            q.d_x = place_rows(m, p.batch, p.tokens, p.channels);
            q.d_w = place_rows(m, 1, p.inner, p.channels);
            q.d_v = place_rows(m, 1, 1, p.inner);
            q.gradients.x = &q.d_x;
            q.gradients.w = threads % 2 ? &q.d_w : NULL;
            q.gradients.v = threads > 1 ? &q.d_v : NULL;
            q.gradients.bias = NULL;
            q.gradients.num_threads = threads;
            char byte;
            memory_seal(m);
            REFUSES(m, run_backward(&q, &byte, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 1");
            const size_t least = said_least(), told = workspace_of(&q);
            assert_true(least <= told);
            for (int some = 0; some < 2; some++) {
                const size_t size = some ? told : least;
                struct guard guard = guard_create(size);
                OK(run_backward(&q, guard_place(&guard, size, 1), size));
                assert_true(guard_intact(&guard));
                guard_destroy(&guard);
                assert_true(equal_bits(&p.d_x, &q.d_x));
                assert_true(!q.gradients.w || equal_bits(&p.d_w, &q.d_w));
                assert_true(!q.gradients.v || equal_bits(&p.d_v, &q.d_v));
            }
        }
        for (int64_t b = 0; b < p.batch; b++) {
            struct pool one = p;
            const attn_tensor d_x = place_rows(m, 1, p.tokens, p.channels), expected = slice(&p.d_x, b, 0, p.tokens);
            one.x = slice(&p.x, b, 0, p.tokens);
            one.d_out = slice(&p.d_out, b, 0, 1);
            one.lengths = p.lengths ? p.lengths + b : NULL;
            one.gradients = attn_pool_gradients_default();
            one.gradients.x = &d_x;
            OK(run_backward(&one, NULL, 0));
            assert_true(equal_bits(&d_x, &expected));
        }
        memory_destroy(m);
    }
    nn_end_refusals();
}

/** A NaN of one sequence is in its own gradients, and in the sums. */
static void test_nan(void **state)
{
    (void)state;
    struct memory *m = memory_create("alignment_backward nan", 0);
    struct pool p;
    pool_create(&p, m, 3, 5);
    p.lengths = NULL;
    OK(run_backward(&p, NULL, 0));
    const attn_tensor clean = p.d_x, d_x = place_rows(m, 3, 5, p.channels);
    tensor_set(&p.x, 1, 0, 2, 0, NAN);
    p.gradients.x = &d_x;
    OK(run_backward(&p, NULL, 0));
    for (int64_t b = 0; b < 3; b++)
        for (int64_t t = 0; t < 5; t++)
            for (int64_t c = 0; c < p.channels; c++)
                assert_true(b == 1 ? isnan(tensor_get(&d_x, b, 0, t, c))
                                   : tensor_get(&d_x, b, 0, t, c) == tensor_get(&clean, b, 0, t, c));
    assert_true(isnan(tensor_get(&p.d_w, 0, 0, 0, 0)) && isnan(tensor_get(&p.d_v, 0, 0, 0, 0)));
    memory_destroy(m);
}

/* ------------------------------------------------------------------ refusals -- */

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("alignment_backward wrong_arguments", 0);
    struct pool p;
    pool_create(&p, m, 3, 4);
    const int64_t lengths[] = {4, 5, 0};
    const attn_tensor *w = &p.w, *bias = &p.bias, *v = &p.v, *x = &p.x, *d_out = &p.d_out;
    const attn_pool_gradients *g = &p.gradients, none = attn_pool_gradients_default();
    memory_seal(m);
#define BACKWARD(w, bias, v, x, lengths, d_out, gradients)                                                             \
    attn_pool_backward(w, bias, v, x, lengths, d_out, gradients, NULL, 0)
    REFUSES(m, BACKWARD(NULL, bias, v, x, NULL, d_out, g), ATTN_INVALID_ARGUMENT, "w is NULL");
    REFUSES(m, BACKWARD(w, bias, NULL, x, NULL, d_out, g), ATTN_INVALID_ARGUMENT, "v is NULL");
    REFUSES(m, BACKWARD(w, CHANGED(attn_tensor, *bias, shape[3]++), v, x, NULL, d_out, g), ATTN_SHAPE_MISMATCH,
            "bias.shape[3]");
    REFUSES(m, BACKWARD(w, bias, v, NULL, NULL, d_out, g), ATTN_INVALID_ARGUMENT, "x is NULL");
    REFUSES(m, BACKWARD(w, bias, v, CHANGED(attn_tensor, *x, dtype = ATTN_BF16), NULL, d_out, g), ANY_ERROR, "x.dtype");
    REFUSES(m, BACKWARD(w, bias, v, x, lengths, d_out, g), ATTN_INVALID_ARGUMENT, "lengths[1] is 5");
    REFUSES(m, BACKWARD(w, bias, v, x, NULL, NULL, g), ATTN_INVALID_ARGUMENT, "d_out is NULL");
    REFUSES(m, BACKWARD(w, bias, v, x, NULL, x, g), ATTN_SHAPE_MISMATCH, "d_out.shape[2] is 4");
    REFUSES(m, BACKWARD(w, bias, v, x, NULL, d_out, NULL), ATTN_INVALID_ARGUMENT,
            "gradients is NULL; expected what to write");
    REFUSES(m, BACKWARD(w, bias, v, x, NULL, d_out, &none), ATTN_INVALID_ARGUMENT,
            "gradients has no tensor; expected x, w, bias or v");
    REFUSES(m, BACKWARD(w, bias, v, x, NULL, d_out, CHANGED(attn_pool_gradients, *g, x = x)), ATTN_INVALID_ARGUMENT,
            "gradients.x|overlaps x");
    REFUSES(m, BACKWARD(w, bias, v, x, NULL, d_out, CHANGED(attn_pool_gradients, *g, bias = g->v)),
            ATTN_INVALID_ARGUMENT, "gradients.v|overlaps gradients.bias");
    REFUSES(m, BACKWARD(w, bias, v, x, NULL, d_out, CHANGED(attn_pool_gradients, *g, w = x)), ATTN_SHAPE_MISMATCH,
            "gradients.w.shape[0] is 3");
    REFUSES(m, BACKWARD(w, bias, v, x, NULL, d_out, CHANGED(attn_pool_gradients, *g, num_threads = -1)),
            ATTN_INVALID_ARGUMENT, "num_threads is -1");
    assert_true(attn_pool_backward_workspace_size(0, 1, 1, 1, g) == SIZE_MAX);
    assert_true(attn_pool_backward_workspace_size(1, 0, 1, 1, g) == SIZE_MAX);
    assert_true(attn_pool_backward_workspace_size(1, 1, -1, 1, g) == SIZE_MAX);
    assert_true(attn_pool_backward_workspace_size(1, 1, 1, -1, g) == SIZE_MAX);
    assert_true(attn_pool_backward_workspace_size(1, 1, INT64_MAX, 1, g) == SIZE_MAX);
    assert_true(attn_pool_backward_workspace_size(1, 1, 1, 1, NULL) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle), cmocka_unit_test(test_against_oracle),  cmocka_unit_test(test_bits),
        cmocka_unit_test(test_nan),    cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
