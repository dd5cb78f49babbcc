/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operation on numbers of E4M3 in pairs has to give (simd/f8_*.h), from the
 * contracts there: bf16 has all of them.
 */
#include "dtype.h"
#include "products.h"
#include "reference.h"

static uint16_t as_bf16(uint8_t number)
{
    return dtype_narrow(ATTN_BF16, (double)dtype_of_f8(number));
}

static void of_f8(const struct call *c)
{
    const uint8_t *in = c->in[0];
    OUT(uint16_t);
    for (int i = 0; i < 32; i++) {
        out[i] = as_bf16(in[i / 8 * 16 + i % 8]);
        out2[i] = as_bf16(in[i / 8 * 16 + 8 + i % 8]);
    }
}

static void load_f8(const struct call *c)
{
    const uint8_t *in = c->in[0];
    uint16_t *out = c->out[0];
    for (int i = 0; i < 16 * 32; i++) /* whole rows and parts of them in turns */
        out[i] = i / 64 % 2 == 0 || i % 64 < 41 ? as_bf16(in[i % 64]) : 0;
}

static void zip_f8(const struct call *c)
{
    const uint8_t *first = c->in[0], *second = c->in[1];
    uint16_t *out = c->out[0];
    memset(out, 0, sizeof(uint32_t) * 256);
    for (int time = 0; time < 3; time++) /* whole rows, a part of them, and one row */
        for (int i = 0; i < 64; i++) {
            const int there = time != 1 || i < 41;
            out[(time * 64 + i) * 2] = there ? as_bf16(first[i]) : 0;
            out[(time * 64 + i) * 2 + 1] = there && time < 2 ? as_bf16(second[i]) : 0;
        }
}

/** A weight times a number, rounded: what it meets are numbers of E4M3. */
static void weigh(const struct call *c)
{
    const uint16_t *words = c->in[0];
    const float *by[2] = {c->in[1], c->in[2]};
    uint16_t *out = c->out[0];
    for (int i = 0; i < 2 * c->set->lanes; i++) {
        const float x = dtype_widen(ATTN_BF16, words[i]) * by[i % 2][i / 2];
        out[i] = dtype_narrow(ATTN_BF16, (double)(c->set->narrow_flushes ? flushed(x) : x));
    }
}

static const struct row rows[] = {
    {"vw_weigh", HAS_F8,
     OPERATION(.in = {{WORD, VECTOR}, {F32, VECTOR}, {F32, VECTOR}}, .out = {{WORD, VECTOR}}, .compare = SAME_NUMBERS,
               .reference = weigh)},
    {"vw_of_f8", HAS_F8,
     OPERATION(.in = {{INT8, SQUARE}}, .out = {VECTORS_2(WORD)}, .compare = SAME_NUMBERS, .reference = of_f8)},
    {"vw_load_f8", HAS_F8,
     OPERATION(.in = {{INT8, SQUARE}}, .out = {{WORD, SQUARE}}, .compare = SAME_NUMBERS, .reference = load_f8)},
    {"vw_zip_f8", HAS_F8,
     OPERATION(.in = {{INT8, SQUARE}, {INT8, SQUARE}}, .out = {{WORD, SQUARE}}, .compare = SAME_NUMBERS,
               .reference = zip_f8)},
};

const struct group group_f8_operations = {
    .name = "f8_operations",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = operation_has_code,
    .check = check_operation,
    .time = time_operation,
};
