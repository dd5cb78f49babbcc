/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head attention: against the oracle with random sizes and options;
 * projected keys and values, ragged batches and caches against the same rows
 * computed in another way; workspaces; wrong arguments.
 */
#include "options.h"

struct layer {
    attn_mha_config config;
    attn_mha_weights weights;
    struct oracle_mha oracle;
    attn_mha *mha;
    int64_t d_model, d_memory, d_out;
};

static struct oracle_dense random_dense(struct memory *m, int64_t out, int64_t in, attn_tensor *w, attn_tensor *b)
{
    struct oracle_dense dense = {out, in, NULL, NULL};
    *w = random_matrix(m, random_dtype(m), out, in, 1 / sqrt((double)in));
    dense.w = read_all(m, w);
    if (rng_percent(&m->rng, 70)) {
        *b = random_vector(m, random_dtype(m), out, 0.3, 0);
        dense.b = read_all(m, b);
    }
    return dense;
}

/** self: keys and values can be made from x. */
static void layer_create(struct layer *l, struct memory *m, int self)
{
    struct rng *rng = &m->rng;
    memset(l, 0, sizeof *l);
    l->config = attn_mha_config_default();
    l->weights = attn_mha_weights_default();
    struct oracle_mha *o = &l->oracle;
    o->kv_heads = rng_range(rng, 1, 3);
    o->heads = o->kv_heads * rng_range(rng, 1, 3);
    o->dk = RNG_PICK(rng, 1, 2, 7, 8, 16, 17, 24, 33, 64);
    o->dv = rng_percent(rng, 40) ? RNG_PICK(rng, 1, 3, 8, 15, 16, 25, 48) : o->dk;
    l->d_model = RNG_PICK(rng, 8, 9, 15, 16, 24, 31, 48, 64);
    l->d_memory = self ? l->d_model : RNG_PICK(rng, 8, 11, 16, 48);
    l->d_out = rng_percent(rng, 30) ? RNG_PICK(rng, 8, 13, 32) : l->d_model;
    if (rng_percent(rng, 30)) { /* what the defaults are for */
        l->d_model = l->d_out = o->heads * o->dk;
        l->d_memory = self ? l->d_model : l->d_memory;
        o->dv = o->dk;
    }
    attn_mha_config *c = &l->config;
    c->d_model = l->d_model, c->heads = o->heads;
    c->kv_heads = o->kv_heads == o->heads && rng_percent(rng, 50) ? 0 : o->kv_heads;
    c->head_dim = l->d_model == o->heads * o->dk && rng_percent(rng, 50) ? 0 : o->dk;
    c->value_dim = o->dv == o->dk && rng_percent(rng, 50) ? 0 : o->dv;
    c->d_memory = l->d_memory == l->d_model && rng_percent(rng, 50) ? 0 : l->d_memory;
    c->d_out = l->d_out == l->d_model && rng_percent(rng, 50) ? 0 : l->d_out;
    o->q = random_dense(m, o->heads * o->dk, l->d_model, &l->weights.w_q, &l->weights.b_q);
    o->k = random_dense(m, o->kv_heads * o->dk, l->d_memory, &l->weights.w_k, &l->weights.b_k);
    o->v = random_dense(m, o->kv_heads * o->dv, l->d_memory, &l->weights.w_v, &l->weights.b_v);
    o->o = random_dense(m, l->d_out, o->heads * o->dv, &l->weights.w_o, &l->weights.b_o);
    OK(attn_mha_create(&l->mha, c, &l->weights));
    attn_mha_config s = attn_mha_config_default();
    OK(attn_mha_sizes(l->mha, &s));
    assert_true(s.d_model == l->d_model && s.heads == o->heads && s.kv_heads == o->kv_heads && s.head_dim == o->dk &&
                s.value_dim == o->dv && s.d_memory == l->d_memory && s.d_out == l->d_out);
}

static struct options_for options_for(const struct layer *l, int64_t batch, int64_t tq, int64_t tk)
{
    return (struct options_for){batch, l->oracle.heads, l->oracle.kv_heads, tq, tk, l->oracle.dk, 0};
}

