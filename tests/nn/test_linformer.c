/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linformer: against the oracle with random sizes, layouts, types and options,
 * with NaN in padding; equal bits, workspaces, empty sequences, wrong arguments.
 */
#include "options.h"

/* --------------------------------------------------------- random operands -- */

/** (batch, heads, tokens, channels), unwritten, of either order of heads and tokens, with gaps. */
static attn_tensor place_heads(struct memory *m, attn_dtype dtype, int64_t batch, int64_t heads, int64_t tokens,
                               int64_t channels)
{
    const int by_token = rng_percent(&m->rng, 50);
    attn_tensor t = by_token ? place_rows_of(m, dtype, batch, tokens, heads * channels)
                             : place_rows_of(m, dtype, batch * heads, tokens, channels);
    t.shape[0] = batch, t.shape[1] = heads, t.shape[3] = channels;
    t.stride[1] = by_token ? channels : t.stride[0];
    t.stride[0] = by_token ? t.stride[0] : heads * t.stride[0];
    return t;
}

static attn_tensor random_heads(struct memory *m, attn_dtype dtype, int64_t batch, int64_t heads, int64_t tokens,
                                int64_t channels)
{
    const attn_tensor t = place_heads(m, dtype, batch, heads, tokens, channels);
    fill(m, &t, 1);
    return t;
}

/** (1, heads, rank, columns), now and then by columns. */
static attn_tensor place_projection(struct memory *m, attn_dtype dtype, int64_t heads, int64_t rank, int64_t columns)
{
    attn_tensor t = place_matrix(m, dtype, heads * rank, columns);
    t.shape[1] = heads, t.shape[2] = rank;
    t.stride[1] = rank * t.stride[2];
    return t;
}

static attn_tensor random_projection(struct memory *m, int64_t heads, int64_t rank, int64_t columns)
{
    const attn_tensor t = place_projection(m, random_dtype(m), heads, rank, columns);
    fill(m, &t, 1 / sqrt((double)columns + 1));
    return t;
}

/** NaN and infinities in the tokens of a sequence from one on. */
static void poison_tokens(const attn_tensor *t, int64_t b, int64_t first)
{
    for (int64_t h = 0; h < t->shape[1]; h++)
        for (int64_t j = first; j < t->shape[2]; j++)
            for (int64_t c = 0; c < t->shape[3]; c++)
                tensor_set(t, b, h, j, c, (j + c) % 3 ? NAN : INFINITY);
}

/** The same in the columns of a projection. */
static void poison_columns(const attn_tensor *t, int64_t first)
{
    for (int64_t h = 0; h < t->shape[1]; h++)
        for (int64_t i = 0; i < t->shape[2]; i++)
            for (int64_t j = first; j < t->shape[3]; j++)
                tensor_set(t, 0, h, i, j, (i + j) % 3 ? NAN : -INFINITY);
}

