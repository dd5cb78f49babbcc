/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models from folders: the bits of models made from the same weights by hand, and
 * weights in shards. What they compute is compared with Transformers by
 * tests/models/check_folders.py.
 */
#include "model_folder.h"
#include "small.h"

#include <unistd.h>

static const int64_t offsets[] = {0, 3, 3, 7};
static const int32_t ids[] = {1, 2, 3, 8, 0, 5, 2};
enum { TOKENS = 7, SEQUENCES = 3 };

static attn_model_batch batch_of(const int32_t *types)
{
    attn_model_batch batch = attn_model_batch_default();
    batch.num_sequences = SEQUENCES, batch.offsets = offsets, batch.ids = ids, batch.token_types = types;
    return batch;
}

static void write_config(const struct model_folder *folder, const char *json)
{
    model_folder_text(folder, "config.json", json);
}

/* ------------------------------------------------------------------- results -- */

/** Hidden states and weights of an encoder, against attn_bert_forward(). */
static void test_encoder(void **state)
{
    (void)state;
    struct memory *m = memory_create("folders encoder", 0);
    struct model_folder folder = model_folder_bert(m);
    char path[128];
    attn_model *model;
    attn_bert *bert;
    attn_weights *weights;
    attn_model_info info = attn_model_info_default();
    OK(attn_model_open(&model, folder.path, NULL));
    OK(attn_model_describe(model, &info));
    assert_int_equal(info.kind, ATTN_MODEL_ENCODER);
    assert_string_equal(info.model_type, "bert");
    assert_string_equal(info.architecture, "BertModel");
    assert_true(info.layers == 2 && info.d_model == D && info.heads == HEADS && info.head_dim == D / HEADS);
    assert_true(info.d_ff == FF && info.vocabulary == WORDS && info.max_positions == PLACES && info.token_types == 2);
    assert_true(info.max_tokens == PLACES && !info.pooler && !info.logits && !info.pooling && !info.num_eos);
    snprintf(path, sizeof path, "%s/model.safetensors", folder.path);
    OK(attn_weights_open(&weights, path));
    OK(attn_bert_load(&bert, &good.bert, weights, ""));

    const attn_tensor expected = place_dense(m, 1, 1, TOKENS, D), hidden = place_dense(m, 1, 1, TOKENS, D),
                      first = place_dense(m, 1, 1, TOKENS, D), last = place_dense(m, 1, 1, TOKENS, D),
                      squares = place_dense(m, 1, HEADS, TOKENS, TOKENS),
                      theirs = place_dense(m, 1, HEADS, TOKENS, TOKENS);
    const attn_tensor *const states[] = {&first, NULL, &last}, *const matrices[] = {NULL, &squares},
                             *const their_matrices[] = {NULL, &theirs};
    const attn_model_batch batch = batch_of(NULL);
    attn_model_outputs outputs = attn_model_outputs_default();
    attn_bert_outputs wanted = attn_bert_outputs_default();
    wanted.weights = their_matrices;
    OK(attn_bert_forward(bert, SEQUENCES, offsets, ids, &expected, &wanted, 1, NULL, 0));
    outputs.hidden = &hidden, outputs.states = states, outputs.weights = matrices;
    OK(attn_model_encode(model, &batch, &outputs));
    assert_true(equal_bits(&hidden, &expected));
    assert_true(equal_bits(&last, &expected));
    assert_false(equal_bits(&first, &expected));
    assert_true(equal_bits(&squares, &theirs));
    /* Types are looked up, those of other sequences change nothing. */
    const int32_t types[TOKENS] = {1, 0, 1};
    const attn_model_batch typed = batch_of(types);
    outputs.states = NULL, outputs.weights = NULL;
    OK(attn_model_encode(model, &typed, &outputs));
    assert_memory_not_equal(hidden.data, expected.data, 3 * D * sizeof(float));
    assert_memory_equal((float *)hidden.data + 3 * D, (float *)expected.data + 3 * D, 4 * D * sizeof(float));
    attn_bert_destroy(bert);
    attn_weights_destroy(weights);
    attn_model_close(model);
    attn_model_close(NULL);
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** Each pooling against what it says. */
static void test_pooling(void **state)
{
    (void)state;
    struct memory *m = memory_create("folders pooling", 0);
    struct model_folder folder = model_folder_bert(m);
    static const int64_t two[] = {0, 3, 7};
    for (int pooling = ATTN_POOLING_MEAN; pooling <= ATTN_POOLING_MAX; pooling++)
        for (int normalise = 0; normalise < 2; normalise++) {
            attn_model *model;
            attn_model_options options = attn_model_options_default();
            options.pooling = (attn_pooling)pooling, options.normalise = normalise;
            OK(attn_model_open(&model, folder.path, &options));
            const attn_tensor hidden = place_dense(m, 1, 1, TOKENS, D), got = place_dense(m, 1, 1, 2, D);
            const float *h = hidden.data, *g = got.data;
            attn_model_batch batch = batch_of(NULL);
            attn_model_outputs outputs = attn_model_outputs_default();
            batch.num_sequences = 2, batch.offsets = two;
            outputs.hidden = &hidden, outputs.embeddings = &got;
            OK(attn_model_encode(model, &batch, &outputs));
            for (int s = 0; s < 2; s++) {
                double expected[D], squares = 0;
                for (int c = 0; c < D; c++) {
                    const float *last = h + (two[s + 1] - 1) * D + c;
                    double sum = 0, largest = -1e30;
                    for (int64_t t = two[s]; t < two[s + 1]; t++) {
                        sum += (double)h[t * D + c];
                        largest = fmax(largest, (double)h[t * D + c]);
                    }
                    expected[c] = pooling == ATTN_POOLING_MEAN    ? sum / (double)(two[s + 1] - two[s])
                                  : pooling == ATTN_POOLING_FIRST ? (double)h[two[s] * D + c]
                                  : pooling == ATTN_POOLING_LAST  ? (double)*last
                                                                  : largest;
                    squares += expected[c] * expected[c];
                }
                for (int c = 0; c < D; c++)
                    assert_true(fabs((double)g[s * D + c] - expected[c] / (normalise ? sqrt(squares) : 1)) < 1e-5);
            }
            attn_model_close(model);
        }
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** config.json of the BERT in a folder, under the name of another class. */
static void write_bert(const struct model_folder *folder, const char *class_name)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"bert\", \"architectures\": [\"%s\"], \"num_hidden_layers\": 2,\n"
             "\"hidden_size\": %d, \"num_attention_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,\n"
             "\"max_position_embeddings\": %d, \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-5}\n",
             class_name, D, HEADS, FF, WORDS, PLACES);
    write_config(folder, text);
}

