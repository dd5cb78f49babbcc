/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a long piece of work is, on a terminal: how much of it is done, how fast it goes, and the time that is left.
 * Nothing is written where stderr is a file or a pipe, nor before a second has passed, and nothing stays behind.
 */
#ifndef ATTN_TOOLS_PROGRESS_H
#define ATTN_TOOLS_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
    int64_t total;
    const char *unit;
    int64_t begin;              /* nanoseconds of the monotonic clock */
    bool shown;                 /* whether there is a terminal to write to */
    _Atomic int64_t done, next; /* next: when the line is written again */
    _Atomic int width;          /* of what stands on the line */
};

/*
 * Begins. total is how many units there are, or 0 where nobody knows; unit is their name, such as "tokens", or "B" for
 * bytes, which are shown as MB or GB. The text is not copied. With quiet nothing is ever written.
 */
void progress_start(struct progress *progress, int64_t total, const char *unit, bool quiet);

/* So many more units are done. Any thread may say so, at any time between start and finish. */
void progress_add(struct progress *progress, int64_t units);

/* So many units are done in all. */
void progress_set(struct progress *progress, int64_t units);

/* Ends, and erases the line. To be called before anything else is written, and on every way out. */
void progress_finish(struct progress *progress);

/*
 * What the line says of so many units after so many seconds, more than 0: "1234 of 5678 tokens, 310 tokens/s, 0:14
 * left". At most size - 1 characters.
 */
void progress_text(char *text, size_t size, int64_t done, int64_t total, const char *unit, double seconds);

#endif
