/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scores of few queries where a sum may add its channels in any order
 * (attn_params.sums): channels are the lanes.
 *
 *     S[query][key] = sum over lanes of sum_c Q[query][c] * K[key][c]
 *
 * K is read as it lies, a vector of words at a time, against the same words of
 * every query, whose rows are not turned. What is left of a key and query is a
 * vector of partial sums, and VF_LEN of these vectors become one vector of scores
 * (vf_sum_across). score_few.h turns all of K instead, to keep the order of a
 * tile.
 *
 * Keys are taken from the four quarters of the tile in turns: memory is faster
 * with four streams than with one. The scale of a key multiplies the finished sum.
 * The order of a sum follows from its words alone, so a score does not depend on
 * what else is computed. Types that are turned at less cost (attn_turns_faster())
 * come here in pairs of bf16 alone.
 */
#ifndef ATTN_SCORE_FREE_H
#define ATTN_SCORE_FREE_H

#include "kernels/int4_pairs.h"
#include "kernels/score_few.h"

#if VF_LEN == 1 || defined(ATTN_SCORE_PRODUCTS)
#define SCORES_FREE NULL
#else
#define SCORES_FREE score_free

/** Streams, and the keys of each in a group. */
#define STREAMS     4
#define STREAM_KEYS (VF_LEN / STREAMS)

/** Queries at a time: STREAMS sums for each of them, as many operands and one more fit into registers. */
#define FREE_ROWS   (VF_STRIP * VF_CHANNELS > 16 && FEW >= 4 ? 4 : 2)

/** VF_LEN keys, STREAM_KEYS of them next to each other; of the last ones of a tile some may be there twice. */
struct free_keys {
    int first[STREAMS];
    int last; /**< of the tile: what would lie behind it is this one */
};

static inline int free_key(const struct free_keys *keys, int stream, int i)
{
    const int key = keys->first[stream] + i;
    return key < keys->last ? key : keys->last;
}

/* Partial sums of a query and the keys of a group: VF_LEN floats of each or, where quarters of a vector are added up by
 * themselves, of the ith keys of all streams together. */
#if VF_LEN == 16
#define IN_QUARTERS 1
typedef float free_parts[FEW][STREAM_KEYS][VF_LEN];
#else
#define IN_QUARTERS 0
typedef float free_parts[FEW][VF_LEN][VF_LEN];
#endif

/** A key of each stream. */
struct free_rows {
    const char *at[STREAMS];
};

/** Words c.. of a key; n: those that are there, if not whole. */
ATTN_INLINE vq free_words(const attn_dtype dtype, const int whole, const char *row, int64_t c, int n)
{
#if VS_PACK == 1
    return whole ? stored_numbers(dtype, row, c) : stored_numbers_tail(dtype, row, c, n);
#else
    const char *const at = stored_at(dtype, row, c);
    return whole ? vw_load(at) : vw_load_tail(at, n);
#endif
}

/** Adds words c.. of nr queries and a key of each stream. */
ATTN_INLINE void free_step(const attn_dtype dtype, const int nr, const int whole, const float *q, int64_t words,
                           const struct free_rows *rows, int64_t c, int n, vs acc[STREAMS][FREE_ROWS])
{
    vq k[STREAMS];
    ATTN_UNROLL
    for (int s = 0; s < STREAMS; s++)
        k[s] = free_words(dtype, whole, rows->at[s], c, n);
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        const vq a = whole ? vq_load(q + r * words + c) : vw_load_tail(q + r * words + c, n);
        ATTN_UNROLL
        for (int s = 0; s < STREAMS; s++)
            acc[s][r] = vs_dot(k[s], a, acc[s][r]);
    }
}

#ifdef VW_F8
/** The same of E4M3, two vectors of words, of which n words are there. */
ATTN_INLINE void free_f8_step(const int nr, const int whole, const float *q, int64_t words,
                              const struct free_rows *rows, int64_t c, int n, vs acc[STREAMS][FREE_ROWS])
{
    vq k[STREAMS][2];
    ATTN_UNROLL
    for (int s = 0; s < STREAMS; s++)
        vw_load_f8(rows->at[s] + VS_PACK * c, whole ? 2 * VS_PACK * VF_LEN : VS_PACK * n, k[s]);
    ATTN_UNROLL
    for (int v = 0; v < 2; v++) {
        const int left = n - v * VF_LEN;
        if (!whole && left <= 0)
            break;
        ATTN_UNROLL
        for (int r = 0; r < nr; r++) {
            const float *const at = q + r * words + c + v * VF_LEN;
            const vq a = whole || left >= VF_LEN ? vq_load(at) : vw_load_tail(at, left);
            ATTN_UNROLL
            for (int s = 0; s < STREAMS; s++)
                acc[s][r] = vs_dot(k[s][v], a, acc[s][r]);
        }
    }
}
#endif

