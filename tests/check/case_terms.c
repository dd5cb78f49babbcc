/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of random cases that change scores and weights: factors, caps, sinks,
 * biases by position, rotations, callbacks, dropout.
 */
#include "case_draw.h"

#include "dtype.h"
#include "oracle.h"

#include <math.h>
#include <string.h>

/** An array with a number for each query head. */
static float *place_per_head(struct test_case *c, enum case_slot slot, struct rng *rng)
{
    return CASE_PLACE(c, slot, float, c->q.shape[1], rng);
}

static void draw_per_head(struct test_case *c, struct rng *rng)
{
    const int64_t heads = c->q.shape[1];
    if (case_has(c, FORM_HEAD_SCALE)) {
        float *scale = place_per_head(c, SLOT_HEAD_SCALE, rng);
        for (int64_t h = 0; h < heads; h++)
            scale[h] = rng_percent(rng, 80) ? (float)(2 * rng_uniform(rng)) : (float)RNG_PICK(rng, 0, 1, -1, 10);
        c->params.head_scale = scale;
    }
    if (case_has(c, FORM_SINKS)) {
        static const float rare[] = {-INFINITY, -INFINITY, 0, 1e4f, -1e4f, 1e30f, -1e30f, 1e-30f};
        float *sinks = place_per_head(c, SLOT_SINKS, rng);
        for (int64_t h = 0; h < heads; h++)
            sinks[h] = rng_percent(rng, 70) ? 3 * rng_normal(rng) : rare[rng_range(rng, 0, 7)];
        /* Above equal scores a sink would make their weights a number that does not add up exactly: see coarsen(). */
        for (int64_t h = 0; h < heads && c->values == VALUES_CONSTANT; h++)
            sinks[h] = rng_percent(rng, 50) ? -INFINITY : -1e4f;
        c->params.sinks = sinks;
    }
    if (case_has(c, FORM_ALIBI)) {
        float *slopes = place_per_head(c, SLOT_ALIBI_SLOPES, rng);
        for (int64_t h = 0; h < heads; h++)
            slopes[h] = rng_percent(rng, 80) ? (float)ldexp(1 + rng_uniform(rng), -(int)rng_range(rng, 1, 9))
                                             : (float)RNG_PICK(rng, 0, 1, -1, 30) * 0.3f;
        c->params.alibi_slopes = slopes;
    }
}

static void draw_softcap(struct test_case *c, struct rng *rng)
{
    static const float caps[] = {1e-3f, 0.5f, 1, 5, 20, 30, 50, 50, 1e3f, 1e6f, 1e-40f, 1e30f, 2.3586e38f};
    c->params.softcap = caps[rng_range(rng, 0, 12)];
}

static void draw_relative_bias(struct test_case *c, struct rng *rng)
{
    attn_relative_bias *bias = &c->relative_bias;
    const int64_t heads = c->q.shape[1];
    const float size = (float)RNG_PICK(rng, 0, 1, 1, 1, 10);
    bias->kind = (attn_buckets)rng_range(rng, 0, 2);
    if (bias->kind == ATTN_BUCKETS_CLIPPED) {
        bias->max_distance = RNG_PICK(rng, 1, 2, 3, 8, 16, 40, 128, 300);
        bias->buckets = 2 * bias->max_distance + 1;
    } else {
        const int64_t sides = bias->kind == ATTN_BUCKETS_T5 ? 1 : 2;
        const int64_t side = rng_percent(rng, 50) ? RNG_PICK(rng, 2, 3, 16, 32) : rng_range(rng, 2, 40);
        bias->buckets = sides * side;
        bias->max_distance = side / 2 + RNG_PICK(rng, 1, 1, 2, 10, 112, 128, 1000000, 1LL << 40);
    }
    float *table = CASE_PLACE(c, SLOT_BIAS_TABLE, float, bias->buckets *heads, rng);
    for (int64_t i = 0; i < heads * bias->buckets; i++) {
        table[i] = size * rng_normal(rng);
        if (c->values == VALUES_CONSTANT) /* equal weights that do not add up exactly, as with sinks */
            table[i] = table[i] > 0 ? 0 : -1e4f;
    }
    bias->table = table;
    c->params.relative_bias = bias;
}

