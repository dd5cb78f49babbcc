/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing memory, for every n: the nth allocation that libattn_nn makes while a
 * model is made, run and freed fails (and, in a second round, all from the nth
 * on). There must be ATTN_OUT_OF_MEMORY with a sentence, no model, and nothing
 * written, or the right bits; and nothing that was got stays behind.
 */
#include "ledger.h"
#include "sentences.h"
#include "model_folder.h"
#include "named.h"

enum { D = 24, HEADS = 2, FF = 40, WORDS = 11, PLACES = 9, TOKENS = 7, HIDDEN = 5, ATTENTION = 6 };

/** What the models are made of, and where their results go. */
struct made {
    struct named *named;
    attn_weights *weights;
    struct model_folder encoder, decoder, encoder_decoder;
    attn_tensor x, out, seen;
    float x_data[TOKENS * D], out_data[TOKENS * D], seen_data[HEADS * TOKENS * TOKENS];
};

/** Makes something, runs it into made->out, and frees it. */
typedef attn_status run_function(struct made *made);

static attn_status run_weights(struct made *made)
{
    const char *names[NAMED_MAX];
    attn_weights *weights = NULL;
    for (int64_t i = 0; i < made->named->num; i++)
        names[i] = made->named->names[i];
    attn_status status = attn_weights_create(&weights, made->named->num, names, made->named->tensors);
    assert_true((status == ATTN_OK) == (weights != NULL));
    if (!status)
        status = attn_weights_ignore(weights, 2, (const char *const[]){"a.*", "b.*"});
    if (!status)
        status = attn_weights_ignore(weights, 1, (const char *const[]){"c.*"});
    attn_weights_destroy(weights);
    return status;
}

static attn_status run_bert(struct made *made)
{
    static const int64_t offsets[] = {0, 4, TOKENS};
    static const int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9, 2};
    const attn_bert_config config = {.struct_size = sizeof config,
                                     .layers = 2,
                                     .d_model = D,
                                     .heads = HEADS,
                                     .d_ff = FF,
                                     .vocabulary = WORDS,
                                     .positions = PLACES,
                                     .activation = ATTN_ACTIVATION_GELU,
                                     .eps = 1e-6f};
    const attn_tensor *const layers[] = {NULL, &made->seen};
    attn_bert_outputs outputs = attn_bert_outputs_default();
    outputs.weights = layers;
    attn_bert *bert = (attn_bert *)(uintptr_t)64;
    attn_status status = attn_bert_load(&bert, &config, made->weights, "bert.");
    assert_true((status == ATTN_OK) == (bert != NULL));
    if (!status)
        status = attn_bert_forward(bert, 2, offsets, ids, &made->out, &outputs, 2, NULL, 0);
    attn_bert_destroy(bert);
    return status;
}

/** The rest of out, where a model of a folder has written less than that. */
static void fill_out(struct made *made, int64_t from)
{
    for (int64_t i = from; i < TOKENS * D; i++)
        made->out_data[i] = 0;
}

static attn_status run_encoder(struct made *made)
{
    static const int64_t offsets[] = {0, 4, TOKENS};
    static const int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 8, 2};
    attn_model_options options = attn_model_options_default();
    attn_model_info info = attn_model_info_default();
    attn_model_batch batch = attn_model_batch_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    attn_model *model = (attn_model *)(uintptr_t)64;
    options.pooling = ATTN_POOLING_LAST;
    attn_status status = attn_model_open(&model, made->encoder.path, &options);
    assert_true((status == ATTN_OK) == (model != NULL));
    if (!status) {
        OK(attn_model_describe(model, &info));
        const attn_tensor rows = attn_btc(made->out_data, 1, 2, info.d_model);
        batch.num_sequences = 2, batch.offsets = offsets, batch.ids = ids, batch.num_threads = 2;
        outputs.embeddings = &rows;
        status = attn_model_encode(model, &batch, &outputs);
    }
    if (!status)
        fill_out(made, 2 * info.d_model);
    attn_model_close(model);
    return status;
}

