/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of libattn_nn that run on several threads, on random weights. */
#include "calls_shared.h"

#include "named.h"

enum { WORDS = 2000, TARGETS = 128, STEPS = 3 };

/* ------------------------------------------------------------------- models -- */

static struct {
    struct memory *memory;
    attn_linear *linear;
    attn_block *post_norm, *gated, *cross;
    attn_bert *bert;
    attn_llama *llama;
    attn_transformer *transformer;
    attn_lstm *lstm;
    attn_alignment *alignment;
    attn_bahdanau *step;
    attn_pool *pool;
} made;

int64_t tokens;
float x_data[MOST_TOKENS * D], model_data[MOST_TOKENS * D], matrix[8 * D * D];
int32_t small_ids[MOST_TOKENS];
static int32_t ids[2 * MOST_TOKENS];

static void make_blocks(struct named *n, attn_mha_config *a)
{
    attn_block_config post_norm = attn_block_config_default(), gated = post_norm, cross;
    post_norm.attention = gated.attention = a;
    post_norm.d_ff = gated.d_ff = D;
    post_norm.activation = ATTN_ACTIVATION_GELU, gated.activation = ATTN_ACTIVATION_SILU;
    post_norm.eps = gated.eps = 1e-5f;
    gated.gated = 1, gated.norm = ATTN_NORM_RMS, gated.norm_first = 1;
    cross = post_norm;
    cross.cross = cross.norm_first = 1;
    named_add_block(n, made.memory, &post_norm, "bert.encoder.layer.0.", ATTN_NAMING_BERT, 1);
    named_add_block(n, made.memory, &gated, "model.layers.0.", ATTN_NAMING_LLAMA, 0);
    named_add_block(n, made.memory, &post_norm, "t.encoder.layers.0.", ATTN_NAMING_TORCH, 1);
    named_add_block(n, made.memory, &cross, "t.decoder.layers.0.", ATTN_NAMING_TORCH, 1);
    attn_weights *weights = named_weights(n);
    OK(attn_block_load(&made.post_norm, &post_norm, weights, "t.encoder.layers.0.", ATTN_NAMING_TORCH));
    OK(attn_block_load(&made.gated, &gated, weights, "model.layers.0.", ATTN_NAMING_LLAMA));
    OK(attn_block_load(&made.cross, &cross, weights, "t.decoder.layers.0.", ATTN_NAMING_TORCH));
    attn_weights_destroy(weights);
}

static void make_named(struct named *n)
{
    struct memory *m = made.memory;
    attn_bert_config bert = attn_bert_config_default();
    attn_llama_config llama = attn_llama_config_default();
    attn_transformer_config transformer = attn_transformer_config_default();
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "bert.", "embeddings.word_embeddings.weight");
    named_add(n, m, ATTN_F32, MOST_TOKENS, D, 1, 0, "bert.", "embeddings.position_embeddings.weight");
    named_add(n, m, ATTN_F32, 2, D, 1, 0, "bert.", "embeddings.token_type_embeddings.weight");
    named_add_norm(n, m, ATTN_NORM_LAYER, D, "bert.", "embeddings.LayerNorm");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "", "model.embed_tokens.weight");
    named_add_norm(n, m, ATTN_NORM_RMS, D, "", "model.norm");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "t.", "src_embedding.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "t.", "tgt_embedding.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "t.", "generator.weight");
    bert.layers = 1, bert.positions = MOST_TOKENS, bert.activation = ATTN_ACTIVATION_GELU;
    llama.layers = 1, llama.tied = 1;
    transformer.encoder_layers = transformer.decoder_layers = 1, transformer.positions = MOST_TOKENS;
    bert.d_model = llama.d_model = transformer.d_model = bert.d_ff = llama.d_ff = transformer.d_ff = D;
    bert.heads = llama.heads = transformer.heads = HEADS;
    bert.vocabulary = llama.vocabulary = transformer.source_vocabulary = transformer.target_vocabulary = WORDS;
    bert.eps = llama.eps = transformer.eps = 1e-5f;
    transformer.eos = WORDS - 1;
    attn_weights *weights = named_weights(n);
    OK(attn_bert_load(&made.bert, &bert, weights, "bert."));
    OK(attn_transformer_load(&made.transformer, &transformer, weights, "t."));
    OK(attn_weights_ignore(weights, 2, (const char *const[]){"bert.*", "t.*"}));
    OK(attn_llama_load(&made.llama, &llama, weights));
    attn_weights_destroy(weights);
}

