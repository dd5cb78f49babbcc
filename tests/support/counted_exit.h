/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of what ran, kept where a process ends by _exit(), as children of tests do: gcc's are written at exit()
 * alone. tools/coverage has this included in front of every file.
 */
#ifndef TEST_COUNTED_EXIT_H
#define TEST_COUNTED_EXIT_H

void __gcov_dump(void);
__attribute__((noreturn)) void exit_uncounted(int code) __asm__("_exit");

/** What unistd.h declares as _exit() is this one then. */
__attribute__((noreturn)) static inline void exit_counted(int code)
{
    __gcov_dump();
    exit_uncounted(code);
}

#define _exit exit_counted

#endif
