/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoder-decoders from folders: bits that do not depend on what else is in a
 * step, a chunk or a memory, the life of sources, and refusals of calls. What they
 * compute is compared with Transformers by tests/models/check_folders.py.
 */
#include "model_folder.h"
#include "small.h"

enum { SOURCES = 3, LENGTH = 9 };

/* Sources of 3, 17 and 1 tokens: within a page, more than one, and a single one. */
static const int64_t offsets[SOURCES + 1] = {0, 3, 20, 21};
static const int32_t source_ids[21] = {1, 2, 3, 8, 0, 5, 2, 4, 4, 6, 7, 1, 3, 3, 5, 8, 2, 0, 1, 6, 7};

/** A model, its cache, and a memory with the sources. */
struct session {
    struct memory *m;
    struct model_folder folder;
    attn_model *model;
    attn_cache *cache;
    attn_model_memory *memory;
    int64_t sources[SOURCES];
};

static attn_model_batch batch_of(int64_t first, int64_t num, int64_t *own_offsets)
{
    attn_model_batch batch = attn_model_batch_default();
    for (int64_t s = 0; s <= num; s++)
        own_offsets[s] = offsets[first + s] - offsets[first];
    batch.num_sequences = num, batch.offsets = own_offsets, batch.ids = source_ids + offsets[first];
    return batch;
}

static struct session begin(const char *name, int head)
{
    struct session s = {.m = memory_create(name, 0)};
    int64_t own[SOURCES + 1];
    attn_cache_config config = attn_cache_config_default();
    const attn_model_batch batch = batch_of(0, SOURCES, own);
    s.folder = model_folder_t5(s.m, head);
    OK(attn_model_open(&s.model, s.folder.path, NULL));
    OK(attn_model_cache_config(s.model, &config));
    assert_null(config.rope);
    config.max_tokens = 20, config.max_sequences = 6, config.page_size = 4;
    OK(attn_cache_create(&s.cache, &config));
    OK(attn_model_memory_create(&s.memory, s.model));
    OK(attn_model_memory_add(s.memory, &batch, NULL, s.sources));
    return s;
}

static void end(struct session *s)
{
    attn_model_memory_destroy(s->memory);
    attn_cache_destroy(s->cache);
    attn_model_close(s->model);
    model_folder_remove(&s->folder);
    memory_destroy(s->m);
}

/** Logits of a step's tokens, (1, 1, tokens, WORDS). */
static attn_tensor step(struct session *s, int64_t num, const int64_t *sequences, const int64_t *counts,
                        const int32_t *ids, const int64_t *sources)
{
    int64_t total = 0;
    attn_model_tokens tokens = attn_model_tokens_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    OK(attn_cache_step(s->cache, num, sequences, counts, NULL));
    for (int64_t i = 0; i < num; i++)
        total += counts[i];
    const attn_tensor logits = place_dense(s->m, 1, 1, total, WORDS);
    tokens.ids = ids, tokens.memory = s->memory, tokens.sources = sources;
    outputs.logits = &logits;
    OK(attn_model_step(s->model, s->cache, &tokens, &outputs));
    return logits;
}

static void same_rows(const attn_tensor *a, int64_t first_a, const attn_tensor *b, int64_t first_b, int64_t rows)
{
    assert_memory_equal((float *)a->data + first_a * WORDS, (float *)b->data + first_b * WORDS,
                        (size_t)(rows * WORDS) * sizeof(float));
}

/** The logits of ids by themselves, in one step. */
static attn_tensor alone(struct session *s, const int32_t *ids, int64_t count, int64_t source)
{
    int64_t sequence;
    OK(attn_cache_add(s->cache, &sequence));
    const attn_tensor logits = step(s, 1, &sequence, &count, ids, &source);
    OK(attn_cache_remove(s->cache, sequence));
    return logits;
}

