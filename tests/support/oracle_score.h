/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the oracle hand to each other: the inputs in the forms
 * that they are computed with, and what is known of one query's keys.
 */
#ifndef TEST_ORACLE_SCORE_H
#define TEST_ORACLE_SCORE_H

#include "oracle.h"

/** One rounding to f32. */
#define U 0x1p-24

/** Roundings by which a score may be off (the larger floor of tolerance.h) when it is asked what that could do. */
#define SCORE_ROUNDINGS 10

/** Rotated rows in double: the numbers, and the sums of the sizes of their terms. [batch][head][token][channel]. */
struct oracle_turned {
    double *value, *size;
};

struct oracle_inputs {
    const attn_params *params;
    attn_tensor q, k, v;                   /**< f32 */
    struct oracle_turned q_exact, k_exact; /**< NULL without rope */
    attn_tensor q_naive, k_naive;          /**< rotated in f32, or q and k themselves */
    int flushes;                           /**< products that are denormal are 0 */
};

/** One query and its keys. Arrays go along k's axis of tokens; element tk stands for the sink. */
struct oracle_row {
    struct oracle_query query;
    unsigned char *live;
    double *score, *size;           /**< s_j and a_j of the live keys */
    double *product, *product_size; /**< the same of scale * q·k, before softcap */
    double *called, *called_size;   /**< the same of what the callback is given */
    double *p;                      /**< the softmax, before dropout */
    double *kept;                   /**< d_j: what dropout multiplies p_j by; 0 for the sink, which has no value */
    double *shift;                  /**< w_j */
    double *lowest;                 /**< p_j when its score is off by SCORE_ROUNDINGS */
    double *least, *most;           /**< what a callback leaves of weights that are off by SCORE_ROUNDINGS units */
    float *relative;                /**< element of relative_bias */
    double *stage;                  /**< the score at params->score_stage; -inf: hidden, or padding */
    double *stage_unit; /**< what one rounding does to it; infinite: f32 can have no such number on the way to it */
};

/** Makes the rotated forms; types.steps is what the naive one is rounded to. They need q and k in place. */
void oracle_turn(struct oracle_inputs *inputs, attn_dtype steps);
void oracle_turned_free(struct oracle_inputs *inputs);

/** An input as f32: itself, or a contiguous copy whose data is to be freed. With flush, what is denormal is 0. */
attn_tensor oracle_widened(const attn_tensor *t, int flush);

/** Space for a query with tk keys. */
struct oracle_row oracle_row_allocate(int64_t tk);
void oracle_row_free(struct oracle_row *row);

/** Fills live, score, size, product, kept and relative of a row whose query is set. */
void oracle_score_row(const struct oracle_inputs *inputs, struct oracle_row *row);

/** Bits of an order in which naive_row() can work. */
enum {
    NAIVE_KEYS_BACKWARDS = 1,     /**< keys from the last to the first */
    NAIVE_CHANNELS_BACKWARDS = 2, /**< channels likewise */
    /** q is multiplied by scale * log2(e), and the sum by ln(2); weights are added up in lanes; out is divided last. */
    NAIVE_LIKE_LIBRARY = 4,
};

/** Orders that are tried: both ways of keys and of channels, and the library's way of scaling, adding up and dividing.
 */
#define NAIVE_ORDERS (NAIVE_LIKE_LIBRARY + 1)

/**
 * A result of so few rows has an error that is next to a single number drawn, and may be small by chance. There the
 * library's order is tried in so many turns, each of which begins at another key and goes in a circle.
 */
#define NAIVE_FEW_ROWS 4
#define NAIVE_TURNS    16

/**
 * One row of the naive computation on tensors of f32, in f32 but for the
 * rounding of scores and of finished weights to steps. Writes dv values, the
 * lse and tk weights. Which keys are live and kept is taken from the row, scores
 * from naive_live_scores(): they do not depend on the order of the keys, which
 * goes from key first on, in a circle.
 */
void naive_row(const struct oracle_inputs *inputs, const struct oracle_row *row, const float *scores, attn_dtype steps,
               int order, int64_t first, float *out, float *lse, float *weights);

/** scale * q·k of the row's live keys, before softcap; of others 0. */
void naive_products(const struct oracle_inputs *inputs, const struct oracle_row *row, int order, float *products);

/** Scores of the row's live keys, of others -inf. */
void naive_live_scores(const struct oracle_inputs *inputs, const struct oracle_row *row, attn_dtype steps, int order,
                       float *scores);

/** Scores of a row at params->score_stage, where those of the row are above -inf, else -inf. */
void naive_scores(const struct oracle_inputs *inputs, const struct oracle_row *row, attn_dtype steps, int order,
                  float *scores);

/** Rotates the rows of t, f32, in f32, and rounds to steps. Writes a contiguous tensor of the same shape to data. */
attn_tensor naive_turned(const attn_tensor *t, const attn_tensor *table, attn_rope_layout layout, attn_dtype steps,
                         float *data);

/** The two channels that pair c of a rotation turns. */
void oracle_pair_channels(attn_rope_layout layout, int64_t pairs, int64_t c, int64_t channels[2]);

/** Memory that is there, or the end of the program. */
void *oracle_allocate(int64_t n, size_t size);

#endif
