/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of the backward pass. Bits: on one instruction set gradients do not
 * depend on the number of threads, on repetition, on which of them are wanted, on
 * other sequences and heads of the call, nor on padding. Algebra: they are linear
 * in the gradients of out and lse, what shifts all scores of a row changes none
 * of them, heads that share a key head add up in it, and keys that nobody sees
 * have none.
 */
#include "compare_backward.h"
#include "dtype.h"
#include "guard.h"
#include "properties.h"

#include "attn/backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DQ, DK, DV, WRITTEN, ALL = 7, MAX_HEADS = 8 };

static const char *const names[WRITTEN] = {"dq", "dk", "dv"};

/** A problem with what its backward pass reads. Views of it own nothing. */
struct training {
    struct problem p;
    attn_tensor out, lse, d_out, d_lse; /**< d_lse: data NULL without it */
    attn_dtype types[WRITTEN];          /**< of the gradients */
    float sinks[MAX_HEADS], slopes[MAX_HEADS];
    attn_dropout dropout;
};

/** Gradients, contiguous; data NULL where one is not wanted. */
struct gradients {
    attn_tensor of[WRITTEN];
};

static attn_tensor owned(attn_dtype dtype, const int64_t shape[4], int64_t channels)
{
    attn_tensor t = attn_bhtd(NULL, shape[0], shape[1], shape[2], channels);
    t.dtype = dtype;
    t.data = must_allocate(problem_count(&t), attn_dtype_size(dtype));
    return t;
}

/** The forward pass of a training: out and lse. */
static void go_forward(struct training *t)
{
    t->out = owned(t->p.out, t->p.q.shape, t->p.v.shape[3]);
    t->lse = owned(ATTN_F32, t->p.q.shape, 1);
    attn_params params = t->p.params;
    params.lse = &t->lse;
    must_succeed(attn_forward(&t->p.q, &t->p.k, &t->p.v, &t->out, &params), "attn_forward");
}

/** Gradients of out and lse, and options that a problem has not; then the forward pass. */
static void begin(struct training *t, struct rng *rng)
{
    struct problem *p = &t->p;
    const int64_t *n = p->q.shape;
    t->d_out = problem_tensor(rng, rng_percent(rng, 80) ? p->out : ATTN_F32, n[0], n[1], n[2], p->v.shape[3]);
    t->d_lse = rng_percent(rng, 50) ? problem_tensor(rng, ATTN_F32, n[0], n[1], n[2], 1) : (attn_tensor){0};
    const attn_dtype of[WRITTEN] = {p->q.dtype, p->k.dtype, p->v.dtype};
    for (int i = 0; i < WRITTEN; i++)
        t->types[i] = rng_percent(rng, 70) ? of[i] : ATTN_F32;
    for (int h = 0; h < MAX_HEADS; h++) {
        t->sinks[h] = rng_normal(rng);
        t->slopes[h] = (float)ldexp(1, -h - 1);
    }
    p->params.sinks = rng_percent(rng, 20) ? t->sinks : NULL;
    p->params.alibi_slopes = rng_percent(rng, 20) ? t->slopes : NULL;
    p->params.softcap = rng_percent(rng, 20) ? 5 : 0;
    t->dropout = (attn_dropout){0.2f, rng_bits(rng), 1};
    p->params.dropout = rng_percent(rng, 20) ? &t->dropout : NULL;
    go_forward(t);
}

static void draw(struct training *t, struct rng *rng, const char *isa, int features)
{
    if (rng_percent(rng, 10))
        problem_long(&t->p, rng, isa, features);
    else
        problem_random(&t->p, rng, isa, features);
    begin(t, rng);
}

static void training_free(struct training *t)
{
    problem_free(&t->p);
    free(t->out.data);
    free(t->lse.data);
    free(t->d_out.data);
    free(t->d_lse.data);
}

static void gradients_free(struct gradients *g)
{
    for (int i = 0; i < WRITTEN; i++)
        free(g->of[i].data);
}

