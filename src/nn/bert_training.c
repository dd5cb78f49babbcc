/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BERT in training: embeddings, whose sums are kept as their norm reads them,
 * and a stack of layers.
 */
#include "nn/bert.h"

#include "nn/check.h"
#include "nn/elementwise.h"
#include "nn/product_rows.h"
#include "nn/stack_training.h"

/** Tensors that belong to no layer. */
enum { WORDS, POSITIONS, TYPES, GAMMA, BETA, TENSORS };

struct bert_run {
    struct nn_model_run model; /* first, see struct nn_model_kind */
    attn_bert_config config;   /* completed */
    attn_mha_config attention;
    attn_bert_weights weights, gradients;
    struct nn_stack stack;
    const int64_t *offsets;
    const int32_t *ids;

    void *embedded;             /* [tokens][d_model] sums of embeddings; kept */
    int32_t *positions, *types; /* [tokens] */
    float *d;                   /* [tokens][d_model] */
};

/* ------------------------------------------------------------ config, memory -- */

/** A run of a config, of so many sequences and tokens. */
static attn_status take_config(struct bert_run *r, const attn_bert_config *config, int64_t num_sequences,
                               int64_t tokens)
{
    static const int64_t no_offsets[1] = {0}; /* only looked at when a call runs */
    CHECK(nn_complete_bert_config(&r->config, config));
    if (r->config.token_types < 0)
        return attn_fail(ATTN_UNSUPPORTED, "config.token_types is -1; expected 0 or more in training");
    CHECK(nn_model_check_format(r->config.format));
    const int64_t *offsets = r->offsets ? r->offsets : no_offsets;
    r->model.layers = r->config.layers;
    r->model.dtype = r->config.activations;
    r->stack = (struct nn_stack){
        .run = &r->model,
        .name = "layers",
        .config = nn_bert_layer(&r->config, &r->attention),
        .layers = r->config.layers,
        .tokens = tokens,
        .self = {num_sequences, offsets, offsets},
    };
    r->model.most_arrays = nn_stack_arrays(&r->stack) + 2 * TENSORS;
    return nn_stack_check_config(&r->stack);
}

static void take_kept(struct nn_arena *arena, struct nn_model_run *run, int is_kept)
{
    struct bert_run *r = (struct bert_run *)run;
    r->embedded = nn_take(arena, r->stack.tokens, r->config.d_model, 1, attn_dtype_size(run->dtype));
    nn_stack_take(arena, &r->stack, is_kept);
}

static void take_pieces(struct nn_arena *arena, struct nn_model_run *run)
{
    struct bert_run *r = (struct bert_run *)run;
    const int64_t tokens = r->stack.tokens;
    r->positions = nn_take(arena, tokens, 1, 1, sizeof *r->positions);
    if (!run->is_backward)
        return;
    r->types = nn_take(arena, tokens, 1, 1, sizeof *r->types);
    r->d = nn_take(arena, tokens, r->config.d_model, 1, sizeof *r->d);
}

static attn_status measure_scratch(const struct nn_model_run *run, struct nn_need *need)
{
    const struct bert_run *r = (const struct bert_run *)run;
    const size_t norm = nn_model_norm_need(r->stack.tokens, r->config.d_model);
    CHECK(nn_stack_need(&r->stack, need));
    *need = nn_larger_need(*need, (struct nn_need){norm, norm});
    return ATTN_OK;
}

/* -------------------------------------------------------------------- checks -- */

static attn_status take_call(struct bert_run *r, const attn_bert_config *config, const attn_bert_weights *weights,
                             int64_t num_sequences, const int64_t *offsets, const int32_t *ids,
                             const attn_model_pass *pass)
{
    attn_bert_config completed;
    CHECK(nn_complete_bert_config(&completed, config));
    CHECK(nn_bert_check_sequences(&completed, num_sequences, offsets, ids));
    r->offsets = offsets;
    r->ids = ids;
    CHECK(nn_model_take_pass(&r->model, pass));
    CHECK(take_config(r, config, num_sequences, offsets[num_sequences]));
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected an attn_bert_weights");
    CHECK(attn_take_struct("weights", &r->weights, sizeof r->weights, NN_BERT_WEIGHTS_FIRST, weights));
    r->stack.weights = r->weights.layers;
    return ATTN_OK;
}

