/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder-decoder in training: two sides, each with embeddings, a stack of
 * layers and, with final norms, a norm; then the generator. The encoder's states
 * after its norm are the memory of the decoder, and the gradient of memory is
 * the sum over the decoder's layers.
 */
#include "nn/transformer.h"

#include "nn/check.h"
#include "nn/elementwise.h"
#include "nn/linear_backward.h"
#include "nn/product_rows.h"
#include "nn/stack_training.h"

enum { ENCODER, DECODER, SIDES };

/** Tensors that belong to no layer. */
enum { TENSORS = 8 };

/** An encoder or a decoder in a pass. */
struct side {
    struct nn_stack stack;
    const int32_t *ids;
    const int64_t *offsets;
    const attn_tensor *table, *gamma, *beta;       /* weights */
    const attn_tensor *d_table, *d_gamma, *d_beta; /* where gradients go */
    void *sums, *states; /* [tokens][d_model]: what the last norm reads, and gives; one without that norm. Kept */
    attn_tensor out;     /* of the stack: sums */
    float *d;            /* [tokens][d_model]: the gradient of states, and of what comes before */
};

struct transformer_run {
    struct nn_model_run model;      /* first, see struct nn_model_kind */
    attn_transformer_config config; /* completed */
    attn_mha_config attention[SIDES];
    attn_transformer_weights weights, gradients;
    attn_transformer_pairs pairs;
    struct side side[SIDES];
    attn_tensor memory, d_memory;

    int32_t *places;  /* [tokens of either side] */
    float *sinusoids; /* [places][d_model] */
    int64_t num_places;
    float *turned, *bias; /* the generator's */
};

/* ------------------------------------------------------------ config, memory -- */

static void set_side(struct transformer_run *r, int which, int64_t tokens, const int64_t *offsets)
{
    static const int64_t no_offsets[1] = {0}; /* only looked at when a call runs */
    const attn_transformer_config *c = &r->config;
    const int decodes = which == DECODER;
    struct side *s = &r->side[which];
    s->offsets = offsets ? offsets : no_offsets;
    s->stack = (struct nn_stack){
        .run = &r->model,
        .name = decodes ? "decoder" : "encoder",
        .config = nn_transformer_layer(c, decodes, &r->attention[which]),
        .layers = decodes ? c->decoder_layers : c->encoder_layers,
        .before = decodes ? c->encoder_layers : 0,
        .tokens = tokens,
        .self = {r->pairs.num_pairs, s->offsets, s->offsets},
        .causal = decodes ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE,
        .out = &s->out,
    };
    if (!decodes)
        return;
    const struct side *encoder = &r->side[ENCODER];
    s->stack.memory_tokens = encoder->stack.tokens;
    s->stack.cross = (attn_ragged){r->pairs.num_pairs, s->offsets, encoder->offsets};
    s->stack.memory = &r->memory;
}

static attn_status take_config(struct transformer_run *r, const attn_transformer_config *config)
{
    CHECK(nn_complete_transformer_config(&r->config, config));
    CHECK(nn_model_check_format(r->config.format));
    r->model.layers = r->config.encoder_layers + r->config.decoder_layers;
    r->model.dtype = r->config.activations;
    return ATTN_OK;
}

/** Both sides, of so many tokens. */
static attn_status set_sides(struct transformer_run *r, int64_t source_tokens, int64_t target_tokens)
{
    set_side(r, ENCODER, source_tokens, r->pairs.source_offsets);
    set_side(r, DECODER, target_tokens, r->pairs.target_offsets);
    r->model.most_arrays =
        nn_stack_arrays(&r->side[ENCODER].stack) + nn_stack_arrays(&r->side[DECODER].stack) + 2 * TENSORS;
    return nn_stack_check_config(&r->side[DECODER].stack);
}

static attn_tensor rows_of(const struct transformer_run *r, const struct side *s, void *data, attn_dtype dtype)
{
    return nn_model_rows(data, dtype, s->stack.tokens, r->config.d_model);
}