static void make_others(void)
{
    attn_lstm_config lstm = attn_lstm_config_default();
    attn_alignment_config additive = attn_alignment_config_default();
    attn_bahdanau_config step = attn_bahdanau_config_default();
    const attn_tensor square = attn_matrix(matrix, D, D), v = attn_vector(matrix, D);
    const attn_lstm_weights direction = {.w_ih = attn_matrix(matrix, 4 * HIDDEN, D),
                                         .w_hh = attn_matrix(matrix, 4 * HIDDEN, HIDDEN)};
    const attn_lstm_weights directions[] = {direction, direction};
    OK(attn_linear_create(&made.linear, 1, &square, NULL));
    lstm.input = D, lstm.hidden = HIDDEN, lstm.bidirectional = 1;
    OK(attn_lstm_create(&made.lstm, &lstm, directions));
    additive.score = ATTN_SCORE_ADDITIVE;
    additive.d_query = HIDDEN, additive.d_key = D, additive.d_attention = D;
    additive.w_q = attn_matrix(matrix, D, HIDDEN), additive.w_k = square, additive.v = v;
    OK(attn_alignment_create(&made.alignment, &additive));
    step.alignment = made.alignment;
    step.embedding = step.annotation = D, step.hidden = HIDDEN;
    step.w_ih = attn_matrix(matrix, 3 * HIDDEN, 2 * D), step.w_hh = attn_matrix(matrix, 3 * HIDDEN, HIDDEN);
    OK(attn_bahdanau_create(&made.step, &step));
    OK(attn_pool_create(&made.pool, &square, NULL, &v));
}

void make_models(void)
{
    attn_mha_config attention = attn_mha_config_default();
    made.memory = memory_create("model_threads", 0);
    struct named *n = named_create(made.memory);
    attention.d_model = D, attention.heads = HEADS;
    for (int i = 0; i < 8 * D * D; i++)
        matrix[i] = rng_normal(&made.memory->rng) / 16;
    for (int i = 0; i < MOST_TOKENS * D; i++)
        x_data[i] = rng_normal(&made.memory->rng);
    for (int i = 0; i < 2 * MOST_TOKENS; i++)
        ids[i] = i * 7 % MOST_TOKENS;
    for (int i = 0; i < MOST_TOKENS; i++)
        small_ids[i] = ids[i] % D;
    make_blocks(n, &attention);
    make_named(n);
    make_others();
}

void destroy_models(void)
{
    attn_linear_destroy(made.linear);
    attn_block_destroy(made.post_norm);
    attn_block_destroy(made.gated);
    attn_block_destroy(made.cross);
    attn_bert_destroy(made.bert);
    attn_llama_destroy(made.llama);
    attn_transformer_destroy(made.transformer);
    attn_lstm_destroy(made.lstm);
    attn_bahdanau_destroy(made.step);
    attn_alignment_destroy(made.alignment);
    attn_pool_destroy(made.pool);
    memory_destroy(made.memory);
}

/* -------------------------------------------------------------------- calls -- */

attn_tensor x_rows(void)
{
    return attn_btc(x_data, 1, tokens, D);
}

static attn_status run_linear(const struct how *how, float *to)
{
    attn_linear_options options = attn_linear_options_default();
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D);
    options.num_threads = how->num_threads, options.executor = how->executor;
    return attn_linear_forward(made.linear, &x, &out, &options);
}

static attn_status run_elementwise(const struct how *how, float *to)
{
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D), table = attn_matrix(x_data, MOST_TOKENS, D);
    const attn_tensor twice = attn_btc(to, 2, tokens, D);
    attn_status status = attn_normalise(ATTN_NORM_LAYER, &x, NULL, NULL, 1e-5f, &out, how->num_threads);
    if (!status)
        status = attn_activate(ATTN_ACTIVATION_GELU, &out, &out, how->num_threads);
    if (!status)
        status = attn_gate(ATTN_ACTIVATION_SILU, &out, &x, &out, how->num_threads);
    return status ? status : attn_embed(&table, ids, 1, 1, &twice, how->num_threads);
}

/** The options of a layer without cross-attention. */
static attn_block_inputs inputs_of(const struct how *how, attn_params *self)
{
    attn_block_inputs inputs = attn_block_inputs_default();
    *self = attn_params_default();
    self->executor = how->of_self;
    inputs.self = self;
    inputs.num_threads = how->num_threads, inputs.executor = how->executor;
    return inputs;
}

static attn_status run_post_norm(const struct how *how, float *to)
{
    attn_params self;
    const attn_block_inputs inputs = inputs_of(how, &self);
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D);
    return attn_block_forward(made.post_norm, &x, &out, &inputs, how->workspace, how->size);
}

static size_t post_norm_size(const struct how *how)
{
    attn_params self;
    const attn_block_inputs inputs = inputs_of(how, &self);
    return attn_block_workspace_size(made.post_norm, 1, tokens, &inputs);
}

