/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements in what stands between the layers: rows of
 * activations, tables of embeddings, weights as they lie, logits, and gradients of
 * all of these. Gradients that have no gaps by their contract, and the arrays of
 * the optimiser, are written one by one, and cannot be that long here.
 */
#include "memory.h"

#include "far.h"

#include "attn/nn.h"

enum { B = 2, T = 7, C = 20, OUT = 24, WORDS = 9 };

/** What a call reads and writes; which of them, follows from the function. */
struct call {
    attn_tensor *x, *other, *out, *out2, *gamma, *beta, *weights, *bias;
    int32_t ids[B * T];
    attn_linear_format format;
    attn_linear_gradients linear;
    attn_norm_gradients norm;
};

static attn_status normalise(void *user)
{
    const struct call *const c = user;
    return attn_normalise(ATTN_NORM_LAYER, c->x, c->gamma, c->beta, 1e-5f, c->out, 0);
}

static attn_status normalise_backward(void *user)
{
    const struct call *const c = user;
    return attn_normalise_backward(ATTN_NORM_LAYER, c->x, c->gamma, 1e-5f, c->other, &c->norm, NULL, 0);
}

static attn_status drop(void *user)
{
    const struct call *const c = user;
    const attn_dropout dropout = {0.3f, 5, 6};
    return attn_drop_activations(&dropout, c->x, c->out, 0);
}

static attn_status activate(void *user)
{
    const struct call *const c = user;
    return attn_activate(ATTN_ACTIVATION_GELU, c->x, c->out, 0);
}

static attn_status activate_backward(void *user)
{
    const struct call *const c = user;
    return attn_activate_backward(ATTN_ACTIVATION_SILU, c->x, c->other, c->out, 0);
}

static attn_status gate(void *user)
{
    const struct call *const c = user;
    return attn_gate(ATTN_ACTIVATION_SILU, c->x, c->other, c->out, 0);
}

static attn_status gate_backward(void *user)
{
    const struct call *const c = user;
    return attn_gate_backward(ATTN_ACTIVATION_SILU, c->x, c->other, c->gamma, c->out, c->out2, 0);
}

static attn_status embed(void *user)
{
    const struct call *const c = user;
    return attn_embed(c->weights, c->ids, 0, 0, c->out, 0);
}

static attn_status embed_backward(void *user)
{
    const struct call *const c = user;
    return attn_embed_backward(c->ids, 0, c->x, c->out, 0, 0);
}

static attn_status cross_entropy(void *user)
{
    const struct call *const c = user;
    double loss;
    return attn_cross_entropy(c->x, c->ids, 0.1f, &loss, c->out, 0);
}

static attn_status linear(void *user)
{
    const struct call *const c = user;
    attn_linear *layer;
    attn_linear_options options = attn_linear_options_default();
    options.residual = c->other;
    attn_status status = attn_linear_quantize(&layer, &c->format, 1, c->weights, c->bias);
    if (status == ATTN_OK)
        status = attn_linear_forward(layer, c->x, c->out, &options);
    attn_linear_destroy(layer);
    return status;
}

static attn_status linear_backward(void *user)
{
    const struct call *const c = user;
    return attn_linear_backward(c->weights, c->x, c->other, &c->linear, NULL, 0);
}

static attn_tensor *rows(struct far_set *set, const char *name, enum far_use use, attn_dtype dtype, int64_t channels)
{
    return far_add(set, name, use, 0, dtype, B, 1, T, channels);
}

static int check(const char *what, struct far_set *set, far_call *call, struct call *c, attn_dtype dtype)
{
    char text[96];
    snprintf(text, sizeof text, "%s, %s", what, attn_dtype_name(dtype));
    const int wrong = far_check_set(text, set, call, c);
    far_clear(set);
    return wrong;
}

static struct call with_ids(void)
{
    struct call c = {0};
    for (int i = 0; i < B * T; i++)
        c.ids[i] = (5 * i + 1) % WORDS;
    return c;
}

static int check_elementwise(attn_dtype dtype)
{
    const struct {
        const char *what;
        far_call *call;
    } unary[] = {{"drop", drop}, {"activate", activate}},
      binary[] = {{"activate backward", activate_backward}, {"gate", gate}};
    struct far_set set = {0};
    struct call c = {0};
    int wrong = 0;
    for (int n = 0; n < 2; n++) {
        c.x = rows(&set, "x", FAR_READ, dtype, C);
        c.out = rows(&set, "out", FAR_WRITTEN, dtype, C);
        wrong += check(unary[n].what, &set, unary[n].call, &c, dtype);
        c.x = rows(&set, "x", FAR_READ, dtype, C);
        c.other = rows(&set, "other", FAR_READ, dtype, C);
        c.out = rows(&set, "out", FAR_WRITTEN, dtype, C);
        wrong += check(binary[n].what, &set, binary[n].call, &c, dtype);
    }
    c.x = rows(&set, "gate", FAR_READ, dtype, C);
    c.other = rows(&set, "up", FAR_READ, dtype, C);
    c.gamma = rows(&set, "d_out", FAR_READ, dtype, C);
    c.out = rows(&set, "d_gate", FAR_WRITTEN, dtype, C);
    c.out2 = rows(&set, "d_up", FAR_WRITTEN, dtype, C);
    return wrong + check("gate backward", &set, gate_backward, &c, dtype);
}

