/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama on random weights under the names of Transformers: against the oracle;
 * sessions, chunks and truncation; wrong weights and arguments.
 */
#include "named.h"

enum { LLAMA_LAYERS = 2, VOCABULARY = 41, CAPACITY = 30 };

struct llama {
    attn_llama_config config;
    attn_rope_config rope;
    struct named *named;
    struct oracle_block blocks[LLAMA_LAYERS];
    struct oracle_llama oracle;
    attn_llama *llama;
};

static void llama_create(struct llama *l, struct memory *m, int tied)
{
    memset(l, 0, sizeof *l);
    attn_llama_config *c = &l->config;
    *c = (attn_llama_config){.struct_size = sizeof *c,
                             .layers = LLAMA_LAYERS,
                             .d_model = 24,
                             .heads = 4,
                             .kv_heads = 2,
                             .d_ff = 40,
                             .vocabulary = VOCABULARY,
                             .eps = 1e-5f,
                             .tied = tied,
                             .activations = m->dtype};
    l->rope = attn_rope_config_default();
    l->rope.base = 5000;
    c->rope = &l->rope;
    if (rng_percent(&m->rng, 50))
        c->head_dim = 8;
    struct named *n = l->named = named_create(m);
    named_add(n, m, random_dtype(m), VOCABULARY, 24, 1, 0, "", "model.embed_tokens.weight");
    attn_mha_config a = attn_mha_config_default();
    attn_block_config b = attn_block_config_default();
    a.d_model = 24, a.heads = 4, a.kv_heads = 2, a.head_dim = c->head_dim;
    b.attention = &a;
    b.d_ff = 40, b.activation = ATTN_ACTIVATION_SILU, b.gated = 1, b.norm = ATTN_NORM_RMS, b.eps = 1e-5f;
    b.norm_first = 1;
    for (int64_t i = 0; i < LLAMA_LAYERS; i++) {
        char prefix[NAMED_LENGTH];
        layer_prefix(prefix, "", "model.layers", i);
        named_add_block(n, m, &b, prefix, ATTN_NAMING_LLAMA, 0);
        l->blocks[i] = named_block(n, &b, prefix, ATTN_NAMING_LLAMA);
    }
    named_add_norm(n, m, ATTN_NORM_RMS, 24, "", "model.norm");
    if (!tied)
        named_add(n, m, random_dtype(m), VOCABULARY, 24, 0.3, 0, "", "lm_head.weight");
    const double *embedding = named_values(n, "", "model.embed_tokens.weight");
    l->oracle = (struct oracle_llama){LLAMA_LAYERS,
                                      24,
                                      VOCABULARY,
                                      embedding,
                                      tied ? embedding : named_values(n, "", "lm_head.weight"),
                                      named_norm(n, ATTN_NORM_RMS, 24, 1e-5f, "", "model.norm"),
                                      l->blocks};
    attn_weights *weights = named_weights(n);
    OK(attn_llama_load(&l->llama, c, weights));
    attn_weights_destroy(weights);
}

