/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes, layouts and options of random cases of linear attention.
 *
 * Lengths are drawn around the chunk of 64 tokens, one and two less and more
 * included; a draw is repeated until its cost is below a budget that is itself
 * random over three orders of magnitude, so that most cases are small and a few are
 * large.
 */
#include "linear_case.h"

#include "dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SEQUENCES = 5, CAPACITY = 64 << 20 };

void linear_case_initialize(struct linear_case *c)
{
    memset(c, 0, sizeof *c);
    for (int slot = 0; slot < LINEAR_SLOTS; slot++)
        c->guard[slot] = guard_create(CAPACITY);
}

void linear_case_release(struct linear_case *c)
{
    for (int slot = 0; slot < LINEAR_SLOTS; slot++) {
        guard_destroy(&c->guard[slot]);
        free(c->snapshot[slot]);
    }
    free(c->state_memory);
}

static attn_dtype any_float(struct rng *rng)
{
    return (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16);
}

/** Half of the cases are f32 throughout, some have a type for each tensor. */
static void draw_types(struct linear_case *c, struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 99);
    const attn_dtype one = kind < 50 ? ATTN_F32 : kind < 70 ? ATTN_BF16 : ATTN_F16;
    attn_tensor *const tensors[] = {&c->q, &c->k, &c->v, &c->out, &c->decay, &c->beta};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tensors[i]->dtype = kind >= 85 ? any_float(rng) : one;
    if (kind >= 50 && rng_percent(rng, 30)) /* as models have them */
        c->decay.dtype = c->beta.dtype = ATTN_F32;
}

static int64_t draw_length(struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 19);
    if (kind <= 1)
        return RNG_PICK(rng, 0, 1, 1);
    if (kind <= 6)
        return rng_range(rng, 2, 9);
    if (kind <= 10)
        return rng_range(rng, 63, 66);
    if (kind <= 13)
        return rng_range(rng, 127, 130);
    return rng_range(rng, 0, 300);
}

static int64_t draw_head_size(struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 49);
    if (kind == 0)
        return RNG_PICK(rng, 0, 255, 256, 256, 257);
    if (kind <= 14)
        return rng_range(rng, 1, 24);
    if (kind <= 24)
        return 16 * rng_range(rng, 1, 10);
    if (kind <= 34)
        return RNG_PICK(rng, 64, 64, 128);
    if (kind <= 44)
        return 2 * rng_range(rng, 0, 79) + 1;
    return rng_range(rng, 1, 160);
}

/** A number that divides n. */
static int64_t draw_divisor(int64_t n, struct rng *rng)
{
    int64_t divisor = rng_range(rng, 1, n);
    while (n % divisor != 0)
        divisor--;
    return divisor;
}

/** Lengths of the sequences of one draw: alike, or each its own in a ragged batch. */
struct lengths {
    int64_t num, tokens[MAX_SEQUENCES];
};

static void place_ragged(struct linear_case *c, const struct lengths *lengths, struct rng *rng)
{
    int64_t *offsets =
        place_bytes(&c->guard[LINEAR_SLOT_CU_SEQLENS], (size_t)(lengths->num + 1) * sizeof *offsets, rng);
    offsets[0] = 0;
    for (int64_t s = 0; s < lengths->num; s++)
        offsets[s + 1] = offsets[s] + lengths->tokens[s];
    c->params.cu_seqlens = offsets;
    c->params.num_sequences = lengths->num;
}

/** Tokens of each batch element, behind which nothing is read. */
static void place_lengths(struct linear_case *c, struct rng *rng)
{
    const int64_t batch = c->v.shape[0], tokens = c->v.shape[2];
    int64_t *lengths = place_bytes(&c->guard[LINEAR_SLOT_LENGTHS], (size_t)batch * sizeof *lengths, rng);
    c->tokens = 0;
    for (int64_t b = 0; b < batch; b++) {
        lengths[b] = rng_percent(rng, 20) ? tokens : rng_range(rng, 0, tokens);
        c->tokens = lengths[b] > c->tokens ? lengths[b] : c->tokens;
    }
    c->params.lengths = lengths;
}

static void shape_tensor(attn_tensor *t, int64_t b, int64_t h, int64_t i, int64_t n)
{
    *t = tensor_of_shape(t->dtype, b, h, i, n);
}

