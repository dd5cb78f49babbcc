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

/** One block of transpose_in: rows <= VF_LEN, cols <= VF_LEN; missing rows become 0. */
ATTN_INLINE void transpose_block(const attn_dtype dtype, float *dst, ptrdiff_t width, const char *src, ptrdiff_t stride,
                                 int rows, int cols, vf factor)
{
    vf a[VF_LEN];
    if (rows == VF_LEN && cols == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            a[i] = row_load(dtype, src + i * stride);
    } else {
        for (int i = 0; i < VF_LEN; i++)
            a[i] = i < rows ? row_load_tail(dtype, src + i * stride, cols) : vf_zero();
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

ATTN_INLINE void transpose_in_body(const attn_dtype dtype, float *dst, ptrdiff_t pitch, int width,
                                   const struct attn_rows *src, int rows, int64_t cols, float factor)
{
    const vf f = vf_set1(factor);
    for (int r = 0; r < width; r += VF_LEN) {
        const int nr = rows - r < VF_LEN ? (rows > r ? rows - r : 0) : VF_LEN;
        const char *row = row_at(src, nr > 0 ? r : 0);
        for (int64_t c = 0; c < cols; c += VF_LEN) {
            const int nc = cols - c < VF_LEN ? (int)(cols - c) : VF_LEN;
            transpose_block(dtype, dst + c * pitch + r, pitch, row + c * row_element(dtype), src->stride, nr, nc, f);
        }
    }
}

/** dst[c * pitch + r] = src(r, c) * factor for r < width, c < cols; rows behind the last are 0. */
static void transpose_in(float *dst, ptrdiff_t pitch, int width, const struct attn_rows *src, int rows, int64_t cols,
                         float factor)
{
    ATTN_BY_DTYPE(src->dtype, transpose_in_body, dst, pitch, width, src, rows, cols, factor);
}

ATTN_INLINE void transpose_out_body(const attn_dtype dtype, const struct attn_rows *dst, const float *src, int width,
                                    int rows, int64_t cols, const float *factor)
{
    for (int r = 0; r < rows; r += VF_LEN) {
        const int nr = rows - r < VF_LEN ? rows - r : VF_LEN;
        const vf f = vf_load(factor + r);
        char *row = row_at(dst, r);
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
                    row_store(dtype, row + i * dst->stride + c * row_element(dtype), a[i]);
            } else {
                for (int i = 0; i < VF_LEN; i++)
                    a[i] = i < nc ? vf_fma(vf_load(src + (c + i) * width + r), f, vf_zero()) : vf_zero();
                vf_transpose(a);
                for (int i = 0; i < nr; i++)
                    row_store_tail(dtype, row + i * dst->stride + c * row_element(dtype), a[i], nc);
            }
        }
    }
}

/** dst(r, c) = src[c * width + r] * factor[r] for r < rows, c < cols. A result of -0 becomes +0. */
static void transpose_out(const struct attn_rows *dst, const float *src, int width, int rows, int64_t cols,
                          const float *factor)
{
    ATTN_BY_DTYPE(dst->dtype, transpose_out_body, dst, src, width, rows, cols, factor);
}

#endif
