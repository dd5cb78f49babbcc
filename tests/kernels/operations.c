/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of the simd headers: draws inputs for each, places them and
 * the outputs between guard pages, flush with the end, flush with the beginning
 * or off every alignment but an element's, and compares with its reference. An
 * operation with a tail is called with every length from 0 to all lanes.
 */
#include "operations.h"
#include "floats.h"
#include "dtype.h"
#include "guard.h"
#include "timing.h"

#include "simd/tanh_polynomial.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_BYTES (MAX_LANES * MAX_LANES * 4)

/** What an element is in this set. */
static enum element resolved(const struct kernel_set *set, enum element element)
{
    if (element == SCORE_SUM)
        return set->score_pack == 4 ? I32 : F32;
    if ((element == WORD && set->value_pack == 1) || (element == SCORE_WORD && set->score_pack == 1))
        return F32;
    return element;
}

static size_t bytes_of(enum element element)
{
    return element == BYTE || element == INT8 ? 1 : element == BF16 || element == F16 ? 2 : 4;
}

/** Alignment that an address may rely on. */
static size_t alignment_of(const struct kernel_set *set, enum element element)
{
    if (element == WORD)
        return 4 / (size_t)set->value_pack;
    return element == SCORE_WORD ? 4 / (size_t)set->score_pack : bytes_of(element);
}

static int count_of(const struct kernel_set *set, enum extent extent, int n)
{
    switch (extent) {
    case ONE:
        return 1;
    case HALF:
        return set->lanes / 2;
    case VECTOR:
        return set->lanes;
    case TAIL:
        return n;
    case SQUARE:
        return set->lanes * set->lanes;
    default:
        return 0;
    }
}

/**
 * Floats that go wrong: specials, borders of types and of ranges, halves
 * between two numbers of a narrow type, and whatever random bits are; half of
 * them plain numbers of a moderate size.
 */
static float draw_float(struct rng *rng)
{
    static const uint32_t special[] = {
        0x00000000, 0x00000001, 0x007fffff, 0x00800000, 0x00800001, 0x33800000, 0x33000000, 0x33000001, 0x387fe000,
        0x38800000, 0x3f000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x4effffff, 0x4f000000, 0x477fe000, 0x477fefff,
        0x477ff000, 0x4b000000, 0x4b800000, 0x5f000000, 0x7effffff, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0x7f800000,
        0x7f800001, 0x7fc00000, 0x7fffffff, 0x42fc0000, 0x43000000, 0x43150000, 0x43160000};
    const uint64_t bits = rng_bits(rng);
    switch (bits >> 60) {
    case 0:
    case 1:
        return float_of(special[(bits & 0xffff) % (sizeof special / sizeof *special)] | (uint32_t)(bits >> 59 & 1)
                                                                                            << 31);
    case 2: /* halfway between two bf16, and beside it */
        return float_of(((uint32_t)bits & 0xffff0000u) + 0x7fffu + (uint32_t)(bits >> 40 & 3));
    case 3: /* the same of f16, in its range */
        return float_of((0x38000000u + ((uint32_t)bits & 0x0fffe000u) + 0xfffu + (uint32_t)(bits >> 40 & 3)) |
                        (uint32_t)(bits >> 59 & 1) << 31);
    case 4: /* denormals of f16 */
        return (float)(bits & 0xfff) * 0x1p-26f * (bits >> 59 & 1 ? -1.0f : 1.0f);
    case 5: /* small whole numbers, which are often equal */
        return (float)((int)(bits & 7) - 4);
    case 6: /* beside an integer and its halves */
        return float_of(bits_of((float)((int)(bits & 511) - 320) * 0.5f) + (uint32_t)(bits >> 40 & 3));
    case 7:
        return float_of((uint32_t)bits);
    case 8: /* tiny, for products and sums that become denormal */
        return float_of(((uint32_t)bits & 0x807fffffu) | (uint32_t)(30 + (bits >> 40 & 63)) << 23);
    case 9:
        return (float)((double)(bits & 0xffffff) * -0x1p-17);
    default:
        return rng_normal(rng) * (bits & 1 ? 1.0f : 20.0f);
    }
}

/** A float that is tiny, or denormal, or 0. */
static float draw_tiny(struct rng *rng)
{
    const uint64_t bits = rng_bits(rng);
    const uint32_t exponent = bits >> 62 ? (uint32_t)(bits >> 40 & 15) : 0;
    return float_of(((uint32_t)bits & 0x807fffffu) | exponent << 23);
}

