/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of attention with each of the score functions: against the oracle's,
 * which differences of its forward pass check; what is hidden holds NaN; the same
 * bits on any threads, in any workspace, beside any other sequences and with queries
 * in one call or several; wrong arguments.
 */
#include "additive_forms.h"
#include "options.h"

#include "oracle_score.h"

/** A call, and where its gradients go. */
struct align {
    int64_t batch, tq, tk, dv, width;
    attn_alignment_config config;
    struct oracle_alignment oracle;
    attn_params params;
    attn_tensor q, projected, v, d_out, d_q, d_projected, d_v, d_w_q, d_score_v;
    attn_alignment_gradients gradients;
};

static void make_score(struct align *a, struct memory *m, attn_score score)
{
    struct rng *rng = &m->rng;
    attn_alignment_config *c = &a->config;
    const int projects = score == ATTN_SCORE_GENERAL || score == ATTN_SCORE_ADDITIVE;
    *c = attn_alignment_config_default();
    c->score = score;
    c->d_query = RNG_PICK(rng, 1, 3, 8, 17, 33);
    c->d_key = projects ? RNG_PICK(rng, 1, 5, 24) : c->d_query;
    c->temperature = rng_percent(rng, 40) ? 0 : (float)(0.5 + 2 * rng_uniform(rng));
    a->oracle =
        (struct oracle_alignment){score, c->d_query, c->d_key, 0, (double)c->temperature, NULL, NULL, NULL, NULL};
    if (score == ATTN_SCORE_GENERAL)
        c->w_k = random_matrix(m, random_dtype(m), c->d_query, c->d_key, 1 / sqrt((double)c->d_key));
    if (score != ATTN_SCORE_ADDITIVE)
        return;
    c->d_attention = a->oracle.d_attention = RNG_PICK(rng, 1, 7, 16, 25, 40);
    c->w_q = random_matrix(m, random_dtype(m), c->d_attention, c->d_query, 1 / sqrt((double)c->d_query));
    c->w_k = random_matrix(m, random_dtype(m), c->d_attention, c->d_key, 1 / sqrt((double)c->d_key));
    c->v = random_vector(m, random_dtype(m), c->d_attention, 1, 0);
    a->oracle.w_q = read_all(m, &c->w_q);
    a->oracle.v = read_all(m, &c->v);
}

/** Places where gradients go, once more. */
static void place_gradients(struct align *a, struct memory *m)
{
    const int accumulate = a->gradients.accumulate, accumulate_keys = a->gradients.accumulate_keys;
    a->d_q = place_rows(m, a->batch, a->tq, a->config.d_query);
    a->d_projected = place_rows(m, a->batch, a->tk, a->width);
    a->d_v = place_rows(m, a->batch, a->tk, a->dv);
    a->gradients = attn_alignment_gradients_default();
    a->gradients.accumulate = accumulate, a->gradients.accumulate_keys = accumulate_keys;
    a->gradients.q = &a->d_q, a->gradients.projected = &a->d_projected, a->gradients.v = &a->d_v;
    if (a->config.score != ATTN_SCORE_ADDITIVE)
        return;
    a->d_w_q = place_rows(m, 1, a->config.d_attention, a->config.d_query);
    a->d_score_v = place_rows(m, 1, 1, a->config.d_attention);
    a->gradients.w_q = &a->d_w_q, a->gradients.score_v = &a->d_score_v;
}

static void make(struct align *a, struct memory *m, attn_score score, int64_t batch, int64_t tq, int64_t tk)
{
    memset(a, 0, sizeof *a);
    a->batch = batch, a->tq = tq, a->tk = tk, a->dv = RNG_PICK(&m->rng, 1, 8, 19);
    make_score(a, m, score);
    a->width = score == ATTN_SCORE_ADDITIVE ? a->config.d_attention : a->config.d_query;
    const struct options_for of = {batch, 1, 1, tq, tk, 0, 1};
    a->params = random_options(m, &of)->params;
    a->params.weights = NULL;
    a->q = random_rows(m, batch, tq, a->config.d_query);
    a->projected = random_rows(m, batch, tk, a->width);
    a->v = random_rows(m, batch, tk, a->dv);
    a->d_out = random_rows(m, batch, tq, a->dv);
    place_gradients(a, m);
}

