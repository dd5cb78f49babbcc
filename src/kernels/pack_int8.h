/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of Q and K in int8 (Zhang et al. 2024, "SageAttention: accurate 8-bit
 * attention for plug-and-play inference acceleration", section 4.2).
 *
 * Each row of Q and of K is divided by its own step, its largest size / 127,
 * and rounded; a score is the integer sum times both steps. From K its mean
 * is taken away first: that moves all scores of a query by the same amount,
 * which softmax does not notice (the log-sum-exp gets it back), and it takes
 * away the offset that the keys have in common, which would use up the range.
 * The mean is that of the first keys, SURVEYED_KEYS of them: enough to find a
 * common offset, and the cost does not grow with the sequence. Keys that no
 * query of the call sees may hold anything and do not count; which these are
 * under a mask is not worth finding out, and nothing is taken away then.
 *
 * The step of Q, with the scale, is the factor of the query. A row of K with a
 * NaN or Inf has the step NaN, so that its scores are NaN, and does not count in
 * the mean; a row of Q with one gives results that are NaN, if it sees a key at
 * all.
 */
#ifndef ATTN_PACK_INT8_H
#define ATTN_PACK_INT8_H

#include "kernels/query_words.h"
#include "kernels/rows.h"
#include "simd/words.h"

#include <float.h>
#include <math.h>

#define INT8_MAX_F    127.0f
#define SURVEYED_KEYS 512
#define SURVEY_AHEAD  16 /* keys */

/** Elements that whole vectors cover: what the helpers below read and write of buffers. */
ATTN_INLINE int64_t row_pitch(int64_t n)
{
    return (n + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

/** Elements c, c + 1, ... of a row of n, less its mean; 0 behind the last. */
ATTN_INLINE vf centred(const attn_dtype dtype, const char *row, const float *scales, const float *mean, int64_t c,
                       int64_t n)
{
    return n - c < VF_LEN ? vf_sub(stored_load_tail(dtype, row, c, (int)(n - c), scales), vf_load(mean + c))
                          : vf_sub(stored_load(dtype, row, c, scales), vf_load(mean + c));
}

ATTN_INLINE void centre_body(const attn_dtype dtype, const char *row, const float *scales, const float *mean, int64_t n,
                             float *to, float *largest)
{
    vf top = vf_zero(), check = vf_zero();
    for (int64_t c = 0; c < n; c += VF_LEN) {
        const vf x = centred(dtype, row, scales, mean, c, n);
        vf_store(to + c, x);
        check = vf_fma(x, vf_zero(), check); /* NaN for Inf and NaN */
        top = vf_max(vf_abs(x), top);
    }
    const vf bad = vf_select(vf_eq(check, vf_zero()), vf_zero(), vf_set1(1.0f));
    *largest = vm_any(vf_gt(bad, vf_zero())) ? NAN : vf_max_across(top);
}

/** to[c] = row[c] - mean[c]; returns the largest size of the n differences, NaN if one is not finite. */
static float centre_row(attn_dtype dtype, const char *row, const float *scales, const float *mean, int64_t n, float *to)
{
    float largest;
    ATTN_BY_STORED(dtype, centre_body, row, scales, mean, n, to, &largest);
    return largest;
}

/** Rows that become int8 together, a row in each lane. */
struct lane_rows {
    const char *row[VF_LEN];
    const float *scales[VF_LEN];
    int there; /**< the first ones; the others are not looked at */
    const float *mean;
    int64_t n; /**< elements of each */
};

/** In each lane the largest size of its row: 0 where there is none, NaN if not all of it is finite. */
ATTN_INLINE vf largest_sizes(const attn_dtype dtype, const struct lane_rows *x)
{
    vf size[VF_LEN];
    for (int i = 0; i < VF_LEN; i++) {
        vu bits = vu_set1(0); /* sizes are in the order of their bits, Inf and NaN above all others */
        for (int64_t c = 0; i < x->there && c < x->n; c += VF_LEN)
            bits = vu_max(bits, vu_bits_of(vf_abs(centred(dtype, x->row[i], x->scales[i], x->mean, c, x->n))));
        size[i] = vf_of_bits(bits);
    }
    vf_transpose(size);
    vu bits = vu_bits_of(size[0]);
    ATTN_UNROLL
    for (int i = 1; i < VF_LEN; i++)
        bits = vu_max(bits, vu_bits_of(size[i]));
    return vf_of_bits(vu_or(bits, vu_at_least(bits, vu_set1(0x7f800000))));
}

/** What brings rows with these largest sizes to int8; rows of denormals become 0. */
ATTN_INLINE vf inverse_steps(vf top)
{
    const vf inverse = vf_div(vf_set1(INT8_MAX_F), top);
    return vf_select(vf_ge(vf_set1(FLT_MAX), inverse), inverse, vf_zero());
}

/** Multiplies row i, rounds it to int8 and stores it, and what follows up to a whole vector; returns the sums. */
ATTN_INLINE vs quantize_row(const attn_dtype dtype, const struct lane_rows *x, int i, float inverse, int8_t *dst)
{
    vs sums = vs_zero();
    for (int64_t c = 0; c < x->n; c += VF_LEN) {
        const vf element = centred(dtype, x->row[i], x->scales[i], x->mean, c, x->n);
        sums = vs_add(sums, vs_quantize(dst + c, vf_mul(element, vf_set1(inverse))));
    }
    return sums;
}

/** Adds the columns of all keys, four vectors at a time. */
ATTN_INLINE void sum_columns(const attn_dtype dtype, const struct attn_rows *rows, int64_t n, int64_t cols, float *sum)
{
    for (int64_t c = 0; c < cols; c += 4 * VF_LEN) {
        vf total[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (int64_t j = 0; j < n; j++) {
            const float *const scales = scales_at(dtype, rows, j);
            if (c == 0 && j + SURVEY_AHEAD < n) /* rows of several heads lie apart, and prefetchers lose them */
                prefetch_rows(rows, j + SURVEY_AHEAD, j + SURVEY_AHEAD + 1, cols, 0);
            ATTN_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t at = c + i * VF_LEN, rest = cols - at;
                const char *row = row_at(rows, j);
                if (rest > 0)
                    total[i] = vf_add(total[i], rest < VF_LEN ? stored_load_tail(dtype, row, at, (int)rest, scales)
                                                              : stored_load(dtype, row, at, scales));
            }
        }
        for (int i = 0; i < 4 && c + i * VF_LEN < cols; i++)
            vf_store(sum + c + i * VF_LEN, total[i]);
    }
}

/** The mean becomes that of the finite rows among the first of K. */
static void survey_keys(const struct attn_rows *k, int64_t known, int64_t dk, const struct attn_int8_memory *memory)
{
    const int64_t pitch = row_pitch(dk), keys = known < SURVEYED_KEYS ? known : SURVEYED_KEYS;
    float *mean = memory->mean;
    int64_t count = keys;
    memset(mean, 0, (size_t)pitch * sizeof *mean);
    memset(memory->zeros, 0, (size_t)pitch * sizeof *mean);
    ATTN_BY_STORED(k->dtype, sum_columns, k, keys, dk, mean);
    if (isnan(centre_row(ATTN_F32, (const char *)mean, NULL, memory->zeros, dk, memory->row))) { /* row by row then */
        memset(mean, 0, (size_t)pitch * sizeof *mean);
        count = 0;
        for (int64_t j = 0; j < keys; j++) {
            if (isnan(centre_row(k->dtype, row_at(k, j), scales_at(k->dtype, k, j), memory->zeros, dk, memory->row)))
                continue;
            count++;
            for (int64_t c = 0; c < dk; c += VF_LEN)
                vf_store(mean + c, vf_add(vf_load(mean + c), vf_load(memory->row + c)));
        }
    }
    for (int64_t c = 0; count > 0 && c < dk; c++) {
        mean[c] /= (float)count;
        if (!isfinite(mean[c])) /* the sum has left the range of a float: do without */
            mean[c] = 0.0f;
    }
}

/** The product of two rows that end in zeros up to a whole vector. */
static float dot_rows(const float *x, const float *y, int64_t n)
{
    float lanes[VF_LEN], total = 0.0f;
    vf sum = vf_zero();
    for (int64_t c = 0; c < n; c += VF_LEN)
        sum = vf_fma(vf_load(x + c), vf_load(y + c), sum);
    vf_store(lanes, sum);
    for (int i = 0; i < VF_LEN; i++)
        total += lanes[i];
    return total;
}

/** What the scores of a query have lost with the mean. */
static float lost_with_mean(const struct attn_pack_queries *x, int r)
{
    const struct attn_int8_memory *memory = &x->int8;
    centre_row(x->dtype, x->rows[r], NULL, memory->zeros, x->dk, memory->row);
    return x->scale * dot_rows(memory->row, memory->mean, x->dk);
}

/** A vector of queries, from row r on: their rows in int8, and their factors, which are their steps times the scale. */
ATTN_INLINE void pack_lanes(const attn_dtype dtype, const struct attn_pack_queries *x, int r)
{
    const struct attn_int8_memory *memory = &x->int8;
    const int64_t words = channel_words(x->dk), pitch = row_pitch(x->dk);
    const int64_t stored = (x->dk + VF_LEN - 1) / VF_LEN * VF_LEN;
    const int there = x->n - r > VF_LEN ? VF_LEN : x->n > r ? x->n - r : 0, lane = x->first + r;
    struct lane_rows rows = {.there = there, .mean = memory->zeros, .n = x->dk};
    for (int i = 0; i < there; i++)
        rows.row[i] = x->rows[r + i];
    float inverse[VF_LEN];
    const vf top = largest_sizes(dtype, &rows);
    const vf step = vf_mul(vf_div(top, vf_set1(INT8_MAX_F)), vf_set1(fabsf(x->scale)));
    const vm usable = vf_ge(vf_set1(FLT_MAX), step);
    const vf least = vf_set1(FLT_MIN); /* not 0, whose product with -inf is NaN */
    vf_store(x->factor + lane, vf_select(usable, vf_max(step, least), least));
    vf_store(x->validity + lane, vf_select(usable, vf_set1(1.0f), vf_set1(NAN)));
    vf_store(inverse, vf_mul(inverse_steps(top), vf_set1(x->scale < 0.0f ? -1.0f : 1.0f)));
    for (int i = 0; i < VF_LEN; i++) {
        int8_t *const bytes = memory->bytes + i * pitch;
        const int known = i < there && x->validity[lane + i] == 1.0f;
        x->shift[lane + i] = known && x->shifts ? lost_with_mean(x, r + i) : 0.0f;
        const int64_t made = known ? stored : 0;
        if (known)
            quantize_row(dtype, &rows, i, inverse[i], bytes);
        memset(bytes + made, 0, (size_t)(pitch - made));
    }
    for (int64_t c = 0; c < words; c += VF_LEN) {
        vf a[VF_LEN];
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            a[i] = vf_load((const void *)(memory->bytes + i * pitch + c * VS_PACK));
        vf_transpose(a);
        for (int i = 0; i < VF_LEN; i++) /* adds the offset to each byte */
            a[i] = vf_of_bits(vu_xor(vu_bits_of(a[i]), vu_set1(VS_OFFSET * 0x01010101u)));
        put_query_words(x, r, c, words, a);
    }
}

static void pack_queries(const struct attn_pack_queries *x)
{
    for (int r = 0; r < x->fill; r += VF_LEN)
        ATTN_BY_DTYPE(x->dtype, pack_lanes, x, r);
}

ATTN_INLINE void pack_keys_body(const attn_dtype dtype, const struct attn_rows *src, int n, int64_t dk,
                                const struct attn_int8_memory *memory, const struct attn_packed_keys *dst)
{
    const int64_t pitch = channel_words(dk) * ATTN_WORD, stored = (dk + VF_LEN - 1) / VF_LEN * VF_LEN;
    for (int j = 0; j < n; j += VF_LEN) {
        struct lane_rows rows = {.there = n - j < VF_LEN ? n - j : VF_LEN, .mean = memory->mean, .n = dk};
        for (int i = 0; i < rows.there; i++) {
            rows.row[i] = row_at(src, j + i);
            rows.scales[i] = scales_at(dtype, src, j + i);
        }
        float inverse[VF_LEN];
        const vf top = largest_sizes(dtype, &rows);
        vf_store(inverse, inverse_steps(top));
        vf_store_tail(dst->scale + j, vf_div(top, vf_set1(INT8_MAX_F)), rows.there);
        for (int i = 0; i < rows.there; i++) {
            /* There is room for floats; what is stored behind a row is overwritten by the next one. */
            int8_t *const row = (int8_t *)dst->words + (j + i) * pitch;
            dst->start[j + i] = -VS_OFFSET * vs_sum(quantize_row(dtype, &rows, i, inverse[i], row));
            if (pitch > stored) /* a set that multiplies several words at once */
                memset(row + stored, 0, (size_t)(pitch - stored));
        }
    }
}

/** Rows in int8, their steps, and where their sums start. */
static void pack_keys(const struct attn_rows *src, int n, int64_t dk, const struct attn_int8_memory *memory,
                      const struct attn_packed_keys *dst)
{
    ATTN_BY_STORED(src->dtype, pack_keys_body, src, n, dk, memory, dst);
}

#endif
