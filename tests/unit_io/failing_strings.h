/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings that cannot be allocated, beside failing_memory.h, whose functions libc's own do not call: for programs that
 * are linked with --wrap for these, too. One file of a program includes this.
 */
#ifndef UNIT_IO_FAILING_STRINGS_H
#define UNIT_IO_FAILING_STRINGS_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "failing_memory.h"

char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
__attribute__((format(printf, 2, 3))) int __wrap_asprintf(char **out, const char *format, ...);

static bool string_refused(void)
{
    const bool fails = refused();
    if (fails)
        errno = ENOMEM;
    return fails;
}

char *__wrap_strdup(const char *text)
{
    return string_refused() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return string_refused() ? NULL : __real_strndup(text, size);
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list arguments;
    if (string_refused()) {
        *out = (char *)(uintptr_t)1; /* asprintf() does not say what it leaves there */
        return -1;
    }
    va_start(arguments, format);
    const int length = vasprintf(out, format, arguments);
    va_end(arguments);
    return length;
}

#endif