/** Opened alone: what runs is what run_llama() runs. */
static attn_status run_decoder(struct made *made)
{
    attn_model *model = (attn_model *)(uintptr_t)64;
    const attn_status status = attn_model_open(&model, made->decoder.path, NULL);
    assert_true((status == ATTN_OK) == (model != NULL));
    if (!status)
        fill_out(made, 0);
    attn_model_close(model);
    return status;
}

/** A text that is encoded, and a step of two sequences that look at it; both caches are made beforehand. */
static attn_status run_with_memory(struct made *made, const attn_model *model, attn_model_memory *memory,
                                   attn_cache *cache)
{
    static const int64_t offsets[] = {0, TOKENS}, counts[] = {2, 1};
    static const int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 8, 2};
    int64_t sources[2], sequences[2];
    attn_model_info info = attn_model_info_default();
    OK(attn_model_describe(model, &info));
    const attn_tensor hidden = attn_btc(made->out_data, 1, 3, info.d_model);
    attn_model_batch batch = attn_model_batch_default();
    attn_model_tokens tokens = attn_model_tokens_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    batch.num_sequences = 1, batch.offsets = offsets, batch.ids = ids;
    attn_status status = attn_model_memory_add(memory, &batch, NULL, sources);
    assert_int_equal(attn_model_memory_length(memory, 0), status ? -1 : TOKENS);
    for (int i = 0; !status && i < 2; i++)
        status = attn_cache_add(cache, &sequences[i]);
    if (!status)
        status = attn_cache_step(cache, 2, sequences, counts, NULL);
    if (status)
        return status;
    sources[1] = sources[0];
    tokens.ids = ids, tokens.memory = memory, tokens.sources = sources, tokens.num_threads = 2;
    outputs.hidden = &hidden;
    status = attn_model_step(model, cache, &tokens, &outputs);
    if (!status)
        fill_out(made, 3 * info.d_model);
    return status;
}

static attn_status run_encoder_decoder(struct made *made)
{
    attn_model *model = (attn_model *)(uintptr_t)64;
    attn_model_memory *memory = NULL;
    attn_cache *cache = NULL;
    attn_cache_config config = attn_cache_config_default();
    attn_status status = attn_model_open(&model, made->encoder_decoder.path, NULL);
    assert_true((status == ATTN_OK) == (model != NULL));
    if (!status) {
        OK(attn_model_cache_config(model, &config));
        config.max_tokens = config.max_sequences = 4;
        status = attn_cache_create(&cache, &config);
    }
    if (!status) {
        memory = (attn_model_memory *)(uintptr_t)64;
        status = attn_model_memory_create(&memory, model);
        assert_true((status == ATTN_OK) == (memory != NULL));
    }
    if (!status)
        status = run_with_memory(made, model, memory, cache);
    attn_model_memory_destroy(memory);
    attn_cache_destroy(cache);
    attn_model_close(model);
    return status;
}

static attn_status run_lstm(struct made *made)
{
    attn_lstm_config config = attn_lstm_config_default();
    config.input = D, config.hidden = HIDDEN, config.layers = 2, config.bidirectional = 1;
    const attn_tensor out = attn_btc(made->out_data, 1, TOKENS, 2 * HIDDEN);
    attn_lstm *lstm = (attn_lstm *)(uintptr_t)64;
    attn_status status = attn_lstm_load(&lstm, &config, made->weights, "rnn.");
    assert_true((status == ATTN_OK) == (lstm != NULL));
    if (!status)
        status = attn_lstm_forward(lstm, &made->x, NULL, NULL, &out, 2, NULL, 0);
    attn_lstm_destroy(lstm);
    return status;
}

