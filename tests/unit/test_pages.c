/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values in pages: what is wrong about a block table, what may be left
 * out of one, pages that sequences share, and chunks of prompts beside single
 * tokens in one call. That pages give the bits of keys side by side is a
 * property (test_equivalence), and that all options work with them a matter of
 * check_forward.
 */
#include "fixture.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Three sequences of up to 5 pages of 16 tokens, in a pool of 12. */
enum {
    BATCH = 3,
    HEADS = 4,
    KV_HEADS = 2,
    SIZE = 16,
    COLUMNS = 5,
    PAGES = 12,
    D = 24,
    TQ = 2,
    TOKENS = COLUMNS * SIZE
};

struct paged {
    float q_data[BATCH * HEADS * TQ * D], out_data[BATCH * HEADS * TQ * D];
    float k_data[PAGES * KV_HEADS * SIZE * D], v_data[PAGES * KV_HEADS * SIZE * D];
    int64_t kv_len[BATCH];
    int32_t table[BATCH * COLUMNS];
    attn_tensor q, k, v, out;
    attn_params params;
};

static const int32_t some_table[BATCH * COLUMNS] = {
    3, 0, -1, -1, -1, /* 20 tokens */
    7, 1, 2,  11, 5,  /* 80 */
    9, 4, 10, -1, -1, /* 33 */
};

static void initialize(struct paged *x)
{
    struct rng rng = rng_for_case(14, 1);
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < sizeof x->q_data / sizeof *x->q_data; i++)
        x->q_data[i] = rng_normal(&rng);
    for (size_t i = 0; i < sizeof x->k_data / sizeof *x->k_data; i++) {
        x->k_data[i] = rng_normal(&rng);
        x->v_data[i] = rng_normal(&rng);
    }
    memset(x->out_data, CANARY, sizeof x->out_data);
    memcpy(x->table, some_table, sizeof some_table);
    x->kv_len[0] = 20, x->kv_len[1] = 80, x->kv_len[2] = 33;
    x->q = attn_bhtd(x->q_data, BATCH, HEADS, TQ, D);
    x->out = attn_bhtd(x->out_data, BATCH, HEADS, TQ, D);
    x->k = attn_bhtd(x->k_data, PAGES, KV_HEADS, SIZE, D);
    x->v = attn_bhtd(x->v_data, PAGES, KV_HEADS, SIZE, D);
    x->params = attn_params_default();
    x->params.block_table = x->table;
    x->params.block_table_stride = COLUMNS;
    x->params.page_size = SIZE;
    x->params.kv_len = x->kv_len;
    x->params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
}

static attn_status run(const struct paged *x)
{
    return attn_forward(&x->q, &x->k, &x->v, &x->out, &x->params);
}

/** The keys or values of a sequence side by side, to be freed. */
static attn_tensor side_by_side(const struct paged *x, const attn_tensor *pool, int s)
{
    float *data = calloc((size_t)(KV_HEADS * TOKENS * D), sizeof *data);
    assert_non_null(data);
    for (int h = 0; h < KV_HEADS; h++)
        for (int j = 0; j < x->kv_len[s]; j++)
            memcpy(data + (h * TOKENS + j) * D,
                   (const float *)pool->data +
                       ((x->table[s * COLUMNS + j / SIZE] * KV_HEADS + h) * SIZE + j % SIZE) * D,
                   D * sizeof(float));
    return attn_bhtd(data, 1, KV_HEADS, TOKENS, D);
}

/** That rows of out are those of a call with the sequence's keys side by side; q and out have its queries. */
static void expect_same(const struct paged *x, int s, const attn_tensor *q, const attn_tensor *out)
{
    const attn_tensor k = side_by_side(x, &x->k, s), v = side_by_side(x, &x->v, s);
    float *data = malloc((size_t)(HEADS * q->shape[2] * D) * sizeof *data);
    assert_non_null(data);
    const attn_tensor expected = attn_bhtd(data, 1, HEADS, q->shape[2], D);
    attn_params params = x->params;
    params.block_table = NULL;
    params.block_table_stride = params.page_size = 0;
    params.ragged = NULL;
    params.kv_len = &x->kv_len[s];
    if (params.kv_start)
        params.kv_start += s;
    assert_int_equal(attn_forward(q, &k, &v, &expected, &params), ATTN_OK);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < q->shape[2]; i++)
            assert_memory_equal((const float *)out->data + h * out->stride[1] + i * out->stride[2],
                                data + (h * q->shape[2] + i) * D, D * sizeof(float));
    free(data);
    free(k.data);
    free(v.data);
}

