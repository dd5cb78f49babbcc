/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile of weights, or of gradients of scores, on its way into sums over queries
 * and over keys: rounded to pairs of bf16, once as words of queries and once as
 * words of keys; and which lanes of it see a key.
 *
 * A row of the tile has the queries side by side, so that rounded it is their
 * words. Words of keys, a query a lane, are made of two rows.
 */
#ifndef ATTN_ROUND_TILE_H
#define ATTN_ROUND_TILE_H

#include "kernels/gradient_sums.h"
#include "kernels/mask.h"
#include "simd/words.h"

#if VF_PACK == 2
/** struct attn_gradient_kernels, round_tile, with rows of queries pitch elements apart. */
ATTN_INLINE void round_keys(int nv, ptrdiff_t pitch, int rows, int n, const float *tile, uint16_t *by_query,
                            float *by_key)
{
    const int width = nv * VF_LEN;
    const vf last = vf_set1((float)rows);
    for (int j = 0; j < n; j += 2) {
        const int two = j + 1 < n;
        for (int v = 0; v < nv; v++) {
            const float *const at = tile + (ptrdiff_t)j * width + v * VF_LEN;
            vf first = vf_load(at), second = two ? vf_load(at + width) : vf_zero();
            if ((v + 1) * VF_LEN > rows) { /* lanes without a query may hold NaN */
                const vm is_query = vf_gt(last, vf_add(vf_iota(), vf_set1((float)(v * VF_LEN))));
                first = vf_select(is_query, first, vf_zero());
                second = vf_select(is_query, second, vf_zero());
            }
            vw_round(by_query + j * pitch + v * VF_LEN, first);
            if (two)
                vw_round(by_query + (j + 1) * pitch + v * VF_LEN, second);
            if (by_key)
                vw_store(by_key + ((ptrdiff_t)(j / 2) * nv + v) * VF_LEN, vw_pair(first, second));
        }
    }
}
#endif

/** sees[r] = 1 for lanes of a tile that see key j, else 0, and 0 from lane rows up to the one behind the last. */
ATTN_INLINE void lanes_seeing(const struct attn_tile_mask *mask, int nv, int rows, int j, float *sees)
{
    const int width = nv * VF_LEN;
#define SEES(kind)                                                                                                     \
    for (int v = 0; v < nv; v++)                                                                                       \
    vf_store(sees + v * VF_LEN, vf_select(mask_lanes(kind, mask, width, j, v), vf_set1(1.0f), vf_zero()))
    ATTN_BY_MASK(mask->kind, SEES);
#undef SEES
    for (int r = rows; r <= width; r++)
        sees[r] = 0.0f;
}

#endif
