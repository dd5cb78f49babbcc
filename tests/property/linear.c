/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, running and comparing the problems of linear attention of the property
 * tests. Sizes straddle the chunk of 64 tokens and the vectors of columns.
 */
#include "linear.h"

#include "close.h"
#include "compare_linear.h"
#include "dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_dtype any_float(struct rng *rng, int features)
{
    return (attn_dtype)(features & LINEAR_WIDE ? RNG_PICK(rng, ATTN_F32, ATTN_BF16)
                                               : RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16));
}

static int64_t draw_length(struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 9);
    return kind <= 1   ? rng_range(rng, 1, 9)
           : kind <= 3 ? rng_range(rng, 62, 67)
           : kind <= 5 ? rng_range(rng, 126, 131)
                       : rng_range(rng, 1, 200);
}

static int64_t draw_head_size(struct rng *rng)
{
    return rng_percent(rng, 60) ? rng_range(rng, 1, 40) : RNG_PICK(rng, 16, 32, 48, 63, 64, 65, 96, 128);
}

/** Keys of the length 1. */
static void normalise(const attn_tensor *k)
{
    for (int64_t b = 0; b < k->shape[0]; b++)
        for (int64_t h = 0; h < k->shape[1]; h++)
            for (int64_t i = 0; i < k->shape[2]; i++) {
                double sum = 1e-30;
                for (int64_t c = 0; c < k->shape[3]; c++)
                    sum += (double)tensor_get(k, b, h, i, c) * (double)tensor_get(k, b, h, i, c);
                for (int64_t c = 0; c < k->shape[3]; c++)
                    tensor_set(k, b, h, i, c, (float)((double)tensor_get(k, b, h, i, c) / sqrt(sum)));
            }
}

static void draw_decay(struct linear_problem *p, struct rng *rng)
{
    const float size = (float)RNG_PICK(rng, 1, 1, 30, 200) * 0.1f;
    for (int64_t i = 0; i < problem_count(&p->decay); i++)
        dtype_store(p->decay.dtype, p->decay.data, i, -size * (float)rng_uniform(rng));
}

static void draw_beta(struct linear_problem *p, struct rng *rng)
{
    const float most = (float)rng_range(rng, 1, 2);
    for (int64_t i = 0; i < problem_count(&p->beta); i++)
        dtype_store(p->beta.dtype, p->beta.data, i, most * (float)rng_uniform(rng));
}

static void draw_resets(struct linear_problem *p, struct rng *rng)
{
    for (int64_t i = 0; i < problem_count(&p->resets); i++)
        ((uint8_t *)p->resets.data)[i] = (uint8_t)rng_percent(rng, 3);
}

void linear_draw(struct linear_problem *p, struct rng *rng, const char *isa, int features)
{
    const int large = features & LINEAR_LARGE, alike = rng_percent(rng, 50);
    const int64_t b = rng_range(rng, 1, 2), h = large ? RNG_PICK(rng, 4, 6, 8) : RNG_PICK(rng, 1, 1, 2, 2, 4);
    const int64_t t = large ? rng_range(rng, 100, 300) : draw_length(rng);
    const int64_t dk = large ? RNG_PICK(rng, 32, 48, 64) : draw_head_size(rng);
    const int64_t dv = large ? RNG_PICK(rng, 32, 64, 70, 128) : draw_head_size(rng);
    const int64_t kind = rng_range(rng, 0, 3), q_heads = kind <= 1 ? h : kind == 2 ? h * rng_range(rng, 2, 3) : 1;
    const int64_t k_heads = rng_percent(rng, 60) ? h : h % 2 == 0 ? h / 2 : 1;
    const attn_dtype one = any_float(rng, features);
    int rule = (int)rng_range(rng, 0, 3);
    rule |= (features & LINEAR_BETA ? 2 : 0) | (features & LINEAR_DECAY ? 1 : 0);
    rule &= features & LINEAR_NO_BETA ? 1 : 3;
    memset(p, 0, sizeof *p);
    p->params = attn_linear_attention_params_default();
    p->params.isa = isa;
    p->params.num_threads = rng_percent(rng, 50) ? 1 : (int)rng_range(rng, 2, 3);
    p->params.scale = rng_percent(rng, 70) ? 0 : (float)(0.1 + rng_uniform(rng));
    p->q = problem_tensor(rng, alike ? one : any_float(rng, features), b, q_heads, t, dk);
    p->k = problem_tensor(rng, alike ? one : any_float(rng, features), b, k_heads, t, dk);
    p->v = problem_tensor(rng, alike ? one : any_float(rng, features), b, h, t, dv);
    p->out = alike ? one : any_float(rng, features);
    if (rule & 1) {
        p->decay = problem_tensor(rng, any_float(rng, features), b, h, t, rng_percent(rng, 50) ? dk : 1);
        draw_decay(p, rng);
    }
    if (rule & 2) {
        p->beta = problem_tensor(rng, any_float(rng, features), b, h, t, 1);
        draw_beta(p, rng);
        normalise(&p->k);
    }
    if (features & LINEAR_RESETS && rng_percent(rng, 30)) {
        p->resets = problem_tensor(rng, ATTN_BOOL, b, rng_percent(rng, 50) ? h : 1, t, 1);
        draw_resets(p, rng);
    }
    if (rng_percent(rng, 60)) {
        p->state_in = attn_bhtd(must_allocate(b * h * dk * dv, sizeof(float)), b, h, dk, dv);
        rng_fill_normal(rng, p->state_in.data, b * h * dk * dv);
    }
}

