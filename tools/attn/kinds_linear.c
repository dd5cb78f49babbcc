/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of attention with a state, as one call of the library: the four
 * rules, and the Performer, whose projection is drawn here.
 */
#include "kinds.h"

#include "commands.h"
#include "watched.h"
#include "wording.h"

/* One projection for all heads: (1, 1, feature, channel). */
static attn_status draw_projection(const struct kinds *k, int64_t channels, const attn_dropout *draw,
                                   struct array *rows, attn_tensor *view)
{
    struct array_shape is = {.dtype = ARRAY_F32, .ndim = 2, .shape = {k->features, channels}};
    CHECK(array_allocate(rows, "the projection of --features", &is));
    *view = inputs_view(rows, false);
    return reworded(WORDING_RUN, attn_draw_features(view, draw->seed, draw->offset));
}

attn_status kinds_linear(const struct kinds *k, const struct inputs *in, const attn_tensor *out,
                         const attn_params *params, const attn_tensor *state, const attn_dropout *draw)
{
    struct array rows = {.size = 0};
    attn_tensor projection;
    attn_linear_attention_params p = attn_linear_attention_params_default();
    p.decay = kinds_tensor(k, OPTION_DECAY);
    p.beta = kinds_tensor(k, OPTION_BETA);
    p.resets = kinds_tensor(k, OPTION_RESETS);
    p.state_in = kinds_tensor(k, OPTION_STATE_IN);
    p.state_out = state;
    p.scale = params->scale;
    p.map = k->map;
    p.normalise = k->kind == KIND_PERFORMER || k->options[OPTION_NORMALISE].value != NULL;
    p.bidirectional =
        k->kind == KIND_PERFORMER ? params->causal == ATTN_CAUSAL_NONE : k->options[OPTION_BIDIRECTIONAL].value != NULL;
    p.lengths = params->kv_len;
    if (params->ragged != NULL) {
        p.cu_seqlens = params->ragged->cu_seqlens_q;
        p.num_sequences = params->ragged->num_sequences;
    }
    p.num_threads = params->num_threads;
    p.isa = params->isa;
    attn_status status = ATTN_OK;
    p.projection = kinds_tensor(k, OPTION_PROJECTION);
    if (k->kind == KIND_PERFORMER && p.projection == NULL) {
        status = draw_projection(k, in->q_view.shape[3], draw, &rows, &projection);
        p.projection = &projection;
    }
    if (status == ATTN_OK)
        status = reworded(WORDING_RUN,
                          watched_linear_attention(&in->q_view, &in->k_view, &in->v_view, out, &p, command_is_quiet()));
    array_free(&rows);
    return status;
}
