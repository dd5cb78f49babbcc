/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks share the work: how many of them share heads out, and what a group of those has together.
 */
#ifndef ATTN_MPI_GROUPS_H
#define ATTN_MPI_GROUPS_H

#include "mpi/heads.h"
#include "mpi/whole.h"

/** Sets config->head_ranks where it is 0, or says what is wrong with it. */
attn_status mpi_choose_groups(const struct mpi_whole *whole, int ranks, attn_mpi_config *config);

/**
 * What the choice goes by: blocks of a rank's own keys and values that it sends in a call, those of exchanges in groups
 * counted twice, as nothing is computed meanwhile.
 */
double mpi_waited_for(const struct mpi_whole *whole, int ranks, int group);

/** The ranks with the same heads, one of each group, and those of this rank's group. */
void mpi_split_team(const struct mpi_team *team, int head_ranks, struct mpi_team *ring, struct mpi_team *group);

/** [groups] what each group of head_ranks neighbours has; *together: only its ranges, for free(). NULL without memory.
 */
struct mpi_pool *mpi_pools_of(struct mpi_share *shares, int groups, int head_ranks, struct mpi_share **together);
void mpi_pools_free(struct mpi_pool *pools, int groups);

#endif
