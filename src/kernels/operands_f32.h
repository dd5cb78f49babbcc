/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tiles multiply, as single floats: Q transposed with the scale
 * folded in, K and V where they lie or, when they are bf16 or f16, widened
 * once per block, and weights in the place of their scores.
 */
#ifndef ATTN_OPERANDS_H
#define ATTN_OPERANDS_H

/** What scores still have to be multiplied by when they leave a tile of this kind: Q has the scale already. */
ATTN_INLINE float score_factor(const struct attn_work *work, enum mask_kind kind)
{
    (void)work, (void)kind;
    return 1.0f;
}

/** Q^T of the rows of a strip. */
static void pack_queries(const struct attn_work *work, const struct attn_rows *rows, float *q, int width, int num_rows)
{
    transpose_in(q, width, rows, num_rows, work->dk, work->scale);
}

ATTN_INLINE void widen_rows(const attn_dtype dtype, float *dst, const struct attn_rows *src, int n, int64_t cols)
{
    for (int j = 0; j < n; j++) {
        const char *row = row_at(src, j);
        int64_t c = 0;
        for (; c + VF_LEN <= cols; c += VF_LEN)
            vf_store(dst + j * cols + c, row_load(dtype, row + c * row_element(dtype)));
        if (c < cols) {
            const int rest = (int)(cols - c);
            vf_store_tail(dst + j * cols + c, row_load_tail(dtype, row + c * row_element(dtype), rest), rest);
        }
    }
}

/** n rows of K as words. */
static void pack_keys(float *dst, const struct attn_rows *src, int n, int64_t dk)
{
    ATTN_BY_DTYPE(src->dtype, widen_rows, dst, src, n, dk);
}

/** n rows of V as words of keys. */
static void pack_values(float *dst, const struct attn_rows *src, int n, int64_t dv)
{
    ATTN_BY_DTYPE(src->dtype, widen_rows, dst, src, n, dv);
}

/** S becomes P, and sum[lane] its sum: the first ends[v] keys of vector v, of n. */
ATTN_INLINE void make_weights(int nv, const attn_exp exp, const float *m, const int *ends, int n, float factor,
                              float *s, float *sum)
{
    (void)n;
    exponentiate(nv, exp, m, ends, factor, s, sum);
}

/** c plus the product of one word of V with a vector of P in the lanes that see its key. */
ATTN_INLINE vf dot_visible(vw v, vw p, const vm *sees, vf c)
{
    return vf_select(sees[0], vf_dot(v, p, c), c);
}

#endif
