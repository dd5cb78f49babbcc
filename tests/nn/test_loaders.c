/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What loaders and calls make of what they do not know: tensors behind a prefix
 * that no loader reads, and structs of other versions. One small model of each
 * kind serves both.
 */
#include "named.h"

enum { D = 8, HEADS = 2, FF = 12, WORDS = 9, PLACES = 6, HIDDEN = 3, KV = 2 * D };

/* ------------------------------------------------------------------- models -- */

/** A good config of each kind; those that point to others point into this struct. */
static struct {
    attn_mha_config mha;
    attn_mha_weights mha_weights;
    attn_block_config block;
    attn_block_inputs inputs;
    attn_bert_config bert;
    attn_bert_outputs outputs;
    attn_rope_config rope;
    attn_llama_config llama;
    attn_transformer_config transformer;
    attn_decoding decoding;
    attn_lstm_config lstm;
    attn_alignment_config alignment;
    attn_bahdanau_config bahdanau;
    attn_linear_options linear;
} good;

static float square[D * D], data[2 * PLACES * D], more[2 * PLACES * KV];

static void make_configs(void)
{
    for (int i = 0; i < D * D; i++)
        square[i] = (float)(i % 5 - 2) * 0.125f;
    const attn_tensor w = attn_matrix(square, D, D);
    good.mha = attn_mha_config_default();
    good.mha.d_model = D, good.mha.heads = HEADS;
    good.mha_weights = attn_mha_weights_default();
    good.mha_weights.w_q = good.mha_weights.w_k = good.mha_weights.w_v = good.mha_weights.w_o = w;
    good.block = attn_block_config_default();
    good.block.attention = &good.mha, good.block.d_ff = FF, good.block.eps = 1e-5f;
    good.inputs = attn_block_inputs_default();
    good.bert = attn_bert_config_default();
    good.bert.layers = 2, good.bert.d_model = D, good.bert.heads = HEADS, good.bert.d_ff = FF;
    good.bert.vocabulary = WORDS, good.bert.positions = PLACES, good.bert.eps = 1e-5f;
    good.bert.activation = ATTN_ACTIVATION_GELU;
    good.outputs = attn_bert_outputs_default();
    good.rope = attn_rope_config_default();
    good.llama = attn_llama_config_default();
    good.llama.layers = 2, good.llama.d_model = D, good.llama.heads = HEADS, good.llama.d_ff = FF;
    good.llama.vocabulary = WORDS, good.llama.eps = 1e-5f, good.llama.rope = &good.rope;
    good.transformer = attn_transformer_config_default();
    good.transformer.encoder_layers = good.transformer.decoder_layers = 1;
    good.transformer.d_model = D, good.transformer.heads = HEADS, good.transformer.d_ff = FF;
    good.transformer.source_vocabulary = good.transformer.target_vocabulary = WORDS;
    good.transformer.positions = PLACES, good.transformer.eps = 1e-5f, good.transformer.eos = 1;
    good.decoding = attn_decoding_default();
    good.decoding.max_length = 3;
    good.lstm = attn_lstm_config_default();
    good.lstm.input = D, good.lstm.hidden = HIDDEN;
    good.alignment = attn_alignment_config_default();
    good.alignment.score = ATTN_SCORE_ADDITIVE;
    good.alignment.d_query = good.alignment.d_key = good.alignment.d_attention = D;
    good.alignment.w_q = good.alignment.w_k = w, good.alignment.v = attn_vector(square, D);
    good.bahdanau = attn_bahdanau_config_default();
    good.bahdanau.embedding = good.bahdanau.annotation = good.bahdanau.hidden = D;
    good.linear = attn_linear_options_default();
}

static void add_lstm(struct named *n, struct memory *m, const char *prefix, int64_t layer, const char *direction)
{
    static const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    for (int kind = 0; kind < 4; kind++) {
        char name[NAMED_LENGTH];
        snprintf(name, sizeof name, "%s_l%d%s", kinds[kind], (int)layer, direction);
        const int64_t columns = kind == 0 ? (layer ? HIDDEN : D) : kind == 1 ? HIDDEN : 4 * HIDDEN;
        named_add(n, m, ATTN_F32, kind < 2 ? 4 * HIDDEN : 0, columns, 0.5, 0, prefix, name);
    }
}

