/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of random cases of linear attention.
 *
 * What lies between the rows of an input is NaN, as is, in most cases, what lies
 * behind the last sequence of a ragged batch: if any of it reached a result, the
 * comparison would show it. Keys of a rule with beta have the length 1, or less:
 * with longer ones S grows without bounds, and so does what rounding does to it.
 */
#include "linear_case.h"

#include "dtype.h"

#include <math.h>
#include <string.h>

/** The same with 8 significant bits. */
static float coarsen(float x)
{
    int exponent;
    const float mantissa = frexpf(x, &exponent);
    return ldexpf(rintf(mantissa * 256), exponent - 8);
}

/**
 * Where all tokens have the same numbers, every addition of them rounds the same way, in the library and in the naive
 * computation, but not at the same count: no yardstick. Sums of coarse numbers are exact.
 */
static int is_one_token(const attn_tensor *t)
{
    return t->shape[2] > 1 && t->stride[2] == 0;
}

void linear_fill_normal(const attn_tensor *t, float factor, struct rng *rng)
{
    const int coarse = is_one_token(t);
    FOR_EACH_ELEMENT(t)
    {
        const float x = rng_normal(rng) * factor;
        tensor_set(t, b, h, i, j, coarse ? coarsen(x) : x);
    }
}

/** Multiplies a row by what makes its length that. */
static void set_length(const attn_tensor *t, int64_t b, int64_t h, int64_t i, double length)
{
    double sum = 0;
    for (int64_t c = 0; c < t->shape[3]; c++)
        sum += (double)tensor_get(t, b, h, i, c) * (double)tensor_get(t, b, h, i, c);
    for (int64_t c = 0; c < t->shape[3] && sum > 0; c++)
        tensor_set(t, b, h, i, c, (float)((double)tensor_get(t, b, h, i, c) * length / sqrt(sum)));
}

/** A key of the length 1 for all tokens, whose products with itself are exact, for the same reason. */
static void set_exact_key(const attn_tensor *t, int64_t b, int64_t h, struct rng *rng)
{
    const int64_t n = t->shape[3] >= 4 ? 4 : 1, first = rng_range(rng, 0, t->shape[3] - n);
    for (int64_t c = 0; c < t->shape[3]; c++) {
        const float size = c < first || c >= first + n ? 0.0f : n == 4 ? 0.5f : 1.0f;
        tensor_set(t, b, h, 0, c, rng_percent(rng, 50) ? size : -size);
    }
}

static void fill_keys(struct linear_case *c, struct rng *rng)
{
    const double length = rng_percent(rng, 80) ? 1 : rng_uniform(rng);
    const int zeros = rng_percent(rng, 20) ? (int)RNG_PICK(rng, 3, 3, 30, 100) : 0;
    linear_fill_normal(&c->k, 1, rng);
    c->unit_keys = c->params.beta && length == 1;
    for (int64_t b = 0; b < c->k.shape[0]; b++)
        for (int64_t h = 0; h < c->k.shape[1]; h++)
            for (int64_t i = 0; i < c->k.shape[2]; i++) {
                if (c->params.beta && is_one_token(&c->k) && c->k.shape[3] > 0)
                    set_exact_key(&c->k, b, h, rng);
                else if (c->params.beta)
                    set_length(&c->k, b, h, i, length);
                for (int64_t j = 0; rng_percent(rng, zeros) && j < c->k.shape[3]; j++)
                    tensor_set(&c->k, b, h, i, j, 0);
            }
}

static float draw_decay(enum linear_decays kind, int special, attn_dtype dtype, struct rng *rng)
{
    const float x = (float)rng_uniform(rng);
    switch (kind) {
    case DECAY_FAST:
        return -3 * x;
    case DECAY_STRONG:
        return -20 - x;
    case DECAY_ZERO:
        return rng_percent(rng, 90) ? 0.0f : -0.0f;
    case DECAY_INF:
        return rng_percent(rng, special) ? -INFINITY : -0.1f * x;
    case DECAY_HUGE:
        return rng_percent(rng, special) ? (dtype == ATTN_F16 ? -65504.0f : -1e30f) : -0.1f * x;
    case DECAY_MIXED:
        return draw_decay((enum linear_decays)rng_range(rng, DECAY_ORDINARY, DECAY_MIXED - 1), 50, dtype, rng);
    default:
        return -0.1f * x;
    }
}

static void fill_decay(struct linear_case *c, struct rng *rng)
{
    const int special = (int)RNG_PICK(rng, 2, 20, 50, 100);
    FOR_EACH_ELEMENT(&c->decay)
    {
        tensor_set(&c->decay, b, h, i, j, draw_decay(c->decays, special, c->decay.dtype, rng));
    }
}