static double root_mean_square(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

/** Options that are about scores and weights. */
static attn_params random_params(struct memory *m, int64_t heads, attn_dropout *dropout)
{
    attn_params p = attn_params_default();
    p.num_threads = (int)rng_range(&m->rng, 0, 3);
    p.scale = rng_percent(&m->rng, 20) ? 0.5f : 0;
    p.temperature = rng_percent(&m->rng, 20) ? 1.5f : 0;
    p.softcap = rng_percent(&m->rng, 15) ? 2 : 0;
    float *scales = bytes(m, (size_t)heads * sizeof *scales), *sinks = bytes(m, (size_t)heads * sizeof *sinks);
    for (int64_t h = 0; h < heads; h++) {
        scales[h] = (float)(0.5 + rng_uniform(&m->rng));
        sinks[h] = rng_normal(&m->rng);
    }
    p.head_scale = rng_percent(&m->rng, 20) ? scales : NULL;
    p.sinks = rng_percent(&m->rng, 15) ? sinks : NULL;
    *dropout = (attn_dropout){.p = 0.3f, .seed = rng_bits(&m->rng), .offset = 5};
    p.dropout = rng_percent(&m->rng, 15) ? dropout : NULL;
    return p;
}

/* ---------------------------------------------------------- against oracle -- */

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(400); n++) {
        struct memory *m = memory_create("linformer against_oracle", n);
        struct rng *rng = &m->rng;
        run_in(m, random_activations(m));
        const int64_t batch = RNG_PICK(rng, 1, 1, 2, 3, 0), kv_heads = RNG_PICK(rng, 1, 1, 2, 3);
        const int64_t heads = kv_heads * RNG_PICK(rng, 1, 1, 2), tq = RNG_PICK(rng, 0, 1, 1, 2, 5, 17, 49);
        const int64_t tk = RNG_PICK(rng, 0, 1, 2, 15, 17, 70, 300, 1100, 2100);
        const int64_t r = RNG_PICK(rng, 0, 1, 1, 2, 7, 16, 33, 97, 130);
        const int64_t dk = RNG_PICK(rng, 1, 3, 8, 16, 25, 64), dv = RNG_PICK(rng, 1, 3, 8, 16, 25, 70);
        const int64_t columns = tk + RNG_PICK(rng, 0, 0, 1, 30);
        /* The coarsest of the types is what the naive computation runs in. */
        const attn_dtype type = m->dtype, finer = rng_percent(rng, 70) ? type : ATTN_F32;
        const attn_tensor q = random_heads(m, finer, batch, heads, tq, dk);
        const attn_tensor k = random_heads(m, type, batch, kv_heads, tk, dk);
        const attn_tensor v = random_heads(m, finer, batch, kv_heads, tk, dv);
        const attn_tensor out = place_heads(m, type, batch, heads, tq, dv);
        const attn_tensor e = random_projection(m, rng_percent(rng, 50) ? kv_heads : 1, r, columns);
        const attn_tensor f = random_projection(m, rng_percent(rng, 50) ? kv_heads : 1, r, tk);
        const int shares = rng_percent(rng, 30);
        attn_dropout dropout;
        attn_params p = random_params(m, heads, &dropout);
        int64_t *kv_len = rng_percent(rng, 60) ? bytes(m, (size_t)batch * sizeof *kv_len) : NULL, longest = 0;
        for (int64_t b = 0; b < batch; b++) {
            const int64_t length = kv_len ? kv_len[b] = rng_percent(rng, 15) ? 0 : rng_range(rng, 0, tk) : tk;
            poison_tokens(&k, b, length);
            poison_tokens(&v, b, length);
            longest = longest > length ? longest : length;
        }
        poison_columns(&e, longest);
        poison_columns(&f, longest);
        p.kv_len = kv_len;
        const attn_tensor lse = place_dense(m, batch, heads, tq, 1), weights = place_dense(m, batch, heads, tq, r);
        p.lse = rng_percent(rng, 50) ? &lse : NULL;
        p.weights = rng_percent(rng, 40) ? &weights : NULL;
        memory_seal(m);
        OK(attn_linformer_forward(&q, &k, &v, &e, shares ? NULL : &f, &out, &p, NULL, 0));

        const attn_tensor *const fs = shares ? &e : &f;
        const struct oracle_linformer l = {
            {batch, heads, kv_heads, tq, r, dk, dv},
            tk,
            {read_all(m, &e), e.shape[1], e.shape[3], k.dtype},
            {read_all(m, fs), fs->shape[1], fs->shape[3], v.dtype},
        };
        const int64_t rows = batch * heads * tq;
        const double *qs = read_all(m, &q), *ks = read_all(m, &k), *vs = read_all(m, &v);
        const struct trio keys = trio(m, batch * r * kv_heads * dk), y = trio(m, rows * dv), w = trio(m, rows * r);
        const struct trio ls = trio(m, rows);
        for (int o = 0; o < ORACLES; o++)
            oracle_take(o)->linformer(&l, qs, ks, vs, &p, keys.of[o], y.of[o], w.of[o], ls.of[o]);
        const double scale = (p.scale != 0 ? (double)p.scale : 1 / sqrt((double)dk)) * 1.5;
        const double score = scale * root_mean_square(qs, rows * dk) * sqrt((double)dk) *
                             root_mean_square(keys.of[0], batch * r * kv_heads * dk);
        judge(NN_LINFORMER, "out", &out, y.of, softmax_sizes(m, y.of[0], rows, dv, 0.3, &score, rows));
        if (p.weights)
            judge(NN_WEIGHTS, "weights", &weights, w.of,
                  softmax_sizes(m, w.of[0], rows * r, 1, 0.05, &score, rows * r));
        if (p.lse)
            judge(NN_LINFORMER, "lse", &lse, ls.of, softmax_sizes(m, ls.of[0], rows, 1, 1, &score, rows));

        const size_t size = attn_linformer_workspace_size(&q, &k, &v, &e, shares ? NULL : &f, &out, &p);
        void *workspace = place_workspace(m, size);
        const attn_tensor again = place_heads(m, type, batch, heads, tq, dv);
        OK(attn_linformer_forward(&q, &k, &v, &e, shares ? NULL : &f, &again, &p, workspace, size));
        assert_true(equal_bits(&again, &out));
        memory_destroy(m);
    }
}