static void add_bert(struct named *n, struct memory *m, const char *prefix, int64_t types)
{
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, prefix, "embeddings.word_embeddings.weight");
    named_add(n, m, ATTN_F32, PLACES, D, 1, 0, prefix, "embeddings.position_embeddings.weight");
    named_add(n, m, ATTN_F32, types, D, 1, 0, prefix, "embeddings.token_type_embeddings.weight");
    named_add_norm(n, m, ATTN_NORM_LAYER, D, prefix, "embeddings.LayerNorm");
    for (int64_t l = 0; l < 2; l++) {
        char layer[NAMED_LENGTH];
        layer_prefix(layer, prefix, "encoder.layer", l);
        named_add_block(n, m, &good.block, layer, ATTN_NAMING_BERT, 1);
    }
}

static void add_llama(struct named *n, struct memory *m)
{
    attn_block_config block = good.block;
    block.gated = 1, block.norm = ATTN_NORM_RMS;
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "", "model.embed_tokens.weight");
    for (int64_t l = 0; l < 2; l++) {
        char layer[NAMED_LENGTH];
        layer_prefix(layer, "", "model.layers", l);
        named_add_block(n, m, &block, layer, ATTN_NAMING_LLAMA, 0);
    }
    named_add_norm(n, m, ATTN_NORM_RMS, D, "", "model.norm");
    named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, "", "lm_head.weight");
}

static void add_transformer(struct named *n, struct memory *m, const char *prefix)
{
    attn_block_config block = good.block;
    char layer[NAMED_LENGTH];
    named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, prefix, "src_embedding.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, prefix, "tgt_embedding.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, prefix, "generator.weight");
    layer_prefix(layer, prefix, "encoder.layers", 0);
    named_add_block(n, m, &block, layer, ATTN_NAMING_TORCH, 1);
    block.cross = 1;
    layer_prefix(layer, prefix, "decoder.layers", 0);
    named_add_block(n, m, &block, layer, ATTN_NAMING_TORCH, 1);
}

/* A model of each kind, each behind a prefix of its own; the llama has none, so it is alone. */
static void add_all(struct named *n, struct memory *m)
{
    named_add_block(n, m, &good.block, "block.", ATTN_NAMING_TORCH, 1);
    add_bert(n, m, "bert.", 2);
    add_transformer(n, m, "transformer.");
    add_lstm(n, m, "lstm.", 0, "");
}

/* A loader, from configs that good has: loads and frees. */
typedef attn_status load_function(const attn_weights *weights);

#define LOADER(name, call)                                                                                             \
    static attn_status load_##name(const attn_weights *weights)                                                        \
    {                                                                                                                  \
        attn_##name *made = (attn_##name *)(uintptr_t)64;                                                              \
        const attn_status status = call;                                                                               \
        assert_true((made == NULL) == (status != ATTN_OK));                                                            \
        attn_##name##_destroy(made);                                                                                   \
        return status;                                                                                                 \
    }
LOADER(mha, attn_mha_load(&made, &good.mha, weights, "block.self_attn."))
LOADER(block, attn_block_load(&made, &good.block, weights, "block.", ATTN_NAMING_TORCH))
LOADER(bert, attn_bert_load(&made, &good.bert, weights, "bert."))
LOADER(llama, attn_llama_load(&made, &good.llama, weights))
LOADER(transformer, attn_transformer_load(&made, &good.transformer, weights, "transformer."))
LOADER(lstm, attn_lstm_load(&made, &good.lstm, weights, "lstm."))

/* ---------------------------------------------------------- unread tensors -- */

