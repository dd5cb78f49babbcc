/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention of one head of one sequence: walks over its tokens, from
 * chunk to chunk, with S in scratch memory or, for a few tokens, where the caller
 * has it.
 */
#ifndef ATTN_PASS_STATES_H
#define ATTN_PASS_STATES_H

#include "kernels/states.h"

/** The sizes that scratch memory follows from. */
struct attn_state_shape {
    int64_t dk;
    int64_t columns; /**< of S and v that a task has at most */
    int heads;       /**< of queries that read a state */
    int lanes, panel;
    int corrects;     /**< with beta */
    int decays, rows; /**< with decays; of rows of S */
};

/** Memory of a thread; floats. */
struct attn_state_scratch {
    float *s;            /**< panels, [dk][width] each */
    float *u;            /**< panels, [ATTN_CHUNK][width] each */
    float *o;            /**< [ATTN_CHUNK][panel], and for steps [heads][ATTN_FEW_TOKENS][columns] */
    float *q;            /**< [ATTN_CHUNK][dk], and for steps [heads][ATTN_FEW_TOKENS][dk] */
    const float **heads; /**< [heads] */
    float *k;            /**< [ATTN_CHUNK][dk] */
    float *kt;           /**< [dk][ATTN_CHUNK] */
    float *scores;       /**< [ATTN_CHUNK][ATTN_CHUNK] of queries */
    float *keys;         /**< the same of keys; with beta */
    float *beta;         /**< [ATTN_CHUNK] */
    float *decay;        /**< [ATTN_CHUNK], or with rows [ATTN_CHUNK][dk] */
    float *within;       /**< [ATTN_CHUNK][ATTN_CHUNK]; without rows */
    float *since;        /**< [ATTN_CHUNK] products of decays from the first token on; without rows */
    float *until;        /**< [ATTN_CHUNK] of those behind a token; without rows */
    float *faded;        /**< [ATTN_CHUNK][dk] rows with their decays; with rows, and [ATTN_FEW_TOKENS][dk] for steps */
    float *turned;       /**< [dk][ATTN_CHUNK / 2] such keys, turned; with rows */
    float *near;         /**< [lanes][lanes][lanes]; with rows */
    float *whole;        /**< [dk] products of all decays; with rows */
};

/** Lays scratch memory out from base on, NULL to count: returns its bytes. */
size_t attn_state_layout(struct attn_state_scratch *scratch, char *base, const struct attn_state_shape *shape);

/** A state and some of its columns, and a sequence. */
struct attn_state_work {
    const struct attn_kernels *kernels;
    const struct attn_state_shape *shape;
    int64_t tokens, columns;
    struct attn_rows q, k, v, out; /**< token 0; of v and out from the first column on */
    ptrdiff_t q_head, out_head;    /**< bytes to the next head that reads this state */
    struct attn_rows decay, beta;  /**< data NULL: none */
    const uint8_t *resets;         /**< NULL: none */
    ptrdiff_t resets_stride;
    float scale;
    const float *state_in; /**< rows of S, NULL: zeros */
    ptrdiff_t in_pitch;
    float *state_out; /**< NULL: not wanted; may be state_in */
    ptrdiff_t out_pitch;
    const struct attn_state_scratch *scratch;
};

/** Rows of floats. */
struct attn_floats {
    const float *rows;
    ptrdiff_t pitch; /**< from one to the next */
};

/** The first n rows of q or k as floats: where they lie, or in room. */
struct attn_floats attn_state_floats(const struct attn_state_work *w, const struct attn_rows *rows, int n, float *room);

/** Decays of n tokens from one on, as factors, to scratch memory. */
void attn_state_take_decays(const struct attn_state_work *w, int64_t first, int n);

/** Computes it. */
void attn_state_pass(const struct attn_state_work *w);

/** Tokens first..first+n-1, more than ATTN_FEW_TOKENS, with S in scratch memory. */
void attn_state_chunk(const struct attn_state_work *w, int64_t first, int n);

/** Writes columns start.. of rows of a head, width floats apart in o. */
void attn_state_write_out(const struct attn_state_work *w, int head, int64_t first, int n, int64_t start, int64_t width,
                          const float *o);

/** The columns of a panel of S, and the panels of so many columns. */
static inline int64_t attn_state_panels(const struct attn_state_shape *shape, int64_t columns)
{
    return (columns + shape->panel - 1) / shape->panel;
}

/** Where panel number i of columns begins: those of a task have about the same number of vectors. */
static inline int64_t attn_panel_start(const struct attn_state_shape *shape, int64_t columns, int64_t i)
{
    const int64_t vectors = (columns + shape->lanes - 1) / shape->lanes, panels = attn_state_panels(shape, columns);
    return vectors * i / panels * shape->lanes;
}

#endif