/** Two keys become two sums, and one query weighs them. */
static void test_by_hand(void **state)
{
    (void)state;
    const float q_data[1] = {1}, k_data[3] = {1, 2, 4}, v_data[3] = {3, 5, 7};
    const float e_data[2 * 4] = {1, 0, -0.5f, NAN, 0, 0.25f, 0.125f, NAN}, f_data[2 * 3] = {1, 1, 0, 0, 1, 1};
    float out_data[1];
    const attn_tensor q = attn_btc(q_data, 1, 1, 1), k = attn_btc(k_data, 1, 3, 1), v = attn_btc(v_data, 1, 3, 1);
    const attn_tensor e = attn_matrix(e_data, 2, 4), f = attn_matrix(f_data, 2, 3), out = attn_btc(out_data, 1, 1, 1);
    OK(attn_linformer_forward(&q, &k, &v, &e, &f, &out, NULL, NULL, 0));
    /* Keys 1 - 2 = -1 and 0.5 + 0.5 = 1; values 3 + 5 = 8 and 5 + 7 = 12. */
    assert_true(fabs((double)out_data[0] - (8 * exp(-1) + 12 * exp(1)) / (exp(-1) + exp(1))) < 1e-5);
    OK(attn_linformer_forward(&q, &k, &v, &e, NULL, &out, NULL, NULL, 0));
    /* The same values as keys: 3 - 3.5 = -0.5 and 1.25 + 0.875 = 2.125. */
    assert_true(fabs((double)out_data[0] - (-0.5 * exp(-1) + 2.125 * exp(1)) / (exp(-1) + exp(1))) < 1e-5);
}

static void test_no_keys(void **state)
{
    (void)state;
    struct memory *m = memory_create("linformer no_keys", 0);
    const attn_tensor q = random_heads(m, ATTN_F32, 2, 2, 5, 8), k = random_heads(m, ATTN_F32, 2, 1, 9, 8);
    const attn_tensor out = place_heads(m, ATTN_F32, 2, 2, 5, 8), lse = place_dense(m, 2, 2, 5, 1);
    const attn_tensor e = random_projection(m, 1, 3, 9), weights = place_dense(m, 2, 2, 5, 3);
    const int64_t kv_len[] = {9, 0};
    attn_params p = attn_params_default();
    p.kv_len = kv_len, p.lse = &lse, p.weights = &weights;
    poison_tokens(&k, 1, 0);
    OK(attn_linformer_forward(&q, &k, &k, &e, NULL, &out, &p, NULL, 0));
    for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < 5; i++) {
            assert_true(isfinite(tensor_get(&lse, 0, h, i, 0)));
            assert_true(tensor_get(&lse, 1, h, i, 0) == -INFINITY);
            for (int64_t c = 0; c < 8; c++)
                assert_true(tensor_get(&out, 1, h, i, c) == 0);
            for (int64_t j = 0; j < 3; j++)
                assert_true(tensor_get(&weights, 1, h, i, j) == 0);
        }
    memory_destroy(m);
}

/* -------------------------------------------------------------------- bits -- */

/** What stands in all of one is copied to the first tokens, or columns, of the other; the rest is poisoned. */
static attn_tensor with_padding(struct memory *m, const attn_tensor *t, int64_t b, int64_t length, int64_t tokens)
{
    const attn_tensor padded = place_heads(m, t->dtype, 1, t->shape[1], tokens, t->shape[3]);
    for (int64_t h = 0; h < t->shape[1]; h++)
        for (int64_t j = 0; j < length; j++)
            for (int64_t c = 0; c < t->shape[3]; c++)
                tensor_set(&padded, 0, h, j, c, tensor_get(t, b, h, j, c));
    poison_tokens(&padded, 0, length);
    mark_input(m, &padded);
    return padded;
}

