/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With OMP_PROC_BIND the OpenMP runtime has bound this thread to one place
 * before main(), and a process that takes its place inherits that: all of its
 * threads would share this one processor.
 */
#include "restart.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static void leave_place(void)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int place = 0; place < omp_get_num_places(); place++) {
        const int count = omp_get_place_num_procs(place);
        int *ids = malloc((size_t)count * sizeof *ids);
        if (ids == NULL)
            return;
        omp_get_place_proc_ids(place, ids);
        for (int i = 0; i < count; i++)
            if (ids[i] < CPU_SETSIZE)
                CPU_SET((size_t)ids[i], &all);
        free(ids);
    }
    if (CPU_COUNT(&all) > 0)
        sched_setaffinity(0, sizeof all, &all);
}

void bench_restart(char *const *argv)
{
    leave_place();
    execv("/proc/self/exe", argv);
}
