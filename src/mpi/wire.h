/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values on their way between ranks: how they are packed, and the messages by which they travel.
 *
 * A block is the keys and values of one rank, (batch, head, token, channel) without gaps, values behind keys. At step n
 * a rank works with the block of the rank n places before it, and sends its own to the one n places after. Two buffers
 * take arriving blocks in turn: one is read while the other fills.
 */
#ifndef ATTN_MPI_WIRE_H
#define ATTN_MPI_WIRE_H

#include "mpi/team.h"
#include "mpi/placement.h"

/** What blocks of both directions have in common. */
struct mpi_block {
    attn_dtype k_type, v_type;
    int64_t batch, heads, dk, dv;
};

/** Bytes of the block of so many tokens, in whole units of messages; 0 if that is more than a message can have, 8 TiB.
 */
size_t mpi_block_size(const struct mpi_block *block, int64_t tokens);

/** The tensors of a block that lies at data. */
void mpi_block_view(const struct mpi_block *block, void *data, int64_t tokens, attn_tensor *k, attn_tensor *v);

/** The messages of blocks that go from each rank to others; by step, of which 0 has none. */
struct mpi_lane {
    struct mpi_team *team;
    int steps;
    struct mpi_message *sends[2];    /**< [steps] out of buffer 0 or 1 of those that are sent */
    struct mpi_message *receives[2]; /**< [steps] into buffer 0 or 1 of those that arrive */
    struct mpi_message *all;         /**< of these four */
};

/**
 * Prepares messages of a rank. Step n goes to the rank n * direction places after this one and has sent_size(n) bytes,
 * from either of leaving; what arrives comes from as many places before, arrived_size(n) bytes, into either of
 * arriving.
 */
attn_status mpi_lane_make(struct mpi_lane *lane, struct mpi_team *team, int direction, void *const leaving[2],
                          const size_t *sent_size, void *const arriving[2], const size_t *arrived_size, int tag);
/** Frees them, unless messages may be under way after a failure. */
void mpi_lane_free(struct mpi_lane *lane);

/** Has the transport go on with messages, while there is other work. */
attn_status mpi_lane_progress(const struct mpi_lane *lane);

#endif
