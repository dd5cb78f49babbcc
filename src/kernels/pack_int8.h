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

#include "kernels/rows.h"
#include "simd/words.h"

#include <float.h>
#include <math.h>

#define INT8_MAX_F    127.0f
#define SURVEYED_KEYS 512

/** Elements that whole vectors cover: what the helpers below read and write of buffers. */
ATTN_INLINE int64_t row_pitch(int64_t n)
{
    return (n + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

ATTN_INLINE void centre_body(const attn_dtype dtype, const char *row, const float *scales, const float *mean, int64_t n,
                             float *centred, float *largest)
{
    vf top = vf_zero(), check = vf_zero();
    for (int64_t c = 0; c < n; c += VF_LEN) {
        const vf x = vf_sub(n - c < VF_LEN ? stored_load_tail(dtype, row, c, (int)(n - c), scales)
                                           : stored_load(dtype, row, c, scales),
                            vf_load(mean + c));
        vf_store(centred + c, x);
        check = vf_fma(x, vf_zero(), check); /* NaN for Inf and NaN */
        top = vf_max(vf_abs(x), top);
    }
    const vf bad = vf_select(vf_eq(check, vf_zero()), vf_zero(), vf_set1(1.0f));
    *largest = vm_any(vf_gt(bad, vf_zero())) ? NAN : vf_max_across(top);
}

/** centred[c] = row[c] - mean[c]; returns the largest size of the n differences, NaN if one is not finite. */
static float centre_row(attn_dtype dtype, const char *row, const float *scales, const float *mean, int64_t n,
                        float *centred)
{
    float largest;
    ATTN_BY_STORED(dtype, centre_body, row, scales, mean, n, centred, &largest);
    return largest;
}

/** What brings a row whose largest size is top to int8; a row of denormals becomes 0. */
ATTN_INLINE float inverse_step(float top)
{
    const float inverse = INT8_MAX_F / top;
    return isfinite(inverse) ? inverse : 0.0f;
}

/** Multiplies, rounds to int8 and stores n elements, and what follows up to a whole vector; returns their sum. */
ATTN_INLINE int32_t quantize_row(int8_t *dst, const float *src, float inverse, int64_t n)
{
    vs sums = vs_zero();
    for (int64_t c = 0; c < n; c += VF_LEN)
        sums = vs_add(sums, vs_quantize(dst + c, vf_mul(vf_load(src + c), vf_set1(inverse))));
    return vs_sum(sums);
}

/** Adds the columns of all keys, four vectors at a time. */
ATTN_INLINE void sum_columns(const attn_dtype dtype, const struct attn_rows *rows, int64_t n, int64_t cols, float *sum)
{
    for (int64_t c = 0; c < cols; c += 4 * VF_LEN) {
        vf total[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (int64_t j = 0; j < n; j++) {
            const float *const scales = scales_at(dtype, rows, j);
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

/** Each query's row in int8, and its factor: its step times the scale. */
static void pack_queries(const struct attn_pack_queries *x)
{
    const int64_t dk = x->dk, words = channel_words(dk);
    const float sign = x->scale < 0.0f ? -1.0f : 1.0f;
    const struct attn_int8_memory *memory = &x->int8;
    for (int r = 0; r < x->fill; r++) {
        const int lane = x->first + r;
        x->factor[lane] = FLT_MIN; /* not 0, whose product with -inf is NaN */
        x->validity[lane] = 1.0f;
        x->shift[lane] = 0.0f;
        memset(memory->bytes, 0, (size_t)row_pitch(dk));
        if (r < x->n) {
            const float top = centre_row(x->dtype, x->rows[r], NULL, memory->zeros, dk, memory->row);
            const float step = top / INT8_MAX_F * fabsf(x->scale);
            if (isfinite(step)) {
                x->factor[lane] = fmaxf(step, FLT_MIN);
                if (x->shifts)
                    x->shift[lane] = x->scale * dot_rows(memory->row, memory->mean, dk);
                quantize_row(memory->bytes, memory->row, inverse_step(top) * sign, dk);
            } else {
                x->validity[lane] = NAN;
            }
        }
        for (int64_t c = 0; c < words; c++) {
            uint32_t word;
            memcpy(&word, memory->bytes + c * VS_PACK, sizeof word);
            word ^= VS_OFFSET * 0x01010101u; /* adds the offset to each byte */
            memcpy(x->q + query_word(c, words, x->width, lane), &word, sizeof word);
        }
    }
}

/** Rows in int8, their steps, and where their sums start. */
static void pack_keys(const struct attn_rows *src, int n, int64_t dk, const struct attn_int8_memory *memory,
                      const struct attn_packed_keys *dst)
{
    const int64_t pitch = channel_words(dk) * ATTN_WORD, stored = (dk + VF_LEN - 1) / VF_LEN * VF_LEN;
    for (int j = 0; j < n; j++) {
        /* There is room for floats; what is stored behind a row is overwritten by the next one. */
        int8_t *row = (int8_t *)dst->words + j * pitch;
        const float top =
            centre_row(src->dtype, row_at(src, j), scales_at(src->dtype, src, j), memory->mean, dk, memory->row);
        dst->scale[j] = top / INT8_MAX_F;
        dst->start[j] = -VS_OFFSET * quantize_row(row, memory->row, inverse_step(top), dk);
        if (pitch > stored) /* a set that multiplies several words at once */
            memset(row + stored, 0, (size_t)(pitch - stored));
    }
}

#endif