/** A decoder's states after the norm are not kept: the generator alone reads them, and they cost little. */
static void take_kept(struct nn_arena *arena, struct nn_model_run *run, int is_kept)
{
    struct transformer_run *r = (struct transformer_run *)run;
    const int64_t d_model = r->config.d_model;
    const size_t size = attn_dtype_size(r->model.dtype);
    for (int i = ENCODER; i < SIDES; i++) {
        struct side *s = &r->side[i];
        nn_stack_take(arena, &s->stack, is_kept);
        s->sums = s->states = nn_take(arena, s->stack.tokens, d_model, 1, size);
        if (r->config.final_norms && i == ENCODER)
            s->states = nn_take(arena, s->stack.tokens, d_model, 1, size);
        s->out = rows_of(r, s, s->sums, r->model.dtype);
    }
    r->memory = rows_of(r, &r->side[ENCODER], r->side[ENCODER].states, r->model.dtype);
}

static attn_status measure_scratch(const struct nn_model_run *run, struct nn_need *need)
{
    const struct transformer_run *r = (const struct transformer_run *)run;
    *need = nn_linear_backward_need(r->model.pass.num_threads);
    for (int i = ENCODER; i < SIDES; i++) {
        struct nn_need layer;
        const size_t norm = nn_model_norm_need(r->side[i].stack.tokens, r->config.d_model);
        CHECK(nn_stack_need(&r->side[i].stack, &layer));
        *need = nn_larger_need(*need, nn_larger_need(layer, (struct nn_need){norm, norm}));
    }
    return ATTN_OK;
}

static void take_pieces(struct nn_arena *arena, struct nn_model_run *run)
{
    struct transformer_run *r = (struct transformer_run *)run;
    const attn_transformer_config *c = &r->config;
    struct side *encoder = &r->side[ENCODER], *decoder = &r->side[DECODER];
    const int64_t source = encoder->stack.tokens, target = decoder->stack.tokens;
    if (c->final_norms)
        decoder->states = nn_take(arena, target, c->d_model, 1, attn_dtype_size(run->dtype));
    if (run->is_backward) {
        encoder->d = nn_take(arena, source, c->d_model, 1, sizeof(float));
        decoder->d = nn_take(arena, target, c->d_model, 1, sizeof(float));
    } else {
        r->places = nn_take(arena, source > target ? source : target, 1, 1, sizeof *r->places);
        r->sinusoids = nn_take(arena, r->num_places, c->d_model, 1, sizeof *r->sinusoids);
        r->turned = nn_take(arena, c->target_vocabulary, c->d_model, 1, sizeof *r->turned);
        r->bias = nn_take(arena, c->target_vocabulary, 1, 1, sizeof *r->bias);
    }
}

/* -------------------------------------------------------------------- checks -- */

/** Whether there is a gradient to write of what comes before the layers of a side. */
static int wants_table(const struct side *s)
{
    return s->d_table->data != NULL;
}

/** Whether there is one to write anywhere on a side. */
static int wants_side(const struct side *s)
{
    return wants_table(s) || s->d_gamma->data || s->d_beta->data || nn_stack_lowest(&s->stack) < s->stack.layers;
}

static attn_status check_pairs(const attn_transformer_config *c, const attn_transformer_pairs *p)
{
    CHECK(nn_check_length("pairs.num_pairs", p->num_pairs, 0));
    CHECK(nn_check_offsets("pairs.source_offsets", p->num_pairs, p->source_offsets));
    CHECK(nn_check_sequences("pairs.source_offsets", p->num_pairs, p->source_offsets, c->positions));
    CHECK(nn_check_offsets("pairs.target_offsets", p->num_pairs, p->target_offsets));
    CHECK(nn_check_sequences("pairs.target_offsets", p->num_pairs, p->target_offsets, c->positions));
    CHECK(nn_check_ids("pairs.source_ids", p->source_ids, 0, p->source_offsets[p->num_pairs], c->source_vocabulary));
    return nn_check_ids("pairs.target_ids", p->target_ids, 0, p->target_offsets[p->num_pairs], c->target_vocabulary);
}

static int64_t longest_of(int64_t num_sequences, const int64_t *offsets)
{
    int64_t longest = 0;
    for (int64_t s = 0; s < num_sequences; s++)
        longest = offsets[s + 1] - offsets[s] > longest ? offsets[s + 1] - offsets[s] : longest;
    return longest;
}