static void draw_disentangled(struct test_case *c, struct rng *rng)
{
    const int64_t dk = c->q.shape[3], heads = rng_percent(rng, 50) ? c->q.shape[1] : 1;
    const int64_t span = rng_percent(rng, 70) ? rng_range(rng, 1, 12) : RNG_PICK(rng, 1, 2, 16, 32, 64, 100);
    const int which = (int)RNG_PICK(rng, 1, 2, 3, 3);
    c->disentangled = (attn_disentangled){.span = span};
    c->rel_k = tensor_of_shape(ATTN_F32, 1, heads, 2 * span, dk);
    c->rel_q = tensor_of_shape(ATTN_F32, 1, rng_percent(rng, 80) ? heads : 1, 2 * span, dk);
    if (which & 1) {
        case_place_tensor(c, SLOT_REL_K, &c->rel_k, MAY_BROADCAST, rng);
        c->disentangled.rel_k = &c->rel_k;
    }
    if (which & 2) {
        case_place_tensor(c, SLOT_REL_Q, &c->rel_q, MAY_BROADCAST, rng);
        c->disentangled.rel_q = &c->rel_q;
        c->disentangled.delta = (attn_delta)rng_range(rng, 0, 1);
    }
    c->params.disentangled = &c->disentangled;
}

static void draw_rope(struct test_case *c, struct rng *rng)
{
    const int64_t dk = c->q.shape[3];
    if (dk < 2) {
        c->forms &= ~(1u << FORM_ROPE);
        return;
    }
    const int64_t width = 2 * (rng_percent(rng, 60) ? dk / 2 : rng_range(rng, 1, dk / 2));
    const int axes = (int)rng_range(rng, 0, 3);
    c->rope_q = tensor_of_shape(ATTN_F32, axes & 1 ? c->q.shape[0] : 1, rng_percent(rng, 20) ? c->q.shape[1] : 1,
                                c->q.shape[2], width);
    c->rope_k = tensor_of_shape(ATTN_F32, axes & 2 ? c->k.shape[0] : 1, rng_percent(rng, 20) ? c->k.shape[1] : 1,
                                c->k.shape[2], width);
    case_place_tensor(c, SLOT_ROPE_Q, &c->rope_q, MAY_BROADCAST, rng);
    case_place_tensor(c, SLOT_ROPE_K, &c->rope_k, MAY_BROADCAST, rng);
    c->rope = (attn_rope_tables){(attn_rope_layout)rng_range(rng, 0, 1), &c->rope_q, &c->rope_k};
    c->params.rope = &c->rope;
}

static void draw_dropout(struct test_case *c, struct rng *rng)
{
    static const float probabilities[] = {0, 0.1f, 0.1f, 0.3f, 0.5f, 0.5f, 0.9f, 1e-9f};
    c->dropout = (attn_dropout){.p = probabilities[rng_range(rng, 0, 7)],
                                .seed = rng_percent(rng, 30) ? 0 : rng_bits(rng),
                                .offset = rng_percent(rng, 30) ? (uint64_t)rng_range(rng, 0, 9) : rng_bits(rng)};
    c->params.dropout = &c->dropout;
}

static void draw_callback(struct test_case *c, struct rng *rng)
{
    c->callback = (struct case_callback){.kind = (enum case_callback_kind)rng_range(rng, 0, CALLBACK_KINDS - 1),
                                         .seed = rng_bits(rng),
                                         .size = (float)RNG_PICK(rng, 1, 1, 10),
                                         .test_case = c};
    c->params.callback = case_callback;
    c->params.callback_user = &c->callback;
}

static void draw_weight_callback(struct test_case *c, struct rng *rng)
{
    c->weight_callback = (struct case_weight_callback){
        .kind = (enum case_weight_kind)rng_range(rng, 0, WEIGHT_KINDS - 1), .seed = rng_bits(rng), .test_case = c};
    c->params.weight_callback = case_weight_callback;
    c->params.weight_callback_user = &c->weight_callback;
}

