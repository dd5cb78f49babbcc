/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between threads: a copy, as soon as one has started to send and the other to receive; under one lock.
 */
#include "thread_ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct thread_message {
    int sends, from, to, tag;
    char *data;
    size_t size;
    enum { IDLE, STARTED, ENDED } state;
    unsigned long turn; /* when it was started */
    struct thread_message *next;
};

enum kind { BROADCAST, LOWEST, GATHER };

/* One collective operation; all ranks make the same ones in the same order. */
struct thread_operation {
    enum kind kind;
    int root, arrived, ended;
    size_t size;
    const void *in[MOST_RANKS];
    void *out[MOST_RANKS];
    struct thread_operation *next;
};

static void must(int right, const char *what)
{
    if (!right) {
        fprintf(stderr, "thread_ranks: %s\n", what);
        abort();
    }
}

static void *get(size_t size)
{
    void *p = calloc(1, size);
    must(p != NULL, "no memory");
    return p;
}

static struct thread_ranks *all_of(const struct mpi_transport *t)
{
    return t->own[0];
}

/* Whether this call is the one that fails. */
static int fails(const struct mpi_transport *t)
{
    struct thread_ranks *all = all_of(t);
    if (t->rank != all->failing_rank || ++all->calls != all->fails_at)
        return 0;
    pthread_mutex_lock(&all->lock);
    all->is_gone = 1;
    pthread_mutex_unlock(&all->lock);
    return 1;
}

static int prepare(struct mpi_transport *t, int sends, void *data, size_t size, int rank, int tag,
                   struct mpi_message *message)
{
    struct thread_ranks *all = all_of(t);
    must(size > 0 && size % MPI_UNIT == 0, "a message is no multiple of a unit");
    must(rank >= 0 && rank < t->ranks && rank != t->rank, "a message to nobody, or to its own rank");
    if (fails(t))
        return 1;
    struct thread_message *m = get(sizeof *m);
    m->sends = sends;
    m->from = sends ? t->rank : rank;
    m->to = sends ? rank : t->rank;
    m->tag = tag;
    m->data = data;
    m->size = size;
    pthread_mutex_lock(&all->lock);
    m->next = all->messages;
    all->messages = m;
    pthread_mutex_unlock(&all->lock);
    message->id = (uintptr_t)m;
    message->is_there = 1;
    return 0;
}

/* The other end that was started first, if it was. */
static struct thread_message *other_end(struct thread_ranks *all, const struct thread_message *m)
{
    struct thread_message *found = NULL;
    for (struct thread_message *x = all->messages; x; x = x->next)
        if (x->state == STARTED && x->sends != m->sends && x->from == m->from && x->to == m->to && x->tag == m->tag &&
            (!found || x->turn < found->turn))
            found = x;
    return found;
}

static int start(struct mpi_transport *t, struct mpi_message *message)
{
    static unsigned long turns;
    struct thread_ranks *all = all_of(t);
    struct thread_message *m = (struct thread_message *)message->id;
    if (fails(t))
        return 1;
    pthread_mutex_lock(&all->lock);
    must(m->state != STARTED, "a message is started twice");
    struct thread_message *other = other_end(all, m);
    if (other) {
        must(other->size == m->size, "a message is not as long as what waits for it");
        memcpy(m->sends ? other->data : m->data, m->sends ? m->data : other->data, m->size);
        other->state = m->state = ENDED;
    } else {
        m->state = STARTED;
        m->turn = ++turns;
    }
    pthread_mutex_unlock(&all->lock);
    return 0;
}

static int is_operation(const struct thread_ranks *all, uintptr_t id)
{
    for (int rank = 0; rank < all->ranks; rank++)
        if (id == (uintptr_t)all->operations[rank])
            return 1;
    return 0;
}

static int test(struct mpi_transport *t, struct mpi_message *message, int *done)
{
    struct thread_ranks *all = all_of(t);
    if (fails(t))
        return 1;
    pthread_mutex_lock(&all->lock);
    if (is_operation(all, message->id)) {
        struct thread_operation *o = (struct thread_operation *)message->id;
        *done = o->arrived == all->ranks;
        message->is_there = !*done;
    } else {
        *done = ((struct thread_message *)message->id)->state != STARTED;
    }
    const int error = !*done && all->is_gone ? 2 : 0;
    pthread_mutex_unlock(&all->lock);
    return error;
}

static void discard(struct mpi_transport *t, struct mpi_message *message)
{
    struct thread_ranks *all = all_of(t);
    struct thread_message *m = (struct thread_message *)message->id;
    pthread_mutex_lock(&all->lock);
    must(m->state != STARTED, "a message is thrown away while it is under way");
    struct thread_message **at = &all->messages;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    pthread_mutex_unlock(&all->lock);
    free(m);
}

