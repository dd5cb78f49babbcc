/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simple call in the caller's memory: the bits of attn_forward(), a
 * workspace of exactly the size that was told, also one that was told for another
 * number of threads, and refusals that write nothing.
 */
#include "fixture.h"
#include "large.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fixture f, expected;

static attn_status workspace_size(size_t *size)
{
    return attn_forward_workspace_size(f.q_arg, f.k_arg, f.v_arg, f.out_arg, f.params_arg, size);
}

static attn_status forward_in(void *workspace, size_t size)
{
    return attn_forward_in(f.q_arg, f.k_arg, f.v_arg, f.out_arg, f.params_arg, workspace, size);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (int threads = 0; threads < 4; threads++) {
        size_t size = 0;
        fixture_initialize(&expected);
        fixture_initialize(&f);
        expected.params.num_threads = f.params.num_threads = threads;
        assert_int_equal(fixture_forward(&expected), ATTN_OK);
        assert_int_equal(workspace_size(&size), ATTN_OK);
        char *workspace = malloc(size + 3); /* any alignment will do */
        assert_non_null(workspace);
        memset(workspace, 0x5a, size + 3);
        assert_int_equal(forward_in(workspace + 1, size), ATTN_OK);
        assert_true(fixture_outputs_equal(&f, &expected));
        assert_true(workspace[0] == 0x5a && workspace[size + 1] == 0x5a && workspace[size + 2] == 0x5a);
        free(workspace);
    }
}

/** Shapes are enough to tell a size. */
static void test_size_without_data(void **state)
{
    (void)state;
    size_t with = 0, without = 1;
    fixture_initialize(&f);
    assert_int_equal(workspace_size(&with), ATTN_OK);
    f.q.data = f.k.data = f.v.data = f.out.data = NULL;
    assert_int_equal(workspace_size(&without), ATTN_OK);
    assert_int_equal(with, without);
    assert_int_equal(attn_forward_workspace_size(&f.q, &f.k, &f.v, &f.out, NULL, NULL), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "size|NULL"));
}

static void test_refusals(void **state)
{
    (void)state;
    static char workspace[1 << 20];
    size_t size = 0, untouched = 77;
    fixture_initialize(&f);
    assert_int_equal(workspace_size(&size), ATTN_OK);
    assert_true(size <= sizeof workspace);
    assert_int_equal(forward_in(workspace, size - 1), ATTN_WORKSPACE_TOO_SMALL);
    assert_true(holds_words(attn_last_error(), "workspace_size"));
    assert_int_equal(forward_in(NULL, size), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace|NULL"));
    f.kv_len[1] = FIX_TK + 1; /* the contents of arrays count, too */
    assert_int_equal(forward_in(workspace, size), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "kv_len[1]|8"));
    f.k.shape[3]++;
    assert_int_equal(workspace_size(&untouched), ATTN_SHAPE_MISMATCH);
    assert_int_equal(untouched, 77);
    assert_true(fixture_outputs_untouched(&f));
}

/**
 * A size that was told for one number of threads serves any other. The bits stay, and so does what lies behind the
 * workspace.
 */
static void test_size_of_other_threads(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 4, 7, 16, 100000};
    const int n = (int)(sizeof counts / sizeof *counts);
    static struct large l, wanted;
    large_initialize(&wanted, 1);
    assert_int_equal(large_forward(&wanted), ATTN_OK);
    for (int asked = 0; asked < n; asked++)
        for (int used = 0; used < n; used++) {
            size_t size = 0;
            large_initialize(&l, counts[asked]);
            assert_int_equal(attn_forward_workspace_size(&l.q, &l.k, &l.v, &l.out, &l.params, &size), ATTN_OK);
            char *workspace = malloc(size + 1);
            assert_non_null(workspace);
            workspace[size] = 0x5a;
            large_initialize(&l, counts[used]);
            if (attn_forward_in(&l.q, &l.k, &l.v, &l.out, &l.params, workspace, size) != ATTN_OK)
                fail_msg("asked for %d threads, used with %d: %s", counts[asked], counts[used], attn_last_error());
            assert_true(large_equal(&l, &wanted));
            assert_int_equal(workspace[size], 0x5a);
            free(workspace);
        }
}

/** The least size is in the sentence, and true. */
static void test_least_size(void **state)
{
    (void)state;
    static struct large l, wanted;
    size_t least = 0;
    large_initialize(&wanted, 1);
    assert_int_equal(large_forward(&wanted), ATTN_OK);
    large_initialize(&l, 4);
    char none[1], *workspace;
    assert_int_equal(attn_forward_in(&l.q, &l.k, &l.v, &l.out, &l.params, none, sizeof none), ATTN_WORKSPACE_TOO_SMALL);
    assert_int_equal(sscanf(attn_last_error(), "workspace_size is 1; expected at least %zu", &least), 1);
    workspace = malloc(least);
    assert_non_null(workspace);
    assert_int_equal(attn_forward_in(&l.q, &l.k, &l.v, &l.out, &l.params, workspace, least - 1),
                     ATTN_WORKSPACE_TOO_SMALL);
    assert_true(large_untouched(&l));
    assert_int_equal(attn_forward_in(&l.q, &l.k, &l.v, &l.out, &l.params, workspace, least), ATTN_OK);
    assert_true(large_equal(&l, &wanted));
    free(workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_size_without_data),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_size_of_other_threads),
        cmocka_unit_test(test_least_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
