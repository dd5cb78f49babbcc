/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces files by temporary file, fsync, rename. Only a regular file is ever replaced: a rename
 * over /dev/null or a FIFO would destroy it. A symbolic link keeps pointing to
 * its file, and an existing file keeps its permissions. The file system reports
 * a full disk at write, at fsync or at close; all three are checked before the
 * first rename.
 *
 * Signals are noted by handlers and not blocked: a mask belongs to one thread,
 * and a signal to the process is then taken by any other, be it a worker of
 * OpenMP, and ends the program all the same. O_TMPFILE is no way out, as linkat
 * cannot replace a file and not every file system has it.
 */
#include "io/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int held[REPLACE_SIGNALS] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXCPU};
/* One bit for each of them that came while they were held. */
static atomic_uint arrived;

static void note_signal(int number)
{
    for (unsigned i = 0; i < REPLACE_SIGNALS; i++) {
        if (held[i] == number)
            atomic_fetch_or(&arrived, 1u << i);
    }
}

static attn_status fail_interrupted(const struct replacement *file)
{
    return io_fail(ATTN_INVALID_FILE, "%s: not written, as a signal ended the program", file->path);
}

/* The length of "DIRECTORY/" in path, 0 for a name without one. */
static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* The canonical name of a file that need not exist, in a directory that must. */
static char *resolve(const char *path)
{
    char *whole = realpath(path, NULL);
    if (whole != NULL || errno != ENOENT)
        return whole;
    size_t length = directory_length(path);
    char *directory = length > 0 ? strndup(path, length) : strdup(".");
    char *real = directory != NULL ? realpath(directory, NULL) : NULL;
    if (real != NULL && asprintf(&whole, "%s/%s", strcmp(real, "/") == 0 ? "" : real, path + length) < 0)
        whole = NULL;
    free(real);
    free(directory);
    return whole;
}

/* That of a call which has set errno. */
static attn_status status_of_errno(void)
{
    return errno == ENOMEM ? ATTN_OUT_OF_MEMORY : ATTN_INVALID_FILE;
}

attn_status replace_target(char **canonical, const char *path)
{
    *canonical = NULL;
    size_t length = strlen(path);
    if (length == 0 || path[length - 1] == '/')
        return io_fail(ATTN_INVALID_ARGUMENT, "'%s' cannot be written: it names no file", path);
    char *name = resolve(path);
    if (name == NULL)
        return io_fail(status_of_errno(), "%s: cannot be written: %s", path, strerror(errno));

    struct stat info;
    attn_status status = ATTN_OK;
    if (lstat(name, &info) == 0) {
        if (!S_ISREG(info.st_mode))
            status = io_fail(ATTN_INVALID_FILE, "%s: cannot be written: it exists and is not a regular file", path);
        else if (access(name, W_OK) != 0)
            status = io_fail(ATTN_INVALID_FILE, "%s: cannot be written: %s", path, strerror(errno));
    }
    if (status == ATTN_OK) {
        char *directory = strndup(name, directory_length(name));
        if (directory == NULL || access(directory, W_OK | X_OK) != 0)
            status = io_fail(status_of_errno(), "%s: cannot write to its folder: %s", path, strerror(errno));
        free(directory);
    }
    if (status != ATTN_OK) {
        free(name);
        return status;
    }
    *canonical = name;
    return ATTN_OK;
}

attn_status replace_open(struct replacement *file, const char *canonical)
{
    static atomic_uint counter;
    *file = (struct replacement){.path = strdup(canonical), .fd = -1};
    if (file->path == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", canonical);
    for (int attempt = 0; attempt < 100; attempt++) {
        if (asprintf(&file->temporary, "%.*s.attn-%ld-%u.tmp", (int)directory_length(canonical), canonical,
                     (long)getpid(), atomic_fetch_add(&counter, 1u)) < 0) {
            file->temporary = NULL;
            return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", canonical);
        }
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0)
            break;
        int reason = errno;
        free(file->temporary);
        file->temporary = NULL;
        /* EEXIST: a process of the same number was killed here once; take the next name. */
        if (reason != EEXIST || attempt == 99)
            return io_fail(ATTN_INVALID_FILE, "%s: cannot make a temporary file beside it: %s", canonical,
                           strerror(reason));
    }
    struct stat info;
    if (stat(canonical, &info) == 0 && fchmod(file->fd, info.st_mode & 0777) != 0)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot give its permissions to the new file: %s", canonical,
                       strerror(errno));
    return ATTN_OK;
}

