/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits of linear attention: what may not change one, on one instruction set. That is
 * the number of threads, repetition, the entry point, other sequences and heads of the
 * call, layout and padding, whether the state is wanted or goes on in place, what later
 * tokens hold, and cuts between chunks.
 */
#include "dtype.h"
#include "linear.h"
#include "properties.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = ATTN_LINEAR_ATTENTION_CHUNK };

/** Runs p and compares all of it. */
static int same_as(const char *what, const struct linear_result *expected, const struct linear_problem *p)
{
    struct linear_result r = linear_run(p);
    const int same = linear_same(what, expected, &r);
    linear_result_free(&r);
    return same;
}

static int thread_counts(struct rng *rng, const char *isa)
{
    static const int counts[] = {1, 2, 3, 4, 8}; /* 1 again: a repeated run */
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS | (rng_percent(rng, 60) ? LINEAR_LARGE : 0));
    p.params.num_threads = 1;
    struct linear_result expected = linear_run(&p);
    int holds = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && holds; i++) {
        char what[32];
        snprintf(what, sizeof what, "%d threads", counts[i]);
        p.params.num_threads = counts[i];
        holds = same_as(what, &expected, &p);
    }
    linear_result_free(&expected);
    linear_free(&p);
    return holds;
}

/** In a workspace, by a plan, and in shares in any order, with garbage in memory of any alignment. */
static int entry_points(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS | (rng_percent(rng, 40) ? LINEAR_LARGE : 0));
    p.params.num_threads = (int)rng_range(rng, 1, 5);
    struct linear_result expected = linear_run(&p), r = linear_allocate(&p);
    attn_linear_attention_params params = linear_params(&p);
    params.state_out = &r.state;
    attn_linear_attention_plan *plan = NULL;
    size_t size = 0;
    must_succeed(attn_linear_attention_workspace_size(&p.q, &p.k, &p.v, &r.out, &params, &size), "workspace_size");
    must_succeed(attn_linear_attention_plan_create(&plan, &p.q, &p.k, &p.v, &r.out, &params), "plan_create");
    const size_t planned = attn_linear_attention_plan_workspace_size(plan), most = planned > size ? planned : size;
    char *memory = must_allocate((int64_t)most + 1, 1), *workspace = memory + rng_range(rng, 0, 1);
    memset(memory, 0xff, most + 1);
    must_succeed(attn_linear_attention_in(&p.q, &p.k, &p.v, &r.out, &params, workspace, size), "in");
    int holds = linear_same("in a workspace", &expected, &r);
    memset(memory, 0xff, most + 1);
    must_succeed(attn_linear_attention_plan_run(plan, &p.q, &p.k, &p.v, &r.out, &params, workspace, planned), "run");
    holds = holds && linear_same("a plan", &expected, &r);
    for (int nth = 1; nth <= attn_linear_attention_plan_num_threads(plan) && holds; nth++) {
        linear_result_free(&r);
        r = linear_allocate(&p);
        memset(memory, 0xff, most + 1);
        const int start = (int)rng_range(rng, 0, nth - 1), backwards = rng_percent(rng, 50);
        must_succeed(attn_linear_attention_plan_begin(plan, &p.q, &p.k, &p.v, &r.out, &params, workspace, planned),
                     "begin");
        for (int phase = 0; phase < attn_linear_attention_plan_num_phases(plan); phase++)
            for (int i = 0; i < nth; i++) {
                const int ith = backwards ? (start + nth - i) % nth : (start + i) % nth;
                must_succeed(attn_linear_attention_plan_run_share(plan, workspace, phase, ith, nth), "run_share");
            }
        holds = linear_same("shares", &expected, &r);
    }
    attn_linear_attention_plan_destroy(plan);
    free(memory);
    linear_result_free(&r);
    linear_result_free(&expected);
    linear_free(&p);
    return holds;
}

