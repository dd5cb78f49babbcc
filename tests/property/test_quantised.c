/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A quantised k and v have the bits of the f32 tensors that they stand for: an
 * element is its number times the scale of its token and head, or of its group of
 * 32 channels, rounded once.
 * Nothing else may tell the two calls apart, whatever the other options are,
 * in prefill as in decoding.
 */
#include "dtype.h"
#include "properties.h"

#include "attn/quantise.h"
#include "attn/rope.h"
#include "test_isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** K or V in 8 or 4 bits with its scales, and in f32. */
struct stored {
    attn_tensor small, scale, wide;
    int64_t gap; /**< floats from the scales of a row to those of the next one */
};

/** Number c of a row. */
static float number_of(attn_dtype dtype, const uint8_t *row, int64_t c)
{
    return dtype == ATTN_I4 ? dtype_i4_at(row, c) : dtype == ATTN_I8 ? (float)(int8_t)row[c] : dtype_of_f8(row[c]);
}

static attn_dtype any_type(struct rng *rng)
{
    return (attn_dtype[]){ATTN_I8, ATTN_F8_E4M3, ATTN_I4}[rng_range(rng, 0, 2)];
}

/** The tensor without data, its rows side by side. */
static attn_tensor in_type(const attn_tensor *t, attn_dtype dtype)
{
    const int64_t d = t->shape[3], width = dtype == ATTN_I4 ? (d + 31) / 32 * 32 : d;
    attn_tensor small = attn_bhtd(NULL, t->shape[0], t->shape[1], t->shape[2], width);
    small.dtype = dtype;
    small.shape[3] = d;
    return small;
}

static float any_scale(struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 99);
    return kind < 90 ? fabsf(rng_normal(rng)) / 64.0f : kind < 94 ? 0.0f : kind < 97 ? 1e-41f : 2.0f;
}

/** Replaces what a tensor of a problem holds. Scales are there for each batch element and head, or shared. */
static struct stored draw_stored(struct rng *rng, const attn_tensor *t)
{
    struct stored x = {.small = in_type(t, any_type(rng))};
    const int64_t batch = rng_percent(rng, 70) ? t->shape[0] : 1, heads = rng_percent(rng, 70) ? t->shape[1] : 1;
    const int64_t tokens = t->shape[2], d = t->shape[3];
    const int groups = x.small.dtype == ATTN_I4;
    const int64_t each = groups ? (d + 31) / 32 : 1, rows = t->shape[0] * t->shape[1] * tokens;
    const int64_t width = (int64_t)attn_row_size(x.small.dtype, d);
    x.gap = each + rng_range(rng, 0, 2);
    uint8_t *bytes = must_allocate(rows * width, 1);
    float *scales = must_allocate(batch * heads * tokens * x.gap, sizeof(float));
    float *wide = must_allocate(problem_count(t), sizeof(float));
    for (int64_t i = 0; i < batch * heads * tokens * x.gap; i++)
        scales[i] = i % x.gap >= each ? NAN : groups && rng_percent(rng, 50) ? -any_scale(rng) : any_scale(rng);
    x.scale = attn_bhtd(scales, batch, heads, tokens, each);
    x.scale.stride[2] = x.gap;
    x.scale.stride[1] = tokens * x.gap;
    x.scale.stride[0] = heads * tokens * x.gap;
    for (int64_t i = 0; i < rows * width; i++)
        do
            bytes[i] = (uint8_t)rng_bits(rng);
        while ((bytes[i] & 0x7f) == 0x7f && x.small.dtype == ATTN_F8_E4M3);
    for (int64_t i = 0; i < problem_count(t); i++) {
        const int64_t row = i / d, head = row / tokens % t->shape[1], b = row / tokens / t->shape[1], c = i % d;
        wide[i] = number_of(x.small.dtype, bytes + row * width, c) *
                  scales[tensor_offset(&x.scale, b, head, row % tokens, groups ? c / 32 : 0)];
    }
    x.small.data = bytes;
    x.wide = attn_bhtd(wide, t->shape[0], t->shape[1], tokens, d);
    return x;
}