static void check(const struct layer *l, struct memory *m, const attn_tensor *x, const attn_tensor *memory,
                  const attn_params *params, const attn_tensor *out)
{
    const int64_t batch = x->shape[0], tq = x->shape[2], tk = memory ? memory->shape[2] : tq;
    const struct trio y = trio(m, batch * tq * l->d_out), w = trio(m, batch * l->oracle.heads * tq * tk);
    const double *x_values = read_all(m, x), *memory_values = memory ? read_all(m, memory) : NULL;
    for (int k = 0; k < ORACLES; k++)
        oracle_take(k)->mha(&l->oracle, batch, tq, x_values, tk, memory_values, params, y.of[k], w.of[k]);
    judge(NN_MHA, "out", out, y.of, NULL);
    if (params && params->weights) {
        double *sizes = zeros(m, batch * l->oracle.heads * tq * tk);
        for (int64_t i = 0; i < batch * l->oracle.heads * tq * tk; i++)
            sizes[i] = fabs(w.of[0][i]) + 0.05;
        judge(NN_WEIGHTS, "weights", params->weights, w.of, sizes);
        for (int64_t i = 0; i < batch * l->oracle.heads * tq * tk; i++)
            if (w.of[0][i] == 0)
                assert_true(((const float *)params->weights->data)[i] == 0);
    }
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(200); n++) {
        struct memory *m = memory_create("mha against_oracle", n);
        run_in(m, random_activations(m));
        const int self = rng_percent(&m->rng, 50);
        const int64_t batch = RNG_PICK(&m->rng, 1, 1, 2, 3, 0);
        const int64_t tq = RNG_PICK(&m->rng, 0, 1, 2, 5, 15, 17, 25, 49),
                      others = RNG_PICK(&m->rng, 0, 1, 3, 16, 50, 70);
        struct layer l;
        layer_create(&l, m, self);
        const int64_t tk = self ? tq : others;
        const struct options_for of = options_for(&l, batch, tq, tk);
        struct options *o = random_options(m, &of);
        const attn_tensor x = random_rows(m, batch, tq, l.d_model), out = place_rows(m, batch, tq, l.d_out);
        attn_tensor memory;
        if (!self) {
            memory = random_rows(m, batch, tk, l.d_memory);
            for (int64_t b = 0; b < batch && o->kv_len; b++) /* padding may hold anything */
                for (int64_t j = o->kv_len[b]; j < tk; j++)
                    tensor_set(&memory, b, 0, j, j % l.d_memory, j % 2 ? NAN : INFINITY);
        }
        memory_seal(m);
        OK(attn_mha_forward(l.mha, &x, self ? NULL : &memory, &out, &o->params, NULL, 0));
        check(&l, m, &x, self ? NULL : &memory, &o->params, &out);

        /* The caller's workspace, and two steps instead of one. */
        const size_t size = attn_mha_workspace_size(l.mha, batch, tq, tk, &o->params);
        void *workspace = place_workspace(m, size);
        const attn_tensor again = place_rows(m, batch, tq, l.d_out);
        OK(attn_mha_forward(l.mha, &x, self ? NULL : &memory, &again, &o->params, workspace, size));
        assert_true(equal_bits(&again, &out));
        const attn_tensor kv = place_rows(m, batch, tk, l.oracle.kv_heads * (l.oracle.dk + l.oracle.dv));
        OK(attn_mha_project_kv(l.mha, self ? &x : &memory, &kv, o->params.num_threads));
        const attn_tensor attended = place_rows(m, batch, tq, l.d_out);
        OK(attn_mha_attend(l.mha, &x, &kv, &attended, &o->params, workspace, size));
        check(&l, m, &x, self ? NULL : &memory, &o->params, &attended);
        attn_mha_destroy(l.mha);
        memory_destroy(m);
    }
}