/** The backward pass; wanted: bits of the gradients that are. */
static struct gradients run(const struct training *t, unsigned wanted)
{
    const attn_tensor *const of[WRITTEN] = {&t->p.q, &t->p.k, &t->p.v};
    struct gradients g;
    attn_gradients call = attn_gradients_default();
    const attn_tensor **const fields[WRITTEN] = {&call.q, &call.k, &call.v};
    for (int i = 0; i < WRITTEN; i++) {
        g.of[i] = (attn_tensor){0};
        if (!(wanted >> i & 1u))
            continue;
        g.of[i] = owned(t->types[i], of[i]->shape, of[i]->shape[3]);
        memset(g.of[i].data, 0xA5, (size_t)problem_count(&g.of[i]) * attn_dtype_size(t->types[i]));
        *fields[i] = &g.of[i];
    }
    call.out = &t->d_out;
    call.lse = t->d_lse.data ? &t->d_lse : NULL;
    attn_params params = t->p.params;
    params.lse = &t->lse;
    must_succeed(attn_backward(&t->p.q, &t->p.k, &t->p.v, &t->out, &params, &call), "attn_backward");
    return g;
}

/** Whether a row of two tensors has the same bits. */
static int same_row(const attn_tensor *a, const int64_t at[3], const attn_tensor *b, const int64_t bt[3])
{
    const int64_t size = (int64_t)attn_dtype_size(a->dtype), channels = a->shape[3];
    const char *x = (const char *)a->data + (channels ? tensor_offset(a, at[0], at[1], at[2], 0) : 0) * size;
    const char *y = (const char *)b->data + (channels ? tensor_offset(b, bt[0], bt[1], bt[2], 0) : 0) * size;
    return memcmp(x, y, (size_t)(channels * size)) == 0;
}

/**
 * Whether part has the bits of whole from (b, head h, token i) on, as far as it reaches. Says which gradient differs.
 */
static int same_part(const char *what, const struct gradients *whole, int64_t b, const int64_t h[WRITTEN],
                     const int64_t token[WRITTEN], const struct gradients *part)
{
    for (int g = 0; g < WRITTEN; g++) {
        const attn_tensor *w = &whole->of[g], *p = &part->of[g];
        for (int64_t at = 0; p->data && at < p->shape[0] * p->shape[1] * p->shape[2]; at++) {
            const int64_t from[3] = {at / p->shape[2] / p->shape[1], at / p->shape[2] % p->shape[1], at % p->shape[2]};
            if (same_row(w, (int64_t[]){b + from[0], h[g] + from[1], token[g] + from[2]}, p, from))
                continue;
            printf("  %s: %s[%d,%d,%d] has other bits\n", what, names[g], (int)from[0], (int)from[1], (int)from[2]);
            return 0;
        }
    }
    return 1;
}

static const int64_t from_start[WRITTEN] = {0, 0, 0};

static int same_gradients(const char *what, const struct gradients *a, const struct gradients *b)
{
    return same_part(what, a, 0, from_start, from_start, b);
}

/* --------------------------------------------------------------------- bits -- */

static int thread_counts(struct rng *rng, const char *isa)
{
    static const int counts[] = {1, 2, 3, 7}; /* 1 again: a repeated run */
    struct training t;
    if (rng_percent(rng, 40)) /* many tasks that wait for each other */
        problem_long(&t.p, rng, isa, WITH_ALL);
    else
        problem_for_threads(&t.p, rng, isa, 7);
    begin(&t, rng);
    struct gradients expected = run(&t, ALL);
    int holds = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        t.p.params.num_threads = counts[i];
        struct gradients g = run(&t, ALL);
        char what[32];
        snprintf(what, sizeof what, "%d threads", counts[i]);
        holds &= same_gradients(what, &expected, &g);
        gradients_free(&g);
    }
    gradients_free(&expected);
    training_free(&t);
    return holds;
}

static int wanted_sets(struct rng *rng, const char *isa)
{
    struct training t;
    draw(&t, rng, isa, WITH_ALL);
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    struct gradients expected = run(&t, ALL);
    int holds = 1;
    for (unsigned wanted = 0; wanted < ALL; wanted++) {
        struct gradients g = run(&t, wanted);
        holds &= same_gradients("some are not wanted", &expected, &g);
        gradients_free(&g);
    }
    gradients_free(&expected);
    training_free(&t);
    return holds;
}

static void narrow(attn_tensor *t, int axis, int64_t first, int64_t n)
{
    if (!t->data)
        return;
    t->data = (char *)t->data + first * t->stride[axis] * (int64_t)attn_dtype_size(t->dtype);
    t->shape[axis] = n;
}