static attn_tensor with_columns(struct memory *m, const attn_tensor *t, int64_t length, int64_t columns)
{
    const attn_tensor longer = place_projection(m, t->dtype, t->shape[1], t->shape[2], columns);
    for (int64_t h = 0; h < t->shape[1]; h++)
        for (int64_t i = 0; i < t->shape[2]; i++)
            for (int64_t j = 0; j < length; j++)
                tensor_set(&longer, 0, h, i, j, tensor_get(t, 0, h, i, j));
    poison_columns(&longer, length);
    mark_input(m, &longer);
    return longer;
}

/** Some queries of one sequence by themselves, with other padding, layouts and threads. */
static void test_row_bits(void **state)
{
    (void)state;
    enum { BATCH = 4, HEADS = 4, KV_HEADS = 2 };
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("linformer row_bits", n);
        struct rng *rng = &m->rng;
        run_in(m, random_activations(m));
        const int64_t tq = RNG_PICK(rng, 1, 7, 33, 100), tk = RNG_PICK(rng, 9, 64, 130, 600, 1500);
        const int64_t r = RNG_PICK(rng, 1, 7, 64, 100, 200), dk = RNG_PICK(rng, 8, 40), dv = RNG_PICK(rng, 20, 64, 300);
        const attn_tensor q = random_heads(m, m->dtype, BATCH, HEADS, tq, dk);
        const attn_tensor k = random_heads(m, m->dtype, BATCH, KV_HEADS, tk, dk);
        const attn_tensor v = random_heads(m, m->dtype, BATCH, KV_HEADS, tk, dv);
        const attn_tensor e = random_projection(m, KV_HEADS, r, tk), f = random_projection(m, 1, r, tk);
        const attn_tensor all = place_heads(m, m->dtype, BATCH, HEADS, tq, dv);
        int64_t kv_len[BATCH];
        attn_params p = attn_params_default();
        for (int b = 0; b < BATCH; b++)
            kv_len[b] = b == 0 ? tk : rng_range(rng, 0, tk);
        p.kv_len = kv_len;
        p.num_threads = 1;
        OK(attn_linformer_forward(&q, &k, &v, &e, &f, &all, &p, NULL, 0));
        for (int try = 0; try < 6; try++) {
            const int64_t b = rng_range(rng, 0, BATCH - 1), length = kv_len[b];
            const int64_t tokens = length + RNG_PICK(rng, 0, 1, 40);
            const int64_t queries = tq < 7 ? tq : RNG_PICK(rng, 1, 2, 7, tq), at = rng_range(rng, 0, tq - queries);
            const attn_tensor some = slice(&q, b, at, queries), expected = slice(&all, b, at, queries);
            const attn_tensor its_k = with_padding(m, &k, b, length, tokens);
            const attn_tensor its_v = with_padding(m, &v, b, length, tokens);
            const attn_tensor its_e = with_columns(m, &e, length, tokens + RNG_PICK(rng, 0, 9));
            const attn_tensor its_f = with_columns(m, &f, length, tokens + RNG_PICK(rng, 0, 9));
            const attn_tensor out = place_heads(m, m->dtype, 1, HEADS, queries, dv);
            p.kv_len = tokens > length ? &length : NULL;
            p.num_threads = 1 + try % 3;
            OK(attn_linformer_forward(&some, &its_k, &its_v, &its_e, &its_f, &out, &p, NULL, 0));
            assert_true(equal_bits(&out, &expected));
        }
        memory_destroy(m);
    }
}

