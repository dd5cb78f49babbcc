/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of a head that is a single tile: few queries, one block of keys,
 * nothing but causality that hides any. The steps are those of a unit of
 * forward.c, on the same operands, so the bits are the same; what is left out is
 * the walk over strips, blocks and runs, which takes longer than they do where
 * there are some ten queries and keys.
 */
#include "pass/single.h"

#include <string.h>

static char *row_of(const struct attn_rows *rows, int64_t i)
{
    return (char *)rows->data + i * rows->stride;
}

static void pack_queries(const struct attn_single *x)
{
    const char *rows[ATTN_MAX_STRIP];
    for (int r = 0; r < x->rows; r++)
        rows[r] = row_of(&x->q, r);
    const struct attn_pack_queries queries = {.rows = rows,
                                              .dtype = x->q.dtype,
                                              .n = x->rows,
                                              .fill = x->width,
                                              .width = x->width,
                                              .dk = x->dk,
                                              .scale = x->scale,
                                              .q = x->q_words};
    x->kernels->scores->pack_queries(&queries);
}

/** By O in lane order, as the walk has it. hiding: the mask, if V has numbers that must not meet who does not see them.
 */
static void write_by_lanes(const struct attn_single *x, const struct attn_tile_mask *hiding, const int *ends,
                           char *const *rows, const float *inverse)
{
    const struct attn_value_kernels *values = x->kernels->values;
    const struct attn_value_operands operands = {.p = x->s,
                                                 .v = x->v.data,
                                                 .v_stride = x->v.stride,
                                                 .dv = x->dv,
                                                 .ends = ends,
                                                 .o = x->o,
                                                 .mode = ACCUMULATE_FIRST};
    if (hiding)
        values->values_seen(x->nv, hiding, &operands, x->keys);
    else
        values->values(x->nv, &operands);
    x->kernels->vectors->write_rows(rows, x->out.dtype, x->o, x->width, x->rows, x->dv, inverse);
}

/** Channels for lanes: worth it where lanes of queries are empty, and where they are a single vector. */
static void write_by_rows(const struct attn_single *x, const int *ends, char *const *rows, const float *inverse)
{
    const struct attn_value_rows work = {.p = x->s,
                                         .width = x->width,
                                         .v = x->v.data,
                                         .v_stride = x->v.stride,
                                         .dv = x->dv,
                                         .ends = ends,
                                         .factor = inverse,
                                         .rows = rows,
                                         .dtype = x->out.dtype,
                                         .n = x->rows};
    x->kernels->values->values_to_rows(&work);
}

static void write_rows(const struct attn_single *x, const struct attn_tile_mask *mask, const int *ends)
{
    float inverse[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float lse[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const struct attn_finish finish = {
        .m = x->m, .l = x->l, .keep_scale = 1.0f, .inverse = inverse, .lse = x->lse ? lse : NULL};
    char *rows[ATTN_MAX_STRIP];
    x->kernels->vectors->finish(x->nv, &finish);
    for (int r = 0; x->lse && r < x->rows; r++)
        x->lse[r * x->lse_stride] = lse[r];
    for (int r = 0; r < x->rows; r++)
        rows[r] = row_of(&x->out, r);
    if (mask->kind != MASK_NONE && !x->kernels->values->finite(x->v.data, x->v.stride, x->keys, x->dv))
        write_by_lanes(x, mask, ends, rows, inverse);
    else if (x->rows < x->width || x->nv == 1)
        write_by_rows(x, ends, rows, inverse);
    else
        write_by_lanes(x, NULL, ends, rows, inverse);
}

void attn_single_pass(const struct attn_single *x)
{
    const struct attn_vector_kernels *vectors = x->kernels->vectors;
    const struct attn_tile_mask mask = {.kind = x->diagonal < x->keys - 1 ? MASK_DIAGONAL : MASK_NONE,
                                        .diagonal = x->diagonal};
    const struct attn_score_operands operands = {
        .q = x->q_words, .k = x->k.data, .k_stride = x->k.stride, .words = x->dk, .mask = &mask, .s = x->s};
    int ends[ATTN_MAX_VECTORS];
    pack_queries(x);
    memset(x->l, 0, (size_t)x->width * sizeof *x->l);
    x->kernels->scores->scores(x->nv, &operands, x->keys, x->m); /* none was before: the maximum is that of the tile */
    for (int v = 0; v < x->nv; v++)
        ends[v] = attn_visible_before(mask.diagonal, (v + 1) * vectors->lanes, x->keys);
    x->kernels->values->weights(x->nv, x->m, ends, x->keys, NULL, x->s, x->l);
    write_rows(x, &mask, ends);
}
