/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The large call of the tests about threads. Values are random with a fixed
 * seed, so that two initialised calls are the same call.
 */
#include "large.h"

#include "dtype.h"
#include "random.h"

#include <string.h>

#define PATTERN 0xA5

void large_initialize(struct large *l, int num_threads)
{
    struct rng rng = rng_for_case(11, 3);
    const int64_t n = (int64_t)(sizeof l->q_data / sizeof(float));
    memset(l, 0, sizeof *l);
    rng_fill_normal(&rng, l->q_data, n);
    rng_fill_normal(&rng, l->k_data, n);
    rng_fill_normal(&rng, l->v_data, n);
    memset(l->out_data, PATTERN, sizeof l->out_data);
    memset(l->lse_data, PATTERN, sizeof l->lse_data);
    l->q = attn_bhtd(l->q_data, 1, LARGE_HEADS, LARGE_TOKENS, LARGE_CHANNELS);
    l->k = attn_bhtd(l->k_data, 1, LARGE_HEADS, LARGE_TOKENS, LARGE_CHANNELS);
    l->v = attn_bhtd(l->v_data, 1, LARGE_HEADS, LARGE_TOKENS, LARGE_CHANNELS);
    l->out = attn_bhtd(l->out_data, 1, LARGE_HEADS, LARGE_TOKENS, LARGE_CHANNELS);
    l->lse = attn_bhtd(l->lse_data, 1, LARGE_HEADS, LARGE_TOKENS, 1);
    l->params = attn_params_default();
    l->params.causal = ATTN_CAUSAL_TOP_LEFT;
    l->params.lse = &l->lse;
    l->params.num_threads = num_threads;
}

void large_narrow(struct large *l, attn_dtype dtype)
{
    attn_tensor *const tensors[] = {&l->q, &l->k, &l->v};
    const int64_t n = (int64_t)(sizeof l->q_data / sizeof(float));
    for (int t = 0; t < 3; t++) {
        for (int64_t i = 0; i < n; i++) /* in place: what is written lies behind what is read next */
            dtype_store(dtype, tensors[t]->data, i, ((const float *)tensors[t]->data)[i]);
        tensors[t]->dtype = dtype;
    }
    l->out.dtype = dtype;
}

attn_status large_forward(const struct large *l)
{
    return attn_forward(&l->q, &l->k, &l->v, &l->out, &l->params);
}

int large_equal(const struct large *a, const struct large *b)
{
    return memcmp(a->out_data, b->out_data, sizeof a->out_data) == 0 &&
           memcmp(a->lse_data, b->lse_data, sizeof a->lse_data) == 0;
}

int large_untouched(const struct large *l)
{
    for (size_t i = 0; i < sizeof l->out_data; i++)
        if (((const unsigned char *)l->out_data)[i] != PATTERN)
            return 0;
    for (size_t i = 0; i < sizeof l->lse_data; i++)
        if (((const unsigned char *)l->lse_data)[i] != PATTERN)
            return 0;
    return 1;
}