/** A number of bf16, often such that products are denormal. */
static uint16_t draw_bf16(struct rng *rng)
{
    const uint64_t bits = rng_bits(rng);
    switch (bits >> 61) {
    case 0:
        return (uint16_t)bits;
    case 1:
        return (uint16_t)((bits & 0x807f) | (uint64_t)(56 + (bits >> 40 & 15)) << 7);
    case 2:
        return (uint16_t)(bits_of(draw_float(rng)) >> 16);
    default:
        return dtype_narrow(ATTN_BF16, (double)rng_normal(rng));
    }
}

/** tiny: products of these numbers of bf16, and what they are added to, are denormal or nearly so. */
static uint16_t draw_half(struct rng *rng, int tiny)
{
    const uint64_t bits = rng_bits(rng);
    if (!tiny)
        return draw_bf16(rng);
    return bits >> 63 ? (uint16_t)(bits_of(draw_tiny(rng)) >> 16)
                      : (uint16_t)((bits & 0x807f) | (uint64_t)(60 + (bits >> 40 & 7)) << 7);
}

static void draw_element(struct rng *rng, const struct kernel_set *set, enum element element, int tiny, void *at)
{
    float x;
    uint16_t halves[2];
    uint32_t word;
    switch (element) {
    case BF16:
        halves[0] = draw_half(rng, tiny);
        memcpy(at, halves, 2);
        return;
    case F16:
        halves[0] = (uint16_t)rng_bits(rng);
        memcpy(at, halves, 2);
        return;
    case BYTE: /* mostly all false or all true, as masks are */
        *(uint8_t *)at = rng_percent(rng, 60) ? 0 : (uint8_t)rng_bits(rng);
        return;
    case INT8:
        *(int8_t *)at = (int8_t)rng_bits(rng);
        return;
    case I32_SUMMABLE: {
        const int32_t small = (int32_t)rng_range(rng, -(1 << 26), 1 << 26);
        memcpy(at, &small, 4);
        return;
    }
    case I32:
    case U32: { /* few bits, many bits, borders */
        const uint64_t bits = rng_bits(rng);
        const int kind = (int)(bits >> 62);
        word = kind == 0   ? (uint32_t)bits
               : kind == 1 ? (uint32_t)bits >> (bits >> 40 & 31)
               : kind == 2 ? 0u - ((uint32_t)bits & 3)
                           : (1u << (bits >> 40 & 31)) + ((uint32_t)bits & 3) - 1;
        memcpy(at, &word, 4);
        return;
    }
    case WORD:
    case SCORE_WORD:
        if ((element == WORD ? set->value_pack : set->score_pack) == 2) {
            halves[0] = draw_half(rng, tiny);
            halves[1] = draw_half(rng, tiny);
            memcpy(at, halves, 4);
        } else {
            word = (uint32_t)rng_bits(rng);
            if (rng_percent(rng, 20)) /* the largest products of bytes */
                word = (uint32_t)rng_pick(rng, (const int64_t[]){0x7f7f7f7f, 0x80808080, 0xffffffff}, 3);
            memcpy(at, &word, 4);
        }
        return;
    default:
        x = tiny ? draw_tiny(rng) : draw_float(rng);
    }
    if (element == F32_NUMBER)
        x = isnan(x) ? -1.5f : x;
    else if (element == F32_BELOW_128)
        x = x >= 128 ? -x : x;
    else if (element == F32_NOT_ABOVE_0)
        x = x > 0 ? -x : x;
    else if (element == F32_BYTE)
        x = isnan(x) || fabsf(x) > 127 ? 127.0f : x;
    else if (element == F32_TAME)
        x = fabsf(x) > TANH_TAME ? TANH_TAME * (float)rng_uniform(rng) * (x > 0 ? 1.0f : -1.0f) : x;
    memcpy(at, &x, 4);
}

/** Whether a result is near enough to an exact one. An infinite one counts as 2^128. */
static int near_enough(const struct operation *operation, float got, double exact)
{
    if (isnan(exact) || isnan(got))
        return isnan(exact) && isnan(got);
    if (fabs(exact) >= 0x1p128)
        return isinf(got) && (got < 0) == (exact < 0);
    if (operation->compare != WITHIN_ULP && fabs(exact) < 0x1p-126 && got == 0)
        return 1;
    const double error = fabs((isinf(got) ? copysign(0x1p128, (double)got) : (double)got) - exact);
    if (operation->compare == WITHIN_RELATIVE_OR_FLUSHED)
        return error <= operation->limit * fabs(exact) + 0x1p-149;
    return error <= operation->limit * ulp_of(exact);
}

