/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes, layouts and options of random cases.
 *
 * Sizes are drawn around the library's tiles (vector widths 4, 8, 16; strips
 * of 16, 24, 48 queries; blocks of 64 to 256 keys), one less and one more
 * included, and a draw is repeated until its cost is below a budget that is
 * itself random over three orders of magnitude: most cases are small, so that
 * many combinations are seen, and a few are large. Types are drawn
 * from a generator of their own, so that a case has the same shapes and options
 * whatever its types are; so are the options of case_forms.c and case_terms.c.
 */
#include "case_draw.h"
#include "test_isa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASE_MAX_SEQUENCES 9

void case_initialize(struct test_case *c)
{
    memset(c, 0, sizeof *c);
    for (int slot = 0; slot < SLOTS; slot++)
        c->guard[slot] = guard_create(case_capacity((enum case_slot)slot));
}

void case_release(struct test_case *c)
{
    for (int slot = 0; slot < SLOTS; slot++)
        guard_destroy(&c->guard[slot]);
    for (int slot = 0; slot < SLOTS; slot++)
        free(c->snapshot[slot]);
}

/** q, k and v as a projection leaves them: [batch][token][q heads, k heads, v heads][channel]. */
static void place_packed(struct test_case *c, struct rng *rng)
{
    attn_tensor *const tensors[3] = {&c->q, &c->k, &c->v};
    const int64_t d = c->q.shape[3], tokens = c->q.shape[2];
    const int64_t row = (c->q.shape[1] + 2 * c->k.shape[1]) * d, size = (int64_t)attn_dtype_size(c->q.dtype);
    char *data = case_place(c, SLOT_Q, (size_t)(c->q.shape[0] * tokens * row * size), rng);
    guard_place(&c->guard[SLOT_K], 0, 1);
    guard_place(&c->guard[SLOT_V], 0, 1);
    for (int i = 0; i < 3; i++) {
        tensors[i]->data = data;
        tensors[i]->stride[0] = tokens * row;
        tensors[i]->stride[1] = d;
        tensors[i]->stride[2] = row;
        tensors[i]->stride[3] = 1;
        data += tensors[i]->shape[1] * d * size;
    }
}

attn_dtype case_any_float(struct rng *rng)
{
    return (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16);
}

/** The types of a case. Sets that multiply pairs of bf16 get nothing else, or keys and values in 4 bits, which f32
 * stands for: what else there is runs other kernels. */
static struct case_types draw_types(struct rng *rng, const char *isa, int backward)
{
    const int pairs = test_isa_has_pairs(isa), kind = (int)rng_range(rng, 0, 99);
    const attn_dtype one = pairs ? ATTN_BF16 : kind < 50 ? ATTN_F32 : kind < 70 ? ATTN_BF16 : ATTN_F16;
    struct case_types types = {one, one, one, one, one};
    if (pairs && !backward && kind >= 85)
        types.k = types.v = ATTN_F32;
    if (!pairs && kind >= 90)
        types = (struct case_types){case_any_float(rng), case_any_float(rng), case_any_float(rng), case_any_float(rng),
                                    case_any_float(rng)};
    if (one != ATTN_F32 && rng_percent(rng, 30))
        types.out = case_any_float(rng);
    if (one != ATTN_F32 && rng_percent(rng, 50))
        types.mask = case_any_float(rng);
    return types;
}

static int64_t draw_length(struct rng *rng, int keys)
{
    const int kind = (int)rng_range(rng, 0, 9);
    if (kind == 0)
        return RNG_PICK(rng, 0, 0, 1, 1, 2);
    if (kind <= 3)
        return rng_range(rng, 1, 20);
    if (kind <= 7)
        return RNG_PICK(rng, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49);
    if (keys)
        return RNG_PICK(rng, 63, 64, 65, 95, 96, 97, 127, 128, 129, 130, 191, 192, 193, 255, 256, 257, 300, 385);
    return RNG_PICK(rng, 63, 64, 65, 71, 72, 73, 95, 96, 97, 143, 144, 145, 191, 192, 193, 240, 257);
}

static int64_t draw_head_size(struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 19);
    if (kind == 0)
        return RNG_PICK(rng, 0, 257, 384, 511, 512);
    if (kind <= 8)
        return rng_range(rng, 1, 24);
    if (kind <= 15)
        return RNG_PICK(rng, 8, 16, 17, 31, 32, 33, 47, 48, 59, 63, 64, 65, 80, 96, 111, 127, 128, 129);
    return rng_range(rng, 1, 256);
}

