/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of additive attention: cuts a call into blocks of queries of one
 * sequence each and, where these are fewer than threads have use for, their splits
 * of the keys into parts, whose sums a second round joins. Blocks are smaller
 * where there would be too few of them. None of this changes a bit
 * (additive_pass.c).
 *
 * Memory:
 *     labels     of documents, summed up once
 *     scratch    of a thread: exponentials of a block of keys; sums of all splits so far, and of one
 *     partials   [block][split] sums, where parts have them; without room for these a task takes all splits
 */
#include "nn/additive.h"

#include "driver/ranges.h"
#include "nn/alignment.h"
#include "nn/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Operations of a tanh, in the units of nn_threads(). */
#define TANH_OPERATIONS 8

/* Tasks a thread should find: causal ones differ in length. */
#define TASKS_PER_THREAD 4

/* Floats of a thread's sums at most, unless one query has more. */
#define MOST_SUMS ((int64_t)1 << 16)

/* Bytes of partials for each thread at most. */
#define MOST_PARTIALS ((double)(8 << 20))

/** How a call is cut. */
struct cut {
    int threads;
    int64_t block_queries, blocks;
    int64_t splits, parts; /**< splits of a sequence at most; tasks that share those of a block, 1: a task takes all */
    size_t labels, scratch, partial, partials; /**< bytes: partial of one split of a block, partials of all */
};

struct attn_problem nn_additive_problem(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                        const attn_tensor *out, const attn_params *params)
{
    struct attn_problem problem = {.q = *q, .k = *k, .v = *v, .out = *out, .params = *params};
    problem.num_sequences = params->ragged ? params->ragged->num_sequences : q->shape[0];
    problem.params.sums = ATTN_SUMS_ORDERED; /* those that are free are the core's */
    if (params->mask)
        problem.mask = *params->mask;
    if (params->lse)
        problem.lse = *params->lse;
    if (params->weights)
        problem.weights = *params->weights;
    return problem;
}

/** Queries of a block at most: this follows from shapes alone, so that what a thread needs does. */
static int64_t most_queries(const struct attn_problem *problem)
{
    const int64_t queries = problem->q.shape[2], values = problem->v.shape[3];
    int64_t most = queries < NN_ADDITIVE_QUERIES ? queries : NN_ADDITIVE_QUERIES;
    if (values > 0 && most > MOST_SUMS / values)
        most = MOST_SUMS / values;
    return most > 0 ? most : 1;
}

static size_t sums_size(int64_t queries, int64_t values)
{
    return nn_additive_sums_in(NULL, NULL, queries, values);
}

/** Cuts the keys of blocks into parts where that makes tasks for threads that have none. */
static void cut_keys(const struct attn_problem *problem, struct cut *cut)
{
    const int64_t keys = problem->k.shape[2], wanted = (int64_t)TASKS_PER_THREAD * cut->threads;
    cut->splits = keys / NN_ADDITIVE_SPLIT + (keys % NN_ADDITIVE_SPLIT > 0);
    cut->parts = 1;
    if (cut->threads <= 1 || cut->blocks == 0 || cut->blocks >= wanted || cut->splits <= 1 || problem->params.ragged)
        return;
    cut->partial = sums_size(cut->block_queries, problem->v.shape[3]);
    if ((double)cut->blocks * (double)cut->splits * (double)cut->partial > MOST_PARTIALS * cut->threads)
        return;
    cut->parts = (wanted + cut->blocks - 1) / cut->blocks;
    cut->parts = cut->parts < cut->splits ? cut->parts : cut->splits;
    cut->partials = (size_t)(cut->blocks * cut->splits) * cut->partial;
}

static struct cut cut_call(const struct attn_problem *problem)
{
    const int64_t queries = problem->q.shape[2], values = problem->v.shape[3], most = most_queries(problem);
    const double all = (problem->params.ragged ? 1.0 : (double)problem->q.shape[0]) * (double)queries;
    const double numbers = all * (double)problem->k.shape[2] * (double)(problem->q.shape[3] + 1);
    struct cut cut = {.block_queries = most};
    cut.threads = nn_threads(problem->params.num_threads, numbers * TANH_OPERATIONS);
    const double share = all / ((double)cut.threads * TASKS_PER_THREAD);
    if (cut.threads > 1 && share < (double)most)
        cut.block_queries = share > 1 ? (int64_t)share : 1;
    cut.blocks = problem->q.shape[0] && queries ? nn_additive_blocks(problem, cut.block_queries) : 0;
    cut.labels = attn_labels_size(problem, ATTN_KEY_BLOCK);
    cut.scratch = nn_additive_exps_in(NULL, NULL, problem->q.shape[3]) + 2 * sums_size(most, values);
    cut_keys(problem, &cut);
    return cut;
}

