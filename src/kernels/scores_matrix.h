/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores from pairs of bf16, or fours of int8 (ATTN_SCORE says which), on matrix
 * registers (simd/matrix_*.h):
 *
 *     S[16 keys][16 queries] = sum over chunks of 16 words of K[16 keys][chunk] * Q[chunk][16 queries]
 *
 * Rows of K are the first factor as they lie in memory, Q^T in lane order is the
 * second one, and what comes out has queries for lanes: nothing is moved into
 * place. A row has whole chunks, of 32 or 64 channels; pack_keys() copies rows
 * that do not. A score's sum over the chunks runs through its register, from the
 * first one on. Sums of int8 are integers, which the step of the key makes
 * scores when they are read again.
 *
 * A strip has two vectors at most, so that its Q, S, P and O stay in L1 while K
 * and V pass by. Registers 6 and 7 hold the sums of the first and the second
 * one. Up to two chunks 0 to 3 hold Q, and K comes through 4 and 5; with more,
 * 0 to 3 hold four chunks of K, and Q comes through 4 and 5. A register is
 * stored when the products of the next one are under way: a store that waits for
 * its product keeps what follows waiting too. Behind it the mask is put on the
 * scores before, which have arrived.
 *
 * Blocks that a strip sees whole are walked over without a pause, their values
 * along with their scores (walk_matrix.h).
 */
#ifndef ATTN_SCORES_H
#define ATTN_SCORES_H

#include ATTN_MATRIX
#define ATTN_WORD_STEP MATRIX_WORDS

#include "kernels/groups_matrix.h"
#include "kernels/mask.h"

#if VS_PACK == 4
#include "kernels/pack_int8.h"
#define matrix_dot_words matrix_dot_int8
#else
#include "kernels/pack_bf16.h"
#define matrix_dot_words matrix_dot_bf16
#endif

/** The register of keys j.., MATRIX_ROWS of them, that is at work. */
struct score_keys {
    const struct attn_score_operands *x;
    int j, n;
    char *copy; /* [MATRIX_ROWS][CHUNK_BYTES] */
};

/** Chunk c of the keys behind which there are none: the last row stands for those that are missing. */
static inline const char *copied_chunk(const struct score_keys *keys, int64_t c)
{
    const struct attn_score_operands *x = keys->x;
    for (int i = 0; i < MATRIX_ROWS; i++) {
        const int row = keys->j + i < keys->n ? keys->j + i : keys->n - 1;
        memcpy(keys->copy + i * CHUNK_BYTES, x->k + row * x->k_stride + c * CHUNK_BYTES, CHUNK_BYTES);
    }
    return keys->copy;
}

/** Loads chunk c of K into register r. */
#define LOAD_KEYS(r, c)                                                                                                \
    do {                                                                                                               \
        if (whole)                                                                                                     \
            matrix_stream(r, keys->x->k + keys->j * keys->x->k_stride + (c)*CHUNK_BYTES, keys->x->k_stride);           \
        else                                                                                                           \
            matrix_load(r, copied_chunk(keys, c), CHUNK_BYTES);                                                        \
    } while (0)

/** Loads chunk c of Q for vector v into register r. */
#define LOAD_QUERIES(r, x, c, v) matrix_load(r, (x)->q + ((c)*MATRIX_WORDS * nv + (v)) * VF_LEN, nv * CHUNK_BYTES)

/** Stores register r as the scores of vector v and the keys from j on. */
#define STORE_SCORES(r, x, j, v) matrix_store(r, (x)->s + ((ptrdiff_t)(j)*nv + (v)) * VF_LEN, nv * CHUNK_BYTES)

/** Sums of at most two chunks. Vectors before v0 see none of the keys. Leaves register 7, if nv > 1. */
ATTN_INLINE void score_small(const int whole, const int chunks, const int nv, const struct score_keys *keys, int v0,
                             struct weight_stream *beside)
{
    const struct attn_score_operands *x = keys->x;
    LOAD_KEYS(4, 0);
    if (chunks > 1)
        LOAD_KEYS(5, 1);
    if (v0 == 0) {
        matrix_zero(6);
        MULTIPLY(matrix_dot_words, 6, 4, 0);
        if (chunks > 1)
            MULTIPLY(matrix_dot_words, 6, 5, 1);
    }
    if (nv > 1) {
        if (keys->j > 0)
            STORE_SCORES(7, x, keys->j - MATRIX_ROWS, 1);
        matrix_zero(7);
        MULTIPLY(matrix_dot_words, 7, 4, 2);
        if (chunks > 1)
            MULTIPLY(matrix_dot_words, 7, 5, 3);
    }
    if (v0 == 0)
        STORE_SCORES(6, x, keys->j, 0);
}

