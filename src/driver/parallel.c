/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the phases of a call, and the tasks of each on threads. Tasks are handed
 * out one at a time, as cores are shared and uneven; which thread computes a
 * task changes no bit of it.
 *
 * What all threads share lies in the workspace, so that a caller's own threads
 * need nothing but that:
 *
 *     struct attn_run | shared_size bytes of the phases | scratch of thread 0 | thread 1 | ...
 */
#include "driver/driver.h"

#include "driver/threads.h"

size_t attn_run_size(const struct attn_geometry *geometry, int threads)
{
    return ATTN_ALIGN - 1 + attn_aligned(sizeof(struct attn_run)) + attn_aligned(geometry->shared_size) +
           (size_t)threads * geometry->scratch_size;
}

struct attn_run *attn_run_in(void *workspace)
{
    return (struct attn_run *)(((uintptr_t)workspace + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN);
}

struct attn_run *attn_run_begin(void *workspace, const struct attn_problem *problem,
                                const struct attn_geometry *geometry)
{
    struct attn_run *run = attn_run_in(workspace);
    char *shared = (char *)run + attn_aligned(sizeof *run);
    run->problem = problem;
    run->backward = NULL;
    run->steps = NULL;
    run->linear = NULL;
    run->linear_backward = NULL;
    run->executor = problem ? problem->params.executor : NULL;
    run->geometry = geometry;
    run->labels = geometry->labels_size > 0 ? (struct attn_label_range *)shared : NULL;
    run->sharers = geometry->shared_rows > 0 ? (struct attn_sharers *)(void *)(shared + geometry->labels_size) : NULL;
    run->order = geometry->ordered ? (struct attn_ordered *)(void *)(shared + geometry->order_at) : NULL;
    run->partials = shared + geometry->labels_size; /* there are no sharers where keys are split */
    run->scratch = shared + attn_aligned(geometry->shared_size);
    run->owner = NULL;
    run->looks = NULL;
    for (int phase = 0; phase < geometry->num_phases; phase++)
        atomic_store_explicit(&run->next[phase].task, 0, memory_order_relaxed); /* somebody may look at it */
    return run;
}

void attn_run_progress(const void *workspace, const struct attn_geometry *geometry, int64_t *begun, int64_t *tasks)
{
    const struct attn_run *run = attn_run_in((void *)(uintptr_t)workspace); /* which is only looked at */
    *begun = *tasks = 0;
    for (int phase = 0; phase < geometry->num_phases; phase++) {
        const int64_t all = geometry->phases[phase].tasks;
        const int64_t next = atomic_load_explicit(&run->next[phase].task, memory_order_relaxed);
        *begun += next < all ? next : all; /* shares that find no more have counted on */
        *tasks += all;
    }
}

int64_t attn_geometry_tasks(const struct attn_geometry *geometry)
{
    int64_t tasks = 0;
    for (int phase = 0; phase < geometry->num_phases; phase++)
        tasks += geometry->phases[phase].tasks;
    return tasks;
}

void attn_run_keep(struct attn_run *run)
{
    if (run->problem != &run->kept)
        run->kept = *run->problem;
    run->problem = &run->kept;
}

static void count(const struct attn_run *run)
{
    if (run->geometry->begun)
        atomic_fetch_add_explicit(run->geometry->begun, 1, memory_order_relaxed);
}

void attn_run_share(struct attn_run *run, int phase, int ith)
{
    const struct attn_phase *what = &run->geometry->phases[phase];
    void *scratch = run->scratch + (size_t)ith * run->geometry->scratch_size;
    for (int64_t task;
         (task = atomic_fetch_add_explicit(&run->next[phase].task, 1, memory_order_relaxed)) < what->tasks;) {
        count(run);
        what->run_task(run, task, scratch);
    }
}

/** A phase of a run. */
struct step {
    struct attn_run *run;
    int phase;
};

static void run_share(void *context, int ith)
{
    const struct step *step = context;
    attn_run_share(step->run, step->phase, ith);
}

void attn_run_parallel(struct attn_run *run)
{
    const struct attn_geometry *geometry = run->geometry;
    for (int phase = 0; phase < geometry->num_phases; phase++) {
        const struct attn_phase *what = &geometry->phases[phase];
        int threads = what->parallel < geometry->parallel ? what->parallel : geometry->parallel;
        threads = what->tasks < threads ? (int)what->tasks : threads;
        if (threads <= 1) { /* nobody to share with */
            for (int64_t task = 0; task < what->tasks; task++) {
                atomic_store_explicit(&run->next[phase].task, task + 1, memory_order_relaxed);
                count(run);
                what->run_task(run, task, run->scratch);
            }
            continue;
        }
        const struct attn_team team = attn_team_of(run->executor, threads);
        attn_run_shares(&team, run_share, &(struct step){run, phase});
    }
}
