/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats of weights and types of activations, as loaders hand them on: every
 * matrix of a model gets them and nothing else does; a sequence has the same bits
 * alone and in a batch, on any number of threads; what cannot be is refused; and
 * a model takes the memory of its weights, once.
 */
#include "cpu/cpu.h"
#include "ledger.h"
#include "small.h"

enum { TOKENS = 5, SEQUENCES = 3, MOST = 4 * D * TOKENS };

/** What is made of weights, and which sequences run through it. */
struct how {
    const attn_linear_format *format;
    attn_dtype dtype; /**< of activations */
    int64_t first, count;
    int threads;
};

/** Loads a model, runs it, and frees it; out[count][MOST], whose rows begin with the results of a sequence. */
typedef attn_status run_function(const attn_weights *weights, const struct how *how, float *out);

static float input[SEQUENCES * TOKENS * D];
static const int32_t ids[SEQUENCES * TOKENS] = {3, 1, 4, 1, 5, 2, 7, 1, 8, 2, 8, 0, 6, 6, 5};

/** x of the sequences in a type, in memory that is kept until the next call. */
static attn_tensor x_of(const struct how *how)
{
    static float memory[SEQUENCES * TOKENS * D];
    attn_tensor x = attn_btc(memory, how->count, TOKENS, D);
    x.dtype = how->dtype;
    for (int64_t i = 0; i < how->count * TOKENS * D; i++)
        dtype_store(x.dtype, memory, i, input[how->first * TOKENS * D + i]);
    return x;
}

/** f32 results (count, 1, TOKENS, channels) in rows of MOST. */
static attn_tensor out_of(const struct how *how, float *out, int64_t channels)
{
    attn_tensor t = attn_btc(out, how->count, TOKENS, channels);
    t.stride[0] = MOST;
    return t;
}

static attn_status run_mha(const attn_weights *weights, const struct how *how, float *out)
{
    attn_mha_config config = good.mha;
    attn_mha *mha = (attn_mha *)(uintptr_t)64;
    attn_params params = attn_params_default();
    config.format = how->format;
    params.num_threads = how->threads;
    const attn_tensor x = x_of(how), to = out_of(how, out, D);
    attn_status status = attn_mha_load(&mha, &config, weights, "block.self_attn.");
    assert_true(!status == (mha != NULL));
    if (!status)
        status = attn_mha_forward(mha, &x, NULL, &to, &params, NULL, 0);
    attn_mha_destroy(mha);
    return status;
}

static attn_status run_block(const attn_weights *weights, const struct how *how, float *out)
{
    attn_block_config config = good.block;
    attn_block *block = (attn_block *)(uintptr_t)64;
    attn_block_inputs inputs = attn_block_inputs_default();
    config.format = how->format;
    inputs.num_threads = how->threads;
    const attn_tensor x = x_of(how), to = out_of(how, out, D);
    attn_status status = attn_block_load(&block, &config, weights, "block.", ATTN_NAMING_TORCH);
    assert_true(!status == (block != NULL));
    if (!status)
        status = attn_block_forward(block, &x, &to, &inputs, NULL, 0);
    attn_block_destroy(block);
    return status;
}

static attn_status run_bert(const attn_weights *weights, const struct how *how, float *out)
{
    attn_bert_config config = good.bert;
    attn_bert *bert = (attn_bert *)(uintptr_t)64;
    int64_t offsets[SEQUENCES + 1];
    float hidden[SEQUENCES * TOKENS * D];
    config.format = how->format;
    config.activations = how->dtype;
    for (int64_t s = 0; s <= how->count; s++)
        offsets[s] = s * TOKENS;
    const attn_tensor to = attn_btc(hidden, 1, how->count * TOKENS, D);
    attn_status status = attn_bert_load(&bert, &config, weights, "bert.");
    assert_true(!status == (bert != NULL));
    if (!status)
        status =
            attn_bert_forward(bert, how->count, offsets, ids + how->first * TOKENS, &to, NULL, how->threads, NULL, 0);
    for (int64_t s = 0; s < how->count && !status; s++)
        memcpy(out + s * MOST, hidden + s * TOKENS * D, TOKENS * D * sizeof *out);
    attn_bert_destroy(bert);
    return status;
}

