/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of scores, a query per lane, and what they take from the rows of dO
 * and O (Dao et al. 2022, "FlashAttention", appendix B.2):
 *
 *     D  = rowsum(dO * O)
 *     dS = P * (dP - D)                          and through a softcap, times 1 - tanh^2
 *
 * With dropout, by which v is multiplied with M P instead of P, M P takes the
 * place of P beside dP.
 */
#ifndef ATTN_SCORE_GRADIENTS_H
#define ATTN_SCORE_GRADIENTS_H

#include "kernels/mask.h"
#include "kernels/rows.h"

/** dS of a tile; kept, capped: whether struct attn_score_gradients has them. */
ATTN_INLINE void score_gradient_tile(const enum attn_mask_kind kind, const int kept, const int capped, const int nv,
                                     const struct attn_score_gradients *x)
{
    for (int j = 0; j < x->keys; j++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            const ptrdiff_t at = ((ptrdiff_t)j * nv + v) * VF_LEN;
            const vf p = vf_load(x->p + at), dp = vf_load(x->dp + at), delta = vf_load(x->delta + v * VF_LEN);
            vf ds;
            if (kept)
                ds = vf_sub(vf_mul(vf_mul(vf_load(x->kept + at), vf_set1(x->keep_scale)), dp), vf_mul(p, delta));
            else
                ds = vf_mul(p, vf_sub(dp, delta));
            if (capped) {
                const vf t = vf_div(vf_load(x->capped + at), vf_set1(x->cap));
                ds = vf_mul(ds, vf_fma(vf_sub(vf_zero(), t), t, vf_set1(1.0f)));
            }
            if (kind != MASK_NONE)
                ds = vf_select(mask_lanes(kind, x->mask, nv * VF_LEN, j, v), ds, vf_zero());
            vf_store(x->dp + at, ds);
        }
    }
}

ATTN_INLINE void score_gradient_body(const int nv, const struct attn_score_gradients *x)
{
    if (x->kept && x->capped) {
#define BOTH(kind) score_gradient_tile(kind, 1, 1, nv, x)
        ATTN_BY_MASK(x->mask->kind, BOTH);
#undef BOTH
    } else if (x->kept) {
#define KEPT(kind) score_gradient_tile(kind, 1, 0, nv, x)
        ATTN_BY_MASK(x->mask->kind, KEPT);
#undef KEPT
    } else if (x->capped) {
#define CAPPED(kind) score_gradient_tile(kind, 0, 1, nv, x)
        ATTN_BY_MASK(x->mask->kind, CAPPED);
#undef CAPPED
    } else {
#define PLAIN(kind) score_gradient_tile(kind, 0, 0, nv, x)
        ATTN_BY_MASK(x->mask->kind, PLAIN);
#undef PLAIN
    }
}

/** struct attn_vector_kernels, score_gradients. */
static void score_gradients(int nv, const struct attn_score_gradients *x)
{
    ATTN_BY_WIDTH(nv, score_gradient_body, x);
}

/** The first n, up to VF_LEN, elements of a row of any of the three types. */
ATTN_INLINE vf elements_load(attn_dtype dtype, const char *p, int n)
{
    if (n < VF_LEN)
        return dtype == ATTN_F32    ? row_load_tail(ATTN_F32, p, n)
               : dtype == ATTN_BF16 ? row_load_tail(ATTN_BF16, p, n)
                                    : row_load_tail(ATTN_F16, p, n);
    return dtype == ATTN_F32    ? row_load(ATTN_F32, p)
           : dtype == ATTN_BF16 ? row_load(ATTN_BF16, p)
                                : row_load(ATTN_F16, p);
}

/** struct attn_vector_kernels, dot_rows. */
static void dot_rows(float *dst, const struct attn_rows *a, const struct attn_rows *b, int64_t n, int64_t channels)
{
    const ptrdiff_t step_a = attn_element_size(a->dtype), step_b = attn_element_size(b->dtype);
    for (int64_t i = 0; i < n; i++) {
        vf sum = vf_zero();
        for (int64_t c = 0; c < channels; c += VF_LEN) {
            const int rest = channels - c < VF_LEN ? (int)(channels - c) : VF_LEN;
            sum = vf_fma(elements_load(a->dtype, row_at(a, i) + c * step_a, rest),
                         elements_load(b->dtype, row_at(b, i) + c * step_b, rest), sum);
        }
        float lanes[VF_LEN], all = 0.0f;
        vf_store(lanes, sum);
        for (int l = 0; l < VF_LEN; l++)
            all += lanes[l];
        dst[i] = all;
    }
}

#endif