static attn_tensor normal(struct memory *m, int64_t batch, int64_t tokens, int64_t channels)
{
    const attn_tensor t = place_dense(m, batch, 1, tokens, channels);
    fill(m, &t, 1);
    return t;
}

/* ------------------------------------------------------------------- results -- */

static void test_info(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder info", 1);
    attn_model_info info = attn_model_info_default();
    OK(attn_model_describe(s.model, &info));
    assert_int_equal(info.kind, ATTN_MODEL_ENCODER_DECODER);
    assert_true(info.layers == 2 && info.decoder_layers == 1 && info.d_model == D && info.logits == WORDS);
    assert_true(info.decoder_start == 0 && info.pad == 0 && info.num_eos == 1 && info.eos[0] == 1);
    assert_true(!info.pooler && !info.token_types && info.max_positions == INT32_MAX);
    /* generation_config.json goes before config.json, where it has an entry. */
    attn_model *other;
    model_folder_text(&s.folder, "generation_config.json", "{\"decoder_start_token_id\": 3, \"eos_token_id\": [2, 4]}");
    OK(attn_model_open(&other, s.folder.path, NULL));
    OK(attn_model_describe(other, &info));
    assert_true(info.decoder_start == 3 && info.pad == 0 && info.num_eos == 2);
    attn_model_close(other);
    end(&s);
}

/** Prompts together, in chunks, and beside others have the bits of each by itself. */
static void test_steps(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder steps", 1);
    enum { NUM = 4 };
    static const int32_t ids[NUM][LENGTH] = {{0, 4, 2, 7, 1, 1, 5, 3, 8},
                                             {0, 3, 3, 6, 8, 2, 1, 7, 4},
                                             {0, 4, 2, 7, 1, 1, 5, 3, 8},
                                             {5, 1, 0, 2, 2, 6, 3, 4, 7}};
    /* Two share a source, and none is in the order of the memory. */
    const int64_t sources[NUM] = {s.sources[1], s.sources[0], s.sources[1], s.sources[2]};
    attn_tensor whole[NUM];
    int64_t sequences[NUM], done[NUM] = {0};
    for (int i = 0; i < NUM; i++) {
        whole[i] = alone(&s, ids[i], LENGTH, sources[i]);
        OK(attn_cache_add(s.cache, &sequences[i]));
    }
    same_rows(&whole[0], 0, &whole[2], 0, LENGTH);
    assert_memory_not_equal(whole[0].data, whole[1].data, WORDS * sizeof(float));
    static const int64_t chunks[][NUM] = {{5, 0, 1, 2}, {1, 1, 1, 1}, {3, 7, 2, 0}, {0, 1, 5, 6}};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        int32_t flat[NUM * LENGTH];
        int64_t total = 0;
        for (int i = 0; i < NUM; i++) {
            memcpy(flat + total, ids[i] + done[i], (size_t)chunks[c][i] * sizeof *flat);
            total += chunks[c][i];
        }
        const attn_tensor got = step(&s, NUM, sequences, chunks[c], flat, sources);
        total = 0;
        for (int i = 0; i < NUM; i++) {
            same_rows(&got, total, &whole[i], done[i], chunks[c][i]);
            total += chunks[c][i], done[i] += chunks[c][i];
        }
    }
    /* Another source for the same sequence is another text. */
    const attn_tensor other = alone(&s, ids[0], LENGTH, s.sources[2]);
    assert_memory_not_equal(whole[0].data, other.data, WORDS * sizeof(float));
    end(&s);
}