/** One sequence alone, and one state of it with the heads that read it. */
static int alone(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS | (rng_percent(rng, 20) ? LINEAR_LARGE : 0));
    struct linear_result whole = linear_run(&p);
    const int64_t b = rng_range(rng, 0, p.v.shape[0] - 1), h = rng_range(rng, 0, p.v.shape[1] - 1);
    const int64_t heads = p.v.shape[1], q_heads = p.q.shape[1], readers = q_heads > heads ? q_heads / heads : 1;
    int holds = 1;
    for (int one_head = 0; one_head < 2 && holds; one_head++) {
        struct linear_problem part = p; /* a view: not freed */
        attn_tensor *const all[] = {&part.q, &part.k, &part.v, &part.decay, &part.beta, &part.resets, &part.state_in};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            problem_narrow(all[i], 0, b, 1);
            if (one_head && i >= 2 && all[i]->shape[1] > 1)
                problem_narrow(all[i], 1, h, 1);
        }
        if (one_head) {
            problem_narrow(&part.q, 1, q_heads > heads ? h * readers : h / (heads / q_heads), readers);
            problem_narrow(&part.k, 1, h / (heads / p.k.shape[1]), 1);
        }
        part.params.num_threads = 1;
        struct linear_result r = linear_run(&part);
        const char *what = one_head ? "a head alone" : "a sequence alone";
        holds = linear_same_out(what, &whole, b, one_head ? h * readers : 0, 0, &r) &&
                linear_same_state(what, &whole, b, one_head ? h : 0, &r);
        linear_result_free(&r);
    }
    linear_result_free(&whole);
    linear_free(&p);
    return holds;
}

/** Sequences of a ragged batch have the bits that each has alone, and out is 0 behind the last. */
static int ragged(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS | (rng_percent(rng, 40) ? LINEAR_LARGE : 0));
    attn_tensor *const all[] = {&p.q, &p.k, &p.v, &p.decay, &p.beta, &p.resets};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        problem_narrow(all[i], 0, 0, 1);
    const int64_t t = p.v.shape[2], cut = rng_range(rng, 0, t), end = rng_range(rng, cut, t);
    const int64_t offsets[] = {0, cut, cut, end};
    enum { SEQUENCES = 3 };
    free(p.state_in.data);
    p.state_in = attn_bhtd(NULL, SEQUENCES, p.v.shape[1], p.q.shape[3], p.v.shape[3]);
    p.state_in.data = must_allocate(problem_count(&p.state_in), sizeof(float));
    rng_fill_normal(rng, p.state_in.data, problem_count(&p.state_in));
    p.params.cu_seqlens = offsets;
    p.params.num_sequences = SEQUENCES;
    for (int64_t h = 0; h < p.k.shape[1] && end < t; h++) /* what lies behind the last is not looked at */
        tensor_set(&p.k, 0, h, end, 0, NAN);
    struct linear_result whole = linear_run(&p);
    int holds = 1;
    for (int s = 0; s < SEQUENCES && holds; s++) {
        struct linear_problem part = p;
        linear_narrow_tokens(&part, offsets[s], offsets[s + 1] - offsets[s]);
        problem_narrow(&part.state_in, 0, s, 1);
        part.params.cu_seqlens = NULL;
        part.params.num_sequences = 0;
        part.params.num_threads = 1;
        struct linear_result r = linear_run(&part);
        holds = linear_same_out("a ragged sequence", &whole, 0, 0, offsets[s], &r) &&
                linear_same_state("a ragged sequence", &whole, s, 0, &r);
        linear_result_free(&r);
    }
    for (int64_t h = 0; h < whole.out.shape[1]; h++)
        for (int64_t i = end; i < t; i++)
            for (int64_t c = 0; c < whole.out.shape[3]; c++)
                holds = holds && tensor_get(&whole.out, 0, h, i, c) == 0;
    linear_result_free(&whole);
    linear_free(&p);
    return holds;
}

