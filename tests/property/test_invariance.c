/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bit invariance: on one instruction set a query's result has the same bits
 * whatever the number of threads, the entry point, the other queries, heads
 * and sequences of the call, padding, memory layout, the chunks in which
 * queries come, and the way in which a key is hidden. Every comparison is a
 * memcmp of out, lse, weights and, where the queries are the same, key sums.
 */
#include "dtype.h"
#include "properties.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Runs a changed problem and compares all of it. */
static int same_as(const struct result *expected, const struct problem *changed)
{
    struct result r = problem_run(changed);
    const int same = results_equal(expected, &r);
    result_free(&r);
    return same;
}

/** A problem, one of long rows now and then. */
static void draw(struct problem *p, struct rng *rng, const char *isa, int features)
{
    if (rng_percent(rng, 5))
        problem_long(p, rng, isa, features);
    else
        problem_random(p, rng, isa, features);
}

static int thread_counts(struct rng *rng, const char *isa)
{
    static const int counts[] = {1, 2, 3, 7}; /* 1 again: a repeated run */
    struct problem p;
    problem_for_threads(&p, rng, isa, 7);
    struct result expected = problem_run(&p);
    int holds = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        p.params.num_threads = counts[i];
        if (!same_as(&expected, &p)) {
            printf("  with %d threads the bits differ from those with 1\n", counts[i]);
            holds = 0;
        }
    }
    result_free(&expected);
    problem_free(&p);
    return holds;
}

/** Plans, with a workspace full of garbage; shares in any order, for any nth. */
static int entry_points(struct rng *rng, const char *isa)
{
    struct problem p;
    const int num_threads = (int)RNG_PICK(rng, 1, 2, 3, 5);
    if (num_threads == 1)
        problem_random(&p, rng, isa, WITH_ALL);
    else
        problem_for_threads(&p, rng, isa, num_threads);
    struct result expected = problem_run(&p), r = result_allocate(&p);
    struct call call;
    call_initialize(&call, &p, &r);
    call.params.num_threads = num_threads;
    attn_plan *plan;
    must_succeed(attn_plan_create(&plan, &p.q, &p.k, &p.v, &call.out, &call.params), "attn_plan_create");
    const size_t size = attn_plan_workspace_size(plan);
    char *workspace = must_allocate((int64_t)size + 1, 1);
    const size_t shift = (size_t)rng_range(rng, 0, 1); /* no alignment is asked of it */
    memset(workspace, 0xff, size + 1);
    must_succeed(attn_plan_run(plan, &p.q, &p.k, &p.v, &call.out, &call.params, workspace + shift, size),
                 "attn_plan_run");
    int holds = results_equal(&expected, &r);
    if (!holds)
        printf("  attn_plan_run differs from attn_forward\n");
    for (int nth = 1; nth <= attn_plan_num_threads(plan); nth++) {
        result_free(&r);
        r = result_allocate(&p);
        call_initialize(&call, &p, &r);
        memset(workspace, 0xff, size + 1);
        const int start = (int)rng_range(rng, 0, nth - 1), backwards = rng_percent(rng, 50);
        must_succeed(attn_plan_begin(plan, &p.q, &p.k, &p.v, &call.out, &call.params, workspace + shift, size),
                     "attn_plan_begin");
        for (int phase = 0; phase < attn_plan_num_phases(plan); phase++)
            for (int i = 0; i < nth; i++) {
                const int ith = backwards ? (start + nth - i) % nth : (start + i) % nth;
                must_succeed(attn_plan_run_share(plan, workspace + shift, phase, ith, nth), "attn_plan_run_share");
            }
        if (!results_equal(&expected, &r)) {
            printf("  %d shares differ from attn_forward\n", nth);
            holds = 0;
        }
    }
    free(workspace);
    attn_plan_destroy(plan);
    result_free(&r);
    result_free(&expected);
    problem_free(&p);
    return holds;
}

