/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements in every tensor of linear attention and of
 * its gradients: some tokens, which are taken one by one, and more than a chunk of
 * them; gates, resets, states, projections of features; on every instruction set.
 */
#include "fixture.h"
#include "arguments.h"
#include "far.h"
#include "guard.h"

#include "attn/linear_attention_backward.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = 2, HQ = 4, HK = 1, H = 2, DK = 8, DV = 5, FEATURES = 12, FEW = 5, MANY = ATTN_LINEAR_ATTENTION_CHUNK + 9 };

enum way { DELTA, GATED, GATED_HEADS, POSITIVE, WAYS };

struct call {
    const attn_tensor *q, *k, *v, *out;
    attn_linear_attention_params params;
    attn_linear_attention_gradients gradients;
};

static attn_status forward(void *user)
{
    const struct call *const c = user;
    return attn_linear_attention(c->q, c->k, c->v, c->out, &c->params);
}

static attn_status backward(void *user)
{
    const struct call *const c = user;
    return attn_linear_attention_backward(c->q, c->k, c->v, c->out, &c->params, &c->gradients);
}

/** Makes numbers those of a decay or a beta: -0.1 to 0, or 0 to 0.1. */
static const attn_tensor *bounded(attn_tensor *t, float sign)
{
    float *const numbers = t->data;
    for (int64_t i = 0; i < t->shape[0] * t->stride[0]; i++)
        numbers[i] = sign * 0.1f * fabsf(sinf(numbers[i]));
    return t;
}

/** What both passes read, but for q, k, v and out. */
static void set_options(struct call *c, struct far_set *set, enum way way, int64_t tokens)
{
    attn_linear_attention_params *const p = &c->params;
    const int positive = way == POSITIVE;
    if (way != POSITIVE)
        p->decay =
            bounded(far_add(set, "decay", FAR_READ, 1, ATTN_F32, B, H, tokens, way == GATED_HEADS ? 1 : DK), -1.0f);
    if (way == DELTA)
        p->beta = bounded(far_add(set, "beta", FAR_READ, 1, ATTN_F32, B, H, tokens, 1), 1.0f);
    if (way == GATED_HEADS || way == DELTA)
        p->resets = far_add(set, "resets", FAR_READ, 1, ATTN_BOOL, B, H, tokens, 1);
    if (positive) {
        p->map = ATTN_FEATURES_POSITIVE;
        p->projection = far_add(set, "projection", FAR_READ, 0, ATTN_F32, 1, H, FEATURES, DK);
        p->normalise = 1;
    }
    p->state_in =
        far_add(set, "state_in", FAR_READ, 0, ATTN_F32, B, H, positive ? FEATURES : DK, positive ? DV + 1 : DV);
}

static struct call make_call(struct far_set *set, const char *isa, attn_dtype dtype, enum way way, int64_t tokens,
                             enum far_use out)
{
    struct call c = {.params = attn_linear_attention_params_default(),
                     .gradients = attn_linear_attention_gradients_default()};
    c.q = far_add(set, "q", FAR_READ, 0, dtype, B, HQ, tokens, DK);
    c.k = far_add(set, "k", FAR_READ, 0, dtype, B, HK, tokens, DK);
    c.v = far_add(set, "v", FAR_READ, 0, dtype, B, H, tokens, DV);
    c.out = far_add(set, "out", out, 0, dtype, B, HQ, tokens, DV);
    c.params.isa = isa;
    set_options(&c, set, way, tokens);
    return c;
}

static int check_forward(const char *isa, attn_dtype dtype, enum way way, int64_t tokens)
{
    struct far_set set = {0};
    char what[96];
    struct call c = make_call(&set, isa, dtype, way, tokens, FAR_WRITTEN);
    const attn_tensor *const s = c.params.state_in;
    c.params.state_out = far_add(&set, "state_out", FAR_WRITTEN, 0, ATTN_F32, B, H, s->shape[2], s->shape[3]);
    snprintf(what, sizeof what, "way %d, %d tokens, %s, %s", (int)way, (int)tokens, isa, attn_dtype_name(dtype));
    const int wrong = far_check_set(what, &set, forward, &c);
    far_clear(&set);
    return wrong;
}

static int check_backward(const char *isa, attn_dtype dtype, enum way way, int64_t tokens)
{
    struct far_set set = {0};
    char what[96];
    struct call c = make_call(&set, isa, dtype, way, tokens, FAR_READ);
    attn_linear_attention_gradients *const g = &c.gradients;
    const attn_tensor *const s = c.params.state_in, *const decay = c.params.decay;
    assert_int_equal(forward(&c), ATTN_OK);
    g->out = far_add(&set, "gradients.out", FAR_READ, 0, dtype, B, HQ, tokens, DV);
    g->state_out = far_add(&set, "gradients.state_out", FAR_READ, 0, ATTN_F32, B, H, s->shape[2], s->shape[3]);
    g->q = far_add(&set, "gradients.q", FAR_WRITTEN, 0, dtype, B, HQ, tokens, DK);
    g->k = far_add(&set, "gradients.k", FAR_WRITTEN, 0, dtype, B, HK, tokens, DK);
    g->v = far_add(&set, "gradients.v", FAR_WRITTEN, 0, dtype, B, H, tokens, DV);
    g->state_in = far_add(&set, "gradients.state_in", FAR_WRITTEN, 0, ATTN_F32, B, H, s->shape[2], s->shape[3]);
    if (decay)
        g->decay = far_add(&set, "gradients.decay", FAR_WRITTEN, 1, ATTN_F32, B, H, tokens, decay->shape[3]);
    snprintf(what, sizeof what, "gradients of way %d, %d tokens, %s, %s", (int)way, (int)tokens, isa,
             attn_dtype_name(dtype));
    const int wrong = far_check_set(what, &set, backward, &c);
    far_clear(&set);
    return wrong;
}

/** All ways of a pass, and both numbers of tokens. */
static void check_ways(int (*check)(const char *isa, attn_dtype dtype, enum way way, int64_t tokens), enum way first)
{
    int wrong = 0;
    for (int n = 0; attn_isa_name(n); n++) {
        const char *const isa = attn_isa_name(n);
        for (int way = (int)first; way < WAYS && attn_isa_supported(isa); way++) {
            const int slow = surroundings_are_slow(), even = (n + way) % 2 == 0;
            if (!slow || even)
                wrong += check(isa, way % 2 ? ATTN_F32 : ATTN_BF16, (enum way)way, FEW);
            if (!slow || !even)
                wrong += check(isa, way % 2 ? ATTN_F16 : ATTN_F32, (enum way)way, MANY);
            if (!slow)
                wrong += check(isa, way % 2 ? ATTN_BF16 : ATTN_F32, (enum way)way, FEW);
        }
    }
    assert_int_equal(wrong, 0);
}

static void test_forward(void **state)
{
    (void)state;
    check_ways(check_forward, DELTA);
}

/** Rules with beta have no gradients. */
static void test_backward(void **state)
{
    (void)state;
    check_ways(check_backward, GATED);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