/** Adds a tensor, as published models have it, that the loader has no place for. */
static void check_unread(struct memory *m, const struct named *named, load_function *load, const char *name)
{
    struct named *copy = bytes(m, sizeof *copy);
    char words[NAMED_LENGTH + 40], pattern[NAMED_LENGTH];
    memcpy(copy, named, sizeof *copy);
    named_add(copy, m, ATTN_F32, 0, D, 1, 1, "", name);
    attn_weights *weights = named_weights(copy);
    snprintf(words, sizeof words, "'%s'|attn_weights_ignore", name);
    REFUSES(NULL, load(weights), ATTN_UNSUPPORTED, words);
    /* Near misses do not help; the name does. */
    snprintf(pattern, sizeof pattern, "%s.", name);
    const char *const others[] = {pattern, name + 1, "", "*.none"};
    OK(attn_weights_ignore(weights, 4, others));
    REFUSES(NULL, load(weights), ATTN_UNSUPPORTED, words);
    OK(attn_weights_ignore(weights, 1, &name));
    OK(load(weights));
    attn_weights_destroy(weights);
    /* So does a pattern. */
    weights = named_weights(copy);
    snprintf(pattern, sizeof pattern, "%.*s*", (int)strlen(name) - 3, name);
    const char *const star[] = {pattern};
    OK(attn_weights_ignore(weights, 1, star));
    OK(load(weights));
    attn_weights_destroy(weights);
}

static void test_unread(void **state)
{
    (void)state;
    struct memory *m = memory_create("loaders unread", 0);
    struct named *all = named_create(m), *llama = named_create(m);
    add_all(all, m);
    add_llama(llama, m);
    attn_weights *weights = named_weights(all);
    /* What stands behind other prefixes is not looked at. */
    load_function *const loads[] = {load_mha, load_block, load_bert, load_transformer, load_lstm};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        OK(loads[i](weights));
    attn_weights_destroy(weights);

    check_unread(m, all, load_mha, "block.self_attn.q_proj.bias");
    check_unread(m, all, load_mha, "block.self_attn.extra");
    check_unread(m, all, load_block, "block.norm3.weight");
    check_unread(m, all, load_block, "block.self_attn.extra");
    check_unread(m, all, load_bert, "bert.encoder.layer.1.crossattention.self.query.bias");
    check_unread(m, all, load_bert, "bert.encoder.layer.0.attention.self.distance_embedding.weight");
    check_unread(m, all, load_bert, "bert.encoder.layer.2.output.dense.bias");
    check_unread(m, all, load_bert, "bert.embeddings.word_embeddings_2");
    check_unread(m, all, load_transformer, "transformer.encoder.norm.weight"); /* final_norms is not set */
    check_unread(m, all, load_transformer, "transformer.positions.pe");
    check_unread(m, all, load_transformer, "transformer.decoder.layers.1.norm1.weight");
    check_unread(m, all, load_lstm, "lstm.weight_ih_l1");
    check_unread(m, all, load_lstm, "lstm.weight_hh_l0_reverse");
    check_unread(m, llama, load_llama, "model.layers.2.input_layernorm.weight");
    check_unread(m, llama, load_llama, "vision_tower.norm.weight");
    /* A tensor of Qwen 3 and Gemma 3, those of Gemma 2. */
    check_unread(m, llama, load_llama, "model.layers.0.self_attn.q_norm.weight");
    check_unread(m, llama, load_llama, "model.layers.1.self_attn.k_norm.weight");
    check_unread(m, llama, load_llama, "model.layers.0.pre_feedforward_layernorm.weight");
    check_unread(m, llama, load_llama, "model.layers.1.post_feedforward_layernorm.weight");
    nn_end_refusals();
    memory_destroy(m);
}

/** An LSTM of two layers in two directions, loaded as less than that. */
static void test_larger_lstm(void **state)
{
    (void)state;
    struct memory *m = memory_create("loaders larger_lstm", 0);
    struct named *n = named_create(m);
    add_lstm(n, m, "lstm.", 0, "");
    add_lstm(n, m, "lstm.", 1, "");
    attn_weights *weights = named_weights(n);
    REFUSES(NULL, load_lstm(weights), ATTN_UNSUPPORTED, "'lstm.weight_ih_l1'");
    good.lstm.layers = 2;
    OK(load_lstm(weights));
    good.lstm.layers = 0;
    OK(attn_weights_ignore(weights, 1, (const char *const[]){"lstm.*_l1"}));
    OK(load_lstm(weights));
    attn_weights_destroy(weights);
    nn_end_refusals();
    memory_destroy(m);
}