/** One sequence alone, and the heads of one key head of it. */
static int alone(struct rng *rng, const char *isa)
{
    struct training t;
    draw(&t, rng, isa, WITH_ALL);
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    struct gradients whole = run(&t, ALL);
    const int64_t b = t.p.params.dropout ? 0 : rng_range(rng, 0, t.p.q.shape[0] - 1); /* whose weights it takes */
    const int64_t group = t.p.q.shape[1] / t.p.k.shape[1];
    const int64_t g = t.p.params.dropout ? 0 : rng_range(rng, 0, t.p.k.shape[1] - 1);
    int holds = 1;
    for (int one_head = 0; one_head < 2; one_head++) {
        struct training part = t; /* a view: not freed */
        attn_tensor *const of_q[] = {&part.p.q, &part.p.mask, &part.out, &part.lse, &part.d_out, &part.d_lse};
        attn_tensor *const of_k[] = {&part.p.k, &part.p.v};
        for (size_t i = 0; i < sizeof of_q / sizeof *of_q; i++) {
            narrow(of_q[i], 0, b, 1);
            if (one_head)
                narrow(of_q[i], 1, g * group, group);
        }
        for (size_t i = 0; i < sizeof of_k / sizeof *of_k; i++) {
            narrow(of_k[i], 0, b, 1);
            if (one_head)
                narrow(of_k[i], 1, g, 1);
        }
        part.p.kv_len[0] = t.p.kv_len[b];
        part.p.kv_start[0] = t.p.kv_start[b];
        part.p.query_offset[0] = t.p.query_offset[b];
        problem_bind(&part.p, t.p.params.kv_len != NULL, t.p.params.kv_start != NULL, t.p.params.query_offset != NULL);
        part.p.params.num_threads = 1;
        part.p.params.sinks = t.p.params.sinks ? t.sinks + (one_head ? g * group : 0) : NULL;
        part.p.params.alibi_slopes = t.p.params.alibi_slopes ? t.slopes + (one_head ? g * group : 0) : NULL;
        struct gradients r = run(&part, ALL);
        const int64_t heads[WRITTEN] = {one_head ? g * group : 0, one_head ? g : 0, one_head ? g : 0};
        holds &= same_part(one_head ? "a key head alone" : "a sequence alone", &whole, b, heads, from_start, &r);
        gradients_free(&r);
    }
    gradients_free(&whole);
    training_free(&t);
    return holds;
}

/** Sequences of a ragged batch have the gradients that each has alone; tokens behind the last one have none. */
static int ragged(struct rng *rng, const char *isa)
{
    struct training t;
    problem_random(&t.p, rng, isa, 0);
    t.p.params.causal = (attn_causal)rng_range(rng, 0, 2);
    narrow(&t.p.q, 0, 0, 1);
    narrow(&t.p.k, 0, 0, 1);
    narrow(&t.p.v, 0, 0, 1);
    const int64_t tq = t.p.q.shape[2], tk = t.p.k.shape[2];
    const int64_t cut_q = rng_range(rng, 0, tq), cut_k = rng_range(rng, 0, tk);
    const int64_t cu_q[3] = {0, cut_q, rng_range(rng, cut_q, tq)}, cu_k[3] = {0, cut_k, rng_range(rng, cut_k, tk)};
    const attn_ragged batch = {2, cu_q, cu_k};
    t.p.params.ragged = &batch;
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    begin(&t, rng);
    if (t.p.params.dropout) { /* follows from the number of the sequence */
        t.p.params.dropout = NULL;
        free(t.out.data);
        free(t.lse.data);
        go_forward(&t);
    }
    struct gradients whole = run(&t, ALL);
    int holds = 1;
    for (int s = 0; s < 2; s++) {
        struct training part = t;
        attn_tensor *const of_q[] = {&part.p.q, &part.out, &part.lse, &part.d_out, &part.d_lse};
        for (size_t i = 0; i < sizeof of_q / sizeof *of_q; i++)
            narrow(of_q[i], 2, cu_q[s], cu_q[s + 1] - cu_q[s]);
        narrow(&part.p.k, 2, cu_k[s], cu_k[s + 1] - cu_k[s]);
        narrow(&part.p.v, 2, cu_k[s], cu_k[s + 1] - cu_k[s]);
        part.p.params.ragged = NULL;
        part.p.params.num_threads = 1;
        struct gradients r = run(&part, ALL);
        const int64_t tokens[WRITTEN] = {cu_q[s], cu_k[s], cu_k[s]};
        holds &= same_part("a ragged sequence", &whole, 0, from_start, tokens, &r);
        gradients_free(&r);
    }
    for (int g = 0; g < WRITTEN; g++)
        for (int64_t h = 0; h < whole.of[g].shape[1]; h++)
            for (int64_t i = g == DQ ? cu_q[2] : cu_k[2]; i < whole.of[g].shape[2]; i++)
                for (int64_t c = 0; c < whole.of[g].shape[3]; c++)
                    holds &= tensor_get(&whole.of[g], 0, h, i, c) == 0;
    gradients_free(&whole);
    training_free(&t);
    return holds;
}

