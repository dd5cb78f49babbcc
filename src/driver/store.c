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

/**
 * What kernels are handed. Of it, only addresses and the number of rows differ from call to call: a struct that is
 * copied just after its parts have been written waits for these to leave the store buffer, behind all rows in it.
 */
struct pieces {
    struct attn_rotation turn, copy; /**< to out where nothing is rotated, or to be rounded; and from there to out */
    struct attn_quantisation quantise;
    _Alignas(ATTN_ALIGN) float turned[ATTN_MAX_STORED];
};

/** Bytes of an address from the beginning of a tensor on, of any type. */
static ptrdiff_t bytes_to(const attn_tensor *t, int64_t i, int64_t h, int64_t row)
{
    const int64_t at = i * attn_step_of(t, 0) + h * attn_step_of(t, 1) + row * attn_step_of(t, 2);
    return (ptrdiff_t)attn_bytes_of(t->dtype, at);
}

/** All heads of a token, or of a row of a page. */
static struct attn_rows heads_of(const attn_tensor *t)
{
    return (struct attn_rows){.stride = bytes_to(t, 0, 1, 0), .dtype = t->dtype};
}

static void begin(struct pieces *p, const struct store *store)
{
    const struct attn_store_work *w = store->work;
    const int64_t width = w->x.shape[3];
    const struct attn_rows x = heads_of(&w->x), out = heads_of(&w->pool);
    const struct attn_rows turned = {.data = p->turned, .stride = (ptrdiff_t)width * ATTN_WORD, .dtype = ATTN_F32};
    p->turn = (struct attn_rotation){.x = x,
                                     .out = store->turns_first ? turned : out,
                                     .table_stride = attn_step_of(&w->rotations, 1),
                                     .pairs = w->rotations.shape[3] / 2,
                                     .width = width,
                                     .layout = w->layout};
    p->copy = (struct attn_rotation){
        .x = store->turns_first ? turned : x, .out = out, .width = width, .streams = store->streams};
    p->quantise = (struct attn_quantisation){.x = p->copy.x,
                                             .out = out,
                                             .scale_stride = attn_step_of(&w->scales, 1),
                                             .width = width,
                                             .streams = store->streams};
}

/** n heads of token t, from head h on, to row row of a page. */
static void store_heads(const struct store *store, struct pieces *p, int64_t t, int64_t page, int64_t row, int64_t h,
                        int64_t n)
{
    const struct attn_store_work *w = store->work;
    const struct attn_vector_kernels *kernels = store->kernels->vectors;
    char *x = (char *)w->x.data + bytes_to(&w->x, 0, h, t), *const out =
                                                                (char *)w->pool.data + bytes_to(&w->pool, page, h, row);
    if (w->rotations.shape[3] > 0) {
        p->turn.x.data = x;
        p->turn.table =
            (const float *)(const void *)((const char *)w->rotations.data + bytes_to(&w->rotations, 0, h, t));
        p->turn.num_rows = n;
        if (!store->turns_first)
            p->turn.out.data = out;
        kernels->rotate(&p->turn);
        if (!store->turns_first)
            return;
        x = (char *)p->turned;
    }
    if (attn_is_quantised(w->pool.dtype)) {
        p->quantise.x.data = x;
        p->quantise.out.data = out;
        p->quantise.scale = (float *)(void *)((char *)w->scales.data + bytes_to(&w->scales, page, h, row));
        p->quantise.num_rows = n;
        kernels->quantise(&p->quantise);
    } else {
        p->copy.x.data = x;
        p->copy.out.data = out;
        p->copy.num_rows = n;
        kernels->rotate(&p->copy);
    }
}

static void store_tokens(const void *context, int64_t first, int64_t end)
{
    const struct store *store = context;
    const struct attn_store_work *w = store->work;
    const int64_t heads = w->x.shape[1], rows = w->pool.shape[2];
    struct pieces pieces;
    begin(&pieces, store);
    for (int64_t t = first; t < end; t++) {
        const int64_t slot = w->slots[t];
        for (int64_t h = 0; slot >= 0 && h < heads; h += store->together)
            store_heads(store, &pieces, t, slot / rows, slot % rows, h,
                        heads - h < store->together ? heads - h : store->together);
    }
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

/**
 * Whether rows that are rotated may lie in f32 before they are rounded: there is room for one, and channels that are
 * only copied stay as they are, where a NaN would become a quiet one.
 */
static int may_turn_first(const struct attn_store_work *work)
{
    const int64_t turned = work->rotations.shape[3], width = work->x.shape[3];
    const int copies = turned < width && work->x.dtype == work->pool.dtype && work->x.dtype != ATTN_F32;
    return turned == 0 || (width <= ATTN_MAX_STORED && !copies);
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
    if (!kernels->vectors->streams || pool->dtype == ATTN_I4 || bytes < LEAST_STREAMED || !has_whole_lines(pool) ||
        !may_turn_first(work))
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
