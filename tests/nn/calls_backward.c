/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of backward passes: most of them on one matrix, which stands for all weights. */
#include "calls_shared.h"

/** The gradients of a product, in to behind each other: those of x and of the weights; those of the bias are few. */
static attn_linear_gradients linear_gradients_of(const struct how *how, const attn_tensor *d_x, const attn_tensor *d_w)
{
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.x = d_x, gradients.weights = d_w;
    gradients.num_threads = how->num_threads, gradients.executor = how->executor;
    return gradients;
}

attn_status run_linear_backward(const struct how *how, float *to)
{
    const attn_tensor x = x_rows(), d_x = attn_btc(to, 1, tokens, D), d_w = attn_matrix(to + tokens * D, D, D);
    const attn_tensor weights = attn_matrix(matrix, D, D);
    const attn_linear_gradients gradients = linear_gradients_of(how, &d_x, &d_w);
    return attn_linear_backward(&weights, &x, &x, &gradients, how->workspace, how->size);
}

size_t linear_backward_size(const struct how *how)
{
    const attn_linear_gradients gradients = linear_gradients_of(how, NULL, NULL);
    return attn_linear_backward_workspace_size(&gradients);
}

static attn_norm_gradients norm_gradients_of(const struct how *how, const attn_tensor *d_x, const attn_tensor *d_gamma)
{
    attn_norm_gradients gradients = attn_norm_gradients_default();
    gradients.x = d_x, gradients.gamma = d_gamma;
    gradients.num_threads = how->num_threads;
    return gradients;
}

attn_status run_elementwise_backward(const struct how *how, float *to)
{
    const attn_tensor x = x_rows(), d = attn_btc(to, 1, tokens, D), d_gamma = attn_vector(to + tokens * D, D);
    const attn_tensor d_table = attn_matrix(to, D, D);
    const attn_norm_gradients gradients = norm_gradients_of(how, &d, &d_gamma);
    double loss;
    attn_status status =
        attn_normalise_backward(ATTN_NORM_LAYER, &x, NULL, 1e-5f, &x, &gradients, how->workspace, how->size);
    if (!status)
        status = attn_activate_backward(ATTN_ACTIVATION_GELU, &x, &d, &d, how->num_threads);
    if (!status)
        status = attn_gate_backward(ATTN_ACTIVATION_SILU, &x, &x, &d, &d, NULL, how->num_threads);
    if (!status)
        status = attn_cross_entropy(&d, small_ids, 0, &loss, &d, how->num_threads);
    if (!status)
        status = attn_embed_backward(small_ids, 1, &x, &d_table, 0, how->num_threads);
    return status;
}

size_t elementwise_backward_size(const struct how *how)
{
    const attn_tensor d = attn_btc(NULL, 1, tokens, D), d_gamma = attn_vector(NULL, D);
    const attn_norm_gradients gradients = norm_gradients_of(how, &d, &d_gamma);
    return attn_normalise_backward_workspace_size(1, tokens, D, &gradients);
}

/** The gradients of one direction, in to behind each other: those of x and of w_ih. What was written is x. */
struct lstm_calls {
    attn_lstm_config config;
    attn_lstm_weights weights, sums;
    attn_tensor d_x;
    attn_lstm_gradients gradients;
};

static void lstm_calls_of(struct lstm_calls *c, const struct how *how, float *to)
{
    memset(c, 0, sizeof *c);
    c->config = attn_lstm_config_default();
    c->config.input = D, c->config.hidden = HIDDEN;
    c->weights.w_ih = attn_matrix(matrix, 4 * HIDDEN, D), c->weights.w_hh = attn_matrix(matrix, 4 * HIDDEN, HIDDEN);
    c->gradients = attn_lstm_gradients_default();
    c->gradients.num_threads = how->num_threads;
    if (!to)
        return;
    c->d_x = attn_btc(to, BATCH, tokens / BATCH, D);
    c->sums.w_ih = attn_matrix(to + tokens * D, 4 * HIDDEN, D);
    c->gradients.x = &c->d_x, c->gradients.weights = &c->sums;
}

attn_status run_lstm_backward(const struct how *how, float *to)
{
    const attn_tensor x = attn_btc(x_data, BATCH, tokens / BATCH, D);
    struct lstm_calls c;
    lstm_calls_of(&c, how, to);
    return attn_lstm_backward(&c.config, &c.weights, &x, NULL, NULL, &x, &x, &c.gradients, how->workspace, how->size);
}

size_t lstm_backward_size(const struct how *how)
{
    struct lstm_calls c;
    lstm_calls_of(&c, how, NULL);
    return attn_lstm_backward_workspace_size(&c.config, BATCH, tokens / BATCH, &c.gradients);
}

