/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements in the functions around attention:
 * attn_quantise(), attn_store(), attn_rope() and attn_merge(); and slots of a pool
 * beyond 2^32. attn_alibi_slopes() and attn_rope_table() write every element of an
 * array, attn_pattern_bigbird() and its like arrays of their own.
 */
#include "fixture.h"
#include "far.h"
#include "guard.h"

#include "attn/cache.h"
#include "attn/quantise.h"

#include <stdio.h>
#include <string.h>

enum { B = 2, H = 3, T = 7, D = 40, DV = 16, PAIRS = 6, PAGES = 3, SIZE = 4, PARTS = 3 };

struct call {
    const attn_tensor *x, *out, *scale, *table;
    const attn_tensor *parts[PARTS], *lses[PARTS];
    const int64_t *slots;
};

static attn_status quantise(void *user)
{
    const struct call *const c = user;
    return attn_quantise(c->x, c->out, c->scale, 0);
}

static attn_status store(void *user)
{
    const struct call *const c = user;
    return attn_store(c->x, c->slots, c->table, ATTN_ROPE_HALF_SPLIT, c->out, c->scale, 0);
}

static attn_status rotate(void *user)
{
    const struct call *const c = user;
    return attn_rope(c->x, c->table, ATTN_ROPE_INTERLEAVED, c->out, 0);
}

static attn_status merge(void *user)
{
    const struct call *const c = user;
    attn_tensor parts[PARTS], lses[PARTS];
    for (int n = 0; n < PARTS; n++) {
        parts[n] = *c->parts[n];
        lses[n] = *c->lses[n];
    }
    return attn_merge(PARTS, parts, lses, c->out, c->scale, 0);
}

static int64_t scales_of(attn_dtype dtype)
{
    return dtype == ATTN_I4 ? (D + ATTN_I4_GROUP - 1) / ATTN_I4_GROUP : 1;
}

static int is_quantised(attn_dtype dtype)
{
    return dtype == ATTN_I8 || dtype == ATTN_F8_E4M3 || dtype == ATTN_I4;
}

static void test_quantise(void **state)
{
    (void)state;
    const attn_dtype from[] = {ATTN_F32, ATTN_BF16, ATTN_F16}, to[] = {ATTN_I8, ATTN_F8_E4M3, ATTN_I4};
    int wrong = 0;
    for (int n = 0; n < 9; n++) {
        struct far_set set = {0};
        struct call c = {0};
        char what[64];
        c.x = far_add(&set, "x", FAR_READ, 0, from[n / 3], B, H, T, D);
        c.out = far_add(&set, "out", FAR_WRITTEN, 0, to[n % 3], B, H, T, D);
        c.scale = far_add(&set, "scale", FAR_WRITTEN, 0, ATTN_F32, B, H, T, scales_of(to[n % 3]));
        snprintf(what, sizeof what, "quantise %s to %s", attn_dtype_name(from[n / 3]), attn_dtype_name(to[n % 3]));
        wrong += far_check_set(what, &set, quantise, &c);
        far_clear(&set);
    }
    assert_int_equal(wrong, 0);
}

static void test_store(void **state)
{
    (void)state;
    static const int64_t slots[T] = {11, -1, 3, 0, 7, 4, 8};
    const attn_dtype from[] = {ATTN_F32, ATTN_BF16};
    const attn_dtype to[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8, ATTN_F8_E4M3, ATTN_I4};
    int wrong = 0;
    for (int n = 0; n < 12; n++) {
        struct far_set set = {0};
        struct call c = {.slots = slots};
        char what[64];
        c.x = far_add(&set, "x", FAR_READ, 0, from[n / 6], 1, H, T, D);
        if (n % 2 == 0)
            c.table = far_add(&set, "rotations", FAR_READ, 0, ATTN_F32, 1, H, T, 2 * PAIRS);
        c.out = far_add(&set, "pool", FAR_WRITTEN, 0, to[n % 6], PAGES, H, SIZE, D);
        if (is_quantised(to[n % 6]))
            c.scale = far_add(&set, "scales", FAR_WRITTEN, 0, ATTN_F32, PAGES, H, SIZE, scales_of(to[n % 6]));
        snprintf(what, sizeof what, "store %s as %s", attn_dtype_name(from[n / 6]), attn_dtype_name(to[n % 6]));
        wrong += far_check_set(what, &set, store, &c);
        far_clear(&set);
    }
    assert_int_equal(wrong, 0);
}

/** A pool of two pages of more than 2^32 rows. */
static void test_slots(void **state)
{
    (void)state;
    const int64_t size = FAR_UNSIGNED, slots[] = {0, FAR_SIGNED, size - 1, size, size + FAR_SIGNED, 2 * size - 1};
    enum { N = sizeof slots / sizeof *slots };
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)i + 1;
    float *const pool = far_map((size_t)(2 * size) * sizeof *pool);
    const attn_tensor rows = attn_bhtd(x, 1, 1, N, 1), pages = attn_bhtd(pool, 2, 1, size, 1);
    assert_int_equal(attn_store(&rows, slots, NULL, ATTN_ROPE_HALF_SPLIT, &pages, NULL, 0), ATTN_OK);
    for (int n = 0; n < N; n++)
        assert_true(pool[slots[n]] == x[n]);
    far_unmap(pool, (size_t)(2 * size) * sizeof *pool);
}

static void test_rotate(void **state)
{
    (void)state;
    int wrong = 0;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        struct far_set set = {0};
        struct call c = {0};
        char what[64];
        c.x = far_add(&set, "x", FAR_READ, 0, (attn_dtype)dtype, B, H, T, D);
        c.table = far_add(&set, "table", FAR_READ, 0, ATTN_F32, B, H, T, 2 * PAIRS);
        c.out = far_add(&set, "out", FAR_WRITTEN, 0, (attn_dtype)dtype, B, H, T, D);
        snprintf(what, sizeof what, "rotate %s", attn_dtype_name((attn_dtype)dtype));
        wrong += far_check_set(what, &set, rotate, &c);
        far_clear(&set);
    }
    assert_int_equal(wrong, 0);
}

static void test_merge(void **state)
{
    (void)state;
    static const char *const names[2][PARTS] = {{"parts[0]", "parts[1]", "parts[2]"},
                                                {"lses[0]", "lses[1]", "lses[2]"}};
    int wrong = 0;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        struct far_set set = {0};
        struct call c = {0};
        char what[64];
        for (int n = 0; n < PARTS; n++) {
            c.parts[n] = far_add(&set, names[0][n], FAR_READ, 0, (attn_dtype)dtype, B, H, T, DV);
            c.lses[n] = far_add(&set, names[1][n], FAR_READ, 1, ATTN_F32, B, H, T, 1);
        }
        c.out = far_add(&set, "out", FAR_WRITTEN, 0, (attn_dtype)dtype, B, H, T, DV);
        c.scale = far_add(&set, "lse", FAR_WRITTEN, 1, ATTN_F32, B, H, T, 1);
        snprintf(what, sizeof what, "merge %s", attn_dtype_name((attn_dtype)dtype));
        wrong += far_check_set(what, &set, merge, &c);
        far_clear(&set);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantise), cmocka_unit_test(test_store), cmocka_unit_test(test_slots),
        cmocka_unit_test(test_rotate),   cmocka_unit_test(test_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
