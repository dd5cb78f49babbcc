/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads do not survive fork(), but libgomp's record of its pool does: a
 * child that starts a parallel region waits for threads that are not there
 * (OpenBLAS issue 294, faiss issue 5206). Resetting the pool from a handler
 * breaks other threads (OpenBLAS issue 4080), so a child of a process that had
 * threads runs alone on the calling thread. A child of a process that had none
 * (a server that forks its workers before it computes) keeps its threads.
 *
 * Who else in the process used OpenMP cannot be asked, so besides our own use
 * the number of threads at the moment of the fork counts: every thread is an
 * entry of /proc/self/task, and a directory's link count tells how many.
 */
#include "driver/ranges.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

static atomic_int threads_used, threads_at_fork, forked;

static void before_fork(void)
{
    struct stat task;
    const int several = stat("/proc/self/task", &task) == 0 && task.st_nlink > 3;
    atomic_store(&threads_at_fork, several || atomic_load(&threads_used));
}

static void in_child(void)
{
    if (atomic_load(&threads_at_fork))
        atomic_store(&forked, 1);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, NULL, in_child);
}

int attn_forked_from_threads(void)
{
    return atomic_load(&forked);
}

void attn_note_threads(void)
{
    if (!atomic_load_explicit(&threads_used, memory_order_relaxed))
        atomic_store(&threads_used, 1);
}
