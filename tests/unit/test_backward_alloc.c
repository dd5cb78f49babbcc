/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing memory in the backward pass, for every n: the nth allocation of the
 * library fails (and, in a second round, all from the nth on). The call says
 * ATTN_OUT_OF_MEMORY without having written anything, or succeeds with the right
 * bits; and in either case frees what it got. In the caller's workspace there is
 * nothing to allocate.
 */
#include "fixture.h"
#include "large.h"
#include "ledger.h"
#include "sentences.h"

#include "attn/backward.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = LARGE_HEADS * LARGE_TOKENS * LARGE_CHANNELS };

/** The large call with gradients: those of out are its own values, since any will do. */
struct backward {
    struct large l;
    float of[3][ELEMENTS];
    attn_tensor d[3];
    attn_gradients g;
};

static void initialize(struct backward *b, attn_dtype dtype)
{
    large_initialize(&b->l, 2);
    large_narrow(&b->l, dtype);
    assert_int_equal(large_forward(&b->l), ATTN_OK);
    memset(b->of, CANARY, sizeof b->of);
    b->g = attn_gradients_default();
    b->g.out = &b->l.out;
    const attn_tensor **const fields[] = {&b->g.q, &b->g.k, &b->g.v};
    for (int i = 0; i < 3; i++) {
        b->d[i] = attn_bhtd(b->of[i], 1, LARGE_HEADS, LARGE_TOKENS, LARGE_CHANNELS);
        *fields[i] = &b->d[i];
    }
}

static attn_status call(const struct backward *b)
{
    return attn_backward(&b->l.q, &b->l.k, &b->l.v, &b->l.out, &b->l.params, &b->g);
}

/** What the library says where memory is short. */
static struct sentences shortages[] = {
    {.words = "no memory for a workspace of | bytes"},
    {.words = "no memory for a plan of | bytes"},
    {0},
};

/** Makes allocation n fail in a call; returns whether n was beyond the last. */
static int nth_fails(int n, int persistent, const struct backward *expected, int with_plan)
{
    static struct backward b;
    initialize(&b, expected->l.q.dtype);
    attn_status status;
    ledger_begin(n, persistent);
    if (with_plan) {
        attn_backward_plan *plan = (attn_backward_plan *)(uintptr_t)64;
        status = attn_backward_plan_create(&plan, &b.l.q, &b.l.k, &b.l.v, &b.l.out, &b.l.params, &b.g);
        assert_true((status == ATTN_OK) == (plan != NULL));
        attn_backward_plan_destroy(plan);
    } else {
        status = call(&b);
    }
    ledger.active = 0;
    assert_int_equal(ledger.live, 0);
    if (status == ATTN_OK) {
        assert_true(with_plan || memcmp(b.of, expected->of, sizeof b.of) == 0);
    } else {
        assert_int_equal(status, ATTN_OUT_OF_MEMORY);
        sentences_meet(shortages, attn_last_error());
        assert_true(all_canary(b.of, sizeof b.of));
    }
    return ledger.made < n;
}

static void test_every_allocation(void **state)
{
    (void)state;
    static struct backward expected;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        initialize(&expected, (attn_dtype)dtype);
        assert_int_equal(call(&expected), ATTN_OK);
        for (int with_plan = 0; with_plan < 2; with_plan++) {
            for (int persistent = 0; persistent < 2; persistent++) {
                int n = 1;
                while (!nth_fails(n, persistent, &expected, with_plan))
                    assert_true(++n < 10000);
                assert_true(n > 1); /* else the library's allocations do not pass through here */
            }
        }
    }
}

static void test_workspace_allocates_nothing(void **state)
{
    (void)state;
    static struct backward b, expected;
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        initialize(&expected, (attn_dtype)dtype); /* also starts OpenMP's threads */
        assert_int_equal(call(&expected), ATTN_OK);
        initialize(&b, (attn_dtype)dtype);
        size_t size = 0;
        assert_int_equal(attn_backward_workspace_size(&b.l.q, &b.l.k, &b.l.v, &b.l.out, &b.l.params, &b.g, &size),
                         ATTN_OK);
        attn_backward_plan *plan = NULL;
        assert_int_equal(attn_backward_plan_create(&plan, &b.l.q, &b.l.k, &b.l.v, &b.l.out, &b.l.params, &b.g),
                         ATTN_OK);
        /* A plan has memory for all threads that are asked for, a call for those that can start, and for one alone. */
        const size_t planned = attn_backward_plan_workspace_size(plan);
        size = size > planned ? size : planned;
        char *workspace = __real_malloc(size + 1);
        assert_non_null(workspace);
        for (int with_plan = 0; with_plan < 2; with_plan++) {
            memset(b.of, CANARY, sizeof b.of);
            memset(workspace, 0xff, size + 1);
            ledger_begin(1, 1);
            const attn_status status =
                with_plan ? attn_backward_plan_run(plan, &b.l.q, &b.l.k, &b.l.v, &b.l.out, &b.l.params, &b.g,
                                                   workspace + 1, size)
                          : attn_backward_in(&b.l.q, &b.l.k, &b.l.v, &b.l.out, &b.l.params, &b.g, workspace + 1, size);
            ledger.active = 0;
            assert_int_equal(status, ATTN_OK);
            assert_int_equal(ledger.made, 0);
            assert_memory_equal(b.of, expected.of, sizeof b.of);
        }
        memset(b.of, CANARY, sizeof b.of);
        assert_int_equal(attn_backward_in(&b.l.q, &b.l.k, &b.l.v, &b.l.out, &b.l.params, &b.g, workspace, 100),
                         ATTN_WORKSPACE_TOO_SMALL);
        assert_true(holds_words(attn_last_error(), "workspace_size is 100; expected at least "));
        assert_true(all_canary(b.of, sizeof b.of));
        attn_backward_plan_destroy(plan);
        __real_free(workspace);
    }
}

static void test_sentences(void **state)
{
    (void)state;
    sentences_end(shortages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation), cmocka_unit_test(test_workspace_allocates_nothing),
        cmocka_unit_test(test_sentences), /* the last */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
