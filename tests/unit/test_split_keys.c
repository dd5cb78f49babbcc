/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of more keys than a split has (ATTN_SPLIT_KEYS), with everything that can
 * hide keys or change scores: the results are those of the oracle, and where
 * threads share the splits of few queries every bit is that of one thread, by
 * every entry point and in workspaces that have no room for it.
 */
#include "fixture.h"
#include "compare.h"
#include "dtype.h"
#include "random.h"
#include "test_isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Keys of a split, and the most that a case has. */
enum { SPLIT = 4096, MOST_KEYS = 3 * SPLIT, MOST_ROWS = 64, MOST_HEADS = 4 };

enum kind {
    PLAIN,
    LENGTHS, /**< kv_start and kv_len, a sequence without keys among them */
    SINKS,   /**< the same, so one sequence sees nothing but sinks; some heads have none */
    LAST,    /**< causality from the last key */
    OFFSET,  /**< causality from positions in several splits */
    PREFIX,
    BOOL_MASK,     /**< of which a query sees nothing in the second split */
    FLOAT_MASK,    /**< with softcap */
    NAN_KEY,       /**< in a slot that some queries see, and NaN values in one that others do */
    WINDOW,        /**< that begins in the second split for some queries and in the third for others, with sinks */
    WINDOW_TOKENS, /**< with first and global tokens, sinks: splits that nobody sees lie between */
    PATTERN,
    SEGMENTS, /**< in any order, with one that no query has */
    TREE,
    ALIBI,
    ROPE,
    CALLBACK, /**< hides a split from every other query */
    DROPOUT,
    INT8,
    KINDS
};

struct split_case {
    attn_tensor q, k, v, mask, out[2], lse[2], rope_q, rope_k;
    attn_params params;
    int64_t kv_len[2], kv_start[2], offset[2], prefix[2], globals[2];
    float numbers[MOST_HEADS];
    attn_window window;
    attn_block_mask pattern;
    int64_t offsets[MOST_ROWS / 16 + 2];
    int32_t columns[(MOST_ROWS / 16 + 1) * (MOST_KEYS / 16)];
    attn_segments segments;
    int32_t q_labels[2 * MOST_ROWS], k_labels[2 * MOST_KEYS];
    attn_tree tree;
    uint64_t ancestors[2 * MOST_ROWS];
    attn_rope_tables rope;
    attn_dropout dropout;
};

static attn_tensor tensor_of(attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    attn_tensor x = attn_bhtd(malloc((size_t)(b * h * t * c) * attn_dtype_size(dtype)), b, h, t, c);
    assert_non_null(x.data);
    x.dtype = dtype;
    return x;
}

static attn_tensor normal_tensor(struct rng *rng, attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    const attn_tensor x = tensor_of(dtype, b, h, t, c);
    for (int64_t i = 0; i < b * h * t * c; i++)
        dtype_store(dtype, x.data, i, rng_normal(rng));
    return x;
}

static size_t bytes_of(const attn_tensor *t)
{
    return (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]) * attn_dtype_size(t->dtype);
}

static void hide_second_split(const attn_score_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++)
            if ((tile->first_key + j) / SPLIT == 1 && (tile->first_query + i + tile->head) % 2)
                tile->scores[j * tile->key_stride + i] = -INFINITY;
}

/** Keys that a bool mask shows: none of the second split to the first query. */
static int shows(struct rng *rng, int64_t i, int64_t j)
{
    return j / SPLIT == 1 ? i > 0 && rng_percent(rng, 60) : j % 1000 > 300 && rng_percent(rng, 80);
}

static void fill_mask(struct split_case *c, struct rng *rng, enum kind kind)
{
    const int64_t heads = c->q.shape[1], tq = c->q.shape[2], tk = c->k.shape[2];
    c->mask = tensor_of(kind == FLOAT_MASK ? ATTN_F32 : ATTN_BOOL, 1, heads, tq, tk);
    for (int64_t i = 0; i < heads * tq * tk; i++) {
        const int seen = shows(rng, i / tk % tq, i % tk);
        if (kind == FLOAT_MASK)
            ((float *)c->mask.data)[i] = seen ? rng_normal(rng) : -INFINITY;
        else
            ((uint8_t *)c->mask.data)[i] = (uint8_t)seen;
    }
    c->params.mask = &c->mask;
    if (kind != NAN_KEY)
        return;
    for (int64_t h = 0; h < c->k.shape[1]; h++) {
        tensor_set(&c->k, 0, h, SPLIT + 77, 0, NAN);
        tensor_set(&c->v, 0, h, 2 * SPLIT + 5, 0, NAN);
    }
}

