/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that work together, messages between them, and how long one waits for the others.
 */
#ifndef ATTN_MPI_TEAM_H
#define ATTN_MPI_TEAM_H

#include "attn/mpi_plan.h"
#include "mpi/transport.h"

/** Some of a transport's ranks. After a failure messages may still reach what is in it. */
struct mpi_team {
    struct mpi_transport *transport;
    int rank, ranks;                         /**< in this team */
    int first, stride;                       /**< its rank n is the transport's first + n * stride */
    double timeout;                          /**< seconds; 0: none */
    int *lost;                               /**< the plan's: a message has failed, no call is possible any more */
    attn_status (*meanwhile)(void *context); /**< NULL, or what is done in turns while this rank waits; does not wait */
    void *context;
    struct {
        uint64_t mark[4];   /**< of rank 0 */
        int bad, first_bad; /**< this rank, and the first of all, that has an error; ranks: none */
        struct {
            int status;
            char sentence[512];
        } told; /**< by that one */
    } said;
};

/** All ranks of a transport. */
struct mpi_team mpi_team_of(struct mpi_transport *transport, double timeout, int *lost);

/** The error of a call after a message has failed. */
attn_status mpi_has_lost(const struct mpi_team *team);

/** The status of what a transport's function returned; what says what was tried. */
attn_status mpi_status_of(struct mpi_team *team, int error, const char *what);

/** Prepares a message to a rank of the team, or from one; mpi_discard() in the end. */
attn_status mpi_prepare(struct mpi_team *team, int sends, void *data, size_t size, int rank, int tag,
                        struct mpi_message *message);
attn_status mpi_start(struct mpi_team *team, struct mpi_message *message);
/** Whether it has ended. */
attn_status mpi_test(struct mpi_team *team, struct mpi_message *message, int *done, const char *what);
/** Frees it, unless messages may be under way after a failure. */
void mpi_discard(struct mpi_team *team, struct mpi_message *message);

/**
 * Waits for messages, yielding the processor meanwhile. ATTN_PEER_LOST after team->timeout, or where the transport
 * reports a failure; what says what was waited for.
 */
attn_status mpi_wait(struct mpi_team *team, int num, struct mpi_message *messages, const char *what);

/** Waits likewise until finished(context) is not 0. */
attn_status mpi_wait_until(struct mpi_team *team, int (*finished)(void *context), void *context, const char *what);

/** Collective, in the team of all ranks: operations of mpi_transport_functions, waited for. */
attn_status mpi_broadcast(struct mpi_team *team, void *data, size_t size, int root, const char *what);
attn_status mpi_lowest(struct mpi_team *team, const int *mine, int *lowest, const char *what);
attn_status mpi_gather(struct mpi_team *team, const void *mine, size_t size, void *all, const char *what);

#endif
