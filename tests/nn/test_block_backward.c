/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transformer layers in training: the forward pass against the oracle, gradients
 * against its differences in double, with dropout, under random options; the
 * same bits whether the forward pass is kept or runs again, on any threads and
 * in any workspace; sequences behind each other; sums; wrong arguments.
 */
#include "judge.h"
#include "random_block.h"

/** Where weights, their gradients and the oracle's are. */
struct layer {
    attn_block_config config;
    attn_mha_config attention;
    struct random_block block;
    attn_dropout dropout, hidden_dropout;
    struct options *self_options, *cross_options;
    attn_block_pass pass;
    struct oracle_block_inputs inputs;
    int64_t batch, tokens, tm, d_model, d_memory;
    attn_tensor x, memory, d_out, d_x, d_memory_rows;
    attn_block_gradients gradients;
};

static void random_config(struct layer *l, struct memory *m, int cross)
{
    struct rng *rng = &m->rng;
    l->attention = attn_mha_config_default();
    attn_mha_config *a = &l->attention;
    a->kv_heads = rng_range(rng, 1, 2);
    a->heads = a->kv_heads * rng_range(rng, 1, 2);
    a->head_dim = RNG_PICK(rng, 3, 4, 8, 16);
    a->value_dim = rng_percent(rng, 30) ? RNG_PICK(rng, 2, 5, 16) : a->head_dim;
    a->d_model = l->d_model = RNG_PICK(rng, 8, 12, 16, 24, 33);
    l->config = attn_block_config_default();
    attn_block_config *c = &l->config;
    c->attention = a;
    c->d_ff = RNG_PICK(rng, 8, 17, 31, 48);
    c->activation = rng_percent(rng, 50) ? ATTN_ACTIVATION_GELU : ATTN_ACTIVATION_SILU;
    c->gated = rng_percent(rng, 40);
    c->norm = rng_percent(rng, 30) ? ATTN_NORM_RMS : ATTN_NORM_LAYER;
    c->eps = 1e-3f;
    c->norm_first = rng_percent(rng, 50);
    c->cross = cross;
    l->d_memory = l->d_model;
    if (cross && rng_percent(rng, 50))
        c->d_memory = l->d_memory = RNG_PICK(rng, 8, 11, 32);
}

static void random_pass(struct layer *l, struct memory *m)
{
    const attn_mha_config *a = &l->attention;
    const struct options_for of_self = {l->batch, a->heads, a->kv_heads, l->tokens, l->tokens, a->head_dim, 0};
    const struct options_for of_cross = {l->batch, a->heads, a->kv_heads, l->tokens, l->tm, a->head_dim, 0};
    l->pass = attn_block_pass_default();
    l->self_options = random_options(m, &of_self);
    l->cross_options = random_options(m, &of_cross);
    struct options *const both[] = {l->self_options, l->cross_options};
    for (int i = 0; i < 2; i++) {
        both[i]->params.weights = NULL;
        both[i]->params.qk = ATTN_QK_DEFAULT;
    }
    l->inputs = (struct oracle_block_inputs){.self = &l->self_options->params, .tm = l->tm};
    l->pass.self = l->inputs.self;
    if (l->config.cross) {
        l->pass.cross = l->inputs.cross = &l->cross_options->params;
        l->pass.memory = &l->memory;
        l->inputs.memory = read_all(m, &l->memory);
    }
    if (rng_percent(&m->rng, 50)) {
        l->dropout = (attn_dropout){0.25f, (uint64_t)rng_range(&m->rng, 0, INT64_MAX - 1),
                                    (uint64_t)rng_range(&m->rng, 0, INT64_MAX - 1)};
        l->pass.dropout = l->inputs.dropout = &l->dropout;
    }
    if (rng_percent(&m->rng, 30)) {
        l->hidden_dropout = (attn_dropout){0.4f, (uint64_t)rng_range(&m->rng, 0, INT64_MAX - 1), 5};
        l->pass.hidden_dropout = l->inputs.hidden_dropout = &l->hidden_dropout;
    }
}

