/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Score functions and pooling: against the oracle with random sizes and
 * options, padding that holds NaN, equal bits, workspaces, wrong arguments.
 */
#include "options.h"
#include "oracle_score.h"

struct layer {
    attn_alignment_config config;
    struct oracle_alignment oracle;
    attn_alignment *alignment;
};

static void layer_create(struct layer *l, struct memory *m, attn_score score)
{
    struct rng *rng = &m->rng;
    memset(l, 0, sizeof *l);
    attn_alignment_config *c = &l->config;
    *c = attn_alignment_config_default();
    c->score = score;
    c->d_query = RNG_PICK(rng, 1, 3, 8, 16, 17, 33, 64);
    c->d_key =
        score == ATTN_SCORE_GENERAL || score == ATTN_SCORE_ADDITIVE ? RNG_PICK(rng, 1, 5, 8, 24, 40) : c->d_query;
    c->temperature = rng_percent(rng, 40) ? 0 : (float)(0.3 + 2 * rng_uniform(rng));
    l->oracle =
        (struct oracle_alignment){score, c->d_query, c->d_key, 0, (double)c->temperature, NULL, NULL, NULL, NULL};
    if (score == ATTN_SCORE_GENERAL) {
        c->w_k = random_matrix(m, random_dtype(m), c->d_query, c->d_key, 1 / sqrt((double)c->d_key));
    } else if (score == ATTN_SCORE_ADDITIVE) {
        c->d_attention = l->oracle.d_attention = RNG_PICK(rng, 1, 2, 7, 8, 9, 15, 16, 17, 31, 48, 50);
        c->w_q = random_matrix(m, random_dtype(m), c->d_attention, c->d_query, 1 / sqrt((double)c->d_query));
        c->w_k = random_matrix(m, random_dtype(m), c->d_attention, c->d_key, 1 / sqrt((double)c->d_key));
        c->v = random_vector(m, random_dtype(m), c->d_attention, 1, 0);
        l->oracle.w_q = read_all(m, &c->w_q);
        l->oracle.v = read_all(m, &c->v);
        if (rng_percent(rng, 70)) {
            c->bias = random_vector(m, random_dtype(m), c->d_attention, 0.5, 0);
            l->oracle.b = read_all(m, &c->bias);
        }
    }
    if (c->w_k.data)
        l->oracle.w_k = read_all(m, &c->w_k);
    OK(attn_alignment_create(&l->alignment, c));
    assert_int_equal(attn_alignment_projected(l->alignment),
                     score == ATTN_SCORE_ADDITIVE ? c->d_attention : c->d_query);
}

/** Makes some rows so large that tanh is 1 or -1 nearly everywhere: kernels have another way for them. */
static void enlarge_rows(struct memory *m, const attn_tensor *t)
{
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t i = 0; i < t->shape[2]; i++)
            if (rng_percent(&m->rng, 10))
                for (int64_t c = 0; c < t->shape[3]; c++)
                    tensor_set(t, b, 0, i, c, 24 * tensor_get(t, b, 0, i, c));
}

static double mean_square(const double *x, int64_t n)
{
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i])) {
            sum += x[i] * x[i];
            finite++;
        }
    return finite ? sum / (double)finite : 0;
}

/** How large the terms of a score are together, as if they were independent. */
static double score_size(const struct oracle_alignment *o, const double *q, int64_t num_q, const double *projected,
                         int64_t num_projected)
{
    const double temperature = o->temperature != 0 ? o->temperature : 1;
    if (o->score == ATTN_SCORE_ADDITIVE)
        return sqrt(mean_square(o->v, o->d_attention) * (double)o->d_attention) / temperature;
    const double size = sqrt(mean_square(q, num_q) * mean_square(projected, num_projected)) / temperature;
    return o->score == ATTN_SCORE_SCALED_DOT ? size : size * sqrt((double)o->d_query);
}

/** What projected keys are made from: the sums of the sizes of their terms. */
static double *sizes_projected(struct memory *m, const struct layer *l, int64_t rows, const double *keys,
                               const double *projected)
{
    const int64_t width = attn_alignment_projected(l->alignment);
    struct oracle_alignment sizes_of = l->oracle;
    sizes_of.w_k = l->oracle.w_k ? absolute(m, l->oracle.w_k, width * l->config.d_key) : NULL;
    sizes_of.b = l->oracle.b ? absolute(m, l->oracle.b, width) : NULL;
    double *sizes = zeros(m, rows * width);
    oracle_take(0)->align_project(&sizes_of, rows, absolute(m, keys, rows * l->config.d_key), sizes);
    for (int64_t i = 0; i < rows * width; i++)
        sizes[i] += fabs(projected[i]);
    return sizes;
}

