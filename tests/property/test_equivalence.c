/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equivalence to the last bit of inputs that mean the same: memory layouts,
 * the other queries of a call, K and V heads shared or repeated, masks that
 * say what an option says, contents of hidden slots, outputs that are asked
 * for or not, rows of weights chosen or all, factors of two, which move through
 * the arithmetic exactly, narrow types beside the f32 that they stand for,
 * inputs that are rounded on the way, and pages.
 */
#include "dtype.h"
#include "oracle.h"
#include "properties.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Runs a changed problem, compares all of it, and frees it. */
static int same_as(const struct result *expected, struct problem *changed)
{
    struct result r = problem_run(changed);
    const int same = results_equal(expected, &r);
    result_free(&r);
    problem_free(changed);
    return same;
}

/** Rewrites an input as [batch][token][head][channel] with a gap behind each token. */
static void relayout(attn_tensor *t, int64_t gap)
{
    attn_tensor r = *t;
    r.stride[1] = t->shape[3];
    r.stride[2] = t->shape[1] * t->shape[3] + gap;
    r.stride[0] = t->shape[2] * r.stride[2];
    r.data = must_allocate(t->shape[0] * r.stride[0], attn_dtype_size(t->dtype));
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++)
                    tensor_set(&r, b, h, i, c, tensor_get(t, b, h, i, c));
    free(t->data);
    *t = r;
}

static int layouts(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    struct result expected = problem_run(&p);
    problem_copy(&changed, &p);
    relayout(&changed.q, rng_range(rng, 0, 5));
    relayout(&changed.k, rng_percent(rng, 50) ? 0 : 1024 - changed.k.shape[1] * changed.k.shape[3]);
    relayout(&changed.v, rng_percent(rng, 50) ? 0 : 1024 - changed.v.shape[1] * changed.v.shape[3]);
    const int holds = same_as(&expected, &changed);
    result_free(&expected);
    problem_free(&p);
    return holds;
}

/** A row keeps its bits when every other query of the call is replaced, by NaN or huge numbers too. */
static int other_queries(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    struct result expected = problem_run(&p);
    problem_copy(&changed, &p);
    const int64_t i = rng_range(rng, 0, expected.tq - 1);
    const int kind = (int)rng_range(rng, 0, 3);
    for (int64_t at = 0; at < expected.batch * expected.heads * expected.tq; at++)
        for (int64_t c = 0; c < p.q.shape[3] && at % expected.tq != i; c++)
            dtype_store(p.q.dtype, changed.q.data, at * p.q.shape[3] + c,
                        kind == 0   ? NAN
                        : kind == 1 ? INFINITY
                                    : rng_normal(rng) * (kind == 2 ? 1 : 1e6f));
    struct result r = problem_run(&changed);
    int holds = 1;
    for (int64_t bh = 0; bh < expected.batch * expected.heads; bh++) {
        const int64_t row = bh * expected.tq + i;
        holds = holds && memcmp(result_row(&r, row), result_row(&expected, row), result_row_size(&r)) == 0 &&
                memcmp(r.lse + row, expected.lse + row, sizeof *r.lse) == 0 &&
                memcmp(r.weights + row * r.tk, expected.weights + row * r.tk, (size_t)r.tk * sizeof *r.weights) == 0;
    }
    result_free(&r);
    result_free(&expected);
    problem_free(&changed);
    problem_free(&p);
    return holds;
}

/** Grouped K and V heads, repeated for each query head. */
static int repeated_heads(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    struct result expected = problem_run(&p);
    problem_copy(&changed, &p);
    attn_tensor *const inputs[] = {&changed.k, &changed.v};
    for (int n = 0; n < 2; n++) {
        attn_tensor *t = inputs[n];
        const int64_t heads = p.q.shape[1], group = heads / t->shape[1];
        const int64_t size = t->shape[2] * t->shape[3] * (int64_t)attn_dtype_size(t->dtype);
        char *data = must_allocate(t->shape[0] * heads * size, 1);
        for (int64_t bh = 0; bh < t->shape[0] * heads; bh++)
            memcpy(data + bh * size, (const char *)t->data + bh / group * size, (size_t)size);
        free(t->data);
        *t = tensor_as(attn_bhtd(data, t->shape[0], heads, t->shape[2], t->shape[3]), t->dtype);
    }
    const int holds = same_as(&expected, &changed);
    result_free(&expected);
    problem_free(&p);
    return holds;
}

