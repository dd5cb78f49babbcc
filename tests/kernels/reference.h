/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rows of operations are written with, and the references that rows of
 * vectors and of words have in common.
 */
#ifndef KERNELS_REFERENCE_H
#define KERNELS_REFERENCE_H

#include "operations.h"

#include <string.h>

#define LANES(i)  (int i = 0; i < c->set->lanes; i++)
#define IN(type)  const type *a = c->in[0], *b = c->in[1], *d = c->in[2]
#define OUT(type) type *out = c->out[0], *out2 = c->out[1]
#define UNUSED    (void)a, (void)b, (void)d, (void)out, (void)out2

/* One lane of an operation on vectors of a type. */
#define LANEWISE(name, type, expression)                                                                               \
    static inline void name(const struct call *c)                                                                      \
    {                                                                                                                  \
        IN(type);                                                                                                      \
        OUT(type);                                                                                                     \
        UNUSED;                                                                                                        \
        for                                                                                                            \
            LANES(i)                                                                                                   \
        out[i] = expression;                                                                                           \
    }

#define OPERATION(...) (&(const struct operation){__VA_ARGS__})

/* Operations on whole vectors of one type: how many they take. */
#define VECTORS_1(type)                                                                                                \
    {                                                                                                                  \
        type, VECTOR                                                                                                   \
    }
#define VECTORS_2(type)                                                                                                \
    {type, VECTOR},                                                                                                    \
    {                                                                                                                  \
        type, VECTOR                                                                                                   \
    }
#define VECTORS_3(type)                                                                                                \
    {type, VECTOR}, {type, VECTOR},                                                                                    \
    {                                                                                                                  \
        type, VECTOR                                                                                                   \
    }
#define VECTORS_4(type)                                                                                                \
    {type, VECTOR}, {type, VECTOR}, {type, VECTOR},                                                                    \
    {                                                                                                                  \
        type, VECTOR                                                                                                   \
    }
#define PLAIN(comparison, inputs, in_type, out_type, function)                                                         \
    OPERATION(.in = {VECTORS_##inputs(in_type)}, .out = {{out_type, VECTOR}}, .compare = comparison,                   \
              .reference = function)

LANEWISE(zero, uint32_t, 0)
LANEWISE(broadcast, uint32_t, a[0])
LANEWISE(copy, uint32_t, a[i])
LANEWISE(add_integer, uint32_t, a[i] + b[i])

static inline void load_tail(const struct call *c)
{
    memset(c->out[0], 0, (size_t)c->set->lanes * 4);
    memcpy(c->out[0], c->in[0], (size_t)c->n * 4);
}

static inline void deinterleave(const struct call *c)
{
    uint32_t *even = c->out[0], *odd = c->out[1], both[2 * MAX_LANES];
    const int lanes = c->set->lanes;
    memcpy(both, c->in[0], (size_t)lanes * 4);
    memcpy(both + lanes, c->in[1], (size_t)lanes * 4);
    for
        LANES(i)
        {
            even[i] = both[2 * i];
            odd[i] = both[2 * i + 1];
        }
}

static inline void interleave(const struct call *c)
{
    const uint32_t *even = c->in[0], *odd = c->in[1];
    uint32_t both[2 * MAX_LANES];
    const int lanes = c->set->lanes;
    for
        LANES(i)
        {
            both[2 * i] = even[i];
            both[2 * i + 1] = odd[i];
        }
    memcpy(c->out[0], both, (size_t)lanes * 4);
    memcpy(c->out[1], both + lanes, (size_t)lanes * 4);
}

static inline void to_float(const struct call *c)
{
    const int32_t *in = c->in[0];
    float *out = c->out[0];
    for
        LANES(i)
    out[i] = (float)in[i];
}

#endif
