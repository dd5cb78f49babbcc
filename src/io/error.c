/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything from 0x01 to 0x1f and 0x7f becomes '?': file and tensor names are
 * the user's or a stranger's, and a newline or an escape sequence in one must
 * not reach the terminal. The sentence is kept by libattn, which cuts one that
 * is too long.
 */
#include "io/error.h"

#include <stdio.h>

void io_sentence(char *sentence, size_t size, const char *format, va_list arguments)
{
    vsnprintf(sentence, size, format, arguments);
    for (char *c = sentence; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
}

attn_status io_fail(attn_status status, const char *format, ...)
{
    char sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    io_sentence(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return attn_fail(status, "%s", sentence);
}

attn_status io_fail_at(attn_status status, const char *format, ...)
{
    char place[256], sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    io_sentence(place, sizeof place, format, arguments);
    va_end(arguments);
    snprintf(sentence, sizeof sentence, "%s", attn_last_error());
    return attn_fail(status == ATTN_INVALID_ARGUMENT ? ATTN_INVALID_FILE : status, "%s: %s", place, sentence);
}