/** The whole call with any number of threads. */
static void test_thread_bits(void **state)
{
    (void)state;
    struct memory *m = memory_create("linformer thread_bits", 0);
    const attn_tensor q = random_heads(m, ATTN_F32, 2, 4, 300, 64), k = random_heads(m, ATTN_F32, 2, 4, 1300, 64);
    const attn_tensor e = random_projection(m, 4, 150, 1300), one = place_heads(m, ATTN_F32, 2, 4, 300, 64);
    attn_params p = attn_params_default();
    p.num_threads = 1;
    OK(attn_linformer_forward(&q, &k, &k, &e, NULL, &one, &p, NULL, 0));
    for (p.num_threads = 2; p.num_threads < 9; p.num_threads += 3) {
        const attn_tensor out = place_heads(m, ATTN_F32, 2, 4, 300, 64);
        OK(attn_linformer_forward(&q, &k, &k, &e, NULL, &out, &p, NULL, 0));
        assert_true(equal_bits(&out, &one));
    }
    memory_destroy(m);
}

/** Rows of the projections are the keys that callbacks see. */
static void add_half_to_key_2(const attn_score_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries && tile->first_key + j == 2; i++)
            tile->scores[j * tile->key_stride + i] += 0.5f;
}

static void test_callback(void **state)
{
    (void)state;
    struct memory *m = memory_create("linformer callback", 0);
    const attn_tensor q = random_heads(m, ATTN_F32, 1, 1, 4, 8), k = random_heads(m, ATTN_F32, 1, 1, 30, 8);
    const attn_tensor e = random_projection(m, 1, 5, 30), out = place_heads(m, ATTN_F32, 1, 1, 4, 8);
    const attn_tensor before = place_dense(m, 1, 1, 4, 5), after = place_dense(m, 1, 1, 4, 5);
    attn_params p = attn_params_default();
    p.scores = &before, p.score_stage = ATTN_SCORES_MASKED;
    OK(attn_linformer_forward(&q, &k, &k, &e, NULL, &out, &p, NULL, 0));
    p.scores = &after, p.callback = add_half_to_key_2;
    OK(attn_linformer_forward(&q, &k, &k, &e, NULL, &out, &p, NULL, 0));
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < 5; j++) {
            const double more = (double)tensor_get(&after, 0, 0, i, j) - (double)tensor_get(&before, 0, 0, i, j);
            assert_true(fabs(more - (j == 2 ? 0.5 : 0)) < 1e-5);
        }
    memory_destroy(m);
}

/* ---------------------------------------------------------------- refusals -- */

struct operands {
    attn_tensor q, k, v, e, f, out;
};

static struct operands small_operands(struct memory *m)
{
    const struct operands o = {place_dense(m, 2, 4, 3, 6), place_dense(m, 2, 2, 7, 6), place_dense(m, 2, 2, 7, 8),
                               place_dense(m, 1, 2, 5, 9), place_dense(m, 1, 1, 5, 7), place_dense(m, 2, 4, 3, 8)};
    const attn_tensor *const inputs[] = {&o.q, &o.k, &o.v, &o.e, &o.f};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        fill(m, inputs[i], 1);
    return o;
}

#define FORWARD(q, k, v, e, f, out, params) attn_linformer_forward(q, k, v, e, f, out, params, NULL, 0)
#define T(name, assignment)                 CHANGED(attn_tensor, o.name, assignment)

