/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks say to each other about a call: that all can go on, or which of them cannot and why; and how long one
 * waits for the others.
 */
#ifndef ATTN_MPI_AGREE_H
#define ATTN_MPI_AGREE_H

#include "attn/mpi.h"

/** The parts of a call that have to be the same on all ranks. */
enum mpi_part { MPI_SHAPES, MPI_CONFIG, MPI_OPTIONS, MPI_ARRAYS, MPI_PARTS };

/** A fingerprint of each. */
struct mpi_marks {
    uint64_t mark[MPI_PARTS];
};

/** A communicator of the library's own. After a failure messages may still reach what is in it. */
struct mpi_team {
    MPI_Comm comm;
    int rank, ranks;
    double timeout;                          /**< seconds; 0: none */
    int *lost;                               /**< the plan's: a message has failed, no call is possible any more */
    attn_status (*meanwhile)(void *context); /**< NULL, or what is done in turns while this rank waits; does not wait */
    void *context;
    struct {
        uint64_t mark[MPI_PARTS]; /**< of rank 0 */
        int bad, first_bad;       /**< this rank, and the first of all, that has an error; ranks: none */
        struct {
            int status;
            char sentence[512];
        } told; /**< by that one */
    } said;
};

/** Marks of nothing. */
struct mpi_marks mpi_marks_begin(void);
/** Adds bytes to one of the parts; NULL with a size adds that there is nothing. */
void mpi_mark(struct mpi_marks *marks, enum mpi_part part, const void *data, size_t size);

/**
 * Waits for requests, which become MPI_REQUEST_NULL (persistent ones inactive), yielding the processor meanwhile.
 * ATTN_PEER_LOST after team->timeout, or where the engine reports a failure; what says what was waited for.
 */
attn_status mpi_wait(struct mpi_team *team, int num, MPI_Request *requests, const char *what);

/** Waits likewise until finished(context) is not 0. */
attn_status mpi_wait_until(struct mpi_team *team, int (*finished)(void *context), void *context, const char *what);

/** The status of an MPI function's return value. */
attn_status mpi_status_of(struct mpi_team *team, int error, const char *what);

/**
 * Collective: ATTN_OK if it is status on all ranks and their marks are equal. Else the same error everywhere: that of
 * the first rank that has one, with its sentence; or which rank differs from rank 0 in what. marks NULL on all ranks:
 * not compared.
 */
attn_status mpi_agree(struct mpi_team *team, attn_status status, const struct mpi_marks *marks);

#endif