static attn_status run_llama(const attn_weights *weights, const struct how *how, float *out)
{
    attn_llama_config config = good.llama;
    attn_llama *llama = (attn_llama *)(uintptr_t)64;
    attn_llama_session *session = NULL;
    config.format = how->format;
    config.activations = how->dtype;
    const attn_tensor to = out_of(how, out, WORDS);
    attn_status status = attn_llama_load(&llama, &config, weights);
    assert_true(!status == (llama != NULL));
    if (!status)
        status = attn_llama_session_create(&session, llama, how->count, TOKENS);
    if (!status)
        status = attn_llama_forward(session, TOKENS, ids + how->first * TOKENS, &to, how->threads);
    attn_llama_session_destroy(session);
    attn_llama_destroy(llama);
    return status;
}

static attn_status run_transformer(const attn_weights *weights, const struct how *how, float *out)
{
    attn_transformer_config config = good.transformer;
    attn_transformer *model = (attn_transformer *)(uintptr_t)64;
    float states[SEQUENCES * TOKENS * D];
    config.format = how->format;
    config.activations = how->dtype;
    const attn_tensor memory = attn_btc(states, how->count, TOKENS, D), to = out_of(how, out, WORDS);
    attn_status status = attn_transformer_load(&model, &config, weights, "transformer.");
    assert_true(!status == (model != NULL));
    if (!status)
        status =
            attn_transformer_encode(model, how->count, TOKENS, ids + how->first * TOKENS, NULL, &memory, how->threads);
    if (!status)
        status =
            attn_transformer_score(model, &memory, NULL, TOKENS, ids + how->first * TOKENS, &to, NULL, how->threads);
    attn_transformer_destroy(model);
    return status;
}

static attn_status run_lstm(const attn_weights *weights, const struct how *how, float *out)
{
    attn_lstm_config config = good.lstm;
    attn_lstm *lstm = (attn_lstm *)(uintptr_t)64;
    config.format = how->format;
    const attn_tensor x = x_of(how), to = out_of(how, out, HIDDEN);
    attn_status status = attn_lstm_load(&lstm, &config, weights, "lstm.");
    assert_true(!status == (lstm != NULL));
    if (!status)
        status = attn_lstm_forward(lstm, &x, NULL, NULL, &to, how->threads, NULL, 0);
    attn_lstm_destroy(lstm);
    return status;
}

static const struct {
    const char *name;
    run_function *run;
    int64_t channels; /**< of a result */
} kinds[] = {{"mha", run_mha, D},         {"block", run_block, D},    {"bert", run_bert, D},
             {"llama", run_llama, WORDS}, {"lstm", run_lstm, HIDDEN}, {"transformer", run_transformer, WORDS}};
enum { KINDS = sizeof kinds / sizeof *kinds, LLAMA = 3 };