/** Beams that part, and tokens that are taken back. */
static void test_forks(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder forks", 0);
    static const int32_t left[LENGTH] = {0, 4, 2, 7, 1, 1, 5, 3, 8}, right[LENGTH] = {0, 4, 2, 7, 1, 6, 2, 2, 0};
    const int64_t five = 5, four[] = {4, 4}, sources[] = {s.sources[1], s.sources[1]};
    const attn_tensor whole_left = alone(&s, left, LENGTH, s.sources[1]),
                      whole_right = alone(&s, right, LENGTH, s.sources[1]);
    int64_t beams[2];
    int32_t flat[8];
    OK(attn_cache_add(s.cache, &beams[0]));
    step(&s, 1, beams, &five, left, sources);
    OK(attn_cache_fork(s.cache, beams[0], &beams[1]));
    memcpy(flat, left + 5, sizeof flat / 2);
    memcpy(flat + 4, right + 5, sizeof flat / 2);
    const attn_tensor both = step(&s, 2, beams, four, flat, sources);
    same_rows(&both, 0, &whole_left, 5, 4);
    same_rows(&both, 4, &whole_right, 5, 4);
    OK(attn_cache_truncate(s.cache, beams[0], 5));
    const attn_tensor again = step(&s, 1, beams, four, flat + 4, sources);
    same_rows(&again, 0, &whole_right, 5, 4);
    end(&s);
}

/** Sources by hidden states, in other batches and in pages that others had, have the same bits. */
static void test_sources(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder sources", 0);
    static const int32_t ids[LENGTH] = {0, 4, 2, 7, 1, 1, 5, 3, 8};
    int64_t own[SOURCES + 1], sources[SOURCES];
    attn_tensor expected[SOURCES];
    const attn_tensor hidden = place_dense(s.m, 1, 1, offsets[SOURCES], D);
    attn_model_outputs outputs = attn_model_outputs_default();
    attn_model_batch batch = batch_of(0, SOURCES, own);
    outputs.hidden = &hidden;
    OK(attn_model_encode(s.model, &batch, &outputs));
    for (int i = 0; i < SOURCES; i++) {
        assert_int_equal(s.sources[i], i);
        assert_int_equal(attn_model_memory_length(s.memory, i), offsets[i + 1] - offsets[i]);
        expected[i] = alone(&s, ids, LENGTH, i);
    }
    OK(attn_model_memory_remove(s.memory, 1));
    assert_int_equal(attn_model_memory_length(s.memory, 1), -1);
    const attn_tensor last = alone(&s, ids, LENGTH, 2);
    same_rows(&last, 0, &expected[2], 0, LENGTH);
    batch.ids = NULL;
    for (int round = 0; round < 3; round++) {
        OK(attn_model_memory_add(s.memory, &batch, &hidden, sources));
        for (int i = 0; i < SOURCES; i++) {
            assert_int_equal(sources[i], SOURCES * (round + 1) + i);
            const attn_tensor got = alone(&s, ids, LENGTH, sources[i]);
            same_rows(&got, 0, &expected[i], 0, LENGTH);
        }
        OK(attn_model_memory_remove(s.memory, sources[round]));
    }
    batch = batch_of(1, 1, own);
    OK(attn_model_memory_add(s.memory, &batch, NULL, sources));
    const attn_tensor single = alone(&s, ids, LENGTH, sources[0]);
    same_rows(&single, 0, &expected[1], 0, LENGTH);
    end(&s);
}

/** Of a source without tokens nothing is seen; no sequences, no tokens and no sources are a call like any other. */
static void test_nothing(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder nothing", 0);
    static const int64_t none[] = {0, 0, 0};
    static const int32_t ids[2] = {0, 4};
    int64_t sources[2], sequence;
    attn_model_memory *empty;
    attn_model_batch batch = attn_model_batch_default();
    OK(attn_model_memory_create(&empty, s.model));
    batch.offsets = none;
    OK(attn_model_memory_add(empty, &batch, NULL, NULL));
    batch.num_sequences = 2;
    OK(attn_model_memory_add(empty, &batch, NULL, sources));
    assert_true(sources[0] == 0 && sources[1] == 1 && attn_model_memory_length(empty, 1) == 0);
    attn_model_memory *const full = s.memory;
    s.memory = empty;
    const attn_tensor unseen = alone(&s, ids, 2, sources[1]);
    for (int i = 0; i < 2 * WORDS; i++)
        assert_true(isfinite(((float *)unseen.data)[i]));
    const int64_t zero = 0;
    OK(attn_cache_add(s.cache, &sequence));
    step(&s, 1, &sequence, &zero, NULL, sources);
    step(&s, 0, NULL, NULL, NULL, NULL);
    attn_model_memory_destroy(empty);
    attn_model_memory_destroy(NULL);
    s.memory = full;
    const attn_tensor seen = alone(&s, ids, 2, s.sources[2]);
    assert_memory_not_equal(seen.data, unseen.data, WORDS * sizeof(float));
    end(&s);
}

