/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BERT on random weights under the names of Transformers: against the oracle,
 * sequence by sequence; mean pooling; wrong weights and arguments.
 */
#include "named.h"

enum { BERT_LAYERS = 2 };

struct bert {
    attn_bert_config config;
    struct named *named;
    struct oracle_block blocks[BERT_LAYERS];
    struct oracle_bert oracle;
    attn_bert *bert;
    char prefix[16];
};

static void bert_create(struct bert *b, struct memory *m)
{
    memset(b, 0, sizeof *b);
    b->config = (attn_bert_config){.struct_size = sizeof b->config,
                                   .layers = BERT_LAYERS,
                                   .d_model = 24,
                                   .heads = 3,
                                   .d_ff = 40,
                                   .vocabulary = 50,
                                   .positions = 33,
                                   .activation = ATTN_ACTIVATION_GELU,
                                   .eps = 1e-12f,
                                   .activations = m->dtype};
    strcpy(b->prefix, rng_percent(&m->rng, 50) ? "" : "bert.");
    struct named *n = b->named = named_create(m);
    named_add(n, m, random_dtype(m), 50, 24, 1, 0, b->prefix, "embeddings.word_embeddings.weight");
    named_add(n, m, random_dtype(m), 33, 24, 1, 0, b->prefix, "embeddings.position_embeddings.weight");
    named_add(n, m, random_dtype(m), 2, 24, 1, 0, b->prefix, "embeddings.token_type_embeddings.weight");
    named_add_norm(n, m, ATTN_NORM_LAYER, 24, b->prefix, "embeddings.LayerNorm");
    attn_mha_config a = attn_mha_config_default();
    attn_block_config c = attn_block_config_default();
    a.d_model = 24, a.heads = 3;
    c.attention = &a, c.d_ff = 40, c.activation = ATTN_ACTIVATION_GELU, c.eps = 1e-12f;
    for (int64_t l = 0; l < BERT_LAYERS; l++) {
        char prefix[NAMED_LENGTH];
        layer_prefix(prefix, b->prefix, "encoder.layer", l);
        named_add_block(n, m, &c, prefix, ATTN_NAMING_BERT, 1);
        b->blocks[l] = named_block(n, &c, prefix, ATTN_NAMING_BERT);
    }
    b->oracle = (struct oracle_bert){BERT_LAYERS,
                                     24,
                                     named_values(n, b->prefix, "embeddings.word_embeddings.weight"),
                                     named_values(n, b->prefix, "embeddings.position_embeddings.weight"),
                                     named_values(n, b->prefix, "embeddings.token_type_embeddings.weight"),
                                     named_norm(n, ATTN_NORM_LAYER, 24, 1e-12f, b->prefix, "embeddings.LayerNorm"),
                                     b->blocks};
    attn_weights *weights = named_weights(n);
    OK(attn_bert_load(&b->bert, &b->config, weights, b->prefix));
    attn_weights_destroy(weights);
}