static void layer_create(struct layer *l, struct memory *m, int cross, int64_t batch, int64_t tokens, int64_t tm)
{
    memset(l, 0, sizeof *l);
    l->batch = batch, l->tokens = tokens, l->tm = cross ? tm : 0;
    random_config(l, m, cross);
    random_block(&l->block, m, &l->config, l->d_memory);
    l->x = random_rows(m, batch, tokens, l->d_model);
    l->memory = random_rows(m, batch, l->tm, l->d_memory);
    l->d_out = place_rows_of(m, random_dtype(m), batch, tokens, l->d_model);
    fill(m, &l->d_out, 1);
    l->d_x = place_rows_of(m, ATTN_F32, batch, tokens, l->d_model);
    l->d_memory_rows = place_rows_of(m, ATTN_F32, batch, l->tm, l->d_memory);
    random_pass(l, m);
    l->gradients = attn_block_gradients_default();
    l->gradients.x = &l->d_x;
    l->gradients.memory = cross ? &l->d_memory_rows : NULL;
    l->gradients.weights = &l->block.gradients;
}

static size_t kept_of(const struct layer *l)
{
    return attn_block_kept_size(&l->config, l->x.dtype, l->batch, l->tokens, l->tm);
}

static size_t train_size(const struct layer *l)
{
    return attn_block_train_workspace_size(&l->config, l->batch, l->tokens, l->tm, &l->pass);
}

static size_t backward_size(const struct layer *l)
{
    return attn_block_backward_workspace_size(&l->config, l->batch, l->tokens, l->tm, &l->pass, &l->gradients);
}

static attn_status train(const struct layer *l, const attn_tensor *out, void *workspace, size_t size)
{
    return attn_block_train(&l->config, &l->block.weights, &l->x, &l->pass, out, workspace, size);
}

static attn_status backward(const struct layer *l, void *workspace, size_t size)
{
    return attn_block_backward(&l->config, &l->block.weights, &l->x, &l->pass, &l->d_out, &l->gradients, workspace,
                               size);
}

/** A pass in workspaces and memory of the caller's, or in none. */
static void run_both(struct layer *l, struct memory *m, int in_workspace, int keeps)
{
    const attn_tensor out = place_rows_of(m, l->x.dtype, l->batch, l->tokens, l->d_model);
    if (keeps) {
        l->pass.kept_size = kept_of(l);
        l->pass.kept = place_workspace(m, l->pass.kept_size);
    }
    const size_t sizes[] = {train_size(l), backward_size(l)};
    void *const forward = in_workspace ? place_workspace(m, sizes[0]) : NULL;
    void *const back = in_workspace ? place_workspace(m, sizes[1]) : NULL;
    if (keeps)
        OK(train(l, &out, forward, sizes[0]));
    OK(backward(l, back, sizes[1]));
}

/* ------------------------------------------------------------------- values -- */

static void test_forward(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(100); n++) {
        struct memory *m = memory_create("block_backward forward", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, n % 2, RNG_PICK(&m->rng, 0, 1, 2, 3), RNG_PICK(&m->rng, 0, 1, 5, 17, 33),
                     RNG_PICK(&m->rng, 0, 1, 7, 20));
        const struct trio y = trio(m, l.batch * l.tokens * l.d_model);
        const double *x = read_all(m, &l.x);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->block(&l.block.oracle, l.batch, l.tokens, x, &l.inputs, y.of[k], NULL, NULL);
        const attn_tensor out = place_rows_of(m, l.x.dtype, l.batch, l.tokens, l.d_model), again = out;
        attn_tensor second = place_rows_of(m, l.x.dtype, l.batch, l.tokens, l.d_model);
        l.pass.num_threads = (int)(n % 4);
        memory_seal(m);
        OK(train(&l, &again, NULL, 0));
        judge(NN_BLOCK, "out", &out, y.of, NULL);
        const size_t size = train_size(&l);
        l.pass.kept_size = kept_of(&l);
        l.pass.kept = place_workspace(m, l.pass.kept_size);
        l.pass.num_threads = 1;
        OK(train(&l, &second, place_workspace(m, size), size));
        assert_true(equal_bits(&out, &second));

        /* An output of another type than the rest. */
        const attn_tensor wide = place_rows_of(m, ATTN_F32, l.batch, l.tokens, l.d_model),
                          narrow = place_rows_of(m, ATTN_BF16, l.batch, l.tokens, l.d_model);
        OK(train(&l, &wide, NULL, 0));
        assert_rounded("out of the type of x", &out, &wide);
        OK(train(&l, &narrow, NULL, 0));
        assert_rounded("bf16 out", &narrow, &wide);
        memory_destroy(m);
    }
}

