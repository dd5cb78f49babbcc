/* SPDX-License-Identifier: Apache-2.0 */
/* Where words of Q go, a vector of queries after the other. */
#ifndef ATTN_QUERY_WORDS_H
#define ATTN_QUERY_WORDS_H

#include "kernels/width.h"
#include "simd/words.h"

#include <string.h>

/** Puts words c, c + 1, ... of lanes first + r, ... of a strip where they belong; a row has so many words. */
ATTN_INLINE void put_query_words(const struct attn_pack_queries *x, int r, int64_t c, int64_t words, const vf a[VF_LEN])
{
#if VS_GROUP == 1
    float *const dst = x->q + c * x->width + x->first + r;
    if (words - c >= VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            vf_store(dst + (ptrdiff_t)i * x->width, a[i]);
    } else {
        for (int i = 0; i < words - c; i++)
            vf_store(dst + (ptrdiff_t)i * x->width, a[i]);
    }
#else
    for (int i = 0; i < VF_LEN && c + i < words; i++) {
        float apart[VF_LEN];
        vf_store(apart, a[i]);
        for (int lane = 0; lane < VF_LEN; lane++)
            memcpy(x->q + query_word(c + i, words, x->width, x->first + r + lane), apart + lane, sizeof *apart);
    }
#endif
}

#endif
