/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Architectures, rotations and poolings of models from folders, beside those of test_folders.c: against the oracle, or
 * with the bits of another architecture that is the same for some weights.
 */
#include "model_folder.h"
#include "small.h"

enum { TOKENS = 6 };

static const int32_t ids[TOKENS] = {1, 2, 3, 8, 0, 5};
static const int64_t offsets[] = {0, TOKENS};

/** The logits of all tokens, of a model that is opened and closed. */
static attn_tensor logits_of(struct memory *m, const struct model_folder *folder)
{
    const attn_tensor logits = place_dense(m, 1, 1, TOKENS, WORDS);
    const int64_t tokens = TOKENS;
    int64_t sequence;
    attn_model *model;
    attn_cache *cache;
    attn_cache_config config = attn_cache_config_default();
    attn_model_tokens given = attn_model_tokens_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    OK(attn_model_open(&model, folder->path, NULL));
    OK(attn_model_cache_config(model, &config));
    config.max_tokens = TOKENS, config.max_sequences = 1;
    OK(attn_cache_create(&cache, &config));
    OK(attn_cache_add(cache, &sequence));
    OK(attn_cache_step(cache, 1, &sequence, &tokens, NULL));
    given.ids = ids, outputs.logits = &logits;
    OK(attn_model_step(model, cache, &given, &outputs));
    attn_cache_destroy(cache);
    attn_model_close(model);
    return logits;
}

/** The hidden states of all tokens, of an encoder that is opened and closed. */
static attn_tensor hidden_of(struct memory *m, const struct model_folder *folder)
{
    const attn_tensor hidden = place_dense(m, 1, 1, TOKENS, D);
    attn_model *model;
    attn_model_batch batch = attn_model_batch_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    OK(attn_model_open(&model, folder->path, NULL));
    batch.num_sequences = 1, batch.offsets = offsets, batch.ids = ids, outputs.hidden = &hidden;
    OK(attn_model_encode(model, &batch, &outputs));
    attn_model_close(model);
    return hidden;
}

/** The same logits, of a llama that is made by hand. */
static attn_tensor logits_with(struct memory *m, const attn_weights *weights, const attn_rope_config *rope)
{
    const attn_tensor logits = place_dense(m, 1, 1, TOKENS, WORDS);
    attn_llama_config config = good.llama;
    attn_llama *llama;
    attn_llama_session *session;
    config.rope = rope;
    OK(attn_llama_load(&llama, &config, weights));
    OK(attn_llama_session_create(&session, llama, 1, TOKENS));
    OK(attn_llama_forward(session, TOKENS, ids, &logits, 1));
    attn_llama_session_destroy(session);
    attn_llama_destroy(llama);
    return logits;
}