/** What a loss is computed from. */
struct variation {
    const struct layer *layer;
    const double *x, *d_out;
    double *out;
};

/** A linear function of out: d_out are its factors. */
static double loss_of(void *context)
{
    const struct variation *v = context;
    const struct layer *l = v->layer;
    double sum = 0;
    oracle_take(0)->block(&l->block.oracle, l->batch, l->tokens, v->x, &l->inputs, v->out, NULL, NULL);
    for (int64_t i = 0; i < l->batch * l->tokens * l->d_model; i++)
        sum += v->out[i] * v->d_out[i];
    return sum;
}

static void test_against_differences(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(100); n++) {
        struct memory *m = memory_create("block_backward against_differences", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, n % 2, RNG_PICK(&m->rng, 1, 2, 3, 0), RNG_PICK(&m->rng, 0, 1, 2, 5, 17),
                     RNG_PICK(&m->rng, 0, 1, 3, 16));
        double *x = read_all(m, &l.x), *d_out = read_all(m, &l.d_out);
        l.pass.num_threads = (int)(n % 4);
        run_both(&l, m, n % 3 != 0, n % 4 < 2);
        struct varied all[2 + BLOCK_VARIED] = {{"x", x, &l.d_x},
                                               {"memory", (double *)(uintptr_t)l.inputs.memory, &l.d_memory_rows}};
        const size_t count = 2 + random_block_varied(&l.block, all + 2);
        const double usual = random_block_usual(m, &l.block);
        const double rounding = m->dtype == ATTN_F32 ? 2e-5 : m->dtype == ATTN_F16 ? 1e-2 : 8e-2;
        struct variation v = {&l, x, d_out, zeros(m, l.batch * l.tokens * l.d_model)};
        assert_differences(m, all, count, loss_of, &v, (struct closeness){rounding, usual});
        memory_destroy(m);
    }
}

/** Gradients of options: the slopes of both attentions. */
static void test_options(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 4; n++) {
        struct memory *m = memory_create("block_backward options", n);
        struct layer l;
        float slopes[2][4], got[2][4];
        attn_gradients options[2] = {attn_gradients_default(), attn_gradients_default()};
        layer_create(&l, m, 1, 2, 9, 7);
        struct options *const both[] = {l.self_options, l.cross_options};
        for (int i = 0; i < 2; i++) {
            for (int h = 0; h < 4; h++)
                slopes[i][h] = 0.1f * (float)(h + i + 1);
            both[i]->params = attn_params_default();
            both[i]->params.alibi_slopes = slopes[i];
            options[i].alibi_slopes = got[i];
        }
        l.gradients.self_options = &options[0];
        l.gradients.cross_options = &options[1];
        OK(backward(&l, NULL, 0));
        struct variation v = {&l, read_all(m, &l.x), read_all(m, &l.d_out), zeros(m, 2 * 9 * l.d_model)};
        for (int i = 0; i < 2; i++)
            for (int64_t h = 0; h < l.attention.heads; h++) {
                const float was = slopes[i][h], step = 0x1p-10f;
                slopes[i][h] = was + step;
                const double above = loss_of(&v);
                slopes[i][h] = was - step;
                const double below = loss_of(&v);
                slopes[i][h] = was;
                const double slope = (above - below) / (2 * (double)step);
                assert_true(fabs((double)got[i][h] - slope) < 1e-3 * (1 + fabs(slope)));
            }
        memory_destroy(m);
    }
}

/* --------------------------------------------------------------------- bits -- */

/** Gradients of a pass under which others are compared. */
static void assert_equal_gradients(const struct layer *a, const struct layer *b)
{
    assert_true(equal_bits(&a->d_x, &b->d_x));
    if (a->config.cross)
        assert_true(equal_bits(&a->d_memory_rows, &b->d_memory_rows));
    assert_true(equal_bits(&a->block.d_self.w_k, &b->block.d_self.w_k));
    assert_true(equal_bits(&a->block.gradients.w_up, &b->block.gradients.w_up));
    assert_true(equal_bits(&a->block.gradients.w_down, &b->block.gradients.w_down));
    assert_true(equal_bits(&a->block.gradients.self_gamma, &b->block.gradients.self_gamma));
}

