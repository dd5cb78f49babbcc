/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of random cases.
 *
 * K and V rows that no query can see are overwritten with NaN, Inf and huge
 * numbers after the masks are known, so are their rows of rope's table, and
 * queries behind the last sequence of a ragged batch. Whatever lies between the
 * rows of an input is NaN: if any of it reached a result, the comparison would
 * show it.
 */
#include "case_draw.h"
#include "dtype.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** What a kind of values means for one tensor: numbers around 0 of this size, with special ones strewn in. */
struct distribution {
    float factor, constant;
    int use_constant, coarse;
    int special_per_mille;
    float special;
};

static struct distribution draw_distribution(enum case_values values, attn_dtype dtype, int is_value, struct rng *rng)
{
    struct distribution d = {.factor = 1};
    switch (values) {
    case VALUES_NORMAL:
        break;
    case VALUES_HUGE:
        d.factor = powf(10, (float)rng_range(rng, 0, is_value ? 30 : 7));
        if (dtype == ATTN_F16) /* whose normal numbers, times 6, must still be numbers */
            d.factor = fminf(d.factor, 1e4f);
        break;
    case VALUES_INF:
        d.special_per_mille = (int)RNG_PICK(rng, 0, 1, 5, 30);
        d.special = INFINITY;
        break;
    case VALUES_NAN:
        d.special_per_mille = (int)RNG_PICK(rng, 0, 1, 5, 30);
        d.special = NAN;
        break;
    case VALUES_DENORMAL:
        d.factor = rng_percent(rng, 50) ? 1e-40f : 1e-20f;
        if (dtype != ATTN_F32) /* as small, or around the smallest normal number */
            d.factor = d.factor < 1e-30f ? dtype_min_normal(dtype) * 0x1p-5f : dtype_min_normal(dtype);
        break;
    default:
        d.use_constant = 1;
        d.constant = (float)RNG_PICK(rng, 0, 1, -1, 1, 3) * 0.37f;
        break;
    }
    return d;
}

/**
 * Where the same numbers are added again and again, every addition rounds the
 * same way and errors grow with their count, in the naive computation as in
 * the library but not at the same count: no yardstick. Coarse values have 8
 * significant bits, so that such sums are exact and errors elsewhere show.
 */
static float coarsen(float x)
{
    int exponent;
    const float mantissa = frexpf(x, &exponent);
    return ldexpf(rintf(mantissa * 256), exponent - 8);
}

static float draw_value(const struct distribution *d, struct rng *rng)
{
    if (d->special_per_mille && rng_range(rng, 0, 999) < d->special_per_mille)
        return rng_percent(rng, 50) ? d->special : -d->special;
    const float x = d->use_constant ? d->constant : rng_normal(rng) * d->factor;
    return d->coarse ? coarsen(x) : x;
}

static void fill_tensor(const attn_tensor *t, struct distribution d, struct rng *rng)
{
    d.coarse = d.use_constant || (t->shape[2] > 1 && t->stride[2] == 0);
    FOR_EACH_ELEMENT(t)
    {
        tensor_set(t, b, h, i, j, draw_value(&d, rng));
    }
}

static void fill_mask(const attn_tensor *mask, enum case_values values, struct rng *rng)
{
    const int live_percent = (int)RNG_PICK(rng, 0, 5, 50, 50, 50, 90, 90, 99, 99, 100);
    const int band = rng_percent(rng, 20) ? (int)rng_range(rng, 1, 20) : 0;
    const float hidden = rng_percent(rng, 80) ? -INFINITY : -1e9f;
    const float size = (float)RNG_PICK(rng, 0, 1, 1, 10, 1000);
    int64_t row = -1;
    int row_percent = live_percent;
    FOR_EACH_ELEMENT(mask)
    {
        if (i != row) { /* some rows see nothing, some everything */
            row = i;
            row_percent = rng_percent(rng, 80) ? live_percent : (int)RNG_PICK(rng, 0, 100);
        }
        const int live = band ? llabs(i - j) <= band : rng_percent(rng, row_percent);
        const int64_t at = tensor_offset(mask, b, h, i, j);
        if (mask->dtype == ATTN_BOOL) {
            ((uint8_t *)mask->data)[at] = (uint8_t)(live ? RNG_PICK(rng, 1, 1, 1, 2, 128, 255) : 0);
        } else {
            float x = live ? rng_normal(rng) * size : hidden;
            if (live && values == VALUES_NAN && rng_range(rng, 0, 299) == 0)
                x = NAN;
            if (live && values == VALUES_INF && rng_range(rng, 0, 299) == 0)
                x = INFINITY;
            dtype_store(mask->dtype, mask->data, at, x);
        }
    }
}

static int is_broadcast(const attn_tensor *t)
{
    for (int axis = 0; axis < 3; axis++)
        if (t->shape[axis] > 1 && t->stride[axis] == 0)
            return 1;
    return 0;
}

