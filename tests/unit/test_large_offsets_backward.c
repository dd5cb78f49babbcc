/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements in every tensor of the backward pass: what
 * it reads, and the gradients that it writes, those of masks and of tables among
 * them, on every instruction set. Gradients of what has a number for each head or
 * distance (slopes, sinks, factors, biases) are written one by one, and cannot be
 * that many here.
 */
#include "fixture.h"
#include "arguments.h"
#include "far.h"
#include "guard.h"

#include "attn/backward.h"

#include <stdio.h>
#include <string.h>

enum { B = 2, HQ = 4, HKV = 2, TQ = 20, TK = 40, D = 16, DV = 8, PAIRS = 4, SPAN = 5 };

enum way { PLAIN, MASKED, ROTATED, TABLES, RAGGED, WAYS };

struct call {
    const attn_tensor *q, *k, *v, *out;
    attn_params params;
    attn_gradients gradients;
    attn_rope_tables rope;
    attn_disentangled terms;
    attn_ragged ragged;
};

static attn_status backward(void *user)
{
    const struct call *const c = user;
    return attn_backward(c->q, c->k, c->v, c->out, &c->params, &c->gradients);
}

/** Options of a way, and the gradients that they have. */
static void set_options(struct call *c, struct far_set *set, enum way way, int64_t batch)
{
    static const int64_t offsets_q[] = {0, 12, 12, TQ}, offsets_k[] = {0, 9, 20, TK};
    if (way == MASKED) {
        c->params.mask = far_add(set, "mask", FAR_READ, 1, ATTN_F32, batch, HQ, TQ, TK);
        c->gradients.mask = far_add(set, "gradients.mask", FAR_WRITTEN, 1, ATTN_F32, batch, HQ, TQ, TK);
    }
    if (way == ROTATED) {
        c->rope = (attn_rope_tables){ATTN_ROPE_HALF_SPLIT,
                                     far_add(set, "rope.q", FAR_READ, 0, ATTN_F32, batch, HQ, TQ, 2 * PAIRS),
                                     far_add(set, "rope.k", FAR_READ, 0, ATTN_F32, batch, HKV, TK, 2 * PAIRS)};
        c->params.rope = &c->rope;
    }
    if (way == TABLES) {
        c->terms = (attn_disentangled){.span = SPAN,
                                       .rel_k = far_add(set, "rel_k", FAR_READ, 0, ATTN_F32, 1, HQ, 2 * SPAN, D),
                                       .rel_q = far_add(set, "rel_q", FAR_READ, 0, ATTN_F32, 1, HQ, 2 * SPAN, D)};
        c->params.disentangled = &c->terms;
        c->gradients.rel_k = far_add(set, "gradients.rel_k", FAR_WRITTEN, 0, ATTN_F32, 1, HQ, 2 * SPAN, D);
        c->gradients.rel_q = far_add(set, "gradients.rel_q", FAR_WRITTEN, 0, ATTN_F32, 1, HQ, 2 * SPAN, D);
    }
    if (way == RAGGED) {
        c->ragged = (attn_ragged){3, offsets_q, offsets_k};
        c->params.ragged = &c->ragged;
    }
}

static int check_way(const char *isa, attn_dtype dtype, enum way way)
{
    const int64_t batch = way == RAGGED ? 1 : B;
    struct far_set set = {0};
    struct call c = {.params = attn_params_default(), .gradients = attn_gradients_default()};
    char what[64];
    c.q = far_add(&set, "q", FAR_READ, 0, dtype, batch, HQ, TQ, D);
    c.k = far_add(&set, "k", FAR_READ, 0, dtype, batch, HKV, TK, D);
    c.v = far_add(&set, "v", FAR_READ, 0, dtype, batch, HKV, TK, DV);
    c.out = far_add(&set, "out", FAR_READ, 0, dtype, batch, HQ, TQ, DV);
    c.params.lse = far_add(&set, "lse", FAR_READ, 1, ATTN_F32, batch, HQ, TQ, 1);
    c.params.isa = isa;
    c.gradients.out = far_add(&set, "gradients.out", FAR_READ, 0, dtype, batch, HQ, TQ, DV);
    c.gradients.lse = far_add(&set, "gradients.lse", FAR_READ, 1, ATTN_F32, batch, HQ, TQ, 1);
    c.gradients.q = far_add(&set, "gradients.q", FAR_WRITTEN, 0, dtype, batch, HQ, TQ, D);
    c.gradients.k = far_add(&set, "gradients.k", FAR_WRITTEN, 0, dtype, batch, HKV, TK, D);
    c.gradients.v = far_add(&set, "gradients.v", FAR_WRITTEN, 0, dtype, batch, HKV, TK, DV);
    set_options(&c, &set, way, batch);
    assert_int_equal(attn_forward(c.q, c.k, c.v, c.out, &c.params), ATTN_OK);
    snprintf(what, sizeof what, "way %d, %s, %s", (int)way, isa, attn_dtype_name(dtype));
    const int wrong = far_check_set(what, &set, backward, &c);
    far_clear(&set);
    return wrong;
}

static void test_gradients(void **state)
{
    (void)state;
    int wrong = 0;
    for (int n = 0; attn_isa_name(n); n++)
        for (int way = PLAIN; way < WAYS && attn_isa_supported(attn_isa_name(n)); way++) {
            const int slow = surroundings_are_slow();
            if (!slow || (n + way) % 2 == 0)
                wrong += check_way(attn_isa_name(n), ATTN_F32, (enum way)way);
            if (!slow || (n + way) % 2 == 1)
                wrong += check_way(attn_isa_name(n), way == TABLES ? ATTN_F16 : ATTN_BF16, (enum way)way);
        }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