void case_draw_terms(struct test_case *c, struct rng *rng)
{
    draw_per_head(c, rng);
    if (case_has(c, FORM_SOFTCAP))
        draw_softcap(c, rng);
    if (case_has(c, FORM_RELATIVE_BIAS))
        draw_relative_bias(c, rng);
    if (case_has(c, FORM_DISENTANGLED))
        draw_disentangled(c, rng);
    if (case_has(c, FORM_ROPE))
        draw_rope(c, rng);
    if (case_has(c, FORM_DROPOUT))
        draw_dropout(c, rng);
    if (case_has(c, FORM_CALLBACK))
        draw_callback(c, rng);
    if (case_has(c, FORM_WEIGHT_CALLBACK))
        draw_weight_callback(c, rng);
}

/** A number in [-1, 1) that follows from the seed and indices alone. */
static float function_of_indices(uint64_t seed, int64_t batch, int64_t head, int64_t i, int64_t j)
{
    struct rng rng = {seed + (uint64_t)batch * 0x9e3779b97f4a7c15u + (uint64_t)head * 0xd1342543de82ef95u +
                      (uint64_t)i * 0xaef17502108ef2d9u + (uint64_t)j * 0xf1357aea2e62a9c5u};
    return (float)(2 * rng_uniform(&rng) - 1);
}

/** Whether a tile lies inside the problem, and what is hidden is at one number. */
static int tile_is_right(const struct test_case *c, const attn_score_tile *tile, float hidden)
{
    if (tile->batch < 0 || tile->batch >= case_sequences(c) || tile->head < 0 || tile->head >= c->q.shape[1] ||
        tile->num_queries < 1 || tile->first_query < 0 ||
        tile->first_query + tile->num_queries > case_queries(c, tile->batch) || tile->num_keys < 1 ||
        tile->first_key < 0 || tile->first_key + tile->num_keys > case_keys(c, tile->batch) ||
        (tile->num_keys > 1 && tile->key_stride < tile->num_queries))
        return 0;
    const int64_t first = c->params.ragged ? c->ragged.cu_seqlens_q[tile->batch] : 0;
    for (int64_t i = 0; i < tile->num_queries; i++) {
        const struct oracle_query query =
            oracle_query_at(&c->params, c->q.shape[2], c->k.shape[2], c->params.ragged ? 0 : tile->batch, tile->head,
                            first + tile->first_query + i);
        for (int64_t j = 0; j < tile->num_keys; j++)
            if (!oracle_sees(&c->params, &query, tile->first_key + j) &&
                tile->scores[j * tile->key_stride + i] != hidden)
                return 0;
    }
    return 1;
}

void case_callback(const attn_score_tile *tile, void *user)
{
    struct case_callback *callback = user;
    if (callback->watching && !tile_is_right(callback->test_case, tile, -INFINITY))
        __atomic_store_n(&callback->wrong, 1, __ATOMIC_RELAXED);
    for (int64_t j = 0; j < tile->num_keys; j++) {
        for (int64_t i = 0; i < tile->num_queries; i++) {
            float *score = &tile->scores[j * tile->key_stride + i];
            const float x = function_of_indices(callback->seed, tile->batch, tile->head, tile->first_query + i,
                                                tile->first_key + j);
            switch (callback->kind) {
            case CALLBACK_ADD:
                *score += callback->size * x;
                break;
            case CALLBACK_HALVE:
                *score = 0.5f * *score + callback->size * x;
                break;
            case CALLBACK_HIDE:
                *score = x < -0.5f ? -INFINITY : *score;
                break;
            case CALLBACK_OVERWRITE:
                *score = callback->size * x;
                break;
            case CALLBACK_BEND:
                *score = isinf(*score) ? 0 : *score / (1 + fabsf(*score));
                break;
            default:
                break;
            }
        }
    }
}

