/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements in every tensor of the forward pass:
 * inputs, masks of every type, and outputs on request, for few queries and for
 * many, on every instruction set (far.h has the method). Tables of rotations and
 * distances, quantised tensors and pages, and keys that are many have tests of
 * their own beside this one. Arrays with one number for each head, query or
 * sequence (slopes, sinks, factors, offsets, lengths, labels of queries) cannot
 * be that long here: a call writes or checks something for each of them.
 */
#include "fixture.h"
#include "dtype.h"
#include "far.h"
#include "forms.h"
#include "guard.h"
#include "random.h"

#include <stdio.h>
#include <string.h>

static attn_status forward_few(void *user)
{
    return fixture_forward(user);
}

static attn_status forward_many(void *user)
{
    return forms_forward(user);
}

/** Five queries, with every output: strips of few queries, and with bf16 sums in any order. */
static int check_few(const char *isa, attn_dtype dtype)
{
    static struct fixture f;
    static float scores_data[FIX_B * FIX_HQ * FIX_TQ * FIX_TK];
    attn_tensor scores = attn_bhtd(scores_data, FIX_B, FIX_HQ, FIX_TQ, FIX_TK);
    char what[64];
    fixture_initialize(&f);
    fixture_narrow(&f, dtype);
    memset(scores_data, CANARY, sizeof scores_data);
    f.params.isa = isa;
    f.params.scores = &scores;
    f.params.sums = dtype == ATTN_BF16 ? ATTN_SUMS_FREE : ATTN_SUMS_ORDERED;
    const struct far_tensor tensors[] = {
        {"q", &f.q, FAR_READ, 0},
        {"k", &f.k, FAR_READ, 0},
        {"v", &f.v, FAR_READ, 0},
        {"mask", &f.mask, FAR_READ, 1},
        {"out", &f.out, FAR_WRITTEN, 0},
        {"lse", &f.lse, FAR_WRITTEN, 1},
        {"weights", &f.weights, FAR_WRITTEN, 1},
        {"key_sums", &f.key_sums, FAR_WRITTEN, 1},
        {"scores", &scores, FAR_WRITTEN, 1},
    };
    snprintf(what, sizeof what, "few queries, %s, %s", isa, attn_dtype_name(dtype));
    return far_check(what, tensors, sizeof tensors / sizeof *tensors, forward_few, &f);
}

/** Forty queries of a type, and what is asked of them. */
struct many {
    struct forms c;
    float mask_data[FORM_TQ * FORM_TK], weights_data[FORM_B * FORM_HQ * 3 * FORM_TK];
    float key_sums_data[FORM_B * FORM_HQ * FORM_TK];
    attn_tensor mask, weights, key_sums;
    int64_t rows[3];
};

static void narrow(attn_tensor *t, attn_dtype dtype)
{
    const int64_t n = t->shape[0] * t->stride[0];
    for (int64_t i = 0; i < n; i++) /* in place: what is written lies behind what is read next */
        dtype_store(dtype, t->data, i, ((const float *)t->data)[i]);
    t->dtype = dtype;
}

static void many_initialize(struct many *m, const char *isa, attn_dtype dtype, unsigned forms)
{
    struct rng rng = rng_for_case(9, 9);
    memset(m, 0, sizeof *m);
    forms_initialize(&m->c, forms);
    rng_fill_normal(&rng, m->mask_data, sizeof m->mask_data / sizeof(float));
    memset(m->weights_data, CANARY, sizeof m->weights_data);
    memset(m->key_sums_data, CANARY, sizeof m->key_sums_data);
    m->mask = attn_bhtd(m->mask_data, 1, 1, FORM_TQ, FORM_TK);
    m->weights = attn_bhtd(m->weights_data, FORM_B, FORM_HQ, 3, FORM_TK);
    m->key_sums = attn_bhtd(m->key_sums_data, FORM_B, FORM_HQ, 1, FORM_TK);
    m->rows[0] = FORM_TQ - 1, m->rows[1] = 0, m->rows[2] = FORM_TQ / 2;
    m->c.params.isa = isa;
    attn_tensor *const tensors[] = {&m->c.q, &m->c.k, &m->c.v, &m->mask};
    for (int t = 0; t < 4; t++)
        narrow(tensors[t], dtype);
    m->c.out.dtype = dtype;
}

