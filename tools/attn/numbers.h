/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options whose values are lists of numbers, separated by commas, or reals
 * within bounds. As those of options.h, each leaves *out alone when the option
 * was not given and fails with a usage sentence on a bad value.
 */
#ifndef ATTN_TOOLS_NUMBERS_H
#define ATTN_TOOLS_NUMBERS_H

#include <stdint.h>

#include "options.h"

/* Values are NULL when the option was not given. */
struct integers {
    int64_t *values;
    int64_t count;
};

struct reals {
    float *values;
    int64_t count;
};

/* What more is asked of a list of integers, or allowed in it. */
enum integers_kind {
    INTEGERS_PLAIN,
    INTEGERS_INF,     /* the word inf, which stands for INT64_MAX */
    INTEGERS_RISING,  /* no number twice, none below the one before it */
    INTEGERS_CLIMBING /* none below the one before it */
};

bool option_integers(const struct option *option, int64_t low, int64_t high, enum integers_kind kind,
                     struct integers *out, struct io_error *error);
/* Finite numbers; with minus_infinity "-inf" as well. */
bool option_reals(const struct option *option, bool minus_infinity, struct reals *out, struct io_error *error);
/* A finite number from least to below end, which may be INFINITY. */
bool option_double(const struct option *option, double least, double end, double *out, struct io_error *error);

/*
 * One value for each of count things from a list of one value for all, or one
 * for each; thing is their name. *out is the caller's to free, NULL when the
 * list is.
 */
bool integers_spread(const struct integers *list, const struct option *option, int64_t count, const char *thing,
                     int64_t **out, struct io_error *error);

#endif