/** Buffers that published files have and that need not be read: the headers list them. */
static void test_known(void **state)
{
    (void)state;
    struct memory *m = memory_create("loaders known", 0);
    struct named *all = named_create(m), *llama = named_create(m);
    add_all(all, m);
    named_add(all, m, ATTN_F32, 0, PLACES, 1, 0, "bert.", "embeddings.position_ids");
    all->tensors[all->num - 1].dtype = ATTN_I8; /* I64 in files, which layers do not read either */
    named_add(all, m, ATTN_F32, D, D, 1, 0, "bert.", "pooler.dense.weight");
    named_add(all, m, ATTN_F32, 0, D, 1, 0, "bert.", "pooler.dense.bias");
    named_add(all, m, ATTN_F32, 0, WORDS, 1, 0, "cls.", "predictions.bias");
    attn_weights *weights = named_weights(all);
    OK(load_bert(weights));
    attn_weights_destroy(weights);
    add_llama(llama, m);
    named_add(llama, m, ATTN_F32, 0, D / HEADS / 2, 1, 0, "", "model.layers.0.self_attn.rotary_emb.inv_freq");
    named_add(llama, m, ATTN_F32, 0, D / HEADS / 2, 1, 0, "", "model.layers.1.self_attn.rotary_emb.inv_freq");
    named_add(llama, m, ATTN_F32, 0, D / HEADS / 2, 1, 0, "", "model.rotary_emb.inv_freq");
    weights = named_weights(llama);
    OK(load_llama(weights));
    good.llama.tied = 1; /* lm_head.weight is there, and not read */
    OK(load_llama(weights));
    good.llama.tied = 0;
    attn_weights_destroy(weights);
    /* The same behind a prefix that is not BERT's is none of them. */
    check_unread(m, llama, load_llama, "pooler.dense.bias");
    nn_end_refusals();
    memory_destroy(m);
}

/** RoBERTa has BERT's names: it is known by its tables, and computed from its first position. */
static void test_roberta(void **state)
{
    (void)state;
    struct memory *m = memory_create("loaders roberta", 0);
    struct named *roberta = named_create(m), *shifted = named_create(m);
    add_bert(roberta, m, "bert.", 1);
    attn_tensor *positions = named_tensor(roberta, "bert.", "embeddings.position_embeddings.weight");
    attn_weights *weights = named_weights(roberta);
    REFUSES(NULL, load_bert(weights), ATTN_SHAPE_MISMATCH, "'bert.embeddings.token_type_embeddings.weight'|1|2");
    attn_weights_destroy(weights);
    /* With the number of its types, too, and with two types, as its configuration's default is. */
    for (int64_t c = 0; c < D; c++)
        tensor_set(positions, 0, 0, 1, c, 0);
    weights = named_weights(roberta);
    good.bert.token_types = 1;
    REFUSES(NULL, load_bert(weights), ATTN_UNSUPPORTED, "bert.embeddings.position_embeddings.weight|first_position");

    /* Positions from 2 on are those of a BERT whose table begins at row 2. */
    attn_bert *from_two, *from_zero;
    good.bert.first_position = 2;
    OK(attn_bert_load(&from_two, &good.bert, weights, "bert."));
    attn_weights_destroy(weights);
    memcpy(shifted, roberta, sizeof *shifted);
    positions = named_tensor(shifted, "bert.", "embeddings.position_embeddings.weight");
    positions->data = (float *)positions->data + 2 * D;
    positions->shape[2] = PLACES - 2;
    weights = named_weights(shifted);
    good.bert.first_position = 0, good.bert.positions = PLACES - 2;
    OK(attn_bert_load(&from_zero, &good.bert, weights, "bert."));
    good.bert.positions = PLACES;
    attn_weights_destroy(weights);
    static const int64_t offsets[] = {0, 4, 5}, long_offsets[] = {0, 5, 5};
    static const int32_t ids[] = {3, 1, 4, 1, 5};
    const attn_tensor one = place_dense(m, 1, 1, 5, D), other = place_dense(m, 1, 1, 5, D);
    OK(attn_bert_forward(from_two, 2, offsets, ids, &one, NULL, 1, NULL, 0));
    OK(attn_bert_forward(from_zero, 2, offsets, ids, &other, NULL, 1, NULL, 0));
    assert_true(equal_bits(&one, &other));
    REFUSES(NULL, attn_bert_forward(from_two, 2, long_offsets, ids, &one, NULL, 1, NULL, 0), ATTN_INVALID_ARGUMENT,
            "offsets[1]|5|4");
    attn_bert_destroy(from_two);
    attn_bert_destroy(from_zero);

    weights = named_weights(roberta);
    good.bert.first_position = -1;
    REFUSES(NULL, load_bert(weights), ATTN_INVALID_ARGUMENT, "first_position|-1|5");
    good.bert.first_position = PLACES;
    REFUSES(NULL, load_bert(weights), ATTN_INVALID_ARGUMENT, "first_position|6|5");
    good.bert.first_position = 0, good.bert.token_types = -1;
    REFUSES(NULL, load_bert(weights), ATTN_INVALID_ARGUMENT, "token_types|-1");
    good.bert.token_types = 0;
    attn_weights_destroy(weights);
    nn_end_refusals();
    memory_destroy(m);
}

