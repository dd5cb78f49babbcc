/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Additive attention (Bahdanau et al. 2015, appendix A.1.2) of a block of
 * queries, whose parts W_q q and W_k k + b of the scores have been computed:
 *
 *     for each block of ATTN_KEY_BLOCK keys, from the first live key on
 *         for each query that sees one of them
 *             s[j] = v·tanh(q + k_j) + mask           16, 8 or 4 keys at a time
 *             m' = max(m, max s),  p = 2^(s - m'),  l = l 2^(m - m') + sum p
 *             out = out 2^(m - m') + sum_j p[j] values[j]
 *     out = out / l,  lse = m ln 2 + ln l
 *
 * Nearly all of the time goes to the tanh of queries x keys x channels numbers,
 * and no product of matrices can take its place. So lanes are channels: keys
 * and queries are read as they lie, one query alone keeps the vectors as full
 * as many do, and a key that a mask hides costs nothing. As many keys as there
 * are lanes leave their sums in as many vectors, which are transposed and added
 * in their order, so that the scores are a vector again.
 *
 * What is unfinished of a row stands in out itself; m, l and the scores of a
 * block are on the stack. Nothing mixes queries, and the blocks of keys begin at
 * the first live one: a query's bits depend on its own keys alone. Hidden keys
 * have the score -inf and are left out, so what stands in them is never read.
 */
#ifndef ATTN_NN_ADDITIVE_KERNEL_H
#define ATTN_NN_ADDITIVE_KERNEL_H

#include "kernels/rows.h"
#include "nn/kernels/nn_kernels.h"
#include "nn/kernels/norm.h"

#include <float.h>
#include <math.h>

#define ADDITIVE_LOG2E 0x1.715476p+0f
#define ADDITIVE_LN2   0x1.62e43p-1f

/** What is live of one query in one block of keys. */
struct additive_block {
    int64_t first;               /**< key of the block */
    int count;                   /**< keys of it that lengths and causality leave */
    float scores[ATTN_KEY_BLOCK] /**< base 2; -inf hides a key, and those behind count */
        __attribute__((aligned(ATTN_ALIGN)));
};

/** An additive mask in base 2. Finite numbers stay finite: only -inf itself hides a key. */
static float additive_bias(float natural)
{
    const float scaled = natural * ADDITIVE_LOG2E;
    if (isinf(scaled) && !isinf(natural))
        return scaled > 0 ? FLT_MAX : -FLT_MAX;
    return scaled;
}

/** Scores begin as what the mask adds. */
static void additive_mask(const struct nn_additive_work *work, int64_t row, struct additive_block *block)
{
    const struct attn_grid *mask = &work->mask;
    for (int j = 0; j < ATTN_KEY_BLOCK; j++) {
        float bias = j < block->count ? 0.0f : -INFINITY;
        if (mask->data && j < block->count) {
            const ptrdiff_t at = row * mask->query_stride + (block->first + j) * mask->key_stride;
            if (mask->dtype == ATTN_BOOL)
                bias = ((const uint8_t *)mask->data)[at] ? 0.0f : -INFINITY;
            else
                bias = additive_bias(element_at(mask->dtype, mask->data, at));
        }
        block->scores[j] = bias;
    }
}

/** Terms of a sum before it goes to the sum of all: errors grow with this and the number of such sums. */
#define ADDITIVE_TERMS 16

/** Lane by lane of the channels, what a key adds to its score. The few ULP of the fast tanh are lost in the sum. */
static vf additive_score(const struct nn_additive_work *work, const float *q, const float *k)
{
    vf total = vf_zero();
    for (int64_t c = 0; c < work->channels;) {
        vf sum = vf_zero();
        for (int term = 0; term < ADDITIVE_TERMS && c < work->channels; term++, c += VF_LEN) {
            const int n = work->channels - c < VF_LEN ? (int)(work->channels - c) : VF_LEN;
            sum = n < VF_LEN
                      ? vf_fma(vf_load_tail(work->score + c, n),
                               vf_tanh_fast(vf_add(vf_load_tail(q + c, n), vf_load_tail(k + c, n))), sum)
                      : vf_fma(vf_load(work->score + c), vf_tanh_fast(vf_add(vf_load(q + c), vf_load(k + c))), sum);
        }
        total = vf_add(total, sum);
    }
    return total;
}

/** Scores of the keys that the mask has left. */
static void additive_scores(const struct nn_additive_work *work, int64_t row, struct additive_block *block)
{
    const float *q = work->q.data + row * work->q.stride;
    const vf hidden = vf_set1(-INFINITY);
    for (int j = 0; j < block->count; j += VF_LEN) {
        vf sums[VF_LEN];
        for (int i = 0; i < VF_LEN; i++)
            sums[i] = block->scores[j + i] == -INFINITY
                          ? vf_zero()
                          : additive_score(work, q, work->k.data + (block->first + j + i) * work->k.stride);
        vf_transpose(sums);
        vf score = sums[0];
        for (int i = 1; i < VF_LEN; i++)
            score = vf_add(score, sums[i]);
        const vf bias = vf_load(block->scores + j);
        vf_store(block->scores + j, vf_select(vf_eq(bias, hidden), hidden, vf_add(score, bias)));
    }
}

/** The largest of top and the scores; a NaN is none. */
static float additive_maximum(const struct additive_block *block, float top)
{
    float lanes[VF_LEN];
    vf most = vf_set1(top);
    for (int j = 0; j < block->count; j += VF_LEN)
        most = vf_max(vf_load(block->scores + j), most);
    vf_store(lanes, most);
    for (int i = 0; i < VF_LEN; i++)
        top = lanes[i] > top ? lanes[i] : top;
    return top;
}

/** What is subtracted from scores with the maximum m: 0 where no key has been live yet. */
static inline float additive_base(float m)
{
    return m == -INFINITY ? 0.0f : m;
}

static inline float additive_exp2(float x)
{
    float lanes[VF_LEN];
    vf_store(lanes, vf_exp2(vf_set1(x)));
    return lanes[0];
}

/** nv vectors of out, or the first rest floats of one: old ones times factor, and the weighted values of live keys. */
ATTN_INLINE void additive_columns(const int nv, const int rest, float *out, const float *values, ptrdiff_t stride,
                                  const int *live, const float *weights, int count, vf factor)
{
    vf acc[4];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        acc[v] = vf_mul(rest ? vf_load_tail(out, rest) : vf_load(out + v * VF_LEN), factor);
    for (int i = 0; i < count; i++) {
        const float *value = values + live[i] * stride;
        const vf w = vf_set1(weights[live[i]]);
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            acc[v] = vf_fma(w, rest ? vf_load_tail(value, rest) : vf_load(value + v * VF_LEN), acc[v]);
    }
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        if (rest)
            vf_store_tail(out, acc[v], rest);
        else
            vf_store(out + v * VF_LEN, acc[v]);
    }
}

/** Adds a block's values to a row of out that is first multiplied by factor. */
static void additive_values(const struct nn_additive_work *work, int64_t row, const struct additive_block *block,
                            const float *weights, float factor)
{
    float *out = work->out.data + row * work->out.stride;
    const float *values = work->v.data + block->first * work->v.stride;
    const vf f = vf_set1(factor);
    int live[ATTN_KEY_BLOCK], count = 0;
    for (int j = 0; j < block->count; j++)
        if (block->scores[j] != -INFINITY)
            live[count++] = j;
    int64_t c = 0;
    for (; c + 4 * VF_LEN <= work->values; c += 4 * VF_LEN)
        additive_columns(4, 0, out + c, values + c, work->v.stride, live, weights, count, f);
    for (; c + VF_LEN <= work->values; c += VF_LEN)
        additive_columns(1, 0, out + c, values + c, work->v.stride, live, weights, count, f);
    if (c < work->values)
        additive_columns(1, (int)(work->values - c), out + c, values + c, work->v.stride, live, weights, count, f);
}

/** The scores wait where the weights will be. */
static void additive_keep(const struct nn_additive_work *work, int64_t row, const struct additive_block *block)
{
    const struct attn_grid *weights = &work->weights;
    float *to = (float *)weights->data + row * weights->query_stride + block->first * weights->key_stride;
    for (int j = 0; j < block->count; j++)
        to[j * weights->key_stride] = block->scores[j];
}

/** One query meets one block of keys: m, l and its row of out are brought up to date. */
static void additive_step(const struct nn_additive_work *work, int64_t row, struct additive_block *block, float *m,
                          float *l)
{
    float weights[ATTN_KEY_BLOCK] __attribute__((aligned(ATTN_ALIGN)));
    additive_mask(work, row, block);
    additive_scores(work, row, block);
    if (work->weights.data)
        additive_keep(work, row, block);
    const float top = additive_maximum(block, *m), base = additive_base(top), factor = additive_exp2(*m - base);
    vf sum = vf_zero();
    for (int j = 0; j < block->count; j += VF_LEN) {
        const vf p = vf_exp2(vf_sub(vf_load(block->scores + j), vf_set1(base)));
        vf_store(weights + j, p);
        sum = vf_add(sum, p);
    }
    *l = *l * factor + sum_of_lanes(sum);
    *m = top;
    additive_values(work, row, block, weights, factor);
}

/** The scores of a row become weights; those of keys that it does not see are 0. */
static void additive_weights(const struct nn_additive_work *work, int64_t row, int64_t seen, float base, float inverse)
{
    const ptrdiff_t stride = work->weights.key_stride;
    float *at = (float *)work->weights.data + row * work->weights.query_stride;
    for (int64_t j = 0; j < seen; j += VF_LEN) {
        const int count = seen - j < VF_LEN ? (int)(seen - j) : VF_LEN;
        float lanes[VF_LEN];
        for (int i = 0; i < VF_LEN; i++)
            lanes[i] = i < count ? at[(j + i) * stride] : -INFINITY;
        const vf score = vf_load(lanes);
        const vf weight = vf_mul(vf_exp2(vf_sub(score, vf_set1(base))), vf_set1(inverse));
        vf_store(lanes, vf_select(vf_eq(score, vf_set1(-INFINITY)), vf_zero(), weight));
        for (int i = 0; i < count; i++)
            at[(j + i) * stride] = lanes[i];
    }
    for (int64_t j = -work->keys_before; j < 0; j++)
        at[j * stride] = 0.0f;
    for (int64_t j = seen; j < work->keys + work->keys_after; j++)
        at[j * stride] = 0.0f;
}

static void additive_finish(const struct nn_additive_work *work, int64_t row, int64_t seen, float m, float l)
{
    const int dead = l == 0.0f; /* a NaN is not */
    const float inverse = dead ? 0.0f : 1.0f / l;
    float *out = work->out.data + row * work->out.stride;
    for (int64_t c = 0; c < work->values; c += VF_LEN) {
        const int rest = work->values - c < VF_LEN ? (int)(work->values - c) : VF_LEN;
        /* The sum with +0 gives every zero one sign. */
        vf_store_tail(out + c, vf_fma(vf_load_tail(out + c, rest), vf_set1(inverse), vf_zero()), rest);
    }
    if (work->lse) {
        float lanes[VF_LEN];
        vf_store(lanes, vf_fma(vf_set1(additive_base(m)), vf_set1(ADDITIVE_LN2), vf_log(vf_set1(l))));
        work->lse[row * work->lse_stride] = dead ? -INFINITY : lanes[0];
    }
    if (work->weights.data)
        additive_weights(work, row, seen, additive_base(m), inverse);
}

/** Keys that a row sees, of work->keys. */
static int64_t additive_seen(const struct nn_additive_work *work, int64_t row)
{
    const int64_t end = row + work->diagonal + 1;
    return end < 0 ? 0 : end < work->keys ? end : work->keys;
}

static void additive_rows(const struct nn_additive_work *work)
{
    float m[NN_ADDITIVE_QUERIES], l[NN_ADDITIVE_QUERIES];
    for (int64_t r = 0; r < work->queries; r++) {
        m[r] = -INFINITY;
        l[r] = 0.0f;
        for (int64_t c = 0; c < work->values; c++)
            work->out.data[r * work->out.stride + c] = 0.0f;
    }
    for (int64_t first = 0; first < work->keys; first += ATTN_KEY_BLOCK)
        for (int64_t r = 0; r < work->queries; r++) {
            const int64_t left = additive_seen(work, r) - first;
            struct additive_block block;
            block.first = first;
            block.count = left < ATTN_KEY_BLOCK ? (int)left : ATTN_KEY_BLOCK;
            if (left > 0)
                additive_step(work, r, &block, &m[r], &l[r]);
        }
    for (int64_t r = 0; r < work->queries; r++)
        additive_finish(work, r, additive_seen(work, r), m[r], l[r]);
}

#endif
