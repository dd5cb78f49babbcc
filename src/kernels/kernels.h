/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver hands to a kernel, and the table that a kernel set exports.
 *
 * A kernel computes one work item on the pointers it is given. It allocates
 * nothing, starts no threads and returns no errors: the api layer has checked
 * everything, and what a kernel relies on it asserts.
 */
#ifndef ATTN_KERNELS_H
#define ATTN_KERNELS_H

#include "attn/attn.h"

#include <stddef.h>
#include <stdint.h>

/** Alignment of scratch memory: a cache line, and the widest vector. */
#define ATTN_ALIGN 64

/** Strips of queries that one work item may have. */
#define ATTN_MAX_STRIPS 32

/** No limit by causality: every query sees every key. */
#define ATTN_NO_DIAGONAL (INT64_MAX / 4)

/** A strided matrix of f32, bf16 or f16 whose columns are contiguous. */
struct attn_rows {
    void *data;
    ptrdiff_t stride; /**< in bytes */
    attn_dtype dtype;
};

/** A strided matrix of any element, (query, key). data is NULL when absent. */
struct attn_grid {
    void *data;
    ptrdiff_t query_stride, key_stride; /**< in elements */
    attn_dtype dtype;
};

/**
 * One block of queries of one (batch, head) against all live keys of that
 * sequence. Key 0 is the first live key: the driver has moved k, v, the masks
 * and the weights there, so that padding on the left changes no bit.
 */
struct attn_work {
    struct attn_rows q, k, v, out;
    int64_t num_queries, num_keys;
    int64_t
        known_keys; /**< of these, the first that the last query of the call sees, 0 with a mask: no garbage there */
    int dk, dv;
    float scale;           /**< multiplies q·k; base 2: the user's scale times log2(e) */
    int64_t diagonal;      /**< query row i of this block sees key j when j <= i + diagonal */
    struct attn_grid mask; /**< uint8_t, non-zero attends */
    struct attn_grid bias; /**< f32, bf16 or f16, natural units, added to the scaled score */
    float *lse;            /**< NULL when not wanted */
    ptrdiff_t lse_stride;

    /* Softmax rows on request: row weight_rows[i] of the whole query axis (NULL: row i), where this block
     * starts at query first_query, goes to row i of weights. */
    struct attn_grid weights; /**< float */
    const int64_t *weight_rows;
    int64_t num_weight_rows, first_query;
    int64_t keys_before, keys_after; /**< padding around the live keys, where weights are 0 */

    /* Sum of the weights over the queries of this block is added here. NULL when not wanted. */
    float *key_sums;
    ptrdiff_t key_sums_stride;

    void *scratch; /**< ATTN_ALIGN-aligned, as many bytes as attn_scratch_layout() says */
};

/** One instruction set: its kernels, and their block sizes as data. */
struct attn_kernels {
    attn_isa isa;
    attn_qk qk; /**< how scores are multiplied */
    /* Elements in a word of 32 bits (kernels/words.h). */
    int channels_per_word; /**< of Q and K: 1 f32, 2 bf16, 4 int8 */
    int keys_per_word;     /**< of V and P: 1 f32, 2 bf16 */
    int strip;             /**< queries that one register tile covers */
    int query_block;       /**< queries of a work item, when there are enough of them */
    int key_block;         /**< keys per step of the online softmax; fixed, as it shapes every bit of the result */
    void (*forward[2])(const struct attn_work *work);         /**< by attn_exp */
    void (*exp2[2])(float *dst, const float *src, int64_t n); /**< by attn_exp: what the kernels use, for tests */
};

/** Strips of queries that a block of num_queries rows has. */
static inline int64_t attn_num_strips(const struct attn_kernels *kernels, int64_t num_queries)
{
    return (num_queries + kernels->strip - 1) / kernels->strip;
}

#endif
