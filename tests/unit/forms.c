/* SPDX-License-Identifier: Apache-2.0 */
/* The valid call with the forms of attention. Its values are random with a fixed seed. */
#include "forms.h"

#include "fixture.h"
#include "random.h"

#include <string.h>

static void fill_operands(struct forms *c, struct rng *rng, int64_t batch)
{
    rng_fill_normal(rng, c->q_data, sizeof c->q_data / sizeof(float));
    rng_fill_normal(rng, c->k_data, sizeof c->k_data / sizeof(float));
    rng_fill_normal(rng, c->v_data, sizeof c->v_data / sizeof(float));
    memset(c->out_data, CANARY, sizeof c->out_data);
    memset(c->lse_data, CANARY, sizeof c->lse_data);
    c->q = attn_bhtd(c->q_data, batch, FORM_HQ, FORM_TQ, FORM_DK);
    c->k = attn_bhtd(c->k_data, batch, FORM_HKV, FORM_TK, FORM_DK);
    c->v = attn_bhtd(c->v_data, batch, FORM_HKV, FORM_TK, FORM_DV);
    c->out = attn_bhtd(c->out_data, batch, FORM_HQ, FORM_TQ, FORM_DV);
    c->lse = attn_bhtd(c->lse_data, batch, FORM_HQ, FORM_TQ, 1);
}

static void fill_scores(struct forms *c, struct rng *rng, int64_t batch)
{
    rng_fill_normal(rng, c->head_scale, FORM_HQ);
    rng_fill_normal(rng, c->sinks, FORM_HQ);
    rng_fill_normal(rng, c->slopes, FORM_HQ);
    rng_fill_normal(rng, c->bias_table, sizeof c->bias_table / sizeof(float));
    rng_fill_normal(rng, c->rel_k_data, sizeof c->rel_k_data / sizeof(float));
    rng_fill_normal(rng, c->rel_q_data, sizeof c->rel_q_data / sizeof(float));
    rng_fill_normal(rng, c->rope_q_data, sizeof c->rope_q_data / sizeof(float));
    rng_fill_normal(rng, c->rope_k_data, sizeof c->rope_k_data / sizeof(float));
    c->bias = (attn_relative_bias){ATTN_BUCKETS_CLIPPED, FORM_BUCKETS, FORM_BUCKETS / 2, c->bias_table};
    c->rel_k = attn_bhtd(c->rel_k_data, 1, FORM_HQ, 2 * FORM_SPAN, FORM_DK);
    c->rel_q = attn_bhtd(c->rel_q_data, 1, 1, 2 * FORM_SPAN, FORM_DK);
    c->disentangled = (attn_disentangled){.span = FORM_SPAN, .rel_k = &c->rel_k, .rel_q = &c->rel_q};
    c->rope_q = attn_bhtd(c->rope_q_data, batch, 1, FORM_TQ, 2 * FORM_PAIRS);
    c->rope_k = attn_bhtd(c->rope_k_data, 1, 1, FORM_TK, 2 * FORM_PAIRS);
    c->rope = (attn_rope_tables){ATTN_ROPE_INTERLEAVED, &c->rope_q, &c->rope_k};
    c->dropout = (attn_dropout){0.25f, 7, 8};
}

static void fill_sequences(struct forms *c, int ragged)
{
    static const int64_t lengths[2][FORM_SEQUENCES] = {{50, 30, 0}, {25, 5, 18}};
    static const int64_t starts[2][FORM_SEQUENCES] = {{0, 10, 0}, {0, 0, 6}};
    static const int64_t offsets_q[] = {0, 20, 20, 38}, offsets_k[] = {0, 25, 30, 48};
    for (int s = 0; s < FORM_SEQUENCES; s++) {
        c->query_offset[s] = 5 * s - 4;
        c->prefix_len[s] = s;
    }
    memcpy(c->kv_len, lengths[ragged], sizeof c->kv_len);
    memcpy(c->kv_start, starts[ragged], sizeof c->kv_start);
    memcpy(c->cu_seqlens_q, offsets_q, sizeof offsets_q);
    memcpy(c->cu_seqlens_k, offsets_k, sizeof offsets_k);
    c->ragged = (attn_ragged){FORM_SEQUENCES, c->cu_seqlens_q, c->cu_seqlens_k};
}

