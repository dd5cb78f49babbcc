/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much each slot of a case can hold, and its tensors and arrays in it.
 */
#include "case_draw.h"

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
    return place_bytes(&c->guard[slot], bytes, rng);
}

void case_place_tensor(struct test_case *c, enum case_slot slot, attn_tensor *t, int liberties, struct rng *rng)
{
    place_tensor(&c->guard[slot], t, liberties, rng);
}
