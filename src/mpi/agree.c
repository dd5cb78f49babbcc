/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0 tells its fingerprints, then the first rank with an error is found, then that one tells its sentence. All
 * decide by the same numbers, so all go the same way; and none needs memory that it might not get.
 */
#include "mpi/agree.h"

#include "api/error.h"

#include <stdio.h>
#include <string.h>

struct mpi_marks mpi_marks_begin(void)
{
    struct mpi_marks marks;
    for (int part = 0; part < MPI_PARTS; part++)
        marks.mark[part] = 0xcbf29ce484222325U; /* FNV-1a's, as below: RFC draft-eastlake-fnv */
    return marks;
}

static uint64_t add_byte(uint64_t mark, unsigned char byte)
{
    return (mark ^ byte) * 0x100000001b3U;
}

void mpi_mark(struct mpi_marks *marks, enum mpi_part part, const void *data, size_t size)
{
    uint64_t mark = add_byte(marks->mark[part], data != NULL);
    for (size_t i = 0; data && i < size; i++)
        mark = add_byte(mark, ((const unsigned char *)data)[i]);
    marks->mark[part] = mark;
}

static const char *const PART_NAMES[MPI_PARTS] = {
    [MPI_SHAPES] = "shapes or types of tensors",
    [MPI_CONFIG] = "config",
    [MPI_OPTIONS] = "params",
    [MPI_ARRAYS] = "arrays that params points to",
};

/** status, or that this rank's marks are not those of rank 0. */
static attn_status compare(struct mpi_team *team, attn_status status, const struct mpi_marks *marks)
{
    static const char what[] = "the options of rank 0";
    _Static_assert(sizeof team->said.mark == sizeof marks->mark, "room for the marks of rank 0");
    memcpy(team->said.mark, marks->mark, sizeof team->said.mark);
    CHECK(mpi_broadcast(team, team->said.mark, sizeof team->said.mark, 0, what));
    for (int part = 0; !status && part < MPI_PARTS; part++)
        if (team->said.mark[part] != marks->mark[part])
            status = attn_fail(ATTN_INVALID_ARGUMENT, "%s of this rank are not those of rank 0; expected the same",
                               PART_NAMES[part]);
    return status;
}

attn_status mpi_agree(struct mpi_team *team, attn_status status, const struct mpi_marks *marks)
{
    if (*team->lost) /* by what status says, or before */
        return status == ATTN_PEER_LOST ? status : mpi_has_lost(team);
    if (marks) {
        status = compare(team, status, marks);
        if (*team->lost)
            return status;
    }
    team->said.bad = status ? team->rank : team->ranks;
    CHECK(mpi_lowest(team, &team->said.bad, &team->said.first_bad, "the status of all ranks"));
    const int bad = team->said.first_bad;
    if (bad == team->ranks)
        return ATTN_OK;
    team->said.told.status = (int)status;
    snprintf(team->said.told.sentence, sizeof team->said.told.sentence, "%s", attn_last_error());
    CHECK(mpi_broadcast(team, &team->said.told, sizeof team->said.told, bad, "the sentence about an error"));
    return attn_fail((attn_status)team->said.told.status, "rank %d: %s", bad, team->said.told.sentence);
}