static attn_status run_backward(const struct align *a, void *workspace, size_t size)
{
    return attn_alignment_backward(&a->config, &a->q, &a->projected, &a->v, &a->params, &a->d_out, &a->gradients,
                                   workspace, size);
}

static size_t workspace_of(const struct align *a)
{
    return attn_alignment_backward_workspace_size(&a->config, a->batch, a->tq, a->tk, a->dv, &a->params, &a->gradients);
}

/* --------------------------------------------------------------- the oracle -- */

static struct oracle_sum no_sum(struct memory *m, int64_t n)
{
    return (struct oracle_sum){zeros(m, n), zeros(m, n)};
}

static struct oracle_align_gradients no_gradients(struct memory *m, const struct align *a)
{
    return (struct oracle_align_gradients){no_sum(m, a->batch * a->tq * a->config.d_query),
                                           no_sum(m, a->batch * a->tk * a->width), no_sum(m, a->batch * a->tk * a->dv),
                                           no_sum(m, a->config.d_attention * a->config.d_query),
                                           no_sum(m, a->config.d_attention)};
}

/** A linear function of what comes out: d_out are its factors. */
static double loss_of(struct memory *m, const struct align *a, const double *const of[4])
{
    double *out = zeros(m, a->batch * a->tq * a->dv), sum = 0;
    oracle_take(0)->align(&a->oracle, a->batch, a->tq, a->tk, a->dv, of[0], of[1], of[2], &a->params, out, NULL, NULL);
    for (int64_t i = 0; i < a->batch * a->tq * a->dv; i++)
        sum += out[i] * of[3][i];
    return sum;
}

static void test_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 16; n++) {
        struct memory *m = memory_create("score_backward oracle", n);
        struct align a;
        make(&a, m, (attn_score)(n % 4), 2, 3, 5);
        double *const of[4] = {read_all(m, &a.q), read_all(m, &a.projected), read_all(m, &a.v), read_all(m, &a.d_out)};
        struct oracle_align_gradients g = no_gradients(m, &a);
        oracle_take(0)->align_backward(&a.oracle, 2, 3, 5, a.dv, of[0], of[1], of[2], &a.params, of[3], NULL, &g);
        const struct {
            const char *name;
            double *values;
            const double *gradient;
            int64_t count;
        } all[] = {
            {"q", of[0], g.q.sum, 6 * a.config.d_query},
            {"projected", of[1], g.projected.sum, 10 * a.width},
            {"v", of[2], g.v.sum, 10 * a.dv},
            {"w_q", (double *)a.oracle.w_q, g.w_q.sum, a.config.d_attention * a.config.d_query},
            {"score_v", (double *)a.oracle.v, g.score_v.sum, a.config.d_attention},
        };
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            for (int some = 0; all[k].values && some < 6; some++) {
                const int64_t i = rng_range(&m->rng, 0, all[k].count - 1);
                const double was = all[k].values[i], step = 1e-5;
                all[k].values[i] = was + step;
                const double above = loss_of(m, &a, (const double *const *)of);
                all[k].values[i] = was - step;
                const double below = loss_of(m, &a, (const double *const *)of);
                all[k].values[i] = was;
                if (!(fabs((above - below) / (2 * step) - all[k].gradient[i]) < 1e-6))
                    fail_msg("%s: the oracle's gradient of %s[%d] is %.9g; expected %.9g", guard_case_line, all[k].name,
                             (int)i, all[k].gradient[i], (above - below) / (2 * step));
            }
        memory_destroy(m);
    }
}

