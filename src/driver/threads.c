/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs shares on OpenMP threads or on a caller's executor. No other file of the
 * two libraries knows OpenMP.
 *
 * Too many threads. An OpenMP runtime that cannot start a thread ends the
 * process. So before a team that is larger than any before on this thread,
 * threads are started here, all at once, and ended again. They are as many as
 * the team lacks, and a team more, as libgomp ends the threads that a smaller team
 * does not need and starts others for the next larger one. If not all start, the
 * team is as large as went well, and from then on the pool is kept at its size. A
 * pool belongs to the thread that opens regions, therefore so does what is known
 * about it. (Regions of the caller's own change it unseen.)
 *
 * How many. OpenMP has a thread for each processor that the mask of the process allows, as cpusets and taskset set it.
 * It knows nothing of a quota on time, by which containers are limited (cpu/quota.c): where nobody has told it a
 * number, the quota is the number.
 *
 * Fork. Threads do not survive it, but the runtime's record of its pool does: a
 * child that opens a region waits for threads that are not there (OpenBLAS
 * issue 294, faiss issue 5206). Resetting the pool from a handler breaks other
 * threads (OpenBLAS issue 4080), so a child of a process that had threads runs
 * alone on the calling thread, without the process's executor, whose threads are
 * gone, too. A child of a process that had none (a server that forks its workers
 * before it computes) keeps both. Who else in the process used threads cannot be
 * asked, so besides our own use the number of threads at the moment of the fork
 * counts: every thread is an entry of /proc/self/task, and a directory's link
 * count tells how many.
 */
#include "driver/threads.h"

#include "cpu/cancellation.h"
#include "cpu/quota.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static _Atomic(const attn_executor *) of_process;
static _Thread_local const attn_executor *of_thread; /* of the call that this thread is in */
static _Thread_local int in_share;

int attn_threads_worth(double work, double worth, int most)
{
    const double threads = work / worth < most ? work / worth : most;
    return threads > 1 ? (int)threads : 1;
}

/* -------------------------------------------------------------------- fork -- */

static atomic_int threads_used, threads_at_fork, forked;

static void before_fork(void)
{
    struct stat task;
    const int several = stat("/proc/self/task", &task) == 0 && task.st_nlink > 3;
    atomic_store(&threads_at_fork, several || atomic_load(&threads_used));
}

static void in_child(void)
{
    if (atomic_load(&threads_at_fork)) {
        atomic_store(&forked, 1);
        atomic_store(&of_process, NULL);
    }
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, NULL, in_child);
}

static void note_threads(void)
{
    if (!atomic_load_explicit(&threads_used, memory_order_relaxed))
        atomic_store(&threads_used, 1);
}

/* --------------------------------------------------------------- executors -- */

void attn_use_executor(const attn_executor *executor)
{
    atomic_store(&of_process, executor);
}

const attn_executor *attn_executor_of(const attn_executor *own)
{
    return own ? own : of_thread ? of_thread : atomic_load_explicit(&of_process, memory_order_acquire);
}

const attn_executor *attn_executor_enter(const attn_executor *own)
{
    const attn_executor *before = of_thread;
    if (own)
        of_thread = own;
    return before;
}

void attn_executor_leave(const attn_executor *before)
{
    of_thread = before;
}

/* ------------------------------------------------------------------ OpenMP -- */

#ifdef _OPENMP

/* Of the calling thread's pool: the size of the last team; one that was found to be startable again and again, though
 * the threads of the one before may not have gone yet; and whether there was no room for that. */
static _Thread_local int pool = 1, proven = 1, limited;

/* Held by whoever counts threads; and by that one until its threads may end. */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;

struct trial {
    pthread_t id;
    pid_t task;
};

static void *wait_at_gate(void *argument)
{
    struct trial *trial = argument;
    trial->task = gettid();
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return NULL;
}

/** Waits until the system no longer counts a thread that has been joined: that takes it a moment. */
static void wait_until_gone(pid_t task)
{
    for (int i = 0; i < 100000 && syscall(SYS_tgkill, getpid(), task, 0) == 0; i++)
        sched_yield();
}