static void test_tensors_refused(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("linformer tensors_refused", 0);
    const struct operands o = small_operands(m);
    memory_seal(m);
#define TRY(q, k, v, e, f, out, status, words) REFUSES(m, FORWARD(q, k, v, e, f, out, NULL), status, words)
    TRY(NULL, &o.k, &o.v, &o.e, &o.f, &o.out, ATTN_INVALID_ARGUMENT, "q is NULL");
    TRY(&o.q, NULL, &o.v, &o.e, &o.f, &o.out, ATTN_INVALID_ARGUMENT, "k is NULL");
    TRY(&o.q, &o.k, NULL, &o.e, &o.f, &o.out, ATTN_INVALID_ARGUMENT, "v is NULL");
    TRY(&o.q, &o.k, &o.v, NULL, &o.f, &o.out, ATTN_INVALID_ARGUMENT, "e is NULL; expected a tensor");
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, NULL, ATTN_INVALID_ARGUMENT, "out is NULL");
    /* Projections of a wrong length, rank or number of heads. */
    TRY(&o.q, &o.k, &o.v, T(e, shape[3] = 6), &o.f, &o.out, ATTN_SHAPE_MISMATCH, "e.shape[3] is 6|7|tokens of k");
    TRY(&o.q, &o.k, &o.v, &o.e, T(f, shape[3] = 6), &o.out, ATTN_SHAPE_MISMATCH, "f.shape[3] is 6|7|tokens of k");
    TRY(&o.q, &o.k, &o.v, &o.e, T(f, shape[2] = 4), &o.out, ATTN_SHAPE_MISMATCH, "f.shape[2] is 4|5|rows of e");
    TRY(&o.q, &o.k, &o.v, T(e, shape[1] = 4), &o.f, &o.out, ATTN_SHAPE_MISMATCH, "e.shape[1] is 4|1 or 2");
    TRY(&o.q, &o.k, &o.v, &o.e, T(f, shape[1] = 3), &o.out, ATTN_SHAPE_MISMATCH, "f.shape[1] is 3|1 or 2");
    TRY(&o.q, &o.k, &o.v, T(e, shape[0] = 2), &o.f, &o.out, ATTN_SHAPE_MISMATCH,
        "e.shape[0] is 2; expected 1, as all sequences have the same projection");
    TRY(&o.q, &o.k, &o.v, T(e, dtype = ATTN_I8), &o.f, &o.out, ATTN_UNSUPPORTED, "e.dtype is i8");
    TRY(&o.q, &o.k, &o.v, &o.e, T(f, dtype = ATTN_BOOL), &o.out, ATTN_UNSUPPORTED, "f.dtype is bool");
    TRY(&o.q, &o.k, &o.v, T(e, data = NULL), &o.f, &o.out, ATTN_INVALID_ARGUMENT,
        "e.data is NULL; expected 1 x 2 x 5 x 9 elements");
    TRY(&o.q, &o.k, &o.v, T(e, shape[2] = -5), &o.f, &o.out, ATTN_INVALID_ARGUMENT,
        "e.shape[2] is -5; expected 0 or more");
    TRY(&o.q, &o.k, &o.v, T(e, stride[2] = INT64_MAX), &o.f, &o.out, ATTN_SIZE_OVERFLOW, "e.stride[2]");
    /* The others. */
    TRY(&o.q, T(k, dtype = ATTN_I8), &o.v, &o.e, &o.f, &o.out, ATTN_UNSUPPORTED, "k.dtype is i8");
    TRY(&o.q, &o.k, T(v, dtype = ATTN_U8), &o.e, &o.f, &o.out, ATTN_UNSUPPORTED, "v.dtype is u8");
    TRY(T(q, dtype = ATTN_I8), &o.k, &o.v, &o.e, &o.f, &o.out, ATTN_UNSUPPORTED, "q.dtype is i8");
    TRY(&o.q, T(k, stride[3] = 2), &o.v, &o.e, &o.f, &o.out, ATTN_INVALID_ARGUMENT, "k.stride[3] is 2");
    TRY(&o.q, &o.k, T(v, stride[3] = 2), &o.e, &o.f, &o.out, ATTN_INVALID_ARGUMENT, "v.stride[3] is 2");
    TRY(&o.q, &o.k, T(v, shape[2] = 6), &o.e, &o.f, &o.out, ATTN_SHAPE_MISMATCH, "v.shape[2] is 6|7");
    TRY(&o.q, &o.k, T(v, shape[1] = 1), &o.e, &o.f, &o.out, ATTN_SHAPE_MISMATCH, "v.shape[1] is 1|2");
    TRY(&o.q, &o.k, T(v, shape[0] = 1), &o.e, &o.f, &o.out, ATTN_SHAPE_MISMATCH,
        "v.shape[0] is 1; expected 2, the batch of k");
    TRY(T(q, shape[0] = 1), &o.k, &o.v, &o.e, &o.f, &o.out, ATTN_SHAPE_MISMATCH, "k.shape[0] is 2|1");
    TRY(T(q, shape[1] = 3), &o.k, &o.v, &o.e, &o.f, T(out, shape[1] = 3), ATTN_SHAPE_MISMATCH, "q.shape[1] is 3|2");
    TRY(T(q, shape[3] = 5), &o.k, &o.v, &o.e, &o.f, &o.out, ATTN_SHAPE_MISMATCH,
        "k.shape[3] is 6; expected 5, the head size of q");
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, T(out, shape[3] = 7), ATTN_SHAPE_MISMATCH,
        "out.shape[3] is 7; expected 8, the head size of v");
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, T(out, shape[2] = 2), ATTN_SHAPE_MISMATCH, "out.shape[2] is 2|3");
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, T(out, stride[2] = 1), ATTN_INVALID_ARGUMENT, "out.stride|overlap");
    /* Outputs that lie on what is read. */
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, T(out, data = o.q.data), ATTN_INVALID_ARGUMENT, "out|q");
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, T(out, data = o.k.data), ATTN_INVALID_ARGUMENT, "out|k");
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, T(out, data = o.v.data), ATTN_INVALID_ARGUMENT, "out|v");
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, T(out, data = o.e.data), ATTN_INVALID_ARGUMENT, "out|e");
    TRY(&o.q, &o.k, &o.v, &o.e, &o.f, T(out, data = o.f.data), ATTN_INVALID_ARGUMENT, "out|f");
