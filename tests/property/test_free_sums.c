/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the order of sums is free (attn_params.sums), few queries have bits of
 * their own. They do not depend on threads, on the other sequences and heads of
 * the call, on padding, or on the run; they are as near to the exact result as
 * those of ordered sums; calls that the option does not reach are left alone; and
 * it does not matter whether there is something between rows, or whether they
 * are in pages.
 */
#include "close.h"
#include "dtype.h"
#include "properties.h"
#include "test_isa.h"

#include "attn/quantise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Most queries of all heads of a key head that a set calls few; 0: none. */
static int few_of(const char *isa)
{
    return strcmp(isa, "scalar") == 0 ? 0 : strncmp(isa, "neon", 4) == 0 ? 2 : 8;
}

static void random_floats(struct rng *rng, attn_tensor *t, attn_dtype dtype, int64_t b, int64_t h, int64_t n, int64_t c)
{
    *t = attn_bhtd(must_allocate(b * h * n * c, attn_dtype_size(dtype)), b, h, n, c);
    t->dtype = dtype;
    for (int64_t i = 0; i < b * h * n * c; i++)
        dtype_store(dtype, t->data, i, rng_normal(rng));
}

static attn_dtype draw_type(struct rng *rng, const char *isa)
{
    return test_isa_has_pairs(isa) ? ATTN_BF16 : (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16);
}

/** Bytes of so many elements; of ATTN_I4 of whole groups. */
static int64_t bytes_of(attn_dtype dtype, int64_t elements)
{
    return dtype == ATTN_I4 ? elements / 2 : elements * (int64_t)attn_dtype_size(dtype);
}

/** Rows in a type with scales, which both are allocated. */
static void quantise(const attn_tensor *x, attn_dtype dtype, attn_tensor *numbers, attn_tensor *scale)
{
    const int64_t b = x->shape[0], h = x->shape[1], n = x->shape[2], c = x->shape[3];
    const int64_t groups = dtype == ATTN_I4 ? (c + 31) / 32 : 1, pitch = dtype == ATTN_I4 ? 32 * groups : c;
    *numbers = attn_bhtd(must_allocate(b * h * n * (int64_t)attn_row_size(dtype, c), 1), b, h, n, pitch);
    numbers->dtype = dtype;
    numbers->shape[3] = c;
    *scale = attn_bhtd(must_allocate(b * h * n * groups, sizeof(float)), b, h, n, groups);
    must_succeed(attn_quantise(x, numbers, scale, 1), "attn_quantise");
}

static const attn_dtype quantised_types[] = {ATTN_I8, ATTN_F8_E4M3, ATTN_I4};

/** Scales of k, and of v if that is quantised, too. */
struct scales {
    attn_tensor k, v;
};

/** Gives a tensor a quantised type in the place of its own. */
static void narrow(attn_tensor *t, attn_dtype dtype, attn_tensor *scale)
{
    const attn_tensor wide = *t;
    quantise(&wide, dtype, t, scale);
    free(wide.data);
}

/** A type whose numbers bf16 has exactly. */
static attn_dtype draw_exact(struct rng *rng)
{
    return (attn_dtype)RNG_PICK(rng, ATTN_F8_E4M3, ATTN_I4);
}

/** A problem whose sums the set frees, and that is worth some threads; k may be quantised, and of pairs both k and v in
 * 8 or 4 bits that bf16 has exactly. */
static void draw(struct rng *rng, const char *isa, struct problem *p, struct scales *scales)
{
    const int most = few_of(isa) ? few_of(isa) : 4;
    const int64_t group = rng_range(rng, 1, most), tq = rng_range(rng, 1, most / group);
    const int64_t batch = rng_range(rng, 1, 3), kv_heads = rng_range(rng, 1, 3), tk = rng_range(rng, 1, 1500);
    const int64_t dk = RNG_PICK(rng, 1, 16, 31, 64, 100, 128, 200), dv = rng_range(rng, 1, 150);
    memset(p, 0, sizeof *p);
    memset(scales, 0, sizeof *scales);
    random_floats(rng, &p->q, draw_type(rng, isa), batch, kv_heads * group, tq, dk);
    random_floats(rng, &p->k, draw_type(rng, isa), batch, kv_heads, tk, dk);
    random_floats(rng, &p->v, draw_type(rng, isa), batch, kv_heads, tk, dv);
    p->out = draw_type(rng, isa);
    p->params = attn_params_default();
    p->params.isa = isa;
    p->params.num_threads = 1;
    p->params.sums = ATTN_SUMS_FREE;
    p->params.causal = rng_percent(rng, 50) ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
    for (int64_t b = 0; b < batch; b++) {
        p->kv_len[b] = rng_range(rng, 0, tk);
        p->kv_start[b] = rng_range(rng, 0, p->kv_len[b]);
    }
    problem_bind(p, rng_percent(rng, 50), rng_percent(rng, 50), 0);
    if (rng_percent(rng, 60))
        return;
    const int pairs = test_isa_has_pairs(isa);
    const attn_dtype exact = draw_exact(rng);
    narrow(&p->k, pairs ? exact : quantised_types[rng_range(rng, 0, 2)], &scales->k);
    p->params.k_scale = &scales->k;
    if (!pairs)
        return;
    narrow(&p->v, exact, &scales->v);
    p->params.v_scale = &scales->v;
}

