/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cycles of a short piece of code.
 *
 *     struct timing timing = {0};
 *     while (timing_goes_on(&timing))
 *         for (int64_t i = 0; i < timing.repeat; i++)
 *             piece();
 *     cycles = timing_result(&timing);
 */
#ifndef KERNELS_TIMING_H
#define KERNELS_TIMING_H

#include <stdint.h>

#define TIMING_SAMPLES 101

struct timing {
    int64_t repeat; /**< how often the piece is to be done now */
    uint64_t start;
    int samples, ready;
    double cycles[TIMING_SAMPLES];
};

/** What timing_result() counts in, for a heading. */
const char *timing_unit(void);

/** Whether the piece is to be done once more, repeat times. */
int timing_goes_on(struct timing *timing);

/** Time of one repetition: the median of the samples. */
double timing_result(struct timing *timing);

#endif
