/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Working memory of a layer. One function of the layer takes its pieces from an
 * arena; run on an empty arena it tells how much there has to be, run on a
 * workspace it gives the pointers.
 *
 *     static struct pieces take_pieces(struct nn_arena *arena, ...);
 *     size_t size = (take_pieces(&(struct nn_arena){0}, ...), nn_arena_size(&arena));
 */
#ifndef ATTN_NN_MEMORY_H
#define ATTN_NN_MEMORY_H

#include "attn/types.h"

/** Zeroed: measures. With base: hands out. */
struct nn_arena {
    char *base;
    size_t used;
    int overflow;
};

/** n0 * n1 * n2 elements, aligned to 64 bytes; NULL when measuring or when the product overflows. */
void *nn_take(struct nn_arena *arena, int64_t n0, int64_t n1, int64_t n2, size_t element);

/** n bytes of a piece whose size another layer has told (SIZE_MAX: overflow). */
void *nn_take_bytes(struct nn_arena *arena, size_t n);

/** Bytes of workspace for what was taken, with room to align it; SIZE_MAX if it overflowed. */
size_t nn_arena_size(const struct nn_arena *arena);

/** The memory of a call. */
struct nn_workspace {
    struct nn_arena arena;
    void *own; /**< what was allocated for the call, or NULL */
};

/**
 * Uses the caller's workspace of size bytes, or allocates needed bytes if it is NULL. Returns
 * ATTN_WORKSPACE_TOO_SMALL, ATTN_OUT_OF_MEMORY or ATTN_SIZE_OVERFLOW with a sentence.
 */
attn_status nn_workspace_open(struct nn_workspace *w, void *workspace, size_t size, size_t needed);
/** Frees what was allocated. */
void nn_workspace_close(struct nn_workspace *w);

#endif