static void drop(struct problem *p, struct scales *scales)
{
    problem_free(p);
    free(scales->k.data);
    free(scales->v.data);
}

static int threads(struct rng *rng, const char *isa)
{
    static const int counts[] = {1, 2, 3, 7};
    struct problem p;
    struct scales scales;
    draw(rng, isa, &p, &scales);
    struct result expected = problem_run(&p);
    int holds = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        p.params.num_threads = counts[i];
        struct result r = problem_run(&p);
        holds &= results_equal(&expected, &r);
        result_free(&r);
    }
    result_free(&expected);
    drop(&p, &scales);
    return holds;
}

/** Element (b, h, t, 0) on of a tensor, with so many heads and tokens. */
static attn_tensor part_of(const attn_tensor *t, int64_t b, int64_t h, int64_t first, int64_t heads, int64_t tokens)
{
    const int64_t at = tensor_offset(t, b, h, first, 0);
    attn_tensor part = *t;
    part.data = (char *)t->data + (t->dtype == ATTN_I4 ? at / 2 : at * (int64_t)attn_dtype_size(t->dtype));
    part.shape[0] = 1;
    part.shape[1] = heads;
    part.shape[2] = tokens;
    return part;
}

/** A key head by itself, with its live keys alone. */
static int alone(struct rng *rng, const char *isa)
{
    struct problem p;
    struct scales scales;
    draw(rng, isa, &p, &scales);
    struct result whole = problem_run(&p);
    const int64_t b = rng_range(rng, 0, p.q.shape[0] - 1), head = rng_range(rng, 0, p.k.shape[1] - 1);
    const int64_t group = p.q.shape[1] / p.k.shape[1];
    const int64_t begin = p.params.kv_start ? p.kv_start[b] : 0;
    const int64_t end = p.params.kv_len ? p.kv_len[b] : p.k.shape[2];
    struct problem part = p;
    problem_bind(&part, 0, 0, 0);
    attn_tensor k_scale, v_scale;
    int holds = 1;
    if (begin < end) {
        part.q = part_of(&p.q, b, head * group, 0, group, p.q.shape[2]);
        part.k = part_of(&p.k, b, head, begin, 1, end - begin);
        part.v = part_of(&p.v, b, head, begin, 1, end - begin);
        if (p.params.k_scale) {
            k_scale = part_of(&scales.k, b, head, begin, 1, end - begin);
            part.params.k_scale = &k_scale;
        }
        if (p.params.v_scale) {
            v_scale = part_of(&scales.v, b, head, begin, 1, end - begin);
            part.params.v_scale = &v_scale;
        }
        struct result r = problem_run(&part);
        for (int64_t h = 0; h < group; h++)
            for (int64_t i = 0; i < r.tq; i++) {
                const int64_t row = (b * whole.heads + head * group + h) * whole.tq + i, own = h * r.tq + i;
                holds &= memcmp(result_row(&whole, row), result_row(&r, own), result_row_size(&r)) == 0;
                holds &= memcmp(&whole.lse[row], &r.lse[own], sizeof(float)) == 0;
                holds &= memcmp(whole.weights + row * whole.tk + begin, r.weights + own * r.tk,
                                (size_t)r.tk * sizeof(float)) == 0;
            }
        result_free(&r);
    }
    result_free(&whole);
    drop(&p, &scales);
    return holds;
}

