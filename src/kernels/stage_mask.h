/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the mask of one tile: looks at everything that hides a key from a query
 * in it, or adds to a score by its place, and says which of the cases of mask.h
 * holds. Most tiles are MASK_NONE and run no mask code.
 */
#ifndef ATTN_STAGE_MASK_H
#define ATTN_STAGE_MASK_H

#include <math.h>
#include <string.h>

/** Bytes of what a boolean mask and the structure of the run hide. Returns MASK_NONE if that is nothing of a mask. */
static enum mask_kind stage_bytes(const struct attn_work *work, const struct attn_scratch *scratch,
                                  const struct strip *strip, int64_t first, int n, enum run_kind run)
{
    const int width = strip->nv * VF_LEN;
    int staged = 0;
    if (work->mask.data) {
        struct attn_grid grid = work->mask;
        grid.data = (uint8_t *)grid.data + strip->first * grid.query_stride + first * grid.key_stride;
        const struct extent extent = stage_live(scratch->live, width, grid, strip->rows, n);
        if (!extent.any)
            return MASK_DEAD;
        staged = !extent.all;
    }
    if (!staged && run != RUN_MIXED)
        return MASK_NONE;
    if (!staged)
        memset(scratch->live, 1, (size_t)n * LIVE_PITCH);
    if (run != RUN_WHOLE)
        stage_structure(work, strip, first, n, scratch->live);
    return run == RUN_MIXED && !any_live(scratch->live, strip->rows, n) ? MASK_DEAD : MASK_LIVE;
}

/** bias[j][r], in base 2: an additive mask, or 0, with the bias of the distance added, -inf where bytes say so. */
static enum mask_kind stage_floats(const struct attn_work *work, const struct attn_scratch *scratch,
                                   const struct strip *strip, int64_t first, int n, const float *distances, int bytes)
{
    const int width = strip->nv * VF_LEN;
    const vf minus_inf = vf_set1(-INFINITY);
    vf visible = vf_zero();
    if (work->bias.data) {
        struct attn_grid grid = work->bias;
        grid.data =
            (char *)grid.data + (strip->first * grid.query_stride + first * grid.key_stride) * row_element(grid.dtype);
        stage_bias(scratch->bias, width, grid, strip->rows, n);
    }
    for (int j = 0; j < n; j++) {
        float *row = scratch->bias + (ptrdiff_t)j * width;
        for (int r = 0; r < width; r += VF_LEN) {
            const vf natural = work->bias.data ? vf_load(row + r) : vf_zero();
            vf b = vf_select(vf_eq(natural, minus_inf), minus_inf, bias_in_base2(natural));
            if (distances) {
                const vf d = vf_load(distances + n - 1 - j + r);
                b = vf_select(vf_eq(d, minus_inf), minus_inf, vf_select(vf_eq(b, minus_inf), minus_inf, vf_add(b, d)));
            }
            if (bytes)
                b = vf_select(vm_from_bytes(scratch->live + (ptrdiff_t)j * LIVE_PITCH + r), b, minus_inf);
            vf_store(row + r, b);
            visible = vf_select(vf_eq(b, minus_inf), visible, vf_set1(1.0f));
        }
    }
    return vm_any(vf_gt(visible, vf_zero())) ? MASK_BIAS : MASK_DEAD;
}

/** The mask of a strip's rows and the n keys of a run, of which first is the first. */
static struct mask stage_mask(const struct attn_work *work, const struct attn_scratch *scratch,
                              const struct strip *strip, int64_t first, int n, enum run_kind run)
{
    const int64_t row = strip->first - first; /* less the first key */
    const int width = strip->nv * VF_LEN;
    struct mask mask = {MASK_NONE, row + work->view.diagonal, scratch->live, scratch->bias, width, 0};
    mask.kind = stage_bytes(work, scratch, strip, first, n, run);
    if (mask.kind == MASK_DEAD)
        return mask;
    const int biased = has_distance_bias(work), bytes = mask.kind == MASK_LIVE;
    const int by_distance = !bytes && (run == RUN_DISTANCE || (run == RUN_DIAGONAL && (biased || work->bias.data)));
    if (biased || by_distance) {
        stage_distance_bias(work, work->view.position + row - n + 1, width + n - 1, scratch->distances);
        if (by_distance)
            hide_distances(work, row - n + 1, width + n - 1, scratch->distances);
        if (!bytes && !work->bias.data) {
            mask.kind = MASK_BIAS;
            mask.bias = scratch->distances + n - 1;
            mask.bias_pitch = -1;
            return mask;
        }
    }
    if (work->bias.data || biased)
        mask.kind =
            stage_floats(work, scratch, strip, first, n, biased || by_distance ? scratch->distances : NULL, bytes);
    else if (!bytes && run == RUN_DIAGONAL)
        mask.kind = MASK_DIAGONAL;
    return mask;
}

#endif