/** One sequence, and one head, alone. */
static int alone(struct rng *rng, const char *isa)
{
    struct problem p;
    draw(&p, rng, isa, WITH_ALL);
    struct result whole = problem_run(&p);
    const int64_t b = rng_range(rng, 0, whole.batch - 1), h = rng_range(rng, 0, whole.heads - 1);
    const int64_t group = p.q.shape[1] / p.k.shape[1];
    int holds = 1;
    for (int one_head = 0; one_head < 2; one_head++) {
        struct problem part = p; /* a view: not freed */
        attn_tensor *const all[] = {&part.q, &part.k, &part.v, &part.mask};
        for (int i = 0; i < 4; i++) {
            problem_narrow(all[i], 0, b, 1);
            if (one_head)
                problem_narrow(all[i], 1, i == 1 || i == 2 ? h / group : h, 1);
        }
        part.kv_len[0] = p.kv_len[b];
        part.kv_start[0] = p.kv_start[b];
        part.query_offset[0] = p.query_offset[b];
        problem_bind(&part, p.params.kv_len != NULL, p.params.kv_start != NULL, p.params.query_offset != NULL);
        struct result r = problem_run(&part);
        const int64_t part_h = one_head ? 0 : h;
        const float *sums = whole.key_sums + (b * whole.heads + h) * whole.tk;
        if (!rows_equal(&whole, b, h, 0, &r, 0, part_h) ||
            memcmp(sums, r.key_sums + part_h * r.tk, (size_t)r.tk * sizeof *sums) != 0) {
            printf("  sequence %d, head %d: other %s change the bits\n", (int)b, (int)h,
                   one_head ? "heads" : "sequences");
            holds = 0;
        }
        result_free(&r);
    }
    result_free(&whole);
    problem_free(&p);
    return holds;
}

/** A copy of t, an input with tokens, with garbage before and behind each sequence's tokens. */
static attn_tensor padded(const attn_tensor *t, const int64_t *before, int64_t tokens, float garbage)
{
    attn_tensor r = attn_bhtd(NULL, t->shape[0], t->shape[1], tokens, t->shape[3]);
    r.dtype = t->dtype;
    r.data = must_allocate(t->shape[0] * r.stride[0], attn_dtype_size(t->dtype));
    for (int64_t i = 0; i < t->shape[0] * r.stride[0]; i++)
        dtype_store(r.dtype, r.data, i, garbage);
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++)
                    tensor_set(&r, b, h, before[b] + i, c, tensor_get(t, b, h, i, c));
    return r;
}

/** Padding on the right (kv_len) and on the left (kv_start), by other amounts in every sequence. */
static int padding(struct rng *rng, const char *isa)
{
    struct problem p;
    draw(&p, rng, isa, WITH_CAUSAL);
    struct result plain = problem_run(&p);
    struct problem wide = p;
    const int left = rng_percent(rng, 70);
    const int64_t room = rng_range(rng, 0, 150), tk = p.k.shape[2] + room;
    int64_t before[PROBLEM_MAX_BATCH] = {0};
    for (int64_t b = 0; b < plain.batch; b++) {
        before[b] = left ? rng_range(rng, 0, room) : 0;
        wide.kv_start[b] = before[b];
        wide.kv_len[b] = before[b] + p.k.shape[2];
        wide.query_offset[b] = before[b] + (p.params.causal == ATTN_CAUSAL_OFFSET ? p.query_offset[b] : 0);
    }
    if (p.params.causal == ATTN_CAUSAL_TOP_LEFT)
        wide.params.causal = ATTN_CAUSAL_OFFSET;
    wide.k = padded(&p.k, before, tk, NAN);
    wide.v = padded(&p.v, before, tk, NAN);
    problem_bind(&wide, 1, left, wide.params.causal == ATTN_CAUSAL_OFFSET);
    struct result r = problem_run(&wide);
    int holds = 1;
    for (int64_t row = 0; row < plain.batch * plain.heads * plain.tq && holds; row++) {
        const int64_t shift = before[row / (plain.heads * plain.tq)];
        const float *weights = r.weights + row * tk;
        holds = memcmp(result_row(&plain, row), result_row(&r, row), result_row_size(&r)) == 0 &&
                memcmp(plain.lse + row, r.lse + row, sizeof *r.lse) == 0 &&
                memcmp(plain.weights + row * plain.tk, weights + shift, (size_t)plain.tk * sizeof *weights) == 0;
        for (int64_t j = 0; j < tk; j++)
            holds = holds && ((j >= shift && j < shift + plain.tk) || weights[j] == 0);
        if (!holds)
            printf("  row %d changes when %d keys of padding stand on its left\n", (int)row, (int)shift);
    }
    result_free(&r);
    result_free(&plain);
    free(wide.k.data);
    free(wide.v.data);
    problem_free(&p);
    return holds;
}

