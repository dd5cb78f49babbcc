/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values of a case in 8 or 4 bits.
 *
 * Some cases of f32 are called with a quantised k or v, and compared with what
 * the oracle says of the elements that these stand for: k and v become those.
 * Numbers are any that the type has, rows have gaps, and what lies in gaps,
 * behind the last channel of a group and in the scales of padding means nothing.
 */
#include "case_draw.h"
#include "dtype.h"
#include "test_isa.h"

#include <math.h>
#include <string.h>

/** Bytes, or pairs of numbers, from one index of an axis to the next, a row being so many bytes. */
static void place_numbers(struct test_case *c, enum case_slot slot, attn_tensor *small, struct rng *rng)
{
    const int i4 = small->dtype == ATTN_I4, by_head = rng_percent(rng, 60), gaps = rng_percent(rng, 40);
    const int64_t row = (int64_t)attn_row_size(small->dtype, small->shape[3]), unit = i4 ? 16 : 1;
    const int near = by_head ? 2 : 1, far = 3 - near;
    int64_t bytes[4] = {0, 0, 0, 1};
    bytes[near] = row + (gaps ? unit * rng_range(rng, 0, 3) : 0);
    bytes[far] = bytes[near] * small->shape[near] + (gaps ? unit * rng_range(rng, 0, 3) : 0);
    bytes[0] = bytes[far] * small->shape[far];
    int64_t all = row;
    for (int axis = 0; axis < 3; axis++) {
        all += (small->shape[axis] - 1) * bytes[axis];
        small->stride[axis] = i4 ? 2 * bytes[axis] : bytes[axis];
    }
    small->stride[3] = 1;
    uint8_t *data = case_place(c, slot, (size_t)all, rng);
    for (int64_t i = 0; i < all; i++)
        data[i] = (uint8_t)rng_bits(rng);
    small->data = data;
}

/** Number i of a row. */
static float number_of(const attn_tensor *small, uint8_t *row, int64_t i)
{
    if (small->dtype == ATTN_I4)
        return dtype_i4_at(row, i);
    if (small->dtype == ATTN_F8_E4M3 && (row[i] & 0x7f) == 0x7f) /* NaN is drawn elsewhere */
        row[i] ^= 1;
    return small->dtype == ATTN_I8 ? (float)(int8_t)row[i] : dtype_of_f8(row[i]);
}

/** Whether some sequence has key j of a batch element among its live ones. */
static int is_live(const struct test_case *c, int64_t b, int64_t j)
{
    const attn_params *p = &c->params;
    for (int64_t s = 0; s < case_sequences(c); s++) {
        const int64_t before = p->ragged ? p->ragged->cu_seqlens_k[s] : 0;
        const int64_t first = before + (p->kv_start ? p->kv_start[s] : 0);
        const int64_t end = before + (p->kv_len ? p->kv_len[s] : case_keys(c, s));
        if ((p->ragged ? 0 : s) == b && j >= first && j < end)
            return 1;
    }
    return 0;
}

static int repeats_rows(const attn_tensor *t)
{
    for (int axis = 0; axis < 3; axis++)
        if (t->shape[axis] > 1 && t->stride[axis] == 0)
            return 1;
    return 0;
}

/** Replaces t, k or v of a case by a tensor of a type: the one that is called with in its place, and its scales. */
static void store(struct test_case *c, const attn_tensor *t, attn_dtype dtype, enum case_slot numbers,
                  enum case_slot scales, attn_tensor *small, attn_tensor *scale, struct rng *rng)
{
    *small = tensor_of_shape(dtype, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    const int i4 = small->dtype == ATTN_I4;
    const float usual = small->dtype == ATTN_I8 ? 1 / 64.0f : i4 ? 0.25f : 1 / 128.0f;
    place_numbers(c, numbers, small, rng);
    *scale = tensor_of_shape(ATTN_F32, t->shape[0], t->shape[1], t->shape[2], i4 ? (t->shape[3] + 31) / 32 : 1);
    case_place_tensor(c, scales, scale, i4 ? 0 : FREE_CHANNELS, rng);
    memset(c->guard[scales].data, 0xff, c->guard[scales].used); /* NaN */
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t j = 0; j < t->shape[2]; j++) {
            const int live = is_live(c, b, j);
            for (int64_t h = 0; live && h < t->shape[1]; h++) {
                const int64_t at = b * small->stride[0] + h * small->stride[1] + j * small->stride[2];
                uint8_t *row = (uint8_t *)small->data + (i4 ? at / 2 : at);
                for (int64_t g = 0; g < scale->shape[3]; g++)
                    tensor_set(scale, b, h, j, g, (i4 ? rng_normal(rng) : fabsf(rng_normal(rng))) * usual);
                for (int64_t i = 0; i < t->shape[3]; i++)
                    tensor_set(t, b, h, j, i, number_of(small, row, i) * tensor_get(scale, b, h, j, i4 ? i / 32 : 0));
            }
        }
}

static int may_be_stored(const struct test_case *c, const attn_tensor *t)
{
    return t->dtype == ATTN_F32 && !c->packed && !repeats_rows(t) &&
           t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] > 0;
}

static attn_dtype draw_type(struct rng *rng)
{
    return (attn_dtype)RNG_PICK(rng, ATTN_I8, ATTN_F8_E4M3, ATTN_I4, ATTN_I4);
}

void case_draw_stored(struct test_case *c, struct rng *rng)
{
    c->stored = 0;
    const int pairs = test_isa_has_pairs(c->params.isa); /* both or none */
    if (c->called.params.block_table || c->values != VALUES_NORMAL || !(pairs || rng_percent(rng, 25)))
        return;
    if (pairs && !(may_be_stored(c, &c->k) && may_be_stored(c, &c->v)))
        return;
    const int which = pairs ? 3 : (int)rng_range(rng, 1, 3);
    const attn_dtype exact = (attn_dtype)RNG_PICK(rng, ATTN_F8_E4M3, ATTN_I4);
    const attn_dtype of_k = pairs ? exact : draw_type(rng), of_v = pairs ? exact : draw_type(rng);
    if (which & 1 && may_be_stored(c, &c->k)) {
        store(c, &c->k, of_k, SLOT_K_NUMBERS, SLOT_K_SCALE, &c->called.k, &c->called.k_scale, rng);
        c->called.params.k_scale = &c->called.k_scale;
        c->stored++;
    }
    if (which & 2 && may_be_stored(c, &c->v)) {
        store(c, &c->v, of_v, SLOT_V_NUMBERS, SLOT_V_SCALE, &c->called.v, &c->called.v_scale, rng);
        c->called.params.v_scale = &c->called.v_scale;
        c->stored++;
    }
}
