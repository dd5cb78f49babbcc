/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command-line options from a table. The same table is parsed and printed by
 * --help, so the two cannot drift apart. Stricter than getopt_long: an option
 * given twice, an abbreviation, or a number with something after it is an error
 * and never silently something else.
 */
#ifndef ATTN_TOOLS_OPTIONS_H
#define ATTN_TOOLS_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "io/error.h"

struct option {
    const char *name;     /* without the dashes; NULL if there is only the letter */
    char letter;          /* 0 if there is none; a row with neither is no option */
    const char *argument; /* what --help calls the value; NULL for a switch; "TEXT...": it may be given several times */
    const char *help;     /* lines separated by \n */
    const char *value;    /* set by options_parse(): NULL if not given, "" for a switch, the last of several */
};

/* convert takes many. */
#define MOST_OPERANDS 256

/* The rows of these options in the table of a command. */
#define OPTION_ROW_HELP                                                                                                \
    {                                                                                                                  \
        "help", 'h', NULL, "print this text", NULL                                                                     \
    }
#define OPTION_ROW_VERSION                                                                                             \
    {                                                                                                                  \
        "version", 'V', NULL, "print the version", NULL                                                                \
    }
#define OPTION_ROW_QUIET                                                                                               \
    {                                                                                                                  \
        "quiet", 0, NULL, "no notes and no progress on standard error", NULL                                           \
    }

struct operands {
    const char *values[MOST_OPERANDS];
    int count;
};

/*
 * Reads argv[0..argc-1] into the table. Forms: --name VALUE, --name=VALUE,
 * -l VALUE; a value may begin with '-'. Operands beyond max_operands are an error.
 */
attn_status options_parse(struct option *options, int count, int argc, char *const *argv, struct operands *operands,
                          int max_operands);
/* The values of an option that may be given several times; values are the caller's to free. */
struct texts {
    const char **values;
    int64_t count;
};
attn_status option_values(struct option *options, int count, int argc, char *const *argv, const struct option *which,
                          struct texts *out);
void options_print(FILE *to, const struct option *options, int count);
/* "--name" or "-l", for sentences; the buffer is written only if needed. */
const char *option_label(const struct option *option, char buffer[64]);

/*
 * How many characters are put in, left out, changed or swapped with their neighbour between two names; INT_MAX if
 * one has more than 40.
 */
int name_distance(const char *a, const char *b);
/* Whether a name may be another one with a slip: up to a third of its characters are wrong. */
bool name_resembles(const char *typed, int distance);

/* Fail with a usage sentence unless the option has a value. */
attn_status option_require(const struct option *option);

/* Each leaves *out alone when the option was not given, and fails with a usage sentence on a bad value. */
attn_status option_float(const struct option *option, bool positive, float *out);
attn_status option_integer(const struct option *option, long long low, long long high, long long *out);
/* Finds the value among names[0..count-1]. */
attn_status option_choice(const struct option *option, const char *const *names, int count, int *out);

/* -------------------------------------------- lists, and reals with bounds -- */

/* Values are NULL when the option was not given. */
struct integers {
    int64_t *values;
    int64_t count;
};

struct reals {
    float *values;
    int64_t count;
};

struct doubles {
    double *values;
    int64_t count;
};

/* What more is asked of a list of integers, or allowed in it. */
enum integers_kind {
    INTEGERS_PLAIN,
    INTEGERS_INF,     /* the word inf, which stands for INT64_MAX */
    INTEGERS_RISING,  /* no number twice, none below the one before it */
    INTEGERS_CLIMBING /* none below the one before it */
};

attn_status option_integers(const struct option *option, int64_t low, int64_t high, enum integers_kind kind,
                            struct integers *out);
/* Finite numbers; with minus_infinity "-inf" as well. */
attn_status option_reals(const struct option *option, bool minus_infinity, struct reals *out);
/* Positive numbers that a float can hold. */
attn_status option_doubles(const struct option *option, struct doubles *out);
/* A finite number from least to below end, which may be INFINITY. */
attn_status option_double(const struct option *option, double least, double end, double *out);

/*
 * One value for each of count things from a list of one value for all, or one
 * for each; thing is their name. *out is the caller's to free, NULL when the
 * list is.
 */
attn_status integers_spread(const struct integers *list, const struct option *option, int64_t count, const char *thing,
                            int64_t **out);

#endif