/* Written at a time, so that a signal or whoever counts waits for no more. */
enum { PIECE = 1 << 24 };

attn_status replace_write(struct replacement *file, const void *data, size_t size)
{
    const char *from = data;
    while (size > 0) {
        /* A long write is given up at once. */
        if (atomic_load(&arrived) != 0)
            return fail_interrupted(file);
        ssize_t done = write(file->fd, from, size < PIECE ? size : PIECE);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return io_fail(ATTN_INVALID_FILE, "%s: cannot write: %s", file->path, strerror(errno));
        if (file->written != NULL)
            file->written(file->user, (size_t)done);
        from += done;
        size -= (size_t)done;
    }
    return ATTN_OK;
}

attn_status replace_finish(struct replacement *file)
{
    int reason = fsync(file->fd) != 0 ? errno : 0;
    if (close(file->fd) != 0 && reason == 0)
        reason = errno;
    file->fd = -1;
    return reason == 0 ? ATTN_OK : io_fail(ATTN_INVALID_FILE, "%s: cannot write: %s", file->path, strerror(reason));
}

/* A rename lasts through a power cut only when the folder is synced too. Some file
 * systems refuse that; the file is complete all the same. */
static void sync_folder(const char *path)
{
    char *directory = strndup(path, directory_length(path));
    int fd = directory != NULL ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(directory);
}

attn_status replace_commit(struct replacement *files, int count)
{
    if (count > 0 && atomic_load(&arrived) != 0)
        return fail_interrupted(&files[0]);
    /* The renames stand close together: a sync between them would give SIGKILL the time to part them. */
    for (int i = 0; i < count; i++) {
        while (rename(files[i].temporary, files[i].path) != 0) {
            if (errno != EINTR)
                return io_fail(ATTN_INVALID_FILE, "%s: cannot rename the finished file: %s", files[i].path,
                               strerror(errno));
        }
        free(files[i].temporary);
        files[i].temporary = NULL;
    }
    for (int i = 0; i < count; i++)
        sync_folder(files[i].path);
    return ATTN_OK;
}

void replace_discard(struct replacement *file)
{
    if (file->path == NULL)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary != NULL)
        unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (struct replacement){.fd = -1};
}

void replace_hold_signals(struct replace_signals *signals)
{
    struct sigaction note = {.sa_handler = note_signal};
    sigfillset(&note.sa_mask);
    atomic_store(&arrived, 0);
    for (int i = 0; i < REPLACE_SIGNALS; i++) {
        struct sigaction *before = &signals->before[i];
        sigaction(held[i], NULL, before);
        if ((before->sa_flags & SA_SIGINFO) != 0 || before->sa_handler != SIG_IGN)
            sigaction(held[i], &note, NULL);
    }
}

void replace_release_signals(const struct replace_signals *signals)
{
    for (int i = 0; i < REPLACE_SIGNALS; i++)
        sigaction(held[i], &signals->before[i], NULL);
    unsigned noted = atomic_exchange(&arrived, 0);
    for (int i = 0; i < REPLACE_SIGNALS; i++) {
        if ((noted >> i & 1) != 0)
            raise(held[i]);
    }
}

attn_status replace_whole(const char *canonical, const void *data, size_t size)
{
    struct replace_signals signals;
    struct replacement file;
    replace_hold_signals(&signals);
    attn_status status = replace_open(&file, canonical);
    if (status == ATTN_OK)
        status = replace_write(&file, data, size);
    if (status == ATTN_OK)
        status = replace_finish(&file);
    if (status == ATTN_OK)
        status = replace_commit(&file, 1);
    replace_discard(&file);
    replace_release_signals(&signals);
    return status;
}

attn_status replace_standard(const void *data, size_t size)
{
    char name[] = "standard output";
    struct replacement file = {.path = name, .fd = STDOUT_FILENO};
    struct replace_signals signals;
    fflush(stdout); /* a failure stays there, for whoever looks at it last */
    replace_hold_signals(&signals);
    const attn_status status = replace_write(&file, data, size);
    replace_release_signals(&signals);
    return status;
}