/**
 * The size of the scores of each row: what all have, or what its keys have by their weights, if that is more. A row may
 * see only keys to which ALiBi gives -0.3 * 150, whatever their products are, or have its weights where a product is
 * many times larger than most.
 */
static double *sizes_of_rows(struct memory *m, const attn_params *p, int64_t batch, int64_t tq, int64_t tk,
                             const double *weights, const double *lse, double of_all)
{
    double *sizes = zeros(m, batch * tq);
    for (int64_t r = 0; r < batch * tq; r++) {
        const int64_t b = r / tq, i = r % tq;
        const struct oracle_query query = oracle_query_at(p, tq, tk, b, 0, i);
        double size = 0, sum = 0;
        for (int64_t j = 0; j < tk; j++) {
            const double weight = weights[r * tk + j];
            if (!(weight > 0)) /* hidden, dropped, or of a row that is NaN */
                continue;
            const double distance = p->alibi_slopes ? (double)oracle_distance(&query, j) : 0;
            const double terms = fabs(p->alibi_slopes ? (double)p->alibi_slopes[0] * distance : 0) +
                                 fabs((double)oracle_relative_bias(p, &query, j)) +
                                 fabs((double)oracle_bias(p, b, 0, i, j));
            size += weight * fmax(fabs(log(weight) + lse[r]), terms);
            sum += weight;
        }
        sizes[r] = sum > 0 ? fmax(of_all, size / sum) : of_all;
    }
    return sizes;
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(400); n++) {
        struct memory *m = memory_create("alignment against_oracle", n);
        const attn_score score = (attn_score)(n % 4);
        const int64_t batch = RNG_PICK(&m->rng, 1, 1, 2, 3, 0), tq = RNG_PICK(&m->rng, 0, 1, 1, 2, 5, 17, 26);
        const int64_t tk = RNG_PICK(&m->rng, 0, 1, 2, 15, 17, 49, 70, 300), dv = RNG_PICK(&m->rng, 1, 3, 8, 16, 25, 49);
        struct layer l;
        layer_create(&l, m, score);
        const struct options_for of = {batch, 1, 1, tq, tk, 0, score == ATTN_SCORE_ADDITIVE};
        struct options *o = random_options(m, &of);
        const int64_t width = attn_alignment_projected(l.alignment);
        const attn_tensor q = random_rows(m, batch, tq, l.config.d_query);
        const attn_tensor keys = random_rows(m, batch, tk, l.config.d_key), v = random_rows(m, batch, tk, dv);
        if (score == ATTN_SCORE_ADDITIVE && rng_percent(&m->rng, 30)) {
            enlarge_rows(m, &q);
            enlarge_rows(m, &keys);
        }
        const attn_tensor projected = place_rows(m, batch, tk, width), out = place_rows(m, batch, tq, dv);
        const attn_tensor lse = place_dense(m, batch, 1, tq, 1);
        if (rng_percent(&m->rng, 50))
            o->params.lse = &lse;
        for (int64_t b = 0; b < batch && o->kv_len; b++) /* padding may hold anything */
            for (int64_t j = o->kv_len[b]; j < tk; j++) {
                tensor_set(&keys, b, 0, j, j % l.config.d_key, j % 2 ? NAN : INFINITY);
                tensor_set(&v, b, 0, j, j % dv, j % 3 ? NAN : -INFINITY);
            }
        memory_seal(m);
        OK(attn_alignment_project(l.alignment, &keys, &projected, o->params.num_threads));
        OK(attn_alignment_forward(l.alignment, &q, &projected, &v, &out, &o->params, NULL, 0));

        const struct trio p = trio(m, batch * tk * width), y = trio(m, batch * tq * dv), w = trio(m, batch * tq * tk);
        const struct trio ls = trio(m, batch * tq);
        const double *qs = read_all(m, &q), *ks = read_all(m, &keys), *vs = read_all(m, &v);
        for (int k = 0; k < ORACLES; k++) {
            const struct oracle *oracle = oracle_take(k);
            oracle->align_project(&l.oracle, batch * tk, ks, p.of[k]);
            oracle->align(&l.oracle, batch, tq, tk, dv, qs, p.of[k], vs, &o->params, y.of[k], w.of[k], ls.of[k]);
        }
        judge(NN_LINEAR, "projected", &projected, p.of, sizes_projected(m, &l, batch * tk, ks, p.of[0]));
        const double size_of_score =
            score_size(&l.oracle, qs, batch * tq * l.config.d_query, p.of[0], batch * tk * width);
        const double *sizes = sizes_of_rows(m, &o->params, batch, tq, tk, w.of[0], ls.of[0], size_of_score);
        /* Where terms of both signs cancel, their sum is off by what they are off. */
        double *terms = zeros(m, batch * tq * dv);
        oracle_take(0)->align(&l.oracle, batch, tq, tk, dv, qs, p.of[0], absolute(m, vs, batch * tk * dv), &o->params,
                              terms, w.of[0], ls.of[0]);
        judge(NN_ALIGNMENT, "out", &out, y.of, softmax_sizes(m, terms, batch * tq, dv, 0.3, sizes, 1));
        if (o->params.weights)
            judge(NN_WEIGHTS, "weights", &o->weights, w.of,
                  softmax_sizes(m, w.of[0], batch * tq * tk, 1, 0.05, sizes, tk));
        if (o->params.lse) /* has the size of its row's scores itself */
            judge(NN_ALIGNMENT, "lse", &lse, ls.of,
                  softmax_sizes(m, ls.of[0], batch * tq, 1, 1, &size_of_score, batch * tq));

        const size_t size = attn_alignment_workspace_size(l.alignment, batch, tq, tk, dv, &o->params);
        void *workspace = place_workspace(m, size);
        const attn_tensor again = place_rows(m, batch, tq, dv);
        OK(attn_alignment_forward(l.alignment, &q, &projected, &v, &again, &o->params, workspace, size));
        assert_true(equal_bits(&again, &out));
        attn_alignment_destroy(l.alignment);
        memory_destroy(m);
    }
}

