/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements in what layers read and write: multi-head
 * attention and its keys and values, Linformer's projections, an LSTM and its
 * states, score functions, pooling, the decoder of Bahdanau et al., and gradients
 * of these. Whole models take ids, and keep activations in a workspace of their own.
 */
#include "memory.h"

#include "far.h"

#include "attn/nn.h"

enum { B = 2, T = 9, TM = 12, C = 16, HEADS = 4, KV = 2, HIDDEN = 6, A = 5, RANK = 4 };

/** Layers that were made once, and what a call reads and writes; which of them, follows from the function. */
struct call {
    attn_mha *mha;
    attn_lstm *lstm;
    attn_alignment *alignment;
    attn_pool *pool;
    attn_bahdanau *bahdanau;
    attn_lstm_config lstm_config;
    attn_lstm_weights lstm_weights[2];
    attn_alignment_config alignment_config;
    attn_tensor pool_w, pool_v;
    attn_tensor *x, *memory, *out, *state, *weights, *keys, *values, *d_out, *word, *context;
    attn_params params;
    attn_lstm_gradients lstm_gradients;
    attn_alignment_gradients alignment_gradients;
    attn_pool_gradients pool_gradients;
};

static attn_status mha_forward(void *user)
{
    const struct call *const c = user;
    return attn_mha_forward(c->mha, c->x, c->memory, c->out, NULL, NULL, 0);
}

static attn_status mha_project(void *user)
{
    const struct call *const c = user;
    return attn_mha_project_kv(c->mha, c->memory, c->out, 0);
}

static attn_status mha_attend(void *user)
{
    const struct call *const c = user;
    return attn_mha_attend(c->mha, c->x, c->keys, c->out, NULL, NULL, 0);
}

static attn_status linformer(void *user)
{
    const struct call *const c = user;
    return attn_linformer_forward(c->x, c->keys, c->values, c->memory, c->weights, c->out, NULL, NULL, 0);
}

static attn_status lstm_forward(void *user)
{
    const struct call *const c = user;
    return attn_lstm_forward(c->lstm, c->x, NULL, c->state, c->out, 0, NULL, 0);
}

static attn_status lstm_backward(void *user)
{
    const struct call *const c = user;
    return attn_lstm_backward(&c->lstm_config, c->lstm_weights, c->x, NULL, NULL, c->out, c->d_out, &c->lstm_gradients,
                              NULL, 0);
}

static attn_status alignment_project(void *user)
{
    const struct call *const c = user;
    return attn_alignment_project(c->alignment, c->memory, c->out, 0);
}

static attn_status alignment_forward(void *user)
{
    struct call *const c = user;
    c->params.weights = c->weights;
    return attn_alignment_forward(c->alignment, c->x, c->keys, c->values, c->out, &c->params, NULL, 0);
}

static attn_status alignment_backward(void *user)
{
    const struct call *const c = user;
    return attn_alignment_backward(&c->alignment_config, c->x, c->keys, c->values, NULL, c->d_out,
                                   &c->alignment_gradients, NULL, 0);
}

static attn_status pool_forward(void *user)
{
    const struct call *const c = user;
    return attn_pool_forward(c->pool, c->x, NULL, c->out, c->weights, 0, NULL, 0);
}

static attn_status pool_backward(void *user)
{
    const struct call *const c = user;
    return attn_pool_backward(&c->pool_w, NULL, &c->pool_v, c->x, NULL, c->d_out, &c->pool_gradients, NULL, 0);
}

static attn_status bahdanau_forward(void *user)
{
    const struct call *const c = user;
    return attn_bahdanau_forward(c->bahdanau, c->word, c->keys, c->values, NULL, c->state, c->context, c->weights, 0,
                                 NULL, 0);
}

static attn_tensor *rows(struct far_set *set, const char *name, enum far_use use, attn_dtype dtype, int64_t tokens,
                         int64_t channels)
{
    return far_add(set, name, use, 0, dtype, B, 1, tokens, channels);
}

static int check(const char *what, struct far_set *set, far_call *call, struct call *c, attn_dtype dtype)
{
    char text[96];
    snprintf(text, sizeof text, "%s, %s", what, attn_dtype_name(dtype));
    const int wrong = far_check_set(text, set, call, c);
    far_clear(set);
    return wrong;
}

static int check_mha(struct call *c, attn_dtype dtype)
{
    const int64_t width = KV * 2 * (C / HEADS);
    struct far_set set = {0};
    c->x = rows(&set, "x", FAR_READ, dtype, T, C);
    c->memory = rows(&set, "memory", FAR_READ, dtype, TM, C);
    c->out = rows(&set, "out", FAR_WRITTEN, dtype, T, C);
    int wrong = check("mha", &set, mha_forward, c, dtype);
    c->memory = rows(&set, "memory", FAR_READ, dtype, TM, C);
    c->out = rows(&set, "kv", FAR_WRITTEN, dtype, TM, width);
    wrong += check("mha's keys", &set, mha_project, c, dtype);
    c->x = rows(&set, "x", FAR_READ, dtype, T, C);
    c->keys = rows(&set, "kv", FAR_READ, dtype, TM, width);
    c->out = rows(&set, "out", FAR_WRITTEN, dtype, T, C);
    return wrong + check("mha attending", &set, mha_attend, c, dtype);
}

