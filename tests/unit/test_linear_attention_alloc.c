/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing memory in linear attention, for every n: the nth allocation of the library
 * fails (and, in a second round, all from the nth on). The call says
 * ATTN_OUT_OF_MEMORY without having written anything, or succeeds with the right
 * bits; and in either case frees what it got. In the caller's workspace there is
 * nothing to allocate.
 */
#include "linear_fixture.h"

#include "attn/linear_attention_backward.h"

#include "ledger.h"
#include "sentences.h"

#include <stdlib.h>
#include <string.h>

/** The fixture; or, with large, a call that is worth several threads. */
enum { HEADS = 8, TOKENS = 160, CHANNELS = 32 };

struct call {
    struct linear_fixture f;
    float data[4][HEADS * TOKENS * CHANNELS];
};

static void initialize(struct call *c, int large)
{
    linear_fixture_initialize(&c->f);
    memset(c->data, 0, sizeof c->data);
    memset(c->data[3], CANARY, sizeof c->data[3]);
    if (!large)
        return;
    attn_tensor *const tensors[] = {&c->f.q, &c->f.k, &c->f.v, &c->f.out};
    for (int i = 0; i < 4; i++)
        *tensors[i] = attn_bhtd(c->data[i], 1, HEADS, TOKENS, CHANNELS);
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < HEADS * TOKENS * CHANNELS; n++)
            c->data[i][n] = (float)(n % (7 + i)) * 0.01f;
    c->f.params = attn_linear_attention_params_default();
    c->f.params.num_threads = 2;
}

static int is_untouched(const struct call *c)
{
    return linear_fixture_untouched(&c->f) && all_canary(c->data[3], sizeof c->data[3]);
}

static int are_equal(const struct call *a, const struct call *b)
{
    return memcmp(a->f.out_data, b->f.out_data, sizeof a->f.out_data) == 0 &&
           memcmp(a->f.state_out_data, b->f.state_out_data, sizeof a->f.state_out_data) == 0 &&
           memcmp(a->data[3], b->data[3], sizeof a->data[3]) == 0;
}

/** What the library says where memory is short. */
static struct sentences shortages[] = {
    {.words = "no memory for a workspace of | bytes"},
    {.words = "no memory for a plan of | bytes"},
    {0},
};

/** Makes allocation n fail in a call; returns whether n was beyond the last. */
static int nth_fails(int n, int persistent, const struct call *expected, int large, int with_plan)
{
    static struct call c;
    initialize(&c, large);
    attn_status status;
    ledger_begin(n, persistent);
    if (with_plan) {
        attn_linear_attention_plan *plan = (attn_linear_attention_plan *)(uintptr_t)64;
        status = attn_linear_attention_plan_create(&plan, &c.f.q, &c.f.k, &c.f.v, &c.f.out, &c.f.params);
        assert_true((status == ATTN_OK) == (plan != NULL));
        attn_linear_attention_plan_destroy(plan);
    } else {
        status = linear_fixture_call(&c.f);
    }
    ledger.active = 0;
    assert_int_equal(ledger.live, 0);
    if (status == ATTN_OK) {
        assert_true(with_plan || are_equal(&c, expected));
    } else {
        assert_int_equal(status, ATTN_OUT_OF_MEMORY);
        sentences_meet(shortages, attn_last_error());
        assert_true(is_untouched(&c));
    }
    return ledger.made < n;
}

static void test_every_allocation(void **state)
{
    (void)state;
    static struct call expected;
    for (int large = 0; large < 2; large++) {
        initialize(&expected, large);
        assert_int_equal(linear_fixture_call(&expected.f), ATTN_OK);
        for (int with_plan = 0; with_plan < 2; with_plan++) {
            for (int persistent = 0; persistent < 2; persistent++) {
                int n = 1;
                while (!nth_fails(n, persistent, &expected, large, with_plan))
                    assert_true(++n < 10000);
                assert_true(n > 1); /* else the library's allocations do not pass through here */
            }
        }
    }
}

static void test_workspace_allocates_nothing(void **state)
{
    (void)state;
    static struct call c, expected;
    for (int large = 0; large < 2; large++) {
        initialize(&expected, large); /* also starts OpenMP's threads */
        assert_int_equal(linear_fixture_call(&expected.f), ATTN_OK);
        initialize(&c, large);
        const struct linear_fixture *f = &c.f;
        size_t size = 0;
        attn_linear_attention_plan *plan = NULL;
        assert_int_equal(attn_linear_attention_workspace_size(&f->q, &f->k, &f->v, &f->out, &f->params, &size),
                         ATTN_OK);
        assert_int_equal(attn_linear_attention_plan_create(&plan, &f->q, &f->k, &f->v, &f->out, &f->params), ATTN_OK);
        const size_t planned = attn_linear_attention_plan_workspace_size(plan);
        char *workspace = __real_malloc((size > planned ? size : planned) + 1);
        assert_non_null(workspace);
        for (int with_plan = 0; with_plan < 2; with_plan++) {
            initialize(&c, large);
            ledger_begin(1, 1);
            const attn_status status =
                with_plan ? attn_linear_attention_plan_run(plan, &f->q, &f->k, &f->v, &f->out, &f->params,
                                                           workspace + 1, planned)
                          : attn_linear_attention_in(&f->q, &f->k, &f->v, &f->out, &f->params, workspace + 1, size);
            ledger.active = 0;
            assert_int_equal(status, ATTN_OK);
            assert_int_equal(ledger.made, 0);
            assert_true(are_equal(&c, &expected));
        }
        attn_linear_attention_plan_destroy(plan);
        __real_free(workspace);
    }
}

