/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second product of a strip that is a single tile, from weights to finished
 * rows: channels are the lanes, and a weight is broadcast. Each output has the
 * sum that value_tile.h gives it, key by key from 0, so the bits are the same; what
 * goes is O in lane order, its transpose, and lanes that hold no query.
 */
#ifndef ATTN_VALUE_ROWS_H
#define ATTN_VALUE_ROWS_H

#include "kernels/rows.h"

/** Rows of a register tile: they lie in one vector of weights, and so take the same keys. */
#define ROW_TILE (VF_LEN < 4 ? 1 : 4)

/** Its vectors of channels: sums, as many operands and a broadcast fit into the register file. */
#define ROW_VECTORS (VF_STRIP * VF_CHANNELS > 16 ? 4 : 2)

/** Elements c.. of a row of out: vectors of the sums times the factor; the last one has n elements. */
ATTN_INLINE void finish_row(const int nw, char *row, attn_dtype dtype, const vf *sum, vf factor, int n)
{
    const ptrdiff_t step = VF_LEN * attn_element_size(dtype);
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        const vf value = vf_fma(sum[w], factor, vf_zero()); /* as write_rows() has it: -0 becomes +0 */
        if (dtype == ATTN_F32 && (w + 1 < nw || n == VF_LEN))
            vf_store((float *)(void *)(row + w * step), value);
        else if (dtype == ATTN_F32)
            vf_store_tail((float *)(void *)(row + w * step), value, n);
        else if (dtype == ATTN_BF16)
            row_store_tail(ATTN_BF16, row + w * step, value, w + 1 < nw ? VF_LEN : n);
        else
            row_store_tail(ATTN_F16, row + w * step, value, w + 1 < nw ? VF_LEN : n);
    }
}

/** Rows r..r+nr-1, channels c.. of nw vectors, the last of which has n. */
ATTN_INLINE void value_rows_tile(const int nr, const int nw, const struct attn_value_rows *x, int r, int64_t c, int n)
{
    vf sum[ROW_TILE][ROW_VECTORS];
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            sum[i][w] = vf_zero();
    }
    const int keys = x->ends[r / VF_LEN];
    const char *v = (const char *)x->v + c * (ptrdiff_t)sizeof(float);
    const float *p = x->p + r;
    const ptrdiff_t v_stride = x->v_stride, width = x->width;
    for (int j = 0; j < keys; j++, v += v_stride, p += width) {
        const float *row = (const float *)(const void *)v;
        vf b[ROW_VECTORS];
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            b[w] = w + 1 < nw || n == VF_LEN ? vf_load(row + w * VF_LEN) : vf_load_tail(row + w * VF_LEN, n);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vf a = vf_set1(p[i]);
            ATTN_UNROLL
            for (int w = 0; w < nw; w++)
                sum[i][w] = vf_fma(b[w], a, sum[i][w]);
        }
    }
    for (int i = 0; i < nr; i++)
        finish_row(nw, x->rows[r + i] + c * attn_element_size(x->dtype), x->dtype, sum[i], vf_set1(x->factor[r + i]),
                   n);
}

ATTN_INLINE void value_rows_body(const int nr, const struct attn_value_rows *x, int r)
{
    const int64_t dv = x->dv, wide = (int64_t)ROW_VECTORS * VF_LEN;
    int64_t c = 0;
    for (; c + wide <= dv; c += wide)
        value_rows_tile(nr, ROW_VECTORS, x, r, c, VF_LEN);
    for (; c + VF_LEN <= dv; c += VF_LEN)
        value_rows_tile(nr, 1, x, r, c, VF_LEN);
    if (c < dv)
        value_rows_tile(nr, 1, x, r, c, (int)(dv - c));
}

/** struct attn_value_kernels, values_to_rows. */
static void values_to_rows(const struct attn_value_rows *x)
{
    int r = 0;
    for (; r + ROW_TILE <= x->n; r += ROW_TILE)
        value_rows_body(ROW_TILE, x, r);
    for (; r < x->n; r++)
        value_rows_body(1, x, r);
}

#endif
