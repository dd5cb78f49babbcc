/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with additive scores: small random cases with everything that may hide
 * keys, of all types, against the oracle; rows of long ones, whose keys are split,
 * with equal bits on any threads, in any batch, chunk and workspace; masks in
 * memory that say what rules say, with equal bits; what it refuses. What no query
 * sees, and queries that see nothing, hold NaN and infinities.
 */
#include "additive_forms.h"
#include "options.h"

#include "oracle.h"
#include "oracle_score.h"

/** A score function and its operands. */
struct layer {
    int64_t batch, tq, tk, width, dv;
    attn_alignment *alignment;
    struct oracle_alignment oracle;
    attn_tensor q, projected, v;
};

static void make_layer(struct layer *l, struct memory *m, int64_t width, int narrow)
{
    struct rng *rng = &m->rng;
    attn_alignment_config c = attn_alignment_config_default();
    c.score = ATTN_SCORE_ADDITIVE;
    c.d_query = RNG_PICK(rng, 1, 3, 8, 17), c.d_key = 1, c.d_attention = l->width = width;
    c.temperature = rng_percent(rng, 60) ? 0 : (float)(0.3 + 2 * rng_uniform(rng));
    c.w_q = random_matrix(m, random_dtype(m), width, c.d_query, 1 / sqrt((double)c.d_query));
    c.w_k = random_matrix(m, ATTN_F32, width, 1, 1);
    c.v = random_vector(m, random_dtype(m), width, 1, 0);
    l->oracle = (struct oracle_alignment){ATTN_SCORE_ADDITIVE,   c.d_query,           1,    width,
                                          (double)c.temperature, read_all(m, &c.w_q), NULL, NULL,
                                          read_all(m, &c.v)};
    l->q = place_rows_of(m, narrow ? random_dtype(m) : ATTN_F32, l->batch, l->tq, c.d_query);
    l->projected = place_rows_of(m, narrow ? random_dtype(m) : ATTN_F32, l->batch, l->tk, width);
    l->v = place_rows_of(m, narrow ? random_dtype(m) : ATTN_F32, l->batch, l->tk, l->dv);
    fill(m, &l->q, 1), fill(m, &l->projected, 1), fill(m, &l->v, 1);
    OK(attn_alignment_create(&l->alignment, &c));
}

/** Puts what must not matter where nobody looks. */
static void poison(const struct layer *l, const attn_params *p)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (int64_t b = 0; b < l->batch; b++) {
        for (int64_t j = 0; j < l->tk; j++) {
            int seen = 0;
            for (int64_t i = 0; i < l->tq && !seen; i++)
                seen = oracle_key_is_live(p, l->tq, l->tk, b, 0, i, j);
            for (int64_t c = 0; c < l->width && !seen; c++)
                tensor_set(&l->projected, b, 0, j, c, wrong[(j + c) % 3]);
            for (int64_t c = 0; c < l->dv && !seen; c++)
                tensor_set(&l->v, b, 0, j, c, wrong[(j + c) % 3]);
        }
        for (int64_t i = 0; i < l->tq; i++) {
            int sees = 0;
            for (int64_t j = 0; j < l->tk && !sees; j++)
                sees = oracle_key_is_live(p, l->tq, l->tk, b, 0, i, j);
            for (int64_t c = 0; c < l->q.shape[3] && !sees; c++)
                tensor_set(&l->q, b, 0, i, c, wrong[c % 3]);
        }
    }
}

static attn_status forward(const struct layer *l, const attn_params *p, const attn_tensor *out, void *workspace,
                           size_t size)
{
    return attn_alignment_forward(l->alignment, &l->q, &l->projected, &l->v, out, p, workspace, size);
}

/** Terms of a score are of the size of the vector of the score; masks add theirs. */
static double *sizes_of_rows(struct memory *m, const struct layer *l, const attn_params *p)
{
    const double temperature = l->oracle.temperature != 0 ? l->oracle.temperature : 1;
    double *sizes = zeros(m, l->batch * l->tq), sum = 0;
    for (int64_t c = 0; c < l->width; c++)
        sum += l->oracle.v[c] * l->oracle.v[c];
    for (int64_t r = 0; r < l->batch * l->tq; r++)
        sizes[r] = sqrt(sum) / temperature + (p->mask ? 3 : 0);
    return sizes;
}