void linear_free(struct linear_problem *p)
{
    attn_tensor *const tensors[] = {&p->q, &p->k, &p->v, &p->decay, &p->beta, &p->resets, &p->state_in};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        free(tensors[i]->data);
    memset(p, 0, sizeof *p);
}

attn_linear_attention_params linear_params(const struct linear_problem *p)
{
    attn_linear_attention_params params = p->params;
    params.decay = p->decay.data ? &p->decay : NULL;
    params.beta = p->beta.data ? &p->beta : NULL;
    params.resets = p->resets.data ? &p->resets : NULL;
    params.state_in = p->state_in.data ? &p->state_in : NULL;
    return params;
}

struct linear_result linear_allocate(const struct linear_problem *p)
{
    const int64_t *q = p->q.shape, *v = p->v.shape, heads = q[1] > v[1] ? q[1] : v[1];
    const int64_t sequences = p->params.cu_seqlens ? p->params.num_sequences : v[0];
    struct linear_result r = {attn_bhtd(NULL, v[0], heads, v[2], v[3]), attn_bhtd(NULL, sequences, v[1], q[3], v[3])};
    r.out.dtype = p->out;
    attn_tensor *const tensors[] = {&r.out, &r.state};
    for (int i = 0; i < 2; i++) {
        const size_t size = attn_dtype_size(tensors[i]->dtype);
        tensors[i]->data = must_allocate(problem_count(tensors[i]), size);
        memset(tensors[i]->data, 0xA5, (size_t)problem_count(tensors[i]) * size);
    }
    return r;
}

void linear_result_free(struct linear_result *r)
{
    free(r->out.data);
    free(r->state.data);
}

struct linear_result linear_run(const struct linear_problem *p)
{
    struct linear_result r = linear_allocate(p);
    attn_linear_attention_params params = linear_params(p);
    params.state_out = &r.state;
    must_succeed(attn_linear_attention(&p->q, &p->k, &p->v, &r.out, &params), "attn_linear_attention");
    return r;
}

void linear_narrow_tokens(struct linear_problem *p, int64_t first, int64_t n)
{
    attn_tensor *const tensors[] = {&p->q, &p->k, &p->v, &p->decay, &p->beta, &p->resets};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        problem_narrow(tensors[i], 2, first, n);
}

