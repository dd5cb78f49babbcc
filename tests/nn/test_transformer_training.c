/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder-decoder in training: logits and gradients against the oracle and
 * its differences in double, with dropout; the same bits however it is run;
 * frozen and shared weights; wrong arguments.
 */
#include "judge.h"
#include "named.h"
#include "random_block.h"

#include <math.h>

enum { LAYERS = 2, PAIRS = 3, PLACES = 12, VOCABULARY = 19, ENCODER = 0, DECODER = 1 };

/** One side: weights, gradients, and the oracle's. */
struct side {
    struct random_block blocks[LAYERS];
    const attn_block_weights *weights[LAYERS], *gradients[LAYERS];
    attn_tensor table, d_table, gamma, beta, d_gamma, d_beta;
    double *values; /* of table */
    struct oracle_norm norm;
    int64_t offsets[PAIRS + 1];
    int32_t *ids;
};

struct model {
    attn_transformer_config config;
    struct side side[2];
    attn_transformer_weights weights, gradients;
    struct oracle_dense generator;
    attn_transformer_pairs pairs;
    attn_model_pass pass;
    attn_tensor logits, d_logits;
};

static attn_mha_config attention_of(const attn_transformer_config *c)
{
    attn_mha_config a = attn_mha_config_default();
    a.d_model = c->d_model;
    a.heads = a.kv_heads = c->heads;
    a.head_dim = a.value_dim = c->d_model / c->heads;
    return a;
}

static void side_create(struct side *s, struct memory *m, const attn_transformer_config *c, int which)
{
    const attn_mha_config attention = attention_of(c);
    attn_block_config block = attn_block_config_default();
    block.attention = &attention;
    block.d_ff = c->d_ff, block.activation = c->activation, block.eps = c->eps;
    block.norm_first = c->norm_first, block.cross = which == DECODER;
    for (int64_t l = 0; l < LAYERS; l++) {
        random_block(&s->blocks[l], m, &block, c->d_model);
        s->weights[l] = &s->blocks[l].weights;
        s->gradients[l] = &s->blocks[l].gradients;
    }
    s->table = place_rows_of(m, random_dtype(m), 1, VOCABULARY, c->d_model);
    fill(m, &s->table, 1 / sqrt((double)c->d_model));
    s->values = read_all(m, &s->table);
    s->d_table = place_sums(m, VOCABULARY, c->d_model);
    if (c->final_norms)
        s->norm =
            random_training_norm(m, ATTN_NORM_LAYER, c->eps, c->d_model, &s->gamma, &s->beta, &s->d_gamma, &s->d_beta);
    for (int p = 0; p < PAIRS; p++)
        s->offsets[p + 1] = s->offsets[p] + RNG_PICK(&m->rng, 0, 1, 5, PLACES);
    s->ids = random_ids(m, s->offsets[PAIRS], VOCABULARY);
}

static int64_t tokens_of(const struct model *x, int which)
{
    return x->side[which].offsets[x->pairs.num_pairs];
}

