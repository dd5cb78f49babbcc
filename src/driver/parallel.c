/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the tasks of a call on OpenMP threads. They are handed out one at a time,
 * as cores are shared and uneven; which thread computes a task changes no bit
 * of it.
 */
#include "driver/driver.h"

#include <omp.h>

void attn_run_parallel(const struct attn_problem *problem, const struct attn_geometry *geometry, void *scratch)
{
    if (geometry->parallel == 1 || attn_forked_from_threads()) {
        for (int64_t task = 0; task < geometry->tasks; task++)
            attn_run_task(problem, geometry, task, scratch);
        return;
    }
    attn_note_threads();
#pragma omp parallel num_threads(geometry->parallel)
    {
        void *own = (char *)scratch + (size_t)omp_get_thread_num() * geometry->scratch_size;
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < geometry->tasks; task++)
            attn_run_task(problem, geometry, task, own);
    }
}
