/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of random cases, the check that nothing else was touched, and the
 * line that describes a case.
 *
 * K and V rows that no query can see are overwritten with NaN, Inf and huge
 * numbers after the masks are known, and whatever lies between the rows of an
 * input is NaN: if any of it reached a result, the comparison would show it.
 */
#include "case.h"
#include "dtype.h"
#include "oracle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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

#define FOR_EACH_ELEMENT(t)                                                                                            \
    for (int64_t b = 0; b < (t)->shape[0]; b++)                                                                        \
        for (int64_t h = 0; h < (t)->shape[1]; h++)                                                                    \
            for (int64_t i = 0; i < (t)->shape[2]; i++)                                                                \
                for (int64_t j = 0; j < (t)->shape[3]; j++)

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

static void poison_row(const attn_tensor *t, int64_t b, int64_t g, int64_t j, struct rng *rng)
{
    const float poison = rng_percent(rng, 60) ? NAN : rng_percent(rng, 50) ? INFINITY : dtype_max(t->dtype);
    for (int64_t c = 0; c < t->shape[3]; c++)
        tensor_set(t, b, g, j, c, poison);
}

/** Overwrites the K and V rows that no query of their group sees. */
static void poison_hidden_keys(struct test_case *c, struct rng *rng)
{
    const int64_t group = c->k.shape[1] ? c->q.shape[1] / c->k.shape[1] : 1;
    for (int64_t b = 0; b < c->k.shape[0]; b++) {
        for (int64_t g = 0; g < c->k.shape[1]; g++) {
            for (int64_t j = 0; j < c->k.shape[2]; j++) {
                int live = 0;
                for (int64_t h = g * group; h < (g + 1) * group; h++)
                    for (int64_t i = 0; i < c->q.shape[2] && !live; i++)
                        live = oracle_key_is_live(&c->params, c->q.shape[2], c->k.shape[2], b, h, i, j);
                if (live)
                    continue;
                if (!is_broadcast(&c->k))
                    poison_row(&c->k, b, g, j, rng);
                if (!is_broadcast(&c->v))
                    poison_row(&c->v, b, g, j, rng);
            }
        }
    }
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
}

/** Whether the bytes of a slot that are not elements of t still hold the canary. */
static int gaps_intact(const struct guard *guard, const attn_tensor *t)
{
    if (!guard->used)
        return 1;
    const size_t size = attn_dtype_size(t->dtype), n = guard->used / size;
    unsigned char *owned = calloc(n, 1);
    if (!owned)
        return 0;
    const int64_t base = ((const unsigned char *)t->data - guard->data) / (ptrdiff_t)size;
    FOR_EACH_ELEMENT(t)
    {
        owned[base + tensor_offset(t, b, h, i, j)] = 1;
    }
    int intact = 1;
    for (size_t i = 0; i < n && intact; i++)
        for (size_t byte = 0; byte < size && !owned[i]; byte++)
            intact &= guard->data[i * size + byte] == GUARD_CANARY;
    free(owned);
    return intact;
}

int case_check_memory(const struct test_case *c, char *message, size_t size)
{
    static const char *const names[SLOTS] = {
        "q",           "k",   "v",   "mask",    "kv_len",   "kv_start", "query_offset",
        "weight_rows", "out", "lse", "weights", "key_sums", "workspace"};
    const attn_tensor *const outputs[] = {&c->out, c->params.lse, c->params.weights, c->params.key_sums};
    for (int slot = 0; slot < SLOTS; slot++) {
        const struct guard *guard = &c->guard[slot];
        if (!guard_intact(guard)) {
            snprintf(message, size, "memory beside %s was written", names[slot]);
            return 0;
        }
        if (slot < SLOT_FIRST_OUTPUT && guard->used && memcmp(guard->data, c->snapshot[slot], guard->used) != 0) {
            snprintf(message, size, "the input %s was changed", names[slot]);
            return 0;
        }
        if (slot >= SLOT_FIRST_OUTPUT && slot <= SLOT_LAST_OUTPUT && outputs[slot - SLOT_FIRST_OUTPUT] &&
            !gaps_intact(guard, outputs[slot - SLOT_FIRST_OUTPUT])) {
            snprintf(message, size, "a gap between the rows of %s was written", names[slot]);
            return 0;
        }
    }
    return 1;
}

static size_t describe_tensor(const char *name, const attn_tensor *t, char *buffer, size_t size)
{
    const int n = snprintf(buffer, size,
                           " %s:%s(%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ")/(%" PRId64 ",%" PRId64 ",%" PRId64
                           ",%" PRId64 ")",
                           name, attn_dtype_name(t->dtype), t->shape[0], t->shape[1], t->shape[2], t->shape[3],
                           t->stride[0], t->stride[1], t->stride[2], t->stride[3]);
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

void case_describe(const struct test_case *c, char *buffer, size_t size)
{
    static const char *const values[] = {"normal", "huge", "inf", "nan", "denormal", "constant"};
    static const char *const causal[] = {"none", "top-left", "bottom-right", "offset"};
    static const char *const entry[] = {"attn_forward", "attn_plan_run", "attn_plan_run_share"};
    const attn_params *p = &c->params;
    const int n = snprintf(buffer, size, "%s values:%s exp:%s causal:%s threads:%d scale:%g temperature:%g%s%s%s",
                           entry[c->entry], values[c->values], p->exp == ATTN_EXP_FAST ? "fast" : "sleef",
                           causal[p->causal], p->num_threads, (double)p->scale, (double)p->temperature,
                           p->kv_len ? " kv_len" : "", p->kv_start ? " kv_start" : "", c->packed ? " packed" : "");
    size_t at = n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
    at += describe_tensor("q", &c->q, buffer + at, size - at);
    at += describe_tensor("k", &c->k, buffer + at, size - at);
    at += describe_tensor("v", &c->v, buffer + at, size - at);
    at += describe_tensor("out", &c->out, buffer + at, size - at);
    if (p->mask)
        at += describe_tensor("mask", p->mask, buffer + at, size - at);
    if (p->lse)
        at += describe_tensor("lse", p->lse, buffer + at, size - at);
    if (p->weights)
        at += describe_tensor(p->weight_rows ? "weight-rows" : "weights", p->weights, buffer + at, size - at);
    if (p->key_sums)
        describe_tensor("key_sums", p->key_sums, buffer + at, size - at);
}