/** Prefill in chunks of queries, each also without the keys that do not exist yet at its time. */
static int chunks(struct rng *rng, const char *isa)
{
    struct problem p;
    draw(&p, rng, isa, WITH_MASK | WITH_CAUSAL);
    const int64_t tq = p.q.shape[2], tk = p.k.shape[2], batch = p.q.shape[0];
    const attn_causal causal = p.params.causal;
    struct result whole = problem_run(&p);
    const int64_t largest = RNG_PICK(rng, 1, 3, 16, 24, 48, 50, 100);
    const int truncate = rng_percent(rng, 50);
    int holds = 1;
    for (int64_t first = 0, n; first < tq && holds; first += n) {
        n = rng_range(rng, 1, largest);
        n = n < tq - first ? n : tq - first;
        struct problem part = p;
        problem_narrow(&part.q, 2, first, n);
        problem_narrow(&part.mask, 2, first, n);
        int64_t needed = 0;
        for (int64_t b = 0; b < batch; b++) {
            part.query_offset[b] = first + (causal == ATTN_CAUSAL_OFFSET         ? p.query_offset[b]
                                            : causal == ATTN_CAUSAL_BOTTOM_RIGHT ? tk - tq
                                                                                 : 0);
            const int64_t visible = part.query_offset[b] + n;
            needed = visible > needed ? visible : needed;
        }
        if (causal != ATTN_CAUSAL_NONE) {
            part.params.causal = ATTN_CAUSAL_OFFSET;
            if (truncate && needed < tk) {
                part.k.shape[2] = part.v.shape[2] = needed;
                if (part.mask.data)
                    part.mask.shape[3] = needed;
            }
        }
        problem_bind(&part, 0, 0, causal != ATTN_CAUSAL_NONE);
        struct result r = problem_run(&part);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t h = 0; h < whole.heads; h++)
                holds = holds && rows_equal(&whole, b, h, first, &r, b, h);
        if (!holds)
            printf("  queries %d to %d, run alone%s, have other bits\n", (int)first, (int)(first + n - 1),
                   truncate ? " and without later keys" : "");
        result_free(&r);
    }
    result_free(&whole);
    problem_free(&p);
    return holds;
}

/** The last query of a causal prefill is the query of a decoding step. */
static int decode(struct rng *rng, const char *isa)
{
    struct problem p;
    draw(&p, rng, isa, 0);
    p.params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    struct result whole = problem_run(&p);
    struct problem last = p;
    problem_narrow(&last.q, 2, whole.tq - 1, 1);
    last.params.causal = (attn_causal)(rng_percent(rng, 50) ? ATTN_CAUSAL_NONE : ATTN_CAUSAL_BOTTOM_RIGHT);
    problem_bind(&last, 0, 0, 0);
    struct result r = problem_run(&last);
    int holds = 1;
    for (int64_t b = 0; b < whole.batch; b++)
        for (int64_t h = 0; h < whole.heads; h++)
            holds = holds && rows_equal(&whole, b, h, whole.tq - 1, &r, b, h);
    result_free(&r);
    result_free(&whole);
    problem_free(&p);
    return holds;
}

/** Depends on the weight alone, so that queries may come in any chunks. */
static void square(const attn_weight_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++)
            tile->weights[j * tile->key_stride + i] *= tile->weights[j * tile->key_stride + i] + 0.5f;
}

/** Runs a problem with all outputs, scores among them. */
static struct result run_with_scores(const struct problem *p, float *scores)
{
    struct result r = result_allocate(p);
    struct call call;
    call_initialize(&call, p, &r);
    const attn_tensor t = attn_bhtd(scores, r.batch, r.heads, r.tq, r.tk);
    call.params.scores = &t;
    must_succeed(attn_forward(&p->q, &p->k, &p->v, &call.out, &call.params), "attn_forward");
    return r;
}