struct nn_need nn_additive_need(const struct attn_problem *problem)
{
    if (problem->v.shape[3] > INT32_MAX) /* which nn_check_additive() refuses */
        return (struct nn_need){SIZE_MAX, SIZE_MAX};
    const struct cut cut = cut_call(problem);
    const size_t least = cut.labels + cut.scratch;
    return (struct nn_need){least + (size_t)(cut.threads - 1) * cut.scratch + cut.partials, least};
}

/* -------------------------------------------------------------------- tasks -- */

/** A call at work. */
struct additive_run {
    const struct nn_additive *call;
    const struct cut *cut;
    struct attn_run core; /**< what attn_work_of() looks at */
    char *scratch, *partials;
    int64_t tasks;
    void (*task)(const struct additive_run *run, int64_t task, char *scratch);
    atomic_llong *next; /**< task to be handed out */
};

/** Where block and split have their partial. */
static struct nn_additive_sums partial_of(const struct additive_run *run, int64_t block, int64_t split)
{
    const struct cut *cut = run->cut;
    struct nn_additive_sums sums;
    nn_additive_sums_in(&sums, run->partials + (size_t)(block * cut->splits + split) * cut->partial, cut->block_queries,
                        run->call->problem->v.shape[3]);
    return sums;
}

/** Splits first to end - 1 of a block, one after the other; next is memory for one. */
static void run_splits(const struct additive_run *run, const struct pass *pass, struct nn_additive_range splits,
                       struct nn_additive_exps *exps, struct nn_additive_sums *next, struct nn_additive_sums *sums)
{
    nn_additive_split(run->call, pass, splits.first, exps, sums);
    for (int64_t split = splits.first + 1; split < splits.end; split++) {
        const int empty = nn_additive_is_empty(sums, pass->work->num_queries);
        nn_additive_split(run->call, pass, split, exps, empty ? sums : next);
        if (!empty && !nn_additive_is_empty(next, pass->work->num_queries))
            nn_additive_join(run->call, pass->work, next, sums);
    }
}

/** A block of queries and all its keys. */
static void run_whole(const struct additive_run *run, int64_t task, char *scratch)
{
    const struct attn_problem *problem = run->call->problem;
    /* With causality the last queries see most: longest first. */
    const int64_t block = problem->params.causal == ATTN_CAUSAL_NONE ? task : run->tasks - 1 - task;
    struct attn_work work;
    struct pass pass;
    struct nn_additive_exps exps;
    struct nn_additive_sums sums, next;
    if (!nn_additive_work_of(&run->core, block, &work))
        return;
    scratch += nn_additive_exps_in(&exps, scratch, problem->q.shape[3]);
    scratch += nn_additive_sums_in(&sums, scratch, run->cut->block_queries, problem->v.shape[3]);
    nn_additive_sums_in(&next, scratch, run->cut->block_queries, problem->v.shape[3]);
    nn_additive_begin(&pass, &work);
    nn_additive_clear(&work, (struct nn_additive_range){0, run->cut->splits});
    run_splits(run, &pass, nn_additive_splits(&pass), &exps, &next, &sums);
    nn_additive_finish(run->call, &work, &sums);
}

/** Where the parts of a block leave what each split that they see has given. */
static void run_part(const struct additive_run *run, int64_t task, char *scratch)
{
    const int64_t parts = run->cut->parts, block = task / parts, part = task % parts;
    struct attn_work work;
    struct pass pass;
    struct nn_additive_exps exps;
    if (!nn_additive_work_of(&run->core, block, &work))
        return;
    nn_additive_exps_in(&exps, scratch, run->call->problem->q.shape[3]);
    nn_additive_begin(&pass, &work);
    const struct nn_additive_range all = nn_additive_splits(&pass);
    const int64_t count = all.end - all.first;
    const struct nn_additive_range own = {all.first + count * part / parts, all.first + count * (part + 1) / parts};
    nn_additive_clear(
        &work, (struct nn_additive_range){part == 0 ? 0 : own.first, part == parts - 1 ? run->cut->splits : own.end});
    for (int64_t split = own.first; split < own.end; split++) {
        struct nn_additive_sums sums = partial_of(run, block, split);
        nn_additive_split(run->call, &pass, split, &exps, &sums);
    }
}