/** project_kv's layout, and the views of it. */
static void test_project_kv(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("mha project_kv", n);
        run_in(m, random_activations(m));
        const int64_t batch = rng_range(&m->rng, 1, 3), tokens = rng_range(&m->rng, 1, 20);
        struct layer l;
        layer_create(&l, m, 0);
        const struct oracle_mha *o = &l.oracle;
        const attn_tensor memory = random_rows(m, batch, tokens, l.d_memory);
        const attn_tensor kv = place_rows(m, batch, tokens, o->kv_heads * (o->dk + o->dv));
        memory_seal(m);
        OK(attn_mha_project_kv(l.mha, &memory, &kv, (int)(n % 4)));
        const attn_tensor keys = attn_mha_keys(l.mha, &kv), values = attn_mha_values(l.mha, &kv);
        const int64_t key_shape[4] = {batch, o->kv_heads, tokens, o->dk};
        const int64_t value_shape[4] = {batch, o->kv_heads, tokens, o->dv};
        assert_memory_equal(keys.shape, key_shape, sizeof key_shape);
        assert_memory_equal(values.shape, value_shape, sizeof value_shape);
        attn_tensor key_rows = kv, value_rows = advanced(&kv, o->kv_heads * o->dk);
        key_rows.shape[3] = o->kv_heads * o->dk;
        value_rows.shape[3] = o->kv_heads * o->dv;
        const struct trio k = trio(m, batch * tokens * o->k.out), v = trio(m, batch * tokens * o->v.out);
        const double *x = read_all(m, &memory);
        for (int which = 0; which < ORACLES; which++) {
            oracle_take(which)->linear(&o->k, batch * tokens, x, ATTN_ACTIVATION_NONE, NULL, k.of[which]);
            oracle_take(which)->linear(&o->v, batch * tokens, x, ATTN_ACTIVATION_NONE, NULL, v.of[which]);
        }
        judge(NN_LINEAR, "keys", &key_rows, k.of, NULL);
        judge(NN_LINEAR, "values", &value_rows, v.of, NULL);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t g = 0; g < o->kv_heads; g++)
                for (int64_t j = 0; j < tokens; j++) {
                    assert_true(tensor_get(&keys, b, g, j, 0) == tensor_get(&key_rows, b, 0, j, g * o->dk));
                    assert_true(tensor_get(&values, b, g, j, 0) == tensor_get(&value_rows, b, 0, j, g * o->dv));
                }
        attn_mha_destroy(l.mha);
        memory_destroy(m);
    }
}

/** Out in another type is out in f32, rounded; keys and values may have a type of their own. */
static void test_types(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("mha types", n);
        const attn_dtype x_type = (attn_dtype)(n % 3), kv_type = (attn_dtype)(n / 3 % 3),
                         type = (attn_dtype)(n / 9 % 3);
        const int64_t batch = 2, tq = RNG_PICK(&m->rng, 1, 5, 30), tk = RNG_PICK(&m->rng, 1, 9, 64);
        struct layer l;
        layer_create(&l, m, 0);
        const int64_t kv_width = l.oracle.kv_heads * (l.oracle.dk + l.oracle.dv);
        const attn_tensor x = place_rows_of(m, x_type, batch, tq, l.d_model);
        const attn_tensor memory = place_rows_of(m, kv_type, batch, tk, l.d_memory);
        const attn_tensor wide = place_rows(m, batch, tq, l.d_out), out = place_rows_of(m, type, batch, tq, l.d_out);
        const attn_tensor kv = place_rows_of(m, kv_type, batch, tk, kv_width);
        fill(m, &x, 1);
        fill(m, &memory, 1);
        memory_seal(m);
        OK(attn_mha_forward(l.mha, &x, &memory, &wide, NULL, NULL, 0));
        const size_t size = attn_mha_workspace_size(l.mha, batch, tq, tk, NULL);
        void *workspace = place_workspace(m, size);
        OK(attn_mha_forward(l.mha, &x, &memory, &out, NULL, workspace, size));
        assert_rounded("out", &out, &wide);
        OK(attn_mha_project_kv(l.mha, &memory, &kv, 0));
        OK(attn_mha_attend(l.mha, &x, &kv, &wide, NULL, NULL, 0));
        OK(attn_mha_attend(l.mha, &x, &kv, &out, NULL, workspace, size));
        assert_rounded("out of attend", &out, &wide);
        const attn_dtype types[] = {x_type, kv_type};
        for (int i = 0; i < 2; i++)
            oracle_type = types[i] == ATTN_BF16 || oracle_type == ATTN_F32 ? types[i] : oracle_type;
        check(&l, m, &x, &memory, NULL, &wide);
        attn_mha_destroy(l.mha);
        memory_destroy(m);
    }
}