/* ------------------------------------------------------------------- values -- */

static void begin_sums(struct memory *m, const attn_tensor *t, struct oracle_sum *const to[ORACLES])
{
    const int64_t count = t->shape[0] * t->shape[2] * t->shape[3];
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

/** NaN in all keys that no query of a sequence sees, and in all queries that see no key. */
static void spoil_hidden(const struct align *a)
{
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t j = 0; j < a->tk; j++) {
            int seen = 0;
            for (int64_t i = 0; i < a->tq; i++)
                seen |= oracle_key_is_live(&a->params, a->tq, a->tk, b, 0, i, j);
            for (int64_t c = 0; !seen && c < a->width; c++)
                tensor_set(&a->projected, b, 0, j, c, c % 2 ? INFINITY : NAN);
            for (int64_t c = 0; !seen && c < a->dv; c++)
                tensor_set(&a->v, b, 0, j, c, NAN);
        }
        for (int64_t i = 0; i < a->tq; i++) {
            int sees = 0;
            for (int64_t j = 0; j < a->tk; j++)
                sees |= oracle_key_is_live(&a->params, a->tq, a->tk, b, 0, i, j);
            for (int64_t c = 0; !sees && c < a->config.d_query; c++)
                tensor_set(&a->q, b, 0, i, c, NAN);
            for (int64_t c = 0; !sees && c < a->dv; c++)
                tensor_set(&a->d_out, b, 0, i, c, NAN);
        }
    }
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(1000); n++) {
        struct memory *m = memory_create("score_backward against_oracle", n);
        struct align a;
        make(&a, m, (attn_score)(n % 5 < 3 ? ATTN_SCORE_ADDITIVE : n % 4), RNG_PICK(&m->rng, 0, 1, 2, 5),
             RNG_PICK(&m->rng, 0, 1, 1, 2, 7, 17), RNG_PICK(&m->rng, 0, 1, 2, 16, 33, 70));
        if (a.config.score == ATTN_SCORE_ADDITIVE && n % 2)
            a.params = random_additive_form(m, a.batch, a.tq, a.tk)->params;
        const double *q = read_all(m, &a.q), *projected = read_all(m, &a.projected), *v = read_all(m, &a.v),
                     *d_out = read_all(m, &a.d_out);
        struct oracle_align_gradients to[ORACLES];
        for (int k = 0; k < ORACLES; k++)
            to[k] = no_gradients(m, &a);
        a.gradients.accumulate = rng_percent(&m->rng, 40);
        a.gradients.accumulate_keys = rng_percent(&m->rng, 40);
        if (a.gradients.accumulate && a.gradients.w_q) {
            begin_sums(m, &a.d_w_q, OF(to, w_q));
            begin_sums(m, &a.d_score_v, OF(to, score_v));
        }
        if (a.gradients.accumulate_keys) {
            begin_sums(m, &a.d_projected, OF(to, projected));
            begin_sums(m, &a.d_v, OF(to, v));
        }
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->align_backward(&a.oracle, a.batch, a.tq, a.tk, a.dv, q, projected, v, &a.params, d_out,
                                           NULL, &to[k]);
        spoil_hidden(&a);
        memory_seal(m);
        const size_t size = workspace_of(&a);
        void *workspace = n % 2 ? place_workspace(m, size) : NULL;
        OK(run_backward(&a, workspace, workspace ? size : 0));
        JUDGE("d_q", &a.d_q, to, q);
        JUDGE("d_projected", &a.d_projected, to, projected);
        JUDGE("d_v", &a.d_v, to, v);
        if (a.gradients.w_q) {
            JUDGE("d_w_q", &a.d_w_q, to, w_q);
            JUDGE("d_score_v", &a.d_score_v, to, score_v);
        }
        memory_destroy(m);
    }
}

