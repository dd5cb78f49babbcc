/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0 tells its fingerprints, then the first rank with an error is found, then that one tells its sentence. All
 * decide by the same numbers, so all go the same way; and none needs memory that it might not get.
 */
#include "mpi/agree.h"

#include "api/error.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOST "rank %d: an earlier message has failed; expected no further call of this plan"

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

attn_status mpi_status_of(struct mpi_team *team, int error, const char *what)
{
    if (error == MPI_SUCCESS)
        return ATTN_OK;
    char sentence[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, sentence, &length);
    *team->lost = 1;
    return attn_fail(ATTN_PEER_LOST, "rank %d: %s failed: %s", team->rank, what, sentence);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

attn_status mpi_wait_until(struct mpi_team *team, int (*finished)(void *context), void *context, const char *what)
{
    const double end = team->timeout > 0 ? now() + team->timeout : 0;
    for (long turn = 0;; turn++) {
        if (*team->lost)
            return attn_fail(ATTN_PEER_LOST, LOST, team->rank);
        if (finished(context))
            return ATTN_OK;
        if (team->meanwhile)
            CHECK(team->meanwhile(team->context));
        if (end > 0 && turn % 64 == 63 && now() > end) {
            *team->lost = 1;
            return attn_fail(ATTN_PEER_LOST, "rank %d: %s did not come in %g seconds, config.timeout", team->rank, what,
                             team->timeout);
        }
        sched_yield();
    }
}

struct requests {
    int num, error;
    MPI_Request *requests;
};

static int have_ended(void *context)
{
    struct requests *r = context;
    int done = 0;
    r->error = MPI_Testall(r->num, r->requests, &done, MPI_STATUSES_IGNORE);
    return done || r->error != MPI_SUCCESS;
}

attn_status mpi_wait(struct mpi_team *team, int num, MPI_Request *requests, const char *what)
{
    struct requests r = {num, MPI_SUCCESS, requests};
    CHECK(mpi_wait_until(team, have_ended, &r, what));
    return mpi_status_of(team, r.error, what);
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
    MPI_Request request;
    memcpy(team->said.mark, marks->mark, sizeof team->said.mark);
    CHECK(mpi_status_of(team, MPI_Ibcast(team->said.mark, sizeof team->said.mark, MPI_BYTE, 0, team->comm, &request),
                        what));
    CHECK(mpi_wait(team, 1, &request, what));
    for (int part = 0; !status && part < MPI_PARTS; part++)
        if (team->said.mark[part] != marks->mark[part])
            status = attn_fail(ATTN_INVALID_ARGUMENT, "%s of this rank are not those of rank 0; expected the same",
                               PART_NAMES[part]);
    return status;
}

attn_status mpi_agree(struct mpi_team *team, attn_status status, const struct mpi_marks *marks)
{
    MPI_Request request;
    if (*team->lost)
        return attn_fail(ATTN_PEER_LOST, LOST, team->rank);
    if (marks) {
        status = compare(team, status, marks);
        if (*team->lost)
            return status;
    }
    team->said.bad = status ? team->rank : team->ranks;
    CHECK(mpi_status_of(
        team, MPI_Iallreduce(&team->said.bad, &team->said.first_bad, 1, MPI_INT, MPI_MIN, team->comm, &request),
        "the status of all ranks"));
    CHECK(mpi_wait(team, 1, &request, "the status of all ranks"));
    const int bad = team->said.first_bad;
    if (bad == team->ranks)
        return ATTN_OK;
    team->said.told.status = (int)status;
    snprintf(team->said.told.sentence, sizeof team->said.told.sentence, "%s", attn_last_error());
    CHECK(mpi_status_of(team, MPI_Ibcast(&team->said.told, sizeof team->said.told, MPI_BYTE, bad, team->comm, &request),
                        "the sentence about an error"));
    CHECK(mpi_wait(team, 1, &request, "the sentence about an error"));
    return attn_fail((attn_status)team->said.told.status, "rank %d: %s", bad, team->said.told.sentence);
}
