/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry: how a shape is cut into tasks. Only shapes, options and the
 * presence of what is wanted count, so that a plan can keep the answer.
 */
#include "driver/driver.h"

#include "kernels/scratch.h"

/* Tasks a thread should find, so that the last one to finish is not waited for long. */
#define TASKS_PER_THREAD 16

/* Multiply-adds that are worth a thread: waking one costs some microseconds. */
#define WORK_PER_THREAD (512.0 * 1024)

static struct attn_scratch_shape scratch_shape(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                               int64_t strips)
{
    return attn_scratch_shape_of(kernels, strips, problem->q.shape[3], problem->v.shape[3], problem->k.dtype,
                                 problem->v.dtype, problem->params.rope != NULL, problem->params.disentangled != NULL);
}

static size_t scratch_size(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t strips)
{
    struct attn_scratch scratch;
    const struct attn_scratch_shape shape = scratch_shape(problem, kernels, strips);
    return attn_scratch_layout(&scratch, NULL, &shape);
}

/** The rows that strips keep to: those of a pattern's blocks, unless one of them fills a whole task. */
static int64_t segment_of(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t limit)
{
    const attn_block_mask *pattern = problem->params.block_mask;
    if (!pattern || pattern->size > limit * kernels->strip)
        return 0;
    return attn_segment_strips(kernels->strip, kernels->lanes, pattern->size) <= limit ? pattern->size : 0;
}

/** Sequences with queries, and as many of them as there may be. */
static int64_t count_sequences(const struct attn_problem *problem)
{
    return problem->params.ragged ? 1 : problem->q.shape[0];
}

/** Blocks of rows queries that a head has: a ragged batch needs one more for each sequence's end (attn_run_task()). */
static int64_t count_blocks(const struct attn_problem *problem, int64_t rows)
{
    const int64_t tq = problem->q.shape[2];
    return problem->params.ragged ? tq / rows + problem->num_sequences + 1 : (tq + rows - 1) / rows;
}

struct attn_geometry attn_geometry_of(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                      int threads)
{
    const int64_t dk = problem->q.shape[3], dv = problem->v.shape[3], tq = problem->q.shape[2];
    const int64_t heads = count_sequences(problem) * problem->q.shape[1];
    int64_t per_block = kernels->query_block / kernels->strip;
    if (per_block > ATTN_MAX_STRIPS)
        per_block = ATTN_MAX_STRIPS;
    while (per_block > 1 && scratch_size(problem, kernels, per_block) > ATTN_SCRATCH_LIMIT)
        per_block--;
    /* Strips come in units: one, or those of a segment. */
    const int64_t segment = segment_of(problem, kernels, per_block);
    const int64_t unit = attn_segment_strips(kernels->strip, kernels->lanes, segment);
    const int64_t unit_rows = segment ? segment : kernels->strip, units = (tq + unit_rows - 1) / unit_rows;
    int64_t per_task = per_block / unit;

    const double work = (double)(heads * tq) * (double)problem->k.shape[2] * (double)(dk + dv);
    int parallel = work / WORK_PER_THREAD < threads ? (int)(work / WORK_PER_THREAD) : threads;
    parallel = parallel < 1 ? 1 : parallel;
    const int64_t wanted = (int64_t)TASKS_PER_THREAD * parallel;
    while (per_task > 1 && parallel > 1 && heads * ((units + per_task - 1) / per_task) < wanted)
        per_task--;
    if (units > 0) /* blocks of equal size */
        per_task = (units + (units + per_task - 1) / per_task - 1) / ((units + per_task - 1) / per_task);

    struct attn_geometry geometry = {.kernels = kernels, .segment = segment, .rows_per_block = per_task * unit_rows};
    geometry.blocks = count_blocks(problem, geometry.rows_per_block);
    geometry.tasks = problem->params.key_sums ? heads : heads * geometry.blocks;
    geometry.threads = threads;
    geometry.parallel = geometry.tasks >= parallel ? parallel : geometry.tasks > 0 ? (int)geometry.tasks : 1;
    geometry.key_block = (int)scratch_shape(problem, kernels, per_task * unit).key_block;
    geometry.scratch_size = scratch_size(problem, kernels, per_task * unit);
    return geometry;
}
