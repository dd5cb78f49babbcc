/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores from int8 (Zhang et al. 2024, "SageAttention: accurate 8-bit
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
 * The step of K is multiplied in the tile, the step of Q, with the scale, is
 * the factor of the query. A row of K with a NaN or Inf has the step NaN, so
 * that its scores are NaN, and does not count in the mean; a row of Q with one
 * gives results that are NaN, if it sees a key at all.
 */
#ifndef ATTN_QK_H
#define ATTN_QK_H

#include <float.h>
#include <math.h>

/* K is surveyed and packed once per block of queries. */
#define QUERY_BLOCK   576

#define RAW_SCORES    1
#define INT8_MAX_F    127.0f
#define SURVEYED_KEYS 512

ATTN_INLINE vs score_start(const struct score_operands *x, int j)
{
    return vs_set1(x->start[j]);
}

ATTN_INLINE vf score_finish(const struct score_operands *x, int j, vs sum)
{
    return vf_mul(vs_float(sum), vf_set1(x->k_scale[j]));
}

/** What the scores of a query have lost with the mean of K, in base 2. */
ATTN_INLINE vf score_shift(const struct strip *strip, int i)
{
    return vf_load(strip->shift + i);
}

/** 1, or NaN for a query with a NaN or Inf, which int8 cannot hold: a factor of its results. */
ATTN_INLINE vf query_validity(const struct strip *strip, int i)
{
    return vf_load(strip->validity + i);
}

/** Elements that whole vectors cover: what the helpers below read and write of buffers. */
ATTN_INLINE int64_t row_pitch(int64_t n)
{
    return (n + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

ATTN_INLINE void centre_body(const attn_dtype dtype, const char *row, const float *mean, int64_t n, float *centred,
                             float *largest)
{
    vf top = vf_zero(), check = vf_zero();
    for (int64_t c = 0; c < n; c += VF_LEN) {
        const char *at = row + c * row_element(dtype);
        const vf x =
            vf_sub(n - c < VF_LEN ? row_load_tail(dtype, at, (int)(n - c)) : row_load(dtype, at), vf_load(mean + c));
        vf_store(centred + c, x);
        check = vf_fma(x, vf_zero(), check); /* NaN for Inf and NaN */
        top = vf_max(vf_abs(x), top);
    }
    const vf bad = vf_select(vf_eq(check, vf_zero()), vf_zero(), vf_set1(1.0f));
    *largest = vm_any(vf_gt(bad, vf_zero())) ? NAN : vf_max_across(top);
}

/** centred[c] = row[c] - mean[c]; returns the largest size of the n differences, NaN if one is not finite. */
static float centre_row(attn_dtype dtype, const char *row, const float *mean, int64_t n, float *centred)
{
    float largest;
    ATTN_BY_DTYPE(dtype, centre_body, row, mean, n, centred, &largest);
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
            ATTN_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t at = c + i * VF_LEN, rest = cols - at;
                const char *p = row_at(rows, j) + at * row_element(dtype);
                if (rest > 0)
                    total[i] =
                        vf_add(total[i], rest < VF_LEN ? row_load_tail(dtype, p, (int)rest) : row_load(dtype, p));
            }
        }
        for (int i = 0; i < 4 && c + i * VF_LEN < cols; i++)
            vf_store(sum + c + i * VF_LEN, total[i]);
    }
}

/** scratch->k_mean becomes the mean of the finite rows among the first of K. */
static void survey_keys(const struct attn_work *work, const struct attn_scratch *scratch)
{
    const int64_t dk = work->dk, pitch = row_pitch(dk);
    float *mean = scratch->k_mean;
    const int64_t keys = work->known_keys < SURVEYED_KEYS ? work->known_keys : SURVEYED_KEYS;
    int64_t count = keys;
    memset(mean, 0, (size_t)pitch * sizeof *mean);
    memset(scratch->zeros, 0, (size_t)pitch * sizeof *mean);
    ATTN_BY_DTYPE(work->k.dtype, sum_columns, &work->k, keys, dk, mean);
    if (isnan(centre_row(ATTN_F32, (const char *)mean, scratch->zeros, dk, scratch->k_row))) { /* row by row then */
        memset(mean, 0, (size_t)pitch * sizeof *mean);
        count = 0;
        for (int64_t j = 0; j < keys; j++) {
            if (isnan(centre_row(work->k.dtype, row_at(&work->k, j), scratch->zeros, dk, scratch->k_row)))
                continue;
            count++;
            for (int64_t c = 0; c < dk; c += VF_LEN)
                vf_store(mean + c, vf_add(vf_load(mean + c), vf_load(scratch->k_row + c)));
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

/** Q^T of the rows of a strip in int8, and each query's factor: its step times the scale. */
static void pack_queries(const struct attn_work *work, const struct attn_scratch *scratch, const struct strip *strip)
{
    const int64_t dk = work->dk, words = channel_words(dk);
    const int width = strip->nv * VF_LEN;
    const float sign = work->scale < 0.0f ? -1.0f : 1.0f;
    int8_t *bytes = scratch->q_row;
    for (int r = 0; r < width; r++) {
        strip->factor[r] = FLT_MIN; /* not 0, whose product with -inf is NaN */
        strip->validity[r] = 1.0f;
        strip->shift[r] = 0.0f;
        memset(bytes, 0, (size_t)row_pitch(dk));
        if (r < strip->rows) {
            const struct attn_rows row = query_rows(work, scratch, strip, r, 1);
            const float top = centre_row(row.dtype, row.data, scratch->zeros, dk, scratch->k_row);
            const float step = top / INT8_MAX_F * fabsf(work->scale);
            if (isfinite(step)) {
                strip->factor[r] = fmaxf(step, FLT_MIN);
                if (work->lse)
                    strip->shift[r] = work->scale * dot_rows(scratch->k_row, scratch->k_mean, dk);
                quantize_row(bytes, scratch->k_row, inverse_step(top) * sign, dk);
            } else {
                strip->validity[r] = NAN;
            }
        }
        for (int64_t c = 0; c < words; c++) {
            uint32_t word;
            memcpy(&word, bytes + c * VS_PACK, sizeof word);
            word ^= VS_OFFSET * 0x01010101u; /* adds the offset to each byte */
            memcpy(strip->q + c * width + r, &word, sizeof word);
        }
    }
}

/** n rows of K in int8, from row at of the copy on, their steps, and where their sums start. */
static void pack_keys(const struct attn_scratch *scratch, const struct attn_rows *src, int at, int n, int64_t dk)
{
    const int64_t pitch = channel_words(dk) * WORD;
    for (int j = 0; j < n; j++) {
        /* The buffer has room for floats; what is stored behind a row is overwritten by the next one. */
        int8_t *row = (int8_t *)scratch->k + (at + j) * pitch;
        const float top = centre_row(src->dtype, row_at(src, j), scratch->k_mean, dk, scratch->k_row);
        scratch->k_scale[at + j] = top / INT8_MAX_F;
        scratch->k_start[at + j] = -VS_OFFSET * quantize_row(row, scratch->k_row, inverse_step(top), dk);
    }
}

#endif
