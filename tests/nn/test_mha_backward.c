/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of multi-head attention: against differences of the oracle's forward
 * pass in double, under random options; the same bits on any threads and in any
 * workspace; gradients of options; wrong arguments.
 */
#include "differences.h"

/** A layer with its input, and where its gradients go. */
struct layer {
    attn_mha_config config;
    attn_mha_weights weights, d_weights;
    struct oracle_mha oracle;
    int64_t batch, tq, tk, d_model, d_memory, d_out;
    int self;
    attn_tensor x, memory, out_gradient, d_x, d_memory_rows;
    struct options *options;
    attn_mha_gradients gradients;
};

static void layer_create(struct layer *l, struct memory *m, int self, int64_t batch, int64_t tq, int64_t tk)
{
    struct rng *rng = &m->rng;
    memset(l, 0, sizeof *l);
    l->self = self;
    l->batch = batch;
    l->tq = tq;
    l->tk = self ? tq : tk;
    l->config = attn_mha_config_default();
    l->weights = l->d_weights = attn_mha_weights_default();
    struct oracle_mha *o = &l->oracle;
    o->kv_heads = rng_range(rng, 1, 3);
    o->heads = o->kv_heads * rng_range(rng, 1, 2);
    o->dk = RNG_PICK(rng, 1, 2, 7, 8, 16, 17, 24);
    o->dv = rng_percent(rng, 40) ? RNG_PICK(rng, 1, 3, 8, 15, 16, 25) : o->dk;
    l->d_model = RNG_PICK(rng, 8, 9, 15, 16, 24, 31);
    l->d_memory = self ? l->d_model : RNG_PICK(rng, 8, 11, 16, 48);
    l->d_out = rng_percent(rng, 30) ? RNG_PICK(rng, 8, 13, 32) : l->d_model;
    attn_mha_config *c = &l->config;
    c->d_model = l->d_model, c->heads = o->heads, c->kv_heads = o->kv_heads;
    c->head_dim = o->dk, c->value_dim = o->dv, c->d_memory = l->d_memory, c->d_out = l->d_out;
    attn_mha_weights *w = &l->weights, *d = &l->d_weights;
    o->q = random_dense(m, o->heads * o->dk, l->d_model, &w->w_q, &w->b_q, &d->w_q, &d->b_q);
    o->k = random_dense(m, o->kv_heads * o->dk, l->d_memory, &w->w_k, &w->b_k, &d->w_k, &d->b_k);
    o->v = random_dense(m, o->kv_heads * o->dv, l->d_memory, &w->w_v, &w->b_v, &d->w_v, &d->b_v);
    o->o = random_dense(m, l->d_out, o->heads * o->dv, &w->w_o, &w->b_o, &d->w_o, &d->b_o);
    const struct options_for of = {batch, o->heads, o->kv_heads, tq, l->tk, o->dk, 0};
    l->options = random_options(m, &of);
    l->options->params.weights = NULL;
    l->options->params.qk = ATTN_QK_DEFAULT;
    l->x = random_rows(m, batch, tq, l->d_model);
    l->memory = random_rows(m, batch, l->tk, l->d_memory);
    l->out_gradient = place_rows_of(m, random_dtype(m), batch, tq, l->d_out);
    fill(m, &l->out_gradient, 1);
    l->d_x = place_rows_of(m, ATTN_F32, batch, tq, l->d_model);
    l->d_memory_rows = place_rows_of(m, ATTN_F32, batch, l->tk, l->d_memory);
    l->gradients = attn_mha_gradients_default();
    l->gradients.x = &l->d_x;
    l->gradients.memory = self ? NULL : &l->d_memory_rows;
    l->gradients.weights = &l->d_weights;
}

static attn_status run_backward(const struct layer *l, void *workspace, size_t size)
{
    return attn_mha_backward(&l->config, &l->weights, &l->x, l->self ? NULL : &l->memory, &l->options->params,
                             &l->out_gradient, &l->gradients, workspace, size);
}

static size_t workspace_of(const struct layer *l)
{
    return attn_mha_backward_workspace_size(&l->config, l->batch, l->tq, l->tk, &l->options->params, &l->gradients);
}

/* ------------------------------------------------------------------- values -- */