/** Causality and lengths, written out as a boolean mask, and as an additive one of 0 and -Inf. */
static int written_masks(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_CAUSAL | WITH_LENGTHS);
    problem_bind(&p, p.params.kv_len != NULL, 0, p.params.query_offset != NULL);
    struct result expected = problem_run(&p);
    int holds = 1;
    for (int additive = 0; additive < 2; additive++) {
        struct problem changed;
        problem_copy(&changed, &p);
        const int64_t heads = p.q.shape[1], tq = p.q.shape[2], tk = p.k.shape[2];
        const int64_t n = p.q.shape[0] * heads * tq * tk;
        uint8_t *live = must_allocate(n, 1);
        const attn_dtype dtype = additive ? (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16) : ATTN_BOOL;
        void *bias = must_allocate(n, sizeof(float));
        for (int64_t at = 0; at < n; at++) {
            live[at] = (uint8_t)oracle_key_is_live(&p.params, tq, tk, at / (tk * tq * heads), at / (tk * tq) % heads,
                                                   at / tk % tq, at % tk);
            dtype_store(dtype == ATTN_BOOL ? ATTN_F32 : dtype, bias, at, live[at] ? 0 : -INFINITY);
        }
        changed.mask = attn_bhtd(additive ? bias : (void *)live, p.q.shape[0], heads, tq, tk);
        changed.mask.dtype = dtype;
        changed.params.causal = ATTN_CAUSAL_NONE;
        problem_bind(&changed, 0, 0, 0);
        free(additive ? (void *)live : bias);
        if (!same_as(&expected, &changed)) {
            printf("  an %s mask that says the same gives other bits\n", additive ? "additive" : "equivalent boolean");
            holds = 0;
        }
    }
    result_free(&expected);
    problem_free(&p);
    return holds;
}

/** Slots of K and V that no query sees may hold anything. */
static int hidden_slots(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    struct result expected = problem_run(&p);
    problem_copy(&changed, &p);
    const int64_t group = p.q.shape[1] / p.k.shape[1], tq = p.q.shape[2], tk = p.k.shape[2];
    const float garbage = (float)RNG_PICK(rng, 0, 7, 1000000) * (rng_percent(rng, 50) ? 1.0f : INFINITY); /* 0*Inf */
    for (int64_t at = 0; at < p.k.shape[0] * p.k.shape[1] * tk; at++) {
        const int64_t b = at / (p.k.shape[1] * tk), g = at / tk % p.k.shape[1];
        int live = 0;
        for (int64_t row = 0; row < group * tq && !live; row++)
            live = oracle_key_is_live(&p.params, tq, tk, b, g * group + row / tq, row % tq, at % tk);
        for (int64_t c = 0; c < p.k.shape[3] && !live; c++)
            dtype_store(p.k.dtype, changed.k.data, at * p.k.shape[3] + c, garbage);
        for (int64_t c = 0; c < p.v.shape[3] && !live; c++)
            dtype_store(p.v.dtype, changed.v.data, at * p.v.shape[3] + c, garbage);
    }
    const int holds = same_as(&expected, &changed);
    result_free(&expected);
    problem_free(&p);
    return holds;
}

