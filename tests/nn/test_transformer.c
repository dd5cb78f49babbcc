/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder-decoder on random weights under the names of PyTorch: against the
 * oracle; greedy and beam search against exhaustive search; wrong weights and
 * arguments.
 */
#include "named.h"

enum { LAYERS = 2, SOURCE = 30, D = 16, HEADS = 2, FF = 24, POSITIONS = 20 };

struct transformer {
    attn_transformer_config config;
    struct named *named;
    struct oracle_block encoder[LAYERS], decoder[LAYERS];
    struct oracle_transformer oracle;
    attn_transformer *model;
};

static void transformer_create(struct transformer *t, struct memory *m, int64_t target)
{
    memset(t, 0, sizeof *t);
    attn_transformer_config *c = &t->config;
    *c = (attn_transformer_config){.struct_size = sizeof *c,
                                   .encoder_layers = LAYERS,
                                   .decoder_layers = LAYERS,
                                   .d_model = D,
                                   .heads = HEADS,
                                   .d_ff = FF,
                                   .source_vocabulary = SOURCE,
                                   .target_vocabulary = target,
                                   .positions = POSITIONS,
                                   .eps = 1e-5f,
                                   .bos = 1,
                                   .eos = 2,
                                   .activations = m->dtype};
    c->activation = rng_percent(&m->rng, 50) ? ATTN_ACTIVATION_RELU : ATTN_ACTIVATION_GELU;
    c->norm_first = rng_percent(&m->rng, 50);
    c->final_norms = rng_percent(&m->rng, 50);
    struct named *n = t->named = named_create(m);
    named_add(n, m, random_dtype(m), SOURCE, D, 0.4, 0, "m.", "src_embedding.weight");
    named_add(n, m, random_dtype(m), target, D, 0.4, 0, "m.", "tgt_embedding.weight");
    attn_mha_config a = attn_mha_config_default();
    attn_block_config b = attn_block_config_default();
    a.d_model = D, a.heads = HEADS;
    b.attention = &a, b.d_ff = FF, b.activation = c->activation, b.eps = 1e-5f;
    b.norm_first = c->norm_first;
    for (int64_t l = 0; l < LAYERS; l++) {
        char prefix[NAMED_LENGTH];
        b.cross = 0;
        layer_prefix(prefix, "m.", "encoder.layers", l);
        named_add_block(n, m, &b, prefix, ATTN_NAMING_TORCH, 1);
        t->encoder[l] = named_block(n, &b, prefix, ATTN_NAMING_TORCH);
        b.cross = 1;
        layer_prefix(prefix, "m.", "decoder.layers", l);
        named_add_block(n, m, &b, prefix, ATTN_NAMING_TORCH, 1);
        t->decoder[l] = named_block(n, &b, prefix, ATTN_NAMING_TORCH);
    }
    struct oracle_transformer *o = &t->oracle;
    *o = (struct oracle_transformer){LAYERS,
                                     LAYERS,
                                     D,
                                     target,
                                     named_values(n, "m.", "src_embedding.weight"),
                                     named_values(n, "m.", "tgt_embedding.weight"),
                                     t->encoder,
                                     t->decoder,
                                     c->final_norms,
                                     {0},
                                     {0},
                                     {0}};
    if (c->final_norms) {
        named_add_norm(n, m, ATTN_NORM_LAYER, D, "m.", "encoder.norm");
        named_add_norm(n, m, ATTN_NORM_LAYER, D, "m.", "decoder.norm");
        o->encoder_norm = named_norm(n, ATTN_NORM_LAYER, D, 1e-5f, "m.", "encoder.norm");
        o->decoder_norm = named_norm(n, ATTN_NORM_LAYER, D, 1e-5f, "m.", "decoder.norm");
    }
    named_add_dense(n, m, target, D, rng_percent(&m->rng, 50), "m.", "generator");
    o->generator = named_dense(n, target, D, "m.", "generator");
    attn_weights *weights = named_weights(n);
    OK(attn_transformer_load(&t->model, c, weights, "m."));
    attn_weights_destroy(weights);
}

