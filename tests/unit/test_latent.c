/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latent attention: one key head whose values are the first channels of its keys, a
 * view of the same memory. A call must take such a view, side by side, in pages
 * and quantised, and give the bits that a copy of the values in memory of
 * its own gives, whatever kernels the number of query heads leads to.
 */
#include "fixture.h"
#include "arguments.h"
#include "dtype.h"
#include "random.h"

#include "attn/quantise.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SIZE = 16 };

struct latent {
    attn_tensor q, k, scale, out, lse;
    attn_tensor values, value_scale; /**< the view */
    attn_tensor copy, other;         /**< values in memory of their own, and their scales */
    int64_t lengths[BATCH];
    int32_t *table;
    attn_params params;
};

/** Groups of channels that have a scale each in 4 bits. */
static int64_t groups_of(int64_t channels)
{
    return (channels + ATTN_I4_GROUP - 1) / ATTN_I4_GROUP;
}

static attn_tensor allocate(attn_dtype dtype, int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    const int64_t width = dtype == ATTN_I4 ? groups_of(channels) * ATTN_I4_GROUP : channels;
    void *const data = calloc((size_t)(batch * heads * tokens), attn_row_size(dtype, channels));
    attn_tensor t = attn_bhtd(data, batch, heads, tokens, width);
    assert_non_null(t.data);
    t.dtype = dtype;
    t.shape[3] = channels;
    return t;
}

static void fill(struct rng *rng, const attn_tensor *t)
{
    const int64_t n = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    for (int64_t i = 0; i < n; i++)
        dtype_store(t->dtype, t->data, i, rng_normal(rng));
}

static int is_quantised(attn_dtype dtype)
{
    return dtype == ATTN_I8 || dtype == ATTN_F8_E4M3 || dtype == ATTN_I4;
}

/** Keys of all sequences, or all pages of them: batch is what they are counted by. */
static void make_keys(struct latent *x, struct rng *rng, attn_dtype dtype, int64_t batch, int64_t tokens, int64_t dk,
                      int64_t dv)
{
    const size_t k_row = attn_row_size(dtype, dk), v_row = attn_row_size(dtype, dv);
    const int64_t k_scales = dtype == ATTN_I4 ? groups_of(dk) : 1, v_scales = dtype == ATTN_I4 ? groups_of(dv) : 1;
    x->k = allocate(dtype, batch, 1, tokens, dk);
    x->scale = allocate(ATTN_F32, batch, 1, tokens, k_scales);
    x->copy = allocate(dtype, batch, 1, tokens, dv);
    x->other = allocate(ATTN_F32, batch, 1, tokens, v_scales);
    if (is_quantised(dtype)) {
        const attn_tensor floats = allocate(ATTN_F32, batch, 1, tokens, dk);
        fill(rng, &floats);
        assert_int_equal(attn_quantise(&floats, &x->k, &x->scale, 1), ATTN_OK);
        free(floats.data);
    } else {
        fill(rng, &x->k);
    }
    x->values = x->k;
    x->values.shape[3] = dv;
    x->value_scale = x->scale;
    x->value_scale.shape[3] = v_scales;
    for (int64_t row = 0; row < batch * tokens; row++) {
        memcpy((char *)x->copy.data + (size_t)row * v_row, (char *)x->k.data + (size_t)row * k_row, v_row);
        memcpy((float *)x->other.data + row * v_scales, (float *)x->scale.data + row * k_scales,
               (size_t)v_scales * sizeof(float));
    }
}

