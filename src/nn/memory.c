/* SPDX-License-Identifier: Apache-2.0 */
/* Working memory of a layer: measured and handed out by the same code; and how far the call in it is. */
#include "nn/memory.h"

#include "api/error.h"
#include "attn/nn/progress.h"

#include <assert.h>
#include <stdlib.h>

#define ALIGNMENT ((size_t)64)

static void *too_much(struct nn_arena *arena)
{
    if (!arena->status)
        arena->status = attn_fail(ATTN_SIZE_OVERFLOW, "the workspace of this call would exceed 2^63 bytes");
    return NULL;
}

/** Where pieces begin in a workspace. */
static void *aligned(const void *workspace)
{
    return (void *)(((uintptr_t)workspace + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
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

void *nn_take_workspace(struct nn_arena *arena, struct nn_need need, size_t *size)
{
    assert(arena->num_calls < NN_CALLS);
    struct nn_need *call = &arena->calls[arena->num_calls++];
    if (!arena->base)
        *call = need;
    *size = call->size;
    return nn_take_bytes(arena, call->size);
}

struct nn_progress *nn_take_progress(struct nn_arena *arena)
{
    assert(arena->used == 0);
    return nn_take_bytes(arena, sizeof(struct nn_progress));
}

void nn_progress_begin(struct nn_progress *progress, int64_t tasks)
{
    atomic_store_explicit(&progress->begun, 0, memory_order_relaxed);
    atomic_store_explicit(&progress->tasks, tasks, memory_order_relaxed);
}

attn_status attn_layer_progress(const void *workspace, size_t workspace_size, int64_t *begun, int64_t *tasks)
{
    const size_t least = sizeof(struct nn_progress) + ALIGNMENT - 1;
    if (!workspace)
        return attn_fail(ATTN_INVALID_ARGUMENT, "workspace is NULL; expected that of a call");
    if (workspace_size < least)
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", workspace_size,
                         least);
    if (!begun || !tasks)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected where the number goes",
                         begun ? "tasks" : "begun");
    const struct nn_progress *progress = aligned(workspace);
    *tasks = atomic_load_explicit(&progress->tasks, memory_order_relaxed);
    *begun = atomic_load_explicit(&progress->begun, memory_order_relaxed);
    if (*begun > *tasks) /* between two calls */
        *begun = *tasks;
    return ATTN_OK;
}

/** Bytes that a call below can do without. */
static size_t spare(const struct nn_need *call)
{
    return call->least < call->size ? rounded_up(call->size) - rounded_up(call->least) : 0;
}

struct nn_need nn_arena_need(const struct nn_arena *arena)
{
    if (arena->status)
        return (struct nn_need){SIZE_MAX, SIZE_MAX};
    const size_t size = arena->used + ALIGNMENT - 1;
    struct nn_need need = {size, size};
    for (int i = 0; i < arena->num_calls; i++)
        need.least -= spare(&arena->calls[i]);
    return need;
}

size_t nn_arena_size(const struct nn_arena *arena)
{
    return nn_arena_need(arena).size;
}

struct nn_need nn_larger_need(struct nn_need a, struct nn_need b)
{
    return (struct nn_need){a.size > b.size ? a.size : b.size, a.least > b.least ? a.least : b.least};
}

/** Takes missing bytes away from the calls below, which have so many to spare. */
static void cut_calls(struct nn_arena *arena, size_t missing)
{
    for (int i = 0; i < arena->num_calls && missing; i++) {
        struct nn_need *call = &arena->calls[i];
        const size_t most = spare(call), cut = rounded_up(missing) < most ? rounded_up(missing) : most;
        if (cut)
            call->size = rounded_up(call->size) - cut;
        missing -= cut < missing ? cut : missing;
    }
}

attn_status nn_workspace_open(struct nn_workspace *w, void *workspace, size_t size, const struct nn_arena *measured)
{
    const struct nn_need need = nn_arena_need(measured);
    memset(w, 0, sizeof *w);
    if (measured->status)
        return measured->status;
    memcpy(w->arena.calls, measured->calls, sizeof w->arena.calls);
    if (!workspace) {
        workspace = w->own = malloc(need.size);
        if (!workspace)
            return attn_fail(ATTN_OUT_OF_MEMORY, "a workspace of %zu bytes could not be allocated", need.size);
    } else if (size < need.least) {
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected %zu bytes or more", size,
                         need.least);
    } else if (size < need.size) {
        w->arena.num_calls = measured->num_calls;
        cut_calls(&w->arena, need.size - size);
        w->arena.num_calls = 0;
    }
    w->arena.base = aligned(workspace);
    return ATTN_OK;
}

void nn_workspace_close(struct nn_workspace *w)
{
    free(w->own);
}
