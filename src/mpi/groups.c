/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks share the work: how many of them share heads out, and what a group of those has together.
 */
#include "mpi/groups.h"

#include "api/error.h"

#include <inttypes.h>
#include <stdlib.h>

/**
 * Numbers that a rank sends in one head of k's share of a call, in units of its own keys and values: exchanges within
 * groups of ranks, both ways, and blocks to the other groups.
 */
static double exchanged(const struct mpi_whole *whole, int group)
{
    const double heads = (double)whole->problem.q.shape[1], key_heads = (double)whole->problem.k.shape[1];
    return key_heads > 0 ? (heads / key_heads + 1) * (group - 1) / group : 0;
}
static double passed_on(int ranks, int group)
{
    return (double)ranks / group - 1;
}

double mpi_waited_for(const struct mpi_whole *whole, int ranks, int group)
{
    return 2 * exchanged(whole, group) + passed_on(ranks, group);
}

/** Whether ranks can share heads out so. */
static int is_possible(const struct mpi_whole *whole, int ranks, int group)
{
    return ranks % group == 0 && whole->problem.k.shape[1] % group == 0;
}

attn_status mpi_choose_groups(const struct mpi_whole *whole, int ranks, attn_mpi_config *config)
{
    const attn_params *p = &whole->problem.params;
    const int asked = config->head_ranks;
    if (asked && !is_possible(whole, ranks, asked))
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.head_ranks is %d; expected a divisor of %d ranks and of %" PRId64 " heads of k", asked,
                         ranks, whole->problem.k.shape[1]);
    if (asked > 1 && p->mask)
        return attn_fail(ATTN_UNSUPPORTED, "params.mask is set; expected NULL, as config.head_ranks is %d", asked);
    if (asked)
        return ATTN_OK;
    config->head_ranks = 1;
    /* Of what windows, patterns and documents hide little travels at all. */
    const int hides = p->window || p->block_mask || p->segments || p->ragged;
    for (int group = 2; group <= ranks && !p->mask && !hides; group++)
        if (is_possible(whole, ranks, group) &&
            mpi_waited_for(whole, ranks, group) < mpi_waited_for(whole, ranks, config->head_ranks))
            config->head_ranks = group;
    return ATTN_OK;
}

void mpi_split_team(const struct mpi_team *team, int head_ranks, struct mpi_team *ring, struct mpi_team *group)
{
    *ring = *group = *team;
    ring->ranks = team->ranks / head_ranks;
    ring->rank = team->rank / head_ranks;
    ring->first = team->rank % head_ranks;
    ring->stride = head_ranks;
    group->ranks = head_ranks;
    group->rank = team->rank % head_ranks;
    group->first = team->rank - group->rank;
}

struct mpi_pool *mpi_pools_of(struct mpi_share *shares, int groups, int head_ranks, struct mpi_share **together)
{
    struct mpi_pool *pools = calloc((size_t)groups, sizeof *pools);
    *together = calloc((size_t)groups, sizeof **together);
    int good = pools && *together;
    for (int n = 0; good && n < groups; n++) {
        good = mpi_pool_make(&pools[n], shares + n * head_ranks, head_ranks) == ATTN_OK;
        (*together)[n] = pools[n].together;
    }
    if (good)
        return pools;
    mpi_pools_free(pools, groups);
    free(*together);
    *together = NULL;
    return NULL;
}

void mpi_pools_free(struct mpi_pool *pools, int groups)
{
    for (int n = 0; pools && n < groups; n++)
        mpi_pool_free(&pools[n]);
    free(pools);
}