/** Three keys of one channel: the dot product, and an additive function of two channels with a temperature. */
static void test_by_hand(void **state)
{
    (void)state;
    attn_alignment_config c = attn_alignment_config_default();
    const float q_data[1] = {2}, k_data[3] = {0, 0.5f, -0.5f}, v_data[3] = {1, 10, 100};
    float projected_data[3], out_data[1];
    c.score = ATTN_SCORE_DOT, c.d_query = c.d_key = 1;
    attn_alignment *a;
    OK(attn_alignment_create(&a, &c));
    const attn_tensor q = attn_btc(q_data, 1, 1, 1), k = attn_btc(k_data, 1, 3, 1), v = attn_btc(v_data, 1, 3, 1);
    const attn_tensor projected = attn_btc(projected_data, 1, 3, 1), out = attn_btc(out_data, 1, 1, 1);
    OK(attn_alignment_project(a, &k, &projected, 0));
    assert_memory_equal(projected_data, k_data, sizeof k_data); /* a copy */
    OK(attn_alignment_forward(a, &q, &projected, &v, &out, NULL, NULL, 0));
    const double e = exp(1), expected = (1 + 10 * e + 100 / e) / (1 + e + 1 / e);
    assert_true(fabs((double)out_data[0] - expected) < 1e-5);
    attn_alignment_destroy(a);
    attn_alignment_destroy(NULL);

    const float w_q[2] = {1, -1}, w_k[2] = {2, 0.5f}, b[2] = {0.25f, 0}, vv[2] = {3, -1};
    c = attn_alignment_config_default();
    c.score = ATTN_SCORE_ADDITIVE, c.d_query = c.d_key = 1, c.d_attention = 2, c.temperature = 2;
    c.w_q = attn_matrix(w_q, 2, 1), c.w_k = attn_matrix(w_k, 2, 1), c.bias = attn_vector(b, 2),
    c.v = attn_vector(vv, 2);
    float wide_data[6];
    const attn_tensor wide = attn_btc(wide_data, 1, 3, 2);
    OK(attn_alignment_create(&a, &c));
    OK(attn_alignment_project(a, &k, &wide, 0));
    OK(attn_alignment_forward(a, &q, &wide, &v, &out, NULL, NULL, 0));
    double sum = 0, weighted = 0;
    for (int j = 0; j < 3; j++) {
        const double key = (double)k_data[j];
        const double weight = exp((3 * tanh(2 + 2 * key + 0.25) - tanh(-2 + 0.5 * key)) / 2);
        sum += weight;
        weighted += weight * (double)v_data[j];
    }
    assert_true(fabs((double)out_data[0] - weighted / sum) < 1e-5);
    attn_alignment_destroy(a);
}

