/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file rope.h
 * @brief Rotary position embedding: tables of cosines and sines, and a rotation in place.
 *
 * A token at position p has pair c of its channels turned by the angle p * f_c,
 * f_c = base^(-c / pairs) (Su et al. 2021, "RoFormer", section 3.2.2), so that
 * q·k depends on the distance between their positions. Models trained on short
 * sequences are stretched to long ones by changing f_c: attn_rope_scaling.
 *
 * @code
 *     attn_rope_config config = attn_rope_config_default();
 *     config.pairs = head_dim / 2;
 *     attn_rope_table(&config, NULL, T, table);           // float table[T][2 * pairs]
 *     attn_tensor rows = attn_bhtd(table, 1, 1, T, 2 * config.pairs);
 *     attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &rows, &rows};
 *     params.rope = &rope;                                // or attn_rope(&k, &rows, layout, &k)
 * @endcode
 */
#ifndef ATTN_ROPE_H
#define ATTN_ROPE_H

#include "attn/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How the frequencies f_c change for sequences longer than in training. */
typedef enum attn_rope_scaling {
    ATTN_ROPE_PLAIN = 0,
    ATTN_ROPE_LINEAR = 1,  /**< f_c / factor (Chen et al. 2023, "position interpolation") */
    ATTN_ROPE_NTK = 2,     /**< base * factor^(pairs / (pairs - 1)): NTK-aware; needs pairs > 1 */
    ATTN_ROPE_YARN = 3,    /**< Peng et al. 2023, "YaRN": low frequencies divided, high ones kept; attention_factor */
    ATTN_ROPE_LLAMA3 = 4,  /**< Llama 3.1: low frequencies divided, high ones kept, smooth in between */
    ATTN_ROPE_LONGROPE = 5 /**< Ding et al. 2024, "LongRoPE": a divisor found for each pair (Phi-3) */
} attn_rope_scaling;

/** What a table is made from. Zero is every field's default except struct_size and pairs. */
typedef struct attn_rope_config {
    size_t struct_size;        /**< sizeof(attn_rope_config) as the caller compiled it */
    int64_t pairs;             /**< pairs of channels, 1 to 2048: half the rotated dimension */
    double base;               /**< 0 means 10000; at least 1 */
    attn_rope_scaling scaling; /**< says which of the fields below count; the others must be 0 */
    double factor;             /**< every scaling but PLAIN: how much longer; at least 1 */
    int64_t original_length;   /**< YARN, LLAMA3, LONGROPE: positions in training, 1 or more */
    double beta_fast;          /**< YARN: rotations from which on f_c is kept; 0 means 32 */
    double beta_slow;          /**< YARN: rotations below which f_c is divided; 0 means 1 */
    /**
     * YARN, LONGROPE: multiplies cosines and sines. 0 means 0.1 ln(factor) + 1 for YARN, and for LONGROPE
     * sqrt(1 + ln(factor) / ln(original_length)), where original_length is 2 or more.
     */
    double attention_factor;
    double low_freq_factor;  /**< LLAMA3: 0 means 1 */
    double high_freq_factor; /**< LLAMA3: 0 means 4; more than low_freq_factor */
    /** YARN: non-zero leaves the ends of the ramp where they are, also between two pairs (gpt-oss: "truncate": false)
     */
    int no_truncation;
    const double *short_factor; /**< LONGROPE: [pairs] divisors of f_c, positive: for sequences up to original_length */
    const double *long_factor;  /**< LONGROPE: [pairs] the same for longer ones */
    int64_t length; /**< LONGROPE: tokens of the sequences; long_factor from original_length + 1 on; 0: short_factor */
} attn_rope_config;

/** A config with every field at its default; set pairs. @since 0.1 */
static inline attn_rope_config attn_rope_config_default(void)
{
    attn_rope_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/**
 * Fills num rows of a table: row n has cos(a_0) to cos(a_{pairs-1}), then the
 * sines; a_c = positions[n] * f_c.
 *
 * @param config    what to make it from; it and its arrays are only read, during the call
 * @param positions [num] of either sign, up to 2^53 in size, or NULL for 0, 1, 2, ...
 * @param num       rows, 0 or more
 * @param table     [num][2 * pairs] floats, written; the caller's
 * @return ATTN_OK or an error; on an error nothing has been written
 *
 * Elements are within 1e-6 of the exact ones up to position 1,000,000; docs/rope.md
 * has the measured errors.
 * @since 0.1
 */
ATTN_API attn_status attn_rope_table(const attn_rope_config *config, const int64_t *positions, int64_t num,
                                     float *table);

/**
 * Rotates the rows of x: out = R x. out may be x; otherwise the two must not overlap.
 *
 * @param x     (B, H, T, d) f32, bf16 or f16; channels contiguous
 * @param table f32 (B|1, H|1, T, 2*pairs), 2*pairs <= d, of attn_rope_table(); channels contiguous
 * @param layout which channels are turned together
 * @param out   shape and type of x; rounded once
 * @param num_threads as in attn_params
 * @since 0.1
 */
ATTN_API attn_status attn_rope(const attn_tensor *x, const attn_tensor *table, attn_rope_layout layout,
                               const attn_tensor *out, int num_threads);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_ROPE_H */