/** Other memory for the gradients that are compared. */
static void place_again(struct layer *l, struct memory *m)
{
    l->d_x = place_rows_of(m, ATTN_F32, l->batch, l->tokens, l->d_model);
    l->d_memory_rows = place_rows_of(m, ATTN_F32, l->batch, l->tm, l->d_memory);
    l->block.d_self.w_k = place_sums(m, l->block.oracle.self.k.out, l->d_model);
    l->block.gradients.w_up = place_sums(m, l->config.d_ff, l->d_model);
    l->block.gradients.w_down = place_sums(m, l->d_model, l->config.d_ff);
    l->block.gradients.self_gamma = place_sums(m, 1, l->d_model);
}

static void test_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(12); n++) {
        struct memory *m = memory_create("block_backward bits", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, n % 2 == 0, 3, 40, 50);
        l.pass.num_threads = 1;
        OK(backward(&l, NULL, 0));
        const struct layer first = l;
        for (int threads = 1; threads <= 4; threads++)
            for (int keeps = 0; keeps < 2; keeps++) {
                place_again(&l, m);
                l.pass.num_threads = threads;
                l.pass.kept = NULL;
                run_both(&l, m, threads % 2, keeps);
                assert_equal_gradients(&first, &l);
            }
        memory_destroy(m);
    }
}

/** The least workspace that a call names is enough; gradients in narrow types are rounded once; x's in place of d_out.
 */
static void test_workspaces(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(8); n++) {
        struct memory *m = memory_create("block_backward workspaces", n);
        run_in(m, random_activations(m));
        struct layer l;
        char byte;
        layer_create(&l, m, n % 2 == 0, 2, 33, 20);
        l.pass.num_threads = 3;
        OK(backward(&l, NULL, 0));
        const struct layer first = l;
        place_again(&l, m);
        memory_seal(m);
        REFUSES(m, backward(&l, &byte, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 1");
        const size_t least = said_least();
        assert_true(least <= backward_size(&l));
        struct guard guard = guard_create(least);
        OK(backward(&l, guard_place(&guard, least, 1), least));
        assert_true(guard_intact(&guard));
        guard_destroy(&guard);
        assert_equal_gradients(&first, &l);
        const attn_tensor narrow = place_rows_of(m, ATTN_BF16, 2, 33, l.d_model),
                          narrow_memory = place_rows_of(m, ATTN_F16, 2, l.tm, l.d_memory);
        l.gradients.x = &narrow;
        l.gradients.memory = l.config.cross ? &narrow_memory : NULL;
        l.gradients.weights = NULL;
        OK(backward(&l, NULL, 0));
        assert_rounded("d_x", &narrow, &first.d_x);
        if (l.config.cross)
            assert_rounded("d_memory", &narrow_memory, &first.d_memory_rows);
        const attn_tensor in_place = place_rows_of(m, l.d_out.dtype, 2, 33, l.d_model);
        for (int64_t b = 0; b < 2; b++)
            for (int64_t t = 0; t < 33; t++)
                for (int64_t c = 0; c < l.d_model; c++)
                    tensor_set(&in_place, b, 0, t, c, tensor_get(&l.d_out, b, 0, t, c));
        l.d_out = in_place;
        l.gradients.x = &in_place;
        l.gradients.memory = NULL;
        OK(backward(&l, NULL, 0));
        if (in_place.dtype == ATTN_F32)
            assert_true(equal_bits(&in_place, &first.d_x));
        else
            assert_rounded("d_x in place", &in_place, &first.d_x);
        memory_destroy(m);
    }
    nn_end_refusals();
}

/** Sequences behind each other, as each by itself: d_x has the same bits. */
static void test_ragged(void **state)
{
    (void)state;
    enum { SEQUENCES = 3, TOKENS = 31 };
    static const int64_t offsets[SEQUENCES + 1] = {0, 9, 10, TOKENS};
    for (uint64_t n = 0; n < cases(12); n++) {
        struct memory *m = memory_create("block_backward ragged", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, 0, 1, TOKENS, 0);
        const attn_ragged ragged = {SEQUENCES, offsets, offsets};
        l.pass.dropout = l.pass.hidden_dropout = NULL; /* whose counters are those of the batch */
        l.self_options->params = attn_params_default();
        l.self_options->params.causal = n % 2 ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
        l.self_options->params.ragged = &ragged;
        OK(backward(&l, NULL, 0));
        const attn_tensor whole = l.d_x, x = l.x, d_out = l.d_out;
        l.self_options->params.ragged = NULL;
        for (int s = 0; s < SEQUENCES; s++) {
            const int64_t length = offsets[s + 1] - offsets[s];
            const attn_tensor d_x = place_rows_of(m, ATTN_F32, 1, length, l.d_model),
                              expected = slice(&whole, 0, offsets[s], length);
            l.x = slice(&x, 0, offsets[s], length);
            l.d_out = slice(&d_out, 0, offsets[s], length);
            l.gradients.x = &d_x;
            OK(backward(&l, NULL, 0));
            assert_true(equal_bits(&d_x, &expected));
        }
        memory_destroy(m);
    }
}

/** Sums that are added: of all weights, and of a memory that several layers read. */
static void test_accumulate(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 4; n++) {
        struct memory *m = memory_create("block_backward accumulate", n);
        struct layer l;
        layer_create(&l, m, 1, 2, 9, 7);
        OK(backward(&l, NULL, 0));
        const struct layer first = l;
        const attn_tensor *const sums[] = {&l.block.d_self.w_v,
                                           &l.block.d_cross.w_k,
                                           &l.block.gradients.w_up,
                                           &l.block.gradients.b_down,
                                           &l.block.gradients.network_gamma,
                                           &l.d_memory_rows};
        double *once[6];
        for (int i = 0; i < 6; i++)
            once[i] = read_all(m, sums[i]);
        l.gradients.accumulate = l.gradients.accumulate_memory = 1;
        OK(backward(&l, NULL, 0));
        for (int i = 0; i < 6; i++) {
            const double *twice = read_all(m, sums[i]);
            const int64_t count = sums[i]->shape[0] * sums[i]->shape[2] * sums[i]->shape[3];
            const double scale = root_mean_square(once[i], count);
            for (int64_t j = 0; j < count; j++)
                assert_true(fabs(twice[j] - 2 * once[i][j]) <= 1e-6 * scale);
        }
        assert_true(equal_bits(&first.d_x, &l.d_x));
        memory_destroy(m);
    }
}

