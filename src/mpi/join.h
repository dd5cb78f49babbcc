/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results over disjoint sets of keys, joined one after the other.
 */
#ifndef ATTN_MPI_JOIN_H
#define ATTN_MPI_JOIN_H

#include "attn/attn.h"

/** What queries have so far: f32 sums (B, H, T, dv), and log-sum-exps in double, as many parts are joined. */
struct mpi_sums {
    attn_tensor out;
    double *lse; /**< of element (b, h, t) at b * lse_stride[0] + h * lse_stride[1] + t */
    int64_t lse_stride[2];
};

/** Of some of the queries. */
struct mpi_sums mpi_sums_of(const struct mpi_sums *sums, int64_t first, int64_t count);

/** Takes the log-sum-exps (B, H, T, 1) of a first part, whose results are the sums. */
void mpi_begin_sums(const struct mpi_sums *sums, const attn_tensor *part_lse);

/** Joins a part, f32 (B, H, T, dv) with channels side by side, and its log-sum-exps. num_threads as in attn_params. */
void mpi_join(const struct mpi_sums *sums, const attn_tensor *part, const attn_tensor *part_lse, int num_threads);

/** Writes the log-sum-exps to a tensor of f32 (B, H, T, 1), of any strides. */
void mpi_write_lse(const struct mpi_sums *sums, const attn_tensor *lse);

#endif