static void test_small(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(20000); n++) {
        struct memory *m = memory_create("additive small", n);
        struct rng *rng = &m->rng;
        struct layer l = {.batch = RNG_PICK(rng, 1, 1, 1, 2, 3, 0), .tq = RNG_PICK(rng, 0, 1, 1, 2, 3, 5, 9)};
        l.tk = RNG_PICK(rng, 0, 1, 2, 7, 15, 16, 17, 31, 33, 40, 130), l.dv = RNG_PICK(rng, 0, 1, 3, 8, 16, 17, 20);
        make_layer(&l, m, RNG_PICK(rng, 1, 2, 7, 8, 9, 15, 16, 17, 24, 31), 1);
        struct additive_form *f = random_additive_form(m, l.batch, l.tq, l.tk);
        const attn_tensor out = place_rows(m, l.batch, l.tq, l.dv), lse = place_dense(m, l.batch, 1, l.tq, 1);
        const attn_tensor weights = place_dense(m, l.batch, 1, l.tq, l.tk);
        f->params.lse = rng_percent(rng, 50) ? &lse : NULL;
        f->params.weights = rng_percent(rng, 50) ? &weights : NULL;
        poison(&l, &f->params);
        memory_seal(m);
        OK(forward(&l, &f->params, &out, NULL, 0));

        const struct trio y = trio(m, l.batch * l.tq * l.dv), w = trio(m, l.batch * l.tq * l.tk);
        const struct trio ls = trio(m, l.batch * l.tq);
        const double *qs = read_all(m, &l.q), *ks = read_all(m, &l.projected), *vs = read_all(m, &l.v);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->align(&l.oracle, l.batch, l.tq, l.tk, l.dv, qs, ks, vs, &f->params, y.of[k], w.of[k],
                                  ls.of[k]);
        const double *sizes = sizes_of_rows(m, &l, &f->params);
        judge(NN_ALIGNMENT, "out", &out, y.of, softmax_sizes(m, y.of[0], l.batch * l.tq, l.dv, 0.3, sizes, 1));
        if (f->params.weights)
            judge(NN_WEIGHTS, "weights", &weights, w.of,
                  softmax_sizes(m, w.of[0], l.batch * l.tq * l.tk, 1, 0.05, sizes, l.tk));
        if (f->params.lse)
            judge(NN_ALIGNMENT, "lse", &lse, ls.of, softmax_sizes(m, ls.of[0], l.batch * l.tq, 1, 1, sizes, 1));

        /* Of another type it is the same result rounded. */
        const attn_tensor rounded = place_rows_of(m, random_dtype(m), l.batch, l.tq, l.dv);
        const size_t size = attn_alignment_workspace_size(l.alignment, l.batch, l.tq, l.tk, l.dv, &f->params);
        OK(forward(&l, &f->params, &rounded, place_workspace(m, size), size));
        assert_rounded("out", &rounded, &out);
        attn_alignment_destroy(l.alignment);
        memory_destroy(m);
    }
}

/** The same operands in f32. */
static attn_tensor widened(struct memory *m, const attn_tensor *t)
{
    const attn_tensor wide = place_rows_of(m, ATTN_F32, t->shape[0], t->shape[2], t->shape[3]);
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t i = 0; i < t->shape[2]; i++)
            for (int64_t c = 0; c < t->shape[3]; c++)
                tensor_set(&wide, b, 0, i, c, tensor_get(t, b, 0, i, c));
    mark_input(m, &wide);
    return wide;
}

/** What is widened in registers gives the bits of floats. */
static void test_types(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(300); n++) {
        struct memory *m = memory_create("additive types", n);
        struct rng *rng = &m->rng;
        struct layer l = {.batch = 2, .tq = RNG_PICK(rng, 1, 4, 6), .tk = RNG_PICK(rng, 5, 64, 300)};
        l.dv = RNG_PICK(rng, 5, 16, 33, 70, 150);
        make_layer(&l, m, RNG_PICK(rng, 3, 16, 33, 70, 150, 300), 1);
        struct additive_form *f = random_additive_form(m, l.batch, l.tq, l.tk);
        struct layer wide = l;
        wide.q = widened(m, &l.q), wide.projected = widened(m, &l.projected), wide.v = widened(m, &l.v);
        const attn_tensor out = place_rows(m, l.batch, l.tq, l.dv), expected = place_rows(m, l.batch, l.tq, l.dv);
        memory_seal(m);
        OK(forward(&l, &f->params, &out, NULL, 0));
        OK(forward(&wide, &f->params, &expected, NULL, 0));
        assert_true(equal_bits(&out, &expected));
        attn_alignment_destroy(l.alignment);
        memory_destroy(m);
    }
}

