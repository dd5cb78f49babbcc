/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BERT in training: states and gradients against the oracle and its differences
 * in double, with dropout; the same bits however it is run; frozen and shared
 * layers; wrong arguments.
 */
#include "judge.h"
#include "named.h"
#include "random_block.h"

#include <math.h>

enum { LAYERS = 2, SEQUENCES = 3, PLACES = 12, VOCABULARY = 23, D = 12 };

struct model {
    attn_bert_config config;
    struct random_block blocks[LAYERS];
    const attn_block_weights *of_layers[LAYERS], *d_layers[LAYERS];
    attn_bert_weights weights, gradients;
    double *words, *positions, *types;
    struct oracle_norm norm;
    int64_t num, offsets[SEQUENCES + 1];
    int32_t *ids;
    attn_model_pass pass;
    attn_tensor hidden, d_hidden;
};

/** A table with contiguous channels, its gradient and its values. */
static double *random_table(struct memory *m, int64_t rows, attn_tensor *table, attn_tensor *d_table)
{
    *table = place_rows_of(m, random_dtype(m), 1, rows, D);
    fill(m, table, 1);
    *d_table = place_sums(m, rows, D);
    return read_all(m, table);
}

static void model_create(struct model *x, struct memory *m, int64_t num)
{
    memset(x, 0, sizeof *x);
    attn_bert_config *c = &x->config;
    *c = attn_bert_config_default();
    c->layers = RNG_PICK(&m->rng, 0, 1, LAYERS, LAYERS);
    c->d_model = D, c->heads = RNG_PICK(&m->rng, 1, 2, 3), c->d_ff = 20;
    c->vocabulary = VOCABULARY, c->first_position = RNG_PICK(&m->rng, 0, 2);
    c->positions = PLACES + c->first_position, c->token_types = RNG_PICK(&m->rng, 0, 1, 3);
    c->activation = ATTN_ACTIVATION_GELU, c->eps = 1e-3f, c->activations = m->dtype;
    attn_mha_config attention = attn_mha_config_default();
    attention.d_model = D, attention.heads = attention.kv_heads = c->heads;
    attention.head_dim = attention.value_dim = D / c->heads;
    attn_block_config block = attn_block_config_default();
    block.attention = &attention;
    block.d_ff = c->d_ff, block.activation = c->activation, block.eps = c->eps;
    for (int l = 0; l < LAYERS; l++) {
        random_block(&x->blocks[l], m, &block, D);
        x->of_layers[l] = &x->blocks[l].weights;
        x->d_layers[l] = &x->blocks[l].gradients;
    }
    attn_bert_weights *w = &x->weights, *g = &x->gradients;
    *w = *g = attn_bert_weights_default();
    w->layers = x->of_layers, g->layers = x->d_layers;
    x->words = random_table(m, VOCABULARY, &w->words, &g->words);
    x->positions = random_table(m, c->positions, &w->positions, &g->positions);
    x->types = random_table(m, c->token_types ? c->token_types : 2, &w->types, &g->types);
    x->norm = random_training_norm(m, ATTN_NORM_LAYER, c->eps, D, &w->gamma, &w->beta, &g->gamma, &g->beta);
    x->num = num;
    for (int s = 0; s < SEQUENCES; s++)
        x->offsets[s + 1] = x->offsets[s] + RNG_PICK(&m->rng, 0, 1, 5, PLACES);
    x->ids = random_ids(m, x->offsets[SEQUENCES], VOCABULARY);
    x->pass = attn_model_pass_default();
    x->hidden = place_rows_of(m, ATTN_F32, 1, x->offsets[num], D);
    x->d_hidden = place_rows_of(m, random_dtype(m), 1, x->offsets[num], D);
    fill(m, &x->d_hidden, 1);
}

static void keep(struct model *x, struct memory *m, attn_keep what)
{
    x->pass.keep = what;
    x->pass.kept_size = attn_bert_kept_size(&x->config, x->offsets[x->num], what);
    x->pass.kept = place_workspace(m, x->pass.kept_size);
}