/** Where q, k and v may be bf16, those of f32 that a layer keeps so give the bits of ones that the core rounds. */
static void test_rounded_inputs(void **state)
{
    static const char *const sets[] = {"avx512_bf16", "neon_bf16", "emulated_amx_bf16", "neon_bf16mm", NULL};
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("mha rounded_inputs", n);
        const int64_t batch = 2, tq = RNG_PICK(&m->rng, 1, 5, 33, 100), tk = RNG_PICK(&m->rng, 1, 9, 64, 130);
        struct layer l;
        layer_create(&l, m, 0);
        const int64_t kv_width = l.oracle.kv_heads * (l.oracle.dk + l.oracle.dv);
        const attn_tensor x = random_rows(m, batch, tq, l.d_model), memory = random_rows(m, batch, tk, l.d_memory);
        const attn_tensor kv = place_rows(m, batch, tk, kv_width);
        const attn_tensor out = place_rows(m, batch, tq, l.d_out), expected = place_rows(m, batch, tq, l.d_out);
        const struct options_for of = options_for(&l, batch, tq, tk);
        attn_params p = n % 2 ? random_options(m, &of)->params : attn_params_default();
        p.inputs = ATTN_INPUTS_MAY_BE_BF16;
        p.num_threads = 1 + (int)(n % 3);
        p.isa = sets[n % (sizeof sets / sizeof *sets)];
        if (attn_mha_workspace_size(l.mha, batch, tq, tk, &p) == SIZE_MAX) /* not on this processor */
            p.isa = NULL;
        const size_t size = attn_mha_workspace_size(l.mha, batch, tq, tk, &p);
        void *workspace = place_workspace(m, size);
        memory_seal(m);
        OK(attn_mha_forward(l.mha, &x, &memory, &out, &p, workspace, size));
        OK(attn_mha_project_kv(l.mha, &memory, &kv, 0));
        OK(attn_mha_attend(l.mha, &x, &kv, &expected, &p, NULL, 0));
        assert_true(equal_bits(&out, &expected));
        attn_mha_destroy(l.mha);
        memory_destroy(m);
    }
}

/** A row's bits: other batch elements, other queries, other numbers of threads. */
static void test_row_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("mha row_bits", n);
        run_in(m, random_activations(m));
        const int64_t batch = 5, tq = RNG_PICK(&m->rng, 7, 33, 100), tk = RNG_PICK(&m->rng, 9, 64, 130);
        struct layer l;
        layer_create(&l, m, 0);
        const attn_tensor x = random_rows(m, batch, tq, l.d_model), memory = random_rows(m, batch, tk, l.d_memory);
        const attn_tensor all = place_rows(m, batch, tq, l.d_out);
        attn_params p = attn_params_default();
        p.num_threads = 1;
        OK(attn_mha_forward(l.mha, &x, &memory, &all, &p, NULL, 0));
        for (int try = 0; try < 6; try++) {
            const int64_t b = rng_range(&m->rng, 0, batch - 1), tokens = RNG_PICK(&m->rng, 1, 2, 7, tq);
            const int64_t at = rng_range(&m->rng, 0, tq - tokens);
            const attn_tensor some = slice(&x, b, at, tokens), its = slice(&memory, b, 0, tk);
            const attn_tensor expected = slice(&all, b, at, tokens), out = place_rows(m, 1, tokens, l.d_out);
            p.num_threads = 1 + try % 3;
            OK(attn_mha_forward(l.mha, &some, &its, &out, &p, NULL, 0));
            assert_true(equal_bits(&out, &expected));
        }
        attn_mha_destroy(l.mha);
        memory_destroy(m);
    }
}

/** Sequences behind each other give the bits of each by itself. */
static void test_ragged(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(60); n++) {
        struct memory *m = memory_create("mha ragged", n);
        run_in(m, random_activations(m));
        enum { SEQUENCES = 4 };
        const int self = rng_percent(&m->rng, 50);
        int64_t cu_q[SEQUENCES + 1] = {0}, cu_k[SEQUENCES + 1] = {0};
        for (int s = 0; s < SEQUENCES; s++) {
            cu_q[s + 1] = cu_q[s] + RNG_PICK(&m->rng, 0, 1, 5, 16, 30);
            cu_k[s + 1] = self ? cu_q[s + 1] : cu_k[s] + RNG_PICK(&m->rng, 0, 1, 7, 49);
        }
        struct layer l;
        layer_create(&l, m, self);
        const attn_tensor x = random_rows(m, 1, cu_q[SEQUENCES], l.d_model);
        const attn_tensor memory = self ? x : random_rows(m, 1, cu_k[SEQUENCES], l.d_memory);
        const attn_tensor out = place_rows(m, 1, cu_q[SEQUENCES], l.d_out);
        const attn_ragged ragged = {SEQUENCES, cu_q, cu_k};
        attn_params p = attn_params_default();
        p.ragged = &ragged;
        p.causal = n % 2 ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
        p.num_threads = (int)(n % 4);
        memory_seal(m);
        OK(attn_mha_forward(l.mha, &x, self ? NULL : &memory, &out, &p, NULL, 0));
        check(&l, m, &x, self ? NULL : &memory, &p, &out);
        p.ragged = NULL;
        for (int s = 0; s < SEQUENCES; s++) {
            const int64_t tq = cu_q[s + 1] - cu_q[s], tk = cu_k[s + 1] - cu_k[s];
            const attn_tensor its = slice(&x, 0, cu_q[s], tq), its_memory = slice(&memory, 0, cu_k[s], tk);
            const attn_tensor single = place_rows(m, 1, tq, l.d_out), expected = slice(&out, 0, cu_q[s], tq);
            OK(attn_mha_forward(l.mha, &its, self ? NULL : &its_memory, &single, &p, NULL, 0));
            assert_true(equal_bits(&single, &expected));
        }
        attn_mha_destroy(l.mha);
        memory_destroy(m);
    }
}

