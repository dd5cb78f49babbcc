/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle itself, where the random checks rely on it: which keys it says a
 * query sees, as pictures; scores, sinks and dropout on numbers that can be
 * worked out by hand; published test vectors of Philox; and options that are
 * another way to write a mask, a scale or a batch.
 */
#include "fixture.h"

#include "oracle.h"
#include "random.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------ which keys are seen -- */

/** Compares what each query of (b, h) sees with one string per query: '1' seen, '0' hidden. */
static void assert_picture_of(const attn_params *p, int64_t tk, int64_t b, int64_t h, const char *const *rows,
                              int64_t tq)
{
    for (int64_t i = 0; i < tq; i++) {
        char got[64];
        for (int64_t j = 0; j < tk; j++)
            got[j] = (char)('0' + oracle_key_is_live(p, tq, tk, b, h, i, j));
        got[tk] = '\0';
        assert_string_equal(got, rows[i]);
    }
}

#define assert_picture(params, tk, b, h, ...)                                                                          \
    assert_picture_of((params), (tk), (b), (h), (const char *const[]){__VA_ARGS__},                                    \
                      sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void causality(void **state)
{
    (void)state;
    const int64_t len[] = {4}, start[] = {1}, offset[] = {-1}, prefix[] = {2};
    attn_params p = attn_params_default();
    p.causal = ATTN_CAUSAL_TOP_LEFT;
    assert_picture(&p, 5, 0, 0, "10000", "11000", "11100");
    p.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    assert_picture(&p, 5, 0, 0, "11100", "11110", "11111");
    p.kv_len = len;
    assert_picture(&p, 5, 0, 0, "11000", "11100", "11110");
    p.kv_start = start;
    assert_picture(&p, 5, 0, 0, "01000", "01100", "01110");
    p.causal = ATTN_CAUSAL_OFFSET;
    p.query_offset = offset;
    assert_picture(&p, 5, 0, 0, "00000", "00000", "01000");
    p.prefix_len = prefix; /* of live keys: 1 and 2 */
    assert_picture(&p, 5, 0, 0, "01100", "01100", "01100");
    p.causal = ATTN_CAUSAL_TOP_LEFT;
    p.query_offset = NULL;
    assert_picture(&p, 5, 0, 0, "01100", "01100", "01100", "01110");
    p.causal = ATTN_CAUSAL_NONE;
    assert_picture(&p, 5, 0, 0, "01110");
}

static void windows(void **state)
{
    (void)state;
    const int64_t start[] = {2}, offset[] = {2}, far[] = {INT64_MAX}, global[] = {0, 4};
    attn_params p = attn_params_default();
    attn_window window = {.left = 1, .right = 0};
    p.window = &window;
    assert_picture(&p, 5, 0, 0, "10000", "11000", "01100", "00110", "00011");
    window.right = 2;
    assert_picture(&p, 5, 0, 0, "11100", "11110", "01111", "00111", "00011", "00001", "00000");
    window.left = 0, window.right = ATTN_UNLIMITED;
    assert_picture(&p, 4, 0, 0, "1111", "0111", "0011");
    window.right = 0;
    p.query_offset = offset; /* without causality */
    assert_picture(&p, 5, 0, 0, "00100", "00010", "00001");
    window.first_tokens = 1;
    assert_picture(&p, 5, 0, 0, "10100", "10010", "10001");
    p.kv_start = start; /* the first live key is 2 */
    assert_picture(&p, 5, 0, 0, "00100", "00110", "00101");
    p.kv_start = NULL;
    window.first_tokens = 0;
    window.global = global, window.num_global = 2; /* key 0 and 4; the query at position 4 */
    assert_picture(&p, 5, 0, 0, "10101", "10011", "11111");
    p.causal = ATTN_CAUSAL_OFFSET; /* which global tokens do not lift */
    assert_picture(&p, 5, 0, 0, "10100", "10010", "11111");
    window = (attn_window){.left = ATTN_UNLIMITED, .right = 0};
    p.query_offset = far;
    assert_picture(&p, 3, 0, 0, "111", "111");
    window.left = ATTN_UNLIMITED - 9;
    assert_picture(&p, 12, 0, 0, "000000000111");
}

static void block_patterns(void **state)
{
    (void)state;
    const int64_t offsets[] = {0, 1, 3, 3, 4}; /* two heads of two block rows */
    const int32_t columns[] = {1, 0, 1, 0};
    const attn_block_mask pattern = {.size = 16, .heads = 2, .rows = 2, .offsets = offsets, .columns = columns};
    attn_params p = attn_params_default();
    p.block_mask = &pattern;
    for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < 20; i++)
            for (int64_t j = 0; j < 20; j++) {
                const int column = j >= 16, row = i >= 16;
                const int expected = h == 0 ? row || column : row && !column;
                assert_int_equal(oracle_key_is_live(&p, 20, 20, 1, h, i, j), expected);
            }
}