void case_poison_row(const attn_tensor *t, int64_t b, int64_t g, int64_t j, struct rng *rng)
{
    if (is_broadcast(t))
        return;
    const float poison = rng_percent(rng, 60) ? NAN : rng_percent(rng, 50) ? INFINITY : dtype_max(t->dtype);
    for (int64_t c = 0; c < t->shape[3]; c++)
        tensor_set(t, b, g, j, c, poison);
}

/** Adds the keys that a query sees to those of its group. */
static void mark_seen(const struct test_case *c, int64_t b, int64_t h, int64_t token, unsigned char *seen)
{
    const attn_params *p = &c->params;
    const struct oracle_query query = oracle_query_at(p, c->q.shape[2], c->k.shape[2], b, h, token);
    for (int64_t j = query.start; j < query.end; j++)
        if (!seen[query.first_key + j] && oracle_sees(p, &query, j) && oracle_callback(p, &query, j, 0) != -INFINITY)
            seen[query.first_key + j] = 1;
}

/** Overwrites the K and V rows that no query of their group sees; and those of rope's table that no query at all. */
static void poison_hidden_keys(struct test_case *c, struct rng *rng)
{
    const int64_t group = c->k.shape[1] ? c->q.shape[1] / c->k.shape[1] : 1, tk = c->k.shape[2];
    const int64_t groups = c->k.shape[0] * c->k.shape[1];
    if (groups == 0 || tk == 0)
        return;
    unsigned char *seen = calloc((size_t)tk, 2), *seen_by_any = seen + tk;
    if (!seen)
        return;
    for (int64_t bg = 0; bg < groups; bg++) {
        const int64_t b = bg / c->k.shape[1], g = bg % c->k.shape[1];
        memset(seen, 0, (size_t)tk);
        for (int64_t h = g * group; h < (g + 1) * group; h++)
            for (int64_t i = 0; i < c->q.shape[2]; i++)
                mark_seen(c, b, h, i, seen);
        for (int64_t j = 0; j < tk; j++) {
            seen_by_any[j] |= seen[j];
            if (!seen[j])
                case_poison_row(&c->k, b, g, j, rng);
            if (!seen[j])
                case_poison_row(&c->v, b, g, j, rng);
        }
    }
    for (int64_t j = 0; j < tk && c->params.rope && !is_broadcast(&c->rope_k); j++)
        for (int64_t bg = 0; bg < c->rope_k.shape[0] * c->rope_k.shape[1] && !seen_by_any[j]; bg++)
            case_poison_row(&c->rope_k, bg / c->rope_k.shape[1], bg % c->rope_k.shape[1], j, rng);
    free(seen);
}

static void poison_outside_queries(struct test_case *c, struct rng *rng)
{
    const int64_t end = c->ragged.cu_seqlens_q[c->ragged.num_sequences];
    for (int64_t h = 0; h < c->q.shape[1] && !is_broadcast(&c->q); h++)
        for (int64_t i = end; i < c->q.shape[2]; i++)
            case_poison_row(&c->q, 0, h, i, rng);
}

void case_fill(struct test_case *c, struct rng *rng)
{
    for (int slot = SLOT_Q; slot <= SLOT_V; slot++)
        if (c->guard[slot].used)
            memset(c->guard[slot].data, 0xff, c->guard[slot].used); /* a NaN in every gap */
    struct distribution q = draw_distribution(c->values, c->q.dtype, 0, rng);
    struct distribution k = draw_distribution(c->values, c->k.dtype, 0, rng);
    const struct distribution v = draw_distribution(c->values, c->v.dtype, 1, rng);
    if (c->values == VALUES_CONSTANT) /* not both: their products would be equal terms of a sum */
        *(rng_percent(rng, 50) ? &q : &k) = (struct distribution){.factor = 1};
    fill_tensor(&c->q, q, rng);
    fill_tensor(&c->k, k, rng);
    fill_tensor(&c->v, v, rng);
    if (c->params.mask)
        fill_mask(&c->mask, c->values, rng);
    if (rng_percent(rng, 70))
        poison_hidden_keys(c, rng);
    if (c->params.ragged && rng_percent(rng, 70))
        poison_outside_queries(c, rng);
}

void case_fill_gradients(struct test_case *c, struct rng *rng)
{
    for (int slot = SLOT_D_OUT; slot <= SLOT_D_LSE; slot++)
        if (c->guard[slot].used)
            memset(c->guard[slot].data, 0xff, c->guard[slot].used); /* a NaN in every gap */
    const int constant = c->values == VALUES_CONSTANT;              /* not here, too: terms would be equal */
    const enum case_values values = constant || rng_percent(rng, 30) ? VALUES_NORMAL : c->values;
    struct distribution d = draw_distribution(values, c->d_out.dtype, 0, rng);
    fill_tensor(&c->d_out, d, rng);
    d = draw_distribution(values, ATTN_F32, 0, rng);
    if (c->gradients.lse)
        fill_tensor(&c->d_lse, d, rng);
}