/** Gradients of one sequence of a call, alone. */
static void check_alone(struct memory *m, const struct align *a, int64_t b)
{
    struct align one = *a;
    one.batch = 1;
    one.gradients.accumulate = one.gradients.accumulate_keys = 0;
    one.q = slice(&a->q, b, 0, a->tq), one.d_out = slice(&a->d_out, b, 0, a->tq);
    one.projected = slice(&a->projected, b, 0, a->tk), one.v = slice(&a->v, b, 0, a->tk);
    one.params.kv_len = a->params.kv_len ? a->params.kv_len + b : NULL;
    one.params.kv_start = a->params.kv_start ? a->params.kv_start + b : NULL;
    one.params.query_offset = a->params.query_offset ? a->params.query_offset + b : NULL;
    attn_tensor mask;
    if (a->params.mask) {
        mask = *a->params.mask;
        if (mask.shape[0] > 1)
            mask.data = (char *)mask.data + b * mask.stride[0] * (mask.dtype == ATTN_BOOL ? 1 : 4);
        mask.shape[0] = 1;
        one.params.mask = &mask;
    }
    place_gradients(&one, m);
    OK(run_backward(&one, NULL, 0));
    const attn_tensor d_q = slice(&a->d_q, b, 0, a->tq), d_projected = slice(&a->d_projected, b, 0, a->tk);
    const attn_tensor d_v = slice(&a->d_v, b, 0, a->tk);
    assert_true(equal_bits(&one.d_q, &d_q));
    assert_true(equal_bits(&one.d_projected, &d_projected));
    assert_true(equal_bits(&one.d_v, &d_v));
}

/** Other threads and workspaces; some gradients without the others; each sequence alone. */
static void test_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("score_backward bits", n);
        struct align p;
        const int has_form = n % 3 == 2;
        make(&p, m, n % 3 ? ATTN_SCORE_ADDITIVE : (attn_score)(n / 3 % 3), RNG_PICK(&m->rng, 1, 2, 6),
             RNG_PICK(&m->rng, 1, 9, 40), RNG_PICK(&m->rng, 30, 100, 300));
        if (has_form)
            p.params = random_additive_form(m, p.batch, p.tq, p.tk)->params;
        p.params.num_threads = 1;
        OK(run_backward(&p, NULL, 0));
        for (int threads = 1; threads <= 4; threads++) {
            struct align a = p;
            place_gradients(&a, m);
            a.params.num_threads = threads;
            if (threads % 2)
                a.gradients.q = NULL;
            if (threads == 2)
                a.gradients.projected = NULL;
            if (threads == 3)
                a.gradients.v = a.gradients.w_q = NULL;
            char byte;
            memory_seal(m);
            REFUSES(m, run_backward(&a, &byte, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 1");
            const size_t least = said_least(), told = workspace_of(&a);
            assert_true(least <= told);
            for (int some = 0; some < 2; some++) {
                const size_t size = some ? told : least;
                struct guard guard = guard_create(size);
                OK(run_backward(&a, guard_place(&guard, size, 1), size));
                assert_true(guard_intact(&guard));
                guard_destroy(&guard);
                assert_true(!a.gradients.q || equal_bits(&p.d_q, &a.d_q));
                assert_true(!a.gradients.projected || equal_bits(&p.d_projected, &a.d_projected));
                assert_true(!a.gradients.v || equal_bits(&p.d_v, &a.d_v));
                assert_true(!a.gradients.w_q || equal_bits(&p.d_w_q, &a.d_w_q));
                assert_true(!a.gradients.score_v || equal_bits(&p.d_score_v, &a.d_score_v));
            }
        }
        for (int64_t b = 0; b < p.batch && !has_form; b++)
            check_alone(m, &p, b);
        memory_destroy(m);
    }
    nn_end_refusals();
}