static int check_linformer(struct call *c, attn_dtype dtype)
{
    struct far_set set = {0};
    c->x = far_add(&set, "q", FAR_READ, 0, dtype, B, HEADS, T, C);
    c->keys = far_add(&set, "k", FAR_READ, 0, dtype, B, KV, TM, C);
    c->values = far_add(&set, "v", FAR_READ, 0, dtype, B, KV, TM, C);
    c->memory = far_add(&set, "e", FAR_READ, 1, dtype, 1, KV, RANK, TM);
    c->weights = far_add(&set, "f", FAR_READ, 1, dtype, 1, KV, RANK, TM);
    c->out = far_add(&set, "out", FAR_WRITTEN, 0, dtype, B, HEADS, T, C);
    return check("linformer", &set, linformer, c, dtype);
}

static int check_lstm(struct call *c, attn_dtype dtype)
{
    struct far_set set = {0};
    c->x = rows(&set, "x", FAR_READ, dtype, T, C);
    c->state = far_add(&set, "state", FAR_READ, 0, ATTN_F32, 2, 1, 2 * B, HIDDEN);
    set.tensors[1].use = FAR_WRITTEN; /* and read: it has numbers to begin with */
    c->out = rows(&set, "out", FAR_WRITTEN, dtype, T, 2 * HIDDEN);
    int wrong = check("lstm", &set, lstm_forward, c, dtype);
    attn_lstm_gradients *const g = &c->lstm_gradients;
    *g = attn_lstm_gradients_default();
    c->state = NULL;
    c->x = rows(&set, "x", FAR_READ, dtype, T, C);
    c->out = rows(&set, "out", FAR_READ, dtype, T, 2 * HIDDEN);
    OK(attn_lstm_forward(c->lstm, c->x, NULL, NULL, c->out, 0, NULL, 0));
    c->d_out = rows(&set, "d_out", FAR_READ, dtype, T, 2 * HIDDEN);
    g->x = rows(&set, "gradients.x", FAR_WRITTEN, dtype, T, C);
    return wrong + check("lstm backward", &set, lstm_backward, c, dtype);
}

static int check_alignment(struct call *c, attn_dtype dtype)
{
    struct far_set set = {0};
    c->memory = rows(&set, "keys", FAR_READ, dtype, TM, C);
    c->out = rows(&set, "projected", FAR_WRITTEN, dtype, TM, A);
    int wrong = check("alignment's keys", &set, alignment_project, c, dtype);
    c->x = rows(&set, "q", FAR_READ, dtype, T, HIDDEN);
    c->keys = rows(&set, "projected", FAR_READ, dtype, TM, A);
    c->values = rows(&set, "v", FAR_READ, dtype, TM, C);
    c->out = rows(&set, "out", FAR_WRITTEN, dtype, T, C);
    c->weights = far_add(&set, "weights", FAR_WRITTEN, 1, ATTN_F32, B, 1, T, TM);
    wrong += check("alignment", &set, alignment_forward, c, dtype);
    if (dtype != ATTN_F32)
        return wrong;
    attn_alignment_gradients *const g = &c->alignment_gradients;
    *g = attn_alignment_gradients_default();
    c->x = rows(&set, "q", FAR_READ, ATTN_F32, T, HIDDEN);
    c->keys = rows(&set, "projected", FAR_READ, ATTN_F32, TM, A);
    c->values = rows(&set, "v", FAR_READ, ATTN_F32, TM, C);
    c->d_out = rows(&set, "d_out", FAR_READ, ATTN_F32, T, C);
    g->q = rows(&set, "gradients.q", FAR_WRITTEN, ATTN_F32, T, HIDDEN);
    g->projected = rows(&set, "gradients.projected", FAR_WRITTEN, ATTN_F32, TM, A);
    g->v = rows(&set, "gradients.v", FAR_WRITTEN, ATTN_F32, TM, C);
    return wrong + check("alignment backward", &set, alignment_backward, c, ATTN_F32);
}