static void model_create(struct model *x, struct memory *m, int64_t num_pairs)
{
    memset(x, 0, sizeof *x);
    attn_transformer_config *c = &x->config;
    *c = attn_transformer_config_default();
    c->encoder_layers = RNG_PICK(&m->rng, 0, 1, LAYERS, LAYERS);
    c->decoder_layers = RNG_PICK(&m->rng, 1, LAYERS);
    c->heads = RNG_PICK(&m->rng, 1, 2, 3);
    c->d_model = 12, c->d_ff = 20;
    c->source_vocabulary = c->target_vocabulary = VOCABULARY, c->positions = PLACES;
    c->activation = rng_percent(&m->rng, 50) ? ATTN_ACTIVATION_GELU : ATTN_ACTIVATION_SILU;
    c->eps = 1e-3f;
    c->norm_first = rng_percent(&m->rng, 50), c->final_norms = rng_percent(&m->rng, 60);
    c->eos = 1;
    c->activations = m->dtype;
    struct side *e = &x->side[ENCODER], *d = &x->side[DECODER];
    side_create(e, m, c, ENCODER);
    side_create(d, m, c, DECODER);
    attn_transformer_weights *w = &x->weights, *g = &x->gradients;
    *w = *g = attn_transformer_weights_default();
    x->generator =
        random_dense(m, VOCABULARY, c->d_model, &w->generator, &w->generator_bias, &g->generator, &g->generator_bias);
    w->source_embedding = e->table, g->source_embedding = e->d_table;
    w->target_embedding = d->table, g->target_embedding = d->d_table;
    w->encoder = e->weights, g->encoder = e->gradients;
    w->decoder = d->weights, g->decoder = d->gradients;
    w->encoder_gamma = e->gamma, w->encoder_beta = e->beta;
    g->encoder_gamma = e->d_gamma, g->encoder_beta = e->d_beta;
    w->decoder_gamma = d->gamma, w->decoder_beta = d->beta;
    g->decoder_gamma = d->d_gamma, g->decoder_beta = d->d_beta;
    x->pairs = attn_transformer_pairs_default();
    x->pairs.num_pairs = num_pairs;
    x->pairs.source_offsets = e->offsets, x->pairs.source_ids = e->ids;
    x->pairs.target_offsets = d->offsets, x->pairs.target_ids = d->ids;
    x->pass = attn_model_pass_default();
    x->logits = place_dense(m, 1, 1, tokens_of(x, DECODER), VOCABULARY);
    x->d_logits = place_rows_of(m, ATTN_F32, 1, tokens_of(x, DECODER), VOCABULARY);
    fill(m, &x->d_logits, 1);
}

static void keep(struct model *x, struct memory *m, attn_keep what)
{
    x->pass.keep = what;
    x->pass.kept_size = attn_transformer_kept_size(&x->config, tokens_of(x, ENCODER), tokens_of(x, DECODER), what);
    x->pass.kept = place_workspace(m, x->pass.kept_size);
}

static size_t workspace_of(const struct model *x)
{
    return attn_transformer_training_workspace_size(&x->config, x->pairs.num_pairs, tokens_of(x, ENCODER),
                                                    tokens_of(x, DECODER), &x->pass);
}

static attn_status train(const struct model *x, void *workspace, size_t size)
{
    return attn_transformer_train(&x->config, &x->weights, &x->pairs, &x->pass, &x->logits, workspace, size);
}

static attn_status backward(const struct model *x, int accumulate, void *workspace, size_t size)
{
    return attn_transformer_backward(&x->config, &x->weights, &x->pairs, &x->pass, &x->d_logits, &x->gradients,
                                     accumulate, workspace, size);
}

/* -------------------------------------------------------------------- oracle -- */

/** Dropout at a place, as the header counts them. */
static attn_dropout dropout_at(const struct model *x, float p, int64_t place)
{
    const int64_t layers = x->config.encoder_layers + x->config.decoder_layers;
    return (attn_dropout){p, x->pass.seed, x->pass.step * 8 * (uint64_t)(layers + 1) + (uint64_t)place};
}

/** One sequence, with dropout only where it is the first. */
static void run_side(const struct model *x, int which, int64_t pair, int64_t tm, const double *memory, double *states)
{
    const struct oracle *o = oracle_take(0);
    const struct side *s = &x->side[which];
    const attn_transformer_config *c = &x->config;
    const int64_t d = c->d_model, tokens = s->offsets[pair + 1] - s->offsets[pair];
    double position[64];
    o->embed(s->values, d, tokens, s->ids + s->offsets[pair], sqrt((double)d), 0, states);
    const attn_dropout first = dropout_at(x, x->pass.dropout, which);
    for (int64_t t = 0; t < tokens; t++) {
        o->sinusoidal(t, d, position);
        for (int64_t i = 0; i < d; i++) {
            states[t * d + i] += position[i];
            if (x->pass.dropout > 0)
                states[t * d + i] =
                    attn_dropout_keeps(&first, 0, 0, t, i) ? states[t * d + i] / (1 - (double)first.p) : 0;
        }
    }
    for (int64_t l = 0; l < (which == DECODER ? c->decoder_layers : c->encoder_layers); l++) {
        const int64_t place = 8 * ((which == DECODER ? c->encoder_layers : 0) + l + 1);
        const attn_dropout added = dropout_at(x, x->pass.dropout, place),
                           hidden = dropout_at(x, x->pass.hidden_dropout, place + 3),
                           of_self = dropout_at(x, x->pass.attention_dropout, place + 4),
                           of_cross = dropout_at(x, x->pass.attention_dropout, place + 5);
        attn_params self = attn_params_default(), cross = attn_params_default();
        self.causal = which == DECODER ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
        self.dropout = of_self.p > 0 ? &of_self : NULL;
        cross.dropout = of_cross.p > 0 ? &of_cross : NULL;
        const struct oracle_block_inputs inputs = {.self = &self,
                                                   .cross = &cross,
                                                   .memory = memory,
                                                   .tm = tm,
                                                   .dropout = added.p > 0 ? &added : NULL,
                                                   .hidden_dropout = hidden.p > 0 ? &hidden : NULL};
        o->block(&s->blocks[l].oracle, 1, tokens, states, &inputs, states, NULL, NULL);
    }
    if (c->final_norms) {
        double normed[PLACES * 12];
        o->normalise(&s->norm, tokens, states, normed);
        memcpy(states, normed, (size_t)(tokens * d) * sizeof *states);
    }
}