/** A linear function of out: d_out are its factors. */
static double loss_of(const struct layer *l, const double *x, const double *memory, const double *d_out, double *out)
{
    double sum = 0;
    oracle_take(0)->mha(&l->oracle, l->batch, l->tq, x, l->tk, l->self ? NULL : memory, &l->options->params, out, NULL);
    for (int64_t i = 0; i < l->batch * l->tq * l->d_out; i++)
        sum += out[i] * d_out[i];
    return sum;
}

/** What loss_of() reads. */
struct variation {
    const struct layer *layer;
    const double *x, *memory, *d_out;
    double *out;
};

static double vary(void *context)
{
    const struct variation *v = context;
    return loss_of(v->layer, v->x, v->memory, v->d_out, v->out);
}

/** Differences of the oracle in double, at some elements of everything that has a gradient. */
static void test_against_differences(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(160); n++) {
        struct memory *m = memory_create("mha_backward against_differences", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, rng_percent(&m->rng, 50), RNG_PICK(&m->rng, 1, 2, 3, 0),
                     RNG_PICK(&m->rng, 0, 1, 2, 5, 17, 25), RNG_PICK(&m->rng, 0, 1, 3, 16, 30));
        double *x = read_all(m, &l.x), *memory = read_all(m, &l.memory), *d_out = read_all(m, &l.out_gradient);
        double *out = zeros(m, l.batch * l.tq * l.d_out);
        l.options->params.num_threads = (int)(n % 4);
        memory_seal(m);
        const size_t size = workspace_of(&l);
        void *workspace = n % 2 ? place_workspace(m, size) : NULL;
        OK(run_backward(&l, workspace, workspace ? size : 0));
        const struct oracle_mha *o = &l.oracle;
        const attn_mha_weights *d = &l.d_weights;
        const struct varied all[] = {
            {"x", x, &l.d_x},
            {"memory", l.self ? NULL : memory, &l.d_memory_rows},
            {"w_q", (double *)o->q.w, &d->w_q},
            {"w_k", (double *)o->k.w, &d->w_k},
            {"w_v", (double *)o->v.w, &d->w_v},
            {"w_o", (double *)o->o.w, &d->w_o},
            {"b_q", (double *)o->q.b, &d->b_q},
            {"b_k", (double *)o->k.b, &d->b_k},
            {"b_v", (double *)o->v.b, &d->b_v},
            {"b_o", (double *)o->o.b, &d->b_o},
        };
        /* Scores that all keys of a query share move no weight: what depends on them alone is the rounding of terms,
         * whose size is that of what values get. */
        const double of_values = root_mean_square(read_all(m, &d->w_v), l.oracle.v.out * l.d_memory);
        const double rounding = m->dtype == ATTN_F32 ? 1e-5 : m->dtype == ATTN_F16 ? 3e-3 : 2.5e-2;
        struct variation v = {&l, x, memory, d_out, out};
        assert_differences(m, all, sizeof all / sizeof *all, vary, &v, (struct closeness){rounding, of_values});
        memory_destroy(m);
    }
}

/* --------------------------------------------------------------------- bits -- */