static void segments_and_trees(void **state)
{
    (void)state;
    const int32_t q[] = {7, 7, -1, 3, 7, 7, 7, 7}, k[] = {7, -1, 7, 0, 0, 7, 7, 7};
    const attn_segments segments = {q, k};
    attn_params p = attn_params_default();
    p.segments = &segments;
    assert_picture(&p, 4, 0, 0, "1010", "1010", "0100", "0000");
    assert_picture(&p, 4, 1, 0, "0111", "0111", "0111", "0111");
    p.segments = NULL;

    /* Three drafted tokens at the end of keys 0 to 3: the second and the third both follow the first. */
    const uint64_t ancestors[] = {1, 3, 5 | (uint64_t)1 << 40};
    const attn_tree tree = {3, ancestors};
    const int64_t len[] = {4};
    p.tree = &tree;
    p.kv_len = len;
    assert_picture(&p, 6, 0, 0, "110000", "111000", "110100");
    p.causal = ATTN_CAUSAL_BOTTOM_RIGHT; /* all of them are needed */
    assert_picture(&p, 6, 0, 0, "110000", "111000", "110100");
    p.causal = ATTN_CAUSAL_TOP_LEFT;
    assert_picture(&p, 6, 0, 0, "100000", "110000", "110000");
}

static void tree_of_many_words(void **state)
{
    (void)state;
    uint64_t ancestors[2 * 2] = {0, (uint64_t)1 << 5, (uint64_t)1 << 63, 1}; /* 69; 63 and 64 */
    const attn_tree tree = {70, ancestors};
    attn_params p = attn_params_default();
    p.tree = &tree;
    for (int64_t j = 0; j < 80; j++) {
        assert_int_equal(oracle_key_is_live(&p, 2, 80, 0, 0, 0, j), j < 10 || j == 79);
        assert_int_equal(oracle_key_is_live(&p, 2, 80, 0, 0, 1, j), j < 10 || j == 73 || j == 74);
    }
}

static void ragged_batches(void **state)
{
    (void)state;
    const int64_t cu_q[] = {0, 2, 2, 3}, cu_k[] = {0, 3, 4, 6};
    const attn_ragged ragged = {3, cu_q, cu_k};
    attn_params p = attn_params_default();
    p.ragged = &ragged;
    assert_picture(&p, 7, 0, 0, "1110000", "1110000", "0000110", "0000000");
    p.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    assert_picture(&p, 7, 0, 0, "1100000", "1110000", "0000110", "0000000");
    const int64_t len[] = {2, 0, 1}, start[] = {1, 0, 0};
    p.kv_len = len;
    assert_picture(&p, 7, 0, 0, "1000000", "1100000", "0000100", "0000000");
    p.kv_start = start;
    assert_picture(&p, 7, 0, 0, "0000000", "0100000", "0000100", "0000000");
}

/* --------------------------------------------------------- numbers by hand -- */

/** One head, queries and keys of 2 channels, values of 1. */
struct small {
    float q[3 * 2], k[3 * 2], v[3];
    attn_params params;
};

static struct reference compute(struct small *s, int64_t tq, int64_t tk)
{
    const attn_tensor q = attn_bhtd(s->q, 1, 1, tq, 2), k = attn_bhtd(s->k, 1, 1, tk, 2);
    const attn_tensor v = attn_bhtd(s->v, 1, 1, tk, 1);
    return reference_compute(&q, &k, &v, &s->params, NAIVE_F32);
}

