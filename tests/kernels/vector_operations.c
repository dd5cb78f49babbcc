/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operation on vectors of floats, integers and masks has to give
 * (vf_, vu_, vm_), one lane after the other in plain C, from the contracts in
 * simd_avx512.h. The narrow types are converted by the tests' own arithmetic.
 */
#include "reference.h"
#include "dtype.h"
#include "products.h"
#include "tolerance.h"

#include <math.h>

LANEWISE(iota, float, (float)i)
LANEWISE(iota_integer, uint32_t, (uint32_t)i)
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
LANEWISE(and_integer, uint32_t, a[i] & b[i])
LANEWISE(or_integer, uint32_t, a[i] | b[i])
LANEWISE(xor_integer, uint32_t, a[i] ^ b[i])
LANEWISE(xor3_integer, uint32_t, a[i] ^ b[i] ^ d[i])
LANEWISE(at_least, uint32_t, a[i] >= b[i] ? UINT32_MAX : 0)
LANEWISE(larger_integer, uint32_t, a[i] > b[i] ? a[i] : b[i])
LANEWISE(chosen_bits, uint32_t, (a[i] & b[i]) | (~a[i] & d[i]))
LANEWISE(shifted_left, uint32_t, (out2[i] = a[i] << 31, a[i] << 9))
LANEWISE(shifted_right, uint32_t, (out2[i] = a[i] >> 31, a[i] >> 9))
LANEWISE(and_xor_integer, uint32_t, (a[i] & b[i]) ^ d[i])
LANEWISE(shifted_right_signed, int32_t, (out2[i] = a[i] < 0 ? -1 : 0, (int32_t)floor((double)a[i] / 512)))
LANEWISE(size, uint32_t, a[i] & 0x7fffffffu)

static void larger_halves(const struct call *c)
{
    const uint16_t *a = c->in[0], *b = c->in[1];
    uint16_t *out = c->out[0];
    for (int i = 0; i < 2 * c->set->lanes; i++)
        out[i] = a[i] > b[i] ? a[i] : b[i];
}

static void nearest_integers(const struct call *c)
{
    const float *in = c->in[0];
    int32_t *out = c->out[0];
    for
        LANES(i)
    out[i] = (int32_t)rintf(in[i]);
}

static void four_of_bytes(const struct call *c)
{
    const size_t lanes = (size_t)c->set->lanes;
    for (size_t i = 0; i < 4; i++)
        memcpy((char *)c->out[0] + i * lanes, c->in[i], lanes);
}

