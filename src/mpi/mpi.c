/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_mpi_plan_create(): messages by MPI, as persistent requests in a communicator of the plan's own.
 */
#include "attn/mpi.h"

#include "api/error.h"
#include "mpi/plan.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Handles are pointers in one implementation and numbers in another. */
_Static_assert(sizeof(MPI_Request) <= sizeof(uintptr_t), "a message holds a request");
_Static_assert(sizeof(MPI_Comm) <= sizeof(void *) && sizeof(MPI_Datatype) <= sizeof(void *), "a transport holds both");

static MPI_Comm comm_of(const struct mpi_transport *t)
{
    MPI_Comm comm;
    memcpy(&comm, &t->own[0], sizeof comm);
    return comm;
}

/** The type of a unit of messages, by which counts are ints for whatever fits a machine. */
static MPI_Datatype unit_of(const struct mpi_transport *t)
{
    MPI_Datatype unit;
    memcpy(&unit, &t->own[1], sizeof unit);
    return unit;
}

/** Keeps a request that a function has made, unless that failed. */
static int keep(int error, struct mpi_message *message, MPI_Request request)
{
    if (error == MPI_SUCCESS) {
        memcpy(&message->id, &request, sizeof request);
        message->is_there = 1;
    }
    return error;
}

static MPI_Request request_of(const struct mpi_message *message)
{
    MPI_Request request;
    memcpy(&request, &message->id, sizeof request);
    return request;
}

static int prepare(struct mpi_transport *t, int sends, void *data, size_t size, int rank, int tag,
                   struct mpi_message *message)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = (int)(size / MPI_UNIT);
    const int error = sends ? MPI_Send_init(data, count, unit_of(t), rank, tag, comm_of(t), &request)
                            : MPI_Recv_init(data, count, unit_of(t), rank, tag, comm_of(t), &request);
    return keep(error, message, request);
}

static int start(struct mpi_transport *t, struct mpi_message *message)
{
    (void)t;
    MPI_Request request = request_of(message);
    return keep(MPI_Start(&request), message, request);
}

static int test(struct mpi_transport *t, struct mpi_message *message, int *done)
{
    (void)t;
    MPI_Request request = request_of(message);
    const int error = keep(MPI_Test(&request, done, MPI_STATUS_IGNORE), message, request);
    if (request == MPI_REQUEST_NULL) /* an operation that has ended; a prepared message stays */
        message->is_there = 0;
    return error;
}

static void discard(struct mpi_transport *t, struct mpi_message *message)
{
    (void)t;
    MPI_Request request = request_of(message);
    MPI_Request_free(&request);
}

static int broadcast(struct mpi_transport *t, void *data, size_t size, int root, struct mpi_message *message)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = MPI_Ibcast(data, (int)size, MPI_BYTE, root, comm_of(t), &request);
    return keep(error, message, request);
}

static int lowest(struct mpi_transport *t, const int *mine, int *result, struct mpi_message *message)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = MPI_Iallreduce(mine, result, 1, MPI_INT, MPI_MIN, comm_of(t), &request);
    return keep(error, message, request);
}

static int gather(struct mpi_transport *t, const void *mine, size_t size, void *all, struct mpi_message *message)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = MPI_Iallgather(mine, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, comm_of(t), &request);
    return keep(error, message, request);
}

static void idle(struct mpi_transport *t)
{
    (void)t;
    sched_yield();
}

static void explain(struct mpi_transport *t, int error, char *sentence, size_t size)
{
    (void)t;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    snprintf(sentence, size, "%s", text);
}

static void close_transport(struct mpi_transport *t)
{
    MPI_Comm comm = comm_of(t);
    MPI_Datatype unit = unit_of(t);
    if (unit != MPI_DATATYPE_NULL)
        MPI_Type_free(&unit);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
}

static const struct mpi_transport_functions FUNCTIONS = {
    .prepare = prepare,
    .start = start,
    .test = test,
    .discard = discard,
    .broadcast = broadcast,
    .lowest = lowest,
    .gather = gather,
    .idle = idle,
    .explain = explain,
    .close = close_transport,
    .needs_tests = 1,
};

/** That MPI can be used as it will be: by this thread, between processes of one group. */
static attn_status check_engine(MPI_Comm comm)
{
    int begun = 0, ended = 0, threads = MPI_THREAD_SINGLE, inter = 0;
    MPI_Initialized(&begun);
    if (begun)
        MPI_Finalized(&ended);
    if (!begun || ended)
        return attn_fail(ATTN_INVALID_ARGUMENT, "MPI is %s; expected a call between MPI_Init_thread and MPI_Finalize",
                         begun ? "finalized" : "not initialised");
    if (comm == MPI_COMM_NULL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "comm is MPI_COMM_NULL; expected an intracommunicator");
    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        return attn_fail(ATTN_INVALID_ARGUMENT, "comm is an intercommunicator; expected an intracommunicator");
    MPI_Query_thread(&threads);
    if (threads < MPI_THREAD_FUNNELED && attn_default_num_threads() > 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "MPI was initialised without support of threads; expected "
                                                "MPI_THREAD_FUNNELED or more, or ATTN_NUM_THREADS=1");
    return ATTN_OK;
}

/** A communicator of the plan's own that returns its errors, and the type of a unit; collective. */
static int open_transport(struct mpi_transport *t, MPI_Comm comm)
{
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Datatype unit = MPI_DATATYPE_NULL;
    *t = (struct mpi_transport){.functions = &FUNCTIONS};
    memcpy(&t->own[1], &unit, sizeof unit);
    int error = MPI_Comm_dup(comm, &own);
    memcpy(&t->own[0], &own, sizeof own);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_rank(own, &t->rank);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_size(own, &t->ranks);
    if (error == MPI_SUCCESS)
        error = MPI_Type_contiguous((int)MPI_UNIT, MPI_BYTE, &unit);
    if (error == MPI_SUCCESS)
        error = MPI_Type_commit(&unit);
    memcpy(&t->own[1], &unit, sizeof unit);
    return error;
}

attn_status attn_mpi_plan_create(attn_mpi_plan **plan, MPI_Comm comm, const attn_tensor *q, const attn_tensor *k,
                                 const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                 const attn_mpi_config *config)
{
    if (plan)
        *plan = NULL;
    CHECK(check_engine(comm));
    struct mpi_transport transport;
    int lost = 0;
    const int error = open_transport(&transport, comm);
    struct mpi_team team = mpi_team_of(&transport, 0, &lost);
    CHECK(mpi_status_of(&team, error, "making a communicator of the plan's own"));
    const struct mpi_tensors t = {q, k, v, out};
    return mpi_plan_create(plan, &transport, ATTN_OK, &t, params, config);
}