/** The elements of a quantised tensor. */
static attn_tensor widened(const attn_tensor *t, const attn_tensor *scale)
{
    const int64_t d = t->shape[3], groups = scale->shape[3], n = problem_count(t);
    const attn_tensor wide =
        attn_bhtd(must_allocate(n, sizeof(float)), t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *row = (const uint8_t *)t->data + i / d * (int64_t)attn_row_size(t->dtype, d);
        const float number = t->dtype == ATTN_I4   ? dtype_i4_at(row, i % d)
                             : t->dtype == ATTN_I8 ? (float)(int8_t)row[i % d]
                                                   : dtype_of_f8(row[i % d]);
        ((float *)wide.data)[i] = number * ((const float *)scale->data)[i / d * groups + (groups > 1 ? i % d / 32 : 0)];
    }
    return wide;
}

/** Within rounding of ordered sums; what is quantised is f32 to the oracle. */
static int close_to_ordered(struct rng *rng, const char *isa)
{
    struct problem p, wide;
    struct scales scales;
    draw(rng, isa, &p, &scales);
    struct result r = problem_run(&p);
    wide = p;
    problem_bind(&wide, p.params.kv_len != NULL, p.params.kv_start != NULL, 0);
    if (p.params.k_scale)
        wide.k = widened(&p.k, &scales.k);
    if (p.params.v_scale)
        wide.v = widened(&p.v, &scales.v);
    wide.params.k_scale = wide.params.v_scale = NULL;
    wide.params.sums = ATTN_SUMS_ORDERED;
    struct result expected = problem_run(&wide);
    wide.params.sums = p.params.sums; /* the tolerance is that of the call: of numbers that lie in pairs, if they do */
    wide.params.k_scale = p.params.k_scale;
    const int holds = close_results(&wide, &expected, &r, 0);
    result_free(&expected);
    result_free(&r);
    if (p.params.k_scale)
        free(wide.k.data);
    if (p.params.v_scale)
        free(wide.v.data);
    drop(&p, &scales);
    return holds;
}

/** Scores of many channels are added otherwise if there are few queries, and as ever if there are more. */
static int reaches_few(struct rng *rng, const char *isa)
{
    const int few = few_of(isa);
    int holds = 1;
    for (int64_t tq = 1; tq <= few + 1; tq += few ? few : 1) { /* few, and one more */
        struct problem p = {.params = attn_params_default()};
        const attn_dtype type = draw_type(rng, isa);
        random_floats(rng, &p.q, type, 1, 2, tq, 128);
        random_floats(rng, &p.k, type, 1, 2, 300, 128);
        random_floats(rng, &p.v, type, 1, 2, 300, 16);
        p.params.isa = isa;
        p.out = ATTN_F32;
        struct result ordered = problem_run(&p);
        p.params.sums = ATTN_SUMS_FREE;
        struct result r = problem_run(&p);
        if (results_equal(&ordered, &r) != (tq > few)) {
            printf("  %d queries of %d that are few: bits are %s\n", (int)tq, few, tq > few ? "others" : "the same");
            holds = 0;
        }
        result_free(&ordered);
        result_free(&r);
        problem_free(&p);
    }
    return holds;
}

/** A copy whose rows are some elements further from each other. */
static attn_tensor spread(struct rng *rng, const attn_tensor *t)
{
    const int64_t c = t->stride[2], pitch = c + 32 * rng_range(rng, 1, 4), row = bytes_of(t->dtype, c);
    const int64_t rows = t->shape[0] * t->shape[1] * t->shape[2];
    attn_tensor copy = *t;
    copy.data = must_allocate(bytes_of(t->dtype, rows * pitch), 1);
    memset(copy.data, 0xff, (size_t)bytes_of(t->dtype, rows * pitch)); /* NaN, or numbers that would be seen */
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)copy.data + bytes_of(t->dtype, i * pitch), (const char *)t->data + i * row, (size_t)row);
    for (int i = 0; i < 3; i++)
        copy.stride[i] = t->stride[i] / c * pitch;
    return copy;
}

