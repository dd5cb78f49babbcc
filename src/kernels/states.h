/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of linear attention that an instruction set exports, and what
 * they are handed. As those of kernels.h they compute on the pointers that they
 * are given, and nothing else.
 *
 * S is a matrix of dk rows, one for each channel of a key, and dv columns. No
 * column of it meets another one, so columns are the lanes: they are cut into
 * panels of some vectors, and a panel of S, of what tokens write and of what they
 * read lies by itself, row after row, its last vector filled with zeros.
 *
 * All numbers are floats here, whatever the tensors hold.
 */
#ifndef ATTN_STATES_H
#define ATTN_STATES_H

#include "attn/linear_attention.h"
#include "kernels/kernels.h"

/** Tokens of a chunk at most. */
#define ATTN_CHUNK ATTN_LINEAR_ATTENTION_CHUNK

/** Tokens that are computed one by one where no more of them follow each other. */
#define ATTN_FEW_TOKENS 8

/** Decays of a chunk: what S is multiplied by before each of its tokens writes. */
struct attn_chunk_decays {
    const float *by; /**< [n], or [n][dk] of rows; NULL: none */
    int rows;        /**< whether each row of S has its own */
};

/** Products of the rows of a chunk with its keys. */
struct attn_chunk_scores {
    int n;    /**< rows, of the chunk where keys is 0 */
    int keys; /**< 0: row i meets the keys up to i; else the first so many, whole vectors, are before all of them */
    int64_t dk;
    const float *a; /**< [n][a_pitch] the rows: of queries, or keys */
    ptrdiff_t a_pitch;
    const float *kt; /**< [dk][kt_pitch] keys turned: lanes are keys */
    ptrdiff_t kt_pitch;
    const float *within; /**< the shape of to: what they are multiplied by; NULL: 1 */
    float *to; /**< [n][to_pitch]: key 0 first. Of keys behind its own a row has anything, up to whole panels */
    ptrdiff_t to_pitch;
};

/** Rows of features. */
struct attn_features {
    float *rows; /**< [n][pitch] products with a projection, or elements; become features */
    ptrdiff_t pitch;
    int n;
    int64_t m;         /**< features of a row */
    int positive;      /**< else elu(x) + 1 */
    const float *half; /**< [n] half the square of each row's length: keys; NULL: queries, of which the largest is 1 */
};

/** The same of neighbours, at most as many as there are lanes, with decays of rows: each pair of a row and a key has
 * another one for each channel. */
struct attn_near_scores {
    int n; /**< tokens: rows and keys */
    int64_t dk;
    const float *a; /**< [n][a_pitch] */
    ptrdiff_t a_pitch;
    const float *k; /**< [n][k_pitch] */
    ptrdiff_t k_pitch;
    const float *decay; /**< [n][dk] */
    float *parts;       /**< [lanes][lanes][lanes] to work in */
    float *to;          /**< [n][ATTN_CHUNK]: key 0 first, whole vectors */
};

/** Rows that are asked for meanwhile, into L2: they will be read, or written, after this. */
struct attn_ahead {
    struct attn_rows rows;
    int n; /**< 0: none */
    int64_t width;
    int written;
};

/** What a panel asks for at most. */
#define ATTN_AHEAD 3

/** A panel of columns and a chunk. */
struct attn_chunk_panel {
    int n;     /**< tokens */
    int width; /**< columns: whole vectors, at most a panel */
    int64_t dk;
    const float *a; /**< [n][a_pitch] rows that meet S: keys for solve(), queries for read() */
    ptrdiff_t a_pitch;
    const float *factor; /**< [n] what their products are multiplied by; NULL: 1 */
    const float *scores; /**< [n][ATTN_CHUNK] what a row takes of the tokens up to its own, for solve() before it;
                            NULL: nothing */
    const float *beta;   /**< [n] for solve() */
    float *u;            /**< [n][width] what tokens write; before solve() the values */
    float *o;            /**< [n][width] what they read */
    const float *kt;     /**< [dk][ATTN_CHUNK] keys turned, for write() */
    struct attn_chunk_decays decay; /**< for write(): [1] or [dk] of the whole chunk */
    float *s;                       /**< [dk][width] */
    struct attn_ahead ahead[ATTN_AHEAD];
};

