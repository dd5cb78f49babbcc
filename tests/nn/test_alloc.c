/* SPDX-License-Identifier: Apache-2.0 */
/* Failing memory while models are made and run. */
#include "failing_runs.h"

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

/** Opened alone: what runs is what run_llama() runs. Its layers have windows. */
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

static attn_status run_additive(struct made *made)
{
    static const int32_t labels[2];
    const attn_alignment_config config = failing_alignment(ATTN_SCORE_ADDITIVE);
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

static attn_status run_bahdanau(struct made *made)
{
    static float gates[3 * D * 2 * D];
    const attn_alignment_config alignment = failing_alignment(ATTN_SCORE_ADDITIVE);
    attn_bahdanau_config config = attn_bahdanau_config_default();
    attn_alignment *additive = NULL;
    attn_bahdanau *step = NULL;
    attn_status status = attn_alignment_create(&additive, &alignment);
    config.embedding = config.annotation = config.hidden = D, config.alignment = additive;
    config.w_ih = attn_matrix(gates, 3 * D, 2 * D), config.w_hh = attn_matrix(gates, 3 * D, D);
    if (!status) {
        step = (attn_bahdanau *)(uintptr_t)64;
        status = attn_bahdanau_create(&step, &config);
        assert_true((status == ATTN_OK) == (step != NULL));
    }
    if (!status)
        fill_out(made, 0);
    attn_bahdanau_destroy(step);
    attn_alignment_destroy(additive);
    return status;
}

/** Weights in two files. */
static attn_status run_shards(struct made *made)
{
    char path[128];
    attn_tensor t;
    attn_weights *weights = (attn_weights *)(uintptr_t)64;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", made->shards.path);
    const attn_status status = attn_weights_open(&weights, path);
    assert_true((status == ATTN_OK) == (weights != NULL));
    if (!status) {
        OK(attn_weights_get(weights, "b", 0, TOKENS * D, &t));
        memcpy(made->out_data, t.data, sizeof made->out_data);
    }
    attn_weights_destroy(weights);
    return status;
}

/** Their folder: behind a header of odd length no number lies where C may read it. */
static struct model_folder make_shards(struct memory *m)
{
    static const char *const names[] = {"a", "b"}, *const files[] = {"one.safetensors", "two.safetensors"};
    const struct model_folder folder = model_folder_make();
    for (int i = 0; i < 2; i++) {
        struct named *n = named_create(m);
        size_t size;
        named_add(n, m, ATTN_F32, 0, TOKENS * D, 1, 0, "", names[i]);
        char *file = named_file(n, m, &size), *odd = bytes(m, size + 1);
        uint64_t header;
        memcpy(&header, file, sizeof header);
        memcpy(odd, file, sizeof header + header);
        odd[sizeof header + header] = ' ';
        memcpy(odd + sizeof header + header + 1, file + sizeof header + header, size - sizeof header - header);
        header++;
        memcpy(odd, &header, sizeof header);
        model_folder_write(&folder, files[i], odd, size + 1);
    }
    model_folder_text(&folder, "model.safetensors.index.json",
                      "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}");
    return folder;
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
    {.words = "a step of | bytes could not be allocated"},
    {.words = "a list of windows could not be allocated"},
    {.words = "the name of a file could not be allocated"},
    {.words = "a list of files could not be allocated"},
    {.words = "a list of tensors could not be allocated"},
    {.words = "676 bytes to align tensors in could not be allocated"},
    {0},
};

static void test_every_allocation(void **state)
{
    (void)state;
    static run_function *const runs[] = {run_weights,         run_shards,   run_bert,   run_encoder,   run_decoder,
                                         run_encoder_decoder, run_lstm,     run_pool,   run_alignment, run_linformer,
                                         run_additive,        run_bahdanau, run_linear, run_llama,     run_transformer};
    static struct made made;
    struct memory *m = memory_create("alloc", 0);
    failing_make(&made, m);
    made.encoder = model_folder_bert(m);
    made.decoder = model_folder_llama(m);
    model_folder_llama_config(&made.decoder, "mistral", "MistralForCausalLM", ", \"sliding_window\": 4");
    made.encoder_decoder = model_folder_t5(m, 0);
    made.shards = make_shards(m);
    failing_runs(&made, runs, sizeof runs / sizeof *runs, shortages);
    model_folder_remove(&made.encoder);
    model_folder_remove(&made.decoder);
    model_folder_remove(&made.encoder_decoder);
    model_folder_remove(&made.shards);
    attn_weights_destroy(made.weights);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    nn_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
