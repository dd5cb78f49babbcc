/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of a step of Bahdanau's decoder: against the oracle's, which
 * differences of its forward pass check; a step that attn_bahdanau_forward() has
 * run; padding that holds NaN; the same bits on any threads, in any workspace and
 * beside any other sequences; wrong arguments.
 */
#include "options.h"

enum { SUMS = 6 };

/** A step, and where its gradients go. */
struct step {
    int64_t batch, tokens;
    attn_bahdanau_config config;
    attn_alignment_config alignment;
    struct oracle_alignment oracle;
    struct oracle_gru gru;
    attn_tensor word, projected, annotations, its_state, d_context;
    int64_t *lengths;
    int has_context;
    attn_tensor d_state, d_word, d_projected, d_annotations, sums[SUMS]; /* w_ih, w_hh, b_ih, b_hh, w_q, score_v */
    attn_bahdanau_gradients gradients;
};

static void make_weights(struct step *s, struct memory *m)
{
    struct rng *rng = &m->rng;
    attn_bahdanau_config *c = &s->config;
    attn_alignment_config *a = &s->alignment;
    *c = attn_bahdanau_config_default();
    *a = attn_alignment_config_default();
    a->score = ATTN_SCORE_ADDITIVE;
    a->d_query = c->hidden = RNG_PICK(rng, 1, 8, 17, 33);
    a->d_key = c->annotation = RNG_PICK(rng, 1, 6, 19);
    a->d_attention = RNG_PICK(rng, 1, 7, 16, 25);
    a->temperature = rng_percent(rng, 60) ? 0 : 1.5f;
    c->embedding = RNG_PICK(rng, 1, 5, 16);
    const int64_t in = c->embedding + c->annotation, n = c->hidden, inner = a->d_attention;
    a->w_q = random_matrix(m, random_dtype(m), inner, n, 1 / sqrt((double)n));
    a->w_k = random_matrix(m, random_dtype(m), inner, c->annotation, 1 / sqrt((double)c->annotation));
    a->v = random_vector(m, random_dtype(m), inner, 1, 0);
    c->w_ih = random_matrix(m, random_dtype(m), 3 * n, in, 1 / sqrt((double)in));
    c->w_hh = random_matrix(m, random_dtype(m), 3 * n, n, 1 / sqrt((double)n));
    if (rng_percent(rng, 70))
        c->b_ih = random_vector(m, random_dtype(m), 3 * n, 0.5, 0);
    if (rng_percent(rng, 70))
        c->b_hh = random_vector(m, random_dtype(m), 3 * n, 0.5, 0);
    s->oracle = (struct oracle_alignment){
        ATTN_SCORE_ADDITIVE,  n,    c->annotation,     inner, (double)a->temperature, read_all(m, &a->w_q),
        read_all(m, &a->w_k), NULL, read_all(m, &a->v)};
    s->gru = (struct oracle_gru){in,
                                 n,
                                 read_all(m, &c->w_ih),
                                 read_all(m, &c->w_hh),
                                 c->b_ih.data ? read_all(m, &c->b_ih) : NULL,
                                 c->b_hh.data ? read_all(m, &c->b_hh) : NULL};
}

/** Places where gradients go, once more, with the same gradient of the state. */
static void place_gradients(struct step *s, struct memory *m, const attn_tensor *d_state)
{
    const attn_bahdanau_config *c = &s->config;
    const int64_t n = c->hidden, inner = s->alignment.d_attention;
    const int64_t shapes[SUMS][2] = {
        {3 * n, c->embedding + c->annotation}, {3 * n, n}, {1, 3 * n}, {1, 3 * n}, {inner, n}, {1, inner}};
    s->d_state = place_rows(m, s->batch, 1, n);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < n; i++)
            tensor_set(&s->d_state, b, 0, 0, i, d_state ? tensor_get(d_state, b, 0, 0, i) : rng_normal(&m->rng));
    s->d_word = place_rows(m, s->batch, 1, c->embedding);
    s->d_projected = place_rows(m, s->batch, s->tokens, inner);
    s->d_annotations = place_rows(m, s->batch, s->tokens, c->annotation);
    for (int i = 0; i < SUMS; i++)
        s->sums[i] = place_rows(m, 1, shapes[i][0], shapes[i][1]);
    s->gradients.struct_size = sizeof s->gradients;
    s->gradients.state = &s->d_state, s->gradients.word = &s->d_word;
    s->gradients.projected = &s->d_projected, s->gradients.annotations = &s->d_annotations;
    s->gradients.w_ih = &s->sums[0], s->gradients.w_hh = &s->sums[1];
    s->gradients.b_ih = &s->sums[2], s->gradients.b_hh = &s->sums[3];
    s->gradients.w_q = &s->sums[4], s->gradients.score_v = &s->sums[5];
}