/** Sequences within longer ones, of whose other tokens nothing is read, decays included. */
static int padding(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS | (rng_percent(rng, 40) ? LINEAR_LARGE : 0));
    int64_t lengths[PROBLEM_MAX_BATCH];
    for (int64_t b = 0; b < p.v.shape[0]; b++) {
        attn_tensor *const all[] = {&p.q, &p.k, &p.v, &p.decay, &p.beta};
        lengths[b] = rng_range(rng, 0, p.v.shape[2]);
        for (size_t n = 0; n < sizeof all / sizeof *all; n++)
            for (int64_t h = 0; all[n]->data && h < all[n]->shape[1]; h++)
                for (int64_t i = lengths[b]; i < all[n]->shape[2]; i++)
                    for (int64_t c = 0; c < all[n]->shape[3]; c++)
                        tensor_set(all[n], b, h, i, c, NAN);
    }
    p.params.lengths = lengths;
    struct linear_result whole = linear_run(&p);
    int holds = 1;
    for (int64_t b = 0; b < p.v.shape[0] && holds; b++) {
        struct linear_problem part = p;
        attn_tensor *const all[] = {&part.q, &part.k, &part.v, &part.decay, &part.beta, &part.resets, &part.state_in};
        for (size_t n = 0; n < sizeof all / sizeof *all; n++)
            problem_narrow(all[n], 0, b, 1);
        linear_narrow_tokens(&part, 0, lengths[b]);
        part.params.lengths = NULL;
        part.params.num_threads = 1;
        struct linear_result r = linear_run(&part);
        holds = linear_same_out("a padded sequence", &whole, b, 0, 0, &r) &&
                linear_same_state("a padded sequence", &whole, b, 0, &r);
        linear_result_free(&r);
        for (int64_t h = 0; h < whole.out.shape[1]; h++)
            for (int64_t i = lengths[b]; i < whole.out.shape[2]; i++)
                for (int64_t c = 0; c < whole.out.shape[3]; c++)
                    holds = holds && tensor_get(&whole.out, b, h, i, c) == 0;
    }
    linear_result_free(&whole);
    linear_free(&p);
    return holds;
}

/** A copy with other strides, and NaN in the gaps. */
static attn_tensor spread(const attn_tensor *t, int keep_channels, struct rng *rng)
{
    attn_tensor r = *t;
    if (!t->data)
        return r;
    r.stride[3] = keep_channels ? 1 : rng_range(rng, 1, 3);
    r.stride[1] = t->shape[3] * r.stride[3] + rng_range(rng, 0, 5);
    r.stride[2] = t->shape[1] * r.stride[1] + rng_range(rng, 0, 5);
    r.stride[0] = t->shape[2] * r.stride[2] + rng_range(rng, 0, 5);
    const int64_t n = t->shape[0] * r.stride[0];
    r.data = must_allocate(n, attn_dtype_size(t->dtype));
    memset(r.data, 0xff, (size_t)n * attn_dtype_size(t->dtype));
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++)
                    if (t->dtype == ATTN_BOOL)
                        ((uint8_t *)r.data)[tensor_offset(&r, b, h, i, c)] =
                            ((const uint8_t *)t->data)[tensor_offset(t, b, h, i, c)];
                    else
                        tensor_set(&r, b, h, i, c, tensor_get(t, b, h, i, c));
    return r;
}

static int layout(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS);
    struct linear_result expected = linear_run(&p);
    struct linear_problem other = p;
    other.q = spread(&p.q, 1, rng);
    other.k = spread(&p.k, 1, rng);
    other.v = spread(&p.v, 1, rng);
    other.decay = spread(&p.decay, 0, rng);
    other.beta = spread(&p.beta, 0, rng);
    other.resets = spread(&p.resets, 0, rng);
    other.state_in = spread(&p.state_in, 1, rng);
    const int holds = same_as("another layout", &expected, &other);
    linear_free(&other);
    linear_result_free(&expected);
    linear_free(&p);
    return holds;
}

/** A state that is not wanted, one that goes on in place, and one of zeros. */
static int states(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS);
    const int given = p.state_in.data != NULL;
    if (!given) {
        p.state_in = attn_bhtd(NULL, p.v.shape[0], p.v.shape[1], p.q.shape[3], p.v.shape[3]);
        p.state_in.data = must_allocate(problem_count(&p.state_in), sizeof(float));
    }
    struct linear_result expected = linear_run(&p), r = linear_allocate(&p);
    attn_linear_attention_params params = linear_params(&p);
    params.state_out = NULL;
    must_succeed(attn_linear_attention(&p.q, &p.k, &p.v, &r.out, &params), "without state_out");
    int holds = linear_same_out("without state_out", &expected, 0, 0, 0, &r);
    memcpy(r.state.data, p.state_in.data, (size_t)problem_count(&r.state) * sizeof(float));
    params.state_in = params.state_out = &r.state;
    must_succeed(attn_linear_attention(&p.q, &p.k, &p.v, &r.out, &params), "in place");
    holds = holds && linear_same("in place", &expected, &r);
    if (!given) {
        params.state_in = NULL;
        must_succeed(attn_linear_attention(&p.q, &p.k, &p.v, &r.out, &params), "without state_in");
        holds = holds && linear_same("without state_in", &expected, &r);
    }
    linear_result_free(&r);
    linear_result_free(&expected);
    linear_free(&p);
    return holds;
}