/** Sequence s of q or out. */
static attn_tensor of_sequence(const attn_tensor *t, int s)
{
    attn_tensor one = *t;
    one.data = (float *)t->data + s * t->stride[0];
    one.shape[0] = 1;
    return one;
}

static void expect_all_same(const struct paged *x)
{
    for (int s = 0; s < BATCH; s++) {
        const attn_tensor q = of_sequence(&x->q, s), out = of_sequence(&x->out, s);
        expect_same(x, s, &q, &out);
    }
}

static void test_sequences(void **state)
{
    (void)state;
    static struct paged x;
    initialize(&x);
    assert_int_equal(run(&x), ATTN_OK);
    expect_all_same(&x);
    /* One page twice in a sequence, and of several sequences. */
    x.table[0] = x.table[1] = x.table[5] = x.table[11] = 6;
    assert_int_equal(run(&x), ATTN_OK);
    expect_all_same(&x);
    /* A first live key inside a page. */
    static const int64_t starts[BATCH] = {3, 17, 0};
    x.params.kv_start = starts;
    x.table[5] = INT32_MAX; /* before the first live key */
    assert_int_equal(run(&x), ATTN_OK);
    x.table[5] = 6;
    expect_all_same(&x);
    /* No keys at all. */
    initialize(&x);
    memset(x.kv_len, 0, sizeof x.kv_len);
    x.k.shape[0] = x.v.shape[0] = 0;
    x.k.data = x.v.data = NULL;
    assert_int_equal(run(&x), ATTN_OK);
    for (size_t i = 0; i < sizeof x.out_data / sizeof *x.out_data; i++)
        assert_true(x.out_data[i] == 0.0f);
}

/** Pages that a window hides from all queries may have gone to others. */
static void test_hidden_pages(void **state)
{
    (void)state;
    static struct paged x;
    initialize(&x);
    attn_window window = {.left = 20, .right = ATTN_UNLIMITED, .first_tokens = 5};
    x.params.window = &window; /* of sequence 1 query 0 is at 78 and sees keys 0 to 4 and 58 to 78 */
    assert_int_equal(run(&x), ATTN_OK);
    expect_all_same(&x);
    struct paged y = x;
    y.k.data = y.k_data, y.v.data = y.v_data, y.q.data = y.q_data, y.out.data = y.out_data;
    y.params.block_table = y.table;
    y.params.kv_len = y.kv_len;
    memset(y.out_data, CANARY, sizeof y.out_data);
    y.table[6] = -1, y.table[7] = INT32_MAX;
    assert_int_equal(run(&y), ATTN_OK);
    assert_memory_equal(x.out_data, y.out_data, sizeof x.out_data);
    y.table[5] = -1; /* keys 0 to 4 are seen */
    assert_int_equal(run(&y), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "params.block_table[5] is -1|0 to 11|sequence 1"));
    y.table[5] = 7, y.table[8] = PAGES; /* and 58 and on */
    assert_int_equal(run(&y), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "params.block_table[8] is 12|0 to 11"));
    /* A global query sees every key. */
    y.table[8] = 11;
    static const int64_t global[] = {79};
    window.global = global;
    window.num_global = 1;
    assert_int_equal(run(&y), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "params.block_table[6] is -1"));
}

