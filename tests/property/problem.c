/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, copying, running and comparing the problems of the property tests.
 *
 * Sizes straddle the library's tiles: up to some strips of queries and some
 * blocks of keys, with odd head sizes. Values are normal; special values are
 * the business of check/, where they are compared with the oracle.
 */
#include "problem.h"

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

static int64_t count(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

static attn_tensor random_tensor(struct rng *rng, int64_t b, int64_t h, int64_t t, int64_t c)
{
    float *data = must_allocate(b * h * t * c, sizeof *data);
    rng_fill_normal(rng, data, b * h * t * c);
    return attn_bhtd(data, b, h, t, c);
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
        float *data = must_allocate(n, sizeof *data);
        for (int64_t i = 0; i < n; i++)
            data[i] = rng_percent(rng, percent) ? rng_normal(rng) : -INFINITY;
        p->mask.data = data;
    }
}

void problem_bind(struct problem *p, int kv_len, int kv_start, int query_offset)
{
    p->params.kv_len = kv_len ? p->kv_len : NULL;
    p->params.kv_start = kv_start ? p->kv_start : NULL;
    p->params.query_offset = query_offset ? p->query_offset : NULL;
    p->params.mask = p->mask.data ? &p->mask : NULL;
}

void problem_random(struct problem *p, struct rng *rng, attn_isa isa, int features)
{
    memset(p, 0, sizeof *p);
    const int64_t batch = rng_range(rng, 1, 3), kv_heads = rng_range(rng, 1, 2), group = RNG_PICK(rng, 1, 1, 2, 3);
    const int64_t tq = rng_percent(rng, 20) ? RNG_PICK(rng, 96, 97, 192, 193, 240) : rng_range(rng, 1, 70);
    const int64_t tk = rng_percent(rng, 40) ? RNG_PICK(rng, 127, 128, 129, 256, 257, 300) : rng_range(rng, 1, 90);
    const int64_t dk = RNG_PICK(rng, 1, 3, 8, 15, 16, 20, 32), dv = rng_percent(rng, 60) ? dk : rng_range(rng, 1, 40);
    p->q = random_tensor(rng, batch, kv_heads * group, tq, dk);
    p->k = random_tensor(rng, batch, kv_heads, tk, dk);
    p->v = random_tensor(rng, batch, kv_heads, tk, dv);
    p->params = attn_params_default();
    p->params.isa = isa;
    p->params.exp = rng_percent(rng, 30) ? ATTN_EXP_FAST : ATTN_EXP_SLEEF;
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

static void *duplicate(const void *data, int64_t n, size_t size)
{
    void *copy = must_allocate(n, size);
    if (n > 0)
        memcpy(copy, data, (size_t)n * size);
    return copy;
}

void problem_copy(struct problem *to, const struct problem *from)
{
    *to = *from;
    to->q.data = duplicate(from->q.data, count(&from->q), sizeof(float));
    to->k.data = duplicate(from->k.data, count(&from->k), sizeof(float));
    to->v.data = duplicate(from->v.data, count(&from->v), sizeof(float));
    if (from->mask.data)
        to->mask.data = duplicate(from->mask.data, count(&from->mask), attn_dtype_size(from->mask.dtype));
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
    r.out = must_allocate(rows * r.dv, sizeof(float));
    r.lse = must_allocate(rows, sizeof(float));
    r.weights = must_allocate(rows * r.tk, sizeof(float));
    r.key_sums = must_allocate(heads * r.tk, sizeof(float));
    memset(r.out, 0xA5, (size_t)(rows * r.dv) * sizeof(float));
    memset(r.lse, 0xA5, (size_t)rows * sizeof(float));
    memset(r.weights, 0xA5, (size_t)(rows * r.tk) * sizeof(float));
    memset(r.key_sums, 0xA5, (size_t)(heads * r.tk) * sizeof(float));
    return r;
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
    call->out = attn_bhtd(r->out, r->batch, r->heads, r->tq, r->dv);
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

static int equal(const float *a, const float *b, int64_t n)
{
    return n <= 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

int results_equal(const struct result *a, const struct result *b)
{
    const int64_t heads = a->batch * a->heads, rows = heads * a->tq;
    return equal(a->out, b->out, rows * a->dv) && equal(a->lse, b->lse, rows) &&
           equal(a->weights, b->weights, rows * a->tk) && equal(a->key_sums, b->key_sums, heads * a->tk);
}

int rows_equal(const struct result *whole, int64_t b, int64_t h, int64_t first, const struct result *part,
               int64_t part_b, int64_t part_h)
{
    for (int64_t i = 0; i < part->tq; i++) {
        const int64_t w = (b * whole->heads + h) * whole->tq + first + i;
        const int64_t r = (part_b * part->heads + part_h) * part->tq + i;
        if (!equal(whole->out + w * whole->dv, part->out + r * part->dv, part->dv) ||
            !equal(whole->lse + w, part->lse + r, 1) ||
            !equal(whole->weights + w * whole->tk, part->weights + r * part->tk, part->tk))
            return 0;
        for (int64_t j = part->tk; j < whole->tk; j++)
            if (whole->weights[w * whole->tk + j] != 0)
                return 0;
    }
    return 1;
}
