/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys a strip sees, by causality, window, pattern, documents and tree.
 *
 * A block of keys is cut into runs. For each run it is known how what hides
 * keys inside it looks: not at all, a diagonal, a range of distances, or
 * anything else, which is written down as bytes. Nothing here looks at a mask
 * in memory.
 *
 * What no strip of the task sees is stepped over without being looked at block
 * by block: windows by arithmetic, patterns by bisection, documents by ranges
 * of labels. So time follows from what is seen, not from T^2.
 */
#include "pass/pass.h"

#include <assert.h>

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

int64_t attn_global_queries(const struct attn_work *work, int64_t gathered[ATTN_MAX_STRIP])
{
    const struct attn_view *view = &work->view;
    const int64_t shift = view->position + view->global_shift; /* of row 0 */
    const int64_t first = lower_bound(view->global, view->num_global, shift);
    const int64_t count = lower_bound(view->global, view->num_global, shift + work->num_queries) - first;
    for (int64_t i = 0; i < count && count <= ATTN_MAX_STRIP; i++)
        gathered[i] = view->global[first + i] - shift;
    return count;
}

/** Whether the window is lifted for some of the strip's rows. Gathered rows do not count where they came from. */
static int has_global_rows(const struct pass *pass, const struct strip *strip)
{
    const struct attn_view *view = &pass->work->view;
    if (strip->gathered)
        return 1;
    const int64_t first = view->position + token_in(view, strip, 0);
    const int64_t last = view->position + token_in(view, strip, strip->rows - 1);
    return !pass->num_gathered && any_global(view, first, last + 1);
}

struct span attn_span_at(const struct attn_work *work, int64_t first, int size)
{
    const struct attn_view *view = &work->view;
    struct span span = {.first = first, .size = size, .first_global = 0, .last_global = -1};
    if (any_global(view, first, first + size)) {
        const int64_t at = lower_bound(view->global, view->num_global, first + view->global_shift);
        const int64_t end = lower_bound(view->global, view->num_global, first + size + view->global_shift);
        span.first_global = view->global[at] - view->global_shift;
        span.last_global = view->global[end - 1] - view->global_shift;
    }
    if (view->k_labels) { /* of the backward pass, keys of a task begin and end within blocks, too */
        const struct attn_label_range *range = &view->label_levels[0][first / view->label_block];
        const struct attn_label_range *const last = &view->label_levels[0][(first + size - 1) / view->label_block];
        span.first_label = range->smallest;
        span.last_label = range->largest;
        while (range < last) {
            range++;
            span.first_label = range->smallest < span.first_label ? range->smallest : span.first_label;
            span.last_label = range->largest > span.last_label ? range->largest : span.last_label;
        }
    }
    return span;
}

/** The first key at or behind key that lies in a column of block row row_block, and the end of the columns that follow
 * without a gap; end at the latest. Both are end if there is none. */