/** Joins the partials of a block, in the place of the first one that has something. */
static void run_join(const struct additive_run *run, int64_t block, char *scratch)
{
    const struct attn_problem *problem = run->call->problem;
    struct attn_work work;
    struct pass pass;
    struct nn_additive_sums sums;
    if (!nn_additive_work_of(&run->core, block, &work))
        return;
    nn_additive_begin(&pass, &work);
    const struct nn_additive_range splits = nn_additive_splits(&pass);
    if (splits.first == splits.end) { /* as if it had been gone over */
        struct nn_additive_exps exps;
        scratch += nn_additive_exps_in(&exps, scratch, problem->q.shape[3]);
        nn_additive_sums_in(&sums, scratch, run->cut->block_queries, problem->v.shape[3]);
        nn_additive_split(run->call, &pass, splits.first, &exps, &sums);
    } else {
        sums = partial_of(run, block, splits.first);
    }
    for (int64_t split = splits.first + 1; split < splits.end; split++) {
        const struct nn_additive_sums next = partial_of(run, block, split);
        if (nn_additive_is_empty(&sums, work.num_queries))
            sums = next;
        else if (!nn_additive_is_empty(&next, work.num_queries))
            nn_additive_join(run->call, &work, &next, &sums);
    }
    nn_additive_finish(run->call, &work, &sums);
}

/** The labels of sequences first to end - 1. */
static void run_labels(const void *context, int64_t first, int64_t end)
{
    const struct additive_run *run = context;
    for (int64_t s = first; s < end; s++)
        attn_summarise_labels(&run->core, s, NULL);
}

/** Tasks that nobody else has, in memory of a share's own. */
static void run_shares(const void *context, int64_t first, int64_t end)
{
    const struct additive_run *run = context;
    for (int64_t share = first; share < end; share++) {
        int64_t task;
        while ((task = atomic_fetch_add_explicit(run->next, 1, memory_order_relaxed)) < run->tasks) {
            if (run->call->progress)
                nn_progress_count(&run->call->progress->begun);
            run->task(run, task, run->scratch + (size_t)share * run->cut->scratch);
        }
    }
}

static void run_tasks(struct additive_run *run, int64_t tasks, int threads,
                      void (*task)(const struct additive_run *run, int64_t task, char *scratch))
{
    atomic_llong next = 0;
    const int shares = tasks < threads ? (int)tasks : threads;
    run->tasks = tasks;
    run->task = task;
    run->next = &next;
    attn_run_ranges(shares, shares, run_shares, run);
}

void nn_additive_run(const struct nn_additive *call, void *memory, size_t size)
{
    const struct attn_problem *problem = call->problem;
    struct cut cut = cut_call(problem);
    const struct attn_geometry geometry = nn_additive_geometry(cut.block_queries);
    if (!attn_writes_anything(problem))
        return;
    if (cut.partials && cut.labels + cut.scratch + cut.partials > size) {
        cut.partials = 0;
        cut.parts = 1;
    }
    const size_t room = (size - cut.labels - cut.partials) / cut.scratch;
    if ((size_t)cut.threads > room)
        cut.threads = (int)room;
    struct additive_run run = {.call = call, .cut = &cut, .core = {.problem = problem, .geometry = &geometry}};
    run.core.labels = memory;
    run.scratch = (char *)memory + cut.labels;
    run.partials = run.scratch + (size_t)cut.threads * cut.scratch;
    if (call->progress)
        nn_progress_begin(call->progress, cut.parts == 1 ? cut.blocks : cut.blocks * (cut.parts + 1));
    if (cut.labels)
        attn_run_ranges(problem->num_sequences, cut.threads, run_labels, &run);
    if (cut.parts == 1) {
        run_tasks(&run, cut.blocks, cut.threads, run_whole);
        return;
    }
    run_tasks(&run, cut.blocks * cut.parts, cut.threads, run_part);
    run_tasks(&run, cut.blocks, cut.threads, run_join);
}

attn_status nn_additive_vector(float **score, const char *name, const attn_tensor *v, float temperature)
{
    const int64_t n = v->shape[3];
    const double factor = 1.4426950408889634 / (temperature != 0.0f ? (double)temperature : 1.0);
    *score = NULL;
    for (int64_t i = 0; i < n; i++) {
        const float x = nn_weight_at(v, 0, i);
        if (isfinite(x) && !isfinite((float)((double)x * factor)))
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "%s[%" PRId64 "] is %g, with a temperature of %g; expected a quotient that a float can "
                             "hold",
                             name, i, (double)x, (double)temperature);
    }
    float *made = malloc((size_t)n * sizeof *made);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "%s, a vector of %" PRId64 " floats, could not be allocated", name, n);
    for (int64_t i = 0; i < n; i++)
        made[i] = (float)((double)nn_weight_at(v, 0, i) * factor);
    *score = made;
    return ATTN_OK;
}