/** Lengths of the sequences of one draw: alike, or each its own in a ragged batch. */
struct lengths {
    int64_t num, queries[CASE_MAX_SEQUENCES], keys[CASE_MAX_SEQUENCES];
};

static struct lengths draw_lengths(const struct test_case *c, int long_rows, struct rng *rng)
{
    struct lengths l = {.num = RNG_PICK(rng, 1, 1, 1, 2, 2, 3, 5)};
    l.keys[0] = draw_length(rng, 1);
    l.queries[0] = rng_percent(rng, 30) ? l.keys[0] : draw_length(rng, 0);
    if (case_has(c, FORM_RAGGED)) {
        l.num = RNG_PICK(rng, 0, 1, 2, 2, 3, 3, 4, 6, CASE_MAX_SEQUENCES);
        for (int64_t s = 0; s < l.num; s++) {
            const int kind = (int)rng_range(rng, 0, 14); /* a sequence may lack queries, or keys, or both */
            l.keys[s] = kind <= 1 ? 0 : draw_length(rng, 1);
            l.queries[s] = kind == 1 || kind == 2 ? 0 : rng_percent(rng, 40) ? l.keys[s] : draw_length(rng, 0);
        }
    }
    if (long_rows) /* around splits of 4096 */
        l.keys[0] = RNG_PICK(rng, 4095, 4096, 4097, 4100, 4225, 5000, 8192, 8193, 8500);
    return l;
}

static void draw_shapes(struct test_case *c, const struct case_types *types, struct rng *rng)
{
    const int long_rows = rng_percent(rng, 2);
    const double budget = pow(10, (long_rows ? 5.9 : 3.5) + (long_rows ? 0.6 : 3) * rng_uniform(rng));
    const int64_t products = case_has(c, FORM_DISENTANGLED) ? 4 : case_has(c, FORM_ROPE) ? 2 : 1;
    for (;;) {
        const struct lengths l = draw_lengths(c, long_rows, rng);
        const int64_t kv_heads = RNG_PICK(rng, 1, 1, 1, 2, 3), group = RNG_PICK(rng, 1, 1, 1, 2, 3, 4, 8);
        const int64_t dk = draw_head_size(rng), dv = rng_percent(rng, 60) ? dk : draw_head_size(rng);
        const int64_t heads = kv_heads * group;
        const int ragged = case_has(c, FORM_RAGGED);
        int64_t cost = 0, tq = 0, tk = 0;
        for (int64_t s = 0; s < l.num; s++) {
            tq += l.queries[ragged ? s : 0];
            tk += l.keys[ragged ? s : 0];
            cost += heads * (l.queries[ragged ? s : 0] + 1) * (l.keys[ragged ? s : 0] + 1) * (products * dk + dv + 8);
        }
        if (ragged) /* rows of weights hold the keys of all sequences */
            cost += heads * tq * tk * 16;
        if ((double)cost > budget)
            continue;
        const int64_t batch = ragged ? 1 : rng_percent(rng, 1) ? 0 : l.num;
        c->q = tensor_of_shape(types->q, batch, heads, ragged ? tq : l.queries[0], dk);
        c->k = tensor_of_shape(types->k, batch, kv_heads, ragged ? tk : l.keys[0], dk);
        c->v = tensor_of_shape(types->v, batch, kv_heads, c->k.shape[2], dv);
        if (ragged)
            case_draw_ragged(c, l.num, l.queries, l.keys, rng);
        for (int64_t i = 0; i < case_sequences(c); i++)
            if (case_keys(c, i) == 0) /* of which a tree has no use */
                c->forms &= ~(1u << FORM_TREE);
        c->out = tensor_of_shape(types->out, batch, heads, c->q.shape[2], dv);
        return;
    }
}

/** An offset of any size; where a distance is multiplied, not beyond what f32 tells apart from its neighbours. */
static int64_t draw_offset(const struct test_case *c, int64_t queries, int64_t keys, struct rng *rng)
{
    if (rng_percent(rng, 90))
        return rng_range(rng, rng_percent(rng, 80) ? -queries / 4 : -queries - 2, keys + 2);
    if (case_has(c, FORM_ALIBI))
        return RNG_PICK(rng, -(1LL << 33), -100000, 100000, 1LL << 33);
    return RNG_PICK(rng, INT64_MIN, -(1LL << 33), 1LL << 33, INT64_MAX / 2, INT64_MAX);
}

