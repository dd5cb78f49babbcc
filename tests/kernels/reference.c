/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operation of the simd headers has to give, one lane after the
 * other in plain C, from the contracts in simd_avx512.h, dot_*.h and
 * score_*.h. The narrow types are converted by the tests' own arithmetic.
 */
#include "operations.h"
#include "operands.h"
#include "dtype.h"
#include "tolerance.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define LANES(i)  (int i = 0; i < c->set->lanes; i++)
#define IN(type)  const type *a = c->in[0], *b = c->in[1], *d = c->in[2]
#define OUT(type) type *out = c->out[0], *out2 = c->out[1]
#define UNUSED    (void)a, (void)b, (void)d, (void)out, (void)out2

float fma_of(const struct kernel_set *set, float a, float b, float c)
{
    return set->two_roundings ? a * b + c : fmaf(a, b, c);
}

/* One lane of an operation on vectors of a type. */
#define LANEWISE(name, type, expression)                                                                               \
    static void name(const struct call *c)                                                                             \
    {                                                                                                                  \
        IN(type);                                                                                                      \
        OUT(type);                                                                                                     \
        UNUSED;                                                                                                        \
        for                                                                                                            \
            LANES(i)                                                                                                   \
        out[i] = expression;                                                                                           \
    }

LANEWISE(zero, uint32_t, 0)
LANEWISE(iota, float, (float)i)
LANEWISE(iota_integer, uint32_t, (uint32_t)i)
LANEWISE(broadcast, uint32_t, a[0])
LANEWISE(copy, uint32_t, a[i])
LANEWISE(add, float, a[i] + b[i])
LANEWISE(subtract, float, a[i] - b[i])
LANEWISE(multiply, float, a[i] * b[i])
LANEWISE(divide, float, a[i] / b[i])
LANEWISE(fused, float, fma_of(c->set, a[i], b[i], d[i]))
LANEWISE(floor_of, float, floorf(a[i]))
LANEWISE(larger, float, a[i] > b[i] ? a[i] : b[i])
LANEWISE(greater, float, a[i] > b[i] ? 1.0f : 0.0f)
LANEWISE(greater_equal, float, a[i] >= b[i] ? 1.0f : 0.0f)
LANEWISE(equal, float, a[i] == b[i] ? 1.0f : 0.0f)
LANEWISE(add_integer, uint32_t, a[i] + b[i])
LANEWISE(and_integer, uint32_t, a[i] & b[i])
LANEWISE(or_integer, uint32_t, a[i] | b[i])
LANEWISE(xor_integer, uint32_t, a[i] ^ b[i])
LANEWISE(xor3_integer, uint32_t, a[i] ^ b[i] ^ d[i])
LANEWISE(at_least, uint32_t, a[i] >= b[i] ? UINT32_MAX : 0)
LANEWISE(shifted_left, uint32_t, (out2[i] = a[i] << 31, a[i] << 9))
LANEWISE(shifted_right, uint32_t, (out2[i] = a[i] >> 31, a[i] >> 9))
LANEWISE(ones, uint32_t, 0x3f803f80u)
LANEWISE(negate, uint32_t, a[i] ^ 0x80008000u)
LANEWISE(first_half, uint32_t, a[i] & 0xffffu)
LANEWISE(second_half, uint32_t, a[i] & 0xffff0000u)
LANEWISE(size, uint32_t, a[i] & 0x7fffffffu)

static void load_tail(const struct call *c)
{
    memset(c->out[0], 0, (size_t)c->set->lanes * 4);
    memcpy(c->out[0], c->in[0], (size_t)c->n * 4);
}

static void store_tail(const struct call *c)
{
    memcpy(c->out[0], c->in[0], (size_t)c->n * 4);
}

static void first_lanes(const struct call *c)
{
    float *out = c->out[0];
    for
        LANES(i)
    out[i] = i < c->n ? 1.0f : 0.0f;
}

static void widen(const struct call *c, attn_dtype dtype)
{
    const uint16_t *in = c->in[0];
    float *out = c->out[0];
    for
        LANES(i)
    out[i] = dtype_widen(dtype, in[i]);
}

static void narrow(const struct call *c, attn_dtype dtype)
{
    const float *in = c->in[0];
    uint16_t *out = c->out[0];
    for
        LANES(i)
    out[i] = dtype_narrow(dtype, (double)in[i]);
}

static void widen_bf16(const struct call *c)
{
    widen(c, ATTN_BF16);
}

static void widen_f16(const struct call *c)
{
    widen(c, ATTN_F16);
}

