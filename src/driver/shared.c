/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys that sequences share: where the block tables of neighbours begin with the
 * same pages, as those of conversations with one system prompt do or of the beams
 * of a search, these are read once for all of them ("cascade"; Ye et al. 2024,
 * "Cascade Inference: Memory Bandwidth Efficient Shared Prefix Batch Decoding").
 *
 * The queries of such sequences, a few of each, are rows of one block of queries
 * that sees all shared keys. What this leaves, a row of sums for each query, is
 * where the pass over a sequence's other keys goes on. The chain of sums is the
 * one that a sequence has alone, so no bit changes, whoever its neighbours are.
 * Shared keys end with a block of keys, before what some query does not see.
 *
 * Sharers are a task of each key head. There are as many of them as leave work
 * for all threads; which these are is found once a call, as tables are data.
 */
#include "driver/driver.h"

#include "driver/tensors.h"

#include <string.h>

/* Fewer keys are not worth the way of the sums through memory. */
#define LEAST_KEYS (2 * ATTN_KEY_BLOCK)

/** Whether keys of a shared page give the same scores whichever sequence they belong to, and nobody looks at them. */
static int may_share(const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    return p->block_table && problem->num_sequences > 1 && problem->may_be_together && !problem->mask.data &&
           !p->prefix_len && !p->alibi_slopes && !p->relative_bias && !p->rope && !p->window && !p->segments &&
           !p->tree && p->qk != ATTN_QK_INT8 && (p->ragged || problem->q.shape[2] == 1);
}

int64_t attn_shared_rows(const struct attn_problem *problem, int64_t together, int64_t most)
{
    if (!may_share(problem) || attn_sums_are_free(problem, 1))
        return 0;
    const int64_t tokens = problem->params.ragged ? problem->q.shape[2] : problem->num_sequences;
    const int64_t rows = tokens < most / together ? tokens * together : most;
    return rows >= 2 * together ? rows : 0;
}

/** Rows of sequence s in the block of its sharers: those of all its tokens and of the heads that are together. 0: it
 * has too many, or none, or sums of an order of their own. */
static int64_t rows_of_sequence(const struct attn_run *run, int64_t s)
{
    const struct attn_geometry *geometry = run->geometry;
    const int64_t tokens = attn_sequence_of(run->problem, s).queries, heads = geometry->together;
    if (tokens == 0 || attn_heads_of(geometry, tokens) != heads || tokens * heads > geometry->shared_rows ||
        (heads == 1 && tokens > geometry->rows_per_block) || attn_frees_sums(run->problem, &geometry->kernels, tokens))
        return 0;
    return tokens * heads;
}

static int64_t rounded_down(int64_t keys, int64_t size)
{
    return keys <= 0 ? 0 : keys / size * size;
}

/** Keys of sequence s that it may share: whole blocks, behind which each of its queries still sees some. */
static int64_t keys_to_share(const struct attn_run *run, int64_t s)
{
    return rounded_down(attn_keys_of_first_query(run->problem, s) - 1, run->geometry->key_block);
}

/** Keys, from the first live one on, that sequence s has in the same pages as the one before it: most of them, or
 * somewhat more, if there are as many. */
static int64_t keys_in_common(const struct attn_problem *problem, int64_t s, int64_t most)
{
    const attn_params *p = &problem->params;
    const struct attn_sequence sequence = attn_sequence_of(problem, s), before = attn_sequence_of(problem, s - 1);
    if (sequence.begin != before.begin)
        return 0;
    const int32_t *table = p->block_table + s * p->block_table_stride, *other = table - p->block_table_stride;
    const int64_t end = sequence.begin + most;
    int64_t page = sequence.begin / p->page_size;
    while (page * p->page_size < end && table[page] == other[page])
        page++;
    return page * p->page_size - sequence.begin;
}

/** Writes down that sequences first to end - 1 share so many keys, if that is worth it. */
static void write_sharers(const struct attn_run *run, int64_t first, int64_t end, int64_t keys)
{
    for (int64_t s = first; s < end; s++)
        run->sharers[s] = (struct attn_sharers){first, end, end - first > 1 ? keys : 0};
}

void attn_find_shared(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    const struct attn_geometry *geometry = run->geometry;
    const int64_t num = problem->num_sequences, size = geometry->key_block;
    /* heads, as sharers count them, times groups of sharers are the tasks */
    const int64_t heads = problem->q.shape[1] / geometry->together;
    const int64_t most = num / ((geometry->parallel + heads - 1) / heads);
    int64_t first = 0, keys = 0, rows = 0; /* of the sharers that s may join */
    (void)task;
    (void)scratch;
    for (int64_t s = 0; s < num; s++) {
        const int64_t own_rows = rows_of_sequence(run, s);
        const int64_t own_keys = own_rows > 0 ? keys_to_share(run, s) : 0;
        if (s > first && keys > 0 && own_keys > 0) {
            const int64_t most_keys = own_keys < keys ? own_keys : keys;
            const int64_t common = rounded_down(keys_in_common(problem, s, most_keys), size);
            const int64_t shared = common < most_keys ? common : most_keys;
            /* one more reads fewer keys for itself, but the others may read more */
            if (shared >= LEAST_KEYS && (s - first) * shared >= (s - first - 1) * keys && s - first < most &&
                rows + own_rows <= geometry->shared_rows) {
                keys = shared;
                rows += own_rows;
                continue;
            }
        }
        write_sharers(run, first, s, keys);
        first = s;
        keys = own_keys;
        rows = own_rows;
    }
    write_sharers(run, first, num, keys);
}

/** The steps of q from sequence to sequence, where each of a batch has one query. */
static void step_by_sequence(const struct attn_problem *problem, struct attn_work *work)
{
    work->q.stride = (ptrdiff_t)attn_bytes_of(problem->q.dtype, attn_step_of(&problem->q, 0));
}

int attn_run_shared(const struct attn_run *run, int64_t s, int64_t counted, int64_t block, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    if (!run->sharers || s >= problem->num_sequences || run->sharers[s].keys == 0)
        return 0;
    const struct attn_sharers *const sharers = &run->sharers[s];
    struct attn_work work;
    if (s != sharers->first || !attn_work_of(run, s, counted, block, scratch, &work))
        return 1;
    float *const sums = (float *)(void *)((char *)scratch + run->geometry->sums_at);
    const int64_t row = attn_sums_row(work.dv);
    work.num_queries = 0;
    for (int64_t i = s; i < sharers->end; i++)
        work.num_queries += attn_sequence_of(problem, i).queries * work.view.heads;
    if (!problem->params.ragged)
        step_by_sequence(problem, &work);
    work.num_keys = sharers->keys;
    work.view.diagonal = ATTN_FAR;
    work.sums = sums;
    attn_forward_pass(&work);
    for (int64_t i = s, at = 0; i < sharers->end; i++) {
        attn_work_of(run, i, counted, block, scratch, &work);
        work.sums = sums + at * row;
        work.sums_keys = sharers->keys;
        attn_forward_pass(&work);
        at += work.num_queries;
    }
    return 1;
}