static const attn_linear_format formats[] = {
    {.struct_size = sizeof *formats},
    {.struct_size = sizeof *formats, .weights = ATTN_WEIGHTS_F32},
    {.struct_size = sizeof *formats, .weights = ATTN_WEIGHTS_BF16},
    {.struct_size = sizeof *formats, .weights = ATTN_WEIGHTS_BF16, .multiply = ATTN_MULTIPLY_BF16},
    {.struct_size = sizeof *formats, .weights = ATTN_WEIGHTS_INT8},
    {.struct_size = sizeof *formats, .weights = ATTN_WEIGHTS_INT8, .group = 32},
    {.struct_size = sizeof *formats, .weights = ATTN_WEIGHTS_INT8, .multiply = ATTN_MULTIPLY_INT8},
    {.struct_size = sizeof *formats, .weights = ATTN_WEIGHTS_INT4},
    {.struct_size = sizeof *formats, .weights = ATTN_WEIGHTS_INT4, .multiply = ATTN_MULTIPLY_INT8},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/** The weights of all kinds but Llama, and of Llama, whose names have no prefix. */
struct sets {
    struct named *named[2];
    attn_weights *weights[2];
};

/** Gives a tensor other numbers, which are not those of a narrower type. */
static void draw_in(struct memory *m, attn_tensor *t, attn_dtype dtype)
{
    const int64_t count = t->shape[2] * t->shape[3];
    t->dtype = dtype;
    t->data = bytes(m, (size_t)count * attn_dtype_size(dtype));
    for (int64_t k = 0; k < count; k++)
        dtype_store(dtype, t->data, k, 0.4f * rng_normal(&m->rng));
}

static void make_sets(struct sets *sets, struct memory *m)
{
    make_configs();
    for (int i = 0; i < SEQUENCES * TOKENS * D; i++)
        input[i] = rng_normal(&m->rng);
    for (int i = 0; i < 2; i++)
        sets->named[i] = named_create(m);
    add_all(sets->named[0], m);
    add_llama(sets->named[1], m);
    for (int i = 0; i < 2; i++) {
        for (int64_t t = 0; t < sets->named[i]->num; t++)
            if (sets->named[i]->tensors[t].dtype != ATTN_F32)
                draw_in(m, &sets->named[i]->tensors[t], ATTN_F32);
        sets->weights[i] = named_weights(sets->named[i]);
    }
}

static void free_sets(const struct sets *sets)
{
    attn_weights_destroy(sets->weights[0]);
    attn_weights_destroy(sets->weights[1]);
}

/** The same weights with all matrices of products rounded to bf16. */
static void round_sets(struct sets *rounded, const struct sets *sets, struct memory *m)
{
    for (int set = 0; set < 2; set++) {
        struct named *n = rounded->named[set] = named_create(m);
        memcpy(n, sets->named[set], sizeof *n);
        for (int64_t i = 0; i < n->num; i++) {
            attn_tensor *t = &n->tensors[i];
            const int64_t count = t->shape[2] * t->shape[3];
            if (t->shape[2] == 1 || strstr(n->names[i], "embed"))
                continue;
            const attn_tensor wide = *t;
            t->dtype = ATTN_BF16;
            t->data = bytes(m, (size_t)count * 2);
            for (int64_t k = 0; k < count; k++)
                dtype_store(ATTN_BF16, t->data, k, dtype_load(wide.dtype, wide.data, k));
        }
        rounded->weights[set] = named_weights(n);
    }
}

/** Root mean square of the difference as a part of that of b. */
static double difference(const float *a, const float *b, int64_t channels)
{
    double squares = 0, of_b = 0;
    for (int64_t s = 0; s < SEQUENCES; s++)
        for (int64_t i = 0; i < TOKENS * channels; i++) {
            const double x = (double)a[s * MOST + i], y = (double)b[s * MOST + i];
            squares += (x - y) * (x - y);
            of_b += y * y;
        }
    return sqrt(squares / of_b);
}

static void assert_same(const char *what, const float *a, const float *b, int64_t channels)
{
    for (int64_t s = 0; s < SEQUENCES; s++)
        if (memcmp(a + s * MOST, b + s * MOST, (size_t)(TOKENS * channels) * sizeof *a) != 0)
            fail_msg("%s: sequence %d has other bits", what, (int)s);
}

/** How far a format may be off from f32: a few roundings of 2^-8 of the largest weight or element, or of 1/15 for int4.
 */
static double most_difference(const attn_linear_format *format, attn_dtype dtype)
{
    const double narrow = dtype == ATTN_F32 ? 0 : 0.03;
    return narrow + (format->weights == ATTN_WEIGHTS_INT4   ? 0.5
                     : format->weights == ATTN_WEIGHTS_INT8 ? 0.06
                     : format->weights == ATTN_WEIGHTS_BF16 ? 0.03
                                                            : 0);
}

/** A sequence by itself, on any number of threads, has the bits that it has in a batch; and what a format changes. */
static void test_formats(void **state)
{
    (void)state;
    static float exact[SEQUENCES * MOST], all[SEQUENCES * MOST], single[SEQUENCES * MOST];
    struct memory *m = memory_create("formats formats", 0);
    struct sets sets;
    make_sets(&sets, m);
    for (int kind = 0; kind < KINDS; kind++) {
        const attn_weights *weights = sets.weights[kind == LLAMA];
        OK(kinds[kind].run(weights, &(struct how){NULL, ATTN_F32, 0, SEQUENCES, 1}, exact));
        for (int f = 0; f < FORMATS; f++)
            for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
                char what[80];
                snprintf(what, sizeof what, "%s, format %d, activations %d", kinds[kind].name, f, (int)dtype);
                OK(kinds[kind].run(weights, &(struct how){&formats[f], dtype, 0, SEQUENCES, 2}, all));
                for (int64_t s = 0; s < SEQUENCES; s++)
                    OK(kinds[kind].run(weights, &(struct how){&formats[f], dtype, s, 1, 1 + (int)s},
                                       single + s * MOST));
                assert_same(what, single, all, kinds[kind].channels);
                const double off = difference(all, exact, kinds[kind].channels);
                const double most = most_difference(&formats[f], dtype);
                if (!(off <= most) || (off == 0) != (most == 0))
                    fail_msg("%s: it differs from f32 by %g; expected at most %g%s", what, off, most,
                             most > 0 ? ", and something" : "");
            }
    }
    free_sets(&sets);
    memory_destroy(m);
}

