/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that go to places of a pool: all heads of a token at once, which are rows
 * a step apart in the tensor and in the page.
 */
#include "driver/driver.h"

#include "driver/threads.h"

struct store {
    const struct attn_kernels *kernels;
    const struct attn_store_work *work;
};

static ptrdiff_t step(const attn_tensor *t, int axis)
{
    return t->shape[axis] > 1 ? (ptrdiff_t)t->stride[axis] : 0;
}

static void store_tokens(const void *context, int64_t first, int64_t end)
{
    const struct store *store = context;
    const struct attn_store_work *w = store->work;
    const ptrdiff_t x_size = attn_element_size(w->x.dtype), pool_size = attn_element_size(w->pool.dtype);
    const int64_t page_size = w->pool.shape[2];
    static const float nothing; /* a table without pairs, whose data may be NULL */
    for (int64_t t = first; t < end; t++) {
        if (w->slots[t] < 0)
            continue;
        const int64_t page = w->slots[t] / page_size, row = w->slots[t] % page_size;
        const ptrdiff_t place = page * step(&w->pool, 0) + row * step(&w->pool, 2);
        const int rotates = w->rotations.shape[3] > 0;
        const struct attn_rotation rotation = {
            .x = {(char *)w->x.data + t * step(&w->x, 2) * x_size, step(&w->x, 1) * x_size, w->x.dtype, NULL, 0},
            .out = {(char *)w->pool.data + place * pool_size, step(&w->pool, 1) * pool_size, w->pool.dtype, NULL, 0},
            .table = rotates ? (const float *)w->rotations.data + t * step(&w->rotations, 2) : &nothing,
            .table_stride = rotates ? step(&w->rotations, 1) : 0,
            .num_rows = w->x.shape[1],
            .pairs = w->rotations.shape[3] / 2,
            .width = w->x.shape[3],
            .layout = w->layout,
        };
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
