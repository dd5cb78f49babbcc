/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Without a terminal there is nobody to watch, and no second thread. Without memory for another workspace, or room for
 * a thread, the call is made all the same.
 */
#include "watched.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void *look_on(void *argument)
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
        if (w->over || w->look(w->of, w->workspace, w->size, &begun, &tasks) != ATTN_OK || tasks <= 0)
            continue;
        w->progress.total = tasks; /* which some calls know only when they have begun */
        progress_set(&w->progress, begun);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Signals are for the threads that compute, as without a watcher. */
static bool start(struct watch *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&w->thread, NULL, look_on, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

bool watch_wanted(bool quiet)
{
    return !quiet && isatty(STDERR_FILENO) == 1;
}

void watch_begin(struct watch *w, watch_look *look, const void *of, size_t size, bool quiet)
{
    *w = (struct watch){.look = look, .of = of, .mutex = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    if (!watch_wanted(quiet) || size == SIZE_MAX) /* the call will say what is wrong */
        return;
    w->workspace = calloc(1, size > 0 ? size : 1);
    if (w->workspace == NULL)
        return;
    w->size = size;
    progress_start(&w->progress, 0, "tasks", quiet);
    w->running = start(w);
}

void watch_end(struct watch *w)
{
    if (w->running) {
        pthread_mutex_lock(&w->mutex);
        w->over = true;
        pthread_cond_signal(&w->ended);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->thread, NULL);
    }
    if (w->workspace != NULL)
        progress_finish(&w->progress);
    free(w->workspace);
    w->workspace = NULL;
}

static attn_status look_at_plan(const void *of, const void *workspace, size_t size, int64_t *begun, int64_t *tasks)
{
    return attn_plan_progress(of, workspace, size, begun, tasks);
}

attn_status watched_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                            const attn_params *params, bool quiet)
{
    attn_plan *plan = NULL;
    struct watch w;
    if (!watch_wanted(quiet) || attn_plan_create(&plan, q, k, v, out, params) != ATTN_OK)
        return attn_forward(q, k, v, out, params);
    watch_begin(&w, look_at_plan, plan, attn_plan_workspace_size(plan), quiet);
    const attn_status status = w.workspace != NULL ? attn_plan_run(plan, q, k, v, out, params, w.workspace, w.size)
                                                   : attn_forward(q, k, v, out, params);
    watch_end(&w);
    attn_plan_destroy(plan);
    return status;
}

static attn_status look_at_linear_plan(const void *of, const void *workspace, size_t size, int64_t *begun,
                                       int64_t *tasks)
{
    return attn_linear_attention_plan_progress(of, workspace, size, begun, tasks);
}

attn_status watched_linear_attention(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                     const attn_tensor *out, const attn_linear_attention_params *params, bool quiet)
{
    attn_linear_attention_plan *plan = NULL;
    struct watch w;
    if (!watch_wanted(quiet) || attn_linear_attention_plan_create(&plan, q, k, v, out, params) != ATTN_OK)
        return attn_linear_attention(q, k, v, out, params);
    watch_begin(&w, look_at_linear_plan, plan, attn_linear_attention_plan_workspace_size(plan), quiet);
    const attn_status status = w.workspace != NULL
                                   ? attn_linear_attention_plan_run(plan, q, k, v, out, params, w.workspace, w.size)
                                   : attn_linear_attention(q, k, v, out, params);
    watch_end(&w);
    attn_linear_attention_plan_destroy(plan);
    return status;
}
