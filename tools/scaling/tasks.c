/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tasks there are and what they cost. The estimate counts multiply-adds
 * of the vectors that a block of queries has with the keys that each of them
 * sees, as the pass computes whole vectors, and adds what a task, a strip, a row
 * and a block of keys cost besides. It is a function of the geometry alone: the
 * same on every machine that runs the same instruction set.
 */
#include "tasks.h"

#include "driver/backward_blocks.h"
#include "driver/backward_even.h"
#include "driver/backward_options.h"
#include "driver/backward_tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Multiply-adds that take as long: those of the backward pass from --measure on AVX2, the others estimates, on the high
 * side. */
#define PER_TASK     20000.0 /* taking a task and setting up its pass */
#define PER_NUMBER   6.0     /* a number of q or out that is read, turned and written */
#define PER_COPY     4.0     /* a number of what phases hand on */
#define PER_SEQUENCE 1000.0  /* a look at one, on one thread */
#define PER_TILE     2000.0  /* a strip and a block of keys */

/* A row of K that few queries meet takes the time of so many more. */
#define FEW_READS 4.0

static double less(double a, double b)
{
    return a < b ? a : b;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/** Keys first to end - 1 of those that tokens first to last of a view see. */
static int64_t keys_seen(const struct attn_view *view, int64_t first_token, int64_t last_token, int64_t first,
                         int64_t end)
{
    int64_t hi = least(end, most(last_token + view->diagonal + 1, view->prefix));
    int64_t lo = first;
    if (view->window_first > -ATTN_FAR)
        lo = most(lo, (first_token + view->window_first) / ATTN_RUN_STEP * ATTN_RUN_STEP);
    if (view->window_last < ATTN_FAR)
        hi = least(hi, last_token + view->window_last + 1);
    return most(hi - lo, 0);
}

/** What some rows of a strip take, as a part of what they take in a full one; forward they take the same. */
static double narrowness(int64_t rows, int64_t strip, double products)
{
    return products == 1 ? 1 : attn_backward_time_of_queries(strip, rows) / (double)rows;
}

/** Multiply-adds of some keys with a block of queries: products times both of its products. */
static double cost_of_block(const struct attn_work *work, int64_t first, int64_t end, double products)
{
    const struct attn_view *view = &work->view;
    const int64_t lanes = work->kernels->vectors->lanes, strip = work->kernels->strip;
    const double channels = products * (work->dk + work->dv);
    double cost = 0;
    for (int64_t row = 0; row < work->num_queries; row += strip) {
        const int64_t rows = least(strip, work->num_queries - row);
        if (rows <= work->kernels->vectors->few && work->kernels->scores->scores_of_few) {
            const double keys = (double)keys_seen(view, row / view->heads, (row + rows - 1) / view->heads, first, end);
            cost += keys * channels * ((double)rows + FEW_READS);
            continue;
        }
        const double each = channels * (double)lanes * narrowness((rows + lanes - 1) / lanes * lanes, strip, products);
        for (int64_t vector = row; vector < row + rows; vector += lanes) {
            const int64_t last = least(vector + lanes, work->num_queries) - 1;
            cost += each * (double)keys_seen(view, vector / view->heads, last / view->heads, first, end);
        }
        const double keys = (double)keys_seen(view, row / view->heads, (row + rows - 1) / view->heads, first, end);
        cost += (keys / ATTN_KEY_BLOCK + 1) * PER_TILE;
    }
    return cost;
}

static double cost_of_rows(const struct attn_work *work)
{
    return (double)work->num_queries * (work->dk + work->dv) * PER_NUMBER;
}

/* ----------------------------------------------------------------- forward -- */

/** The block of queries of a task of the forward pass; 0: none. */
static int work_of(const struct attn_run *run, int64_t number, struct attn_work *work, int64_t *s,
                   struct attn_place *at)
{
    *at = attn_place_of(run, number);
    *s = run->problem->params.ragged ? attn_ragged_block(run, &at->block) : at->b;
    return attn_work_of(run, *s, at->h, at->block, run->scratch, work);
}

/** A block of all its keys, alone or for those that it shares keys with. */
static double cost_of_task(const struct attn_run *run, int64_t number)
{
    struct attn_work work;
    struct attn_place at;
    int64_t s;
    if (!work_of(run, number, &work, &s, &at))
        return PER_TASK / 10;
    const struct attn_sharers *sharers = run->sharers && s < run->problem->num_sequences ? &run->sharers[s] : NULL;
    if (!sharers || sharers->keys == 0)
        return PER_TASK + cost_of_rows(&work) + cost_of_block(&work, 0, work.num_keys, 1);
    if (s != sharers->first)
        return PER_TASK / 10;
    double cost = PER_TASK;
    int64_t rows = 0;
    for (int64_t i = s; i < sharers->end; i++) {
        attn_work_of(run, i, at.h, at.block, run->scratch, &work);
        cost += 2 * cost_of_rows(&work) + cost_of_block(&work, sharers->keys, work.num_keys, 1);
        rows += work.num_queries;
    }
    work.num_queries = rows;
    work.view.diagonal = ATTN_FAR;
    return cost + cost_of_block(&work, 0, sharers->keys, 1);
}

/** Some of the splits that a block sees. */
static double cost_of_part(const struct attn_run *run, int64_t task)
{
    const int64_t parts = run->geometry->parts, part = task % parts;
    struct attn_work work;
    struct attn_place at;
    int64_t s;
    if (!work_of(run, task / parts, &work, &s, &at))
        return PER_TASK / 10;
    const int64_t last_token = (work.num_queries - 1) / work.view.heads;
    const int64_t seen = keys_seen(&work.view, 0, last_token, 0, work.num_keys);
    const int64_t hi = least(work.num_keys, last_token + work.view.diagonal + 1), lo = hi - seen;
    const int64_t first = lo / ATTN_SPLIT_KEYS, splits = (hi + ATTN_SPLIT_KEYS - 1) / ATTN_SPLIT_KEYS - first;
    const int64_t from = first + part * splits / parts, to = first + (part + 1) * splits / parts;
    if (seen == 0 || from >= to)
        return PER_TASK / 10;
    return PER_TASK + cost_of_rows(&work) * (double)(to - from) +
           cost_of_block(&work, from * ATTN_SPLIT_KEYS, least(hi, to * ATTN_SPLIT_KEYS), 1);
}

static double cost_of_join(const struct attn_run *run, int64_t task)
{
    struct attn_work work;
    struct attn_place at;
    int64_t s;
    if (!work_of(run, task, &work, &s, &at))
        return PER_TASK / 10;
    return PER_TASK / 10 + cost_of_rows(&work) +
           (double)work.num_queries * work.dv * PER_COPY * (double)run->geometry->splits;
}

static double cost_of_singles(const struct attn_run *run, int64_t task)
{
    const struct attn_geometry *g = run->geometry;
    const struct attn_problem *p = run->problem;
    const double heads = less((double)g->heads_per_task, (double)(g->tasks * g->heads_per_task - task));
    const double lanes = g->kernels.vectors->lanes, rows = (double)g->rows_per_block;
    const double channels = (double)(p->q.shape[3] + p->v.shape[3]);
    return heads * ((rows + lanes - 1) * (double)p->k.shape[2] * channels + rows * channels * PER_NUMBER);
}

/** Compares the block tables of neighbours. */
static double cost_of_sharing(const struct attn_run *run)
{
    const attn_params *p = &run->problem->params;
    return (double)run->problem->num_sequences * (double)(run->problem->k.shape[2] / p->page_size + 100);
}

/* ---------------------------------------------------------------- backward -- */

/** What a step takes for its queries besides its pairs, of so many pairs of products. */
static double cost_of_turns(const struct attn_work *work, double products)
{
    return (double)work->num_queries * (work->dk + work->dv) * products * ATTN_TURNED_KEYS;
}

/** What it takes where tasks follow each other. */
static double cost_of_following(const struct attn_work *work)
{
    return ((double)work->num_queries * ATTN_FAR_KEYS + ATTN_TOLD_PAIRS) * 2.5 * (work->dk + work->dv);
}

/** Rows of the sums of dQ, before and behind the main phase. */
static double cost_of_ends(const struct attn_run *run, const struct attn_phase *phase, int64_t task)
{
    const int sums = run->backward->apart && phase->run_task == attn_backward_end_task;
    const int64_t blocks = run->steps->query_blocks, heads = run->problem->q.shape[1];
    struct attn_backward_block block;
    if (task >= run->backward->query_tasks)
        return PER_TASK / 10;
    if (sums)
        task = attn_backward_end_block(run->backward, task);
    int64_t number = task % blocks, s = task / blocks / heads;
    if (run->problem->params.ragged)
        s = attn_ragged_block(run, &number);
    if (!attn_backward_block_of(run, s, task / blocks % heads, number, run->scratch, &block))
        return PER_TASK / 10;
    double cost = PER_TASK / 10;
    if (sums) {
        const double seen = (double)keys_seen(&block.work.view, 0, block.work.num_queries - 1, 0, block.work.num_keys);
        cost += PER_TASK + cost_of_block(&block.work, 0, block.work.num_keys, 1.5) +
                cost_of_turns(&block.work, 1.5) * seen / (double)run->steps->shape.keys;
    }
    return cost + (double)block.work.num_queries * (2 * block.work.dv + block.work.dk) * PER_COPY;
}

/** Biases by distance of a span of a head's queries: two of the five products. */
static double cost_of_span(const struct attn_run *run, int64_t task)
{
    const struct attn_run fixed = attn_backward_fixed_run(run);
    const struct attn_backward *b = run->backward;
    const int64_t heads = run->problem->q.shape[1], of_element = fixed.steps->query_blocks;
    const int64_t blocks = attn_backward_elements(run->problem) * of_element, span = b->spans - 1 - task / heads;
    double cost = PER_TASK / 10;
    for (int64_t i = attn_backward_span_begin(blocks, b->spans, span);
         i < attn_backward_span_begin(blocks, b->spans, span + 1); i++) {
        struct attn_backward_block block;
        int64_t number = i % of_element, s = i / of_element;
        if (run->problem->params.ragged)
            s = attn_ragged_block(&fixed, &number);
        if (attn_backward_block_of(&fixed, s, task % heads, number, run->scratch, &block))
            cost += PER_TASK + cost_of_block(&block.work, 0, block.work.num_keys, 1) + cost_of_turns(&block.work, 1);
    }
    return cost;
}

/** Those of a head, joined. */
static double cost_of_head(const struct attn_run *run)
{
    return PER_TASK / 10 + (double)(run->backward->spans * attn_backward_distance_sums(run->backward));
}

/** A task of keys; shares[step] becomes what it costs to go over a block of queries. */
static double cost_of_keys(const struct attn_run *run, int64_t task, double *shares)
{
    const struct attn_problem *problem = run->problem;
    const struct attn_backward_keys keys = attn_backward_keys_of(run, task);
    const int64_t group = problem->q.shape[1] / problem->k.shape[1];
    const double products = run->backward->apart ? 2.0 : 2.5;
    double cost = PER_TASK / 10;
    if (keys.first >= keys.end)
        return cost;
    const int64_t blocks = attn_backward_blocks(run, keys.s);
    cost = PER_TASK + (double)(keys.end - keys.first) * (double)(problem->q.shape[3] + problem->v.shape[3]) * PER_COPY;
    for (int64_t h = 0; h < group; h++)
        for (int64_t number = 0; number < blocks; number++) {
            struct attn_backward_block block;
            if (!attn_backward_block_of(run, keys.s, keys.head * group + h, number, run->scratch, &block))
                continue;
            const int64_t last_token = block.work.num_queries - 1;
            if (keys_seen(&block.work.view, 0, last_token, keys.first, keys.end) == 0)
                continue;
            double *const step = &shares[h * blocks + number];
            *step = PER_TASK / 10 + cost_of_block(&block.work, keys.first, keys.end, products) +
                    cost_of_turns(&block.work, products);
            if (!run->backward->apart)
                *step += cost_of_following(&block.work);
            cost += *step;
        }
    for (int64_t step = 0; step < group * blocks; step++)
        shares[step] /= cost;
    return cost;
}

/** Steps that a task of keys may have. */
static int64_t count_steps(const struct attn_run *run)
{
    int64_t steps = 0;
    for (int64_t s = 0; s < run->problem->num_sequences; s++)
        steps = most(steps, attn_backward_blocks(run, s));
    return steps * (run->problem->q.shape[1] / run->problem->k.shape[1]);
}

static void estimate_chains(const struct attn_run *run, struct scaling_phase *phase)
{
    const int64_t heads = run->problem->k.shape[1];
    for (int64_t task = 0; task < phase->count; task++) {
        const struct attn_backward_keys keys = attn_backward_keys_of(run, task);
        phase->links[task] = keys.s * heads + keys.head;
        phase->costs[task] = cost_of_keys(run, task, phase->shares + task * phase->steps);
    }
}

/* ------------------------------------------------------------------ phases -- */

static double estimate(const struct attn_run *run, const struct attn_phase *phase, int64_t task)
{
    if (phase->run_task == attn_run_part)
        return cost_of_part(run, task);
    if (phase->run_task == attn_run_join)
        return cost_of_join(run, task);
    if (phase->run_task == attn_run_singles)
        return cost_of_singles(run, task);
    if (phase->run_task == attn_find_shared)
        return cost_of_sharing(run);
    if (phase->run_task == attn_order_sequences || phase->run_task == attn_backward_order_task)
        return (double)run->problem->num_sequences * PER_SEQUENCE;
    if (phase->run_task == attn_run_task)
        return cost_of_task(run, task);
    if (phase->run_task == attn_backward_option_task)
        return cost_of_span(run, task);
    if (phase->run_task == attn_backward_head_task)
        return cost_of_head(run);
    return cost_of_ends(run, phase, task);
}

/** The threads that the library starts for a phase (attn_run_parallel()). */
static int threads_of(const struct attn_geometry *geometry, const struct attn_phase *phase)
{
    const int threads = phase->parallel < geometry->parallel ? phase->parallel : geometry->parallel;
    return phase->tasks < threads ? (int)phase->tasks : threads;
}

static int out_of_memory(struct scaling_tasks *tasks)
{
    fputs("attn-scaling: there is not enough memory for the list of tasks\n", stderr);
    scaling_tasks_free(tasks);
    return -1;
}

int scaling_tasks_estimate(const struct scaling_call *call, struct scaling_tasks *tasks)
{
    struct attn_run *run = attn_run_in(call->workspace);
    const struct attn_geometry *geometry = run->geometry;
    *tasks = (struct scaling_tasks){.num_phases = geometry->num_phases};
    for (int p = 0; p < geometry->num_phases; p++) {
        const struct attn_phase *what = &geometry->phases[p];
        struct scaling_phase *phase = &tasks->phases[p];
        phase->count = what->tasks;
        phase->parallel = threads_of(geometry, what);
        phase->costs = calloc((size_t)phase->count + 1, sizeof *phase->costs);
        if (!phase->costs)
            return out_of_memory(tasks);
        /* these look at lengths and block tables alone, and others want what they find */
        if (what->run_task == attn_find_shared || what->run_task == attn_order_sequences ||
            what->run_task == attn_backward_order_task)
            what->run_task(run, 0, run->scratch);
        if (what->run_task == attn_backward_key_task) {
            phase->waits = !run->backward->apart;
            phase->steps = count_steps(run);
            phase->chains = run->problem->k.shape[1] * (run->problem->num_sequences + 1);
            phase->links = calloc((size_t)phase->count + 1, sizeof *phase->links);
            phase->shares = calloc((size_t)(phase->count * phase->steps) + 1, sizeof *phase->shares);
            if (!phase->links || !phase->shares)
                return out_of_memory(tasks);
            estimate_chains(run, phase);
            continue;
        }
        for (int64_t task = 0; task < phase->count; task++)
            phase->costs[task] = estimate(run, what, task);
    }
    return 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int scaling_tasks_measure(struct scaling_call *call, int repeats, struct scaling_tasks *tasks)
{
    for (int repeat = 0; repeat < repeats; repeat++) {
        if (scaling_call_begin(call))
            return -1;
        struct attn_run *run = attn_run_in(call->workspace);
        for (int p = 0; p < tasks->num_phases; p++)
            for (int64_t task = 0; task < tasks->phases[p].count; task++) {
                const double start = now();
                run->geometry->phases[p].run_task(run, task, run->scratch);
                const double time = now() - start;
                double *const cost = &tasks->phases[p].costs[task];
                *cost = repeat == 0 || time < *cost ? time : *cost;
            }
    }
    return 0;
}

void scaling_tasks_free(struct scaling_tasks *tasks)
{
    for (int p = 0; p < tasks->num_phases; p++) {
        free(tasks->phases[p].costs);
        free(tasks->phases[p].links);
        free(tasks->phases[p].shares);
    }
    *tasks = (struct scaling_tasks){0};
}
