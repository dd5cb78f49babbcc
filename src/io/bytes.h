/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an input file, all of them: mapped where the file is a regular
 * one, read to the end where it is a pipe, a device or a file without a size,
 * as those of /proc are. "-" is standard input.
 */
#ifndef ATTN_IO_BYTES_H
#define ATTN_IO_BYTES_H

#include <stddef.h>

#include "io/error.h"

struct file_bytes {
    const unsigned char *data;
    size_t size;
    bool mapped;
    int users;
};

/*
 * Standard input is read once: all who open it share its bytes. Whoever opens or
 * shares releases. Not for several threads at once.
 *
 * A mapped file is read-only and private. It must not become shorter while it is in
 * use: the system then ends the process with SIGBUS. Replacing it by another file of
 * its name, as replace.h does, is no matter.
 */
attn_status file_bytes_open(struct file_bytes **bytes, const char *path);
struct file_bytes *file_bytes_share(struct file_bytes *bytes);
/* NULL is allowed. */
void file_bytes_release(struct file_bytes *bytes);

/* "standard input" for "-", for sentences; else path. */
const char *file_bytes_label(const char *path);

#endif