static void draw_visibility(struct test_case *c, attn_dtype additive, struct rng *rng)
{
    attn_params *p = &c->params;
    const int64_t sequences = case_sequences(c), tq = c->q.shape[2], tk = c->k.shape[2];
    int64_t *kv_len = CASE_PLACE(c, SLOT_KV_LEN, int64_t, sequences, rng);
    int64_t *kv_start = CASE_PLACE(c, SLOT_KV_START, int64_t, sequences, rng);
    int64_t *offset = CASE_PLACE(c, SLOT_QUERY_OFFSET, int64_t, sequences, rng);
    const int64_t least = case_has(c, FORM_TREE); /* live keys that there must be */
    if (rng_percent(rng, 30))
        p->kv_len = kv_len;
    if (rng_percent(rng, 20))
        p->kv_start = kv_start;
    for (int64_t s = 0; s < sequences; s++) {
        const int64_t keys = case_keys(c, s);
        kv_len[s] = rng_percent(rng, 20) ? keys : rng_range(rng, rng_percent(rng, 90) ? (keys + 1) / 2 : least, keys);
        const int64_t end = p->kv_len ? kv_len[s] : keys;
        kv_start[s] = rng_range(rng, 0, rng_percent(rng, 90) ? end / 2 : end - least);
        offset[s] = draw_offset(c, case_queries(c, s), keys, rng);
    }
    p->causal = (attn_causal)(rng_percent(rng, 50) ? 0 : rng_range(rng, 1, 3));
    if (case_has(c, FORM_PREFIX_LEN) && rng_percent(rng, 80)) /* which means nothing without causality */
        p->causal = (attn_causal)rng_range(rng, 1, 3);
    if (case_has(c, FORM_QUERY_OFFSET))
        p->causal = ATTN_CAUSAL_NONE;
    if (p->causal == ATTN_CAUSAL_OFFSET || case_has(c, FORM_QUERY_OFFSET))
        p->query_offset = offset;
    if (rng_percent(rng, 40)) {
        const int axes = (int)rng_range(rng, 0, 15); /* each of the 16 broadcasts */
        c->mask = tensor_of_shape(rng_percent(rng, 50) ? ATTN_BOOL : additive, axes & 1 ? c->q.shape[0] : 1,
                                  axes & 2 ? c->q.shape[1] : 1, axes & 4 ? tq : 1, axes & 8 ? tk : 1);
        if (axes & 8 && tk > 0 && rng_percent(rng, 25)) /* of one key it is broadcast */
            c->mask.shape[3] = rng_range(rng, 0, tk - 1);
        c->short_mask = c->mask.shape[3] != 1 && c->mask.shape[3] < tk;
        case_place_tensor(c, SLOT_MASK, &c->mask, FREE_CHANNELS | MAY_BROADCAST, rng);
        p->mask = &c->mask;
    }
}

/** Queries in any order, some of them twice, for weights and scores. Returns how many. */
static int64_t draw_rows(struct test_case *c, struct rng *rng)
{
    const int64_t tq = c->q.shape[2], rows = rng_range(rng, 1, tq < CASE_MAX_ROWS ? tq + 1 : CASE_MAX_ROWS);
    int64_t *list = CASE_PLACE(c, SLOT_WEIGHT_ROWS, int64_t, rows, rng);
    for (int64_t i = 0; i < rows; i++)
        list[i] = rng_range(rng, 0, tq - 1);
    c->params.weight_rows = list;
    c->params.num_weight_rows = rows;
    return rows;
}

/** After the other outputs, whose rows it shares. */
static void draw_scores(struct test_case *c, struct rng *rng)
{
    attn_params *p = &c->params;
    const int64_t tq = c->q.shape[2];
    if (!rng_percent(rng, 30))
        return;
    int64_t rows = p->weight_rows ? p->num_weight_rows : tq;
    if (!p->weights && tq > 0 && rng_percent(rng, 30))
        rows = draw_rows(c, rng);
    c->scores = tensor_of_shape(ATTN_F32, c->q.shape[0], c->q.shape[1], rows, c->k.shape[2]);
    case_place_tensor(c, SLOT_SCORES, &c->scores, FREE_CHANNELS, rng);
    p->scores = &c->scores;
    p->score_stage = (attn_score_stage)rng_range(rng, 0, 3);
}

