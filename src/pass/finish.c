/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a block of queries: rows of out and lse from the sums over all
 * keys, and what else has been asked for.
 */
#include "pass/pass.h"

/** Writes a strip's rows of lse; leaves 1/l (0 without a live key), with the scale of dropout, in inverse. */
static void finish_strip(const struct pass *pass, const struct strip *strip, float *inverse)
{
    const struct attn_work *work = pass->work;
    float lse[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const struct attn_finish finish = {.m = strip->m,
                                       .l = strip->l,
                                       .validity = strip->validity,
                                       .shift = strip->shift,
                                       .headroom = pass->values->headroom,
                                       .keep_scale = work->drop.wanted ? work->drop.keep_scale : 1.0f,
                                       .inverse = inverse,
                                       .lse = work->lse ? lse : NULL};
    pass->vectors->finish(strip->nv, &finish);
    for (int r = 0; work->lse && r < strip->rows; r++)
        work->lse[query_offset(&work->view, work->lse_stride, work->head_step.lse, query_of(strip, r))] = lse[r];
}

/** Writes a strip's rows of out: its sums times a factor for each lane. */
static void write_out(const struct pass *pass, const struct strip *strip, const float *factor)
{
    const struct attn_work *work = pass->work;
    char *rows[ATTN_MAX_STRIP];
    strip_rows(&work->view, &work->out, work->head_step.out, strip, 0, strip->rows, rows);
    if (strip->started && strip->few) {
        pass->vectors->write_few(rows, work->out.dtype, strip->o, strip->rows, work->dv, factor);
    } else if (strip->started) {
        pass->vectors->write_rows(rows, work->out.dtype, strip->o, strip->width, strip->rows, work->dv, factor);
    } else {
        for (int r = 0; r < strip->rows; r++)
            memset(rows[r], 0, (size_t)(work->dv * attn_element_size(work->out.dtype)));
    }
}

void attn_finish_strips(struct pass *pass)
{
    float inverse[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float one[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    for (int r = 0; r < ATTN_MAX_STRIP; r++)
        one[r] = 1.0f;
    for (int64_t i = 0; i < pass->num_strips; i++) {
        struct strip *strip = &pass->strips[i];
        finish_strip(pass, strip, inverse);
        attn_strip_weights(pass, strip, inverse);
        write_out(pass, strip, pass->work->weight_callback ? one : inverse);
        attn_strip_scores(pass, strip);
    }
}
