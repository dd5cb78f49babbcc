/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of a team, with its ranks translated to the transport's, and errors to sentences.
 */
#include "mpi/team.h"

#include "api/error.h"

#include <time.h>

struct mpi_team mpi_team_of(struct mpi_transport *transport, double timeout, int *lost)
{
    return (struct mpi_team){.transport = transport,
                             .rank = transport->rank,
                             .ranks = transport->ranks,
                             .stride = 1,
                             .timeout = timeout,
                             .lost = lost};
}

attn_status mpi_has_lost(const struct mpi_team *team)
{
    return attn_fail(ATTN_PEER_LOST, "rank %d: an earlier message has failed; expected no further call of this plan",
                     team->rank);
}

attn_status mpi_status_of(struct mpi_team *team, int error, const char *what)
{
    if (!error)
        return ATTN_OK;
    char sentence[400] = "";
    team->transport->functions->explain(team->transport, error, sentence, sizeof sentence);
    *team->lost = 1;
    return attn_fail(ATTN_PEER_LOST, "rank %d: %s failed: %s", team->rank, what, sentence);
}

attn_status mpi_prepare(struct mpi_team *team, int sends, void *data, size_t size, int rank, int tag,
                        struct mpi_message *message)
{
    struct mpi_transport *t = team->transport;
    return mpi_status_of(team,
                         t->functions->prepare(t, sends, data, size, team->first + rank * team->stride, tag, message),
                         "preparing a message");
}

attn_status mpi_start(struct mpi_team *team, struct mpi_message *message)
{
    return mpi_status_of(team, team->transport->functions->start(team->transport, message), "starting a message");
}

attn_status mpi_test(struct mpi_team *team, struct mpi_message *message, int *done, const char *what)
{
    *done = 1;
    return message->is_there
               ? mpi_status_of(team, team->transport->functions->test(team->transport, message, done), what)
               : ATTN_OK;
}

void mpi_discard(struct mpi_team *team, struct mpi_message *message)
{
    if (message->is_there && !*team->lost)
        team->transport->functions->discard(team->transport, message);
    message->is_there = 0;
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
            return mpi_has_lost(team);
        if (finished(context))
            return ATTN_OK;
        if (team->meanwhile)
            CHECK(team->meanwhile(team->context));
        if (end > 0 && turn % 64 == 63 && now() > end) {
            *team->lost = 1;
            return attn_fail(ATTN_PEER_LOST, "rank %d: %s did not come in %g seconds, config.timeout", team->rank, what,
                             team->timeout);
        }
        team->transport->functions->idle(team->transport);
    }
}

struct waiting {
    struct mpi_team *team;
    struct mpi_message *messages;
    int num, error;
};

static int have_ended(void *context)
{
    struct waiting *w = context;
    struct mpi_transport *t = w->team->transport;
    int all = 1;
    for (int n = 0; n < w->num && !w->error; n++) {
        int done = 1;
        if (w->messages[n].is_there)
            w->error = t->functions->test(t, &w->messages[n], &done);
        all &= done;
    }
    return all || w->error;
}

attn_status mpi_wait(struct mpi_team *team, int num, struct mpi_message *messages, const char *what)
{
    struct waiting w = {.team = team, .messages = messages, .num = num};
    CHECK(mpi_wait_until(team, have_ended, &w, what));
    return mpi_status_of(team, w.error, what);
}

/** Waits for an operation that has been started with this result. */
static attn_status operate(struct mpi_team *team, int error, struct mpi_message *message, const char *what)
{
    CHECK(mpi_status_of(team, error, what));
    return mpi_wait(team, 1, message, what);
}

attn_status mpi_broadcast(struct mpi_team *team, void *data, size_t size, int root, const char *what)
{
    struct mpi_transport *t = team->transport;
    struct mpi_message message = {0};
    return operate(team, t->functions->broadcast(t, data, size, root, &message), &message, what);
}

attn_status mpi_lowest(struct mpi_team *team, const int *mine, int *lowest, const char *what)
{
    struct mpi_transport *t = team->transport;
    struct mpi_message message = {0};
    return operate(team, t->functions->lowest(t, mine, lowest, &message), &message, what);
}

attn_status mpi_gather(struct mpi_team *team, const void *mine, size_t size, void *all, const char *what)
{
    struct mpi_transport *t = team->transport;
    struct mpi_message message = {0};
    return operate(team, t->functions->gather(t, mine, size, all, &message), &message, what);
}