static void test_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(12); n++) {
        struct memory *m = memory_create("mha_backward bits", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, n % 2 == 0, 3, 40, 50);
        l.options->params.num_threads = 1;
        OK(run_backward(&l, NULL, 0));
        const struct layer first = l;
        for (int threads = 1; threads <= 4; threads++) {
            l.d_x = place_rows_of(m, ATTN_F32, 3, 40, l.d_model);
            l.d_weights.w_k = place_sums(m, l.oracle.k.out, l.d_memory);
            l.d_weights.w_o = place_sums(m, l.d_out, l.oracle.o.in);
            l.options->params.num_threads = threads;
            char byte;
            memory_seal(m);
            REFUSES(m, run_backward(&l, &byte, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 1");
            const size_t least = said_least(), told = workspace_of(&l);
            assert_true(least <= told);
            for (int some = 0; some < 2; some++) {
                const size_t size = some ? told : least;
                struct guard guard = guard_create(size);
                OK(run_backward(&l, guard_place(&guard, size, 1), size));
                assert_true(guard_intact(&guard));
                guard_destroy(&guard);
                assert_true(equal_bits(&first.d_x, &l.d_x));
                assert_true(equal_bits(&first.d_weights.w_k, &l.d_weights.w_k));
                assert_true(equal_bits(&first.d_weights.w_o, &l.d_weights.w_o));
            }
        }
        const attn_tensor narrow = place_rows_of(m, ATTN_BF16, 3, 40, l.d_model),
                          narrow_memory = place_rows_of(m, ATTN_F16, 3, l.tk, l.d_memory);
        l.gradients.x = &narrow;
        l.gradients.memory = l.self ? NULL : &narrow_memory;
        l.gradients.weights = NULL;
        OK(run_backward(&l, NULL, 0));
        assert_rounded("d_x", &narrow, &first.d_x);
        if (!l.self)
            assert_rounded("d_memory", &narrow_memory, &first.d_memory_rows);
        memory_destroy(m);
    }
    nn_end_refusals();
}

/** The forward pass gives what the packed layer gives, and with what it keeps the backward pass gives the same bits. */
static void test_kept(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("mha_backward kept", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, n % 2 == 0, RNG_PICK(&m->rng, 0, 1, 3), RNG_PICK(&m->rng, 0, 1, 5, 40),
                     RNG_PICK(&m->rng, 0, 1, 50));
        const attn_params *params = &l.options->params;
        const attn_tensor *memory = l.self ? NULL : &l.memory;
        const attn_tensor out = place_rows_of(m, ATTN_F32, l.batch, l.tq, l.d_out),
                          again = place_rows_of(m, ATTN_F32, l.batch, l.tq, l.d_out),
                          packed = place_rows_of(m, ATTN_F32, l.batch, l.tq, l.d_out);
        const size_t size = attn_mha_kept_size(&l.config, l.x.dtype, l.batch, l.tq, l.tk);
        void *kept = place_workspace(m, size);
        l.options->params.num_threads = 1 + (int)(n % 3);
        OK(attn_mha_train(&l.config, &l.weights, &l.x, memory, params, &out, kept, size, NULL, 0));
        l.options->params.num_threads = 2;
        const size_t told = attn_mha_train_workspace_size(&l.config, l.batch, l.tq, l.tk, params, 0);
        OK(attn_mha_train(&l.config, &l.weights, &l.x, memory, params, &again, NULL, 0, place_workspace(m, told),
                          told));
        assert_true(equal_bits(&out, &again));
        attn_mha *mha;
        OK(attn_mha_create(&mha, &l.config, &l.weights));
        OK(attn_mha_forward(mha, &l.x, memory, &packed, params, NULL, 0));
        attn_mha_destroy(mha);
        const double *a = read_all(m, &out), *b = read_all(m, &packed);
        const double near = m->dtype == ATTN_F32 ? 1e-5 : m->dtype == ATTN_F16 ? 2e-3 : 1.5e-2;
        const int64_t elements = l.batch * l.tq * l.d_out;
        for (int64_t i = 0; i < elements; i++)
            assert_true(fabs(a[i] - b[i]) <= near * (fabs(b[i]) + 4 * root_mean_square(b, elements)));
        OK(run_backward(&l, NULL, 0));
        const struct layer first = l;
        l.d_x = place_rows_of(m, ATTN_F32, l.batch, l.tq, l.d_model);
        l.d_weights.w_k = place_sums(m, l.oracle.k.out, l.d_memory);
        l.d_weights.b_v = place_sums(m, 1, l.oracle.v.out);
        l.gradients.kept = kept;
        l.gradients.kept_size = size;
        const size_t less = workspace_of(&l);
        OK(run_backward(&l, place_workspace(m, less), less));
        assert_true(equal_bits(&first.d_x, &l.d_x));
        assert_true(equal_bits(&first.d_weights.w_k, &l.d_weights.w_k));
        assert_true(equal_bits(&first.d_weights.b_v, &l.d_weights.b_v));
        memory_destroy(m);
    }
}

