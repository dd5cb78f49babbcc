/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the file code, the command and the examples report what went wrong: as
 * the library does, by a status and a sentence for attn_last_error() that names
 * the file or option, the value, and what was expected. The command line is an
 * argument: ATTN_INVALID_ARGUMENT there makes the exit code 2, any other 1.
 */
#ifndef ATTN_IO_ERROR_H
#define ATTN_IO_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "api/error.h"

/*
 * attn_fail() for sentences with names from a file or the command line. These
 * may hold control characters, which are replaced, so that a sentence is always
 * one line and cannot steer a terminal.
 */
attn_status io_fail(attn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * The last sentence again, behind where in the input its cause is: "line 3: ...". An argument of a call that was taken
 * from the input is not one of the command line: ATTN_INVALID_ARGUMENT becomes ATTN_INVALID_FILE.
 */
attn_status io_fail_at(attn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The sentence itself, cut to size bytes. */
void io_sentence(char *sentence, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

#endif
