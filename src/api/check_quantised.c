/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the scales of a quantised k and v. Their numbers are looked at
 * where keys are live: a scale that is NaN is more likely a slot that was never
 * filled than a value, and nothing has been written yet. In 4 bits they are a
 * fifth of the cache, so threads share them; if one may be wrong, all are looked
 * at once more in their order, for the sentence.
 */
#include "api/check_internal.h"

#include "api/error.h"
#include "api/executor.h"
#include "driver/ranges.h"
#include "driver/threads.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

/** A tensor of scales, of k or v of a type. */
struct scales {
    const char *name;
    attn_dtype dtype;
    const attn_tensor *t;
    const struct attn_problem *problem;
    atomic_int *may_be_wrong; /**< not NULL: this is set instead of a sentence being said */
};

attn_status attn_check_stored(const char *name, attn_dtype dtype)
{
    if (attn_is_quantised(dtype))
        return ATTN_OK;
    if (dtype != ATTN_F32 && dtype != ATTN_BF16 && dtype != ATTN_F16)
        return attn_fail(ATTN_UNSUPPORTED, "%s.dtype is %s; expected f32, bf16, f16, i8, f8_e4m3 or i4", name,
                         attn_dtype_name(dtype));
    return ATTN_OK;
}

const char *attn_scales_meaning(attn_dtype dtype)
{
    return dtype == ATTN_I4 ? "a scale for each 32 channels of a row" : "a scale for each token and head";
}

/** What is wrong with a scale, in the highest bit: it is not finite, or it has the sign. */
static uint32_t wrong_bits(const float *scale, uint32_t sign)
{
    uint32_t bits;
    memcpy(&bits, scale, sizeof bits);
    return (bits & sign) | ((bits & 0x7fffffffu) + 0x00800000u); /* Inf and NaN carry into the sign */
}

/** Whether one of n floats, step apart, may be not finite, or have the sign: of bits, so that nothing branches. */
static int may_be_wrong(const float *numbers, int64_t n, int64_t step, uint32_t sign)
{
    uint32_t any = 0;
    if (step == 1) {
        for (int64_t i = 0; i < n; i++)
            any |= wrong_bits(&numbers[i], sign);
    } else {
        for (int64_t i = 0; i < n; i++)
            any |= wrong_bits(&numbers[i * step], sign);
    }
    return any >> 31 != 0;
}

/** Says which scale of a group is not finite, rows as below. */
static attn_status fail_groups(const struct scales *x, int64_t b, int64_t h, const float *numbers, int64_t step,
                               int64_t first, int64_t n)
{
    const int64_t groups = x->t->shape[3];
    for (int64_t i = first; i < first + n; i++)
        for (int64_t g = 0; g < groups; g++)
            if (!isfinite(numbers[i * step + g]))
                return attn_fail(ATTN_INVALID_ARGUMENT,
                                 "%s[%" PRId64 "][%" PRId64 "][%" PRId64 "][%" PRId64
                                 "] is %g; expected a finite number",
                                 x->name, b, h, i, g, (double)numbers[i * step + g]);
    return ATTN_OK;
}

/** Says which scale of a row is none. */
static attn_status fail_rows(const struct scales *x, int64_t b, int64_t h, const float *numbers, int64_t step,
                             int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++)
        if (!isfinite(numbers[i * step]) || numbers[i * step] < 0)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "%s[%" PRId64 "][%" PRId64 "][%" PRId64 "] is %g; expected a finite number, 0 or more",
                             x->name, b, h, i, (double)numbers[i * step]);
    return ATTN_OK;
}

/** Whether n rows of scales, from row first on, may have a wrong one: of groups, which may be negative, or of rows. */
static int rows_may_be_wrong(const struct scales *x, const float *numbers, int64_t step, int64_t first, int64_t n)
{
    if (x->dtype != ATTN_I4)
        return may_be_wrong(numbers + first * step, n, step, 0x80000000u);
    const int64_t groups = x->t->shape[3];
    if (step == groups)
        return may_be_wrong(numbers + first * step, n * groups, 1, 0);
    int any = 0;
    for (int64_t i = first; i < first + n; i++)
        any |= may_be_wrong(numbers + i * step, groups, 1, 0);
    return any;
}

/** Scales of a head, n rows of index 0 of the tensor from row first on: (b, h) of it. */
static attn_status check_numbers(const struct scales *x, int64_t b, int64_t h, int64_t first, int64_t n)
{
    const attn_tensor *t = x->t;
    const int64_t step = t->shape[2] > 1 ? t->stride[2] : 0;
    const float *numbers = (const float *)t->data + (b > 0 ? b * t->stride[0] : 0) + (h > 0 ? h * t->stride[1] : 0);
    if (n <= 0 || !rows_may_be_wrong(x, numbers, step, first, n))
        return ATTN_OK;
    if (x->may_be_wrong) {
        atomic_store_explicit(x->may_be_wrong, 1, memory_order_relaxed);
        return ATTN_OK;
    }
    return x->dtype == ATTN_I4 ? fail_groups(x, b, h, numbers, step, first, n)
                               : fail_rows(x, b, h, numbers, step, first, n);
}