/* ------------------------------------------------------------------ refusals -- */

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("block_backward wrong_arguments", 0);
    struct layer l;
    layer_create(&l, m, 1, 2, 5, 7);
    l.config.gated = 0;
    l.config.norm = ATTN_NORM_LAYER;
    l.self_options->params = l.cross_options->params = attn_params_default();
    l.block.weights.w_gate.data = l.block.weights.b_gate.data = l.block.gradients.w_gate.data =
        l.block.gradients.b_gate.data = NULL;
    const attn_linear_format format = attn_linear_format_default();
    const attn_block_config *c = &l.config;
    const attn_block_weights *w = &l.block.weights;
    const attn_block_pass *pass = &l.pass;
    const attn_block_gradients *g = &l.gradients;
    const attn_tensor *x = &l.x, *d = &l.d_out;
    const attn_tensor out = place_rows_of(m, ATTN_F32, 2, 5, l.d_model);
    const attn_params params = attn_params_default();
    const attn_tensor lse = place_dense(m, 2, l.attention.heads, 5, 1);
    const attn_dropout wrong_dropout = {1.0f, 0, 0};
    const attn_tensor narrow = place_rows_of(m, ATTN_BF16, 2, 7, l.d_memory);
    char kept[8];
    attn_block_pass small = *pass;
    small.kept = kept;
    small.kept_size = sizeof kept;
    memory_seal(m);