/** What is asked for besides out does not change out; chosen rows of weights are the rows of all weights. */
static int requests(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    struct result all = problem_run(&p), r = result_allocate(&p);
    struct call call;
    call_initialize(&call, &p, &r);
    int64_t rows[5];
    for (int i = 0; i < 5; i++)
        rows[i] = rng_range(rng, 0, all.tq - 1);
    float *chosen = must_allocate(all.batch * all.heads * 5 * all.tk, sizeof *chosen);
    call.weights = attn_bhtd(chosen, all.batch, all.heads, 5, all.tk);
    call.params.weight_rows = rows;
    call.params.num_weight_rows = 5;
    call.params.lse = NULL;
    call.params.key_sums = NULL;
    must_succeed(attn_forward(&p.q, &p.k, &p.v, &call.out, &call.params), "attn_forward with chosen rows");
    const size_t out_size = (size_t)(all.batch * all.heads * all.tq) * result_row_size(&all);
    int holds = memcmp(all.out, r.out, out_size) == 0;
    for (int64_t bh = 0; bh < all.batch * all.heads; bh++)
        for (int i = 0; i < 5; i++)
            holds = holds && memcmp(chosen + (bh * 5 + i) * all.tk, all.weights + (bh * all.tq + rows[i]) * all.tk,
                                    (size_t)all.tk * sizeof *chosen) == 0;
    call.params.weights = NULL;
    call.params.weight_rows = NULL;
    call.params.num_weight_rows = 0;
    memset(r.out, 0xA5, out_size);
    must_succeed(attn_forward(&p.q, &p.k, &p.v, &call.out, &call.params), "attn_forward with out alone");
    holds = holds && memcmp(all.out, r.out, out_size) == 0;
    free(chosen);
    result_free(&r);
    result_free(&all);
    problem_free(&p);
    return holds;
}

static void times_four(const attn_tensor *t)
{
    for (int64_t i = 0; i < problem_count(t); i++)
        dtype_store(t->dtype, t->data, i, 4 * dtype_load(t->dtype, t->data, i));
}

/** 4 V gives 4 out; 4 Q with a quarter of the scale, and a temperature in the place of a scale, change nothing. */
static int powers_of_two(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    p.out = p.out == ATTN_F16 ? ATTN_F32 : p.out; /* small f16 are denormal, and 4 of them not 4 times as rough */
    p.params.scale = (float)rng_range(rng, 1, 9) / 8;
    struct result expected = problem_run(&p);
    problem_copy(&changed, &p);
    times_four(&changed.q);
    changed.params.scale = p.params.scale / 4;
    int holds = same_as(&expected, &changed);
    problem_copy(&changed, &p);
    changed.params.scale = p.params.scale / 2;
    changed.params.temperature = 0.5f;
    holds = same_as(&expected, &changed) && holds;
    problem_copy(&changed, &p);
    times_four(&changed.v);
    struct result r = problem_run(&changed);
    for (int64_t i = 0; i < r.batch * r.heads * r.tq * r.dv; i++)
        holds = holds && result_out(&r, i) == 4 * result_out(&expected, i);
    result_free(&r);
    result_free(&expected);
    problem_free(&changed);
    problem_free(&p);
    return holds;
}

static void replace_converted(attn_tensor *t, attn_dtype dtype)
{
    const attn_tensor r = problem_converted(t, dtype);
    free(t->data);
    *t = r;
}

/**
 * A narrow out is the f32 one, rounded once; a narrow mask, and narrow q, k and
 * v unless they are multiplied as pairs of bf16, give the bits of the f32 that
 * they stand for.
 */
static int narrow_types(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    struct result expected = problem_run(&p);
    problem_copy(&changed, &p);
    changed.out = ATTN_F32;
    struct result wide = problem_run(&changed);
    int holds = 1;
    for (int64_t i = 0; i < wide.batch * wide.heads * wide.tq * wide.dv && holds; i++) {
        const float rounded = dtype_round(p.out, result_out(&wide, i)), got = result_out(&expected, i);
        holds = memcmp(&rounded, &got, sizeof got) == 0;
        if (!holds)
            printf("  out[%d] is %.9g, but %.9g in f32\n", (int)i, (double)got, (double)result_out(&wide, i));
    }
    if (changed.mask.data && changed.mask.dtype != ATTN_BOOL)
        replace_converted(&changed.mask, ATTN_F32);
    struct result r = problem_run(&changed);
    if (!results_equal(&wide, &r)) {
        printf("  the mask of %s and the same in f32 give different bits\n", attn_dtype_name(p.mask.dtype));
        holds = 0;
    }
    result_free(&r);
    attn_tensor *const inputs[] = {&changed.q, &changed.k, &changed.v};
    for (int i = 0; i < 3 && !reference_rounds_weights(&p.q, &p.k, &p.v, &p.params); i++) {
        const attn_dtype narrow = inputs[i]->dtype;
        replace_converted(inputs[i], ATTN_F32);
        r = problem_run(&changed);
        if (!results_equal(&wide, &r)) {
            printf("  %c of %s and the same in f32 give different bits\n", "qkv"[i], attn_dtype_name(narrow));
            holds = 0;
        }
        result_free(&r);
    }
    result_free(&wide);
    result_free(&expected);
    problem_free(&changed);
    problem_free(&p);
    return holds;
}