static void test_ignore_refuses(void **state)
{
    (void)state;
    attn_weights *weights;
    const char *const names[] = {"a", NULL};
    OK(attn_weights_create(&weights, 0, NULL, NULL));
    REFUSES(NULL, attn_weights_ignore(NULL, 1, names), ATTN_INVALID_ARGUMENT, "weights|NULL");
    REFUSES(NULL, attn_weights_ignore(weights, -1, names), ATTN_INVALID_ARGUMENT, "num|-1");
    REFUSES(NULL, attn_weights_ignore(weights, 1, NULL), ATTN_INVALID_ARGUMENT, "patterns|NULL");
    REFUSES(NULL, attn_weights_ignore(weights, 2, names), ATTN_INVALID_ARGUMENT, "patterns[1]|NULL");
    OK(attn_weights_ignore(weights, 0, NULL));
    attn_weights_destroy(weights);
    nn_end_refusals();
}

/** Each '*' of a pattern stands for any characters: seen by whether a tensor of that name is let pass. */
static void test_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        int fits;
    } cases_of[] = {
        {"lstm.x", "lstm.x", 1},
        {"lstm.x", "lstm.xy", 0},
        {"lstm.x*", "lstm.x", 1},
        {"*", "lstm.x", 1},
        {"**", "lstm.x", 1},
        {"lstm.*.c", "lstm.a.b.c", 1},
        {"lstm.*.c", "lstm.a.b.cd", 0},
        {"*.b.*", "lstm.a.b.c", 1},
        {"*.b.*c", "lstm.b.c.b.c", 1},
        {"*ab", "lstm.aab", 1},
        {"*aab", "lstm.aaab", 1},
        {"*a*b", "lstm.b.a", 0},
        {"lstm.*.norm*", "lstm.0.norm", 1},
        {"lstm.*.norm", "lstm.norm", 0},
        {"stm.x", "lstm.x", 0},
        {"lstm.?", "lstm.x", 0},
        {"lstm.[x]", "lstm.x", 0},
        {"lstm.**x*", "lstm.x", 1},
    };
    struct memory *m = memory_create("loaders patterns", 0);
    for (size_t i = 0; i < sizeof cases_of / sizeof *cases_of; i++) {
        struct named *n = named_create(m);
        add_lstm(n, m, "lstm.", 0, "");
        named_add(n, m, ATTN_F32, 0, 1, 1, 0, "", cases_of[i].name);
        attn_weights *weights = named_weights(n);
        OK(attn_weights_ignore(weights, 1, &cases_of[i].pattern));
        if ((load_lstm(weights) == ATTN_OK) != cases_of[i].fits)
            fail_msg("'%s' with '%s': expected %d", cases_of[i].name, cases_of[i].pattern, cases_of[i].fits);
        attn_weights_destroy(weights);
    }
    memory_destroy(m);
}