/** Logits are scaled by d_model^-1/2 where config.json does not say that they are not; those of mT5 never. */
static void test_scale(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder scale", 1);
    static const int32_t ids[LENGTH] = {0, 4, 2, 7, 1, 1, 5, 3, 8};
    static const struct {
        const char *more;
        int scaled;
    } cases[] = {{"", 1},
                 {", \"tie_word_embeddings\": true", 1},
                 {", \"tie_word_embeddings\": false", 0},
                 {", \"tie_word_embeddings\": false, \"scale_decoder_outputs\": true", 1},
                 {", \"tie_word_embeddings\": true, \"scale_decoder_outputs\": false", 0}};
    const attn_tensor scaled = alone(&s, ids, LENGTH, s.sources[1]);
    const float *expected = scaled.data;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t own[SOURCES + 1];
        const attn_model_batch batch = batch_of(0, SOURCES, own);
        attn_model_memory_destroy(s.memory);
        attn_model_close(s.model);
        model_folder_t5_config(&s.folder, cases[c].more);
        OK(attn_model_open(&s.model, s.folder.path, NULL));
        OK(attn_model_memory_create(&s.memory, s.model));
        OK(attn_model_memory_add(s.memory, &batch, NULL, s.sources));
        const attn_tensor logits = alone(&s, ids, LENGTH, s.sources[1]);
        for (int i = 0; i < LENGTH * WORDS; i++) {
            const float got = ((float *)logits.data)[i];
            assert_true((cases[c].scaled ? got : got * (float)(1 / sqrt((double)D))) == expected[i]);
        }
    }
    end(&s);
}

/** Activations in 16 bits, those of the memory among them, give about the same logits. */
static void test_types(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder types", 1);
    static const int32_t ids[LENGTH] = {0, 4, 2, 7, 1, 1, 5, 3, 8};
    static const attn_dtype types[] = {ATTN_BF16, ATTN_F16};
    const attn_tensor expected = alone(&s, ids, LENGTH, s.sources[1]);
    double largest = 0;
    for (int j = 0; j < LENGTH * WORDS; j++) {
        /* Not fmax, over which gcc 12 breaks down here when it compiles for AArch64. */
        const double size = fabs((double)((float *)expected.data)[j]);
        largest = size > largest ? size : largest;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int64_t own[SOURCES + 1];
        const attn_model_batch batch = batch_of(0, SOURCES, own);
        attn_model_options options = attn_model_options_default();
        attn_cache_config config = attn_cache_config_default();
        options.activations = types[i];
        attn_model_memory_destroy(s.memory);
        attn_cache_destroy(s.cache);
        attn_model_close(s.model);
        OK(attn_model_open(&s.model, s.folder.path, &options));
        OK(attn_model_cache_config(s.model, &config));
        assert_int_equal(config.dtype, types[i]);
        config.max_tokens = 20, config.max_sequences = 6;
        OK(attn_cache_create(&s.cache, &config));
        OK(attn_model_memory_create(&s.memory, s.model));
        OK(attn_model_memory_add(s.memory, &batch, NULL, s.sources));
        const attn_tensor got = alone(&s, ids, LENGTH, s.sources[1]);
        const double bound = (types[i] == ATTN_BF16 ? 0.1 : 0.02) * largest;
        int differ = 0;
        for (int j = 0; j < LENGTH * WORDS; j++) {
            const double off = (double)((float *)expected.data)[j] - (double)((float *)got.data)[j];
            assert_true(fabs(off) < bound);
            differ |= off != 0;
        }
        assert_true(differ);
    }
    end(&s);
}

