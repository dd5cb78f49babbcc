/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Head parallelism (Jacobs et al. 2023, "DeepSpeed Ulysses"): ranks of a group exchange tokens for heads, so that each
 * has all of the group's tokens for some of the heads; and back.
 */
#ifndef ATTN_MPI_HEADS_H
#define ATTN_MPI_HEADS_H

#include "mpi/team.h"
#include "mpi/placement.h"

/** One side, queries or keys, of a group. */
struct mpi_pool {
    const struct mpi_share *shares; /**< of the group's ranks, in their order */
    struct mpi_share together;      /**< their union, in the order of tokens; its ranges are the pool's own */
    int64_t *rows;                  /**< where each range of each rank begins among these tokens */
};

/** Of a group of ranks; ATTN_OUT_OF_MEMORY. mpi_pool_free() in either case. */
attn_status mpi_pool_make(struct mpi_pool *pool, const struct mpi_share *shares, int ranks);
void mpi_pool_free(struct mpi_pool *pool);

/** The exchange of a group: buffers for all of a tensor, outgoing and incoming. */
struct mpi_exchange {
    struct mpi_team *group;
    size_t size;
    char *outgoing, *incoming;
    struct mpi_message *messages; /**< [2 * ranks] */
    size_t *sent, *got;           /**< [ranks] sizes of blocks, in units */
};

/** size: the most bytes of a tensor of either kind, (B, heads, own tokens, d) or (B, heads / ranks, all tokens, d). */
attn_status mpi_exchange_make(struct mpi_exchange *exchange, struct mpi_team *group, size_t size);
void mpi_exchange_free(struct mpi_exchange *exchange);

/** Collective in the group: from (B, H, this rank's tokens, d) to (B, H / ranks, the pool's tokens, d), of one type. */
attn_status mpi_to_heads(struct mpi_exchange *exchange, const struct mpi_pool *pool, const attn_tensor *own,
                         const attn_tensor *all);
/** The other way. */
attn_status mpi_to_tokens(struct mpi_exchange *exchange, const struct mpi_pool *pool, const attn_tensor *all,
                          const attn_tensor *own);

#endif
