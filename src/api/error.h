/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentence behind attn_last_error().
 */
#ifndef ATTN_ERROR_H
#define ATTN_ERROR_H

#include "attn/attn.h"

/** Keeps a sentence for this thread and returns status, so that a check reads: return attn_fail(...). */
attn_status attn_fail(attn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Passes on the status of a step that failed. */
#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const attn_status status_ = (call);                                                                            \
        if (status_)                                                                                                   \
            return status_;                                                                                            \
    } while (0)

#endif