/** Keys and values of cross-attention in pages have the bits of a tensor of each batch. */
static void test_pages(void **state)
{
    (void)state;
    struct memory *m = memory_create("encoder_decoder pages", 0);
    enum { BATCH = 2, TOKENS = 3, KEYS = 6, PAGE = 4, PAGES = 5 };
    static const int32_t table[BATCH][2] = {{3, 0}, {4, 1}};
    static const int64_t lengths[BATCH] = {KEYS, 5};
    make_configs();
    struct named *n = named_create(m);
    add_t5(n, m, 0);
    attn_weights *weights = named_weights(n);
    OK(attn_weights_ignore(weights, 1, (const char *const[]){"decoder.block.0.layer.0.SelfAttention.relative*"}));
    attn_block_config config = good.block;
    attn_block *block;
    attn_mha *mha;
    config.norm = ATTN_NORM_RMS, config.norm_first = 1, config.cross = 1;
    OK(attn_block_load(&block, &config, weights, "decoder.block.0.", ATTN_NAMING_T5));
    OK(attn_mha_create(&mha, &good.mha, &good.mha_weights));
    const attn_tensor x = normal(m, BATCH, TOKENS, D), kv = normal(m, BATCH, KEYS, KV),
                      pool = place_dense(m, PAGES, 1, PAGE, KV);
    for (int i = 0; i < PAGES * PAGE * KV; i++)
        ((float *)pool.data)[i] = NAN;
    for (int b = 0; b < BATCH; b++)
        for (int64_t j = 0; j < lengths[b]; j++)
            memcpy((float *)pool.data + (table[b][j / PAGE] * PAGE + j % PAGE) * KV,
                   (float *)kv.data + (b * KEYS + j) * KV, KV * sizeof(float));
    mark_input(m, &pool);
    const attn_tensor expected = place_dense(m, BATCH, 1, TOKENS, D), got = place_dense(m, BATCH, 1, TOKENS, D);
    attn_params params = attn_params_default(), paged = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.kv_len = paged.kv_len = lengths;
    paged.block_table = table[0], paged.block_table_stride = 2, paged.page_size = PAGE;
    inputs.cross = &params, inputs.cross_kv = &kv;
    OK(attn_block_forward(block, &x, &expected, &inputs, NULL, 0));
    inputs.cross = &paged, inputs.cross_kv = &pool;
    OK(attn_block_forward(block, &x, &got, &inputs, NULL, 0));
    assert_true(equal_bits(&expected, &got));
    OK(attn_mha_attend(mha, &x, &kv, &expected, &params, NULL, 0));
    OK(attn_mha_attend(mha, &x, &pool, &got, &paged, NULL, 0));
    assert_true(equal_bits(&expected, &got));
    const size_t size = attn_mha_workspace_size(mha, BATCH, TOKENS, 0, &paged);
    assert_true(size < SIZE_MAX);
    void *workspace = bytes(m, size);
    OK(attn_mha_attend(mha, &x, &pool, &expected, &paged, workspace, size));
    assert_true(equal_bits(&expected, &got));
    /* What is projected in the call is no pool. */
    const attn_tensor memory = normal(m, PAGES, PAGE, D);
    inputs.cross_kv = NULL, inputs.memory = &memory;
    REFUSES(m, attn_block_forward(block, &x, &got, &inputs, NULL, 0), ATTN_SHAPE_MISMATCH, "inputs.memory|5|2");
    inputs.cross = &params, inputs.memory = NULL, inputs.cross_kv = &pool;
    REFUSES(m, attn_block_forward(block, &x, &got, &inputs, NULL, 0), ATTN_SHAPE_MISMATCH, "inputs.cross_kv|5|2");
    REFUSES(m, attn_mha_attend(mha, &x, &pool, &got, &params, NULL, 0), ATTN_SHAPE_MISMATCH, "kv|5|2");
    nn_end_refusals();
    attn_mha_destroy(mha);
    attn_block_destroy(block);
    attn_weights_destroy(weights);
    memory_destroy(m);
}