static void fill_labels(struct split_case *c, struct rng *rng)
{
    for (int64_t i = 0; i < MOST_ROWS; i++)
        c->q_labels[i] = (int32_t)rng_range(rng, 0, 2);
    for (int64_t j = 0; j < MOST_KEYS; j++) /* the second split holds nothing but label 7 */
        c->k_labels[j] = j / SPLIT == 1 ? 7 : (int32_t)(j / 700 % 3);
    c->segments = (attn_segments){c->q_labels, c->k_labels};
    c->params.segments = &c->segments;
}

static void fill_pattern(struct split_case *c, struct rng *rng)
{
    const int64_t rows = (c->q.shape[2] + 15) / 16, columns = (c->k.shape[2] + 15) / 16;
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++) {
        c->offsets[r] = n;
        for (int64_t j = 0; j < columns; j++)
            if (j * 16 / SPLIT != (r + 1) % 2 && rng_percent(rng, 40))
                c->columns[n++] = (int32_t)j;
    }
    c->offsets[rows] = n;
    c->pattern = (attn_block_mask){16, 1, rows, c->offsets, c->columns};
    c->params.block_mask = &c->pattern;
}

static void fill_terms(struct split_case *c, struct rng *rng, enum kind kind)
{
    attn_params *p = &c->params;
    const int64_t tq = c->q.shape[2], tk = c->k.shape[2], pairs = c->q.shape[3] / 2;
    for (int h = 0; h < MOST_HEADS; h++)
        c->numbers[h] = kind == ALIBI ? 0.001f * (float)(h + 1) : h == 1 ? -INFINITY : 2 * rng_normal(rng);
    if (kind == SINKS || kind == WINDOW || kind == WINDOW_TOKENS)
        p->sinks = c->numbers;
    if (kind == ALIBI)
        p->alibi_slopes = c->numbers;
    if (kind == ROPE) {
        c->rope_q = normal_tensor(rng, ATTN_F32, 1, 1, tq, 2 * pairs);
        c->rope_k = normal_tensor(rng, ATTN_F32, 1, 1, tk, 2 * pairs);
        c->rope = (attn_rope_tables){ATTN_ROPE_HALF_SPLIT, &c->rope_q, &c->rope_k};
        p->rope = &c->rope;
    }
    c->dropout = (attn_dropout){0.25f, 3, 4};
    p->dropout = kind == DROPOUT ? &c->dropout : NULL;
    p->callback = kind == CALLBACK ? hide_second_split : NULL;
    p->softcap = kind == FLOAT_MASK ? 5.0f : 0.0f;
    p->qk = kind == INT8 ? ATTN_QK_INT8 : ATTN_QK_DEFAULT;
}

static void fill_places(struct split_case *c, struct rng *rng, enum kind kind)
{
    attn_params *p = &c->params;
    const int64_t tq = c->q.shape[2], tk = c->k.shape[2];
    const int windowed = kind == WINDOW || kind == WINDOW_TOKENS;
    c->kv_start[0] = rng_range(rng, 1, 300);
    c->kv_len[0] = tk - rng_range(rng, 0, 99);
    c->kv_start[1] = c->kv_len[1] = 5;
    if (kind == LENGTHS || kind == SINKS) {
        p->kv_start = c->kv_start;
        p->kv_len = c->kv_len;
    }
    p->causal = kind == LAST || kind == TREE || windowed ? ATTN_CAUSAL_BOTTOM_RIGHT
                : kind == OFFSET || kind == PREFIX       ? ATTN_CAUSAL_OFFSET
                                                         : ATTN_CAUSAL_NONE;
    c->offset[0] = kind == PREFIX ? 100 : 2 * SPLIT - tq / 2;
    p->query_offset = p->causal == ATTN_CAUSAL_OFFSET ? c->offset : NULL;
    c->prefix[0] = SPLIT + 300;
    p->prefix_len = kind == PREFIX ? c->prefix : NULL;
    c->globals[0] = SPLIT / 2;
    c->globals[1] = tk - 1;
    c->window = (attn_window){.left = kind == WINDOW ? tk - 2 * SPLIT - tq / 2 : 200,
                              .right = ATTN_UNLIMITED,
                              .first_tokens = kind == WINDOW ? 0 : 4,
                              .global = c->globals,
                              .num_global = kind == WINDOW ? 0 : 2};
    p->window = windowed ? &c->window : NULL;
    for (int i = 0; i < 2 * MOST_ROWS; i++)
        c->ancestors[i] = rng_bits(rng) | 1;
    c->tree = (attn_tree){4, c->ancestors};
    p->tree = kind == TREE ? &c->tree : NULL;
}