static void test_bert(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(20); n++) {
        struct memory *m = memory_create("models bert", n);
        run_in(m, random_activations(m));
        enum { SEQUENCES = 5 };
        int64_t offsets[SEQUENCES + 1] = {0};
        for (int s = 0; s < SEQUENCES; s++)
            offsets[s + 1] = offsets[s] + RNG_PICK(&m->rng, 0, 1, 5, 17, 33);
        const int64_t num = n % 4 ? SEQUENCES : n == 4 ? 0 : 1, tokens = offsets[num];
        struct bert b;
        bert_create(&b, m);
        const int32_t *ids = random_ids(m, tokens, 50);
        const attn_tensor hidden = place_rows(m, 1, tokens, 24), weights = place_dense(m, 1, 3, tokens, tokens);
        const attn_tensor *weight_args[BERT_LAYERS] = {NULL, &weights};
        attn_bert_outputs outputs = attn_bert_outputs_default();
        outputs.weights = weight_args;
        const int has_weights = rng_percent(&m->rng, 50);
        const size_t size = attn_bert_workspace_size(b.bert, num, tokens, (int)(n % 4));
        char *workspace = n % 2 ? bytes(m, size) : NULL;
        OK(attn_bert_forward(b.bert, num, offsets, ids, &hidden, has_weights ? &outputs : NULL, (int)(n % 4), workspace,
                             workspace ? size : 0));
        const struct trio y = trio(m, tokens * 24);
        for (int64_t s = 0; s < num; s++) {
            const int64_t length = offsets[s + 1] - offsets[s];
            const struct trio w = trio(m, BERT_LAYERS * 3 * length * length), its = trio_at(&y, offsets[s] * 24);
            for (int k = 0; k < ORACLES; k++)
                oracle_take(k)->bert(&b.oracle, length, ids + offsets[s], its.of[k], w.of[k]);
            for (int64_t h = 0; h < 3 && has_weights; h++)
                for (int64_t i = 0; i < length; i++)
                    for (int64_t j = 0; j < tokens; j++)
                        assert_true((j >= offsets[s] && j < offsets[s + 1]) ||
                                    tensor_get(&weights, 0, h, offsets[s] + i, j) == 0);
            if (has_weights) {
                const struct trio last = trio_at(&w, 3 * length * length);
                attn_tensor its_weights = advanced(&weights, offsets[s] * (tokens + 1));
                its_weights.shape[2] = its_weights.shape[3] = length;
                double *sizes = zeros(m, 3 * length * length);
                for (int64_t i = 0; i < 3 * length * length; i++)
                    sizes[i] = 1; /* a weight of 1 at most, of scores that went through norms */
                judge(NN_MODEL, "weights", &its_weights, last.of, sizes);
            }
            /* The bits of the sequence by itself. */
            const int64_t alone[2] = {0, length};
            const attn_tensor single = place_rows(m, 1, length, 24), expected = slice(&hidden, 0, offsets[s], length);
            OK(attn_bert_forward(b.bert, 1, alone, ids + offsets[s], &single, NULL, 1 + (int)(s % 3), NULL, 0));
            assert_true(equal_bits(&single, &expected));
        }
        judge(NN_MODEL, "hidden", &hidden, y.of, NULL);

        /* States of another type are those, rounded. */
        const attn_tensor wide = place_rows_of(m, ATTN_F32, 1, tokens, 24);
        const attn_tensor narrow = place_rows_of(m, ATTN_BF16, 1, tokens, 24);
        OK(attn_bert_forward(b.bert, num, offsets, ids, &wide, NULL, 0, NULL, 0));
        assert_rounded("hidden", &hidden, &wide);
        OK(attn_bert_forward(b.bert, num, offsets, ids, &narrow, NULL, 0, workspace, workspace ? size : 0));
        assert_rounded("hidden in bf16", &narrow, &wide);

        const int normalise = n % 2;
        const attn_tensor pooled = place_rows_of(m, ATTN_F32, 1, num, 24);
        const double *rows = read_all(m, &hidden);
        const struct trio p = trio(m, num * 24);
        oracle_type = ATTN_F32; /* pooling sums in it, and gives it */
        OK(attn_mean_pool(&hidden, num, offsets, normalise, &pooled));
        for (int64_t s = 0; s < num; s++)
            for (int k = 0; k < ORACLES; k++)
                oracle_take(k)->mean_pool(offsets[s + 1] - offsets[s], 24, rows + offsets[s] * 24, normalise,
                                          p.of[k] + s * 24);
        judge(NN_NORM, "pooled", &pooled, p.of, NULL);
        attn_bert_destroy(b.bert);
        memory_destroy(m);
    }
    attn_bert_destroy(NULL);
}

