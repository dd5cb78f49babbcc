/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Without a terminal there is nobody to watch, and no second thread. Without memory for another workspace, or room for
 * a thread, the call is made all the same.
 */
#include "watched.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"

struct watch {
    const attn_plan *plan;
    void *workspace;
    size_t size;
    struct progress progress;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool over;
};

static void *look(void *argument)
{
    struct watch *w = argument;
    int64_t begun, tasks;
    pthread_mutex_lock(&w->mutex);
    while (!w->over) {
        struct timespec next;
        clock_gettime(CLOCK_REALTIME, &next);
        next.tv_nsec += 200000000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&w->ended, &w->mutex, &next);
        if (!w->over && attn_plan_progress(w->plan, w->workspace, w->size, &begun, &tasks) == ATTN_OK)
            progress_set(&w->progress, begun);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Signals are for the threads that compute, as without a watcher. */
static bool start(struct watch *w, pthread_t *thread)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(thread, NULL, look, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

attn_status watched_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                            const attn_params *params, bool quiet)
{
    attn_plan *plan = NULL;
    if (quiet || isatty(STDERR_FILENO) != 1 || attn_plan_create(&plan, q, k, v, out, params) != ATTN_OK)
        return attn_forward(q, k, v, out, params);
    struct watch w = {.plan = plan,
                      .size = attn_plan_workspace_size(plan),
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .ended = PTHREAD_COND_INITIALIZER};
    int64_t begun, tasks = 0;
    pthread_t thread;
    attn_status status;
    w.workspace = calloc(1, w.size);
    if (w.workspace == NULL || attn_plan_progress(plan, w.workspace, w.size, &begun, &tasks) != ATTN_OK) {
        status = attn_forward(q, k, v, out, params);
    } else {
        progress_start(&w.progress, tasks, "tasks", quiet);
        const bool watched = start(&w, &thread);
        status = attn_plan_run(plan, q, k, v, out, params, w.workspace, w.size);
        pthread_mutex_lock(&w.mutex);
        w.over = true;
        pthread_cond_signal(&w.ended);
        pthread_mutex_unlock(&w.mutex);
        if (watched)
            pthread_join(thread, NULL);
        progress_finish(&w.progress);
    }
    free(w.workspace);
    attn_plan_destroy(plan);
    return status;
}