/** Every scaling that config.json may name, where it may stand. */
static void test_rotations(void **state)
{
    (void)state;
    struct memory *m = memory_create("folder_kinds rotations", 0);
    struct model_folder folder = model_folder_llama(m);
    const struct {
        const char *more;
        attn_rope_config is;
    } cases[] = {
        {"", {.pairs = 2}},
        {", \"rope_scaling\": null, \"partial_rotary_factor\": 0.5", {.pairs = 1}},
        {", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 50}", {.pairs = 2, .base = 50}},
        {", \"rope_parameters\": {\"partial_rotary_factor\": 0.5, \"rope_theta\": 50}", {.pairs = 1, .base = 50}},
        {", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 3}",
         {.pairs = 2, .scaling = ATTN_ROPE_LINEAR, .factor = 3}},
        {", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}",
         {.pairs = 2, .scaling = ATTN_ROPE_YARN, .factor = 4, .original_length = 40}},
        {", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 12, "
         "\"beta_fast\": 6, \"beta_slow\": 0.5, \"attention_factor\": 0.7, \"truncate\": false, \"rope_theta\": 4}",
         {.pairs = 2,
          .base = 4,
          .scaling = ATTN_ROPE_YARN,
          .factor = 4,
          .original_length = 12,
          .beta_fast = 6,
          .beta_slow = 0.5,
          .attention_factor = 0.7,
          .no_truncation = 1}},
        {", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, \"original_max_position_embeddings\": 10, "
         "\"low_freq_factor\": 1.5, \"high_freq_factor\": 3, \"rope_theta\": 20}",
         {.pairs = 2,
          .base = 20,
          .scaling = ATTN_ROPE_LLAMA3,
          .factor = 8,
          .original_length = 10,
          .low_freq_factor = 1.5,
          .high_freq_factor = 3}},
    };
    attn_tensor logits[sizeof cases / sizeof *cases];
    char path[128];
    attn_weights *weights;
    snprintf(path, sizeof path, "%s/model.safetensors", folder.path);
    OK(attn_weights_open(&weights, path));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_rope_config rope = cases[i].is;
        rope.struct_size = sizeof rope;
        rope.base = rope.base > 0 ? rope.base : 10000;
        model_folder_llama_config(&folder, "llama", "LlamaForCausalLM", cases[i].more);
        logits[i] = logits_of(m, &folder);
        const attn_tensor expected = logits_with(m, weights, &rope);
        assert_true(equal_bits(&logits[i], &expected));
        assert_true(i == 0 || !equal_bits(&logits[i], &logits[0]));
    }
    attn_weights_destroy(weights);
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** Qwen 2 has biases of q, k and v alone: a llama whose fourth bias is 0. */
static void test_qwen2(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double scale;
    } biases[] = {{"self_attn.q_proj.bias", 1},
                  {"self_attn.k_proj.bias", 1},
                  {"self_attn.v_proj.bias", 1},
                  {"self_attn.o_proj.bias", 0}};
    struct memory *m = memory_create("folder_kinds qwen2", 0);
    struct model_folder folder = model_folder_llama(m);
    struct named *n = named_create(m);
    const attn_tensor plain = logits_of(m, &folder);
    add_llama(n, m);
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 2; l++) {
            char layer[NAMED_LENGTH];
            layer_prefix(layer, "", "model.layers", l);
            named_add(n, m, ATTN_F32, 0, D, biases[i].scale, 0, layer, biases[i].name);
        }
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_llama_config(&folder, "llama", "LlamaForCausalLM", ", \"attention_bias\": true");
    const attn_tensor expected = logits_of(m, &folder);
    model_folder_llama_config(&folder, "qwen2", "Qwen2ForCausalLM", "");
    model_folder_refused(&folder, ATTN_INVALID_FILE,
                         ": self_attn.o_proj.bias is in the weights; expected it not to be, as |/config.json says");
    n->num -= 2;
    model_folder_weights(&folder, "model.safetensors", n, m);
    const attn_tensor logits = logits_of(m, &folder);
    assert_true(equal_bits(&logits, &expected));
    assert_false(equal_bits(&logits, &plain));
    /* Windows from max_window_layers on; 28, the default, is behind the last layer. */
    model_folder_llama_config(&folder, "qwen2", "Qwen2ForCausalLM",
                              ", \"use_sliding_window\": true, \"sliding_window\": 2");
    const attn_tensor none = logits_of(m, &folder);
    assert_true(equal_bits(&none, &expected));
    model_folder_llama_config(&folder, "qwen2", "Qwen2ForCausalLM",
                              ", \"use_sliding_window\": true, \"sliding_window\": 2, \"max_window_layers\": 1");
    const attn_tensor last = logits_of(m, &folder);
    assert_false(equal_bits(&last, &expected));
    model_folder_remove(&folder);
    memory_destroy(m);
    nn_end_refusals();
}