/** Weights that a loader rounds to bf16 have the bits of weights that were rounded before: all matrices, nothing else.
 */
static void test_every_matrix(void **state)
{
    (void)state;
    static float asked[SEQUENCES * MOST], given[SEQUENCES * MOST];
    struct memory *m = memory_create("formats every_matrix", 0);
    struct sets sets, rounded;
    make_sets(&sets, m);
    round_sets(&rounded, &sets, m);
    for (int kind = 0; kind < KINDS; kind++)
        for (attn_multiply multiply = ATTN_MULTIPLY_F32; multiply <= ATTN_MULTIPLY_BF16; multiply++)
            for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_BF16; dtype++) {
                attn_linear_format format = attn_linear_format_default(), as_given = format;
                format.weights = ATTN_WEIGHTS_BF16;
                format.multiply = as_given.multiply = multiply;
                OK(kinds[kind].run(sets.weights[kind == LLAMA], &(struct how){&format, dtype, 0, SEQUENCES, 1}, asked));
                OK(kinds[kind].run(rounded.weights[kind == LLAMA], &(struct how){&as_given, dtype, 0, SEQUENCES, 1},
                                   given));
                assert_same(kinds[kind].name, asked, given, kinds[kind].channels);
            }
    free_sets(&sets);
    free_sets(&rounded);
    memory_destroy(m);
}

