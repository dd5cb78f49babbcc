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
 */
#ifndef ATTN_NN_MEMORY_H
#define ATTN_NN_MEMORY_H

#include "attn/types.h"

/** Zeroed: measures. With base: hands out. */
struct nn_arena {
    char *base;
    size_t used;
    size_t spare;       /**< bytes of used without which the call only has fewer threads */
    size_t missing;     /**< bytes that a caller's workspace has fewer than used */
    attn_status status; /**< of the first piece that could not be had; its sentence has been kept */
};

/** n0 * n1 * n2 elements, aligned to 64 bytes; NULL when measuring or after an error. */
void *nn_take(struct nn_arena *arena, int64_t n0, int64_t n1, int64_t n2, size_t element);

/** n bytes. */
void *nn_take_bytes(struct nn_arena *arena, size_t n);

/**
 * Workspace of a call below this one that can make use of *size bytes and needs least of them, as it runs on fewer
 * threads then: sets *size to what it gets.
 */
void *nn_take_workspace(struct nn_arena *arena, size_t *size, size_t least);

/** Bytes of workspace for what was taken, with room to align it; SIZE_MAX after an error. */
size_t nn_arena_size(const struct nn_arena *arena);

/** The memory of a call. */
struct nn_workspace {
    struct nn_arena arena;
    void *own; /**< what was allocated for the call, or NULL */
};

/**
 * Uses the caller's workspace of size bytes for what has been measured, or allocates it if it is NULL. Its size may
 * have been asked for where there were fewer threads: without what can be spared, it will do. Returns the status of
 * measured, ATTN_WORKSPACE_TOO_SMALL or ATTN_OUT_OF_MEMORY.
 */
attn_status nn_workspace_open(struct nn_workspace *w, void *workspace, size_t size, const struct nn_arena *measured);
/** Frees what was allocated. */
void nn_workspace_close(struct nn_workspace *w);

#endif
