/* SPDX-License-Identifier: Apache-2.0 */
/* Failing memory in backward passes and in training. */
#include "failing_runs.h"

static attn_status run_linear_backward(struct made *made)
{
    attn_linear_gradients gradients = attn_linear_gradients_default();
    const attn_tensor weights = attn_matrix(made->x_data, TOKENS, D), d_out = attn_btc(made->x_data, 1, TOKENS, TOKENS);
    gradients.x = &made->out;
    gradients.num_threads = 2;
    return attn_linear_backward(&weights, NULL, &d_out, &gradients, NULL, 0);
}

static attn_status run_normalise_backward(struct made *made)
{
    attn_norm_gradients gradients = attn_norm_gradients_default();
    const attn_tensor d_gamma = attn_vector(made->out_data, D);
    gradients.gamma = &d_gamma;
    gradients.num_threads = 2;
    return attn_normalise_backward(ATTN_NORM_LAYER, &made->x, NULL, 1e-5f, &made->x, &gradients, NULL, 0);
}

static attn_status run_lstm_backward(struct made *made)
{
    attn_lstm_config config = attn_lstm_config_default();
    static float matrix[4 * TOKENS * D];
    const attn_tensor x = attn_btc(made->x_data, 1, TOKENS, TOKENS);
    attn_lstm_gradients gradients = attn_lstm_gradients_default();
    attn_lstm_weights weights = {0};
    config.input = D, config.hidden = TOKENS;
    weights.w_ih = attn_matrix(matrix, 4 * TOKENS, D), weights.w_hh = attn_matrix(matrix, 4 * TOKENS, TOKENS);
    gradients.x = &made->out;
    gradients.num_threads = 2;
    return attn_lstm_backward(&config, &weights, &made->x, NULL, NULL, &x, &x, &gradients, NULL, 0);
}

static attn_status run_mha_backward(struct made *made)
{
    static float matrix[D * D];
    attn_mha_config config = attn_mha_config_default();
    attn_mha_weights weights = attn_mha_weights_default();
    attn_mha_gradients gradients = attn_mha_gradients_default();
    attn_params params = attn_params_default();
    config.d_model = D, config.heads = HEADS;
    weights.w_q = weights.w_k = weights.w_v = weights.w_o = attn_matrix(matrix, D, D);
    gradients.x = &made->out;
    params.num_threads = 2;
    return attn_mha_backward(&config, &weights, &made->x, NULL, &params, &made->x, &gradients, NULL, 0);
}

/** A layer of either kind: what it keeps, and its attention, lie in one workspace. */
static attn_status run_block_backward(struct made *made)
{
    static float matrix[D * D];
    attn_mha_config attention = attn_mha_config_default();
    attn_block_config config = attn_block_config_default();
    attn_mha_weights self = attn_mha_weights_default();
    attn_block_weights weights = attn_block_weights_default();
    attn_block_pass pass = attn_block_pass_default();
    attn_block_gradients gradients = attn_block_gradients_default();
    attention.d_model = D, attention.heads = HEADS;
    config.attention = &attention, config.d_ff = D, config.eps = 1e-5f;
    self.w_q = self.w_k = self.w_v = self.w_o = weights.w_up = weights.w_down = attn_matrix(matrix, D, D);
    weights.self = &self;
    pass.num_threads = 2;
    gradients.x = &made->out;
    return attn_block_backward(&config, &weights, &made->x, &pass, &made->x, &gradients, NULL, 0);
}

/** A whole model, whose pass keeps nothing: one workspace for what it is made of. */
static attn_status run_bert_train(struct made *made)
{
    static float matrix[D * D];
    static const int64_t offsets[] = {0, TOKENS};
    static const int32_t ids[TOKENS] = {0};
    attn_bert_config config = attn_bert_config_default();
    attn_mha_weights self = attn_mha_weights_default();
    attn_block_weights block = attn_block_weights_default();
    attn_bert_weights weights = attn_bert_weights_default();
    attn_model_pass pass = attn_model_pass_default();
    const attn_block_weights *const layers[] = {&block};
    config.layers = 1, config.d_model = config.d_ff = D, config.heads = HEADS, config.vocabulary = D;
    config.positions = TOKENS, config.eps = 1e-5f, config.token_types = 1;
    self.w_q = self.w_k = self.w_v = self.w_o = block.w_up = block.w_down = attn_matrix(matrix, D, D);
    block.self = &self;
    weights.words = block.w_up, weights.positions = attn_matrix(made->x_data, TOKENS, D);
    weights.types = attn_matrix(matrix, 1, D), weights.layers = layers;
    pass.num_threads = 2;
    return attn_bert_train(&config, &weights, 1, offsets, ids, &pass, &made->out, NULL, 0);
}

static attn_status run_pool_backward(struct made *made)
{
    static float matrix[D * D];
    const attn_tensor w = attn_matrix(matrix, D, D), v = attn_vector(matrix, D),
                      d_out = attn_btc(made->x_data, 1, 1, D);
    attn_pool_gradients gradients = attn_pool_gradients_default();
    gradients.x = &made->out;
    gradients.num_threads = 2;
    return attn_pool_backward(&w, NULL, &v, &made->x, NULL, &d_out, &gradients, NULL, 0);
}

static attn_status run_score_backward(struct made *made, attn_score score)
{
    const attn_alignment_config config = failing_alignment(score);
    attn_alignment_gradients gradients = attn_alignment_gradients_default();
    attn_params params = attn_params_default();
    gradients.q = &made->out;
    params.num_threads = 2;
    return attn_alignment_backward(&config, &made->x, &made->x, &made->x, &params, &made->x, &gradients, NULL, 0);
}

static attn_status run_additive_backward(struct made *made)
{
    return run_score_backward(made, ATTN_SCORE_ADDITIVE);
}

static attn_status run_dot_backward(struct made *made)
{
    return run_score_backward(made, ATTN_SCORE_DOT);
}

static attn_status run_bahdanau_backward(struct made *made)
{
    static float gates[3 * D * 2 * D], states[D];
    const attn_alignment_config alignment = failing_alignment(ATTN_SCORE_ADDITIVE);
    attn_bahdanau_config config = attn_bahdanau_config_default();
    attn_bahdanau_gradients gradients = attn_bahdanau_gradients_default();
    const attn_tensor one = attn_btc(made->x_data, 1, 1, D), state = attn_btc(states, 1, 1, D);
    config.embedding = config.annotation = config.hidden = D;
    config.w_ih = attn_matrix(gates, 3 * D, 2 * D), config.w_hh = attn_matrix(gates, 3 * D, D);
    gradients.state = &state, gradients.projected = &made->out;
    gradients.num_threads = 2;
    memset(states, 0, sizeof states);
    return attn_bahdanau_backward(&config, &alignment, &one, &made->x, &made->x, NULL, &one, &one, &gradients, NULL, 0);
}

/** What the libraries say where memory is short. */
static struct sentences shortages[] = {
    {.words = "a workspace of | bytes could not be allocated"},
    {0},
};

static void test_every_allocation(void **state)
{
    (void)state;
    static run_function *const runs[] = {
        run_linear_backward, run_normalise_backward, run_lstm_backward,     run_mha_backward, run_block_backward,
        run_bert_train,      run_pool_backward,      run_additive_backward, run_dot_backward, run_bahdanau_backward};
    static struct made made;
    struct memory *m = memory_create("alloc training", 0);
    failing_make(&made, m);
    failing_runs(&made, runs, sizeof runs / sizeof *runs, shortages);
    attn_weights_destroy(made.weights);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    nn_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