static int same_narrow(uint16_t got, uint16_t expected, attn_dtype dtype)
{
    return got == expected || (isnan(dtype_widen(dtype, got)) && isnan(dtype_widen(dtype, expected)));
}

static int same_element(const struct operation *operation, enum element element, const unsigned char *got,
                        const unsigned char *expected)
{
    if (memcmp(got, expected, bytes_of(element)) == 0)
        return 1;
    if (operation->compare == SAME_BITS)
        return 0;
    uint16_t a[2], b[2];
    float x, y;
    switch (element) {
    case BF16:
    case F16:
        memcpy(a, got, 2);
        memcpy(b, expected, 2);
        return same_narrow(a[0], b[0], element == F16 ? ATTN_F16 : ATTN_BF16);
    case WORD:
        memcpy(a, got, 4);
        memcpy(b, expected, 4);
        return same_narrow(a[0], b[0], ATTN_BF16) && same_narrow(a[1], b[1], ATTN_BF16);
    case F32:
        memcpy(&x, got, 4);
        memcpy(&y, expected, 4);
        return (isnan(x) && isnan(y)) || (operation->compare == SAME_VALUES && x == y);
    default:
        return 0;
    }
}

/** Appends an element as bits, and as the number that it is. */
static void describe(char *text, size_t size, enum element element, const void *at)
{
    const size_t used = strlen(text);
    uint32_t bits = 0;
    memcpy(&bits, at, bytes_of(element));
    if (bytes_of(element) == 4 && element != I32 && element != I32_SUMMABLE && element != U32 && element != WORD &&
        element != SCORE_WORD)
        snprintf(text + used, size - used, " %a (0x%08" PRIx32 ")", (double)float_of(bits), bits);
    else
        snprintf(text + used, size - used, " 0x%0*" PRIx32, 2 * (int)bytes_of(element), bits);
}

/* Memory of a check: what the operation gets, between guard pages, and what the reference gets. */
struct bench {
    struct guard guard;
    unsigned char *placed; /**< where the operation's operand begins */
    size_t shift;          /**< bytes before it, from where the guard has placed it */
    size_t size;
    _Alignas(64) unsigned char plain[MAX_BYTES];
};

/** Space for an operand between guard pages. */
static void place(struct rng *rng, const struct kernel_set *set, struct bench *b, enum element element, int count)
{
    const int where = (int)rng_range(rng, 0, 2);
    b->size = (size_t)count * bytes_of(element);
    b->shift = where == 2 ? alignment_of(set, element) * (size_t)rng_range(rng, 1, 15) : 0;
    b->placed = (unsigned char *)guard_place(&b->guard, b->size + b->shift, where == 1) + b->shift;
}

/** Whether what lies before and behind an operand is as it was. */
static int intact(const struct bench *b)
{
    for (size_t i = 1; i <= b->shift; i++)
        if (b->placed[-(ptrdiff_t)i] != GUARD_CANARY)
            return 0;
    return guard_intact(&b->guard);
}

static const struct set_operation *find_code(const struct row *row, const struct kernel_set *set)
{
    for (size_t i = 0; i < set->num_operations; i++)
        if (strcmp(set->operations[i].name, row->name) == 0)
            return &set->operations[i];
    return NULL;
}

int operation_has_code(const struct row *row, const struct kernel_set *set)
{
    return find_code(row, set) != NULL;
}

static struct bench inputs[MAX_INPUTS], outputs[MAX_OUTPUTS];

static void make_guards(void)
{
    if (inputs[0].guard.base)
        return;
    for (int i = 0; i < MAX_INPUTS; i++)
        inputs[i].guard = guard_create(MAX_BYTES + 64);
    for (int i = 0; i < MAX_OUTPUTS; i++)
        outputs[i].guard = guard_create(MAX_BYTES + 64);
}

