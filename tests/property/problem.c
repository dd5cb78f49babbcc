/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, copying, running and comparing the problems of the property tests.
 *
 * Sizes straddle the library's tiles: up to some strips of queries and some
 * blocks of keys, with odd head sizes. Values are normal; special values are
 * the business of check/, where they are compared with the oracle.
 */
#include "problem.h"

#include "dtype.h"
#include "test_isa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *must_allocate(int64_t n, size_t size)
{
    void *p = calloc(n > 0 ? (size_t)n : 1, size);
    if (!p) {
        fprintf(stderr, "no memory for %lld elements\n", (long long)n);
        exit(1);
    }
    return p;
}

void must_succeed(attn_status status, const char *what)
{
    if (status == ATTN_OK)
        return;
    printf("FAILED: %s: %s: %s\n", what, attn_status_string(status), attn_last_error());
    exit(1);
}

void problem_narrow(attn_tensor *t, int axis, int64_t first, int64_t n)
{
    if (!t->data)
        return;
    t->data = (char *)t->data + first * t->stride[axis] * (int64_t)attn_dtype_size(t->dtype);
    t->shape[axis] = n;
}

int64_t problem_count(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

attn_tensor problem_tensor(struct rng *rng, attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    attn_tensor x = attn_bhtd(NULL, b, h, t, c);
    x.dtype = dtype;
    if (rng_percent(rng, 50)) {
        x.stride[1] = c;
        x.stride[2] = h * c;
    }
    x.data = must_allocate(b * h * t * c, attn_dtype_size(dtype));
    for (int64_t i = 0; i < b * h * t * c; i++)
        if (dtype == ATTN_BOOL)
            ((uint8_t *)x.data)[i] = (uint8_t)rng_percent(rng, 70);
        else
            dtype_store(dtype, x.data, i, rng_normal(rng));
    return x;
}

static attn_tensor random_tensor(struct rng *rng, attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    void *data = must_allocate(b * h * t * c, attn_dtype_size(dtype));
    for (int64_t i = 0; i < b * h * t * c; i++)
        dtype_store(dtype, data, i, rng_normal(rng));
    return tensor_as(attn_bhtd(data, b, h, t, c), dtype);
}

attn_tensor problem_converted(const attn_tensor *t, attn_dtype dtype)
{
    attn_tensor r = attn_bhtd(NULL, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    r.dtype = dtype;
    r.data = must_allocate(problem_count(t), attn_dtype_size(dtype));
    for (int64_t i = 0; i < problem_count(t); i++)
        dtype_store(dtype, r.data, i, dtype_load(t->dtype, t->data, i));
    return r;
}

static attn_dtype any_float(struct rng *rng)
{
    return (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16);
}

static void random_types(attn_dtype types[3], attn_dtype *out, struct rng *rng, const char *isa)
{
    const int pairs = test_isa_has_pairs(isa), kind = (int)rng_range(rng, 0, 99);
    *out = types[0] = types[1] = types[2] = pairs ? ATTN_BF16 : kind < 50 ? ATTN_F32 : kind < 70 ? ATTN_BF16 : ATTN_F16;
    for (int i = 0; i < 3 && !pairs && kind >= 90; i++)
        types[i] = any_float(rng);
    if (*out != ATTN_F32 && rng_percent(rng, 30))
        *out = any_float(rng);
}

static void random_mask(struct problem *p, struct rng *rng)
{
    const int64_t n = p->q.shape[0] * p->q.shape[1] * p->q.shape[2] * p->k.shape[2];
    const int percent = (int)RNG_PICK(rng, 2, 30, 70, 97);
    p->mask = attn_bhtd(NULL, p->q.shape[0], p->q.shape[1], p->q.shape[2], p->k.shape[2]);
    if (rng_percent(rng, 50)) {
        uint8_t *data = must_allocate(n, 1);
        for (int64_t i = 0; i < n; i++)
            data[i] = (uint8_t)rng_percent(rng, percent);
        p->mask.data = data;
        p->mask.dtype = ATTN_BOOL;
    } else {
        p->mask.dtype = p->q.dtype == ATTN_F32 ? ATTN_F32 : any_float(rng);
        p->mask.data = must_allocate(n, attn_dtype_size(p->mask.dtype));
        for (int64_t i = 0; i < n; i++)
            dtype_store(p->mask.dtype, p->mask.data, i, rng_percent(rng, percent) ? rng_normal(rng) : -INFINITY);
    }
}

void problem_bind(struct problem *p, int kv_len, int kv_start, int query_offset)
{
    p->params.kv_len = kv_len ? p->kv_len : NULL;
    p->params.kv_start = kv_start ? p->kv_start : NULL;
    p->params.query_offset = query_offset ? p->query_offset : NULL;
    p->params.mask = p->mask.data ? &p->mask : NULL;
}

/** Everything but the number of tokens. */
static void random_problem(struct problem *p, struct rng *rng, const char *isa, int features, int64_t tq, int64_t tk)
{
    memset(p, 0, sizeof *p);
    const int64_t batch = rng_range(rng, 1, 3), kv_heads = rng_range(rng, 1, 2), group = RNG_PICK(rng, 1, 1, 2, 3);
    const int64_t dk = RNG_PICK(rng, 1, 3, 8, 15, 16, 20, 32), dv = rng_percent(rng, 60) ? dk : rng_range(rng, 1, 40);
    attn_dtype types[3];
    random_types(types, &p->out, rng, isa);
    p->q = random_tensor(rng, types[0], batch, kv_heads * group, tq, dk);
    p->k = random_tensor(rng, types[1], batch, kv_heads, tk, dk);
    p->v = random_tensor(rng, types[2], batch, kv_heads, tk, dv);
    p->params = attn_params_default();
    p->params.isa = isa;
    p->params.num_threads = 1;
    if (rng_percent(rng, 40))
        p->params.scale = (float)(0.1 + rng_uniform(rng));
    for (int64_t b = 0; b < batch; b++) {
        p->kv_len[b] = rng_range(rng, 0, tk);
        p->kv_start[b] = rng_range(rng, 0, p->kv_len[b]);
        p->query_offset[b] = rng_range(rng, -tq, tk);
    }
    if (features & WITH_CAUSAL && rng_percent(rng, 70))
        p->params.causal = (attn_causal)rng_range(rng, 1, 3);
    if (features & WITH_MASK && rng_percent(rng, 40))
        random_mask(p, rng);
    const int lengths = features & WITH_LENGTHS ? (int)RNG_PICK(rng, 0, 0, 1, 2, 3) : 0;
    problem_bind(p, lengths > 0, lengths > 1, p->params.causal == ATTN_CAUSAL_OFFSET);
}

void problem_random(struct problem *p, struct rng *rng, const char *isa, int features)
{
    const int64_t tq = rng_percent(rng, 20) ? RNG_PICK(rng, 96, 97, 192, 193, 240) : rng_range(rng, 1, 70);
    const int64_t tk = rng_percent(rng, 40) ? RNG_PICK(rng, 127, 128, 129, 256, 257, 300) : rng_range(rng, 1, 90);
    random_problem(p, rng, isa, features, tq, tk);
}

void problem_long(struct problem *p, struct rng *rng, const char *isa, int features)
{
    const int64_t tq = RNG_PICK(rng, 1, 1, 2, 3, 7, 17, 50);
    const int64_t tk = tq > 7 ? rng_range(rng, 4097, 4800) : rng_range(rng, 4097, 14000);
    random_problem(p, rng, isa, features, tq, tk);
}

void problem_for_threads(struct problem *p, struct rng *rng, const char *isa, int num_threads)
{
    for (;;) {
        attn_plan *plan = NULL;
        problem_random(p, rng, isa, WITH_ALL);
        p->params.num_threads = num_threads;
        attn_tensor out = attn_bhtd(NULL, p->q.shape[0], p->q.shape[1], p->q.shape[2], p->v.shape[3]);
        out.dtype = p->out;
        must_succeed(attn_plan_create(&plan, &p->q, &p->k, &p->v, &out, &p->params), "attn_plan_create");
        char text[512]; /* the one place that tells how many threads the plan starts, not how many it may */
        attn_plan_describe(plan, text, sizeof text);
        attn_plan_destroy(plan);
        p->params.num_threads = 1;
        if (strstr(text, " on 1 thread,") == NULL)
            return;
        problem_free(p);
    }
}

static void *duplicate(const attn_tensor *t)
{
    const int64_t n = problem_count(t);
    const size_t size = attn_dtype_size(t->dtype);
    void *copy = must_allocate(n, size);
    if (n > 0)
        memcpy(copy, t->data, (size_t)n * size);
    return copy;
}

void problem_copy(struct problem *to, const struct problem *from)
{
    *to = *from;
    to->q.data = duplicate(&from->q);
    to->k.data = duplicate(&from->k);
    to->v.data = duplicate(&from->v);
    if (from->mask.data)
        to->mask.data = duplicate(&from->mask);
    problem_bind(to, from->params.kv_len != NULL, from->params.kv_start != NULL, from->params.query_offset != NULL);
}

void problem_free(struct problem *p)
{
    free(p->q.data);
    free(p->k.data);
    free(p->v.data);
    free(p->mask.data);
}

struct result result_allocate(const struct problem *p)
{
    struct result r = {
        .batch = p->q.shape[0], .heads = p->q.shape[1], .tq = p->q.shape[2], .tk = p->k.shape[2], .dv = p->v.shape[3]};
    const int64_t heads = r.batch * r.heads, rows = heads * r.tq;
    r.dtype = p->out;
    r.out = must_allocate(rows * r.dv, attn_dtype_size(r.dtype));
    r.lse = must_allocate(rows, sizeof(float));
    r.weights = must_allocate(rows * r.tk, sizeof(float));
    r.key_sums = must_allocate(heads * r.tk, sizeof(float));
    memset(r.out, 0xA5, (size_t)rows * result_row_size(&r));
    memset(r.lse, 0xA5, (size_t)rows * sizeof(float));
    memset(r.weights, 0xA5, (size_t)(rows * r.tk) * sizeof(float));
    memset(r.key_sums, 0xA5, (size_t)(heads * r.tk) * sizeof(float));
    return r;
}

float result_out(const struct result *r, int64_t at)
{
    return dtype_load(r->dtype, r->out, at);
}

size_t result_row_size(const struct result *r)
{
    return (size_t)r->dv * attn_dtype_size(r->dtype);
}

const char *result_row(const struct result *r, int64_t row)
{
    return (const char *)r->out + (size_t)row * result_row_size(r);
}

void result_free(struct result *r)
{
    free(r->out);
    free(r->lse);
    free(r->weights);
    free(r->key_sums);
}

void call_initialize(struct call *call, const struct problem *p, const struct result *r)
{
    call->out = tensor_as(attn_bhtd(r->out, r->batch, r->heads, r->tq, r->dv), r->dtype);
    call->lse = attn_bhtd(r->lse, r->batch, r->heads, r->tq, 1);
    call->weights = attn_bhtd(r->weights, r->batch, r->heads, r->tq, r->tk);
    call->key_sums = attn_bhtd(r->key_sums, r->batch, r->heads, 1, r->tk);
    call->params = p->params;
    call->params.lse = &call->lse;
    call->params.weights = &call->weights;
    call->params.key_sums = &call->key_sums;
}

struct result problem_run(const struct problem *p)
{
    struct result r = result_allocate(p);
    struct call call;
    call_initialize(&call, p, &r);
    must_succeed(attn_forward(&p->q, &p->k, &p->v, &call.out, &call.params), "attn_forward");
    return r;
}

/** Whether rows of out, the same number of each, are alike. */
static int equal_out(const struct result *a, int64_t row_a, const struct result *b, int64_t row_b, int64_t rows)
{
    const size_t size = result_row_size(a) * (size_t)rows;
    return a->dtype == b->dtype && (size == 0 || memcmp(result_row(a, row_a), result_row(b, row_b), size) == 0);
}

static int equal(const float *a, const float *b, int64_t n)
{
    return n <= 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

int results_equal(const struct result *a, const struct result *b)
{
    const int64_t heads = a->batch * a->heads, rows = heads * a->tq;
    return equal_out(a, 0, b, 0, rows) && equal(a->lse, b->lse, rows) && equal(a->weights, b->weights, rows * a->tk) &&
           equal(a->key_sums, b->key_sums, heads * a->tk);
}

int rows_equal(const struct result *whole, int64_t b, int64_t h, int64_t first, const struct result *part,
               int64_t part_b, int64_t part_h)
{
    for (int64_t i = 0; i < part->tq; i++) {
        const int64_t w = (b * whole->heads + h) * whole->tq + first + i;
        const int64_t r = (part_b * part->heads + part_h) * part->tq + i;
        if (!equal_out(whole, w, part, r, 1) || !equal(whole->lse + w, part->lse + r, 1) ||
            !equal(whole->weights + w * whole->tk, part->weights + r * part->tk, part->tk))
            return 0;
        for (int64_t j = part->tk; j < whole->tk; j++)
            if (whole->weights[w * whole->tk + j] != 0)
                return 0;
    }
    return 1;
}

void problem_run_shares(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                        const attn_params *params)
{
    attn_plan *plan;
    must_succeed(attn_plan_create(&plan, q, k, v, out, params), "attn_plan_create");
    const size_t size = attn_plan_workspace_size(plan);
    char *workspace = must_allocate((int64_t)size, 1);
    memset(workspace, 0xff, size);
    must_succeed(attn_plan_begin(plan, q, k, v, out, params, workspace, size), "attn_plan_begin");
    const int nth = attn_plan_num_threads(plan);
    for (int phase = 0; phase < attn_plan_num_phases(plan); phase++)
        for (int i = 0; i < nth; i++)
            must_succeed(attn_plan_run_share(plan, workspace, phase, nth - 1 - i, nth), "attn_plan_run_share");
    attn_plan_destroy(plan);
    free(workspace);
}