static attn_status run_gated(const struct how *how, float *to)
{
    attn_params self;
    const attn_block_inputs inputs = inputs_of(how, &self);
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D);
    return attn_block_forward(made.gated, &x, &out, &inputs, how->workspace, how->size);
}

static size_t gated_size(const struct how *how)
{
    attn_params self;
    const attn_block_inputs inputs = inputs_of(how, &self);
    return attn_block_workspace_size(made.gated, 1, tokens, &inputs);
}

static attn_status run_cross(const struct how *how, float *to)
{
    attn_params self;
    attn_block_inputs inputs = inputs_of(how, &self);
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D);
    inputs.memory = &x;
    return attn_block_forward(made.cross, &x, &out, &inputs, how->workspace, how->size);
}

static size_t cross_size(const struct how *how)
{
    attn_params self;
    attn_block_inputs inputs = inputs_of(how, &self);
    const attn_tensor x = x_rows();
    inputs.memory = &x;
    return attn_block_workspace_size(made.cross, 1, tokens, &inputs);
}

static attn_status run_project_memory(const struct how *how, float *to)
{
    const attn_tensor x = x_rows(), kv = attn_btc(to, 1, tokens, 2 * D);
    return attn_block_project_memory(made.cross, &x, &kv, how->num_threads);
}

static attn_status run_bert(const struct how *how, float *to)
{
    const int64_t offsets[] = {0, tokens / 4, tokens};
    const attn_tensor hidden = attn_btc(to, 1, tokens, D);
    return attn_bert_forward(made.bert, 2, offsets, ids, &hidden, NULL, how->num_threads, how->workspace, how->size);
}

static size_t bert_size(const struct how *how)
{
    return attn_bert_workspace_size(made.bert, 2, tokens, how->num_threads);
}

/** A session whose workspace has been made on one thread goes on with more. */
static attn_status run_llama(const struct how *how, float *to)
{
    attn_llama_session *session;
    const attn_tensor logits = attn_btc(to, 1, 1, WORDS), more = attn_btc(to + WORDS, 1, 1, WORDS);
    OK(attn_llama_session_create(&session, made.llama, 1, tokens));
    attn_status status = attn_llama_forward(session, tokens / 2, ids, &logits, 1);
    if (!status)
        status = attn_llama_forward(session, tokens / 2, ids + tokens / 2, &more, how->num_threads);
    attn_llama_session_destroy(session);
    return status;
}

static attn_status run_encode(const struct how *how, float *to)
{
    const attn_tensor memory = attn_btc(to, 1, tokens, D);
    return attn_transformer_encode(made.transformer, 1, tokens, ids, NULL, &memory, how->num_threads);
}

static attn_status run_score(const struct how *how, float *to)
{
    const attn_tensor memory = x_rows(), logits = attn_btc(to, 1, TARGETS, WORDS);
    return attn_transformer_score(made.transformer, &memory, NULL, TARGETS, ids, &logits, NULL, how->num_threads);
}

static attn_status run_decode(const struct how *how, float *to)
{
    int32_t found[STEPS];
    const attn_tensor memory = x_rows();
    attn_decoding decoding = attn_decoding_default();
    attn_hypothesis best = {.ids = found};
    decoding.beams = 4, decoding.max_length = STEPS;
    decoding.num_threads = how->num_threads, decoding.executor = how->executor;
    const attn_status status = attn_transformer_decode(made.transformer, &memory, NULL, &decoding, &best);
    for (int64_t i = 0; !status && i < best.length; i++)
        to[i] = (float)best.ids[i];
    if (!status)
        memcpy(to + STEPS, &best.log_prob, sizeof best.log_prob);
    return status;
}

static attn_status run_lstm(const struct how *how, float *to)
{
    const attn_tensor x = attn_btc(x_data, BATCH, tokens / BATCH, D);
    const attn_tensor out = attn_btc(to, BATCH, tokens / BATCH, 2 * HIDDEN);
    return attn_lstm_forward(made.lstm, &x, NULL, NULL, &out, how->num_threads, how->workspace, how->size);
}

static size_t lstm_size(const struct how *how)
{
    (void)how;
    return attn_lstm_workspace_size(made.lstm, BATCH, tokens / BATCH);
}

static attn_status run_step(const struct how *how, float *to)
{
    const attn_tensor word = attn_btc(x_data, BATCH, 1, D), keys = attn_btc(x_data, BATCH, tokens / BATCH, D);
    const attn_tensor state = attn_btc(to, BATCH, 1, HIDDEN), context = attn_btc(to + BATCH * HIDDEN, BATCH, 1, D);
    return attn_bahdanau_forward(made.step, &word, &keys, &keys, NULL, &state, &context, NULL, how->num_threads,
                                 how->workspace, how->size);
}

static size_t step_size(const struct how *how)
{
    (void)how;
    return attn_bahdanau_workspace_size(made.step, BATCH, tokens / BATCH);
}

