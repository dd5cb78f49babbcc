/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that appear whole or not at all. The bytes go to a temporary file in
 * the folder of the target, are synced, and the temporary file is then renamed
 * over the target. Several files are prepared first and renamed at the end:
 *
 *     replace_target for each file -> (compute) -> replace_hold_signals
 *     -> replace_open, replace_write.., replace_finish for each file
 *     -> replace_commit for all -> replace_discard for each -> replace_release_signals
 *
 * A signal that ends a program then leaves all of the files or none, and no
 * temporary one. SIGKILL and a power cut, which no program can hold back, leave
 * every file whole, but may leave some of several replaced, or temporary files
 * named .attn-PID-N.tmp.
 */
#ifndef ATTN_IO_REPLACE_H
#define ATTN_IO_REPLACE_H

#include <signal.h>
#include <stddef.h>

#include "io/error.h"

struct replacement {
    char *path; /* the target, as replace_target() gave it */
    char *temporary;
    int fd;
    void (*written)(void *user, size_t bytes); /* is told of bytes as they are written; NULL: nobody is */
    void *user;
};

/*
 * Checks that a file can be written at path and returns its canonical name,
 * with symbolic links followed, in memory that the caller frees.
 */
attn_status replace_target(char **canonical, const char *path);

attn_status replace_open(struct replacement *file, const char *canonical);
/* Stops with a sentence when a held signal has arrived. */
attn_status replace_write(struct replacement *file, const void *data, size_t size);
/* Brings everything to the disk; the target is still untouched. */
attn_status replace_finish(struct replacement *file);
/* Renames all of the finished files, unless a held signal has arrived. */
attn_status replace_commit(struct replacement *files, int count);
/* Removes what there is; also frees after a commit. A zeroed struct is allowed. */
void replace_discard(struct replacement *file);

/* All of the above for one file whose bytes are in memory. */
attn_status replace_whole(const char *canonical, const void *data, size_t size);
/* The same for standard output, which is not replaced: the bytes are written at once, after what stdio has. */
attn_status replace_standard(const void *data, size_t size);

/* What became of a signal before it was held. */
#define REPLACE_SIGNALS 6
struct replace_signals {
    struct sigaction before[REPLACE_SIGNALS];
};

/*
 * Between the two calls the signals that usually end a program are only noted,
 * whichever thread they reach; the second call then does with them what would
 * have been done. Ignored signals stay ignored. One thread at a time may hold
 * signals.
 */
void replace_hold_signals(struct replace_signals *signals);
void replace_release_signals(const struct replace_signals *signals);

#endif
