/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's schedule on threads that are not there: each takes the next task
 * from a counter when it has none, and phases end with a barrier.
 */
#ifndef SCALING_REPLAY_H
#define SCALING_REPLAY_H

#include "tasks.h"

struct scaling_evenness {
    double busy;     /**< the costs of all tasks */
    double finish;   /**< when the last thread has finished, in the same unit */
    double evenness; /**< busy / (threads * finish), threads being those that were asked for */
    double waiting;  /**< of threads * finish, the part that tasks have waited for others */
};

/** Replays all phases on so many threads. Fails, with -1 and a sentence on stderr, where there is no memory. */
int scaling_replay(const struct scaling_tasks *tasks, int threads, struct scaling_evenness *result);

#endif
