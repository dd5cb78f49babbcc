/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turns that the variants of a case take with each other and with the
 * peak, and the figures that come of them. What a variant computes is not known
 * here: attention (runner.c), a linear layer (linear.c), or the baseline of either.
 */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include "options.h"
#include "peak.h"
#include "result.h"
#include "timing.h"

/** The library and the baseline. */
#define BENCH_MAX_VARIANTS 2

/** One way to compute a case. */
struct bench_variant {
    bench_body body; /**< fails only where the library does */
    void *context;
    struct bench_result row; /**< holds what is known before: the kind, name, case, flops, bytes, ... */
};

/** Says what the library said; returns -1. */
int bench_variant_error(const struct bench_variant *v);

/**
 * Takes the samples and puts times, rates and fractions into the variants'
 * rows; speedups too when the last variant is a baseline, of kind BENCH_NAIVE.
 * bandwidth: samples of it take turns as well, for variants that read or write
 * memory from end to end; or NULL. 0, or -1 after a sentence on stderr.
 */
int bench_turns_take(struct bench_variant *variants, int count, struct bench_peak *peak,
                     struct bench_bandwidth *bandwidth, const struct bench_options *options);

/** Adds the variants' rows. 0, or -1 after a sentence on stderr. */
int bench_turns_report(const struct bench_variant *variants, int count, struct bench_results *results);

#endif