/* ------------------------------------------------------------------- bits -- */

/** Long rows: several splits, which threads share. */
static void test_splits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("additive splits", n);
        struct rng *rng = &m->rng;
        struct layer l = {.batch = RNG_PICK(rng, 1, 3), .tq = RNG_PICK(rng, 1, 1, 2, 5, 23)};
        l.tk = RNG_PICK(rng, 255, 256, 257, 512, 600, 1100, 1537), l.dv = RNG_PICK(rng, 1, 16, 37);
        make_layer(&l, m, RNG_PICK(rng, 17, 48, 64), 1);
        struct additive_form *f = random_additive_form(m, l.batch, l.tq, l.tk);
        const attn_tensor out = place_rows(m, l.batch, l.tq, l.dv), lse = place_dense(m, l.batch, 1, l.tq, 1);
        const attn_tensor weights = place_dense(m, l.batch, 1, l.tq, l.tk);
        attn_params p = f->params;
        p.num_threads = 1;
        p.lse = &lse, p.weights = rng_percent(rng, 50) ? &weights : NULL;
        memory_seal(m);
        OK(forward(&l, &p, &out, NULL, 0));
        const struct trio y = trio(m, l.batch * l.tq * l.dv), w = trio(m, l.batch * l.tq * l.tk);
        const struct trio ls = trio(m, l.batch * l.tq);
        const double *qs = read_all(m, &l.q), *ks = read_all(m, &l.projected), *vs = read_all(m, &l.v);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->align(&l.oracle, l.batch, l.tq, l.tk, l.dv, qs, ks, vs, &p, y.of[k], w.of[k], ls.of[k]);
        const double *sizes = sizes_of_rows(m, &l, &p);
        judge(NN_ALIGNMENT, "out", &out, y.of, softmax_sizes(m, y.of[0], l.batch * l.tq, l.dv, 0.3, sizes, 1));
        judge(NN_ALIGNMENT, "lse", &lse, ls.of, softmax_sizes(m, ls.of[0], l.batch * l.tq, 1, 1, sizes, 1));

        const attn_tensor lse2 = place_dense(m, l.batch, 1, l.tq, 1);
        const attn_tensor weights2 = place_dense(m, l.batch, 1, l.tq, l.tk);
        for (int threads = 2; threads <= 5; threads++) {
            const attn_tensor again = place_rows(m, l.batch, l.tq, l.dv);
            p.num_threads = threads * threads;
            p.lse = &lse2, p.weights = p.weights ? &weights2 : NULL;
            const size_t size = attn_alignment_workspace_size(l.alignment, l.batch, l.tq, l.tk, l.dv, &p);
            OK(forward(&l, &p, &again, place_workspace(m, size), size));
            assert_true(equal_bits(&again, &out));
            assert_true(equal_bits(&lse2, &lse));
            assert_true(!p.weights || equal_bits(&weights2, &weights));
            /* With what it needs at least. */
            char one[1];
            if (attn_alignment_forward(l.alignment, &l.q, &l.projected, &l.v, &again, &p, one, 1) ==
                ATTN_WORKSPACE_TOO_SMALL) {
                const size_t least = said_least();
                assert_true(least <= size);
                OK(forward(&l, &p, &again, place_workspace(m, least), least));
                assert_true(equal_bits(&again, &out));
            }
        }
        attn_alignment_destroy(l.alignment);
        memory_destroy(m);
    }
}

