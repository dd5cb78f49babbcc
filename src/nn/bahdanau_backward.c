/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of a step of Bahdanau's decoder. The step runs again, on weights
 * as they lie, up to the sums of its gates; then
 *
 *     d_x, d_h of the gates' sums, and what of d_s' goes past them    element by element
 *     d_W = d_xᵀ input,  d_U = d_hᵀ s,  biases likewise
 *     d_input = d_x W,  d_s += d_h U                                  d_input: of the word, and of the context
 *     additive attention with d_context: d_s += W_qᵀ .., keys, values, weights
 */
#include "nn/additive.h"
#include "nn/additive_backward.h"
#include "nn/bahdanau.h"

#include "driver/ranges.h"
#include "nn/check.h"
#include "nn/linear_backward.h"
#include "nn/product_rows.h"
#include "nn/tensor_rows.h"

/* Operations of a unit for each channel, in the units of nn_threads(). */
#define UNIT_OPERATIONS 60

/** Working memory. */
struct pieces {
    float *input, *d_input;     /* [B][embedding + annotation] */
    float *from_x, *from_h;     /* [B][3*hidden]: sums of the gates, then their gradients */
    float *bias_x, *bias_h;     /* [3*hidden] */
    float *turned_x, *turned_h; /* w_ih and w_hh with rows and columns exchanged */
    float *score;               /* [d_attention] the vector of the score, in base 2 */
    struct nn_additive_gradient_pieces attention;
    void *context; /* memory of the forward pass's attention */
    size_t context_size;
};

/** A call. */
struct call {
    attn_bahdanau_config config;
    attn_alignment_config alignment;
    const attn_tensor *word, *projected, *annotations, *state, *d_context;
    const int64_t *lengths;
    attn_bahdanau_gradients gradients;
    struct pieces pieces;
};

static int64_t width_of(const struct call *call)
{
    return call->config.embedding + call->config.annotation;
}

static attn_params params_of(const struct call *call)
{
    attn_params params = attn_params_default();
    params.kv_len = call->lengths;
    params.num_threads = call->gradients.num_threads;
    return params;
}

/** The attention of a step, of which only shapes are known. */
static struct attn_problem problem_of(const struct call *call, int64_t batch, int64_t tokens, const attn_params *params)
{
    const int64_t inner = call->alignment.d_attention, values = call->config.annotation;
    const attn_tensor q = {.shape = {batch, 1, 1, inner}}, k = {.shape = {batch, 1, tokens, inner}};
    const attn_tensor v = {.shape = {batch, 1, tokens, values}}, out = {.shape = {batch, 1, 1, values}};
    return nn_additive_problem(&q, &k, &v, &out, params);
}

static struct pieces take_pieces(struct nn_arena *arena, const struct call *call, int64_t batch, int64_t tokens)
{
    const attn_params params = params_of(call);
    const struct attn_problem problem = problem_of(call, batch, tokens, &params);
    const int64_t width = width_of(call), gates = 3 * call->config.hidden;
    struct pieces p = {0};
    p.input = nn_take(arena, batch, width, 1, sizeof(float));
    p.d_input = nn_take(arena, batch, width, 1, sizeof(float));
    p.from_x = nn_take(arena, batch, gates, 1, sizeof(float));
    p.from_h = nn_take(arena, batch, gates, 1, sizeof(float));
    p.bias_x = nn_take(arena, gates, 1, 1, sizeof(float));
    p.bias_h = nn_take(arena, gates, 1, 1, sizeof(float));
    p.turned_x = nn_take(arena, width, gates, 1, sizeof(float));
    p.turned_h = nn_take(arena, call->config.hidden, gates, 1, sizeof(float));
    p.score = nn_take(arena, call->alignment.d_attention, 1, 1, sizeof(float));
    p.attention = nn_take_additive_gradient(arena, &call->alignment, batch, 1, tokens, &params);
    p.context = nn_take_workspace(arena, nn_additive_need(&problem), &p.context_size);
    return p;
}

/* ------------------------------------------------------------------- a call -- */

static struct nn_product_place place_of(const struct call *call)
{
    const struct nn_additive_gradient_pieces *p = &call->pieces.attention;
    return (struct nn_product_place){call->gradients.num_threads, p->scratch, p->scratch_size};
}

