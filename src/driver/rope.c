/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotation of a tensor: which rows a kernel is handed.
 *
 * Memory is walked in its own order. Of heads and tokens, the axis whose rows
 * lie nearer to each other is the inner one, and a piece of work is some rows
 * along it. With heads one behind the other these are tokens of a head, and the
 * table is read again for each head; with all heads of a token side by side it
 * is these, turned by one row of the table. Reading a part of the table only
 * once, a block of tokens in one head after the other, took up to three times
 * as long: it is the rows of x that come from far.
 */
#include "driver/driver.h"

#include "driver/tensors.h"
#include "driver/threads.h"

/* Rows of a piece, so that there are enough pieces for any number of threads. */
#define ROWS 64

struct rotation {
    const struct attn_kernels *kernels;
    attn_tensor x, table, out; /**< axes without a step have the stride 0; rows of a piece go along axis 2 */
    attn_rope_layout layout;
    int64_t blocks; /**< of ROWS along axis 2 */
};

/** Pieces first to end - 1, block after block of each row along the far axis. */
static void rotate_pieces(const void *context, int64_t first, int64_t end)
{
    const struct rotation *r = context;
    const int64_t num_far = r->x.shape[1], num_near = r->x.shape[2];
    for (int64_t piece = first; piece < end; piece++) {
        const int64_t near = piece % r->blocks * ROWS, far = piece / r->blocks % num_far;
        const int64_t b = piece / r->blocks / num_far;
        const struct attn_rotation work = {
            .x = attn_rows_at(&r->x, b, far, near),
            .out = attn_rows_at(&r->out, b, far, near),
            .table = attn_row_at(&r->table, b, far, near),
            .table_stride = (ptrdiff_t)r->table.stride[2],
            .num_rows = num_near - near < ROWS ? num_near - near : ROWS,
            .pairs = r->table.shape[3] / 2,
            .width = r->x.shape[3],
            .layout = r->layout,
        };
        r->kernels->vectors->rotate(&work);
    }
}

static int64_t step(const attn_tensor *t, int axis)
{
    return t->stride[axis] < 0 ? -t->stride[axis] : t->stride[axis];
}

void attn_rotate(const struct attn_kernels *kernels, const attn_tensor *x, const attn_tensor *table,
                 attn_rope_layout layout, const attn_tensor *out, int threads)
{
    const int64_t heads = x->shape[1], tokens = x->shape[2];
    if (x->shape[0] == 0 || heads == 0 || tokens == 0 || x->shape[3] == 0)
        return;
    const int swapped = heads > 1 && (tokens == 1 || step(out, 1) < step(out, 2));
    struct rotation r = {
        kernels, attn_arranged(x, swapped), attn_arranged(table, swapped), attn_arranged(out, swapped), layout, 0};
    if (table->shape[3] == 0) { /* its data may be NULL: no address is computed from that */
        static float nothing;
        r.table.data = &nothing;
        r.table.stride[0] = r.table.stride[1] = r.table.stride[2] = 0;
    }
    r.blocks = (r.x.shape[2] + ROWS - 1) / ROWS;
    const double work = (double)(x->shape[0] * heads) * (double)tokens * (double)x->shape[3];
    attn_run_ranges(x->shape[0] * r.blocks * r.x.shape[1], attn_threads_worth(work, ATTN_WORTH_COPY, threads),
                    rotate_pieces, &r);
}
