/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry: how a shape is cut into tasks. Only shapes, options and the
 * presence of what is wanted count, so that a plan can keep the answer.
 */
#include "driver/driver.h"

#include "driver/even.h"
#include "driver/tensors.h"
#include "driver/threads.h"
#include "pass/scratch.h"

/* Tasks a thread should find where kernels have no number of their own. */
#define TASKS_PER_THREAD 16

/* The same where the keys of a block of queries are split to have that many: each takes long. */
#define PARTS_PER_THREAD 4

/* Rows of a head of which blocks are as large as ever. */
#define FEW_ROWS 64

/* What a thread reads and writes, in bytes, if its caches hold it: then asking ahead costs more than it saves. */
#define NEAR_BYTES ((double)(4 << 20))

/* What splits of the keys may leave for the threads to share, in bytes a thread. */
#define PARTIALS_LIMIT ((double)(8 << 20))

/**
 * Whether global queries are taken out of their strips, into one of their own. What follows from the distance, counts
 * queries, or shows them to the caller wants those of a strip to be neighbours.
 */
static int gathers(const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    const int neighbours = p->alibi_slopes || p->relative_bias || p->disentangled || p->callback || p->dropout ||
                           p->weights || p->key_sums || p->scores || p->weight_callback || p->block_mask;
    return p->window && p->window->num_global > 0 && !neighbours;
}

/** Bytes of a tensor's rows. */
static double bytes_of(const attn_tensor *t)
{
    return (double)t->shape[0] * (double)t->shape[1] * (double)t->shape[2] *
           (double)attn_row_bytes(t->dtype, t->shape[3]);
}

/** Whether caches are too small for what a call reads and writes. */
static int is_far(const struct attn_problem *problem, int threads)
{
    const double bytes =
        bytes_of(&problem->q) + bytes_of(&problem->k) + bytes_of(&problem->v) + bytes_of(&problem->out);
    return bytes > NEAR_BYTES * (double)threads;
}

static struct attn_scratch_shape scratch_shape(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                               int64_t strips)
{
    return attn_scratch_shape_of(kernels, strips + gathers(problem), problem->q.shape[3], problem->v.shape[3],
                                 problem->k.shape[2], problem->k.dtype, problem->v.dtype, problem->params.rope != NULL,
                                 problem->params.disentangled != NULL, problem->params.block_table != NULL);
}

static size_t scratch_size(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t strips)
{
    struct attn_scratch scratch;
    const struct attn_scratch_shape shape = scratch_shape(problem, kernels, strips);
    return attn_scratch_layout(&scratch, NULL, &shape);
}

/** Strips of rows queries that a block of queries may have, of which there are most. */
static int64_t strips_of_block(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t rows,
                               int64_t most)
{
    int64_t strips = kernels->scores->query_block / rows;
    strips = strips > ATTN_MAX_STRIPS ? ATTN_MAX_STRIPS : strips;
    strips = strips > most ? most : strips;
    strips = strips < 1 ? 1 : strips;
    while (strips > 1 && scratch_size(problem, kernels, strips) + problem->reserved > ATTN_SCRATCH_LIMIT)
        strips--;
    return strips;
}

/** Whether a strip is too wide for the scratch of a thread. Where sums over queries are wanted, which follow from the
 * strips, that must not depend on how many keys there may be. */
static int is_too_wide(const struct attn_problem *problem, const struct attn_kernels *kernels)
{
    struct attn_scratch scratch;
    struct attn_scratch_shape shape = scratch_shape(problem, kernels, 1);
    shape.joins |= problem->params.key_sums != NULL;
    return kernels->strip > kernels->vectors->lanes &&
           attn_scratch_layout(&scratch, NULL, &shape) + problem->reserved > ATTN_SCRATCH_LIMIT;
}

/** Whether a block of queries has room for a whole block of the pattern; otherwise the latter is cut into pieces. */
static int fits_block(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t size)
{
    if (size == 0 || size > kernels->scores->query_block)
        return 0;
    const int64_t rows = attn_strip_rows(kernels->strip, kernels->vectors->lanes, size);
    return attn_group_strips(kernels->strip, kernels->vectors->lanes, size) <=
           strips_of_block(problem, kernels, rows, INT64_MAX);
}