/** Token by token over a cache is the whole at once under causality, to the bit: a row sees the same keys. */
static void test_cache(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(30); n++) {
        struct memory *m = memory_create("mha cache", n);
        run_in(m, random_activations(m));
        const int64_t tokens = RNG_PICK(&m->rng, 1, 5, 20, 70), batch = rng_range(&m->rng, 1, 2);
        struct layer l;
        layer_create(&l, m, 1);
        const attn_tensor x = random_rows(m, batch, tokens, l.d_model), whole = place_rows(m, batch, tokens, l.d_out);
        const attn_tensor kv = place_rows(m, batch, tokens, l.oracle.kv_heads * (l.oracle.dk + l.oracle.dv));
        const attn_tensor steps = place_rows(m, batch, tokens, l.d_out);
        attn_params p = attn_params_default();
        p.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        int64_t done = 0;
        while (done < tokens) {
            const int64_t count = rng_range(&m->rng, 1, tokens - done < 4 ? tokens - done : 4);
            attn_tensor some = x, its = kv, past = kv, out = steps;
            some.data = advanced(&x, done * x.stride[2]).data;
            its.data = advanced(&kv, done * kv.stride[2]).data;
            out.data = advanced(&steps, done * steps.stride[2]).data;
            some.shape[2] = its.shape[2] = out.shape[2] = count;
            past.shape[2] = done + count;
            OK(attn_mha_project_kv(l.mha, &some, &its, 1));
            OK(attn_mha_attend(l.mha, &some, &past, &out, &p, NULL, 0));
            done += count;
        }
        OK(attn_mha_attend(l.mha, &x, &kv, &whole, &p, NULL, 0));
        check(&l, m, &x, NULL, &p, &whole);
        assert_true(equal_bits(&whole, &steps));
        attn_mha_destroy(l.mha);
        memory_destroy(m);
    }
}

/* ------------------------------------------------------------------ refusals -- */

struct small {
    attn_mha_config config;
    attn_mha_weights weights;
};

/** 4 heads of 4 over 2 of keys, values of 3, d_model 10, d_memory 7, d_out 9. */
static struct small small_create(struct memory *m)
{
    struct small s = {attn_mha_config_default(), attn_mha_weights_default()};
    s.weights.w_q = place_dense(m, 1, 1, 16, 10);
    s.config.d_model = 10, s.config.heads = 4, s.config.kv_heads = 2, s.config.head_dim = 4, s.config.value_dim = 3;
    s.config.d_memory = 7, s.config.d_out = 9;
    s.weights.b_q = place_dense(m, 1, 1, 1, 16);
    s.weights.w_k = place_dense(m, 1, 1, 8, 7), s.weights.b_k = place_dense(m, 1, 1, 1, 8);
    s.weights.w_v = place_dense(m, 1, 1, 6, 7), s.weights.b_v = place_dense(m, 1, 1, 1, 6);
    s.weights.w_o = place_dense(m, 1, 1, 9, 12), s.weights.b_o = place_dense(m, 1, 1, 1, 9);
    for (int i = 0; i < m->num_buffers; i++)
        fill(m, &m->buffers[i].tensor, 0.3);
    return s;
}

static void test_create_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("mha create_refuses", 0);
    const struct small s = small_create(m);
    memory_seal(m);
    attn_mha *mha = (attn_mha *)m;
