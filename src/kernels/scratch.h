/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a kernel divides its scratch memory. One function computes both the size
 * (base NULL) and the pointers, so that the two cannot disagree.
 *
 * All matrices have a strip's queries contiguous in each row ("lanes are
 * queries"); a strip's block starts at a multiple of its full width.
 */
#ifndef ATTN_SCRATCH_H
#define ATTN_SCRATCH_H

#include "kernels/kernels.h"

/** Bytes from key to key of a staged boolean mask: whole blocks of 16 x 16. */
#define ATTN_LIVE_PITCH(strip) (((strip) + 15) / 16 * 16)

struct attn_scratch {
    float *q;      /**< [strips][dk][strip] queries, transposed and scaled */
    float *o;      /**< [strips][dv][strip] output, transposed, not yet normalised */
    float *m;      /**< [strips][strip] running maximum, base 2 */
    float *l;      /**< [strips][strip] running sum */
    float *s;      /**< [key_block][strip] scores, then weights */
    float *bias;   /**< [key_block][strip] additive mask of one tile, base 2 */
    uint8_t *live; /**< [key_block][ATTN_LIVE_PITCH(strip)] boolean mask of one tile */
};

static inline size_t attn_scratch_layout(struct attn_scratch *scratch, void *base, int64_t strips, int64_t strip,
                                         int64_t key_block, int64_t dk, int64_t dv)
{
    size_t used = 0;
#define ATTN_TAKE(member, count)                                                                                       \
    do {                                                                                                               \
        scratch->member = base ? (void *)((char *)base + used) : NULL;                                                 \
        used += ((size_t)(count) * sizeof *scratch->member + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;                \
    } while (0)
    ATTN_TAKE(s, key_block * strip);
    ATTN_TAKE(m, strips * strip);
    ATTN_TAKE(l, strips * strip);
    ATTN_TAKE(q, strips * strip * dk);
    ATTN_TAKE(o, strips * strip * dv);
    ATTN_TAKE(bias, key_block * strip);
    ATTN_TAKE(live, key_block * ATTN_LIVE_PITCH(strip));
#undef ATTN_TAKE
    return used;
}

#endif
