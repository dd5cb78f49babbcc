/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tokens of a sequence each rank holds.
 */
#ifndef ATTN_MPI_PLACEMENT_H
#define ATTN_MPI_PLACEMENT_H

#include "attn/mpi_plan.h"

/** The tokens of one rank: ranges in ascending order, none of them empty, with tokens of others between them. */
struct mpi_share {
    attn_mpi_range *ranges;
    int64_t num;
    int64_t tokens; /**< of all ranges */
};

/** A config with its defaults filled in, or what is wrong with it. */
attn_status mpi_take_config(attn_mpi_config *ours, const attn_mpi_config *theirs);

/** The share of each of ranks ranks, of a config that has been taken; NULL if there is no memory. free() frees it. */
struct mpi_share *mpi_shares_of(const attn_mpi_config *config, int64_t tokens, int ranks);

#endif