/** Memory of a case; its outputs hold a pattern. */
static struct split_case *make_case(const char *isa, attn_dtype dtype, enum kind kind, const int64_t shape[5],
                                    uint64_t number)
{
    struct rng rng = rng_for_case(0x5711, number);
    struct split_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    const int64_t batch = kind == LENGTHS || kind == SINKS ? 2 : 1, heads = shape[0], tq = shape[2];
    const int64_t tk = 2 * SPLIT + rng_range(&rng, 100, SPLIT);
    c->params = attn_params_default();
    c->params.isa = isa;
    c->q = normal_tensor(&rng, dtype, batch, heads, tq, shape[3]);
    c->k = normal_tensor(&rng, dtype, batch, shape[1], tk, shape[3]);
    c->v = normal_tensor(&rng, dtype, batch, shape[1], tk, shape[4]);
    for (int i = 0; i < 2; i++) {
        c->out[i] = tensor_of(dtype, batch, heads, tq, shape[4]);
        c->lse[i] = tensor_of(ATTN_F32, batch, heads, tq, 1);
    }
    fill_places(c, &rng, kind);
    fill_terms(c, &rng, kind);
    if (kind == BOOL_MASK || kind == FLOAT_MASK || kind == NAN_KEY)
        fill_mask(c, &rng, kind);
    if (kind == SEGMENTS)
        fill_labels(c, &rng);
    if (kind == PATTERN)
        fill_pattern(c, &rng);
    return c;
}

static void free_case(struct split_case *c)
{
    void *const data[] = {c->q.data,      c->k.data,      c->v.data,      c->mask.data,  c->out[0].data,
                          c->out[1].data, c->lse[0].data, c->lse[1].data, c->rope_q.data, c->rope_k.data};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
    free(c);
}

/** Compares the second results with the first ones and forgets them. */
static void expect_same(const struct split_case *c, enum kind kind, const char *how, int threads)
{
    if (memcmp(c->out[0].data, c->out[1].data, bytes_of(&c->out[0])) != 0 ||
        memcmp(c->lse[0].data, c->lse[1].data, bytes_of(&c->lse[0])) != 0)
        fail_msg("%s, %s, kind %d, %d heads on %d, %d queries, %d keys: %s with %d threads has other bits",
                 c->params.isa, attn_dtype_name(c->q.dtype), (int)kind, (int)c->q.shape[1], (int)c->k.shape[1],
                 (int)c->q.shape[2], (int)c->k.shape[2], how, threads);
    memset(c->out[1].data, 0x55, bytes_of(&c->out[1]));
    memset(c->lse[1].data, 0x55, bytes_of(&c->lse[1]));
}

/** By a plan, in shares of another order, and after attn_plan_keep(). Returns whether its description has the words. */
static int run_plan(struct split_case *c, enum kind kind, const attn_params *params, const char *words)
{
    attn_plan *plan;
    char text[512];
    assert_int_equal(attn_plan_create(&plan, &c->q, &c->k, &c->v, &c->out[1], params), ATTN_OK);
    attn_plan_describe(plan, text, sizeof text);
    for (int kept = 0; kept < 2; kept++) {
        const size_t size = attn_plan_workspace_size(plan);
        char *workspace = malloc(size);
        assert_non_null(workspace);
        memset(workspace, 0xff, size);
        assert_int_equal(attn_plan_begin(plan, &c->q, &c->k, &c->v, &c->out[1], params, workspace, size), ATTN_OK);
        for (int phase = 0; phase < attn_plan_num_phases(plan); phase++)
            for (int ith = 2; ith >= 0; ith--)
                assert_int_equal(attn_plan_run_share(plan, workspace, phase, ith, 3), ATTN_OK);
        expect_same(c, kind, kept ? "a plan that keeps" : "a plan", 3);
        free(workspace);
        if (!kept)
            assert_int_equal(attn_plan_keep(plan, params), ATTN_OK);
    }
    attn_plan_destroy(plan);
    return strstr(text, words) != NULL;
}