/** A copy in pages of some tokens, of which page order[b * columns + i] is the ith of batch b. */
static attn_tensor in_pages(const attn_tensor *t, int64_t size, int64_t columns, const int32_t *order)
{
    const int64_t heads = t->shape[1], num = t->shape[0] * columns, row = bytes_of(t->dtype, t->stride[2]);
    attn_tensor pool = attn_bhtd(must_allocate(num * heads * size * row, 1), num, heads, size, t->stride[2]);
    memset(pool.data, 0xff, (size_t)(num * heads * size * row)); /* behind the last token NaN, as in spread() */
    pool.dtype = t->dtype;
    pool.shape[3] = t->shape[3];
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < t->shape[2]; j++) {
                const int64_t at = (order[b * columns + j / size] * heads + h) * size + j % size;
                const int64_t from = b * t->stride[0] + h * t->stride[1] + j * t->stride[2];
                memcpy((char *)pool.data + at * row, (const char *)t->data + bytes_of(t->dtype, from), (size_t)row);
            }
    return pool;
}

/** A call with the same keys in pages, in any order. */
static void run_in_pages(struct rng *rng, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                         const attn_tensor *out, const attn_params *params)
{
    const int64_t batch = k->shape[0], tk = k->shape[2], size = RNG_PICK(rng, 7, 16, 16, 24, 64, 128);
    const int64_t columns = (tk + size - 1) / size;
    int32_t *const order = must_allocate(batch * columns, sizeof *order);
    int64_t all[2] = {tk, tk};
    for (int64_t i = 0; i < batch * columns; i++) {
        const int64_t j = rng_range(rng, 0, i);
        order[i] = order[j];
        order[j] = (int32_t)i;
    }
    attn_tensor pools[4] = {in_pages(k, size, columns, order), in_pages(v, size, columns, order)};
    attn_params paged = *params;
    if (params->k_scale) {
        pools[2] = in_pages(params->k_scale, size, columns, order);
        pools[3] = in_pages(params->v_scale, size, columns, order);
        paged.k_scale = &pools[2];
        paged.v_scale = &pools[3];
    }
    paged.block_table = order;
    paged.block_table_stride = columns;
    paged.page_size = size;
    paged.kv_len = params->kv_len ? params->kv_len : all;
    must_succeed(attn_forward(q, &pools[0], &pools[1], out, &paged), "attn_forward with pages");
    for (int i = 0; i < 4; i++)
        free(pools[i].data);
    free(order);
}

/** Some elements of a tensor, so large that maxima grow late, or NaN. */
static void plant(struct rng *rng, const attn_tensor *t, int nans)
{
    const int64_t n = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    for (int i = 0; i < 4; i++)
        dtype_store(t->dtype, t->data, rng_range(rng, 0, n - 1), 200.0f * rng_normal(rng));
    if (nans)
        dtype_store(t->dtype, t->data, rng_range(rng, 0, n - 1), NAN);
}

/** Whether floats have the same bits; a NaN is like any NaN. */
static int same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return 0;
    return 1;
}

/**
 * One query or few for each key head, with sums of either kind: rows of K and V that follow each other without a gap
 * may be gone through in another way than rows with something between them or in pages, in the widths that kernels are
 * made for (ATTN_SIDE_WORDS) and in others.
 */
