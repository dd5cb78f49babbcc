/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that go to places of a pool: all heads of a token at once, which are rows
 * a step apart in the tensor and in the page. Rows of 8 or 4 bits are rotated
 * in f32 first, in a small part of L1.
 *
 * Stores fetch the lines that they change, and rows of a page are too short for a
 * processor to see what comes next: a core then waits for memory, and asking for
 * lines ahead does not help. Rows of large calls therefore go past the caches
 * (streams), if they are whole lines.
 */
#include "driver/driver.h"

#include "driver/tensors.h"
#include "driver/threads.h"

#include <stdatomic.h>

/* Bytes of a call from which streaming gains: below, a step of 16 sequences took as long with it, or longer. */
#define LEAST_STREAMED (64.0 * 1024)

struct store {
    const struct attn_kernels *kernels;
    const struct attn_store_work *work;
    int64_t together; /**< heads whose rows are made at once */
    int turns_first;  /**< rows are rotated before they are rounded, in f32 */
    int streams;      /**< rows go past the caches */
};

/** Rows of all heads in one place of a pool, or of its scales, from head h on. */
static struct attn_rows place_of(const attn_tensor *pool, int64_t page, int64_t row, int64_t h)
{
    const int64_t at = page * attn_step_of(pool, 0) + h * attn_step_of(pool, 1) + row * attn_step_of(pool, 2);
    return (struct attn_rows){.data = (char *)pool->data + attn_bytes_of(pool->dtype, at),
                              .stride = (ptrdiff_t)attn_bytes_of(pool->dtype, attn_step_of(pool, 1)),
                              .dtype = pool->dtype};
}

/** n heads of token t of x, from head h on. */
static struct attn_rows rows_of(const struct attn_store_work *w, int64_t t, int64_t h)
{
    const ptrdiff_t size = attn_element_size(w->x.dtype);
    return (struct attn_rows){.data =
                                  (char *)w->x.data + (t * attn_step_of(&w->x, 2) + h * attn_step_of(&w->x, 1)) * size,
                              .stride = attn_step_of(&w->x, 1) * size,
                              .dtype = w->x.dtype};
}

/** Rotates n heads of token t, from head h on, to out. */
static void rotate(const struct store *store, int64_t t, int64_t h, int64_t n, const struct attn_rows *out)
{
    const struct attn_store_work *w = store->work;
    const struct attn_rotation rotation = {
        .x = rows_of(w, t, h),
        .out = *out,
        .table =
            (const float *)w->rotations.data + t * attn_step_of(&w->rotations, 2) + h * attn_step_of(&w->rotations, 1),
        .table_stride = attn_step_of(&w->rotations, 1),
        .num_rows = n,
        .pairs = w->rotations.shape[3] / 2,
        .width = w->x.shape[3],
        .layout = w->layout,
    };
    store->kernels->vectors->rotate(&rotation);
}

/** n heads of token t, from head h on, to their place in row row of a page. */
static void store_heads(const struct store *store, int64_t t, int64_t page, int64_t row, int64_t h, int64_t n)
{
    const struct attn_store_work *w = store->work;
    const struct attn_vector_kernels *kernels = store->kernels->vectors;
    const int64_t width = w->x.shape[3];
    _Alignas(ATTN_ALIGN) float turned[ATTN_MAX_STORED];
    const struct attn_rows out = place_of(&w->pool, page, row, h);
    struct attn_rows x = rows_of(w, t, h);
    if (w->rotations.shape[3] > 0 && !store->turns_first) {
        rotate(store, t, h, n, &out);
        return;
    }
    if (store->turns_first) {
        x = (struct attn_rows){
            .data = turned, .stride = (ptrdiff_t)width * (ptrdiff_t)sizeof(float), .dtype = ATTN_F32};
        rotate(store, t, h, n, &x);
    }
    if (attn_is_quantised(w->pool.dtype)) {
        const struct attn_rows scales = place_of(&w->scales, page, row, h);
        const struct attn_quantisation quantisation = {.x = x,
                                                       .out = out,
                                                       .scale = scales.data,
                                                       .scale_stride = scales.stride / (ptrdiff_t)sizeof(float),
                                                       .num_rows = n,
                                                       .width = width,
                                                       .streams = store->streams};
        kernels->quantise(&quantisation);
    } else {
        const struct attn_rotation copy = {
            .x = x, .out = out, .num_rows = n, .width = width, .streams = store->streams};
        kernels->rotate(&copy);
    }
}