/** Sequences behind each other, as each by itself: d_x has the same bits, and weights the sum. */
static void test_ragged(void **state)
{
    (void)state;
    enum { SEQUENCES = 3, TOKENS = 31 };
    static const int64_t offsets[SEQUENCES + 1] = {0, 9, 10, TOKENS};
    for (uint64_t n = 0; n < cases(12); n++) {
        struct memory *m = memory_create("mha_backward ragged", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, 1, 1, TOKENS, TOKENS);
        const attn_ragged ragged = {SEQUENCES, offsets, offsets};
        l.options->params = attn_params_default();
        l.options->params.causal = n % 2 ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
        l.options->params.ragged = &ragged;
        OK(run_backward(&l, NULL, 0));
        const attn_tensor whole = l.d_x, d_w = l.d_weights.w_v, x = l.x, d_out = l.out_gradient;
        l.d_weights.w_v = place_sums(m, l.oracle.v.out, l.d_memory);
        l.options->params.ragged = NULL;
        for (int s = 0; s < SEQUENCES; s++) {
            const int64_t length = offsets[s + 1] - offsets[s];
            const attn_tensor d_x = place_rows_of(m, ATTN_F32, 1, length, l.d_model),
                              expected = slice(&whole, 0, offsets[s], length);
            l.x = slice(&x, 0, offsets[s], length);
            l.out_gradient = slice(&d_out, 0, offsets[s], length);
            l.gradients.x = &d_x;
            l.gradients.accumulate = s > 0;
            OK(run_backward(&l, NULL, 0));
            assert_true(equal_bits(&d_x, &expected));
        }
        const double *together = read_all(m, &d_w), *added = read_all(m, &l.d_weights.w_v);
        const double scale = root_mean_square(together, l.oracle.v.out * l.d_memory);
        for (int64_t i = 0; i < l.oracle.v.out * l.d_memory; i++)
            assert_true(fabs(together[i] - added[i]) <= 1e-5 * (fabs(together[i]) + scale));
        memory_destroy(m);
    }
}

/** Sums that are added, and the gradient of the slopes: that of attention between the projections. */
static void test_options(void **state)
{
    (void)state;
    struct memory *m = memory_create("mha_backward options", 0);
    struct layer l;
    float slopes[8], d_slopes[8];
    layer_create(&l, m, 1, 2, 9, 9);
    const int64_t heads = l.oracle.heads;
    for (int h = 0; h < heads; h++)
        slopes[h] = 0.1f * (float)(h + 1);
    l.options->params = attn_params_default();
    l.options->params.alibi_slopes = slopes;
    attn_gradients options = attn_gradients_default();
    options.alibi_slopes = d_slopes;
    l.gradients.options = &options;
    OK(run_backward(&l, NULL, 0));
    double *x = read_all(m, &l.x), *d_out = read_all(m, &l.out_gradient), *out = zeros(m, 2 * 9 * l.d_out);
    for (int h = 0; h < heads; h++) {
        const float was = slopes[h], step = 0x1p-10f;
        slopes[h] = was + step;
        const double above = loss_of(&l, x, NULL, d_out, out);
        slopes[h] = was - step;
        const double below = loss_of(&l, x, NULL, d_out, out);
        slopes[h] = was;
        const double slope = (above - below) / (2 * (double)step);
        assert_true(fabs((double)d_slopes[h] - slope) < 1e-3 * (1 + fabs(slope)));
    }
    const double *once = read_all(m, &l.d_weights.w_v);
    l.gradients.accumulate = 1;
    OK(run_backward(&l, NULL, 0));
    const double *twice = read_all(m, &l.d_weights.w_v);
    for (int64_t i = 0; i < l.oracle.v.out * l.d_memory; i++)
        assert_true(twice[i] == 2 * once[i]);
    memory_destroy(m);
}

/** The gradients of tables by distance, which are handed on as they are. */
static void test_tables(void **state)
{
    (void)state;
    enum { SPAN = 3 };
    struct memory *m = memory_create("mha_backward tables", 0);
    struct layer l;
    layer_create(&l, m, 1, 2, 9, 9);
    const int64_t heads = l.oracle.heads, dk = l.oracle.dk;
    const attn_tensor tables[] = {place_dense(m, 1, heads, 2 * SPAN, dk), place_dense(m, 1, 1, 2 * SPAN, dk)};
    const attn_tensor gradients[] = {place_dense(m, 1, heads, 2 * SPAN, dk), place_dense(m, 1, 1, 2 * SPAN, dk)};
    for (int which = 0; which < 2; which++)
        fill(m, &tables[which], 1);
    const attn_disentangled terms = {.span = SPAN, .rel_k = &tables[0], .rel_q = &tables[1]};
    l.options->params = attn_params_default();
    l.options->params.disentangled = &terms;
    attn_gradients options = attn_gradients_default();
    options.rel_k = &gradients[0];
    options.rel_q = &gradients[1];
    l.gradients.options = &options;
    OK(run_backward(&l, NULL, 0));
    double *x = read_all(m, &l.x), *d_out = read_all(m, &l.out_gradient), *out = zeros(m, 2 * 9 * l.d_out);
    for (int which = 0; which < 2; which++) {
        float *const table = tables[which].data;
        const float *const gradient = gradients[which].data;
        const int64_t n = (which ? 1 : heads) * 2 * SPAN * dk;
        for (int64_t at = 0; at < n; at += 1 + n / 20) {
            const float was = table[at], step = 0x1p-10f;
            table[at] = was + step;
            const double above = loss_of(&l, x, NULL, d_out, out);
            table[at] = was - step;
            const double below = loss_of(&l, x, NULL, d_out, out);
            table[at] = was;
            const double slope = (above - below) / (2 * (double)step);
            assert_true(fabs((double)gradient[at] - slope) < 1e-3 * (1 + fabs(slope)));
        }
    }
    memory_destroy(m);
}

