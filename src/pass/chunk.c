/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of linear attention, whose formulas kernels/state_chunk.h has:
 *
 *     keys, turned; decays and their products
 *     with beta  scores of keys with keys; for each panel  u = the solution
 *     for each head of queries  scores of queries with keys; for each panel  o
 *     for each panel  S
 *
 * With a decay for each row of S a pair of tokens has another one for each channel.
 * It is split at a token between the two: q fades from there on, k up to there, and
 * both factors are products of decays (Yang et al. 2024, section 4.3, whose second
 * level of chunks is the first of these halves). So for halves, quarters, ... of a chunk
 * the later tokens meet the earlier ones as in a product without decays, down to as
 * many neighbours as there are lanes, where every pair is computed by itself.
 */
#include "pass/states.h"

/** A chunk under way. */
struct chunk {
    const struct attn_state_work *work;
    const struct attn_state_kernels *states;
    const struct attn_state_scratch *scratch;
    int64_t first, dk;
    int n;
    struct attn_floats k; /**< its keys */
};

static struct attn_rows rows_of(const struct chunk *c, const struct attn_rows *rows)
{
    return attn_rows_from(rows, c->first);
}

void attn_state_turn(const struct attn_state_work *w, float *dst, ptrdiff_t pitch, const struct attn_floats *x, int n)
{
    const char *at[ATTN_CHUNK];
    for (int i = 0; i < n; i++)
        at[i] = (const char *)(x->rows + i * x->pitch);
    w->kernels->vectors->read_rows(dst, pitch, (int)attn_in_steps(n, w->shape->lanes), at, ATTN_F32, n, w->shape->dk,
                                   1.0f);
}

/** Decays, beta and v of the chunk, and its keys both ways. */
static void take_chunk(struct chunk *c)
{
    const struct attn_state_work *w = c->work;
    const struct attn_state_scratch *scratch = c->scratch;
    const struct attn_rows k = rows_of(c, &w->k), v = rows_of(c, &w->v);
    const int64_t panels = attn_state_panels(w->shape, w->columns);
    c->k = attn_state_floats(w, &k, c->n, 1, scratch->k);
    attn_state_turn(w, scratch->kt, ATTN_CHUNK, &c->k, c->n);
    for (int64_t i = 0; i < panels; i++) {
        const int64_t start = attn_panel_start(w->shape, w->columns, i);
        const int64_t width = attn_panel_start(w->shape, w->columns, i + 1) - start;
        attn_state_values(w, &v, c->n, start, width, scratch->u + ATTN_CHUNK * start);
    }
    if (w->beta.data) {
        const struct attn_rows beta = rows_of(c, &w->beta);
        c->states->take_rows(scratch->beta, 1, &beta, c->n, 1, 1.0f);
    }
    if (!w->decay.data)
        return;
    attn_state_take_decays(w, c->first, c->n);
    if (w->shape->rows)
        return;
    float product = 1.0f;
    for (int i = 0; i < c->n; i++)
        scratch->since[i] = product *= scratch->decay[i];
    product = 1.0f;
    for (int i = c->n - 1; i >= 0; i--) {
        scratch->until[i] = product;
        product *= scratch->decay[i];
    }
    for (int i = c->n; i < ATTN_CHUNK; i++)
        scratch->until[i] = 0.0f;
    c->states->within(scratch->within, scratch->decay, c->n);
}

/* ------------------------------------------------------------------ scores -- */

/** Rows of the chunk, and where their scores go. */
struct left {
    struct attn_floats a;
    float *to;
};

