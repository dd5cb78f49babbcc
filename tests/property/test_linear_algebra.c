/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Algebra of linear attention: what is equal by its formulas. Factors that are powers
 * of two change no other bit; where a different order of roundings is to be expected,
 * a result must be what the oracle says of the other problem.
 */
#include "dtype.h"
#include "linear.h"
#include "properties.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Whether what p gives is right for another problem, too. */
static int right_for(const char *what, const struct linear_problem *p, const struct linear_problem *other)
{
    struct linear_result r = linear_run(p);
    const int holds = linear_is_right(what, other, &r);
    linear_result_free(&r);
    return holds;
}

/** Multiplies all elements by 2^power. */
static void scale_by_power(const attn_tensor *t, int power)
{
    for (int64_t i = 0; t->data && i < problem_count(t); i++)
        dtype_store(t->dtype, t->data, i, ldexpf(dtype_load(t->dtype, t->data, i), power));
}

/** A state carried over a cut anywhere, which no cut between chunks is. */
static int any_cut(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_RESETS);
    const int64_t t = p.v.shape[2], cut = rng_range(rng, 0, t);
    struct linear_problem parts[2] = {p, p};
    linear_narrow_tokens(&parts[0], 0, cut);
    linear_narrow_tokens(&parts[1], cut, t - cut);
    struct linear_result whole = linear_run(&p), joined = linear_allocate(&p), of[2];
    struct linear_limits limits = linear_limits_of(&p), joined_limits = linear_limits_of(&p), of_limits[2];
    for (int n = 0; n < 2; n++) {
        of[n] = linear_run(&parts[n]);
        of_limits[n] = linear_limits_of(&parts[n]);
        parts[1].state_in = of[0].state;
    }
    int64_t at = 0;
    for (int64_t b = 0; b < whole.out.shape[0]; b++)
        for (int64_t h = 0; h < whole.out.shape[1]; h++)
            for (int64_t i = 0; i < t; i++)
                for (int64_t c = 0; c < whole.out.shape[3]; c++, at++) {
                    const int n = i >= cut;
                    const int64_t from = tensor_offset(&of[n].out, b, h, n ? i - cut : i, c);
                    dtype_store(p.out, joined.out.data, at, dtype_load(p.out, of[n].out.data, from));
                    joined_limits.out[at] = of_limits[n].out[from];
                }
    const size_t states = (size_t)problem_count(&whole.state);
    memcpy(joined.state.data, of[1].state.data, states * sizeof(float));
    memcpy(joined_limits.state, of_limits[1].state, states * sizeof(double));
    const int holds = linear_near("cut anywhere", &whole, &limits, &joined, &joined_limits);
    for (int n = 0; n < 2; n++) {
        linear_result_free(&of[n]);
        linear_limits_free(&of_limits[n]);
    }
    linear_limits_free(&limits);
    linear_limits_free(&joined_limits);
    linear_result_free(&joined);
    linear_result_free(&whole);
    linear_free(&p);
    return holds;
}

/** A decay of 0 is none. */
static int no_decay(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_DECAY | LINEAR_RESETS);
    memset(p.decay.data, 0, (size_t)problem_count(&p.decay) * attn_dtype_size(p.decay.dtype));
    struct linear_problem none = p;
    none.decay.data = NULL;
    const int holds = right_for("decay 0", &p, &none) && right_for("no decay", &none, &p);
    linear_free(&p);
    return holds;
}

/** A decay of -inf clears what is finite, as a reset does. */
static int decay_clears(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_DECAY);
    struct linear_problem reset = p;
    const int64_t *n = p.v.shape;
    reset.resets = attn_bhtd(must_allocate(n[0] * n[1] * n[2], 1), n[0], n[1], n[2], 1);
    reset.resets.dtype = ATTN_BOOL;
    const int percent = (int)RNG_PICK(rng, 1, 3, 20);
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++)
                if (rng_percent(rng, percent)) {
                    ((uint8_t *)reset.resets.data)[(b * n[1] + h) * n[2] + i] = 1;
                    for (int64_t c = 0; c < p.decay.shape[3]; c++)
                        tensor_set(&p.decay, b, h, i, c, -INFINITY);
                }
    struct linear_result a = linear_run(&p), b = linear_run(&reset);
    struct linear_limits limits_a = linear_limits_of(&p), limits_b = linear_limits_of(&reset);
    const int holds = linear_near("decay -inf and resets", &a, &limits_a, &b, &limits_b);
    linear_limits_free(&limits_a);
    linear_limits_free(&limits_b);
    linear_result_free(&a);
    linear_result_free(&b);
    free(reset.resets.data);
    linear_free(&p);
    return holds;
}