/** Scores, and what a callback makes of weights: with any number of threads, and for a chunk of the queries. */
static int scores_and_called_back(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_for_threads(&p, rng, isa, 7);
    const int stage = (int)rng_range(rng, 0, 3), calls_back = rng_percent(rng, 70);
    const int64_t heads = p.q.shape[0] * p.q.shape[1], tq = p.q.shape[2], tk = p.k.shape[2];
    float *expected_scores = must_allocate(heads * tq * tk, sizeof(float));
    float *scores = must_allocate(heads * tq * tk, sizeof(float));
    p.params.score_stage = (attn_score_stage)stage;
    p.params.weight_callback = calls_back ? square : NULL;
    struct result expected = run_with_scores(&p, expected_scores);
    int holds = 1;
    for (int threads = 1; threads <= 7; threads += 3) {
        p.params.num_threads = threads;
        struct result r = run_with_scores(&p, scores);
        if (!results_equal(&expected, &r) ||
            memcmp(expected_scores, scores, (size_t)(heads * tq * tk) * sizeof *scores) != 0) {
            printf("  with %d threads the bits differ\n", threads);
            holds = 0;
        }
        result_free(&r);
    }
    const int64_t first = rng_range(rng, 0, tq - 1), n = rng_range(rng, 1, tq - first);
    struct problem part = p;
    problem_narrow(&part.q, 2, first, n);
    problem_narrow(&part.mask, 2, first, n);
    for (int64_t b = 0; b < p.q.shape[0]; b++) {
        const int64_t end = p.params.kv_len ? p.kv_len[b] : tk;
        part.query_offset[b] = first + (p.params.causal == ATTN_CAUSAL_OFFSET         ? p.query_offset[b]
                                        : p.params.causal == ATTN_CAUSAL_BOTTOM_RIGHT ? end - tq
                                                                                      : 0);
    }
    if (p.params.causal != ATTN_CAUSAL_NONE)
        part.params.causal = ATTN_CAUSAL_OFFSET;
    problem_bind(&part, p.params.kv_len != NULL, p.params.kv_start != NULL, p.params.causal != ATTN_CAUSAL_NONE);
    struct result r = run_with_scores(&part, scores);
    for (int64_t head = 0; head < heads; head++)
        if (!rows_equal(&expected, head / p.q.shape[1], head % p.q.shape[1], first, &r, head / p.q.shape[1],
                        head % p.q.shape[1]) ||
            memcmp(expected_scores + (head * tq + first) * tk, scores + head * n * tk,
                   (size_t)(n * tk) * sizeof *scores) != 0) {
            printf("  queries %d to %d alone have other bits\n", (int)first, (int)(first + n - 1));
            holds = 0;
            break;
        }
    result_free(&r);
    result_free(&expected);
    free(expected_scores);
    free(scores);
    problem_free(&p);
    return holds;
}

/** A tensor's first sequence, batch times over in the same place. */
static attn_tensor repeated(const attn_tensor *t, int64_t batch)
{
    attn_tensor many = *t;
    many.shape[0] = batch;
    many.stride[0] = 0;
    return many;
}

/**
 * One sequence many times over: now and then so many that the call has more than caches hold, and asks for rows ahead
 * (driver/geometry.c: 4 MiB a thread).
 */