/** attn_draw_features() needs a block of rows in double. */
static void test_draw(void **state)
{
    (void)state;
    float data[4 * 8], untouched[4 * 8];
    const attn_tensor projection = attn_bhtd(data, 1, 1, 4, 8);
    memset(data, CANARY, sizeof data);
    memset(untouched, CANARY, sizeof untouched);
    ledger_begin(1, 0);
    const attn_status status = attn_draw_features(&projection, 1, 1);
    ledger.active = 0;
    assert_int_equal(status, ATTN_OUT_OF_MEMORY);
    assert_string_equal(attn_last_error(), "no memory for 8 x 8 numbers of a block");
    assert_int_equal(ledger.live, 0);
    assert_memory_equal(data, untouched, sizeof data);
    ledger_begin(2, 0);
    assert_int_equal(attn_draw_features(&projection, 1, 1), ATTN_OK);
    ledger.active = 0;
    assert_int_equal(ledger.live, 0);
}

/** Gradients of a call with decays by channel, those of decays among them. */
static void test_gradients(void **state)
{
    (void)state;
    static struct linear_fixture f;
    static float dq[LIN_B * LIN_HQ * LIN_T * LIN_DK], ddecay[LIN_B * LIN_H * LIN_T * LIN_DK];
    const attn_tensor d_q = attn_bhtd(dq, LIN_B, LIN_HQ, LIN_T, LIN_DK);
    const attn_tensor d_decay = attn_bhtd(ddecay, LIN_B, LIN_H, LIN_T, LIN_DK);
    linear_fixture_initialize(&f);
    memset(f.out_data, 0, sizeof f.out_data);
    f.params.beta = NULL, f.params.state_out = NULL;
    attn_linear_attention_gradients g = attn_linear_attention_gradients_default();
    g.out = &f.out, g.q = &d_q, g.decay = &d_decay;
    attn_status status = ATTN_OUT_OF_MEMORY;
    for (int n = 1; status != ATTN_OK; n++) {
        memset(dq, CANARY, sizeof dq);
        memset(ddecay, CANARY, sizeof ddecay);
        ledger_begin(n, 0);
        status = attn_linear_attention_backward(&f.q, &f.k, &f.v, NULL, &f.params, &g);
        ledger.active = 0;
        assert_int_equal(ledger.live, 0);
        assert_true(n > 1 ||
                    status == ATTN_OUT_OF_MEMORY); /* else the library's allocations do not pass through here */
        assert_true(status == ATTN_OK || status == ATTN_OUT_OF_MEMORY);
        if (status != ATTN_OK)
            sentences_meet(shortages, attn_last_error());
        assert_true(status == ATTN_OK || (all_canary(dq, sizeof dq) && all_canary(ddecay, sizeof ddecay)));
    }
    size_t size = 0;
    assert_int_equal(attn_linear_attention_backward_workspace_size(&f.q, &f.k, &f.v, NULL, &f.params, &g, &size),
                     ATTN_OK);
    char *const workspace = __real_malloc(size);
    assert_non_null(workspace);
    ledger_begin(1, 1);
    status = attn_linear_attention_backward_in(&f.q, &f.k, &f.v, NULL, &f.params, &g, workspace, size);
    ledger.active = 0;
    assert_int_equal(status, ATTN_OK);
    assert_int_equal(ledger.made, 0);
    __real_free(workspace);

    attn_linear_attention_backward_plan *plan = (attn_linear_attention_backward_plan *)(uintptr_t)64;
    ledger_begin(1, 0);
    status = attn_linear_attention_backward_plan_create(&plan, &f.q, &f.k, &f.v, NULL, &f.params, &g);
    assert_int_equal(status, ATTN_OUT_OF_MEMORY);
    assert_null(plan);
    sentences_meet(shortages, attn_last_error());
    assert_int_equal(attn_linear_attention_backward_plan_create(&plan, &f.q, &f.k, &f.v, NULL, &f.params, &g), ATTN_OK);
    const size_t planned = attn_linear_attention_backward_plan_workspace_size(plan);
    char *const memory = __real_malloc(planned);
    assert_non_null(memory);
    const int made = ledger.made;
    status = attn_linear_attention_backward_plan_run(plan, &f.q, &f.k, &f.v, NULL, &f.params, &g, memory, planned);
    assert_int_equal(status, ATTN_OK);
    assert_int_equal(ledger.made, made);
    attn_linear_attention_backward_plan_destroy(plan);
    ledger.active = 0;
    assert_int_equal(ledger.live, 0);
    __real_free(memory);
}

static void test_sentences(void **state)
{
    (void)state;
    sentences_end(shortages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_workspace_allocates_nothing),
        cmocka_unit_test(test_draw),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_sentences), /* the last */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