/** The part of up to 4 chunks from c on, in registers 0 to 3, of the sums of vector v in register r. */
#define ADD_CHUNKS(r, v)                                                                                               \
    do {                                                                                                               \
        if (count > 0) {                                                                                               \
            LOAD_QUERIES(4, x, c, v);                                                                                  \
            MULTIPLY(matrix_dot_words, r, 0, 4);                                                                       \
        }                                                                                                              \
        if (count > 1) {                                                                                               \
            LOAD_QUERIES(5, x, c + 1, v);                                                                              \
            MULTIPLY(matrix_dot_words, r, 1, 5);                                                                       \
        }                                                                                                              \
        if (count > 2) {                                                                                               \
            LOAD_QUERIES(4, x, c + 2, v);                                                                              \
            MULTIPLY(matrix_dot_words, r, 2, 4);                                                                       \
        }                                                                                                              \
        if (count > 3) {                                                                                               \
            LOAD_QUERIES(5, x, c + 3, v);                                                                              \
            MULTIPLY(matrix_dot_words, r, 3, 5);                                                                       \
        }                                                                                                              \
    } while (0)

/** The same for any number of channels. */
ATTN_INLINE void score_large(const int whole, const int nv, const struct score_keys *keys, int v0,
                             struct weight_stream *beside)
{
    const struct attn_score_operands *x = keys->x;
    const int64_t chunks = x->words / MATRIX_WORDS;
    int64_t c = 0;
    do {
        const int64_t count = chunks - c;
        if (count > 0)
            LOAD_KEYS(0, c);
        if (count > 1)
            LOAD_KEYS(1, c + 1);
        if (count > 2)
            LOAD_KEYS(2, c + 2);
        if (count > 3)
            LOAD_KEYS(3, c + 3);
        if (v0 == 0) {
            if (c == 0)
                matrix_zero(6);
            ADD_CHUNKS(6, 0);
        }
        if (nv > 1) {
            if (c == 0) {
                if (keys->j > 0)
                    STORE_SCORES(7, x, keys->j - MATRIX_ROWS, 1);
                matrix_zero(7);
            }
            ADD_CHUNKS(7, 1);
        }
        c += 4;
    } while (c < chunks);
    if (v0 == 0)
        STORE_SCORES(6, x, keys->j, 0);
}

/** The mask on the scores of keys first..end-1, and their maxima. Vectors before v0 see none of these keys. */
ATTN_INLINE void mask_rows(const enum attn_mask_kind kind, const int v0, const int nv,
                           const struct attn_score_operands *x, int first, int end, vf *max)
{
    for (int j = first; j < end; j++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            float *at = x->s + ((ptrdiff_t)j * nv + v) * VF_LEN;
            if (v < v0) {
                vf_store(at, vf_set1(-INFINITY));
                continue;
            }
            const vf product = product_of_words(at, x->k_scale, j);
            const vf score = masked_score(kind, 1, x->mask, nv * VF_LEN, j, v, x->factor, product);
            max[v] = vf_max(score, max[v]);
            if (kind != MASK_NONE || VS_PACK == 4)
                vf_store(at, score);
        }
    }
}

/** Vectors of which no lane sees a key from j on; causality alone leaves some out. */
ATTN_INLINE int hidden_vectors(const int nv, const struct attn_score_operands *x, int j)
{
    return x->mask->kind == MASK_DIAGONAL ? attn_hidden_lanes(x->mask->diagonal, j, nv * VF_LEN) / VF_LEN : 0;
}

/** Q of at most two chunks to registers 0 to 3. */
ATTN_INLINE void load_small_queries(const int nv, const struct attn_score_operands *x)
{
    const int64_t chunks = x->words / MATRIX_WORDS;
    if (chunks != 1 && chunks != 2)
        return;
    LOAD_QUERIES(0, x, 0, 0);
    if (chunks > 1)
        LOAD_QUERIES(1, x, 1, 0);
    if (nv > 1) {
        LOAD_QUERIES(2, x, 0, 1);
        if (chunks > 1)
            LOAD_QUERIES(3, x, 1, 1);
    }
}

