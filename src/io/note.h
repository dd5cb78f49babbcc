/* SPDX-License-Identifier: Apache-2.0 */
/* What a user should know of a file that is read or written all the same. */
#ifndef ATTN_IO_NOTE_H
#define ATTN_IO_NOTE_H

/*
 * Says it on stderr, in one line with the program's name before it. A sentence
 * that has been said is not said again: one file is often named by several options.
 */
void io_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
