/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of functions that instruction sets export, and what these
 * functions are handed.
 *
 * The unit is a tile: a strip of queries, one in each lane of a few vectors,
 * by some keys. src/pass walks over the tiles of a block of queries and calls
 * these functions for each of them, through pointers: a call is some ten cycles
 * beside some ten thousand. So an instruction set or a storage type brings
 * the functions in which it differs, and shares everything else.
 *
 * A function computes on the pointers that it is given. It allocates nothing,
 * starts no threads, returns no errors, and looks at no option that is not
 * among its arguments; what it relies on has been checked.
 *
 * What lies in lane order has a query per lane: [key or channel][lane], nv
 * vectors, of which the last lanes may belong to no query. What tiles multiply
 * are words of 32 bits (simd/dot_f32.h); they are declared as float, of which a
 * word has the size.
 */
#ifndef ATTN_KERNELS_H
#define ATTN_KERNELS_H

#include "attn/attn.h"
#include "kernels/stored.h"

#include <stddef.h>
#include <stdint.h>

/** Alignment of working memory: a cache line, and the widest vector. */
#define ATTN_ALIGN 64

/** So many bytes, up to a multiple of that. */
static inline size_t attn_aligned(size_t bytes)
{
    return (bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

/** Bytes of a word. */
#define ATTN_WORD ((ptrdiff_t)sizeof(float))

/** Lanes and vectors that a strip of any instruction set has at most. */
#define ATTN_MAX_STRIP   48
#define ATTN_MAX_VECTORS 4

/** log2(e) and ln 2: scores are kept in base 2, callers have natural units. */
#define ATTN_LOG2E        0x1.715476p+0f
#define ATTN_LOG2E_DOUBLE 0x1.71547652b82fep+0
#define ATTN_LN2          0x1.62e43p-1f

/** A strided matrix of f32, bf16 or f16 whose columns are contiguous; or, of K and V, of what is quantised. */
struct attn_rows {
    void *data;
    ptrdiff_t stride; /**< in bytes */
    attn_dtype dtype;
    const float *scale;     /**< of quantised rows: what the numbers of row 0 are multiplied by, attn_row_scales(); */
    ptrdiff_t scale_stride; /**< that many floats on, those of the next row */
};

/** The rows from row i on. */
static inline struct attn_rows attn_rows_from(const struct attn_rows *rows, int64_t i)
{
    struct attn_rows from = *rows;
    from.data = (char *)rows->data + i * rows->stride;
    if (rows->scale)
        from.scale += i * rows->scale_stride;
    return from;
}

/** A strided matrix of any element, (query, key). data is NULL when absent. */
struct attn_grid {
    void *data;
    ptrdiff_t query_stride, key_stride; /**< in elements */
    attn_dtype dtype;
};

/* ------------------------------------------------------------ a tile's mask -- */

enum attn_mask_kind {
    MASK_NONE,     /**< every lane sees every key */
    MASK_DEAD,     /**< no lane sees any key: nothing is computed */
    MASK_DIAGONAL, /**< lane r sees key j when j <= r + diagonal */
    MASK_LIVE,     /**< bytes in live, not 0 where a lane sees a key */
    MASK_BIAS      /**< floats in bias to add, base 2, -inf where hidden for any reason */
};

/** What a tile hides, as the tile sees it: key 0 is its first, lane 0 its first query. */
struct attn_tile_mask {
    enum attn_mask_kind kind;
    int64_t diagonal;
    const uint8_t *live; /**< [key * live_pitch + lane] */
    ptrdiff_t live_pitch;
    const float *bias;    /**< [key * bias_pitch + lane] */
    ptrdiff_t bias_pitch; /**< a strip's width, or -1 for a bias that follows from the distance */
};

/** Lanes 0..n-1 do not see key j for causality: n. */
static inline int attn_hidden_lanes(int64_t diagonal, int j, int width)
{
    const int64_t first = j - diagonal;
    return first <= 0 ? 0 : first < width ? (int)first : width;
}

/** Of n keys, those that the lanes before lane see: a prefix. */
static inline int attn_visible_before(int64_t diagonal, int lane, int n)
{
    const int64_t visible = diagonal + lane;
    return visible <= 0 ? 0 : visible < n ? (int)visible : n;
}

/* ------------------------------------------------------------------- scores -- */

/** Memory that scores in int8 need beside their words; all of it NULL for other words. */
struct attn_int8_memory {
    float *mean;   /**< [dk rounded up to ATTN_ALIGN] the mean of K, as survey() leaves it */
    float *row;    /**< [the same] a row less its mean */
    float *zeros;  /**< [the same] zeros */
    int8_t *bytes; /**< [lanes][the same] a vector of rows */
};

/** Some rows of Q, and the lanes that they go to. */
struct attn_pack_queries {
    const char *const *rows; /**< [n], anywhere in memory */
    attn_dtype dtype;
    int n;           /**< rows; the lanes behind them become zeros */
    int first, fill; /**< lanes first..first+fill-1 are written: whole vectors */
    int width;       /**< lanes of the strip */
    int64_t dk;
    float scale; /**< multiplies a product; base 2 */
    int shifts;  /**< whether shift is asked for: the log-sum-exp is */
    struct attn_int8_memory int8;
    float *q;        /**< [words of dk][width] */
    float *factor;   /**< [width] what raw scores are to be multiplied by */
    float *validity; /**< [width] 1, or NaN for a query that the words cannot hold */
    float *shift;    /**< [width] what the scores of a query have lost, base 2 */
};

/** A block of K made into words. */
struct attn_packed_keys {
    char *words;    /**< [keys][words of dk] */
    float *scale;   /**< [keys] int8: the size of a step in each row */
    int32_t *start; /**< [keys] int8: where the sum of each row starts */
};

/** Rows of K or V that few queries meet, each anywhere in memory. */
struct attn_listed_rows {
    const char *const *at;     /**< [n] */
    const float *const *scale; /**< [n] of quantised rows: what the numbers of each are multiplied by */
    attn_dtype dtype;
    /* Rows that will be wanted after these: fetched into L2, or L1 (near), meanwhile, one beside each of these. */
    const char *const *next; /**< [num_next] */
    int num_next, near;
    ptrdiff_t next_bytes; /**< of each */
};

/** n rows of K or V that follow each other without a gap. */
struct attn_row_run {
    const char *first;
    attn_dtype dtype;   /**< of sets of pairs ATTN_BF16, or of some ATTN_I4 and ATTN_F8_E4M3 */
    const float *scale; /**< of quantised rows: what the numbers of the first are multiplied by */
    ptrdiff_t scale_stride;
    int n;
    int *wrong; /**< of ATTN_I4 in pairs: set if a scale may not be finite; NULL: they are */
};

/** Words of K and channels of V that rows have at most for scores_side_by_side() and values_side_by_side(); half and a
 * quarter of them are the other widths. */
#define ATTN_SIDE_WORDS 128

/** Rows of V that several queries, or parts of rows, take at a time there: what the nearest cache holds of them. */
#define ATTN_SIDE_ROWS 32

/** Queries of weights_of_few() at most: of more there are as many exponentials as of a vector with a query per lane. */
#define ATTN_FEW_WEIGHTS 4

/** Rows that will be wanted soon. */
struct attn_soon {
    struct attn_rows rows;
    int64_t width; /**< elements of a row */
    int num;       /**< rows */
    int write;     /**< they will be written */
};

/** Kinds of such rows at most. */
#define ATTN_MAX_SOON 4

/** Where a tile of scores comes from and goes to. */
struct attn_score_operands {
    const float *q; /**< [words][nv * lanes] */
    const char *k;  /**< first key's row, in words */
    ptrdiff_t k_stride;
    int64_t words; /**< of a row */
    /* scores_of_few(), scores_free(): lanes that have a query, the first ones, and K: words, called ATTN_F32, or
     * elements that are widened to words. */
    int rows;
    struct attn_listed_rows listed;
    const struct attn_tile_mask *mask;
    const float *factor;          /**< [nv * lanes] of raw scores */
    const float *k_scale;         /**< [keys] int8, as in struct attn_packed_keys */
    const int32_t *start;         /**< [keys] int8, the same */
    float *s;                     /**< [keys][nv * lanes] */
    const struct attn_soon *soon; /**< [num_soon] fetched meanwhile, beside the register tiles of full height */
    int num_soon;
};

/** Blocks of ATTN_KEY_BLOCK keys, one behind the other, of which the strip sees every key. */
struct attn_walk {
    const float *q; /**< as in struct attn_score_operands */
    const char *k;
    ptrdiff_t k_stride;
    int64_t words;
    const float *factor;
    const float *k_scale; /**< [blocks * ATTN_KEY_BLOCK] the same */
    const char *v;        /**< as in struct attn_value_operands */
    ptrdiff_t v_stride;
    int64_t dv;
    float *o;
    const float *reach;   /**< [nv * lanes] */
    const float *longest; /**< [blocks] */
    const float *m;       /**< [nv * lanes] */
    float *l;             /**< [nv * lanes] */
    float *s;             /**< [ATTN_KEY_BLOCK][nv * lanes] */
    float *p;             /**< the same in words of keys */
};

/** How Q and K become words, and the tile of their products. */
struct attn_score_kernels {
    const char *name;
    int channels_per_word;
    int word_step;     /**< words of a row are a multiple of it; 0: any number */
    int row_step;      /**< scores are written for a multiple of it of keys; 0: for those that there are */
    int strip_vectors; /**< that scores() takes at most; 0: as many as a strip has */
    int exact_pairs; /**< pairs: scores_free() and scores_side_by_side() take ATTN_I4 and ATTN_F8_E4M3 as they lie, and
                          so does struct attn_value_kernels where sums are free; of ATTN_I4 x->q is
                          [rows][attn_int4_words()] then */
    int raw;  /**< scores leave their tile without the scale, unless the mask is a bias: factor brings it later */
    int int8; /**< struct attn_int8_memory, scale and start of the keys are wanted */
    int query_block; /**< queries of a task, when there are enough of them */
    /** Tasks that a thread should find, so that the last one to finish is not waited for long; 0: as many as most. */
    int tasks_per_thread;
    /** Before a thread's first use of what follows and after the last one; after calls of foreign code enter() again.
     * NULL: nothing to do. */
    void (*enter)(void);
    void (*leave)(void);
    /** Looks at the first keys, of which known are no garbage, before anything is packed; NULL: no need. */
    void (*survey)(const struct attn_rows *k, int64_t known, int64_t dk, const struct attn_int8_memory *memory);
    void (*pack_queries)(const struct attn_pack_queries *x);
    void (*pack_keys)(const struct attn_rows *src, int n, int64_t dk, const struct attn_int8_memory *memory,
                      const struct attn_packed_keys *dst);
    /**
     * Bounds for struct attn_walk, in base 2: the size of a score is at most reach (of a query, packed) times longest
     * (of n keys, in words). NULL: not known.
     */
    void (*reach)(int nv, int64_t words, const float *q, const float *factor, float *reach);
    float (*longest)(const char *k, ptrdiff_t stride, int64_t words, const float *k_scale, int n);
    /** Masked scores of n keys; max[lane] becomes the maximum of what it sees, the factor multiplied in. */
    void (*scores)(int nv, const struct attn_score_operands *x, int n, float *max);
    /** scores() of one vector, x->rows lanes of which have a query: struct attn_vector_kernels few at most. K is
     * x->listed; x->k and x->next are not looked at. NULL: none. */
    void (*scores_of_few)(const struct attn_score_operands *x, int n, float *max);
    /** scores_of_few() whose sums add their channels in an order of their own; x->q is [rows][words]. NULL: none. */
    void (*scores_free)(const struct attn_score_operands *x, int n, float *max);
    /** scores_free() of rows queries and a run of keys: s[rows][pitch] without a factor, and max[rows]. NULL: none. */
    void (*scores_side_by_side)(const struct attn_row_run *k, const float *q, int64_t words, int rows, float *s,
                                ptrdiff_t pitch, float *max);
    /** The same of one query whose sums are in the order of the channels, and keys of any type; q is [words][lanes] as
     * for scores(). */
    void (*ordered_side_by_side)(const struct attn_row_run *k, const float *q, int64_t words, float *s, float *max);
    /**
     * All steps of the softmax for some blocks, with the same bits as these and the values of its own set, or of the
     * one that this one extends: those, of so many, that leave m where it is for certain, up to the first one that may
     * not. Returns how many. O holds something. NULL: step by step only.
     */
    int64_t (*walk)(int nv, const struct attn_walk *x, int64_t blocks);
};

/* ------------------------------------------------------------------- values -- */

/** How the sum over keys goes on. */
enum attn_accumulate {
    ACCUMULATE_FIRST,  /**< from 0 */
    ACCUMULATE_ADD,    /**< from what is there */
    ACCUMULATE_RESCALE /**< from what is there times alpha */
};

/** A tile of weights and the rows of V that they meet. */
struct attn_value_operands {
    const float *p; /**< [words of keys][nv * lanes] */
    const char *v;  /**< first word's row */
    ptrdiff_t v_stride;
    int64_t dv;
    const int *ends; /**< [nv] words of keys that a vector's lanes see, not falling; for values_seen() keys */
    float *o;        /**< [dv][nv * lanes] */
    enum attn_accumulate mode;
    const float *alpha; /**< [nv * lanes] */
};

/** The same of few queries, with V as it is in memory. */
struct attn_few_values {
    const float *p; /**< [words of keys][lanes] */
    struct attn_listed_rows v;
    int64_t dv;
    int rows, keys; /**< queries, the first lanes; keys that they see */
    int free;       /**< scales of quantised rows may multiply their weights instead of their elements; of pairs where
                         struct attn_kernels exact_pairs is */
    float *o;       /**< [rows][dv] */
    enum attn_accumulate mode;
    const float *alpha; /**< [rows] */
};

/** A strip that is a single tile: its weights, the rows of V that they meet, and the rows that the sums go to. */
struct attn_value_rows {
    const float *p; /**< [keys][width] floats, a query a lane */
    int width;
    const void *v; /**< floats: the first key's row */
    ptrdiff_t v_stride;
    int64_t dv;
    const int *ends;     /**< [vectors of the strip] keys that a vector's lanes see */
    const float *factor; /**< [n] multiplies a finished row */
    char *const *rows;   /**< [n] of dv elements, anywhere in memory */
    attn_dtype dtype;    /**< of rows */
    int n;               /**< queries */
};

/** Dropout of weights, and the place of a tile in the call: what decides. */
struct attn_drop {
    int wanted;
    uint32_t key[2];            /**< of Philox4x32-10 */
    uint32_t threshold;         /**< a word below it drops the weight */
    float keep_scale;           /**< 1 / (1 - p) */
    int64_t batch, head;        /**< as the caller counts them, */
    int64_t query_index, first; /**< so the tile's first query and key */
};

/** How V and the weights become words, and the tile of their products. */
struct attn_value_kernels {
    const char *name;
    int keys_per_word;
    int channel_step;  /**< rows of o, and words of V, are there for a multiple of it of channels; 0: for dv */
    int key_step;      /**< keys that are multiplied together, from a multiple of it in the block on, where runs begin;
                          0: those of a word, and runs begin at multiples of ATTN_RUN_STEP */
    int strip_vectors; /**< as in struct attn_score_kernels */
    float headroom;    /**< of raise_maximum() */
    void (*enter)(void);
    void (*leave)(void);
    /** n rows of V as words of keys. */
    void (*pack_values)(float *dst, const struct attn_rows *src, int n, int64_t dv);
    /**
     * S becomes words of weights 2^(factor S - m): the first ends[v] keys of vector v, of n, for ends that do not
     * fall. l[lane] grows by their sum. factor NULL: scores come whole.
     */
    void (*weights)(int nv, const float *m, const int *ends, int n, const float *factor, float *s, float *l);
    /** weights() of one vector, rows lanes of which have a query, at most ATTN_FEW_WEIGHTS and struct
     * attn_vector_kernels few; the other lanes may become anything. NULL: none. */
    void (*weights_of_few)(int rows, const float *m, int n, const float *factor, float *s, float *l);
    /** weights() of one query, whose scores s[n] become words[]. factor: 1 if scores come whole. NULL: none. */
    void (*weights_of_one)(float m, int n, float factor, float *s, float *l);
    /** Adds the values that such words p[rows][pitch] weigh to o[rows][dv], alpha[rows] being of ACCUMULATE_RESCALE;
     * free: struct attn_few_values. Of E4M3 and, but for pairs, ATTN_I4 there is one query. NULL: none. */
    void (*values_side_by_side)(const struct attn_row_run *v, int rows, const float *p, ptrdiff_t pitch, int free,
                                int64_t dv, enum attn_accumulate mode, const float *alpha, float *o);
    /** Clears the dropped ones of n weights in words. */
    void (*drop)(const struct attn_drop *drop, int nv, int n, float *p);
    /** Adds the tile to o. */
    void (*values)(int nv, const struct attn_value_operands *x);
    /** The same of few queries, struct attn_vector_kernels few at most. NULL: none. */
    void (*values_of_few)(const struct attn_few_values *x);
    /** values() from 0 and write_rows() of the sums, with the same bits. NULL: words are no floats. */
    void (*values_to_rows)(const struct attn_value_rows *x);
    /** Whether n rows of words hold only finite numbers. */
    int (*finite)(const char *v, ptrdiff_t stride, int n, int64_t dv);
    /** values() for rows of which some are not: adds to each lane only the keys, of n, that it sees. */
    void (*values_seen)(int nv, const struct attn_tile_mask *mask, const struct attn_value_operands *x, int n);
};

/* ------------------------------------------------ everything else of a strip -- */

/** The end of a strip's rows. */
struct attn_finish {
    const float *m, *l;            /**< [nv * lanes] maximum, base 2, and sum */
    const float *validity, *shift; /**< [nv * lanes] as packed with the queries; NULL: 1, 0 */
    float headroom;                /**< of raise_maximum() */
    float keep_scale;              /**< of dropout */
    float *inverse;                /**< [nv * lanes] becomes keep_scale / l, 0 without a live key */
    float *lse;                    /**< [nv * lanes] becomes the log-sum-exp; NULL: not wanted */
};

/** What the softmax of some keys has given, and that of a split of the keys behind them. */
struct attn_join {
    float *m, *l;                 /**< [nv * lanes] of the keys before; become those of all */
    const float *next_m, *next_l; /**< [nv * lanes] of the split */
    float *o; /**< [channels][nv * lanes], or of few queries [rows][channels]; NULL: there is none */
    const float *next_o;
    int64_t channels;
    int rows; /**< of few queries; 0: o is in lane order */
};

/** Rows to be turned by a table of cosines and sines: row i of x by row i of the table. */
struct attn_rotation {
    struct attn_rows x, out; /**< out of x's type or f32; the same rows, or rows without a byte in common */
    const float *table;      /**< pairs cosines, then pairs sines */
    ptrdiff_t table_stride;  /**< in floats; 0: one row for all */
    int64_t num_rows;
    int64_t pairs, width; /**< channels behind 2 * pairs are copied */
    attn_rope_layout layout;
    int streams; /**< out goes past the caches: its rows are whole lines of ATTN_ALIGN, and none is turned */
};

/** Rows to be rounded to 8 or 4 bits (attn_quantise()): out is of a type with scales, which go where scale says. */
struct attn_quantisation {
    struct attn_rows x, out;
    float *scale;
    ptrdiff_t scale_stride; /**< in floats */
    int64_t num_rows, width;
    int streams; /**< out goes past the caches: its rows are whole lines of ATTN_ALIGN, not of ATTN_I4 */
};

/**
 * Some rows of a merge (attn_merge()), of all rows in the order batch, head,
 * token. No row has been read or written before; out and lse may lie on a part.
 */
struct attn_merge_work {
    int64_t num_parts;               /**< 1 or more */
    const attn_tensor *parts, *lses; /**< [num_parts] */
    const attn_tensor *out, *lse;    /**< lse: NULL when not wanted */
    int64_t first_row, num_rows;
};

/** A tile between its weights and the gradients of its scores. */
struct attn_score_gradients {
    const struct attn_tile_mask *mask;
    int keys;
    const float *p;      /**< [keys][nv * lanes] weights of the softmax */
    const float *kept;   /**< the same less those that dropout clears; NULL: none */
    float keep_scale;    /**< of dropout */
    const float *capped; /**< scores behind softcap, base 2; NULL: none */
    float cap;           /**< of these */
    const float *delta;  /**< [nv * lanes] what is taken from the gradient of a weight */
    float *dp;           /**< [keys][nv * lanes] gradients of what v is multiplied by; become those of scores, 0 where
                            hidden */
};

/** What does not depend on the words of tiles. Lengths in lanes are nv * lanes. */
struct attn_vector_kernels {
    int lanes; /**< queries of a vector */
    int strip; /**< queries that a full strip covers, for these functions */
    int few;   /**< queries up to which keys and channels may be better lanes than queries are; lanes at most */
    /** dst[c * pitch + r] = rows[r][c] * factor for r < width, whole vectors, c < cols; rows from n on are 0. */
    void (*read_rows)(float *dst, ptrdiff_t pitch, int width, const char *const *rows, attn_dtype dtype, int n,
                      int64_t cols, float factor);
    /** dst[r * cols + c] = rows[r][c] for r < n, c < cols, of any type that K and V may have. */
    void (*widen)(float *dst, const struct attn_rows *src, int n, int64_t cols);
    /** rows[r][c] = src[c * width + r] * factor[r] for r < n, c < cols. A result of -0 becomes +0. */
    void (*write_rows)(char *const *rows, attn_dtype dtype, const float *src, int width, int n, int64_t cols,
                       const float *factor);
    /** The same of few queries, from src[r * cols + c]. */
    void (*write_few)(char *const *rows, attn_dtype dtype, const float *src, int n, int64_t cols, const float *factor);
    /** bias[j][r] of n keys: natural units (NULL: 0) to base 2, the distances' row added (NULL: none), -inf where live
     * (NULL: everywhere) is 0. Returns whether some lane sees some key. */
    int (*join_bias)(int nv, int n, float *bias, int natural, const float *distances, const uint8_t *live,
                     ptrdiff_t live_pitch);
    /** Whole scores from plain products of n keys: factor (NULL: 1), softcap (base 2; 0: none), mask; and max. */
    void (*finish_scores)(int nv, const struct attn_tile_mask *mask, int n, const float *factor, float cap, float *s,
                          float *max);
    /** s[i] *= x for n floats, whole vectors. */
    void (*multiply)(float *s, int64_t n, float x);
    /** After a callback: back to base 2, hidden again what was hidden, and max. Returns whether more is at -inf now. */
    int (*hide_again)(int nv, const struct attn_tile_mask *mask, int n, float *s, float *max);
    /**
     * Where max passes m, m' = max, or with a headroom a multiple of ATTN_RAISED_GRID that far above it; else m' = m.
     * Where one grew alpha = 2^(m - m'), l *= alpha, m = m' for all. Returns whether one grew.
     */
    int (*raise_maximum)(int nv, float headroom, const float *max, float *m, float *l, float *alpha);
    /** Joins the results of a split to what there is. A lane that has no key on one side takes the other's bits, but
     * for the sign of zeros. */
    void (*join)(int nv, const struct attn_join *x);
    void (*finish)(int nv, const struct attn_finish *x);
    /** p *= inverse, and 0 where the mask hides, for n keys. */
    void (*normalise)(int nv, const struct attn_tile_mask *mask, int n, const float *inverse, float *p);
    void (*rotate)(const struct attn_rotation *work);
    void (*quantise)(const struct attn_quantisation *work);
    int streams; /**< rows that are to go past the caches do so; else they are written as others are */
    /** After calls that stream: what this thread has written is there for others, too. */
    void (*stream_end)(void);
    void (*merge)(const struct attn_merge_work *work);
    void (*score_gradients)(int nv, const struct attn_score_gradients *x);
    /** dst[i] = the product of row i of a and row i of b, for n rows of f32, bf16 or f16. */
    void (*dot_rows)(float *dst, const struct attn_rows *a, const struct attn_rows *b, int64_t n, int64_t channels);
    void (*exp2)(float *dst, const float *src, int64_t n); /**< what the kernels use, for tests */
};

/* ------------------------------------------------------- instruction sets -- */

struct attn_gradient_kernels; /* the backward pass: gradient_sums.h */
struct attn_state_kernels;    /* linear attention: states.h */

/** What the file of an instruction set exports. A set that extends another one leaves out what it shares with it. */
struct attn_isa_kernels {
    const struct attn_vector_kernels *vectors;
    const struct attn_state_kernels *states;
    const struct attn_score_kernels *scores;
    const struct attn_value_kernels *values;
    const struct attn_gradient_kernels *gradients;
    int emulated; /**< slowly, for tests: chosen only by its name */
};

/** What m is a multiple of, with a headroom, unless it is huge: weights in fixed point begin there. */
#define ATTN_RAISED_GRID  0x1p-8f
#define ATTN_RAISED_LIMIT 0x1p15f

/** Keys in a step of the online softmax: as it shapes every bit of the result it is one number for all. */
#define ATTN_KEY_BLOCK 128

/**
 * Keys of a split, counted from the first live key: m, l and O start anew at its first key, in every pass, and what a
 * split gives is joined to what the splits before have given, in their order. So splits can be computed on several
 * threads; as it shapes every bit of longer rows it is one number for all. A multiple of any block of keys.
 */
#define ATTN_SPLIT_KEYS 4096

/** Runs start at multiples of this from the block's first key, so that a lane's sums have their terms in the same
 * places whichever other rows the strip holds, and keys come in whole words. */
#define ATTN_RUN_STEP 8

/** Functions composed for a call. */
struct attn_kernels {
    const char *isa;       /**< the name of the set, static storage */
    const char *score_isa; /**< of that whose scores they are: another one with int8 scores */
    attn_qk qk;            /**< how scores are multiplied */
    int strip;             /**< queries that a full strip covers: what its functions take at most */
    int exact_pairs;       /**< K and V are both ATTN_I4 or ATTN_F8_E4M3, queries are few and sums free: struct
                                attn_score_kernels exact_pairs */
    int fetches_ahead;     /**< struct attn_state_steps asks and next, as this processor has it (cpu/cpu.h) */
    int fetches_near;      /**< struct attn_listed_rows near, as this processor has it */
    const struct attn_vector_kernels *vectors;
    const struct attn_score_kernels *scores;
    const struct attn_value_kernels *values;
    const struct attn_value_kernels *plain;        /**< values in f32: for weights that are handed out */
    const struct attn_gradient_kernels *gradients; /**< of the words of values; of f32 where those have none */
    const struct attn_state_kernels *states;
};

/** A number, up to a multiple of a step of the tables. */
static inline int64_t attn_in_steps(int64_t n, int step)
{
    return step ? (n + step - 1) / step * step : n;
}

/** Words of a row of Q or K. */
static inline int64_t attn_channel_words(const struct attn_score_kernels *scores, int64_t dk)
{
    return attn_in_steps((dk + scores->channels_per_word - 1) / scores->channels_per_word, scores->word_step);
}

/** Rows of o in lane order, and words in a row of V. */
static inline int64_t attn_value_channels(const struct attn_value_kernels *values, int64_t dv)
{
    return attn_in_steps(dv, values->channel_step);
}

/** Before the first of a call's functions on this thread, and after foreign code has run on it. Registers that are
 * emulated are each set's own. */
static inline void attn_enter(const struct attn_kernels *kernels)
{
    if (kernels->scores->enter)
        kernels->scores->enter();
    if (kernels->values->enter && kernels->values->enter != kernels->scores->enter)
        kernels->values->enter();
}

/** After the last of them. */
static inline void attn_leave(const struct attn_kernels *kernels)
{
    if (kernels->scores->leave)
        kernels->scores->leave();
    if (kernels->values->leave && kernels->values->leave != kernels->scores->leave)
        kernels->values->leave();
}

#endif
