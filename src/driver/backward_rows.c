/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of tables of rows by distance (params.disentangled): a head's sums
 * over all of its pairs, in the order of sequences, and the rows that they become.
 *
 * A head has sums to itself, whether or not it has a table to itself: heads that
 * share one are added in their order when all of them have ended.
 */
#include "driver/backward_rows.h"

#include "driver/backward_blocks.h"

#include <string.h>

/* Rows that a task writes. */
#define TASK_ROWS 64

/** Floats of a head's sums of a table. */
static int64_t floats_of_table(const struct attn_backward *b)
{
    return b->table_rows * b->forward.q.shape[3];
}

/** Those of head h, as zeros; NULL where they are not wanted. */
static float *clear_table(const struct attn_run *run, const attn_tensor *wanted, size_t at, int64_t h)
{
    const int64_t floats = floats_of_table(run->backward);
    if (!attn_has_elements(wanted))
        return NULL;
    float *const sums = attn_backward_floats(run, at) + h * floats;
    memset(sums, 0, (size_t)floats * sizeof(float));
    return sums;
}

struct attn_backward_rows attn_backward_begin_rows(const struct attn_run *run, int64_t h)
{
    const struct attn_backward *b = run->backward;
    struct attn_backward_rows rows = {.h = h};
    rows.sums.k_rows = clear_table(run, &b->drel_k, b->k_rows_at, h);
    rows.sums.q_rows = clear_table(run, &b->drel_q, b->q_rows_at, h);
    return rows;
}

/** Points the sums of a sequence's keys to their ends, and clears these. */
static void begin_keys(const struct attn_run *run, const struct attn_sequence *sequence,
                       struct attn_backward_rows *rows)
{
    const int64_t tokens = run->problem->k.shape[2];
    float **const ends = rows->sums.key_ends;
    ends[0] = attn_backward_floats(run, run->backward->key_ends_at) + 2 * rows->h * tokens + sequence->k_first +
              sequence->begin;
    ends[1] = ends[0] + tokens;
    attn_clear_ends(ends, 0, sequence->end - sequence->begin);
}

/** Adds a block of queries. */
static void add_block(const struct attn_run *run, const struct attn_backward_rows *rows, int64_t s,
                      struct attn_backward_block *block)
{
    struct attn_relative_sums *const sums = &block->gradients.relative;
    const struct attn_work *work = &block->work;
    const int64_t heads = run->problem->q.shape[1];
    *sums = rows->sums;
    if (sums->k_rows) {
        attn_backward_query_ends(run, block->batch * heads + rows->h, block);
        attn_clear_ends(sums->query_ends, 0, work->num_queries);
    }
    block->gradients.factor = 1.0f; /* comes with the scale */
    attn_backward_walk(run, block, s);
    if (sums->k_rows)
        attn_add_ends_to_rows(work, &work->q, work->num_queries, sums->query_ends, block->scratch.q_rows, sums->k_rows);
}

void attn_backward_add_rows(const struct attn_run *run, struct attn_backward_rows *rows, int64_t s, void *scratch)
{
    const struct attn_sequence sequence = attn_sequence_of(run->problem, s);
    struct attn_backward_block block;
    if (!rows->sums.k_rows && !rows->sums.q_rows)
        return;
    if (rows->sums.q_rows)
        begin_keys(run, &sequence, rows);
    int any = 0;
    for (int64_t number = 0; number < attn_backward_blocks(run, s); number++)
        if (attn_backward_block_of(run, s, rows->h, number, scratch, &block)) {
            add_block(run, rows, s, &block);
            any = 1;
        }
    if (any && rows->sums.q_rows)
        attn_add_ends_to_rows(&block.work, &block.work.k, sequence.end - sequence.begin, rows->sums.key_ends,
                              block.scratch.k, rows->sums.q_rows);
}

/* -------------------------------------------------------------- what is written -- */

/** Tasks of a table. */
static int64_t count_tasks(const struct attn_backward *b, const attn_tensor *table)
{
    return attn_has_elements(table) ? table->shape[1] * ((b->table_rows + TASK_ROWS - 1) / TASK_ROWS) : 0;
}

int64_t attn_backward_row_tasks(const struct attn_backward *b)
{
    return count_tasks(b, &b->drel_k) + count_tasks(b, &b->drel_q);
}

/** Writes a row of a head of a table, or of the table of all heads, from their sums. */
static void write_row(const struct attn_run *run, const attn_tensor *table, const float *sums, int64_t h, int64_t row)
{
    const struct attn_problem *problem = run->problem;
    const int64_t floats = floats_of_table(run->backward), channels = table->shape[3];
    const int64_t first = table->shape[1] > 1 ? h : 0, end = table->shape[1] > 1 ? h + 1 : problem->q.shape[1];
    const float *const factors = problem->params.head_scale;
    float *const to = (float *)table->data + h * attn_step_of(table, 1) + row * attn_step_of(table, 2);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0.0;
        for (int64_t i = first; i < end; i++)
            sum += (double)sums[i * floats + row * channels + c] * (factors ? (double)factors[i] : 1.0);
        to[c] = (float)(sum * (double)problem->scale);
    }
}

void attn_backward_row_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_backward *b = run->backward;
    const int64_t of_k = count_tasks(b, &b->drel_k), pieces = (b->table_rows + TASK_ROWS - 1) / TASK_ROWS;
    const attn_tensor *const table = task < of_k ? &b->drel_k : &b->drel_q;
    const float *const sums = attn_backward_floats(run, task < of_k ? b->k_rows_at : b->q_rows_at);
    const int64_t own = task < of_k ? task : task - of_k;
    const int64_t first = own % pieces * TASK_ROWS;
    (void)scratch;
    for (int64_t row = first; row < first + TASK_ROWS && row < b->table_rows; row++)
        write_row(run, table, sums, own / pieces, row);
}