/** Batch elements whose heads are cut one by one: all sequences of a ragged batch are one. */
static int64_t count_elements(const struct attn_problem *problem)
{
    return problem->params.ragged ? 1 : problem->q.shape[0];
}

/** Blocks of queries that a head has: a ragged batch needs a unit more for each sequence's end (attn_run_task()). */
static int64_t count_blocks(const struct attn_problem *problem, int64_t unit, int64_t pieces)
{
    const int64_t tq = problem->q.shape[2];
    return (problem->params.ragged ? tq / unit + problem->num_sequences + 1 : tq / unit + (tq % unit > 0)) * pieces;
}

int attn_writes_anything(const struct attn_problem *problem)
{
    return attn_has_elements(&problem->out) || attn_has_elements(&problem->lse) ||
           attn_has_elements(&problem->weights) || attn_has_elements(&problem->key_sums) ||
           attn_has_elements(&problem->scores);
}

static void add_phase(struct attn_geometry *geometry, int64_t tasks, int parallel,
                      void (*run_task)(const struct attn_run *run, int64_t task, void *scratch))
{
    geometry->phases[geometry->num_phases++] = (struct attn_phase){tasks, parallel, run_task};
}

/** Bytes of the sums of so many queries. */
static size_t sums_size(const struct attn_problem *problem, int64_t rows)
{
    const size_t size = (size_t)(rows * attn_sums_row(problem->v.shape[3])) * sizeof(float);
    return attn_aligned(size);
}

/** Threads, of so many, that a problem is worth. */
static int threads_worth(const struct attn_problem *problem, int threads)
{
    const double pairs = (double)(count_elements(problem) * problem->q.shape[1]) * (double)problem->q.shape[2] *
                         (double)problem->k.shape[2];
    return attn_threads_worth(pairs * (double)(problem->q.shape[3] + problem->v.shape[3]), ATTN_WORTH_ATTENTION,
                              threads);
}

/** Tasks of whole heads, each of them a tile. */
static struct attn_geometry cut_heads(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                      int threads)
{
    const int parallel = threads_worth(problem, threads);
    /* of several queries of a head one may see more than another */
    const int64_t together = problem->q.shape[2] == 1 ? attn_heads_together(problem, kernels->strip, parallel, 0) : 1;
    const int64_t heads = problem->q.shape[0] * (problem->q.shape[1] / together);
    const int64_t share = parallel > 1 ? heads / (TASKS_PER_THREAD * (int64_t)parallel) : heads;
    struct attn_geometry geometry = {.kernels = *kernels,
                                     .together = together,
                                     .rows_together = kernels->strip,
                                     .heads = problem->q.shape[1] / together,
                                     .rows_per_block = problem->q.shape[2] * together,
                                     .unit = problem->q.shape[2] * together,
                                     .pieces = 1,
                                     .blocks = 1,
                                     .splits = 1,
                                     .parts = 1,
                                     .heads_per_task = share > 0 ? share : 1,
                                     .threads = threads,
                                     .key_block = ATTN_KEY_BLOCK,
                                     .scratch_size = attn_single_size(problem, kernels, together)};
    geometry.tasks = share > 1 ? (heads + share - 1) / share : heads;
    geometry.parallel = geometry.tasks >= parallel ? parallel : geometry.tasks > 0 ? (int)geometry.tasks : 1;
    add_phase(&geometry, geometry.tasks, geometry.parallel, attn_run_singles);
    return geometry;
}

/**
 * Whether parts of the keys may be computed on several threads. Weights and scores on request need the final sums of
 * their strip, and more passes over the keys; a block of queries in a ragged batch has as many splits as its sequence,
 * of which shapes say nothing.
 */
static int may_split(const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    return !p->weights && !p->key_sums && !p->scores && !p->weight_callback && !p->ragged;
}

/** Splits of the keys of a sequence. */
static int64_t count_splits(const struct attn_problem *problem)
{
    return problem->k.shape[2] / ATTN_SPLIT_KEYS + (problem->k.shape[2] % ATTN_SPLIT_KEYS > 0);
}

