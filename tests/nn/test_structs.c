/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What loaders and calls make of structs of other versions: each size from the
 * first version's on is taken, fields that are missing count as zero, and what is
 * set behind the known ones is an error.
 */
#include "model_folder.h"
#include "small.h"

static float data[2 * PLACES * D], more[2 * PLACES * KV];

static struct {
    attn_weights *all, *llama;
    attn_mha *mha;
    attn_block *block;
    attn_bert *bert;
    attn_linear *linear;
    attn_transformer *transformer;
    attn_alignment *alignment;
    attn_model *encoder, *decoder;
    attn_cache *cache;
    int64_t sequence;
    const char *folder; /* of the encoder */
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

static attn_status take_linear_gradients(const void *s)
{
    const attn_tensor w = attn_matrix(square, D, D), d_out = rows_of(data, PLACES, D);
    return attn_linear_backward(&w, NULL, &d_out, s, NULL, 0);
}

static attn_status take_linear_format(const void *s)
{
    const attn_tensor w = attn_matrix(square, D, D);
    attn_linear *linear = NULL;
    const attn_status status = attn_linear_quantize(&linear, s, 1, &w, NULL);
    attn_linear_destroy(linear);
    return status;
}

static attn_status take_norm_gradients(const void *s)
{
    const attn_tensor x = rows_of(data, PLACES, D), d_out = rows_of(more, PLACES, D);
    return attn_normalise_backward(ATTN_NORM_LAYER, &x, NULL, 1e-5f, &d_out, s, NULL, 0);
}

static attn_status take_lstm_gradients(const void *s)
{
    const attn_tensor x = rows_of(data, PLACES, D), out = rows_of(more, PLACES, HIDDEN);
    static float matrix[4 * HIDDEN * D];
    attn_lstm_weights w = {0};
    w.w_ih = attn_matrix(matrix, 4 * HIDDEN, D), w.w_hh = attn_matrix(matrix, 4 * HIDDEN, HIDDEN);
    return attn_lstm_backward(&good.lstm, &w, &x, NULL, NULL, &out, &out, s, NULL, 0);
}

static attn_status take_mha_gradients(const void *s)
{
    const attn_tensor x = rows_of(data, PLACES, D), d_out = rows_of(more, PLACES, D);
    return attn_mha_backward(&good.mha, &good.mha_weights, &x, NULL, NULL, &d_out, s, NULL, 0);
}

static attn_status run_block(const attn_block_weights *weights, const attn_block_pass *pass,
                             const attn_block_gradients *gradients)
{
    const attn_tensor x = rows_of(data, PLACES, D), d_out = rows_of(more, PLACES, D);
    return attn_block_backward(&good.block, weights, &x, pass, &d_out, gradients, NULL, 0);
}

static attn_status take_block_weights(const void *s)
{
    return run_block(s, &good.block_pass, &good.block_gradients);
}

static attn_status take_block_pass(const void *s)
{
    return run_block(&good.block_weights, s, &good.block_gradients);
}

static attn_status take_block_gradients(const void *s)
{
    return run_block(&good.block_weights, &good.block_pass, s);
}

static attn_status run_bert(const attn_bert_weights *weights, const attn_model_pass *pass)
{
    const attn_tensor hidden = rows_of(more, 3, D);
    return attn_bert_train(&good.bert, weights, 1, good.pairs.source_offsets, good.pairs.source_ids, pass, &hidden,
                           NULL, 0);
}

static attn_status take_bert_weights(const void *s)
{
    return run_bert(s, &good.model_pass);
}

static attn_status take_model_pass(const void *s)
{
    return run_bert(&good.bert_weights, s);
}

static attn_status run_transformer(const attn_transformer_weights *weights, const attn_transformer_pairs *pairs)
{
    const attn_tensor logits = rows_of(more, 3, WORDS);
    return attn_transformer_train(&good.transformer, weights, pairs, NULL, &logits, NULL, 0);
}

static attn_status take_transformer_weights(const void *s)
{
    return run_transformer(s, &good.pairs);
}

static attn_status take_pairs(const void *s)
{
    return run_transformer(&good.transformer_weights, s);
}

static attn_status take_pool_gradients(const void *s)
{
    const attn_tensor w = attn_matrix(square, D, D), v = attn_vector(square, D), x = rows_of(data, PLACES, D),
                      d_out = rows_of(more, 1, D);
    return attn_pool_backward(&w, NULL, &v, &x, NULL, &d_out, s, NULL, 0);
}

static attn_status take_alignment_gradients(const void *s)
{
    const attn_tensor x = rows_of(data, PLACES, D), d_out = rows_of(more, PLACES, D);
    return attn_alignment_backward(&good.alignment, &x, &x, &x, NULL, &d_out, s, NULL, 0);
}

static attn_status take_bahdanau_gradients(const void *s)
{
    static float gates[3 * D * 2 * D];
    const attn_tensor x = rows_of(data, PLACES, D), one = rows_of(more, 1, D);
    attn_bahdanau_config config = good.bahdanau;
    config.w_ih = attn_matrix(gates, 3 * D, 2 * D), config.w_hh = attn_matrix(gates, 3 * D, D);
    return attn_bahdanau_backward(&config, &good.alignment, &one, &x, &x, NULL, &one, NULL, s, NULL, 0);
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

static attn_status take_adamw(const void *s)
{
    return attn_adamw_step(NULL, 0, 1, s);
}

static attn_status take_schedule(const void *s)
{
    double rate;
    return attn_schedule_rate(s, 1, &rate);
}

static attn_status take_sizes(const void *s)
{
    return attn_mha_sizes(made.mha, (attn_mha_config *)(uintptr_t)s);
}

static attn_status take_model_options(const void *s)
{
    attn_model *it = NULL;
    const attn_status status = attn_model_open(&it, made.folder, s);
    attn_model_close(it);
    return status;
}

static attn_status take_model_info(const void *s)
{
    return attn_model_describe(made.encoder, (attn_model_info *)(uintptr_t)s);
}

static attn_status take_batch(const void *s)
{
    return attn_model_encode(made.encoder, s, &good.model_outputs);
}

static attn_status take_model_outputs(const void *s)
{
    return attn_model_encode(made.encoder, &good.batch, s);
}

static attn_status take_tokens(const void *s)
{
    const int64_t one = 1;
    OK(attn_cache_truncate(made.cache, made.sequence, 0));
    OK(attn_cache_step(made.cache, 1, &made.sequence, &one, NULL));
    const attn_tensor hidden = rows_of(more, 1, D);
    attn_model_outputs outputs = attn_model_outputs_default();
    outputs.hidden = &hidden;
    return attn_model_step(made.decoder, made.cache, s, &outputs);
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
    {"gradients", 48, sizeof good.linear_gradients, &good.linear_gradients, take_linear_gradients},
    {"gradients", 40, sizeof good.norm, &good.norm, take_norm_gradients},
    {"gradients", 40, sizeof good.lstm_gradients, &good.lstm_gradients, take_lstm_gradients},
    {"gradients", 48, sizeof good.mha_gradients, &good.mha_gradients, take_mha_gradients},
    {"weights", 984, sizeof good.block_weights, &good.block_weights, take_block_weights},
    {"pass", 80, sizeof good.block_pass, &good.block_pass, take_block_pass},
    {"gradients", 56, sizeof good.block_gradients, &good.block_gradients, take_block_gradients},
    {"gradients", 48, sizeof good.pool, &good.pool, take_pool_gradients},
    {"gradients", 56, sizeof good.alignment_gradients, &good.alignment_gradients, take_alignment_gradients},
    {"gradients", 104, sizeof good.bahdanau_gradients, &good.bahdanau_gradients, take_bahdanau_gradients},
    {"format", 32, sizeof good.format, &good.format, take_linear_format},
    {"config", 80, sizeof good.bert, &good.bert, take_bert},
    {"weights", 416, sizeof good.bert_weights, &good.bert_weights, take_bert_weights},
    {"pass", 80, sizeof good.model_pass, &good.model_pass, take_model_pass},
    {"weights", 664, sizeof good.transformer_weights, &good.transformer_weights, take_transformer_weights},
    {"pairs", 48, sizeof good.pairs, &good.pairs, take_pairs},
    {"outputs", 16, sizeof good.outputs, &good.outputs, take_outputs},
    {"config", 88, sizeof good.llama, &good.llama, take_llama},
    {"config.rope", 88, sizeof good.rope, &good.rope, take_llama_rope},
    {"config", 96, sizeof good.transformer, &good.transformer, take_transformer},
    {"decoding", 32, sizeof good.decoding, &good.decoding, take_decoding},
    {"config", 40, sizeof good.lstm, &good.lstm, take_lstm},
    {"config", 40, sizeof good.lstm, &good.lstm, take_lstm_create},
    {"config", 368, sizeof good.alignment, &good.alignment, take_alignment},
    {"config", 360, sizeof good.bahdanau, &good.bahdanau, take_bahdanau},
    {"options", 32, sizeof good.model_options, &good.model_options, take_model_options},
    {"info", 152, sizeof good.info, &good.info, take_model_info},
    {"batch", 56, sizeof good.batch, &good.batch, take_batch},
    {"outputs", 56, sizeof good.model_outputs, &good.model_outputs, take_model_outputs},
    {"tokens", 56, sizeof good.tokens, &good.tokens, take_tokens},
    {"options", 32, sizeof good.adamw, &good.adamw, take_adamw},
    {"schedule", 48, sizeof good.schedule, &good.schedule, take_schedule},
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
    struct memory *m = memory_create("structs versions", 0);
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
    struct model_folder encoder = model_folder_bert(m), decoder = model_folder_llama(m);
    attn_cache_config cache = attn_cache_config_default();
    made.folder = encoder.path;
    OK(attn_model_open(&made.encoder, encoder.path, NULL));
    OK(attn_model_open(&made.decoder, decoder.path, NULL));
    OK(attn_model_cache_config(made.decoder, &cache));
    cache.max_tokens = cache.max_sequences = 2;
    OK(attn_cache_create(&made.cache, &cache));
    OK(attn_cache_add(made.cache, &made.sequence));
    for (size_t i = 0; i < sizeof versioned / sizeof *versioned; i++)
        check_versions(&guard, &versioned[i]);
    nn_end_refusals();
    attn_cache_destroy(made.cache);
    attn_model_close(made.decoder);
    attn_model_close(made.encoder);
    model_folder_remove(&decoder);
    model_folder_remove(&encoder);
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
    REFUSES(NULL, attn_mha_sizes(NULL, &newer.sizes), ATTN_INVALID_ARGUMENT, "mha is NULL; expected a layer");
    REFUSES(NULL, attn_mha_sizes(mha, NULL), ATTN_INVALID_ARGUMENT, "sizes is NULL; expected an attn_mha_config");
    nn_end_refusals();
    attn_mha_destroy(mha);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_versions), cmocka_unit_test(test_sizes)};
    guard_catch_faults();
    make_configs();
    return NN_MAIN(tests);
}
