/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instruction sets that are built in, and the choice between them. A set
 * is a row of src/meson.build, from which the build makes isa_rows.h, and a
 * file of src/isa.
 */
#ifndef ATTN_DISPATCH_H
#define ATTN_DISPATCH_H

#include "kernels/kernels.h"

/**
 * The row of the set that callers call so, counted from 1, whether or not this processor runs it; 0 if there is none.
 * Sets that bring int8 scores and nothing else are no choice of callers.
 */
int attn_isa_row(const char *name);

/** Writes the names that callers may use to a buffer: "one, two or three". */
void attn_isa_list(char *buffer, size_t size);

/** What a call multiplies. */
struct attn_demand {
    int isa;     /**< no set above this row; 0: no limit */
    int insists; /**< pairs of bf16 are multiplied if isa has them, even where that is slower */
    attn_qk qk;
    int free;         /**< queries are few, and their sums free: of sets for pairs those that have scores_free() */
    int gradients;    /**< a backward pass: of sets for pairs those that have sums over queries, */
    int64_t channels; /**< of so many channels of a row of K and one of V together */
    int pairs;        /**< v is bf16, and so are q and k if qk does not make them int8: pairs may be multiplied */
    int exact_pairs;  /**< k and v are both ATTN_I4 or ATTN_F8_E4M3, q is bf16, queries are few and sums free: the same,
                           where a set can */
};

/**
 * Composes the best functions that this processor runs for a demand. Returns 0 if there are none: int8 scores, and no
 * int8 products.
 */
int attn_kernels_choose(struct attn_kernels *kernels, const struct attn_demand *demand);

/** The functions for f32 of the best instruction set that is not above the row cap (0: no limit). */
struct attn_kernels attn_kernels_plain(int cap);

#endif