/** log softmax of the row of logits after ids. */
static void log_probabilities(struct memory *m, const struct transformer *t, int64_t tm, const double *memory,
                              int64_t tokens, const int32_t *ids, double *row)
{
    const int64_t n = t->config.target_vocabulary;
    double *logits = zeros(m, tokens * n), sum = 0;
    oracle_take(0)->score(&t->oracle, tm, memory, tokens, ids, logits, NULL);
    const double *last = logits + (tokens - 1) * n;
    for (int64_t i = 0; i < n; i++)
        sum += exp(last[i]);
    for (int64_t i = 0; i < n; i++)
        row[i] = last[i] - log(sum);
}

static void test_encode_and_score(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(20); n++) {
        struct memory *m = memory_create("models encode_and_score", n);
        run_in(m, random_activations(m));
        const int64_t batch = rng_range(&m->rng, 1, 4), tm = RNG_PICK(&m->rng, 1, 6, 17), target = 23;
        const int64_t tokens = RNG_PICK(&m->rng, 1, 5, POSITIONS);
        struct transformer t;
        transformer_create(&t, m, target);
        int64_t *lengths = bytes(m, (size_t)batch * sizeof *lengths);
        int32_t *ids = random_ids(m, batch * tm, SOURCE), *targets = random_ids(m, batch * tokens, target);
        for (int64_t b = 0; b < batch; b++) {
            lengths[b] = n % 3 ? rng_range(&m->rng, 1, tm) : tm;
            for (int64_t i = lengths[b]; i < tm; i++)
                ids[b * tm + i] = -99; /* not looked at */
        }
        const attn_tensor memory = place_rows(m, batch, tm, D),
                          logits = place_rows_of(m, ATTN_F32, batch, tokens, target);
        const attn_tensor weights = place_dense(m, batch, HEADS, tokens, tm);
        const int has_weights = n % 2;
        OK(attn_transformer_encode(t.model, batch, tm, ids, n % 3 ? lengths : NULL, &memory, (int)(n % 4)));
        for (int64_t b = 0; b < batch; b++) {
            const struct trio y = trio(m, lengths[b] * D);
            for (int k = 0; k < ORACLES; k++)
                oracle_take(k)->encode(&t.oracle, lengths[b], ids + b * tm, y.of[k]);
            const attn_tensor its = slice(&memory, b, 0, lengths[b]);
            judge(NN_MODEL, "memory", &its, y.of, NULL);
            for (int64_t i = lengths[b]; i < tm; i++)
                for (int64_t c = 0; c < D; c++) {
                    assert_true(tensor_get(&memory, b, 0, i, c) == 0);
                    tensor_set(&memory, b, 0, i, c, NAN); /* padding must not matter below */
                }
            const attn_tensor single = place_rows(m, 1, lengths[b], D);
            OK(attn_transformer_encode(t.model, 1, lengths[b], ids + b * tm, NULL, &single, 1));
            assert_true(equal_bits(&single, &its));
        }
        if (t.config.final_norms ||
            !t.config.norm_first) { /* what comes last is a norm: another type is this, rounded */
            const attn_tensor wide = place_rows_of(m, ATTN_F32, 1, lengths[0], D);
            const attn_tensor narrow = place_rows_of(m, ATTN_BF16, 1, lengths[0], D);
            const attn_tensor its = slice(&memory, 0, 0, lengths[0]);
            OK(attn_transformer_encode(t.model, 1, lengths[0], ids, NULL, &wide, 1));
            OK(attn_transformer_encode(t.model, 1, lengths[0], ids, NULL, &narrow, 1));
            assert_rounded("memory", &its, &wide);
            assert_rounded("memory in bf16", &narrow, &wide);
        }
        OK(attn_transformer_score(t.model, &memory, n % 3 ? lengths : NULL, tokens, targets, &logits,
                                  has_weights ? &weights : NULL, (int)(n % 4)));
        for (int64_t b = 0; b < batch; b++) {
            const attn_tensor its = slice(&memory, b, 0, lengths[b]), its_logits = slice(&logits, b, 0, tokens);
            const struct trio y = trio(m, tokens * target), w = trio(m, HEADS * tokens * lengths[b]);
            const double *rows = read_all(m, &its);
            for (int k = 0; k < ORACLES; k++)
                oracle_take(k)->score(&t.oracle, lengths[b], rows, tokens, targets + b * tokens, y.of[k], w.of[k]);
            judge(NN_MODEL, "logits", &its_logits, y.of, NULL);
            for (int64_t h = 0; h < HEADS && has_weights; h++)
                for (int64_t i = 0; i < tokens; i++)
                    for (int64_t j = 0; j < tm; j++) {
                        const double got = (double)tensor_get(&weights, b, h, i, j);
                        if (j >= lengths[b])
                            assert_true(got == 0);
                    }
            if (has_weights) {
                attn_tensor its_weights = advanced(&weights, b * weights.stride[0]);
                double *sizes = zeros(m, HEADS * tokens * lengths[b]);
                its_weights.shape[0] = 1;
                its_weights.shape[3] = lengths[b];
                for (int64_t i = 0; i < HEADS * tokens * lengths[b]; i++)
                    sizes[i] = 1; /* a weight of 1 at most, of scores that went through norms */
                judge(NN_MODEL, "weights", &its_weights, w.of, sizes);
            }
        }
        attn_transformer_destroy(t.model);
        memory_destroy(m);
    }
    attn_transformer_destroy(NULL);
}