/** Keeps the partial sums of a query and the ith key of each stream. */
ATTN_INLINE void free_keep(const vf of_stream[STREAMS], int i, float parts[][VF_LEN])
{
#if IN_QUARTERS
    vf_store(parts[i], vf_sum_quarters(of_stream));
#else
    ATTN_UNROLL
    for (int s = 0; s < STREAMS; s++)
        vf_store(parts[s * STREAM_KEYS + i], of_stream[s]);
#endif
}

/** The sums that they make, in the order of the keys. */
ATTN_INLINE vf free_add(float parts[][VF_LEN])
{
#if IN_QUARTERS
    const vf quarters[STREAM_KEYS] = {vf_load(parts[0]), vf_load(parts[1]), vf_load(parts[2]), vf_load(parts[3])};
    return vf_turn_quarters(vf_add_quarters(quarters));
#else
    vf lanes[VF_LEN];
    ATTN_UNROLL
    for (int u = 0; u < VF_LEN; u++)
        lanes[u] = vf_load(parts[u]);
    return vf_sum_across(lanes);
#endif
}

/** The ith key of each stream of a group, against queries r..r+nr-1. */
ATTN_INLINE void free_products(const attn_dtype dtype, const int nr, const struct attn_score_operands *x,
                               const struct free_rows *rows, int i, int r, free_parts parts)
{
    const int64_t words = x->words;
    const float *const q = x->q + r * words;
    vs acc[STREAMS][FREE_ROWS];
    ATTN_UNROLL
    for (int s = 0; s < STREAMS; s++) {
        ATTN_UNROLL
        for (int row = 0; row < nr; row++)
            acc[s][row] = vs_zero();
    }
    int64_t c = 0;
#ifdef VW_F8
    if (dtype == ATTN_F8_E4M3) {
        for (; c + 2 * VF_LEN <= words; c += 2 * VF_LEN)
            free_f8_step(nr, 1, q, words, rows, c, 2 * VF_LEN, acc);
        if (c < words)
            free_f8_step(nr, 0, q, words, rows, c, (int)(words - c), acc);
        c = words;
    }
#endif
#pragma GCC unroll 2
    for (; c + VF_LEN <= words; c += VF_LEN)
        free_step(dtype, nr, 1, q, words, rows, c, VF_LEN, acc);
    if (c < words)
        free_step(dtype, nr, 0, q, words, rows, c, (int)(words - c), acc);
    ATTN_UNROLL
    for (int row = 0; row < nr; row++) {
        const vf of_row[STREAMS] = {acc[0][row], acc[1][row], acc[2][row], acc[3][row]};
        free_keep(of_row, i, parts[r + row]);
    }
}

/** Scales of a group of quantised keys. */
ATTN_INLINE vf free_scales(const struct attn_score_operands *x, const struct free_keys *keys)
{
    float scales[VF_LEN];
    ATTN_UNROLL
    for (int u = 0; u < VF_LEN; u++)
        scales[u] = *x->listed.scale[free_key(keys, u / STREAM_KEYS, u % STREAM_KEYS)];
    return vf_load(scales);
}

/** Sums of a group of keys: t[r] of query r, for x->rows of them. */
ATTN_INLINE void free_sums(const attn_dtype dtype, const struct attn_score_operands *x, const struct free_keys *keys,
                           vf *t)
{
    free_parts parts;
    for (int i = 0; i < STREAM_KEYS; i++) {
        struct free_rows rows;
        ATTN_UNROLL
        for (int s = 0; s < STREAMS; s++) {
            const int j = free_key(keys, s, i);
            rows.at[s] = x->listed.at[j];
            ask_for_rows(&x->listed, j, j + 1);
        }
        int r = 0;
        for (; r + FREE_ROWS <= x->rows; r += FREE_ROWS)
            free_products(dtype, FREE_ROWS, x, &rows, i, r, parts);
        if (FREE_ROWS > 2 && r + 2 <= x->rows) {
            free_products(dtype, 2, x, &rows, i, r, parts);
            r += 2;
        }
        if (r < x->rows)
            free_products(dtype, 1, x, &rows, i, r, parts);
    }
    const int scaled = attn_is_quantised(dtype);
    const vf scale = scaled ? free_scales(x, keys) : vf_zero();
    for (int r = 0; r < x->rows; r++) {
        const vf sums = free_add(parts[r]);
        t[r] = scaled ? vf_mul(sums, scale) : sums;
    }
}