#define CREATE_REFUSES(assignment, status, words)                                                                      \
    do {                                                                                                               \
        struct small bad = s;                                                                                          \
        bad.assignment;                                                                                                \
        mha = (attn_mha *)m;                                                                                           \
        REFUSES(m, attn_mha_create(&mha, &bad.config, &bad.weights), status, words);                                   \
        assert_null(mha);                                                                                              \
    } while (0)
    REFUSES(m, attn_mha_create(NULL, &s.config, &s.weights), ATTN_INVALID_ARGUMENT,
            "mha is NULL; expected where to put the layer");
    REFUSES(m, attn_mha_load(NULL, &s.config, NULL, ""), ATTN_INVALID_ARGUMENT,
            "mha is NULL; expected where to put the layer");
    REFUSES(m, attn_mha_create(&mha, NULL, &s.weights), ATTN_INVALID_ARGUMENT, "config|NULL");
    assert_null(mha);
    REFUSES(m, attn_mha_create(&mha, &s.config, NULL), ATTN_INVALID_ARGUMENT,
            "weights is NULL; expected an attn_mha_weights");
    CREATE_REFUSES(config.struct_size = 0, ATTN_INVALID_ARGUMENT, "struct_size|0");
    CREATE_REFUSES(config.struct_size = 3, ATTN_INVALID_ARGUMENT, "struct_size|3");
    CREATE_REFUSES(config.d_model = -1, ATTN_INVALID_ARGUMENT, "d_model|-1");
    CREATE_REFUSES(config.heads = 0, ATTN_INVALID_ARGUMENT, "heads|0");
    CREATE_REFUSES(config.heads = -4, ATTN_INVALID_ARGUMENT, "heads|-4");
    CREATE_REFUSES(config.kv_heads = 3, ANY_ERROR, "config.kv_heads is 3; expected a divisor of the 4 heads");
    CREATE_REFUSES(config.kv_heads = -2, ATTN_INVALID_ARGUMENT, "kv_heads|-2");
    CREATE_REFUSES(config.head_dim = -1, ATTN_INVALID_ARGUMENT, "head_dim|-1");
    CREATE_REFUSES(config.head_dim = 0, ANY_ERROR, "d_model|10|4");
    CREATE_REFUSES(config.value_dim = -5, ATTN_INVALID_ARGUMENT, "value_dim|-5");
    CREATE_REFUSES(config.d_memory = -7, ATTN_INVALID_ARGUMENT, "d_memory|-7");
    CREATE_REFUSES(config.d_out = -9, ATTN_INVALID_ARGUMENT, "config.d_out is -9; expected 0 or more");
    CREATE_REFUSES(config.head_dim = INT64_MAX / 2, ANY_ERROR, "config.heads is 4 of 4611686018427387903 and");
    CREATE_REFUSES(weights.w_q.data = NULL, ATTN_INVALID_ARGUMENT, "w_q|NULL");
    CREATE_REFUSES(weights.w_q.shape[2] = 15, ATTN_SHAPE_MISMATCH, "w_q|15|16");
    CREATE_REFUSES(weights.w_k.shape[3] = 6, ATTN_SHAPE_MISMATCH, "w_k|6|7");
    CREATE_REFUSES(weights.w_k.data = NULL, ATTN_INVALID_ARGUMENT, "w_k|NULL");
    CREATE_REFUSES(weights.w_v.shape[2] = 8, ATTN_SHAPE_MISMATCH, "w_v|8|6");
    CREATE_REFUSES(weights.w_v.dtype = ATTN_I8, ATTN_UNSUPPORTED, "w_v|i8");
    CREATE_REFUSES(weights.w_o.shape[3] = 16, ATTN_SHAPE_MISMATCH, "w_o|16|12");
    CREATE_REFUSES(weights.w_o.shape[0] = 2, ATTN_SHAPE_MISMATCH, "w_o|2");
    CREATE_REFUSES(weights.b_q.shape[3] = 10, ATTN_SHAPE_MISMATCH, "b_q|10|16");
    CREATE_REFUSES(weights.b_k.dtype = ATTN_BOOL, ATTN_UNSUPPORTED, "b_k|bool");
    CREATE_REFUSES(weights.b_v.shape[3] = 7, ATTN_SHAPE_MISMATCH, "b_v|7|6");
    CREATE_REFUSES(weights.b_o.shape[3] = 10, ATTN_SHAPE_MISMATCH, "b_o|10|9");
    nn_end_refusals();
    memory_destroy(m);
}

