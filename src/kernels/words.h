/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words that the register tiles multiply: 32 bits that hold one element or
 * more. Words of Q and K hold channels, words of V and P hold keys.
 */
#ifndef ATTN_WORDS_H
#define ATTN_WORDS_H

/** Bytes of a word. */
#define WORD ((ptrdiff_t)sizeof(float))

/** Words that n keys of V or P fill. */
ATTN_INLINE int64_t key_words(int64_t n)
{
    return (n + VF_PACK - 1) / VF_PACK;
}

/** Words that n channels of Q or K fill. */
ATTN_INLINE int64_t channel_words(int64_t n)
{
    return (n + VS_PACK - 1) / VS_PACK;
}

struct mask;

/** Where a block of scores comes from and goes to. */
struct score_operands {
    const float *q; /**< [words][nv * VF_LEN] words */
    const char *k;  /**< first row of the block of keys, in words */
    ptrdiff_t k_stride;
    int64_t words; /**< of a row */
    const struct mask *mask;
    const float *factor; /**< [nv * VF_LEN] what raw scores are to be multiplied by; not looked at if RAW_SCORES is 0 */
    const float *k_scale; /**< [keys] int8: the size of a step in each row of k */
    const int32_t *start; /**< [keys] int8: where the sum of each row starts */
    float *s;             /**< [keys][nv * VF_LEN] */
    /* Rows that will be wanted soon, key by key beside those of k: fetched into L2 meanwhile. data NULL: none. */
    struct attn_rows next[2];
    int64_t next_width[2];
};

#endif