/** Rows of a batch, alone and a few at a time; sequences of a ragged batch by themselves. */
static void test_company(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("additive company", n);
        struct rng *rng = &m->rng;
        struct layer l = {.batch = 1, .tq = RNG_PICK(rng, 9, 40), .tk = RNG_PICK(rng, 300, 900), .dv = 19};
        make_layer(&l, m, RNG_PICK(rng, 16, 33), 1);
        const int64_t q_ends[] = {0, rng_range(rng, 0, l.tq), l.tq}, k_ends[] = {0, rng_range(rng, 0, l.tk), l.tk};
        const attn_ragged ragged = {2, q_ends, k_ends};
        const attn_tensor out = place_rows(m, 1, l.tq, l.dv);
        attn_params p = attn_params_default();
        p.ragged = &ragged;
        p.causal = rng_percent(rng, 50) ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
        p.num_threads = 1;
        memory_seal(m);
        OK(forward(&l, &p, &out, NULL, 0));
        for (int s = 0; s < 2; s++) {
            struct layer own = l;
            own.q = slice(&l.q, 0, q_ends[s], q_ends[s + 1] - q_ends[s]);
            own.projected = slice(&l.projected, 0, k_ends[s], k_ends[s + 1] - k_ends[s]);
            own.v = slice(&l.v, 0, k_ends[s], k_ends[s + 1] - k_ends[s]);
            for (int64_t first = 0; first < own.q.shape[2];) {
                const int64_t left = own.q.shape[2] - first, tokens = rng_range(rng, 1, left);
                const int64_t offset = own.projected.shape[2] - own.q.shape[2] + first;
                struct layer some = own;
                some.q = slice(&own.q, 0, first, tokens);
                const attn_tensor its = place_rows(m, 1, tokens, l.dv);
                const attn_tensor expected = slice(&out, 0, q_ends[s] + first, tokens);
                attn_params alone = attn_params_default();
                alone.num_threads = (int)rng_range(rng, 1, 6);
                alone.causal = p.causal ? ATTN_CAUSAL_OFFSET : ATTN_CAUSAL_NONE;
                alone.query_offset = p.causal ? &offset : NULL;
                OK(forward(&some, &alone, &its, NULL, 0));
                assert_true(equal_bits(&its, &expected));
                first += tokens;
            }
        }
        attn_alignment_destroy(l.alignment);
        memory_destroy(m);
    }
}

/** A boolean mask that says what rules say gives their bits. */
static void test_rules_and_masks(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(300); n++) {
        struct memory *m = memory_create("additive rules_and_masks", n);
        struct rng *rng = &m->rng;
        struct layer l = {.batch = 2, .tq = RNG_PICK(rng, 1, 5, 18), .tk = RNG_PICK(rng, 20, 140, 290), .dv = 21};
        make_layer(&l, m, RNG_PICK(rng, 8, 33), 0);
        struct additive_form *f = random_additive_form(m, l.batch, l.tq, l.tk);
        f->params.kv_start = NULL; /* where keys are counted from */
        f->params.mask = NULL;
        f->params.tree = NULL;
        attn_tensor mask = attn_bhtd(bytes(m, (size_t)(l.batch * l.tq * l.tk)), l.batch, 1, l.tq, l.tk);
        mask.dtype = ATTN_BOOL;
        for (int64_t b = 0; b < l.batch; b++)
            for (int64_t i = 0; i < l.tq; i++)
                for (int64_t j = 0; j < l.tk; j++)
                    ((uint8_t *)mask.data)[(b * l.tq + i) * l.tk + j] =
                        (uint8_t)oracle_key_is_live(&f->params, l.tq, l.tk, b, 0, i, j);
        attn_params by_mask = attn_params_default();
        by_mask.mask = &mask;
        const attn_tensor out = place_rows(m, l.batch, l.tq, l.dv), same = place_rows(m, l.batch, l.tq, l.dv);
        memory_seal(m);
        OK(forward(&l, &f->params, &out, NULL, 0));
        OK(forward(&l, &by_mask, &same, NULL, 0));
        assert_true(equal_bits(&same, &out));
        attn_alignment_destroy(l.alignment);
        memory_destroy(m);
    }
}

/* ---------------------------------------------------------------- refusals -- */