static void test_forward_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("mha forward_refuses", 0);
    const struct small s = small_create(m);
    const attn_tensor x = place_dense(m, 2, 1, 5, 10), memory = place_dense(m, 2, 1, 6, 7);
    const attn_tensor out = place_dense(m, 2, 1, 5, 9), kv = place_dense(m, 2, 1, 6, 14);
    fill(m, &x, 1), fill(m, &memory, 1), fill(m, &kv, 1);
    attn_mha *mha;
    OK(attn_mha_create(&mha, &s.config, &s.weights));
    attn_params p = attn_params_default();
    const size_t size = attn_mha_workspace_size(mha, 2, 5, 6, NULL);
    char *workspace = place_workspace(m, size);
    memory_seal(m);
#define FORWARD(x_arg, memory_arg, out_arg, params) attn_mha_forward(mha, x_arg, memory_arg, out_arg, params, NULL, 0)
#define X(assignment)                               CHANGED(attn_tensor, x, assignment)
#define MEMORY(assignment)                          CHANGED(attn_tensor, memory, assignment)
#define OUT(assignment)                             CHANGED(attn_tensor, out, assignment)
#define P(assignment)                               CHANGED(attn_params, p, assignment)
    REFUSES(m, attn_mha_forward(NULL, &x, &memory, &out, NULL, NULL, 0), ATTN_INVALID_ARGUMENT, "mha|NULL");
    REFUSES(m, FORWARD(NULL, &memory, &out, NULL), ATTN_INVALID_ARGUMENT, "x |NULL");
    REFUSES(m, FORWARD(&x, &memory, NULL, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, FORWARD(&x, NULL, &out, NULL), ANY_ERROR,
            "memory is NULL; expected a tensor of 7 channels, as keys are not made from x"); /* 7 channels are wanted, x
                                                                                                has 10 */
    REFUSES(m, FORWARD(X(shape[3] = 9), &memory, &out, NULL), ATTN_SHAPE_MISMATCH, "x.|9|10");
    REFUSES(m, FORWARD(X(shape[1] = 2), &memory, &out, NULL), ATTN_SHAPE_MISMATCH, "x.|2");
    REFUSES(m, FORWARD(X(dtype = ATTN_I8), &memory, &out, NULL), ATTN_UNSUPPORTED, "x.|i8|f32, bf16 or f16");
    REFUSES(m, FORWARD(X(stride[3] = 2), &memory, &out, NULL), ATTN_INVALID_ARGUMENT, "x.|2");
    REFUSES(m, FORWARD(X(stride[2] = INT64_MAX), &memory, &out, NULL), ATTN_SIZE_OVERFLOW, "x.|9223372036854775807");
    REFUSES(m, FORWARD(&x, MEMORY(shape[3] = 10), &out, NULL), ATTN_SHAPE_MISMATCH, "memory|10|7");
    REFUSES(m, FORWARD(&x, MEMORY(shape[0] = 3), &out, NULL), ATTN_SHAPE_MISMATCH, "memory|3|2");
    REFUSES(m, FORWARD(&x, MEMORY(dtype = ATTN_U8), &out, NULL), ATTN_UNSUPPORTED, "memory|u8");
    REFUSES(m, FORWARD(&x, MEMORY(data = NULL), &out, NULL), ATTN_INVALID_ARGUMENT, "memory|NULL");
    REFUSES(m, FORWARD(&x, &memory, OUT(shape[3] = 10), NULL), ATTN_SHAPE_MISMATCH, "out|10|9");
    REFUSES(m, FORWARD(&x, &memory, OUT(shape[2] = 6), NULL), ATTN_SHAPE_MISMATCH, "out|6|5");
    REFUSES(m, FORWARD(&x, &memory, OUT(stride[2] = 0), NULL), ATTN_INVALID_ARGUMENT, "out|0");
    REFUSES(m, FORWARD(&x, &memory, OUT(data = x.data), NULL), ATTN_INVALID_ARGUMENT, "out|x");
    REFUSES(m, FORWARD(&x, &memory, OUT(data = memory.data), NULL), ATTN_INVALID_ARGUMENT, "out|memory");
    REFUSES(m, FORWARD(&x, &memory, &out, P(struct_size = 1)), ATTN_INVALID_ARGUMENT, "struct_size|1");
    REFUSES(m, FORWARD(&x, &memory, &out, P(num_threads = -1)), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, FORWARD(&x, &memory, &out, P(temperature = -1)), ATTN_INVALID_ARGUMENT, "temperature|-1");
    REFUSES(m, FORWARD(&x, &memory, &out, P(causal = ATTN_CAUSAL_OFFSET)), ATTN_INVALID_ARGUMENT, "query_offset");
    const int64_t kv_len[2] = {6, 7};
    REFUSES(m, FORWARD(&x, &memory, &out, P(kv_len = kv_len)), ATTN_INVALID_ARGUMENT, "kv_len[1]|7|6");
    const uint8_t mask_data[3 * 6] = {0};
    attn_tensor mask = attn_bhtd(mask_data, 1, 3, 1, 6);
    mask.dtype = ATTN_BOOL;
    REFUSES(m, FORWARD(&x, &memory, &out, P(mask = &mask)), ATTN_SHAPE_MISMATCH, "mask|3|4");
    float weights_data[2 * 4 * 5 * 6];
    attn_tensor weights = attn_bhtd(weights_data, 2, 2, 5, 6);
    REFUSES(m, FORWARD(&x, &memory, &out, P(weights = &weights)), ATTN_SHAPE_MISMATCH, "weights|2|4");
    if (size > 0) {
        REFUSES(m, attn_mha_forward(mha, &x, &memory, &out, NULL, workspace, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace");
        const size_t least = said_least();
        assert_true(least <= size); /* which is enough for other types, too */
        REFUSES(m, attn_mha_forward(mha, &x, &memory, &out, NULL, workspace, least - 1), ATTN_WORKSPACE_TOO_SMALL,
                "workspace");
        REFUSES(m, attn_mha_attend(mha, &x, &kv, &out, NULL, workspace, 0), ATTN_WORKSPACE_TOO_SMALL, "workspace");
    }
    assert_true(attn_mha_workspace_size(mha, INT64_MAX / 2, INT64_MAX / 2, 6, NULL) == SIZE_MAX);
    assert_true(attn_mha_workspace_size(mha, 2, INT64_MAX / 8, 6, NULL) == SIZE_MAX);

    REFUSES(m, attn_mha_project_kv(NULL, &memory, &kv, 0), ATTN_INVALID_ARGUMENT, "mha|NULL");
    REFUSES(m, attn_mha_project_kv(mha, NULL, &kv, 0), ATTN_INVALID_ARGUMENT, "memory|NULL");
    REFUSES(m, attn_mha_project_kv(mha, &memory, NULL, 0), ATTN_INVALID_ARGUMENT, "kv|NULL");
    REFUSES(m, attn_mha_project_kv(mha, &memory, CHANGED(attn_tensor, kv, shape[3] = 13), 0), ATTN_SHAPE_MISMATCH,
            "kv|13|14");
    REFUSES(m, attn_mha_project_kv(mha, MEMORY(shape[3] = 8), &kv, 0), ATTN_SHAPE_MISMATCH, "memory|8|7");
    REFUSES(m, attn_mha_project_kv(mha, &memory, &kv, -1), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, attn_mha_attend(mha, &x, NULL, &out, NULL, NULL, 0), ATTN_INVALID_ARGUMENT, "kv|NULL");
    REFUSES(m, attn_mha_attend(mha, &x, CHANGED(attn_tensor, kv, shape[3] = 15), &out, NULL, NULL, 0),
            ATTN_SHAPE_MISMATCH, "kv|15|14");
    REFUSES(m, attn_mha_attend(mha, &x, CHANGED(attn_tensor, kv, stride[3] = 2), &out, NULL, NULL, 0),
            ATTN_INVALID_ARGUMENT, "kv|2");
    REFUSES(m, attn_mha_attend(mha, &x, &kv, OUT(data = kv.data), NULL, NULL, 0), ATTN_INVALID_ARGUMENT, "out|kv");
    nn_end_refusals();
    attn_mha_destroy(mha);
    attn_mha_destroy(NULL);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_oracle), cmocka_unit_test(test_project_kv),
                                       cmocka_unit_test(test_types),          cmocka_unit_test(test_rounded_inputs),
                                       cmocka_unit_test(test_row_bits),       cmocka_unit_test(test_ragged),
                                       cmocka_unit_test(test_cache),          cmocka_unit_test(test_create_refuses),
                                       cmocka_unit_test(test_forward_refuses)};
    return NN_MAIN(tests);
}