static void draw_shapes(struct linear_case *c, struct rng *rng)
{
    const int large = rng_percent(rng, 2), ragged = rng_percent(rng, 20);
    const double budget = pow(10, large ? 6.2 + 0.9 * rng_uniform(rng) : 2.7 + 3.9 * rng_uniform(rng));
    for (;;) {
        struct lengths lengths = {.num = ragged ? rng_range(rng, 0, MAX_SEQUENCES) : RNG_PICK(rng, 1, 1, 1, 2, 2, 3)};
        const int64_t heads = RNG_PICK(rng, 1, 1, 2, 2, 3, 4, 6), kind = rng_range(rng, 0, 3);
        const int64_t queries = kind <= 1 ? heads : kind == 2 ? heads * rng_range(rng, 2, 4) : draw_divisor(heads, rng);
        const int64_t keys = rng_percent(rng, 60) ? heads : draw_divisor(heads, rng);
        const int64_t dk = draw_head_size(rng), dv = rng_percent(rng, 40) ? dk : draw_head_size(rng);
        const int64_t behind = ragged && rng_percent(rng, 50) ? rng_range(rng, 1, 9) : 0;
        int64_t all = 0, longest = 0;
        for (int64_t s = 0; s < lengths.num; s++) {
            lengths.tokens[s] = s == 0 || ragged ? draw_length(rng) : lengths.tokens[0];
            all += lengths.tokens[s];
            longest = lengths.tokens[s] > longest ? lengths.tokens[s] : longest;
        }
        const int64_t readers = queries > heads ? queries : heads;
        if ((double)(all * (3 * heads + readers) * (dk + 1) * (dv + 1)) > 4 * budget)
            continue;
        if (ragged && longest == 0 && !rng_percent(rng, 30))
            continue;
        const int64_t batch = ragged ? 1 : lengths.num == 1 && rng_percent(rng, 1) ? 0 : lengths.num;
        const int64_t tokens = ragged ? all + behind : lengths.tokens[0];
        shape_tensor(&c->q, batch, queries, tokens, dk);
        shape_tensor(&c->k, batch, keys, tokens, dk);
        shape_tensor(&c->v, batch, heads, tokens, dv);
        shape_tensor(&c->out, batch, readers, tokens, dv);
        c->tokens = longest;
        if (ragged)
            place_ragged(c, &lengths, rng);
        else if (rng_percent(rng, 15))
            place_lengths(c, rng);
        return;
    }
}

/** q, k and v as a projection leaves them: [batch][token][q heads, k heads, v heads][channel]. */
static void place_packed(struct linear_case *c, struct rng *rng)
{
    attn_tensor *const tensors[3] = {&c->q, &c->k, &c->v};
    const int64_t d = c->q.shape[3], tokens = c->q.shape[2];
    const int64_t row = (c->q.shape[1] + c->k.shape[1] + c->v.shape[1]) * d;
    const int64_t size = (int64_t)attn_dtype_size(c->q.dtype);
    char *data = place_bytes(&c->guard[LINEAR_SLOT_Q], (size_t)(c->q.shape[0] * tokens * row * size), rng);
    for (int i = 0; i < 3; i++) {
        const int64_t strides[4] = {tokens * row, d, row, 1};
        tensors[i]->data = data;
        memcpy(tensors[i]->stride, strides, sizeof strides);
        data += tensors[i]->shape[1] * d * size;
    }
}

static void place_operands(struct linear_case *c, struct rng *rng)
{
    c->packed = c->q.shape[3] == c->v.shape[3] && c->q.shape[0] * c->q.shape[2] * c->q.shape[3] > 0 &&
                c->q.dtype == c->k.dtype && c->q.dtype == c->v.dtype && rng_percent(rng, 30);
    if (c->packed) {
        place_packed(c, rng);
    } else {
        place_tensor(&c->guard[LINEAR_SLOT_Q], &c->q, MAY_BROADCAST, rng);
        place_tensor(&c->guard[LINEAR_SLOT_K], &c->k, MAY_BROADCAST, rng);
        place_tensor(&c->guard[LINEAR_SLOT_V], &c->v, MAY_BROADCAST, rng);
    }
    place_tensor(&c->guard[LINEAR_SLOT_OUT], &c->out, 0, rng);
}

/** A number for each token and head, or fewer by axes of the length 1. */
static void place_numbers(struct linear_case *c, enum linear_slot slot, attn_tensor *t, int64_t channels,
                          struct rng *rng)
{
    const int64_t *n = c->v.shape;
    shape_tensor(t, rng_percent(rng, 15) ? 1 : n[0], rng_percent(rng, 15) ? 1 : n[1], rng_percent(rng, 10) ? 1 : n[2],
                 channels);
    place_tensor(&c->guard[slot], t, FREE_CHANNELS | MAY_BROADCAST, rng);
}

