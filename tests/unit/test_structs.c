/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of other versions: what attn_take_struct() makes of a shorter one, a
 * longer one and a size that no version has. Each lies before a page that cannot
 * be touched, so that reading behind it faults. And the last error's sentence,
 * which may be among the arguments of the next.
 */
#include "fixture.h"

#include "api/check.h"
#include "api/error.h"
#include "guard.h"

#include <stdio.h>
#include <string.h>

/** A struct that has grown once: version 1 ended with b. */
struct grown {
    size_t struct_size;
    int64_t a;
    int b;
    const void *c;
    int64_t d;
};
enum { FIRST = ATTN_FIRST_SIZE(struct grown, b) };

static struct guard guard;

/** What a caller handed in: size bytes, of which the first are those of a struct with all fields set. */
static void *theirs_of(size_t size, size_t struct_size)
{
    const struct grown full = {struct_size, 11, 12, &guard, 14};
    void *theirs = guard_place(&guard, size, 1);
    memset(theirs, 0, size);
    memcpy(theirs, &full, size < sizeof full ? size : sizeof full);
    return theirs;
}

static attn_status take(struct grown *ours, const void *theirs)
{
    memset(ours, 0xA5, sizeof *ours);
    return attn_take_struct("thing", ours, sizeof *ours, FIRST, theirs);
}

static void test_first_size(void **state)
{
    (void)state;
    /* The padding behind b belongs to it: that is what sizeof of the first version was. */
    struct first {
        size_t struct_size;
        int64_t a;
        int b;
    };
    assert_int_equal(FIRST, sizeof(struct first));
    assert_int_equal(ATTN_FIRST_SIZE(struct grown, d), sizeof(struct grown));
}

static void test_shorter(void **state)
{
    (void)state;
    for (size_t size = FIRST; size <= sizeof(struct grown); size += sizeof(int64_t)) {
        struct grown ours;
        assert_int_equal(take(&ours, theirs_of(size, size)), ATTN_OK);
        assert_int_equal(ours.struct_size, sizeof ours);
        assert_int_equal(ours.a, 11);
        assert_int_equal(ours.b, 12);
        assert_ptr_equal(ours.c, size >= ATTN_FIRST_SIZE(struct grown, c) ? &guard : NULL);
        assert_int_equal(ours.d, size == sizeof ours ? 14 : 0);
    }
}

static void test_none(void **state)
{
    (void)state;
    struct grown ours;
    assert_int_equal(take(&ours, NULL), ATTN_OK);
    assert_int_equal(ours.struct_size, sizeof ours);
    assert_true(!ours.a && !ours.b && !ours.c && !ours.d);
}

static void test_longer(void **state)
{
    (void)state;
    static const size_t behind[] = {1, 8, 64, 4095, 4096};
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        const size_t size = sizeof(struct grown) + behind[i];
        struct grown ours;
        unsigned char *theirs = theirs_of(size, size);
        assert_int_equal(take(&ours, theirs), ATTN_OK);
        assert_int_equal(ours.struct_size, sizeof ours);
        assert_int_equal(ours.d, 14);
        for (size_t at = sizeof ours; at < size; at += behind[i] < 4 ? 1 : behind[i] / 4) {
            theirs[at] = 1;
            assert_int_equal(take(&ours, theirs), ATTN_UNSUPPORTED);
            assert_non_null(strstr(attn_last_error(), "thing.struct_size is"));
            assert_non_null(strstr(attn_last_error(), "is set"));
            theirs[at] = 0;
        }
        theirs[size - 1] = 0x80;
        assert_int_equal(take(&ours, theirs), ATTN_UNSUPPORTED);
    }
}

/** Sizes that no version has are refused unread: behind the struct is a page that faults. */
static void test_no_version(void **state)
{
    (void)state;
    const size_t sizes[] = {0,
                            1,
                            FIRST - 1,
                            sizeof(struct grown) + 4097,
                            (size_t)1 << 31,
                            (size_t)-1 / 2,
                            (size_t)-4096,
                            (size_t)-1,
                            sizeof(size_t) > 4 ? (size_t)1 << (sizeof(size_t) * 5) : 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct grown ours;
        char number[32];
        snprintf(number, sizeof number, "is %zu;", sizes[i]);
        assert_int_equal(take(&ours, theirs_of(sizeof ours, sizes[i])), ATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_last_error(), "thing.struct_size"));
        assert_non_null(strstr(attn_last_error(), number));
    }
}

/** The options of a call: one that reads behind the struct faults. */
static void test_params(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4097 + sizeof(attn_params), (size_t)-1};
    attn_params ours, *theirs = guard_place(&guard, sizeof *theirs, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *theirs = attn_params_default();
        theirs->struct_size = sizes[i];
        assert_int_equal(attn_take_params(&ours, theirs), ATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_last_error(), "params.struct_size"));
    }
    *theirs = attn_params_default();
    theirs->scale = 0.5f;
    assert_int_equal(attn_take_params(&ours, theirs), ATTN_OK);
    assert_true(ours.scale == 0.5f);
    assert_int_equal(attn_take_params(&ours, NULL), ATTN_OK);
    assert_int_equal(ours.struct_size, sizeof ours);
    assert_true(ours.scale == 0.0f);
}

static void test_last_error(void **state)
{
    (void)state;
    attn_fail(ATTN_UNSUPPORTED, "%s", "scale is 3; expected less");
    attn_fail(ATTN_UNSUPPORTED, "%s", attn_last_error());
    assert_string_equal(attn_last_error(), "scale is 3; expected less");
    attn_fail(ATTN_UNSUPPORTED, "%s", attn_last_error() + 6);
    assert_string_equal(attn_last_error(), "is 3; expected less");
    assert_int_equal(attn_fail(ATTN_UNSUPPORTED, "layer 2: %s", attn_last_error()), ATTN_UNSUPPORTED);
    assert_string_equal(attn_last_error(), "layer 2: is 3; expected less");
    char large[2000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = 0;
    attn_fail(ATTN_UNSUPPORTED, "%s", large);
    assert_int_equal(strlen(attn_last_error()), 511);
    attn_fail(ATTN_UNSUPPORTED, "%s", attn_last_error() + 1);
    assert_int_equal(strlen(attn_last_error()), 510);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_size), cmocka_unit_test(test_shorter),    cmocka_unit_test(test_none),
        cmocka_unit_test(test_longer),     cmocka_unit_test(test_no_version), cmocka_unit_test(test_params),
        cmocka_unit_test(test_last_error),
    };
    guard_catch_faults();
    guard = guard_create(16384);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    guard_destroy(&guard);
    return failed;
}
