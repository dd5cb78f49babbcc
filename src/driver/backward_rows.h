/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of tables of rows by distance: sums of a head, which its task of options makes, and the rows that they
 * become. */
#ifndef ATTN_DRIVER_BACKWARD_ROWS_H
#define ATTN_DRIVER_BACKWARD_ROWS_H

#include "driver/backward_call.h"

/** The sums of a head's rows of tables by distance, over all sequences. */
struct attn_backward_rows {
    struct attn_relative_sums sums;
    int64_t h;
};

/** Zeros in the sums of head h; all of them are NULL where no table's gradient is wanted. */
struct attn_backward_rows attn_backward_begin_rows(const struct attn_run *run, int64_t h);

/** Adds sequence s to them. */
void attn_backward_add_rows(const struct attn_run *run, struct attn_backward_rows *rows, int64_t s, void *scratch);

/** Tasks that write the gradients of tables of rows. */
int64_t attn_backward_row_tasks(const struct attn_backward *b);

void attn_backward_row_task(const struct attn_run *run, int64_t task, void *scratch);

#endif
