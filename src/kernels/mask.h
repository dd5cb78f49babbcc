/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile's mask in registers.
 *
 * A hidden score becomes -inf by selection, never by arithmetic, so a NaN in
 * its K row is gone. A NaN or Inf in the V row of a key that is hidden from
 * some lanes only would still turn 0 * V into NaN: tiles with a mask look
 * whether their V block is finite, and take values_seen() if not.
 */
#ifndef ATTN_MASK_H
#define ATTN_MASK_H

#include "kernels/width.h"

#include <float.h>
#include <math.h>

/** Calls a statement with the kind of a mask as a constant. */
#define ATTN_BY_MASK(kind, call)                                                                                       \
    do {                                                                                                               \
        switch (kind) {                                                                                                \
        case MASK_DIAGONAL:                                                                                            \
            call(MASK_DIAGONAL);                                                                                       \
            break;                                                                                                     \
        case MASK_LIVE:                                                                                                \
            call(MASK_LIVE);                                                                                           \
            break;                                                                                                     \
        case MASK_BIAS:                                                                                                \
            call(MASK_BIAS);                                                                                           \
            break;                                                                                                     \
        default:                                                                                                       \
            call(MASK_NONE);                                                                                           \
            break;                                                                                                     \
        }                                                                                                              \
    } while (0)

/** The bias of key j for vector v. */
ATTN_INLINE vf mask_bias(const struct attn_tile_mask *mask, int j, int v)
{
    return vf_load(mask->bias + (ptrdiff_t)j * mask->bias_pitch + v * VF_LEN);
}

/** The lanes of vector v of the strip that see key j. */
ATTN_INLINE vm mask_lanes(const enum attn_mask_kind kind, const struct attn_tile_mask *mask, int width, int j, int v)
{
    if (kind == MASK_NONE)
        return vf_eq(vf_zero(), vf_zero());
    if (kind == MASK_DIAGONAL) {
        const vf lane = vf_add(vf_iota(), vf_set1((float)(v * VF_LEN)));
        return vf_ge(lane, vf_set1((float)attn_hidden_lanes(mask->diagonal, j, width)));
    }
    if (kind == MASK_LIVE)
        return vm_from_bytes(mask->live + (ptrdiff_t)j * mask->live_pitch + v * VF_LEN);
    const vf hidden = vf_select(vf_eq(mask_bias(mask, j, v), vf_set1(-INFINITY)), vf_set1(1.0f), vf_zero());
    return vf_eq(hidden, vf_zero()); /* live: above -inf, or NaN */
}

/** A vector of scores with its mask put on; a bias is added to whole scores, so raw ones are multiplied first. */
ATTN_INLINE vf masked_score(const enum attn_mask_kind kind, const int raw, const struct attn_tile_mask *mask, int width,
                            int j, int v, const float *factor, vf x)
{
    const vf minus_inf = vf_set1(-INFINITY);
    if (kind == MASK_NONE)
        return x;
    if (kind == MASK_BIAS) {
        const vf b = mask_bias(mask, j, v);
        return vf_select(vf_eq(b, minus_inf), minus_inf,
                         raw ? vf_fma(x, vf_load(factor + v * VF_LEN), b) : vf_add(x, b));
    }
    return vf_select(mask_lanes(kind, mask, width, j, v), x, minus_inf);
}

/**
 * A bias in base 2. What is finite stays finite: masks are often filled with
 * the smallest float, and a row of nothing else is a row of equal biases.
 */
ATTN_INLINE vf bias_in_base2(vf natural)
{
    const vf largest = vf_set1(FLT_MAX), scaled = vf_mul(natural, vf_set1(ATTN_LOG2E));
    const vf bounded = vf_max(vf_set1(-FLT_MAX), vf_select(vf_gt(scaled, largest), largest, scaled));
    return vf_select(vf_gt(natural, largest), natural, bounded);
}

/** struct attn_vector_kernels, join_bias. */
static inline int join_bias(int nv, int n, float *bias, int natural, const float *distances, const uint8_t *live,
                            ptrdiff_t live_pitch)
{
    const vf minus_inf = vf_set1(-INFINITY);
    const int width = nv * VF_LEN;
    vf visible = vf_zero();
    for (int j = 0; j < n; j++) {
        float *row = bias + (ptrdiff_t)j * width;
        for (int r = 0; r < width; r += VF_LEN) {
            const vf given = natural ? vf_load(row + r) : vf_zero();
            vf b = vf_select(vf_eq(given, minus_inf), minus_inf, bias_in_base2(given));
            if (distances) {
                const vf d = vf_load(distances + n - 1 - j + r);
                b = vf_select(vf_eq(d, minus_inf), minus_inf, vf_select(vf_eq(b, minus_inf), minus_inf, vf_add(b, d)));
            }
            if (live)
                b = vf_select(vm_from_bytes(live + (ptrdiff_t)j * live_pitch + r), b, minus_inf);
            vf_store(row + r, b);
            visible = vf_select(vf_eq(b, minus_inf), visible, vf_set1(1.0f));
        }
    }
    return vm_any(vf_gt(visible, vf_zero()));
}

#endif