/** Greedy decoding picks what the oracle picks, as long as its choice is clear. */
static void test_greedy(void **state)
{
    (void)state;
    int compared = 0;
    for (uint64_t n = 0; n < cases(15); n++) {
        struct memory *m = memory_create("models greedy", n);
        enum { BATCH = 2, MOST = 8 };
        const int64_t tm = RNG_PICK(&m->rng, 1, 6), target = 11;
        const int64_t lengths[BATCH] = {tm, rng_range(&m->rng, 1, tm)};
        struct transformer t;
        transformer_create(&t, m, target);
        const attn_tensor memory = random_rows(m, BATCH, tm, D);
        int32_t found[BATCH][MOST];
        attn_hypothesis best[BATCH] = {{-1, found[0], 0}, {-1, found[1], 0}};
        attn_decoding decoding = attn_decoding_default();
        decoding.max_length = MOST;
        decoding.beams = (int64_t)(n % 2);
        OK(attn_transformer_decode(t.model, &memory, lengths, &decoding, best));
        for (int64_t b = 0; b < BATCH; b++) {
            const attn_tensor its = slice(&memory, b, 0, lengths[b]);
            const double *rows = read_all(m, &its);
            int32_t ids[MOST + 1] = {t.config.bos};
            double sum = 0, row[64];
            int64_t length = 0;
            int clear = 1;
            while (length < MOST && (length == 0 || ids[length] != t.config.eos)) {
                log_probabilities(m, &t, lengths[b], rows, length + 1, ids, row);
                int32_t top = 0;
                for (int32_t i = 1; i < target; i++)
                    top = row[i] > row[top] ? i : top;
                for (int32_t i = 0; i < target; i++)
                    clear &= i == top || row[i] < row[top] - 1e-4;
                ids[++length] = top;
                sum += row[top];
            }
            if (!clear)
                continue;
            compared++;
            assert_int_equal(best[b].length, length);
            assert_memory_equal(found[b], ids + 1, (size_t)length * sizeof *ids);
            assert_true(fabs(best[b].log_prob - sum) < 1e-3);
        }
        attn_transformer_destroy(t.model);
        memory_destroy(m);
    }
    assert_true(compared * 2 > (int)cases(15)); /* most, at any number of cases, are clear */
}

/**
 * With as many beams as there are words and two of them at most nothing can be pruned away, so beam search is
 * exhaustive. With fewer beams and longer sequences the log-probability is that of the ids found.
 */