/** Differences of the oracle in double; a sequence without tokens, one of zeros, and other types. */
static void test_mean_pool_backward(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("models mean_pool_backward", n);
        const int64_t channels = RNG_PICK(&m->rng, 1, 2, 17, 255, 256, 257, 600), num = rng_range(&m->rng, 0, 4);
        const int normalise = n % 2;
        int64_t offsets[5] = {0};
        for (int64_t s = 0; s < num; s++)
            offsets[s + 1] = offsets[s] + rng_range(&m->rng, 0, 5);
        const int64_t tokens = offsets[num];
        const attn_tensor hidden = place_rows_of(m, random_dtype(m), 1, tokens, channels),
                          d_out = random_rows(m, 1, num, channels), d_hidden = place_rows(m, 1, tokens, channels);
        fill(m, &hidden, 1);
        double *rows = read_all(m, &hidden), *d = read_all(m, &d_out), *out = zeros(m, channels);
        memory_seal(m);
        OK(attn_mean_pool_backward(normalise ? &hidden : NULL, num, offsets, normalise, &d_out, &d_hidden));
        const double *got = read_all(m, &d_hidden);
        for (int64_t s = 0; s < num; s++)
            for (int some = 0; some < 6 && offsets[s + 1] > offsets[s]; some++) {
                const int64_t at =
                    offsets[s] * channels + rng_range(&m->rng, 0, (offsets[s + 1] - offsets[s]) * channels - 1);
                const double was = rows[at], step = 1e-5;
                double loss[2] = {0, 0};
                for (int p = 0; p < 2; p++) {
                    rows[at] = was + (p ? step : -step);
                    oracle_take(0)->mean_pool(offsets[s + 1] - offsets[s], channels, rows + offsets[s] * channels,
                                              normalise, out);
                    for (int64_t c = 0; c < channels; c++)
                        loss[p] += out[c] * d[s * channels + c];
                }
                rows[at] = was;
                const double slope = (loss[1] - loss[0]) / (2 * step);
                if (!(fabs(got[at] - slope) <= 1e-5 * (1 + fabs(slope))))
                    fail_msg("%s: the gradient of hidden[%d] is %.9g; expected %.9g", guard_case_line, (int)at, got[at],
                             slope);
            }
        const attn_tensor narrow = place_rows_of(m, ATTN_F16, 1, tokens, channels);
        OK(attn_mean_pool_backward(&hidden, num, offsets, normalise, &d_out, &narrow));
        assert_rounded("d_hidden", &narrow, &d_hidden);
        memory_destroy(m);
    }
    struct memory *m = memory_for_refusals("models mean_pool_backward refuses", 0);
    static const int64_t offsets[] = {0, 2, 3};
    const attn_tensor zero = place_rows(m, 1, 3, 5), d_out = random_rows(m, 1, 2, 5), d_hidden = place_rows(m, 1, 3, 5);
    for (int64_t t = 0; t < 3; t++)
        for (int64_t c = 0; c < 5; c++)
            tensor_set(&zero, 0, 0, t, c, 0);
    mark_input(m, &zero);
    OK(attn_mean_pool_backward(&zero, 2, offsets, 1, &d_out, &d_hidden)); /* the length that counts is 1e-12 */
    assert_true(fabs(tensor_get(&d_hidden, 0, 0, 2, 0) / tensor_get(&d_out, 0, 0, 1, 0) / 1e12 - 1) < 1e-6);
    memory_seal(m);
    REFUSES(m, attn_mean_pool_backward(NULL, 2, offsets, 1, &d_out, &d_hidden), ATTN_INVALID_ARGUMENT,
            "hidden is NULL");
    REFUSES(m, attn_mean_pool_backward(&zero, 2, NULL, 1, &d_out, &d_hidden), ATTN_INVALID_ARGUMENT, "offsets|NULL");
    REFUSES(m, attn_mean_pool_backward(&zero, 2, offsets, 1, &d_hidden, &d_hidden), ATTN_SHAPE_MISMATCH,
            "d_out.shape[2] is 3");
    REFUSES(m, attn_mean_pool_backward(&zero, 2, offsets, 1, &d_out, &zero), ATTN_INVALID_ARGUMENT,
            "d_hidden|overlaps hidden");
    REFUSES(m, attn_mean_pool_backward(&zero, -1, offsets, 1, &d_out, &d_hidden), ATTN_INVALID_ARGUMENT,
            "num_sequences is -1");
    nn_end_refusals();
    memory_destroy(m);
}

