/* SPDX-License-Identifier: Apache-2.0 */
/* What models from folders refuse: files, options and calls. */
#include "model_folder.h"
#include "small.h"

enum { TOKENS = 3 }; /* of good.batch */

static void test_bad_files(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("folder_refusals bad_files", 0);
    struct model_folder folder = model_folder_make();
    model_folder_refused(&folder, ATTN_INVALID_FILE, " has no config.json; expected a model's folder");
    model_folder_text(&folder, "config.json", "{\"model_type\"");
    model_folder_refused(&folder, ATTN_INVALID_FILE, "config.json|line 1");
    model_folder_text(&folder, "config.json", "[1]");
    model_folder_refused(&folder, ATTN_INVALID_FILE, "config.json|not a JSON object");
    model_folder_text(&folder, "config.json", "{}");
    model_folder_refused(&folder, ATTN_INVALID_FILE, "/config.json: 'model_type' is missing; expected a text");
    model_folder_text(&folder, "config.json", "{\"model_type\": \"rwkv\", \"architectures\": [\"RwkvForCausalLM\"]}");
    model_folder_refused(
        &folder, ATTN_UNSUPPORTED,
        "/config.json: 'model_type' is 'rwkv' (RwkvForCausalLM); expected bert, distilbert, gemma2, gpt2, "
        "llama, mistral, mt5, qwen2, qwen3, roberta, t5 or xlm-roberta");
    model_folder_text(&folder, "config.json", "{\"model_type\": \"rwkv\\n\"}");
    model_folder_refused(&folder, ATTN_UNSUPPORTED, "'rwkv?'");
    model_folder_text(&folder, "config.json", "{\"model_type\": \"bert\"}");
    model_folder_refused(&folder, ATTN_INVALID_FILE, "neither|model.safetensors.index.json");
    model_folder_text(&folder, "pytorch_model.bin", "");
    model_folder_refused(&folder, ATTN_UNSUPPORTED,
                         " has its weights in pytorch_model.bin; expected model.safetensors, which save_pretrained()");
    model_folder_drop(&folder, "pytorch_model.bin");
    model_folder_text(&folder, "q4.gguf", "GGUF");
    model_folder_refused(&folder, ATTN_UNSUPPORTED, "q4.gguf");
    attn_model *model;
    char path[128];
    snprintf(path, sizeof path, "%s/q4.gguf", folder.path);
    REFUSES(NULL, attn_model_open(&model, path, NULL), ATTN_UNSUPPORTED,
            "/q4.gguf is a file; expected a folder with config.json and model.safetensors");
    REFUSES(NULL, attn_model_open(&model, "/nonexistent/model", NULL), ATTN_INVALID_FILE, "/nonexistent/model");
    REFUSES(NULL, attn_model_open(&model, NULL, NULL), ATTN_INVALID_ARGUMENT,
            "folder is NULL; expected the name of a model's folder");
    REFUSES(NULL, attn_model_open(NULL, folder.path, NULL), ATTN_INVALID_ARGUMENT,
            "model is NULL; expected where to put the model");
    model_folder_remove(&folder);

    /* Weights that do not fit what config.json says, and the other files. */
    folder = model_folder_bert(m);
    attn_model_options options = attn_model_options_default();
    options.pooling = (attn_pooling)7;
    REFUSES(NULL, attn_model_open(&model, folder.path, &options), ATTN_INVALID_ARGUMENT,
            "options.pooling is 7; expected an attn_pooling");
    options.pooling = ATTN_POOLING_NONE, options.normalise = 1;
    REFUSES(NULL, attn_model_open(&model, folder.path, &options), ATTN_INVALID_ARGUMENT,
            "options.normalise is 1; expected 0 without options.pooling");
    options.normalise = 0, options.activations = (attn_dtype)9;
    REFUSES(NULL, attn_model_open(&model, folder.path, &options), ATTN_INVALID_ARGUMENT, "options.activations|9");
    static const struct {
        const char *name, *text, *words;
        attn_status status;
    } files[] = {
        {"modules.json", "{}", "/modules.json is not a JSON array", ATTN_INVALID_FILE},
        {"modules.json", "[", "modules.json|line 1", ATTN_INVALID_FILE},
        {"modules.json", "[{\"type\": \"a.Transformer\"}]",
         "/modules.json: a module has no 'path'; expected the folder of each", ATTN_INVALID_FILE},
        {"modules.json", "[{\"type\": \"a.Dense\", \"path\": \"2_Dense\"}]",
         "/modules.json: a module is Dense; expected one Transformer, one Pooling and Normalize", ATTN_UNSUPPORTED},
        {"modules.json", "[{\"type\": \"a.Transformer\", \"path\": \"0\"}]",
         "/modules.json: the Transformer is in '0'; expected the model's own folder", ATTN_UNSUPPORTED},
        {"modules.json", "[{\"type\": \"a.Transformer\", \"path\": \"\"}]",
         "/modules.json names no Pooling; expected one", ATTN_UNSUPPORTED},
        {"modules.json", "[{\"type\": \"a.Pooling\", \"path\": \"1\"}]",
         "/1 has no config.json; expected that of the pooling which modules.json names", ATTN_INVALID_FILE},
        {"sentence_bert_config.json", "{\"max_seq_length\": 7}",
         "/sentence_bert_config.json: 'max_seq_length' is 7; expected 1 to 6, the positions of the model",
         ATTN_INVALID_FILE},
        {"modules.json", "[{\"type\": \"a.Pooling\", \"path\": \"\"}]",
         "/config.json names no pooling; expected one of mean, cls, max and lasttoken", ATTN_UNSUPPORTED},
        {"sentence_bert_config.json", "{\"max_seq_length\": 0}", "'max_seq_length'|0", ATTN_INVALID_FILE},
        {"generation_config.json", "{\"eos_token_id\": [1, 9]}",
         "/generation_config.json: 'eos_token_id' is an array of something else; expected ids from 0 to 8",
         ATTN_INVALID_FILE},
        {"generation_config.json", "{\"eos_token_id\": \"end\"}", "'eos_token_id'|'end'", ATTN_INVALID_FILE},
        {"config.json", "{\"model_type\": \"bert\"}", "'num_hidden_layers'|missing", ATTN_INVALID_FILE},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        model_folder_text(&folder, files[i].name, files[i].text);
        model_folder_refused(&folder, files[i].status, files[i].words);
        if (strcmp(files[i].name, "config.json") != 0)
            model_folder_drop(&folder, files[i].name);
    }
    model_folder_remove(&folder);
    folder = model_folder_bert(m);
    struct named *n = named_create(m);
    add_bert(n, m, "", 1);
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_refused(&folder, ATTN_SHAPE_MISMATCH, "model.safetensors|token_type_embeddings");
    named_remove(n, "", "embeddings.token_type_embeddings.weight");
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_refused(&folder, ATTN_INVALID_ARGUMENT, "model.safetensors|token_type_embeddings");
    named_add(n, m, ATTN_F32, 2, D, 1, 0, "", "embeddings.token_type_embeddings.weight");
    named_add(n, m, ATTN_F32, 2, D, 1, 0, "", "embeddings.projection.weight");
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_refused(&folder, ATTN_UNSUPPORTED, "'embeddings.projection.weight'|attn_model_open");
    nn_end_refusals();
    model_folder_remove(&folder);
    memory_destroy(m);
}

