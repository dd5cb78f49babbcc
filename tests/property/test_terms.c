/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that change scores, beside something else that means the same: a
 * factor per head beside a call per head, biases beside a mask, a sink beside a
 * key with the value 0, rotations that cancel, a callback that does nothing.
 * Where no arithmetic differs the bits are compared, elsewhere close.h says how
 * far apart two results may be.
 */
#include "close.h"
#include "dtype.h"
#include "properties.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** An array with a number for each head. */
static float *per_head(const struct problem *p, struct rng *rng, float size)
{
    float *values = must_allocate(p->q.shape[1], sizeof *values);
    for (int64_t h = 0; h < p->q.shape[1]; h++)
        values[h] = size * rng_normal(rng);
    return values;
}

/** Makes q f32, so that an option that wants products in f32 and its replacement take the same kernels. */
static void widen_queries(struct problem *p)
{
    const attn_tensor wide = problem_converted(&p->q, ATTN_F32);
    free(p->q.data);
    p->q = wide;
}

/** Gives the problem a full f32 mask: the one that it has, or 0, to which can be added. */
static float *own_mask(struct problem *p)
{
    const int64_t batch = p->q.shape[0], heads = p->q.shape[1], tq = p->q.shape[2], tk = p->k.shape[2];
    float *data = must_allocate(batch * heads * tq * tk, sizeof *data);
    for (int64_t at = 0; p->mask.data && at < batch * heads * tq * tk; at++)
        data[at] = p->mask.dtype == ATTN_BOOL ? (((const uint8_t *)p->mask.data)[at] ? 0 : -INFINITY)
                                              : dtype_load(p->mask.dtype, p->mask.data, at);
    free(p->mask.data);
    p->mask = attn_bhtd(data, batch, heads, tq, tk);
    p->params.mask = &p->mask;
    return data;
}

typedef double term(const struct problem *p, const struct oracle_query *query, int64_t j);

/** A copy of p in which a term of the scores is a mask instead. */
static void copy_with_mask(struct problem *to, const struct problem *p, term *value)
{
    problem_copy(to, p);
    float *mask = own_mask(to);
    for (int64_t b = 0; b < p->q.shape[0]; b++)
        for (int64_t h = 0; h < p->q.shape[1]; h++)
            for (int64_t i = 0; i < p->q.shape[2]; i++) {
                const struct oracle_query query = oracle_query_at(&p->params, p->q.shape[2], p->k.shape[2], b, h, i);
                for (int64_t j = 0; j < p->k.shape[2]; j++, mask++)
                    *mask = (float)((double)*mask + value(p, &query, j));
            }
}

/** Each head as a call of its own, with its factor as the scale. */
static int scale_of_a_head(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    float *scale = per_head(&p, rng, 1);
    const int64_t h = rng_range(rng, 0, p.q.shape[1] - 1), group = p.q.shape[1] / p.k.shape[1];
    scale[h] = scale[h] == 0 ? 1 : scale[h]; /* as a scale, 0 has a meaning of its own */
    p.params.scale = 1;
    p.params.head_scale = scale;
    struct result whole = problem_run(&p);
    struct problem part = p; /* a view: not freed */
    attn_tensor *const all[] = {&part.q, &part.k, &part.v, &part.mask};
    for (int i = 0; i < 4; i++) {
        attn_tensor *t = all[i];
        const int64_t head = i == 1 || i == 2 ? h / group : h;
        if (t->data)
            t->data = (char *)t->data + head * t->stride[1] * (int64_t)attn_dtype_size(t->dtype);
        t->shape[1] = 1;
    }
    problem_bind(&part, p.params.kv_len != NULL, p.params.kv_start != NULL, p.params.query_offset != NULL);
    part.params.head_scale = NULL;
    part.params.scale = scale[h];
    struct result r = problem_run(&part);
    int holds = 1;
    for (int64_t b = 0; b < whole.batch; b++)
        holds = holds && rows_equal(&whole, b, h, 0, &r, b, 0);
    result_free(&r);
    result_free(&whole);
    free(scale);
    problem_free(&p);
    return holds;
}

/** A cap far above all scores, which bends them by less than a rounding. */
static int distant_cap(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    problem_copy(&changed, &p);
    changed.params.softcap = 1e6f;
    return close_and_free(&p, &changed, &changed, 0);
}

/** Scores far beyond the cap are all +-cap: what is left are signs, which a power of two between the scales keeps. */
static int hard_cap(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_CAUSAL | WITH_LENGTHS);
    problem_copy(&changed, &p);
    p.params.softcap = changed.params.softcap = 0.5f;
    p.params.scale = 0x1p66f;
    changed.params.scale = 0x1p83f;
    return same_and_free(&p, &changed);
}

