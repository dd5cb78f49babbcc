/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that appear whole or not at all. The bytes go to a temporary file in
 * the folder of the target, are synced, and the temporary file is then renamed
 * over the target. Several files are prepared first and renamed at the end:
 *
 *     atomic_target -> (compute) -> atomic_open, atomic_write.., atomic_finish
 *     for each file -> atomic_commit for each, or atomic_discard for each
 */
#ifndef ATTN_IO_ATOMIC_H
#define ATTN_IO_ATOMIC_H

#include <signal.h>
#include <stddef.h>

#include "io/error.h"

struct atomic_file {
    char *path; /* the target, as atomic_target() gave it */
    char *temporary;
    int fd;
};

/*
 * Checks that a file can be written at path and returns its canonical name,
 * with symbolic links followed, in memory that the caller frees.
 */
bool atomic_target(char **canonical, const char *path, struct io_error *error);

bool atomic_open(struct atomic_file *file, const char *canonical, struct io_error *error);
bool atomic_write(struct atomic_file *file, const void *data, size_t size, struct io_error *error);
/* Brings everything to the disk; the target is still untouched. */
bool atomic_finish(struct atomic_file *file, struct io_error *error);
bool atomic_commit(struct atomic_file *file, struct io_error *error);
/* Removes what there is; also frees after a commit. A zeroed struct is allowed. */
void atomic_discard(struct atomic_file *file);

/*
 * Holds back the signals that usually end a program between the two calls, so
 * that Ctrl-C leaves either all the files or none, and no temporary one.
 */
void atomic_hold_signals(sigset_t *before);
void atomic_release_signals(const sigset_t *before);

#endif
