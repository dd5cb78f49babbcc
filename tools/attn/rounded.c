/* SPDX-License-Identifier: Apache-2.0 */
/* Rows side by side, whatever the layout of what they are rounded from. */
#include "rounded.h"

#include <attn/quantise.h>

#include "wording.h"

static const attn_dtype types[] = {ATTN_F32, ATTN_I8, ATTN_F8_E4M3, ATTN_I4};

attn_status rounded_parse(struct rounded *r, const struct option *option)
{
    static const char *const names[] = {"as-given", "int8", "fp8", "int4"};
    return option_choice(option, names, 4, &r->kind);
}

/* Bytes and scales of one tensor. */
static attn_status round_one(struct rounded *r, int n, attn_tensor *x, int threads)
{
    const attn_dtype type = types[r->kind];
    const int64_t *shape = x->shape, groups = (shape[3] + ATTN_I4_GROUP - 1) / ATTN_I4_GROUP;
    const int64_t width = type == ATTN_I4 ? groups * ATTN_I4_GROUP : shape[3], scales = type == ATTN_I4 ? groups : 1;
    /* Bytes, which no type of arrays is but that of truth values. */
    struct array_shape bytes = {
        .dtype = ARRAY_BOOL, .ndim = 4, .shape = {shape[0], shape[1], shape[2], type == ATTN_I4 ? width / 2 : width}};
    struct array_shape is = {.dtype = ARRAY_F32, .ndim = 4, .shape = {shape[0], shape[1], shape[2], scales}};
    CHECK(array_allocate(&r->bytes[n], "what --kv-type rounds to", &bytes));
    CHECK(array_allocate(&r->scales[n], "the scales of --kv-type", &is));
    r->rows[n] = attn_bhtd(r->bytes[n].data, shape[0], shape[1], shape[2], width);
    r->rows[n].dtype = type;
    r->rows[n].shape[3] = shape[3];
    r->scale_views[n] = attn_bhtd(r->scales[n].data, shape[0], shape[1], shape[2], scales);
    CHECK(reworded(WORDING_RUN, attn_quantise(x, &r->rows[n], &r->scale_views[n], threads)));
    *x = r->rows[n];
    return ATTN_OK;
}

attn_status rounded_apply(struct rounded *r, attn_tensor *k, attn_tensor *v, attn_params *params)
{
    if (r->kind == 0)
        return ATTN_OK;
    CHECK(round_one(r, 0, k, params->num_threads));
    CHECK(round_one(r, 1, v, params->num_threads));
    params->k_scale = &r->scale_views[0];
    params->v_scale = &r->scale_views[1];
    return ATTN_OK;
}

void rounded_free(struct rounded *r)
{
    for (int i = 0; i < 2; i++) {
        array_free(&r->bytes[i]);
        array_free(&r->scales[i]);
    }
}