static void test_llama(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(20); n++) {
        struct memory *m = memory_create("models llama", n);
        run_in(m, random_activations(m));
        struct llama l;
        llama_create(&l, m, (int)(n % 2));
        const int64_t batch = rng_range(&m->rng, 1, 3), tokens = rng_range(&m->rng, 2, CAPACITY);
        int32_t *ids = random_ids(m, batch * tokens, VOCABULARY);
        attn_rope_config rope = l.rope;
        rope.pairs = l.config.head_dim ? 4 : 3;
        const attn_tensor table = place_dense(m, 1, 1, tokens, 2 * rope.pairs);
        OK(attn_rope_table(&rope, NULL, tokens, table.data));
        const struct trio y = trio(m, batch * tokens * VOCABULARY);
        for (int k = 0; k < ORACLES; k++)
            for (int64_t b = 0; b < batch; b++)
                oracle_take(k)->llama(&l.oracle, tokens, ids + b * tokens, &table, y.of[k] + b * tokens * VOCABULARY);

        attn_llama_session *session;
        OK(attn_llama_session_create(&session, l.llama, batch, CAPACITY));
        assert_int_equal(attn_llama_session_length(session), 0);
        const attn_tensor logits = place_rows_of(m, ATTN_F32, batch, tokens, VOCABULARY);
        OK(attn_llama_forward(session, tokens, ids, &logits, (int)(n % 4)));
        judge(NN_MODEL, "logits", &logits, y.of, NULL);
        assert_int_equal(attn_llama_session_length(session), tokens);

        /* Cut back, and in chunks again; another time asking for the last token's logits only. */
        const int64_t cut = n % 3 ? rng_range(&m->rng, 0, tokens) : 0;
        OK(attn_llama_session_truncate(session, cut));
        assert_int_equal(attn_llama_session_length(session), cut);
        for (int64_t done = cut; done < tokens;) {
            const int64_t count = rng_range(&m->rng, 1, tokens - done < 5 ? tokens - done : 5);
            int32_t *some = bytes(m, (size_t)(batch * count) * sizeof *some);
            for (int64_t i = 0; i < batch * count; i++)
                some[i] = ids[i / count * tokens + done + i % count];
            const int64_t rows = n % 2 ? 1 : count;
            const attn_tensor its = place_rows_of(m, ATTN_F32, batch, rows, VOCABULARY);
            OK(attn_llama_forward(session, count, some, &its, 1));
            done += count;
            for (int64_t b = 0; b < batch; b++) {
                const attn_tensor row = slice(&its, b, 0, rows);
                judge(NN_MODEL, "logits of a chunk", &row, trio_at(&y, (b * tokens + done - rows) * VOCABULARY).of,
                      NULL);
            }
        }
        /* A session of one sequence has the bits of this sequence in the batch. */
        attn_llama_session *single;
        OK(attn_llama_session_create(&single, l.llama, 1, tokens));
        const attn_tensor alone = place_rows_of(m, ATTN_F32, 1, tokens, VOCABULARY),
                          expected = slice(&logits, batch - 1, 0, tokens);
        OK(attn_llama_forward(single, tokens, ids + (batch - 1) * tokens, &alone, 3));
        assert_true(equal_bits(&alone, &expected));
        attn_llama_session_destroy(single);
        attn_llama_session_destroy(session);
        attn_llama_destroy(l.llama);
        memory_destroy(m);
    }
    attn_llama_session_destroy(NULL);
    attn_llama_destroy(NULL);
}

/** Logits of each token of each sequence, (sequences, 1, CAPACITY, VOCABULARY): a session for each. */
static attn_tensor logits_by_session(struct memory *m, const struct llama *l, int64_t sequences, const int32_t *ids)
{
    const attn_tensor all = place_dense(m, sequences, 1, CAPACITY, VOCABULARY);
    for (int64_t s = 0; s < sequences; s++) {
        attn_llama_session *session;
        const attn_tensor its = slice(&all, s, 0, CAPACITY);
        OK(attn_llama_session_create(&session, l->llama, 1, CAPACITY));
        OK(attn_llama_forward(session, CAPACITY, ids + s * CAPACITY, &its, 2));
        attn_llama_session_destroy(session);
    }
    return all;
}