/** Gemma 2: caps of scores and logits, windows in every other layer, and norms that are Gemma's. */
static void test_gemma2(void **state)
{
    (void)state;
    enum { LAYERS = 3, WINDOW = 3 };
    static const float caps[][2] = {{50, 30}, {2, 1.5f}, {0, 0}};
    static const char *const entries[] = {"", ", \"attn_logit_softcapping\": 2, \"final_logit_softcapping\": 1.5",
                                          ", \"attn_logit_softcapping\": null, \"final_logit_softcapping\": null"};
    for (int which = 0; which < 3; which++) {
        struct memory *m = memory_create("folder_kinds gemma2", (uint64_t)which);
        struct model_folder folder = model_folder_make();
        struct named *n = named_create(m);
        struct oracle_block blocks[LAYERS];
        attn_block_config config = good.block;
        char text[1024];
        config.gated = config.norm_first = config.post_norms = config.norm_plus_one = 1;
        config.norm = ATTN_NORM_RMS, config.activation = ATTN_ACTIVATION_GELU_TANH;
        named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "", "model.embed_tokens.weight");
        for (int l = 0; l < LAYERS; l++) {
            char layer[NAMED_LENGTH];
            layer_prefix(layer, "", "model.layers", l);
            named_add_block(n, m, &config, layer, ATTN_NAMING_LLAMA, 0);
            blocks[l] = named_block(n, &config, layer, ATTN_NAMING_LLAMA);
        }
        named_add_norm(n, m, ATTN_NORM_RMS, D, "", "model.norm");
        model_folder_weights(&folder, "model.safetensors", n, m);
        snprintf(text, sizeof text,
                 "{\"model_type\": \"gemma2\", \"architectures\": [\"Gemma2ForCausalLM\"], \"num_hidden_layers\": %d,\n"
                 "\"hidden_size\": %d, \"num_attention_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,\n"
                 "\"head_dim\": %d, \"max_position_embeddings\": 40, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000,\n"
                 "\"query_pre_attn_scalar\": 2, \"sliding_window\": %d%s}\n",
                 LAYERS, D, HEADS, FF, WORDS, D / HEADS, WINDOW, entries[which]);
        model_folder_text(&folder, "config.json", text);

        const attn_tensor logits = logits_of(m, &folder), table = place_dense(m, 1, 1, TOKENS, D / HEADS);
        attn_rope_config rope = attn_rope_config_default();
        rope.pairs = D / HEADS / 2;
        OK(attn_rope_table(&rope, NULL, TOKENS, table.data));
        const attn_window window = {.left = WINDOW - 1, .right = ATTN_UNLIMITED};
        attn_params self = attn_params_default();
        self.causal = ATTN_CAUSAL_TOP_LEFT, self.softcap = caps[which][0], self.scale = (float)(1 / sqrt(2.0));
        const double *embedding = named_values(n, "", "model.embed_tokens.weight");
        struct oracle_norm norm = named_norm(n, ATTN_NORM_RMS, D, 1e-5f, "", "model.norm");
        double *gamma = zeros(m, D);
        for (int c = 0; c < D; c++)
            gamma[c] = 1 + norm.gamma[c];
        norm.gamma = gamma;
        const struct trio y = trio(m, TOKENS * WORDS);
        for (int k = 0; k < ORACLES; k++) {
            const struct oracle *oracle = oracle_take(k);
            double *x = zeros(m, TOKENS * D);
            oracle->embed(embedding, D, TOKENS, ids, (double)(float)sqrt((double)D), 0, x);
            for (int l = 0; l < LAYERS; l++) {
                self.window = l % 2 == 0 ? &window : NULL;
                const struct oracle_block_inputs inputs = {.self = &self, .rotation = &table};
                oracle->block(&blocks[l], 1, TOKENS, x, &inputs, x, NULL, NULL);
            }
            oracle->normalise(&norm, TOKENS, x, x);
            const struct oracle_dense head = {WORDS, D, embedding, NULL};
            oracle->linear(&head, TOKENS, x, ATTN_ACTIVATION_NONE, NULL, y.of[k]);
            const double cap = (double)caps[which][1];
            for (int i = 0; i < TOKENS * WORDS && cap > 0; i++)
                y.of[k][i] = cap * tanh(y.of[k][i] / cap);
        }
        judge(NN_MODEL, "logits", &logits, y.of, NULL);
        model_folder_remove(&folder);
        memory_destroy(m);
    }
}

/** A tensor under another name. */
static void rename_tensor(struct named *n, const char *from, const char *to)
{
    for (int64_t i = 0; i < n->num; i++) {
        char *name = n->names[i], text[NAMED_LENGTH];
        char *at = strstr(name, from);
        if (!at)
            continue;
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
        memcpy(name, text, sizeof text);
    }
}

