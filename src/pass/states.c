/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over the tokens of a sequence, and those that are computed one by one.
 *
 *     S = state_in, or 0                                 panels, in scratch memory
 *     for each chunk, from the first token and each reset on
 *         at a reset S = 0
 *         ATTN_FEW_TOKENS or fewer                       steps
 *         else                                           products of matrices (chunk.c)
 *     state_out = S
 *
 * A call of a few tokens goes from state_in to state_out at once: that is
 * decoding, whose time is that of reading and writing S.
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
    const int64_t dk = shape->dk, lanes = shape->lanes, heads = shape->heads, chunk = ATTN_CHUNK, few = ATTN_FEW_TOKENS;
    const int64_t columns = attn_in_steps(shape->columns, shape->lanes);
    const int64_t outputs = heads * few * columns > chunk * shape->panel ? heads * few * columns : chunk * shape->panel;
    const int64_t queries = heads * few > chunk ? heads * few : chunk;
    char *at = base;
    scratch->s = take(&at, dk * columns);
    scratch->u = take(&at, chunk * columns);
    scratch->o = take(&at, outputs);
    scratch->q = take(&at, queries * dk + lanes); /* rows are written in whole vectors */
    scratch->heads =                              /* pointers are up to two floats */
        (const float **)(void *)take(&at, 2 * heads);
    scratch->k = take(&at, chunk * dk + lanes);
    scratch->kt = take(&at, dk * chunk);
    scratch->scores = take(&at, chunk * chunk);
    scratch->keys = take(&at, shape->corrects ? chunk * chunk : 0);
    scratch->beta = take(&at, chunk + lanes);
    scratch->decay = take(&at, shape->rows ? chunk * dk + lanes : chunk + lanes);
    scratch->within = take(&at, shape->rows ? 0 : chunk * chunk);
    scratch->since = take(&at, chunk);
    scratch->until = take(&at, chunk);
    scratch->faded = take(&at, shape->rows ? chunk * dk : few * dk + lanes);
    scratch->turned = take(&at, shape->rows ? dk * chunk / 2 : 0);
    scratch->near = take(&at, shape->rows ? lanes * lanes * lanes : 0);
    scratch->whole = take(&at, shape->rows ? dk : 0);
    return (size_t)(at - base);
}

/* ------------------------------------------------------------- S in panels -- */

/** Copies S between rows of a caller's and panels: in, or out. */
static void copy_state(const struct attn_state_work *w, const float *in, float *out)
{
    const int64_t dk = w->shape->dk, panels = attn_state_panels(w->shape, w->columns);
    for (int64_t i = 0; i < panels; i++) {
        const int64_t start = attn_panel_start(w->shape, w->columns, i);
        const int64_t width = attn_panel_start(w->shape, w->columns, i + 1) - start;
        const int64_t own = w->columns - start < width ? w->columns - start : width;
        float *const panel = w->scratch->s + dk * start;
        for (int64_t c = 0; c < dk; c++) {
            if (out)
                memcpy(out + c * w->out_pitch + start, panel + c * width, (size_t)own * sizeof(float));
            else
                memcpy(panel + c * width, in + c * w->in_pitch + start, (size_t)own * sizeof(float));
            if (!out && own < width)
                memset(panel + c * width + own, 0, (size_t)(width - own) * sizeof(float));
        }
    }
}

static void clear_state(const struct attn_state_work *w)
{
    const int64_t columns = attn_in_steps(w->columns, w->shape->lanes);
    memset(w->scratch->s, 0, (size_t)(w->shape->dk * columns) * sizeof(float));
}

/* ------------------------------------------------------------------- steps -- */

void attn_state_write_out(const struct attn_state_work *w, int head, int64_t first, int n, int64_t start, int64_t width,
                          const float *o)
{
    const float factor = w->scale;
    const int64_t columns = w->columns - start < width ? w->columns - start : width;
    char *row =
        (char *)w->out.data + head * w->out_head + first * w->out.stride + start * attn_element_size(w->out.dtype);
    for (int i = 0; i < n; i++, row += w->out.stride)
        w->kernels->vectors->write_few(&row, w->out.dtype, o + i * width, 1, columns, &factor);
}

void attn_state_take_decays(const struct attn_state_work *w, int64_t first, int n)
{
    const struct attn_state_kernels *states = w->kernels->states;
    const struct attn_rows decay = attn_rows_from(&w->decay, first);
    float *const to = w->scratch->decay;
    if (w->shape->rows) {
        states->take_decays(to, w->shape->dk, &decay, n, w->shape->dk);
        return;
    }
    const struct attn_rows together = {to, 0, ATTN_F32, NULL, 0};
    states->take_rows(to, 1, &decay, n, 1, 1.0f);
    states->take_decays(to, 0, &together, 1, n);
}

struct attn_floats attn_state_floats(const struct attn_state_work *w, const struct attn_rows *rows, int n, float *room)
{
    if (rows->dtype == ATTN_F32)
        return (struct attn_floats){rows->data, rows->stride / (ptrdiff_t)sizeof(float)};
    w->kernels->states->take_rows(room, w->shape->dk, rows, n, w->shape->dk, 1.0f);
    return (struct attn_floats){room, (ptrdiff_t)w->shape->dk};
}