/** Logits of all pairs. */
static void logits_of(const struct model *x, double *logits)
{
    double memory[PLACES * 12], states[PLACES * 12];
    for (int64_t p = 0; p < x->pairs.num_pairs; p++) {
        const int64_t *target = x->side[DECODER].offsets;
        const int64_t tm = x->side[ENCODER].offsets[p + 1] - x->side[ENCODER].offsets[p];
        run_side(x, ENCODER, p, 0, NULL, memory);
        run_side(x, DECODER, p, tm, memory, states);
        oracle_take(0)->linear(&x->generator, target[p + 1] - target[p], states, ATTN_ACTIVATION_NONE, NULL,
                               logits + target[p] * VOCABULARY);
    }
}

struct variation {
    const struct model *model;
    const double *d_logits;
    double *logits;
};

static double loss_of(void *context)
{
    const struct variation *v = context;
    double sum = 0;
    logits_of(v->model, v->logits);
    for (int64_t i = 0; i < tokens_of(v->model, DECODER) * VOCABULARY; i++)
        sum += v->logits[i] * v->d_logits[i];
    return sum;
}

/* -------------------------------------------------------------------- values -- */

static void assert_zero(struct memory *m, const struct varied *of)
{
    if (!of->gradient->data)
        return;
    const double *got = read_all(m, of->gradient);
    for (int64_t i = 0; i < of->gradient->shape[2] * of->gradient->shape[3]; i++)
        if (got[i] != 0)
            fail_msg("%s: the gradient of %s[%d] is not 0", guard_case_line, of->name, (int)i);
}

static void test_against_differences(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("transformer_training against_differences", n);
        run_in(m, random_activations(m));
        struct model x;
        model_create(&x, m, n % 5 == 0 ? 0 : n % 2 ? 1 : PAIRS);
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
        const int64_t elements = tokens_of(&x, DECODER) * VOCABULARY;
        double *expected = zeros(m, elements);
        const double *got = read_all(m, &x.logits);
        struct variation v = {&x, read_all(m, &x.d_logits), expected};
        loss_of(&v);
        const double usual = 1 + root_mean_square(expected, elements);
        const double rounding = m->dtype == ATTN_F32 ? 3e-5 : m->dtype == ATTN_F16 ? 1.5e-2 : 1e-1;
        for (int64_t i = 0; i < elements; i++)
            assert_true(fabs(got[i] - expected[i]) <= rounding * usual);
        struct varied all[8 + 2 * LAYERS * BLOCK_VARIED];
        size_t count = 0;
        double largest = 0;
        for (int which = ENCODER; which <= DECODER; which++) {
            struct side *s = &x.side[which];
            const int64_t layers = which == DECODER ? x.config.decoder_layers : x.config.encoder_layers;
            all[count++] = (struct varied){which ? "target_embedding" : "source_embedding", s->values, &s->d_table};
            all[count++] = (struct varied){"gamma", (double *)(uintptr_t)s->norm.gamma, &s->d_gamma};
            all[count++] = (struct varied){"beta", (double *)(uintptr_t)s->norm.beta, &s->d_beta};
            for (int64_t l = 0; l < layers; l++) {
                count += random_block_varied(&s->blocks[l], all + count);
                largest = fmax(largest, random_block_usual(m, &s->blocks[l]));
            }
        }
        all[count++] = (struct varied){"generator", (double *)(uintptr_t)x.generator.w, &x.gradients.generator};
        all[count++] =
            (struct varied){"generator_bias", (double *)(uintptr_t)x.generator.b, &x.gradients.generator_bias};
        if (tokens_of(&x, DECODER))
            assert_differences(m, all, count, loss_of, &v, (struct closeness){rounding, largest});
        else
            for (size_t i = 0; i < count; i++)
                assert_zero(m, &all[i]);
        memory_destroy(m);
    }
}