/** The context of the annotations, in its place behind the word's. */
static void attend(const struct call *call, const attn_params *params)
{
    const struct pieces *p = &call->pieces;
    const attn_alignment_config *c = &call->alignment;
    const int64_t batch = call->word->shape[0];
    const double factor = 1.4426950408889634 / (c->temperature != 0.0f ? (double)c->temperature : 1.0);
    attn_tensor context = attn_btc(p->input + call->config.embedding, batch, 1, call->config.annotation);
    context.stride[0] = width_of(call);
    const attn_tensor part = attn_btc(p->attention.part, batch, 1, c->d_attention);
    for (int64_t i = 0; i < c->d_attention; i++)
        p->score[i] = (float)((double)nn_weight_at(&c->v, 0, i) * factor);
    const struct nn_product_place place = place_of(call);
    nn_multiply_rows(&place, call->state, &c->w_q, p->attention.turned, &part, 0);
    const struct attn_problem problem =
        nn_additive_problem(&part, call->projected, call->annotations, &context, params);
    nn_additive_run(&(struct nn_additive){.kernels = attn_nn_kernels_active(), .score = p->score, .problem = &problem},
                    p->context, p->context_size);
}

static void run_units(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    const struct pieces *p = &call->pieces;
    const int64_t hidden = call->config.hidden;
    for (int64_t b = first; b < end; b++)
        attn_nn_kernels_active()->gru_cell_backward(&(struct nn_gru_gradient_work){
            .x = p->from_x + b * 3 * hidden,
            .h = p->from_h + b * 3 * hidden,
            .bias_x = p->bias_x,
            .bias_h = p->bias_h,
            .state = nn_row_address(call->state, b, 0),
            .d_state = nn_row_address(call->gradients.state, b, 0),
            .n = hidden,
        });
}

/** The gradients of the gates' sums from that of the state. */
static void run_unit(const struct call *call)
{
    const struct pieces *p = &call->pieces;
    const attn_bahdanau_config *c = &call->config;
    const int64_t batch = call->word->shape[0];
    const int threads = call->gradients.num_threads;
    const attn_tensor input = attn_btc(p->input, batch, 1, width_of(call));
    const attn_tensor from_x = attn_btc(p->from_x, batch, 1, 3 * c->hidden);
    const attn_tensor from_h = attn_btc(p->from_h, batch, 1, 3 * c->hidden);
    for (int64_t b = 0; b < batch; b++)
        memcpy(p->input + b * width_of(call), nn_row_address(call->word, b, 0), (size_t)c->embedding * sizeof(float));
    nn_take_bias(p->bias_x, &c->b_ih, 3 * c->hidden);
    nn_take_bias(p->bias_h, &c->b_hh, 3 * c->hidden);
    const struct nn_product_place place = place_of(call);
    nn_multiply_rows(&place, &input, &c->w_ih, p->turned_x, &from_x, 0);
    nn_multiply_rows(&place, call->state, &c->w_hh, p->turned_h, &from_h, 0);
    attn_run_ranges(batch, nn_threads(threads, (double)batch * (double)c->hidden * UNIT_OPERATIONS), run_units, call);
}

/** What the gates' sums give to their weights, to the input and to the state. */
static void run_products(const struct call *call)
{
    const struct pieces *p = &call->pieces;
    const attn_bahdanau_config *c = &call->config;
    const attn_bahdanau_gradients *g = &call->gradients;
    const int64_t batch = call->word->shape[0];
    const attn_tensor input = attn_btc(p->input, batch, 1, width_of(call));
    const attn_tensor d_input = attn_btc(p->d_input, batch, 1, width_of(call));
    const attn_tensor d_x = attn_btc(p->from_x, batch, 1, 3 * c->hidden);
    const attn_tensor d_h = attn_btc(p->from_h, batch, 1, 3 * c->hidden);
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.accumulate = g->accumulate;
    gradients.num_threads = g->num_threads;
    gradients.x = &d_input;
    gradients.weights = g->w_ih;
    gradients.bias = g->b_ih;
    nn_linear_backward(&c->w_ih, &input, &d_x, &gradients, p->attention.scratch, p->attention.scratch_size);
    gradients.x = g->state;
    gradients.accumulate_x = 1;
    gradients.weights = g->w_hh;
    gradients.bias = g->b_hh;
    nn_linear_backward(&c->w_hh, call->state, &d_h, &gradients, p->attention.scratch, p->attention.scratch_size);
}

