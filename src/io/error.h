/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the file code reports what went wrong: one sentence that names the file
 * or option, the value, and what was expected. Functions that can fail return
 * bool, take a struct io_error last, and fill it only when they return false.
 * Names that come from a file or the command line may hold control characters;
 * these are replaced, so that a sentence is always one line and cannot steer a
 * terminal.
 */
#ifndef ATTN_IO_ERROR_H
#define ATTN_IO_ERROR_H

#include <stdbool.h>

struct io_error {
    bool usage; /* the command line is wrong, rather than a file or the system */
    char text[1024];
};

/* Both write the sentence and return false. */
bool io_fail(struct io_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool io_fail_usage(struct io_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