#undef TRY
    /* Sizes that no memory has, of which nothing is there. */
    attn_tensor none = o.k, wide = o.e;
    none.shape[0] = 0, wide.shape[1] = 1, wide.shape[2] = INT64_MAX / 64;
    assert_true(attn_linformer_workspace_size(T(q, shape[0] = 0), &none, WITHIN(attn_tensor, o.v, shape[0] = 0), &wide,
                                              NULL, &o.out, NULL) == SIZE_MAX);
    assert_true(attn_linformer_workspace_size(&o.q, &o.k, &o.v, NULL, NULL, &o.out, NULL) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

static void test_options_refused(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("linformer options_refused", 0);
    const struct operands o = small_operands(m);
    const attn_tensor lse = place_dense(m, 2, 4, 3, 1), weights = place_dense(m, 2, 4, 3, 5);
    const attn_tensor sums = place_dense(m, 2, 4, 1, 5), mask = place_dense(m, 1, 1, 3, 5);
    const int64_t lengths[] = {7, 8}, negative[] = {-1, 7}, starts[] = {0, 0}, good[] = {7, 3};
    const attn_window window = {.left = 3};
    const attn_rope_tables rope = {0};
    const attn_relative_bias bias = {0};
    const attn_disentangled terms = {0};
    const attn_block_mask blocks = {0};
    const attn_segments segments = {0};
    const attn_tree tree = {0};
    const attn_ragged ragged = {0};
    const int32_t table[] = {0};
    const float slopes[] = {0, 0, 0, 0};
    const attn_executor executor = attn_executor_default();
    attn_params p = attn_params_default();
    fill(m, &mask, 1);
    const size_t size = attn_linformer_workspace_size(&o.q, &o.k, &o.v, &o.e, &o.f, &o.out, NULL);
    void *workspace = place_workspace(m, size);
    memory_seal(m);
#define TRY(assignment, status, words)                                                                                 \
    REFUSES(m, FORWARD(&o.q, &o.k, &o.v, &o.e, &o.f, &o.out, CHANGED(attn_params, p, assignment)), status, words)
    TRY(causal = ATTN_CAUSAL_TOP_LEFT, ATTN_UNSUPPORTED, "params.causal is set|positions");
    TRY(query_offset = starts, ATTN_UNSUPPORTED, "params.query_offset");
    TRY(kv_start = starts, ATTN_UNSUPPORTED, "params.kv_start");
    TRY(prefix_len = starts, ATTN_UNSUPPORTED, "params.prefix_len");
    TRY(window = &window, ATTN_UNSUPPORTED, "params.window");
    TRY(block_mask = &blocks, ATTN_UNSUPPORTED, "params.block_mask");
    TRY(segments = &segments, ATTN_UNSUPPORTED, "params.segments");
    TRY(tree = &tree, ATTN_UNSUPPORTED, "params.tree");
    TRY(mask = &mask, ATTN_UNSUPPORTED,
        "params.mask is set; attn_linformer_forward() cannot have it, as a projected key is a sum");
    TRY(alibi_slopes = slopes, ATTN_UNSUPPORTED, "params.alibi_slopes");
    TRY(relative_bias = &bias, ATTN_UNSUPPORTED, "params.relative_bias");
    TRY(disentangled = &terms, ATTN_UNSUPPORTED, "params.disentangled");
    TRY(rope = &rope, ATTN_UNSUPPORTED, "params.rope");
    TRY(ragged = &ragged, ATTN_UNSUPPORTED, "params.ragged");
    TRY(block_table = table, ATTN_UNSUPPORTED, "params.block_table");
    TRY(block_table_stride = 1, ATTN_UNSUPPORTED, "params.block_table_stride");
    TRY(page_size = 16, ATTN_UNSUPPORTED, "params.page_size");
    TRY(q_scale = &mask, ATTN_UNSUPPORTED, "params.q_scale");
    TRY(k_scale = &mask, ATTN_UNSUPPORTED, "params.k_scale");
    TRY(v_scale = &mask, ATTN_UNSUPPORTED, "params.v_scale");
    TRY(kv_len = lengths, ATTN_INVALID_ARGUMENT, "params.kv_len[1] is 8|0 to 7|tokens of k");
    TRY(kv_len = negative, ATTN_INVALID_ARGUMENT, "params.kv_len[0] is -1");
    TRY(struct_size = 2, ATTN_INVALID_ARGUMENT, "struct_size|2");
    TRY(scale = NAN, ATTN_INVALID_ARGUMENT, "params.scale");
    TRY(temperature = -1, ATTN_INVALID_ARGUMENT, "params.temperature");
    TRY(num_threads = -1, ATTN_INVALID_ARGUMENT, "params.num_threads is -1");
    TRY(isa = "none", ATTN_INVALID_ARGUMENT, "params.isa");
    TRY(executor = &executor, ATTN_INVALID_ARGUMENT, "params.executor.num_threads is 0");
    /* Outputs on request: as wide as there are projected keys, and apart from everything. */
    TRY(weights = WITHIN(attn_tensor, weights, shape[3] = 7), ATTN_SHAPE_MISMATCH,
        "params.weights.shape[3] is 7|5|rows of e");
    TRY(scores = WITHIN(attn_tensor, weights, shape[3] = 7), ATTN_SHAPE_MISMATCH, "params.scores.shape[3] is 7|5");
    TRY(key_sums = WITHIN(attn_tensor, sums, shape[3] = 7), ATTN_SHAPE_MISMATCH, "params.key_sums.shape[3] is 7|5");
    TRY(lse = WITHIN(attn_tensor, lse, shape[2] = 2), ATTN_SHAPE_MISMATCH, "params.lse.shape[2] is 2|3");
    TRY(lse = WITHIN(attn_tensor, lse, data = o.e.data), ATTN_INVALID_ARGUMENT, "params.lse|e");
    TRY(weights = WITHIN(attn_tensor, weights, data = o.v.data), ATTN_INVALID_ARGUMENT, "params.weights|v");
    TRY(scores = WITHIN(attn_tensor, weights, data = o.k.data), ATTN_INVALID_ARGUMENT, "params.scores|k");
    TRY(key_sums = WITHIN(attn_tensor, sums, data = o.f.data), ATTN_INVALID_ARGUMENT, "params.key_sums|f");
    TRY(lse = WITHIN(attn_tensor, lse, data = o.out.data), ATTN_INVALID_ARGUMENT, "params.lse|out");
    p.kv_len = good;
    TRY(lse = WITHIN(attn_tensor, lse, data = (void *)(uintptr_t)good), ATTN_INVALID_ARGUMENT, "params.lse|kv_len");
#undef TRY
    REFUSES(m, attn_linformer_forward(&o.q, &o.k, &o.v, &o.e, &o.f, &o.out, NULL, workspace, 7),
            ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 7");
    assert_true(said_least() <= size);
    assert_true(attn_linformer_workspace_size(&o.q, &o.k, &o.v, &o.e, &o.f, &o.out,
                                              CHANGED(attn_params, p, causal = ATTN_CAUSAL_TOP_LEFT)) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_oracle),  cmocka_unit_test(test_by_hand),         cmocka_unit_test(test_no_keys),
        cmocka_unit_test(test_row_bits),        cmocka_unit_test(test_thread_bits),     cmocka_unit_test(test_callback),
        cmocka_unit_test(test_tensors_refused), cmocka_unit_test(test_options_refused),
    };
    return NN_MAIN(tests);
}