/** Two calls, of which the first has a multiple of a chunk. */
static int cut_between_chunks(struct rng *rng, const char *isa)
{
    struct linear_problem p = {.params = {0}};
    do {
        linear_free(&p);
        linear_draw(&p, rng, isa, rng_percent(rng, 30) ? LINEAR_LARGE : 0);
    } while (p.v.shape[2] <= CHUNK);
    struct linear_result whole = linear_run(&p);
    const int64_t t = p.v.shape[2], cut = CHUNK * rng_range(rng, 1, (t - 1) / CHUNK);
    struct linear_problem first = p, second = p;
    linear_narrow_tokens(&first, 0, cut);
    linear_narrow_tokens(&second, cut, t - cut);
    struct linear_result a = linear_run(&first);
    second.state_in = a.state;
    struct linear_result b = linear_run(&second);
    const int holds = linear_same_out("before the cut", &whole, 0, 0, 0, &a) &&
                      linear_same_out("behind the cut", &whole, 0, 0, cut, &b) &&
                      linear_same_state("behind the cut", &whole, 0, 0, &b);
    linear_result_free(&a);
    linear_result_free(&b);
    linear_result_free(&whole);
    linear_free(&p);
    return holds;
}

/** What begins with a reset is a sequence of its own. */
static int resets(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, rng_percent(rng, 30) ? LINEAR_LARGE : 0);
    const int64_t t = p.v.shape[2], heads = p.v.shape[1], cut = rng_range(rng, 0, t - 1);
    const int64_t h = rng_range(rng, 0, heads - 1); /* the only head that is reset, or all are */
    const int all = rng_percent(rng, 50);
    struct linear_problem reset = p, first = p, second = p;
    reset.resets = attn_bhtd(must_allocate(heads * t, 1), 1, heads, t, 1);
    reset.resets.dtype = ATTN_BOOL;
    for (int64_t i = 0; i < heads; i++)
        ((uint8_t *)reset.resets.data)[i * t + cut] = (uint8_t)(all || i == h ? RNG_PICK(rng, 1, 255) : 0);
    struct linear_result plain = linear_run(&p), whole = linear_run(&reset);
    linear_narrow_tokens(&first, 0, cut);
    linear_narrow_tokens(&second, cut, t - cut);
    second.state_in.data = NULL;
    struct linear_result a = linear_run(&first), b = linear_run(&second);
    const int64_t q_heads = p.q.shape[1], readers = q_heads > heads ? q_heads / heads : 1;
    int holds = 1;
    for (int64_t n = 0; n < p.v.shape[0]; n++)
        for (int64_t i = 0; i < heads && holds; i++) {
            const int is_reset = all || i == h;
            struct linear_result parts[2] = {a, is_reset ? b : plain};
            for (int k = 0; k < 2; k++) {
                problem_narrow(&parts[k].out, 0, n, 1);
                problem_narrow(&parts[k].out, 1, i * readers, readers);
                problem_narrow(&parts[k].state, 0, n, 1);
                problem_narrow(&parts[k].state, 1, i, 1);
            }
            holds = (!is_reset || linear_same_out("before a reset", &whole, n, i * readers, 0, &parts[0])) &&
                    linear_same_out(is_reset ? "behind a reset" : "beside a reset", &whole, n, i * readers,
                                    is_reset ? cut : 0, &parts[1]) &&
                    linear_same_state("behind a reset", &whole, n, i, &parts[1]);
        }
    linear_result_free(&a);
    linear_result_free(&b);
    linear_result_free(&plain);
    linear_result_free(&whole);
    free(reset.resets.data);
    linear_free(&p);
    return holds;
}

/** Puts what is not finite into a row. */
static void spoil(const attn_tensor *t, int64_t b, int64_t h, int64_t row, struct rng *rng)
{
    for (int64_t c = 0; c < t->shape[3]; c++)
        if (c == 0 || rng_percent(rng, 20))
            tensor_set(t, b, h, row, c, RNG_PICK(rng, 0, 0, 1) ? INFINITY : NAN);
}