static void test_beams(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("models beams", n);
        const int64_t tm = 4, words = 5;
        struct transformer t;
        transformer_create(&t, m, words);
        const attn_tensor memory = random_rows(m, 1, tm, D);
        const double *rows = read_all(m, &memory), penalty = (double)(n % 4) * 0.75;
        double first[8], second[8], top = -INFINITY, runner_up = -INFINITY;
        int32_t ids[3] = {t.config.bos}, best_ids[2] = {0, 0};
        int64_t best_length = 0;
        log_probabilities(m, &t, tm, rows, 1, ids, first);
        for (ids[1] = 0; ids[1] < words; ids[1]++) {
            log_probabilities(m, &t, tm, rows, 2, ids, second);
            for (ids[2] = 0; ids[2] < words; ids[2]++) {
                const int64_t length = ids[1] == t.config.eos ? 1 : 2;
                const double sum = first[ids[1]] + (length == 2 ? second[ids[2]] : 0);
                const double score = sum / pow((double)length, penalty);
                if (length == 1 && ids[2])
                    continue;
                if (score > top) {
                    runner_up = top;
                    top = score;
                    best_ids[0] = ids[1], best_ids[1] = ids[2];
                    best_length = length;
                } else if (score > runner_up) {
                    runner_up = score;
                }
            }
        }
        int32_t found[10];
        attn_hypothesis best = {-1, found, 0};
        attn_decoding decoding = attn_decoding_default();
        decoding.max_length = 2, decoding.beams = words, decoding.length_penalty = (float)penalty;
        OK(attn_transformer_decode(t.model, &memory, NULL, &decoding, &best));
        if (top - runner_up > 1e-4) {
            assert_int_equal(best.length, best_length);
            assert_memory_equal(found, best_ids, (size_t)best_length * sizeof *found);
        }
        for (int64_t beams = 1; beams <= words; beams++) {
            int32_t sequence[11] = {t.config.bos};
            decoding.max_length = 10, decoding.beams = beams, decoding.num_threads = (int)(beams % 4);
            best.length = -1;
            OK(attn_transformer_decode(t.model, &memory, NULL, &decoding, &best));
            assert_true(best.length >= 1 && best.length <= 10);
            assert_true(best.length == 10 || found[best.length - 1] == t.config.eos);
            double sum = 0, row[8];
            for (int64_t i = 0; i < best.length; i++) {
                assert_true(found[i] >= 0 && found[i] < words);
                assert_true(i == best.length - 1 || found[i] != t.config.eos);
                log_probabilities(m, &t, tm, rows, i + 1, sequence, row);
                sequence[i + 1] = found[i];
                sum += row[found[i]];
            }
            assert_true(fabs(best.log_prob - sum) < 1e-3);
        }
        attn_transformer_destroy(t.model);
        memory_destroy(m);
    }
}

static attn_status load_transformer(const attn_weights *weights, void *user)
{
    const struct transformer *t = user;
    attn_transformer *model = user;
    const attn_status status = attn_transformer_load(&model, &t->config, weights, "m.");
    assert_true((model == NULL) == (status != ATTN_OK));
    attn_transformer_destroy(model);
    return status;
}

static void test_transformer_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("models transformer_refuses", 0);
    struct transformer t;
    transformer_create(&t, m, 9);
    refuses_weights(m, t.named, load_transformer, &t);
    const attn_transformer_config good = t.config;
