/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of one rank as a part of the call of a single process: its checks, and what ranks have to give alike.
 */
#ifndef ATTN_MPI_WHOLE_H
#define ATTN_MPI_WHOLE_H

#include "api/check.h"
#include "driver/backward.h"
#include "mpi/agree.h"

/** The problem of the whole sequence, and what it points to. Its tensors have no data. */
struct mpi_whole {
    struct attn_problem problem;
    attn_tensor q, k, v, out, lse, mask, rope_q, rope_k;
    attn_rope_tables rope;
};

/** The tensors of a call. */
struct mpi_tensors {
    const attn_tensor *q, *k, *v, *out;
};

/**
 * Checks the shapes and options of a call, arrays too with CHECK_ARRAYS, and data and strides of this rank's tensors
 * with CHECK_TENSORS. queries and keys are how many of them this rank has. params have been taken, and must outlive
 * whole.
 */
attn_status mpi_check(struct mpi_whole *whole, const struct mpi_tensors *t, const attn_params *params,
                      const attn_mpi_config *config, int64_t queries, int64_t keys, enum check_depth depth);

/** Checks what a backward pass reads and writes besides, whose mpi_check() has passed. */
attn_status mpi_check_gradients(const struct mpi_tensors *t, const attn_params *params,
                                const attn_gradients *gradients);

/** Marks of a checked call; gradients NULL: of a forward one. */
struct mpi_marks mpi_marks_of(const struct mpi_whole *whole, const attn_mpi_config *config,
                              const attn_gradients *gradients);

#endif