/** Weights or, if they have been taken, gradients of the sides. */
static void place_weights(struct transformer_run *r)
{
    const attn_transformer_weights *w = &r->weights, *g = &r->gradients;
    struct side *encoder = &r->side[ENCODER], *decoder = &r->side[DECODER];
    encoder->stack.weights = w->encoder, encoder->stack.gradients = g->encoder;
    encoder->table = &w->source_embedding, encoder->d_table = &g->source_embedding;
    encoder->gamma = &w->encoder_gamma, encoder->d_gamma = &g->encoder_gamma;
    encoder->beta = &w->encoder_beta, encoder->d_beta = &g->encoder_beta;
    decoder->stack.weights = w->decoder, decoder->stack.gradients = g->decoder;
    decoder->table = &w->target_embedding, decoder->d_table = &g->target_embedding;
    decoder->gamma = &w->decoder_gamma, decoder->d_gamma = &g->decoder_gamma;
    decoder->beta = &w->decoder_beta, decoder->d_beta = &g->decoder_beta;
}

static attn_status take_call(struct transformer_run *r, const attn_transformer_config *config,
                             const attn_transformer_weights *weights, const attn_transformer_pairs *pairs,
                             const attn_model_pass *pass)
{
    attn_transformer_pairs *p = &r->pairs;
    CHECK(take_config(r, config));
    CHECK(attn_take_struct("pairs", p, sizeof *p, NN_TRANSFORMER_PAIRS_FIRST, pairs));
    CHECK(check_pairs(&r->config, p));
    CHECK(nn_model_take_pass(&r->model, pass));
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected an attn_transformer_weights");
    CHECK(attn_take_struct("weights", &r->weights, sizeof r->weights, NN_TRANSFORMER_WEIGHTS_FIRST, weights));
    const int64_t source = longest_of(p->num_pairs, p->source_offsets);
    const int64_t target = longest_of(p->num_pairs, p->target_offsets);
    r->num_places = source > target ? source : target;
    CHECK(set_sides(r, p->source_offsets[p->num_pairs], p->target_offsets[p->num_pairs]));
    r->side[ENCODER].ids = p->source_ids;
    r->side[DECODER].ids = p->target_ids;
    place_weights(r);
    return ATTN_OK;
}

/** That norms have no tensors where the config says that there are none. */
static attn_status check_no_norms(const struct transformer_run *r)
{
    static const char *const names[SIDES] = {"encoder", "decoder"};
    for (int i = ENCODER; !r->config.final_norms && i < SIDES; i++) {
        const struct side *s = &r->side[i];
        if (s->gamma->data || s->beta->data || s->d_gamma->data || s->d_beta->data)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "%s_gamma or %s_beta has data; expected NULL without config.final_norms", names[i],
                             names[i]);
    }
    return ATTN_OK;
}

