/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the library with progress on a terminal: a thread looks at how many tasks of the call have begun, so that
 * the call itself does nothing for it.
 */
#ifndef ATTN_TOOLS_WATCHED_H
#define ATTN_TOOLS_WATCHED_H

#include <attn/attn.h>
#include <attn/linear_attention.h>
#include <pthread.h>
#include <stdbool.h>

#include "progress.h"

/* How far the call in a workspace is; of is its plan, if it has one. */
typedef attn_status watch_look(const void *of, const void *workspace, size_t size, int64_t *begun, int64_t *tasks);

/* A call that may be watched. */
struct watch {
    watch_look *look;
    const void *of;
    void *workspace; /* for the call; NULL: nobody watches, and the call has to find its own memory */
    size_t size;     /* of it, or 0 */
    struct progress progress;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool running, over;
};

/* Whether there is a terminal, and a second thread will be started for it. */
bool watch_wanted(bool quiet);

/* Before the call, which wants a workspace of size bytes. Nothing is shown if there is no terminal, or if quiet. */
void watch_begin(struct watch *watch, watch_look *look, const void *of, size_t size, bool quiet);

/* After the call, whether it has failed or not: frees the workspace. */
void watch_end(struct watch *watch);

/* The same as attn_forward(); nothing is shown if quiet. */
attn_status watched_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                            const attn_params *params, bool quiet);

/* The same as attn_linear_attention(). */
attn_status watched_linear_attention(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                     const attn_tensor *out, const attn_linear_attention_params *params, bool quiet);

#endif