/** Logits of each token: of labels, and of words, whose table the file may have twice. */
static void test_token_heads(void **state)
{
    (void)state;
    enum { LABELS = 3 };
    struct memory *m = memory_create("folders token_heads", 0);
    struct model_folder folder = model_folder_make();
    struct named *n = named_create(m);
    attn_model *model;
    attn_model_info info = attn_model_info_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    const attn_model_batch batch = batch_of(NULL);
    const attn_tensor hidden = place_dense(m, 1, 1, TOKENS, D), labels = place_dense(m, 1, 1, TOKENS, LABELS),
                      words[2] = {place_dense(m, 1, 1, TOKENS, WORDS), place_dense(m, 1, 1, TOKENS, WORDS)};
    make_configs();
    add_bert(n, m, "bert.", 2);
    named_add_dense(n, m, LABELS, D, 1, "", "classifier");
    model_folder_weights(&folder, "model.safetensors", n, m);
    write_bert(&folder, "BertForTokenClassification");
    OK(attn_model_open(&model, folder.path, NULL));
    OK(attn_model_describe(model, &info));
    assert_true(info.token_logits == LABELS && info.logits == 0);
    outputs.hidden = &hidden, outputs.token_logits = &labels;
    OK(attn_model_encode(model, &batch, &outputs));
    const double *w = named_values(n, "", "classifier.weight"), *b = named_values(n, "", "classifier.bias");
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < LABELS; c++) {
            double sum = b[c];
            for (int i = 0; i < D; i++)
                sum += w[c * D + i] * (double)((float *)hidden.data)[t * D + i];
            assert_true(fabs((double)((float *)labels.data)[t * LABELS + c] - sum) < 1e-4);
        }
    outputs.token_logits = &words[0];
    REFUSES(m, attn_model_encode(model, &batch, &outputs), ATTN_SHAPE_MISMATCH, "outputs.token_logits|9|3");
    attn_model_close(model);
    write_bert(&folder, "BertForMaskedLM");
    REFUSES(NULL, attn_model_open(&model, folder.path, NULL), ATTN_INVALID_ARGUMENT, "cls.predictions.transform.dense");
    named_add_dense(n, m, D, D, 1, "", "cls.predictions.transform.dense");
    named_add_norm(n, m, ATTN_NORM_LAYER, D, "", "cls.predictions.transform.LayerNorm");
    named_add(n, m, ATTN_F32, 0, WORDS, 0.3, 0, "", "cls.predictions.bias");
    for (int own = 0; own < 2; own++) {
        if (own) {
            const attn_tensor *table = named_tensor(n, "", "bert.embeddings.word_embeddings.weight");
            named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "", "cls.predictions.decoder.weight");
            n->tensors[n->num - 1].data = table->data;
        }
        model_folder_weights(&folder, "model.safetensors", n, m);
        OK(attn_model_open(&model, folder.path, NULL));
        OK(attn_model_describe(model, &info));
        assert_true(info.token_logits == WORDS && info.logits == 0);
        outputs.token_logits = &words[own];
        OK(attn_model_encode(model, &batch, &outputs));
        attn_model_close(model);
    }
    assert_true(equal_bits(&words[0], &words[1]));
    write_bert(&folder, "BertModel");
    OK(attn_model_open(&model, folder.path, NULL));
    REFUSES(m, attn_model_encode(model, &batch, &outputs), ATTN_INVALID_ARGUMENT, "outputs.token_logits|BertModel");
    nn_end_refusals();
    attn_model_close(model);
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** A step's logits, against attn_llama_step(). */
static void test_decoder(void **state)
{
    (void)state;
    struct memory *m = memory_create("folders decoder", 0);
    struct model_folder folder = model_folder_llama(m);
    char path[128];
    attn_model *model;
    attn_llama *llama;
    attn_weights *weights;
    attn_model_info info = attn_model_info_default();
    OK(attn_model_open(&model, folder.path, NULL));
    OK(attn_model_describe(model, &info));
    assert_true(info.kind == ATTN_MODEL_DECODER && info.logits == WORDS && info.max_positions == 40);
    assert_true(info.num_eos == 2 && info.eos[0] == 1 && info.eos[1] == 2);
    snprintf(path, sizeof path, "%s/model.safetensors", folder.path);
    OK(attn_weights_open(&weights, path));
    OK(attn_llama_load(&llama, &good.llama, weights));
    const attn_tensor logits[2] = {place_dense(m, 1, 1, TOKENS, WORDS), place_dense(m, 1, 1, TOKENS, WORDS)},
                      hidden = place_dense(m, 1, 1, TOKENS, D), last = place_dense(m, 1, 1, TOKENS, D);
    const attn_tensor *const states[] = {NULL, NULL, &last};
    for (int which = 0; which < 2; which++) {
        const int64_t tokens = TOKENS;
        int64_t sequence;
        attn_cache *cache;
        attn_cache_config config = attn_cache_config_default();
        OK(attn_model_cache_config(model, &config));
        config.max_tokens = TOKENS, config.max_sequences = 1;
        OK(attn_cache_create(&cache, &config));
        OK(attn_cache_add(cache, &sequence));
        OK(attn_cache_step(cache, 1, &sequence, &tokens, NULL));
        attn_model_tokens t = attn_model_tokens_default();
        attn_model_outputs outputs = attn_model_outputs_default();
        t.ids = ids;
        outputs.logits = &logits[1], outputs.hidden = &hidden, outputs.states = states;
        if (which)
            OK(attn_model_step(model, cache, &t, &outputs));
        else
            OK(attn_llama_step(llama, cache, ids, NULL, 0, NULL, &logits[0], 1));
        attn_cache_destroy(cache);
    }
    assert_true(equal_bits(&logits[0], &logits[1]));
    assert_true(equal_bits(&hidden, &last));
    attn_llama_destroy(llama);
    attn_weights_destroy(weights);
    attn_model_close(model);
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** Windows in all layers hand pages back, with the bits of a cache that keeps them. */
static void test_windows(void **state)
{
    (void)state;
    enum { STEPS = 24 };
    struct memory *m = memory_create("folders windows", 0);
    struct model_folder folder = model_folder_llama(m);
    static const struct {
        const char *type, *more;
        int64_t window;
    } cases[] = {
        {"mistral", "\"sliding_window\": 4", 3},
        {"mistral", "\"sliding_window\": 1", 1}, /* every query sees its own key alone, which its layers say */
        {"mistral", "\"sliding_window\": null", 0},
        {"qwen3",
         "\"use_sliding_window\": true, \"sliding_window\": 5, \"max_window_layers\": 0, "
         "\"head_dim\": 4, \"layer_types\": [\"sliding_attention\", \"full_attention\"]",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        attn_model *model;
        attn_cache_config config = attn_cache_config_default();
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"%s\", \"num_hidden_layers\": 2, \"hidden_size\": %d, \"num_attention_heads\": %d,"
            "\"intermediate_size\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 40, \"rope_theta\": 10000,"
            "\"rms_norm_eps\": 1e-5, %s}",
            cases[i].type, D, HEADS, FF, WORDS, cases[i].more);
        write_config(&folder, text);
        if (strcmp(cases[i].type, "qwen3") == 0) {
            struct named *n = named_create(m);
            add_llama(n, m);
            for (int l = 0; l < 2; l++) {
                char layer[NAMED_LENGTH];
                layer_prefix(layer, "", "model.layers", l);
                named_add(n, m, ATTN_F32, 0, D / HEADS, 0.2, 1, layer, "self_attn.q_norm.weight");
                named_add(n, m, ATTN_F32, 0, D / HEADS, 0.2, 1, layer, "self_attn.k_norm.weight");
            }
            model_folder_weights(&folder, "model.safetensors", n, m);
        }
        OK(attn_model_open(&model, folder.path, NULL));
        OK(attn_model_cache_config(model, &config));
        assert_int_equal(config.window, cases[i].window);
        config.max_tokens = STEPS, config.max_sequences = 1, config.page_size = 2;
        attn_cache *caches[2];
        int64_t sequences[2];
        const int64_t one = 1;
        for (int c = 0; c < 2; c++) {
            OK(attn_cache_create(&caches[c], &config));
            OK(attn_cache_add(caches[c], &sequences[c]));
            config.window = 0;
        }
        for (int t = 0; t < STEPS; t++) {
            const int32_t id = t * 5 % WORDS;
            attn_tensor logits[2];
            for (int c = 0; c < 2; c++) {
                attn_model_tokens tokens = attn_model_tokens_default();
                attn_model_outputs outputs = attn_model_outputs_default();
                logits[c] = place_dense(m, 1, 1, 1, WORDS);
                tokens.ids = &id, outputs.logits = &logits[c];
                OK(attn_cache_step(caches[c], 1, &sequences[c], &one, NULL));
                OK(attn_model_step(model, caches[c], &tokens, &outputs));
            }
            assert_true(equal_bits(&logits[0], &logits[1]));
        }
        attn_cache_usage usage = attn_cache_usage_default();
        OK(attn_cache_get_usage(caches[0], &usage));
        assert_true(cases[i].window ? usage.pages_in_use <= cases[i].window / 2 + 2 : usage.pages_in_use == STEPS / 2);
        for (int c = 0; c < 2; c++)
            attn_cache_destroy(caches[c]);
        attn_model_close(model);
    }
    model_folder_remove(&folder);
    memory_destroy(m);
}

/* -------------------------------------------------------------------- shards -- */

/** An index of the given text beside two files, or what is wrong with it. */
static void check_index(const struct model_folder *folder, const char *json, const char *words)
{
    char path[128];
    attn_weights *weights;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder->path);
    model_folder_text(folder, "model.safetensors.index.json", json);
    if (words) {
        REFUSES(NULL, attn_weights_open(&weights, path), ATTN_INVALID_FILE, words);
        assert_null(weights);
        return;
    }
    attn_tensor t;
    OK(attn_weights_open(&weights, path));
    assert_int_equal(attn_weights_count(weights), 3);
    assert_true(attn_weights_has(weights, "a") && attn_weights_has(weights, "b") && attn_weights_has(weights, "c"));
    OK(attn_weights_get(weights, "c", 2, 3, &t));
    REFUSES(NULL, attn_weights_get(weights, "c", 2, 4, &t), ATTN_SHAPE_MISMATCH, "two.safetensors|'c'|4");
    REFUSES(NULL, attn_weights_get(weights, "d", 2, 4, &t), ATTN_INVALID_ARGUMENT, "index.json|'d'");
    attn_weights_destroy(weights);
}

