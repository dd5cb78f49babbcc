/* SPDX-License-Identifier: Apache-2.0 */
/* Working memory of a layer: measured and handed out by the same code. */
#include "nn/memory.h"

#include "api/error.h"

#include <stdlib.h>

#define ALIGNMENT ((size_t)64)

void *nn_take_bytes(struct nn_arena *arena, size_t n)
{
    size_t end;
    if (n > SIZE_MAX / 2 || __builtin_add_overflow(arena->used, (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, &end) ||
        end > SIZE_MAX / 2) {
        arena->overflow = 1;
        return NULL;
    }
    void *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used = end;
    return piece;
}

void *nn_take(struct nn_arena *arena, int64_t n0, int64_t n1, int64_t n2, size_t element)
{
    const int64_t counts[] = {n0, n1, n2};
    size_t bytes = element;
    for (int i = 0; i < 3; i++)
        if (__builtin_mul_overflow(bytes, (size_t)counts[i], &bytes))
            arena->overflow = 1;
    return nn_take_bytes(arena, arena->overflow ? SIZE_MAX : bytes);
}

size_t nn_arena_size(const struct nn_arena *arena)
{
    return arena->overflow ? SIZE_MAX : arena->used + ALIGNMENT - 1;
}

attn_status nn_workspace_open(struct nn_workspace *w, void *workspace, size_t size, size_t needed)
{
    memset(w, 0, sizeof *w);
    if (needed == SIZE_MAX)
        return attn_fail(ATTN_SIZE_OVERFLOW, "the workspace of this call would exceed 2^63 bytes");
    if (!workspace) {
        workspace = w->own = malloc(needed);
        if (!workspace)
            return attn_fail(ATTN_OUT_OF_MEMORY, "a workspace of %zu bytes could not be allocated", needed);
    } else if (size < needed) {
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected %zu bytes or more", size, needed);
    }
    w->arena.base = (char *)(((uintptr_t)workspace + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return ATTN_OK;
}

void nn_workspace_close(struct nn_workspace *w)
{
    free(w->own);
}