static attn_status load_bert(const attn_weights *weights, void *user)
{
    const struct bert *b = user;
    attn_bert *bert = user;
    const attn_status status = attn_bert_load(&bert, &b->config, weights, b->prefix);
    assert_true((bert == NULL) == (status != ATTN_OK));
    attn_bert_destroy(bert);
    return status;
}

static void test_bert_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("models bert_refuses", 0);
    struct bert b;
    bert_create(&b, m);
    refuses_weights(m, b.named, load_bert, &b);
    attn_bert_config good = b.config;
#define BERT_REFUSES(assignment, status, words)                                                                        \
    do {                                                                                                               \
        b.config = good;                                                                                               \
        b.config.assignment;                                                                                           \
        attn_weights *weights = named_weights(b.named);                                                                \
        REFUSES(m, load_bert(weights, &b), status, words);                                                             \
        attn_weights_destroy(weights);                                                                                 \
    } while (0)
    BERT_REFUSES(struct_size = 0, ATTN_INVALID_ARGUMENT, "struct_size|0");
    BERT_REFUSES(layers = -1, ATTN_INVALID_ARGUMENT, "layers|-1");
    BERT_REFUSES(layers = 3, ATTN_INVALID_ARGUMENT, "encoder.layer.2.");
    BERT_REFUSES(heads = 5, ANY_ERROR, "24|5");
    BERT_REFUSES(vocabulary = 49, ATTN_SHAPE_MISMATCH, "word_embeddings|50|49");
    BERT_REFUSES(vocabulary = -1, ATTN_INVALID_ARGUMENT, "vocabulary|-1");
    BERT_REFUSES(eps = NAN, ATTN_INVALID_ARGUMENT, "eps|nan");
    BERT_REFUSES(activation = (attn_activation)12, ATTN_INVALID_ARGUMENT, "activation|12");
    b.config = good;
    attn_bert *none = NULL;
    attn_weights *all = named_weights(b.named);
    REFUSES(m, attn_bert_load(NULL, &good, all, b.prefix), ATTN_INVALID_ARGUMENT,
            "bert is NULL; expected where to put the encoder");
    REFUSES(m, attn_bert_load(&none, NULL, all, b.prefix), ATTN_INVALID_ARGUMENT,
            "config is NULL; expected an attn_bert_config");
    char prefix[600];
    memset(prefix, 'p', sizeof prefix - 1);
    prefix[sizeof prefix - 1] = '\0';
    REFUSES(m, attn_bert_load(&none, &good, all, prefix), ATTN_INVALID_ARGUMENT,
            "prefix has 599 bytes; expected names of less than");
    assert_null(none);
    attn_weights_destroy(all);
    const int64_t offsets[3] = {0, 4, 9}, from_one[3] = {1, 4, 9}, falling[3] = {0, 10, 9}, too_long[3] = {0, 0, 34};
    int32_t *ids = random_ids(m, 34, 50);
    const attn_tensor hidden = place_dense(m, 1, 1, 9, 24), longer = place_dense(m, 1, 1, 34, 24);
    memory_seal(m);