static attn_status run_pool(struct made *made)
{
    attn_tensor w, v;
    const attn_tensor out = attn_btc(made->out_data, 1, 1, D);
    attn_pool *pool = (attn_pool *)(uintptr_t)64;
    OK(attn_weights_get(made->weights, "pool.w", ATTENTION, D, &w));
    OK(attn_weights_get(made->weights, "pool.v", 0, ATTENTION, &v));
    attn_status status = attn_pool_create(&pool, &w, NULL, &v);
    assert_true((status == ATTN_OK) == (pool != NULL));
    if (!status)
        status = attn_pool_forward(pool, &made->x, NULL, &out, NULL, 2, NULL, 0);
    attn_pool_destroy(pool);
    return status;
}

static attn_status run_alignment(struct made *made)
{
    attn_alignment_config config = attn_alignment_config_default();
    attn_alignment *general = (attn_alignment *)(uintptr_t)64;
    const attn_tensor projected = attn_btc(made->seen_data, 1, 2, ATTENTION),
                      q = attn_btc(made->x_data, 1, 1, ATTENTION);
    const attn_tensor keys = attn_btc(made->x_data, 1, 2, D), out = attn_btc(made->out_data, 1, 1, D);
    config.score = ATTN_SCORE_GENERAL, config.d_query = ATTENTION, config.d_key = D;
    OK(attn_weights_get(made->weights, "pool.w", ATTENTION, D, &config.w_k));
    attn_status status = attn_alignment_create(&general, &config);
    assert_true((status == ATTN_OK) == (general != NULL));
    if (!status)
        status = attn_alignment_project(general, &keys, &projected, 2);
    if (!status)
        status = attn_alignment_forward(general, &q, &projected, &keys, &out, NULL, NULL, 0);
    attn_alignment_destroy(general);
    return status;
}

/** With lengths, of which the core gets its own. */
static attn_status run_linformer(struct made *made)
{
    static const int64_t kv_len[] = {TOKENS - 1};
    attn_params params = attn_params_default();
    const attn_tensor e = attn_matrix(made->x_data, HIDDEN, TOKENS);
    params.kv_len = kv_len;
    params.num_threads = 2;
    return attn_linformer_forward(&made->x, &made->x, &made->x, &e, NULL, &made->out, &params, NULL, 0);
}

static attn_status run_linear(struct made *made)
{
    attn_tensor w;
    const attn_tensor out = attn_btc(made->out_data, 1, TOKENS, ATTENTION);
    attn_linear_format format = attn_linear_format_default();
    attn_linear *linear = (attn_linear *)(uintptr_t)64;
    format.weights = ATTN_WEIGHTS_INT8, format.multiply = ATTN_MULTIPLY_INT8, format.group = 32;
    OK(attn_weights_get(made->weights, "pool.w", ATTENTION, D, &w));
    attn_status status = attn_linear_quantize(&linear, &format, 1, &w, NULL);
    assert_true((status == ATTN_OK) == (linear != NULL));
    if (!status)
        status = attn_linear_forward(linear, &made->x, &out, NULL);
    attn_linear_destroy(linear);
    return status;
}

static attn_status run_llama(struct made *made)
{
    attn_llama_config config = {.struct_size = sizeof config,
                                .layers = 1,
                                .d_model = D,
                                .heads = HEADS,
                                .d_ff = FF,
                                .vocabulary = WORDS,
                                .eps = 1e-6f,
                                .tied = 1};
    const attn_tensor logits = attn_btc(made->out_data, 1, 1, WORDS);
    attn_llama *llama = (attn_llama *)(uintptr_t)64;
    attn_llama_session *session = NULL;
    attn_status status = attn_llama_load(&llama, &config, made->weights);
    assert_true((status == ATTN_OK) == (llama != NULL));
    if (!status)
        status = attn_llama_session_create(&session, llama, 1, 8);
    assert_true((status == ATTN_OK) == (session != NULL));
    if (!status)
        status = attn_llama_forward(session, 3, (const int32_t[]){1, 2, 3}, &logits, 2);
    if (status && session)
        assert_int_equal(attn_llama_session_length(session), 0);
    attn_llama_session_destroy(session);
    attn_llama_destroy(llama);
    return status;
}