/** The upper and the lower bytes of two vectors of halves. */
static void bytes_of_halves(const struct call *c)
{
    uint8_t *upper = c->out[0], *lower = c->out[1];
    const int halves = 2 * c->set->lanes;
    for (int i = 0; i < 2 * halves; i++) {
        const uint16_t half = ((const uint16_t *)c->in[i / halves])[i % halves];
        upper[i] = (uint8_t)(half >> 8);
        lower[i] = (uint8_t)half;
    }
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

static void narrow_two(const struct call *c, attn_dtype dtype)
{
    for (int k = 0; k < 2; k++) {
        const struct call one = {.set = c->set, .in = {c->in[k]}, .out = {c->out[k]}};
        narrow(&one, dtype);
    }
}

static void narrow_two_bf16(const struct call *c)
{
    narrow_two(c, ATTN_BF16);
}

static void narrow_two_f16(const struct call *c)
{
    narrow_two(c, ATTN_F16);
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

static void widen_f8(const struct call *c)
{
    const uint8_t *in = c->in[0];
    float *out = c->out[0];
    for
        LANES(i)
    out[i] = dtype_of_f8(in[i]);
}

/** The four lowest bits of bytes, and the others. */
static void halves_of_bytes(const struct call *c)
{
    const uint8_t *in = c->in[0];
    float *out = c->out[0], *out2 = c->out[1];
    for
        LANES(i)
        {
            out[i] = dtype_of_i4(in[i], 0);
            out2[i] = dtype_of_i4(in[i], 1);
        }
}

static void scaled_halves_of_bytes(const struct call *c)
{
    const float *scale = c->in[1];
    float *out = c->out[0], *out2 = c->out[1];
    halves_of_bytes(c);
    for
        LANES(i)
        {
            out[i] *= *scale;
            out2[i] *= *scale;
        }
}

static void lowest_bytes(const struct call *c)
{
    const uint32_t *in = c->in[0];
    uint8_t *out = c->out[0];
    for
        LANES(i)
    out[i] = (uint8_t)in[i];
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

/** In quarter k of the result lane i: the four lanes of quarter k of vector i. */
static void sum_quarters(const struct call *c)
{
    float *out = c->out[0];
    for
        LANES(i)
        {
            const float *x = (const float *)c->in[i % 4] + i / 4 * 4;
            out[i] = (x[0] + x[2]) + (x[1] + x[3]);
        }
}

/** In quarter k of the result lane i: lanes i of the four quarters of vector k. */
static void turn_quarters(const struct call *c)
{
    const uint32_t *in = c->in[0];
    uint32_t *out = c->out[0];
    for
        LANES(i)
    out[i] = in[i % 4 * 4 + i / 4];
}

static void add_quarters(const struct call *c)
{
    float *out = c->out[0];
    for
        LANES(i)
        {
            const float *x = (const float *)c->in[i / 4] + i % 4;
            out[i] = (x[0] + x[8]) + (x[4] + x[12]);
        }
}

/** Of rows of a block: quarters first, then these, in the order of the contract. */
static void sum_across(const struct call *c)
{
    const float *in = c->in[0];
    float *out = c->out[0];
    const int lanes = c->set->lanes, quarters = lanes < 4 ? 1 : lanes / 4;
    for
        LANES(i)
        {
            const float *x = in + i * lanes;
            float q[4] = {x[0]};
            for (int k = 0; k < quarters && lanes >= 4; k++)
                q[k] = (x[4 * k] + x[4 * k + 2]) + (x[4 * k + 1] + x[4 * k + 3]);
            out[i] = quarters == 1 ? q[0] : quarters == 2 ? q[0] + q[1] : (q[0] + q[2]) + (q[1] + q[3]);
        }
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
FUNCTION(exact_tanh, tanh)

static double exp_twice(double x)
{
    return exp(2 * x);
}

FUNCTION(exact_exp_twice, exp_twice)

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
    {"vf_abs", 0, PLAIN(SAME_BITS, 1, F32, F32, size)},
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
    {"vf_sum_across", 0,
     OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, VECTOR}}, .compare = SAME_NUMBERS, .reference = sum_across)},
    {"vf_sum_quarters", HAS_QUARTERS, PLAIN(SAME_NUMBERS, 4, F32, F32, sum_quarters)},
    {"vf_add_quarters", HAS_QUARTERS, PLAIN(SAME_NUMBERS, 4, F32, F32, add_quarters)},
    {"vf_turn_quarters", HAS_QUARTERS, PLAIN(SAME_BITS, 1, F32, F32, turn_quarters)},
    {"vf_max_across", 0,
     OPERATION(.in = {{F32_NUMBER, VECTOR}}, .out = {{F32, ONE}}, .compare = SAME_VALUES, .reference = largest_lane)},
    {"vf_transpose", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose)},
    {"vf_transpose_from4", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose_from4)},
    {"vf_transpose_to4", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose_to4)},
    {"vf_transpose_from8", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose_from8)},
    {"vf_transpose_to8", 0, OPERATION(.in = {{F32, SQUARE}}, .out = {{F32, SQUARE}}, .reference = transpose_to8)},

    {"vf_exp2", 0, WITHIN(WITHIN_ULP, EXP2_SLEEF_MAX_ULP, F32_NOT_ABOVE_0, exact_exp2)},
    {"vf_exp2_bf16", HAS_PAIRS | HAS_NO_TABLE,
     WITHIN(WITHIN_RELATIVE_OR_FLUSHED, EXP2_BF16_MAX_RELATIVE, F32_NOT_ABOVE_0, exact_exp2)},
    {"vf_exp", 0, WITHIN(WITHIN_ULP, SLEEF_U10_MAX_ULP, F32, exact_exp)},
    {"vf_log", 0, WITHIN(WITHIN_ULP, SLEEF_U10_MAX_ULP, F32, exact_log)},
    {"vf_tanh", 0, WITHIN(WITHIN_ULP, SLEEF_U10_MAX_ULP, F32, exact_tanh)},
    {"vf_tanh_fast", 0, WITHIN(WITHIN_ULP, TANH_FAST_MAX_ULP, F32, exact_tanh)},
    {"vf_exp_twice", 0, WITHIN(WITHIN_ULP, EXP_TWICE_MAX_ULP, F32_TAME, exact_exp_twice)},

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
    {"vu_max", 0, PLAIN(SAME_BITS, 2, U32, U32, larger_integer)},
    {"vu_max_halves", 0, PLAIN(SAME_BITS, 2, U32, U32, larger_halves)},
    {"vu_choose", 0, PLAIN(SAME_BITS, 3, U32, U32, chosen_bits)},
    {"vu_shift_left", 0, OPERATION(.in = {{U32, VECTOR}}, .out = {VECTORS_2(U32)}, .reference = shifted_left)},
    {"vu_shift_right", 0, OPERATION(.in = {{U32, VECTOR}}, .out = {VECTORS_2(U32)}, .reference = shifted_right)},
    {"vu_and_xor", 0, PLAIN(SAME_BITS, 3, U32, U32, and_xor_integer)},
    {"vf_of_bits", 0, PLAIN(SAME_BITS, 1, U32, F32, copy)},
    {"vf_of_ints", 0, PLAIN(SAME_BITS, 1, I32, F32, to_float)},
    {"vf_load_int8", 0, PLAIN(SAME_BITS, 1, INT8, F32, bytes_to_float)},
    {"vf_load_f8", 0, PLAIN(SAME_NUMBERS, 1, INT8, F32, widen_f8)},
    {"vf_load_int4", 0, OPERATION(.in = {{INT8, VECTOR}}, .out = {VECTORS_2(F32)}, .reference = halves_of_bytes)},
    {"vf_scaled_int4", 0,
     OPERATION(.in = {{INT8, VECTOR}, {F32, ONE}}, .out = {VECTORS_2(F32)}, .compare = SAME_NUMBERS,
               .reference = scaled_halves_of_bytes)},
    {"vu_bits_of", 0, PLAIN(SAME_BITS, 1, F32, U32, copy)},
    {"vu_store_bytes", 0, PLAIN(SAME_BITS, 1, U32, INT8, lowest_bytes)},
    {"vu_shift_right_signed", 0,
     OPERATION(.in = {{I32, VECTOR}}, .out = {VECTORS_2(I32)}, .reference = shifted_right_signed)},
    {"vu_rounded", 0, PLAIN(SAME_BITS, 1, F32_BYTE, I32, nearest_integers)},
    {"vf_narrow_bf16", 0,
     OPERATION(.in = {VECTORS_2(F32)}, .out = {VECTORS_2(BF16)}, .compare = SAME_NUMBERS,
               .reference = narrow_two_bf16)},
    {"vf_narrow_f16", 0,
     OPERATION(.in = {VECTORS_2(F32)}, .out = {VECTORS_2(F16)}, .compare = SAME_NUMBERS, .reference = narrow_two_f16)},
    {"vf_pair_bf16", 0,
     OPERATION(.in = {VECTORS_2(F32)}, .out = {VECTORS_2(BF16)}, .compare = SAME_NUMBERS,
               .reference = narrow_two_bf16)},
    {"vf_pair_f16", 0,
     OPERATION(.in = {VECTORS_2(F32)}, .out = {VECTORS_2(F16)}, .compare = SAME_NUMBERS, .reference = narrow_two_f16)},
    {"vu_bytes_of4", 0,
     OPERATION(.in = {VECTORS_3(INT8), {INT8, VECTOR}}, .out = {{U32, VECTOR}}, .reference = four_of_bytes)},
    {"vf_load_pair_bf16", 0, OPERATION(.in = {VECTORS_2(U32)}, .out = {VECTORS_2(U32)}, .reference = bytes_of_halves)},
    {"vu_bytes_of_pairs", 0, OPERATION(.in = {VECTORS_2(U32)}, .out = {VECTORS_2(U32)}, .reference = bytes_of_halves)},
    {"vu_stream", 0, PLAIN(SAME_BITS, 1, U32, U32, copy)},
    {"vu_stream_end", 0, PLAIN(SAME_BITS, 1, U32, U32, copy)},
    {"vf_nibble", 0, OPERATION(.in = {{U32, VECTOR}}, .out = {VECTORS_2(F32)}, .reference = nibbles)},
    {"vu_mul_wide", 0, OPERATION(.in = {VECTORS_2(U32)}, .out = {VECTORS_2(U32)}, .reference = multiply_wide)},
};

const struct group group_vector_operations = {
    .name = "vector_operations",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = operation_has_code,
    .check = check_operation,
    .time = time_operation,
};