/** Whether part has the bits of whole from a place on. */
static int same_part(const char *what, const char *name, const attn_tensor *whole, const int64_t from[3],
                     const attn_tensor *part)
{
    const size_t size = attn_dtype_size(whole->dtype);
    for (int64_t b = 0; b < part->shape[0]; b++)
        for (int64_t h = 0; h < part->shape[1]; h++)
            for (int64_t i = 0; i < part->shape[2]; i++)
                for (int64_t c = 0; c < part->shape[3]; c++) {
                    const int64_t at = tensor_offset(part, b, h, i, c);
                    const int64_t whole_at = tensor_offset(whole, from[0] + b, from[1] + h, from[2] + i, c);
                    if (memcmp((const char *)part->data + (size_t)at * size,
                               (const char *)whole->data + (size_t)whole_at * size, size) == 0)
                        continue;
                    printf("  %s: %s[%d,%d,%d,%d] is %.9g, in the whole %.9g\n", what, name, (int)b, (int)h, (int)i,
                           (int)c, (double)tensor_get(part, b, h, i, c),
                           (double)tensor_get(whole, from[0] + b, from[1] + h, from[2] + i, c));
                    return 0;
                }
    return 1;
}

int linear_same_out(const char *what, const struct linear_result *whole, int64_t b, int64_t h, int64_t t,
                    const struct linear_result *part)
{
    return same_part(what, "out", &whole->out, (int64_t[]){b, h, t}, &part->out);
}

int linear_same_state(const char *what, const struct linear_result *whole, int64_t n, int64_t h,
                      const struct linear_result *part)
{
    return same_part(what, "state", &whole->state, (int64_t[]){n, h, 0}, &part->state);
}

int linear_same(const char *what, const struct linear_result *a, const struct linear_result *b)
{
    return linear_same_out(what, a, 0, 0, 0, b) && linear_same_state(what, a, 0, 0, b);
}

int linear_is_right(const char *what, const struct linear_problem *p, const struct linear_result *r)
{
    const attn_linear_attention_params params = linear_params(p);
    struct linear_comparison comparison[LINEAR_OUTPUTS];
    char message[512];
    if (compare_linear_call(&(struct linear_inputs){&p->q, &p->k, &p->v, &r->out, &params}, &r->out, &r->state,
                            comparison, message, sizeof message))
        return 1;
    printf("  %s: %s\n", what, message);
    return 0;
}

/** Of one output, from the largest error of the naive computation. */
static double *limits_of(struct linear_numbers *numbers, enum linear_output kind)
{
    double naive = 0, *limits = must_allocate(numbers->count, sizeof *limits);
    for (int64_t i = 0; i < numbers->count; i++)
        if (numbers->unit[i] > 0)
            naive = fmax(naive, numbers->naive_error[i] / numbers->unit[i]);
    for (int64_t i = 0; i < numbers->count; i++)
        limits[i] = (TOLERANCE_FACTOR * naive + tolerance_linear_table[kind].floor) * numbers->unit[i];
    return limits;
}

struct linear_limits linear_limits_of(const struct linear_problem *p)
{
    const attn_linear_attention_params params = linear_params(p);
    struct linear_result shape = linear_allocate(p);
    struct linear_reference reference =
        linear_reference_compute(&(struct linear_inputs){&p->q, &p->k, &p->v, &shape.out, &params});
    const struct linear_limits limits = {limits_of(&reference.of[LINEAR_OUT], LINEAR_OUT),
                                         limits_of(&reference.of[LINEAR_STATE], LINEAR_STATE)};
    linear_reference_free(&reference);
    linear_result_free(&shape);
    return limits;
}

void linear_limits_free(struct linear_limits *limits)
{
    free(limits->out);
    free(limits->state);
}

int linear_near(const char *what, const struct linear_result *a, const struct linear_limits *limits_a,
                const struct linear_result *b, const struct linear_limits *limits_b)
{
    for (int64_t i = 0; i < problem_count(&a->out); i++) {
        const double x = (double)dtype_load(a->out.dtype, a->out.data, i);
        const double y = (double)dtype_load(b->out.dtype, b->out.data, i);
        if (!close_enough(what, i, x, y,
                          limits_a->out[i] + limits_b->out[i] + close_rounding(a->out.dtype, x) +
                              close_rounding(b->out.dtype, y)))
            return 0;
    }
    for (int64_t i = 0; i < problem_count(&a->state); i++)
        if (!close_enough(what, i, (double)((const float *)a->state.data)[i], (double)((const float *)b->state.data)[i],
                          limits_a->state[i] + limits_b->state[i]))
            return 0;
    return 1;
}
