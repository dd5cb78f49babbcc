/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teams of threads for the loops that find the limits of a machine: OpenMP's, or one thread in a build without it.
 */
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_thread_num(void)
{
    return 0;
}

static inline void omp_set_dynamic(int dynamic)
{
    (void)dynamic;
}
#endif

#endif