static struct small small_problem(void)
{
    return (struct small){.q = {1, 2, 3, -1, 0.5f, 0.25f},
                          .k = {2, 1, -1, 1, 0, 3},
                          .v = {1, 2, 4},
                          .params = {.struct_size = sizeof(attn_params), .scale = 1}};
}

static void assert_near(double got, double expected)
{
    if (got == expected)
        return;
    if (!(fabs(got - expected) <= 1e-6 * fmax(1, fabs(expected))))
        fail_msg("%.9g, expected %.9g", got, expected);
}

/** One query and one key: the lse is the score. The naive computation has to agree. */
static void assert_score(struct small *s, double expected)
{
    struct reference r = compute(s, 1, 1);
    assert_near(r.lse[0], expected);
    assert_true(r.naive_lse_error[0] <= 1e-6 * fmax(1, fabs(expected)));
    reference_free(&r);
}

static void scores(void **state)
{
    (void)state;
    struct small s = small_problem(); /* q·k = 4 */
    const float half = 0.5f, slope = 0.25f;
    const int64_t offset[] = {6};
    assert_score(&s, 4);
    s.params.head_scale = &half;
    assert_score(&s, 2);
    s.params.temperature = 4;
    assert_score(&s, 0.5);
    s.params.temperature = 0;
    s.params.softcap = 3;
    assert_score(&s, 3 * tanh(2.0 / 3));
    s.params.alibi_slopes = &slope;
    assert_score(&s, 3 * tanh(2.0 / 3));
    s.params.query_offset = offset;
    assert_score(&s, 3 * tanh(2.0 / 3) - 1.5);
    const float table[] = {10, 20, 30, 40, 50, 60, 70}; /* distances -3 to 3 */
    attn_relative_bias bias = {ATTN_BUCKETS_CLIPPED, 7, 3, table};
    s.params.relative_bias = &bias;
    assert_score(&s, 3 * tanh(2.0 / 3) - 1.5 + 10);
    const int64_t behind[] = {-2};
    s.params.query_offset = behind;
    assert_score(&s, 3 * tanh(2.0 / 3) - 0.5 + 60);
}

static void capped_scores(void **state)
{
    (void)state;
    struct small s = small_problem();
    s.params.softcap = 5;
    s.q[0] = INFINITY;
    assert_score(&s, 5);
    s.q[0] = -INFINITY;
    assert_score(&s, -5);
    s.q[0] = NAN;
    struct reference r = compute(&s, 1, 1);
    assert_true(isnan(r.lse[0]) && isnan(r.out[0]));
    reference_free(&r);
}

/** Query at 1, key at 0; a quarter turn more for the query, or one less for the key, is the same. */
static void rotations(void **state)
{
    (void)state;
    struct small s = small_problem();
    const float still[] = {1, 0}, quarter[] = {0, 1}, minus_quarter[] = {0, -1};
    const attn_tensor none = attn_bhtd(still, 1, 1, 1, 2), turn = attn_bhtd(quarter, 1, 1, 1, 2);
    const attn_tensor back = attn_bhtd(minus_quarter, 1, 1, 1, 2);
    for (int layout = 0; layout < 2; layout++) {
        attn_rope_tables rope = {(attn_rope_layout)layout, &none, &none};
        s.params.rope = &rope;
        assert_score(&s, 4);
        rope.q = &turn; /* (1, 2) becomes (-2, 1) */
        assert_score(&s, -3);
        rope.q = &none, rope.k = &back; /* (2, 1) becomes (1, -2) */
        assert_score(&s, -3);
        rope.q = rope.k = &turn;
        assert_score(&s, 4);
    }
}

static void layouts_of_rotations(void **state)
{
    (void)state;
    const float q[] = {1, 2, 3, 4, 5}, k[] = {1, 10, 100, 1000, 10000}, v[] = {1};
    const float turn[] = {0, 1, 1, 0}, still[] = {1, 1, 0, 0}; /* the first pair a quarter, the second not */
    const attn_tensor qt = attn_bhtd(q, 1, 1, 1, 5), kt = attn_bhtd(k, 1, 1, 1, 5), vt = attn_bhtd(v, 1, 1, 1, 1);
    const attn_tensor table = attn_bhtd(turn, 1, 1, 1, 4), none = attn_bhtd(still, 1, 1, 1, 4);
    attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &table, &none};
    attn_params p = attn_params_default();
    p.scale = 1;
    p.rope = &rope;
    struct reference r = reference_compute(&qt, &kt, &vt, &p, NAIVE_F32);
    assert_near(r.lse[0], -3 + 20 + 100 + 4000 + 50000); /* channels 0 and 2 */
    reference_free(&r);
    rope.layout = ATTN_ROPE_INTERLEAVED;
    r = reference_compute(&qt, &kt, &vt, &p, NAIVE_F32);
    assert_near(r.lse[0], -2 + 10 + 300 + 4000 + 50000); /* channels 0 and 1 */
    reference_free(&r);
}