/** Four heads on one matrix; to has the gradients of x and of w_k. */
attn_status run_mha_backward(const struct how *how, float *to)
{
    const attn_tensor x = attn_btc(x_data, BATCH, tokens / BATCH, D), d_x = attn_btc(to, BATCH, tokens / BATCH, D);
    attn_mha_config config = attn_mha_config_default();
    attn_mha_weights weights = attn_mha_weights_default(), sums = attn_mha_weights_default();
    attn_mha_gradients gradients = attn_mha_gradients_default();
    attn_params params = attn_params_default();
    config.d_model = D, config.heads = HEADS;
    weights.w_q = weights.w_k = weights.w_v = weights.w_o = attn_matrix(matrix, D, D);
    sums.w_k = attn_matrix(to + tokens * D, D, D);
    gradients.x = &d_x, gradients.weights = &sums;
    params.num_threads = how->num_threads, params.executor = how->executor;
    return attn_mha_backward(&config, &weights, &x, NULL, &params, &x, &gradients, how->workspace, how->size);
}

size_t mha_backward_size(const struct how *how)
{
    attn_mha_config config = attn_mha_config_default();
    const attn_mha_gradients gradients = attn_mha_gradients_default();
    attn_params params = attn_params_default();
    config.d_model = D, config.heads = HEADS;
    params.num_threads = how->num_threads, params.executor = how->executor;
    return attn_mha_backward_workspace_size(&config, BATCH, tokens / BATCH, tokens / BATCH, &params, &gradients);
}

/** A layer on one matrix; to has the gradients of x and of w_k. */
struct small_block {
    attn_mha_config attention;
    attn_block_config config;
    attn_mha_weights self, self_sums;
    attn_block_weights weights, sums;
    attn_tensor d_x;
    attn_block_pass pass;
    attn_block_gradients gradients;
};

static void make_small_block(struct small_block *b, const struct how *how, float *to)
{
    b->attention = attn_mha_config_default();
    b->attention.d_model = D, b->attention.heads = HEADS;
    b->config = attn_block_config_default();
    b->config.attention = &b->attention, b->config.d_ff = D, b->config.eps = 1e-5f;
    b->self = b->self_sums = attn_mha_weights_default();
    b->weights = b->sums = attn_block_weights_default();
    b->self.w_q = b->self.w_k = b->self.w_v = b->self.w_o = attn_matrix(matrix, D, D);
    b->weights.w_up = b->weights.w_down = b->self.w_q;
    b->weights.self = &b->self, b->sums.self = &b->self_sums;
    b->d_x = attn_btc(to, BATCH, tokens / BATCH, D);
    b->self_sums.w_k = attn_matrix(to ? to + tokens * D : NULL, D, D);
    b->pass = attn_block_pass_default();
    b->pass.num_threads = how->num_threads, b->pass.executor = how->executor;
    b->gradients = attn_block_gradients_default();
    b->gradients.x = &b->d_x, b->gradients.weights = &b->sums;
}

attn_status run_block_backward(const struct how *how, float *to)
{
    struct small_block b;
    make_small_block(&b, how, to);
    const attn_tensor x = attn_btc(x_data, BATCH, tokens / BATCH, D);
    return attn_block_backward(&b.config, &b.weights, &x, &b.pass, &x, &b.gradients, how->workspace, how->size);
}

size_t block_backward_size(const struct how *how)
{
    struct small_block b;
    make_small_block(&b, how, NULL);
    return attn_block_backward_workspace_size(&b.config, BATCH, tokens / BATCH, 0, &b.pass, &b.gradients);
}

/** Two layers of the same weights, forwards and backwards; to has the gradients of words and of the first w_k. */
struct small_model {
    struct small_block layer;
    attn_bert_config config;
    attn_bert_weights weights, gradients;
    const attn_block_weights *layers[2], *sums[2];
    attn_model_pass pass;
};

static void make_small_model(struct small_model *x, const struct how *how, float *to)
{
    make_small_block(&x->layer, how, to);
    x->config = attn_bert_config_default();
    x->config.layers = 2, x->config.d_model = x->config.d_ff = D, x->config.heads = HEADS;
    x->config.vocabulary = x->config.positions = D, x->config.token_types = 1, x->config.eps = 1e-5f;
    x->weights = x->gradients = attn_bert_weights_default();
    x->weights.words = x->weights.positions = x->layer.weights.w_up, x->weights.types = attn_matrix(matrix, 1, D);
    x->layers[0] = x->layers[1] = &x->layer.weights;
    x->sums[0] = &x->layer.sums, x->sums[1] = NULL;
    x->weights.layers = x->layers, x->gradients.layers = x->sums;
    x->gradients.words = attn_matrix(to, D, D);
    x->pass = attn_model_pass_default();
    x->pass.num_threads = how->num_threads, x->pass.executor = how->executor;
}

attn_status run_model_backward(const struct how *how, float *to)
{
    static char kept[1 << 22];
    static int64_t offsets[BATCH + 1];
    struct small_model x;
    make_small_model(&x, how, to);
    for (int64_t s = 0; s <= BATCH; s++)
        offsets[s] = s * (tokens / BATCH);
    const attn_tensor hidden = attn_btc(x_data, 1, offsets[BATCH], D), out = attn_btc(model_data, 1, offsets[BATCH], D);
    x.pass.keep = ATTN_KEEP_INPUTS, x.pass.kept = kept, x.pass.kept_size = sizeof kept;
    const attn_status status =
        attn_bert_train(&x.config, &x.weights, BATCH, offsets, small_ids, &x.pass, &out, NULL, 0);
    return status ? status
                  : attn_bert_backward(&x.config, &x.weights, BATCH, offsets, small_ids, &x.pass, &hidden, &x.gradients,
                                       0, how->workspace, how->size);
}