static attn_status run_transformer(struct made *made)
{
    const attn_transformer_config config = {.struct_size = sizeof config,
                                            .encoder_layers = 1,
                                            .decoder_layers = 1,
                                            .d_model = D,
                                            .heads = HEADS,
                                            .d_ff = FF,
                                            .source_vocabulary = WORDS,
                                            .target_vocabulary = WORDS,
                                            .positions = PLACES,
                                            .activation = ATTN_ACTIVATION_RELU,
                                            .eps = 1e-6f,
                                            .bos = 1,
                                            .eos = 2};
    attn_decoding decoding = attn_decoding_default();
    static float memory_data[3 * D];
    int32_t ids[4] = {0};
    attn_hypothesis best = {.ids = ids};
    const attn_tensor memory = attn_btc(memory_data, 1, 3, D);
    attn_transformer *model = (attn_transformer *)(uintptr_t)64;
    decoding.beams = 3, decoding.max_length = 4, decoding.num_threads = 2;
    attn_status status = attn_transformer_load(&model, &config, made->weights, "");
    assert_true((status == ATTN_OK) == (model != NULL));
    if (!status)
        status = attn_transformer_encode(model, 1, 3, (const int32_t[]){5, 6, 7}, NULL, &memory, 2);
    if (!status)
        status = attn_transformer_decode(model, &memory, NULL, &decoding, &best);
    attn_transformer_destroy(model);
    for (int i = 0; i < 4 && !status; i++)
        made->out_data[i] = (float)ids[i];
    if (!status)
        made->out_data[4] = (float)best.log_prob;
    return status;
}

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

static void make(struct made *made, struct memory *m)
{
    attn_mha_config attention = attn_mha_config_default();
    attn_block_config block = attn_block_config_default();
    attention.d_model = D, attention.heads = HEADS;
    block.attention = &attention, block.d_ff = FF;
    memset(made, 0, sizeof *made);
    made->named = named_create(m);
    named_add(made->named, m, ATTN_F32, WORDS, D, 1, 0, "bert.", "embeddings.word_embeddings.weight");
    named_add(made->named, m, ATTN_F32, PLACES, D, 1, 0, "bert.", "embeddings.position_embeddings.weight");
    named_add(made->named, m, ATTN_F32, 2, D, 1, 0, "bert.", "embeddings.token_type_embeddings.weight");
    named_add_norm(made->named, m, ATTN_NORM_LAYER, D, "bert.", "embeddings.LayerNorm");
    named_add_block(made->named, m, &block, "bert.encoder.layer.0.", ATTN_NAMING_BERT, 1);
    named_add_block(made->named, m, &block, "bert.encoder.layer.1.", ATTN_NAMING_BERT, 1);
    for (int layer = 0; layer < 2; layer++)
        for (int reverse = 0; reverse < 2; reverse++) {
            const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
            for (int kind = 0; kind < 4; kind++) {
                char name[NAMED_LENGTH];
                snprintf(name, sizeof name, "%s_l%d%s", kinds[kind], layer, reverse ? "_reverse" : "");
                const int64_t columns = kind == 0 ? (layer ? 2 * HIDDEN : D) : kind == 1 ? HIDDEN : 4 * HIDDEN;
                named_add(made->named, m, ATTN_F32, kind < 2 ? 4 * HIDDEN : 0, columns, 0.5, 0, "rnn.", name);
            }
        }
    named_add(made->named, m, ATTN_F32, WORDS, D, 1, 0, "", "model.embed_tokens.weight");
    named_add_norm(made->named, m, ATTN_NORM_RMS, D, "", "model.norm");
    attn_block_config llama = block;
    llama.gated = 1, llama.norm = ATTN_NORM_RMS;
    named_add_block(made->named, m, &llama, "model.layers.0.", ATTN_NAMING_LLAMA, 0);
    named_add(made->named, m, ATTN_F32, WORDS, D, 0.3, 0, "", "src_embedding.weight");
    named_add(made->named, m, ATTN_F32, WORDS, D, 0.3, 0, "", "tgt_embedding.weight");
    named_add(made->named, m, ATTN_F32, WORDS, D, 0.3, 0, "", "generator.weight");
    named_add_block(made->named, m, &block, "encoder.layers.0.", ATTN_NAMING_TORCH, 1);
    block.cross = 1;
    named_add_block(made->named, m, &block, "decoder.layers.0.", ATTN_NAMING_TORCH, 1);
    named_add(made->named, m, ATTN_F32, ATTENTION, D, 0.5, 0, "pool.", "w");
    named_add(made->named, m, ATTN_F32, 0, ATTENTION, 0.5, 0, "pool.", "v");
    made->weights = named_weights(made->named);
    OK(attn_weights_ignore(made->weights, 1, (const char *const[]){"*"})); /* models that know nothing of each other */
    made->x = attn_btc(made->x_data, 1, TOKENS, D);
    made->out = attn_btc(made->out_data, 1, TOKENS, D);
    made->seen = attn_bhtd(made->seen_data, 1, HEADS, TOKENS, TOKENS);
    for (int i = 0; i < TOKENS * D; i++)
        made->x_data[i] = (float)(i % 7) * 0.25f - 0.7f;
}

