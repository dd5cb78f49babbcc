/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout of one row of activations, between a bias and a residual, by the counters of attn_dropout_keeps():
 * channels are its keys, so that a counter decides on four of them. DROP_GROUPS
 * counters go through the rounds of Philox side by side, in loops that the
 * compiler turns into vectors.
 */
#ifndef ATTN_NN_DROP_H
#define ATTN_NN_DROP_H

#include "kernels/philox.h"
#include "nn/kernels/typed.h"

enum { DROP_GROUPS = 16, DROP_CHANNELS = 4 * DROP_GROUPS };

/** One round of all counters. */
static inline void philox_round(uint32_t w[4][DROP_GROUPS], uint32_t k0, uint32_t k1)
{
    for (int i = 0; i < DROP_GROUPS; i++) {
        const uint64_t a = (uint64_t)PHILOX_M0 * w[0][i], b = (uint64_t)PHILOX_M1 * w[2][i];
        w[0][i] = (uint32_t)(b >> 32) ^ w[1][i] ^ k0;
        w[2][i] = (uint32_t)(a >> 32) ^ w[3][i] ^ k1;
        w[1][i] = (uint32_t)b;
        w[3][i] = (uint32_t)a;
    }
}

/** The factors of DROP_CHANNELS channels from one that is a multiple of 4 on. */
static inline void drop_factors(const struct nn_drop_work *work, int64_t channel, float *factors)
{
    uint32_t w[4][DROP_GROUPS], k0 = work->key[0], k1 = work->key[1];
    for (int i = 0; i < DROP_GROUPS; i++) {
        w[0][i] = (uint32_t)(channel / 4) + (uint32_t)i;
        w[1][i] = (uint32_t)work->token;
        w[2][i] = 0;
        w[3][i] = (uint32_t)work->batch;
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++, k0 += PHILOX_W0, k1 += PHILOX_W1)
        philox_round(w, k0, k1);
    for (int i = 0; i < DROP_GROUPS; i++)
        for (int word = 0; word < 4; word++)
            factors[4 * i + word] = w[word][i] >= work->threshold ? work->scale : 0.0f;
}

ATTN_INLINE void drop_body(const attn_dtype of_x, const attn_dtype of_out, const struct nn_drop_work *work)
{
    float factors[DROP_CHANNELS];
    for (int64_t first = 0; first < work->n; first += DROP_CHANNELS) {
        drop_factors(work, first, factors);
        for (int64_t c = first; c < first + DROP_CHANNELS && c < work->n; c += VF_LEN) {
            const int left = work->n - c < VF_LEN ? (int)(work->n - c) : VF_LEN;
            const vf factor = vf_load(factors + (c - first));
            /* A dropped NaN or infinity is 0 as well. */
            vf x = typed_load(of_x, work->x, c, left);
            if (work->bias)
                x = vf_add(x, typed_load(ATTN_F32, work->bias, c, left));
            vf out = vf_select(vf_gt(factor, vf_zero()), vf_mul(x, factor), vf_zero());
            if (work->residual)
                out = vf_add(out, typed_load(of_out, work->residual, c, left));
            typed_store(of_out, work->out, c, out, left);
        }
    }
}

static void drop_row(const struct nn_drop_work *work)
{
    NN_BY_TYPES(work->dtype, work->out_dtype, drop_body, work);
}

#endif