/** A chunk of a prompt, single tokens and a sequence without any in one call. */
static void test_mixed_batch(void **state)
{
    (void)state;
    static struct paged x;
    enum { TOTAL = 34 };
    static float q_data[HEADS * TOTAL * D], out_data[HEADS * TOTAL * D];
    static const int64_t offsets[BATCH + 1] = {0, 1, 33, 33};
    const attn_ragged ragged = {.num_sequences = BATCH, .cu_seqlens_q = offsets};
    struct rng rng = rng_for_case(14, 2);
    initialize(&x);
    for (size_t i = 0; i < sizeof q_data / sizeof *q_data; i++)
        q_data[i] = rng_normal(&rng);
    x.q = attn_bthd(q_data, 1, TOTAL, HEADS, D);
    x.out = attn_bthd(out_data, 1, TOTAL, HEADS, D);
    x.params.ragged = &ragged;
    assert_int_equal(run(&x), ATTN_OK);
    for (int s = 0; s < BATCH; s++) {
        attn_tensor q = x.q, out = x.out;
        q.data = q_data + offsets[s] * HEADS * D;
        out.data = out_data + offsets[s] * HEADS * D;
        q.shape[2] = offsets[s + 1] - offsets[s];
        expect_same(&x, s, &q, &out);
    }
    for (int64_t i = 33 * HEADS * D; i < TOTAL * HEADS * D; i++) /* of no sequence */
        assert_true(out_data[i] == 0.0f);
}

static void expect_wrong(const struct paged *x, attn_status status, const char *words)
{
    assert_int_equal(run(x), status);
    if (!holds_words(attn_last_error(), words))
        fail_msg("'%s' lacks one of '%s'", attn_last_error(), words);
    assert_true(all_canary(x->out_data, sizeof x->out_data));
}

#define WRONG(status, words, ...)                                                                                      \
    do {                                                                                                               \
        initialize(&x);                                                                                                \
        (void)(__VA_ARGS__);                                                                                           \
        expect_wrong(&x, status, words);                                                                               \
    } while (0)

static void test_errors(void **state)
{
    (void)state;
    static struct paged x;
    static const int64_t offsets[2] = {0, 2};
    static const attn_ragged with_keys = {1, offsets, offsets}, without = {1, offsets, NULL};
    static float sums[2 * HEADS * TOKENS];
    static const int32_t labels[2 * TOKENS];
    static const attn_segments segments = {labels, labels};
    const attn_tensor key_sums = attn_bhtd(sums, 2, HEADS, 1, TOKENS);
    WRONG(ATTN_INVALID_ARGUMENT, "params.block_table[1] is 12|0 to 11|sequence 0", x.table[1] = PAGES);
    WRONG(ATTN_INVALID_ARGUMENT, "params.block_table[5] is -1|sequence 1", x.table[5] = -1);
    WRONG(ATTN_INVALID_ARGUMENT, "params.block_table[2] is -1", x.kv_len[0] = 33);
    WRONG(ATTN_INVALID_ARGUMENT, "params.kv_len[1] is 81|0 to 80", x.kv_len[1] = 81);
    WRONG(ATTN_INVALID_ARGUMENT, "params.page_size is -16", x.params.page_size = -16);
    WRONG(ATTN_INVALID_ARGUMENT, "params.page_size is 0", x.params.page_size = 0);
    WRONG(ATTN_SHAPE_MISMATCH, "k.shape[2] is 16; expected 17, params.page_size", x.params.page_size = 17);
    WRONG(ATTN_SHAPE_MISMATCH, "v.shape[2] is 8; expected 16", x.v.shape[2] = 8);
    WRONG(ATTN_SHAPE_MISMATCH, "v.shape[0] is 11; expected 12, the pages of k", x.v.shape[0] = 11);
    WRONG(ATTN_SHAPE_MISMATCH, "v.shape[1] is 1; expected 2, the heads of k", x.v.shape[1] = 1);
    WRONG(ATTN_INVALID_ARGUMENT, "params.block_table_stride is -1", x.params.block_table_stride = -1);
    WRONG(ATTN_SIZE_OVERFLOW, "params.block_table with the tokens of its pages",
          x.params.block_table_stride = INT64_MAX / SIZE);
    WRONG(ATTN_INVALID_ARGUMENT, "k.shape[0] is 2147483648; expected at most 2147483647 pages",
          x.k.shape[0] = (int64_t)1 << 31);
    WRONG(ATTN_UNSUPPORTED, "k.shape[3] is 1025; with a block table head sizes go up to 1024",
          x.q.shape[3] = x.k.shape[3] = 1025);
    WRONG(ATTN_UNSUPPORTED, "v.shape[3] is 1032|up to 1024", x.out.shape[3] = x.v.shape[3] = 1032);
    WRONG(ATTN_INVALID_ARGUMENT, "out overlaps k", x.k.data = x.out_data);
    WRONG(ATTN_INVALID_ARGUMENT, "out overlaps params.block_table",
          x.params.block_table = memcpy(x.q_data, x.table, sizeof x.table), x.out.data = x.q_data, x.q.data = x.k_data);
    WRONG(ATTN_INVALID_ARGUMENT, "params.ragged->cu_seqlens_k is set", x.params.ragged = &with_keys,
          x.q.shape[0] = x.out.shape[0] = 1);
    WRONG(ATTN_SHAPE_MISMATCH, "params.key_sums.shape[0] is 2; expected 1, the sequences", x.params.ragged = &without,
          x.q.shape[0] = x.out.shape[0] = 1, x.params.key_sums = &key_sums);
    WRONG(ATTN_UNSUPPORTED, "params.segments is set; not in a ragged batch with a block table",
          x.params.ragged = &without, x.q.shape[0] = x.out.shape[0] = 1, x.params.segments = &segments);
}

