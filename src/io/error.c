/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats the sentences of struct io_error. Everything from 0x01 to 0x1f and
 * 0x7f becomes '?': file and tensor names are the user's or a stranger's, and
 * a newline or an escape sequence in one must not reach the terminal. A
 * sentence that is too long for the buffer is cut, never overrun.
 */
#include "io/error.h"

#include <stdarg.h>
#include <stdio.h>

static void format_sentence(struct io_error *error, const char *format, va_list arguments)
{
    vsnprintf(error->text, sizeof error->text, format, arguments);
    for (char *c = error->text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
}

bool io_fail(struct io_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    format_sentence(error, format, arguments);
    va_end(arguments);
    error->usage = false;
    return false;
}

bool io_fail_usage(struct io_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    format_sentence(error, format, arguments);
    va_end(arguments);
    error->usage = true;
    return false;
}
