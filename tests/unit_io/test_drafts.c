/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts: what followed the last tokens before, as a tree; bounds of it; any text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "models/drafts.h"

static void test_repeated_text(void **state)
{
    (void)state;
    struct drafts d;
    /* 1 2 3 has been followed by 4 5 ..., and before that by 9; 3 alone by the same again. */
    static const int32_t ids[] = {1, 2, 3, 9, 8, 1, 2, 3, 4, 5, 6, 1, 2, 3};
    drafts_make(&d, ids, 14, 12);
    assert_int_equal(d.ids[0], 3);
    assert_int_equal(d.parents[0], -1);
    const int four = drafts_child(&d, 0, 4), nine = drafts_child(&d, 0, 9);
    assert_true(four > 0 && nine > 0);
    assert_int_equal(drafts_child(&d, four, 9), -1);
    assert_int_equal(drafts_child(&d, 0, 5), -1);
    const int five = drafts_child(&d, four, 5);
    assert_true(five > four);
    assert_int_equal(d.depths[five], 2);
    assert_true(drafts_child(&d, nine, 8) > nine);
    /* Of one draft it is the latest place that counts. */
    drafts_make(&d, ids, 14, 1);
    assert_int_equal(d.count, 2);
    assert_int_equal(d.ids[1], 4);
}

static void test_no_drafts(void **state)
{
    (void)state;
    struct drafts d;
    static const int32_t ids[] = {1, 2, 3, 4};
    for (int64_t count = 1; count <= 4; count++) {
        drafts_make(&d, ids, count, DRAFTS_MOST);
        assert_int_equal(d.count, 1);
        assert_int_equal(d.ids[0], ids[count - 1]);
        assert_int_equal(drafts_child(&d, 0, 1), -1);
    }
    static const int32_t again[] = {1, 1};
    drafts_make(&d, again, 2, 0);
    assert_int_equal(d.count, 1);
}

/** Whatever the text: a tree whose parents come first, whose children differ, of no more nodes than asked for. */
static void test_trees(void **state)
{
    (void)state;
    uint64_t x = 1;
    int32_t ids[300];
    for (int turn = 0; turn < 2000; turn++) {
        const int count = 1 + turn % 300, kinds = 1 + turn % 5, most = turn % (DRAFTS_MOST + 9);
        for (int i = 0; i < count; i++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
            ids[i] = (int32_t)(x >> 33) % kinds;
        }
        struct drafts d;
        drafts_make(&d, ids, count, most);
        assert_true(d.count >= 1 && d.count <= 1 + (most < DRAFTS_MOST ? most : DRAFTS_MOST));
        for (int i = 1; i < d.count; i++) {
            assert_true(d.parents[i] >= 0 && d.parents[i] < i);
            assert_int_equal(d.depths[i], d.depths[d.parents[i]] + 1);
            assert_int_equal(drafts_child(&d, d.parents[i], d.ids[i]), i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_repeated_text), cmocka_unit_test(test_no_drafts),
                                       cmocka_unit_test(test_trees)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