/** A BERT without token types, and the same weights as DistilBERT and, with positions that begin later, as RoBERTa. */
static void test_encoders(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"encoder.layer.", "transformer.layer."},
                                           {"attention.self.query", "attention.q_lin"},
                                           {"attention.self.key", "attention.k_lin"},
                                           {"attention.self.value", "attention.v_lin"},
                                           {"attention.output.dense", "attention.out_lin"},
                                           {"attention.output.LayerNorm", "sa_layer_norm"},
                                           {"intermediate.dense", "ffn.lin1"},
                                           {"output.dense", "ffn.lin2"},
                                           {"output.LayerNorm", "output_layer_norm"}};
    struct memory *m = memory_create("folder_kinds encoders", 0);
    struct model_folder folder = model_folder_make();
    struct named *n = named_create(m);
    char text[512];
    add_bert(n, m, "", 1);
    named_remove(n, "", "embeddings.token_type_embeddings.weight");
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_bert_config(&folder, ", \"type_vocab_size\": 0");
    const attn_tensor expected = hidden_of(m, &folder);

    named_add(n, m, ATTN_F32, PLACES + 3, D, 1, 0, "", "more");
    attn_tensor *positions = named_tensor(n, "", "embeddings.position_embeddings.weight"),
                *more = named_tensor(n, "", "more");
    memcpy((float *)more->data + 3 * D, positions->data, PLACES * D * sizeof(float));
    const attn_tensor kept = *positions;
    *positions = *more;
    named_remove(n, "", "more");
    model_folder_weights(&folder, "model.safetensors", n, m);
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"roberta\", \"num_hidden_layers\": 2, \"hidden_size\": %d, \"num_attention_heads\": %d,\n"
        "\"intermediate_size\": %d, \"vocab_size\": %d, \"max_position_embeddings\": %d, \"pad_token_id\": 2,\n"
        "\"type_vocab_size\": 0, \"layer_norm_eps\": 1e-5}\n",
        D, HEADS, FF, WORDS, PLACES + 3);
    model_folder_text(&folder, "config.json", text);
    const attn_tensor shifted = hidden_of(m, &folder);
    assert_true(equal_bits(&shifted, &expected));

    *named_tensor(n, "", "embeddings.position_embeddings.weight") = kept;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        rename_tensor(n, names[i][0], names[i][1]);
    model_folder_weights(&folder, "model.safetensors", n, m);
    snprintf(text, sizeof text,
             "{\"model_type\": \"distilbert\", \"n_layers\": 2, \"dim\": %d, \"n_heads\": %d, \"hidden_dim\": %d,\n"
             "\"vocab_size\": %d, \"max_position_embeddings\": %d, \"layer_norm_eps\": 1e-5}\n",
             D, HEADS, FF, WORDS, PLACES);
    model_folder_text(&folder, "config.json", text);
    const attn_tensor renamed = hidden_of(m, &folder);
    assert_true(equal_bits(&renamed, &expected));
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** mT5's network has a gate with GELU where config.json names none, as T5's has where it does. */
static void test_mt5(void **state)
{
    (void)state;
    static const char *const types[] = {"mt5", "t5", "t5", "t5"}, *const networks[] = {
                                                                      "", ", \"feed_forward_proj\": \"gated-gelu\"",
                                                                      ", \"feed_forward_proj\": \"gated-silu\"",
                                                                      ", \"feed_forward_proj\": \"gated-relu\""};
    struct memory *m = memory_create("folder_kinds mt5", 0);
    struct model_folder folder = model_folder_make();
    struct named *n = named_create(m);
    attn_tensor hidden[4];
    add_t5(n, m, 0);
    for (int64_t i = n->num - 1; i >= 0; i--)
        if (strncmp(n->names[i], "decoder.", 8) == 0)
            named_remove(n, "", n->names[i]);
    for (int l = 0; l < 2; l++) {
        char layer[NAMED_LENGTH];
        layer_prefix(layer, "encoder.", "block", l);
        named_add_dense(n, m, FF, D, 0, layer, "layer.1.DenseReluDense.wi_1");
    }
    rename_tensor(n, "DenseReluDense.wi.", "DenseReluDense.wi_0.");
    model_folder_weights(&folder, "model.safetensors", n, m);
    for (int i = 0; i < 4; i++) {
        char text[1024];
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"%s\", \"architectures\": [\"%sEncoderModel\"], \"num_layers\": 2, \"d_model\": %d,\n"
            "\"num_heads\": %d, \"d_kv\": %d, \"d_ff\": %d, \"vocab_size\": %d,\n"
            "\"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 20%s}\n",
            types[i], i == 0 ? "MT5" : "T5", D, HEADS, D / HEADS, FF, WORDS, networks[i]);
        model_folder_text(&folder, "config.json", text);
        hidden[i] = hidden_of(m, &folder);
    }
    assert_true(equal_bits(&hidden[0], &hidden[1]));
    for (int i = 2; i < 4; i++)
        assert_false(equal_bits(&hidden[i], &hidden[i - 1]));
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** How modules.json and its Pooling's config.json name the pooling. */
static void test_pooling_modes(void **state)
{
    (void)state;
    static const struct {
        const char *more, *words;
        attn_status status;
        attn_pooling pooling;
    } modes[] = {
        {", \"pooling_mode\": \"max\"", NULL, ATTN_OK, ATTN_POOLING_MAX},
        {", \"pooling_mode_lasttoken\": true", NULL, ATTN_OK, ATTN_POOLING_LAST},
        {", \"pooling_mode_cls_token\": false, \"pooling_mode_max_tokens\": null, \"pooling_mode_mean_tokens\": true",
         NULL, ATTN_OK, ATTN_POOLING_MEAN},
        {", \"pooling_mode\": \"cls\", \"pooling_mode_cls_token\": true, \"word_embedding_dimension\": 8", NULL,
         ATTN_OK, ATTN_POOLING_FIRST},
        {", \"pooling_mode\": \"sum\"", "'pooling_mode' is 'sum'; expected one of mean, cls, max and lasttoken",
         ATTN_UNSUPPORTED, ATTN_POOLING_NONE},
        {", \"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": true",
         "'pooling_mode_cls_token' is true; expected one of mean, cls, max and lasttoken", ATTN_UNSUPPORTED,
         ATTN_POOLING_NONE},
        {", \"pooling_mode_weightedmean_tokens\": true",
         "'pooling_mode_weightedmean_tokens' is true; expected one of mean", ATTN_UNSUPPORTED, ATTN_POOLING_NONE},
        {", \"pooling_mode\": \"mean\", \"word_embedding_dimension\": 4",
         "'word_embedding_dimension' is 4; expected 8, the hidden size", ATTN_INVALID_FILE, ATTN_POOLING_NONE},
    };
    struct memory *m = memory_create("folder_kinds pooling_modes", 0);
    struct model_folder folder = model_folder_bert(m);
    model_folder_text(
        &folder, "modules.json",
        "[{\"type\": \"a.models.Transformer\", \"path\": \"\"}, {\"type\": \"Pooling\", \"path\": \"\"}]");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        attn_model *model;
        attn_model_info info = attn_model_info_default();
        model_folder_bert_config(&folder, modes[i].more);
        if (modes[i].words) {
            model_folder_refused(&folder, modes[i].status, modes[i].words);
            continue;
        }
        OK(attn_model_open(&model, folder.path, NULL));
        OK(attn_model_describe(model, &info));
        assert_int_equal(info.pooling, modes[i].pooling);
        attn_model_close(model);
    }
    model_folder_remove(&folder);
    memory_destroy(m);
    nn_end_refusals();
}

