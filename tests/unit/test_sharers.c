/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sequences of a batch share keys, and how many (src/driver/shared.c): what
 * a call writes down about its block tables before it computes. That bits stay as
 * they are is the property shared_keys.
 */
#include "fixture.h"

#include "api/call.h"
#include "api/describe.h"

#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 6, PAGE = 16, COLUMNS = 40, CHANNELS = 8, MOST_HEADS = 4 };
enum { POOL = SEQUENCES * COLUMNS * MOST_HEADS * PAGE * CHANNELS };

/** A call of SEQUENCES with their last query each, and what it finds out. */
struct shared {
    int64_t heads, kv_heads, threads;
    int64_t tokens[SEQUENCES], cu_q[SEQUENCES + 1], kv_len[SEQUENCES], kv_start[SEQUENCES];
    int32_t table[SEQUENCES][COLUMNS];
    attn_params params;
    attn_ragged ragged;
    struct attn_sharers found[SEQUENCES];
    int looked;  /**< whether there was anything to find */
    int says_so; /**< the description of the call tells that it will look */
};

/** All sequences have their own pages and 600 keys. */
static void initialize(struct shared *c)
{
    memset(c, 0, sizeof *c);
    c->heads = MOST_HEADS;
    c->kv_heads = 2;
    c->threads = 1;
    c->params = attn_params_default();
    c->params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    for (int s = 0; s < SEQUENCES; s++) {
        c->kv_len[s] = 600;
        c->tokens[s] = 1;
        for (int i = 0; i < COLUMNS; i++)
            c->table[s][i] = s * COLUMNS + i;
    }
}

/** Sequence s begins with so many pages of the one before it. */
static void share(struct shared *c, int s, int pages)
{
    memcpy(c->table[s], c->table[s - 1], (size_t)pages * sizeof(int32_t));
}

