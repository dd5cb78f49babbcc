/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of attention that libattn_nn computes: additive scores, whose keys
 * are projected first, and the Linformer.
 */
#include "kinds.h"

#include <attn/nn/alignment.h>
#include <attn/nn/linformer.h>
#include <attn/nn/progress.h>

#include "commands.h"
#include "watched.h"
#include "wording.h"

attn_status kinds_built(enum kind kind)
{
    (void)kind;
    return ATTN_OK;
}

static attn_status look(const void *of, const void *workspace, size_t size, int64_t *begun, int64_t *tasks)
{
    (void)of;
    return attn_layer_progress(workspace, size, begun, tasks);
}

/* Projects the keys and attends to them. */
static attn_status attend(const attn_alignment *alignment, const struct inputs *in, const attn_tensor *out,
                          const attn_params *params, struct array *projected)
{
    const attn_tensor *k = &in->k_view;
    struct array_shape is = {
        .dtype = ARRAY_F32, .ndim = 4, .shape = {k->shape[0], 1, k->shape[2], attn_alignment_projected(alignment)}};
    CHECK(array_allocate(projected, "the projected keys", &is));
    attn_tensor keys = inputs_view(projected, false);
    CHECK(attn_alignment_project(alignment, k, &keys, params->num_threads));
    const attn_tensor *q = &in->q_view;
    struct watch w;
    watch_begin(
        &w, look, NULL,
        attn_alignment_workspace_size(alignment, q->shape[0], q->shape[2], k->shape[2], in->v_view.shape[3], params),
        command_is_quiet());
    const attn_status status =
        attn_alignment_forward(alignment, q, &keys, &in->v_view, out, params, w.workspace, w.size);
    watch_end(&w);
    return status;
}

attn_status kinds_additive(const struct kinds *k, const struct inputs *in, const attn_tensor *out,
                           const attn_params *params)
{
    const attn_tensor *bias = kinds_tensor(k, OPTION_SCORE_BIAS);
    attn_alignment_config config = attn_alignment_config_default();
    config.score = ATTN_SCORE_ADDITIVE;
    config.w_q = *kinds_tensor(k, OPTION_WQ);
    config.w_k = *kinds_tensor(k, OPTION_WK);
    config.v = *kinds_tensor(k, OPTION_SCORE_V);
    if (bias != NULL)
        config.bias = *bias;
    config.d_query = in->q_view.shape[3];
    config.d_key = in->k_view.shape[3];
    config.d_attention = config.w_q.shape[2];
    config.temperature = params->temperature;
    attn_params own = *params;
    own.temperature = 0;
    attn_alignment *alignment = NULL;
    struct array projected = {.size = 0};
    attn_status status = attn_alignment_create(&alignment, &config);
    if (status == ATTN_OK)
        status = attend(alignment, in, out, &own, &projected);
    status = reworded(WORDING_RUN, status);
    attn_alignment_destroy(alignment);
    array_free(&projected);
    return status;
}

attn_status kinds_linformer(const struct kinds *k, const struct inputs *in, const attn_tensor *out,
                            const attn_params *params)
{
    const attn_tensor *e = kinds_tensor(k, OPTION_PROJECT_K), *f = kinds_tensor(k, OPTION_PROJECT_V);
    struct watch w;
    watch_begin(&w, look, NULL, attn_linformer_workspace_size(&in->q_view, &in->k_view, &in->v_view, e, f, out, params),
                command_is_quiet());
    const attn_status status =
        attn_linformer_forward(&in->q_view, &in->k_view, &in->v_view, e, f, out, params, w.workspace, w.size);
    watch_end(&w);
    return reworded(WORDING_RUN, status);
}