static void listed_keys(const struct attn_view *view, int64_t row_block, int64_t key, int64_t end, int64_t *lo,
                        int64_t *hi)
{
    const int32_t *columns = view->pattern_columns;
    const int64_t size = view->pattern_size, shift = view->pattern_shift;
    int64_t at = view->pattern_offsets[row_block], stop = view->pattern_offsets[row_block + 1];
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

void attn_next_listed(const struct attn_work *work, const struct strip *strip, int64_t from, int64_t *lo, int64_t *hi)
{
    listed_keys(&work->view, (work->view.pattern_row + strip->first) / work->view.pattern_size, from, work->num_keys,
                lo, hi);
}

/**
 * Narrows lo..hi to what the pattern lists for a strip, which lies in one row of blocks (attn_geometry_of()): the next
 * columns without a gap or, where their borders are none that a run may have, everything from the first to the last.
 * Returns whether some of that is not listed.
 */
static int narrow_to_pattern(const struct pass *pass, const struct strip *strip, int64_t *lo, int64_t *hi)
{
    const struct attn_work *work = pass->work;
    const struct attn_view *view = &work->view;
    const int64_t row = (view->pattern_row + strip->first) / view->pattern_size, end = *hi;
    assert(row == (view->pattern_row + strip->first + strip->rows - 1) / view->pattern_size);
    listed_keys(view, row, *lo, end, lo, hi);
    if (view->pattern_shift % pass->run_step == 0 && view->pattern_size % pass->run_step == 0)
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
static int narrow_to_window(const struct pass *pass, const struct strip *strip, const struct span *span, int64_t row,
                            int64_t last, int64_t *lo, int64_t *hi)
{
    const struct attn_view *view = &pass->work->view;
    const int64_t from = *lo, end = *hi;
    if (has_global_rows(pass, strip))
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

int attn_next_run(const struct pass *pass, const struct strip *strip, const struct span *span, int from,
                  struct run *run)
{
    const struct attn_work *work = pass->work;
    const struct attn_view *view = &work->view;
    const int64_t row = token_in(view, strip, 0), last = token_in(view, strip, strip->rows - 1);
    int64_t lo = span->first + from, hi = span->first + span->size;
    int mixed = 0;
    if (view->k_labels) {
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
    const int lifted = has_window(view) && narrow_to_window(pass, strip, span, row, last, &lo, &hi);
    if (lo >= hi)
        return 0;
    if (view->pattern_size) {
        mixed |= narrow_to_pattern(pass, strip, &lo, &hi);
        if (lo >= hi)
            return 0;
    }
    const int64_t start = span->first + (lo - span->first) / pass->run_step * pass->run_step;
    mixed |= view->pattern_size && start != lo;
    lo = start;
    mixed |= view->tree && hi > view->tree_first;
    const int hides_causal = row + view->diagonal < hi - 1;
    const int hides_window =
        has_window(view) && !strip->gathered && (last + view->window_first > lo || row + view->window_last < hi - 1);
    mixed |= view->heads > 1 && (hides_causal || hides_window); /* lanes are no distances */
    mixed |= (prefix && hides_causal) || (lifted && hides_window) || (strip->gathered && hides_causal);
    run->kind = mixed ? RUN_MIXED : hides_window ? RUN_DISTANCE : hides_causal ? RUN_DIAGONAL : RUN_WHOLE;
    run->lo = (int)(lo - span->first);
    run->hi = (int)(hi - span->first);
    return 1;
}

/** Whether labels of a range may be among those of a strip. */
static int may_meet(const struct attn_label_range *range, const struct strip *strip)
{
    return range->smallest <= strip->last_label && range->largest >= strip->first_label;
}

/** Number of the first block, from number block on, that may hold a label of the strip; end at the latest. */
static int64_t next_labelled(const struct attn_view *view, const struct strip *strip, int64_t block, int64_t end)
{
    int level = 0;
    while (block < end) {
        if (may_meet(&view->label_levels[level][block >> (3 * level)], strip)) {
            if (level == 0)
                return block;
            level--;
            continue;
        }
        const int64_t next = (block >> (3 * level)) + 1; /* of this level */
        block = next << (3 * level);
        if (next % 8 == 0 && view->label_levels[level + 1])
            level++;
    }
    return end;
}

/** The token of the last row. */
static int64_t last_token(const struct attn_work *work)
{
    return token_of(&work->view, work->num_queries - 1);
}

/** The first block from first on with a key of the window of some row, a first token or a global one. */
static int64_t next_in_window(const struct attn_work *work, int64_t first, int64_t size)
{
    const struct attn_view *view = &work->view;
    int64_t key = view->window_first > first ? view->window_first : first;
    if (key > last_token(work) + view->window_last)
        key = work->num_keys;
    if (first < view->first_tokens)
        return first;
    const int64_t at = lower_bound(view->global, view->num_global, first + view->global_shift);
    if (at < view->num_global && view->global[at] - view->global_shift < key)
        key = view->global[at] - view->global_shift;
    return key < work->num_keys ? key / size * size : work->num_keys;
}

int64_t attn_next_block(const struct pass *pass, const struct strip *strips, int64_t num_strips, int64_t first)
{
    const struct attn_work *work = pass->work;
    const struct attn_view *view = &work->view;
    const int64_t size = pass->scratch.key_block, keys = work->num_keys;
    assert(first % size == 0 || first >= keys); /* else it might lead back */
    if (has_window(view)) {
        int lifted = 0;
        for (int64_t i = 0; i < num_strips; i++)
            lifted |= has_global_rows(pass, &strips[i]);
        if (!lifted)
            first = next_in_window(work, first, size);
    }
    if (view->k_labels && first < keys) {
        const int64_t blocks = (keys + size - 1) / size;
        int64_t next = blocks;
        for (int64_t i = 0; i < num_strips; i++)
            next = next_labelled(view, &strips[i], first / size, next);
        first = next * size;
    }
    if (view->pattern_size && first < keys) {
        int64_t next = keys;
        for (int64_t i = 0; i < num_strips; i++) {
            int64_t lo, hi;
            listed_keys(view, (view->pattern_row + strips[i].first) / view->pattern_size, first, next, &lo, &hi);
            next = lo;
        }
        first = next == keys ? keys : next / size * size;
    }
    return first;
}

int64_t attn_visible_end(const struct attn_work *work)
{
    const struct attn_view *view = &work->view;
    const int64_t last = last_token(work), seen = last + view->diagonal + 1;
    const int64_t causal = seen > view->prefix ? seen : view->prefix;
    int64_t end = causal < work->num_keys ? causal : work->num_keys;
    const int64_t window = last + view->window_last + 1;
    if (view->num_global == 0 && window < end)
        end = window > view->first_tokens ? window : view->first_tokens < end ? view->first_tokens : end;
    return end < 0 ? 0 : end;
}

/** Clears lanes from..to-1 of a row, as far as it has them. */
static void hide_lanes(uint8_t *live, int64_t from, int64_t to, int width)
{
    from = from < 0 ? 0 : from;
    to = to > width ? width : to;
    if (from < to)
        memset(live + from, 0, (size_t)(to - from));
}

/** The first lane of a strip whose token is that one or a later one, as if it had a lane for every row there is. */
static int64_t lane_of(const struct attn_view *view, const struct strip *strip, int64_t token)
{
    if (view->heads == 1)
        return token - strip->first;
    const int64_t first = token_in(view, strip, 0), end = first + strip->width; /* none further on has a lane */
    token = token < first ? first : token > end ? end : token;
    return token * view->heads - strip->first;
}

/** The window's part of a row of bytes, for key j; lanes that hold global queries (NULL: none does) see it anyway. */
static void hide_by_window(const struct attn_view *view, const struct strip *strip, int64_t j,
                           const uint8_t *global_rows, uint8_t *live)
{
    const int width = strip->width;
    uint8_t before[ATTN_MAX_STRIP];
    if (j < view->first_tokens || any_global(view, j, j + 1))
        return;
    if (global_rows)
        memcpy(before, live, (size_t)width);
    hide_lanes(live, lane_of(view, strip, j - view->window_first + 1), width, width);
    hide_lanes(live, 0, lane_of(view, strip, j - view->window_last), width);
    for (int r = 0; global_rows && r < width; r++)
        live[r] |= before[r] & global_rows[r];
}

void attn_hide_by_rules(const struct pass *pass, const struct strip *strip, int64_t first, int n, uint8_t *live,
                        ptrdiff_t pitch)
{
    const struct attn_view *view = &pass->work->view;
    const int width = strip->width, window = has_window(view) && !strip->gathered;
    uint8_t global_rows[ATTN_MAX_STRIP];
    const int any_global_row = window && has_global_rows(pass, strip);
    for (int r = 0; any_global_row && r < width; r++) {
        const int64_t position = view->position + token_in(view, strip, r);
        global_rows[r] = (uint8_t)-any_global(view, position, position + 1);
    }
    for (int64_t j = first; j < first + n; j++, live += pitch) {
        if (j >= view->prefix && !strip->gathered)
            hide_lanes(live, 0, lane_of(view, strip, j - view->diagonal), width);
        for (int r = 0; j >= view->prefix && strip->gathered && r < strip->rows; r++)
            live[r] &= (uint8_t) - (j <= strip->gathered[r] + view->diagonal);
        if (window)
            hide_by_window(view, strip, j, any_global_row ? global_rows : NULL, live);
        if (view->pattern_size) {
            int64_t lo, hi;
            listed_keys(view, (view->pattern_row + strip->first) / view->pattern_size, j, j + 1, &lo, &hi);
            if (lo == hi)
                memset(live, 0, (size_t)width);
        }
        for (int r = 0; view->k_labels && r < strip->rows; r++)
            live[r] &= (uint8_t) - (view->q_labels[token_in(view, strip, r)] == view->k_labels[j]);
        if (view->tree && j >= view->tree_first) {
            const int64_t bit = j - view->tree_first;
            for (int r = 0; r < strip->rows; r++)
                if (!(view->tree[token_in(view, strip, r) * view->tree_words + bit / 64] >> (bit % 64) & 1))
                    live[r] = 0;
        }
    }
}