/** Formats that there are not, weights that cannot be in one, and types that no layer runs in. */
/** Where matrix registers multiply what attention does, they multiply what layers do, but for scales of groups. */
static void test_products(void **state)
{
    (void)state;
    const float one = 1;
    const attn_tensor w = attn_matrix(&one, 1, 1);
    const char *const active = attn_isa_active(), *const matrix = strstr(active, "amx_bf16");
    for (int i = 0; i < 4; i++) {
        attn_linear_format f = attn_linear_format_default();
        attn_linear *linear;
        f.weights = i == 0 ? ATTN_WEIGHTS_BF16 : i < 3 ? ATTN_WEIGHTS_INT8 : ATTN_WEIGHTS_INT4;
        f.multiply = i == 0 ? ATTN_MULTIPLY_BF16 : ATTN_MULTIPLY_INT8;
        f.group = i == 2 ? 32 : 0;
        assert_int_equal(attn_linear_quantize(&linear, &f, 1, &w, NULL), ATTN_OK);
        const char *const isa = attn_linear_isa(linear);
        if (i == 0 && (matrix || strstr(active, "avx512_bf16"))) /* layers have no BFDOT */
            assert_string_equal(isa, active);
        else if (i == 1 && matrix && (strstr(active, "emulated") || attn_cpu_has("amxint8")))
            assert_non_null(strstr(isa, "amx_int8"));
        else
            assert_null(strstr(isa, matrix && i > 1 ? "amx" : "bf16"));
        attn_linear_destroy(linear);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    static float out[SEQUENCES * MOST];
    static const struct {
        attn_linear_format format;
        attn_status status;
        const char *words;
    } wrong[] = {
        {{.struct_size = 3}, ATTN_INVALID_ARGUMENT, "format.struct_size|3"},
        {{sizeof *formats, (attn_weight_format)9, ATTN_MULTIPLY_F32, 0, NULL}, ATTN_INVALID_ARGUMENT, "weights|9"},
        {{sizeof *formats, ATTN_WEIGHTS_BF16, (attn_multiply)7, 0, NULL},
         ATTN_INVALID_ARGUMENT,
         "format.multiply is 7; expected an attn_multiply"},
        {{sizeof *formats, ATTN_WEIGHTS_AS_GIVEN, ATTN_MULTIPLY_BF16, 0, NULL}, ATTN_UNSUPPORTED, "multiply|bf16"},
        {{sizeof *formats, ATTN_WEIGHTS_F32, ATTN_MULTIPLY_INT8, 0, NULL}, ATTN_UNSUPPORTED, "multiply|int8"},
        {{sizeof *formats, ATTN_WEIGHTS_INT8, ATTN_MULTIPLY_F32, 7, NULL}, ATTN_INVALID_ARGUMENT, "group|7"},
    };
    struct memory *m = memory_for_refusals("formats refuses", 0);
    struct sets sets;
    make_sets(&sets, m);
    memory_seal(m);
    for (int kind = 0; kind < KINDS; kind++) {
        const attn_weights *weights = sets.weights[kind == LLAMA];
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            REFUSES(m, kinds[kind].run(weights, &(struct how){&wrong[i].format, ATTN_F32, 0, SEQUENCES, 1}, out),
                    wrong[i].status, wrong[i].words);
    }
    attn_bert *bert;
    attn_llama *llama;
    attn_transformer *model;
    const attn_weights *weights = sets.weights[0];
    REFUSES(m, attn_bert_load(&bert, CHANGED(attn_bert_config, good.bert, activations = ATTN_I8), weights, "bert."),
            ATTN_UNSUPPORTED, "config.activations|i8|f32, bf16 or f16");
    REFUSES(m,
            attn_bert_load(&bert, CHANGED(attn_bert_config, good.bert, activations = (attn_dtype)77), weights, "bert."),
            ATTN_INVALID_ARGUMENT, "config.activations is 77; expected ATTN_F32, ATTN_BF16 or ATTN_F16");
    REFUSES(m, attn_llama_load(&llama, CHANGED(attn_llama_config, good.llama, activations = ATTN_U8), sets.weights[1]),
            ATTN_UNSUPPORTED, "config.activations|u8");
    REFUSES(m,
            attn_transformer_load(&model, CHANGED(attn_transformer_config, good.transformer, activations = ATTN_BOOL),
                                  weights, "transformer."),
            ATTN_UNSUPPORTED, "config.activations|bool");
    nn_end_refusals();
    free_sets(&sets);
    memory_destroy(m);
}

/* ------------------------------------------------------------------ memory -- */

enum { WIDE_D = 96, WIDE_FF = 384, WIDE_WORDS = 1000, WIDE_PLACES = 64, WIDE_LAYERS = 2 };

/** A BERT in a type, and the bytes of its matrices and embeddings in a file. */
static struct named *wide_bert(struct memory *m, attn_dtype dtype, long long *products, long long *embeddings)
{
    struct named *n = named_create(m);
    attn_mha_config attention = attn_mha_config_default();
    attn_block_config block = attn_block_config_default();
    attention.d_model = WIDE_D, attention.heads = 4;
    block.attention = &attention, block.d_ff = WIDE_FF;
    named_add(n, m, dtype, WIDE_WORDS, WIDE_D, 1, 0, "", "embeddings.word_embeddings.weight");
    named_add(n, m, dtype, WIDE_PLACES, WIDE_D, 1, 0, "", "embeddings.position_embeddings.weight");
    named_add(n, m, dtype, 2, WIDE_D, 1, 0, "", "embeddings.token_type_embeddings.weight");
    named_add_norm(n, m, ATTN_NORM_LAYER, WIDE_D, "", "embeddings.LayerNorm");
    for (int64_t l = 0; l < WIDE_LAYERS; l++) {
        char layer[NAMED_LENGTH];
        layer_prefix(layer, "", "encoder.layer", l);
        named_add_block(n, m, &block, layer, ATTN_NAMING_BERT, 1);
    }
    *products = *embeddings = 0;
    for (int64_t i = 0; i < n->num; i++) {
        attn_tensor *t = &n->tensors[i];
        const int64_t count = t->shape[2] * t->shape[3];
        if (t->shape[2] == 1)
            continue;
        if (t->dtype != dtype) /* layers are random in their types */
            draw_in(m, t, dtype);
        *(strstr(n->names[i], "embed") ? embeddings : products) += count * (long long)attn_dtype_size(dtype);
    }
    return n;
}

static void test_memory(void **state)
{
    (void)state;
    /* f32 biases and norms, padding of panels, structs: a part of what the matrices take. */
    enum { REST = 40000 };
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_BF16; dtype++) {
        struct memory *m = memory_create("formats memory", (uint64_t)dtype);
        long long products, embeddings;
        const struct named *n = wide_bert(m, dtype, &products, &embeddings);
        attn_weights *weights = named_weights(n);
        for (int f = 0; f < FORMATS; f++) {
            attn_bert_config config = attn_bert_config_default();
            config.layers = WIDE_LAYERS, config.d_model = WIDE_D, config.heads = 4, config.d_ff = WIDE_FF;
            config.vocabulary = WIDE_WORDS, config.positions = WIDE_PLACES, config.eps = 1e-12f;
            config.format = &formats[f];
            const attn_weight_format kept = formats[f].weights;
            const double weight = (double)attn_dtype_size(dtype);
            const double part = kept == ATTN_WEIGHTS_F32    ? 4 / weight
                                : kept == ATTN_WEIGHTS_BF16 ? 2 / weight
                                : kept == ATTN_WEIGHTS_INT8 ? (formats[f].group ? 1.0 + 2.0 / 32 : 1.0) / weight
                                : kept == ATTN_WEIGHTS_INT4 ? (0.5 + 2.0 / 32) / weight
                                                            : 1;
            const double expected = (double)products * part + (double)embeddings;
            attn_bert *bert;
            ledger_begin(0, 0);
            const attn_status status = attn_bert_load(&bert, &config, weights, "");
            const double taken = (double)ledger.bytes;
            OK(status);
            if (!(taken >= expected && taken <= expected + REST))
                fail_msg("%s: format %d takes %.0f bytes; expected %.0f to %.0f", guard_case_line, f, taken, expected,
                         expected + REST);
            attn_bert_destroy(bert);
            ledger.active = 0;
            assert_int_equal(ledger.live, 0);
            assert_int_equal(ledger.bytes, 0);
        }
        attn_weights_destroy(weights);
        memory_destroy(m);
    }
}

