/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A property test runs a list of properties on random problems; each property
 * returns whether it held.
 */
#ifndef PROPERTY_PROPERTIES_H
#define PROPERTY_PROPERTIES_H

#include "problem.h"

struct property {
    const char *name;
    int (*holds)(struct rng *rng, const char *isa);
};

/** Runs every property on as many random problems as the options say; prints what failed and how to repeat it. */
int properties_run(int argc, char **argv, const char *program, const struct property *properties, int n);

#endif
