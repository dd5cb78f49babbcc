/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over the tokens of a sequence.
 *
 *     S = state_in, or 0                                 panels, in scratch memory
 *     for each chunk, from the first token and each reset on
 *         at a reset S = 0
 *         ATTN_FEW_TOKENS or fewer                       steps (state_steps.c)
 *         else                                           products of matrices (chunk.c)
 *     state_out = S
 *
 * A call of a few tokens goes from state_in to state_out at once: that is
 * decoding, whose time is that of reading and writing S. Where tokens read what
 * all tokens write, the chunks up to a reset are gone through twice.
 *
 * Gradients want the same walk from the last token to the first
 * (driver/linear_backward.h), over the same chunks.
 */
#include "pass/states.h"

#include <string.h>

static float *take(char **at, int64_t floats)
{
    float *taken = (float *)(void *)*at;
    *at += attn_aligned((size_t)floats * sizeof(float));
    return taken;
}

size_t attn_state_layout(struct attn_state_scratch *scratch, char *base, const struct attn_state_shape *shape)
{
    const int64_t dk = shape->dk, lanes = shape->lanes, heads = shape->heads, chunk = ATTN_CHUNK,
                  few = shape->chunks_only ? 0 : ATTN_FEW_TOKENS;
    const int64_t columns = attn_in_steps(shape->columns, shape->lanes), pitch = attn_state_pitch(shape);
    const int64_t outputs = heads * few * columns > chunk * shape->panel ? heads * few * columns : chunk * shape->panel;
    const int64_t queries = heads * few > chunk ? heads * few : chunk;
    const int positive = shape->map == ATTN_FEATURES_POSITIVE;
    char *at = base;
    scratch->s = take(&at, dk * columns);
    scratch->u = take(&at, chunk * columns);
    scratch->o = take(&at, outputs);
    scratch->q = take(&at, queries * pitch);
    scratch->heads = (const float **)(void *)take(&at, 2 * heads); /* a pointer is up to two floats */
    scratch->k = take(&at, chunk * pitch);
    scratch->kt = take(&at, dk * chunk);
    scratch->scores = take(&at, chunk * chunk);
    scratch->keys = take(&at, shape->corrects ? chunk * chunk : 0);
    scratch->beta = take(&at, chunk + lanes); /* numbers are written in whole vectors, one after the other */
    scratch->decay = take(&at, shape->rows ? chunk * dk + lanes : chunk + lanes);
    scratch->within = take(&at, shape->rows ? 0 : chunk * chunk);
    scratch->since = take(&at, chunk);
    scratch->until = take(&at, chunk);
    scratch->faded = take(&at, shape->rows ? chunk * dk : few * dk + lanes);
    scratch->turned = take(&at, shape->rows ? dk * chunk / 2 : 0);
    scratch->near = take(&at, shape->rows ? lanes * lanes * lanes : 0);
    scratch->whole = take(&at, shape->rows ? dk : shape->fades_columns ? shape->panel : 0);
    scratch->inputs = take(&at, positive ? chunk * shape->inputs + lanes : 0);
    scratch->projection = take(&at, positive ? shape->inputs * pitch : 0);
    scratch->half = take(&at, positive ? chunk : 0);
    float **const of_columns[] = {&scratch->fades, &scratch->part, &scratch->room, &scratch->partner};
    for (size_t i = 0; i < sizeof of_columns / sizeof *of_columns; i++)
        *of_columns[i] = take(&at, shape->fades_columns ? chunk * shape->panel + lanes : 0);
    return (size_t)(at - base);
}

/* ------------------------------------------------------------- S in panels -- */

/** Panel i of S, and its columns. */
struct panel {
    float *s;
    int64_t start, width;
    int64_t values; /**< columns of v among them */
    int sums;       /**< whether the sum of keys is, behind them */
};

static struct panel panel_of(const struct attn_state_work *w, int64_t i)
{
    const int64_t start = attn_panel_start(w->shape, w->columns, i);
    const int64_t width = attn_panel_start(w->shape, w->columns, i + 1) - start;
    const int64_t left = w->values > start ? w->values - start : 0;
    return (struct panel){w->scratch->s + w->shape->dk * start, start, width, left < width ? left : width,
                          w->columns > w->values && w->columns - 1 >= start && w->columns - 1 < start + width};
}

static void load_state(const struct attn_state_work *w)
{
    for (int64_t i = 0; i < attn_state_panels(w->shape, w->columns); i++) {
        const struct panel p = panel_of(w, i);
        for (int64_t c = 0; c < w->shape->dk; c++) {
            float *const row = p.s + c * p.width;
            const float *const from = w->state_in + c * w->in_pitch + p.start * w->in_column;
            if (w->in_column == 1)
                memcpy(row, from, (size_t)p.values * sizeof(float));
            for (int64_t at = 0; at < p.values && w->in_column != 1; at++)
                row[at] = from[at * w->in_column];
            memset(row + p.values, 0, (size_t)(p.width - p.values) * sizeof(float));
            if (p.sums)
                row[w->columns - 1 - p.start] = w->sum_in[c * w->in_pitch];
        }
    }
}

