/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of short calls, which are cut by what params ask for and whose runs are
 * checked at a glance: what a run may change, and what it may not.
 */
#include "fixture.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What a plan knows of lengths and offsets is whether they are given: with none, a call may be cut another way. */
static void test_lengths_come_and_go(void **state)
{
    (void)state;
    static const char *const names[] = {"query_offset", "kv_len", "kv_start"};
    float memory[4][4 * 8];
    for (int i = 0; i < 4 * 8; i++)
        memory[0][i] = memory[1][i] = memory[2][i] = (float)i;
    const attn_tensor q = attn_bhtd(memory[0], 1, 1, 4, 8), k = attn_bhtd(memory[1], 1, 1, 4, 8),
                      v = attn_bhtd(memory[2], 1, 1, 4, 8), out = attn_bhtd(memory[3], 1, 1, 4, 8);
    const int64_t number = 3;
    for (int which = 0; which < 3; which++) {
        for (int planned = 0; planned < 2; planned++) {
            attn_params with = attn_params_default(), without = attn_params_default();
            const int64_t **const fields[] = {&with.query_offset, &with.kv_len, &with.kv_start};
            *fields[which] = &number;
            attn_plan *plan;
            assert_int_equal(attn_plan_create(&plan, &q, &k, &v, &out, planned ? &with : &without), ATTN_OK);
            const size_t size = attn_plan_workspace_size(plan);
            void *workspace = malloc(size);
            assert_non_null(workspace);
            memset(memory[3], 0x55, sizeof memory[3]);
            assert_int_equal(attn_plan_run(plan, &q, &k, &v, &out, planned ? &without : &with, workspace, size),
                             ATTN_INVALID_ARGUMENT);
            if (!strstr(attn_last_error(), names[which]))
                fail_msg("expected %s in \"%s\"", names[which], attn_last_error());
            for (size_t i = 0; i < sizeof memory[3]; i++)
                assert_int_equal(((unsigned char *)memory[3])[i], 0x55);
            assert_int_equal(attn_plan_run(plan, &q, &k, &v, &out, planned ? &with : &without, workspace, size),
                             ATTN_OK);
            free(workspace);
            attn_plan_destroy(plan);
        }
    }
}

/** Padding in params is nobody's: a plan of a short call, which is cut by what params ask for, does not mind it. */
static void test_padding_of_params(void **state)
{
    (void)state;
    float memory[4][4 * 8] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, expected[4 * 8];
    const attn_tensor q = attn_bhtd(memory[0], 1, 1, 4, 8), k = attn_bhtd(memory[1], 1, 1, 4, 8),
                      v = attn_bhtd(memory[2], 1, 1, 4, 8), out = attn_bhtd(memory[3], 1, 1, 4, 8);
    attn_params clean = attn_params_default(), dirty = attn_params_default();
    const size_t gap = offsetof(attn_params, causal) + sizeof dirty.causal, end = offsetof(attn_params, query_offset);
    assert_true(gap < end);
    memset((char *)&dirty + gap, 0x5a, end - gap);
    assert_int_equal(attn_forward(&q, &k, &v, &out, &clean), ATTN_OK);
    memcpy(expected, memory[3], sizeof expected);
    for (int planned = 0; planned < 2; planned++) {
        attn_plan *plan;
        assert_int_equal(attn_plan_create(&plan, &q, &k, &v, &out, planned ? &dirty : &clean), ATTN_OK);
        const size_t size = attn_plan_workspace_size(plan);
        void *workspace = malloc(size);
        assert_non_null(workspace);
        memset(memory[3], 0x55, sizeof memory[3]);
        assert_int_equal(attn_plan_run(plan, &q, &k, &v, &out, planned ? &clean : &dirty, workspace, size), ATTN_OK);
        assert_memory_equal(memory[3], expected, sizeof expected);
        free(workspace);
        attn_plan_destroy(plan);
    }
}

/** A run that differs from its plan in addresses alone is not checked in full: what is wrong is found all the same. */
static void test_repeats(void **state)
{
    (void)state;
    enum { T = 4, D = 8, ALL = T * D, FAR = 2 * ALL };
    float memory[4][FAR], expected[ALL];
    struct rng rng = rng_for_case(11, 0);
    for (int i = 0; i < 3; i++)
        rng_fill_normal(&rng, memory[i], FAR);
    attn_tensor made[4], t[4];
    for (int i = 0; i < 4; i++)
        made[i] = attn_bhtd(memory[i], 1, 1, T, D);
    attn_params params = attn_params_default();
    assert_int_equal(attn_forward(&made[0], &made[1], &made[2], &made[3], NULL), ATTN_OK);
    memcpy(expected, memory[3], sizeof expected);
    for (int i = 0; i < 4; i++)
        made[i].data = NULL; /* a plan does not know addresses */
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &made[0], &made[1], &made[2], &made[3], &params), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);