static attn_status check_tensors(struct nn_model_run *run)
{
    struct bert_run *r = (struct bert_run *)run;
    const attn_bert_weights *w = &r->weights, *g = &r->gradients;
    const attn_bert_config *c = &r->config;
    const struct nn_model_tensor tensors[TENSORS] = {
        [WORDS] = {"words", &w->words, &g->words, c->vocabulary, c->d_model, 1},
        [POSITIONS] = {"positions", &w->positions, &g->positions, c->positions, c->d_model, 1},
        [TYPES] = {"types", &w->types, &g->types, c->token_types, c->d_model, 1},
        [GAMMA] = {"gamma", &w->gamma, &g->gamma, 0, c->d_model, 0},
        [BETA] = {"beta", &w->beta, &g->beta, 0, c->d_model, 0},
    };
    const attn_tensor d = nn_model_rows(r->d, ATTN_F32, r->stack.tokens, c->d_model);
    CHECK(nn_model_check_tensors(run, tensors, TENSORS));
    return nn_stack_check(&r->stack, &d, &run->arrays);
}

/* -------------------------------------------------------------------- passes -- */

static attn_status run_forward(struct nn_model_run *run)
{
    const struct bert_run *r = (const struct bert_run *)run;
    const attn_bert_weights *w = &r->weights;
    const int64_t tokens = r->stack.tokens, d_model = r->config.d_model;
    const int threads = r->model.pass.num_threads;
    const attn_tensor sums = nn_model_rows(r->embedded, r->model.dtype, tokens, d_model);
    const attn_tensor first = r->config.layers ? nn_stack_input(&r->stack, 0) : *run->result;
    attn_tensor kind = w->types;
    kind.shape[2] = 1;
    const struct nn_lookup lookup = {
        .table = &w->words,
        .ids = r->ids,
        .scale = 1,
        .places = &w->positions,
        .place_ids = r->positions,
        .kind = &kind,
    };
    nn_count_positions(r->stack.self.num_sequences, r->offsets, r->config.first_position, r->positions);
    nn_look_up(&lookup, &sums, threads);
    CHECK(nn_model_normalise(&r->model, &sums, &w->gamma, &w->beta, r->config.eps, &first));
    CHECK(nn_model_drop(&r->model, NN_PLACE_EMBEDDED, &first));
    return nn_stack_forward(&r->stack);
}

static int wants_embeddings(const attn_bert_weights *g)
{
    return g->words.data || g->positions.data || g->types.data || g->gamma.data || g->beta.data;
}

static attn_status embed_back(const struct bert_run *r, const int32_t *ids, const attn_tensor *d, const attn_tensor *to)
{
    return to->data ? attn_embed_backward(ids, 1, d, to, r->model.accumulate, r->model.pass.num_threads) : ATTN_OK;
}

static attn_status run_backward(struct nn_model_run *run)
{
    const struct bert_run *r = (const struct bert_run *)run;
    const attn_bert_weights *w = &r->weights, *g = &r->gradients;
    const int64_t tokens = r->stack.tokens, d_model = r->config.d_model;
    const int embeddings = wants_embeddings(g);
    const attn_tensor sums = nn_model_rows(r->embedded, r->model.dtype, tokens, d_model);
    const attn_tensor d = nn_model_rows(r->d, ATTN_F32, tokens, d_model);
    nn_finish_rows(&(struct nn_finish){.from = run->result, .to = &d}, r->model.pass.num_threads);
    CHECK(nn_stack_backward(&r->stack, embeddings ? 0 : nn_stack_lowest(&r->stack), &d));
    if (!embeddings)
        return ATTN_OK;
    CHECK(nn_model_drop(&r->model, NN_PLACE_EMBEDDED, &d));
    CHECK(nn_model_normalise_back(&r->model, &sums, &w->gamma, r->config.eps, &d, &g->gamma, &g->beta));
    nn_count_positions(r->stack.self.num_sequences, r->offsets, r->config.first_position, r->positions);
    memset(r->types, 0, (size_t)tokens * sizeof *r->types);
    CHECK(embed_back(r, r->ids, &d, &g->words));
    CHECK(embed_back(r, r->positions, &d, &g->positions));
    return embed_back(r, r->types, &d, &g->types);
}

