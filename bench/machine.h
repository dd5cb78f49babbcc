/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of the machine: peaks of its instruction sets, and how fast its memory is.
 */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include "options.h"
#include "peak.h"
#include "result.h"

#define BENCH_MAX_PEAKS 16

/** The machine's limits, measured again and again between the cases. */
struct bench_machine {
    struct bench_peak peaks[BENCH_MAX_PEAKS];
    int num_peaks;
    struct bench_peak tanh; /**< of the bare tanh loop, in the instruction set of f32 */
    struct bench_peak *f32; /**< that of f32 in the instruction set in use */
    struct bench_region buffer;
    struct bench_bandwidth memory[BENCH_NUM_ACCESSES]; /**< of the buffer, which no cache holds */
};

/** 0, or -1 after a sentence on stderr. */
int bench_machine_init(struct bench_machine *machine, const struct bench_options *options);

/** The peak of the kernels of one instruction set, or NULL. */
struct bench_peak *bench_machine_peak(struct bench_machine *machine, const char *isa);

/** Takes one sample of each limit. */
void bench_machine_sample(struct bench_machine *machine);

/** Adds the rows peak/TYPE/ISA, peak-loads/TYPE/ISA and bandwidth/ACCESS. 0, or -1 after a sentence on stderr. */
int bench_machine_report(const struct bench_machine *machine, struct bench_results *results);

void bench_machine_destroy(struct bench_machine *machine);

/** The processor that this runs on, as bars.h knows them. */
unsigned bench_processor(void);

#endif