/** t with more tokens, which hold NaN. */
static attn_tensor padded(const attn_tensor *t, int64_t more)
{
    const int64_t shape[4] = {t->shape[0], t->shape[1], t->shape[2] + more, 0};
    const attn_tensor r = owned(t->dtype, shape, t->shape[3]);
    for (int64_t b = 0; b < r.shape[0]; b++)
        for (int64_t h = 0; h < r.shape[1]; h++)
            for (int64_t i = 0; i < r.shape[2]; i++)
                for (int64_t c = 0; c < r.shape[3]; c++)
                    tensor_set(&r, b, h, i, c, i < t->shape[2] ? tensor_get(t, b, h, i, c) : NAN);
    return r;
}

/** Keys within larger tensors, by kv_len. */
static int padding(struct rng *rng, const char *isa)
{
    struct training t;
    draw(&t, rng, isa, WITH_ALL & ~WITH_MASK);
    struct gradients expected = run(&t, ALL);
    struct training larger = t;
    const int64_t tk = t.p.k.shape[2], more = rng_range(rng, 1, 300);
    larger.p.k = padded(&t.p.k, more);
    larger.p.v = padded(&t.p.v, more);
    for (int64_t b = 0; b < t.p.q.shape[0] && !t.p.params.kv_len; b++)
        larger.p.kv_len[b] = tk;
    problem_bind(&larger.p, 1, t.p.params.kv_start != NULL, t.p.params.query_offset != NULL);
    larger.p.params.num_threads = (int)rng_range(rng, 1, 3);
    struct gradients r = run(&larger, ALL);
    int holds = same_gradients("padding", &r, &expected);
    for (int g = DK; g <= DV; g++)
        for (int64_t at = 0; at < problem_count(&r.of[g]); at++)
            if (at / r.of[g].shape[3] % r.of[g].shape[2] >= tk && dtype_load(r.of[g].dtype, r.of[g].data, at) != 0) {
                printf("  %s of padding is not 0\n", names[g]);
                holds = 0;
            }
    free(larger.p.k.data);
    free(larger.p.v.data);
    gradients_free(&r);
    gradients_free(&expected);
    training_free(&t);
    return holds;
}

/* ------------------------------------------------------------------ algebra -- */

/** What the oracle says of a training; without the naive computation, what is within the floors alone passes. */
static struct backward_reference reference_of(const struct training *t, int naively)
{
    struct backward_reference (*const compute)(const struct backward_inputs *) =
        naively ? backward_reference_compute : backward_reference_compute_alone;
    return compute(&(struct backward_inputs){.q = &t->p.q,
                                             .k = &t->p.k,
                                             .v = &t->p.v,
                                             .params = &t->p.params,
                                             .out = &t->out,
                                             .lse = &t->lse,
                                             .d_out = &t->d_out,
                                             .d_lse = t->d_lse.data ? &t->d_lse : NULL});
}

/** How far two results may be apart that should be equal, at one element: so many units and slack for each. */
static double distance_allowed(const struct backward_reference *ref, int of, int64_t at)
{
    const struct gradient *g = &ref->of[of];
    return 2 * (TOLERANCE_GRADIENT_FACTOR * g->naive_error[at] +
                2 * tolerance_gradient_floor((enum gradient_of)of) * g->unit[at] + g->slack[at]);
}

/** Whether a and b, less what is less, are equal within what two references allow; says so of others by what, or NULL.
 */