/* ---------------------------------------------------------------------- bits -- */

/** New memory for some of what is written. */
static void replace_outputs(struct model *x, struct memory *m)
{
    x->logits = place_dense(m, 1, 1, tokens_of(x, DECODER), VOCABULARY);
    x->gradients.source_embedding = place_sums(m, VOCABULARY, x->config.d_model);
    x->gradients.generator = place_sums(m, VOCABULARY, x->config.d_model);
    x->side[DECODER].blocks[0].d_cross.w_k = place_sums(m, x->config.d_model, x->config.d_model);
    x->side[DECODER].blocks[0].gradients.w_up = place_sums(m, x->config.d_ff, x->config.d_model);
}

static void assert_same(const struct model *a, const struct model *b)
{
    assert_true(equal_bits(&a->logits, &b->logits));
    assert_true(equal_bits(&a->gradients.source_embedding, &b->gradients.source_embedding));
    assert_true(equal_bits(&a->gradients.generator, &b->gradients.generator));
    assert_true(equal_bits(&a->side[DECODER].blocks[0].d_cross.w_k, &b->side[DECODER].blocks[0].d_cross.w_k));
    assert_true(equal_bits(&a->side[DECODER].blocks[0].gradients.w_up, &b->side[DECODER].blocks[0].gradients.w_up));
}

/** Threads, workspaces, what is kept; and a forward pass that keeps nothing. */
static void test_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(8); n++) {
        struct memory *m = memory_create("transformer_training bits", n);
        run_in(m, random_activations(m));
        static struct model x, first;
        model_create(&x, m, PAIRS);
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
            const size_t size = workspace_of(&x);
            void *workspace = place_workspace(m, size);
            OK(train(&x, workspace, size));
            OK(backward(&x, 0, workspace, size));
            assert_same(&first, &x);
            const attn_tensor logits = x.logits;
            x.logits = place_dense(m, 1, 1, tokens_of(&x, DECODER), VOCABULARY);
            x.pass.kept = NULL;
            OK(train(&x, workspace, size));
            assert_true(equal_bits(&logits, &x.logits));
        }
        memory_destroy(m);
    }
}

/** What is frozen has no part in the bits of the rest. */
static void test_frozen(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(6); n++) {
        struct memory *m = memory_create("transformer_training frozen", n);
        static struct model x, first;
        model_create(&x, m, PAIRS);
        keep(&x, m, n % 2 ? ATTN_KEEP_ALL : ATTN_KEEP_INPUTS);
        OK(train(&x, NULL, 0));
        OK(backward(&x, 0, NULL, 0));
        first = x;
        x.gradients = attn_transformer_weights_default();
        x.gradients.generator = place_sums(m, VOCABULARY, x.config.d_model);
        OK(backward(&x, 0, NULL, 0)); /* the generator alone */
        assert_true(equal_bits(&first.gradients.generator, &x.gradients.generator));
        const attn_block_weights *top[LAYERS] = {NULL};
        const int64_t last = x.config.decoder_layers - 1;
        struct random_block *block = &x.side[DECODER].blocks[last];
        top[last] = &block->gradients;
        x.gradients.decoder = top;
        const attn_tensor whole = block->d_cross.w_k;
        block->d_cross.w_k = place_sums(m, x.config.d_model, x.config.d_model);
        OK(backward(&x, 0, NULL, 0)); /* and the last layer of the decoder */
        assert_true(equal_bits(&whole, &block->d_cross.w_k));
        x.gradients = attn_transformer_weights_default();
        x.gradients.source_embedding = place_sums(m, VOCABULARY, x.config.d_model);
        OK(backward(&x, 0, NULL, 0)); /* what is furthest down */
        assert_true(equal_bits(&first.gradients.source_embedding, &x.gradients.source_embedding));
        memory_destroy(m);
    }
}