static int repeated_sequence(struct rng *rng, const char *isa)
{
    const int64_t enough = (int64_t)5 << 20;
    struct problem p;
    draw(&p, rng, isa, WITH_MASK | WITH_CAUSAL);
    problem_bind(&p, 0, 0, 0);
    if (p.params.causal == ATTN_CAUSAL_OFFSET) /* which has an offset for each */
        p.params.causal = ATTN_CAUSAL_TOP_LEFT;
    const int64_t heads = p.q.shape[1], tq = p.q.shape[2], tk = p.k.shape[2], dv = p.v.shape[3];
    const int64_t row = (int64_t)attn_dtype_size(p.out) * dv, bytes = heads * tq * row;
    const int64_t batch = rng_percent(rng, 8) ? enough / (bytes + tk * 64) + 2 : rng_range(rng, 2, 4);
    const int64_t globals[] = {0, tk / 2, tk - 1};
    const attn_window window = {rng_range(rng, 0, 20), rng_range(rng, 0, 20), rng_range(rng, 0, 2), globals,
                                tk > 2 ? rng_range(rng, 0, 3) : 0};
    if (p.params.causal == ATTN_CAUSAL_NONE && rng_percent(rng, 40))
        p.params.window = &window;
    const attn_tensor q = repeated(&p.q, batch), k = repeated(&p.k, batch), v = repeated(&p.v, batch);
    const attn_tensor mask = repeated(&p.mask, batch);
    p.params.mask = p.mask.data ? &mask : NULL;
    attn_tensor out = attn_bhtd(must_allocate(batch * heads * tq, (size_t)row), batch, heads, tq, dv);
    out.dtype = p.out;
    if (rng_percent(rng, 50)) { /* heads beside each other */
        out.stride[1] = dv;
        out.stride[2] = heads * dv;
    }
    must_succeed(attn_forward(&q, &k, &v, &out, &p.params), "attn_forward of many sequences");
    const attn_tensor one_q = repeated(&p.q, 1), one_k = repeated(&p.k, 1), one_v = repeated(&p.v, 1);
    const attn_tensor one_mask = repeated(&p.mask, 1);
    p.params.mask = p.mask.data ? &one_mask : NULL;
    char *const alone = must_allocate(heads * tq, (size_t)row);
    attn_tensor one = out;
    one.data = alone;
    one.shape[0] = 1;
    must_succeed(attn_forward(&one_q, &one_k, &one_v, &one, &p.params), "attn_forward of one sequence");
    int holds = 1;
    for (int64_t b = 0; b < batch && holds; b++)
        holds = memcmp((char *)out.data + b * bytes, alone, (size_t)bytes) == 0;
    if (!holds)
        printf("  %d sequences have not the bits of one\n", (int)batch);
    free(alone);
    free(out.data);
    problem_free(&p);
    return holds;
}

/** Splits of the keys that several threads share: with nothing asked for that keeps them on one. */
static int split_keys(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_long(&p, rng, isa, WITH_ALL);
    struct result expected = problem_run(&p), r = result_allocate(&p);
    const size_t rows = (size_t)(r.batch * r.heads * r.tq);
    int holds = 1;
    for (int threads = 1; threads <= 7; threads += 2) {
        struct call call;
        call_initialize(&call, &p, &r);
        call.params.weights = call.params.key_sums = NULL;
        call.params.num_threads = threads;
        memset(r.out, 0xA5, rows * result_row_size(&r));
        memset(r.lse, 0xA5, rows * sizeof *r.lse);
        must_succeed(attn_forward(&p.q, &p.k, &p.v, &call.out, &call.params), "attn_forward");
        if (memcmp(expected.out, r.out, rows * result_row_size(&r)) != 0 ||
            memcmp(expected.lse, r.lse, rows * sizeof *r.lse) != 0) {
            printf("  with %d threads the bits differ from those of a call that asks for weights\n", threads);
            holds = 0;
        }
    }
    result_free(&r);
    result_free(&expected);
    problem_free(&p);
    return holds;
}

enum { SINGLE_MOST = 40000 }; /* elements of a tensor of single_tiles() */

/** A tensor with gaps, of one of two layouts. */
static attn_tensor tensor_in(float *memory, int64_t batch, int64_t heads, int64_t tokens, int64_t channels, int bthd)
{
    attn_tensor t = attn_bhtd(memory, batch, heads, tokens, channels);
    t.stride[bthd ? 1 : 2] = channels + 3;
    t.stride[bthd ? 2 : 1] = t.stride[bthd ? 1 : 2] * (bthd ? heads : tokens) + 5;
    t.stride[0] = t.stride[bthd ? 2 : 1] * (bthd ? tokens : heads);
    return t;
}