static void draw_outputs(struct test_case *c, struct rng *rng)
{
    attn_params *p = &c->params;
    const int64_t batch = c->q.shape[0], heads = c->q.shape[1], tq = c->q.shape[2], tk = c->k.shape[2];
    case_place_tensor(c, SLOT_OUT, &c->out, 0, rng);
    if (rng_percent(rng, 50)) {
        c->lse = tensor_of_shape(ATTN_F32, batch, heads, tq, 1);
        case_place_tensor(c, SLOT_LSE, &c->lse, FREE_CHANNELS, rng);
        p->lse = &c->lse;
    }
    if (rng_percent(rng, 30)) {
        int64_t rows = tq;
        if (tq > 0 && rng_percent(rng, 50))
            rows = draw_rows(c, rng);
        c->weights = tensor_of_shape(ATTN_F32, batch, heads, rows, tk);
        case_place_tensor(c, SLOT_WEIGHTS, &c->weights, FREE_CHANNELS, rng);
        p->weights = &c->weights;
    }
    if (rng_percent(rng, 25)) {
        c->key_sums = tensor_of_shape(ATTN_F32, batch, heads, 1, tk);
        case_place_tensor(c, SLOT_KEY_SUMS, &c->key_sums, FREE_CHANNELS, rng);
        p->key_sums = &c->key_sums;
    }
}

void case_remember_inputs(struct test_case *c)
{
    for (int slot = 0; slot < SLOTS && case_reads(c, slot); slot++) {
        const struct guard *g = &c->guard[slot];
        if (g->used > c->snapshot_capacity[slot]) {
            free(c->snapshot[slot]);
            c->snapshot_capacity[slot] = 2 * g->used;
            c->snapshot[slot] = malloc(c->snapshot_capacity[slot]);
            if (!c->snapshot[slot]) {
                fprintf(stderr, "no memory for %zu bytes of inputs\n", c->snapshot_capacity[slot]);
                exit(1);
            }
        }
        if (g->used)
            memcpy(c->snapshot[slot], g->data, g->used);
    }
}

void case_generate(struct test_case *c, uint64_t seed, uint64_t index, const char *isa)
{
    struct rng generator = rng_for_case(seed, index), *rng = &generator;
    struct rng for_types = rng_for_case(seed + 1, index), for_forms = rng_for_case(seed + 2, index);
    struct rng for_scores = rng_for_case(seed + 3, index), for_pages = rng_for_case(seed + 4, index);
    struct rng for_sums = rng_for_case(seed + 5, index), for_stored = rng_for_case(seed + 6, index);
    const struct case_types types = draw_types(&for_types, isa, c->backward);
    for (int slot = 0; slot < SLOTS; slot++)
        guard_place(&c->guard[slot], 0, 1);
    c->params = attn_params_default();
    c->params.isa = isa;
    if (rng_percent(&for_sums, types.q == ATTN_BF16 && types.k == ATTN_F32 ? 80 : 30))
        c->params.sums = ATTN_SUMS_FREE;
    c->short_mask = 0;
    c->callback = (struct case_callback){.kind = CALLBACK_NOTHING};
    c->weight_callback = (struct case_weight_callback){.kind = WEIGHT_NOTHING};
    c->forms = case_draw_forms(&for_forms);
    if (c->backward)
        c->forms &= ~(1u << FORM_WEIGHT_CALLBACK);
    c->params.num_threads = rng_percent(rng, 80) ? 1 : (int)rng_range(rng, 2, 3);
    c->entry = (enum case_entry)(rng_percent(rng, 60) ? ENTRY_FORWARD : rng_range(rng, 0, ENTRIES - 1));
    c->values = (enum case_values)(rng_percent(rng, 60) ? VALUES_NORMAL : rng_range(rng, 0, VALUES_KINDS - 1));
    if (rng_percent(rng, 30))
        c->params.scale = (float)((rng_uniform(rng) - 0.3) * 2);
    if (rng_percent(rng, 20))
        c->params.temperature = (float)(0.1 + 3 * rng_uniform(rng));
    draw_shapes(c, &types, rng);
    c->packed = c->q.shape[2] == c->k.shape[2] && c->q.shape[3] == c->v.shape[3] &&
                c->q.shape[0] * c->q.shape[1] * c->q.shape[2] * c->q.shape[3] > 0 && rng_percent(rng, 30) &&
                types.q == types.k && types.q == types.v;
    if (c->packed) {
        place_packed(c, rng);
    } else {
        case_place_tensor(c, SLOT_Q, &c->q, MAY_BROADCAST, rng);
        case_place_tensor(c, SLOT_K, &c->k, MAY_BROADCAST, rng);
        case_place_tensor(c, SLOT_V, &c->v, MAY_BROADCAST, rng);
    }
    draw_visibility(c, types.mask, rng);
    case_draw_hiding(c, &for_forms);
    case_draw_terms(c, &for_forms);
    draw_outputs(c, rng);
    draw_scores(c, &for_scores);
    case_fill_terms(c, &for_forms);
    case_fill(c, rng);
    if (c->backward) /* which remembers them later */
        return;
    case_draw_pages(c, &for_pages);
    case_draw_stored(c, &for_stored);
    case_remember_inputs(c);
}
