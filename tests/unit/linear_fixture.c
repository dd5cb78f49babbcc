/* SPDX-License-Identifier: Apache-2.0 */
/* The valid call of linear attention of the unit tests; its values are random with a fixed seed. */
#include "linear_fixture.h"

#include "random.h"

#include <string.h>

void linear_fixture_initialize(struct linear_fixture *f)
{
    struct rng rng = rng_for_case(9, 9);
    memset(f, 0, sizeof *f);
    rng_fill_normal(&rng, f->q_data, sizeof f->q_data / sizeof(float));
    rng_fill_normal(&rng, f->k_data, sizeof f->k_data / sizeof(float));
    rng_fill_normal(&rng, f->v_data, sizeof f->v_data / sizeof(float));
    rng_fill_normal(&rng, f->state_in_data, sizeof f->state_in_data / sizeof(float));
    for (size_t i = 0; i < sizeof f->decay_data / sizeof(float); i++)
        f->decay_data[i] = -0.1f * (float)rng_uniform(&rng);
    for (size_t i = 0; i < sizeof f->beta_data / sizeof(float); i++)
        f->beta_data[i] = 0.1f * (float)rng_uniform(&rng);
    f->resets_data[3] = 1;
    memset(f->out_data, CANARY, sizeof f->out_data);
    memset(f->state_out_data, CANARY, sizeof f->state_out_data);
    memcpy(f->cu_seqlens, (int64_t[]){0, 2, 2, 5}, sizeof f->cu_seqlens);
    f->lengths[0] = 4, f->lengths[1] = LIN_T;
    f->q = attn_bhtd(f->q_data, LIN_B, LIN_HQ, LIN_T, LIN_DK);
    f->k = attn_bhtd(f->k_data, LIN_B, LIN_HK, LIN_T, LIN_DK);
    f->v = attn_bhtd(f->v_data, LIN_B, LIN_H, LIN_T, LIN_DV);
    f->out = attn_bhtd(f->out_data, LIN_B, LIN_HQ, LIN_T, LIN_DV);
    f->decay = attn_bhtd(f->decay_data, LIN_B, LIN_H, LIN_T, LIN_DK);
    f->beta = attn_bhtd(f->beta_data, LIN_B, LIN_H, LIN_T, 1);
    f->resets = attn_bhtd(f->resets_data, LIN_B, LIN_H, LIN_T, 1);
    f->resets.dtype = ATTN_BOOL;
    f->state_in = attn_bhtd(f->state_in_data, LIN_B, LIN_H, LIN_DK, LIN_DV);
    f->state_out = attn_bhtd(f->state_out_data, LIN_B, LIN_H, LIN_DK, LIN_DV);
    f->params = attn_linear_attention_params_default();
    f->params.decay = &f->decay;
    f->params.beta = &f->beta;
    f->params.resets = &f->resets;
    f->params.state_in = &f->state_in;
    f->params.state_out = &f->state_out;
    f->params.num_threads = 1;
    f->q_arg = &f->q;
    f->k_arg = &f->k;
    f->v_arg = &f->v;
    f->out_arg = &f->out;
    f->params_arg = &f->params;
}

void linear_fixture_make_ragged(struct linear_fixture *f)
{
    attn_tensor *const tensors[] = {&f->q, &f->k, &f->v, &f->out, &f->decay, &f->beta, &f->resets};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tensors[i]->shape[0] = 1;
    f->state_in.shape[0] = f->state_out.shape[0] = 3;
    f->state_in.shape[1] = f->state_out.shape[1] = 1; /* there is room for four states */
    f->state_in.stride[0] = f->state_out.stride[0] = LIN_DK * LIN_DV;
    f->v.shape[1] = f->decay.shape[1] = f->beta.shape[1] = f->resets.shape[1] = 1;
    f->params.cu_seqlens = f->cu_seqlens;
    f->params.num_sequences = 3;
}

attn_status linear_fixture_call(const struct linear_fixture *f)
{
    return attn_linear_attention(f->q_arg, f->k_arg, f->v_arg, f->out_arg, f->params_arg);
}

int linear_fixture_untouched(const struct linear_fixture *f)
{
    return all_canary(f->out_data, sizeof f->out_data) && all_canary(f->state_out_data, sizeof f->state_out_data);
}