/** What the libraries say where memory is short. */
static struct sentences shortages[] = {
    {.words = ": out of memory"},
    {.words = "no memory for a workspace of | bytes"},
    {.words = "no memory for a table of 4 sequences of up to 1 pages, of 4 in all"},
    {.words = "no memory for a cache"},
    {.words = "no memory for a cache of | bytes"},
    {.words = "no memory for steps of 4 sequences"},
    {.words = "no memory for a step of 3 tokens"},
    {.words = "v, a vector of 6 floats, could not be allocated"},
    {.words = "a score function of | bytes could not be allocated"},
    {.words = "an encoder of 2 layers could not be allocated"},
    {.words = "a Transformer layer could not be allocated"},
    {.words = "a workspace of | bytes could not be allocated"},
    {.words = "| bytes of packed weights could not be allocated"},
    {.words = "a linear layer of 3 parts could not be allocated"},
    {.words = "a linear layer of 1 parts could not be allocated"},
    {.words = "a linear layer of 2 parts could not be allocated"},
    {.words = "a cache for 1 sequences of 8 tokens could not be allocated"},
    {.words = "a decoder of 1 layers could not be allocated"},
    {.words = "a decoder of 2 layers could not be allocated"},
    {.words = "a session could not be allocated"},
    {.words = "an LSTM of 2 layers could not be allocated"},
    {.words = "biases of 5 channels could not be added"},
    {.words = "views of 2 layers could not be allocated"},
    {.words = "a layer of multi-head attention could not be allocated"},
    {.words = "a list of ids could not be allocated"},
    {.words = "a model could not be allocated"},
    {.words = "a memory could not be allocated"},
    {.words = "no memory for 1 more sources"},
    {.words = "a copy of 6 x 8 weights could not be allocated"},
    {.words = "a copy of | weights could not be allocated"},
    {.words = "a list of | tensors could not be allocated"},
    {.words = "a pool of | bytes could not be allocated"},
    {.words = "9 positions of | channels could not be allocated"},
    {.words = "a stack of 1 layers could not be allocated"},
    {.words = "an encoder-decoder could not be allocated"},
    {.words = "a list of 2 names could not be allocated"},
    {.words = "a list of 1 names could not be allocated"},
    {.words = "a set of weights could not be allocated"},
    {.words = "config.v, a vector of | floats, could not be allocated"},
    {0},
};