/** Scores of n tokens from first on with those before them among the same, halves first. */
static void split_scores(const struct chunk *c, const struct left *x, int first, int n)
{
    const struct attn_state_scratch *scratch = c->scratch;
    const int64_t dk = c->dk;
    const int lanes = c->states->lanes;
    if (n <= lanes) {
        const struct attn_near_scores near = {.n = n,
                                              .dk = dk,
                                              .a = x->a.rows + first * x->a.pitch,
                                              .a_pitch = x->a.pitch,
                                              .k = c->k.rows + first * c->k.pitch,
                                              .k_pitch = c->k.pitch,
                                              .decay = scratch->decay + first * dk,
                                              .parts = scratch->near,
                                              .to = x->to + first * ATTN_CHUNK + first};
        c->states->near_scores(&near);
        return;
    }
    int half = lanes;
    while (2 * half < n)
        half *= 2;
    const int later = n - half, middle = first + half;
    const struct attn_floats faded = {scratch->faded, (ptrdiff_t)dk};
    /* The later ones fade from the middle on, the earlier ones up to there. */
    c->states->decay_until(scratch->faded, c->k.rows + first * c->k.pitch, c->k.pitch, scratch->decay + first * dk,
                           half, dk, NULL);
    attn_state_turn(c->work, scratch->turned, half, &faded, half);
    c->states->decay_since(scratch->faded, x->a.rows + middle * x->a.pitch, x->a.pitch, scratch->decay + middle * dk,
                           later, dk);
    const struct attn_chunk_scores scores = {.n = later,
                                             .keys = half,
                                             .dk = dk,
                                             .a = faded.rows,
                                             .a_pitch = faded.pitch,
                                             .kt = scratch->turned,
                                             .kt_pitch = half,
                                             .to = x->to + middle * ATTN_CHUNK + first,
                                             .to_pitch = ATTN_CHUNK};
    c->states->scores(&scores);
    split_scores(c, x, first, half);
    split_scores(c, x, middle, later);
}

/** Scores of rows with the keys up to their own. */
static void score(const struct chunk *c, const struct left *x)
{
    if (c->work->shape->rows) {
        split_scores(c, x, 0, c->n);
        return;
    }
    const struct attn_chunk_scores scores = {.n = c->n,
                                             .dk = c->dk,
                                             .a = x->a.rows,
                                             .a_pitch = x->a.pitch,
                                             .kt = c->scratch->kt,
                                             .kt_pitch = ATTN_CHUNK,
                                             .within = c->work->shape->decays ? c->scratch->within : NULL,
                                             .to = x->to,
                                             .to_pitch = ATTN_CHUNK};
    c->states->scores(&scores);
}

/* ------------------------------------------------------------------ panels -- */

/** Rows as S before the chunk meets them: with decays of rows they are another array. */
static struct attn_floats fade(const struct chunk *c, const struct attn_floats *x)
{
    if (!c->work->shape->rows)
        return *x;
    c->states->decay_since(c->scratch->faded, x->rows, x->pitch, c->scratch->decay, c->n, c->dk);
    return (struct attn_floats){c->scratch->faded, (ptrdiff_t)c->dk};
}

/** Panel number i of S and u, and the column at which it begins. */
static struct attn_chunk_panel panel_of(const struct chunk *c, int64_t i, int64_t *start)
{
    const struct attn_state_work *w = c->work;
    const int64_t from = attn_panel_start(w->shape, w->columns, i);
    *start = from;
    return (struct attn_chunk_panel){
        .n = c->n,
        .width = (int)(attn_panel_start(w->shape, w->columns, i + 1) - from),
        .dk = c->dk,
        .factor = w->shape->decays && !w->shape->rows ? c->scratch->since : NULL,
        .u = c->scratch->u + ATTN_CHUNK * from,
        .s = c->scratch->s + c->dk * from,
    };
}

/** Rows of the next chunk, as many as it may have. */
static struct attn_ahead next_of(const struct chunk *c, const struct attn_rows *rows, int64_t width)
{
    const int64_t first = c->first + c->n, left = c->work->tokens - first;
    if (!rows->data || width == 0)
        return (struct attn_ahead){.n = 0};
    return (struct attn_ahead){
        .rows = attn_rows_from(rows, first), .n = (int)(left < ATTN_CHUNK ? left : ATTN_CHUNK), .width = width};
}

/** What tokens write with beta: u from the values. */
static void solve(const struct chunk *c)
{
    const int64_t panels = attn_state_panels(c->work->shape, c->work->columns);
    int64_t start;
    score(c, &(struct left){c->k, c->scratch->keys});
    const struct attn_floats a = fade(c, &c->k);
    for (int64_t i = 0; i < panels; i++) {
        struct attn_chunk_panel panel = panel_of(c, i, &start);
        panel.a = a.rows;
        panel.a_pitch = a.pitch;
        panel.scores = c->scratch->keys;
        panel.beta = c->scratch->beta;
        c->states->solve(&panel);
    }
}