static int check_norm(attn_dtype dtype)
{
    struct far_set set = {0};
    struct call c = {.norm = attn_norm_gradients_default()};
    c.x = rows(&set, "x", FAR_READ, dtype, C);
    c.gamma = far_add(&set, "gamma", FAR_READ, 0, dtype, 1, 1, 1, C);
    c.beta = far_add(&set, "beta", FAR_READ, 0, dtype, 1, 1, 1, C);
    c.out = rows(&set, "out", FAR_WRITTEN, dtype, C);
    int wrong = check("normalise", &set, normalise, &c, dtype);
    c.x = rows(&set, "x", FAR_READ, dtype, C);
    c.gamma = far_add(&set, "gamma", FAR_READ, 0, dtype, 1, 1, 1, C);
    c.other = rows(&set, "d_out", FAR_READ, dtype, C);
    c.norm.x = rows(&set, "d_x", FAR_WRITTEN, dtype, C);
    c.norm.gamma = far_add(&set, "d_gamma", FAR_WRITTEN, 0, ATTN_F32, 1, 1, 1, C);
    return wrong + check("normalise backward", &set, normalise_backward, &c, dtype);
}

static int check_tables(attn_dtype dtype)
{
    struct far_set set = {0};
    struct call c = with_ids();
    c.weights = far_add(&set, "table", FAR_READ, 0, dtype, 1, 1, WORDS, C);
    c.out = rows(&set, "out", FAR_WRITTEN, dtype, C);
    int wrong = check("embed", &set, embed, &c, dtype);
    c.x = rows(&set, "d_out", FAR_READ, dtype, C);
    c.out = far_add(&set, "d_table", FAR_WRITTEN, 0, ATTN_F32, 1, 1, WORDS, C);
    wrong += check("embed backward", &set, embed_backward, &c, dtype);
    c.x = rows(&set, "logits", FAR_READ, dtype, WORDS);
    c.out = rows(&set, "d_logits", FAR_WRITTEN, dtype, WORDS);
    return wrong + check("cross-entropy", &set, cross_entropy, &c, dtype);
}

/** Layers that are made of weights far apart, and multiply rows far apart. */
static int check_linear(attn_dtype dtype, attn_weight_format format, attn_multiply multiply)
{
    struct far_set set = {0};
    struct call c = {.format = attn_linear_format_default()};
    char what[64];
    c.format.weights = format;
    c.format.multiply = multiply;
    c.format.group = format == ATTN_WEIGHTS_INT4 ? 32 : 0;
    c.x = rows(&set, "x", FAR_READ, dtype, C);
    c.weights = far_add(&set, "weights", FAR_READ, 1, dtype, 1, 1, OUT, C);
    c.bias = far_add(&set, "bias", FAR_READ, 0, dtype, 1, 1, 1, OUT);
    c.other = rows(&set, "residual", FAR_READ, dtype, OUT);
    c.out = rows(&set, "out", FAR_WRITTEN, dtype, OUT);
    snprintf(what, sizeof what, "linear, weights %d by %d", (int)format, (int)multiply);
    return check(what, &set, linear, &c, dtype);
}

static int check_linear_backward(attn_dtype dtype)
{
    struct far_set set = {0};
    struct call c = {.linear = attn_linear_gradients_default()};
    c.x = rows(&set, "x", FAR_READ, dtype, C);
    c.weights = far_add(&set, "weights", FAR_READ, 1, dtype, 1, 1, OUT, C);
    c.other = rows(&set, "d_out", FAR_READ, dtype, OUT);
    c.linear.x = rows(&set, "d_x", FAR_WRITTEN, dtype, C);
    c.linear.weights = far_add(&set, "d_weights", FAR_WRITTEN, 0, ATTN_F32, 1, 1, OUT, C);
    c.linear.bias = far_add(&set, "d_bias", FAR_WRITTEN, 0, ATTN_F32, 1, 1, 1, OUT);
    return check("linear backward", &set, linear_backward, &c, dtype);
}

static void test_rows(void **state)
{
    (void)state;
    int wrong = 0;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++)
        wrong += check_elementwise((attn_dtype)dtype) + check_norm((attn_dtype)dtype) + check_tables((attn_dtype)dtype);
    assert_int_equal(wrong, 0);
}

static void test_products(void **state)
{
    (void)state;
    int wrong = 0;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        wrong += check_linear((attn_dtype)dtype, ATTN_WEIGHTS_AS_GIVEN, ATTN_MULTIPLY_F32);
        wrong += check_linear((attn_dtype)dtype, ATTN_WEIGHTS_BF16, ATTN_MULTIPLY_BF16);
        wrong += check_linear((attn_dtype)dtype, ATTN_WEIGHTS_INT8, ATTN_MULTIPLY_INT8);
        wrong += check_linear((attn_dtype)dtype, ATTN_WEIGHTS_INT4, ATTN_MULTIPLY_F32);
        wrong += check_linear_backward((attn_dtype)dtype);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