static int check_many(struct many *m, const char *how)
{
    const attn_params *const p = &m->c.params;
    struct far_tensor tensors[8] = {{"q", &m->c.q, FAR_READ, 0},
                                    {"k", &m->c.k, FAR_READ, 0},
                                    {"v", &m->c.v, FAR_READ, 0},
                                    {"out", &m->c.out, FAR_WRITTEN, 0},
                                    {"lse", &m->c.lse, FAR_WRITTEN, 1}};
    int num = 5;
    if (p->mask)
        tensors[num++] = (struct far_tensor){"mask", &m->mask, FAR_READ, 1};
    if (p->weights)
        tensors[num++] = (struct far_tensor){"weights", &m->weights, FAR_WRITTEN, 1};
    if (p->key_sums)
        tensors[num++] = (struct far_tensor){"key_sums", &m->key_sums, FAR_WRITTEN, 1};
    char what[96];
    snprintf(what, sizeof what, "many queries, %s, %s, %s", how, p->isa, attn_dtype_name(m->c.q.dtype));
    return far_check(what, tensors, num, forward_many, &m->c);
}

/** Without options, where a call may be a single pass; masked, with some rows of weights; rounded to int8. */
static int check_ways(const char *isa, attn_dtype dtype)
{
    static struct many m;
    many_initialize(&m, isa, dtype, 0);
    int wrong = check_many(&m, "plain");
    many_initialize(&m, isa, dtype, FORM_LENGTHS);
    m.c.params.mask = &m.mask;
    m.c.params.weights = &m.weights;
    m.c.params.weight_rows = m.rows;
    m.c.params.num_weight_rows = 3;
    m.c.params.key_sums = &m.key_sums;
    m.c.params.inputs = ATTN_INPUTS_MAY_BE_BF16;
    wrong += check_many(&m, "masked");
    many_initialize(&m, isa, dtype, FORM_WEIGHT_CALLBACK | FORM_BLOCKS);
    wrong += check_many(&m, "with a callback");
    many_initialize(&m, isa, dtype, FORM_RAGGED);
    wrong += check_many(&m, "ragged");
    many_initialize(&m, isa, dtype, 0);
    m.c.params.qk = ATTN_QK_INT8;
    const attn_status status = forms_forward(&m.c);
    many_initialize(&m, isa, dtype, 0); /* with outputs that nobody has written */
    m.c.params.qk = ATTN_QK_INT8;
    return wrong + (status == ATTN_UNSUPPORTED ? 0 : check_many(&m, "in int8"));
}

/** A boolean mask with all its axes. */
static int check_boolean_mask(const char *isa)
{
    static struct many m;
    static uint8_t seen[FORM_B * FORM_HQ * FORM_TQ * FORM_TK];
    char what[64];
    many_initialize(&m, isa, ATTN_F32, 0);
    for (size_t i = 0; i < sizeof seen; i++)
        seen[i] = i % 3 != 0;
    m.mask = attn_bhtd(seen, FORM_B, FORM_HQ, FORM_TQ, FORM_TK);
    m.mask.dtype = ATTN_BOOL;
    m.c.params.mask = &m.mask;
    const struct far_tensor tensors[] = {{"mask", &m.mask, FAR_READ, 1}, {"out", &m.c.out, FAR_WRITTEN, 0}};
    snprintf(what, sizeof what, "a boolean mask, %s", isa);
    return far_check(what, tensors, 2, forward_many, &m.c);
}

static void test_few_queries(void **state)
{
    (void)state;
    int wrong = 0;
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int dtype = ATTN_F32; dtype <= ATTN_F16 && attn_isa_supported(attn_isa_name(isa)); dtype++)
            wrong += check_few(attn_isa_name(isa), (attn_dtype)dtype);
    assert_int_equal(wrong, 0);
}

static void test_many_queries(void **state)
{
    (void)state;
    int wrong = 0;
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int dtype = ATTN_F32; dtype <= ATTN_F16 && attn_isa_supported(attn_isa_name(isa)); dtype++)
            wrong += check_ways(attn_isa_name(isa), (attn_dtype)dtype);
    assert_int_equal(wrong, 0);
}

static void test_boolean_mask(void **state)
{
    (void)state;
    int wrong = 0;
    for (int isa = 0; attn_isa_name(isa); isa++)
        if (attn_isa_supported(attn_isa_name(isa)))
            wrong += check_boolean_mask(attn_isa_name(isa));
    assert_int_equal(wrong, 0);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_queries),
        cmocka_unit_test(test_many_queries),
        cmocka_unit_test(test_boolean_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
