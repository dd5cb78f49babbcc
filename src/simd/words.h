/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words that the register tiles multiply: 32 bits that hold one element or
 * more. Words of Q and K hold channels, words of V and P hold keys. A file of
 * src/isa names the headers before it includes any kernel; by itself a word
 * is a float.
 */
#ifndef ATTN_WORDS_H
#define ATTN_WORDS_H

#include "simd/simd.h"

#ifndef ATTN_DOT
#define ATTN_DOT "simd/dot_f32.h"
#endif
#ifndef ATTN_SCORE
#define ATTN_SCORE "simd/score_dot.h"
#endif
#include ATTN_DOT
#include ATTN_SCORE

/** Words that n keys of V or P fill. */
static inline int64_t key_words(int64_t n)
{
    return (n + VF_PACK - 1) / VF_PACK;
}

/* Words that a row of Q or K has a multiple of. */
#ifndef ATTN_WORD_STEP
#define ATTN_WORD_STEP 1
#endif

/** Words that n channels of Q or K fill; those behind the last channel are 0. */
static inline int64_t channel_words(int64_t n)
{
    return (n + VS_PACK * ATTN_WORD_STEP - 1) / (VS_PACK * ATTN_WORD_STEP) * ATTN_WORD_STEP;
}

#endif