void case_callback_partner(const attn_score_gradient_tile *tile, void *user)
{
    struct case_callback *callback = user;
    const attn_score_tile same = {tile->batch,     tile->head,     tile->first_query, tile->num_queries,
                                  tile->first_key, tile->num_keys, tile->key_stride,  (float *)(uintptr_t)tile->scores};
    if (callback->watching && !tile_is_right(callback->test_case, &same, -INFINITY))
        __atomic_store_n(&callback->wrong, 1, __ATOMIC_RELAXED);
    const int hides = callback->test_case->values == VALUES_NORMAL; /* else there are other scores of -inf */
    for (int64_t j = 0; j < tile->num_keys; j++) {
        for (int64_t i = 0; i < tile->num_queries; i++) {
            const int64_t at = j * tile->key_stride + i;
            float *gradient = &tile->gradients[at];
            switch (callback->kind) {
            case CALLBACK_HALVE:
                *gradient *= 0.5f;
                break;
            case CALLBACK_OVERWRITE: /* hidden ones, too, of which nothing may be seen */
                *gradient = hides && tile->scores[at] == -INFINITY ? 1 : 0 * *gradient;
                break;
            case CALLBACK_BEND: {
                const float slope = 1 / (1 + fabsf(tile->scores[at]));
                *gradient *= slope * slope;
                break;
            }
            default:
                break;
            }
        }
    }
}

void case_weight_callback(const attn_weight_tile *tile, void *user)
{
    struct case_weight_callback *callback = user;
    const attn_score_tile same = {tile->batch,     tile->head,     tile->first_query, tile->num_queries,
                                  tile->first_key, tile->num_keys, tile->key_stride,  tile->weights};
    if (callback->watching && !tile_is_right(callback->test_case, &same, 0))
        __atomic_store_n(&callback->wrong, 1, __ATOMIC_RELAXED);
    for (int64_t j = 0; j < tile->num_keys; j++) {
        for (int64_t i = 0; i < tile->num_queries; i++) {
            float *weight = &tile->weights[j * tile->key_stride + i];
            const float x = function_of_indices(callback->seed, tile->batch, tile->head, tile->first_query + i,
                                                tile->first_key + j);
            switch (callback->kind) {
            case WEIGHT_CLEAR:
                *weight = x < -0.5f ? 0 : *weight;
                break;
            case WEIGHT_STEER:
                *weight = 0.5f * *weight + 0.1f * x;
                break;
            case WEIGHT_OVERWRITE: /* hidden ones, too, of which nothing may be seen */
                *weight = x;
                break;
            default:
                break;
            }
        }
    }
}

/** Rows of cosines and sines: positions in sequence, as a cache has them, or anywhere. */
static void fill_rope(const attn_tensor *table, struct rng *rng)
{
    const int64_t pairs = table->shape[3] / 2;
    const int in_order = rng_percent(rng, 60);
    const double base = (double)RNG_PICK(rng, 100, 10000, 500000);
    double frequency[256];
    for (int64_t c = 0; c < pairs; c++)
        frequency[c] = pow(base, -(double)c / (double)pairs);
    for (int64_t b = 0; b < table->shape[0]; b++)
        for (int64_t h = 0; h < table->shape[1]; h++) {
            const int64_t first = rng_range(rng, -5, 1000);
            for (int64_t i = 0; i < table->shape[2]; i++) {
                const double position = (double)(in_order ? first + i : rng_range(rng, -1000, 100000));
                for (int64_t c = 0; c < pairs; c++) {
                    tensor_set(table, b, h, i, c, (float)cos(position * frequency[c]));
                    tensor_set(table, b, h, i, pairs + c, (float)sin(position * frequency[c]));
                }
            }
        }
}

static void fill_normal(const attn_tensor *t, float size, struct rng *rng)
{
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++)
                    tensor_set(t, b, h, i, c, size * rng_normal(rng));
}

void case_fill_terms(struct test_case *c, struct rng *rng)
{
    for (int slot = SLOT_REL_K; slot <= SLOT_ROPE_K; slot++)
        if (c->guard[slot].used)
            memset(c->guard[slot].data, 0xff, c->guard[slot].used); /* a NaN in every gap */
    if (c->params.disentangled && c->disentangled.rel_k)
        fill_normal(&c->rel_k, (float)RNG_PICK(rng, 0, 1, 1, 1, 5), rng);
    if (c->params.disentangled && c->disentangled.rel_q)
        fill_normal(&c->rel_q, (float)RNG_PICK(rng, 0, 1, 1, 1, 5), rng);
    if (c->params.rope) {
        fill_rope(&c->rope_q, rng);
        fill_rope(&c->rope_k, rng);
    }
}