/* ------------------------------------------------------------------ refusals -- */

static void test_bad_memory(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder bad_memory", 0);
    struct model_folder bert = model_folder_bert(s.m);
    attn_model *encoder;
    attn_model_memory *memory = s.memory;
    int64_t own[SOURCES + 1], sources[SOURCES];
    attn_model_batch batch = batch_of(0, SOURCES, own);
    const attn_tensor hidden = normal(s.m, 1, offsets[SOURCES], D), narrow = normal(s.m, 1, offsets[SOURCES], D - 1),
                      logits = place_dense(s.m, 1, 1, SOURCES, WORDS);
    OK(attn_model_open(&encoder, bert.path, NULL));
    REFUSES(s.m, attn_model_memory_create(NULL, s.model), ATTN_INVALID_ARGUMENT,
            "memory is NULL; expected where to put the memory");
    REFUSES(s.m, attn_model_memory_create(&memory, NULL), ATTN_INVALID_ARGUMENT, "model is NULL; expected a model");
    assert_null(memory);
    REFUSES(s.m, attn_model_memory_create(&memory, encoder), ATTN_INVALID_ARGUMENT,
            "model is bert; expected an encoder-decoder");
    REFUSES(s.m, attn_model_memory_add(NULL, &batch, NULL, sources), ATTN_INVALID_ARGUMENT,
            "memory is NULL; expected one of attn_model_memory_create()");
    REFUSES(s.m, attn_model_memory_add(s.memory, NULL, NULL, sources), ATTN_INVALID_ARGUMENT,
            "batch is NULL; expected an attn_model_batch");
    REFUSES(s.m, attn_model_memory_add(s.memory, &batch, NULL, NULL), ATTN_INVALID_ARGUMENT,
            "sources is NULL; expected room for 3 numbers");
    REFUSES(s.m, attn_model_memory_add(s.memory, &batch, &narrow, sources), ATTN_SHAPE_MISMATCH, "hidden|7|8");
    batch.num_sequences = 2;
    REFUSES(s.m, attn_model_memory_add(s.memory, &batch, &hidden, sources), ATTN_SHAPE_MISMATCH, "hidden|21|20");
    batch.num_threads = -1;
    REFUSES(s.m, attn_model_memory_add(s.memory, &batch, NULL, sources), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    batch.num_threads = 0, batch.ids = (const int32_t[]){1, 2, WORDS};
    batch.num_sequences = 1;
    REFUSES(s.m, attn_model_memory_add(s.memory, &batch, NULL, sources), ATTN_INVALID_ARGUMENT, "ids[2]|9");
    REFUSES(s.m, attn_model_memory_remove(NULL, 0), ATTN_INVALID_ARGUMENT, "memory|NULL");
    REFUSES(s.m, attn_model_memory_remove(s.memory, 3), ATTN_INVALID_ARGUMENT,
            "source is 3; expected one that the memory has");
    REFUSES(s.m, attn_model_memory_remove(s.memory, -1), ATTN_INVALID_ARGUMENT, "source|-1");
    assert_int_equal(attn_model_memory_length(NULL, 0), -1);
    assert_int_equal(attn_model_memory_length(s.memory, 3), -1);
    /* An error left no source behind. */
    OK(attn_model_memory_add(s.memory, &batch,
                             &(attn_tensor){.data = hidden.data, .shape = {1, 1, 3, D}, .stride = {3 * D, 3 * D, D, 1}},
                             sources));
    assert_int_equal(sources[0], SOURCES);
    attn_model_outputs outputs = attn_model_outputs_default();
    batch = batch_of(0, SOURCES, own);
    outputs.logits = &logits;
    REFUSES(s.m, attn_model_encode(s.model, &batch, &outputs), ATTN_INVALID_ARGUMENT, "outputs.logits|classes");
    nn_end_refusals();
    attn_model_close(encoder);
    model_folder_remove(&bert);
    end(&s);
}

static void test_bad_steps(void **state)
{
    (void)state;
    struct session s = begin("encoder_decoder bad_steps", 0);
    struct session other = begin("encoder_decoder bad_steps", 0);
    struct model_folder llama = model_folder_llama(s.m);
    static const int32_t ids[3] = {0, 4, 2};
    static const uint64_t ancestors[3] = {1, 3, 7};
    const attn_tree tree = {3, ancestors};
    const int64_t counts[] = {2, 1}, moved[] = {0, 1, 1};
    int64_t sequences[2], sources[2] = {s.sources[0], 7};
    attn_model *decoder;
    attn_model_tokens tokens = attn_model_tokens_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    const attn_tensor logits = place_dense(s.m, 1, 1, 3, WORDS);
    OK(attn_model_open(&decoder, llama.path, NULL));
    for (int i = 0; i < 2; i++)
        OK(attn_cache_add(s.cache, &sequences[i]));
    OK(attn_cache_step(s.cache, 2, sequences, counts, NULL));
    tokens.ids = ids, tokens.sources = sources;
    outputs.logits = &logits;
#define BAD(cache, status, words) REFUSES(s.m, attn_model_step(s.model, cache, &tokens, &outputs), status, words)
    BAD(s.cache, ATTN_INVALID_ARGUMENT, "tokens.memory is NULL; expected one of this model");
    tokens.memory = other.memory;
    BAD(s.cache, ATTN_INVALID_ARGUMENT, "tokens.memory|another");
    tokens.memory = s.memory;
    BAD(s.cache, ATTN_INVALID_ARGUMENT, "tokens.sources[1] is 7; expected a source that tokens.memory has");
    tokens.sources = NULL;
    BAD(s.cache, ATTN_INVALID_ARGUMENT, "tokens.sources is NULL; expected 2 numbers");
    sources[1] = s.sources[2];
    tokens.sources = sources;
    tokens.tree = &tree;
    BAD(s.cache, ATTN_UNSUPPORTED, "tokens.tree is set; expected NULL, as this model's biases follow from places");
    tokens.tree = NULL;
    BAD(NULL, ATTN_INVALID_ARGUMENT, "cache is NULL; expected one of attn_cache_create()");
    REFUSES(s.m, attn_model_step(decoder, s.cache, &tokens, &outputs), ATTN_INVALID_ARGUMENT,
            "tokens.memory is set; expected NULL, as llama has no encoder");
    tokens.memory = NULL;
    REFUSES(s.m, attn_model_step(decoder, s.cache, &tokens, &outputs), ATTN_INVALID_ARGUMENT, "tokens.sources|llama");
    tokens.memory = s.memory;
    for (int i = 0; i < 2; i++)
        OK(attn_cache_truncate(s.cache, sequences[i], 0));
    OK(attn_cache_step(s.cache, 2, sequences, counts, moved));
    BAD(s.cache, ATTN_UNSUPPORTED,
        "token 2 of the cache's step has position 1; expected 0, its place, from which this model's biases follow");
#undef BAD
    nn_end_refusals();
    attn_model_close(decoder);
    model_folder_remove(&llama);
    end(&other);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),      cmocka_unit_test(test_steps),   cmocka_unit_test(test_forks),
        cmocka_unit_test(test_sources),   cmocka_unit_test(test_nothing), cmocka_unit_test(test_scale),
        cmocka_unit_test(test_types),     cmocka_unit_test(test_pages),   cmocka_unit_test(test_bad_memory),
        cmocka_unit_test(test_bad_steps),
    };
    guard_catch_faults();
    make_configs();
    return NN_MAIN(tests);
}
