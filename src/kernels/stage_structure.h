/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What causality, window, pattern, segments and tree hide in one tile, as
 * bytes in lane order: for runs of the kind RUN_MIXED, and for tiles that have
 * other bytes already.
 */
#ifndef ATTN_STAGE_STRUCTURE_H
#define ATTN_STAGE_STRUCTURE_H

#include <string.h>

/** Clears lanes from..to-1 of a row, as far as it has them. */
static void hide_lanes(uint8_t *live, int64_t from, int64_t to, int width)
{
    from = from < 0 ? 0 : from;
    to = to > width ? width : to;
    if (from < to)
        memset(live + from, 0, (size_t)(to - from));
}

/** The window's part of a row of bytes, for key j; lanes that hold global queries (NULL: none does) see it anyway. */
static void hide_by_window(const struct attn_view *view, int64_t row, int64_t j, const uint8_t *global_rows, int width,
                           uint8_t *live)
{
    uint8_t before[STRIP];
    if (j < view->first_tokens || any_global(view, j, j + 1))
        return;
    if (global_rows)
        memcpy(before, live, (size_t)width);
    hide_lanes(live, j - view->window_first - row + 1, width, width);
    hide_lanes(live, 0, j - view->window_last - row, width);
    for (int r = 0; global_rows && r < width; r++)
        live[r] |= before[r] & global_rows[r];
}

/**
 * Clears the bytes of what a strip does not see of n keys from first on. Rows
 * behind the strip's last keep theirs or lose them; nobody looks.
 */
static void stage_structure(const struct attn_work *work, const struct strip *strip, int64_t first, int n,
                            uint8_t *live)
{
    const struct attn_view *view = &work->view;
    const int64_t position = view->position + strip->first;
    const int width = strip->nv * VF_LEN;
    const int window = has_window(view);
    uint8_t global_rows[STRIP];
    const int any_global_row = window && any_global(view, position, position + strip->rows);
    for (int r = 0; any_global_row && r < width; r++)
        global_rows[r] = (uint8_t)-any_global(view, position + r, position + r + 1);
    for (int64_t j = first; j < first + n; j++, live += LIVE_PITCH) {
        if (j >= view->prefix)
            hide_lanes(live, 0, j - view->diagonal - strip->first, width);
        if (window)
            hide_by_window(view, strip->first, j, any_global_row ? global_rows : NULL, width, live);
        if (view->block_size) {
            int64_t lo, hi;
            listed_keys(view, (view->block_row + strip->first) / view->block_size, j, j + 1, &lo, &hi);
            if (lo == hi)
                memset(live, 0, (size_t)width);
        }
        for (int r = 0; view->k_segments && r < strip->rows; r++)
            live[r] &= (uint8_t) - (view->q_segments[strip->first + r] == view->k_segments[j]);
        if (view->tree && j >= view->tree_first) {
            const int64_t bit = j - view->tree_first;
            for (int r = 0; r < strip->rows; r++)
                if (!(view->tree[(strip->first + r) * view->tree_words + bit / 64] >> (bit % 64) & 1))
                    live[r] = 0;
        }
    }
}

/** Whether some of the rows sees some of n keys. */
static int any_live(const uint8_t *live, int rows, int n)
{
    for (int j = 0; j < n; j++, live += LIVE_PITCH)
        for (int r = 0; r < rows; r++)
            if (live[r])
                return 1;
    return 0;
}

#endif