/** Steps over a cache, of prompts, chunks and single tokens of any sequences together, have the bits of sessions. */
static void test_llama_steps(void **state)
{
    (void)state;
    enum { SEQUENCES = 3 };
    for (uint64_t n = 0; n < cases(20); n++) {
        struct memory *m = memory_create("llama steps", n);
        run_in(m, random_activations(m));
        struct llama l;
        llama_create(&l, m, (int)(n % 2));
        const int32_t *ids = random_ids(m, SEQUENCES * CAPACITY, VOCABULARY);
        const attn_tensor expected = logits_by_session(m, &l, SEQUENCES, ids);
        attn_cache_config config = attn_cache_config_default();
        config.max_tokens = CAPACITY, config.max_sequences = SEQUENCES;
        config.page_size = n % 3 ? rng_range(&m->rng, 1, CAPACITY) : 0;
        OK(attn_llama_cache_config(l.llama, &config));
        attn_cache *cache;
        OK(attn_cache_create(&cache, &config));
        int64_t sequences[SEQUENCES], done[SEQUENCES] = {0}, left = SEQUENCES * CAPACITY;
        for (int s = 0; s < SEQUENCES; s++)
            OK(attn_cache_add(cache, &sequences[s]));
        while (left > 0) {
            int64_t some[SEQUENCES], tokens[SEQUENCES], rows[SEQUENCES], total = 0, num = 0;
            int which[SEQUENCES];
            int32_t *its = bytes(m, SEQUENCES * CAPACITY * sizeof *its);
            for (int s = 0; s < SEQUENCES; s++) {
                const int64_t room = CAPACITY - done[s];
                if (room == 0 || (rng_percent(&m->rng, 30) && left > room))
                    continue;
                which[num] = s;
                some[num] = sequences[s];
                tokens[num] = rng_percent(&m->rng, 60) ? 1 : rng_range(&m->rng, 1, room);
                for (int64_t i = 0; i < tokens[num]; i++)
                    its[total++] = ids[s * CAPACITY + done[s] + i];
                done[s] += tokens[num];
                left -= tokens[num];
                rows[num++] = total - 1;
            }
            if (num == 0)
                continue;
            OK(attn_cache_step(cache, num, some, tokens, NULL));
            const attn_tensor last = place_dense(m, 1, 1, num, VOCABULARY);
            const int all = total <= 4;
            OK(attn_llama_step(l.llama, cache, its, NULL, num, rows, &last, (int)(n % 3)));
            for (int64_t i = 0; i < num; i++) {
                const attn_tensor got = slice(&last, 0, i, 1),
                                  wanted = slice(&expected, which[i], done[which[i]] - 1, 1);
                assert_true(equal_bits(&got, &wanted));
            }
            if (all && n % 4 == 0) { /* once more, and all of their logits */
                for (int64_t i = 0; i < num; i++)
                    OK(attn_cache_truncate(cache, some[i], done[which[i]] - tokens[i]));
                OK(attn_cache_step(cache, num, some, tokens, NULL));
                const attn_tensor every = place_dense(m, 1, 1, total, VOCABULARY);
                OK(attn_llama_step(l.llama, cache, its, NULL, 0, NULL, &every, 1));
                for (int64_t i = 0; i < num; i++) {
                    const attn_tensor got = slice(&every, 0, rows[i], 1), same = slice(&last, 0, i, 1);
                    assert_true(equal_bits(&got, &same));
                }
            }
        }
        attn_cache_destroy(cache);
        attn_llama_destroy(l.llama);
        memory_destroy(m);
    }
}

#define STEP_REFUSES(status, words, call)                                                                              \
    do {                                                                                                               \
        assert_int_equal(call, status);                                                                                \
        if (!strstr(attn_last_error(), words))                                                                         \
            fail_msg("'%s' lacks '%s'", attn_last_error(), words);                                                     \
    } while (0)