/* ------------------------------------------------------------------ refusals -- */

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("mha_backward wrong_arguments", 0);
    struct layer l;
    layer_create(&l, m, 0, 2, 5, 7);
    l.options->params = attn_params_default();
    const attn_linear_format format = attn_linear_format_default();
    const attn_mha_config *c = &l.config;
    const attn_mha_weights *w = &l.weights;
    const attn_mha_gradients *g = &l.gradients;
    const attn_tensor *x = &l.x, *memory = &l.memory, *d = &l.out_gradient;
    const attn_params params = attn_params_default();
    const attn_tensor lse = place_dense(m, 2, l.oracle.heads, 5, 1);
    attn_gradients options = attn_gradients_default();
    float slopes[8];
    memory_seal(m);
#define BACKWARD(c, w, x, memory, params, d, g) attn_mha_backward(c, w, x, memory, params, d, g, NULL, 0)
    REFUSES(m, BACKWARD(NULL, w, x, memory, NULL, d, g), ATTN_INVALID_ARGUMENT, "config is NULL");
    REFUSES(m, BACKWARD(CHANGED(attn_mha_config, *c, format = &format), w, x, memory, NULL, d, g),
            ATTN_INVALID_ARGUMENT,
            "config.format is set; expected NULL: gradients are those of weights as they are given");
    REFUSES(m, BACKWARD(c, NULL, x, memory, NULL, d, g), ATTN_INVALID_ARGUMENT, "weights is NULL");
    REFUSES(m, BACKWARD(c, CHANGED(attn_mha_weights, *w, w_k.shape[2]++), x, memory, NULL, d, g), ATTN_SHAPE_MISMATCH,
            "weights.w_k.shape[2]");
    REFUSES(m, BACKWARD(c, w, NULL, memory, NULL, d, g), ATTN_INVALID_ARGUMENT, "x is NULL");
    REFUSES(m, BACKWARD(c, w, x, CHANGED(attn_tensor, *memory, shape[0] = 1), NULL, d, g), ATTN_SHAPE_MISMATCH,
            "memory.shape[0] is 1");
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, NULL, g), ATTN_INVALID_ARGUMENT, "d_out is NULL");
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, CHANGED(attn_tensor, *d, shape[2] = 4), g), ATTN_SHAPE_MISMATCH,
            "d_out.shape[2] is 4");
    REFUSES(m, BACKWARD(c, w, x, memory, CHANGED(attn_params, params, lse = &lse), d, g), ATTN_INVALID_ARGUMENT,
            "params has an output on request");
    REFUSES(m, BACKWARD(c, w, x, memory, CHANGED(attn_params, params, num_threads = -1), d, g), ATTN_INVALID_ARGUMENT,
            "num_threads is -1");
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, d, NULL), ATTN_INVALID_ARGUMENT, "gradients is NULL");
    const attn_mha_gradients none = attn_mha_gradients_default();
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, d, &none), ATTN_INVALID_ARGUMENT,
            "gradients has nothing to write; expected x, memory, weights or options");
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, d, CHANGED(attn_mha_gradients, *g, x = x)), ATTN_INVALID_ARGUMENT,
            "gradients.x|overlaps x");
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, d, CHANGED(attn_mha_gradients, *g, memory = memory)),
            ATTN_INVALID_ARGUMENT, "gradients.memory|overlaps memory");
    attn_mha_weights wrong = l.d_weights;
    const attn_mha_gradients of_weights = *CHANGED(attn_mha_gradients, *g, weights = &wrong);
    wrong.w_q.dtype = ATTN_BF16;
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, d, &of_weights), ATTN_INVALID_ARGUMENT,
            "gradients.weights.w_q.dtype is bf16; expected f32");
    wrong.w_q = l.weights.w_q;
    wrong.w_q.dtype = ATTN_F32;
    options.q = x;
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, d, CHANGED(attn_mha_gradients, *g, options = &options)),
            ATTN_INVALID_ARGUMENT, "gradients.options has out, lse, q, k or v");
    options.q = NULL;
    options.alibi_slopes = slopes;
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, d, CHANGED(attn_mha_gradients, *g, options = &options)),
            ATTN_INVALID_ARGUMENT, "alibi_slopes");
    if (l.d_model == l.d_memory)
        REFUSES(m, BACKWARD(c, w, x, NULL, NULL, d, g), ATTN_INVALID_ARGUMENT,
                "gradients.memory is set without memory; expected NULL");
    else
        REFUSES(m, BACKWARD(c, w, x, NULL, NULL, d, g), ATTN_INVALID_ARGUMENT,
                "memory is NULL; expected a tensor of |channels, as keys are not made from x");
    char kept[8];
    attn_mha_gradients little = *g;
    little.kept = kept, little.kept_size = 8;
    REFUSES(m, BACKWARD(c, w, x, memory, NULL, d, &little), ATTN_WORKSPACE_TOO_SMALL,
            "gradients.kept_size is 8; expected");
    const attn_tensor out = place_dense(m, 2, 1, 5, l.d_out);