/* -------------------------------------------------------------- versions -- */

static struct {
    attn_weights *all, *llama;
    attn_mha *mha;
    attn_block *block;
    attn_bert *bert;
    attn_linear *linear;
    attn_transformer *transformer;
    attn_alignment *alignment;
} made;

static attn_tensor rows_of(float *from, int64_t tokens, int64_t channels)
{
    return attn_btc(from, 1, tokens, channels);
}

/** Calls that take a struct in one place; what they make they free. */
#define MAKES(name, kind, call)                                                                                        \
    static attn_status name(const void *s)                                                                             \
    {                                                                                                                  \
        attn_##kind *it = NULL;                                                                                        \
        const attn_status status = call;                                                                               \
        attn_##kind##_destroy(it);                                                                                     \
        return status;                                                                                                 \
    }
MAKES(take_mha, mha, attn_mha_create(&it, s, &good.mha_weights))
MAKES(take_mha_weights, mha, attn_mha_create(&it, &good.mha, s))
MAKES(take_mha_load, mha, attn_mha_load(&it, s, made.all, "block.self_attn."))
MAKES(take_block, block, attn_block_load(&it, s, made.all, "block.", ATTN_NAMING_TORCH))
MAKES(take_bert, bert, attn_bert_load(&it, s, made.all, "bert."))
MAKES(take_llama, llama, attn_llama_load(&it, s, made.llama))
MAKES(take_transformer, transformer, attn_transformer_load(&it, s, made.all, "transformer."))
MAKES(take_lstm, lstm, attn_lstm_load(&it, s, made.all, "lstm."))
MAKES(take_alignment, alignment, attn_alignment_create(&it, s))

static attn_status take_lstm_create(const void *s)
{
    attn_lstm *it = NULL;
    const attn_tensor w = attn_matrix(more, 4 * HIDDEN, D), h = attn_matrix(more, 4 * HIDDEN, HIDDEN);
    const attn_lstm_weights weights = {.w_ih = w, .w_hh = h};
    const attn_status status = attn_lstm_create(&it, s, &weights);
    attn_lstm_destroy(it);
    return status;
}

static attn_status take_bahdanau(const void *s)
{
    static float gates[3 * D * 2 * D];
    attn_bahdanau *it = NULL;
    struct {
        attn_bahdanau_config config;
        unsigned char rest[4096];
    } copy;
    /* The alignment and the weights are known only here. */
    memcpy(&copy.config, s, sizeof copy.config);
    copy.config.alignment = made.alignment;
    copy.config.w_ih = attn_matrix(gates, 3 * D, 2 * D), copy.config.w_hh = attn_matrix(gates, 3 * D, D);
    memset(copy.rest, 0, sizeof copy.rest);
    if (copy.config.struct_size > sizeof copy.config && copy.config.struct_size <= sizeof copy)
        memcpy(copy.rest, (const char *)s + sizeof copy.config, copy.config.struct_size - sizeof copy.config);
    const attn_status status = attn_bahdanau_create(&it, &copy.config);
    attn_bahdanau_destroy(it);
    return status;
}

static attn_status take_block_attention(const void *s)
{
    attn_block_config config = good.block;
    config.attention = s;
    return take_block(&config);
}

static attn_status take_llama_rope(const void *s)
{
    attn_llama_config config = good.llama;
    config.rope = s;
    return take_llama(&config);
}