static void test_llama_steps_refuse(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("llama steps refuse", 0);
    run_in(m, ATTN_F32);
    struct llama l;
    llama_create(&l, m, 0);
    attn_cache_config config = attn_cache_config_default(), other;
    config.max_tokens = 8, config.max_sequences = 1;
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "llama is NULL", attn_llama_cache_config(NULL, &config));
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "config is NULL", attn_llama_cache_config(l.llama, NULL));
    other = config;
    other.struct_size = 8;
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "config.struct_size is 8; expected what attn_cache_config_default() sets",
                 attn_llama_cache_config(l.llama, &other));
    OK(attn_llama_cache_config(l.llama, &config));
    other = config;
    other.kv_heads = 1;
    attn_cache *cache, *narrow;
    OK(attn_cache_create(&cache, &config));
    OK(attn_cache_create(&narrow, &other));
    int64_t id, id_of_other;
    const int64_t two = 2, rows[2] = {1, 2};
    const int32_t ids[2] = {3, VOCABULARY};
    OK(attn_cache_add(cache, &id));
    OK(attn_cache_add(narrow, &id_of_other));
    OK(attn_cache_step(cache, 1, &id, &two, NULL));
    OK(attn_cache_step(narrow, 1, &id_of_other, &two, NULL));
    const attn_tensor logits = place_dense(m, 1, 1, 2, VOCABULARY);
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "ids[1] is 41; expected 0 to 40, the tokens known",
                 attn_llama_step(l.llama, cache, ids, NULL, 0, NULL, &logits, 0));
    const int32_t good[2] = {3, 4};
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "rows[1] is 2; expected 0 to 1, a token of the step",
                 attn_llama_step(l.llama, cache, good, NULL, 2, rows, &logits, 0));
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "num_rows is -1; expected 0 or more",
                 attn_llama_step(l.llama, cache, good, NULL, -1, rows, &logits, 0));
    STEP_REFUSES(ATTN_SHAPE_MISMATCH, "logits.shape[2] is 2",
                 attn_llama_step(l.llama, cache, good, NULL, 1, rows, &logits, 0));
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "cache is NULL",
                 attn_llama_step(l.llama, NULL, good, NULL, 0, NULL, &logits, 0));
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "llama is NULL", attn_llama_step(NULL, cache, good, NULL, 0, NULL, &logits, 0));
    STEP_REFUSES(ATTN_INVALID_ARGUMENT, "logits is NULL; expected a tensor",
                 attn_llama_step(l.llama, cache, good, NULL, 0, NULL, NULL, 0));
    STEP_REFUSES(ATTN_SHAPE_MISMATCH, "k.shape[1] is 2; expected 1",
                 attn_llama_step(l.llama, narrow, good, NULL, 0, NULL, &logits, 0));
    OK(attn_llama_step(l.llama, cache, good, NULL, 0, NULL, &logits, 0));
    attn_cache_destroy(cache);
    attn_cache_destroy(narrow);
    attn_llama_destroy(l.llama);
    memory_destroy(m);
}

static attn_status load_llama(const attn_weights *weights, void *user)
{
    const struct llama *l = user;
    attn_llama *llama = user;
    const attn_status status = attn_llama_load(&llama, &l->config, weights);
    assert_true((llama == NULL) == (status != ATTN_OK));
    attn_llama_destroy(llama);
    return status;
}

static void test_llama_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("models llama_refuses", 0);
    struct llama l;
    llama_create(&l, m, 0);
    refuses_weights(m, l.named, load_llama, &l);
    const attn_llama_config good = l.config;
    const attn_rope_config good_rope = l.rope;
