/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With OMP_PROC_BIND the OpenMP runtime binds this thread to one place before
 * main(), and a process that takes its place inherits that: all of its threads
 * would share this one processor. So the processors are noted before any library
 * is initialised.
 */
#include "restart.h"

#include <sched.h>
#include <unistd.h>

static cpu_set_t at_start;
static int known;

static void note_processors(void)
{
    known = sched_getaffinity(0, sizeof at_start, &at_start) == 0;
}

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = note_processors;

void bench_restart(char *const *argv)
{
    if (known)
        sched_setaffinity(0, sizeof at_start, &at_start);
    execv("/proc/self/exe", argv);
}