#define TRAIN(c, w, x, p, out) attn_block_train(c, w, x, p, out, NULL, 0)
#define PASS(...)              CHANGED(attn_block_pass, *pass, __VA_ARGS__)
    REFUSES(m, TRAIN(NULL, w, x, pass, &out), ATTN_INVALID_ARGUMENT, "config is NULL");
    REFUSES(m, TRAIN(CHANGED(attn_block_config, *c, format = &format), w, x, pass, &out), ATTN_INVALID_ARGUMENT,
            "config.format is set; expected NULL: training reads weights as they are given");
    REFUSES(m, TRAIN(CHANGED(attn_block_config, *c, qk_norm = 1), w, x, pass, &out), ATTN_UNSUPPORTED,
            "config.qk_norm is set; expected 0 in training");
    REFUSES(m, TRAIN(CHANGED(attn_block_config, *c, norm_plus_one = 1), w, x, pass, &out), ATTN_UNSUPPORTED,
            "config.norm_plus_one is set");
    REFUSES(m, TRAIN(c, NULL, x, pass, &out), ATTN_INVALID_ARGUMENT, "weights is NULL; expected an attn_block_weights");
    REFUSES(m, TRAIN(c, CHANGED(attn_block_weights, *w, self = NULL), x, pass, &out), ATTN_INVALID_ARGUMENT,
            "weights.self is NULL; expected an attn_mha_weights");
    REFUSES(m, TRAIN(c, CHANGED(attn_block_weights, *w, w_down.shape[3]++), x, pass, &out), ATTN_SHAPE_MISMATCH,
            "weights.w_down.shape[3]");
    REFUSES(m, TRAIN(c, CHANGED(attn_block_weights, *w, w_gate = w->w_up), x, pass, &out), ATTN_INVALID_ARGUMENT,
            "weights.w_gate has data; expected NULL, as this layer has none");
    const attn_mha_weights wrong_cross = *CHANGED(attn_mha_weights, l.block.cross, w_k.shape[2]++);
    REFUSES(m, TRAIN(c, CHANGED(attn_block_weights, *w, cross = &wrong_cross), x, pass, &out), ATTN_SHAPE_MISMATCH,
            "weights.cross->w_k.shape[2]");
    REFUSES(m, TRAIN(c, w, NULL, pass, &out), ATTN_INVALID_ARGUMENT, "x is NULL");
    REFUSES(m, TRAIN(c, w, x, NULL, &out), ATTN_INVALID_ARGUMENT,
            "pass.memory is NULL; expected a tensor, as this layer has cross-attention");
    REFUSES(m, TRAIN(c, w, x, PASS(dropout = &wrong_dropout), &out), ATTN_INVALID_ARGUMENT,
            "pass.dropout->p is 1; expected 0 or more and less than 1");
    REFUSES(m, TRAIN(c, w, x, PASS(hidden_dropout = &wrong_dropout), &out), ATTN_INVALID_ARGUMENT,
            "pass.hidden_dropout->p is 1");
    REFUSES(m, TRAIN(c, w, x, PASS(num_threads = -1), &out), ATTN_INVALID_ARGUMENT, "num_threads is -1");
    REFUSES(m, TRAIN(c, w, x, &small, &out), ATTN_WORKSPACE_TOO_SMALL, "pass.kept_size is 8");
    const attn_params with_lse = *CHANGED(attn_params, params, lse = &lse);
    REFUSES(m, TRAIN(c, w, x, PASS(self = &with_lse), &out), ATTN_INVALID_ARGUMENT, "params has an output on request");
    const attn_params wrong_causal = *CHANGED(attn_params, params, causal = (attn_causal)9);
    REFUSES(m, TRAIN(c, w, x, PASS(cross = &wrong_causal), &out), ATTN_INVALID_ARGUMENT, "params.causal is 9");
    REFUSES(m, TRAIN(c, w, x, pass, x), ATTN_INVALID_ARGUMENT, "out|overlaps x");
    REFUSES(m, TRAIN(c, w, x, pass, NULL), ATTN_INVALID_ARGUMENT, "out is NULL");
