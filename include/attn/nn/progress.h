/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file progress.h
 * @brief How far a long call of a layer is, for whoever shows it.
 *
 * A call in the caller's workspace counts its tasks there as they begin: attn_alignment_forward() and
 * attn_linformer_forward() do. Another thread looks at the count from time to time:
 *
 * @code
 *     // the workspace holds zeros; one thread calls
 *     attn_linformer_forward(&q, &k, &v, &e, NULL, &out, NULL, workspace, size);
 *     // and another one, five times a second
 *     attn_layer_progress(workspace, size, &begun, &tasks);
 * @endcode
 */
#ifndef ATTN_NN_PROGRESS_H
#define ATTN_NN_PROGRESS_H

#include "attn/types.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Of all tasks of a call of attn_alignment_forward() or attn_linformer_forward() in that workspace, those that have
 * begun. It asks nothing of the call and may be called by any thread, before, during and after it; when no call has
 * begun there, the workspace must have been filled with zeros. Tasks are not all of the same size.
 *
 * @param workspace       the call's; it is only read
 * @param workspace_size  bytes of it, 79 or more
 * @param begun           tasks that have begun: 0 before the call, *tasks at its end
 * @param tasks           all tasks of the call; 0 until its first one begins
 * @return ATTN_OK, ATTN_INVALID_ARGUMENT for a NULL, or ATTN_WORKSPACE_TOO_SMALL
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_layer_progress(const void *workspace, size_t workspace_size, int64_t *begun, int64_t *tasks);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_PROGRESS_H */
