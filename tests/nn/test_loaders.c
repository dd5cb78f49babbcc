/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What loaders make of tensors behind their prefix that they do not read: an
 * error that names them, unless the header or the caller says that they may be
 * left out.
 */
#include "small.h"

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
    REFUSES(NULL, load_bert(weights), ATTN_INVALID_ARGUMENT, "config.first_position is 6; expected 0 to 5");
    good.bert.first_position = 0, good.bert.token_types = -2;
    REFUSES(NULL, load_bert(weights), ATTN_INVALID_ARGUMENT, "token_types|-2");
    good.bert.first_position = 2, good.bert.token_types = -1; /* but there is a table of them in the weights */
    REFUSES(NULL, load_bert(weights), ATTN_UNSUPPORTED,
            "the set of weights: tensor 'bert.embeddings.token_type_embeddings.weight' is unknown to");
    good.bert.first_position = good.bert.token_types = 0;
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
    REFUSES(NULL, attn_weights_ignore(NULL, 1, names), ATTN_INVALID_ARGUMENT,
            "weights is NULL; expected a set of weights");
    REFUSES(NULL, attn_weights_ignore(weights, -1, names), ATTN_INVALID_ARGUMENT, "num|-1");
    REFUSES(NULL, attn_weights_ignore(weights, 1, NULL), ATTN_INVALID_ARGUMENT, "patterns is NULL; expected 1 names");
    REFUSES(NULL, attn_weights_ignore(weights, 2, names), ATTN_INVALID_ARGUMENT,
            "patterns[1] is NULL; expected a name");
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unread),   cmocka_unit_test(test_larger_lstm),
                                       cmocka_unit_test(test_known),    cmocka_unit_test(test_roberta),
                                       cmocka_unit_test(test_patterns), cmocka_unit_test(test_ignore_refuses)};
    make_configs();
    return NN_MAIN(tests);
}