static void make(struct step *s, struct memory *m, int64_t batch, int64_t tokens)
{
    memset(s, 0, sizeof *s);
    s->batch = batch, s->tokens = tokens;
    make_weights(s, m);
    const attn_bahdanau_config *c = &s->config;
    s->word = random_rows(m, batch, 1, c->embedding);
    s->projected = random_rows(m, batch, tokens, s->alignment.d_attention);
    s->annotations = random_rows(m, batch, tokens, c->annotation);
    s->its_state = random_rows(m, batch, 1, c->hidden);
    s->d_context = random_rows(m, batch, 1, c->annotation);
    s->has_context = rng_percent(&m->rng, 50);
    if (rng_percent(&m->rng, 60)) {
        s->lengths = bytes(m, (size_t)batch * sizeof *s->lengths);
        for (int64_t b = 0; b < batch; b++)
            s->lengths[b] = rng_range(&m->rng, 0, tokens);
    }
    s->gradients = attn_bahdanau_gradients_default();
    place_gradients(s, m, NULL);
}

static attn_status run_backward(const struct step *s, void *workspace, size_t size)
{
    return attn_bahdanau_backward(&s->config, &s->alignment, &s->word, &s->projected, &s->annotations, s->lengths,
                                  &s->its_state, s->has_context ? &s->d_context : NULL, &s->gradients, workspace, size);
}

static size_t workspace_of(const struct step *s)
{
    return attn_bahdanau_backward_workspace_size(&s->config, &s->alignment, s->batch, s->tokens, &s->gradients);
}

/* --------------------------------------------------------------- the oracle -- */

/** What the oracle reads. */
struct inputs {
    double *word, *projected, *annotations, *state, *d_state, *d_context;
};

static struct inputs read_inputs(struct memory *m, const struct step *s)
{
    return (struct inputs){read_all(m, &s->word),        read_all(m, &s->projected),
                           read_all(m, &s->annotations), read_all(m, &s->its_state),
                           read_all(m, &s->d_state),     s->has_context ? read_all(m, &s->d_context) : NULL};
}

static struct oracle_sum no_sum(struct memory *m, int64_t n)
{
    return (struct oracle_sum){zeros(m, n), zeros(m, n)};
}

static struct oracle_bahdanau_gradients run_oracle(struct memory *m, const struct step *s, const struct inputs *in,
                                                   int which)
{
    const int64_t n = s->config.hidden, inner = s->alignment.d_attention, rows = s->batch * s->tokens;
    struct oracle_bahdanau_gradients to = {
        .state = no_sum(m, s->batch * n),
        .word = no_sum(m, s->batch * s->config.embedding),
        .attention = {{NULL, NULL},
                      no_sum(m, rows * inner),
                      no_sum(m, rows * s->config.annotation),
                      no_sum(m, inner * n),
                      no_sum(m, inner)},
        .w_ih = no_sum(m, 3 * n * s->gru.input),
        .w_hh = no_sum(m, 3 * n * n),
        .b_ih = no_sum(m, 3 * n),
        .b_hh = no_sum(m, 3 * n),
    };
    memcpy(to.state.sum, in->d_state, (size_t)(s->batch * n) * sizeof *to.state.sum);
    oracle_take(which)->bahdanau_backward(&s->oracle, &s->gru, s->batch, s->tokens, s->config.annotation, in->word,
                                          in->projected, in->annotations, s->lengths, in->state, in->d_context, &to);
    return to;
}