/** Tokens one by one, and some columns of S. */
struct attn_state_steps {
    int n; /**< tokens, 1 to ATTN_FEW_TOKENS */
    int64_t dk, columns;
    int heads;      /**< of queries that read S */
    const float *k; /**< [n][k_pitch] */
    ptrdiff_t k_pitch;
    const float *kept; /**< [n][kept_pitch] k times the decays; k itself without */
    ptrdiff_t kept_pitch;
    const float *const *q; /**< [heads] of [n][q_pitch] */
    ptrdiff_t q_pitch;
    float *u;                       /**< [n][pitch] the values; becomes what is written */
    float *o;                       /**< [heads][n][pitch] */
    ptrdiff_t pitch;                /**< columns, up to whole vectors */
    const float *beta;              /**< [n]; NULL: u is written as it is */
    struct attn_chunk_decays decay; /**< [n] or [n][dk] */
    const float *from;              /**< S before: rows from_pitch floats apart; may be to */
    ptrdiff_t from_pitch;
    float *to; /**< S after */
    ptrdiff_t to_pitch;
    int far;           /**< S before may be in memory */
    int asks;          /**< for its rows, some ahead, also where whole rows are read in the order of memory */
    const float *next; /**< rows from_pitch apart that are read after this, asked for while S is near; NULL: none */
};

/** Tokens that meet one by one where columns fade: more of them are split. */
#define ATTN_NEAR_TOKENS 8

/** What rows of a panel are multiplied by and added up to. */
struct attn_partners {
    const float *rows; /**< [n][width]; NULL: nothing is asked for */
    float factor;
    float *sums; /**< [n][pitch] */
    ptrdiff_t pitch;
};

/** A panel of columns and neighbours, where columns fade. */
struct attn_near_columns {
    int n, width;
    const float *scores; /**< [n][ATTN_CHUNK] what a row takes of the tokens up to its own */
    const float *u;      /**< [n][width] what tokens write */
    const float *decay;  /**< [n][width] */
    float *o;            /**< [n][width] what they read: added to */
    struct attn_partners partners;
};

/** What an instruction set brings for linear attention. */
struct attn_state_kernels {
    int lanes;
    int panel; /**< columns of a panel at most, whole vectors */
    /** dst[i * pitch + c] = factor times element c of row i, n rows in their order; 0 for c from cols up to whole
     * vectors, where the next row may begin before. */
    void (*take_rows)(float *dst, ptrdiff_t pitch, const struct attn_rows *src, int n, int64_t cols, float factor);
    /** The same of e to the power of elements, without a factor; 1 for c from cols on. */
    void (*take_decays)(float *dst, ptrdiff_t pitch, const struct attn_rows *src, int n, int64_t cols);
    /** within[i][j] = the product of decays j+1..i for j <= i < n, a decay for each token; 0 behind, up to whole
     * vectors. */
    void (*within)(float *within, const float *decay, int n);
    /** kt[c][j] *= by[j] for n keys, up to whole vectors, of rows rows. */
    void (*scale_keys)(float *kt, int64_t rows, const float *by, int n);
    /** dst[i] = src[i] times decays 0..i of n tokens, channel by channel; rows of src are pitch apart, others dk. */
    void (*decay_since)(float *dst, const float *src, ptrdiff_t pitch, const float *decay, int n, int64_t dk);
    /** dst[i] = src[i] times decays i+1..n-1; the product of all n in whole, unless that is NULL. */
    void (*decay_until)(float *dst, const float *src, ptrdiff_t pitch, const float *decay, int n, int64_t dk,
                        float *whole);
    void (*features)(const struct attn_features *x);
    void (*scores)(const struct attn_chunk_scores *x);
    void (*near_scores)(const struct attn_near_scores *x);
    /** u_i = beta_i (u_i - factor_i S'a_i - the sum over j < i of scores_ij u_j): what tokens write with beta. */
    void (*solve)(const struct attn_chunk_panel *x);
    /** o_i = factor_i S'a_i + the sum over j <= i of scores_ij u_j. */
    void (*read)(const struct attn_chunk_panel *x);
    /** S = decay S + the sum over tokens of k_j u_j'. */
    void (*write)(const struct attn_chunk_panel *x);
    void (*steps)(const struct attn_state_steps *x);
    /** to[r][c] = from[r][c] by[c], n rows of width columns. */
    void (*fade_columns)(float *to, ptrdiff_t to_pitch, const float *from, ptrdiff_t from_pitch, int64_t n, int width,
                         const float *by);
    /** to[i] += from[i], n numbers, whole vectors. */
    void (*add_numbers)(float *to, const float *from, int64_t n);
    /**
     * o_i += the sum over j <= i of scores_ij (decays j+1..i) u_j, column by column. Of partners sums_t += the sum over
     * j < t <= i of factor rows_i times that pair's number.
     */
    void (*near_columns)(const struct attn_near_columns *x);
    /** sums_t = the sum over i >= t of factor rows_i o_i, for n rows of width columns but the first skip; with add
     * sums_t += that. */
    void (*sum_later)(const struct attn_partners *x, const float *o, int n, int width, int skip, int add);
    /** sums_t[c] += by[c] times the sum over rows of a[r][c] b[r][c], for n rows t. b's rows are width apart. */
    void (*add_products)(float *sums, ptrdiff_t pitch, int n, int width, const float *by, const float *a,
                         ptrdiff_t a_pitch, const float *b, int64_t rows);
};

#endif
