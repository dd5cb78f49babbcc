/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantisation of a tensor: which rows a kernel is handed. A piece of work is
 * some rows along the axis, of heads and tokens, on which rows lie nearer to each
 * other.
 */
#include "driver/driver.h"

#include "driver/tensors.h"
#include "driver/threads.h"

/* Rows of a piece, so that there are enough pieces for any number of threads. */
#define ROWS 64

struct quantisation {
    const struct attn_kernels *kernels;
    attn_tensor x, out, scale; /**< rows of a piece go along axis 2; steps of axes of length 1 are 0 */
    int64_t blocks;            /**< of ROWS along that axis */
};

/** Pieces first to end - 1. */
static void quantise_pieces(const void *context, int64_t first, int64_t end)
{
    const struct quantisation *all = context;
    const int64_t num_far = all->x.shape[1], num_near = all->x.shape[2];
    for (int64_t piece = first; piece < end; piece++) {
        const int64_t near = piece % all->blocks * ROWS, far = piece / all->blocks % num_far;
        const int64_t b = piece / all->blocks / num_far;
        const struct attn_quantisation work = {
            .x = attn_rows_at(&all->x, b, far, near),
            .out = attn_rows_at(&all->out, b, far, near),
            .scale = attn_row_at(&all->scale, b, far, near),
            .scale_stride = (ptrdiff_t)all->scale.stride[2],
            .num_rows = num_near - near < ROWS ? num_near - near : ROWS,
            .width = all->x.shape[3],
        };
        all->kernels->vectors->quantise(&work);
    }
}

void attn_run_quantise(const struct attn_kernels *kernels, const attn_tensor *x, const attn_tensor *out,
                       const attn_tensor *scale, int threads)
{
    static char nothing; /* rows without channels have scales, and data may be NULL */
    const int64_t heads = x->shape[1], tokens = x->shape[2];
    if (x->shape[0] == 0 || heads == 0 || tokens == 0 || scale->shape[3] == 0)
        return;
    const int64_t by_head = out->stride[1] < 0 ? -out->stride[1] : out->stride[1];
    const int64_t by_token = out->stride[2] < 0 ? -out->stride[2] : out->stride[2];
    const int swapped = heads > 1 && (tokens == 1 || by_head < by_token);
    struct quantisation all = {kernels, attn_arranged(x, swapped), attn_arranged(out, swapped),
                               attn_arranged(scale, swapped), 0};
    if (x->shape[3] == 0) {
        all.x.data = all.out.data = &nothing;
        for (int axis = 0; axis < 3; axis++)
            all.x.stride[axis] = all.out.stride[axis] = 0;
    }
    all.blocks = (all.x.shape[2] + ROWS - 1) / ROWS;
    const double work = (double)(x->shape[0] * heads) * (double)tokens * (double)x->shape[3];
    attn_run_ranges(x->shape[0] * all.blocks * all.x.shape[1], attn_threads_worth(work, ATTN_WORTH_COPY, threads),
                    quantise_pieces, &all);
}