/** A linear function of the state behind the step and of the context. */
static double loss_of(struct memory *m, const struct step *s, const struct inputs *in)
{
    const struct oracle *o = oracle_take(0);
    const int64_t dv = s->config.annotation, n = s->config.hidden, e = s->config.embedding;
    double *context = zeros(m, s->batch * dv), *weights = zeros(m, s->batch * s->tokens), sum = 0;
    attn_params params = attn_params_default();
    params.kv_len = s->lengths;
    o->align(&s->oracle, s->batch, 1, s->tokens, dv, in->state, in->projected, in->annotations, &params, context,
             weights, NULL);
    for (int64_t b = 0; b < s->batch; b++) {
        double *x = zeros(m, e + dv), *next = zeros(m, n);
        memcpy(x, in->word + b * e, (size_t)e * sizeof *x);
        memcpy(x + e, context + b * dv, (size_t)dv * sizeof *x);
        memcpy(next, in->state + b * n, (size_t)n * sizeof *next);
        o->gru(&s->gru, x, next);
        for (int64_t i = 0; i < n; i++)
            sum += next[i] * in->d_state[b * n + i];
        for (int64_t i = 0; i < dv && in->d_context; i++)
            sum += context[b * dv + i] * in->d_context[b * dv + i];
    }
    return sum;
}

static void test_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 8; n++) {
        struct memory *m = memory_create("bahdanau_backward oracle", n);
        struct step s;
        make(&s, m, 2, 4);
        const struct inputs in = read_inputs(m, &s);
        const struct oracle_bahdanau_gradients g = run_oracle(m, &s, &in, 0);
        const int64_t hidden = s.config.hidden, inner = s.alignment.d_attention;
        const struct {
            const char *name;
            double *values;
            const double *gradient;
            int64_t count;
        } all[] = {
            {"word", in.word, g.word.sum, 2 * s.config.embedding},
            {"projected", in.projected, g.attention.projected.sum, 8 * inner},
            {"annotations", in.annotations, g.attention.v.sum, 8 * s.config.annotation},
            {"state", in.state, g.state.sum, 2 * hidden},
            {"w_ih", (double *)s.gru.w_ih, g.w_ih.sum, 3 * hidden * s.gru.input},
            {"w_hh", (double *)s.gru.w_hh, g.w_hh.sum, 3 * hidden * hidden},
            {"b_ih", (double *)s.gru.b_ih, g.b_ih.sum, 3 * hidden},
            {"b_hh", (double *)s.gru.b_hh, g.b_hh.sum, 3 * hidden},
            {"w_q", (double *)s.oracle.w_q, g.attention.w_q.sum, inner * hidden},
            {"score_v", (double *)s.oracle.v, g.attention.score_v.sum, inner},
        };
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            for (int some = 0; all[k].values && some < 4; some++) {
                const int64_t i = rng_range(&m->rng, 0, all[k].count - 1);
                const double was = all[k].values[i], step = 1e-5;
                all[k].values[i] = was + step;
                const double above = loss_of(m, &s, &in);
                all[k].values[i] = was - step;
                const double below = loss_of(m, &s, &in);
                all[k].values[i] = was;
                if (!(fabs((above - below) / (2 * step) - all[k].gradient[i]) < 1e-7))
                    fail_msg("%s: the oracle's gradient of %s[%d] is %.9g; expected %.9g", guard_case_line, all[k].name,
                             (int)i, all[k].gradient[i], (above - below) / (2 * step));
            }
        memory_destroy(m);
    }
}

/* ------------------------------------------------------------------- values -- */