/** What is f32 alone: pooling, and a decoder's step. */
static int check_floats(struct call *c)
{
    struct far_set set = {0};
    c->x = rows(&set, "x", FAR_READ, ATTN_F32, T, C);
    c->out = rows(&set, "out", FAR_WRITTEN, ATTN_F32, 1, C);
    c->weights = rows(&set, "weights", FAR_WRITTEN, ATTN_F32, 1, T);
    int wrong = check("pool", &set, pool_forward, c, ATTN_F32);
    attn_pool_gradients *const g = &c->pool_gradients;
    *g = attn_pool_gradients_default();
    c->x = rows(&set, "x", FAR_READ, ATTN_F32, T, C);
    c->d_out = rows(&set, "d_out", FAR_READ, ATTN_F32, 1, C);
    g->x = rows(&set, "gradients.x", FAR_WRITTEN, ATTN_F32, T, C);
    wrong += check("pool backward", &set, pool_backward, c, ATTN_F32);
    c->word = rows(&set, "word", FAR_READ, ATTN_F32, 1, C);
    c->keys = rows(&set, "projected", FAR_READ, ATTN_F32, TM, A);
    c->values = rows(&set, "annotations", FAR_READ, ATTN_F32, TM, C);
    c->state = rows(&set, "state", FAR_READ, ATTN_F32, 1, HIDDEN);
    set.tensors[3].use = FAR_WRITTEN; /* the same as of an LSTM's */
    c->context = rows(&set, "context", FAR_WRITTEN, ATTN_F32, 1, C);
    c->weights = rows(&set, "weights", FAR_WRITTEN, ATTN_F32, 1, TM);
    return wrong + check("bahdanau", &set, bahdanau_forward, c, ATTN_F32);
}

static void make_layers(struct call *c, struct memory *m)
{
    attn_mha_config mha = attn_mha_config_default();
    attn_mha_weights mha_weights = attn_mha_weights_default();
    mha.d_model = C, mha.heads = HEADS, mha.kv_heads = KV;
    mha_weights.w_q = random_matrix(m, ATTN_F32, C, C, 0.3);
    mha_weights.w_k = random_matrix(m, ATTN_F32, KV * C / HEADS, C, 0.3);
    mha_weights.w_v = random_matrix(m, ATTN_F32, KV * C / HEADS, C, 0.3);
    mha_weights.w_o = random_matrix(m, ATTN_F32, C, C, 0.3);
    OK(attn_mha_create(&c->mha, &mha, &mha_weights));

    c->lstm_config = attn_lstm_config_default();
    c->lstm_config.input = C, c->lstm_config.hidden = HIDDEN, c->lstm_config.bidirectional = 1;
    for (int n = 0; n < 2; n++) {
        c->lstm_weights[n] = (attn_lstm_weights){.w_ih = random_matrix(m, ATTN_F32, 4 * HIDDEN, C, 0.3),
                                                 .w_hh = random_matrix(m, ATTN_F32, 4 * HIDDEN, HIDDEN, 0.3)};
    }
    OK(attn_lstm_create(&c->lstm, &c->lstm_config, c->lstm_weights));

    attn_alignment_config *const alignment = &c->alignment_config;
    *alignment = attn_alignment_config_default();
    alignment->score = ATTN_SCORE_ADDITIVE;
    alignment->d_query = HIDDEN, alignment->d_key = C, alignment->d_attention = A;
    alignment->w_q = random_matrix(m, ATTN_F32, A, HIDDEN, 0.3);
    alignment->w_k = random_matrix(m, ATTN_F32, A, C, 0.3);
    alignment->v = random_vector(m, ATTN_F32, A, 1, 0);
    OK(attn_alignment_create(&c->alignment, alignment));

    c->pool_w = random_matrix(m, ATTN_F32, A, C, 0.3);
    c->pool_v = random_vector(m, ATTN_F32, A, 1, 0);
    OK(attn_pool_create(&c->pool, &c->pool_w, NULL, &c->pool_v));

    attn_bahdanau_config bahdanau = attn_bahdanau_config_default();
    bahdanau.alignment = c->alignment;
    bahdanau.embedding = bahdanau.annotation = C, bahdanau.hidden = HIDDEN;
    bahdanau.w_ih = random_matrix(m, ATTN_F32, 3 * HIDDEN, 2 * C, 0.3);
    bahdanau.w_hh = random_matrix(m, ATTN_F32, 3 * HIDDEN, HIDDEN, 0.3);
    OK(attn_bahdanau_create(&c->bahdanau, &bahdanau));
}

static void test_layers(void **state)
{
    (void)state;
    struct memory *const m = memory_create("large offsets", 0);
    struct call c = {.params = attn_params_default()};
    make_layers(&c, m);
    int wrong = check_floats(&c);
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++)
        wrong += check_mha(&c, (attn_dtype)dtype) + check_linformer(&c, (attn_dtype)dtype) +
                 check_lstm(&c, (attn_dtype)dtype) + check_alignment(&c, (attn_dtype)dtype);
    attn_bahdanau_destroy(c.bahdanau);
    attn_pool_destroy(c.pool);
    attn_alignment_destroy(c.alignment);
    attn_lstm_destroy(c.lstm);
    attn_mha_destroy(c.mha);
    memory_destroy(m);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