static void draw_rule(struct linear_case *c, struct rng *rng)
{
    const int rule = (int)rng_range(rng, 0, 3);
    c->decays = DECAY_NONE;
    if (rule & 1) {
        c->decays = (enum linear_decays)(rng_percent(rng, 40) ? DECAY_ORDINARY : rng_range(rng, 1, DECAYS - 1));
        place_numbers(c, LINEAR_SLOT_DECAY, &c->decay, rng_percent(rng, 50) ? 1 : c->k.shape[3], rng);
        c->params.decay = &c->decay;
    }
    if (rule & 2) {
        place_numbers(c, LINEAR_SLOT_BETA, &c->beta, 1, rng);
        c->params.beta = &c->beta;
    }
}

static void draw_states(struct linear_case *c, struct rng *rng)
{
    const int64_t sequences = c->params.cu_seqlens ? c->params.num_sequences : c->v.shape[0];
    const int kind = (int)rng_range(rng, 0, 9);
    c->state_in = c->state_out = tensor_of_shape(ATTN_F32, sequences, c->v.shape[1], c->k.shape[3], c->v.shape[3]);
    c->in_place = kind >= 7;
    if (kind >= 2) {
        place_tensor(&c->guard[LINEAR_SLOT_STATE_OUT], &c->state_out, 0, rng);
        c->params.state_out = &c->state_out;
    }
    if (c->in_place) {
        c->state_in = c->state_out;
        c->params.state_in = rng_percent(rng, 50) ? &c->state_out : &c->state_in;
    } else if (kind <= 4) {
        place_tensor(&c->guard[LINEAR_SLOT_STATE_IN], &c->state_in, MAY_BROADCAST, rng);
        c->params.state_in = &c->state_in;
    }
}

static void draw_options(struct linear_case *c, struct rng *rng)
{
    if (rng_percent(rng, 30))
        c->params.scale = (float)((rng_uniform(rng) - 0.3) * 2);
    if (rng_percent(rng, 20)) {
        const int64_t *n = c->v.shape;
        c->resets =
            tensor_of_shape(ATTN_BOOL, rng_percent(rng, 30) ? 1 : n[0], rng_percent(rng, 50) ? 1 : n[1], n[2], 1);
        place_tensor(&c->guard[LINEAR_SLOT_RESETS], &c->resets, FREE_CHANNELS | MAY_BROADCAST, rng);
        c->params.resets = &c->resets;
    }
    c->params.num_threads = rng_percent(rng, 70) ? 1 : (int)rng_range(rng, 2, 4);
    c->entry = (enum linear_entry)(rng_percent(rng, 40) ? LINEAR_CALL : rng_range(rng, 0, LINEAR_ENTRIES - 1));
    c->nth = (int)rng_range(rng, 1, 4);
}

static void remember(struct linear_case *c)
{
    for (int slot = 0; slot < LINEAR_SLOT_OUT; slot++) {
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
    const int64_t *n = c->state_in.shape, count = n[0] * n[1] * n[2] * n[3];
    free(c->state_memory);
    c->state_memory = malloc((size_t)(count + 1) * sizeof(float));
    if (!c->state_memory) {
        fprintf(stderr, "no memory for %lld numbers of states\n", (long long)count);
        exit(1);
    }
    c->state_before = attn_bhtd(c->state_memory, n[0], n[1], n[2], n[3]);
    if (c->params.state_in)
        FOR_EACH_ELEMENT(&c->state_in)
        {
            tensor_set(&c->state_before, b, h, i, j, tensor_get(&c->state_in, b, h, i, j));
        }
}

void linear_case_generate(struct linear_case *c, uint64_t seed, uint64_t index, const char *isa)
{
    struct rng generator = rng_for_case(seed, index), *rng = &generator;
    struct rng for_types = rng_for_case(seed + 1, index), for_values = rng_for_case(seed + 2, index);
    for (int slot = 0; slot < LINEAR_SLOTS; slot++)
        guard_place(&c->guard[slot], 0, 1);
    c->params = attn_linear_attention_params_default();
    c->params.isa = isa;
    draw_types(c, &for_types);
    draw_shapes(c, rng);
    place_operands(c, rng);
    draw_rule(c, rng);
    draw_states(c, rng);
    draw_options(c, rng);
    linear_case_fill(c, &for_values);
    remember(c);
}