static int no_sinks(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    problem_copy(&changed, &p);
    float *sinks = per_head(&p, rng, 0);
    for (int64_t h = 0; h < p.q.shape[1]; h++)
        sinks[h] = -INFINITY;
    changed.params.sinks = sinks;
    const int holds = same_and_free(&p, &changed);
    free(sinks);
    return holds;
}

/** A copy of t with one more token of zeros, before all others. */
static attn_tensor with_zero_token(const attn_tensor *t)
{
    attn_tensor r = attn_bhtd(NULL, t->shape[0], t->shape[1], t->shape[2] + 1, t->shape[3]);
    const size_t size = attn_dtype_size(t->dtype), old = (size_t)(t->shape[2] * t->shape[3]) * size;
    r.dtype = t->dtype;
    r.data = must_allocate(problem_count(&r), size);
    for (int64_t bh = 0; bh < t->shape[0] * t->shape[1]; bh++)
        memcpy((char *)r.data + (size_t)(bh * r.stride[1] + t->shape[3]) * size,
               (const char *)t->data + (size_t)bh * old, old);
    free(t->data);
    return r;
}

/** A sink is a key whose score is the sink and whose value is 0. */
static int sink_is_a_key(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_MASK);
    float *sinks = per_head(&p, rng, 3);
    problem_copy(&changed, &p);
    const int64_t tk = p.k.shape[2], rows = p.q.shape[0] * p.q.shape[1] * p.q.shape[2];
    float *mask = own_mask(&changed), *wide = must_allocate(rows * (tk + 1), sizeof *wide);
    for (int64_t row = 0; row < rows; row++) {
        wide[row * (tk + 1)] = sinks[row / p.q.shape[2] % p.q.shape[1]];
        memcpy(wide + row * (tk + 1) + 1, mask + row * tk, (size_t)tk * sizeof *mask);
    }
    free(mask);
    changed.mask = attn_bhtd(wide, p.q.shape[0], p.q.shape[1], p.q.shape[2], tk + 1);
    changed.k = with_zero_token(&changed.k);
    changed.v = with_zero_token(&changed.v);
    p.params.sinks = sinks;
    const int holds = close_and_free(&p, &changed, &changed, 0);
    free(sinks);
    return holds;
}

static double position_biases(const struct problem *p, const struct oracle_query *query, int64_t j)
{
    const double slope = p->params.alibi_slopes ? (double)p->params.alibi_slopes[query->h] : 0;
    return (double)oracle_relative_bias(&p->params, query, j) - slope * fabs((double)oracle_distance(query, j));
}

/** ALiBi, a table by distance, or both, as a mask. */
static int biases_are_masks(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    if (p.params.causal == ATTN_CAUSAL_NONE && rng_percent(rng, 50))
        p.params.query_offset = p.query_offset;
    const int which = (int)rng_range(rng, 1, 3);
    attn_relative_bias bias = {.kind = (attn_buckets)rng_range(rng, 0, 2), .max_distance = rng_range(rng, 17, 200)};
    bias.buckets = bias.kind == ATTN_BUCKETS_CLIPPED ? 2 * bias.max_distance + 1 : 32;
    float *table = must_allocate(p.q.shape[1] * bias.buckets, sizeof *table), *slopes = per_head(&p, rng, 0.2f);
    rng_fill_normal(rng, table, p.q.shape[1] * bias.buckets);
    bias.table = table;
    p.params.alibi_slopes = which & 1 ? slopes : NULL;
    p.params.relative_bias = which & 2 ? &bias : NULL;
    copy_with_mask(&changed, &p, position_biases);
    changed.params.alibi_slopes = NULL;
    changed.params.relative_bias = NULL;
    if (changed.params.causal == ATTN_CAUSAL_NONE)
        changed.params.query_offset = NULL;
    const int holds = close_and_free(&p, &changed, &p, 0);
    free(table);
    free(slopes);
    return holds;
}

static double position_products(const struct problem *p, const struct oracle_query *query, int64_t j)
{
    const attn_disentangled *d = p->params.disentangled;
    const int64_t group = p->q.shape[1] / p->k.shape[1], distance = oracle_distance(query, j);
    double sum = 0;
    for (int64_t c = 0; c < p->q.shape[3]; c++) {
        if (d->rel_k)
            sum += (double)tensor_get(&p->q, query->b, query->h, query->token, c) *
                   (double)tensor_get(d->rel_k, 0, query->h, oracle_content_row(d->span, distance), c);
        if (d->rel_q)
            sum += (double)tensor_get(&p->k, query->b, query->h / group, j, c) *
                   (double)tensor_get(d->rel_q, 0, query->h, oracle_position_row(d, distance), c);
    }
    return oracle_scale(&p->params, p->q.shape[3]) * sum;
}