/** What steps need of some tokens, in scratch memory. */
static struct attn_state_steps begin_steps(const struct attn_state_work *w, int64_t first, int n)
{
    const struct attn_state_kernels *states = w->kernels->states;
    const struct attn_state_scratch *scratch = w->scratch;
    const int64_t dk = w->shape->dk, pitch = attn_in_steps(w->columns, w->shape->lanes);
    const struct attn_rows k_rows = attn_rows_from(&w->k, first), v = attn_rows_from(&w->v, first);
    const struct attn_floats k = attn_state_floats(w, &k_rows, n, scratch->k);
    struct attn_state_steps steps = {.n = n,
                                     .dk = dk,
                                     .columns = w->columns,
                                     .heads = w->shape->heads,
                                     .k = k.rows,
                                     .k_pitch = k.pitch,
                                     .kept = k.rows,
                                     .kept_pitch = k.pitch,
                                     .q = scratch->heads,
                                     .u = scratch->u,
                                     .o = scratch->o,
                                     .pitch = pitch};
    states->take_rows(scratch->u, pitch, &v, n, w->columns, 1.0f);
    for (int h = 0; h < w->shape->heads; h++) {
        struct attn_rows rows = attn_rows_from(&w->q, first);
        rows.data = (char *)rows.data + h * w->q_head;
        const struct attn_floats q = attn_state_floats(w, &rows, n, scratch->q + h * n * dk);
        scratch->heads[h] = q.rows;
        steps.q_pitch = q.pitch;
    }
    if (w->beta.data) {
        const struct attn_rows beta = attn_rows_from(&w->beta, first);
        states->take_rows(scratch->beta, 1, &beta, n, 1, 1.0f);
        steps.beta = scratch->beta;
    }
    if (w->decay.data) {
        attn_state_take_decays(w, first, n);
        steps.decay = (struct attn_chunk_decays){scratch->decay, w->shape->rows};
        for (int t = 0; t < n && w->beta.data; t++) {
            const struct attn_rows key = {(void *)(uintptr_t)(k.rows + t * k.pitch), 0, ATTN_F32, NULL, 0};
            if (w->shape->rows)
                states->decay_since(scratch->faded + t * dk, key.data, k.pitch, scratch->decay + t * dk, 1, dk);
            else
                states->take_rows(scratch->faded + t * dk, dk, &key, 1, dk, scratch->decay[t]);
        }
        if (w->beta.data) {
            steps.kept = scratch->faded;
            steps.kept_pitch = (ptrdiff_t)dk;
        }
    }
    return steps;
}

/** What they have read. */
static void end_steps(const struct attn_state_work *w, int64_t first, const struct attn_state_steps *steps)
{
    for (int h = 0; h < steps->heads; h++)
        attn_state_write_out(w, h, first, steps->n, 0, steps->pitch, steps->o + h * steps->n * steps->pitch);
}

/** Some tokens, panel by panel in scratch memory. */
static void step_in_panels(const struct attn_state_work *w, int64_t first, int n)
{
    struct attn_state_steps all = begin_steps(w, first, n);
    const int64_t panels = attn_state_panels(w->shape, w->columns);
    for (int64_t i = 0; i < panels; i++) {
        const int64_t start = attn_panel_start(w->shape, w->columns, i);
        struct attn_state_steps steps = all;
        steps.to_pitch = steps.from_pitch = attn_panel_start(w->shape, w->columns, i + 1) - start;
        steps.columns = steps.to_pitch;
        steps.u += start;
        steps.o += start;
        steps.to = w->scratch->s + w->shape->dk * start;
        steps.from = steps.to;
        w->kernels->states->steps(&steps);
    }
    end_steps(w, first, &all);
}

/** A call of a few tokens, from where S is to where it goes; scratch memory is the other end where there is none. */
static void step_in_place(const struct attn_state_work *w)
{
    struct attn_state_steps steps = begin_steps(w, 0, (int)w->tokens);
    steps.from = w->state_in ? w->state_in : w->scratch->s;
    steps.from_pitch = w->state_in ? w->in_pitch : w->columns;
    steps.to = w->state_out ? w->state_out : w->scratch->s;
    steps.to_pitch = w->state_out ? w->out_pitch : w->columns;
    if (!w->state_in)
        clear_state(w);
    w->kernels->states->steps(&steps);
    end_steps(w, 0, &steps);
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

void attn_state_pass(const struct attn_state_work *w)
{
    int64_t first = 0;
    if (w->tokens > 0 && w->tokens <= ATTN_FEW_TOKENS && !is_reset(w, 0) && chunk_from(w, 0) == w->tokens) {
        step_in_place(w);
        return;
    }
    if (w->state_in && !(w->tokens > 0 && is_reset(w, 0)))
        copy_state(w, w->state_in, NULL);
    else
        clear_state(w);
    for (int n; first < w->tokens; first += n) {
        n = chunk_from(w, first);
        if (first > 0 && is_reset(w, first))
            clear_state(w);
        if (n <= ATTN_FEW_TOKENS)
            step_in_panels(w, first, n);
        else
            attn_state_chunk(w, first, n);
    }
    if (w->state_out)
        copy_state(w, NULL, w->state_out);
}
