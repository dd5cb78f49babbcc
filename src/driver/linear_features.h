/* SPDX-License-Identifier: Apache-2.0 */
/* The phases around the pieces of gradients of linear attention: their tasks, and how many there are. */
#ifndef ATTN_DRIVER_LINEAR_FEATURES_H
#define ATTN_DRIVER_LINEAR_FEATURES_H

#include "driver/linear_backward_call.h"

int64_t attn_linear_features_tasks(const struct attn_linear_backward *call);
void attn_linear_features_task(const struct attn_run *run, int64_t task, void *scratch);

int64_t attn_linear_sums_tasks(const struct attn_linear_backward *call);
void attn_linear_sums_task(const struct attn_run *run, int64_t task, void *scratch);

int64_t attn_linear_ends_tasks(const struct attn_linear_backward *call);
void attn_linear_ends_task(const struct attn_run *run, int64_t task, void *scratch);
size_t attn_linear_ends_scratch(const struct attn_linear_backward *call);

#endif