#define LOAD_REFUSES(assignment, status, words)                                                                        \
    do {                                                                                                               \
        t.config = good;                                                                                               \
        t.config.assignment;                                                                                           \
        attn_weights *weights = named_weights(t.named);                                                                \
        REFUSES(m, load_transformer(weights, &t), status, words);                                                      \
        attn_weights_destroy(weights);                                                                                 \
    } while (0)
    LOAD_REFUSES(struct_size = 0, ATTN_INVALID_ARGUMENT, "struct_size|0");
    LOAD_REFUSES(encoder_layers = -1, ATTN_INVALID_ARGUMENT, "encoder_layers|-1");
    LOAD_REFUSES(decoder_layers = 3, ATTN_INVALID_ARGUMENT, "decoder.layers.2.");
    LOAD_REFUSES(heads = 3, ANY_ERROR, "16|3");
    LOAD_REFUSES(bos = 9, ATTN_INVALID_ARGUMENT, "config.bos is 9; expected 0 to 8, the target tokens known");
    LOAD_REFUSES(eos = -1, ATTN_INVALID_ARGUMENT, "eos|-1");
    LOAD_REFUSES(eps = -2, ATTN_INVALID_ARGUMENT, "eps|-2");
    LOAD_REFUSES(positions = -20, ATTN_INVALID_ARGUMENT, "positions|-20");
    LOAD_REFUSES(
        source_vocabulary = 29, ATTN_SHAPE_MISMATCH,
        "the set of weights: tensor 'm.src_embedding.weight' is f16 (30, 16); expected F32, BF16 or F16 (29, 16)");
    t.config = good;
    attn_weights *all = named_weights(t.named);
    REFUSES(m, attn_transformer_load(NULL, &good, all, "m."), ATTN_INVALID_ARGUMENT,
            "model is NULL; expected where to put the encoder-decoder");
    attn_weights_destroy(all);
    int32_t *ids = random_ids(m, 2 * 25, 9), found[2][8];
    const int64_t lengths[2] = {3, 5}, too_long[2] = {3, 6}, none[2] = {0, 3};
    const attn_tensor memory = place_dense(m, 2, 1, 5, D), long_memory = place_dense(m, 2, 1, 21, D);
    const attn_tensor logits = place_dense(m, 2, 1, 4, 9), states = place_dense(m, 2, 1, 5, D);
    fill(m, &states, 1);
    memory_seal(m);
#define ENCODE(batch, tokens, lens, mem) attn_transformer_encode(t.model, batch, tokens, ids, lens, mem, 0)
    REFUSES(m, attn_transformer_encode(NULL, 2, 5, ids, lengths, &memory, 0), ATTN_INVALID_ARGUMENT,
            "model is NULL; expected an encoder-decoder");
    REFUSES(m, attn_transformer_encode(t.model, 2, 5, NULL, lengths, &memory, 0), ATTN_INVALID_ARGUMENT, "ids|NULL");
    REFUSES(m, ENCODE(2, 5, lengths, NULL), ATTN_INVALID_ARGUMENT, "memory|NULL");
    REFUSES(m, ENCODE(-2, 5, lengths, &memory), ATTN_INVALID_ARGUMENT, "batch|-2");
    REFUSES(m, ENCODE(2, -5, lengths, &memory), ATTN_INVALID_ARGUMENT,
            "tokens is -5; expected 0 to 20, the positions of the model");
    REFUSES(m, ENCODE(2, 21, NULL, &long_memory), ATTN_INVALID_ARGUMENT, "tokens|21|20");
    REFUSES(m, ENCODE(2, 5, too_long, &memory), ATTN_INVALID_ARGUMENT, "lengths[1]|6|5");
    REFUSES(m, ENCODE(2, 4, lengths, &memory), ANY_ERROR, "5|4");
    REFUSES(m, ENCODE(2, 5, lengths, CHANGED(attn_tensor, memory, shape[3] = 15)), ATTN_SHAPE_MISMATCH, "memory|15|16");
    ids[4] = 77; /* behind the length of 3 */
    OK(ENCODE(2, 5, lengths, &memory));
    memory_seal(m);
    ids[4] = 0, ids[2] = 30;
    REFUSES(m, ENCODE(2, 5, lengths, &memory), ATTN_INVALID_ARGUMENT, "ids[2]|30|29");
    ids[2] = 0;
