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

/** Whether n rows of V hold only finite numbers. */
static int values_finite(const float *v, ptrdiff_t stride, int n, int dv)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}; /* x * 0 is NaN for Inf and NaN */
    for (int j = 0; j < n; j++) {
        const float *row = v + j * stride;
        int c = 0;
        for (; c + 4 * VF_LEN <= dv; c += 4 * VF_LEN)
            ATTN_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = vf_fma(vf_load(row + c + i * VF_LEN), vf_zero(), sum[i]);
        for (; c + VF_LEN <= dv; c += VF_LEN)
            sum[0] = vf_fma(vf_load(row + c), vf_zero(), sum[0]);
        if (c < dv)
            sum[1] = vf_fma(vf_load_tail(row + c, dv - c), vf_zero(), sum[1]);
    }
    float lanes[VF_LEN];
    vf_store(lanes, vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    int finite = 1;
    for (int i = 0; i < VF_LEN; i++)
        finite &= lanes[i] == 0.0f;
    return finite;
}

/** value_tile() for the rare block of V with a NaN or Inf: adds to lane r only the keys that it sees. */
static void value_tile_masked(int nv, const struct mask *mask, const float *p, const float *v, ptrdiff_t v_stride,
                              int dv, int n, float *o, enum accumulate mode, const float *alpha)
{
    const int width = nv * VF_LEN;
    for (int w = 0; w < nv; w++) {
        for (int c = 0; c < dv; c++) {
            float *at = o + (ptrdiff_t)c * width + w * VF_LEN;
            vf acc = mode == ACCUMULATE_FIRST ? vf_zero() : vf_load(at);
            if (mode == ACCUMULATE_RESCALE)
                acc = vf_mul(acc, vf_load(alpha + w * VF_LEN));
            for (int j = 0; j < n; j++) {
                const vf sum =
                    vf_fma(vf_set1(v[j * v_stride + c]), vf_load(p + (ptrdiff_t)j * width + w * VF_LEN), acc);
                acc = vf_select(mask_lanes(mask->kind, mask, width, j, w), sum, acc);
            }
            vf_store(at, acc);
        }
    }
}

#endif