/** The same of keys begin..end-1 of a sequence, which are in pages. What no query sees may be no page. */
static attn_status check_pages(const struct scales *x, int64_t s, int64_t h, int64_t begin, int64_t end)
{
    const int64_t size = x->problem->params.page_size;
    const int32_t *table = x->problem->params.block_table + s * x->problem->params.block_table_stride;
    const struct attn_seen_keys seen = attn_seen_keys_of(x->problem, s);
    for (int64_t j = begin; j < end;) {
        const int64_t page = table[j / size], row = j % size, left = end - j;
        const int64_t n = size - row < left ? size - row : left;
        if (attn_is_seen_page(&seen, size, j / size))
            CHECK(check_numbers(x, x->t->shape[0] > 1 ? page : 0, h, row, n));
        j += n;
    }
    return ATTN_OK;
}

/** Parts of the keys of a sequence that are looked at by themselves. */
#define PARTS 16

/** Parts first..end-1 of all sequences and heads. */
static attn_status check_parts(const struct scales *x, int64_t first, int64_t end)
{
    const int64_t heads = x->t->shape[1];
    for (int64_t i = first; i < end; i++) {
        const int64_t s = i / PARTS / heads, h = i / PARTS % heads, part = i % PARTS;
        const struct attn_sequence sequence = attn_sequence_of(x->problem, s);
        const int64_t keys = sequence.end - sequence.begin, each = keys / PARTS + 1;
        const int64_t lo = part * each < keys ? part * each : keys, hi = keys - lo < each ? keys : lo + each;
        if (x->problem->params.block_table)
            CHECK(check_pages(x, s, h, sequence.begin + lo, sequence.begin + hi));
        else
            CHECK(check_numbers(x, x->t->shape[0] > 1 ? sequence.batch : 0, h, sequence.k_first + sequence.begin + lo,
                                hi - lo));
    }
    return ATTN_OK;
}

static void look_at(const void *context, int64_t first, int64_t end)
{
    check_parts(context, first, end);
}

/** The scales of live keys. */
static attn_status check_live(struct scales *x, enum check_depth depth)
{
    const attn_params *p = &x->problem->params;
    const int64_t heads = x->t->shape[1], parts = x->problem->num_sequences * heads * PARTS;
    double numbers = 0;
    if (attn_is_empty(x->t))
        return ATTN_OK;
    for (int64_t s = 0; s < x->problem->num_sequences; s++) {
        const struct attn_sequence sequence = attn_sequence_of(x->problem, s);
        numbers += (double)(sequence.end - sequence.begin) * (double)(heads * x->t->shape[3]);
    }
    const int threads = attn_threads_worth(numbers, ATTN_WORTH_COPY, attn_threads_asked(p->executor, p->num_threads));
    if (threads > 1 && depth & CHECK_ON_THREADS) {
        atomic_int may_be_wrong;
        atomic_init(&may_be_wrong, 0);
        x->may_be_wrong = &may_be_wrong;
        const attn_executor *const before = attn_executor_enter(p->executor);
        attn_run_ranges(parts, threads, look_at, x);
        attn_executor_leave(before);
        x->may_be_wrong = NULL;
        if (!atomic_load_explicit(&may_be_wrong, memory_order_relaxed))
            return ATTN_OK;
    }
    return check_parts(x, 0, parts);
}

/** The scales of x, which is k or v. Copies them. */
static attn_status check_scales(const char *x_name, const attn_tensor *x, const char *name, const attn_tensor *t,
                                attn_tensor *copy, const struct attn_problem *problem, enum check_depth depth)
{
    if (!attn_is_quantised(x->dtype)) {
        if (t)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "%s is set and %s.dtype is %s; expected NULL unless it is i8, f8_e4m3 or i4", name, x_name,
                             attn_dtype_name(x->dtype));
        return ATTN_OK;
    }
    const char *const meaning = attn_scales_meaning(x->dtype);
    if (!t)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL and %s.dtype is %s; expected %s", name, x_name,
                         attn_dtype_name(x->dtype), meaning);
    *copy = *t;
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_f32(name, t->dtype));
    const attn_tensor *k = problem->params.block_table ? &problem->k_pool : &problem->k;
    CHECK(attn_check_one_or(name, t, 0, k->shape[0]));
    CHECK(attn_check_one_or(name, t, 1, k->shape[1]));
    CHECK(attn_check_axis(name, t, 2, k->shape[2], "the tokens of k"));
    CHECK(attn_check_axis(name, t, 3, attn_row_scales(x->dtype, x->shape[3]), meaning));
    if (x->dtype == ATTN_I4 && (depth & CHECK_TENSORS))
        CHECK(attn_check_contiguous(name, t));
    struct scales scales = {.name = name, .dtype = x->dtype, .t = t, .problem = problem};
    return depth & CHECK_SCALES ? check_live(&scales, depth) : ATTN_OK;
}

attn_status attn_check_quantised(struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    CHECK(check_scales("k", &problem->k, "params.k_scale", p->k_scale, &problem->k_scale, problem, depth));
    return check_scales("v", &problem->v, "params.v_scale", p->v_scale, &problem->v_scale, problem, depth);
}
