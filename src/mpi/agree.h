/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks say to each other about a call: that all can go on, or which of them cannot and why.
 */
#ifndef ATTN_MPI_AGREE_H
#define ATTN_MPI_AGREE_H

#include "mpi/team.h"

/** The parts of a call that have to be the same on all ranks. */
enum mpi_part { MPI_SHAPES, MPI_CONFIG, MPI_OPTIONS, MPI_ARRAYS, MPI_PARTS };

/** A fingerprint of each. */
struct mpi_marks {
    uint64_t mark[MPI_PARTS];
};

/** Marks of nothing. */
struct mpi_marks mpi_marks_begin(void);
/** Adds bytes to one of the parts; NULL with a size adds that there is nothing. */
void mpi_mark(struct mpi_marks *marks, enum mpi_part part, const void *data, size_t size);

/**
 * Collective: ATTN_OK if it is status on all ranks and their marks are equal. Else the same error everywhere: that of
 * the first rank that has one, with its sentence; or which rank differs from rank 0 in what. marks NULL on all ranks:
 * not compared.
 */
attn_status mpi_agree(struct mpi_team *team, attn_status status, const struct mpi_marks *marks);

#endif
