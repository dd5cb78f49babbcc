/* SPDX-License-Identifier: Apache-2.0 */
/* The phase that ends gradients of decays: its tasks, how many there are, and what they need. */
#ifndef ATTN_DRIVER_LINEAR_DECAYS_H
#define ATTN_DRIVER_LINEAR_DECAYS_H

#include "driver/linear_backward_call.h"

int64_t attn_linear_decays_tasks(const struct attn_linear_backward *call);
void attn_linear_decays_task(const struct attn_run *run, int64_t task, void *scratch);
size_t attn_linear_decays_scratch(const struct attn_linear_backward *call);

#endif