static void test_row_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("alignment row_bits", n);
        const int64_t batch = 7, tq = RNG_PICK(&m->rng, 1, 7, 33, 100), tk = RNG_PICK(&m->rng, 9, 64, 130, 600),
                      dv = 20;
        struct layer l;
        layer_create(&l, m, (attn_score)(n % 4));
        const attn_tensor q = random_rows(m, batch, tq, l.config.d_query), v = random_rows(m, batch, tk, dv);
        const attn_tensor projected = random_rows(m, batch, tk, attn_alignment_projected(l.alignment));
        if (n % 8 >= 4) {
            enlarge_rows(m, &q);
            enlarge_rows(m, &projected);
        }
        const attn_tensor all = place_rows(m, batch, tq, dv);
        attn_params p = attn_params_default();
        p.num_threads = 1;
        OK(attn_alignment_forward(l.alignment, &q, &projected, &v, &all, &p, NULL, 0));
        for (int try = 0; try < 6; try++) {
            const int64_t b = rng_range(&m->rng, 0, batch - 1), tokens = tq < 7 ? tq : RNG_PICK(&m->rng, 1, 2, 7, tq);
            const int64_t at = rng_range(&m->rng, 0, tq - tokens);
            const attn_tensor some = slice(&q, b, at, tokens), its = slice(&projected, b, 0, tk);
            const attn_tensor values = slice(&v, b, 0, tk);
            const attn_tensor expected = slice(&all, b, at, tokens), out = place_rows(m, 1, tokens, dv);
            p.num_threads = 1 + try % 3;
            OK(attn_alignment_forward(l.alignment, &some, &its, &values, &out, &p, NULL, 0));
            assert_true(equal_bits(&out, &expected));
        }
        attn_alignment_destroy(l.alignment);
        memory_destroy(m);
    }
}

/* ----------------------------------------------------------------- pooling -- */

static void test_pool(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(150); n++) {
        struct memory *m = memory_create("alignment pool", n);
        const int64_t batch = RNG_PICK(&m->rng, 0, 1, 2, 7), tokens = RNG_PICK(&m->rng, 0, 1, 2, 16, 17, 70);
        const int64_t channels = RNG_PICK(&m->rng, 1, 8, 17, 33), attention = RNG_PICK(&m->rng, 1, 7, 16, 25);
        const attn_tensor w = random_matrix(m, random_dtype(m), attention, channels, 1 / sqrt((double)channels));
        const attn_tensor bias = random_vector(m, random_dtype(m), attention, 0.5, 0);
        const attn_tensor v = random_vector(m, random_dtype(m), attention, 1, 0);
        const int has_bias = rng_percent(&m->rng, 60), has_weights = rng_percent(&m->rng, 60);
        const struct oracle_alignment oracle = {
            ATTN_SCORE_ADDITIVE, 0, channels, attention, 0, NULL, read_all(m, &w), has_bias ? read_all(m, &bias) : NULL,
            read_all(m, &v)};
        const attn_tensor x = random_rows(m, batch, tokens, channels), out = place_rows(m, batch, 1, channels);
        const attn_tensor weights = place_rows(m, batch, 1, tokens);
        int64_t *lengths = rng_percent(&m->rng, 60) ? bytes(m, (size_t)batch * sizeof *lengths) : NULL;
        for (int64_t b = 0; b < batch && lengths; b++) {
            lengths[b] = rng_range(&m->rng, 0, tokens);
            for (int64_t t = lengths[b]; t < tokens; t++)
                tensor_set(&x, b, 0, t, t % channels, t % 2 ? NAN : INFINITY);
        }
        attn_pool *pool;
        OK(attn_pool_create(&pool, &w, has_bias ? &bias : NULL, &v));
        memory_seal(m);
        const int threads = (int)rng_range(&m->rng, 0, 3);
        OK(attn_pool_forward(pool, &x, lengths, &out, has_weights ? &weights : NULL, threads, NULL, 0));
        const struct trio y = trio(m, batch * channels), ws = trio(m, batch * tokens);
        const double *xs = read_all(m, &x);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->pool(&oracle, batch, tokens, xs, lengths, y.of[k], ws.of[k]);
        const double size_of_score = score_size(&oracle, NULL, 0, NULL, 0);
        judge(NN_ALIGNMENT, "pooled", &out, y.of,
              softmax_sizes(m, y.of[0], batch, channels, 0.3, &size_of_score, batch));
        if (has_weights)
            judge(NN_WEIGHTS, "weights", &weights, ws.of,
                  softmax_sizes(m, ws.of[0], batch * tokens, 1, 0.05, &size_of_score, batch * tokens));
        for (int64_t b = 0; b < batch; b++)
            for (int64_t t = lengths ? lengths[b] : tokens; t < tokens && has_weights; t++)
                assert_true(tensor_get(&weights, b, 0, 0, t) == 0);
        const size_t size = attn_pool_workspace_size(pool, batch, tokens);
        void *workspace = place_workspace(m, size);
        const attn_tensor again = place_rows(m, batch, 1, channels);
        OK(attn_pool_forward(pool, &x, lengths, &again, NULL, 3 - threads, workspace, size));
        assert_true(equal_bits(&again, &out));
        for (int64_t b = 0; b < batch; b++) { /* one sequence by itself */
            const attn_tensor one = slice(&x, b, 0, tokens), its = place_rows(m, 1, 1, channels);
            const attn_tensor expected = slice(&out, b, 0, 1);
            OK(attn_pool_forward(pool, &one, lengths ? lengths + b : NULL, &its, NULL, 1, NULL, 0));
            assert_true(equal_bits(&its, &expected));
        }
        attn_pool_destroy(pool);
        memory_destroy(m);
    }
    attn_pool_destroy(NULL);
}