static void narrow_bf16(const struct call *c)
{
    narrow(c, ATTN_BF16);
}

static void narrow_f16(const struct call *c)
{
    narrow(c, ATTN_F16);
}

static void mask_from_bytes(const struct call *c)
{
    const uint8_t *in = c->in[0];
    float *out = c->out[0];
    for
        LANES(i)
    out[i] = in[i] ? 1.0f : 0.0f;
}

static void any(const struct call *c)
{
    const uint8_t *in = c->in[0];
    uint32_t *out = c->out[0];
    out[0] = 0;
    for
        LANES(i)
    out[0] |= in[i] != 0;
}

static void choose(const struct call *c)
{
    const uint32_t *a = c->in[0], *b = c->in[1];
    const uint8_t *mask = c->in[2];
    uint32_t *out = c->out[0];
    for
        LANES(i)
    out[i] = mask[i] ? a[i] : b[i];
}

static void deinterleave(const struct call *c)
{
    uint32_t *even = c->out[0], *odd = c->out[1], both[2 * MAX_LANES];
    const int lanes = c->set->lanes;
    memcpy(both, c->in[0], (size_t)lanes * 4);
    memcpy(both + lanes, c->in[1], (size_t)lanes * 4);
    for
        LANES(i)
        {
            even[i] = both[2 * i];
            odd[i] = both[2 * i + 1];
        }
}

static void interleave(const struct call *c)
{
    const uint32_t *even = c->in[0], *odd = c->in[1];
    uint32_t both[2 * MAX_LANES];
    const int lanes = c->set->lanes;
    for
        LANES(i)
        {
            both[2 * i] = even[i];
            both[2 * i + 1] = odd[i];
        }
    memcpy(c->out[0], both, (size_t)lanes * 4);
    memcpy(c->out[1], both + lanes, (size_t)lanes * 4);
}

/** The first rows of a block transposed, as if the others were 0, to the first rows of the result, the others 0. */
static void transpose_part(const struct call *c, int from, int to)
{
    const uint32_t *in = c->in[0];
    uint32_t *out = c->out[0];
    for
        LANES(i)
        for
            LANES(j)
        out[j * c->set->lanes + i] = i < from && j < to ? in[i * c->set->lanes + j] : 0;
}

static void transpose(const struct call *c)
{
    transpose_part(c, MAX_LANES, MAX_LANES);
}

static void transpose_from4(const struct call *c)
{
    transpose_part(c, 4, MAX_LANES);
}

static void transpose_to4(const struct call *c)
{
    transpose_part(c, MAX_LANES, 4);
}

static void transpose_from8(const struct call *c)
{
    transpose_part(c, 8, MAX_LANES);
}

static void transpose_to8(const struct call *c)
{
    transpose_part(c, MAX_LANES, 8);
}

static void multiply_wide(const struct call *c)
{
    const uint32_t *a = c->in[0], *b = c->in[1];
    uint32_t *high = c->out[0], *low = c->out[1];
    for
        LANES(i)
        {
            const uint64_t product = (uint64_t)a[i] * b[i];
            high[i] = (uint32_t)(product >> 32);
            low[i] = (uint32_t)product;
        }
}

float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

/*
 * a * b + c as VDPBF16PS has it: one rounding to nearest even, denormals of all
 * three and of the result being 0. Whether the result is denormal is asked
 * after rounding to 24 bits, as everywhere on x86: near there both sides are
 * moved up, where the rounding is to 24 bits.
 */
float fused_flushing(float a, float b, float c)
{
    a = flushed(a);
    b = flushed(b);
    c = flushed(c);
    const float result = fmaf(a, b, c);
    if (!(fabsf(result) < 0x1p-100f && fabsf(c) < 0x1p-60f)) /* a larger c leaves 0, or nothing as small as that */
        return result;
    const float larger = fabsf(a) > fabsf(b) ? a : b, smaller = fabsf(a) > fabsf(b) ? b : a;
    const float moved = fmaf(larger, smaller * 0x1p64f, c * 0x1p64f);
    return fabsf(moved) < FLT_MIN * 0x1p64f ? copysignf(0.0f, moved) : moved * 0x1p-64f;
}

/** x rounded to 24 bits as AArch64's BFDOT does: cut off, the last bit set if that loses something; denormals are 0. */
static float round_to_odd(double x)
{
    if (isnan(x) || isinf(x))
        return (float)x;
    if (fabs(x) < (double)FLT_MIN)
        return copysignf(0.0f, (float)x);
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (bits & 0x1fffffffu)
        bits |= 0x20000000u;
    bits &= ~(uint64_t)0x1fffffffu;
    memcpy(&x, &bits, sizeof bits);
    return (float)x; /* exact, or beyond the largest float */
}