static void test_index(void **state)
{
    (void)state;
    struct memory *m = memory_create("folders index", 0);
    struct model_folder folder = model_folder_make();
    struct named *one = named_create(m), *two = named_create(m);
    named_add(one, m, ATTN_F32, 0, 3, 1, 0, "", "a");
    named_add(one, m, ATTN_BF16, 4, 3, 1, 0, "", "b");
    named_add(two, m, ATTN_F32, 2, 3, 1, 0, "", "c");
    model_folder_weights(&folder, "one.safetensors", one, m);
    model_folder_weights(&folder, "two.safetensors", two, m);
    check_index(&folder,
                "{\"metadata\": {}, \"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"one.safetensors\","
                " \"c\": \"two.safetensors\"}}",
                NULL);
    check_index(&folder, "{\"weight_map\": {\"a\": \"one.safetensors\", \"c\": \"one.safetensors\"}}",
                "/one.safetensors has no tensor 'c'; expected it there, as |/model.safetensors.index.json says");
    check_index(&folder, "{\"weight_map\": {\"a\": \"three.safetensors\"}}", "three.safetensors|cannot open");
    check_index(&folder, "{\"weight_map\": {\"a\": \"../one.safetensors\"}}",
                "/model.safetensors.index.json: 'weight_map' names the file '../one.safetensors'; expected one in the "
                "index's folder");
    check_index(&folder, "{\"weight_map\": {\"a\": \"\"}}", "index.json|''|folder");
    check_index(&folder, "{\"weight_map\": {\"a\": \"model.safetensors.index.json\"}}",
                "'weight_map' names 'model.safetensors.index.json'; expected safetensors files");
    check_index(&folder, "{\"weight_map\": {\"a\": 1}}", "'weight_map' has no file for 'a'; expected the name of one");
    check_index(&folder, "{\"weight_map\": {}}",
                "'weight_map' is empty or something else; expected an object with the file of each tensor");
    check_index(&folder, "{\"weight_map\": [1]}", "'weight_map'|something else");
    check_index(&folder, "{}", "'weight_map'|missing");
    check_index(&folder, "[]", "index.json|not a JSON object");
    check_index(&folder, "{\"weight_map\": ", "index.json|line 1");
    named_add(two, m, ATTN_F32, 2, 3, 1, 0, "", "b");
    model_folder_weights(&folder, "two.safetensors", two, m);
    check_index(&folder, "{\"weight_map\": {\"a\": \"one.safetensors\", \"c\": \"two.safetensors\"}}",
                "tensor 'b' is in |/one.safetensors and in |/two.safetensors; expected it in one of them");
    nn_end_refusals();
    model_folder_remove(&folder);
    memory_destroy(m);
}