static void store_token(const struct store *store, int64_t t)
{
    const struct attn_store_work *w = store->work;
    const int64_t heads = w->x.shape[1], slot = w->slots[t];
    const int64_t page = slot / w->pool.shape[2], row = slot % w->pool.shape[2];
    for (int64_t h = 0; h < heads; h += store->together)
        store_heads(store, t, page, row, h, heads - h < store->together ? heads - h : store->together);
}

static void store_tokens(const void *context, int64_t first, int64_t end)
{
    const struct store *store = context;
    for (int64_t t = first; t < end; t++)
        if (store->work->slots[t] >= 0)
            store_token(store, t);
    if (store->streams)
        store->kernels->vectors->stream_end();
}

/** Whether all rows of a pool are whole lines. */
static int has_whole_lines(const attn_tensor *pool)
{
    int64_t together = (int64_t)((uintptr_t)pool->data % ATTN_ALIGN) | attn_row_bytes(pool->dtype, pool->shape[3]);
    for (int axis = 0; axis < 3; axis++)
        together |= attn_bytes_of(pool->dtype, attn_step_of(pool, axis));
    return together % ATTN_ALIGN == 0;
}

/** Bytes of the cache of a level, 2 or 3; 0 if unknown. */
static double cache_size(int level)
{
    static atomic_llong known[2]; /* 1 more, as 0 is what has not been asked for yet */
    atomic_llong *size = &known[level - 2];
    if (!atomic_load_explicit(size, memory_order_relaxed))
        atomic_store_explicit(size, (long long)attn_cache_size(level) + 1, memory_order_relaxed);
    return (double)(atomic_load_explicit(size, memory_order_relaxed) - 1);
}

/** Whether most tokens go to the place behind that of the token before, as those of a prompt do. */
static int is_in_order(const struct attn_store_work *work)
{
    int64_t next = 0;
    for (int64_t t = 1; t < work->x.shape[2]; t++)
        next += work->slots[t] == work->slots[t - 1] + 1;
    return 2 * next >= work->x.shape[2];
}

/**
 * Whether rows go past the caches. A token for each of many sequences is read again only behind all that its sequence
 * has kept. A prompt is read again at once, and a processor sees what comes next, too: it is streamed where it would
 * not stay in the last cache, with keys and values counted. What L2 may hold is written there.
 */
static int is_streamed(const struct attn_kernels *kernels, const struct attn_store_work *work)
{
    const attn_tensor *pool = &work->pool;
    const double row = (double)attn_row_bytes(pool->dtype, pool->shape[3]) * (double)pool->shape[1];
    const double bytes = row * (double)work->x.shape[2];
    if (!kernels->vectors->stream_end || pool->dtype == ATTN_I4 || bytes < LEAST_STREAMED || !has_whole_lines(pool) ||
        (work->rotations.shape[3] > 0 && pool->shape[3] > ATTN_MAX_STORED))
        return 0;
    const double last = cache_size(3);
    if (last > 0 && 2 * bytes >= last)
        return 1;
    return row * (double)pool->shape[0] * (double)pool->shape[2] > cache_size(2) && !is_in_order(work);
}

void attn_run_store(const struct attn_kernels *kernels, const struct attn_store_work *work, int threads)
{
    const int64_t tokens = work->x.shape[2], heads = work->x.shape[1], width = work->x.shape[3];
    if (tokens == 0 || heads == 0 || width == 0)
        return;
    const int rotates = work->rotations.shape[3] > 0, streams = is_streamed(kernels, work);
    const int turns_first = rotates && (streams || attn_is_quantised(work->pool.dtype));
    const int64_t most = turns_first ? ATTN_MAX_STORED / width : heads;
    const struct store store = {kernels, work, heads < most ? heads : most, turns_first, streams};
    const double elements = (double)tokens * (double)heads * (double)width;
    attn_run_ranges(tokens, attn_threads_worth(elements, ATTN_WORTH_COPY, threads), store_tokens, &store);
}