/** One call with a tail of n, or without one, and the comparison. */
static void check_call(const struct row *row, const struct kernel_set *set, struct run *run, int64_t number,
                       struct rng *rng, int n)
{
    const struct operation *operation = row->spec;
    const int tiny = rng_percent(rng, 20);
    double exact[MAX_LANES];
    struct call call = {.set = set, .n = n}, plain = {.set = set, .n = n, .exact = exact};
    for (int i = 0; i < MAX_INPUTS && operation->in[i].extent != ABSENT; i++) {
        const enum element element = resolved(set, operation->in[i].element);
        const int count = count_of(set, operation->in[i].extent, n);
        for (int at = 0; at < count; at++)
            draw_element(rng, set, element, tiny, inputs[i].plain + (size_t)at * bytes_of(element));
        place(rng, set, &inputs[i], element, count);
        memcpy(inputs[i].placed, inputs[i].plain, inputs[i].size);
        call.in[i] = inputs[i].placed;
        plain.in[i] = inputs[i].plain;
    }
    for (int i = 0; i < MAX_OUTPUTS && operation->out[i].extent != ABSENT; i++) {
        place(rng, set, &outputs[i], resolved(set, operation->out[i].element),
              count_of(set, operation->out[i].extent, n));
        call.out[i] = outputs[i].placed;
        plain.out[i] = outputs[i].plain;
    }
    find_code(row, set)->run(&call, 1);
    operation->reference(&plain);

    for (int i = 0; i < MAX_OUTPUTS && operation->out[i].extent != ABSENT; i++) {
        const enum element element = resolved(set, operation->out[i].element);
        const size_t bytes = bytes_of(element);
        for (size_t at = 0; at < outputs[i].size / bytes; at++) {
            const unsigned char *got = outputs[i].placed + at * bytes, *expected = outputs[i].plain + at * bytes;
            float result = 0;
            char text[512] = "";
            if (operation->compare >= WITHIN_ULP) {
                memcpy(&result, got, sizeof result);
                if (near_enough(operation, result, exact[at]))
                    continue;
            } else if (same_element(operation, element, got, expected)) {
                continue;
            }
            snprintf(text, sizeof text, "%s with %d of %d lanes, output %d, element %zu: got", row->name, n, set->lanes,
                     i, at);
            describe(text, sizeof text, element, got);
            if (operation->compare >= WITHIN_ULP) {
                snprintf(text + strlen(text), sizeof text - strlen(text), ", exactly %a within %g, for", exact[at],
                         operation->limit);
            } else {
                strcat(text, ", expected");
                describe(text, sizeof text, element, expected);
                strcat(text, ", for");
            }
            for (int k = 0; k < MAX_INPUTS && operation->in[k].extent != ABSENT; k++) {
                const enum element taken = resolved(set, operation->in[k].element);
                if (at * bytes_of(taken) < inputs[k].size)
                    describe(text, sizeof text, taken, inputs[k].plain + at * bytes_of(taken));
            }
            report_failure(run, number, "%s", text);
        }
        if (!intact(&outputs[i]))
            report_failure(run, number, "%s with %d of %d lanes wrote beside output %d", row->name, n, set->lanes, i);
    }
}

static int has_tail(const struct operation *operation)
{
    return operation->in[0].extent == TAIL || operation->out[0].extent == TAIL;
}

void check_operation(const struct row *row, const struct kernel_set *set, struct run *run)
{
    make_guards();
    const int tail = has_tail(row->spec);
    for (int64_t i = run->only >= 0 ? run->only : 0; i < run->cases; i++) {
        struct rng rng = begin_case(run, i);
        for (int n = tail ? 0 : set->lanes; n <= set->lanes; n++)
            check_call(row, set, run, i, &rng, n);
        if (run->only >= 0)
            return;
    }
}

/** Numbers of a usual size, all lanes, aligned, and in the L1 cache. */
double time_operation(const struct row *row, const struct kernel_set *set)
{
    const struct operation *operation = row->spec;
    const struct set_operation *code = find_code(row, set);
    struct call call = {.set = set, .n = set->lanes};
    struct timing timing = {0};
    for (int i = 0; i < MAX_INPUTS; i++) {
        for (int at = 0; at < MAX_BYTES / 4; at++) {
            const float x = operation->in[i].element == F32_NOT_ABOVE_0 ? -0.01f * (float)at : 1 + 0.01f * (float)at;
            memcpy(inputs[i].plain + 4 * at, &x, sizeof x);
        }
        call.in[i] = inputs[i].plain;
    }
    for (int i = 0; i < MAX_OUTPUTS; i++)
        call.out[i] = outputs[i].plain;
    while (timing_goes_on(&timing))
        code->run(&call, timing.repeat);
    return timing_result(&timing);
}