ATTN_INLINE void score_body(const int nv, const struct attn_score_operands *x, int n, float *max_out)
{
    char copy[MATRIX_ROWS * CHUNK_BYTES] __attribute__((aligned(ATTN_ALIGN)));
    struct score_keys keys = {.x = x, .n = n, .copy = copy};
    const int64_t chunks = x->words / MATRIX_WORDS;
    vf max[VF_STRIP];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        max[v] = vf_set1(-INFINITY);
    load_small_queries(nv, x);
    struct soon_rows soon[ATTN_MAX_SOON];
    begin_asking(x, (n + MATRIX_ROWS - 1) / MATRIX_ROWS, soon);
#define MASK_ROWS(kind) mask_rows(kind, before, nv, x, keys.j - MATRIX_ROWS, keys.j < n ? keys.j : n, max)
    int before = 0;
    for (keys.j = 0; keys.j < n; keys.j += MATRIX_ROWS) {
        const int v0 = hidden_vectors(nv, x, keys.j), whole = keys.j + MATRIX_ROWS <= n;
        ask_for_soon(x->num_soon, soon);
        if (chunks == 1)
            whole ? score_small(1, 1, nv, &keys, v0, NULL) : score_small(0, 1, nv, &keys, v0, NULL);
        else if (chunks == 2)
            whole ? score_small(1, 2, nv, &keys, v0, NULL) : score_small(0, 2, nv, &keys, v0, NULL);
        else
            whole ? score_large(1, nv, &keys, v0, NULL) : score_large(0, nv, &keys, v0, NULL);
        if (keys.j > 0)
            ATTN_BY_MASK(x->mask->kind, MASK_ROWS);
        before = v0;
    }
    if (nv > 1)
        STORE_SCORES(7, x, keys.j - MATRIX_ROWS, 1);
    ATTN_BY_MASK(x->mask->kind, MASK_ROWS);
#undef MASK_ROWS
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        if (x->mask->kind != MASK_BIAS)
            max[v] = vf_mul(max[v], vf_load(x->factor + v * VF_LEN));
        vf_store(max_out + v * VF_LEN, max[v]);
    }
}

/** struct attn_score_kernels, scores. */
static void score_tile(int nv, const struct attn_score_operands *x, int n, float *max)
{
    if (nv == MATRIX_VECTORS)
        score_body(MATRIX_VECTORS, x, n, max);
    else
        score_body(1, x, n, max);
}

/* ----------------------------------------------------------------- bounds -- */

/* Sums of squares have errors of some 2^-20 of their own, and rounding of a product to at most that of its bound. */
#define BOUND_MARGIN 1.001f

/** Squares of words step apart, summed in each lane. */
ATTN_INLINE vs sum_squares(const void *first, ptrdiff_t step, int64_t n)
{
    vs squares = vs_zero();
    for (int64_t i = 0; i < n; i++) {
        const vq word = vq_load((const char *)first + i * step);
        squares = vs_dot(word, word, squares);
    }
    return squares;
}

/** struct attn_score_kernels, reach. */
static void score_reach(int nv, int64_t words, const float *q, const float *factor, float *reach)
{
    for (int v = 0; v < nv; v++) {
        const vs squares = sum_squares(q + v * VF_LEN, nv * CHUNK_BYTES, words);
#if VS_PACK == 4
        const vf length = _mm512_sqrt_ps(vs_float(squares));
#else
        const vf length = _mm512_sqrt_ps(squares);
#endif
        vf_store(reach + v * VF_LEN, vf_mul(vf_mul(length, vf_load(factor + v * VF_LEN)), vf_set1(BOUND_MARGIN)));
    }
}

/** struct attn_score_kernels, longest. */
static float longest_key(const char *k, ptrdiff_t stride, int64_t words, const float *k_scale, int n)
{
#if VS_PACK == 4
    float most = 0.0f;
    for (int j = 0; j < n; j++) {
        const float length =
            sqrtf((float)vs_sum(sum_squares(k + j * stride, CHUNK_BYTES, words / VF_LEN))) * k_scale[j];
        most = length <= most ? most : isnan(length) ? INFINITY : length;
    }
    return most * BOUND_MARGIN;
#else
    vf most = vf_zero();
    (void)k_scale;
    for (int j = 0; j < n; j++) {
        const vf squares = sum_squares(k + j * stride, CHUNK_BYTES, words / VF_LEN); /* of every 16th pair */
        most = _mm512_max_ps(most, squares);
        most = vf_select(vf_eq(squares, squares), most, vf_set1(INFINITY));
    }
    return sqrtf(_mm512_reduce_add_ps(most)) * BOUND_MARGIN;
#endif
}

#include "kernels/walk_matrix.h"

static const struct attn_score_kernels score_kernels = {.channels_per_word = VS_PACK,
                                                        .word_step = ATTN_WORD_STEP,
                                                        .strip_vectors = MATRIX_VECTORS,
                                                        .row_step = MATRIX_ROWS,
                                                        .raw = 1,
                                                        .query_block = 2048,
                                                        .tasks_per_thread = 4,
                                                        .enter = matrix_enter,
                                                        .leave = matrix_leave,
                                                        .pack_queries = pack_queries,
                                                        .pack_keys = pack_keys,
                                                        .scores = score_tile,
                                                        .reach = score_reach,
                                                        .longest = longest_key,
                                                        .walk = walk,
#if VS_PACK == 4
                                                        .name = "int8",
                                                        .int8 = 1,
                                                        .survey = survey_keys
#else
                                                        .name = "bf16"
#endif
};

#endif