/** A call for each query, adding to what the keys have, gives the bits of one call. */
static void test_steps(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(12); n++) {
        struct memory *m = memory_create("score_backward steps", n);
        struct align a;
        make(&a, m, ATTN_SCORE_ADDITIVE, 3, 6, 40);
        a.params.causal = ATTN_CAUSAL_NONE, a.params.query_offset = NULL, a.params.mask = NULL;
        OK(run_backward(&a, NULL, 0));
        struct align step = a;
        step.tq = 1;
        for (int64_t i = 0; i < a.tq; i++) {
            const attn_tensor d_projected = step.d_projected, d_v = step.d_v;
            attn_tensor d_q = a.d_q;
            step.q = a.q, step.d_out = a.d_out;
            step.q.data = (float *)a.q.data + i * a.q.stride[2];
            step.d_out.data = (float *)a.d_out.data + i * a.d_out.stride[2];
            d_q.data = (float *)a.d_q.data + i * a.d_q.stride[2];
            step.q.shape[2] = step.d_out.shape[2] = d_q.shape[2] = 1;
            step.gradients.accumulate_keys = i > 0;
            place_gradients(&step, m);
            if (i) {
                step.d_projected = d_projected, step.d_v = d_v;
            }
            OK(run_backward(&step, NULL, 0));
            assert_true(equal_bits(&step.d_q, &d_q));
        }
        assert_true(equal_bits(&step.d_projected, &a.d_projected));
        assert_true(equal_bits(&step.d_v, &a.d_v));
        memory_destroy(m);
    }
}

/** A NaN of one sequence is in its own gradients, and in the sums. */
static void test_nan(void **state)
{
    (void)state;
    struct memory *m = memory_create("score_backward nan", 0);
    struct align a;
    make(&a, m, ATTN_SCORE_ADDITIVE, 3, 4, 5);
    a.params = attn_params_default();
    OK(run_backward(&a, NULL, 0));
    const struct align clean = a;
    place_gradients(&a, m);
    tensor_set(&a.projected, 1, 0, 2, 0, NAN);
    OK(run_backward(&a, NULL, 0));
    for (int64_t b = 0; b < 3; b++)
        for (int64_t i = 0; i < 4; i++)
            for (int64_t c = 0; c < a.config.d_query; c++)
                assert_true(b == 1 ? isnan(tensor_get(&a.d_q, b, 0, i, c))
                                   : tensor_get(&a.d_q, b, 0, i, c) == tensor_get(&clean.d_q, b, 0, i, c));
    assert_true(isnan(tensor_get(&a.d_v, 1, 0, 0, 0)) && !isnan(tensor_get(&a.d_v, 0, 0, 0, 0)));
    assert_true(isnan(tensor_get(&a.d_w_q, 0, 0, 0, 0)) && isnan(tensor_get(&a.d_score_v, 0, 0, 0, 0)));
    memory_destroy(m);
}

/** What only later queries see reaches no gradient of the earlier ones. */
static void test_partly_hidden(void **state)
{
    (void)state;
    for (int score = 0; score < 4; score++) {
        struct memory *m = memory_create("score_backward partly_hidden", (uint64_t)score);
        struct align a;
        make(&a, m, (attn_score)score, 2, 6, 6);
        a.params = attn_params_default();
        a.params.causal = ATTN_CAUSAL_TOP_LEFT;
        OK(run_backward(&a, NULL, 0));
        const attn_tensor clean = a.d_q;
        place_gradients(&a, m);
        for (int64_t b = 0; b < 2; b++) {
            tensor_set(&a.projected, b, 0, 4, 0, NAN);
            tensor_set(&a.v, b, 0, 4, 0, INFINITY);
        }
        OK(run_backward(&a, NULL, 0));
        for (int64_t b = 0; b < 2; b++) {
            const attn_tensor before = slice(&clean, b, 0, 4), after = slice(&a.d_q, b, 0, 4);
            assert_true(equal_bits(&before, &after));
            assert_true(isnan(tensor_get(&a.d_q, b, 0, 4, 0)));
        }
        memory_destroy(m);
    }
}

/* ------------------------------------------------------------------ refusals -- */