static void free_stored(struct stored *x)
{
    free(x->small.data);
    free(x->scale.data);
    free(x->wide.data);
}

/** What stands in padding means nothing: neither the numbers nor the scales. Needs scales of each batch element. */
static void spoil_padding(const struct problem *p, struct stored *x)
{
    float *scales = x->scale.data;
    for (int64_t b = 0; p->params.kv_len && x->scale.shape[0] == p->q.shape[0] && b < p->q.shape[0]; b++)
        for (int64_t h = 0; h < x->scale.shape[1]; h++)
            for (int64_t j = 0; j < x->scale.shape[2]; j++)
                for (int64_t g = 0; g < x->scale.shape[3]; g++)
                    if (j >= p->kv_len[b] || (p->params.kv_start && j < p->kv_start[b]))
                        scales[tensor_offset(&x->scale, b, h, j, g)] = j % 2 ? NAN : -1.0f;
}

/** Options that a problem does not have by itself, and what they point to. */
struct more {
    float sinks[16], slopes[16], *angles;
    attn_window window;
    attn_dropout dropout;
    attn_tensor table_q, table_k;
    attn_rope_tables rope;
};

static void add_options(struct rng *rng, struct more *more, struct problem *p)
{
    memset(more, 0, sizeof *more);
    for (int i = 0; i < 16; i++) {
        more->sinks[i] = rng_normal(rng);
        more->slopes[i] = 0.1f * (float)i;
    }
    if (rng_percent(rng, 20))
        p->params.softcap = 3.0f;
    if (rng_percent(rng, 20))
        p->params.sinks = more->sinks;
    if (rng_percent(rng, 20))
        p->params.alibi_slopes = more->slopes;
    if (rng_percent(rng, 20)) {
        more->window = (attn_window){.left = rng_range(rng, 0, 40), .right = rng_range(rng, 0, 9), .first_tokens = 3};
        p->params.window = &more->window;
    }
    if (rng_percent(rng, 10)) {
        more->dropout = (attn_dropout){.p = 0.25f, .seed = 7};
        p->params.dropout = &more->dropout;
    }
    const int64_t d = p->q.shape[3], tq = p->q.shape[2], tk = p->k.shape[2], most = tq > tk ? tq : tk;
    if (d < 2 || rng_percent(rng, 80))
        return;
    attn_rope_config config = attn_rope_config_default();
    config.pairs = rng_range(rng, 1, d / 2);
    more->angles = must_allocate(most * 2 * config.pairs, sizeof(float));
    must_succeed(attn_rope_table(&config, NULL, most, more->angles), "attn_rope_table");
    more->table_q = attn_bhtd(more->angles, 1, 1, tq, 2 * config.pairs);
    more->table_k = attn_bhtd(more->angles, 1, 1, tk, 2 * config.pairs);
    more->rope = (attn_rope_tables){(attn_rope_layout)rng_range(rng, 0, 1), &more->table_q, &more->table_k};
    p->params.rope = &more->rope;
}

/** As in decoding: few queries, of which those that are left out stay in memory. */
static void keep_few_queries(struct rng *rng, struct problem *p)
{
    const int64_t most = rng_percent(rng, 50) ? 1 : 9;
    p->q.shape[2] = p->q.shape[2] < most ? p->q.shape[2] : most;
    if (p->mask.data)
        p->mask.shape[2] = p->q.shape[2];
}

