/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are threads of one process, and a transport between them: for tests of libattn_mpi's plans without MPI,
 * with calls that fail when the test says so.
 */
#ifndef TEST_THREAD_RANKS_H
#define TEST_THREAD_RANKS_H

#include "mpi/transport.h"

#include <pthread.h>

enum { MOST_RANKS = 8 };

/** Threads that exchange messages; the fields are the transport's, but for those of failures. */
struct thread_ranks {
    int ranks;
    pthread_mutex_t lock;
    struct thread_message *messages; /**< all that were prepared, until the end */
    struct thread_operation *operations[MOST_RANKS], *last;
    int failing_rank;       /**< the rank of which a call of the transport fails, */
    long fails_at, calls;   /**< and which one, from 1 on; 0: none does; how many it has made */
    int is_gone;            /**< it has failed: what the others wait for fails, too */
    int opened[MOST_RANKS]; /**< transports that are not closed */
};

void thread_ranks_begin(struct thread_ranks *all, int ranks);
void thread_ranks_end(struct thread_ranks *all);

/** The transport of one of them. */
struct mpi_transport thread_ranks_open(struct thread_ranks *all, int rank);

/** Runs work(context, rank) on a thread for each rank. */
void thread_ranks_run(struct thread_ranks *all, void (*work)(void *context, int rank), void *context);

#endif
