/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_forward() with progress on a terminal: a thread looks at how many tasks of the run have begun, so that the run
 * itself does nothing for it.
 */
#ifndef ATTN_TOOLS_WATCHED_H
#define ATTN_TOOLS_WATCHED_H

#include <attn/attn.h>
#include <stdbool.h>

/* The same as attn_forward(); nothing is shown if quiet. */
attn_status watched_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                            const attn_params *params, bool quiet);

#endif