static size_t workspace_of(const struct model *x)
{
    return attn_bert_training_workspace_size(&x->config, x->num, x->offsets[x->num], &x->pass);
}

static attn_status train(const struct model *x, void *workspace, size_t size)
{
    return attn_bert_train(&x->config, &x->weights, x->num, x->offsets, x->ids, &x->pass, &x->hidden, workspace, size);
}

static attn_status backward(const struct model *x, int accumulate, void *workspace, size_t size)
{
    return attn_bert_backward(&x->config, &x->weights, x->num, x->offsets, x->ids, &x->pass, &x->d_hidden,
                              &x->gradients, accumulate, workspace, size);
}

/* -------------------------------------------------------------------- oracle -- */

/** Dropout at a place, as the header counts them. */
static attn_dropout dropout_at(const struct model *x, float p, int64_t place)
{
    return (attn_dropout){p, x->pass.seed, x->pass.step * 8 * (uint64_t)(x->config.layers + 1) + (uint64_t)place};
}

/** One sequence, with dropout only where it is the first. */
static void run_sequence(const struct model *x, int64_t s, double *states)
{
    const struct oracle *o = oracle_take(0);
    const int64_t tokens = x->offsets[s + 1] - x->offsets[s];
    double sums[PLACES * D];
    for (int64_t i = 0; i < tokens * D; i++)
        sums[i] = x->words[x->ids[x->offsets[s] + i / D] * D + i % D] +
                  x->positions[(x->config.first_position + i / D) * D + i % D] + x->types[i % D];
    o->normalise(&x->norm, tokens, sums, states);
    const attn_dropout first = dropout_at(x, x->pass.dropout, 0);
    for (int64_t i = 0; first.p > 0 && i < tokens * D; i++)
        states[i] = attn_dropout_keeps(&first, 0, 0, i / D, i % D) ? states[i] / (1 - (double)first.p) : 0;
    for (int64_t l = 0; l < x->config.layers; l++) {
        const attn_dropout added = dropout_at(x, x->pass.dropout, 8 * (l + 1)),
                           hidden = dropout_at(x, x->pass.hidden_dropout, 8 * (l + 1) + 3),
                           weights = dropout_at(x, x->pass.attention_dropout, 8 * (l + 1) + 4);
        attn_params self = attn_params_default();
        self.dropout = weights.p > 0 ? &weights : NULL;
        const struct oracle_block_inputs inputs = {
            .self = &self, .dropout = added.p > 0 ? &added : NULL, .hidden_dropout = hidden.p > 0 ? &hidden : NULL};
        o->block(&x->blocks[l].oracle, 1, tokens, states, &inputs, states, NULL, NULL);
    }
}

struct variation {
    const struct model *model;
    const double *d_hidden;
    double *hidden;
};

static double loss_of(void *context)
{
    const struct variation *v = context;
    const struct model *x = v->model;
    double sum = 0;
    for (int64_t s = 0; s < x->num; s++)
        run_sequence(x, s, v->hidden + x->offsets[s] * D);
    for (int64_t i = 0; i < x->offsets[x->num] * D; i++)
        sum += v->hidden[i] * v->d_hidden[i];
    return sum;
}

/* -------------------------------------------------------------------- values -- */

static void assert_zero(struct memory *m, const struct varied *of)
{
    const double *got = read_all(m, of->gradient);
    for (int64_t i = 0; of->gradient->data && i < of->gradient->shape[2] * of->gradient->shape[3]; i++)
        if (got[i] != 0)
            fail_msg("%s: the gradient of %s[%d] is not 0", guard_case_line, of->name, (int)i);
}

