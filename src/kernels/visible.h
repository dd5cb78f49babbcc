/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys a strip sees, by causality, window, pattern, segments and tree.
 *
 * A block of keys is cut into runs: ranges of keys outside of which nothing of
 * the block is visible to the strip. For each run it is known how what hides
 * keys inside it looks: not at all, a diagonal, a range of distances, or
 * anything else. Nothing here looks at a mask in memory.
 *
 * Runs start at multiples of RUN_STEP from the block's first key. So a lane's
 * sums have their terms in the same places whichever other rows the strip
 * holds, and keys come in whole words.
 */
#ifndef ATTN_VISIBLE_H
#define ATTN_VISIBLE_H

#include <assert.h>

#define RUN_STEP 8

enum run_kind {
    RUN_WHOLE,    /**< every row sees every key */
    RUN_DIAGONAL, /**< causality alone hides keys */
    RUN_DISTANCE, /**< rows see keys by their distance: causality and window */
    RUN_MIXED     /**< anything: stage_structure() writes it down key by key */
};

/** Keys lo..hi-1 of a block. */
struct run {
    enum run_kind kind;
    int lo, hi;
};

/** A block of keys while its runs are looked for: what is the same for all strips. */
struct span {
    int64_t first;
    int size;
    int32_t first_label, last_label;   /**< smallest and largest of its segments */
    int64_t first_global, last_global; /**< its first and last global keys; last before first: none */
};

