/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What scores that are sums of floats, of nothing but q and k, have no need
 * of. The names are those of qk_int8.h.
 */
#ifndef ATTN_QK_PLAIN_H
#define ATTN_QK_PLAIN_H

ATTN_INLINE vs score_start(const struct score_operands *x, int j)
{
    (void)x, (void)j;
    return vs_zero();
}

ATTN_INLINE vf score_finish(const struct score_operands *x, int j, vs sum)
{
    (void)x, (void)j;
    return sum;
}

ATTN_INLINE vf score_shift(const struct strip *strip, int i)
{
    (void)strip, (void)i;
    return vf_zero();
}

ATTN_INLINE vf query_validity(const struct strip *strip, int i)
{
    (void)strip, (void)i;
    return vf_set1(1.0f);
}

static void survey_keys(const struct attn_work *work, const struct attn_scratch *scratch)
{
    (void)work, (void)scratch;
}

#endif
