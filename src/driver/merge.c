/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a merge into ranges of rows, counted through batch, head and token, as
 * heads may have one row each. Every row is computed by itself, so where a
 * range ends changes no bit.
 */
#include "driver/driver.h"

#include "driver/threads.h"

struct merge {
    const struct attn_kernels *kernels;
    const struct attn_merge_work *all;
};

static void merge_range(const void *context, int64_t first, int64_t end)
{
    const struct merge *merge = context;
    struct attn_merge_work work = *merge->all;
    work.first_row = first;
    work.num_rows = end - first;
    merge->kernels->vectors->merge(&work);
}

void attn_run_merge(const struct attn_kernels *kernels, const struct attn_merge_work *merge, int threads)
{
    const struct merge context = {kernels, merge};
    /* An exponential and a logarithm per row and part take about as long as some channels. */
    const double per_row = (double)merge->num_parts * ((double)merge->out->shape[3] + 16);
    attn_run_ranges(merge->num_rows, attn_threads_worth(per_row * (double)merge->num_rows, ATTN_WORTH_COPY, threads),
                    merge_range, &context);
}