static void test_refusals(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("additive refusals", 0);
    struct layer l = {.batch = 1, .tq = 3, .tk = 7, .dv = 5};
    make_layer(&l, m, 4, 0);
    const attn_tensor out = place_rows(m, 1, 3, 5), weights = place_dense(m, 1, 1, 3, 7);
    const attn_params p = attn_params_default();
    memory_seal(m);
#define PARAMS(assignment) forward(&l, CHANGED(attn_params, p, assignment), &out, NULL, 0)
    const float one[1] = {1};
    const int64_t row[1] = {0};
    const int32_t table[1] = {0};
    const attn_relative_bias bias = {ATTN_BUCKETS_T5, 2, 4, one};
    const attn_dropout dropout = {.p = 0.5f};
    REFUSES(m, PARAMS(softcap = 1), ATTN_UNSUPPORTED,
            "params.softcap is set; ATTN_SCORE_ADDITIVE does not implement it");
    REFUSES(m, PARAMS(sinks = one), ATTN_UNSUPPORTED, "sinks");
    REFUSES(m, PARAMS(alibi_slopes = one), ATTN_UNSUPPORTED, "alibi_slopes");
    REFUSES(m, PARAMS(relative_bias = &bias), ATTN_UNSUPPORTED, "relative_bias");
    REFUSES(m, PARAMS(dropout = &dropout), ATTN_UNSUPPORTED, "dropout");
    REFUSES(m, PARAMS(scores = &weights), ATTN_UNSUPPORTED, "scores");
    REFUSES(m, PARAMS(score_stage = ATTN_SCORES_MASKED), ATTN_UNSUPPORTED, "score_stage");
    REFUSES(m, PARAMS(key_sums = &weights), ATTN_UNSUPPORTED, "key_sums");
    REFUSES(m, PARAMS(weight_rows = row), ATTN_UNSUPPORTED, "weight_rows");
    REFUSES(m, PARAMS(weight_callback = (attn_weight_callback *)(uintptr_t)1), ATTN_UNSUPPORTED, "weight_callback");
    REFUSES(m, PARAMS(isa = "scalar"), ATTN_UNSUPPORTED, "isa");
    REFUSES(m, PARAMS(qk = ATTN_QK_INT8), ATTN_UNSUPPORTED, "qk");
    REFUSES(m, PARAMS(block_table = table), ATTN_UNSUPPORTED, "block_table");
    REFUSES(m, PARAMS(inputs = (attn_inputs)7), ATTN_INVALID_ARGUMENT, "params.inputs is 7; expected an attn_inputs");
    const attn_window window = {.left = -2};
    const int64_t ends[2] = {0, 4}, falling[2] = {1, 0}, prefix[1] = {2};
    const attn_ragged ragged = {1, ends, falling};
    const attn_segments segments = {NULL, NULL};
    const attn_block_mask blocks = {.size = 10};
    const uint64_t bits[3] = {1, 1, 1};
    const attn_tree tree = {8, bits};
    REFUSES(m, PARAMS(window = &window), ATTN_INVALID_ARGUMENT, "window|left|-2");
    REFUSES(m, PARAMS(ragged = &ragged), ATTN_INVALID_ARGUMENT, "cu_seqlens_q[1]|4|3");
    REFUSES(m, PARAMS(prefix_len = prefix), ATTN_INVALID_ARGUMENT, "prefix_len");
    REFUSES(m, PARAMS(segments = &segments), ATTN_INVALID_ARGUMENT,
            "params.segments->q is NULL; expected 1 x 3 segments");
    REFUSES(m, PARAMS(block_mask = &blocks), ATTN_INVALID_ARGUMENT, "block_mask->size|10");
    REFUSES(m, PARAMS(tree = &tree), ATTN_INVALID_ARGUMENT, "tree->tokens|8|7");
    REFUSES(m, PARAMS(weights = &l.q), ANY_ERROR, "weights");
    attn_tensor lse = attn_bhtd(l.v.data, 1, 1, 3, 1);
    REFUSES(m, PARAMS(lse = &lse), ATTN_INVALID_ARGUMENT, "params.lse|v");
    attn_tensor narrow = out;
    narrow.dtype = ATTN_I8;
    REFUSES(m, forward(&l, &p, &narrow, NULL, 0), ATTN_UNSUPPORTED, "out|i8");
    /* Nothing is read of rows of so many channels. */
    const int64_t channels = INT64_C(1) << 31;
    attn_tensor wide_v = attn_btc((float *)((uintptr_t)1 << 40), 1, 7, channels), wide = wide_v;
    wide.data = (float *)((uintptr_t)1 << 41), wide.shape[2] = 3;
    REFUSES(m, attn_alignment_forward(l.alignment, &l.q, &l.projected, &wide_v, &wide, NULL, NULL, 0), ATTN_UNSUPPORTED,
            "v.shape[3] is 2147483648; ATTN_SCORE_ADDITIVE goes up to 2147483647");
    assert_true(attn_alignment_workspace_size(l.alignment, 1, 3, 7, 5, CHANGED(attn_params, p, softcap = 1)) ==
                SIZE_MAX);
    assert_true(attn_alignment_workspace_size(l.alignment, 1, 3, 7, INT64_MAX / 4, NULL) == SIZE_MAX);
    assert_true(attn_alignment_workspace_size(l.alignment, INT64_MAX / 4, 3, INT64_MAX / 4, 5, NULL) == SIZE_MAX);
    nn_end_refusals();
    attn_alignment_destroy(l.alignment);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small),           cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_splits),          cmocka_unit_test(test_company),
                                       cmocka_unit_test(test_rules_and_masks), cmocka_unit_test(test_refusals)};
    return NN_MAIN(tests);
}
