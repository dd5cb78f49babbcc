/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operation on words and their sums has to give (vw_, vq_, vs_ and
 * the products of words), one lane after the other in plain C, from the
 * contracts in dot_*.h and score_*.h.
 */
#include "reference.h"
#include "dtype.h"
#include "products.h"

#include <math.h>

LANEWISE(ones, uint32_t, 0x3f803f80u)
LANEWISE(negate, uint32_t, a[i] ^ 0x80008000u)
LANEWISE(first_half, uint32_t, a[i] & 0xffffu)
LANEWISE(second_half, uint32_t, a[i] & 0xffff0000u)
LANEWISE(words_of_rows, uint32_t, i < c->set->lanes / 2 ? a[0] : b[0])
LANEWISE(evens, uint32_t, a[i - i % 2])
LANEWISE(evens_twice, uint32_t, a[2 * i % c->set->lanes])

static void dot_words(const struct call *c, int pack)
{
    const uint32_t *a = c->in[0], *b = c->in[1];
    const float *sum = c->in[2];
    float *out = c->out[0];
    for
        LANES(i)
    out[i] = dot_of(c->set, pack, &a[i], &b[i], sum[i]);
}

static void dot(const struct call *c)
{
    dot_words(c, c->set->value_pack);
}

/** Int8: K's bytes are signed, Q's are unsigned where an offset has been added to them; the sum wraps around. */
static void dot_scores(const struct call *c)
{
    if (c->set->score_pack < 4) {
        dot_words(c, c->set->score_pack);
        return;
    }
    const int8_t *k = c->in[0], *q = c->in[1];
    const uint32_t *sum = c->in[2];
    uint32_t *out = c->out[0];
    for
        LANES(i)
        {
            out[i] = sum[i];
            for (int j = 4 * i; j < 4 * i + 4; j++)
                out[i] += (uint32_t)(k[j] * (c->set->query_offset ? (uint8_t)q[j] : q[j]));
        }
}

/** Sum 2i + j, and the products of words 2i, 2i + 1 of the first operand with words 2j, 2j + 1 of the second. */
static void multiply_blocks(const struct call *c, int pack)
{
    const unsigned char *a = c->in[0], *b = c->in[1];
    for
        LANES(lane)
        {
            const unsigned char *x = a + lane / 2 * 8, *y = b + lane % 2 * 8;
            if (pack == 4) {
                const int8_t *k = (const int8_t *)x, *q = (const int8_t *)y;
                uint32_t *out = (uint32_t *)c->out[0] + lane;
                *out = ((const uint32_t *)c->in[2])[lane];
                for (int i = 0; i < 8; i++)
                    *out += (uint32_t)(k[i] * q[i]);
            } else {
                const float sum = ((const float *)c->in[2])[lane];
                ((float *)c->out[0])[lane] = dot_of(c->set, pack, x + 4, y + 4, dot_of(c->set, pack, x, y, sum));
            }
        }
}

static void multiply_value_blocks(const struct call *c)
{
    multiply_blocks(c, c->set->value_pack);
}

static void multiply_score_blocks(const struct call *c)
{
    multiply_blocks(c, c->set->score_pack);
}

static void halves(const struct call *c)
{
    IN(uint32_t);
    OUT(uint32_t);
    UNUSED;
    const int half = c->set->lanes / 2;
    for
        LANES(i)
        {
            out[i] = i < half ? a[i] : b[i - half];
            out2[i] = i < half ? a[i + half] : b[i];
        }
}

static void two_rows(const struct call *c)
{
    const size_t half = (size_t)c->set->lanes * 2;
    memcpy(c->out[0], c->in[0], half);
    memcpy((char *)c->out[0] + half, c->in[c->in[1] ? 1 : 0], half);
}

static void rounded_row(const struct call *c)
{
    const float *in = c->in[0];
    uint16_t *out = c->out[0];
    for
        LANES(i)
    out[i] = dtype_narrow(ATTN_BF16, (double)(c->set->narrow_flushes ? flushed(in[i]) : in[i]));
}