/** A decay of a head is that of all of its rows. */
static int decay_of_rows(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_DECAY | LINEAR_RESETS);
    if (p.decay.shape[3] > 1)
        problem_narrow(&p.decay, 3, 0, 1);
    struct linear_problem rows = p;
    const int64_t *n = p.decay.shape, dk = p.q.shape[3];
    rows.decay = problem_tensor(rng, p.decay.dtype, n[0], n[1], n[2], dk);
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++)
                for (int64_t c = 0; c < dk; c++)
                    tensor_set(&rows.decay, b, h, i, c, tensor_get(&p.decay, b, h, i, 0));
    struct linear_problem broadcast = p;
    broadcast.decay.shape[3] = dk;
    broadcast.decay.stride[3] = 0;
    const int holds = right_for("a decay of rows", &rows, &p) && right_for("a decay of a head", &p, &rows) &&
                      right_for("a decay broadcast to rows", &broadcast, &p);
    free(rows.decay.data);
    linear_free(&p);
    return holds;
}

/** With beta 0 nothing is written: S stays, and neither k nor v matter. */
static int beta_zero(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_BETA);
    memset(p.beta.data, 0, (size_t)problem_count(&p.beta) * attn_dtype_size(p.beta.dtype));
    free(p.decay.data);
    p.decay.data = NULL;
    struct linear_result r = linear_run(&p);
    int holds = 1;
    for (int64_t i = 0; i < problem_count(&r.state) && holds; i++)
        holds = ((const float *)r.state.data)[i] == (p.state_in.data ? ((const float *)p.state_in.data)[i] : 0);
    if (!holds)
        printf("  beta 0 changes the state\n");
    for (int64_t i = 0; i < problem_count(&p.v); i++)
        dtype_store(p.v.dtype, p.v.data, i, rng_normal(rng));
    for (int64_t i = 0; i < problem_count(&p.k); i++)
        dtype_store(p.k.dtype, p.k.data, i, rng_normal(rng));
    struct linear_result other = linear_run(&p);
    for (int64_t i = 0; i < problem_count(&r.out) && holds; i++) {
        holds = dtype_load(r.out.dtype, r.out.data, i) == dtype_load(r.out.dtype, other.out.data, i);
        if (!holds)
            printf("  beta 0, other keys and values: out[%d] differs\n", (int)i);
    }
    linear_result_free(&r);
    linear_result_free(&other);
    linear_free(&p);
    return holds;
}

/** Whether b is 2^power times a, bit by bit. */
static int is_multiple(const char *what, const attn_tensor *a, const attn_tensor *b, int power)
{
    for (int64_t i = 0; i < problem_count(a); i++)
        if (dtype_load(b->dtype, b->data, i) != ldexpf(dtype_load(a->dtype, a->data, i), power)) {
            printf("  %s: element %d is %.9g, expected %.9g times 2^%d\n", what, (int)i,
                   (double)dtype_load(b->dtype, b->data, i), (double)dtype_load(a->dtype, a->data, i), power);
            return 0;
        }
    return 1;
}

/** Out and S are linear in v and the first S. */
static int linear_in_values(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_WIDE | LINEAR_RESETS);
    const int power = (int)rng_range(rng, -8, 8);
    struct linear_result a = linear_run(&p);
    scale_by_power(&p.v, power);
    scale_by_power(&p.state_in, power);
    struct linear_result b = linear_run(&p);
    const int holds =
        is_multiple("out by v", &a.out, &b.out, power) && is_multiple("the state by v", &a.state, &b.state, power);
    linear_result_free(&a);
    linear_result_free(&b);
    linear_free(&p);
    return holds;
}