/**
 * A call with nothing to it but causality, whose heads are one tile each, does not walk over blocks. A window that
 * hides nothing makes it walk.
 */
static int single_tiles(struct rng *rng, const char *isa)
{
    const int64_t batch = rng_range(rng, 1, 2), kv_heads = rng_range(rng, 1, 3),
                  heads = kv_heads * rng_range(rng, 1, 3);
    const int64_t tq = RNG_PICK(rng, 1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 48, 49), dk = RNG_PICK(rng, 1, 3, 8, 16, 31, 33);
    const int64_t tk = RNG_PICK(rng, 1, 2, 4, 7, 16, 48, 49, 127, 128, 129), dv = RNG_PICK(rng, 1, 4, 7, 16, 37);
    const int64_t shapes[4][3] = {{heads, tq, dk}, {kv_heads, tk, dk}, {kv_heads, tk, dv}, {heads, tq, dv}};
    const attn_window window = {.left = ATTN_UNLIMITED, .right = ATTN_UNLIMITED};
    float *memory[5], *lse = must_allocate(2 * batch * heads * tq, sizeof *lse);
    attn_tensor t[5],
        lses[2] = {attn_bhtd(lse, batch, heads, tq, 1), attn_bhtd(lse + batch * heads * tq, batch, heads, tq, 1)};
    for (int i = 0; i < 5; i++) { /* the last one: out of the other way */
        const int64_t *shape = shapes[i < 4 ? i : 3];
        memory[i] = must_allocate(SINGLE_MOST, sizeof *memory[i]);
        t[i] = tensor_in(memory[i], batch, shape[0], shape[1], shape[2], rng_percent(rng, 50));
        if (i < 3)
            rng_fill_normal(rng, memory[i], batch * t[i].stride[0]);
        else
            memset(memory[i], 0x55, SINGLE_MOST * sizeof *memory[i]); /* the gaps are compared, too */
    }
    t[4] = t[3], t[4].data = memory[4];
    if (rng_percent(rng, 30)) /* what is not finite meets nobody who does not see it */
        memory[rng_range(rng, 1, 2)][rng_range(rng, 0, 200)] = (float)(rng_percent(rng, 50) ? INFINITY : NAN);
    attn_params params = attn_params_default();
    params.isa = isa;
    params.causal = (attn_causal)RNG_PICK(rng, ATTN_CAUSAL_NONE, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_BOTTOM_RIGHT);
    params.scale = rng_percent(rng, 30) ? 3.5f : 0.0f;
    params.num_threads = (int)rng_range(rng, 1, 3);
    const int wants_lse = rng_percent(rng, 50);
    params.lse = wants_lse ? &lses[0] : NULL;
    must_succeed(attn_forward(&t[0], &t[1], &t[2], &t[3], &params), "attn_forward");
    params.lse = wants_lse ? &lses[1] : NULL;
    params.window = &window;
    must_succeed(attn_forward(&t[0], &t[1], &t[2], &t[4], &params), "attn_forward with a window");
    const int holds = memcmp(memory[3], memory[4], SINGLE_MOST * sizeof *memory[3]) == 0 &&
                      (!wants_lse || memcmp(lse, lse + batch * heads * tq, (size_t)(batch * heads * tq) * 4) == 0);
    if (!holds)
        printf("  B=%d H=%d/%d Tq=%d Tk=%d dk=%d dv=%d causal=%d: a single tile has other bits\n", (int)batch,
               (int)heads, (int)kv_heads, (int)tq, (int)tk, (int)dk, (int)dv, (int)params.causal);
    for (int i = 0; i < 5; i++)
        free(memory[i]);
    free(lse);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"number of threads", thread_counts},      {"plans and shares", entry_points},
        {"sequence or head alone", alone},         {"a sequence many times over", repeated_sequence},
        {"padding left and right", padding},       {"chunked prefill", chunks},
        {"decode is the last causal row", decode}, {"scores and a callback of weights", scores_and_called_back},
        {"heads of a single tile", single_tiles},  {"splits of the keys", split_keys},
    };
    return properties_run(argc, argv, "test_invariance", properties, sizeof properties / sizeof *properties);
}