#define BACKWARD(c, w, x, p, d, g) attn_block_backward(c, w, x, p, d, g, NULL, 0)
    REFUSES(m, BACKWARD(c, w, x, PASS(cross = &wrong_causal), d, g), ATTN_INVALID_ARGUMENT, "params.causal is 9");
    REFUSES(m, BACKWARD(c, w, x, pass, NULL, g), ATTN_INVALID_ARGUMENT, "d_out is NULL");
    REFUSES(m, BACKWARD(c, w, x, pass, CHANGED(attn_tensor, *d, shape[2] = 4), g), ATTN_SHAPE_MISMATCH,
            "d_out.shape[2] is 4");
    REFUSES(m, BACKWARD(c, w, x, pass, d, NULL), ATTN_INVALID_ARGUMENT, "gradients is NULL");
    const attn_block_gradients none = attn_block_gradients_default();
    REFUSES(m, BACKWARD(c, w, x, pass, d, &none), ATTN_INVALID_ARGUMENT,
            "gradients has nothing to write; expected x, memory, weights, self_options or cross_options");
    REFUSES(m, BACKWARD(c, w, x, pass, d, CHANGED(attn_block_gradients, *g, x = x)), ATTN_INVALID_ARGUMENT,
            "gradients.x|overlaps x");
    attn_block_gradients narrow_sums = *CHANGED(attn_block_gradients, *g, memory = &narrow);
    narrow_sums.accumulate_memory = 1;
    REFUSES(m, BACKWARD(c, w, x, pass, d, &narrow_sums), ATTN_UNSUPPORTED,
            "gradients.memory.dtype is bf16; expected f32");
    attn_block_weights wrong = l.block.gradients;
    const attn_block_gradients of_weights = *CHANGED(attn_block_gradients, *g, weights = &wrong);
    wrong.w_up.shape[2]++;
    REFUSES(m, BACKWARD(c, w, x, pass, d, &of_weights), ATTN_SHAPE_MISMATCH, "gradients.weights->w_up.shape");
    attn_mha_weights wrong_self = l.block.d_self;
    wrong = l.block.gradients;
    wrong.self = &wrong_self;
    wrong_self.w_q.dtype = ATTN_BF16;
    REFUSES(m, BACKWARD(c, w, x, pass, d, &of_weights), ATTN_INVALID_ARGUMENT,
            "gradients.weights->self->w_q.dtype is bf16; expected f32");
    attn_block_config plain = *c;
    plain.cross = 0;
    plain.d_memory = 0;
    REFUSES(m, BACKWARD(&plain, w, x, pass, d, g), ATTN_INVALID_ARGUMENT,
            "pass.cross is set; expected NULL, as this layer has no cross-attention");
    attn_block_pass alone = *pass;
    alone.memory = NULL, alone.cross = NULL;
    REFUSES(m, TRAIN(&plain, w, x, &alone, &out), ATTN_INVALID_ARGUMENT,
            "weights.cross is set; expected NULL, as this layer has no cross-attention");
    attn_block_weights one_attention = *w;
    one_attention.cross = NULL;
    one_attention.cross_gamma.data = one_attention.cross_beta.data = NULL;
    REFUSES(m, BACKWARD(&plain, &one_attention, x, &alone, d, g), ATTN_INVALID_ARGUMENT,
            "gradients.memory is set; expected NULL, as this layer has no cross-attention");
    attn_tensor endless = *x;
    endless.shape[2] = INT64_C(1) << 55, endless.stride[2] = 0;
    REFUSES(m, TRAIN(&plain, &one_attention, &endless, &alone, &out), ATTN_INVALID_ARGUMENT,
            "x has a shape for which more bytes are kept than can be counted");
    assert_true(attn_block_kept_size(NULL, ATTN_F32, 1, 1, 0) == SIZE_MAX);
    assert_true(attn_block_kept_size(c, ATTN_I8, 1, 1, 0) == SIZE_MAX);
    assert_true(attn_block_kept_size(c, ATTN_F32, INT64_MAX, 2, 2) == SIZE_MAX);
    assert_true(attn_block_train_workspace_size(c, -1, 1, 1, pass) == SIZE_MAX);
    assert_true(attn_block_train_workspace_size(c, INT64_MAX, 2, 2, pass) == SIZE_MAX);
    assert_true(attn_block_backward_workspace_size(c, 1, 1, 1, pass, NULL) == SIZE_MAX);
    assert_true(attn_block_backward_workspace_size(c, 1, 1, INT64_MAX, pass, g) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),    cmocka_unit_test(test_against_differences), cmocka_unit_test(test_options),
        cmocka_unit_test(test_bits),       cmocka_unit_test(test_workspaces),          cmocka_unit_test(test_ragged),
        cmocka_unit_test(test_accumulate), cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