size_t model_backward_size(const struct how *how)
{
    struct small_model x;
    make_small_model(&x, how, NULL);
    x.pass.keep = ATTN_KEEP_INPUTS;
    return attn_bert_training_workspace_size(&x.config, BATCH, tokens / BATCH * BATCH, &x.pass);
}

attn_status run_pool_backward(const struct how *how, float *to)
{
    const attn_tensor x = attn_btc(x_data, BATCH, tokens / BATCH, D), d_out = attn_btc(x_data, BATCH, 1, D);
    const attn_tensor d_x = attn_btc(to, BATCH, tokens / BATCH, D), d_w = attn_matrix(to + tokens * D, D, D);
    const attn_tensor w = attn_matrix(matrix, D, D), v = attn_vector(matrix, D);
    attn_pool_gradients gradients = attn_pool_gradients_default();
    gradients.x = &d_x, gradients.w = &d_w, gradients.num_threads = how->num_threads;
    return attn_pool_backward(&w, NULL, &v, &x, NULL, &d_out, &gradients, how->workspace, how->size);
}

size_t pool_backward_size(const struct how *how)
{
    attn_pool_gradients gradients = attn_pool_gradients_default();
    gradients.num_threads = how->num_threads;
    return attn_pool_backward_workspace_size(D, D, BATCH, tokens / BATCH, &gradients);
}

/** Additive scores of keys of D channels. */
static attn_alignment_config additive_of(int64_t d_query)
{
    attn_alignment_config additive = attn_alignment_config_default();
    additive.score = ATTN_SCORE_ADDITIVE;
    additive.d_query = d_query, additive.d_key = additive.d_attention = D;
    additive.w_q = attn_matrix(matrix, D, d_query), additive.w_k = attn_matrix(matrix, D, D);
    additive.v = attn_vector(matrix, D);
    return additive;
}

attn_status run_score_backward(const struct how *how, float *to)
{
    const int64_t length = tokens / BATCH;
    const attn_alignment_config additive = additive_of(D);
    const attn_tensor x = attn_btc(x_data, BATCH, length, D), d_q = attn_btc(to, BATCH, length, D);
    const attn_tensor d_projected = attn_btc(to + tokens * D, BATCH, length, D);
    attn_alignment_gradients gradients = attn_alignment_gradients_default();
    attn_params params = attn_params_default();
    gradients.q = &d_q, gradients.projected = &d_projected;
    params.num_threads = how->num_threads, params.executor = how->executor;
    return attn_alignment_backward(&additive, &x, &x, &x, &params, &x, &gradients, how->workspace, how->size);
}

size_t score_backward_size(const struct how *how)
{
    const attn_alignment_config additive = additive_of(D);
    const attn_alignment_gradients gradients = attn_alignment_gradients_default();
    attn_params params = attn_params_default();
    params.num_threads = how->num_threads, params.executor = how->executor;
    return attn_alignment_backward_workspace_size(&additive, BATCH, tokens / BATCH, tokens / BATCH, D, &params,
                                                  &gradients);
}

static attn_bahdanau_config step_of(void)
{
    attn_bahdanau_config step = attn_bahdanau_config_default();
    step.embedding = step.annotation = D, step.hidden = HIDDEN;
    step.w_ih = attn_matrix(matrix, 3 * HIDDEN, 2 * D), step.w_hh = attn_matrix(matrix, 3 * HIDDEN, HIDDEN);
    return step;
}

attn_status run_step_backward(const struct how *how, float *to)
{
    const int64_t length = tokens / BATCH;
    const attn_bahdanau_config step = step_of();
    const attn_alignment_config additive = additive_of(HIDDEN);
    const attn_tensor word = attn_btc(x_data, BATCH, 1, D), keys = attn_btc(x_data, BATCH, length, D);
    const attn_tensor state = attn_btc(x_data, BATCH, 1, HIDDEN), d_state = attn_btc(to, BATCH, 1, HIDDEN);
    const attn_tensor d_projected = attn_btc(to + BATCH * HIDDEN, BATCH, length, D);
    attn_bahdanau_gradients gradients = attn_bahdanau_gradients_default();
    gradients.state = &d_state, gradients.projected = &d_projected, gradients.num_threads = how->num_threads;
    return attn_bahdanau_backward(&step, &additive, &word, &keys, &keys, NULL, &state, &word, &gradients,
                                  how->workspace, how->size);
}

size_t step_backward_size(const struct how *how)
{
    const attn_bahdanau_config step = step_of();
    const attn_alignment_config additive = additive_of(HIDDEN);
    attn_bahdanau_gradients gradients = attn_bahdanau_gradients_default();
    gradients.num_threads = how->num_threads;
    return attn_bahdanau_backward_workspace_size(&step, &additive, BATCH, tokens / BATCH, &gradients);
}
