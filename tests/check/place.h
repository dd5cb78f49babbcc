/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of random cases between guard pages: memory and strides.
 */
#ifndef CHECK_PLACE_H
#define CHECK_PLACE_H

#include "attn/attn.h"
#include "guard.h"
#include "random.h"

/** Memory in a guard, flush with one of its ends; ends the program when the guard is too small. */
void *place_bytes(struct guard *guard, size_t bytes, struct rng *rng);

/** Which liberties a tensor's strides take. */
enum { FREE_CHANNELS = 1, MAY_BROADCAST = 2 };

/** Strides for t's shape, and memory for it in a guard. */
void place_tensor(struct guard *guard, attn_tensor *t, int liberties, struct rng *rng);

/** Whether the bytes of a guard that are not elements of t still hold the canary. */
int place_gaps_intact(const struct guard *guard, const attn_tensor *t);

static inline attn_tensor tensor_of_shape(attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    return (attn_tensor){.dtype = dtype, .shape = {b, h, t, c}};
}

/** Loops over an element's indices b, h, i and j. */
#define FOR_EACH_ELEMENT(t)                                                                                            \
    for (int64_t b = 0; b < (t)->shape[0]; b++)                                                                        \
        for (int64_t h = 0; h < (t)->shape[1]; h++)                                                                    \
            for (int64_t i = 0; i < (t)->shape[2]; i++)                                                                \
                for (int64_t j = 0; j < (t)->shape[3]; j++)

#endif
