/* SPDX-License-Identifier: Apache-2.0 */
/* Working memory of a layer: measured and handed out by the same code. */
#include "nn/memory.h"

#include "api/error.h"

#include <stdlib.h>

#define ALIGNMENT ((size_t)64)

static void *too_much(struct nn_arena *arena)
{
    if (!arena->status)
        arena->status = attn_fail(ATTN_SIZE_OVERFLOW, "the workspace of this call would exceed 2^63 bytes");
    return NULL;
}

static size_t rounded_up(size_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *nn_take_bytes(struct nn_arena *arena, size_t n)
{
    size_t end;
    if (arena->status)
        return NULL;
    if (n > SIZE_MAX / 2 || __builtin_add_overflow(arena->used, rounded_up(n), &end) || end > SIZE_MAX / 2)
        return too_much(arena);
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
            return too_much(arena);
    return nn_take_bytes(arena, bytes);
}

void *nn_take_workspace(struct nn_arena *arena, size_t *size, size_t least)
{
    if (*size <= SIZE_MAX / 2 && least < *size) {
        const size_t spare = rounded_up(*size) - rounded_up(least), missing = rounded_up(arena->missing);
        const size_t cut = missing < spare ? missing : spare;
        *size = cut ? rounded_up(*size) - cut : *size;
        arena->missing -= cut < arena->missing ? cut : arena->missing;
        arena->spare += spare;
    }
    return nn_take_bytes(arena, *size);
}

size_t nn_arena_size(const struct nn_arena *arena)
{
    return arena->status ? SIZE_MAX : arena->used + ALIGNMENT - 1;
}

attn_status nn_workspace_open(struct nn_workspace *w, void *workspace, size_t size, const struct nn_arena *measured)
{
    const size_t needed = nn_arena_size(measured);
    memset(w, 0, sizeof *w);
    if (measured->status)
        return measured->status;
    if (!workspace) {
        workspace = w->own = malloc(needed);
        if (!workspace)
            return attn_fail(ATTN_OUT_OF_MEMORY, "a workspace of %zu bytes could not be allocated", needed);
    } else if (size < needed - measured->spare) {
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected %zu bytes or more", size,
                         needed - measured->spare);
    } else if (size < needed) {
        w->arena.missing = needed - size;
    }
    w->arena.base = (char *)(((uintptr_t)workspace + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return ATTN_OK;
}

void nn_workspace_close(struct nn_workspace *w)
{
    free(w->own);
}