static void disentangled_terms(void **state)
{
    (void)state;
    struct small s = small_problem();
    const float rows_k[] = {1, 0, 2, 0, 3, 0, 4, 0}, rows_q[] = {0, 1, 0, 2, 0, 3, 0, 4}; /* span 2 */
    const attn_tensor rel_k = attn_bhtd(rows_k, 1, 1, 4, 2), rel_q = attn_bhtd(rows_q, 1, 1, 4, 2);
    attn_disentangled d = {2, &rel_k, &rel_q, ATTN_DELTA_KEY_QUERY};
    int64_t offset[] = {0};
    s.params.query_offset = offset;
    s.params.disentangled = &d;
    assert_score(&s, 4 + 1 * 3 + 1 * 3); /* row 2 of both: q0 * 3, k1 * 3 */
    offset[0] = 1;                       /* query after the key: p - j + 2 = 3, j - p + 2 = 1 */
    assert_score(&s, 4 + 4 + 2);
    offset[0] = 9; /* clipped: 3, 0 */
    assert_score(&s, 4 + 4 + 1);
    offset[0] = -9; /* 0, 3 */
    assert_score(&s, 4 + 1 + 4);
    d.delta = ATTN_DELTA_QUERY_KEY; /* the same row of both */
    assert_score(&s, 4 + 1 + 1);
    offset[0] = 1;
    assert_score(&s, 4 + 4 + 4);
    d.rel_q = NULL;
    offset[0] = -9;
    s.params.scale = 0.5f;
    assert_score(&s, 0.5 * (4 + 1));
}

static void t5_buckets(void **state)
{
    (void)state;
    /* 32 buckets, 128 the largest distance: what the formula of the paper's code gives. */
    static const struct {
        attn_buckets kind;
        int64_t distance, bucket;
    } expected[] = {
        {ATTN_BUCKETS_T5, 0, 0},
        {ATTN_BUCKETS_T5, 5, 0},
        {ATTN_BUCKETS_T5, -1, 1},
        {ATTN_BUCKETS_T5, -15, 15},
        {ATTN_BUCKETS_T5, -16, 16},
        {ATTN_BUCKETS_T5, -20, 17},
        {ATTN_BUCKETS_T5, -50, 24},
        {ATTN_BUCKETS_T5, -127, 31},
        {ATTN_BUCKETS_T5, -128, 31},
        {ATTN_BUCKETS_T5, INT64_MIN + 1, 31},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, 0, 0},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, -7, 7},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, -8, 8},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, -11, 8},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, -12, 9},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, -90, 14},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, -91, 15},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, 1, 17},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, 7, 23},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, 12, 25},
        {ATTN_BUCKETS_T5_BIDIRECTIONAL, INT64_MAX, 31},
    };
    float table[2 * 32];
    for (int i = 0; i < 64; i++)
        table[i] = (float)i;
    attn_params p = attn_params_default();
    attn_relative_bias bias = {.buckets = 32, .max_distance = 128, .table = table};
    p.relative_bias = &bias;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct oracle_query query = {.h = 1, .position = -expected[i].distance};
        bias.kind = expected[i].kind;
        assert_int_equal((int)oracle_relative_bias(&p, &query, 0), 32 + expected[i].bucket);
    }
}