static int close_gradients(const char *what, const struct gradients *a, const struct gradients *b,
                           const struct gradients *less, const struct backward_reference *first,
                           const struct backward_reference *second)
{
    for (int g = 0; g < WRITTEN; g++)
        for (int64_t at = 0; at < problem_count(&a->of[g]); at++) {
            const double x = (double)dtype_load(a->of[g].dtype, a->of[g].data, at);
            const double y = (double)dtype_load(b->of[g].dtype, b->of[g].data, at) -
                             (double)dtype_load(less->of[g].dtype, less->of[g].data, at);
            if (fabs(x - y) <= distance_allowed(first, g, at) + distance_allowed(second, g, at))
                continue;
            if (what)
                printf("  %s: %s[%d] is %.9g and %.9g\n", what, names[g], (int)at, x, y);
            return 0;
        }
    return 1;
}

static void scale_tensor(const attn_tensor *t, float factor)
{
    for (int64_t at = 0; t->data && at < problem_count(t); at++)
        dtype_store(t->dtype, t->data, at, factor * dtype_load(t->dtype, t->data, at));
}

/** Twice the gradients of out and lse give twice the others, bit by bit: nothing rounds otherwise. */
static int homogeneous(struct rng *rng, const char *isa)
{
    struct training t;
    draw(&t, rng, isa, WITH_ALL);
    for (int i = 0; i < WRITTEN; i++)
        t.types[i] = ATTN_F32; /* f16 has denormals here */
    struct gradients once = run(&t, ALL);
    scale_tensor(&t.d_out, -2);
    scale_tensor(&t.d_lse, -2);
    struct gradients twice = run(&t, ALL);
    int holds = 1;
    for (int g = 0; g < WRITTEN; g++)
        for (int64_t at = 0; at < problem_count(&once.of[g]) && holds; at++) {
            const float x = ((const float *)once.of[g].data)[at], y = ((const float *)twice.of[g].data)[at];
            holds = y == -2 * x || fabsf(x) < 0x1p-90f; /* products that are denormal round otherwise */
            if (!holds)
                printf("  %s[%d] is %.9g, and %.9g for -2 times the loss\n", names[g], (int)at, (double)x, (double)y);
        }
    gradients_free(&once);
    gradients_free(&twice);
    training_free(&t);
    return holds;
}

/** The gradients of a sum of losses are the sums of their gradients. */
static int additive(struct rng *rng, const char *isa)
{
    struct training t;
    problem_random(&t.p, rng, isa, WITH_ALL);
    begin(&t, rng);
    for (int i = 0; i < WRITTEN; i++)
        t.types[i] = ATTN_F32;
    struct training parts[2] = {t, t}; /* halves of the channels, and lse in the second */
    for (int i = 0; i < 2; i++) {
        parts[i].d_out = problem_converted(&t.d_out, t.d_out.dtype);
        attn_tensor contiguous = parts[i].d_out;
        for (int64_t at = 0; at < problem_count(&contiguous); at++) {
            const int64_t c = at % contiguous.shape[3];
            dtype_store(contiguous.dtype, contiguous.data, at,
                        (c < contiguous.shape[3] / 2) == (i == 0) ? dtype_load(t.d_out.dtype, t.d_out.data, at) : 0);
        }
        parts[i].d_out.stride[0] = t.d_out.stride[0];
        parts[i].d_out.stride[1] = t.d_out.stride[1];
        parts[i].d_out.stride[2] = t.d_out.stride[2]; /* as it lies in t */
    }
    parts[0].d_lse.data = NULL;
    struct gradients whole = run(&t, ALL), first = run(&parts[0], ALL), second = run(&parts[1], ALL);
    int holds = 0;
    for (int naively = 0; naively < 2 && !holds; naively++) {
        struct backward_reference a = reference_of(&parts[0], naively), b = reference_of(&parts[1], naively);
        holds = close_gradients(naively ? "a sum of losses" : NULL, &second, &whole, &first, &a, &b);
        backward_reference_free(&a);
        backward_reference_free(&b);
    }
    gradients_free(&whole);
    gradients_free(&first);
    gradients_free(&second);
    free(parts[0].d_out.data);
    free(parts[1].d_out.data);
    training_free(&t);
    return holds;
}

/** The largest size of a number that is finite. */
static double largest_of(const attn_tensor *t)
{
    double most = 0;
    for (int64_t at = 0; at < problem_count(t); at++) {
        const double size = fabs((double)dtype_load(t->dtype, t->data, at));
        most = isfinite(size) && size > most ? size : most;
    }
    return most;
}

