/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status names and the last error's sentence, kept per thread in static
 * memory, so that reporting "out of memory" needs none.
 */
#include "api/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[512];

attn_status attn_fail(attn_status status, const char *format, ...)
{
    /* Made beside the last one, which may be among the arguments. */
    char sentence[sizeof last_error];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    memcpy(last_error, sentence, strlen(sentence) + 1);
    return status;
}

const char *attn_last_error(void)
{
    return last_error;
}

const char *attn_status_string(attn_status status)
{
    switch (status) {
    case ATTN_OK:
        return "ok";
    case ATTN_INVALID_ARGUMENT:
        return "invalid argument";
    case ATTN_SHAPE_MISMATCH:
        return "shape mismatch";
    case ATTN_SIZE_OVERFLOW:
        return "size overflow";
    case ATTN_UNSUPPORTED:
        return "unsupported";
    case ATTN_OUT_OF_MEMORY:
        return "out of memory";
    case ATTN_WORKSPACE_TOO_SMALL:
        return "workspace too small";
    case ATTN_INVALID_FILE:
        return "invalid file";
    case ATTN_CACHE_FULL:
        return "cache full";
    case ATTN_PEER_LOST:
        return "peer lost";
    }
    return "unknown status";
}
