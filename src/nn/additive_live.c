/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys the queries of an additive call see. The core's rules say so, for
 * strips of one query (additive.h); masks in memory are added here.
 */
#include "nn/additive.h"

#include "kernels/element.h"

#include <math.h>

struct attn_geometry nn_additive_geometry(int64_t block_queries)
{
    return (struct attn_geometry){
        .together = 1,
        .rows_together = 1,
        .heads = 1,
        .rows_per_block = block_queries,
        .unit = block_queries,
        .pieces = 1,
        .key_block = ATTN_KEY_BLOCK,
    };
}

int64_t nn_additive_blocks(const struct attn_problem *problem, int64_t block_queries)
{
    const int64_t queries = problem->q.shape[2];
    if (problem->params.ragged) /* a unit more for each sequence's end, as attn_piece_of() counts */
        return queries / block_queries + problem->num_sequences + 1;
    return problem->q.shape[0] * (queries / block_queries + (queries % block_queries > 0));
}

int nn_additive_work_of(const struct attn_run *run, int64_t block, struct attn_work *work)
{
    const struct attn_problem *problem = run->problem;
    int64_t sequence;
    if (problem->params.ragged) {
        sequence = attn_ragged_block(run, &block);
    } else {
        const int64_t blocks = nn_additive_blocks(problem, run->geometry->unit) / problem->q.shape[0];
        sequence = block / blocks;
        block %= blocks;
    }
    return attn_work_of(run, sequence, 0, block, NULL, work);
}

void nn_additive_begin(struct pass *pass, const struct attn_work *work)
{
    pass->work = work;
    pass->run_step = 1;
    pass->num_gathered = 0;
    pass->scratch.key_block = ATTN_KEY_BLOCK;
    pass->num_strips = work->num_queries;
    pass->end = attn_visible_end(work);
    for (int64_t r = 0; r < work->num_queries; r++) {
        const int32_t label = work->view.q_labels ? work->view.q_labels[r] : 0;
        pass->strips[r] =
            (struct strip){.first = r, .rows = 1, .nv = 1, .width = 1, .first_label = label, .last_label = label};
    }
}

/** Bytes of the keys that a query sees of a span by rules, where these leave more than a range. */
static void show_runs(const struct pass *pass, const struct strip *strip, const struct span *span, struct run run,
                      uint8_t *live)
{
    memset(live, 0, (size_t)span->size);
    do {
        memset(live + run.lo, 1, (size_t)(run.hi - run.lo));
        if (run.kind != RUN_WHOLE)
            attn_hide_by_rules(pass, strip, span->first + run.lo, run.hi - run.lo, live + run.lo, 1);
    } while (run.hi < span->size && attn_next_run(pass, strip, span, run.hi, &run));
}

/** Puts a mask on keys lo..hi-1. */
static void add_masks(const struct pass *pass, const struct strip *strip, const struct span *span, const uint8_t *live,
                      enum nn_additive_unit unit, struct nn_additive_seen *seen)
{
    const struct attn_grid *mask = &pass->work->mask, *bias = &pass->work->bias;
    const uint8_t *bytes = mask->data;
    const ptrdiff_t at = mask->data ? strip->first * mask->query_stride + span->first * mask->key_stride : 0;
    const ptrdiff_t bias_at = bias->data ? strip->first * bias->query_stride + span->first * bias->key_stride : 0;
    for (int j = seen->lo; j < seen->hi; j++) {
        float added = live && !live[j] ? -INFINITY : 0.0f;
        if (bytes && !bytes[at + j * mask->key_stride])
            added = -INFINITY;
        if (bias->data && added == 0.0f) {
            added = element_at(bias->dtype, bias->data, bias_at + j * bias->key_stride);
            added = unit == NN_ADDITIVE_BASE2 ? attn_in_base2(added) : added;
        }
        seen->bias[j] = added;
    }
    while (seen->lo < seen->hi && seen->bias[seen->lo] == -INFINITY)
        seen->lo++;
    while (seen->lo < seen->hi && seen->bias[seen->hi - 1] == -INFINITY)
        seen->hi--;
}

void nn_additive_see(const struct pass *pass, const struct strip *strip, const struct span *span,
                     enum nn_additive_unit unit, struct nn_additive_seen *seen)
{
    const struct attn_work *work = pass->work;
    struct run run, next;
    uint8_t live[ATTN_KEY_BLOCK];
    seen->lo = seen->hi = seen->listed = 0;
    if (!attn_next_run(pass, strip, span, 0, &run))
        return;
    seen->lo = run.lo;
    seen->hi = run.hi;
    /* Only a pattern leaves several ranges of a block. */
    const int several =
        run.hi < span->size && work->view.pattern_size && attn_next_run(pass, strip, span, run.hi, &next);
    const int ruled = several || run.kind != RUN_WHOLE;
    if (ruled)
        show_runs(pass, strip, span, run, live);
    if (several)
        seen->hi = span->size;
    seen->listed = ruled || work->mask.data || work->bias.data;
    if (seen->listed)
        add_masks(pass, strip, span, ruled ? live : NULL, unit, seen);
}