static void store_state(const struct attn_state_work *w)
{
    for (int64_t i = 0; i < attn_state_panels(w->shape, w->columns); i++) {
        const struct panel p = panel_of(w, i);
        for (int64_t c = 0; c < w->shape->dk; c++) {
            const float *const row = p.s + c * p.width;
            float *const to = w->state_out + c * w->out_pitch + p.start;
            if (!w->adds_state)
                memcpy(to, row, (size_t)p.values * sizeof(float));
            for (int64_t at = 0; at < p.values && w->adds_state; at++)
                to[at] += row[at];
            if (p.sums && w->sum_out)
                w->sum_out[c * w->sum_pitch] = row[w->columns - 1 - p.start];
        }
    }
}

static void clear_state(const struct attn_state_work *w)
{
    const int64_t columns = attn_in_steps(w->columns, w->shape->lanes);
    memset(w->scratch->s, 0, (size_t)(w->shape->dk * columns) * sizeof(float));
}

/* -------------------------------------------------------------------- walk -- */

static int is_reset(const struct attn_state_work *w, int64_t token)
{
    return w->resets && w->resets[token * w->resets_stride];
}

/** Tokens from first on that are a chunk. */
static int chunk_from(const struct attn_state_work *w, int64_t first)
{
    int64_t n = 1;
    while (n < ATTN_CHUNK && first + n < w->tokens && !is_reset(w, first + n))
        n++;
    return (int)n;
}

/** Tokens of a document: what they write, then what they read. Returns the token behind it. */
static int64_t go_both_ways(const struct attn_state_work *w, int64_t first)
{
    int64_t end = first;
    for (int n; end < w->tokens && (end == first || !is_reset(w, end)); end += n) {
        n = chunk_from(w, end);
        attn_state_write_chunk(w, end, n);
    }
    for (int64_t at = first, n; at < end; at += n) {
        n = chunk_from(w, at);
        attn_state_read_chunk(w, at, (int)n);
    }
    return end;
}

static void go_through(const struct attn_state_work *w, int64_t first, int n)
{
    if (n <= ATTN_FEW_TOKENS && !w->shape->chunks_only)
        attn_state_step(w, first, n);
    else if (w->shape->fades_columns)
        attn_state_columns_chunk(w, first, n);
    else
        attn_state_chunk(w, first, n);
}

/** The next chunk. Returns the token behind it. */
static int64_t go_on(const struct attn_state_work *w, int64_t first)
{
    const int n = chunk_from(w, first);
    go_through(w, first, n);
    return first + n;
}

static void go_forth(const struct attn_state_work *w)
{
    for (int64_t first = 0; first < w->tokens;) {
        if (is_reset(w, first))
            clear_state(w);
        first = w->shape->bidirectional ? go_both_ways(w, first) : go_on(w, first);
    }
}

/* --------------------------------------------------------------- backwards -- */

/** The chunk that ends before token end of the document that begins at first, of which it is the last: the same as on
 * the way there. */
static int chunk_to(int64_t first, int64_t end)
{
    return (int)((end - 1 - first) % ATTN_CHUNK) + 1;
}

/** Tokens first..end-1, a document. The walk counts from the last token of all. */
static void go_back_through(const struct attn_state_work *w, int64_t first, int64_t end)
{
    for (int64_t at = end, n; at > first; at -= n) {
        n = chunk_to(first, at);
        if (w->shape->bidirectional)
            attn_state_write_chunk(w, w->tokens - at, (int)n);
        else
            go_through(w, w->tokens - at, (int)n);
    }
    for (int64_t at = end, n; at > first && w->shape->bidirectional; at -= n) {
        n = chunk_to(first, at);
        attn_state_read_chunk(w, w->tokens - at, (int)n);
    }
}

/** S fades by the decay of the first token, which the walk back has passed last. */
static void fade_before_first(const struct attn_state_work *w)
{
    const int64_t panels = attn_state_panels(w->shape, w->columns), dk = w->shape->dk;
    if (!w->decay.data || w->tokens == 0 || w->shape->fades_columns)
        return;
    /* As of the token behind the last one of the walk. */
    attn_state_take_decays(w, w->tokens, 1);
    for (int64_t i = 0; i < panels; i++) {
        const struct panel p = panel_of(w, i);
        for (int64_t c = 0; c < dk; c++)
            for (int64_t at = 0; at < p.width; at++)
                p.s[c * p.width + at] *= w->scratch->decay[w->shape->rows ? c : 0];
    }
}

static void go_back(const struct attn_state_work *w)
{
    for (int64_t end = w->tokens, first; end > 0; end = first) {
        for (first = end - 1; first > 0 && !is_reset(w, first);)
            first--;
        go_back_through(w, first, end);
        if (is_reset(w, first))
            clear_state(w);
    }
    fade_before_first(w);
}

int attn_state_chunk_is_reset(const struct attn_state_work *w, int64_t first, int n)
{
    return is_reset(w, w->backwards ? w->tokens - first - n : first);
}

void attn_state_pass(const struct attn_state_work *w)
{
    const int may_step = !w->shape->chunks_only && !w->shape->bidirectional;
    const int few = w->tokens > 0 && w->tokens <= ATTN_FEW_TOKENS && chunk_from(w, 0) == w->tokens;
    attn_state_begin_features(w);
    if (few && !is_reset(w, 0) && may_step && attn_state_lies_together(w)) {
        if (!w->state_in)
            clear_state(w);
        attn_state_step_through(w);
        return;
    }
    if (w->state_in)
        load_state(w);
    else
        clear_state(w);
    if (w->backwards)
        go_back(w);
    else
        go_forth(w);
    if (w->state_out)
        store_state(w);
}