static attn_status try(const struct align *a, const attn_params *params, const attn_alignment_gradients *gradients)
{
    return attn_alignment_backward(&a->config, &a->q, &a->projected, &a->v, params, &a->d_out, gradients, NULL, 0);
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("score_backward wrong_arguments", 0);
    struct align a, dot;
    make(&a, m, ATTN_SCORE_ADDITIVE, 3, 4, 5);
    make(&dot, m, ATTN_SCORE_DOT, 3, 4, 5);
    const int64_t lengths[] = {4, 6, 0}, starts[] = {0, 6, 0};
    a.params = dot.params = attn_params_default();
    const attn_alignment_gradients *g = &a.gradients, none = attn_alignment_gradients_default();
    const attn_params *p = &a.params;
    const attn_alignment_config *c = &a.config;
    const attn_tensor *q = &a.q, *k = &a.projected, *v = &a.v, *d = &a.d_out, lse = place_rows(m, 3, 4, 1);
    memory_seal(m);
#define BACKWARD(config, q, projected, v, d_out) attn_alignment_backward(config, q, projected, v, p, d_out, g, NULL, 0)
    REFUSES(m, BACKWARD(NULL, q, k, v, d), ATTN_INVALID_ARGUMENT, "config is NULL");
    REFUSES(m, BACKWARD(CHANGED(attn_alignment_config, *c, w_q.data = NULL), q, k, v, d), ATTN_INVALID_ARGUMENT,
            "config.w_q");
    REFUSES(m, BACKWARD(CHANGED(attn_alignment_config, *c, temperature = -1), q, k, v, d), ATTN_INVALID_ARGUMENT,
            "config.temperature is -1; expected a positive number whose inverse a float can hold, or 0 for 1");
    REFUSES(m, BACKWARD(c, NULL, k, v, d), ATTN_INVALID_ARGUMENT, "q is NULL");
    REFUSES(m, BACKWARD(c, CHANGED(attn_tensor, *q, shape[3]++), k, v, d), ATTN_SHAPE_MISMATCH, "q.shape[3]");
    REFUSES(m, BACKWARD(c, q, NULL, v, d), ATTN_INVALID_ARGUMENT, "projected is NULL");
    REFUSES(m, BACKWARD(c, q, CHANGED(attn_tensor, *k, shape[0] = 2), v, d), ATTN_SHAPE_MISMATCH,
            "projected.shape[0] is 2");
    REFUSES(m, BACKWARD(c, q, k, NULL, d), ATTN_INVALID_ARGUMENT, "v is NULL");
    REFUSES(m, BACKWARD(c, q, k, CHANGED(attn_tensor, *v, shape[2] = 4), d), ATTN_SHAPE_MISMATCH,
            "v.shape[2] is 4; expected 5 tokens");
    REFUSES(m, BACKWARD(c, q, k, v, NULL), ATTN_INVALID_ARGUMENT, "d_out is NULL");
    REFUSES(m, BACKWARD(c, q, k, v, CHANGED(attn_tensor, *d, shape[2] = 3)), ATTN_SHAPE_MISMATCH,
            "d_out.shape[2] is 3");
    REFUSES(m, BACKWARD(c, q, k, v, CHANGED(attn_tensor, *d, dtype = ATTN_BF16)), ANY_ERROR, "d_out.dtype");
    REFUSES(m, try(&a, p, NULL), ATTN_INVALID_ARGUMENT, "gradients is NULL");
    REFUSES(m, try(&a, p, &none), ATTN_INVALID_ARGUMENT,
            "gradients has no tensor; expected q, projected, v, w_q or score_v");
    REFUSES(m, try(&a, p, CHANGED(attn_alignment_gradients, *g, q = q)), ATTN_INVALID_ARGUMENT,
            "gradients.q|overlaps q");
    REFUSES(m, try(&a, p, CHANGED(attn_alignment_gradients, *g, projected = k)), ATTN_INVALID_ARGUMENT,
            "gradients.projected|overlaps projected");
    REFUSES(m, try(&a, p, CHANGED(attn_alignment_gradients, *g, v = q)), ATTN_SHAPE_MISMATCH, "gradients.v.shape[2]");
    REFUSES(m, try(&a, p, CHANGED(attn_alignment_gradients, *g, w_q = g->score_v)), ATTN_SHAPE_MISMATCH,
            "gradients.w_q.shape");
    REFUSES(m, try(&a, p, CHANGED(attn_alignment_gradients, *g, score_v = g->w_q)), ATTN_SHAPE_MISMATCH,
            "gradients.score_v.shape");
    REFUSES(m, try(&dot, p, CHANGED(attn_alignment_gradients, dot.gradients, score_v = g->score_v)),
            ATTN_INVALID_ARGUMENT, "gradients.score_v is set; expected NULL, as this score has no such weight");
    REFUSES(m, try(&a, CHANGED(attn_params, *p, scale = 2), g), ATTN_INVALID_ARGUMENT,
            "params.scale is 2; expected 0, as the score function has its own");
    REFUSES(m, try(&a, CHANGED(attn_params, *p, softcap = 2), g), ATTN_UNSUPPORTED, "params.softcap");
    REFUSES(m, try(&a, CHANGED(attn_params, *p, lse = &lse), g), ATTN_INVALID_ARGUMENT, "output on request");
    REFUSES(m, try(&a, CHANGED(attn_params, *p, kv_len = lengths), g), ATTN_INVALID_ARGUMENT, "params.kv_len[1] is 6");
    REFUSES(m, try(&a, CHANGED(attn_params, *p, kv_start = starts), g), ATTN_INVALID_ARGUMENT,
            "params.kv_start[1] is 6");
    REFUSES(m, try(&a, CHANGED(attn_params, *p, causal = ATTN_CAUSAL_OFFSET), g), ATTN_INVALID_ARGUMENT,
            "params.query_offset is NULL");
    REFUSES(m, try(&a, CHANGED(attn_params, *p, mask = g->w_q), g), ANY_ERROR, "params.mask");
    REFUSES(m, try(&a, CHANGED(attn_params, *p, num_threads = -1), g), ATTN_INVALID_ARGUMENT, "num_threads is -1");
    REFUSES(m, try(&dot, CHANGED(attn_params, *p, kv_len = lengths), &dot.gradients), ANY_ERROR, "kv_len[1]");
    REFUSES(m, try(&dot, CHANGED(attn_params, *p, qk = ATTN_QK_INT8), &dot.gradients), ANY_ERROR, "qk");
#define SIZE(b, tq, tk, dv, g) attn_alignment_backward_workspace_size(c, b, tq, tk, dv, p, g)
    assert_true(SIZE(-1, 1, 1, 1, g) == SIZE_MAX && SIZE(1, -1, 1, 1, g) == SIZE_MAX);
    assert_true(SIZE(1, 1, -1, 1, g) == SIZE_MAX && SIZE(1, 1, 1, -1, g) == SIZE_MAX);
    assert_true(SIZE(INT64_MAX, 1, 1, 1, g) == SIZE_MAX && SIZE(1, 1, INT64_MAX, 1, g) == SIZE_MAX);
    assert_true(SIZE(1, 1, 1, 1, NULL) == SIZE_MAX && SIZE(1, 1, 1, 1, g) < SIZE_MAX);
    c = &dot.config;
    g = &dot.gradients;
    assert_true(SIZE(INT64_MAX, 1, 1, 1, g) == SIZE_MAX && SIZE(1, 1, INT64_MAX, 1, g) == SIZE_MAX);
    assert_true(SIZE(1, INT64_MAX / 2, 1, 1, g) == SIZE_MAX && SIZE(1, 1, 1, 1, g) < SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_against_oracle),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_partly_hidden),
        cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
