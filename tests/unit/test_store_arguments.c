/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_store() of a few tokens: each row is where slots says, rotated and rounded, and nothing else is written; and
 * what is wrong about its arguments.
 */
#include "fixture.h"
#include "dtype.h"
#include "random.h"

#include "attn/cache.h"

#include <string.h>

enum { KV_HEADS = 2, D = 8, SIZE = 4, PAGES = 3, TOKENS = 4 };

static void test_store(void **state)
{
    (void)state;
    struct rng rng = rng_for_case(9, 9);
    static float x_data[KV_HEADS * TOKENS * D], table[TOKENS * D], rotated[KV_HEADS * TOKENS * D];
    static unsigned char memory[PAGES * KV_HEADS * SIZE * D * sizeof(float)];
    const int64_t slots[TOKENS] = {11, -1, 0, 6};
    attn_rope_config config = attn_rope_config_default();
    config.pairs = 3;
    for (size_t i = 0; i < sizeof x_data / sizeof *x_data; i++)
        x_data[i] = rng_normal(&rng);
    const attn_tensor x = attn_bthd(x_data, 1, TOKENS, KV_HEADS, D);
    const attn_tensor turned = attn_bthd(rotated, 1, TOKENS, KV_HEADS, D);
    const int64_t positions[TOKENS] = {7, 8, 0, 100};
    assert_int_equal(attn_rope_table(&config, positions, TOKENS, table), ATTN_OK);
    const attn_tensor rotations = attn_bhtd(table, 1, 1, TOKENS, 6);
    assert_int_equal(attn_rope(&x, &rotations, ATTN_ROPE_INTERLEAVED, &turned, 1), ATTN_OK);
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++)
        for (int rotates = 0; rotates < 2; rotates++) {
            attn_tensor pool = attn_bthd(memory, PAGES, SIZE, KV_HEADS, D); /* tokens of a page, then heads */
            pool.dtype = (attn_dtype)dtype;
            memset(memory, CANARY, sizeof memory);
            assert_int_equal(attn_store(&x, slots, rotates ? &rotations : NULL,
                                        rotates ? ATTN_ROPE_INTERLEAVED : ATTN_ROPE_HALF_SPLIT, &pool, NULL, 2),
                             ATTN_OK);
            size_t written = 0;
            for (int t = 0; t < TOKENS; t++)
                for (int h = 0; h < KV_HEADS && slots[t] >= 0; h++)
                    for (int i = 0; i < D; i++, written++) {
                        const float given = tensor_get(rotates ? &turned : &x, 0, h, t, i);
                        assert_true(tensor_get(&pool, slots[t] / SIZE, h, slots[t] % SIZE, i) ==
                                    dtype_round((attn_dtype)dtype, given));
                    }
            size_t changed = 0, size = attn_dtype_size(pool.dtype);
            for (size_t i = 0; i < sizeof memory / size; i++)
                changed += !all_canary(memory + i * size, size);
            assert_int_equal(changed, written);
        }
}