/** What the pooler makes of the first tokens. */
static void test_pooler(void **state)
{
    (void)state;
    static const int64_t two[] = {0, 2, TOKENS};
    struct memory *m = memory_create("folder_kinds pooler", 0);
    struct model_folder folder = model_folder_make();
    struct named *n = named_create(m);
    const attn_tensor hidden = place_dense(m, 1, 1, TOKENS, D), pooled = place_dense(m, 1, 1, 2, D);
    attn_model *model;
    attn_model_info info = attn_model_info_default();
    attn_model_batch batch = attn_model_batch_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    add_bert(n, m, "", 2);
    named_add_dense(n, m, D, D, 1, "", "pooler.dense");
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_bert_config(&folder, "");
    OK(attn_model_open(&model, folder.path, NULL));
    OK(attn_model_describe(model, &info));
    assert_true(info.pooler);
    batch.num_sequences = 2, batch.offsets = two, batch.ids = ids;
    outputs.hidden = &hidden, outputs.pooled = &pooled;
    OK(attn_model_encode(model, &batch, &outputs));
    const double *w = named_values(n, "", "pooler.dense.weight"), *b = named_values(n, "", "pooler.dense.bias");
    for (int s = 0; s < 2; s++)
        for (int c = 0; c < D; c++) {
            double sum = b[c];
            for (int i = 0; i < D; i++)
                sum += w[c * D + i] * (double)((float *)hidden.data)[two[s] * D + i];
            assert_true(fabs((double)((float *)pooled.data)[s * D + c] - tanh(sum)) < 1e-5);
        }
    attn_model_close(model);
    model_folder_remove(&folder);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rotations), cmocka_unit_test(test_qwen2), cmocka_unit_test(test_gemma2),
        cmocka_unit_test(test_encoders),  cmocka_unit_test(test_mt5),   cmocka_unit_test(test_pooling_modes),
        cmocka_unit_test(test_pooler),
    };
    guard_catch_faults();
    make_configs();
    return NN_MAIN(tests);
}