/** What a gradient held before is added to what the oracle says. */
static void add_before(struct memory *m, const attn_tensor *before, double *const of[ORACLES], double *size)
{
    const double *values = read_all(m, before);
    for (int64_t i = 0; i < before->shape[0] * before->shape[2] * before->shape[3]; i++) {
        size[i] += fabs(values[i]);
        for (int k = 0; k < ORACLES; k++)
            of[k][i] += values[i];
    }
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(120); n++) {
        struct memory *m = memory_create("bahdanau_backward against_oracle", n);
        struct step s;
        make(&s, m, RNG_PICK(&m->rng, 0, 1, 2, 7), RNG_PICK(&m->rng, 0, 1, 2, 17, 50));
        const struct inputs in = read_inputs(m, &s);
        struct oracle_bahdanau_gradients g[ORACLES];
        for (int k = 0; k < ORACLES; k++)
            g[k] = run_oracle(m, &s, &in, k);
        const struct {
            const char *name;
            const attn_tensor *got;
            double *of[ORACLES], *size;
            int accumulates; /* 1 with weights, 2 with keys */
        } all[] = {
#define ROW(name, got, member, accumulates)                                                                            \
    {name, got, {g[0].member.sum, g[1].member.sum, g[2].member.sum}, g[0].member.size, accumulates}
            ROW("d_state", &s.d_state, state, 0),
            ROW("d_word", &s.d_word, word, 0),
            ROW("d_projected", &s.d_projected, attention.projected, 2),
            ROW("d_annotations", &s.d_annotations, attention.v, 2),
            ROW("d_w_ih", &s.sums[0], w_ih, 1),
            ROW("d_w_hh", &s.sums[1], w_hh, 1),
            ROW("d_b_ih", &s.sums[2], b_ih, 1),
            ROW("d_b_hh", &s.sums[3], b_hh, 1),
            ROW("d_w_q", &s.sums[4], attention.w_q, 1),
            ROW("d_score_v", &s.sums[5], attention.score_v, 1),
        };
        s.gradients.accumulate = rng_percent(&m->rng, 40);
        s.gradients.accumulate_keys = rng_percent(&m->rng, 40);
        s.gradients.num_threads = (int)(n % 4);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i].accumulates &&
                (all[i].accumulates == 1 ? s.gradients.accumulate : s.gradients.accumulate_keys)) {
                fill(m, all[i].got, 1);
                mark_output(m, all[i].got);
                add_before(m, all[i].got, all[i].of, all[i].size);
            }
        for (int64_t b = 0; b < s.batch && s.lengths; b++) /* padding may hold anything */
            for (int64_t t = s.lengths[b]; t < s.tokens; t++) {
                tensor_set(&s.projected, b, 0, t, t % s.alignment.d_attention, NAN);
                tensor_set(&s.annotations, b, 0, t, t % s.config.annotation, INFINITY);
            }
        memory_seal(m);
        const size_t size = workspace_of(&s);
        void *workspace = n % 2 ? place_workspace(m, size) : NULL;
        OK(run_backward(&s, workspace, workspace ? size : 0));
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            judge(NN_RECURRENT_BACKWARD, all[i].name, all[i].got, all[i].of, all[i].size);
        memory_destroy(m);
    }
}

