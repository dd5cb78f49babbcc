/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_fail() for libattn_nn: the sentence is kept by libattn, where
 * attn_last_error() looks for it.
 */
#include "api/error.h"

#include <stdarg.h>
#include <stdio.h>

attn_status attn_fail(attn_status status, const char *format, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    attn_set_last_error(sentence);
    return status;
}