/** a + b with that rounding, denormals being 0. */
static float add_to_odd(float a, float b)
{
    const double x = (double)flushed(a), y = (double)flushed(b), sum = x + y;
    if (!isfinite(sum))
        return (float)sum;
    const double back = sum - x, lost = (x - (sum - back)) + (y - back);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    const int even = (bits & 1) == 0;
    return round_to_odd(lost != 0 && even ? nextafter(sum, lost > 0 ? INFINITY : -INFINITY) : sum);
}

/** A word of two bf16 times another, added to c. */
static float dot_pairs(const struct kernel_set *set, uint32_t a, uint32_t b, float c)
{
    const float a0 = dtype_widen(ATTN_BF16, (uint16_t)a), a1 = dtype_widen(ATTN_BF16, (uint16_t)(a >> 16));
    const float b0 = dtype_widen(ATTN_BF16, (uint16_t)b), b1 = dtype_widen(ATTN_BF16, (uint16_t)(b >> 16));
    if (!set->round_to_odd)
        return fused_flushing(a0, b0, fused_flushing(a1, b1, c));
    const float first = round_to_odd((double)flushed(a0) * (double)flushed(b0));
    const float second = round_to_odd((double)flushed(a1) * (double)flushed(b1));
    return add_to_odd(c, add_to_odd(first, second));
}

float dot_of(const struct kernel_set *set, int pack, const void *a, const void *b, float c)
{
    if (pack == 1) {
        float x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        return fma_of(set, x, y, c);
    }
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return dot_pairs(set, x, y, c);
}