/** A call with those values; returns its outputs, to be freed. */
static char *run(struct latent *x, const attn_tensor *values, const attn_tensor *scale, size_t *bytes)
{
    const size_t out = (size_t)(x->out.shape[0] * x->out.stride[0]) * attn_dtype_size(x->out.dtype),
                 lse = (size_t)(x->lse.shape[0] * x->lse.stride[0]) * sizeof(float);
    memset(x->out.data, CANARY, out);
    memset(x->lse.data, CANARY, lse);
    x->params.lse = &x->lse;
    x->params.k_scale = is_quantised(x->k.dtype) ? &x->scale : NULL;
    x->params.v_scale = is_quantised(x->k.dtype) ? scale : NULL;
    if (attn_forward(&x->q, &x->k, values, &x->out, &x->params) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    char *copy = malloc(out + lse);
    assert_non_null(copy);
    memcpy(copy, x->out.data, out);
    memcpy(copy + out, x->lse.data, lse);
    *bytes = out + lse;
    return copy;
}

struct shape {
    int64_t heads, queries, tokens, dk, dv;
};

static void check(const char *isa, const struct shape *s, attn_dtype queries, attn_dtype keys, int paged)
{
    struct latent x = {.params = attn_params_default(), .lengths = {s->tokens, s->tokens - s->tokens / 3}};
    struct rng rng = rng_for_case(0x1a7e47, (uint64_t)(s->heads * 4096 + s->tokens * 8 + keys));
    const int64_t columns = (s->tokens + SIZE - 1) / SIZE, pages = BATCH * columns;
    x.q = allocate(queries, BATCH, s->heads, s->queries, s->dk);
    x.out = allocate(queries, BATCH, s->heads, s->queries, s->dv);
    x.lse = allocate(ATTN_F32, BATCH, s->heads, s->queries, 1);
    x.table = malloc((size_t)pages * sizeof *x.table);
    assert_non_null(x.table);
    fill(&rng, &x.q);
    make_keys(&x, &rng, keys, paged ? pages : BATCH, paged ? SIZE : s->tokens, s->dk, s->dv);
    for (int64_t i = 0; i < pages; i++)
        x.table[i] = (int32_t)(pages - 1 - i);
    if (paged) {
        x.params.block_table = x.table;
        x.params.block_table_stride = columns;
        x.params.page_size = SIZE;
    }
    x.params.isa = isa;
    x.params.kv_len = x.lengths;
    x.params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    for (int way = 0; way < 4; way++) {
        size_t bytes;
        x.params.num_threads = way % 2 ? 3 : 1;
        x.params.sums = way / 2 ? ATTN_SUMS_FREE : ATTN_SUMS_ORDERED;
        char *const inside = run(&x, &x.values, &x.value_scale, &bytes), *const apart =
                                                                             run(&x, &x.copy, &x.other, &bytes);
        if (memcmp(inside, apart, bytes) != 0)
            fail_msg("%s, %d heads of %d queries, keys of %s%s: values in keys give other bits than a copy of them",
                     isa, (int)s->heads, (int)s->queries, attn_dtype_name(keys), paged ? " in pages" : "");
        free(inside);
        free(apart);
    }
    void *const data[] = {x.q.data, x.k.data, x.scale.data, x.out.data, x.lse.data, x.copy.data, x.other.data, x.table};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
}

/** Numbers of heads for every kind of kernel: lanes that are keys, half a strip, strips, matrix registers. */
static void test_values_in_keys(void **state)
{
    (void)state;
    static const attn_dtype types[][2] = {{ATTN_F32, ATTN_F32}, {ATTN_BF16, ATTN_BF16},   {ATTN_F16, ATTN_F16},
                                          {ATTN_BF16, ATTN_I8}, {ATTN_F32, ATTN_F8_E4M3}, {ATTN_F32, ATTN_I4}};
    static const struct shape shapes[] = {
        {1, 1, 130, 72, 64}, {5, 1, 300, 72, 64}, {16, 1, 130, 37, 21}, {128, 1, 130, 72, 64}, {16, 3, 70, 40, 40},
    };
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (size_t t = 0; attn_isa_supported(attn_isa_name(isa)) && t < sizeof types / sizeof *types; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (int paged = 0; paged < 2; paged++)
                    if (!surroundings_are_slow() || (int)(t + s) % 2 == paged)
                        check(attn_isa_name(isa), &shapes[s], types[t][0], types[t][1], paged);
}

/** The sizes that DeepSeek's models have. */
static void test_full_size(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{1, 1, 40, 576, 512}, {16, 1, 140, 576, 512}, {128, 1, 40, 576, 512}};
    const size_t num = sizeof shapes / sizeof *shapes - (surroundings_are_slow() ? 1 : 0);
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (size_t s = 0; attn_isa_supported(attn_isa_name(isa)) && s < num; s++) {
            check(attn_isa_name(isa), &shapes[s], ATTN_BF16, ATTN_BF16, s % 2);
            check(attn_isa_name(isa), &shapes[s], ATTN_F32, s % 2 ? ATTN_I8 : ATTN_F32, 1 - s % 2);
        }
}

/** Inputs may lie on each other; an output may still not lie on them. */
static void test_outputs_apart(void **state)
{
    (void)state;
    float q_data[8], rows[6 * 8], canary[6 * 8];
    memset(rows, CANARY, sizeof rows);
    memcpy(canary, rows, sizeof rows);
    memset(q_data, 0, sizeof q_data);
    const attn_tensor q = attn_bhtd(q_data, 1, 1, 1, 8), k = attn_bhtd(rows, 1, 1, 6, 8);
    attn_tensor v = k, out = attn_bhtd(rows + 6, 1, 1, 1, 6);
    v.shape[3] = 6;
    assert_int_equal(attn_forward(&q, &k, &v, &out, NULL), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "out overlaps k"));
    assert_memory_equal(rows, canary, sizeof rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values_in_keys), cmocka_unit_test(test_full_size),
                                       cmocka_unit_test(test_outputs_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