#define SCORE(mem, lens, tokens, log) attn_transformer_score(t.model, mem, lens, tokens, ids, log, NULL, 0)
    REFUSES(m, SCORE(CHANGED(attn_tensor, memory, shape[2] = 0), NULL, 4, &logits), ATTN_SHAPE_MISMATCH,
            "memory.shape[2] is 0; expected 1 token or more");
    REFUSES(m, SCORE(NULL, lengths, 4, &logits), ATTN_INVALID_ARGUMENT, "memory|NULL");
    REFUSES(m, SCORE(&states, lengths, 4, NULL), ATTN_INVALID_ARGUMENT, "logits|NULL");
    REFUSES(m, SCORE(&states, too_long, 4, &logits), ATTN_INVALID_ARGUMENT, "lengths[1]|6|5");
    REFUSES(m, SCORE(&states, lengths, 5, &logits), ANY_ERROR, "4|5");
    REFUSES(m, SCORE(&states, lengths, 21, &logits), ATTN_INVALID_ARGUMENT, "tokens|21|20");
    const attn_tensor weights = place_dense(m, 2, good.heads, 4, 5);
    REFUSES(m,
            attn_transformer_score(t.model, &states, lengths, 4, ids, &logits,
                                   CHANGED(attn_tensor, weights, shape[3] = 4), 0),
            ATTN_SHAPE_MISMATCH,
            "weights.shape[3] is 4; expected 5, as the weights are batch x heads x tokens x tokens of memory");
    ids[6] = 9;
    REFUSES(m, SCORE(&states, lengths, 4, &logits), ATTN_INVALID_ARGUMENT, "ids[6]|9|8");
    attn_hypothesis best[2] = {{-7, found[0], 0}, {-7, found[1], 0}};
    attn_decoding d = attn_decoding_default();
    d.max_length = 8;
#define DECODE(mem, lens, decoding, hyp) attn_transformer_decode(t.model, mem, lens, decoding, hyp)
#define WITH(assignment)                 CHANGED(attn_decoding, d, assignment)
    REFUSES(m, attn_transformer_decode(NULL, &states, lengths, &d, best), ATTN_INVALID_ARGUMENT,
            "model is NULL; expected an encoder-decoder");
    REFUSES(m, DECODE(NULL, lengths, &d, best), ATTN_INVALID_ARGUMENT, "memory|NULL");
    REFUSES(m, DECODE(&states, lengths, NULL, best), ATTN_INVALID_ARGUMENT,
            "decoding is NULL; expected an attn_decoding with max_length set");
    REFUSES(m, DECODE(&states, lengths, &d, NULL), ATTN_INVALID_ARGUMENT, "best is NULL; expected 2 hypotheses");
    REFUSES(m, DECODE(&states, none, &d, best), ATTN_INVALID_ARGUMENT,
            "lengths[0] is 0; expected 1 to 5, the tokens of memory");
    REFUSES(m, DECODE(&states, too_long, &d, best), ATTN_INVALID_ARGUMENT, "lengths[1]|6|5");
    REFUSES(m, DECODE(&states, lengths, WITH(struct_size = 2), best), ATTN_INVALID_ARGUMENT, "struct_size|2");
    REFUSES(m, DECODE(&states, lengths, WITH(beams = -1), best), ATTN_INVALID_ARGUMENT,
            "decoding.beams is -1; expected 0 to 9, the target tokens known");
    REFUSES(m, DECODE(&states, lengths, WITH(beams = 10), best), ATTN_INVALID_ARGUMENT, "beams|10|9");
    REFUSES(m, DECODE(&states, lengths, WITH(max_length = -3), best), ATTN_INVALID_ARGUMENT,
            "decoding.max_length is -3; expected 1 to 19, one less than the positions of the model");
    REFUSES(m, DECODE(&states, lengths, WITH(max_length = 20), best), ATTN_INVALID_ARGUMENT, "max_length|20");
    REFUSES(m, DECODE(&states, lengths, WITH(length_penalty = NAN), best), ATTN_INVALID_ARGUMENT,
            "decoding.length_penalty is nan; expected a finite number, 0 or more");
    REFUSES(m, DECODE(&states, lengths, WITH(num_threads = -1), best), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    best[1].ids = NULL;
    REFUSES(m, DECODE(&states, lengths, &d, best), ATTN_INVALID_ARGUMENT,
            "best[1].ids is NULL; expected room for 8 ids");
    assert_true(best[0].length == -7);
    nn_end_refusals();
    attn_transformer_destroy(t.model);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_encode_and_score), cmocka_unit_test(test_greedy),
                                       cmocka_unit_test(test_beams), cmocka_unit_test(test_transformer_refuses)};
    return NN_MAIN(tests);
}