static void test_bad_calls(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("folder_refusals bad_calls", 0);
    struct model_folder folders[] = {model_folder_bert(m), model_folder_llama(m)};
    attn_model *encoder, *decoder;
    OK(attn_model_open(&encoder, folders[0].path, NULL));
    OK(attn_model_open(&decoder, folders[1].path, NULL));
    const attn_tensor hidden = place_dense(m, 1, 1, TOKENS, D), rows = place_dense(m, 1, 1, 2, D);
    const attn_tensor *const states[] = {NULL, &hidden, NULL};
    attn_model_batch batch = good.batch;
    attn_model_outputs outputs = attn_model_outputs_default(), none = attn_model_outputs_default();
    attn_model_tokens tokens = attn_model_tokens_default();
    attn_model_info info = attn_model_info_default();
    attn_cache_config config = attn_cache_config_default();
    outputs.hidden = &hidden;
    tokens.ids = good.batch.ids;
    REFUSES(m, attn_model_encode(NULL, &batch, &outputs), ATTN_INVALID_ARGUMENT, "model|NULL");
    REFUSES(m, attn_model_encode(decoder, &batch, &outputs), ATTN_INVALID_ARGUMENT,
            "model is llama; expected an encoder for attn_model_encode()");
    REFUSES(m, attn_model_encode(encoder, NULL, &outputs), ATTN_INVALID_ARGUMENT,
            "batch is NULL; expected an attn_model_batch");
    REFUSES(m, attn_model_encode(encoder, &batch, NULL), ATTN_INVALID_ARGUMENT,
            "outputs is NULL; expected an attn_model_outputs");
    REFUSES(m, attn_model_encode(encoder, &batch, &none), ATTN_INVALID_ARGUMENT,
            "outputs has no tensors; expected at least one");
    REFUSES(m, attn_model_step(encoder, NULL, &tokens, &outputs), ATTN_INVALID_ARGUMENT, "bert|decoder");
    REFUSES(m, attn_model_step(decoder, NULL, &tokens, &outputs), ATTN_INVALID_ARGUMENT,
            "cache is NULL; expected one of attn_cache_create()");
    REFUSES(m, attn_model_step(decoder, NULL, NULL, &outputs), ATTN_INVALID_ARGUMENT,
            "tokens is NULL; expected an attn_model_tokens");
    REFUSES(m, attn_model_cache_config(encoder, &config), ATTN_INVALID_ARGUMENT, "bert|decoder");
    REFUSES(m, attn_model_describe(NULL, &info), ATTN_INVALID_ARGUMENT, "model|NULL");
    REFUSES(m, attn_model_describe(encoder, NULL), ATTN_INVALID_ARGUMENT, "info is NULL; expected an attn_model_info");
    outputs.states = states;
    REFUSES(m, attn_model_encode(encoder, &batch, &outputs), ATTN_INVALID_ARGUMENT, "outputs.hidden|outputs.states[1]");
    outputs.states = NULL;
    outputs.pooled = &rows;
    REFUSES(m, attn_model_encode(encoder, &batch, &outputs), ATTN_INVALID_ARGUMENT,
            "outputs.pooled is set; expected NULL, as this model, BertModel, has no pooler");
    REFUSES(m, attn_model_step(decoder, NULL, &tokens, &outputs), ATTN_INVALID_ARGUMENT,
            "outputs.pooled is set; expected NULL for a decoder");
    outputs.pooled = NULL, outputs.embeddings = &rows;
    REFUSES(m, attn_model_encode(encoder, &batch, &outputs), ATTN_INVALID_ARGUMENT, "outputs.embeddings|modules.json");
    outputs.embeddings = NULL, outputs.logits = &rows;
    REFUSES(m, attn_model_encode(encoder, &batch, &outputs), ATTN_INVALID_ARGUMENT, "outputs.logits|classes");
    outputs.logits = NULL;
    static const int32_t bad_types[TOKENS] = {0, 1, 2};
    batch.token_types = bad_types;
    REFUSES(m, attn_model_encode(encoder, &batch, &outputs), ATTN_INVALID_ARGUMENT,
            "types[2] is 2; expected 0 to 1, the tokens known");
    batch.token_types = NULL, batch.num_threads = -1;
    REFUSES(m, attn_model_encode(encoder, &batch, &outputs), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    batch.num_threads = 0, batch.offsets = NULL;
    REFUSES(m, attn_model_encode(encoder, &batch, &outputs), ATTN_INVALID_ARGUMENT, "offsets|NULL");
    nn_end_refusals();
    attn_model_close(encoder);
    attn_model_options options = attn_model_options_default();
    options.pooling = ATTN_POOLING_FIRST;
    OK(attn_model_open(&encoder, folders[0].path, &options));
    static const int64_t none_at_the_end[] = {0, TOKENS, TOKENS};
    batch.num_sequences = 2, batch.offsets = none_at_the_end;
    outputs.embeddings = &rows;
    REFUSES(m, attn_model_encode(encoder, &batch, &outputs), ATTN_INVALID_ARGUMENT,
            "batch.offsets has no tokens for sequence 1; expected some, as outputs.embeddings is made of one of them");
    nn_end_refusals();
    attn_model_close(encoder);
    attn_model_close(decoder);
    model_folder_remove(&folders[0]);
    model_folder_remove(&folders[1]);
    memory_destroy(m);
}

/** Token types of models that have none. */
static void test_no_token_types(void **state)
{
    (void)state;
    static const int32_t types[TOKENS] = {0};
    struct memory *m = memory_for_refusals("folder_refusals no_token_types", 0);
    struct model_folder folders[] = {model_folder_bert(m), model_folder_t5(m, 0)};
    static const char *const words[] = {"types is set; expected NULL, as this encoder has no token types",
                                        "types is set; expected NULL, as T5 has no token types"};
    model_folder_bert_config(&folders[0], ", \"type_vocab_size\": 0");
    struct named *n = named_create(m);
    add_bert(n, m, "", 2);
    named_remove(n, "", "embeddings.token_type_embeddings.weight");
    model_folder_weights(&folders[0], "model.safetensors", n, m);
    const attn_tensor hidden = place_dense(m, 1, 1, TOKENS, D);
    attn_model_batch batch = good.batch;
    attn_model_outputs outputs = attn_model_outputs_default();
    outputs.hidden = &hidden;
    for (int i = 0; i < 2; i++) {
        attn_model *model;
        OK(attn_model_open(&model, folders[i].path, NULL));
        batch.token_types = types;
        REFUSES(m, attn_model_encode(model, &batch, &outputs), ATTN_INVALID_ARGUMENT, words[i]);
        batch.token_types = NULL;
        OK(attn_model_encode(model, &batch, &outputs));
        attn_model_close(model);
        model_folder_remove(&folders[i]);
    }
    nn_end_refusals();
    memory_destroy(m);
}

/** A cache for a decoder of 8 tokens, with a step of one sequence of so many. */
static attn_cache *cache_of(const attn_model *model, int64_t tokens, const int64_t *positions)
{
    attn_cache_config config = attn_cache_config_default();
    attn_cache *cache;
    int64_t sequence;
    OK(attn_model_cache_config(model, &config));
    config.max_tokens = 8, config.max_sequences = 1;
    OK(attn_cache_create(&cache, &config));
    OK(attn_cache_add(cache, &sequence));
    OK(attn_cache_step(cache, 1, &sequence, &tokens, positions));
    return cache;
}

/** A decoder without an output matrix. */
static void test_headless(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("folder_refusals headless", 0);
    struct model_folder folder = model_folder_llama(m);
    struct named *n = named_create(m);
    attn_model *model;
    add_llama(n, m);
    named_remove(n, "", "lm_head.weight");
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_llama_config(&folder, "llama", "LlamaModel", "");
    OK(attn_model_open(&model, folder.path, NULL));
    attn_cache *cache = cache_of(model, TOKENS, NULL);
    const attn_tensor hidden = place_dense(m, 1, 1, TOKENS, D), logits = place_dense(m, 1, 1, TOKENS, WORDS);
    attn_model_outputs outputs = attn_model_outputs_default();
    outputs.logits = &logits;
    REFUSES(m, attn_model_step(model, cache, &good.tokens, &outputs), ATTN_INVALID_ARGUMENT,
            "logits is set; expected NULL, as this model has no output matrix");
    outputs.logits = NULL, outputs.hidden = &hidden;
    attn_model_tokens tokens = good.tokens;
    tokens.ids = good.batch.ids;
    OK(attn_model_step(model, cache, &tokens, &outputs));
    nn_end_refusals();
    attn_cache_destroy(cache);
    attn_model_close(model);
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** Positions beyond the table of a model that has one. */
static void test_positions(void **state)
{
    (void)state;
    static const int64_t beyond[TOKENS] = {0, 1, PLACES};
    struct memory *m = memory_for_refusals("folder_refusals positions", 0);
    struct model_folder folder = model_folder_gpt2(m);
    attn_model *model;
    OK(attn_model_open(&model, folder.path, NULL));
    const attn_tensor hidden = place_dense(m, 1, 1, TOKENS, D);
    attn_model_tokens tokens = attn_model_tokens_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    tokens.ids = good.batch.ids, outputs.hidden = &hidden;
    attn_cache *cache = cache_of(model, TOKENS, beyond);
    REFUSES(m, attn_model_step(model, cache, &tokens, &outputs), ATTN_INVALID_ARGUMENT,
            "token 2 of the cache's step has position 6; expected 0 to 5, the model's positions");
    nn_end_refusals();
    attn_cache_destroy(cache);
    cache = cache_of(model, TOKENS, NULL);
    OK(attn_model_step(model, cache, &tokens, &outputs));
    attn_cache_destroy(cache);
    attn_model_close(model);
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** Entries and tensors of an encoder-decoder. */
static void test_bad_t5(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("folder_refusals bad_t5", 0);
    struct model_folder folder = model_folder_t5(m, 0);
    static const struct {
        const char *more, *words;
        attn_status status;
    } entries[] = {
        {", \"architectures\": [\"T5ForTokenClassification\"]",
         "'architectures'|T5ForTokenClassification|T5EncoderModel|T5Model|T5ForConditionalGeneration",
         ATTN_UNSUPPORTED},
        {", \"feed_forward_proj\": \"gated-mish\"",
         "/config.json: 'feed_forward_proj' is 'gated-mish'; expected relu, silu, gated-relu, gated-silu or gated-gelu",
         ATTN_UNSUPPORTED},
        {", \"feed_forward_proj\": \"gated-relu\"", "encoder.block.0.layer.1.DenseReluDense.wi_0.weight",
         ATTN_INVALID_ARGUMENT},
        {", \"scale_decoder_outputs\": 1", "/config.json: 'scale_decoder_outputs' is 1; expected true or false",
         ATTN_INVALID_FILE},
    };
    attn_model *model;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        model_folder_t5_config(&folder, entries[i].more);
        model_folder_refused(&folder, entries[i].status, entries[i].words);
    }
    static const char sizes[] = "{\"model_type\": \"t5\", \"num_layers\": 2, \"d_model\": 8, \"num_heads\": 2, "
                                "\"d_kv\": 4, \"d_ff\": 12, \"vocab_size\": 9, ";
    static const struct {
        const char *rest, *words;
        attn_status status;
    } configs[] = {
        {"\"num_decoder_layers\": 0}", "'num_decoder_layers'|0", ATTN_INVALID_FILE},
        {"\"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 4}",
         "'relative_attention_max_distance'|4|half", ATTN_UNSUPPORTED},
        {"\"relative_attention_num_buckets\": 8}", "decoder.block.1.", ATTN_INVALID_ARGUMENT},
        {"\"relative_attention_num_buckets\": 8, \"num_decoder_layers\": 1, \"decoder_start_token_id\": 9}",
         "/config.json: 'decoder_start_token_id' is 9; expected 0 to 8", ATTN_INVALID_FILE},
        {"\"relative_attention_num_buckets\": 8, \"num_decoder_layers\": 1, \"pad_token_id\": -1}",
         "/config.json: 'pad_token_id' is -1; expected a whole number of 0 or more", ATTN_INVALID_FILE},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s", sizes, configs[i].rest);
        model_folder_text(&folder, "config.json", text);
        model_folder_refused(&folder, configs[i].status, configs[i].words);
    }
    /* Without the two ids there are none. */
    char text[1024];
    attn_model_info info = attn_model_info_default();
    snprintf(text, sizeof text, "%s%s", sizes, "\"relative_attention_num_buckets\": 8, \"num_decoder_layers\": 1}");
    model_folder_text(&folder, "config.json", text);
    OK(attn_model_open(&model, folder.path, NULL));
    OK(attn_model_describe(model, &info));
    assert_true(info.decoder_start == -1 && info.pad == -1);
    attn_model_close(model);

    /* Tensors. */
    struct named *n = named_create(m);
    add_t5(n, m, 0);
    model_folder_t5_config(&folder, "");
    named_add(n, m, ATTN_F32, 8, HEADS, 1, 0, "",
              "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight");
    model_folder_weights(&folder, "model.safetensors", n, m);
    OK(attn_model_open(&model, folder.path, NULL));
    attn_model_close(model);
    model_folder_t5_config(&folder, ", \"architectures\": [\"T5EncoderModel\"]");
    model_folder_refused(&folder, ATTN_UNSUPPORTED, "'decoder.|attn_model_open");
    model_folder_t5_config(&folder, "");
    /* The embedding again is taken, another one is not. */
    const attn_tensor *shared = named_tensor(n, "", "shared.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "", "decoder.embed_tokens.weight");
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_refused(&folder, ATTN_UNSUPPORTED,
                         ": decoder.embed_tokens.weight is not the embedding again; expected one for both stacks");
    n->tensors[n->num - 1].data = shared->data;
    model_folder_weights(&folder, "model.safetensors", n, m);
    OK(attn_model_open(&model, folder.path, NULL));
    attn_model_close(model);
    named_add(n, m, ATTN_F32, 2, D, 1, 0, "", "projection.weight");
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_refused(&folder, ATTN_UNSUPPORTED, "'projection.weight'|attn_model_open");
    nn_end_refusals();
    model_folder_remove(&folder);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files), cmocka_unit_test(test_bad_calls), cmocka_unit_test(test_no_token_types),
        cmocka_unit_test(test_headless),  cmocka_unit_test(test_positions), cmocka_unit_test(test_bad_t5),
    };
    guard_catch_faults();
    make_configs();
    return NN_MAIN(tests);
}
