/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few tokens of linear attention, one by one: rows become floats in scratch
 * memory, where they are none, and what is computed stands there until it is
 * written.
 */
#include "pass/states.h"

/** What the steps of a chunk need, in scratch memory. */
static void begin(const struct attn_state_work *w, int64_t first, int n, struct attn_state_steps *steps)
{
    const struct attn_state_kernels *states = w->kernels->states;
    const struct attn_state_scratch *scratch = w->scratch;
    const int64_t dk = w->shape->dk, pitch = attn_in_steps(w->columns, w->shape->lanes);
    const struct attn_rows k_rows = attn_rows_from(&w->k, first), v = attn_rows_from(&w->v, first);
    const struct attn_floats k = attn_state_floats(w, &k_rows, n, 1, scratch->k);
    *steps = (struct attn_state_steps){.n = n,
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
    attn_state_values(w, &v, n, 0, pitch, scratch->u);
    for (int h = 0; h < w->shape->heads; h++) {
        struct attn_rows rows = attn_rows_from(&w->q, first);
        rows.data = (char *)rows.data + h * w->q_head;
        const struct attn_floats q =
            attn_state_floats(w, &rows, n, 0, scratch->q + (int64_t)h * n * attn_state_pitch(w->shape));
        scratch->heads[h] = q.rows;
        steps->q_pitch = q.pitch;
    }
    if (w->beta.data) {
        const struct attn_rows beta = attn_rows_from(&w->beta, first);
        states->take_rows(scratch->beta, 1, &beta, n, 1, 1.0f);
        steps->beta = scratch->beta;
    }
    if (!w->decay.data)
        return;
    attn_state_take_decays(w, first, n);
    steps->decay = (struct attn_chunk_decays){scratch->decay, w->shape->rows};
    for (int t = 0; t < n && w->beta.data; t++) {
        const float *const key = k.rows + t * k.pitch;
        const struct attn_rows row = {(void *)(uintptr_t)key, 0, ATTN_F32, NULL, 0};
        if (w->shape->rows)
            states->decay_since(scratch->faded + t * dk, key, k.pitch, scratch->decay + t * dk, 1, dk);
        else
            states->take_rows(scratch->faded + t * dk, dk, &row, 1, dk, scratch->decay[t]);
    }
    if (w->beta.data) {
        steps->kept = scratch->faded;
        steps->kept_pitch = (ptrdiff_t)dk;
    }
}

/** What they have read. */
static void end(const struct attn_state_work *w, int64_t first, const struct attn_state_steps *steps)
{
    float sums[ATTN_FEW_TOKENS];
    for (int h = 0; h < steps->heads; h++)
        attn_state_write_out(w, h, first, steps->n, 0, steps->pitch, steps->o + h * steps->n * steps->pitch, sums);
}

void attn_state_step(const struct attn_state_work *w, int64_t first, int n)
{
    struct attn_state_steps all;
    begin(w, first, n, &all);
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
    end(w, first, &all);
}

int attn_state_lies_together(const struct attn_state_work *w)
{
    if (w->columns == w->values)
        return 1;
    return (!w->state_in || w->sum_in == w->state_in + w->values) &&
           (!w->state_out || w->sum_out == w->state_out + w->values);
}

void attn_state_step_through(const struct attn_state_work *w)
{
    struct attn_state_steps steps;
    begin(w, 0, (int)w->tokens, &steps);
    steps.far = w->state_in != NULL;
    steps.asks = steps.far && !w->kernels->fetches_ahead;
    steps.next = w->kernels->fetches_ahead ? w->next_state : NULL;
    /* Scratch memory is the end that the caller has not got. */
    steps.from = w->state_in ? w->state_in : w->scratch->s;
    steps.from_pitch = w->state_in ? w->in_pitch : (ptrdiff_t)w->columns;
    steps.to = w->state_out ? w->state_out : w->scratch->s;
    steps.to_pitch = w->state_out ? w->out_pitch : (ptrdiff_t)w->columns;
    w->kernels->states->steps(&steps);
    end(w, 0, &steps);
}