/** Out is linear in q and in the scale, and S does not depend on them. */
static int linear_in_queries(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_WIDE | LINEAR_RESETS);
    const int power = (int)rng_range(rng, -8, 8);
    p.params.scale = 0.7f;
    struct linear_result a = linear_run(&p);
    scale_by_power(&p.q, power);
    struct linear_result b = linear_run(&p);
    scale_by_power(&p.q, -power);
    p.params.scale = -ldexpf(p.params.scale, power);
    struct linear_result c = linear_run(&p);
    const int holds = is_multiple("out by q", &a.out, &b.out, power) &&
                      linear_same_state("other queries", &a, 0, 0, &b) &&
                      linear_same_state("another scale", &a, 0, 0, &c);
    for (int64_t i = 0; i < problem_count(&c.out); i++)
        dtype_store(c.out.dtype, c.out.data, i, -dtype_load(c.out.dtype, c.out.data, i));
    const int both = holds && is_multiple("out by the scale", &a.out, &c.out, power);
    linear_result_free(&a);
    linear_result_free(&b);
    linear_result_free(&c);
    linear_free(&p);
    return both;
}

/** Without beta, keys by a power of two and values by its inverse are the same. */
static int keys_against_values(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_WIDE | LINEAR_NO_BETA | LINEAR_RESETS);
    const int power = (int)rng_range(rng, -8, 8);
    struct linear_result a = linear_run(&p);
    scale_by_power(&p.k, power);
    scale_by_power(&p.v, -power);
    struct linear_result b = linear_run(&p);
    const int holds = is_multiple("out", &a.out, &b.out, 0) && is_multiple("the state", &a.state, &b.state, 0);
    linear_result_free(&a);
    linear_result_free(&b);
    linear_free(&p);
    return holds;
}

/** With one key of the length 1 for all tokens and beta 1, a token replaces what is there: out is its own value. */
static int replaces(struct rng *rng, const char *isa)
{
    struct linear_problem p;
    linear_draw(&p, rng, isa, LINEAR_BETA | LINEAR_WIDE);
    const int64_t channel = rng_range(rng, 0, p.k.shape[3] - 1);
    attn_tensor *const rows[] = {&p.q, &p.k};
    for (int n = 0; n < 2; n++)
        for (int64_t b = 0; b < rows[n]->shape[0]; b++)
            for (int64_t h = 0; h < rows[n]->shape[1]; h++)
                for (int64_t i = 0; i < rows[n]->shape[2]; i++)
                    for (int64_t c = 0; c < rows[n]->shape[3]; c++)
                        tensor_set(rows[n], b, h, i, c, c == channel);
    for (int64_t i = 0; i < problem_count(&p.beta); i++)
        dtype_store(p.beta.dtype, p.beta.data, i, 1);
    for (int64_t i = 0; i < problem_count(&p.v); i++) /* small integers: sums are exact */
        dtype_store(p.v.dtype, p.v.data, i, (float)rng_range(rng, -8, 8));
    for (int64_t i = 0; p.state_in.data && i < problem_count(&p.state_in); i++)
        dtype_store(ATTN_F32, p.state_in.data, i, (float)rng_range(rng, -8, 8));
    free(p.decay.data);
    p.decay.data = NULL;
    p.params.scale = 1;
    struct linear_result r = linear_run(&p);
    const int64_t per_state = r.out.shape[1] / p.v.shape[1];
    int holds = 1;
    for (int64_t b = 0; b < r.out.shape[0]; b++)
        for (int64_t h = 0; h < r.out.shape[1]; h++)
            for (int64_t i = 0; i < r.out.shape[2]; i++)
                for (int64_t c = 0; c < r.out.shape[3] && holds; c++) {
                    holds = tensor_get(&r.out, b, h, i, c) == tensor_get(&p.v, b, h / per_state, i, c);
                    if (!holds)
                        printf("  out[%d,%d,%d,%d] is not the token's value\n", (int)b, (int)h, (int)i, (int)c);
                }
    linear_result_free(&r);
    linear_free(&p);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"a cut anywhere", any_cut},
        {"a decay of 0 is none", no_decay},
        {"a decay of -inf is a reset", decay_clears},
        {"a decay of a head is one of its rows", decay_of_rows},
        {"beta 0 writes nothing", beta_zero},
        {"linear in values", linear_in_values},
        {"linear in queries", linear_in_queries},
        {"keys against values", keys_against_values},
        {"beta 1 replaces", replaces},
    };
    return properties_run(argc, argv, "test_linear_algebra", properties, sizeof properties / sizeof *properties);
}