/** Splits that a block of queries sees at once, about: of a window of keys as many as it has room for. */
static int64_t count_seen_splits(const struct attn_problem *problem)
{
    const int64_t splits = count_splits(problem);
    const attn_window *window = problem->params.window;
    if (!window || window->num_global > 0 || window->left == ATTN_UNLIMITED ||
        (window->right == ATTN_UNLIMITED && problem->params.causal == ATTN_CAUSAL_NONE))
        return splits;
    const int64_t right = problem->params.causal == ATTN_CAUSAL_NONE ? window->right : 0;
    const int64_t seen = window->left / ATTN_SPLIT_KEYS + right / ATTN_SPLIT_KEYS;
    return seen < 1 ? 1 : seen < splits ? seen : splits;
}

/** Cuts tasks, of so many rows each, into parts of the keys where there are too few tasks for the
 * threads: into as many as have been found to be even, or 0. */
static void cut_keys(const struct attn_problem *problem, int parallel, int64_t queries, int64_t even,
                     struct attn_geometry *geometry)
{
    const struct attn_scratch_shape *shape = &geometry->scratch;
    const int64_t lanes = geometry->kernels.vectors->lanes, seen = count_seen_splits(problem);
    const int64_t wanted = (int64_t)PARTS_PER_THREAD * parallel, tasks = geometry->tasks;
    geometry->splits = count_splits(problem);
    geometry->parts = 1;
    const int64_t parts = even > 0 ? even : tasks > 0 ? (wanted + tasks - 1) / tasks : 0;
    if (parallel <= 1 || parts <= 1 || seen <= 1 || !may_split(problem))
        return;
    const int64_t rows = (queries + lanes - 1) / lanes * lanes;
    const size_t size = attn_partial_size(shape, shape->strips > 1 || rows > shape->strip ? shape->strip : rows);
    if ((double)tasks * (double)geometry->splits * (double)size > PARTIALS_LIMIT * parallel)
        return;
    geometry->parts = parts < seen ? parts : seen;
    geometry->partial_size = size;
    geometry->shared_size += (size_t)(tasks * geometry->splits) * size;
}

/** The last phases: those of the blocks of queries. */
static void add_blocks(struct attn_geometry *geometry, int parallel, double values)
{
    const int64_t blocks = geometry->tasks;
    geometry->tasks *= geometry->parts;
    geometry->parallel = geometry->tasks >= parallel ? parallel : geometry->tasks > 0 ? (int)geometry->tasks : 1;
    add_phase(geometry, geometry->tasks, geometry->parallel, geometry->parts > 1 ? attn_run_part : attn_run_task);
    if (geometry->parts > 1)
        add_phase(geometry, blocks,
                  attn_threads_worth((double)geometry->splits * values, ATTN_WORTH_COPY, geometry->parallel),
                  attn_run_join);
}

void attn_geometry_unsplit(struct attn_geometry *geometry)
{
    if (geometry->parts <= 1)
        return;
    geometry->tasks /= geometry->parts;
    geometry->parts = 1;
    geometry->shared_size = geometry->labels_size;
    geometry->num_phases -= 2;
    add_blocks(geometry, geometry->parallel, 0);
}

/** Queries that may go together over keys that sequences share, beside the strips that blocks of queries have anyway.
 */
static int64_t most_shared_rows(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t strips)
{
    int64_t rows = attn_most_rows_together(ATTN_MAX_STRIPS * kernels->strip);
    for (; rows > 0; rows -= kernels->vectors->lanes) {
        const int64_t of_rows = (rows + kernels->strip - 1) / kernels->strip;
        const size_t size = scratch_size(problem, kernels, of_rows > strips ? of_rows : strips);
        if (size + sums_size(problem, rows) <= ATTN_SCRATCH_LIMIT)
            break;
    }
    return rows > 0 ? rows : 0;
}

/** The first phase and the memory of sequences that share keys. */
static void add_sharing(const struct attn_problem *problem, int64_t rows, struct attn_geometry *geometry)
{
    const size_t size = (size_t)problem->num_sequences * sizeof(struct attn_sharers);
    geometry->shared_rows = rows;
    geometry->sums_at = geometry->scratch_size;
    geometry->scratch_size += sums_size(problem, rows);
    geometry->shared_size += attn_aligned(size);
    add_phase(geometry, 1, 1, attn_find_shared);
}