/** In workspaces from what is told down to the least, of which each has the bits. */
static void run_in_less(struct split_case *c, enum kind kind, const attn_params *params, int splits)
{
    size_t size, least = 0;
    assert_int_equal(attn_forward_workspace_size(&c->q, &c->k, &c->v, &c->out[1], params, &size), ATTN_OK);
    char *workspace = malloc(size);
    assert_non_null(workspace);
    for (size_t room = size; room > 0; room -= room / 3 + 1) {
        memset(workspace, 0xff, room);
        const attn_status status = attn_forward_in(&c->q, &c->k, &c->v, &c->out[1], params, workspace, room);
        if (status == ATTN_WORKSPACE_TOO_SMALL)
            break;
        assert_int_equal(status, ATTN_OK);
        expect_same(c, kind, "a smaller workspace", params->num_threads);
        least = room;
    }
    assert_true(least > 0);
    if (splits) /* partials, and scratch of more than one thread */
        assert_true(least < size);
    free(workspace);
}

/** Row i of the third axis. */
static attn_tensor row_of(const attn_tensor *t, int64_t i)
{
    attn_tensor row = *t;
    if (t->data)
        row.data = (char *)t->data + (size_t)(i * t->stride[2]) * attn_dtype_size(t->dtype);
    row.shape[2] = 1;
    return row;
}

/** Every query by itself, where it can be told its position. */
static void run_alone(struct split_case *c, enum kind kind)
{
    if (c->params.block_mask || c->params.segments || c->params.tree || c->params.rope || c->params.dropout ||
        c->params.callback || c->params.alibi_slopes || kind == INT8)
        return;
    const int64_t tq = c->q.shape[2];
    for (int64_t i = 0; i < tq; i++) {
        attn_params params = c->params;
        const attn_tensor q = row_of(&c->q, i), out = row_of(&c->out[1], i), lse = row_of(&c->lse[1], i);
        const attn_tensor mask = row_of(&c->mask, i);
        const int from_end = params.causal == ATTN_CAUSAL_BOTTOM_RIGHT;
        const int64_t offset = i + (from_end ? c->k.shape[2] - tq : c->offset[0]), offsets[2] = {offset, offset};
        params.causal = from_end ? ATTN_CAUSAL_OFFSET : params.causal;
        params.query_offset = params.causal == ATTN_CAUSAL_OFFSET ? offsets : NULL;
        params.mask = params.mask ? &mask : NULL;
        params.lse = &lse;
        params.num_threads = i % 2 ? 1 : 3;
        assert_int_equal(attn_forward(&q, &c->k, &c->v, &out, &params), ATTN_OK);
    }
    expect_same(c, kind, "a query by itself", 3);
}

static void check_case(const char *isa, attn_dtype dtype, enum kind kind, const int64_t shape[5], uint64_t number)
{
    struct split_case *c = make_case(isa, dtype, kind, shape, number);
    attn_params params = c->params;
    char message[512] = "";
    c->params.lse = &c->lse[0];
    c->params.num_threads = 1;
    const attn_status status = attn_forward(&c->q, &c->k, &c->v, &c->out[0], &c->params);
    if (kind == INT8 && status == ATTN_UNSUPPORTED) {
        free_case(c);
        return;
    }
    assert_int_equal(status, ATTN_OK);
    if (kind != INT8) {
        struct comparison comparison;
        struct reference reference = reference_compute(&c->q, &c->k, &c->v, &c->params, NAIVE_F32);
        if (!compare_with_reference(&reference, &c->out[0], &c->params, &comparison, message, sizeof message))
            fail_msg("%s, %s, kind %d, case %d: %s", isa, attn_dtype_name(dtype), (int)kind, (int)number, message);
        reference_free(&reference);
    }
    params.lse = &c->lse[1];
    for (int threads = 2; threads <= 4; threads++) {
        params.num_threads = threads;
        assert_int_equal(attn_forward(&c->q, &c->k, &c->v, &c->out[1], &params), ATTN_OK);
        expect_same(c, kind, "a call", threads);
    }
    params.num_threads = 3;
    const int splits = run_plan(c, kind, &params, " key splits of 4096 in ");
    if (!splits && kind != WINDOW && shape[2] < 50) /* which narrow strips make many tasks of */
        fail_msg("%s, kind %d: a plan for 3 threads does not split keys", isa, (int)kind);
    run_in_less(c, kind, &params, splits);
    run_alone(c, kind);
    free_case(c);
}

/** Heads, key heads, queries, dk, dv: worth three threads. */
static const int64_t shapes[][5] = {{1, 1, 1, 128, 96}, {4, 1, 1, 48, 40}, {1, 1, 7, 20, 17},
                                    {2, 2, 6, 16, 24},  {1, 1, 50, 8, 9},  {3, 1, 2, 33, 16}};