static void sinks(void **state)
{
    (void)state;
    struct small s = small_problem();
    float sink = (float)log(3);
    int64_t len[] = {1};
    s.params.sinks = &sink;
    s.params.kv_len = len;
    s.q[0] = s.q[1] = 0; /* the score is 0: weights 1/4 and, for the sink, 3/4 */
    struct reference r = compute(&s, 1, 1);
    assert_near(r.weights[0], 0.25);
    assert_near(r.out[0], 0.25);
    assert_near(r.lse[0], log(4));
    assert_true(r.naive_out_error[0] < 1e-7);
    reference_free(&r);
    len[0] = 0;
    r = compute(&s, 1, 1);
    assert_true(r.out[0] == 0 && r.weights[0] == 0);
    assert_near(r.lse[0], log(3));
    reference_free(&r);
    sink = -INFINITY;
    r = compute(&s, 1, 1);
    assert_true(r.out[0] == 0 && r.lse[0] == -INFINITY);
    reference_free(&r);
}

/* ---------------------------------------------------------------- dropout -- */

static void philox(void **state)
{
    (void)state;
    /* Random123's kat_vectors, philox4x32 10. */
    static const uint32_t known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t words[4];
        oracle_philox(known[i], known[i] + 4, words);
        assert_memory_equal(words, known[i] + 6, sizeof words);
    }
}

static void dropout(void **state)
{
    (void)state;
    struct small s = small_problem();
    attn_dropout d = {.p = 0, .seed = 5, .offset = 1};
    struct reference plain = compute(&s, 3, 3);
    s.params.dropout = &d;
    struct reference kept = compute(&s, 3, 3);
    assert_memory_equal(plain.out, kept.out, 3 * sizeof *plain.out);
    d.p = 0.75f;
    struct reference r = compute(&s, 3, 3);
    int dropped = 0;
    for (int64_t i = 0; i < 3; i++) {
        double out = 0;
        for (int64_t j = 0; j < 3; j++) {
            const struct oracle_query query = oracle_query_at(&s.params, 3, 3, 0, 0, i);
            const int keeps = oracle_keeps(&s.params, &query, j);
            assert_near(r.weights[i * 3 + j], keeps ? 4 * plain.weights[i * 3 + j] : 0);
            out += r.weights[i * 3 + j] * (double)s.v[j];
            dropped += !keeps;
        }
        assert_near(r.out[i], out);
        assert_near(r.lse[i], plain.lse[i]);
    }
    assert_true(dropped > 0 && dropped < 9);
    reference_free(&r);
    reference_free(&kept);
    reference_free(&plain);
}

/** Of many weights a part of p is dropped, for each seed and offset others. */
static void rate_of_dropout(void **state)
{
    (void)state;
    attn_dropout d[3] = {{0.3f, 1, 0}, {0.3f, 1, 1}, {0.3f, (uint64_t)1 << 32, 0}};
    int dropped[3] = {0, 0, 0}, alike = 0;
    for (int64_t at = 0; at < 40000; at++) {
        const struct oracle_query query = {.sequence = at % 2, .h = at / 2 % 5, .index = at / 10 % 40};
        int keeps[3];
        for (int n = 0; n < 3; n++) {
            attn_params p = attn_params_default();
            p.dropout = &d[n];
            keeps[n] = oracle_keeps(&p, &query, at / 400);
            dropped[n] += !keeps[n];
        }
        alike += keeps[0] == keeps[1] && keeps[0] == keeps[2];
    }
    for (int n = 0; n < 3; n++)
        assert_in_range(dropped[n], 12000 - 500, 12000 + 500); /* five standard deviations are 460 */
    assert_in_range(alike, 14800 - 600, 14800 + 600);          /* 0.3^3 + 0.7^3 of them */
}

/* ------------------------------------------- one thing written in two ways -- */

static void add_and_hide(const attn_score_tile *tile, void *user)
{
    const float *table = user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++)
            tile->scores[j * tile->key_stride + i] += table[(tile->first_query + i) * 3 + tile->first_key + j];
}

static void callback_and_mask(void **state)
{
    (void)state;
    struct small s = small_problem();
    float table[] = {0.5f, -INFINITY, 2, 1, 0, -1, -INFINITY, -INFINITY, -INFINITY};
    const attn_tensor mask = attn_bhtd(table, 1, 1, 3, 3);
    s.v[1] = 3;
    s.params.mask = &mask;
    struct reference expected = compute(&s, 3, 3);
    s.params.mask = NULL;
    s.params.callback = add_and_hide;
    s.params.callback_user = table;
    struct reference r = compute(&s, 3, 3);
    for (int i = 0; i < 3; i++) {
        assert_near(r.out[i], expected.out[i]);
        assert_near(r.lse[i], expected.lse[i]);
    }
    reference_free(&r);
    s.v[1] = NAN; /* hidden from the queries 0 and 2 */
    r = compute(&s, 3, 3);
    assert_near(r.out[0], expected.out[0]);
    assert_true(isnan(r.out[1]) && r.out[2] == 0 && r.lse[2] == -INFINITY);
    reference_free(&r);
    reference_free(&expected);
}