/** Whether the rows of a block of queries may be any number: sums over queries, and a pattern's blocks, follow from
 * strips; of a ragged batch shapes say too little, and with few rows keys are what threads share. */
static int may_be_even(const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    return problem->q.shape[2] > FEW_ROWS && !p->ragged && !p->key_sums && !p->block_mask;
}

/** Rows of a block of queries, *rows at most, and parts of their keys with which threads finish together. */
static void even_rows(const struct attn_problem *problem, const struct attn_kernels *kernels, int parallel,
                      int64_t heads, int64_t *rows, int64_t *parts)
{
    const double tq = (double)problem->q.shape[2], tk = (double)problem->k.shape[2];
    const int causal = problem->params.causal != ATTN_CAUSAL_NONE && !problem->params.window;
    const double before = problem->params.causal == ATTN_CAUSAL_TOP_LEFT || tk <= tq ? 0.0 : tk - tq;
    const struct attn_even_work work = {.heads = heads,
                                        .rows = problem->q.shape[2],
                                        .most_rows = *rows,
                                        .first = causal && tk > 0 ? before / tk : 1.0,
                                        .splits = may_split(problem) ? count_seen_splits(problem) : 1,
                                        .threads = parallel};
    if (work.rows == 0 || heads == 0 || work.splits == 0)
        return;
    const struct attn_even_cut cut = attn_cut_evenly(kernels, &work);
    *rows = cut.rows;
    *parts = cut.parts;
}

/** The phase and the memory of sequences in order. */
static void add_order(const struct attn_problem *problem, struct attn_geometry *geometry)
{
    geometry->ordered = 1;
    geometry->order_at = geometry->shared_size;
    geometry->shared_size += attn_order_size(problem);
    add_phase(geometry, 1, 1, attn_order_sequences);
}