/**
 * With the permission to take inputs as bf16 a call gives the bits of tensors that have been rounded to bf16 where
 * these are multiplied in pairs, and those of a call without it elsewhere.
 */
static int rounded_inputs(struct rng *rng, const char *isa)
{
    struct problem p, given, rounded;
    problem_random(&p, rng, isa, WITH_ALL);
    problem_copy(&given, &p);
    problem_copy(&rounded, &p);
    attn_tensor *const inputs[] = {&given.q, &given.k, &given.v}, *const bf16[] = {&rounded.q, &rounded.k, &rounded.v};
    for (int i = 0; i < 3; i++) {
        replace_converted(inputs[i], (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_F32, ATTN_F16, ATTN_BF16));
        const attn_tensor same = problem_converted(inputs[i], ATTN_BF16);
        free(bf16[i]->data);
        *bf16[i] = same;
    }
    const int pairs = reference_rounds_weights(&rounded.q, &rounded.k, &rounded.v, &rounded.params);
    struct result expected = problem_run(pairs ? &rounded : &given);
    given.params.inputs = ATTN_INPUTS_MAY_BE_BF16;
    struct result r = problem_run(&given);
    const int holds = results_equal(&expected, &r);
    result_free(&r);
    result_free(&expected);
    problem_free(&rounded);
    problem_free(&given);
    problem_free(&p);
    return holds;
}

/** Rows of a tensor in pages of size tokens, page order[b * columns + i] being the ith of batch b. */
static attn_tensor in_pages(const attn_tensor *t, int64_t size, const int32_t *order)
{
    const int64_t columns = t->shape[2] / size, row = t->shape[3] * (int64_t)attn_dtype_size(t->dtype);
    attn_tensor pool = attn_bhtd(must_allocate(problem_count(t), attn_dtype_size(t->dtype)), t->shape[0] * columns,
                                 t->shape[1], size, t->shape[3]);
    pool.dtype = t->dtype;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t j = 0; j < t->shape[2]; j++)
                memcpy((char *)pool.data + ((order[b * columns + j / size] * t->shape[1] + h) * size + j % size) * row,
                       (const char *)t->data + ((b * t->shape[1] + h) * t->shape[2] + j) * row, (size_t)row);
    return pool;
}

/** Keys and values in pages, in any order. */
static int pages(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    if (rng_percent(rng, 30)) /* as of a decoder */
        p.q.shape[2] = p.mask.shape[2] = 1;
    struct result expected = problem_run(&p), r = result_allocate(&p);
    int64_t size = RNG_PICK(rng, 1, 2, 8, 16, 16, 32, 64, 128);
    while (p.k.shape[2] % size != 0)
        size--;
    const int64_t columns = p.k.shape[2] / size, n = p.k.shape[0] * columns;
    int32_t *order = must_allocate(n, sizeof *order);
    for (int64_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = rng_range(rng, 0, i);
        const int32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    const attn_tensor k = in_pages(&p.k, size, order), v = in_pages(&p.v, size, order);
    struct call call;
    call_initialize(&call, &p, &r);
    call.params.block_table = order;
    call.params.block_table_stride = columns;
    call.params.page_size = size;
    must_succeed(attn_forward(&p.q, &k, &v, &call.out, &call.params), "attn_forward with pages");
    const int holds = results_equal(&expected, &r);
    free(k.data);
    free(v.data);
    free(order);
    result_free(&r);
    result_free(&expected);
    problem_free(&p);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"memory layouts", layouts},
        {"other queries of the call", other_queries},
        {"repeated key and value heads", repeated_heads},
        {"masks that say what an option says", written_masks},
        {"contents of hidden slots", hidden_slots},
        {"outputs on request", requests},
        {"factors of two", powers_of_two},
        {"narrow types", narrow_types},
        {"inputs that may be bf16", rounded_inputs},
        {"pages", pages},
    };
    return properties_run(argc, argv, "test_equivalence", properties, sizeof properties / sizeof *properties);
}
