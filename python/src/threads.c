/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for a library inside somebody's Python process.
 *
 * A wheel that brings an OpenMP runtime of its own has a second pool of threads
 * beside PyTorch's: both spin while they wait, and each takes the other's time. So
 * libattn is built without OpenMP here, and its shares run on whatever runtime the
 * process has loaded: GOMP_parallel(), which libgomp, LLVM's libomp and Intel's
 * libiomp5 all export, opens a team of the very threads that torch.mm() uses. Where
 * there is none yet, a pool of our own does the work; it sleeps when there is none,
 * so it is in nobody's way when a runtime appears later (import torch).
 *
 * Fork. The threads of a runtime, and its belief in them, see docs/python.md: a
 * child that opens a team waits for threads that it does not have. A child gets a
 * pool of its own instead, whatever its parent used.
 */
#include "threads.h"

#include <attn/attn.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static int threads_wanted; /* libattn_python_set_threads() */

/* ---------------------------------------------------------------- own pool -- */

/* A call at work: somebody's run(), on the stack of the thread that called. */
struct job {
    void (*share)(void *context, int ith);
    void *context;
    int shares, next, running;
    struct job *later;
};

enum { IDLE_SPINS = 4000 }; /* some 50 us, about what waking a thread takes */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct job *jobs; /* that have shares left, the oldest first */
    int threads;      /* that were started */
    atomic_uint calls;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

/* Takes shares of a job until none is left; the lock is held before and after. */
static void run_shares(struct job *job)
{
    while (job->next < job->shares) {
        const int ith = job->next++;
        if (job->next == job->shares) {
            struct job **at = &pool.jobs;
            while (*at != job)
                at = &(*at)->later;
            *at = job->later;
        }
        job->running++;
        pthread_mutex_unlock(&pool.lock);
        job->share(job->context, ith);
        pthread_mutex_lock(&pool.lock);
        job->running--;
    }
}

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.jobs) {
            struct job *const job = pool.jobs;
            run_shares(job);
            if (job->running == 0)
                pthread_cond_broadcast(&pool.done);
        }
        const unsigned calls = atomic_load(&pool.calls);
        pthread_mutex_unlock(&pool.lock);
        for (int i = 0; i < IDLE_SPINS && atomic_load_explicit(&pool.calls, memory_order_relaxed) == calls; i++) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        pthread_mutex_lock(&pool.lock);
        while (!pool.jobs)
            pthread_cond_wait(&pool.work, &pool.lock);
    }
    return NULL;
}

static void run_on_pool(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    (void)user;
    struct job job = {share, context, shares, 0, 0, NULL};
    pthread_mutex_lock(&pool.lock);
    for (; pool.threads < shares - 1; pool.threads++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            break; /* fewer do it, too */
        pthread_detach(thread);
    }
    struct job **end = &pool.jobs;
    while (*end)
        end = &(*end)->later;
    *end = &job;
    atomic_fetch_add(&pool.calls, 1);
    pthread_cond_broadcast(&pool.work);
    run_shares(&job);
    while (job.running)
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* -------------------------------------------------------- a loaded runtime -- */

typedef void parallel_function(void (*body)(void *), void *data, unsigned threads, unsigned flags);

static struct {
    char path[4096];
    _Atomic(parallel_function *) parallel; /* read by calls that have begun without the interpreter's lock */
    int (*max_threads)(void);
} runtime;

struct team {
    void (*share)(void *context, int ith);
    void *context;
    int shares;
    atomic_int next;
};

static void take_shares(void *data)
{
    struct team *const team = data;
    for (int ith; (ith = atomic_fetch_add(&team->next, 1)) < team->shares;)
        team->share(team->context, ith);
}

static void run_on_runtime(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    (void)user;
    struct team team = {share, context, shares, 0};
    parallel_function *const parallel = atomic_load(&runtime.parallel);
    parallel(take_shares, &team, (unsigned)shares, 0); /* the team may be smaller: then each takes more */
}

struct search {
    unsigned long long loaded; /* libraries so far, those that have gone included */
    int count_only;
    char path[sizeof runtime.path];
};

static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct search *const search = data;
    search->loaded = info->dlpi_adds;
    if (search->count_only)
        return 1;
    const char *const slash = strrchr(info->dlpi_name, '/'), *const file = slash ? slash + 1 : info->dlpi_name;
    if ((strncmp(file, "libgomp", 7) == 0 || strncmp(file, "libiomp5", 8) == 0 || strncmp(file, "libomp", 6) == 0) &&
        strlen(info->dlpi_name) < sizeof search->path) {
        const int torch = strstr(info->dlpi_name, "torch") != NULL;
        if (torch || !search->path[0])
            strcpy(search->path, info->dlpi_name);
        return torch; /* the one that has the most to do */
    }
    return 0;
}

static int use_runtime(const char *path)
{
    void *const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return 0;
    void *const parallel = dlsym(library, "GOMP_parallel"), *const max_threads = dlsym(library, "omp_get_max_threads");
    if (!parallel || !max_threads) {
        dlclose(library);
        return 0;
    }
    parallel_function *function;
    memcpy(&function, &parallel, sizeof function);
    atomic_store(&runtime.parallel, function);
    memcpy(&runtime.max_threads, &max_threads, sizeof max_threads);
    strcpy(runtime.path, path);
    return 1; /* and it stays open: calls are on their way */
}

/* ------------------------------------------------------------------ choice -- */

static int forked;
static unsigned long long libraries; /* that there were when the choice was made; 0: none was made */

static attn_executor own = {sizeof own, ATTN_MAX_THREADS, run_on_pool, NULL};
static attn_executor borrowed = {sizeof borrowed, ATTN_MAX_THREADS, run_on_runtime, NULL};

static void in_child(void)
{
    forked = 1;
    libraries = 0;
    runtime.path[0] = 0;
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.jobs = NULL;
    pool.threads = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static void choose(void)
{
    struct search search = {.count_only = !!libraries || forked};
    dl_iterate_phdr(look_at, &search);
    if (libraries && (forked || search.loaded == libraries))
        return;
    if (!forked && libraries) {
        search.count_only = 0;
        dl_iterate_phdr(look_at, &search);
    }
    if (search.path[0] && strcmp(search.path, runtime.path) != 0 && use_runtime(search.path))
        attn_set_executor(&borrowed);
    else if (!runtime.path[0])
        attn_set_executor(&own);
    libraries = search.loaded;
}

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int libattn_python_threads(void)
{
    choose();
    if (threads_wanted)
        return threads_wanted;
    if (getenv("ATTN_NUM_THREADS"))
        return attn_default_num_threads();
    return runtime.path[0] ? runtime.max_threads() : processors();
}

void libattn_python_set_threads(int threads)
{
    threads_wanted = threads;
}

const char *libattn_python_runtime(void)
{
    choose();
    return runtime.path;
}