static void test_against_differences(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("bert_training against_differences", n);
        run_in(m, random_activations(m));
        struct model x;
        model_create(&x, m, n % 5 == 0 ? 0 : n % 2 ? 1 : SEQUENCES);
        if (n % 2) { /* counters of dropout are those of a sequence by itself */
            x.pass.dropout = 0.2f, x.pass.hidden_dropout = 0.3f, x.pass.attention_dropout = 0.1f;
            x.pass.seed = 7, x.pass.step = n;
        }
        x.pass.num_threads = (int)(n % 4);
        keep(&x, m, n % 3 ? ATTN_KEEP_ALL : ATTN_KEEP_INPUTS);
        memory_seal(m);
        const size_t size = workspace_of(&x);
        void *workspace = n % 3 == 1 ? NULL : place_workspace(m, size);
        OK(train(&x, workspace, workspace ? size : 0));
        OK(backward(&x, 0, workspace, workspace ? size : 0));
        const int64_t elements = x.offsets[x.num] * D;
        double *expected = zeros(m, elements);
        const double *got = read_all(m, &x.hidden);
        struct variation v = {&x, read_all(m, &x.d_hidden), expected};
        loss_of(&v);
        const double usual = 1 + root_mean_square(expected, elements);
        const double rounding = m->dtype == ATTN_F32 ? 3e-5 : m->dtype == ATTN_F16 ? 1.5e-2 : 1e-1;
        for (int64_t i = 0; i < elements; i++)
            assert_true(fabs(got[i] - expected[i]) <= rounding * usual);
        struct varied all[5 + LAYERS * BLOCK_VARIED] = {
            {"words", x.words, &x.gradients.words},
            {"positions", x.positions, &x.gradients.positions},
            {"types", x.types, &x.gradients.types},
            {"gamma", (double *)(uintptr_t)x.norm.gamma, &x.gradients.gamma},
            {"beta", (double *)(uintptr_t)x.norm.beta, &x.gradients.beta},
        };
        size_t count = 5;
        double largest = 0;
        for (int64_t l = 0; l < x.config.layers; l++) {
            count += random_block_varied(&x.blocks[l], all + count);
            largest = fmax(largest, random_block_usual(m, &x.blocks[l]));
        }
        if (elements)
            assert_differences(m, all, count, loss_of, &v, (struct closeness){rounding, largest});
        for (size_t i = 0; !elements && i < count; i++)
            assert_zero(m, &all[i]);
        memory_destroy(m);
    }
}

/** Hidden states in another type are those in f32, rounded once. */
static void test_rounded(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(10); n++) {
        struct memory *m = memory_create("bert_training rounded", n);
        static struct model x;
        model_create(&x, m, SEQUENCES);
        const int64_t tokens = x.offsets[SEQUENCES];
        const attn_tensor narrow = place_rows_of(m, ATTN_BF16, 1, tokens, D);
        OK(train(&x, NULL, 0));
        const attn_tensor wide = x.hidden;
        x.hidden = narrow;
        OK(train(&x, NULL, 0));
        assert_rounded("hidden", &narrow, &wide);
        memory_destroy(m);
    }
}

/* ---------------------------------------------------------------------- bits -- */

static void replace_outputs(struct model *x, struct memory *m)
{
    x->hidden = place_rows_of(m, ATTN_F32, 1, x->offsets[x->num], D);
    x->gradients.words = place_sums(m, VOCABULARY, D);
    x->gradients.gamma = place_sums(m, 1, D);
    x->blocks[0].d_self.w_q = place_sums(m, D, D);
    x->blocks[0].gradients.w_down = place_sums(m, D, x->config.d_ff);
}

static void assert_same(const struct model *a, const struct model *b)
{
    assert_true(equal_bits(&a->hidden, &b->hidden));
    assert_true(equal_bits(&a->gradients.words, &b->gradients.words));
    assert_true(equal_bits(&a->gradients.gamma, &b->gradients.gamma));
    if (!a->config.layers)
        return;
    assert_true(equal_bits(&a->blocks[0].d_self.w_q, &b->blocks[0].d_self.w_q));
    assert_true(equal_bits(&a->blocks[0].gradients.w_down, &b->blocks[0].gradients.w_down));
}