/** How many of so many threads, which then exist all at once, can be started. */
static int count_startable(int wanted)
{
    struct trial trials[2 * ATTN_MAX_THREADS];
    sigset_t all, before;
    int started = 0;
    ATTN_UNCANCELLED; /* both locks are held, and joining is a cancellation point */
    note_threads();
    sigfillset(&all); /* no handler of the program's should run on these */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&counting);
    pthread_mutex_lock(&gate);
    while (started < wanted && pthread_create(&trials[started].id, NULL, wait_at_gate, &trials[started]) == 0)
        started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++)
        pthread_join(trials[i].id, NULL);
    for (int i = 0; i < started; i++)
        wait_until_gone(trials[i].task);
    pthread_mutex_unlock(&counting);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/** The largest team up to threads that OpenMP can have here. */
static int openmp_team(int threads)
{
    if (omp_in_parallel()) { /* a region of the caller's, in which teams have no pool */
        const int more = 2 * (threads - 1);
        return omp_get_active_level() < omp_get_max_active_levels() ? 1 + count_startable(more) / 2 : 1;
    }
    if (threads <= pool || threads <= proven)
        return threads;
    const int wanted = limited ? threads - pool : 2 * threads - pool, started = count_startable(wanted);
    if (started == wanted) {
        proven = limited ? 1 : threads;
        return threads;
    }
    limited = proven = 1;
    return started < threads - pool ? pool + started : threads;
}

static void run_on_openmp(int size, void (*share)(void *context, int ith), void *context)
{
    ATTN_UNCANCELLED; /* LLVM's runtime waits by pthread_cond_wait() */
    /* A smaller team would end the pool's other threads. Where there is no room for others they stay. */
    const int threads = limited && size < pool && !omp_in_parallel() ? pool : size;
    if (!omp_in_parallel())
        pool = threads;
#pragma omp parallel num_threads(threads)
    {
        const int step = omp_get_num_threads(); /* may be fewer than asked for */
        in_share++;
        for (int ith = omp_get_thread_num(); ith < size; ith += step)
            share(context, ith);
        in_share--;
    }
}

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static int all_processors, quota; /* as long as nobody says how many threads OpenMP should have; 0: somebody does */

static void ask_system(void)
{
    quota = attn_cpu_quota();
    all_processors = quota > 0 && !getenv("OMP_NUM_THREADS") ? omp_get_num_procs() : 0;
}

int attn_openmp_threads(void)
{
    ATTN_UNCANCELLED; /* the first call of OpenMP's begins its runtime, which reads files */
    const int threads = omp_get_max_threads();
    pthread_once(&asked, ask_system);
    return threads == all_processors && quota < threads ? quota : threads;
}

static int most_openmp_threads(void)
{
    ATTN_UNCANCELLED; /* as above */
    const int limit = omp_get_thread_limit();
    return limit < ATTN_MAX_THREADS ? limit : ATTN_MAX_THREADS;
}

#else /* no team of OpenMP's has more than one thread */

static int openmp_team(int threads)
{
    return threads;
}

static void run_on_openmp(int size, void (*share)(void *context, int ith), void *context)
{
    for (int ith = 0; ith < size; ith++)
        share(context, ith);
}

int attn_openmp_threads(void)
{
    return 1;
}

static int most_openmp_threads(void)
{
    return 1;
}

#endif

/* ------------------------------------------------------------------- teams -- */

int attn_most_threads(const attn_executor *executor)
{
    if (in_share)
        return 1;
    if (executor)
        return executor->num_threads < ATTN_MAX_THREADS ? executor->num_threads : ATTN_MAX_THREADS;
    return atomic_load_explicit(&forked, memory_order_relaxed) ? 1 : most_openmp_threads();
}

struct attn_team attn_team_of(const attn_executor *own, int threads)
{
    if (threads <= 1)
        return (struct attn_team){1, NULL};
    const attn_executor *executor = attn_executor_of(own);
    const int most = attn_most_threads(executor);
    const int size = threads < most ? threads : most;
    return (struct attn_team){size > 1 && !executor ? openmp_team(size) : size, executor};
}

/** What an executor's threads are handed. */
struct shares {
    void (*share)(void *context, int ith);
    void *context;
};

static void run_one(void *context, int ith)
{
    const struct shares *shares = context;
    in_share++;
    shares->share(shares->context, ith);
    in_share--;
}

void attn_run_shares(const struct attn_team *team, void (*share)(void *context, int ith), void *context)
{
    if (team->size == 1) {
        share(context, 0);
        return;
    }
    note_threads();
    if (team->executor)
        team->executor->run(team->executor->user, team->size, run_one, &(struct shares){share, context});
    else
        run_on_openmp(team->size, share, context);
}
