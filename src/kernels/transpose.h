/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves matrices between memory order (a row per query) and lane order (a
 * column per query), VF_LEN x VF_LEN elements at a time in registers.
 *
 * Rows of Q and of the output come from far and are touched once per block of
 * queries, in an order that no hardware prefetcher follows: they are asked for
 * ahead, which was worth 1 to 2 % of a whole run (docs/performance.md).
 */
#ifndef ATTN_TRANSPOSE_H
#define ATTN_TRANSPOSE_H

/** Asks for rows first..end-1 that will be read (or, with write, written) soon; L2 has room for them. */
ATTN_INLINE void prefetch_rows(const float *base, ptrdiff_t stride, int64_t first, int64_t end, int64_t width,
                               const int write)
{
    for (int64_t r = first; r < end; r++) {
        for (int64_t c = 0; c < width; c += ATTN_ALIGN / (int)sizeof(float)) {
            if (write)
                __builtin_prefetch(base + r * stride + c, 1, 2);
            else
                __builtin_prefetch(base + r * stride + c, 0, 2);
        }
    }
}

/** One block of transpose_in: rows <= VF_LEN, cols <= VF_LEN; missing rows become 0. */
ATTN_INLINE void transpose_block(float *dst, ptrdiff_t width, const float *src, ptrdiff_t stride, int rows, int cols,
                                 vf factor)
{
    vf a[VF_LEN];
    if (rows == VF_LEN && cols == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            a[i] = vf_load(src + i * stride);
    } else {
        for (int i = 0; i < VF_LEN; i++)
            a[i] = i < rows ? vf_load_tail(src + i * stride, cols) : vf_zero();
    }
    vf_transpose(a);
    if (cols == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            vf_store(dst + i * width, vf_mul(a[i], factor));
    } else {
        for (int i = 0; i < cols; i++)
            vf_store(dst + i * width, vf_mul(a[i], factor));
    }
}

/** dst[c * width + r] = src[r * stride + c] * factor for r < width, c < cols; rows behind the last are 0. */
static void transpose_in(float *dst, int width, const float *src, ptrdiff_t stride, int rows, int64_t cols,
                         float factor)
{
    const vf f = vf_set1(factor);
    for (int r = 0; r < width; r += VF_LEN) {
        const int nr = rows - r < VF_LEN ? (rows > r ? rows - r : 0) : VF_LEN;
        for (int64_t c = 0; c < cols; c += VF_LEN) {
            const int nc = cols - c < VF_LEN ? (int)(cols - c) : VF_LEN;
            transpose_block(dst + c * width + r, width, src + r * stride + c, stride, nr, nc, f);
        }
    }
}

/** dst[r * stride + c] = src[c * width + r] * factor[r] for r < rows, c < cols. A result of -0 becomes +0. */
static void transpose_out(float *dst, ptrdiff_t stride, const float *src, int width, int rows, int64_t cols,
                          const float *factor)
{
    for (int r = 0; r < rows; r += VF_LEN) {
        const int nr = rows - r < VF_LEN ? rows - r : VF_LEN;
        const vf f = vf_load(factor + r);
        for (int64_t c = 0; c < cols; c += VF_LEN) {
            const int nc = cols - c < VF_LEN ? (int)(cols - c) : VF_LEN;
            vf a[VF_LEN];
            if (nr == VF_LEN && nc == VF_LEN) {
                ATTN_UNROLL
                for (int i = 0; i < VF_LEN; i++)
                    a[i] = vf_fma(vf_load(src + (c + i) * width + r), f, vf_zero());
                vf_transpose(a);
                ATTN_UNROLL
                for (int i = 0; i < VF_LEN; i++)
                    vf_store(dst + (r + i) * stride + c, a[i]);
            } else {
                for (int i = 0; i < VF_LEN; i++)
                    a[i] = i < nc ? vf_fma(vf_load(src + (c + i) * width + r), f, vf_zero()) : vf_zero();
                vf_transpose(a);
                for (int i = 0; i < nr; i++)
                    vf_store_tail(dst + (r + i) * stride + c, a[i], nc);
            }
        }
    }
}

#endif