/** The input's gradient: the word's goes to the caller, and what the caller has of the context's is added. */
static void split_input(const struct call *call)
{
    const attn_bahdanau_config *c = &call->config;
    for (int64_t b = 0; b < call->word->shape[0]; b++) {
        float *d_input = call->pieces.d_input + b * width_of(call);
        if (call->gradients.word)
            memcpy(nn_row_address(call->gradients.word, b, 0), d_input, (size_t)c->embedding * sizeof(float));
        const float *more = call->d_context ? nn_row_address(call->d_context, b, 0) : NULL;
        for (int64_t i = 0; more && i < c->annotation; i++)
            d_input[c->embedding + i] += more[i];
    }
}

static void run(const struct call *call)
{
    const struct pieces *p = &call->pieces;
    const attn_bahdanau_gradients *g = &call->gradients;
    const attn_params params = params_of(call);
    attn_tensor d_context =
        attn_btc(p->d_input + call->config.embedding, call->word->shape[0], 1, call->config.annotation);
    d_context.stride[0] = width_of(call);
    attend(call, &params);
    run_unit(call);
    run_products(call);
    split_input(call);
    nn_run_additive_gradient(&(struct nn_additive_gradient){
        .config = &call->alignment,
        .params = &params,
        .q = call->state,
        .projected = call->projected,
        .v = call->annotations,
        .d_out = &d_context,
        .d_q = g->state,
        .d_projected = g->projected,
        .d_values = g->annotations,
        .d_w_q = g->w_q,
        .d_score_v = g->score_v,
        .accumulate = g->accumulate,
        .accumulate_q = 1,
        .accumulate_keys = g->accumulate_keys,
        .pieces = p->attention,
    });
}

/* ------------------------------------------------------------------- checks -- */

static attn_status take_options(struct call *call, const attn_bahdanau_config *config,
                                const attn_alignment_config *alignment, const attn_bahdanau_gradients *gradients)
{
    attn_bahdanau_config *c = &call->config;
    attn_alignment_config *a = &call->alignment;
    CHECK(nn_take_bahdanau_config(c, config));
    CHECK(nn_take_alignment_config(a, "alignment", alignment));
    if (a->score != ATTN_SCORE_ADDITIVE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "alignment.score is %d; expected ATTN_SCORE_ADDITIVE", (int)a->score);
    if (a->d_query != c->hidden)
        return attn_fail(ATTN_SHAPE_MISMATCH, "alignment.d_query is %lld; expected %lld, config.hidden",
                         (long long)a->d_query, (long long)c->hidden);
    if (a->d_key != c->annotation)
        return attn_fail(ATTN_SHAPE_MISMATCH, "alignment.d_key is %lld; expected %lld, config.annotation",
                         (long long)a->d_key, (long long)c->annotation);
    CHECK(nn_check_bahdanau_weights(c));
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected what to write");
    CHECK(attn_take_struct("gradients", &call->gradients, sizeof call->gradients, NN_BAHDANAU_GRADIENTS_FIRST,
                           gradients));
    return nn_check_threads(call->gradients.num_threads);
}

/** That what is wanted has its shape. */
static attn_status check_gradients(const struct call *call)
{
    const attn_bahdanau_config *c = &call->config;
    const attn_bahdanau_gradients *g = &call->gradients;
    const int64_t batch = call->word->shape[0], tokens = call->projected->shape[2], gates = 3 * c->hidden;
    const int64_t inner = call->alignment.d_attention;
    const struct {
        struct nn_argument argument;
        int64_t rows, columns;
    } sums[] = {{{"gradients.w_ih", g->w_ih}, gates, width_of(call)},
                {{"gradients.w_hh", g->w_hh}, gates, c->hidden},
                {{"gradients.b_ih", g->b_ih}, 1, gates},
                {{"gradients.b_hh", g->b_hh}, 1, gates},
                {{"gradients.w_q", g->w_q}, inner, c->hidden},
                {{"gradients.score_v", g->score_v}, 1, inner}};
    CHECK(nn_check_output("gradients.state", g->state, batch, 1, c->hidden));
    if (g->word)
        CHECK(nn_check_output("gradients.word", g->word, batch, 1, c->embedding));
    if (g->projected)
        CHECK(nn_check_output("gradients.projected", g->projected, batch, tokens, inner));
    if (g->annotations)
        CHECK(nn_check_output("gradients.annotations", g->annotations, batch, tokens, c->annotation));
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (sums[i].argument.tensor)
            CHECK(nn_check_sums(sums[i].argument.name, sums[i].argument.tensor, sums[i].rows, sums[i].columns));
    return ATTN_OK;
}