#define LLAMA_REFUSES(assignment, status, words)                                                                       \
    do {                                                                                                               \
        l.config = good, l.rope = good_rope;                                                                           \
        l.assignment;                                                                                                  \
        attn_weights *weights = named_weights(l.named);                                                                \
        REFUSES(m, load_llama(weights, &l), status, words);                                                            \
        attn_weights_destroy(weights);                                                                                 \
    } while (0)
    LLAMA_REFUSES(config.struct_size = 4, ATTN_INVALID_ARGUMENT, "struct_size|4");
    LLAMA_REFUSES(config.layers = -2, ATTN_INVALID_ARGUMENT, "layers|-2");
    LLAMA_REFUSES(config.kv_heads = 3, ANY_ERROR, "config.kv_heads is 3; expected a divisor of the 4 heads");
    LLAMA_REFUSES(config.eps = -1, ATTN_INVALID_ARGUMENT, "eps|-1");
    LLAMA_REFUSES(rope.pairs = 5, ANY_ERROR, "config.rope.pairs is 5; expected 1 to 4, half of the head size");
    LLAMA_REFUSES(rope.struct_size = 6, ATTN_INVALID_ARGUMENT, "config.rope.struct_size|6");
    LLAMA_REFUSES(rope.base = -1, ATTN_INVALID_ARGUMENT, "config.base is -1; expected");
    LLAMA_REFUSES(config.vocabulary = 40, ATTN_SHAPE_MISMATCH, "model.embed_tokens.weight|41|40");
    attn_llama *none = NULL;
    attn_weights *whole = named_weights(l.named);
    l.config = good, l.rope = good_rope;
    REFUSES(m, attn_llama_load(NULL, &good, whole), ATTN_INVALID_ARGUMENT,
            "llama is NULL; expected where to put the decoder");
    REFUSES(m, attn_llama_load(&none, NULL, whole), ATTN_INVALID_ARGUMENT,
            "config is NULL; expected an attn_llama_config");
    attn_weights_destroy(whole);
    attn_llama_session *s = (attn_llama_session *)m;
    REFUSES(m, attn_llama_session_create(NULL, l.llama, 2, 8), ATTN_INVALID_ARGUMENT,
            "session is NULL; expected where to put the session");
    REFUSES(m, attn_llama_session_create(&s, NULL, 2, 8), ATTN_INVALID_ARGUMENT, "llama is NULL; expected a decoder");
    assert_null(s);
    REFUSES(m, attn_llama_session_create(&s, l.llama, -2, 8), ATTN_INVALID_ARGUMENT, "batch|-2");
    REFUSES(m, attn_llama_session_create(&s, l.llama, 2, -8), ATTN_INVALID_ARGUMENT, "capacity|-8");
    REFUSES(m, attn_llama_session_create(&s, l.llama, INT64_MAX / 4, INT64_MAX / 4), ATTN_SIZE_OVERFLOW, "");
    OK(attn_llama_session_create(&s, l.llama, 2, 8));
    int32_t *ids = random_ids(m, 18, VOCABULARY);
    const attn_tensor last = place_dense(m, 2, 1, 1, VOCABULARY), all = place_dense(m, 2, 1, 5, VOCABULARY);
    memory_seal(m);
    REFUSES(m, attn_llama_forward(NULL, 5, ids, &last, 0), ATTN_INVALID_ARGUMENT,
            "session is NULL; expected a session");
    REFUSES(m, attn_llama_forward(s, 0, ids, &last, 0), ATTN_INVALID_ARGUMENT,
            "tokens is 0; expected 1 to 8, what the session has room for behind the 0 that it holds");
    REFUSES(m, attn_llama_forward(s, 9, ids, &last, 0), ATTN_INVALID_ARGUMENT, "tokens|9|8");
    REFUSES(m, attn_llama_forward(s, 5, NULL, &last, 0), ATTN_INVALID_ARGUMENT, "ids|NULL");
    REFUSES(m, attn_llama_forward(s, 5, ids, NULL, 0), ATTN_INVALID_ARGUMENT, "logits|NULL");
    REFUSES(m, attn_llama_forward(s, 4, ids, &all, 0), ATTN_SHAPE_MISMATCH,
            "logits.shape[2] is 5; expected 1 for the last token, or 4 for all");
    REFUSES(m, attn_llama_forward(s, 5, ids, CHANGED(attn_tensor, all, shape[3] = 40), 0), ATTN_SHAPE_MISMATCH,
            "logits|40|41");
    REFUSES(m, attn_llama_forward(s, 5, ids, CHANGED(attn_tensor, all, shape[0] = 1), 0), ATTN_SHAPE_MISMATCH,
            "logits|1|2");
    REFUSES(m, attn_llama_forward(s, 5, ids, &all, -1), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    ids[7] = VOCABULARY;
    REFUSES(m, attn_llama_forward(s, 5, ids, &all, 0), ATTN_INVALID_ARGUMENT, "ids[7]|41|40");
    ids[7] = 0;
    assert_int_equal(attn_llama_session_length(s), 0);
    OK(attn_llama_forward(s, 5, ids, &last, 0));
    memory_seal(m);
    REFUSES(m, attn_llama_forward(s, 4, ids, &last, 0), ATTN_INVALID_ARGUMENT, "tokens|4|3");
    REFUSES(m, attn_llama_session_truncate(s, 6), ATTN_INVALID_ARGUMENT,
            "length is 6; expected 0 to 5, the tokens that the session holds");
    REFUSES(m, attn_llama_session_truncate(s, -1), ATTN_INVALID_ARGUMENT, "length|-1");
    REFUSES(m, attn_llama_session_truncate(NULL, 0), ATTN_INVALID_ARGUMENT, "session|NULL");
    assert_int_equal(attn_llama_session_length(s), 5);
    nn_end_refusals();
    attn_llama_session_destroy(s);
    attn_llama_destroy(l.llama);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama), cmocka_unit_test(test_llama_refuses),
                                       cmocka_unit_test(test_llama_steps), cmocka_unit_test(test_llama_steps_refuse)};
    return NN_MAIN(tests);
}
