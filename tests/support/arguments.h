/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of the test programs that draw random numbers. All of them take
 * --isa NAME, --cases N, --seed N and --case N. Two environment variables serve
 * whole runs of the suite: ATTN_CHECK_CASES lowers the number of cases where
 * time is short (emulators, sanitizers), ATTN_CHECK_SEED fixes the seed.
 */
#ifndef TEST_ARGUMENTS_H
#define TEST_ARGUMENTS_H

#include "attn/attn.h"

#include <stdint.h>

struct arguments {
    const char *isa;
    int64_t cases;
    uint64_t seed;
    int64_t only; /**< the one case to run, or -1 */
    int full;     /**< --full was given */
};

/** A number that an option or variable of this name has; ends the program with a sentence where it is none. */
int64_t arguments_number(const char *name, const char *text, int64_t lowest);

/** Whether ATTN_CHECK_CASES is below 2000, as on emulated processors and under valgrind: each kind of case once will
 * do. */
int surroundings_are_slow(void);

/** Reads the options and prints the seed; ends the program with a sentence at a wrong one. */
struct arguments arguments_parse(int argc, char **argv, int64_t default_cases);

#endif
