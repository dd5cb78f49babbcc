/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of options, those of tables of rows by distance aside (driver/backward_rows.h). */
#ifndef ATTN_DRIVER_BACKWARD_OPTIONS_H
#define ATTN_DRIVER_BACKWARD_OPTIONS_H

#include "driver/backward_call.h"

/** Heads whose options have gradients besides the mask: tasks. */
int64_t attn_backward_head_tasks(const struct attn_backward *b);

/** Numbers of biases by distance that a head sums up: that of its slope, then those of its table. */
static inline int64_t attn_backward_distance_sums(const struct attn_backward *b)
{
    return 1 + (b->dtable ? b->buckets : 0);
}

/** Of so many blocks of queries, cut into spans, where one begins; and so the end of the one before. */
static inline int64_t attn_backward_span_begin(int64_t blocks, int64_t spans, int64_t span)
{
    return blocks / spans * span + (span < blocks % spans ? span : blocks % spans);
}

/** A run as those tasks see it that sum over several blocks: it lives as long as the run. */
struct attn_run attn_backward_fixed_run(const struct attn_run *run);

/** @name A task of each of these phases */
/**@{*/
void attn_backward_option_task(const struct attn_run *run, int64_t task, void *scratch);
void attn_backward_head_task(const struct attn_run *run, int64_t task, void *scratch);
/**@}*/

#endif
