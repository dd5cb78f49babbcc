/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of the register tiles as single floats.
 *
 * A tile works on words of 32 bits: an element of K or V is one word, which
 * is broadcast; the other operand is a vector of words, one per query. Here a
 * word is a float. The names of every dot_*.h:
 *   VF_PACK              elements in a word
 *   vw                   a vector of VF_LEN words
 *   vw_load, vw_set1     from VF_LEN words, from one; addresses need no alignment beyond an element's
 *   vw_load_tail         from the first n words, the rest 0
 *   vf_dot(a, b, c)      c plus the products of the elements of a and b, lane by lane
 */
#ifndef ATTN_DOT_H
#define ATTN_DOT_H

#include "simd/simd.h"

#define VF_PACK 1

typedef vf vw;

static inline vw vw_load(const void *p)
{
    return vf_load(p);
}

static inline vw vw_load_tail(const void *p, int n)
{
    return vf_load_tail(p, n);
}

static inline vw vw_set1(const void *p)
{
    return vf_set1(*(const float *)p);
}

static inline vf vf_dot(vw a, vw b, vf c)
{
    return vf_fma(a, b, c);
}

#endif
