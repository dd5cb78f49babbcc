/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements in tables by position: of rotations and of
 * disentangled attention, by their strides and, where a table has rows for so many
 * distances, without any gap. A table of attn_relative_bias would have to be as
 * long, too, and every call looks at all of it.
 */
#include "fixture.h"
#include "arguments.h"
#include "far.h"
#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, HQ = 4, HKV = 2, TQ = 40, TK = 50, DK = 16, DV = 8, PAIRS = 6, SPAN = 6 };

struct call {
    const attn_tensor *q, *k, *v, *out;
    attn_params params;
};

static attn_status forward(void *user)
{
    const struct call *const c = user;
    return attn_forward(c->q, c->k, c->v, c->out, &c->params);
}

static void make_call(struct call *c, struct far_set *set, const char *isa, attn_dtype dtype, int64_t tq, int64_t dk)
{
    c->q = far_add(set, "q", FAR_READ, 0, dtype, B, HQ, tq, dk);
    c->k = far_add(set, "k", FAR_READ, 0, dtype, B, HKV, TK, dk);
    c->v = far_add(set, "v", FAR_READ, 0, dtype, B, HKV, TK, DV);
    c->out = far_add(set, "out", FAR_WRITTEN, 0, dtype, B, HQ, tq, DV);
    c->params = attn_params_default();
    c->params.isa = isa;
}

static int check_rotations(const char *isa, attn_dtype dtype, int64_t tq, attn_rope_layout layout)
{
    struct far_set set = {0};
    struct call c;
    char what[96];
    make_call(&c, &set, isa, dtype, tq, DK);
    const attn_rope_tables rope = {layout, far_add(&set, "rope.q", FAR_READ, 0, ATTN_F32, B, HQ, tq, 2 * PAIRS),
                                   far_add(&set, "rope.k", FAR_READ, 0, ATTN_F32, B, HKV, TK, 2 * PAIRS)};
    c.params.rope = &rope;
    snprintf(what, sizeof what, "rotations, %d queries, %s, %s", (int)tq, isa, attn_dtype_name(dtype));
    const int wrong = far_check_set(what, &set, forward, &c);
    far_clear(&set);
    return wrong;
}

static int check_disentangled(const char *isa, attn_dtype dtype, int64_t tq)
{
    struct far_set set = {0};
    struct call c;
    char what[96];
    make_call(&c, &set, isa, dtype, tq, DK);
    const attn_disentangled terms = {.span = SPAN,
                                     .rel_k = far_add(&set, "rel_k", FAR_READ, 0, ATTN_F32, 1, HQ, 2 * SPAN, DK),
                                     .rel_q = far_add(&set, "rel_q", FAR_READ, 0, ATTN_F32, 1, HQ, 2 * SPAN, DK)};
    c.params.disentangled = &terms;
    snprintf(what, sizeof what, "disentangled, %d queries, %s, %s", (int)tq, isa, attn_dtype_name(dtype));
    const int wrong = far_check_set(what, &set, forward, &c);
    far_clear(&set);
    return wrong;
}

/** The longest tables there are: rows for 2^30 distances on each side, of which a call needs those in the middle. */
static int check_long_tables(const char *isa, int64_t tq)
{
    enum { NEAR = 64, LONG = 1 << 30, FEW = 2 };
    struct far_set set = {0};
    struct call c;
    make_call(&c, &set, isa, ATTN_F32, tq, FEW);
    const size_t out_size = (size_t)(B * HQ * tq * DV) * sizeof(float);
    attn_tensor rel_k = *far_add(&set, "rel_k", FAR_READ, 0, ATTN_F32, 1, 1, 2 * NEAR, FEW);
    attn_tensor rel_q = *far_add(&set, "rel_q", FAR_READ, 0, ATTN_F32, 1, 1, 2 * NEAR, FEW);
    attn_disentangled terms = {.span = NEAR, .rel_k = &rel_k, .rel_q = &rel_q};
    c.params.disentangled = &terms;
    assert_int_equal(forward(&c), ATTN_OK);
    float *const expected = malloc(out_size);
    assert_non_null(expected);
    memcpy(expected, c.out->data, out_size);
    memset(c.out->data, CANARY, out_size);

    const size_t rows = (size_t)2 * LONG, size = rows * FEW * sizeof(float);
    float *const maps[] = {far_map(size), far_map(size)};
    attn_tensor *const tables[] = {&rel_k, &rel_q};
    for (int t = 0; t < 2; t++) {
        memcpy(maps[t] + (size_t)(LONG - NEAR) * FEW, tables[t]->data, 2 * NEAR * FEW * sizeof(float));
        *tables[t] = attn_bhtd(maps[t], 1, 1, (int64_t)rows, FEW);
    }
    terms.span = LONG;
    snprintf(guard_case_line, sizeof guard_case_line, "long tables, %d queries, %s", (int)tq, isa);
    assert_int_equal(forward(&c), ATTN_OK);
    const int wrong = memcmp(c.out->data, expected, out_size) != 0;
    if (wrong)
        print_message("%s: out differs from that of short tables\n", guard_case_line);
    for (int t = 0; t < 2; t++)
        far_unmap(maps[t], size);
    free(expected);
    far_clear(&set);
    return wrong;
}

static void test_tables(void **state)
{
    (void)state;
    int wrong = 0;
    for (int n = 0; attn_isa_name(n); n++) {
        const char *const isa = attn_isa_name(n);
        for (int64_t tq = 3; tq <= TQ && attn_isa_supported(isa); tq += TQ - 3) {
            wrong += check_rotations(isa, ATTN_F32, tq, ATTN_ROPE_HALF_SPLIT);
            wrong += check_rotations(isa, ATTN_BF16, tq, ATTN_ROPE_INTERLEAVED);
            wrong += check_disentangled(isa, ATTN_F32, tq);
            wrong += check_disentangled(isa, ATTN_F16, tq);
            if (!surroundings_are_slow() || (tq + n) % 2)
                wrong += check_long_tables(isa, tq);
        }
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