/** A model in two files is that in one. */
static void test_shards(void **state)
{
    (void)state;
    struct memory *m = memory_create("folders shards", 0);
    struct model_folder folder = model_folder_bert(m);
    struct named *all = named_create(m), *parts[2] = {named_create(m), named_create(m)};
    attn_model *models[2];
    attn_tensor hidden[2];
    add_bert(all, m, "", 2);
    model_folder_weights(&folder, "model.safetensors", all, m);
    OK(attn_model_open(&models[0], folder.path, NULL));
    char index[NAMED_MAX * 200] = "{\"weight_map\": {";
    for (int64_t i = 0; i < all->num; i++) {
        struct named *part = parts[i % 2];
        const size_t length = strlen(index);
        memcpy(part->names[part->num], all->names[i], NAMED_LENGTH);
        part->tensors[part->num] = all->tensors[i];
        part->values[part->num++] = all->values[i];
        snprintf(index + length, sizeof index - length, "%s\"%s\": \"%d.safetensors\"", i ? ", " : "", all->names[i],
                 (int)(i % 2));
    }
    strcat(index, "}}");
    model_folder_weights(&folder, "0.safetensors", parts[0], m);
    model_folder_weights(&folder, "1.safetensors", parts[1], m);
    model_folder_text(&folder, "model.safetensors.index.json", index);
    model_folder_drop(&folder, "model.safetensors");
    OK(attn_model_open(&models[1], folder.path, NULL));
    for (int which = 0; which < 2; which++) {
        const attn_model_batch batch = batch_of(NULL);
        attn_model_outputs outputs = attn_model_outputs_default();
        hidden[which] = place_dense(m, 1, 1, TOKENS, D);
        outputs.hidden = &hidden[which];
        OK(attn_model_encode(models[which], &batch, &outputs));
        attn_model_close(models[which]);
    }
    assert_true(equal_bits(&hidden[0], &hidden[1]));
    model_folder_remove(&folder);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoder), cmocka_unit_test(test_pooling), cmocka_unit_test(test_token_heads),
        cmocka_unit_test(test_decoder), cmocka_unit_test(test_windows), cmocka_unit_test(test_index),
        cmocka_unit_test(test_shards),
    };
    guard_catch_faults();
    make_configs();
    return NN_MAIN(tests);
}
