/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and strides of random cases: any order of the axes, with gaps,
 * reversed and, for inputs, broadcast.
 */
#include "place.h"

#include "dtype.h"

#include <stdio.h>
#include <stdlib.h>

void *place_bytes(struct guard *guard, size_t bytes, struct rng *rng)
{
    void *data = guard_place(guard, bytes, rng_percent(rng, 60));
    if (!data) {
        fprintf(stderr, "a case wants %zu bytes between guard pages; %zu are mapped\n", bytes, guard->size);
        exit(1);
    }
    return data;
}

void place_tensor(struct guard *guard, attn_tensor *t, int liberties, struct rng *rng)
{
    int order[4] = {3, 2, 1, 0}; /* from the innermost axis */
    const int first_free = liberties & FREE_CHANNELS ? 0 : 1;
    const int style = (int)rng_range(rng, 0, 9);
    if (style >= 7) { /* any order */
        for (int i = 3; i > first_free; i--) {
            const int j = (int)rng_range(rng, first_free, i), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
    } else if (style >= 4) { /* batch, token, head, channel */
        order[1] = 1;
        order[2] = 2;
    }
    const int gaps = rng_percent(rng, 40), reversed = rng_percent(rng, 15);
    const int broadcast = liberties & MAY_BROADCAST && rng_percent(rng, 10);
    int64_t running = 1, lowest = 0, highest = 0;
    int empty = 0;
    for (int i = 0; i < 4; i++) {
        const int axis = order[i];
        const int fixed = axis == 3 && !(liberties & FREE_CHANNELS);
        int64_t stride = running;
        if (gaps && !fixed)
            stride += rng_range(rng, 0, 9);
        if (broadcast && !fixed && rng_percent(rng, 40))
            stride = 0;
        else
            running = stride * (t->shape[axis] > 0 ? t->shape[axis] : 1);
        if (reversed && !fixed && rng_percent(rng, 50))
            stride = -stride;
        const int64_t reach = (t->shape[axis] - 1) * stride;
        lowest += reach < 0 ? reach : 0;
        highest += reach > 0 ? reach : 0;
        empty |= t->shape[axis] == 0;
        /* The stride of an axis with one element or none means nothing. */
        t->stride[axis] = t->shape[axis] <= 1 && rng_percent(rng, 20) ? RNG_PICK(rng, 0, -3, 1000003) : stride;
    }
    const size_t element = attn_dtype_size(t->dtype);
    if (empty) {
        unsigned char *nothing = place_bytes(guard, 0, rng);
        t->data = rng_percent(rng, 50) ? nothing : NULL;
        return;
    }
    unsigned char *base = place_bytes(guard, (size_t)(highest - lowest + 1) * element, rng);
    t->data = base - lowest * (ptrdiff_t)element;
}

int place_gaps_intact(const struct guard *guard, const attn_tensor *t)
{
    if (!guard->used)
        return 1;
    const size_t size = attn_dtype_size(t->dtype), n = guard->used / size;
    unsigned char *owned = calloc(n, 1);
    if (!owned)
        return 0;
    const int64_t base = ((const unsigned char *)t->data - guard->data) / (ptrdiff_t)size;
    FOR_EACH_ELEMENT(t)
    {
        owned[base + tensor_offset(t, b, h, i, j)] = 1;
    }
    int intact = 1;
    for (size_t i = 0; i < n && intact; i++)
        for (size_t byte = 0; byte < size && !owned[i]; byte++)
            intact &= guard->data[i * size + byte] == GUARD_CANARY;
    free(owned);
    return intact;
}