static attn_tensor normal_rows(struct rng *rng, int64_t b, int64_t h, int64_t rows, int64_t channels)
{
    float *data = must_allocate(b * h * rows * channels, sizeof *data);
    rng_fill_normal(rng, data, b * h * rows * channels);
    return attn_bhtd(data, b, h, rows, channels);
}

static int disentangled_is_a_mask(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    widen_queries(&p);
    const int64_t heads = p.q.shape[1], dk = p.q.shape[3];
    const int which = (int)rng_range(rng, 1, 3);
    attn_disentangled d = {.span = RNG_PICK(rng, 1, 3, 16, 64)};
    attn_tensor rel_k = normal_rows(rng, 1, rng_percent(rng, 50) ? heads : 1, 2 * d.span, dk);
    attn_tensor rel_q = normal_rows(rng, 1, rng_percent(rng, 50) ? heads : 1, 2 * d.span, dk);
    d.rel_k = which & 1 ? &rel_k : NULL;
    d.rel_q = which & 2 ? &rel_q : NULL;
    d.delta = which & 2 ? (attn_delta)rng_range(rng, 0, 1) : ATTN_DELTA_QUERY_KEY;
    p.params.disentangled = &d;
    copy_with_mask(&changed, &p, position_products);
    changed.params.disentangled = NULL;
    const int holds = close_and_free(&p, &changed, &p, 0);
    free(rel_k.data);
    free(rel_q.data);
    return holds;
}

/** Turns all tokens by the angles of one position. */
static attn_tensor same_rows(int64_t tokens, int64_t pairs, double position)
{
    float *data = must_allocate(tokens * 2 * pairs, sizeof *data);
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t c = 0; c < pairs; c++) {
            data[i * 2 * pairs + c] = (float)cos(position / (double)(c + 1));
            data[i * 2 * pairs + pairs + c] = (float)sin(position / (double)(c + 1));
        }
    return attn_bhtd(data, 1, 1, tokens, 2 * pairs);
}

/** The same turn for queries and keys: nothing has changed. */
static int turned_together(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    while (p.q.shape[3] < 2) {
        problem_free(&p);
        problem_random(&p, rng, isa, WITH_ALL);
    }
    widen_queries(&p);
    problem_copy(&changed, &p);
    const int64_t pairs = rng_range(rng, 1, p.q.shape[3] / 2);
    const double position = rng_percent(rng, 30) ? 0 : (double)rng_range(rng, -500, 500);
    attn_tensor q = same_rows(p.q.shape[2], pairs, position), k = same_rows(p.k.shape[2], pairs, position);
    attn_rope_tables rope = {(attn_rope_layout)rng_range(rng, 0, 1), &q, &k};
    changed.params.rope = &rope;
    const int holds = close_and_free(&p, &changed, &changed, 0);
    free(q.data);
    free(k.data);
    return holds;
}

static void do_nothing(const attn_score_tile *tile, void *user)
{
    (void)tile;
    (void)user;
}

static void add_mask(const attn_score_tile *tile, void *user)
{
    const attn_tensor *mask = user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++)
            tile->scores[j * tile->key_stride + i] +=
                tensor_get(mask, tile->batch, tile->head, tile->first_query + i, tile->first_key + j);
}

/** A callback that adds a mask, -Inf included; and, when there is none, one that does nothing. */
static int callback_is_a_mask(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    problem_copy(&changed, &p);
    changed.params.callback = do_nothing;
    if (p.mask.data && p.mask.dtype != ATTN_BOOL) {
        changed.params.mask = NULL;
        changed.params.callback = add_mask;
        changed.params.callback_user = &changed.mask;
    }
    return close_and_free(&p, &changed, &changed, 0);
}

static void keep_weights(const attn_weight_tile *tile, void *user)
{
    (void)tile;
    (void)user;
}

/** A callback of weights that leaves them as they are. */
static int callback_keeps_weights(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    problem_copy(&changed, &p);
    changed.params.weight_callback = keep_weights;
    return close_and_free(&p, &changed, &p, 0);
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"a factor per head is a scale", scale_of_a_head},
        {"a cap that is far away", distant_cap},
        {"scores beyond the cap", hard_cap},
        {"sinks of -Inf", no_sinks},
        {"a sink is a key without value", sink_is_a_key},
        {"biases by position are masks", biases_are_masks},
        {"disentangled terms are a mask", disentangled_is_a_mask},
        {"queries and keys turned together", turned_together},
        {"a callback that is a mask", callback_is_a_mask},
        {"a callback that keeps weights", callback_keeps_weights},
    };
    return properties_run(argc, argv, "test_terms", properties, sizeof properties / sizeof *properties);
}