/* ---------------------------------------------------------- the public calls -- */

static const struct nn_model_kind bert = {
    .take_kept = take_kept,
    .take_pieces = take_pieces,
    .measure_scratch = measure_scratch,
    .check_tensors = check_tensors,
    .run_forward = run_forward,
    .run_backward = run_backward,
};

size_t attn_bert_kept_size(const attn_bert_config *config, int64_t tokens, attn_keep keep)
{
    struct bert_run r = {.model = {.kind = &bert}};
    attn_model_pass pass = attn_model_pass_default();
    pass.keep = keep;
    if (nn_model_take_pass(&r.model, &pass) || nn_check_length("tokens", tokens, 0) ||
        take_config(&r, config, 1, tokens))
        return SIZE_MAX;
    return nn_model_kept_size(&r.model);
}

size_t attn_bert_training_workspace_size(const attn_bert_config *config, int64_t num_sequences, int64_t tokens,
                                         const attn_model_pass *pass)
{
    struct bert_run r = {.model = {.kind = &bert}};
    if (nn_model_take_pass(&r.model, pass) || nn_check_length("num_sequences", num_sequences, 0) ||
        nn_check_length("tokens", tokens, 0) || take_config(&r, config, num_sequences, tokens))
        return SIZE_MAX;
    return nn_model_workspace_size(&r.model);
}

attn_status attn_bert_train(const attn_bert_config *config, const attn_bert_weights *weights, int64_t num_sequences,
                            const int64_t *offsets, const int32_t *ids, const attn_model_pass *pass,
                            const attn_tensor *hidden, void *workspace, size_t workspace_size)
{
    struct bert_run r = {.model = {.kind = &bert, .result_name = "hidden", .result = hidden}};
    CHECK(take_call(&r, config, weights, num_sequences, offsets, ids, pass));
    CHECK(nn_check_typed_output("hidden", hidden, 1, r.stack.tokens, r.config.d_model));
    r.stack.out = hidden;
    return nn_model_run_pass(&r.model, workspace, workspace_size);
}

attn_status attn_bert_backward(const attn_bert_config *config, const attn_bert_weights *weights, int64_t num_sequences,
                               const int64_t *offsets, const int32_t *ids, const attn_model_pass *pass,
                               const attn_tensor *d_hidden, const attn_bert_weights *gradients, int accumulate,
                               void *workspace, size_t workspace_size)
{
    struct bert_run r = {
        .model = {
            .kind = &bert, .is_backward = 1, .accumulate = accumulate, .result_name = "d_hidden", .result = d_hidden}};
    CHECK(take_call(&r, config, weights, num_sequences, offsets, ids, pass));
    CHECK(nn_model_check_kept(&r.model, "attn_bert_train"));
    CHECK(nn_check_typed_activations("d_hidden", d_hidden, 1, r.stack.tokens, r.config.d_model));
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected where to put what is wanted");
    CHECK(attn_take_struct("gradients", &r.gradients, sizeof r.gradients, NN_BERT_WEIGHTS_FIRST, gradients));
    r.stack.gradients = r.gradients.layers;
    if (!wants_embeddings(&r.gradients) && nn_stack_lowest(&r.stack) == r.stack.layers)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients has nothing to write; expected a tensor or a layer");
    return nn_model_run_pass(&r.model, workspace, workspace_size);
}