/** Runs a problem with the stored k and v, or with what they stand for. */
static struct result run(const struct problem *p, const struct stored *k, const struct stored *v, int small)
{
    struct problem asked = *p;
    problem_bind(&asked, p->params.kv_len != NULL, p->params.kv_start != NULL, p->params.query_offset != NULL);
    if (k) {
        asked.k = small ? k->small : k->wide;
        asked.params.k_scale = small ? &k->scale : NULL;
    }
    if (v) {
        asked.v = small ? v->small : v->wide;
        asked.params.v_scale = small ? &v->scale : NULL;
    }
    return problem_run(&asked);
}

static int holds_for(struct rng *rng, struct problem *p)
{
    struct more more;
    if (rng_percent(rng, 50))
        keep_few_queries(rng, p);
    add_options(rng, &more, p);
    const int which = (int)rng_range(rng, 1, 3);
    struct stored k = draw_stored(rng, &p->k), v = draw_stored(rng, &p->v);
    struct result expected = run(p, which & 1 ? &k : NULL, which & 2 ? &v : NULL, 0);
    spoil_padding(p, &k);
    spoil_padding(p, &v);
    struct result r = run(p, which & 1 ? &k : NULL, which & 2 ? &v : NULL, 1);
    const int same = results_equal(&expected, &r);
    result_free(&r);
    result_free(&expected);
    free_stored(&k);
    free_stored(&v);
    free(more.angles);
    problem_free(p);
    return same;
}

static int as_given(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    return holds_for(rng, &p);
}

static int rounded(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    p.params.inputs = ATTN_INPUTS_MAY_BE_BF16;
    return holds_for(rng, &p);
}

/** Where there are int8 dot products. */
static int with_int8_scores(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    attn_tensor out = attn_bhtd(NULL, p.q.shape[0], p.q.shape[1], p.q.shape[2], p.v.shape[3]);
    attn_plan *plan = NULL;
    out.dtype = p.out;
    p.params.qk = ATTN_QK_INT8;
    const attn_status status = attn_plan_create(&plan, &p.q, &p.k, &p.v, &out, &p.params);
    attn_plan_destroy(plan);
    if (status == ATTN_UNSUPPORTED) {
        problem_free(&p);
        return 1;
    }
    return holds_for(rng, &p);
}

/** What the library has quantised itself is near what it was, by half a step of each row or group. */
static int round_trip(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, 0);
    const int64_t n = problem_count(&p.k), rows = n / p.k.shape[3], d = p.k.shape[3];
    const attn_dtype dtype = any_type(rng);
    const int64_t each = dtype == ATTN_I4 ? (d + 31) / 32 : 1, width = (int64_t)attn_row_size(dtype, d);
    uint8_t *bytes = must_allocate(rows * width, 1);
    float *scales = must_allocate(rows * each, sizeof(float));
    attn_tensor small = in_type(&p.k, dtype);
    const attn_tensor scale = attn_bhtd(scales, p.k.shape[0], p.k.shape[1], p.k.shape[2], each);
    small.data = bytes;
    must_succeed(attn_quantise(&p.k, &small, &scale, 1), "attn_quantise");
    int holds = 1;
    for (int64_t i = 0; i < n; i++) {
        const float x = dtype_load(p.k.dtype, p.k.data, i);
        const float of_row = scales[i / d * each + (dtype == ATTN_I4 ? i % d / 32 : 0)], of_size = fabsf(of_row);
        const float got = number_of(dtype, bytes + i / d * width, i % d) * of_row;
        /* Half a step of integers; of E4M3 half of 2^-3 of the number, or of its smallest step. */
        const float step = dtype != ATTN_F8_E4M3 ? 0.5f : fmaxf(fabsf(x) / of_size / 16.0f, 0x1p-10f);
        holds &= fabsf(got - x) <= step * of_size * 1.0001f;
    }
    free(bytes);
    free(scales);
    problem_free(&p);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"as given", as_given},
        {"inputs that may be bf16", rounded},
        {"int8 scores", with_int8_scores},
        {"round trip", round_trip},
    };
    return properties_run(argc, argv, "test_quantised", properties, sizeof properties / sizeof *properties);
}