/** Tasks of blocks of queries. splits: heads may be together because those of the keys are work for the threads. */
static struct attn_geometry cut_blocks(const struct attn_problem *problem, const struct attn_kernels *given,
                                       int threads, int splits)
{
    struct attn_kernels narrowed = *given;
    const struct attn_kernels *const kernels = &narrowed;
    while (is_too_wide(problem, kernels)) /* lanes do not depend on each other: no bit changes */
        narrowed.strip -= kernels->vectors->lanes;
    const int parallel = threads_worth(problem, threads), ragged = problem->params.ragged != NULL;
    const int may_be_together = problem->may_be_together && problem->q.shape[1] > problem->k.shape[1];
    const int64_t room = may_be_together ? strips_of_block(problem, kernels, kernels->strip, INT64_MAX) : 0;
    const int64_t most_rows = attn_most_rows_together(room * kernels->strip);
    const int64_t together = attn_heads_together(problem, most_rows, parallel, splits && may_split(problem));
    const int one_block = together > 1 && !ragged; /* all rows of heads that are together are in it */
    const int64_t tq = one_block ? problem->q.shape[2] * together : problem->q.shape[2];
    const int64_t heads_of_task = one_block ? together : 1;
    const int64_t heads = count_elements(problem) * (problem->q.shape[1] / heads_of_task);
    /* Strips come in units: one, or those of a group. No block of queries reaches across a pattern's blocks that it
     * has no room for: what a query's sums are made of would depend on the other rows. */
    const attn_block_mask *pattern = problem->params.block_mask;
    const int64_t size = pattern && pattern->size < tq ? pattern->size : 0; /* 0: there is one row of blocks at most */
    const int64_t group = fits_block(problem, kernels, size) ? size : 0;
    const int64_t unit_strips = attn_group_strips(kernels->strip, kernels->vectors->lanes, group);
    const int64_t unit_rows = group ? group : kernels->strip, units = (tq + unit_rows - 1) / unit_rows;
    const int64_t per_block = strips_of_block(
        problem, kernels, attn_strip_rows(kernels->strip, kernels->vectors->lanes, group), units * unit_strips);
    int64_t per_task = per_block / unit_strips;

    const int each = kernels->scores->tasks_per_thread ? kernels->scores->tasks_per_thread : TASKS_PER_THREAD;
    const int64_t wanted = (int64_t)each * parallel;
    while (per_task > 1 && parallel > 1 && !one_block && heads * ((units + per_task - 1) / per_task) < wanted)
        per_task--;
    if (per_task < units && group == size) /* blocks of equal size */
        per_task = (units + (units + per_task - 1) / per_task - 1) / ((units + per_task - 1) / per_task);

    int64_t rows = per_task * unit_rows, parts = 0;
    if (may_be_even(problem) && !one_block)
        even_rows(problem, kernels, parallel, heads, &rows, &parts);
    if (problem->block_rows > 0 && problem->block_rows < rows && !pattern)
        rows = problem->block_rows;

    struct attn_geometry geometry = {.kernels = *kernels,
                                     .group = group,
                                     .together = together,
                                     .rows_together = most_rows,
                                     .heads = problem->q.shape[1] / heads_of_task,
                                     .rows_per_block = one_block ? tq : rows,
                                     .pieces = 1,
                                     .far = is_far(problem, parallel)};
    geometry.unit = geometry.rows_per_block;
    if (group != size) {
        geometry.unit = size;
        geometry.pieces = size / geometry.rows_per_block + (size % geometry.rows_per_block > 0);
    }
    geometry.blocks = one_block ? 1 : count_blocks(problem, geometry.unit, geometry.pieces);
    geometry.tasks = !attn_writes_anything(problem) ? 0 : problem->params.key_sums ? heads : heads * geometry.blocks;
    geometry.gathers = gathers(problem);
    geometry.threads = threads;
    int64_t strips = group ? per_task * unit_strips : (rows + kernels->strip - 1) / kernels->strip;
    if (together > 1 && ragged) { /* a sequence has no more rows than all of them, and than a block may have */
        const int64_t most = tq < most_rows / together ? tq * together : most_rows;
        const int64_t of_rows = (most + kernels->strip - 1) / kernels->strip;
        strips = strips > of_rows ? strips : of_rows;
    }
    const int64_t shared_rows = problem->params.block_table
                                    ? attn_shared_rows(problem, together, most_shared_rows(problem, kernels, strips))
                                    : 0;
    const int64_t shared_strips = (shared_rows + kernels->strip - 1) / kernels->strip;
    struct attn_scratch scratch;
    geometry.scratch = scratch_shape(problem, kernels, strips > shared_strips ? strips : shared_strips);
    geometry.key_block = (int)geometry.scratch.key_block;
    geometry.scratch_size = attn_scratch_layout(&scratch, NULL, &geometry.scratch);
    geometry.shared_size = geometry.labels_size = attn_labels_size(problem, geometry.key_block);
    if (geometry.labels_size > 0) {
        const double labels = (double)problem->q.shape[0] * (double)problem->k.shape[2];
        add_phase(&geometry, problem->num_sequences, attn_threads_worth(labels, ATTN_WORTH_COPY, threads),
                  attn_summarise_labels);
    }
    cut_keys(problem, parallel, tq, parts, &geometry);
    if (geometry.parts == 1 && geometry.tasks > 0 && shared_rows > 0)
        add_sharing(problem, shared_rows, &geometry);
    if (geometry.parts == 1 && attn_is_ordered(problem, &geometry, parallel))
        add_order(problem, &geometry);
    add_blocks(&geometry, parallel, (double)heads * (double)tq * (double)problem->v.shape[3]);
    return geometry;
}

struct attn_geometry attn_geometry_of(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                      int threads)
{
    if (attn_is_single(problem, kernels))
        return cut_heads(problem, kernels, threads);
    const struct attn_geometry geometry = cut_blocks(problem, kernels, threads, 1);
    /* Heads were perhaps put together for the sake of splits that need more memory than there may be. */
    const int idle = geometry.together > 1 && geometry.tasks < threads_worth(problem, threads);
    return idle ? cut_blocks(problem, kernels, threads, 0) : geometry;
}