/** Tied matrices: their gradients are added up in one array; sums are added to what is there. */
static void test_shared(void **state)
{
    (void)state;
    struct memory *m = memory_create("transformer_training shared", 0);
    static struct model x;
    model_create(&x, m, PAIRS);
    keep(&x, m, ATTN_KEEP_ALL);
    x.weights.generator = x.weights.source_embedding = x.weights.target_embedding;
    OK(train(&x, NULL, 0));
    OK(backward(&x, 0, NULL, 0));
    const int64_t n = VOCABULARY * x.config.d_model;
    const double *a = read_all(m, &x.gradients.source_embedding), *b = read_all(m, &x.gradients.target_embedding),
                 *c = read_all(m, &x.gradients.generator);
    const attn_tensor all = place_sums(m, VOCABULARY, x.config.d_model);
    x.gradients = attn_transformer_weights_default();
    x.gradients.source_embedding = x.gradients.target_embedding = x.gradients.generator = all;
    for (int64_t i = 0; i < n; i++)
        tensor_set(&all, 0, 0, i / x.config.d_model, i % x.config.d_model, 1);
    REFUSES(m, backward(&x, 0, NULL, 0), ATTN_INVALID_ARGUMENT, "gradients.|overlaps gradients.");
    OK(backward(&x, 1, NULL, 0));
    const double *got = read_all(m, &all);
    for (int64_t i = 0; i < n; i++) {
        const double expected = 1 + a[i] + b[i] + c[i], size = 1 + fabs(a[i]) + fabs(b[i]) + fabs(c[i]);
        if (!(fabs(got[i] - expected) <= 1e-5 * size))
            fail_msg("the sum of gradients [%d] is %.9g; expected %.9g", (int)i, got[i], expected);
    }
    nn_end_refusals();
    memory_destroy(m);
}

/* ------------------------------------------------------------------ refusals -- */

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = NULL;
    static struct model x;
    for (uint64_t n = 0; x.config.encoder_layers < 2 || x.config.decoder_layers < 2 || !tokens_of(&x, DECODER); n++) {
        if (m)
            memory_destroy(m);
        m = memory_for_refusals("transformer_training wrong_arguments", n);
        model_create(&x, m, PAIRS);
    }
    keep(&x, m, ATTN_KEEP_ALL);
    const attn_transformer_config *c = &x.config;
    const attn_transformer_weights *w = &x.weights, *g = &x.gradients;
    const attn_transformer_pairs *p = &x.pairs;
    const attn_model_pass *pass = &x.pass;
    const attn_tensor *logits = &x.logits, *d = &x.d_logits;
    const attn_linear_format format = attn_linear_format_default();
    OK(train(&x, NULL, 0));
    memory_seal(m);
