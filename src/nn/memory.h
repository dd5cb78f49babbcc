/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Working memory of a layer. One function of the layer takes its pieces from an
 * arena; run on an empty arena it tells how much there has to be, run on a
 * workspace it gives the pointers.
 *
 *     struct nn_arena measured = {0};
 *     take_pieces(&measured, ...);
 *     struct nn_workspace w;
 *     CHECK(nn_workspace_open(&w, workspace, workspace_size, &measured));
 *     struct pieces pieces = take_pieces(&w.arena, ...);
 *
 * How much a call below can make use of follows from the number of threads,
 * which another thread may change between the two (attn_set_executor()). So the
 * arena keeps what was measured for such calls, and hands out just that.
 */
#ifndef ATTN_NN_MEMORY_H
#define ATTN_NN_MEMORY_H

#include "attn/types.h"

#include <stdatomic.h>

/** Workspace of a call. */
struct nn_need {
    size_t size;  /**< bytes that it can make use of; SIZE_MAX after an error */
    size_t least; /**< with fewer, down to these, it runs on fewer threads */
};

/** Calls below one layer that have workspaces of their own. */
enum { NN_CALLS = 3 };

/** Zeroed: measures. With base: hands out. */
struct nn_arena {
    char *base;
    size_t used;
    struct nn_need calls[NN_CALLS]; /**< of the calls below in the order of their taking; handing out, what they get */
    int num_calls;                  /**< that have been taken */
    attn_status status;             /**< of the first piece that could not be had; its sentence has been kept */
};

/** n0 * n1 * n2 elements, aligned to 64 bytes; NULL when measuring or after an error. */
void *nn_take(struct nn_arena *arena, int64_t n0, int64_t n1, int64_t n2, size_t element);

/** n bytes. */
void *nn_take_bytes(struct nn_arena *arena, size_t n);

/** Workspace of a call below this one: sets *size to what it gets. need is only looked at when measuring. */
void *nn_take_workspace(struct nn_arena *arena, struct nn_need need, size_t *size);

/** Bytes of workspace for what was taken, with room to align it; SIZE_MAX after an error. */
size_t nn_arena_size(const struct nn_arena *arena);

/** The same, and how much of it will do. */
struct nn_need nn_arena_need(const struct nn_arena *arena);

/** What serves either of two calls. */
struct nn_need nn_larger_need(struct nn_need a, struct nn_need b);

/** How far a call is, at the start of its workspace, where attn_layer_progress() finds it. */
struct nn_progress {
    atomic_llong begun, tasks;
};

/** Takes it: before anything else. */
struct nn_progress *nn_take_progress(struct nn_arena *arena);

/** A call with so many tasks begins. */
void nn_progress_begin(struct nn_progress *progress, int64_t tasks);

/** A task begins, on any thread. NULL: nobody looks. */
static inline void nn_progress_count(atomic_llong *begun)
{
    if (begun)
        atomic_fetch_add_explicit(begun, 1, memory_order_relaxed);
}

/** The memory of a call. */
struct nn_workspace {
    struct nn_arena arena;
    void *own; /**< what was allocated for the call, or NULL */
};

/**
 * Uses the caller's workspace of size bytes for what has been measured, or allocates it if it is NULL. Its size may
 * have been asked for where there were fewer threads: calls below get less then, but what they need. Returns the status
 * of measured, ATTN_WORKSPACE_TOO_SMALL or ATTN_OUT_OF_MEMORY.
 */
attn_status nn_workspace_open(struct nn_workspace *w, void *workspace, size_t size, const struct nn_arena *measured);
/** Frees what was allocated. */
void nn_workspace_close(struct nn_workspace *w);

#endif