/* ---------------------------------------------------------------- refusals -- */

static attn_alignment_config small_config(struct memory *m)
{
    attn_alignment_config c = attn_alignment_config_default();
    c.score = ATTN_SCORE_ADDITIVE, c.d_query = 6, c.d_key = 5, c.d_attention = 4;
    c.w_q = place_dense(m, 1, 1, 4, 6), c.w_k = place_dense(m, 1, 1, 4, 5);
    c.bias = place_dense(m, 1, 1, 1, 4), c.v = place_dense(m, 1, 1, 1, 4);
    fill(m, &c.w_q, 1), fill(m, &c.w_k, 1), fill(m, &c.bias, 1), fill(m, &c.v, 1);
    return c;
}

static void test_create_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("alignment create_refuses", 0);
    const attn_alignment_config config = small_config(m);
    attn_alignment *a = (attn_alignment *)m;
    attn_pool *pool = (attn_pool *)m;
    memory_seal(m);
#define CREATE_REFUSES(assignment, status, words)                                                                      \
    do {                                                                                                               \
        attn_alignment_config c = config;                                                                              \
        assignment;                                                                                                    \
        a = (attn_alignment *)m;                                                                                       \
        REFUSES(m, attn_alignment_create(&a, &c), status, words);                                                      \
        assert_null(a);                                                                                                \
    } while (0)
    REFUSES(m, attn_alignment_create(NULL, &config), ATTN_INVALID_ARGUMENT,
            "alignment is NULL; expected where to put the score function");
    REFUSES(m, attn_alignment_create(&a, NULL), ATTN_INVALID_ARGUMENT, "config is NULL; expected a score function");
    CREATE_REFUSES(c.struct_size = 0, ATTN_INVALID_ARGUMENT, "struct_size|0");
    CREATE_REFUSES(c.score = (attn_score)4, ATTN_INVALID_ARGUMENT, "config.score is 4; expected an attn_score");
    CREATE_REFUSES(c.score = (attn_score)-1, ATTN_INVALID_ARGUMENT, "score|-1");
    CREATE_REFUSES(c.d_query = -6, ATTN_INVALID_ARGUMENT, "d_query|-6");
    CREATE_REFUSES(c.d_key = -5, ATTN_INVALID_ARGUMENT, "d_key|-5");
    CREATE_REFUSES(c.d_attention = -4, ATTN_INVALID_ARGUMENT, "d_attention|-4");
    CREATE_REFUSES(c.d_attention = 0, ATTN_INVALID_ARGUMENT, "d_attention|0");
    CREATE_REFUSES(c.temperature = -1, ATTN_INVALID_ARGUMENT, "temperature|-1");
    CREATE_REFUSES(c.temperature = NAN, ATTN_INVALID_ARGUMENT, "temperature|nan");
    CREATE_REFUSES(c.temperature = INFINITY, ATTN_INVALID_ARGUMENT, "temperature|inf");
    CREATE_REFUSES(c.w_q.data = NULL, ATTN_INVALID_ARGUMENT, "w_q|NULL");
    CREATE_REFUSES(c.w_q.shape[3] = 5, ATTN_SHAPE_MISMATCH, "w_q|5|6");
    CREATE_REFUSES(c.w_k.shape[2] = 3, ATTN_SHAPE_MISMATCH, "w_k|3|4");
    CREATE_REFUSES(c.w_k.dtype = ATTN_U8, ATTN_UNSUPPORTED, "w_k|u8");
    CREATE_REFUSES(c.bias.shape[3] = 5, ATTN_SHAPE_MISMATCH, "bias|5|4");
    CREATE_REFUSES(c.v.shape[3] = 3, ATTN_SHAPE_MISMATCH, "v.|3|4");
    CREATE_REFUSES(c.v.data = NULL, ATTN_INVALID_ARGUMENT, "v|NULL");
    /* Nothing is ignored: what belongs to another score function. */
    CREATE_REFUSES((c.score = ATTN_SCORE_DOT, c.d_key = 6), ATTN_INVALID_ARGUMENT,
                   "config.d_attention is 4; expected 0 unless score is ATTN_SCORE_ADDITIVE");
    CREATE_REFUSES((c.score = ATTN_SCORE_DOT, c.d_key = 6, c.d_attention = 0), ATTN_INVALID_ARGUMENT,
                   "config.w_q is set; expected data NULL, as this score has no such weight");
    CREATE_REFUSES(
        (c.score = ATTN_SCORE_DOT, c.d_attention = 0, c.w_q.data = c.w_k.data = c.bias.data = c.v.data = NULL),
        ANY_ERROR, "config.d_key is 5; expected 6, as d_query is");
    CREATE_REFUSES((c.score = ATTN_SCORE_GENERAL, c.d_attention = 0, c.w_q.data = c.bias.data = c.v.data = NULL),
                   ATTN_SHAPE_MISMATCH, "w_k|4|6");
    const attn_tensor *const w = &config.w_k, *const b = &config.bias, *const v = &config.v;
    REFUSES(m, attn_pool_create(NULL, w, b, v), ATTN_INVALID_ARGUMENT, "pool is NULL; expected where to put the pool");
    REFUSES(m, attn_pool_create(&pool, NULL, b, v), ATTN_INVALID_ARGUMENT, "w |NULL");
    assert_null(pool);
    REFUSES(m, attn_pool_create(&pool, w, b, NULL), ATTN_INVALID_ARGUMENT, "v |NULL");
    REFUSES(m, attn_pool_create(&pool, w, CHANGED(attn_tensor, *b, shape[3] = 3), v), ATTN_SHAPE_MISMATCH, "bias|3|4");
    REFUSES(m, attn_pool_create(&pool, w, b, CHANGED(attn_tensor, *v, shape[3] = 3)), ATTN_SHAPE_MISMATCH, "v.|3|4");
    REFUSES(m, attn_pool_create(&pool, CHANGED(attn_tensor, *w, dtype = ATTN_BOOL), b, v), ATTN_UNSUPPORTED, "w.|bool");
    nn_end_refusals();
    memory_destroy(m);
}