static void fill_beta(struct linear_case *c, struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 5);
    FOR_EACH_ELEMENT(&c->beta)
    {
        const float x = (float)rng_uniform(rng);
        const int now = kind == 5 ? (int)rng_range(rng, 0, 4) : kind;
        tensor_set(&c->beta, b, h, i, j, now <= 2 ? (float)now : now == 3 ? x : 2 * x);
    }
}

static void fill_resets(struct linear_case *c, struct rng *rng)
{
    const int percent = (int)RNG_PICK(rng, 0, 1, 3, 3, 20, 100);
    FOR_EACH_ELEMENT(&c->resets)
    {
        ((uint8_t *)c->resets.data)[tensor_offset(&c->resets, b, h, i, j)] =
            (uint8_t)(rng_percent(rng, percent) ? RNG_PICK(rng, 1, 1, 2, 128, 255) : 0);
    }
}

/** Puts what is not finite into an element of a tensor, or into a row. */
static void plant(struct linear_case *c, const attn_tensor *t, struct rng *rng)
{
    static const float specials[] = {NAN, NAN, INFINITY, -INFINITY};
    const int64_t *n = t->shape;
    if (n[0] * n[1] * n[2] * n[3] == 0)
        return;
    const int64_t b = rng_range(rng, 0, n[0] - 1), h = rng_range(rng, 0, n[1] - 1), i = rng_range(rng, 0, n[2] - 1);
    const int64_t j = rng_range(rng, 0, n[3] - 1);
    const float special = specials[rng_range(rng, 0, 3)];
    const int row = rng_percent(rng, 20);
    for (int64_t at = row ? 0 : j; at < (row ? n[3] : j + 1); at++)
        tensor_set(t, b, h, i, at, special);
    c->planted++;
}

/** Tokens of a batch element that belong to no sequence. */
static void poison_behind(const attn_tensor *t, int64_t b, int64_t end)
{
    for (int64_t h = 0; h < t->shape[1]; h++)
        for (int64_t i = end; i < t->shape[2]; i++)
            for (int64_t j = 0; j < t->shape[3]; j++)
                tensor_set(t, b, h, i, j, NAN);
}

static void poison_unread(struct linear_case *c, struct rng *rng)
{
    const attn_linear_attention_params *p = &c->params;
    const attn_tensor *const tensors[] = {&c->q, &c->k, &c->v, p->beta, p->lengths ? p->decay : NULL};
    for (size_t n = 0; n < sizeof tensors / sizeof *tensors; n++) {
        const attn_tensor *t = tensors[n];
        if (!t || t->shape[2] == 1 || t->stride[2] == 0 || !rng_percent(rng, 70))
            continue;
        if (t->shape[0] != c->v.shape[0] || (t->shape[0] > 1 && t->stride[0] == 0)) /* of several sequences */
            continue;
        for (int64_t b = 0; b < t->shape[0]; b++)
            poison_behind(t, b, p->lengths ? p->lengths[b] : p->cu_seqlens[p->num_sequences]);
    }
}

void linear_case_fill(struct linear_case *c, struct rng *rng)
{
    for (int slot = 0; slot < LINEAR_SLOT_OUT; slot++)
        if (c->guard[slot].used && slot < LINEAR_SLOT_CU_SEQLENS)
            memset(c->guard[slot].data, 0xff, c->guard[slot].used); /* a NaN in every gap */
    float size = rng_percent(rng, 60) ? 1 : powf(10, (float)(6 * rng_uniform(rng) - 3));
    if (c->v.dtype == ATTN_F32 && rng_percent(rng, 2))
        size = 1e-40f;
    linear_fill_normal(&c->q, 1, rng);
    linear_fill_normal(&c->v, size, rng);
    fill_keys(c, rng); /* after the others: rows of a packed buffer are its own */
    if (c->params.decay)
        fill_decay(c, rng);
    if (c->params.beta)
        fill_beta(c, rng);
    if (c->params.resets)
        fill_resets(c, rng);
    if (c->params.state_in)
        linear_fill_normal(&c->state_in, size, rng);
    c->planted = 0;
    if (rng_percent(rng, 15)) {
        const attn_tensor *const tensors[] = {&c->q, &c->k, &c->v, c->params.beta, c->params.state_in};
        for (int64_t n = rng_range(rng, 1, 3); n > 0; n--) {
            const attn_tensor *t = tensors[rng_range(rng, 0, 4)];
            if (t)
                plant(c, t, rng);
        }
    }
    if ((c->params.cu_seqlens || c->params.lengths) && c->q.shape[2] > 0)
        poison_unread(c, rng);
}