/** Runs the call and takes what it has found. */
static void look(struct shared *c, int ragged)
{
    static float k[POOL], v[POOL], q[SEQUENCES * 64 * MOST_HEADS * CHANNELS],
        out[SEQUENCES * 64 * MOST_HEADS * CHANNELS];
    for (int s = 0; s < SEQUENCES; s++)
        c->cu_q[s + 1] = c->cu_q[s] + c->tokens[s];
    c->ragged = (attn_ragged){.num_sequences = SEQUENCES, .cu_seqlens_q = c->cu_q};
    c->params.ragged = ragged ? &c->ragged : NULL;
    c->params.num_threads = (int)c->threads;
    c->params.kv_len = c->kv_len;
    c->params.kv_start = c->kv_start;
    c->params.block_table = c->table[0];
    c->params.block_table_stride = COLUMNS;
    c->params.page_size = PAGE;
    const int64_t batch = ragged ? 1 : SEQUENCES, tq = ragged ? c->cu_q[SEQUENCES] : 1;
    const attn_tensor tq_tensor = attn_bhtd(q, batch, c->heads, tq, CHANNELS);
    const attn_tensor to = attn_bhtd(out, batch, c->heads, tq, CHANNELS);
    const attn_tensor tk = attn_bhtd(k, SEQUENCES * COLUMNS, c->kv_heads, PAGE, CHANNELS);
    const attn_tensor tv = attn_bhtd(v, SEQUENCES * COLUMNS, c->kv_heads, PAGE, CHANNELS);
    struct attn_call call;
    if (attn_call_make(&call, &tq_tensor, &tk, &tv, &to, &c->params, CHECK_ALL) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    call.geometry.threads = call.geometry.parallel = (int)c->threads; /* it may not be worth so many */
    char text[512];
    attn_describe(&call.problem, &call.geometry, text, sizeof text);
    c->says_so = strstr(text, "queries together over shared pages") != NULL;
    const size_t size = attn_call_size(&call);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(attn_call_run(&call, workspace, size), ATTN_OK);
    const struct attn_sharers *found = attn_run_in(workspace)->sharers;
    c->looked = found != NULL;
    if (found)
        memcpy(c->found, found, sizeof c->found);
    free(workspace);
    assert_int_equal(c->says_so, c->looked);
}

/** Sequences first to end - 1 share the whole blocks of so many keys. */
static void expect(const struct shared *c, int first, int end, int64_t keys)
{
    assert_true(c->looked);
    keys = keys / ATTN_KEY_BLOCK * ATTN_KEY_BLOCK;
    for (int s = first; s < end; s++) {
        assert_int_equal(c->found[s].keys, keys);
        assert_int_equal(c->found[s].first, first);
        assert_int_equal(c->found[s].end, end);
    }
}

static void test_groups(void **state)
{
    (void)state;
    for (int ragged = 0; ragged <= 1; ragged++) {
        struct shared c;
        initialize(&c);
        for (int s = 1; s < 4; s++)
            share(&c, s, 30); /* 480 keys */
        share(&c, 5, 18);     /* 288 */
        look(&c, ragged);
        expect(&c, 0, 4, 480);
        expect(&c, 4, 6, 288);
    }
}

/** Keys end before the last one that the first query of each sees, at a border of blocks that counts from the start. */
static void test_keys_that_all_see(void **state)
{
    (void)state;
    struct shared c;
    initialize(&c);
    for (int s = 1; s < SEQUENCES; s++)
        share(&c, s, COLUMNS);
    c.kv_len[2] = 513;
    look(&c, 0);
    expect(&c, 0, SEQUENCES, 512);
    c.kv_len[2] = 512;
    look(&c, 0);
    expect(&c, 0, SEQUENCES, 511);
    for (int s = 0; s < SEQUENCES; s++)
        c.kv_start[s] = 5;
    c.kv_len[2] = 5 + 513;
    look(&c, 0);
    expect(&c, 0, SEQUENCES, 512);
    c.kv_start[3] = 4;
    look(&c, 0);
    expect(&c, 0, 3, 512);
    expect(&c, 3, 4, 0);
    expect(&c, 4, 6, 594);
    c.kv_start[3] = 5;
    c.tokens[1] = 7; /* its first query sees 7 keys less than its last */
    c.kv_len[1] = 5 + 384 + 6;
    look(&c, 1);
    expect(&c, 0, SEQUENCES, 383);
    c.params.causal = ATTN_CAUSAL_NONE;
    look(&c, 1);
    expect(&c, 0, SEQUENCES, 389);
}

/** A prompt, and a sequence without a query, stand by themselves. */
static void test_prompts(void **state)
{
    (void)state;
    struct shared c;
    initialize(&c);
    for (int s = 1; s < SEQUENCES; s++)
        share(&c, s, 30);
    c.tokens[2] = 40;
    look(&c, 1);
    expect(&c, 0, 2, 480);
    expect(&c, 2, 3, 0);
    expect(&c, 3, 6, 480);
    c.tokens[2] = 0;
    look(&c, 1);
    expect(&c, 0, 2, 480);
    expect(&c, 2, 3, 0);
    expect(&c, 3, 6, 480);
}

/** Who shares little does not take much from the others. */
static void test_least_and_greed(void **state)
{
    (void)state;
    struct shared c;
    initialize(&c);
    share(&c, 1, 15); /* 240 keys */
    look(&c, 0);
    for (int s = 0; s < SEQUENCES; s++)
        expect(&c, s, s + 1, 0);
    share(&c, 1, 36);
    share(&c, 2, 36);
    share(&c, 3, 16);
    share(&c, 4, 16);
    look(&c, 0);
    expect(&c, 0, 3, 576);
    expect(&c, 3, 5, 256);
    expect(&c, 5, 6, 0);
}

/** Sharers of a head are one task: there are enough of them for the threads. */
static void test_threads(void **state)
{
    (void)state;
    struct shared c;
    initialize(&c);
    for (int s = 1; s < SEQUENCES; s++)
        share(&c, s, 36);
    c.heads = c.kv_heads = 1;
    c.threads = 2;
    look(&c, 0);
    expect(&c, 0, 3, 576);
    expect(&c, 3, 6, 576);
}

static void test_options_of_sequences(void **state)
{
    (void)state;
    static const float slopes[MOST_HEADS] = {1, 1, 1, 1};
    const attn_window window = {.left = 2000, .right = ATTN_UNLIMITED};
    struct shared c;
    for (int option = 0; option < 3; option++) {
        initialize(&c);
        for (int s = 1; s < SEQUENCES; s++)
            share(&c, s, 36);
        if (option == 0)
            c.params.window = &window;
        else if (option == 1)
            c.params.alibi_slopes = slopes;
        else
            c.params.sums = ATTN_SUMS_FREE;
        look(&c, 0);
        assert_false(c.looked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),  cmocka_unit_test(test_keys_that_all_see),
        cmocka_unit_test(test_prompts), cmocka_unit_test(test_least_and_greed),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_options_of_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