#define RUN(num, offs, hid) attn_bert_forward(b.bert, num, offs, ids, hid, NULL, 0, NULL, 0)
    REFUSES(m, attn_bert_forward(NULL, 2, offsets, ids, &hidden, NULL, 0, NULL, 0), ATTN_INVALID_ARGUMENT,
            "bert is NULL; expected an encoder");
    REFUSES(m, RUN(-1, offsets, &hidden), ATTN_INVALID_ARGUMENT, "num_sequences|-1");
    REFUSES(m, RUN(2, NULL, &hidden), ATTN_INVALID_ARGUMENT, "offsets|NULL");
    REFUSES(m, RUN(2, offsets, NULL), ATTN_INVALID_ARGUMENT, "hidden|NULL");
    REFUSES(m, RUN(2, from_one, &hidden), ATTN_INVALID_ARGUMENT, "offsets[0] is 1; expected 0");
    REFUSES(m, RUN(2, falling, &hidden), ATTN_INVALID_ARGUMENT, "offsets[2] is 9; expected 10 or more");
    REFUSES(m, RUN(2, too_long, &longer), ATTN_INVALID_ARGUMENT, "34|33");
    REFUSES(m, RUN(2, offsets, CHANGED(attn_tensor, hidden, shape[2] = 8)), ATTN_SHAPE_MISMATCH, "hidden|8|9");
    REFUSES(m, RUN(2, offsets, CHANGED(attn_tensor, hidden, shape[3] = 23)), ATTN_SHAPE_MISMATCH, "hidden|23|24");
    REFUSES(m, RUN(2, offsets, CHANGED(attn_tensor, hidden, dtype = ATTN_I8)), ATTN_UNSUPPORTED, "hidden|i8");
    REFUSES(m, attn_bert_forward(b.bert, 2, offsets, NULL, &hidden, NULL, 0, NULL, 0), ATTN_INVALID_ARGUMENT,
            "ids|NULL");
    const attn_tensor weights = place_dense(m, 1, good.heads, 9, 9),
                      wrong = *CHANGED(attn_tensor, weights, shape[3] = 8),
                      *const of_layers[] = {&wrong, &weights, NULL};
    attn_bert_outputs outputs = attn_bert_outputs_default();
    outputs.weights = of_layers;
    REFUSES(m, attn_bert_forward(b.bert, 2, offsets, ids, &hidden, &outputs, 0, NULL, 0), ATTN_SHAPE_MISMATCH,
            "outputs.weights[0].shape[3] is 8; expected 9, as the weights are 1 x heads x tokens x tokens");
    ids[3] = 50;
    REFUSES(m, RUN(2, offsets, &hidden), ATTN_INVALID_ARGUMENT, "ids[3]|50|49");
    ids[3] = -2;
    REFUSES(m, RUN(2, offsets, &hidden), ATTN_INVALID_ARGUMENT, "ids[3]|-2");
    ids[3] = 0;
    REFUSES(m, attn_bert_forward(b.bert, 2, offsets, ids, &hidden, NULL, -1, NULL, 0), ATTN_INVALID_ARGUMENT,
            "num_threads|-1");
    const size_t size = attn_bert_workspace_size(b.bert, 2, 9, 0);
    REFUSES(m, attn_bert_forward(b.bert, 2, offsets, ids, &hidden, NULL, 0, bytes(m, size), 1),
            ATTN_WORKSPACE_TOO_SMALL, "workspace");
    const size_t least = said_least();
    assert_true(least <= size); /* which is enough for other types of hidden, too */
    REFUSES(m, attn_bert_forward(b.bert, 2, offsets, ids, &hidden, NULL, 0, bytes(m, size), least - 1),
            ATTN_WORKSPACE_TOO_SMALL, "workspace");
    assert_true(attn_bert_workspace_size(b.bert, 2, INT64_MAX / 2, 0) == SIZE_MAX);
    const attn_tensor pooled = place_dense(m, 1, 1, 2, 24);
    memory_seal(m);
    REFUSES(m, attn_mean_pool(NULL, 2, offsets, 0, &pooled), ATTN_INVALID_ARGUMENT, "hidden|NULL");
    REFUSES(m, attn_mean_pool(&hidden, 2, NULL, 0, &pooled), ATTN_INVALID_ARGUMENT, "offsets|NULL");
    REFUSES(m, attn_mean_pool(&hidden, 2, falling, 0, &pooled), ATTN_INVALID_ARGUMENT, "offsets[");
    REFUSES(m, attn_mean_pool(&hidden, 2, offsets, 0, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, attn_mean_pool(&hidden, 2, offsets, 0, CHANGED(attn_tensor, pooled, shape[2] = 3)), ATTN_SHAPE_MISMATCH,
            "out|3|2");
    nn_end_refusals();
    attn_bert_destroy(b.bert);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mean_pool_backward), cmocka_unit_test(test_bert),
                                       cmocka_unit_test(test_bert_refuses)};
    return NN_MAIN(tests);
}