static void test_forms(void **state)
{
    (void)state;
    uint64_t number = 0;
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int kind = 0; attn_isa_supported(attn_isa_name(isa)) && kind < KINDS; kind++)
            for (int i = 0; i < 2; i++, number++) {
                const attn_dtype dtype = i == 0 && !test_isa_has_pairs(attn_isa_name(isa)) ? ATTN_F32 : ATTN_BF16;
                check_case(attn_isa_name(isa), dtype, (enum kind)kind, shapes[number % 6], number);
            }
}

/** Weights and scores on request, and ragged batches, leave keys to one thread; the bits are the same. */
static void test_what_is_not_shared(void **state)
{
    (void)state;
    for (int request = 0; request < 4; request++) {
        struct split_case *c = make_case(NULL, ATTN_F32, PLAIN, shapes[2], 99);
        const int64_t tq = c->q.shape[2], tk = c->k.shape[2], cu_q[2] = {0, tq}, cu_k[2] = {0, tk};
        const attn_tensor rows = tensor_of(ATTN_F32, 1, 1, tq, tk), sums = tensor_of(ATTN_F32, 1, 1, 1, tk);
        const attn_ragged ragged = {1, cu_q, cu_k};
        attn_params params = c->params;
        params.lse = &c->lse[0];
        params.num_threads = 3;
        assert_int_equal(attn_forward(&c->q, &c->k, &c->v, &c->out[0], &params), ATTN_OK);
        params.lse = &c->lse[1];
        params.weights = request == 0 ? &rows : NULL;
        params.key_sums = request == 1 ? &sums : NULL;
        params.scores = request == 2 ? &rows : NULL;
        params.ragged = request == 3 ? &ragged : NULL;
        assert_true(run_plan(c, PLAIN, &params, ", no key splits"));
        for (int64_t i = 0; request == 0 && i < tq; i++) { /* final maxima and sums */
            double sum = 0;
            for (int64_t j = 0; j < tk; j++)
                sum += (double)((float *)rows.data)[i * tk + j];
            assert_true(fabs(sum - 1) < 1e-4);
        }
        free(rows.data);
        free(sums.data);
        free_case(c);
    }
}

/** What a plan says of its keys: they are split where there are too few heads and queries for the threads. */
static void test_described(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, heads, kv_heads, queries, keys, left;
        int threads;
        const char *says;
    } cases[] = {{1, 1, 1, 1, 131072, ATTN_UNLIMITED, 2, "8 tasks of some splits for one query block on 2 threads"},
                 {1, 1, 1, 1, 131072, ATTN_UNLIMITED, 2, ", 32 key splits of 4096 in 8 tasks"},
                 {1, 32, 1, 1, 131072, ATTN_UNLIMITED, 2, " of 32 heads together on 2 threads, 32 key splits"},
                 {1, 8, 2, 1, 131072, ATTN_UNLIMITED, 4, " of 4 heads together on 4 threads, 32 key splits"},
                 {1, 1, 1, 1, 4097, ATTN_UNLIMITED, 2, ", no key splits"}, /* not worth a thread */
                 {1, 1, 1, 9, 4097, ATTN_UNLIMITED, 2, ", 2 key splits of 4096 in 2 tasks"},
                 {1, 1, 1, 9, 4096, ATTN_UNLIMITED, 2, ", no key splits"},
                 {1, 1, 1, 1, 131072, ATTN_UNLIMITED, 1, ", no key splits"},
                 {2, 4, 4, 1, 131072, ATTN_UNLIMITED, 2, ", no key splits"}, /* enough of other tasks */
                 {1, 1, 1, 9, 131072, 300, 2, ", no key splits"},
                 {1, 1, 1, 1, 131072, 70000, 2, ", 32 key splits of 4096 in 8 tasks"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_tensor q = attn_bhtd(NULL, cases[i].batch, cases[i].heads, cases[i].queries, 64), out = q,
                          k = attn_bhtd(NULL, cases[i].batch, cases[i].kv_heads, cases[i].keys, 64);
        const attn_window window = {.left = cases[i].left, .right = ATTN_UNLIMITED};
        attn_params params = attn_params_default();
        params.num_threads = cases[i].threads;
        params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        params.window = cases[i].left == ATTN_UNLIMITED ? NULL : &window;
        attn_plan *plan;
        char text[512];
        assert_int_equal(attn_plan_create(&plan, &q, &k, &k, &out, &params), ATTN_OK);
        attn_plan_describe(plan, text, sizeof text);
        if (!strstr(text, cases[i].says))
            fail_msg("'%s' should say '%s'", text, cases[i].says);
        assert_int_equal(attn_plan_num_phases(plan), strstr(text, "no key splits") ? 1 : 2);
        attn_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_what_is_not_shared),
                                       cmocka_unit_test(test_described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
