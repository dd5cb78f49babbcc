/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention of one head of one sequence: walks over its tokens, from
 * chunk to chunk, with S in scratch memory or, for a few tokens, where the caller
 * has it.
 */
#ifndef ATTN_PASS_STATES_H
#define ATTN_PASS_STATES_H

#include "kernels/states.h"

/** The sizes that scratch memory follows from, and what a call asks for. */
struct attn_state_shape {
    int64_t inputs;  /**< channels of q and k */
    int64_t dk;      /**< rows of S: as many, or features */
    int64_t columns; /**< of S that a task has at most */
    int heads;       /**< of queries that read a state */
    int lanes, panel;
    int corrects;     /**< with beta */
    int decays, rows; /**< with decays; of rows of S */
    attn_feature_map map;
    int normalises; /**< the last column of a task is the sum of keys, for which v is 1 */
    int bidirectional;
    int chunks_only;   /**< a few tokens are a chunk, too, and nothing goes one by one */
    int fades_columns; /**< decays are those of columns, one for each or one for all: S lies on its side */
};

/** Memory of a thread; floats. Rows of q and k are attn_state_pitch() floats apart, those of a caller's as they lie. */
struct attn_state_scratch {
    float *s;            /**< panels, [dk][width] each */
    float *u;            /**< panels, [ATTN_CHUNK][width] each */
    float *o;            /**< [ATTN_CHUNK][panel], and for steps [heads][ATTN_FEW_TOKENS][columns] */
    float *q;            /**< [ATTN_CHUNK] rows, and for steps [heads][ATTN_FEW_TOKENS] */
    const float **heads; /**< [heads] */
    float *k;            /**< [ATTN_CHUNK] rows */
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
    float *inputs;       /**< [ATTN_CHUNK][inputs]; POSITIVE */
    float *projection;   /**< [inputs][pitch] turned, times the root of the scale; POSITIVE */
    float *half;         /**< [ATTN_CHUNK] half the squares of keys; POSITIVE */
    float *fades;        /**< [ATTN_CHUNK][panel] decays of columns; with fades_columns, as those below */
    float *part, *room;  /**< [ATTN_CHUNK][panel] what some tokens give to others; what that is made of */
    float *partner;      /**< [ATTN_CHUNK][panel] rows of attn_decay_sums.partner */
};

/** Lays scratch memory out from base on, NULL to count: returns its bytes. */
size_t attn_state_layout(struct attn_state_scratch *scratch, char *base, const struct attn_state_shape *shape);

/** Floats from one row of q or k in scratch memory to the next. */
static inline int64_t attn_state_pitch(const struct attn_state_shape *shape)
{
    return attn_in_steps(shape->dk, shape->lanes);
}

/**
 * What a pass leaves for the gradients of decays (pass/chunk_columns.c). Everything is of the work's columns and in the
 * order of tokens, also where they are gone through backwards.
 */
struct attn_decay_sums {
    float *sums; /**< token 0, written by the pass that goes forwards, to which the other one adds */
    ptrdiff_t pitch;
    struct attn_rows partner; /**< what the rows that the pass computes are the gradient of; in its own order */
    float *states;            /**< [slot][dk] S before the chunk at token slot * ATTN_CHUNK, or behind, faded once */
    ptrdiff_t states_pitch;
};