static attn_status check_apart(const struct call *call)
{
    const attn_bahdanau_config *c = &call->config;
    const attn_alignment_config *a = &call->alignment;
    const attn_bahdanau_gradients *g = &call->gradients;
    const struct nn_argument outputs[] = {
        {"gradients.state", g->state},
        {"gradients.word", g->word},
        {"gradients.projected", g->projected},
        {"gradients.annotations", g->annotations},
        {"gradients.w_ih", g->w_ih},
        {"gradients.w_hh", g->w_hh},
        {"gradients.b_ih", g->b_ih},
        {"gradients.b_hh", g->b_hh},
        {"gradients.w_q", g->w_q},
        {"gradients.score_v", g->score_v},
    };
    const struct nn_argument inputs[] = {
        {"word", call->word},
        {"projected", call->projected},
        {"annotations", call->annotations},
        {"state", call->state},
        {"d_context", call->d_context},
        {"config.w_ih", &c->w_ih},
        {"config.w_hh", &c->w_hh},
        {"config.b_ih", nn_wanted(&c->b_ih)},
        {"config.b_hh", nn_wanted(&c->b_hh)},
        {"alignment.w_q", &a->w_q},
        {"alignment.v", &a->v},
    };
    return nn_check_apart(outputs, sizeof outputs / sizeof *outputs, inputs, sizeof inputs / sizeof *inputs);
}

static attn_status check_call(const struct call *call)
{
    const attn_bahdanau_config *c = &call->config;
    CHECK(nn_check_activations("word", call->word, NN_ANY, 1, c->embedding));
    const int64_t batch = call->word->shape[0];
    CHECK(nn_check_activations("projected", call->projected, batch, NN_ANY, call->alignment.d_attention));
    const int64_t tokens = call->projected->shape[2];
    CHECK(nn_check_activations("annotations", call->annotations, batch, tokens, c->annotation));
    CHECK(nn_check_lengths("lengths", call->lengths, batch, tokens, "the tokens of annotations"));
    CHECK(nn_check_activations("state", call->state, batch, 1, c->hidden));
    if (call->d_context)
        CHECK(nn_check_activations("d_context", call->d_context, batch, 1, c->annotation));
    CHECK(check_gradients(call));
    return check_apart(call);
}

/* -------------------------------------------------------------------- calls -- */

size_t attn_bahdanau_backward_workspace_size(const attn_bahdanau_config *config, const attn_alignment_config *alignment,
                                             int64_t batch, int64_t tokens, const attn_bahdanau_gradients *gradients)
{
    struct call call = {0};
    if (take_options(&call, config, alignment, gradients) || nn_check_length("batch", batch, 0) ||
        nn_check_length("tokens", tokens, 0))
        return SIZE_MAX;
    struct nn_arena arena = {0};
    take_pieces(&arena, &call, batch, tokens);
    return nn_arena_size(&arena);
}

attn_status attn_bahdanau_backward(const attn_bahdanau_config *config, const attn_alignment_config *alignment,
                                   const attn_tensor *word, const attn_tensor *projected,
                                   const attn_tensor *annotations, const int64_t *lengths, const attn_tensor *state,
                                   const attn_tensor *d_context, const attn_bahdanau_gradients *gradients,
                                   void *workspace, size_t workspace_size)
{
    struct call call = {.word = word,
                        .projected = projected,
                        .annotations = annotations,
                        .state = state,
                        .d_context = d_context,
                        .lengths = lengths};
    CHECK(take_options(&call, config, alignment, gradients));
    CHECK(check_call(&call));
    const int64_t batch = word->shape[0], tokens = projected->shape[2];
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    take_pieces(&measured, &call, batch, tokens);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    call.pieces = take_pieces(&memory.arena, &call, batch, tokens);
    run(&call);
    nn_workspace_close(&memory);
    return ATTN_OK;
}
