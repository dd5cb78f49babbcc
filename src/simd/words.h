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

/*
 * Words that a set multiplies together lie side by side in the operands that it makes: of Q in groups of VS_GROUP,
 * [group][lane][word], and what is left over word by word; of V and P in groups of VF_GROUP, [group][channel or
 * lane][word], the last group whole. By themselves words make no groups.
 */
#ifndef VF_GROUP
#define VF_GROUP 1
#endif
#ifndef VS_GROUP
#define VS_GROUP 1
#endif

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

/** Words that lie side by side in Q from word c of words on, c being the first of a group. */
static inline int query_group(int64_t c, int64_t words)
{
    return words - c < VS_GROUP ? 1 : VS_GROUP;
}

/** Where word c of words of a lane is in Q of a strip of width lanes. */
static inline ptrdiff_t query_word(int64_t c, int64_t words, int width, int lane)
{
    const int64_t first = c - c % VS_GROUP, group = query_group(first, words);
    return (ptrdiff_t)(group == 1 ? c * width + lane : first * width + lane * group + c % VS_GROUP);
}

#endif
