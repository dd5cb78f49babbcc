/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes, layouts and options of random cases.
 *
 * Sizes are drawn around the library's tiles (vector widths 4, 8, 16; strips
 * of 16, 24, 48 queries; blocks of 64 to 256 keys), one less and one more
 * included, and a draw is repeated until its cost is below a budget that is
 * itself random over three orders of magnitude: most cases are small, so that
 * many combinations are seen, and a few are large. Strides are drawn for any
 * order of the axes, with gaps, reversed and, for inputs, broadcast. Types are
 * drawn from a generator of their own, so that a case has the same shapes and
 * options whatever its types are.
 */
#include "case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t guard_capacity[SLOTS] = {
    [SLOT_Q] = 64u << 20,        [SLOT_K] = 64u << 20,   [SLOT_V] = 64u << 20,       [SLOT_MASK] = 64u << 20,
    [SLOT_KV_LEN] = 4096,        [SLOT_KV_START] = 4096, [SLOT_QUERY_OFFSET] = 4096, [SLOT_WEIGHT_ROWS] = 4096,
    [SLOT_OUT] = 64u << 20,      [SLOT_LSE] = 64u << 20, [SLOT_WEIGHTS] = 64u << 20, [SLOT_KEY_SUMS] = 64u << 20,
    [SLOT_WORKSPACE] = 64u << 20};

void case_initialize(struct test_case *c)
{
    memset(c, 0, sizeof *c);
    for (int slot = 0; slot < SLOTS; slot++)
        c->guard[slot] = guard_create(guard_capacity[slot]);
}

void case_release(struct test_case *c)
{
    for (int slot = 0; slot < SLOTS; slot++)
        guard_destroy(&c->guard[slot]);
    for (int slot = 0; slot < SLOT_FIRST_OUTPUT; slot++)
        free(c->snapshot[slot]);
}

static void *place(struct test_case *c, enum case_slot slot, size_t bytes, struct rng *rng)
{
    void *data = guard_place(&c->guard[slot], bytes, rng_percent(rng, 60));
    if (!data) {
        fprintf(stderr, "a case wants %zu bytes between guard pages; at most %zu are mapped\n", bytes,
                guard_capacity[slot]);
        exit(1);
    }
    return data;
}

/** Which liberties a tensor's strides take. */
enum { FREE_CHANNELS = 1, MAY_BROADCAST = 2 };