/** Threads, workspaces, what is kept, frozen layers above; and a sequence by itself. */
static void test_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(8); n++) {
        struct memory *m = memory_create("bert_training bits", n);
        run_in(m, random_activations(m));
        static struct model x, first;
        model_create(&x, m, SEQUENCES);
        x.pass.dropout = x.pass.attention_dropout = n % 2 ? 0.1f : 0;
        x.pass.num_threads = 1;
        keep(&x, m, ATTN_KEEP_ALL);
        OK(train(&x, NULL, 0));
        OK(backward(&x, 0, NULL, 0));
        first = x;
        for (int threads = 1; threads <= 3; threads++) {
            replace_outputs(&x, m);
            x.pass.num_threads = threads;
            keep(&x, m, threads % 2 ? ATTN_KEEP_INPUTS : ATTN_KEEP_ALL);
            const attn_block_weights *lowest[LAYERS] = {x.d_layers[0], NULL};
            x.gradients.layers = threads == 3 ? lowest : x.d_layers;
            const size_t size = workspace_of(&x);
            void *workspace = place_workspace(m, size);
            OK(train(&x, workspace, size));
            OK(backward(&x, 0, workspace, size));
            assert_same(&first, &x);
            const attn_tensor hidden = x.hidden;
            x.hidden = place_rows_of(m, ATTN_F32, 1, x.offsets[x.num], D);
            x.pass.kept = NULL;
            OK(train(&x, workspace, size));
            assert_true(equal_bits(&hidden, &x.hidden));
        }
        x.pass.dropout = x.pass.attention_dropout = 0;
        x.hidden = place_rows_of(m, ATTN_F32, 1, x.offsets[x.num], D);
        OK(train(&x, NULL, 0));
        for (int s = 0; s < SEQUENCES; s++) {
            const int64_t alone[2] = {0, x.offsets[s + 1] - x.offsets[s]};
            const attn_tensor its = place_rows_of(m, ATTN_F32, 1, alone[1], D),
                              expected = slice(&x.hidden, 0, x.offsets[s], alone[1]);
            OK(attn_bert_train(&x.config, &x.weights, 1, alone, x.ids + x.offsets[s], &x.pass, &its, NULL, 0));
            assert_true(equal_bits(&its, &expected));
        }
        memory_destroy(m);
    }
}

/** A layer used twice, as in ALBERT: its gradients are added up in one place. */
static void test_shared_layer(void **state)
{
    (void)state;
    struct memory *m = NULL;
    static struct model x;
    for (uint64_t n = 0; x.config.layers < LAYERS || !x.offsets[SEQUENCES]; n++) {
        if (m)
            memory_destroy(m);
        m = memory_create("bert_training shared_layer", n);
        model_create(&x, m, SEQUENCES);
    }
    x.of_layers[1] = x.of_layers[0];
    keep(&x, m, ATTN_KEEP_ALL);
    OK(train(&x, NULL, 0));
    OK(backward(&x, 0, NULL, 0));
    const int64_t n = D * x.config.d_ff;
    const double *a = read_all(m, &x.blocks[0].gradients.w_up), *b = read_all(m, &x.blocks[1].gradients.w_up);
    x.d_layers[1] = x.d_layers[0];
    REFUSES(m, backward(&x, 0, NULL, 0), ATTN_INVALID_ARGUMENT, "gradients.layers[|overlaps gradients.layers[");
    OK(backward(&x, 1, NULL, 0)); /* to what the first layer's own have been */
    const double *got = read_all(m, &x.blocks[0].gradients.w_up);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(got[i] - (2 * a[i] + b[i])) <= 1e-5 * (1 + 2 * fabs(a[i]) + fabs(b[i])));
    nn_end_refusals();
    memory_destroy(m);
}

