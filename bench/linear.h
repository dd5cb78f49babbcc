/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a linear layer of libattn_nn beside OpenBLAS's product. BENCH_NN is
 * 0 where the option nn is off: there the cases are not to be had, and nothing
 * else knows of it.
 */
#ifndef BENCH_LINEAR_H
#define BENCH_LINEAR_H

#include "machine.h"

#if BENCH_NN

/** Whether layers run on the kernels that are measured where isa is asked for. They pack for attn_isa_active(). */
bool bench_linear_supported(const char *isa);

/**
 * bench_run_case() for a linear layer; selection.library is the layer, selection.naive OpenBLAS. Their peak is that of
 * the layer's kernels; of f32 for products of int8, which have none.
 */
int bench_linear_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                     struct bench_selection selection, struct bench_results *results);

/** The same for the gradients of a linear layer, those of x and of the weights together. */
int bench_linear_backward_run(struct bench_machine *machine, const struct bench_options *options,
                              const struct bench_case *c, struct bench_selection selection,
                              struct bench_results *results);

#else

static inline bool bench_linear_supported(const char *isa)
{
    (void)isa;
    return false;
}

static inline int bench_linear_run(struct bench_machine *machine, const struct bench_options *options,
                                   const struct bench_case *c, struct bench_selection selection,
                                   struct bench_results *results)
{
    (void)machine, (void)options, (void)c, (void)selection, (void)results;
    return -1;
}

static inline int bench_linear_backward_run(struct bench_machine *machine, const struct bench_options *options,
                                            const struct bench_case *c, struct bench_selection selection,
                                            struct bench_results *results)
{
    return bench_linear_run(machine, options, c, selection, results);
}

#endif

#endif