/** What a token holds changes no bit of those before it, nor of other sequences. */
static int later_tokens(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS);
    struct linear_result expected = linear_run(&p);
    const int64_t b = rng_range(rng, 0, p.v.shape[0] - 1), t = rng_range(rng, 0, p.v.shape[2] - 1);
    attn_tensor *const all[] = {&p.q, &p.k, &p.v, &p.beta};
    attn_tensor *spoilt = all[rng_range(rng, 0, p.beta.data ? 3 : 2)];
    for (int64_t h = 0; h < spoilt->shape[1]; h++)
        spoil(spoilt, b, h, t, rng);
    struct linear_result r = linear_run(&p);
    int holds = 1;
    for (int64_t n = 0; n < p.v.shape[0] && holds; n++) {
        struct linear_result part = r;
        problem_narrow(&part.out, 0, n, 1);
        problem_narrow(&part.state, 0, n, 1);
        if (n == b)
            problem_narrow(&part.out, 2, 0, t);
        holds = linear_same_out("NaN in a later token", &expected, n, 0, 0, &part) &&
                (n == b || linear_same_state("NaN in another sequence", &expected, n, 0, &part));
    }
    linear_result_free(&r);
    linear_result_free(&expected);
    linear_free(&p);
    return holds;
}

/** NaN in a column of v changes no bit of other columns. */
static int other_columns(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS);
    struct linear_result expected = linear_run(&p);
    const int64_t columns = p.v.shape[3], column = rng_range(rng, 0, columns - 1);
    const int64_t t = rng_range(rng, 0, p.v.shape[2] - 1);
    for (int64_t b = 0; b < p.v.shape[0]; b++)
        for (int64_t h = 0; h < p.v.shape[1]; h++)
            tensor_set(&p.v, b, h, t, column, rng_percent(rng, 50) ? NAN : INFINITY);
    struct linear_result r = linear_run(&p);
    int holds = 1;
    for (int side = 0; side < 2 && holds; side++) {
        struct linear_result whole = expected, part = r;
        const int64_t first = side ? column + 1 : 0, n = side ? columns - first : column;
        problem_narrow(&whole.out, 3, first, n);
        problem_narrow(&whole.state, 3, first, n);
        problem_narrow(&part.out, 3, first, n);
        problem_narrow(&part.state, 3, first, n);
        holds = linear_same("NaN in another column", &whole, &part);
    }
    linear_result_free(&r);
    linear_result_free(&expected);
    linear_free(&p);
    return holds;
}

static int inputs_unchanged(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS);
    const attn_tensor *const all[] = {&p.q, &p.k, &p.v, &p.decay, &p.beta, &p.resets, &p.state_in};
    void *copies[7] = {0};
    for (int i = 0; i < 7; i++) {
        const size_t bytes = all[i]->data ? (size_t)problem_count(all[i]) * attn_dtype_size(all[i]->dtype) : 0;
        copies[i] = must_allocate((int64_t)bytes, 1);
        if (bytes)
            memcpy(copies[i], all[i]->data, bytes);
    }
    struct linear_result r = linear_run(&p);
    int holds = 1;
    for (int i = 0; i < 7; i++) {
        const size_t bytes = all[i]->data ? (size_t)problem_count(all[i]) * attn_dtype_size(all[i]->dtype) : 0;
        holds &= bytes == 0 || memcmp(copies[i], all[i]->data, bytes) == 0;
        free(copies[i]);
    }
    linear_result_free(&r);
    linear_free(&p);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"threads and repetition change no bit", thread_counts},
        {"entry points have the same bits", entry_points},
        {"other sequences and heads change no bit", alone},
        {"a ragged sequence has the bits of one alone", ragged},
        {"padding changes no bit", padding},
        {"layout changes no bit", layout},
        {"how a state is handed over changes no bit", states},
        {"a cut between chunks changes no bit", cut_between_chunks},
        {"a reset begins a sequence", resets},
        {"later tokens change no bit", later_tokens},
        {"other columns change no bit", other_columns},
        {"inputs are unchanged", inputs_unchanged},
    };
    return properties_run(argc, argv, "test_linear_attention", properties, sizeof properties / sizeof *properties);
}
