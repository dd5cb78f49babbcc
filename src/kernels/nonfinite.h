/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles where a NaN or Inf in V meets a mask.
 *
 * A hidden key has weight 0, and 0 * V adds nothing, unless V is NaN or Inf:
 * then the product is NaN. So tiles with a mask look whether their rows of V
 * are finite, and the rare ones that are not take value_tile_masked().
 */
#ifndef ATTN_NONFINITE_H
#define ATTN_NONFINITE_H

/** Whether n rows of V, in words, hold only finite numbers. */
static int values_finite(const char *v, ptrdiff_t stride, int n, int64_t dv)
{
    static const float zeros[VF_LEN];
    const vw zero = vw_load(zeros);
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}; /* x * 0 is NaN for Inf and NaN */
    for (int j = 0; j < n; j++) {
        const char *row = v + j * stride;
        int64_t c = 0;
        for (; c + 4 * VF_LEN <= dv; c += 4 * VF_LEN) {
            ATTN_UNROLL
            for (int i = 0; i < 4; i++)
                sum[i] = vf_dot(vw_load(row + (c + i * VF_LEN) * WORD), zero, sum[i]);
        }
        for (; c + VF_LEN <= dv; c += VF_LEN)
            sum[0] = vf_dot(vw_load(row + c * WORD), zero, sum[0]);
        if (c < dv)
            sum[1] = vf_dot(vw_load_tail(row + c * WORD, (int)(dv - c)), zero, sum[1]);
    }
    float lanes[VF_LEN];
    vf_store(lanes, vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    int finite = 1;
    for (int i = 0; i < VF_LEN; i++)
        finite &= lanes[i] == 0.0f;
    return finite;
}

/** value_tile() for the rare block of V with a NaN or Inf: adds to lane r only the keys, of n, that it sees. */
static void value_tile_masked(int nv, const struct mask *mask, const float *p, const char *v, ptrdiff_t v_stride,
                              int64_t dv, int n, float *o, enum accumulate mode, const float *alpha)
{
    const int width = nv * VF_LEN;
    for (int w = 0; w < nv; w++) {
        for (int64_t c = 0; c < dv; c++) {
            float *at = o + c * width + w * VF_LEN;
            vf acc = mode == ACCUMULATE_FIRST ? vf_zero() : vf_load(at);
            if (mode == ACCUMULATE_RESCALE)
                acc = vf_mul(acc, vf_load(alpha + w * VF_LEN));
            for (int j = 0; j < n; j += VF_PACK) {
                vm sees[VF_PACK];
                for (int i = 0; i < VF_PACK; i++)
                    sees[i] = j + i < n ? mask_lanes(mask->kind, mask, width, j + i, w) : vf_gt(vf_zero(), vf_zero());
                const ptrdiff_t u = j / VF_PACK;
                acc = dot_visible(vw_set1(v + u * v_stride + c * WORD), vw_load(p + u * width + w * VF_LEN), sees, acc);
            }
            vf_store(at, acc);
        }
    }
}

#endif
