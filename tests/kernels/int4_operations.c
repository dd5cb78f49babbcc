/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operation on numbers of 4 bits in pairs has to give (simd/int4_*.h),
 * from the contracts there and the order in which ATTN_I4 has its numbers.
 */
#include "dtype.h"
#include "products.h"
#include "reference.h"

/** Number t of an element, as bf16. */
static uint16_t int4_of(uint16_t element, int t)
{
    const int number = element >> (4 * t) & 15;
    return dtype_narrow(ATTN_BF16, number < 8 ? number : number - 16);
}

static void int4_words(const struct call *c)
{
    const uint16_t *in = c->in[0];
    OUT(uint16_t);
    for (int i = 0; i < 2 * c->set->lanes; i++) {
        out[i] = int4_of(in[i], 0);
        out2[i] = int4_of(in[i], 3);
    }
}

static void zip_quarters(const struct call *c)
{
    const uint16_t *first = c->in[0], *second = c->in[1];
    OUT(uint16_t);
    for (int i = 0; i < 2 * c->set->lanes; i++) {
        const int at = i / 8 * 8 + i % 8 / 2; /* in the first half of its quarter */
        out[i] = (i % 2 ? second : first)[at];
        out2[i] = (i % 2 ? second : first)[at + 4];
    }
}

static void load_quarters(const struct call *c)
{
    OUT(uint32_t);
    for
        LANES(i)
        {
            out[i] = ((const uint32_t *)c->in[i / 4])[i % 4];
            out2[i] = i % 4 < 3 ? out[i] : 0;
        }
}

static void weigh_quarters(const struct call *c)
{
    const float *scale = c->in[0];
    const uint16_t *p = c->in[1];
    uint16_t product[4][4];
    for (int row = 0; row < 4; row++)
        for (int group = 0; group < 4; group++) {
            const uint32_t bits = (uint32_t)p[row] << 16;
            float weight;
            memcpy(&weight, &bits, sizeof weight);
            const float x = scale[4 * row + group] * weight;
            product[row][group] = dtype_narrow(ATTN_BF16, (double)(c->set->narrow_flushes ? flushed(x) : x));
        }
    for (int pair = 0; pair < 2; pair++) {
        uint16_t *out = c->out[pair];
        for (int i = 0; i < 2 * c->set->lanes; i++)
            out[i] = product[2 * pair + i % 2][i / 8];
    }
}

/** The channel of 128 that lane i of sums [t][half] is of: elements 0 to 3 of a group, or 4 to 7, and their number t.
 */
static int channel_of(int t, int half, int i)
{
    const int element = 4 * half + i % 4, byte = 2 * element + t / 2;
    return i / 4 * 32 + (t % 2 ? 16 : 0) + byte;
}

static void to_int4(const struct call *c)
{
    const uint32_t *in = c->in[0];
    uint32_t *out = c->out[0];
    memset(out, 0, sizeof(uint32_t) * 256);
    for (int v = 0; v < 8; v++)
        for (int i = 0; i < 16; i++)
            out[16 * v + i] = in[channel_of(v / 2, v % 2, i)];
}

static void from_int4(const struct call *c)
{
    const uint32_t *in = c->in[0];
    uint32_t *out = c->out[0];
    memset(out, 0, sizeof(uint32_t) * 256);
    for (int v = 0; v < 8; v++)
        for (int i = 0; i < 16; i++)
            out[channel_of(v / 2, v % 2, i)] = in[16 * v + i];
}

static const struct row rows[] = {
    {"vw_int4", HAS_INT4, OPERATION(.in = {{U32, VECTOR}}, .out = {VECTORS_2(WORD)}, .reference = int4_words)},
    {"vw_zip_quarters", HAS_INT4,
     OPERATION(.in = {VECTORS_2(U32)}, .out = {VECTORS_2(U32)}, .reference = zip_quarters)},
    {"vf_load_quarters", HAS_INT4,
     OPERATION(.in = {VECTORS_4(F32)}, .out = {VECTORS_2(F32)}, .reference = load_quarters)},
    {"vw_weigh_quarters", HAS_INT4,
     OPERATION(.in = {{F32, VECTOR}, {WORD, VECTOR}}, .out = {VECTORS_2(WORD)}, .compare = SAME_NUMBERS,
               .reference = weigh_quarters)},
    {"vf_to_int4", HAS_INT4, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = to_int4)},
    {"vf_from_int4", HAS_INT4, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = from_int4)},
};

const struct group group_int4_operations = {
    .name = "int4_operations",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = operation_has_code,
    .check = check_operation,
    .time = time_operation,
};