#define TRAIN(c, w, x, memory, params, out, kept, size)                                                                \
    attn_mha_train(c, w, x, memory, params, out, kept, size, NULL, 0)
    REFUSES(m, TRAIN(NULL, w, x, memory, NULL, &out, NULL, 0), ATTN_INVALID_ARGUMENT, "config is NULL");
    REFUSES(m, TRAIN(c, NULL, x, memory, NULL, &out, NULL, 0), ATTN_INVALID_ARGUMENT, "weights is NULL");
    REFUSES(m, TRAIN(c, w, NULL, memory, NULL, &out, NULL, 0), ATTN_INVALID_ARGUMENT, "x is NULL");
    REFUSES(m, TRAIN(c, w, x, memory, NULL, NULL, NULL, 0), ATTN_INVALID_ARGUMENT, "out is NULL");
    REFUSES(m, TRAIN(c, w, x, memory, NULL, CHANGED(attn_tensor, out, shape[2] = 4), NULL, 0), ATTN_SHAPE_MISMATCH,
            "out.shape[2] is 4");
    REFUSES(m, TRAIN(c, w, x, memory, NULL, CHANGED(attn_tensor, out, data = x->data), NULL, 0), ATTN_INVALID_ARGUMENT,
            "out|overlaps");
    REFUSES(m, TRAIN(c, w, x, memory, NULL, &out, kept, 8), ATTN_WORKSPACE_TOO_SMALL,
            "kept_size is 8; expected 2559 bytes or more");
    REFUSES(m, TRAIN(c, w, x, memory, CHANGED(attn_params, params, lse = &lse), &out, NULL, 0), ATTN_INVALID_ARGUMENT,
            "params has an output on request");
    assert_true(attn_mha_kept_size(NULL, ATTN_F32, 1, 1, 1) == SIZE_MAX);
    assert_true(attn_mha_kept_size(c, ATTN_I8, 1, 1, 1) == SIZE_MAX);
    assert_true(attn_mha_kept_size(c, ATTN_F32, INT64_MAX, 2, 2) == SIZE_MAX);
    assert_true(attn_mha_train_workspace_size(c, 1, -1, 1, NULL, 0) == SIZE_MAX);
    assert_true(attn_mha_train_workspace_size(c, INT64_MAX, 2, 2, NULL, 1) == SIZE_MAX);
    assert_true(attn_mha_backward_workspace_size(NULL, 1, 1, 1, NULL, g) == SIZE_MAX);
    assert_true(attn_mha_backward_workspace_size(c, -1, 1, 1, NULL, g) == SIZE_MAX);
    assert_true(attn_mha_backward_workspace_size(c, 1, 1, 1, NULL, NULL) == SIZE_MAX);
    assert_true(attn_mha_backward_workspace_size(c, INT64_MAX, 2, 2, NULL, g) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_differences),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_ragged),
        cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