/** Other threads and workspaces; some gradients without the others; each sequence alone. */
static void test_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(8); n++) {
        struct memory *m = memory_create("bahdanau_backward bits", n);
        struct step p;
        make(&p, m, 12, 60);
        const attn_tensor before = place_rows(m, 12, 1, p.config.hidden);
        for (int64_t b = 0; b < 12; b++)
            for (int64_t i = 0; i < p.config.hidden; i++)
                tensor_set(&before, b, 0, 0, i, tensor_get(&p.d_state, b, 0, 0, i));
        OK(run_backward(&p, NULL, 0));
        for (int threads = 1; threads <= 4; threads++)
            for (int some = 0; some < 2; some++) {
                struct step s = p;
                place_gradients(&s, m, &before);
                s.gradients.num_threads = threads;
                if (some)
                    s.gradients.word = s.gradients.projected = s.gradients.w_hh = s.gradients.score_v = NULL;
                char byte;
                memory_seal(m);
                REFUSES(m, run_backward(&s, &byte, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 1");
                const size_t least = said_least(), told = workspace_of(&s), size = some ? told : least;
                assert_true(least <= told);
                struct guard guard = guard_create(size);
                OK(run_backward(&s, guard_place(&guard, size, 1), size));
                assert_true(guard_intact(&guard));
                guard_destroy(&guard);
                assert_true(equal_bits(&p.d_state, &s.d_state) && equal_bits(&p.d_annotations, &s.d_annotations));
                assert_true(some || (equal_bits(&p.d_word, &s.d_word) && equal_bits(&p.d_projected, &s.d_projected)));
                for (int i = 0; i < SUMS; i++)
                    assert_true((some && (i == 1 || i == 5)) || equal_bits(&p.sums[i], &s.sums[i]));
            }
        for (int64_t b = 0; b < p.batch; b++) {
            struct step one = p;
            one.batch = 1;
            one.word = slice(&p.word, b, 0, 1), one.its_state = slice(&p.its_state, b, 0, 1);
            one.projected = slice(&p.projected, b, 0, p.tokens);
            one.annotations = slice(&p.annotations, b, 0, p.tokens);
            one.d_context = slice(&p.d_context, b, 0, 1);
            one.lengths = p.lengths ? p.lengths + b : NULL;
            const attn_tensor its = slice(&before, b, 0, 1);
            place_gradients(&one, m, &its);
            one.gradients.w_ih = one.gradients.w_hh = one.gradients.w_q = NULL;
            OK(run_backward(&one, NULL, 0));
            const attn_tensor d_state = slice(&p.d_state, b, 0, 1), d_word = slice(&p.d_word, b, 0, 1);
            const attn_tensor d_projected = slice(&p.d_projected, b, 0, p.tokens);
            const attn_tensor d_annotations = slice(&p.d_annotations, b, 0, p.tokens);
            assert_true(equal_bits(&one.d_state, &d_state) && equal_bits(&one.d_word, &d_word));
            assert_true(equal_bits(&one.d_projected, &d_projected));
            assert_true(equal_bits(&one.d_annotations, &d_annotations));
        }
        memory_destroy(m);
    }
    nn_end_refusals();
}

/* ------------------------------------------------------------------ refusals -- */

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("bahdanau_backward wrong_arguments", 0);
    struct step s;
    make(&s, m, 3, 4);
    const int64_t lengths[] = {4, 5, 0};
    const attn_bahdanau_config *c = &s.config;
    const attn_alignment_config *a = &s.alignment;
    const attn_tensor *w = &s.word, *k = &s.projected, *n = &s.annotations, *h = &s.its_state, *d = &s.d_context;
    const attn_bahdanau_gradients *g = &s.gradients;
    mark_output(m, &s.d_state);
    memory_seal(m);
#define BACKWARD(c, a, w, k, n, l, h, d, g) attn_bahdanau_backward(c, a, w, k, n, l, h, d, g, NULL, 0)
#define GRADIENTS(change)                   BACKWARD(c, a, w, k, n, NULL, h, d, CHANGED(attn_bahdanau_gradients, *g, change))
    REFUSES(m, BACKWARD(NULL, a, w, k, n, NULL, h, d, g), ATTN_INVALID_ARGUMENT,
            "config is NULL; expected the weights of a step");
    REFUSES(m, BACKWARD(CHANGED(attn_bahdanau_config, *c, w_hh.data = NULL), a, w, k, n, NULL, h, d, g), ANY_ERROR,
            "config.w_hh");
    REFUSES(m, BACKWARD(c, NULL, w, k, n, NULL, h, d, g), ATTN_INVALID_ARGUMENT,
            "alignment is NULL; expected a score function");
    attn_alignment_config dot = attn_alignment_config_default(), wide = *a;
    dot.score = ATTN_SCORE_DOT, dot.d_query = dot.d_key = c->annotation;
    REFUSES(m, BACKWARD(c, &dot, w, k, n, NULL, h, d, g), ATTN_INVALID_ARGUMENT,
            "alignment.score is 1; expected ATTN_SCORE_ADDITIVE");
    wide.d_query++, wide.w_q.shape[3]++;
    REFUSES(m, BACKWARD(c, &wide, w, k, n, NULL, h, d, g), ATTN_SHAPE_MISMATCH,
            "alignment.d_query is |, config.hidden");
    REFUSES(m, BACKWARD(c, CHANGED(attn_alignment_config, *a, score = ATTN_SCORE_DOT), w, k, n, NULL, h, d, g),
            ATTN_INVALID_ARGUMENT, "alignment.");
    REFUSES(m, BACKWARD(CHANGED(attn_bahdanau_config, *c, annotation += 1), a, w, k, n, NULL, h, d, g),
            ATTN_SHAPE_MISMATCH, "alignment.d_key|config.annotation");
    REFUSES(m, BACKWARD(c, CHANGED(attn_alignment_config, *a, d_query += 1), w, k, n, NULL, h, d, g),
            ATTN_SHAPE_MISMATCH, "alignment.w_q.shape[3]");
    REFUSES(m, BACKWARD(c, a, NULL, k, n, NULL, h, d, g), ATTN_INVALID_ARGUMENT, "word is NULL");
    REFUSES(m, BACKWARD(c, a, w, NULL, n, NULL, h, d, g), ATTN_INVALID_ARGUMENT, "projected is NULL");
    REFUSES(m, BACKWARD(c, a, w, k, CHANGED(attn_tensor, *n, shape[2] = 3), NULL, h, d, g), ATTN_SHAPE_MISMATCH,
            "annotations.shape[2] is 3");
    REFUSES(m, BACKWARD(c, a, w, k, n, lengths, h, d, g), ATTN_INVALID_ARGUMENT, "lengths[1] is 5");
    REFUSES(m, BACKWARD(c, a, w, k, n, NULL, NULL, d, g), ATTN_INVALID_ARGUMENT, "state is NULL");
    REFUSES(m, BACKWARD(c, a, w, k, n, NULL, h, CHANGED(attn_tensor, *d, shape[0] = 2), g), ATTN_SHAPE_MISMATCH,
            "d_context.shape[0] is 2");
    REFUSES(m, BACKWARD(c, a, w, k, n, NULL, h, d, NULL), ATTN_INVALID_ARGUMENT, "gradients is NULL");
    REFUSES(m, GRADIENTS(state = NULL), ATTN_INVALID_ARGUMENT, "gradients.state is NULL");
    REFUSES(m, GRADIENTS(state = h), ATTN_INVALID_ARGUMENT, "gradients.state|overlaps state");
    REFUSES(m, GRADIENTS(projected = k), ATTN_INVALID_ARGUMENT, "gradients.projected|overlaps projected");
    REFUSES(m, GRADIENTS(b_hh = g->b_ih), ATTN_INVALID_ARGUMENT, "gradients.b_hh|overlaps gradients.b_ih");
    REFUSES(m, GRADIENTS(w_q = g->score_v), ATTN_SHAPE_MISMATCH, "gradients.w_q.shape");
    REFUSES(m, GRADIENTS(num_threads = -1), ATTN_INVALID_ARGUMENT, "num_threads is -1");
    assert_true(attn_bahdanau_backward_workspace_size(c, a, -1, 1, g) == SIZE_MAX);
    assert_true(attn_bahdanau_backward_workspace_size(c, a, 1, -1, g) == SIZE_MAX);
    assert_true(attn_bahdanau_backward_workspace_size(c, a, 1, INT64_MAX, g) == SIZE_MAX);
    assert_true(attn_bahdanau_backward_workspace_size(c, NULL, 1, 1, g) == SIZE_MAX);
    assert_true(attn_bahdanau_backward_workspace_size(c, a, 1, 1, NULL) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_oracle), cmocka_unit_test(test_against_oracle),
                                       cmocka_unit_test(test_bits), cmocka_unit_test(test_wrong_arguments)};
    return NN_MAIN(tests);
}