static void test_store_errors(void **state)
{
    (void)state;
    static float x_data[KV_HEADS * TOKENS * D], pool_data[PAGES * KV_HEADS * SIZE * D];
    attn_tensor x = attn_bthd(x_data, 1, TOKENS, KV_HEADS, D), pool = attn_bhtd(pool_data, PAGES, KV_HEADS, SIZE, D), t;
    const int64_t good[TOKENS] = {0, 3, 1, 2}, twice[TOKENS] = {4, 2, -1, 4}, far[TOKENS] = {0, 1, 2, 12},
                  low[TOKENS] = {0, -2, 1, 2};
    static float table[TOKENS * 6];
    attn_tensor rotations = attn_bhtd(table, 1, 1, TOKENS, 6);
    memset(pool_data, CANARY, sizeof pool_data);
#define STORE(x, slots, rotations, pool) attn_store(x, slots, rotations, ATTN_ROPE_HALF_SPLIT, pool, NULL, 0)
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "slots has 4 twice; expected places that are all different",
               STORE(&x, twice, NULL, &pool));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "slots[3] is 12|0 to 11", STORE(&x, far, NULL, &pool));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "slots[1] is -2; expected -1, or a place from 0 to 11",
               STORE(&x, low, NULL, &pool));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "slots is NULL; expected 4 places", STORE(&x, NULL, NULL, &pool));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "x is NULL", STORE(NULL, good, NULL, &pool));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "pool is NULL", STORE(&x, good, NULL, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "layout is 1; expected 0 without rotations",
               attn_store(&x, good, NULL, ATTN_ROPE_INTERLEAVED, &pool, NULL, 0));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "layout is 7; expected an attn_rope_layout",
               attn_store(&x, good, &rotations, (attn_rope_layout)7, &pool, NULL, 0));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "num_threads is -2; expected 0 or more",
               attn_store(&x, good, NULL, ATTN_ROPE_HALF_SPLIT, &pool, NULL, -2));
    t = x, t.shape[0] = 2, t.stride[0] = 0;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "x.shape[0] is 2; expected 1, as its tokens go where slots says",
               STORE(&t, good, NULL, &pool));
    t = pool, t.shape[1] = 1;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "pool.shape[1] is 1; expected 2", STORE(&x, good, NULL, &t));
    t = pool, t.shape[3] = 7;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "pool.shape[3] is 7; expected 8, the head size of x", STORE(&x, good, NULL, &t));
    t = pool, t.dtype = ATTN_U8;
    FAILS_WITH(ATTN_UNSUPPORTED, "pool.dtype is u8", STORE(&x, good, NULL, &t));
    t = pool, t.stride[0] = 0;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "pool.stride[", STORE(&x, good, NULL, &t));
    t = pool, t.data = x_data;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "pool overlaps x", STORE(&x, good, NULL, &t));
    t = rotations, t.shape[3] = 5;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "rotations.shape[3] is 5; expected an even number up to 8, the head size of x",
               STORE(&x, good, &t, &pool));
    t = rotations, t.shape[0] = 2;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "rotations.shape[0] is 2; expected 1, as x has a batch of 1",
               STORE(&x, good, &t, &pool));
    t = rotations, t.shape[2] = 3;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "rotations.shape[2] is 3; expected 4", STORE(&x, good, &t, &pool));
    t = rotations, t.dtype = ATTN_BF16;
    FAILS_WITH(ATTN_UNSUPPORTED, "rotations.dtype is bf16", STORE(&x, good, &t, &pool));
    /* In 8 bits there are scales. */
    static float scale_data[PAGES * KV_HEADS * SIZE];
    attn_tensor scales = attn_bhtd(scale_data, PAGES, KV_HEADS, SIZE, 1), small = pool;
    small.dtype = ATTN_I8;
#define STORE_8(scales) attn_store(&x, good, NULL, ATTN_ROPE_HALF_SPLIT, &small, scales, 0)
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "scales is NULL", STORE_8(NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "scales is set and pool.dtype is f32",
               attn_store(&x, good, NULL, ATTN_ROPE_HALF_SPLIT, &pool, &scales, 0));
    t = scales, t.shape[0] = 1;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "scales.shape[0] is 1; expected 3, as pool has", STORE_8(&t));
    t = scales, t.shape[3] = 2;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "scales.shape[3] is 2; expected 1", STORE_8(&t));
    t = scales, t.dtype = ATTN_F16;
    FAILS_WITH(ATTN_UNSUPPORTED, "scales.dtype is f16", STORE_8(&t));
    t = scales, t.data = pool_data;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "scales overlaps pool", STORE_8(&t));
    t = scales, t.data = x_data;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "scales overlaps x", STORE_8(&t));
    attn_tensor wide = attn_bhtd(x_data, 1, 1, 1, 4097);
    small = wide, small.dtype = ATTN_I8, small.data = pool_data;
    FAILS_WITH(ATTN_UNSUPPORTED, "pool.shape[3] is 4097; of i8 head sizes go up to 4096",
               attn_store(&wide, good, NULL, ATTN_ROPE_HALF_SPLIT, &small, &scales, 0));
#undef STORE_8
    assert_true(all_canary(pool_data, sizeof pool_data));
    x.shape[2] = 0;
    assert_int_equal(STORE(&x, NULL, NULL, &pool), ATTN_OK);
#undef STORE
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store), cmocka_unit_test(test_store_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
