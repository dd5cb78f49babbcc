/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simple call in the caller's memory: the bits of attn_forward(), a
 * workspace of exactly the size that was told, refusals that write nothing, and
 * the checks alone. Also sentences that a library on top of this one sets.
 */
#include "fixture.h"

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

static attn_status forward_check(void)
{
    return attn_forward_check(f.q_arg, f.k_arg, f.v_arg, f.out_arg, f.params_arg);
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
        assert_int_equal(forward_check(), ATTN_OK);
        assert_true(fixture_outputs_untouched(&f));
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
    assert_int_equal(forward_check(), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "q.data|NULL"));
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
    assert_int_equal(forward_check(), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "kv_len[1]|8"));
    assert_int_equal(forward_in(workspace, size), ATTN_INVALID_ARGUMENT);
    f.k.shape[3]++;
    assert_int_equal(workspace_size(&untouched), ATTN_SHAPE_MISMATCH);
    assert_int_equal(untouched, 77);
    assert_true(fixture_outputs_untouched(&f));
}

static void test_set_last_error(void **state)
{
    (void)state;
    char sentence[] = "weights.w_q is a 100 % wrong matrix";
    attn_set_last_error(sentence);
    sentence[0] = 'x';
    assert_string_equal(attn_last_error(), "weights.w_q is a 100 % wrong matrix");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_size_without_data),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_set_last_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