/** What a gradient may come to if all of its terms are of their largest size and none cancel: roundings of out and lse
 * are in proportion to that. */
static double size_of_terms(const struct training *t, int of)
{
    const struct problem *p = &t->p;
    const double queries = (double)(p->q.shape[2] * (p->q.shape[1] / p->k.shape[1])), d_out = largest_of(&t->d_out);
    const double factor = p->params.scale == 0.0f ? 1.0 : fabs((double)p->params.scale);
    const double score = factor * d_out * largest_of(&p->v) * (double)p->v.shape[3];
    return of == DV ? queries * d_out : of == DQ ? score * largest_of(&p->k) : queries * score * largest_of(&p->q);
}

/** A vector added to all keys shifts the scores of a row alike: dq and dv stay, and dk, as long as lse has no part. */
static int shifted_keys(struct rng *rng, const char *isa)
{
    struct training t;
    problem_random(&t.p, rng, isa, WITH_ALL);
    begin(&t, rng);
    free(t.d_lse.data);
    t.d_lse.data = NULL;
    t.p.params.sinks = NULL; /* which is not shifted */
    t.p.params.softcap = 0;
    for (int i = 0; i < WRITTEN; i++)
        t.types[i] = ATTN_F32;
    struct training shifted = t;
    shifted.p.k = problem_converted(&t.p.k, t.p.k.dtype);
    for (int64_t at = 0; at < problem_count(&t.p.k); at++) { /* of so few bits that sums are exact in any type */
        const float k = rintf(4 * dtype_load(t.p.k.dtype, t.p.k.data, at)) / 4;
        dtype_store(t.p.k.dtype, t.p.k.data, at, k);
        dtype_store(t.p.k.dtype, shifted.p.k.data, at, k + (at % t.p.k.shape[3] % 3 == 0 ? 1.5f : -0.5f));
    }
    free(t.out.data);
    free(t.lse.data);
    go_forward(&t);
    go_forward(&shifted);
    const int rounds = reference_rounds_weights(&t.p.q, &t.p.k, &t.p.v, &t.p.params);
    const double rounding = t.p.out == ATTN_BF16 || rounds ? 0x1p16 : t.p.out == ATTN_F16 ? 0x1p13 : 1;
    struct gradients a = run(&t, ALL), b = run(&shifted, ALL);
    const double largest[WRITTEN] = {size_of_terms(&shifted, DQ), size_of_terms(&shifted, DK),
                                     size_of_terms(&shifted, DV)};
    int holds = 0;
    for (int naively = 0; naively < 2 && !holds; naively++) {
        struct backward_reference first = reference_of(&t, naively), second = reference_of(&shifted, naively);
        holds = 1;
        for (int g = 0; g < WRITTEN; g++)
            for (int64_t at = 0; at < problem_count(&a.of[g]) && holds; at++) {
                const double x = (double)((float *)a.of[g].data)[at], y = (double)((float *)b.of[g].data)[at];
                /* How far the references of both are apart is a matter of out and lse, which have been rounded. */
                const double exact = fabs(first.of[g].value[at] - second.of[g].value[at]);
                const double size = largest[g] * 0x1p-22 * rounding;
                holds = exact <= 16 * rounding * (first.of[g].unit[at] + second.of[g].unit[at]) + size &&
                        fabs(x - y) <= exact + distance_allowed(&first, g, at) + distance_allowed(&second, g, at);
                if (!holds && naively)
                    printf("  shifted keys: %s[%d] is %.9g and %.9g\n", names[g], (int)at, x, y);
            }
        backward_reference_free(&first);
        backward_reference_free(&second);
    }
    gradients_free(&a);
    gradients_free(&b);
    free(shifted.p.k.data);
    free(shifted.out.data);
    free(shifted.lse.data);
    training_free(&t);
    return holds;
}