/** A session's cache has the type of the decoder's activations. */
static void test_session_memory(void **state)
{
    (void)state;
    enum { CAPACITY = 1000 };
    struct memory *m = memory_create("formats session_memory", 0);
    struct sets sets;
    make_sets(&sets, m);
    long long taken[3];
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        attn_llama_config config = good.llama;
        attn_llama *llama;
        attn_llama_session *session;
        config.activations = dtype;
        OK(attn_llama_load(&llama, &config, sets.weights[1]));
        ledger_begin(0, 0);
        const attn_status status = attn_llama_session_create(&session, llama, 1, CAPACITY);
        taken[dtype] = ledger.bytes;
        ledger.active = 0;
        OK(status);
        attn_llama_session_destroy(session);
        attn_llama_destroy(llama);
    }
    const long long cache = 2LL * CAPACITY * 2 * D * (long long)sizeof(float); /* layers, tokens, keys and values */
    enum { ALIGNED = 64 }; /* what an aligned piece of memory may have besides, from one time to the next */
    assert_true(llabs(taken[ATTN_F32] - taken[ATTN_BF16] - cache / 2) < ALIGNED);
    assert_true(llabs(taken[ATTN_F16] - taken[ATTN_BF16]) < ALIGNED);
    free_sets(&sets);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats),  cmocka_unit_test(test_every_matrix),
                                       cmocka_unit_test(test_products), cmocka_unit_test(test_refuses),
                                       cmocka_unit_test(test_memory),   cmocka_unit_test(test_session_memory)};
    return NN_MAIN(tests);
}
