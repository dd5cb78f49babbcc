/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The valid call of the unit tests. Its values are random with a fixed seed:
 * these tests are about arguments and control flow, not about numbers.
 */
#include "fixture.h"

#include "dtype.h"
#include "random.h"
#include "sentences.h"

#include <stdio.h>
#include <string.h>

void fixture_initialize(struct fixture *f)
{
    struct rng rng = rng_for_case(7, 7);
    memset(f, 0, sizeof *f);
    rng_fill_normal(&rng, f->q_data, sizeof f->q_data / sizeof(float));
    rng_fill_normal(&rng, f->k_data, sizeof f->k_data / sizeof(float));
    rng_fill_normal(&rng, f->v_data, sizeof f->v_data / sizeof(float));
    rng_fill_normal(&rng, f->mask_data, sizeof f->mask_data / sizeof(float));
    memset(f->out_data, CANARY, sizeof f->out_data);
    memset(f->lse_data, CANARY, sizeof f->lse_data);
    memset(f->weights_data, CANARY, sizeof f->weights_data);
    memset(f->key_sums_data, CANARY, sizeof f->key_sums_data);
    f->q = attn_bhtd(f->q_data, FIX_B, FIX_HQ, FIX_TQ, FIX_DK);
    f->k = attn_bhtd(f->k_data, FIX_B, FIX_HKV, FIX_TK, FIX_DK);
    f->v = attn_bhtd(f->v_data, FIX_B, FIX_HKV, FIX_TK, FIX_DV);
    f->out = attn_bhtd(f->out_data, FIX_B, FIX_HQ, FIX_TQ, FIX_DV);
    f->mask = attn_bhtd(f->mask_data, FIX_B, FIX_HQ, FIX_TQ, FIX_TK);
    f->lse = attn_bhtd(f->lse_data, FIX_B, FIX_HQ, FIX_TQ, 1);
    f->weights = attn_bhtd(f->weights_data, FIX_B, FIX_HQ, FIX_TQ, FIX_TK);
    f->key_sums = attn_bhtd(f->key_sums_data, FIX_B, FIX_HQ, 1, FIX_TK);
    for (int b = 0; b < FIX_B; b++) {
        f->kv_len[b] = FIX_TK - b;
        f->kv_start[b] = b;
        f->query_offset[b] = 1;
    }
    for (int i = 0; i < FIX_TQ; i++)
        f->weight_rows[i] = i;
    f->params = attn_params_default();
    f->params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    f->params.kv_len = f->kv_len;
    f->params.kv_start = f->kv_start;
    f->params.mask = &f->mask;
    f->params.lse = &f->lse;
    f->params.weights = &f->weights;
    f->params.key_sums = &f->key_sums;
    f->q_arg = &f->q;
    f->k_arg = &f->k;
    f->v_arg = &f->v;
    f->out_arg = &f->out;
    f->params_arg = &f->params;
}

void fixture_narrow(struct fixture *f, attn_dtype dtype)
{
    attn_tensor *const tensors[] = {&f->q, &f->k, &f->v, &f->mask};
    for (int t = 0; t < 4; t++) {
        const int64_t n = tensors[t]->shape[0] * tensors[t]->stride[0];
        for (int64_t i = 0; i < n; i++) /* in place: what is written lies behind what is read next */
            dtype_store(dtype, tensors[t]->data, i, ((const float *)tensors[t]->data)[i]);
        tensors[t]->dtype = dtype;
    }
    f->out.dtype = dtype;
}

attn_status fixture_forward(const struct fixture *f)
{
    return attn_forward(f->q_arg, f->k_arg, f->v_arg, f->out_arg, f->params_arg);
}

int all_canary(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != CANARY)
            return 0;
    return 1;
}

int fixture_outputs_untouched(const struct fixture *f)
{
    return all_canary(f->out_data, sizeof f->out_data) && all_canary(f->lse_data, sizeof f->lse_data) &&
           all_canary(f->weights_data, sizeof f->weights_data) && all_canary(f->key_sums_data, sizeof f->key_sums_data);
}

void fixture_expect_refused(struct fixture *f, attn_status status, const char *words)
{
    const attn_status got = fixture_forward(f);
    if (got != status || !holds_words(attn_last_error(), words))
        fail_msg("expected status %d and %s; got %d, \"%s\"", (int)status, words, (int)got, attn_last_error());
    assert_true(fixture_outputs_untouched(f));
}

void fixture_keep_scores(const attn_score_tile *tile, void *user)
{
    (void)tile;
    (void)user;
}

void fixture_keep_weights(const attn_weight_tile *tile, void *user)
{
    (void)tile;
    (void)user;
}

int fixture_outputs_equal(const struct fixture *a, const struct fixture *b)
{
    return memcmp(a->out_data, b->out_data, sizeof a->out_data) == 0 &&
           memcmp(a->lse_data, b->lse_data, sizeof a->lse_data) == 0 &&
           memcmp(a->weights_data, b->weights_data, sizeof a->weights_data) == 0 &&
           memcmp(a->key_sums_data, b->key_sums_data, sizeof a->key_sums_data) == 0;
}

int holds_words(const char *text, const char *words)
{
    return sentence_has(text, words);
}
