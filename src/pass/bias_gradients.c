/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of what is added to scores: sums of the gradients of scores over all
 * that share a number. What follows from the distance is first summed along the
 * diagonals of a tile: lane r and key j of n meet in place n - 1 - j + r of a row,
 * as biases by distance do (pass/mask.c).
 */
#include "pass/gradients.h"
#include "pass/pass.h"

#include <math.h>

static void add_distances(const struct pass *pass, const struct unit *unit, int64_t first, const float *ds,
                          struct attn_bias_gradients *biases)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    const int n = unit->n, rows = strip->rows, width = strip->width;
    float diagonals[ATTN_MAX_STRIP + ATTN_KEY_BLOCK] = {0};
    for (int j = 0; j < n; j++) {
        float *const at = diagonals + n - 1 - j;
        for (int r = 0; r < rows; r++)
            at[r] += ds[(ptrdiff_t)j * width + r];
    }
    const int64_t nearest = work->view.position + strip->first - (first + n - 1);
    for (int t = 0; t < n + rows - 1; t++) {
        const int64_t distance = nearest + t;
        biases->slope -= (double)diagonals[t] * (double)(distance < 0 ? -distance : distance);
        if (biases->table && diagonals[t] != 0.0f)
            biases->table[attn_distance_bucket(&work->distance_bias, distance)] += (double)diagonals[t];
    }
}

static void add_mask(const struct strip *strip, int64_t first, int n, const float *ds, const struct attn_grid *mask)
{
    float *const data = mask->data;
    for (int r = 0; r < strip->rows; r++) {
        float *const row = data + (strip->first + r) * mask->query_stride + first * mask->key_stride;
        for (int j = 0; j < n; j++)
            row[j * mask->key_stride] += ds[(ptrdiff_t)j * strip->width + r];
    }
}

void attn_add_bias_gradients(const struct pass *pass, const struct unit *unit, int64_t first, const float *ds,
                             struct attn_bias_gradients *biases)
{
    if (biases->distances)
        add_distances(pass, unit, first, ds, biases);
    if (biases->mask.data)
        add_mask(unit->strip, first, unit->n, ds, &biases->mask);
}
