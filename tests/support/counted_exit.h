/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of what ran, kept where a process ends by _exit(), as children of tests do: gcc's are written at exit() alone.
 * tools/coverage has this included in front of every file.
 */
#ifndef TEST_COUNTED_EXIT_H
#define TEST_COUNTED_EXIT_H

#include <unistd.h>

void __gcov_dump(void);

#define _exit(code) (__gcov_dump(), _exit(code))

#endif