/** Rows of a ragged batch are those of its sequences, each as a batch of its own. */
static void ragged_is_each_alone(void **state)
{
    (void)state;
    enum { TQ = 9, TK = 12, D = 4, HEADS = 2 };
    static const int64_t cu_q[] = {0, 3, 3, 8}, cu_k[] = {0, 5, 7, 11}, len[] = {4, 1, 4}, prefix[] = {2, 0, 1};
    float q[HEADS * TQ * D], k[TK * D], v[TK * D], slopes[] = {0.5f, 0.1f}, sink[] = {0.3f, -INFINITY};
    struct rng rng = rng_for_case(3, 4);
    rng_fill_normal(&rng, q, sizeof q / sizeof *q);
    rng_fill_normal(&rng, k, sizeof k / sizeof *k);
    rng_fill_normal(&rng, v, sizeof v / sizeof *v);
    const attn_ragged ragged = {3, cu_q, cu_k};
    const attn_window window = {.left = 2, .right = 0, .first_tokens = 1};
    attn_params p = attn_params_default();
    p.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    p.ragged = &ragged;
    p.kv_len = len;
    p.prefix_len = prefix;
    p.window = &window;
    p.alibi_slopes = slopes;
    p.sinks = sink;
    attn_tensor qt = attn_bhtd(q, 1, HEADS, TQ, D), kt = attn_bhtd(k, 1, 1, TK, D), vt = attn_bhtd(v, 1, 1, TK, D);
    struct reference all = reference_compute(&qt, &kt, &vt, &p, NAIVE_F32);
    p.ragged = NULL;
    for (int s = 0; s < 3; s++) {
        qt.data = q + cu_q[s] * D, qt.shape[2] = cu_q[s + 1] - cu_q[s];
        kt.data = k + cu_k[s] * D, kt.shape[2] = cu_k[s + 1] - cu_k[s];
        vt.data = v + cu_k[s] * D, vt.shape[2] = kt.shape[2];
        p.kv_len = len + s;
        p.prefix_len = prefix + s;
        struct reference one = reference_compute(&qt, &kt, &vt, &p, NAIVE_F32);
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < one.tq; i++) {
                const int64_t row = h * TQ + cu_q[s] + i, r = h * one.tq + i;
                assert_memory_equal(all.out + row * D, one.out + r * D, D * sizeof(double));
                assert_true(all.lse[row] == one.lse[r]);
                for (int64_t j = 0; j < TK; j++) {
                    const int mine = j >= cu_k[s] && j < cu_k[s + 1];
                    assert_true(all.weights[row * TK + j] == (mine ? one.weights[r * one.tk + j - cu_k[s]] : 0));
                }
            }
        reference_free(&one);
    }
    for (int64_t h = 0; h < HEADS; h++) {
        assert_true(all.lse[h * TQ + 8] == -INFINITY && all.out[(h * TQ + 8) * D] == 0);
        assert_true(all.key_sums[h * TK + 11] == 0);
    }
    reference_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causality),
        cmocka_unit_test(windows),
        cmocka_unit_test(block_patterns),
        cmocka_unit_test(segments_and_trees),
        cmocka_unit_test(tree_of_many_words),
        cmocka_unit_test(ragged_batches),
        cmocka_unit_test(scores),
        cmocka_unit_test(capped_scores),
        cmocka_unit_test(rotations),
        cmocka_unit_test(layouts_of_rotations),
        cmocka_unit_test(disentangled_terms),
        cmocka_unit_test(t5_buckets),
        cmocka_unit_test(sinks),
        cmocka_unit_test(philox),
        cmocka_unit_test(dropout),
        cmocka_unit_test(rate_of_dropout),
        cmocka_unit_test(callback_and_mask),
        cmocka_unit_test(ragged_is_each_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
