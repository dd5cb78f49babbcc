/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and strides of random cases: any order of the axes, with gaps,
 * reversed and, for inputs, broadcast.
 */
#include "case_draw.h"

#include <stdio.h>
#include <stdlib.h>

size_t case_capacity(enum case_slot slot)
{
    switch (slot) {
    case SLOT_Q:
    case SLOT_K:
    case SLOT_V:
    case SLOT_MASK:
    case SLOT_OUT:
    case SLOT_LSE:
    case SLOT_WEIGHTS:
    case SLOT_KEY_SUMS:
    case SLOT_SCORES:
    case SLOT_D_OUT:
    case SLOT_D_LSE:
    case SLOT_D_Q:
    case SLOT_D_K:
    case SLOT_D_V:
    case SLOT_D_MASK:
    case SLOT_K_POOL:
    case SLOT_V_POOL:
    case SLOT_K_NUMBERS:
    case SLOT_V_NUMBERS:
    case SLOT_K_SCALE:
    case SLOT_V_SCALE:
    case SLOT_WORKSPACE:
        return 64u << 20;
    case SLOT_BLOCK_COLUMNS:
    case SLOT_SEGMENTS_Q:
    case SLOT_SEGMENTS_K:
    case SLOT_ANCESTORS:
    case SLOT_REL_K:
    case SLOT_REL_Q:
    case SLOT_ROPE_Q:
    case SLOT_ROPE_K:
    case SLOT_D_REL_K:
    case SLOT_D_REL_Q:
    case SLOT_BLOCK_TABLE:
        return 16u << 20;
    default: /* an entry per sequence, head, bucket or row */
        return 64u << 10;
    }
}

void *case_place(struct test_case *c, enum case_slot slot, size_t bytes, struct rng *rng)
{
    void *data = guard_place(&c->guard[slot], bytes, rng_percent(rng, 60));
    if (!data) {
        fprintf(stderr, "a case wants %zu bytes between guard pages; at most %zu are mapped\n", bytes,
                case_capacity(slot));
        exit(1);
    }
    return data;
}

void case_place_tensor(struct test_case *c, enum case_slot slot, attn_tensor *t, int liberties, struct rng *rng)
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
        unsigned char *nothing = case_place(c, slot, 0, rng);
        t->data = rng_percent(rng, 50) ? nothing : NULL;
        return;
    }
    unsigned char *base = case_place(c, slot, (size_t)(highest - lowest + 1) * element, rng);
    t->data = base - lowest * (ptrdiff_t)element;
}