static attn_status run_pool(const struct how *how, float *to)
{
    const attn_tensor x = attn_btc(x_data, BATCH, tokens / BATCH, D), out = attn_btc(to, BATCH, 1, D);
    return attn_pool_forward(made.pool, &x, NULL, &out, NULL, how->num_threads, how->workspace, how->size);
}

static size_t pool_size(const struct how *how)
{
    (void)how;
    return attn_pool_workspace_size(made.pool, BATCH, tokens / BATCH);
}

/** Sequences, keys and values alike, and two projections to RANK rows each. */
struct linformer {
    attn_tensor x, out, e, f;
    attn_params params;
};

static struct linformer linformer_of(const struct how *how, float *to)
{
    enum { RANK = 64 };
    const int64_t length = tokens / BATCH;
    struct linformer l = {attn_btc(x_data, BATCH, length, D), attn_btc(to, BATCH, length, D),
                          attn_matrix(matrix, RANK, length), attn_matrix(matrix + RANK * length, RANK, length),
                          attn_params_default()};
    l.params.num_threads = how->num_threads, l.params.executor = how->executor;
    return l;
}

static attn_status run_linformer(const struct how *how, float *to)
{
    const struct linformer l = linformer_of(how, to);
    return attn_linformer_forward(&l.x, &l.x, &l.x, &l.e, &l.f, &l.out, &l.params, how->workspace, how->size);
}

static size_t linformer_size(const struct how *how)
{
    const struct linformer l = linformer_of(how, NULL);
    return attn_linformer_workspace_size(&l.x, &l.x, &l.x, &l.e, &l.f, &l.out, &l.params);
}

static attn_status run_project(const struct how *how, float *to)
{
    const attn_tensor x = x_rows(), projected = attn_btc(to, 1, tokens, D);
    return attn_alignment_project(made.alignment, &x, &projected, how->num_threads);
}

const struct call calls[] = {
    {"linear", run_linear, NULL, "options", 1},
    {"linear backward", run_linear_backward, linear_backward_size, "gradients", 2},
    {"elementwise", run_elementwise, NULL, NULL, 4},
    /* normalise, activate, gate, cross-entropy; the lookup is too little for a second thread */
    {"elementwise backward", run_elementwise_backward, elementwise_backward_size, NULL, 4},
    /* q, k and v, attention, out; norm; up, down; norm */
    {"post-norm layer", run_post_norm, post_norm_size, "inputs", 7},
    /* and a gate */
    {"gated layer", run_gated, gated_size, "inputs", 8},
    /* and q; k and v of the memory, attention, out; norm */
    {"layer with memory", run_cross, cross_size, "inputs", 12},
    {"project_memory", run_project_memory, NULL, NULL, 1},
    /* norm of the embeddings, and the layer */
    {"bert", run_bert, bert_size, NULL, 8},
    /* half of the tokens: the layer but for its norms, and the last product */
    {"llama", run_llama, NULL, NULL, 7},
    {"encode", run_encode, NULL, NULL, 7},
    /* the layer but for its norms, and the last product */
    {"score", run_score, NULL, NULL, 10},
    /* keys and values of the memory; attention to it in all steps but the first; the last product in each */
    {"decode", run_decode, NULL, "decoding", 6},
    {"lstm", run_lstm, lstm_size, NULL, 1},
    /* the gates from x and from h, the gradients of w_ih and of x; eight sequences are one group */
    {"lstm backward", run_lstm_backward, lstm_backward_size, NULL, 4},
    /* q, k and v, attention; heads, three phases of its backward pass; w_k, and what q, k and v give to x */
    {"mha backward", run_mha_backward, mha_backward_size, "params", 12},
    /* as above up to the heads, with W_o; the norms; the network there and back; back to q, k, v and W_o */
    {"block backward", run_block_backward, block_backward_size, "pass", 24},
    /* the norm of the embeddings and nine of each layer; the layers back, as above; that norm back, and words */
    {"model backward", run_model_backward, model_backward_size, "pass", 69},
    {"bahdanau", run_step, step_size, NULL, 1},
    {"pool", run_pool, pool_size, NULL, 2},
    /* W x, scores, their gradients, those of W; values, and what W x adds to them */
    {"pool backward", run_pool_backward, pool_backward_size, NULL, 6},
    {"project", run_project, NULL, NULL, 1},
    /* the projections of keys and of values, attention */
    {"linformer", run_linformer, linformer_size, "params", 3},
    /* W_q q, pairs, and what W_q gives to q */
    {"score backward", run_score_backward, score_backward_size, "params", 3},
    /* the context, and its pairs */
    {"bahdanau backward", run_step_backward, step_backward_size, NULL, 2},
};
const int num_calls = sizeof calls / sizeof *calls;