#ifdef VW_INT4
/** The same of nr queries from r on, of ATTN_I4. */
ATTN_INLINE void free_int4_rows(const int nr, const struct attn_score_operands *x, const struct free_keys *keys, int r,
                                vf *t)
{
    const int64_t groups = attn_groups_of(VS_PACK * x->words), pitch = attn_int4_words(VS_PACK * x->words);
    vf sums[STREAMS][4], of_query[4];
    for (int s = 0; s < STREAMS; s++) {
        struct int4_rows rows;
        ATTN_UNROLL
        for (int i = 0; i < STREAM_KEYS; i++) {
            const int j = free_key(keys, s, i);
            rows.at[i] = x->listed.at[j];
            rows.scale[i] = x->listed.scale[j];
            if (r == 0)
                ask_for_rows(&x->listed, j, j + 1);
        }
        int4_products(nr, groups, &rows, x->q + r * pitch, pitch, sums[s]);
    }
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int s = 0; s < STREAMS; s++)
            of_query[s] = sums[s][i];
        t[r + i] = vf_add_quarters(of_query);
    }
}

/** free_sums() of ATTN_I4. */
ATTN_INLINE void free_int4_sums(const struct attn_score_operands *x, const struct free_keys *keys, vf *t)
{
    int r = 0;
    for (; r + 4 <= x->rows; r += 4)
        free_int4_rows(4, x, keys, r, t);
    if (r + 2 <= x->rows) {
        free_int4_rows(2, x, keys, r, t);
        r += 2;
    }
    if (r < x->rows)
        free_int4_rows(1, x, keys, r, t);
}
#endif

/** Scores of a group of keys, of which the first there are there. */
ATTN_INLINE void free_group(const attn_dtype dtype, const struct attn_score_operands *x, const struct free_keys *keys,
                            int there, vf *max)
{
    vf t[VF_LEN];
    ATTN_UNROLL
    for (int r = 0; r < VF_LEN; r++)
        t[r] = vf_zero();
#ifdef VW_INT4
    if (dtype == ATTN_I4)
        free_int4_sums(x, keys, t);
    else
#endif
        free_sums(dtype, x, keys, t);
    if (x->rows <= 4)
        vf_transpose_from4(t);
    else
        vf_transpose(t);
    score_sums sums;
    ATTN_UNROLL
    for (int u = 0; u < VF_LEN; u++)
        sums[u][0] = t[u];
#define STORE_SCORES(kind)                                                                                             \
    if (there == VF_LEN)                                                                                               \
        for (int s = 0; s < STREAMS; s++)                                                                              \
            store_scores(kind, STREAM_KEYS, 0, 1, x, keys->first[s], sums + s * STREAM_KEYS, max);                     \
    else                                                                                                               \
        for (int u = 0; u < there; u++)                                                                                \
        store_scores(kind, 1, 0, 1, x, keys->first[0] + u, sums + u, max)
    ATTN_BY_MASK(x->mask->kind, STORE_SCORES);
#undef STORE_SCORES
}

ATTN_INLINE void score_free_body(const attn_dtype dtype, const struct attn_score_operands *x, int n, float *max_out)
{
    const int quarter = n / VF_LEN * STREAM_KEYS;
    vf max = vf_set1(-INFINITY);
    struct free_keys keys = {.last = n - 1};
    for (int at = 0; at < quarter; at += STREAM_KEYS) {
        for (int s = 0; s < STREAMS; s++)
            keys.first[s] = s * quarter + at;
        free_group(dtype, x, &keys, VF_LEN, &max);
    }
    if (STREAMS * quarter < n) {
        for (int s = 0; s < STREAMS; s++)
            keys.first[s] = STREAMS * quarter + s * STREAM_KEYS;
        free_group(dtype, x, &keys, n - STREAMS * quarter, &max);
    }
    if (RAW_SCORES && x->mask->kind != MASK_BIAS)
        max = vf_mul(max, vf_load(x->factor));
    vf_store(max_out, max);
}

#if VS_PACK == 1
ATTN_APART(score_free_i8, score_free_body, (const struct attn_score_operands *x, int n, float *max), ATTN_I8, x, n, max)
ATTN_APART_DTYPE(score_free, score_free_body, (const struct attn_score_operands *x, int n, float *max), x, n, max)
#endif

/** struct attn_score_kernels, scores_free. */
static void score_free(const struct attn_score_operands *x, int n, float *max)
{
#if VS_PACK == 1
    if (x->listed.dtype == ATTN_I8)
        score_free_i8(x, n, max);
    else
        ATTN_BY_DTYPE_APART(x->listed.dtype, score_free, x, n, max);
#else
#ifdef VW_INT4
    if (x->listed.dtype == ATTN_I4) {
        score_free_body(ATTN_I4, x, n, max);
        return;
    }
#endif
#ifdef VW_F8
    if (x->listed.dtype == ATTN_F8_E4M3) {
        score_free_body(ATTN_F8_E4M3, x, n, max);
        return;
    }
#endif
    score_free_body(ATTN_F32, x, n, max); /* a word has the size of a float */
#endif
}

#endif

#endif