/** Query heads that share a key head add up in it: as if each had a copy. */
static int shared_heads(struct rng *rng, const char *isa)
{
    struct training t;
    do {
        problem_random(&t.p, rng, isa, WITH_ALL);
        if (t.p.q.shape[1] > t.p.k.shape[1])
            break;
        problem_free(&t.p);
    } while (1);
    begin(&t, rng);
    for (int i = 0; i < WRITTEN; i++)
        t.types[i] = ATTN_F32;
    const int64_t heads = t.p.q.shape[1], group = heads / t.p.k.shape[1];
    struct training own = t;
    attn_tensor *const copies[] = {&own.p.k, &own.p.v};
    for (int i = 0; i < 2; i++) {
        const attn_tensor from = *copies[i];
        const int64_t shape[4] = {from.shape[0], heads, from.shape[2], 0};
        *copies[i] = owned(from.dtype, shape, from.shape[3]);
        for (int64_t at = 0; at < problem_count(copies[i]); at++) {
            const int64_t c = at % from.shape[3], j = at / from.shape[3] % from.shape[2];
            const int64_t h = at / from.shape[3] / from.shape[2] % heads,
                          b = at / from.shape[3] / from.shape[2] / heads;
            tensor_set(copies[i], b, h, j, c, tensor_get(&from, b, h / group, j, c));
        }
    }
    struct gradients a = run(&t, ALL), b = run(&own, ALL);
    int holds = 0;
    for (int naively = 0; naively < 2 && !holds; naively++) {
        struct backward_reference ref = reference_of(&t, naively);
        holds = 1;
        for (int g = 0; g < WRITTEN; g++)
            for (int64_t at = 0; at < problem_count(&a.of[g]) && holds; at++) {
                const int64_t *n = a.of[g].shape, row = at / n[3] % n[2], h = at / n[3] / n[2] % n[1];
                double sum = 0;
                for (int64_t copy = 0; copy < (g == DQ ? 1 : group); copy++)
                    sum += (double)tensor_get(&b.of[g], at / n[3] / n[2] / n[1], g == DQ ? h : h * group + copy, row,
                                              at % n[3]);
                const double x = (double)((float *)a.of[g].data)[at];
                holds = g == DQ ? x == sum : fabs(x - sum) <= distance_allowed(&ref, g, at);
                if (!holds && naively)
                    printf("  shared heads: %s[%d] is %.9g, the sum of its heads %.9g\n", names[g], (int)at, x, sum);
            }
        backward_reference_free(&ref);
    }
    gradients_free(&a);
    gradients_free(&b);
    free(own.p.k.data);
    free(own.p.v.data);
    training_free(&t);
    return holds;
}

/** Keys behind the last query have the gradient 0, exactly, and so have queries before the first key. */
static int unseen(struct rng *rng, const char *isa)
{
    struct training t;
    draw(&t, rng, isa, 0);
    const int64_t tq = t.p.q.shape[2], tk = t.p.k.shape[2], batch = t.p.q.shape[0];
    const int64_t offset = rng_range(rng, -tq, tk);
    for (int64_t b = 0; b < batch; b++)
        t.p.query_offset[b] = offset;
    t.p.params.causal = ATTN_CAUSAL_OFFSET;
    problem_bind(&t.p, 0, 0, 1);
    free(t.out.data);
    free(t.lse.data);
    go_forward(&t);
    struct gradients g = run(&t, ALL);
    int holds = 1;
    for (int of = 0; of < WRITTEN; of++)
        for (int64_t at = 0; at < problem_count(&g.of[of]) && holds; at++) {
            const int64_t row = at / g.of[of].shape[3] % g.of[of].shape[2];
            const int none = of == DQ ? row + offset < 0 : row > tq - 1 + offset;
            const float x = dtype_load(g.of[of].dtype, g.of[of].data, at);
            holds = isfinite(x) && (!none || x == 0);
            if (!holds)
                printf("  %s[%d] of row %d is %g\n", names[of], (int)at, (int)row, (double)x);
        }
    gradients_free(&g);
    training_free(&t);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"threads and repetition change no bit", thread_counts},
        {"what else is wanted changes no bit", wanted_sets},
        {"other sequences and heads change no bit", alone},
        {"a ragged sequence has the bits of one alone", ragged},
        {"padding changes no bit", padding},
        {"-2 times the loss is -2 times its gradients", homogeneous},
        {"sums of losses are sums of gradients", additive},
        {"keys that are shifted alike leave the gradients", shifted_keys},
        {"heads that share a key head add up", shared_heads},
        {"what nobody sees has the gradient 0", unseen},
    };
    return properties_run(argc, argv, "test_backward", properties, sizeof properties / sizeof *properties);
}
