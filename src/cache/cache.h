/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a cache share. config.c checks its sizes, cache.c has its
 * memory, sequences.c their life, step.c the places of new tokens, append.c
 * their keys and values, attend.c the attention; book.c knows which page is whose.
 */
#ifndef ATTN_CACHE_INTERNAL_H
#define ATTN_CACHE_INTERNAL_H

#include "attn/cache.h"

#include "cache/book.h"

/** The tokens that all layers are at. */
struct attn_cache_step {
    int64_t number;                /**< of the step; 0: there has been none */
    int64_t num;                   /**< sequences; 0 after a change of one */
    int64_t tokens;                /**< of all of them */
    int single;                    /**< each has one */
    int64_t stride;                /**< columns of the longest one */
    int64_t *places;               /**< [max_sequences] in the book; only while it begins */
    int64_t *cu_seqlens;           /**< [max_sequences + 1] */
    int64_t *lengths;              /**< [max_sequences] with the new tokens */
    int32_t *table;                /**< [num][stride] */
    int64_t *slots;                /**< [tokens] places of the new tokens in a pool */
    int64_t *positions;            /**< [tokens] of the new tokens in their sequences */
    float *rotations;              /**< [tokens][2 * pairs] */
    struct attn_page_copy *copies; /**< [max_sequences] */
    int64_t room;                  /**< tokens that slots, positions and rotations have room for */
};

struct attn_cache {
    attn_cache_config config; /**< completed; rope is the next one, or NULL */
    attn_rope_config rope;
    double *factors; /**< [2 * pairs] what rope's arrays hold; NULL: it has none */
    struct attn_book book;
    char *pools;  /**< [layers][k, v][pages][heads][page_size][dk, dv]; of k alone if v is in k */
    char *scales; /**< [layers][k, v][pages][heads][page_size][of a row] floats, if quantised; likewise; else NULL */
    attn_tensor *scale_pools; /**< [layers][k, v] the same as attn_params wants them */
    size_t pools_bytes, scales_bytes;
    int64_t *appended; /**< [layers] the step whose tokens a layer has last got */
    struct attn_cache_step step;
    void *workspace; /**< grows to what the largest call has needed */
    size_t workspace_size;
};

/** What a layer keeps of each token. */
enum attn_cache_part { CACHE_KEYS, CACHE_VALUES, CACHE_KEY_SCALES, CACHE_VALUE_SCALES, CACHE_PARTS };

/** Whether a part has memory of its own: scales if it is quantised, values unless they are in keys. */
int attn_cache_has(const struct attn_cache *cache, int part);

/** The pool of a part of a layer, (pages, heads, page_size, channels); of values in keys a view of those. */
attn_tensor attn_cache_pool(const struct attn_cache *cache, int64_t layer, int part);

/** Fills in what is 0 of a config, and checks the rest; theirs is the caller's. */
attn_status attn_cache_complete(attn_cache_config *c, const attn_cache_config *theirs);

/** That there is a cache. */
attn_status attn_cache_check(const struct attn_cache *cache);

/** That there is a cache and that it has such a layer. */
attn_status attn_cache_check_layer(const struct attn_cache *cache, int64_t layer);

#endif