/** A state and some of its columns, and a sequence. */
struct attn_state_work {
    const struct attn_kernels *kernels;
    const struct attn_state_shape *shape;
    int64_t tokens;
    int64_t values;                /**< columns of v */
    int64_t columns;               /**< of S: as many, and with normalises that of the sum of keys */
    int64_t results;               /**< columns of out: as values, unless fewer of them, or none, are wanted */
    struct attn_rows q, k, v, out; /**< token 0; of v and out from the first column on */
    ptrdiff_t q_head, out_head;    /**< bytes to the next head that reads this state */
    struct attn_rows projection;   /**< of POSITIVE */
    struct attn_rows decay, beta;  /**< data NULL: none */
    ptrdiff_t decay_channel;       /**< elements from a row's decay to the next row's */
    int64_t decay_channels;        /**< 1: a number for all rows */
    const uint8_t *resets;         /**< token 0; NULL: none */
    ptrdiff_t resets_stride;
    /**
     * Tokens are gone through from the last to the first, which rows above are those of token after token of this walk
     * for: row 0 is the last token's. S fades by the decay of the token that it has passed, and is cleared where that
     * one resets it.
     */
    int backwards;
    int adds;              /**< to what out holds, which is f32 */
    float written_scale;   /**< of v */
    float scale;           /**< of the output, or of POSITIVE's scores */
    const float *state_in; /**< rows of S, NULL: zeros */
    ptrdiff_t in_pitch, in_column;
    const float *next_state; /**< rows in_pitch apart that this thread reads after these; NULL: none */
    float *state_out;        /**< NULL: not wanted; may be state_in */
    int adds_state;          /**< to what it holds */
    ptrdiff_t out_pitch;
    const float *sum_in; /**< with normalises, the column of the sum of keys in state_in, wherever it lies */
    float *sum_out;      /**< where that goes; NULL: another task has it */
    ptrdiff_t sum_pitch; /**< there, from one row's to the next */
    const struct attn_decay_sums *decay_sums; /**< NULL: not wanted; only with fades_columns */
    const struct attn_state_scratch *scratch;
};

/** Computes it. */
void attn_state_pass(const struct attn_state_work *w);

/* ------------------------------------------------------- parts of the walk -- */

/** Tokens first..first+n-1, more than ATTN_FEW_TOKENS, with S in scratch memory. */
void attn_state_chunk(const struct attn_state_work *w, int64_t first, int n);

/** The same where decays are of columns. */
void attn_state_columns_chunk(const struct attn_state_work *w, int64_t first, int n);

/** What such tokens write, or what they read of S as it is: a bidirectional sequence does one after the other. */
void attn_state_write_chunk(const struct attn_state_work *w, int64_t first, int n);
void attn_state_read_chunk(const struct attn_state_work *w, int64_t first, int n);

/** ATTN_FEW_TOKENS or fewer, with S in scratch memory; or all tokens of a call, from where S is to where it goes. */
void attn_state_step(const struct attn_state_work *w, int64_t first, int n);
void attn_state_step_through(const struct attn_state_work *w);

/** Whether S of a call can be read and written where it lies. */
int attn_state_lies_together(const struct attn_state_work *w);

/* -------------------------------------------------------------- rows, panels -- */

/** Rows of floats. */
struct attn_floats {
    const float *rows;
    ptrdiff_t pitch; /**< from one to the next */
};

/** Before anything else of a piece: what its features want. */
void attn_state_begin_features(const struct attn_state_work *w);

/** The first n rows of q, or of k with keys, as floats, or their features: where they lie, or in room. */
struct attn_floats attn_state_floats(const struct attn_state_work *w, const struct attn_rows *rows, int n, int keys,
                                     float *room);

/** The first n rows of v: columns start.. of S, width of them, the sum of keys' among them. */
void attn_state_values(const struct attn_state_work *w, const struct attn_rows *v, int n, int64_t start, int64_t width,
                       float *to);

/** Decays of n tokens from one on, as factors, to scratch memory. */
void attn_state_take_decays(const struct attn_state_work *w, int64_t first, int n);

/** The same of columns start.. of S, width of them, to scratch memory that is for these. */
void attn_state_take_fades(const struct attn_state_work *w, int64_t first, int n, int64_t start, int64_t width);

/** Whether S is cleared before a chunk, first and n as the walk counts: nothing of it reaches the chunk's tokens then.
 */
int attn_state_chunk_is_reset(const struct attn_state_work *w, int64_t first, int n);

/** The rows of x turned: lanes are rows, up to whole vectors. */
void attn_state_turn(const struct attn_state_work *w, float *dst, ptrdiff_t pitch, const struct attn_floats *x, int n);

/**
 * Writes columns start.. of rows of a head, width floats apart in o. With normalises they are divided by sums: [n],
 * which are taken from the last column where that is among these, and else were in an earlier call.
 */
void attn_state_write_out(const struct attn_state_work *w, int head, int64_t first, int n, int64_t start, int64_t width,
                          const float *o, float *sums);

/** The panels of so many columns. */
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