static void fill_masks(struct forms *c, int ragged)
{
    static const int64_t globals[FORM_GLOBALS] = {0, 1, 9, FORM_TK - 1};
    memcpy(c->globals, globals, sizeof globals);
    c->window = (attn_window){4, ATTN_UNLIMITED, 2, c->globals, FORM_GLOBALS};
    const int64_t rows = ragged ? FORM_ROWS - 1 : FORM_ROWS;
    c->blocks = (attn_block_mask){16, FORM_HQ, rows, c->offsets, c->columns};
    for (int n = 0; n < FORM_HQ * rows; n++) {
        c->offsets[n + 1] = 2 * n + 2;
        c->columns[2 * n] = 0;
        c->columns[2 * n + 1] = n % (int)rows + 1;
    }
    for (int i = 0; i < FORM_B * FORM_TQ; i++) {
        c->segments_q[i] = i % FORM_TQ / 10;
        c->ancestors[i] = (uint64_t)i % 16;
    }
    for (int j = 0; j < FORM_B * FORM_TK; j++)
        c->segments_k[j] = j % FORM_TK / 10;
    c->segments = (attn_segments){c->segments_q, c->segments_k};
    c->tree = (attn_tree){4, c->ancestors};
}

static void set_forms(struct forms *c, unsigned forms)
{
    attn_params *p = &c->params;
    *p = attn_params_default();
    p->lse = &c->lse;
    p->head_scale = forms & FORM_HEAD_SCALE ? c->head_scale : NULL;
    p->softcap = forms & FORM_SOFTCAP ? 30.0f : 0.0f;
    p->sinks = forms & FORM_SINKS ? c->sinks : NULL;
    p->alibi_slopes = forms & FORM_SLOPES ? c->slopes : NULL;
    p->relative_bias = forms & FORM_BIAS ? &c->bias : NULL;
    p->disentangled = forms & FORM_DISENTANGLED ? &c->disentangled : NULL;
    p->rope = forms & FORM_ROPE ? &c->rope : NULL;
    p->callback = forms & FORM_CALLBACK ? fixture_keep_scores : NULL;
    p->callback_user = forms & FORM_CALLBACK ? c : NULL;
    p->causal = forms & FORM_PREFIX ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    p->query_offset = forms & FORM_POSITIONS ? c->query_offset : NULL;
    p->kv_len = forms & FORM_LENGTHS ? c->kv_len : NULL;
    p->kv_start = forms & FORM_LENGTHS ? c->kv_start : NULL;
    p->prefix_len = forms & FORM_PREFIX ? c->prefix_len : NULL;
    p->window = forms & FORM_WINDOW ? &c->window : NULL;
    p->block_mask = forms & FORM_BLOCKS ? &c->blocks : NULL;
    p->segments = forms & FORM_SEGMENTS ? &c->segments : NULL;
    p->tree = forms & FORM_TREE ? &c->tree : NULL;
    p->ragged = forms & FORM_RAGGED ? &c->ragged : NULL;
    p->dropout = forms & FORM_DROPOUT ? &c->dropout : NULL;
    p->weight_callback = forms & FORM_WEIGHT_CALLBACK ? fixture_keep_weights : NULL;
    p->weight_callback_user = forms & FORM_WEIGHT_CALLBACK ? c : NULL;
}

void forms_initialize(struct forms *c, unsigned forms)
{
    struct rng rng = rng_for_case(8, 8);
    const int ragged = (forms & FORM_RAGGED) != 0;
    memset(c, 0, sizeof *c);
    fill_operands(c, &rng, ragged ? 1 : FORM_B);
    fill_scores(c, &rng, ragged ? 1 : FORM_B);
    fill_sequences(c, ragged);
    fill_masks(c, ragged);
    set_forms(c, forms);
}

attn_status forms_forward(const struct forms *c)
{
    return attn_forward(&c->q, &c->k, &c->v, &c->out, &c->params);
}

attn_status forms_plan(const struct forms *c, attn_plan **plan)
{
    return attn_plan_create(plan, &c->q, &c->k, &c->v, &c->out, &c->params);
}

int forms_untouched(const struct forms *c)
{
    return all_canary(c->out_data, sizeof c->out_data) && all_canary(c->lse_data, sizeof c->lse_data);
}
