/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command-line options from a table. The same table is parsed and printed by
 * --help, so the two cannot drift apart. Stricter than getopt_long: an option
 * given twice, an abbreviation, or a number with something after it is an error
 * and never silently something else.
 */
#ifndef ATTN_TOOLS_OPTIONS_H
#define ATTN_TOOLS_OPTIONS_H

#include <stdio.h>

#include "io/error.h"

struct option {
    const char *name;     /* without the dashes; NULL if there is only the letter */
    char letter;          /* 0 if there is none */
    const char *argument; /* what --help calls the value; NULL for a switch */
    const char *help;     /* lines separated by \n */
    const char *value;    /* set by options_parse(): NULL if not given, "" for a switch */
};

struct operands {
    const char *values[2];
    int count;
};

/*
 * Reads argv[0..argc-1] into the table. Forms: --name VALUE, --name=VALUE,
 * -l VALUE; a value may begin with '-'. Operands beyond max_operands are an error.
 */
bool options_parse(struct option *options, int count, int argc, char *const *argv, struct operands *operands,
                   int max_operands, struct io_error *error);
void options_print(FILE *to, const struct option *options, int count);
/* "--name" or "-l", for sentences; the buffer is written only if needed. */
const char *option_label(const struct option *option, char buffer[64]);

/* Fail with a usage sentence unless the option has a value. */
bool option_require(const struct option *option, struct io_error *error);

/* Each leaves *out alone when the option was not given, and fails with a usage sentence on a bad value. */
bool option_float(const struct option *option, bool positive, float *out, struct io_error *error);
bool option_integer(const struct option *option, long long low, long long high, long long *out, struct io_error *error);
/* Finds the value among names[0..count-1]. */
bool option_choice(const struct option *option, const char *const *names, int count, int *out, struct io_error *error);

#endif