#define TRAIN(c, w, p, pass, logits) attn_transformer_train(c, w, p, pass, logits, NULL, 0)
#define BACKWARD(pass, d, g)         attn_transformer_backward(c, w, p, pass, d, g, 0, NULL, 0)
    REFUSES(m, TRAIN(NULL, w, p, pass, logits), ATTN_INVALID_ARGUMENT,
            "config is NULL; expected an attn_transformer_config");
    REFUSES(m, TRAIN(CHANGED(attn_transformer_config, *c, format = &format), w, p, pass, logits), ATTN_INVALID_ARGUMENT,
            "config.format is set");
    REFUSES(m, TRAIN(CHANGED(attn_transformer_config, *c, heads = 5), w, p, pass, logits), ATTN_INVALID_ARGUMENT,
            "not a multiple of the 5 heads");
    REFUSES(m, TRAIN(c, NULL, p, pass, logits), ATTN_INVALID_ARGUMENT,
            "weights is NULL; expected an attn_transformer_weights");
    REFUSES(m, TRAIN(c, CHANGED(attn_transformer_weights, *w, encoder = NULL), p, pass, logits), ATTN_INVALID_ARGUMENT,
            "weights.encoder is NULL; expected 2 layers");
    REFUSES(m, TRAIN(c, CHANGED(attn_transformer_weights, *w, generator.shape[2]++), p, pass, logits),
            ATTN_SHAPE_MISMATCH, "weights.generator.shape[2] is 20");
    REFUSES(m, TRAIN(c, CHANGED(attn_transformer_weights, *w, source_embedding.data = NULL), p, pass, logits),
            ATTN_INVALID_ARGUMENT, "weights.source_embedding");
    const attn_block_weights *layers[LAYERS] = {w->decoder[0], NULL};
    REFUSES(m, TRAIN(c, CHANGED(attn_transformer_weights, *w, decoder = layers), p, pass, logits),
            ATTN_INVALID_ARGUMENT, "decoder[1]: weights is NULL; expected an attn_block_weights");
    const attn_block_weights wrong = *CHANGED(attn_block_weights, *w->decoder[1], w_up.shape[2]++);
    layers[1] = &wrong;
    REFUSES(m, TRAIN(c, CHANGED(attn_transformer_weights, *w, decoder = layers), p, pass, logits), ATTN_SHAPE_MISMATCH,
            "decoder[1]: weights.w_up.shape[2] is 21");
    if (!c->final_norms)
        REFUSES(m, TRAIN(c, CHANGED(attn_transformer_weights, *w, decoder_gamma = x.d_logits), p, pass, logits),
                ATTN_INVALID_ARGUMENT, "decoder_gamma or decoder_beta has data");
    REFUSES(m, TRAIN(c, w, CHANGED(attn_transformer_pairs, *p, num_pairs = -1), pass, logits), ATTN_INVALID_ARGUMENT,
            "pairs.num_pairs is -1");
    REFUSES(m, TRAIN(c, w, CHANGED(attn_transformer_pairs, *p, source_offsets = NULL), pass, logits),
            ATTN_INVALID_ARGUMENT, "pairs.source_offsets is NULL");
    static const int64_t descends[PAIRS + 1] = {0, 2, 1, 3}, is_long[PAIRS + 1] = {0, 13, 13, 13};
    REFUSES(m, TRAIN(c, w, CHANGED(attn_transformer_pairs, *p, target_offsets = descends), pass, logits),
            ATTN_INVALID_ARGUMENT, "pairs.target_offsets[2] is 1; expected 2 or more");
    REFUSES(m, TRAIN(c, w, CHANGED(attn_transformer_pairs, *p, target_offsets = is_long), pass, logits),
            ATTN_INVALID_ARGUMENT, "pairs.target_offsets[1] is 13; expected at most 12");
    static const int32_t unknown[2 * PAIRS * PLACES] = {VOCABULARY};
    REFUSES(m, TRAIN(c, w, CHANGED(attn_transformer_pairs, *p, target_ids = unknown), pass, logits),
            ATTN_INVALID_ARGUMENT, "pairs.target_ids[0] is 19; expected 0 to 18");
    REFUSES(m, TRAIN(c, w, p, CHANGED(attn_model_pass, *pass, dropout = 1), logits), ATTN_INVALID_ARGUMENT,
            "pass.dropout is 1; expected 0 or more and less than 1");
    REFUSES(m, TRAIN(c, w, p, CHANGED(attn_model_pass, *pass, hidden_dropout = -1), logits), ATTN_INVALID_ARGUMENT,
            "pass.hidden_dropout is -1");
    REFUSES(m, TRAIN(c, w, p, CHANGED(attn_model_pass, *pass, attention_dropout = NAN), logits), ATTN_INVALID_ARGUMENT,
            "pass.attention_dropout is nan");
    REFUSES(m, TRAIN(c, w, p, CHANGED(attn_model_pass, *pass, keep = (attn_keep)2), logits), ATTN_INVALID_ARGUMENT,
            "pass.keep is 2; expected an attn_keep");
    REFUSES(m, TRAIN(c, w, p, CHANGED(attn_model_pass, *pass, kept_size--), logits), ATTN_WORKSPACE_TOO_SMALL,
            "pass.kept_size is");
    REFUSES(m, TRAIN(c, w, p, CHANGED(attn_model_pass, *pass, num_threads = -1), logits), ATTN_INVALID_ARGUMENT,
            "num_threads is -1");
    REFUSES(m, TRAIN(c, w, p, pass, NULL), ATTN_INVALID_ARGUMENT, "logits is NULL; expected a tensor");
    REFUSES(m, TRAIN(c, w, p, pass, CHANGED(attn_tensor, *logits, shape[2]++)), ATTN_SHAPE_MISMATCH, "logits.shape[2]");
    REFUSES(m, TRAIN(c, w, p, pass, CHANGED(attn_tensor, *logits, data = w->decoder[1]->w_up.data)),
            ATTN_INVALID_ARGUMENT, "logits overlaps weights.decoder[1]");
    char byte;
    REFUSES(m, train(&x, &byte, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 1");
    REFUSES(m, BACKWARD(CHANGED(attn_model_pass, *pass, kept = NULL), d, g), ATTN_INVALID_ARGUMENT,
            "pass.kept is NULL; expected what attn_transformer_train() has filled");
    REFUSES(m, BACKWARD(pass, NULL, g), ATTN_INVALID_ARGUMENT, "d_logits is NULL");
    REFUSES(m, BACKWARD(pass, CHANGED(attn_tensor, *d, dtype = ATTN_BF16), g), ATTN_UNSUPPORTED,
            "d_logits.dtype is bf16");
    REFUSES(m, BACKWARD(pass, d, NULL), ATTN_INVALID_ARGUMENT, "gradients is NULL");
    const attn_transformer_weights none = attn_transformer_weights_default();
    REFUSES(m, BACKWARD(pass, d, &none), ATTN_INVALID_ARGUMENT, "gradients has nothing to write");
    REFUSES(m, BACKWARD(pass, d, CHANGED(attn_transformer_weights, *g, generator.dtype = ATTN_F16)),
            ATTN_INVALID_ARGUMENT, "gradients.generator.dtype is f16");
    layers[0] = g->decoder[0], layers[1] = g->decoder[0];
    REFUSES(m, BACKWARD(pass, d, CHANGED(attn_transformer_weights, *g, decoder = layers)), ATTN_INVALID_ARGUMENT,
            "gradients.decoder[|overlaps gradients.decoder[");
    attn_block_weights over = *g->decoder[1];
    over.w_up.data = w->decoder[0]->w_up.data;
    layers[1] = &over;
    REFUSES(m, BACKWARD(pass, d, CHANGED(attn_transformer_weights, *g, decoder = layers)), ATTN_INVALID_ARGUMENT,
            "gradients.decoder[1] overlaps weights.decoder[0]");
    /* Only weights that are shared may share their gradients. */
#define ADD(g) attn_transformer_backward(c, w, p, pass, d, g, 1, NULL, 0)
    REFUSES(m, ADD(CHANGED(attn_transformer_weights, *g, generator = g->target_embedding)), ATTN_INVALID_ARGUMENT,
            "gradients.|overlaps gradients.");
    if (c->final_norms) {
        REFUSES(m, ADD(CHANGED(attn_transformer_weights, *g, decoder_beta = g->decoder_gamma)), ATTN_INVALID_ARGUMENT,
                "gradients.decoder_|overlaps gradients.decoder_");
        REFUSES(m, ADD(CHANGED(attn_transformer_weights, *g, encoder_beta = g->encoder_gamma)), ATTN_INVALID_ARGUMENT,
                "gradients.encoder_|overlaps gradients.encoder_");
    }
    assert_true(attn_transformer_kept_size(NULL, 1, 1, ATTN_KEEP_ALL) == SIZE_MAX);
    assert_true(attn_transformer_kept_size(c, -1, 1, ATTN_KEEP_ALL) == SIZE_MAX);
    assert_true(attn_transformer_kept_size(c, 1, 1, (attn_keep)2) == SIZE_MAX);
    assert_true(attn_transformer_kept_size(c, INT64_MAX, 1, ATTN_KEEP_INPUTS) == SIZE_MAX);
    assert_true(attn_transformer_training_workspace_size(c, 1, 1, -1, NULL) == SIZE_MAX);
    assert_true(attn_transformer_training_workspace_size(c, 1, INT64_MAX, 1, NULL) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_differences),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