/** Rows of out that will be written. */
static struct attn_ahead out_of(const struct chunk *c, int head, int64_t start, int64_t width)
{
    const struct attn_state_work *w = c->work;
    if (w->results <= start)
        return (struct attn_ahead){.n = 0};
    struct attn_ahead ahead = {.rows = rows_of(c, &w->out), .n = c->n, .written = 1};
    ahead.rows.data = (char *)ahead.rows.data + head * w->out_head + start * attn_element_size(w->out.dtype);
    ahead.width = w->results - start < width ? w->results - start : width;
    return ahead;
}

/** What a head of queries reads: of S, and of the tokens up to its own unless all of them have written. */
static void read(const struct chunk *c, int head)
{
    const struct attn_state_work *w = c->work;
    const int64_t panels = attn_state_panels(w->shape, w->columns);
    struct attn_rows all = w->q;
    all.data = (char *)all.data + head * w->q_head;
    const struct attn_rows q = rows_of(c, &all);
    const struct attn_floats rows = attn_state_floats(w, &q, c->n, 0, c->scratch->q);
    const int all_written = w->shape->bidirectional;
    if (!all_written)
        score(c, &(struct left){rows, c->scratch->scores});
    const struct attn_floats a = fade(c, &rows);
    float sums[ATTN_CHUNK];
    for (int64_t i = panels - 1; i >= 0; i--) { /* the sum of keys is the last column of all */
        int64_t start;
        struct attn_chunk_panel panel = panel_of(c, i, &start);
        panel.a = a.rows;
        panel.a_pitch = a.pitch;
        panel.scores = all_written ? NULL : c->scratch->scores;
        panel.o = c->scratch->o;
        panel.ahead[0] = out_of(c, head, start, panel.width);
        if (i == 0) {
            panel.ahead[1] = next_of(c, &all, w->shape->inputs);
            panel.ahead[2] = next_of(c, &w->decay, w->shape->rows && head == 0 ? c->dk : 0);
        }
        c->states->read(&panel);
        attn_state_write_out(w, head, c->first, c->n, start, panel.width, panel.o, sums);
    }
}

/** S behind the chunk. */
static void write(const struct chunk *c)
{
    const struct attn_state_work *w = c->work;
    const struct attn_state_scratch *scratch = c->scratch;
    const int64_t panels = attn_state_panels(w->shape, w->columns);
    struct attn_chunk_decays decay = {0};
    if (w->shape->rows) {
        const struct attn_floats faded = {scratch->faded, (ptrdiff_t)c->dk};
        c->states->decay_until(scratch->faded, c->k.rows, c->k.pitch, scratch->decay, c->n, c->dk, scratch->whole);
        attn_state_turn(w, scratch->kt, ATTN_CHUNK, &faded, c->n);
        decay = (struct attn_chunk_decays){scratch->whole, 1};
    } else if (w->shape->decays) {
        c->states->scale_keys(scratch->kt, c->dk, scratch->until, c->n);
        decay = (struct attn_chunk_decays){&scratch->since[c->n - 1], 0};
    }
    for (int64_t i = 0; i < panels; i++) {
        int64_t start;
        struct attn_chunk_panel panel = panel_of(c, i, &start);
        panel.kt = scratch->kt;
        panel.decay = decay;
        if (i == 0) {
            panel.ahead[0] = next_of(c, &w->k, w->shape->inputs);
            panel.ahead[1] = next_of(c, &w->v, w->values);
        }
        c->states->write(&panel);
    }
}

static struct chunk chunk_of(const struct attn_state_work *w, int64_t first, int n)
{
    return (struct chunk){w, w->kernels->states, w->scratch, first, w->shape->dk, n, {NULL, 0}};
}

void attn_state_write_chunk(const struct attn_state_work *w, int64_t first, int n)
{
    struct chunk chunk = chunk_of(w, first, n);
    take_chunk(&chunk);
    write(&chunk);
}

void attn_state_read_chunk(const struct attn_state_work *w, int64_t first, int n)
{
    const struct chunk chunk = chunk_of(w, first, n);
    for (int head = 0; head < w->shape->heads; head++)
        read(&chunk, head);
}

void attn_state_chunk(const struct attn_state_work *w, int64_t first, int n)
{
    struct chunk chunk = chunk_of(w, first, n);
    take_chunk(&chunk);
    if (w->beta.data)
        solve(&chunk);
    for (int head = 0; head < w->shape->heads; head++)
        read(&chunk, head);
    write(&chunk);
}
