/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks: which blocks of queries of which sequence and head a number stands
 * for, and which of their keys.
 */
#include "driver/driver.h"

static void clear_key_sums(const struct attn_problem *problem, int64_t b, int64_t h)
{
    const attn_tensor *t = &problem->key_sums;
    if (t->shape[3] == 0) /* no keys: data and strides mean nothing */
        return;
    float *sums = (float *)t->data + b * t->stride[0] + h * t->stride[1];
    for (int64_t j = 0; j < t->shape[3]; j++)
        sums[j * t->stride[3]] = 0.0f;
}

/** A block of queries with all its keys, in the company of sequences that share some. */
static void run_whole_block(const struct attn_run *run, int64_t s, int64_t h, int64_t block, void *scratch)
{
    if (!attn_run_shared(run, s, h, block, scratch))
        attn_run_block(run, s, h, block, ATTN_ALL_KEYS, scratch);
}

int64_t attn_piece_of(const int64_t *offsets, int64_t sequences, int64_t unit, int64_t *number)
{
    int64_t low = 0, high = sequences; /* of those that begin at number or before, the last */
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (offsets[middle] / unit + middle <= *number)
            low = middle;
        else
            high = middle - 1;
    }
    *number -= offsets[low] / unit + low;
    return low;
}

int64_t attn_ragged_block(const struct attn_run *run, int64_t *block)
{
    if (run->order)
        return attn_ordered_block(run, block);
    const int64_t pieces = run->geometry->pieces;
    int64_t unit = *block / pieces;
    const int64_t s = attn_piece_of(run->problem->params.ragged->cu_seqlens_q, run->problem->num_sequences,
                                    run->geometry->unit, &unit);
    *block = unit * pieces + *block % pieces;
    return s;
}

static void run_ragged_block(const struct attn_run *run, int64_t h, int64_t block, void *scratch)
{
    const int64_t s = attn_ragged_block(run, &block);
    run_whole_block(run, s, h, block, scratch);
}

static void run_block(const struct attn_run *run, int64_t b, int64_t h, int64_t block, void *scratch)
{
    if (run->problem->params.ragged)
        run_ragged_block(run, h, block, scratch);
    else
        run_whole_block(run, b, h, block, scratch);
}

struct attn_place attn_place_of(const struct attn_run *run, int64_t number)
{
    const int64_t heads = run->geometry->heads, blocks = run->geometry->blocks;
    struct attn_place at;
    if (run->order && run->problem->params.ragged) /* blocks are in order as well (order.c) */
        return (struct attn_place){0, number % heads, number / heads};
    if (run->problem->params.causal == ATTN_CAUSAL_NONE) {
        at = (struct attn_place){number / blocks / heads, number / blocks % heads, number % blocks};
    } else { /* The last queries see most keys: longest first. */
        const int64_t all = run->problem->q.shape[0] * heads;
        at = (struct attn_place){number % all / heads, number % all % heads, blocks - 1 - number / all};
    }
    if (run->order)
        at.b = run->order[at.b].s;
    return at;
}

void attn_run_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    const int64_t heads = problem->q.shape[1];
    if (problem->params.key_sums) {
        const int64_t first = attn_sums_by_sequence(problem) ? 0 : task / heads;
        const int64_t last = attn_sums_by_sequence(problem) ? problem->num_sequences - 1 : first;
        for (int64_t b = first; b <= last; b++)
            clear_key_sums(problem, b, task % heads);
        for (int64_t block = 0; block < run->geometry->blocks; block++)
            run_block(run, task / heads, task % heads, block, scratch);
        return;
    }
    const struct attn_place at = attn_place_of(run, task);
    run_block(run, at.b, at.h, at.block, scratch);
}

void attn_run_part(const struct attn_run *run, int64_t task, void *scratch)
{
    const int64_t parts = run->geometry->parts;
    const struct attn_place at = attn_place_of(run, task / parts);
    attn_run_block(run, at.b, at.h, at.block, task % parts, scratch);
}

void attn_run_join(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_place at = attn_place_of(run, task);
    attn_run_block(run, at.b, at.h, at.block, ATTN_JOIN_PARTS, scratch);
}