static void pair(const struct call *c)
{
    const float *first = c->in[0], *second = c->in[1];
    uint32_t *out = c->out[0];
    for
        LANES(i)
        {
            const float a = c->set->narrow_flushes ? flushed(first[i]) : first[i];
            const float b = c->set->narrow_flushes ? flushed(second[i]) : second[i];
            out[i] = (uint32_t)dtype_narrow(ATTN_BF16, (double)a) | (uint32_t)dtype_narrow(ATTN_BF16, (double)b) << 16;
        }
}

static void interleave_words(const struct call *c)
{
    const uint16_t *first = c->in[0], *second = c->in[1];
    uint32_t *out = c->out[0];
    for
        LANES(i)
    out[i] = first[i] | (uint32_t)second[i] << 16;
}

static void widen_words(const struct call *c)
{
    const uint16_t *first = c->in[0];
    uint32_t *out = c->out[0];
    for
        LANES(i)
    out[i] = first[i];
}

static void add_second(const struct call *c)
{
    const uint32_t *words = c->in[0];
    const uint16_t *second = c->in[1];
    uint32_t *out = c->out[0];
    for
        LANES(i)
    out[i] = words[i] | (uint32_t)second[i] << 16;
}

static void sum_lanes(const struct call *c)
{
    const uint32_t *in = c->in[0];
    uint32_t *out = c->out[0];
    out[0] = 0;
    for
        LANES(i)
    out[0] += in[i];
}

static void quantize(const struct call *c)
{
    const float *in = c->in[0];
    int8_t *bytes = c->out[0];
    int32_t *sums = c->out[1];
    for
        LANES(i)
        {
            sums[i] = (int32_t)nearbyintf(in[i]);
            bytes[i] = (int8_t)sums[i];
        }
}

/** Signed bytes by the lower halves of others. */
static void dot_nibbles(const struct call *c)
{
    const int8_t *k = c->in[0];
    const uint8_t *q = c->in[1];
    const int32_t *start = c->in[2];
    int32_t *out = c->out[0];
    for
        LANES(i)
        {
            int64_t sum = start[i];
            for (int j = 0; j < 4; j++)
                sum += k[4 * i + j] * (q[4 * i + j] & 15);
            out[i] = (int32_t)(uint32_t)sum; /* as the registers wrap around */
        }
}