/** Tables and lengths are each run's own; the size of a page, and that there is one, are the plan's. */
static void test_plan(void **state)
{
    (void)state;
    static struct paged x;
    attn_plan *plan;
    char text[512];
    initialize(&x);
    x.params.num_threads = 2;
    assert_int_equal(attn_plan_create(&plan, &x.q, &x.k, &x.v, &x.out, &x.params), ATTN_OK);
    attn_plan_describe(plan, text, sizeof text);
    assert_true(holds_words(text, "block_table"));
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(attn_plan_run(plan, &x.q, &x.k, &x.v, &x.out, &x.params, workspace, size), ATTN_OK);
        expect_all_same(&x);
        x.table[0] = 8;
        x.kv_len[0] = 9;
    }
    x.table[0] = PAGES;
    assert_int_equal(attn_plan_run(plan, &x.q, &x.k, &x.v, &x.out, &x.params, workspace, size), ATTN_INVALID_ARGUMENT);
    x.table[0] = 8;
    struct paged y = x;
    y.k.shape[2] = y.v.shape[2] = y.params.page_size = SIZE / 2;
    y.params.block_table_stride = 2 * COLUMNS;
    static const int32_t more[BATCH * 2 * COLUMNS];
    y.params.block_table = more;
    assert_int_equal(attn_plan_run(plan, &y.q, &y.k, &y.v, &y.out, &y.params, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "params.page_size differs"));
    free(workspace);
    attn_plan_destroy(plan);
}

/** Sums of weights for each key of each sequence of a ragged batch: a weight of 1 for each query in all. */
static void test_key_sums(void **state)
{
    (void)state;
    static struct paged x;
    static const int64_t offsets[BATCH + 1] = {0, 1, 4, BATCH * TQ};
    static const attn_ragged ragged = {BATCH, offsets, NULL};
    static float data[BATCH * HEADS * TOKENS];
    const attn_tensor sums = attn_bhtd(data, BATCH, HEADS, 1, TOKENS);
    initialize(&x);
    memset(data, CANARY, sizeof data);
    x.q = attn_bhtd(x.q_data, 1, HEADS, BATCH * TQ, D);
    x.out = attn_bhtd(x.out_data, 1, HEADS, BATCH * TQ, D);
    x.params.ragged = &ragged;
    x.params.key_sums = &sums;
    assert_int_equal(run(&x), ATTN_OK);
    for (int s = 0; s < BATCH; s++)
        for (int h = 0; h < HEADS; h++) {
            const float *const row = data + (s * HEADS + h) * TOKENS;
            double all = 0;
            for (int64_t j = 0; j < TOKENS; j++) {
                assert_true(j < x.kv_len[s] || row[j] == 0);
                all += (double)row[j];
            }
            assert_true(fabs(all - (double)(offsets[s + 1] - offsets[s])) < 1e-5);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences), cmocka_unit_test(test_hidden_pages), cmocka_unit_test(test_mixed_batch),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_plan),         cmocka_unit_test(test_key_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