static attn_status check_tensors(struct nn_model_run *run)
{
    struct transformer_run *r = (struct transformer_run *)run;
    const attn_transformer_weights *w = &r->weights, *g = &r->gradients;
    const attn_transformer_config *c = &r->config;
    const int64_t d = c->d_model;
    const struct nn_model_tensor tensors[TENSORS] = {
        {"source_embedding", &w->source_embedding, &g->source_embedding, c->source_vocabulary, d, 1},
        {"target_embedding", &w->target_embedding, &g->target_embedding, c->target_vocabulary, d, 1},
        {"encoder_gamma", &w->encoder_gamma, &g->encoder_gamma, 0, d, 0},
        {"encoder_beta", &w->encoder_beta, &g->encoder_beta, 0, d, 0},
        {"decoder_gamma", &w->decoder_gamma, &g->decoder_gamma, 0, d, 0},
        {"decoder_beta", &w->decoder_beta, &g->decoder_beta, 0, d, 0},
        {"generator", &w->generator, &g->generator, c->target_vocabulary, d, 0},
        {"generator_bias", &w->generator_bias, &g->generator_bias, 0, c->target_vocabulary, 0},
    };
    CHECK(check_no_norms(r));
    CHECK(nn_model_check_tensors(run, tensors, TENSORS));
    r->d_memory = rows_of(r, &r->side[ENCODER], r->side[ENCODER].d, ATTN_F32);
    if (run->is_backward && wants_side(&r->side[ENCODER]))
        r->side[DECODER].stack.d_memory = &r->d_memory;
    for (int i = ENCODER; i < SIDES; i++) {
        const attn_tensor d_out = rows_of(r, &r->side[i], r->side[i].d, ATTN_F32);
        CHECK(nn_stack_check(&r->side[i].stack, &d_out, &run->arrays));
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------- forward pass -- */

static attn_status normalise(const struct transformer_run *r, const struct side *s)
{
    const attn_tensor states = rows_of(r, s, s->states, r->model.dtype);
    return r->config.final_norms ? nn_model_normalise(&r->model, &s->out, s->gamma, s->beta, r->config.eps, &states)
                                 : ATTN_OK;
}

static attn_status run_side(const struct transformer_run *r, int which)
{
    const struct side *s = &r->side[which];
    const attn_tensor first = s->stack.layers ? nn_stack_input(&s->stack, 0) : s->out;
    const attn_tensor sinusoids = attn_matrix(r->sinusoids, r->num_places, r->config.d_model);
    const struct nn_lookup lookup = {
        .table = s->table,
        .ids = s->ids,
        .scale = nn_transformer_scale(&r->config),
        .places = &sinusoids,
        .place_ids = r->places,
    };
    nn_count_positions(r->pairs.num_pairs, s->offsets, 0, r->places);
    nn_look_up(&lookup, &first, r->model.pass.num_threads);
    CHECK(nn_model_drop(&r->model, which == DECODER ? NN_PLACE_DECODER : NN_PLACE_EMBEDDED, &first));
    CHECK(nn_stack_forward(&s->stack));
    return normalise(r, s);
}

static struct nn_product_place place_of(const struct transformer_run *r)
{
    return (struct nn_product_place){r->model.pass.num_threads, r->model.scratch, r->model.scratch_size};
}

static attn_status run_forward(struct nn_model_run *run)
{
    const struct transformer_run *r = (const struct transformer_run *)run;
    const struct side *decoder = &r->side[DECODER];
    const attn_tensor states = rows_of(r, decoder, decoder->states, r->model.dtype);
    const struct nn_product_place place = place_of(r);
    CHECK(attn_sinusoidal(NULL, r->num_places, r->config.d_model, r->sinusoids));
    CHECK(run_side(r, ENCODER));
    CHECK(run_side(r, DECODER));
    nn_take_bias(r->bias, &r->weights.generator_bias, r->config.target_vocabulary);
    nn_multiply_rows(&place, &states, &r->weights.generator, r->turned, run->result, 0);
    nn_finish_rows(&(struct nn_finish){.from = run->result, .to = run->result, .bias = r->bias}, place.num_threads);
    return ATTN_OK;
}

/* ------------------------------------------------------------ backward pass -- */

static attn_status generate_back(const struct transformer_run *r, const attn_tensor *d)
{
    const struct side *decoder = &r->side[DECODER];
    const attn_tensor states = rows_of(r, decoder, decoder->states, r->model.dtype);
    const struct nn_product_place place = place_of(r);
    attn_linear_gradients g = attn_linear_gradients_default();
    g.weights = nn_wanted(&r->gradients.generator);
    g.bias = nn_wanted(&r->gradients.generator_bias);
    g.accumulate = r->model.accumulate;
    g.num_threads = place.num_threads;
    CHECK(normalise(r, decoder));
    if (g.weights || g.bias)
        nn_linear_backward(&r->weights.generator, &states, r->model.result, &g, place.scratch, place.size);
    nn_multiply_back(&place, r->model.result, &r->weights.generator, d, 0);
    return ATTN_OK;
}

/** From the gradient of the states of a side to those of its weights. to_end: all layers have to be gone through. */
static attn_status side_back(const struct transformer_run *r, int which, int to_end)
{
    const struct side *s = &r->side[which];
    const attn_tensor d = rows_of(r, s, s->d, ATTN_F32);
    if (r->config.final_norms)
        CHECK(nn_model_normalise_back(&r->model, &s->out, s->gamma, r->config.eps, &d, s->d_gamma, s->d_beta));
    CHECK(nn_stack_backward(&s->stack, to_end || wants_table(s) ? 0 : nn_stack_lowest(&s->stack), &d));
    if (!wants_table(s))
        return ATTN_OK;
    CHECK(nn_model_drop(&r->model, which == DECODER ? NN_PLACE_DECODER : NN_PLACE_EMBEDDED, &d));
    return attn_embed_backward(s->ids, nn_transformer_scale(&r->config), &d, s->d_table, r->model.accumulate,
                               r->model.pass.num_threads);
}

static attn_status run_backward(struct nn_model_run *run)
{
    struct transformer_run *r = (struct transformer_run *)run;
    struct side *encoder = &r->side[ENCODER], *decoder = &r->side[DECODER];
    const attn_tensor d = rows_of(r, decoder, decoder->d, ATTN_F32);
    const int needs_memory = wants_side(encoder);
    CHECK(generate_back(r, &d));
    if (!needs_memory && !wants_side(decoder))
        return ATTN_OK;
    CHECK(side_back(r, DECODER, needs_memory));
    return needs_memory ? side_back(r, ENCODER, 0) : ATTN_OK;
}

/* ---------------------------------------------------------- the public calls -- */

static const struct nn_model_kind transformer = {
    .take_kept = take_kept,
    .take_pieces = take_pieces,
    .measure_scratch = measure_scratch,
    .check_tensors = check_tensors,
    .run_forward = run_forward,
    .run_backward = run_backward,
};

size_t attn_transformer_kept_size(const attn_transformer_config *config, int64_t source_tokens, int64_t target_tokens,
                                  attn_keep keep)
{
    struct transformer_run r = {.model = {.kind = &transformer}, .pairs = {.num_pairs = 1}};
    attn_model_pass pass = attn_model_pass_default();
    pass.keep = keep;
    if (nn_model_take_pass(&r.model, &pass) || nn_check_length("source_tokens", source_tokens, 0) ||
        nn_check_length("target_tokens", target_tokens, 0) || take_config(&r, config) ||
        set_sides(&r, source_tokens, target_tokens))
        return SIZE_MAX;
    return nn_model_kept_size(&r.model);
}

size_t attn_transformer_training_workspace_size(const attn_transformer_config *config, int64_t num_pairs,
                                                int64_t source_tokens, int64_t target_tokens,
                                                const attn_model_pass *pass)
{
    struct transformer_run r = {.model = {.kind = &transformer}, .pairs = {.num_pairs = num_pairs}};
    if (nn_model_take_pass(&r.model, pass) || nn_check_length("num_pairs", num_pairs, 0) ||
        nn_check_length("source_tokens", source_tokens, 0) || nn_check_length("target_tokens", target_tokens, 0) ||
        take_config(&r, config) || set_sides(&r, source_tokens, target_tokens))
        return SIZE_MAX;
    const int64_t longer = source_tokens > target_tokens ? source_tokens : target_tokens;
    r.num_places = longer < r.config.positions ? longer : r.config.positions;
    return nn_model_workspace_size(&r.model);
}

attn_status attn_transformer_train(const attn_transformer_config *config, const attn_transformer_weights *weights,
                                   const attn_transformer_pairs *pairs, const attn_model_pass *pass,
                                   const attn_tensor *logits, void *workspace, size_t workspace_size)
{
    struct transformer_run r = {.model = {.kind = &transformer, .result_name = "logits", .result = logits}};
    CHECK(take_call(&r, config, weights, pairs, pass));
    CHECK(nn_check_output("logits", logits, 1, r.side[DECODER].stack.tokens, r.config.target_vocabulary));
    return nn_model_run_pass(&r.model, workspace, workspace_size);
}

attn_status attn_transformer_backward(const attn_transformer_config *config, const attn_transformer_weights *weights,
                                      const attn_transformer_pairs *pairs, const attn_model_pass *pass,
                                      const attn_tensor *d_logits, const attn_transformer_weights *gradients,
                                      int accumulate, void *workspace, size_t workspace_size)
{
    struct transformer_run r = {.model = {.kind = &transformer,
                                          .is_backward = 1,
                                          .accumulate = accumulate,
                                          .result_name = "d_logits",
                                          .result = d_logits}};
    const attn_transformer_weights *g = &r.gradients;
    CHECK(take_call(&r, config, weights, pairs, pass));
    CHECK(nn_model_check_kept(&r.model, "attn_transformer_train"));
    CHECK(nn_check_activations("d_logits", d_logits, 1, r.side[DECODER].stack.tokens, r.config.target_vocabulary));
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected where to put what is wanted");
    CHECK(attn_take_struct("gradients", &r.gradients, sizeof r.gradients, NN_TRANSFORMER_WEIGHTS_FIRST, gradients));
    place_weights(&r);
    if (!g->generator.data && !g->generator_bias.data && !wants_side(&r.side[ENCODER]) && !wants_side(&r.side[DECODER]))
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients has nothing to write; expected a tensor or a layer");
    return nn_model_run_pass(&r.model, workspace, workspace_size);
}