static const struct row rows[] = {
    {"vw_load", 0, PLAIN(SAME_BITS, 1, WORD, U32, copy)},
    {"vw_load_tail", 0, OPERATION(.in = {{WORD, TAIL}}, .out = {{U32, VECTOR}}, .reference = load_tail)},
    {"vw_set1", 0, OPERATION(.in = {{WORD, ONE}}, .out = {{U32, VECTOR}}, .reference = broadcast)},
    {"vw_store", HAS_PAIRS, PLAIN(SAME_BITS, 1, WORD, WORD, copy)},
    {"vw_pair", HAS_PAIRS, PLAIN(SAME_NUMBERS, 2, F32, WORD, pair)},
    {"vw_round", HAS_PAIRS, PLAIN(SAME_NUMBERS, 1, F32, BF16, rounded_row)},
    {"vw_interleave", HAS_PAIRS, PLAIN(SAME_BITS, 2, BF16, WORD, interleave_words)},
    {"vw_of_first", HAS_PAIRS, PLAIN(SAME_BITS, 1, BF16, WORD, widen_words)},
    {"vw_add_second", HAS_PAIRS,
     OPERATION(.in = {{WORD, VECTOR}, {BF16, VECTOR}}, .out = {{WORD, VECTOR}}, .reference = add_second)},
    {"vw_first", HAS_PAIRS, PLAIN(SAME_BITS, 1, WORD, WORD, first_half)},
    {"vw_second", HAS_PAIRS, PLAIN(SAME_BITS, 1, WORD, WORD, second_half)},
    {"vw_ones", HAS_PAIRS, OPERATION(.out = {{WORD, VECTOR}}, .reference = ones)},
    {"vw_negate", HAS_PAIRS, PLAIN(SAME_BITS, 1, WORD, WORD, negate)},
    {"vf_dot", 0,
     OPERATION(.in = {{WORD, VECTOR}, {WORD, VECTOR}, {F32, VECTOR}}, .out = {{F32, VECTOR}}, .compare = SAME_NUMBERS,
               .reference = dot)},

    {"vf_mm", HAS_VALUE_GROUPS,
     OPERATION(.in = {{WORD, VECTOR}, {WORD, VECTOR}, {F32, VECTOR}}, .out = {{F32, VECTOR}}, .compare = SAME_NUMBERS,
               .reference = multiply_value_blocks)},
    {"vf_halves", HAS_VALUE_GROUPS, OPERATION(.in = {VECTORS_2(F32)}, .out = {VECTORS_2(F32)}, .reference = halves)},
    {"vw_zip", HAS_VALUE_GROUPS, OPERATION(.in = {VECTORS_2(WORD)}, .out = {VECTORS_2(WORD)}, .reference = interleave)},
    {"vw_unzip", HAS_VALUE_GROUPS,
     OPERATION(.in = {VECTORS_2(WORD)}, .out = {VECTORS_2(WORD)}, .reference = deinterleave)},
    {"vw_evens", HAS_VALUE_GROUPS, PLAIN(SAME_BITS, 1, WORD, WORD, evens)},
    {"vw_evens_twice", HAS_VALUE_GROUPS, PLAIN(SAME_BITS, 1, WORD, WORD, evens_twice)},

    {"vq_load", 0, PLAIN(SAME_BITS, 1, SCORE_WORD, U32, copy)},
    {"vq_set1", 0, OPERATION(.in = {{SCORE_WORD, ONE}}, .out = {{U32, VECTOR}}, .reference = broadcast)},
    {"vs_zero", 0, OPERATION(.out = {{SCORE_SUM, VECTOR}}, .reference = zero)},
    {"vs_dot", 0,
     OPERATION(.in = {{SCORE_WORD, VECTOR}, {SCORE_WORD, VECTOR}, {SCORE_SUM, VECTOR}}, .out = {{SCORE_SUM, VECTOR}},
               .compare = SAME_NUMBERS, .reference = dot_scores)},
    {"vq_rows", HAS_SCORE_GROUPS,
     OPERATION(.in = {{SCORE_WORD, HALF}, {SCORE_WORD, HALF}}, .out = {{U32, VECTOR}}, .reference = two_rows)},
    {"vq_rows_word", HAS_SCORE_GROUPS,
     OPERATION(.in = {{SCORE_WORD, ONE}, {SCORE_WORD, ONE}}, .out = {{U32, VECTOR}}, .reference = words_of_rows)},
    {"vq_load_twice", HAS_SCORE_GROUPS,
     OPERATION(.in = {{SCORE_WORD, HALF}}, .out = {{U32, VECTOR}}, .reference = two_rows)},
    {"vs_mm", HAS_SCORE_GROUPS,
     OPERATION(.in = {{SCORE_WORD, VECTOR}, {SCORE_WORD, VECTOR}, {SCORE_SUM, VECTOR}}, .out = {{SCORE_SUM, VECTOR}},
               .compare = SAME_NUMBERS, .reference = multiply_score_blocks)},
    {"vs_halves", HAS_SCORE_GROUPS,
     OPERATION(.in = {VECTORS_2(SCORE_SUM)}, .out = {VECTORS_2(SCORE_SUM)}, .reference = halves)},
    {"vs_set1", HAS_INT8, OPERATION(.in = {{I32, ONE}}, .out = {{I32, VECTOR}}, .reference = broadcast)},
    {"vs_add", HAS_INT8, PLAIN(SAME_BITS, 2, I32, I32, add_integer)},
    {"vs_sum", HAS_INT8, OPERATION(.in = {{I32_SUMMABLE, VECTOR}}, .out = {{I32, ONE}}, .reference = sum_lanes)},
    {"vs_float", HAS_INT8, PLAIN(SAME_BITS, 1, I32, F32, to_float)},
    {"vs_quantize", HAS_INT8,
     OPERATION(.in = {{F32_BYTE, VECTOR}}, .out = {{INT8, VECTOR}, {I32, VECTOR}}, .reference = quantize)},
    {"vs_dot_nibbles", HAS_INT8,
     OPERATION(.in = {{U32, VECTOR}, {U32, VECTOR}, {I32, VECTOR}}, .out = {{I32, VECTOR}}, .reference = dot_nibbles)},
};

const struct group group_word_operations = {
    .name = "word_operations",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = operation_has_code,
    .check = check_operation,
    .time = time_operation,
};
