/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of keys that all queries of a strip see, one after the other, on matrix
 * registers: the steps of a unit, with the weights of some keys made beside the
 * products of others.
 *
 * Weights take the vector ports some two thirds of the time that products take
 * the matrix unit. So keys go through three stages, a portion of 64 at a time:
 * while the weights of portion t are made, the unit multiplies K Q of t + 1 and
 * then V^T P of t - 1. S and P have room for two portions each.
 *
 * That needs to know m beforehand: only tame steps are walked. A step (a block of
 * keys) is tame if |q| max |k| shows that no score can pass m, nor fall so far
 * behind it that a weight has no bits, in any lane. Then raise_maximum() would
 * leave m alone, and the bits are those of the steps one by one: sums are the
 * same, a block's sum of weights is added to l at its end.
 */
/* A part of scores_matrix.h, which includes it where it belongs. */
#include "kernels/scores_matrix.h"

#ifndef ATTN_WALK_H
#define ATTN_WALK_H

#define PORTION_KEYS  64
#define PORTION_WORDS (PORTION_KEYS / 2)

/** A score this far behind m still has a weight. */
#define WALK_DEPTH 125.0f

/** Blocks, of n, that are tame, from the first on. */
ATTN_INLINE int64_t tame_blocks(const int nv, const struct attn_walk *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const vf norm = vf_set1(x->longest[i]);
        for (int v = 0; v < nv; v++) {
            const vf m = vf_load(x->m + v * VF_LEN), bound = vf_mul(vf_load(x->reach + v * VF_LEN), norm);
            /* Whatever is NaN is not tame. */
            const vm tame = vf_ge(m, bound) & vf_ge(vf_set1(WALK_DEPTH), vf_add(m, bound)) &
                            vf_ge(vf_set1(TAME_MAXIMUM), m) &
                            vf_ge(vf_set1(TAME_FACTOR), vf_load(x->factor + v * VF_LEN));
            if (tame != vf_eq(vf_zero(), vf_zero()))
                return i;
        }
    }
    return n;
}

/** Where portion t of S and of P lies. */
ATTN_INLINE float *portion_scores(const int nv, const struct attn_walk *x, int64_t t)
{
    return x->s + t % 2 * PORTION_KEYS * nv * VF_LEN;
}

ATTN_INLINE float *portion_weights(const int nv, const struct attn_walk *x, int64_t t)
{
    return x->p + t % 2 * PORTION_WORDS * nv * VF_LEN;
}

/** Scores of portion t. */
ATTN_INLINE void walk_scores(const int nv, const struct attn_walk *walk, int64_t t, struct weight_stream *beside)
{
    const struct attn_score_operands operands = {.q = walk->q,
                                                 .k = walk->k + t * PORTION_KEYS * walk->k_stride,
                                                 .k_stride = walk->k_stride,
                                                 .words = walk->words,
                                                 .s = portion_scores(nv, walk, t)};
    const struct attn_score_operands *const x = &operands;
    struct score_keys keys = {.x = x, .n = PORTION_KEYS};
    const int64_t chunks = walk->words / MATRIX_WORDS;
    load_small_queries(nv, x);
    for (keys.j = 0; keys.j < PORTION_KEYS; keys.j += MATRIX_ROWS) {
        if (chunks == 1)
            score_small(1, 1, nv, &keys, 0, beside);
        else if (chunks == 2)
            score_small(1, 2, nv, &keys, 0, beside);
        else
            score_large(1, nv, &keys, 0, beside);
    }
    if (nv > 1)
        STORE_SCORES(7, x, PORTION_KEYS - MATRIX_ROWS, 1);
}

/** Adds the values of portion t. */
ATTN_INLINE void walk_values(const int nv, const struct attn_walk *walk, int64_t t, struct weight_stream *beside)
{
    static const int groups[MATRIX_VECTORS] = {2, 2};
    const struct attn_value_operands x = {.p = portion_weights(nv, walk, t), .o = walk->o};
    const ptrdiff_t stride = GROUP_WORDS * walk->v_stride;
    add_groups(1, nv, &x, walk->v + t * 2 * stride, stride, 0, groups, 0, 0, walk->dv, beside);
}

ATTN_INLINE int64_t walk_body(const int nv, const struct attn_walk *x, int64_t blocks)
{
    const int64_t tame = tame_blocks(nv, x, blocks), portions = tame * (ATTN_KEY_BLOCK / PORTION_KEYS);
    const int64_t chunks = x->words / MATRIX_WORDS;
    if (tame == 0)
        return 0;
    struct weight_stream stream = {
        .products = (int)(nv * (PORTION_KEYS / MATRIX_ROWS * chunks + 2 * ((x->dv + MATRIX_ROWS - 1) / MATRIX_ROWS))),
        .words = PORTION_WORDS};
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        const vf step = vf_set1(EXP2_TABLE_STEP);
        stream.slope[v] = vf_mul(vf_load(x->factor + v * VF_LEN), step);
        stream.start[v] = vf_sub(vf_set1(EXP2_TABLE_ORIGIN), vf_mul(vf_load(x->m + v * VF_LEN), step));
        stream.sum[v][0] = stream.sum[v][1] = vf_zero();
    }
    walk_scores(nv, x, 0, NULL);
    for (int64_t t = 0; t < portions; t++) {
        stream.s = portion_scores(nv, x, t);
        stream.k_scale = VS_PACK == 4 ? x->k_scale + t * PORTION_KEYS : NULL;
        stream.p = portion_weights(nv, x, t);
        stream.left = PORTION_WORDS;
        stream.due = 0;
        if (t + 1 < portions)
            walk_scores(nv, x, t + 1, &stream);
        if (t > 0)
            walk_values(nv, x, t - 1, &stream);
        end_weights(nv, &stream);
        if (t % (ATTN_KEY_BLOCK / PORTION_KEYS) != ATTN_KEY_BLOCK / PORTION_KEYS - 1)
            continue;
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            const vf l = vf_load(x->l + v * VF_LEN);
            vf_store(x->l + v * VF_LEN, vf_add(l, vf_add(stream.sum[v][0], stream.sum[v][1])));
            stream.sum[v][0] = stream.sum[v][1] = vf_zero();
        }
    }
    walk_values(nv, x, portions - 1, NULL);
    return tame;
}

/** struct attn_score_kernels, walk. */
static int64_t walk(int nv, const struct attn_walk *x, int64_t blocks)
{
    return nv == MATRIX_VECTORS ? walk_body(MATRIX_VECTORS, x, blocks) : walk_body(1, x, blocks);
}

#endif