static void dot_words(const struct call *c, int pack)
{
    const uint32_t *a = c->in[0], *b = c->in[1];
    const float *sum = c->in[2];
    float *out = c->out[0];
    if (pack == 1)
        fused(c);
    else
        for
            LANES(i)
    out[i] = dot_pairs(c->set, a[i], b[i], sum[i]);
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

LANEWISE(words_of_rows, uint32_t, i < c->set->lanes / 2 ? a[0] : b[0])
LANEWISE(evens, uint32_t, a[i - i % 2])
LANEWISE(evens_twice, uint32_t, a[2 * i % c->set->lanes])

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

static void sum_lanes(const struct call *c)
{
    const uint32_t *in = c->in[0];
    uint32_t *out = c->out[0];
    out[0] = 0;
    for
        LANES(i)
    out[0] += in[i];
}

static void largest_lane(const struct call *c)
{
    const float *in = c->in[0];
    float *out = c->out[0];
    out[0] = in[0];
    for
        LANES(i)
    out[0] = in[i] > out[0] ? in[i] : out[0];
}

static void bytes_to_float(const struct call *c)
{
    const int8_t *in = c->in[0];
    float *out = c->out[0];
    for
        LANES(i)
    out[i] = (float)in[i];
}

/** Four bits from bit 0 on, and from bit 20 on. */
static void nibbles(const struct call *c)
{
    const uint32_t *in = c->in[0];
    float *out = c->out[0], *out2 = c->out[1];
    for
        LANES(i)
        {
            out[i] = (float)(int)(in[i] & 15) - 8;
            out2[i] = (float)(int)(in[i] >> 20 & 15) - 8;
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

static void to_float(const struct call *c)
{
    const int32_t *in = c->in[0];
    float *out = c->out[0];
    for
        LANES(i)
    out[i] = (float)in[i];
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

/* Functions, in double: libm's errors there are far below an ULP of f32. */
#define FUNCTION(name, function)                                                                                       \
    static void name(const struct call *c)                                                                             \
    {                                                                                                                  \
        const float *in = c->in[0];                                                                                    \
        for                                                                                                            \
            LANES(i)                                                                                                   \
        c->exact[i] = function((double)in[i]);                                                                         \
    }

FUNCTION(exact_exp2, exp2)
FUNCTION(exact_exp, exp)
FUNCTION(exact_log, log)
FUNCTION(exact_erf, erf)
FUNCTION(exact_tanh, tanh)

#define OPERATION(...) (&(const struct operation){__VA_ARGS__})

/* Operations on whole vectors of one type: how many they take. */
#define VECTORS_1(type)                                                                                                \
    {                                                                                                                  \
        type, VECTOR                                                                                                   \
    }
#define VECTORS_2(type)                                                                                                \
    {type, VECTOR},                                                                                                    \
    {                                                                                                                  \
        type, VECTOR                                                                                                   \
    }
#define VECTORS_3(type)                                                                                                \
    {type, VECTOR}, {type, VECTOR},                                                                                    \
    {                                                                                                                  \
        type, VECTOR                                                                                                   \
    }
#define PLAIN(comparison, inputs, in_type, out_type, function)                                                         \
    OPERATION(.in = {VECTORS_##inputs(in_type)}, .out = {{out_type, VECTOR}}, .compare = comparison,                   \
              .reference = function)

/* A function within so many ULP of the exact result. */
#define WITHIN(comparison, ulp, in_type, function)                                                                     \
    OPERATION(.in = {{in_type, VECTOR}}, .out = {{F32, VECTOR}}, .compare = comparison, .limit = ulp,                  \
              .reference = function)

static const struct row rows[] = {
    {"vf_zero", 0, OPERATION(.out = {{F32, VECTOR}}, .reference = zero)},
    {"vf_set1", 0, OPERATION(.in = {{F32, ONE}}, .out = {{F32, VECTOR}}, .reference = broadcast)},
    {"vf_iota", 0, OPERATION(.out = {{F32, VECTOR}}, .reference = iota)},
    {"vf_load", 0, PLAIN(SAME_BITS, 1, F32, F32, copy)},
    {"vf_store", 0, PLAIN(SAME_BITS, 1, F32, F32, copy)},
    {"vf_load_tail", 0, OPERATION(.in = {{F32, TAIL}}, .out = {{F32, VECTOR}}, .reference = load_tail)},
    {"vf_store_tail", 0, OPERATION(.in = {{F32, VECTOR}}, .out = {{F32, TAIL}}, .reference = store_tail)},
    {"vm_first", HAS_FIRST_LANES, OPERATION(.in = {{F32, TAIL}}, .out = {{F32, VECTOR}}, .reference = first_lanes)},
    {"vf_load_bf16", 0, PLAIN(SAME_NUMBERS, 1, BF16, F32, widen_bf16)},
    {"vf_load_f16", 0, PLAIN(SAME_NUMBERS, 1, F16, F32, widen_f16)},
    {"vf_store_bf16", 0, PLAIN(SAME_NUMBERS, 1, F32, BF16, narrow_bf16)},
    {"vf_store_f16", 0, PLAIN(SAME_NUMBERS, 1, F32, F16, narrow_f16)},
    {"vf_add", 0, PLAIN(SAME_NUMBERS, 2, F32, F32, add)},
    {"vf_sub", 0, PLAIN(SAME_NUMBERS, 2, F32, F32, subtract)},
    {"vf_mul", 0, PLAIN(SAME_NUMBERS, 2, F32, F32, multiply)},
    {"vf_div", 0, PLAIN(SAME_NUMBERS, 2, F32, F32, divide)},
    {"vf_fma", 0, PLAIN(SAME_NUMBERS, 3, F32, F32, fused)},
    {"vf_floor", 0, PLAIN(SAME_NUMBERS, 1, F32, F32, floor_of)},
    {"vf_max", 0, PLAIN(SAME_BITS, 2, F32, F32, larger)},
    {"vf_gt", 0, PLAIN(SAME_BITS, 2, F32, F32, greater)},
    {"vf_ge", 0, PLAIN(SAME_BITS, 2, F32, F32, greater_equal)},
    {"vf_eq", 0, PLAIN(SAME_BITS, 2, F32, F32, equal)},
    {"vf_select", 0,
     OPERATION(.in = {{F32, VECTOR}, {F32, VECTOR}, {BYTE, VECTOR}}, .out = {{F32, VECTOR}}, .reference = choose)},
    {"vm_from_bytes", 0, PLAIN(SAME_BITS, 1, BYTE, F32, mask_from_bytes)},
    {"vm_any", 0, OPERATION(.in = {{BYTE, VECTOR}}, .out = {{U32, ONE}}, .reference = any)},
    {"vf_deinterleave", 0, OPERATION(.in = {VECTORS_2(F32)}, .out = {VECTORS_2(F32)}, .reference = deinterleave)},
    {"vf_interleave", 0, OPERATION(.in = {VECTORS_2(F32)}, .out = {VECTORS_2(F32)}, .reference = interleave)},
    {"vf_transpose", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose)},
    {"vf_transpose_from4", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose_from4)},
    {"vf_transpose_to4", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose_to4)},
    {"vf_transpose_from8", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose_from8)},
    {"vf_transpose_to8", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose_to8)},

    {"vf_exp2", 0, WITHIN(WITHIN_ULP, EXP2_SLEEF_MAX_ULP, F32_NOT_ABOVE_0, exact_exp2)},
    {"vf_exp2_bf16", HAS_PAIRS,
     WITHIN(WITHIN_RELATIVE_OR_FLUSHED, EXP2_BF16_MAX_RELATIVE, F32_NOT_ABOVE_0, exact_exp2)},
    {"vf_exp", 0, WITHIN(WITHIN_ULP, SLEEF_U10_MAX_ULP, F32, exact_exp)},
    {"vf_log", 0, WITHIN(WITHIN_ULP, SLEEF_U10_MAX_ULP, F32, exact_log)},
    {"vf_erf", 0,
     OPERATION(.in = {{F32, VECTOR}}, .out = {{F32, VECTOR}}, .compare = WITHIN_ULP, .limit = SLEEF_U10_MAX_ULP,
               .floor = SLEEF_ERF_FLOOR, .reference = exact_erf)},
    {"vf_tanh", 0, WITHIN(WITHIN_ULP, SLEEF_U10_MAX_ULP, F32, exact_tanh)},
    {"vf_tanh_fast", 0, WITHIN(WITHIN_ULP, SLEEF_U35_MAX_ULP, F32, exact_tanh)},

    {"vu_set1", 0, OPERATION(.in = {{U32, ONE}}, .out = {{U32, VECTOR}}, .reference = broadcast)},
    {"vu_iota", 0, OPERATION(.out = {{U32, VECTOR}}, .reference = iota_integer)},
    {"vu_load", 0, PLAIN(SAME_BITS, 1, U32, U32, copy)},
    {"vu_store", 0, PLAIN(SAME_BITS, 1, U32, U32, copy)},
    {"vu_add", 0, PLAIN(SAME_BITS, 2, U32, U32, add_integer)},
    {"vu_and", 0, PLAIN(SAME_BITS, 2, U32, U32, and_integer)},
    {"vu_or", 0, PLAIN(SAME_BITS, 2, U32, U32, or_integer)},
    {"vu_xor", 0, PLAIN(SAME_BITS, 2, U32, U32, xor_integer)},
    {"vu_xor3", 0, PLAIN(SAME_BITS, 3, U32, U32, xor3_integer)},
    {"vu_at_least", 0, PLAIN(SAME_BITS, 2, U32, U32, at_least)},
    {"vu_shift_left", 0, OPERATION(.in = {{U32, VECTOR}}, .out = {VECTORS_2(U32)}, .reference = shifted_left)},
    {"vu_shift_right", 0, OPERATION(.in = {{U32, VECTOR}}, .out = {VECTORS_2(U32)}, .reference = shifted_right)},
    {"vf_of_bits", 0, PLAIN(SAME_BITS, 1, U32, F32, copy)},
    {"vf_of_ints", 0, PLAIN(SAME_BITS, 1, I32, F32, to_float)},
    {"vf_load_int8", 0, PLAIN(SAME_BITS, 1, INT8, F32, bytes_to_float)},
    {"vf_nibble", 0, OPERATION(.in = {{U32, VECTOR}}, .out = {VECTORS_2(F32)}, .reference = nibbles)},
    {"vu_mul_wide", 0, OPERATION(.in = {VECTORS_2(U32)}, .out = {VECTORS_2(U32)}, .reference = multiply_wide)},

    {"vw_load", 0, PLAIN(SAME_BITS, 1, WORD, U32, copy)},
    {"vw_load_tail", 0, OPERATION(.in = {{WORD, TAIL}}, .out = {{U32, VECTOR}}, .reference = load_tail)},
    {"vw_set1", 0, OPERATION(.in = {{WORD, ONE}}, .out = {{U32, VECTOR}}, .reference = broadcast)},
    {"vw_store", HAS_PAIRS, PLAIN(SAME_BITS, 1, WORD, WORD, copy)},
    {"vw_pair", HAS_PAIRS, PLAIN(SAME_NUMBERS, 2, F32, WORD, pair)},
    {"vw_interleave", HAS_PAIRS, PLAIN(SAME_BITS, 2, BF16, WORD, interleave_words)},
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
    {"vf_max_across", HAS_INT8,
     OPERATION(.in = {{F32_NUMBER, VECTOR}}, .out = {{F32, ONE}}, .compare = SAME_VALUES, .reference = largest_lane)},
    {"vf_abs", HAS_INT8, PLAIN(SAME_BITS, 1, F32, F32, size)},
};

const struct group group_operations = {
    .name = "operations",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = operation_has_code,
    .check = check_operation,
    .time = time_operation,
};
