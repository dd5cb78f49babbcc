/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file patterns.h
 * @brief Builders of block-sparse patterns, and the slopes of ALiBi.
 *
 * A pattern is made once and serves any number of calls:
 * @code
 *     attn_pattern *pattern;
 *     attn_bigbird b = {.window = 3, .global = 2, .random = 3, .seed = 1};
 *     if (attn_pattern_bigbird(&pattern, Tq, Tk, 64, &b) == ATTN_OK) {
 *         params.block_mask = attn_pattern_block_mask(pattern);
 *         // any number of calls
 *         attn_pattern_destroy(pattern);
 *     }
 * @endcode
 * Windows, strides and the like count blocks of size tokens, a multiple of 16.
 * There are ceil(tq / size) block rows and ceil(tk / size) block columns. Where tq
 * and tk differ, block row r stands at block column r (top-left). With causal,
 * blocks above the diagonal are left out; set attn_params.causal, too, for those
 * on it.
 *
 * The structs of options are frozen (docs/abi.md): another pattern will be
 * another struct and function. Zero is a valid value of each field.
 */
#ifndef ATTN_PATTERNS_H
#define ATTN_PATTERNS_H

#include "attn/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A block-sparse pattern with memory of its own. Immutable. @since 0.1 */
typedef struct attn_pattern attn_pattern;

/** Window and global blocks (Beltagy et al. 2020, "Longformer"). */
typedef struct attn_longformer {
    int64_t window; /**< blocks that a block row sees on each side of the diagonal; 0 or more */
    int64_t global; /**< blocks at the start that see all and are seen by all; 0 or more */
    int causal;     /**< non-zero: no blocks above the diagonal */
} attn_longformer;

/** Window, global and random blocks (Zaheer et al. 2020, "Big Bird", section 2). */
typedef struct attn_bigbird {
    int64_t window; /**< as in attn_longformer */
    int64_t global; /**< as in attn_longformer */
    int64_t
        random;    /**< blocks chosen in each block row among the others, or all of them if they are fewer; 0 or more */
    uint64_t seed; /**< chooses them, the same on every machine */
    int64_t heads; /**< 1 (or 0): one pattern for all heads; more: each chooses its own */
    int causal;    /**< non-zero: no blocks above the diagonal */
} attn_bigbird;

/** Strided (Child et al. 2019, "Sparse Transformer", section 4.2): a window and every stride-th block. n block rows
 * list O(n sqrt(n)) blocks if stride is sqrt(n). */
typedef struct attn_strided {
    int64_t stride; /**< blocks: a block row sees the stride - 1 before (and after) the diagonal, and those a multiple
                       of stride away; 0 means round(sqrt(block rows)) */
    int causal;     /**< non-zero: no blocks above the diagonal */
} attn_strided;

/**
 * Makes Longformer's pattern.
 *
 * @param pattern set to the pattern, which the caller destroys; to NULL after an error
 * @param tq,tk tokens of q and k, 0 or more
 * @param size  tokens along a block's side, a multiple of 16
 * @param options not NULL
 * @since 0.1
 */
ATTN_API attn_status attn_pattern_longformer(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                             const attn_longformer *options);
/** Makes BigBird's pattern; otherwise as attn_pattern_longformer(). @since 0.1 */
ATTN_API attn_status attn_pattern_bigbird(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                          const attn_bigbird *options);
/** Makes a strided pattern; otherwise as attn_pattern_longformer(). @since 0.1 */
ATTN_API attn_status attn_pattern_strided(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                          const attn_strided *options);

/** Frees a pattern; NULL is allowed. @since 0.1 */
ATTN_API void attn_pattern_destroy(attn_pattern *pattern);

/** The pattern as an option of a call; valid until it is destroyed. NULL for NULL. @since 0.1 */
ATTN_API const attn_block_mask *attn_pattern_block_mask(const attn_pattern *pattern);

/** The fraction of blocks that are listed, 0 to 1; 0 for a pattern without blocks, and for NULL. @since 0.1 */
ATTN_API double attn_pattern_density(const attn_pattern *pattern);

/**
 * The slopes of ALiBi (Press et al. 2022, section 3). If heads is a power of two
 * they are the geometric sequence that starts at 2^(-8 / heads) and has that ratio.
 * Otherwise they are those of the next lower power of two, followed by every other
 * slope of twice as many heads.
 *
 * @param slopes [heads], written
 * @param heads  0 or more
 * @since 0.1
 */
ATTN_API attn_status attn_alibi_slopes(float *slopes, int64_t heads);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_PATTERNS_H */