static void test_forward_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("alignment forward_refuses", 0);
    const attn_alignment_config config = small_config(m);
    const attn_tensor q = place_dense(m, 2, 1, 3, 6), keys = place_dense(m, 2, 1, 7, 5), v = place_dense(m, 2, 1, 7, 8);
    const attn_tensor projected = place_dense(m, 2, 1, 7, 4), out = place_dense(m, 2, 1, 3, 8);
    attn_alignment *a;
    OK(attn_alignment_create(&a, &config));
    fill(m, &q, 1), fill(m, &keys, 1), fill(m, &v, 1), fill(m, &projected, 1);
    attn_params p = attn_params_default();
    const size_t size = attn_alignment_workspace_size(a, 2, 3, 7, 8, NULL);
    char *workspace = place_workspace(m, size);
    memory_seal(m);
#define FORWARD(qq, pp, vv, oo, params) attn_alignment_forward(a, qq, pp, vv, oo, params, NULL, 0)
#define Q(assignment)                   CHANGED(attn_tensor, q, assignment)
#define PROJECTED(assignment)           CHANGED(attn_tensor, projected, assignment)
#define V(assignment)                   CHANGED(attn_tensor, v, assignment)
#define OUT(assignment)                 CHANGED(attn_tensor, out, assignment)
#define PARAMS(assignment)              CHANGED(attn_params, p, assignment)
    REFUSES(m, attn_alignment_project(NULL, &keys, &projected, 0), ATTN_INVALID_ARGUMENT, "alignment|NULL");
    REFUSES(m, attn_alignment_project(a, NULL, &projected, 0), ATTN_INVALID_ARGUMENT, "keys|NULL");
    REFUSES(m, attn_alignment_project(a, &keys, NULL, 0), ATTN_INVALID_ARGUMENT, "projected|NULL");
    REFUSES(m, attn_alignment_project(a, CHANGED(attn_tensor, keys, shape[3] = 4), &projected, 0), ATTN_SHAPE_MISMATCH,
            "keys|4|5");
    REFUSES(m, attn_alignment_project(a, &keys, PROJECTED(shape[2] = 6), 0), ATTN_SHAPE_MISMATCH, "projected|6|7");
    REFUSES(m, attn_alignment_project(a, &keys, &projected, -1), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, attn_alignment_project(a, &keys, PROJECTED(data = keys.data), 0), ATTN_INVALID_ARGUMENT,
            "projected|keys");
    REFUSES(m, attn_alignment_forward(NULL, &q, &projected, &v, &out, NULL, NULL, 0), ATTN_INVALID_ARGUMENT,
            "alignment|NULL");
    REFUSES(m, FORWARD(NULL, &projected, &v, &out, NULL), ATTN_INVALID_ARGUMENT, "q |NULL");
    REFUSES(m, FORWARD(&q, NULL, &v, &out, NULL), ATTN_INVALID_ARGUMENT, "projected|NULL");
    REFUSES(m, FORWARD(&q, &projected, NULL, &out, NULL), ATTN_INVALID_ARGUMENT, "v |NULL");
    REFUSES(m, FORWARD(&q, &projected, &v, NULL, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, FORWARD(Q(shape[3] = 5), &projected, &v, &out, NULL), ATTN_SHAPE_MISMATCH, "q.|5|6");
    REFUSES(m, FORWARD(Q(shape[1] = 2), &projected, &v, &out, NULL), ATTN_SHAPE_MISMATCH, "q.|2");
    REFUSES(m, FORWARD(Q(dtype = ATTN_I8), &projected, &v, &out, NULL), ATTN_UNSUPPORTED, "q.|i8");
    REFUSES(m, FORWARD(Q(stride[3] = 2), &projected, &v, &out, NULL), ATTN_INVALID_ARGUMENT, "q.|2");
    REFUSES(m, FORWARD(&q, PROJECTED(shape[3] = 5), &v, &out, NULL), ATTN_SHAPE_MISMATCH, "projected|5|4");
    REFUSES(m, FORWARD(&q, PROJECTED(shape[0] = 1), &v, &out, NULL), ATTN_SHAPE_MISMATCH, "projected|1|2");
    REFUSES(m, FORWARD(&q, &projected, V(shape[2] = 6), &out, NULL), ATTN_SHAPE_MISMATCH, "v.|6|7");
    REFUSES(m, FORWARD(&q, &projected, V(stride[0] = INT64_MAX), &out, NULL), ATTN_SIZE_OVERFLOW,
            "v.|9223372036854775807");
    REFUSES(m, FORWARD(&q, &projected, &v, OUT(shape[3] = 7), NULL), ATTN_SHAPE_MISMATCH, "out|7|8");
    REFUSES(m, FORWARD(&q, &projected, &v, OUT(data = v.data), NULL), ATTN_INVALID_ARGUMENT, "out|v");
    REFUSES(m, FORWARD(&q, &projected, &v, OUT(stride[2] = 1), NULL), ATTN_INVALID_ARGUMENT, "out|1");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(struct_size = 2)), ATTN_INVALID_ARGUMENT, "struct_size|2");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(scale = 0.5f)), ATTN_INVALID_ARGUMENT, "scale|0.5");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(temperature = 0.5f)), ATTN_INVALID_ARGUMENT,
            "params.temperature is 0.5; expected 0, as the score function has its own");
    const float one[1] = {1};
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(head_scale = one)), ATTN_INVALID_ARGUMENT,
            "params.head_scale is set; expected NULL, as there is one head");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(softcap = 1)), ATTN_UNSUPPORTED, "softcap");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(sinks = one)), ATTN_UNSUPPORTED, "sinks");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(alibi_slopes = one)), ATTN_UNSUPPORTED, "alibi_slopes");
    const attn_dropout dropout = {.p = 0.5f};
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(dropout = &dropout)), ATTN_UNSUPPORTED, "dropout");
    const int64_t bad_len[2] = {3, 8}, bad_start[2] = {-1, 0}, cu[2] = {0, 0};
    const attn_ragged ragged = {1, cu, cu};
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(ragged = &ragged)), ATTN_SHAPE_MISMATCH, "q.|2|ragged");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(kv_len = bad_len)), ATTN_INVALID_ARGUMENT, "kv_len[1]|8|7");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(kv_start = bad_start)), ATTN_INVALID_ARGUMENT,
            "kv_start[0]|-1");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(causal = (attn_causal)9)), ATTN_INVALID_ARGUMENT, "causal|9");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(causal = ATTN_CAUSAL_OFFSET)), ATTN_INVALID_ARGUMENT,
            "query_offset");
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(num_threads = -1)), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    const uint8_t mask_data[2 * 7] = {0};
    attn_tensor mask = attn_bhtd(mask_data, 1, 2, 1, 7);
    mask.dtype = ATTN_BOOL;
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(mask = &mask)), ATTN_SHAPE_MISMATCH, "mask|2|1");
    float weights_data[2 * 3 * 7];
    const attn_tensor weights = attn_bhtd(weights_data, 2, 1, 2, 7);
    REFUSES(m, FORWARD(&q, &projected, &v, &out, PARAMS(weights = &weights)), ATTN_SHAPE_MISMATCH, "weights|2|3");
    if (size > 0)
        REFUSES(m, attn_alignment_forward(a, &q, &projected, &v, &out, NULL, workspace, size - 1),
                ATTN_WORKSPACE_TOO_SMALL, "workspace");
    assert_true(attn_alignment_workspace_size(a, INT64_MAX / 2, 8, INT64_MAX / 2, 8, NULL) == SIZE_MAX);

    attn_pool *pool;
    OK(attn_pool_create(&pool, &config.w_k, &config.bias, &config.v));
    const attn_tensor pooled = place_dense(m, 2, 1, 1, 5), pool_weights = place_dense(m, 2, 1, 1, 7);
    memory_seal(m);