static attn_status take_inputs(const void *s)
{
    const attn_tensor x = rows_of(data, PLACES, D), out = rows_of(more, PLACES, D);
    return attn_block_forward(made.block, &x, &out, s, NULL, 0);
}

static attn_status take_linear_options(const void *s)
{
    const attn_tensor x = rows_of(data, PLACES, D), out = rows_of(more, PLACES, D);
    return attn_linear_forward(made.linear, &x, &out, s);
}

static attn_status take_linear_parts(const void *s)
{
    const attn_tensor x = rows_of(data, PLACES, D), out = rows_of(more, PLACES, D), *const outs[] = {&out};
    return attn_linear_forward_parts(made.linear, &x, outs, s);
}

static attn_status take_outputs(const void *s)
{
    static const int64_t offsets[] = {0, 3};
    static const int32_t ids[] = {1, 2, 3};
    const attn_tensor hidden = rows_of(more, 3, D);
    return attn_bert_forward(made.bert, 1, offsets, ids, &hidden, s, 1, NULL, 0);
}

static attn_status take_decoding(const void *s)
{
    static int32_t ids[PLACES];
    const attn_tensor memory = rows_of(data, 3, D);
    attn_hypothesis best = {.ids = ids};
    return attn_transformer_decode(made.transformer, &memory, NULL, s, &best);
}

static attn_status take_sizes(const void *s)
{
    return attn_mha_sizes(made.mha, (attn_mha_config *)(uintptr_t)s);
}

/**
 * Every struct of the library that begins with struct_size. first: its size in the first version with 8-byte pointers,
 * which never changes.
 */
static const struct versioned {
    const char *name;
    size_t first, size;
    const void *good;
    attn_status (*take)(const void *s);
} versioned[] = {
    {"config", 64, sizeof good.mha, &good.mha, take_mha},
    {"config", 64, sizeof good.mha, &good.mha, take_mha_load},
    {"weights", 648, sizeof good.mha_weights, &good.mha_weights, take_mha_weights},
    {"sizes", 64, sizeof good.mha, &good.mha, take_sizes},
    {"config", 56, sizeof good.block, &good.block, take_block},
    {"config.attention", 64, sizeof good.mha, &good.mha, take_block_attention},
    {"inputs", 72, sizeof good.inputs, &good.inputs, take_inputs},
    {"options", 32, sizeof good.linear, &good.linear, take_linear_options},
    {"options", 32, sizeof good.linear, &good.linear, take_linear_parts},
    {"config", 80, sizeof good.bert, &good.bert, take_bert},
    {"outputs", 16, sizeof good.outputs, &good.outputs, take_outputs},
    {"config", 88, sizeof good.llama, &good.llama, take_llama},
    {"config.rope", 88, sizeof good.rope, &good.rope, take_llama_rope},
    {"config", 96, sizeof good.transformer, &good.transformer, take_transformer},
    {"decoding", 32, sizeof good.decoding, &good.decoding, take_decoding},
    {"config", 40, sizeof good.lstm, &good.lstm, take_lstm},
    {"config", 40, sizeof good.lstm, &good.lstm, take_lstm_create},
    {"config", 368, sizeof good.alignment, &good.alignment, take_alignment},
    {"config", 360, sizeof good.bahdanau, &good.bahdanau, take_bahdanau},
};

static void *placed(struct guard *guard, const struct versioned *v, size_t room, size_t struct_size)
{
    void *s = guard_place(guard, room, 1);
    memset(s, 0, room);
    memcpy(s, v->good, room < v->size ? room : v->size);
    memcpy(s, &struct_size, sizeof struct_size);
    return s;
}

