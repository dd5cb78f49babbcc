/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a schedule. Tasks are taken in the order of their numbers, so the
 * times at which threads are free follow from the tasks before, and one pass
 * over the tasks is enough. A task of a chain makes its steps in order, each of
 * them when all earlier tasks of the chain have passed it (src/driver/backward_tasks.c).
 */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Puts the time at which the first thread is free in its place among the others: a heap. */
static void sink(double *free_at, int threads)
{
    for (int i = 0;;) {
        int least = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < threads; child++)
            if (free_at[child] < free_at[least])
                least = child;
        if (least == i)
            return;
        const double swapped = free_at[i];
        free_at[i] = free_at[least];
        free_at[least] = swapped;
        i = least;
    }
}

/** When a task of a chain that is taken at a time has finished. passed: when each step may be made. */
static double follow(const struct scaling_phase *phase, int64_t task, double at, double *passed, double *waiting)
{
    const double *shares = phase->shares + task * phase->steps;
    double used = 0;
    for (int64_t step = 0; step < phase->steps; step++) {
        if (shares[step] > 0) {
            if (passed[step] > at) {
                *waiting += passed[step] - at;
                at = passed[step];
            }
            at += shares[step] * phase->costs[task];
            used += shares[step];
        }
        passed[step] = at > passed[step] ? at : passed[step];
    }
    return at + (1 - used) * phase->costs[task]; /* what comes behind the steps */
}

/** Replays a phase on so many threads, all of them free at 0; returns when it ends. */
static double replay_phase(const struct scaling_phase *phase, int threads, double *free_at, double *passed,
                           struct scaling_evenness *result)
{
    double end = 0;
    memset(free_at, 0, (size_t)threads * sizeof *free_at);
    for (int64_t task = 0; task < phase->count; task++) {
        const double at = free_at[0];
        free_at[0] = phase->waits
                         ? follow(phase, task, at, passed + phase->links[task] * phase->steps, &result->waiting)
                         : at + phase->costs[task];
        end = free_at[0] > end ? free_at[0] : end;
        sink(free_at, threads);
        result->busy += phase->costs[task];
    }
    return end;
}

int scaling_replay(const struct scaling_tasks *tasks, int threads, struct scaling_evenness *result)
{
    *result = (struct scaling_evenness){0};
    for (int p = 0; p < tasks->num_phases; p++) {
        const struct scaling_phase *phase = &tasks->phases[p];
        int used = phase->parallel < threads ? phase->parallel : threads;
        used = used < 1 ? 1 : used;
        double *free_at = malloc((size_t)used * sizeof *free_at);
        double *passed = calloc((size_t)(phase->chains * phase->steps + 1), sizeof *passed);
        if (free_at && passed)
            result->finish += replay_phase(phase, used, free_at, passed, result);
        free(free_at);
        free(passed);
        if (!free_at || !passed) {
            fputs("attn-scaling: there is not enough memory to replay the tasks\n", stderr);
            return -1;
        }
    }
    const double all = threads * result->finish;
    result->evenness = all > 0 ? result->busy / all : 1;
    result->waiting = all > 0 ? result->waiting / all : 0;
    return 0;
}
