/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks of one tile (a strip of queries by a run of keys), as the tile sees
 * them. stage_mask.h makes them.
 *
 * A hidden score becomes -inf by selection, never by arithmetic, so a NaN in
 * its K row is gone. A NaN or Inf in the V row of a key that is hidden from
 * some lanes only would still turn 0 * V into NaN: tiles with a mask look
 * whether their V block is finite, and take value_tile_masked() if not.
 */
#ifndef ATTN_MASK_H
#define ATTN_MASK_H

#include <float.h>
#include <math.h>

#define LOG2E      0x1.715476p+0f
#define LN2        0x1.62e43p-1f

#define LIVE_PITCH ATTN_LIVE_PITCH(STRIP)

enum mask_kind {
    MASK_NONE,     /**< every lane sees every key */
    MASK_DEAD,     /**< no lane sees any key */
    MASK_DIAGONAL, /**< lane r sees key j when j <= r + diagonal */
    MASK_LIVE,     /**< bytes in live */
    MASK_BIAS      /**< floats in bias to add, -inf where hidden for any reason */
};

struct mask {
    enum mask_kind kind;
    int64_t diagonal;     /**< lane r of the strip sees key j of the run when j <= r + diagonal, by causality */
    const uint8_t *live;  /**< [key * LIVE_PITCH + lane] */
    const float *bias;    /**< [key * bias_pitch + lane], base 2 */
    ptrdiff_t bias_pitch; /**< the strip's width; -1 for a bias that follows from the distance (distance_bias.h) */
    int whole;            /**< scores leave their tile multiplied by their factor */
};

/**
 * A bias in base 2. What is finite stays finite: masks are often filled with
 * the smallest float, and a row of nothing else is a row of equal biases.
 */
ATTN_INLINE vf bias_in_base2(vf natural)
{
    const vf largest = vf_set1(FLT_MAX), scaled = vf_mul(natural, vf_set1(LOG2E));
    const vf bounded = vf_max(vf_set1(-FLT_MAX), vf_select(vf_gt(scaled, largest), largest, scaled));
    return vf_select(vf_gt(natural, largest), natural, bounded);
}

/** Lanes 0..hidden(j)-1 do not see key j. */
static inline int hidden_lanes(int64_t diagonal, int j, int width)
{
    const int64_t first = j - diagonal;
    return first <= 0 ? 0 : first < width ? (int)first : width;
}

/** Of n keys, those that the lanes before lane see: a prefix. */
static inline int visible_before(int64_t diagonal, int lane, int n)
{
    const int64_t visible = diagonal + lane;
    return visible <= 0 ? 0 : visible < n ? (int)visible : n;
}

/** The lanes of vector v of the strip that see key j. */
ATTN_INLINE vm mask_lanes(enum mask_kind kind, const struct mask *mask, int width, int j, int v)
{
    if (kind == MASK_NONE)
        return vf_eq(vf_zero(), vf_zero());
    if (kind == MASK_DIAGONAL) {
        const vf lane = vf_add(vf_iota(), vf_set1((float)(v * VF_LEN)));
        return vf_ge(lane, vf_set1((float)hidden_lanes(mask->diagonal, j, width)));
    }
    if (kind == MASK_LIVE)
        return vm_from_bytes(mask->live + (ptrdiff_t)j * LIVE_PITCH + v * VF_LEN);
    const vf b = vf_load(mask->bias + (ptrdiff_t)j * mask->bias_pitch + v * VF_LEN); /* live: above -inf, or NaN */
    const vf hidden = vf_select(vf_eq(b, vf_set1(-INFINITY)), vf_set1(1.0f), vf_zero());
    return vf_eq(hidden, vf_zero());
}

/** A vector of scores with its mask put on; a bias is added to whole scores, so raw ones are multiplied first. */
ATTN_INLINE vf masked_score(const enum mask_kind kind, const struct mask *mask, int width, int j, int v,
                            const float *factor, vf x)
{
    const vf minus_inf = vf_set1(-INFINITY);
    if (kind == MASK_NONE)
        return x;
    if (kind == MASK_BIAS) {
        const vf b = vf_load(mask->bias + (ptrdiff_t)j * mask->bias_pitch + v * VF_LEN);
        return vf_select(vf_eq(b, minus_inf), minus_inf,
                         RAW_SCORES ? vf_fma(x, vf_load(factor + v * VF_LEN), b) : vf_add(x, b));
    }
    return vf_select(mask_lanes(kind, mask, width, j, v), x, minus_inf);
}

#endif
