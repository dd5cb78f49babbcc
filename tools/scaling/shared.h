/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prices of what threads share.
 */
#ifndef SCALING_SHARED_H
#define SCALING_SHARED_H

#include <jansson.h>

/**
 * A JSON object with nanoseconds, the least of some samples: an increment of a counter by one thread and by so many at
 * once, for each increment; opening and ending a region of so many threads; and the first write to a page of memory,
 * with the bytes of one. NULL without memory.
 */
json_t *scaling_prices(int threads);

#endif