/** Makes allocation n fail; returns whether n was beyond the last. */
static int nth_fails(int n, int persistent, run_function *run, struct made *made, const float *expected)
{
    static const float mark = -77.0f;
    for (int i = 0; i < TOKENS * D; i++)
        made->out_data[i] = mark;
    ledger_begin(n, persistent);
    const attn_status status = run(made);
    ledger.active = 0;
    assert_int_equal(ledger.live, 0);
    if (status) {
        assert_int_equal(status, ATTN_OUT_OF_MEMORY);
        sentences_meet(shortages, attn_last_error());
        for (int i = 0; i < TOKENS * D; i++)
            assert_true(made->out_data[i] == mark);
    } else {
        assert_memory_equal(made->out_data, expected, sizeof made->out_data);
    }
    return ledger.made < n;
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

static attn_alignment_config small_alignment(attn_score score)
{
    static float matrix[D * D];
    attn_alignment_config config = attn_alignment_config_default();
    config.score = score;
    config.d_query = config.d_key = D;
    if (score == ATTN_SCORE_ADDITIVE) {
        config.d_attention = D;
        config.w_q = config.w_k = attn_matrix(matrix, D, D), config.v = attn_vector(matrix, D);
    }
    return config;
}

static attn_status run_additive(struct made *made)
{
    static const int32_t labels[2];
    const attn_alignment_config config = small_alignment(ATTN_SCORE_ADDITIVE);
    const attn_segments segments = {labels, labels};
    const attn_tensor x = attn_btc(made->x_data, 1, 2, D), projected = attn_btc(made->seen_data, 1, 2, D),
                      out = attn_btc(made->out_data, 1, 2, D);
    attn_alignment *additive = (attn_alignment *)(uintptr_t)64;
    attn_params params = attn_params_default();
    params.segments = &segments;
    params.num_threads = 2;
    attn_status status = attn_alignment_create(&additive, &config);
    assert_true((status == ATTN_OK) == (additive != NULL));
    if (!status)
        status = attn_alignment_project(additive, &x, &projected, 2);
    if (!status)
        status = attn_alignment_forward(additive, &x, &projected, &x, &out, &params, NULL, 0);
    attn_alignment_destroy(additive);
    return status;
}

static attn_status run_score_backward(struct made *made, attn_score score)
{
    const attn_alignment_config config = small_alignment(score);
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
    const attn_alignment_config alignment = small_alignment(ATTN_SCORE_ADDITIVE);
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

static void test_every_allocation(void **state)
{
    (void)state;
    static run_function *const runs[] = {run_weights,
                                         run_bert,
                                         run_encoder,
                                         run_decoder,
                                         run_encoder_decoder,
                                         run_lstm,
                                         run_pool,
                                         run_alignment,
                                         run_linformer,
                                         run_additive,
                                         run_linear,
                                         run_llama,
                                         run_transformer,
                                         run_linear_backward,
                                         run_normalise_backward,
                                         run_lstm_backward,
                                         run_mha_backward,
                                         run_block_backward,
                                         run_bert_train,
                                         run_pool_backward,
                                         run_additive_backward,
                                         run_dot_backward,
                                         run_bahdanau_backward};
    static struct made made;
    static float expected[TOKENS * D];
    struct memory *m = memory_create("alloc", 0);
    make(&made, m);
    made.encoder = model_folder_bert(m);
    made.decoder = model_folder_llama(m);
    made.encoder_decoder = model_folder_t5(m, 0);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        for (int i = 0; i < TOKENS * D; i++)
            made.out_data[i] = -77.0f;
        OK(runs[r](&made));
        memcpy(expected, made.out_data, sizeof expected);
        for (int persistent = 0; persistent < 2; persistent++) {
            int n = 1;
            while (!nth_fails(n, persistent, runs[r], &made, expected))
                assert_true(++n < 10000);
            assert_true(n > 1); /* else the library's allocations do not pass through here */
        }
    }
    sentences_end(shortages);
    model_folder_remove(&made.encoder);
    model_folder_remove(&made.decoder);
    model_folder_remove(&made.encoder_decoder);
    attn_weights_destroy(made.weights);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    nn_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
