/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of options, which every rank gives alike: what rectangles give is added up, then what ranks have, and all
 * of them get the whole.
 */
#ifndef ATTN_MPI_OPTIONS_H
#define ATTN_MPI_OPTIONS_H

#include "attn/backward.h"
#include "mpi/team.h"

/** The options that have such gradients, in the order in which their numbers lie. */
enum mpi_option { MPI_HEAD_SCALE, MPI_SINKS, MPI_SLOPES, MPI_TABLE, MPI_REL_K, MPI_REL_Q, MPI_GRADIENTS };

/** Sums over the queries of this rank, with room for those of each rank. */
struct mpi_options {
    const attn_gradients *wanted;
    int64_t heads;                                    /**< of the whole */
    int64_t begin[MPI_GRADIENTS], end[MPI_GRADIENTS]; /**< the numbers of each; equal: it is not wanted */
    int64_t num;                                      /**< of all together */
    double *sums;                                     /**< [1 + ranks][num] */
    float *part;                                      /**< [num] what one rectangle gives */
    attn_tensor rel_k, rel_q;                         /**< those in part, as a rectangle's call is told them */
};

/** Allocates for the gradients that are wanted, of options that are set; ATTN_OUT_OF_MEMORY. wanted must stay. */
attn_status mpi_options_make(struct mpi_options *options, const attn_params *params, const attn_gradients *wanted,
                             int64_t heads, int ranks);

/** Lets a rectangle's call, of heads from number head on, write all that are wanted. */
void mpi_options_ask(struct mpi_options *options, int64_t head, int64_t heads, attn_gradients *g);
/** Adds what it has written. */
void mpi_options_add(struct mpi_options *options);

/** Collective: sums over the ranks, in their order. */
attn_status mpi_options_sum(struct mpi_options *options, struct mpi_team *team);

/** Writes them to where the caller wants them. */
void mpi_options_deliver(const struct mpi_options *options);

#endif