#define POOL(x, lengths, oo, ww) attn_pool_forward(pool, x, lengths, oo, ww, 0, NULL, 0)
    const int64_t lengths[2] = {0, 8}, negative[2] = {-1, 7};
    REFUSES(m, attn_pool_forward(NULL, &keys, NULL, &pooled, NULL, 0, NULL, 0), ATTN_INVALID_ARGUMENT,
            "pool is NULL; expected a pool");
    REFUSES(m, POOL(NULL, NULL, &pooled, NULL), ATTN_INVALID_ARGUMENT, "x |NULL");
    REFUSES(m, POOL(&keys, NULL, NULL, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, POOL(CHANGED(attn_tensor, keys, shape[3] = 4), NULL, &pooled, NULL), ATTN_SHAPE_MISMATCH, "x.|4|5");
    REFUSES(m, POOL(&keys, lengths, &pooled, NULL), ATTN_INVALID_ARGUMENT, "lengths[1]|8|7");
    REFUSES(m, POOL(&keys, negative, &pooled, NULL), ATTN_INVALID_ARGUMENT, "lengths[0]|-1");
    REFUSES(m, POOL(&keys, NULL, CHANGED(attn_tensor, pooled, shape[2] = 7), NULL), ATTN_SHAPE_MISMATCH, "out|7|1");
    REFUSES(m, POOL(&keys, NULL, &pooled, CHANGED(attn_tensor, pool_weights, shape[3] = 6)), ATTN_SHAPE_MISMATCH,
            "weights|6|7");
    REFUSES(m, POOL(&keys, NULL, CHANGED(attn_tensor, pooled, data = keys.data), NULL), ATTN_INVALID_ARGUMENT, "out|x");
    REFUSES(m, attn_pool_forward(pool, &keys, NULL, &pooled, NULL, -5, NULL, 0), ATTN_INVALID_ARGUMENT,
            "num_threads|-5");
    const size_t pool_size = attn_pool_workspace_size(pool, 2, 7);
    if (pool_size > 0)
        REFUSES(m, attn_pool_forward(pool, &keys, NULL, &pooled, NULL, 0, workspace, 0), ATTN_WORKSPACE_TOO_SMALL,
                "workspace");
    nn_end_refusals();
    attn_pool_destroy(pool);
    attn_alignment_destroy(a);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_hand),        cmocka_unit_test(test_against_oracle),
                                       cmocka_unit_test(test_row_bits),       cmocka_unit_test(test_pool),
                                       cmocka_unit_test(test_create_refuses), cmocka_unit_test(test_forward_refuses)};
    return NN_MAIN(tests);
}