/* What the last to arrive does for all. */
static void operate(const struct thread_ranks *all, const struct thread_operation *o)
{
    for (int rank = 0; rank < all->ranks; rank++) {
        if (o->kind == BROADCAST && rank != o->root)
            memcpy(o->out[rank], o->in[o->root], o->size);
        for (int other = 0; o->kind == GATHER && other < all->ranks; other++)
            memcpy((char *)o->out[rank] + (size_t)other * o->size, o->in[other], o->size);
        for (int other = 0; o->kind == LOWEST && other < all->ranks; other++) {
            const int number = *(const int *)o->in[other];
            int *lowest = o->out[rank];
            *lowest = other == 0 || number < *lowest ? number : *lowest;
        }
    }
}

static int join(struct mpi_transport *t, enum kind kind, int root, const void *in, void *out, size_t size,
                struct mpi_message *message)
{
    struct thread_ranks *all = all_of(t);
    if (fails(t))
        return 1;
    pthread_mutex_lock(&all->lock);
    struct thread_operation *last = all->operations[t->rank], *o = last->next;
    if (!o) {
        o = get(sizeof *o);
        o->kind = kind, o->root = root, o->size = size;
        last->next = o;
    }
    must(o->kind == kind && o->root == root && o->size == size, "ranks do not agree about an operation");
    all->operations[t->rank] = o;
    o->in[t->rank] = in;
    o->out[t->rank] = out;
    if (++o->arrived == all->ranks)
        operate(all, o);
    pthread_mutex_unlock(&all->lock);
    message->id = (uintptr_t)o;
    message->is_there = 1;
    return 0;
}

static int broadcast(struct mpi_transport *t, void *data, size_t size, int root, struct mpi_message *message)
{
    return join(t, BROADCAST, root, data, data, size, message);
}
static int lowest(struct mpi_transport *t, const int *mine, int *result, struct mpi_message *message)
{
    return join(t, LOWEST, 0, mine, result, sizeof *mine, message);
}
static int gather(struct mpi_transport *t, const void *mine, size_t size, void *everyones, struct mpi_message *message)
{
    return join(t, GATHER, 0, mine, everyones, size, message);
}

static void idle(struct mpi_transport *t)
{
    (void)t;
    sched_yield();
}

static void explain(struct mpi_transport *t, int error, char *sentence, size_t size)
{
    if (error == 1)
        snprintf(sentence, size, "call %ld is to fail", all_of(t)->fails_at);
    else
        snprintf(sentence, size, "rank %d is gone", all_of(t)->failing_rank);
}

static void close_transport(struct mpi_transport *t)
{
    must(all_of(t)->opened[t->rank]-- > 0, "a transport is closed twice");
}

static const struct mpi_transport_functions FUNCTIONS = {prepare, start, test,    discard,         broadcast, lowest,
                                                         gather,  idle,  explain, close_transport, 1};

void thread_ranks_begin(struct thread_ranks *all, int ranks)
{
    *all = (struct thread_ranks){.ranks = ranks, .failing_rank = -1};
    pthread_mutex_init(&all->lock, NULL);
    all->last = get(sizeof *all->last);
    for (int rank = 0; rank < ranks; rank++)
        all->operations[rank] = all->last;
}

void thread_ranks_end(struct thread_ranks *all)
{
    for (struct thread_message *m = all->messages, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    for (struct thread_operation *o = all->last, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    pthread_mutex_destroy(&all->lock);
}

struct mpi_transport thread_ranks_open(struct thread_ranks *all, int rank)
{
    all->opened[rank]++;
    return (struct mpi_transport){.functions = &FUNCTIONS, .own = {all}, .rank = rank, .ranks = all->ranks};
}

struct share {
    void (*work)(void *context, int rank);
    void *context;
    int rank;
};

static void *run_share(void *p)
{
    const struct share *share = p;
    share->work(share->context, share->rank);
    return NULL;
}

void thread_ranks_run(struct thread_ranks *all, void (*work)(void *context, int rank), void *context)
{
    pthread_t threads[MOST_RANKS];
    struct share shares[MOST_RANKS];
    for (int rank = 0; rank < all->ranks; rank++) {
        shares[rank] = (struct share){work, context, rank};
        must(pthread_create(&threads[rank], NULL, run_share, &shares[rank]) == 0, "no thread");
    }
    for (int rank = 0; rank < all->ranks; rank++)
        pthread_join(threads[rank], NULL);
}