static void check_versions(struct guard *guard, const struct versioned *v)
{
    const size_t garbage[] = {0, 1, v->first - 1, v->size + 4097, (size_t)1 << 31, (size_t)1 << 40, SIZE_MAX};
    char words[80];
    for (size_t size = v->first; size <= v->size; size += 8)
        OK(v->take(placed(guard, v, size, size)));
    for (size_t behind = 8; behind <= 4096; behind *= 8) {
        unsigned char *s = placed(guard, v, v->size + behind, v->size + behind);
        OK(v->take(s));
        s[v->size + behind / 2] = 1;
        snprintf(words, sizeof words, "%s.struct_size|%zu|is set", v->name, v->size + behind);
        REFUSES(NULL, v->take(s), ATTN_UNSUPPORTED, words);
        s[v->size + behind / 2] = 0;
        s[v->size + behind - 1] = 0x80;
        REFUSES(NULL, v->take(s), ATTN_UNSUPPORTED, words);
    }
    /* Nothing behind the struct can be read: one that is scanned for longer faults. */
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        snprintf(words, sizeof words, "%s.struct_size|is %zu;", v->name, garbage[i]);
        REFUSES(NULL, v->take(placed(guard, v, v->size, garbage[i])), ATTN_INVALID_ARGUMENT, words);
    }
}

static void test_versions(void **state)
{
    (void)state;
    struct memory *m = memory_create("loaders versions", 0);
    struct named *all = named_create(m), *llama = named_create(m);
    struct guard guard = guard_create(8192);
    const attn_tensor w = attn_matrix(square, D, D);
    add_all(all, m);
    add_llama(llama, m);
    made.all = named_weights(all);
    made.llama = named_weights(llama);
    OK(attn_mha_create(&made.mha, &good.mha, &good.mha_weights));
    OK(attn_block_load(&made.block, &good.block, made.all, "block.", ATTN_NAMING_TORCH));
    OK(attn_bert_load(&made.bert, &good.bert, made.all, "bert."));
    OK(attn_linear_create(&made.linear, 1, &w, NULL));
    OK(attn_transformer_load(&made.transformer, &good.transformer, made.all, "transformer."));
    OK(attn_alignment_create(&made.alignment, &good.alignment));
    for (size_t i = 0; i < sizeof versioned / sizeof *versioned; i++)
        check_versions(&guard, &versioned[i]);
    nn_end_refusals();
    attn_alignment_destroy(made.alignment);
    attn_transformer_destroy(made.transformer);
    attn_linear_destroy(made.linear);
    attn_bert_destroy(made.bert);
    attn_block_destroy(made.block);
    attn_mha_destroy(made.mha);
    attn_weights_destroy(made.all);
    attn_weights_destroy(made.llama);
    guard_destroy(&guard);
    memory_destroy(m);
}

/** What attn_mha_sizes() writes: the fields that the caller has room for, and zeros where a newer one has more. */
static void test_sizes(void **state)
{
    (void)state;
    attn_mha *mha;
    struct {
        attn_mha_config sizes;
        int64_t later[2];
    } newer = {.sizes = attn_mha_config_default()};
    OK(attn_mha_create(&mha, &good.mha, &good.mha_weights));
    newer.sizes.struct_size = sizeof newer;
    OK(attn_mha_sizes(mha, &newer.sizes));
    assert_int_equal(newer.sizes.struct_size, sizeof newer);
    assert_int_equal(newer.sizes.d_model, D);
    assert_int_equal(newer.sizes.kv_heads, HEADS);
    assert_int_equal(newer.sizes.head_dim, D / HEADS);
    assert_int_equal(newer.sizes.d_out, D);
    assert_true(newer.later[0] == 0 && newer.later[1] == 0);
    REFUSES(NULL, attn_mha_sizes(NULL, &newer.sizes), ATTN_INVALID_ARGUMENT, "mha|NULL");
    REFUSES(NULL, attn_mha_sizes(mha, NULL), ATTN_INVALID_ARGUMENT, "sizes|NULL");
    nn_end_refusals();
    attn_mha_destroy(mha);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unread),   cmocka_unit_test(test_larger_lstm),
                                       cmocka_unit_test(test_known),    cmocka_unit_test(test_roberta),
                                       cmocka_unit_test(test_patterns), cmocka_unit_test(test_ignore_refuses),
                                       cmocka_unit_test(test_versions), cmocka_unit_test(test_sizes)};
    guard_catch_faults();
    make_configs();
    return NN_MAIN(tests);
}
