/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of a run that has begun, phase by phase, as the library will hand
 * them out, and what each of them costs: by an estimate, or by the clock.
 */
#ifndef SCALING_TASKS_H
#define SCALING_TASKS_H

#include "shapes.h"

/** Tasks that run in any order but for what chains say, after all of the phase before. */
struct scaling_phase {
    int64_t count;
    int parallel;  /**< threads that the library would use */
    double *costs; /**< [count] */
    bool waits;    /**< tasks of a chain follow each other */
    int64_t steps; /**< of a task of a chain, of which there are so many: */
    int64_t chains;
    int64_t *links; /**< [count] the chain of a task; NULL without chains */
    double *shares; /**< [count][steps] parts of a task's cost, which add up to 1; 0: a step that it leaves out */
};

struct scaling_tasks {
    int num_phases;
    struct scaling_phase phases[8];
};

/** Of a call that has begun, with costs in multiply-adds by the estimate; 0, or -1 after a sentence on stderr. */
int scaling_tasks_estimate(const struct scaling_call *call, struct scaling_tasks *tasks);

/**
 * Runs the call's tasks one after the other on this thread, repeats times, each time from the beginning of a new run,
 * and makes the fastest time of each task, in seconds, its cost. tasks has been estimated; the same.
 */
int scaling_tasks_measure(struct scaling_call *call, int repeats, struct scaling_tasks *tasks);

void scaling_tasks_free(struct scaling_tasks *tasks);

#endif