/* ------------------------------------------------------------------ refusals -- */

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = NULL;
    static struct model x;
    for (uint64_t n = 0; x.config.layers < LAYERS || !x.offsets[SEQUENCES]; n++) {
        if (m)
            memory_destroy(m);
        m = memory_for_refusals("bert_training wrong_arguments", n);
        model_create(&x, m, SEQUENCES);
    }
    keep(&x, m, ATTN_KEEP_INPUTS);
    OK(train(&x, NULL, 0));
    const attn_bert_config *c = &x.config;
    const attn_bert_weights *w = &x.weights, *g = &x.gradients;
    const attn_linear_format format = attn_linear_format_default();
    memory_seal(m);
#define TRAIN(c, w, num, offsets, ids, pass, hidden) attn_bert_train(c, w, num, offsets, ids, pass, hidden, NULL, 0)
#define WITH(c, w)                                   TRAIN(c, w, SEQUENCES, x.offsets, x.ids, &x.pass, &x.hidden)
    REFUSES(m, WITH(NULL, w), ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_bert_config");
    REFUSES(m, WITH(CHANGED(attn_bert_config, *c, format = &format), w), ATTN_INVALID_ARGUMENT,
            "config.format is set; expected NULL: training reads weights as they are given");
    REFUSES(m, WITH(CHANGED(attn_bert_config, *c, token_types = -1), w), ATTN_UNSUPPORTED, "config.token_types is -1");
    REFUSES(m, WITH(CHANGED(attn_bert_config, *c, heads = 5), w), ATTN_INVALID_ARGUMENT,
            "not a multiple of the 5 heads");
    REFUSES(m, WITH(c, NULL), ATTN_INVALID_ARGUMENT, "weights is NULL; expected an attn_bert_weights");
    REFUSES(m, WITH(c, CHANGED(attn_bert_weights, *w, layers = NULL)), ATTN_INVALID_ARGUMENT,
            "weights.layers is NULL; expected 2 layers");
    REFUSES(m, WITH(c, CHANGED(attn_bert_weights, *w, positions.shape[2]++)), ATTN_SHAPE_MISMATCH,
            "weights.positions.shape[2]");
    REFUSES(m, WITH(c, CHANGED(attn_bert_weights, *w, gamma = attn_vector(x.hidden.data, D + 1))), ATTN_SHAPE_MISMATCH,
            "weights.gamma.shape[3]");
    attn_block_weights wrong = *w->layers[1];
    wrong.w_down.shape[3]++;
    const attn_block_weights *layers[LAYERS] = {w->layers[0], &wrong};
    REFUSES(m, WITH(c, CHANGED(attn_bert_weights, *w, layers = layers)), ATTN_SHAPE_MISMATCH,
            "layers[1]: weights.w_down.shape[3] is 21");
    REFUSES(m, TRAIN(c, w, -1, x.offsets, x.ids, NULL, &x.hidden), ATTN_INVALID_ARGUMENT, "num_sequences is -1");
    REFUSES(m, TRAIN(c, w, 1, NULL, x.ids, NULL, &x.hidden), ATTN_INVALID_ARGUMENT,
            "offsets is NULL; expected 1 + 1 offsets");
    static const int64_t is_long[2] = {0, PLACES + 1};
    REFUSES(m, TRAIN(c, w, 1, is_long, x.ids, NULL, &x.hidden), ATTN_INVALID_ARGUMENT,
            "offsets[1] is 13; expected at most 12");
    REFUSES(m, TRAIN(c, w, SEQUENCES, x.offsets, NULL, NULL, &x.hidden), ATTN_INVALID_ARGUMENT,
            "ids is NULL; expected 18 tokens");
    REFUSES(m, TRAIN(c, w, SEQUENCES, x.offsets, x.ids, NULL, NULL), ATTN_INVALID_ARGUMENT, "hidden is NULL");
    REFUSES(m, TRAIN(c, w, SEQUENCES, x.offsets, x.ids, NULL, CHANGED(attn_tensor, x.hidden, data = w->words.data)),
            ATTN_INVALID_ARGUMENT, "hidden overlaps weights.words; expected arrays that lie apart");
    REFUSES(m, TRAIN(c, w, SEQUENCES, x.offsets, x.ids, CHANGED(attn_model_pass, x.pass, kept_size = 3), &x.hidden),
            ATTN_WORKSPACE_TOO_SMALL, "pass.kept_size is 3; expected");
    /* Only weights that are shared may share their gradients. */
    REFUSES(m,
            attn_bert_backward(c, w, SEQUENCES, x.offsets, x.ids, &x.pass, &x.d_hidden,
                               CHANGED(attn_bert_weights, *g, beta = g->gamma), 1, NULL, 0),
            ATTN_INVALID_ARGUMENT, "gradients.|overlaps gradients.");
    const attn_block_weights *twice[LAYERS] = {g->layers[0], g->layers[0]};
    REFUSES(m,
            attn_bert_backward(c, w, SEQUENCES, x.offsets, x.ids, &x.pass, &x.d_hidden,
                               CHANGED(attn_bert_weights, *g, layers = twice), 1, NULL, 0),
            ATTN_INVALID_ARGUMENT, "gradients.layers[|overlaps gradients.layers[");
#define BACKWARD(pass, d, g) attn_bert_backward(c, w, SEQUENCES, x.offsets, x.ids, pass, d, g, 0, NULL, 0)
    REFUSES(m, BACKWARD(NULL, &x.d_hidden, g), ATTN_INVALID_ARGUMENT, "pass.kept is NULL");
    REFUSES(m, BACKWARD(&x.pass, NULL, g), ATTN_INVALID_ARGUMENT, "d_hidden is NULL");
    REFUSES(m, BACKWARD(&x.pass, CHANGED(attn_tensor, x.d_hidden, shape[2]++), g), ATTN_SHAPE_MISMATCH,
            "d_hidden.shape[2]");
    REFUSES(m, BACKWARD(&x.pass, &x.d_hidden, NULL), ATTN_INVALID_ARGUMENT,
            "gradients is NULL; expected where to put what is wanted");
    const attn_bert_weights none = attn_bert_weights_default();
    REFUSES(m, BACKWARD(&x.pass, &x.d_hidden, &none), ATTN_INVALID_ARGUMENT,
            "gradients has nothing to write; expected a tensor or a layer");
    REFUSES(m, BACKWARD(&x.pass, &x.d_hidden, CHANGED(attn_bert_weights, *g, types.shape[2]++)), ATTN_SHAPE_MISMATCH,
            "gradients.types.shape[2]");
    REFUSES(m, BACKWARD(&x.pass, &x.d_hidden, CHANGED(attn_bert_weights, *g, beta.data = g->gamma.data)),
            ATTN_INVALID_ARGUMENT, "gradients.|overlaps gradients.");
    REFUSES(m, BACKWARD(&x.pass, &x.d_hidden, CHANGED(attn_bert_weights, *g, words.data = w->layers[0]->w_up.data)),
            ATTN_INVALID_ARGUMENT, "gradients.words overlaps weights.layers[0]");
    assert_true(attn_bert_kept_size(NULL, 1, ATTN_KEEP_ALL) == SIZE_MAX);
    assert_true(attn_bert_kept_size(c, -1, ATTN_KEEP_ALL) == SIZE_MAX);
    assert_true(attn_bert_kept_size(c, INT64_MAX, ATTN_KEEP_ALL) == SIZE_MAX);
    assert_true(attn_bert_training_workspace_size(c, -1, 1, NULL) == SIZE_MAX);
    assert_true(attn_bert_training_workspace_size(c, 1, INT64_MAX, NULL) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_differences), cmocka_unit_test(test_rounded),         cmocka_unit_test(test_bits),
        cmocka_unit_test(test_shared_layer),        cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
