/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that go to places of a pool: all heads of a token at once, which are rows
 * a step apart in the tensor and in the page. Rows of 8 or 4 bits are rotated
 * in f32 first, one by one.
 */
#include "driver/driver.h"

#include "driver/tensors.h"
#include "driver/threads.h"

struct store {
    const struct attn_kernels *kernels;
    const struct attn_store_work *work;
};

/** A row of each head of token t of a pool, or of its scales, from head h on. */
static struct attn_rows place_of(const attn_tensor *pool, int64_t slot, int64_t h)
{
    const int64_t page = slot / pool->shape[2], row = slot % pool->shape[2];
    const int64_t at = page * attn_step_of(pool, 0) + h * attn_step_of(pool, 1) + row * attn_step_of(pool, 2);
    return (struct attn_rows){.data = (char *)pool->data + attn_bytes_of(pool->dtype, at),
                              .stride = (ptrdiff_t)attn_bytes_of(pool->dtype, attn_step_of(pool, 1)),
                              .dtype = pool->dtype};
}

/** How n heads of token t, from head h on, are rotated, or copied, to out. */
static struct attn_rotation rotation_of(const struct attn_store_work *w, int64_t t, int64_t h, int64_t n,
                                        const struct attn_rows *out)
{
    static const float nothing; /* a table without pairs, whose data may be NULL */
    const ptrdiff_t size = attn_element_size(w->x.dtype);
    const int rotates = w->rotations.shape[3] > 0;
    return (struct attn_rotation){
        .x = {.data = (char *)w->x.data + (t * attn_step_of(&w->x, 2) + h * attn_step_of(&w->x, 1)) * size,
              .stride = attn_step_of(&w->x, 1) * size,
              .dtype = w->x.dtype},
        .out = *out,
        .table = rotates ? (const float *)w->rotations.data + t * attn_step_of(&w->rotations, 2) +
                               h * attn_step_of(&w->rotations, 1)
                         : &nothing,
        .table_stride = rotates ? attn_step_of(&w->rotations, 1) : 0,
        .num_rows = n,
        .pairs = w->rotations.shape[3] / 2,
        .width = w->x.shape[3],
        .layout = w->layout,
    };
}

/** A head of token t, rotated in f32 and then quantised. */
static void quantise_row(const struct store *store, int64_t t, int64_t h)
{
    const struct attn_store_work *w = store->work;
    _Alignas(ATTN_ALIGN) float row[ATTN_MAX_STORED];
    const struct attn_rows floats = {.data = row, .stride = 0, .dtype = ATTN_F32};
    const struct attn_rotation rotation = rotation_of(w, t, h, 1, &floats);
    store->kernels->vectors->rotate(&rotation);
    const struct attn_quantisation quantisation = {.x = floats,
                                                   .out = place_of(&w->pool, w->slots[t], h),
                                                   .scale = place_of(&w->scales, w->slots[t], h).data,
                                                   .num_rows = 1,
                                                   .width = w->x.shape[3]};
    store->kernels->vectors->quantise(&quantisation);
}

static void store_tokens(const void *context, int64_t first, int64_t end)
{
    const struct store *store = context;
    const struct attn_store_work *w = store->work;
    for (int64_t t = first; t < end; t++) {
        if (w->slots[t] < 0)
            continue;
        if (attn_is_quantised(w->pool.dtype)) {
            for (int64_t h = 0; h < w->x.shape[1]; h++)
                quantise_row(store, t, h);
            continue;
        }
        const struct attn_rows out = place_of(&w->pool, w->slots[t], 0);
        const struct attn_rotation rotation = rotation_of(w, t, 0, w->x.shape[1], &out);
        store->kernels->vectors->rotate(&rotation);
    }
}

void attn_run_store(const struct attn_kernels *kernels, const struct attn_store_work *work, int threads)
{
    const struct store store = {kernels, work};
    const int64_t tokens = work->x.shape[2];
    if (tokens == 0 || work->x.shape[1] == 0 || work->x.shape[3] == 0)
        return;
    const double elements = (double)tokens * (double)work->x.shape[1] * (double)work->x.shape[3];
    attn_run_ranges(tokens, attn_threads_worth(elements, ATTN_WORTH_COPY, threads), store_tokens, &store);
}
