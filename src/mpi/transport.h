/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What carries messages between ranks: MPI in libattn_mpi, torch.distributed in the Python package.
 *
 * Functions return 0, or an error that explain() puts into words. They are called by the thread that makes the
 * collective call, one at a time. No message goes from a rank to itself. Between two ranks messages of one tag arrive
 * in the order in which they were started.
 */
#ifndef ATTN_MPI_TRANSPORT_H
#define ATTN_MPI_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

/** Sizes of messages that are prepared are multiples of this many bytes, of which there are at most INT_MAX. */
#define MPI_UNIT ((size_t)4096)

/** A message: prepared, to be started any number of times; or a collective operation, which ends when it is done. */
struct mpi_message {
    uintptr_t id; /**< the transport's */
    int is_there; /**< between prepare() or the start of an operation, and discard() or its end */
};

struct mpi_transport;

struct mpi_transport_functions {
    /** Prepares a message to a rank (sends), or from one. The memory is the caller's until discard(). */
    int (*prepare)(struct mpi_transport *t, int sends, void *data, size_t size, int rank, int tag,
                   struct mpi_message *message);
    int (*start)(struct mpi_transport *t, struct mpi_message *message);
    /** Whether a message has ended or was never started; has the others go on, too, where they need that. */
    int (*test)(struct mpi_transport *t, struct mpi_message *message, int *done);
    void (*discard)(struct mpi_transport *t, struct mpi_message *message);
    /** Starts a collective operation: a root's bytes to all; the lowest of all numbers; all ranks' bytes to all. */
    int (*broadcast)(struct mpi_transport *t, void *data, size_t size, int root, struct mpi_message *message);
    int (*lowest)(struct mpi_transport *t, const int *mine, int *lowest, struct mpi_message *message);
    int (*gather)(struct mpi_transport *t, const void *mine, size_t size, void *all, struct mpi_message *message);
    /** What a rank does between two tests while it waits: it gives the processor away for a moment. */
    void (*idle)(struct mpi_transport *t);
    /** One line about an error. */
    void (*explain)(struct mpi_transport *t, int error, char *sentence, size_t size);
    /** Gives back what is the transport's own. Not called where messages may still be under way after a failure. */
    void (*close)(struct mpi_transport *t);
    int needs_tests; /**< messages go on only while somebody tests one */
};

struct mpi_transport {
    const struct mpi_transport_functions *functions;
    void *own[2]; /**< the transport's own */
    int rank, ranks;
};

#endif