#define REPEAT(status, words, change)                                                                                  \
    do {                                                                                                               \
        for (int i = 0; i < 4; i++)                                                                                    \
            t[i] = made[i], t[i].data = memory[i];                                                                     \
        params = attn_params_default();                                                                                \
        memset(memory[3], 0x55, sizeof memory[3]);                                                                     \
        change;                                                                                                        \
        assert_int_equal(attn_plan_run(plan, &t[0], &t[1], &t[2], &t[3], &params, workspace, size), status);           \
        if ((status) != ATTN_OK && !holds_words(attn_last_error(), words))                                             \
            fail_msg("expected %s in \"%s\"", words, attn_last_error());                                               \
        for (size_t i = 0; (status) != ATTN_OK && i < sizeof memory[3]; i++)                                           \
            assert_int_equal(((unsigned char *)memory[3])[i], 0x55);                                                   \
    } while (0)

    REPEAT(ATTN_OK, "", (void)0);
    assert_memory_equal(memory[3], expected, sizeof expected);
    REPEAT(ATTN_OK, "", t[3].data = memory[3] + ALL - 3);
    assert_memory_equal(memory[3] + ALL - 3, expected, sizeof expected);
    REPEAT(ATTN_INVALID_ARGUMENT, "q.data is NULL", t[0].data = NULL);
    REPEAT(ATTN_INVALID_ARGUMENT, "out.data is NULL", t[3].data = NULL);
    REPEAT(ATTN_INVALID_ARGUMENT, "k.data|aligned to 4 bytes", t[1].data = (char *)memory[1] + 2);
    REPEAT(ATTN_INVALID_ARGUMENT, "out overlaps q", t[0].data = memory[3] + ALL - 1);
    REPEAT(ATTN_INVALID_ARGUMENT, "out overlaps v", (t[2].data = memory[3], t[3].data = memory[3] + ALL - 1));
    REPEAT(ATTN_OK, "", t[1].data = memory[3] + ALL); /* beside it */
    REPEAT(ATTN_INVALID_ARGUMENT, "v.stride[3] is 2", t[2].stride[3] = 2);
    REPEAT(ATTN_INVALID_ARGUMENT, "out.stride[2]", t[3].stride[2] = D - 1);
    REPEAT(ATTN_OK, "", t[2].stride[2] = D - 1);
    REPEAT(ATTN_SHAPE_MISMATCH, "v.shape[2] is 4|expected 3", t[1].shape[2]--);
    REPEAT(ATTN_INVALID_ARGUMENT, "k.dtype", (t[1].dtype = ATTN_BF16));
    REPEAT(ATTN_INVALID_ARGUMENT, "params.scale differs", params.scale = 2);
    REPEAT(ATTN_INVALID_ARGUMENT, "params.struct_size is 0", params.struct_size = 0);
    REPEAT(ATTN_INVALID_ARGUMENT, "params.isa is 'mmx'", params.isa = "mmx");
    REPEAT(ATTN_INVALID_ARGUMENT, "params.isa differs from what the plan was made with", params.isa = "scalar");
    REPEAT(ATTN_INVALID_ARGUMENT, "params.page_size is set", params.page_size = 16);
    REPEAT(ATTN_INVALID_ARGUMENT, "num_threads is -1", params.num_threads = -1);
    assert_int_equal(attn_plan_run(plan, &t[0], &t[1], &t[2], NULL, NULL, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "out is NULL"));
    assert_int_equal(attn_plan_run(plan, &t[0], &t[1], &t[2], &t[3], NULL, workspace, size), ATTN_OK);
    assert_memory_equal(memory[3], expected, sizeof expected);
    attn_plan_destroy(plan);

    /* A name is what it says, wherever it stands. */
    char name[] = "scalar";
    params = attn_params_default();
    params.isa = "scalar";
    assert_int_equal(attn_plan_create(&plan, &made[0], &made[1], &made[2], &made[3], &params), ATTN_OK);
    assert_true(attn_plan_workspace_size(plan) <= size);
    REPEAT(ATTN_OK, "", params.isa = name);
    name[0] = 'S';
    REPEAT(ATTN_INVALID_ARGUMENT, "params.isa is 'Scalar'", params.isa = name);
    REPEAT(ATTN_INVALID_ARGUMENT, "params.isa differs from what the plan was made with", (void)0);
#undef REPEAT
    free(workspace);
    attn_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths_come_and_go),
        cmocka_unit_test(test_padding_of_params),
        cmocka_unit_test(test_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