static int side_by_side(struct rng *rng, const char *isa)
{
    const int64_t batch = rng_range(rng, 1, 2), heads = rng_range(rng, 1, 2);
    const int64_t group = rng_percent(rng, 50) ? 1 : rng_range(rng, 2, few_of(isa) > 2 ? few_of(isa) : 2);
    const int64_t tk = rng_percent(rng, 30) ? rng_range(rng, 4000, 9000) : rng_range(rng, 1, 1500);
    const int64_t dk = RNG_PICK(rng, 16, 31, 32, 64, 128, 256, 80), dv = rng_percent(rng, 70) ? dk : 64;
    const int quantised = rng_percent(rng, 50), pairs = test_isa_has_pairs(isa);
    attn_tensor q, k, v, narrow_k = {0}, narrow_v = {0}, k_scale = {0}, v_scale = {0}, out[3], lse[3];
    static float outs[3][32 * 256], lses[3][32];
    int64_t kv_len[2], kv_start[2];
    random_floats(rng, &q, draw_type(rng, isa), batch, heads * group, 1, dk);
    random_floats(rng, &k, draw_type(rng, isa), batch, heads, tk, dk);
    random_floats(rng, &v, draw_type(rng, isa), batch, heads, tk, dv);
    plant(rng, &k, !quantised && rng_percent(rng, 20));
    plant(rng, &v, !quantised && rng_percent(rng, 20));
    for (int64_t b = 0; b < batch; b++) {
        kv_len[b] = rng_range(rng, 0, tk);
        kv_start[b] = rng_range(rng, 0, kv_len[b]);
    }
    attn_params params = attn_params_default();
    params.isa = isa;
    params.sums = rng_percent(rng, 50) ? ATTN_SUMS_FREE : ATTN_SUMS_ORDERED;
    params.causal = rng_percent(rng, 50) ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
    params.kv_len = rng_percent(rng, 50) ? kv_len : NULL;
    params.kv_start = params.kv_len && rng_percent(rng, 50) ? kv_start : NULL;
    if (quantised) {
        const attn_dtype exact = draw_exact(rng);
        quantise(&k, pairs ? exact : quantised_types[rng_range(rng, 0, 2)], &narrow_k, &k_scale);
        quantise(&v, pairs ? exact : quantised_types[rng_range(rng, 0, 2)], &narrow_v, &v_scale);
        params.k_scale = &k_scale;
        params.v_scale = &v_scale;
        for (int i = 0; narrow_k.dtype != ATTN_I4 && i < 2 && rng_percent(rng, 10); i++) /* NaN, of E4M3 */
            ((uint8_t *)narrow_k.data)[rng_range(rng, 0, bytes_of(narrow_k.dtype, tk * narrow_k.stride[2]) - 1)] = 0x7f;
    }
    const attn_tensor near = quantised ? narrow_k : k, near_v = quantised ? narrow_v : v;
    const attn_tensor far_k = spread(rng, &near), far_v = spread(rng, &near_v);
    for (int i = 0; i < 3; i++) {
        out[i] = attn_bhtd(outs[i], batch, heads * group, 1, dv);
        lse[i] = attn_bhtd(lses[i], batch, heads * group, 1, 1);
        params.lse = &lse[i];
        params.num_threads = i == 0 ? 2 : 1;
        if (i == 2)
            run_in_pages(rng, &q, &near, &near_v, &out[i], &params);
        else
            must_succeed(attn_forward(&q, i == 0 ? &near : &far_k, i == 0 ? &near_v : &far_v, &out[i], &params),
                         "attn_forward");
    }
    const size_t rows = (size_t)(batch * heads * group);
    int holds = 1;
    for (int i = 1; i < 3; i++) {
        if (same_floats(outs[0], outs[i], rows * (size_t)dv) && same_floats(lses[0], lses[i], rows))
            continue;
        printf("  %s and %s, %d x %d of %d and %d channels: other bits %s\n", attn_dtype_name(near.dtype),
               attn_dtype_name(near_v.dtype), (int)rows, (int)tk, (int)dk, (int)dv, i == 1 ? "apart" : "in pages");
        holds = 0;
    }
    void *const all[] = {q.data,       k.data,       v.data,     narrow_k.data, narrow_v.data,
                         k_scale.data, v_scale.data, far_k.data, far_v.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return holds;
}

/** Queries in other types than bf16 keep their bits beside keys and values that bf16 has exactly: nothing rounds them.
 */
static int other_queries(struct rng *rng, const char *isa)
{
    const int64_t group = rng_range(rng, 1, 2), tk = rng_range(rng, 1, 400), d = RNG_PICK(rng, 31, 64, 128);
    struct problem p = {.params = attn_params_default(), .out = ATTN_F32};
    struct scales scales;
    random_floats(rng, &p.q, (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_F16), 1, group, 1, d);
    random_floats(rng, &p.k, ATTN_F32, 1, 1, tk, d);
    random_floats(rng, &p.v, ATTN_F32, 1, 1, tk, d);
    const attn_dtype exact = draw_exact(rng);
    narrow(&p.k, exact, &scales.k);
    narrow(&p.v, exact, &scales.v);
    p.params.k_scale = &scales.k;
    p.params.v_scale = &scales.v;
    p.params.sums = ATTN_SUMS_FREE;
    p.params.isa = isa;
    struct result r = problem_run(&p);
    p.params.isa = test_isa_of_floats(isa);
    struct result expected = problem_run(&p);
    const int holds = results_equal(&expected, &r);
    result_free(&expected);
    result_free(&r);
    drop(&p, &scales);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"threads", threads},
        {"a head alone", alone},
        {"close to ordered sums", close_to_ordered},
        {"few queries alone", reaches_few},
        {"rows apart and in pages", side_by_side},
        {"queries that are not bf16", other_queries},
    };
    return properties_run(argc, argv, "test_free_sums", properties, sizeof properties / sizeof *properties);
}