/** Index of the first of n rising numbers that is at least x. */
static int64_t lower_bound(const int64_t *numbers, int64_t n, int64_t x)
{
    int64_t low = 0;
    while (low < n) {
        const int64_t middle = low + (n - low) / 2;
        if (numbers[middle] < x)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/** Whether some position of first..end-1, counted from key 0, is global. */
static int any_global(const struct attn_view *view, int64_t first, int64_t end)
{
    if (view->num_global == 0)
        return 0;
    const int64_t at = lower_bound(view->global, view->num_global, first + view->global_shift);
    return at < view->num_global && view->global[at] < end + view->global_shift;
}

static struct span span_at(const struct attn_work *work, int64_t first, int size)
{
    const struct attn_view *view = &work->view;
    struct span span = {.first = first, .size = size, .first_global = 0, .last_global = -1};
    if (any_global(view, first, first + size)) {
        const int64_t at = lower_bound(view->global, view->num_global, first + view->global_shift);
        const int64_t end = lower_bound(view->global, view->num_global, first + size + view->global_shift);
        span.first_global = view->global[at] - view->global_shift;
        span.last_global = view->global[end - 1] - view->global_shift;
    }
    if (view->k_segments)
        label_range(view->k_segments + first, size, &span.first_label, &span.last_label);
    return span;
}

/** The first key at or behind key that lies in a column of block row row_block, and the end of the columns that follow
 * without a gap; end at the latest. Both are end if there is none. */
static void listed_keys(const struct attn_view *view, int64_t row_block, int64_t key, int64_t end, int64_t *lo,
                        int64_t *hi)
{
    const int32_t *columns = view->block_columns;
    const int64_t size = view->block_size, shift = view->block_shift;
    int64_t at = view->block_offsets[row_block], stop = view->block_offsets[row_block + 1];
    const int64_t last = stop;
    while (at < stop) { /* the first column that ends behind key */
        const int64_t middle = at + (stop - at) / 2;
        if (((int64_t)columns[middle] + 1) * size - shift <= key)
            at = middle + 1;
        else
            stop = middle;
    }
    *lo = *hi = end;
    if (at == last || columns[at] * size - shift >= end)
        return;
    *lo = columns[at] * size - shift > key ? columns[at] * size - shift : key;
    while (at + 1 < last && columns[at + 1] == columns[at] + 1 && ((int64_t)columns[at] + 1) * size - shift < end)
        at++;
    const int64_t behind = ((int64_t)columns[at] + 1) * size - shift;
    *hi = behind < end ? behind : end;
}

/**
 * Narrows lo..hi to what the pattern lists for a strip, which lies in one row of blocks (attn_geometry_of()): the next
 * columns without a gap or, where their borders are none that a run may have, everything from the first to the last.
 * Returns whether some of that is not listed.
 */
static int narrow_to_pattern(const struct attn_work *work, const struct strip *strip, int64_t *lo, int64_t *hi)
{
    const struct attn_view *view = &work->view;
    const int64_t row = (view->block_row + strip->first) / view->block_size, end = *hi;
    assert(row == (view->block_row + strip->first + strip->rows - 1) / view->block_size);
    listed_keys(view, row, *lo, end, lo, hi);
    if (view->block_shift % RUN_STEP == 0)
        return 0;
    for (int64_t a = *lo, b = *hi; b < end;) {
        listed_keys(view, row, b, end, &a, &b);
        *hi = a < b ? b : *hi;
    }
    return 1;
}

static int has_window(const struct attn_view *view)
{
    return view->window_first > -ATTN_FAR || view->window_last < ATTN_FAR;
}

/**
 * Narrows lo..hi to what the window of rows row..last shows, with the first and the global tokens. Returns whether
 * some of that is there because the window is lifted for it.
 */
static int narrow_to_window(const struct attn_work *work, const struct span *span, int64_t row, int64_t last,
                            int64_t *lo, int64_t *hi)
{
    const struct attn_view *view = &work->view;
    const int64_t from = *lo, end = *hi;
    if (any_global(view, view->position + row, view->position + last + 1))
        return 1;
    *lo = row + view->window_first > from ? row + view->window_first : from;
    *hi = last + view->window_last + 1 < end ? last + view->window_last + 1 : end;
    int lifted = 0;
    const int64_t first_tokens = view->first_tokens < end ? view->first_tokens : end;
    const int64_t shown[2][2] = {{from, first_tokens}, {span->first_global, span->last_global + 1}};
    for (int i = 0; i < 2; i++) {
        const int64_t a = shown[i][0] > from ? shown[i][0] : from, b = shown[i][1] < end ? shown[i][1] : end;
        if (a >= b)
            continue;
        const int empty = *lo >= *hi;
        *lo = empty || a < *lo ? a : *lo;
        *hi = empty || b > *hi ? b : *hi;
        lifted = 1;
    }
    return lifted;
}

/**
 * The first run of a block at or behind key from of it. Returns 0 if there is
 * none: the strip sees no key from there on.
 */
static int next_run(const struct attn_work *work, const struct strip *strip, const struct span *span, int from,
                    struct run *run)
{
    const struct attn_view *view = &work->view;
    const int64_t row = strip->first, last = row + strip->rows - 1;
    int64_t lo = span->first + from, hi = span->first + span->size;
    int mixed = 0;
    if (view->k_segments) {
        if (span->last_label < strip->first_label || span->first_label > strip->last_label)
            return 0;
        mixed = span->first_label != span->last_label || strip->first_label != strip->last_label ||
                span->first_label != strip->first_label;
    }
    const int prefix = lo < view->prefix;
    const int64_t seen = last + view->diagonal + 1, end = prefix && view->prefix > seen ? view->prefix : seen;
    hi = end < hi ? end : hi;
    if (lo >= hi)
        return 0;
    const int lifted = has_window(view) && narrow_to_window(work, span, row, last, &lo, &hi);
    if (lo >= hi)
        return 0;
    if (view->block_size) {
        mixed |= narrow_to_pattern(work, strip, &lo, &hi);
        if (lo >= hi)
            return 0;
    }
    const int64_t start = span->first + (lo - span->first) / RUN_STEP * RUN_STEP; /* from and columns are multiples */
    mixed |= view->block_size && start != lo;
    lo = start;
    mixed |= view->tree && hi > view->tree_first;
    const int hides_causal = row + view->diagonal < hi - 1;
    const int hides_window = has_window(view) && (last + view->window_first > lo || row + view->window_last < hi - 1);
    mixed |= (prefix && hides_causal) || (lifted && hides_window);
    run->kind = mixed ? RUN_MIXED : hides_window ? RUN_DISTANCE : hides_causal ? RUN_DIAGONAL : RUN_WHOLE;
    run->lo = (int)(lo - span->first);
    run->hi = (int)(hi - span->first);
    return 1;
}

/**
 * From first, a multiple of the block size, on: the next block of keys that the
 * block of queries may see. Windows make long gaps; what is skipped here need
 * not be asked for strip by strip.
 */
static int64_t next_block(const struct attn_work *work, int64_t first, int key_block)
{
    const struct attn_view *view = &work->view;
    if (first < view->first_tokens || view->num_global > 0 || view->window_first < first + key_block)
        return first;
    return view->window_first / key_block * key_block;
}

/** The keys, counted from the first, behind which no row of the block of queries sees one. */
static int64_t visible_end(const struct attn_work *work)
{
    const struct attn_view *view = &work->view;
    const int64_t last = work->num_queries - 1, seen = last + view->diagonal + 1;
    const int64_t causal = seen > view->prefix ? seen : view->prefix;
    int64_t end = causal < work->num_keys ? causal : work->num_keys;
    const int64_t window = last + view->window_last + 1;
    if (view->num_global == 0 && window < end)
        end = window > view->first_tokens ? window : view->first_tokens < end ? view->first_tokens : end;
    return end < 0 ? 0 : end;
}

#endif