/** Strides for t's shape, and memory for it in a slot. Returns elements between its first and last, both included. */
static void place_tensor(struct test_case *c, enum case_slot slot, attn_tensor *t, int liberties, struct rng *rng)
{
    int order[4] = {3, 2, 1, 0}; /* from the innermost axis */
    const int first_free = liberties & FREE_CHANNELS ? 0 : 1;
    const int style = (int)rng_range(rng, 0, 9);
    if (style >= 7) { /* any order */
        for (int i = 3; i > first_free; i--) {
            const int j = (int)rng_range(rng, first_free, i), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
    } else if (style >= 4) { /* batch, token, head, channel */
        order[1] = 1;
        order[2] = 2;
    }
    const int gaps = rng_percent(rng, 40), reversed = rng_percent(rng, 15);
    const int broadcast = liberties & MAY_BROADCAST && rng_percent(rng, 10);
    int64_t running = 1, lowest = 0, highest = 0;
    int empty = 0;
    for (int i = 0; i < 4; i++) {
        const int axis = order[i];
        const int fixed = axis == 3 && !(liberties & FREE_CHANNELS);
        int64_t stride = running;
        if (gaps && !fixed)
            stride += rng_range(rng, 0, 9);
        if (broadcast && !fixed && rng_percent(rng, 40))
            stride = 0;
        else
            running = stride * (t->shape[axis] > 0 ? t->shape[axis] : 1);
        if (reversed && !fixed && rng_percent(rng, 50))
            stride = -stride;
        const int64_t reach = (t->shape[axis] - 1) * stride;
        lowest += reach < 0 ? reach : 0;
        highest += reach > 0 ? reach : 0;
        empty |= t->shape[axis] == 0;
        /* The stride of an axis with one element or none means nothing. */
        t->stride[axis] = t->shape[axis] <= 1 && rng_percent(rng, 20) ? RNG_PICK(rng, 0, -3, 1000003) : stride;
    }
    const size_t element = attn_dtype_size(t->dtype);
    if (empty) {
        unsigned char *nothing = place(c, slot, 0, rng);
        t->data = rng_percent(rng, 50) ? nothing : NULL;
        return;
    }
    unsigned char *base = place(c, slot, (size_t)(highest - lowest + 1) * element, rng);
    t->data = base - lowest * (ptrdiff_t)element;
}

/** q, k and v as a projection leaves them: [batch][token][q heads, k heads, v heads][channel]. */
static void place_packed(struct test_case *c, struct rng *rng)
{
    attn_tensor *const tensors[3] = {&c->q, &c->k, &c->v};
    const int64_t d = c->q.shape[3], tokens = c->q.shape[2];
    const int64_t row = (c->q.shape[1] + 2 * c->k.shape[1]) * d, size = (int64_t)attn_dtype_size(c->q.dtype);
    char *data = place(c, SLOT_Q, (size_t)(c->q.shape[0] * tokens * row * size), rng);
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

static attn_tensor tensor_of_shape(attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    return (attn_tensor){.dtype = dtype, .shape = {b, h, t, c}};
}

static attn_dtype any_float(struct rng *rng)
{
    return (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16);
}

/** The types of a case. Sets that multiply pairs of bf16 get nothing else: what else there is runs other kernels. */
static struct case_types draw_types(struct rng *rng, attn_isa isa)
{
    const int pairs = isa == ATTN_ISA_AVX512_BF16 || isa == ATTN_ISA_NEON_BF16, kind = (int)rng_range(rng, 0, 99);
    const attn_dtype one = pairs ? ATTN_BF16 : kind < 50 ? ATTN_F32 : kind < 70 ? ATTN_BF16 : ATTN_F16;
    struct case_types types = {one, one, one, one, one};
    if (!pairs && kind >= 90)
        types = (struct case_types){any_float(rng), any_float(rng), any_float(rng), any_float(rng), any_float(rng)};
    if (one != ATTN_F32 && rng_percent(rng, 30))
        types.out = any_float(rng);
    if (one != ATTN_F32 && rng_percent(rng, 50))
        types.mask = any_float(rng);
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

static void draw_shapes(struct test_case *c, const struct case_types *types, struct rng *rng)
{
    const double budget = pow(10, 3.5 + 3 * rng_uniform(rng));
    for (;;) {
        const int64_t batch = RNG_PICK(rng, 1, 1, 1, 2, 2, 3, 5), kv_heads = RNG_PICK(rng, 1, 1, 1, 2, 3);
        const int64_t group = RNG_PICK(rng, 1, 1, 1, 2, 3, 4, 8);
        const int64_t tk = draw_length(rng, 1), dk = draw_head_size(rng);
        const int64_t tq = rng_percent(rng, 30) ? tk : draw_length(rng, 0);
        const int64_t dv = rng_percent(rng, 60) ? dk : draw_head_size(rng);
        const int64_t cost = batch * kv_heads * group * ((tq + 1) * (tk + 1) * (dk + dv + 8));
        if ((double)cost > budget)
            continue;
        const int empty_batch = rng_percent(rng, 1);
        c->q = tensor_of_shape(types->q, empty_batch ? 0 : batch, kv_heads * group, tq, dk);
        c->k = tensor_of_shape(types->k, c->q.shape[0], kv_heads, tk, dk);
        c->v = tensor_of_shape(types->v, c->q.shape[0], kv_heads, tk, dv);
        c->out = tensor_of_shape(types->out, c->q.shape[0], kv_heads * group, tq, dv);
        return;
    }
}

static void draw_visibility(struct test_case *c, attn_dtype additive, struct rng *rng)
{
    attn_params *p = &c->params;
    const int64_t batch = c->q.shape[0], tq = c->q.shape[2], tk = c->k.shape[2];
    int64_t *kv_len = place(c, SLOT_KV_LEN, (size_t)batch * sizeof *kv_len, rng);
    int64_t *kv_start = place(c, SLOT_KV_START, (size_t)batch * sizeof *kv_start, rng);
    int64_t *offset = place(c, SLOT_QUERY_OFFSET, (size_t)batch * sizeof *offset, rng);
    for (int64_t b = 0; b < batch; b++) {
        kv_len[b] = rng_percent(rng, 20) ? tk : rng_range(rng, rng_percent(rng, 90) ? (tk + 1) / 2 : 0, tk);
        kv_start[b] = rng_range(rng, 0, rng_percent(rng, 90) ? kv_len[b] / 2 : kv_len[b]);
        offset[b] = rng_percent(rng, 90) ? rng_range(rng, rng_percent(rng, 80) ? -tq / 4 : -tq - 2, tk + 2)
                                         : RNG_PICK(rng, INT64_MIN, -(1LL << 33), 1LL << 33, INT64_MAX / 2, INT64_MAX);
    }
    if (rng_percent(rng, 30))
        p->kv_len = kv_len;
    if (rng_percent(rng, 20)) {
        p->kv_start = kv_start;
        for (int64_t b = 0; b < batch && !p->kv_len; b++)
            kv_start[b] = rng_range(rng, 0, rng_percent(rng, 90) ? tk / 2 : tk);
    }
    p->causal = (attn_causal)(rng_percent(rng, 50) ? 0 : rng_range(rng, 1, 3));
    if (p->causal == ATTN_CAUSAL_OFFSET)
        p->query_offset = offset;
    if (rng_percent(rng, 40)) {
        const int axes = (int)rng_range(rng, 0, 15); /* each of the 16 broadcasts */
        c->mask = tensor_of_shape(rng_percent(rng, 50) ? ATTN_BOOL : additive, axes & 1 ? batch : 1,
                                  axes & 2 ? c->q.shape[1] : 1, axes & 4 ? tq : 1, axes & 8 ? tk : 1);
        place_tensor(c, SLOT_MASK, &c->mask, FREE_CHANNELS | MAY_BROADCAST, rng);
        p->mask = &c->mask;
    }
}

static void draw_outputs(struct test_case *c, struct rng *rng)
{
    attn_params *p = &c->params;
    const int64_t batch = c->q.shape[0], heads = c->q.shape[1], tq = c->q.shape[2], tk = c->k.shape[2];
    place_tensor(c, SLOT_OUT, &c->out, 0, rng);
    if (rng_percent(rng, 50)) {
        c->lse = tensor_of_shape(ATTN_F32, batch, heads, tq, 1);
        place_tensor(c, SLOT_LSE, &c->lse, FREE_CHANNELS, rng);
        p->lse = &c->lse;
    }
    if (rng_percent(rng, 30)) {
        int64_t rows = tq;
        if (tq > 0 && rng_percent(rng, 50)) {
            rows = rng_range(rng, 1, tq < CASE_MAX_ROWS ? tq + 1 : CASE_MAX_ROWS);
            int64_t *list = place(c, SLOT_WEIGHT_ROWS, (size_t)rows * sizeof *list, rng);
            for (int64_t i = 0; i < rows; i++)
                list[i] = rng_range(rng, 0, tq - 1);
            p->weight_rows = list;
            p->num_weight_rows = rows;
        }
        c->weights = tensor_of_shape(ATTN_F32, batch, heads, rows, tk);
        place_tensor(c, SLOT_WEIGHTS, &c->weights, FREE_CHANNELS, rng);
        p->weights = &c->weights;
    }
    if (rng_percent(rng, 25)) {
        c->key_sums = tensor_of_shape(ATTN_F32, batch, heads, 1, tk);
        place_tensor(c, SLOT_KEY_SUMS, &c->key_sums, FREE_CHANNELS, rng);
        p->key_sums = &c->key_sums;
    }
}

static void remember_inputs(struct test_case *c)
{
    for (int slot = 0; slot < SLOT_FIRST_OUTPUT; slot++) {
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

void case_generate(struct test_case *c, uint64_t seed, uint64_t index, attn_isa isa)
{
    struct rng generator = rng_for_case(seed, index), *rng = &generator;
    struct rng for_types = rng_for_case(seed + 1, index);
    const struct case_types types = draw_types(&for_types, isa);
    for (int slot = 0; slot < SLOTS; slot++)
        guard_place(&c->guard[slot], 0, 1);
    c->params = attn_params_default();
    c->params.isa = isa;
    c->params.exp = rng_percent(rng, 35) ? ATTN_EXP_FAST : ATTN_EXP_SLEEF;
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
        place_tensor(c, SLOT_Q, &c->q, MAY_BROADCAST, rng);
        place_tensor(c, SLOT_K, &c->k, MAY_BROADCAST, rng);
        place_tensor(c, SLOT_V, &c->v, MAY_BROADCAST, rng);
    }
    draw_visibility(c, types.mask, rng);
    draw_outputs(c, rng);
    case_fill(c, rng);
    remember_inputs(c);
}
