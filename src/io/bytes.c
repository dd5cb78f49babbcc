/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps or reads a file. What comes from a pipe has no size to be checked, so
 * the memory grows with what has come and not with what a header claims; and
 * the first bytes are looked at before the rest is read, so that /dev/zero is
 * refused and not read for ever.
 */
#include "io/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/forms.h"

/* What standard input held, kept for the next one who opens it. */
static struct file_bytes *standard_input;

const char *file_bytes_label(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Reads until size bytes are there or the end of the file is, from *used on. */
static attn_status fill(int fd, const char *label, unsigned char *to, size_t size, size_t *used)
{
    while (*used < size) {
        ssize_t got = read(fd, to + *used, size - *used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return io_fail(ATTN_INVALID_FILE, "%s: cannot read: %s", label, strerror(errno));
        if (got == 0)
            break;
        *used += (size_t)got;
    }
    return ATTN_OK;
}

static attn_status read_all(struct file_bytes *bytes, int fd, const char *label)
{
    size_t capacity = FORMS_PREFIX;
    unsigned char *data = malloc(capacity);
    attn_status status = data != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", label);
    if (status == ATTN_OK)
        status = fill(fd, label, data, capacity, &bytes->size);
    if (status == ATTN_OK && bytes->size == capacity && form_of_bytes(data, capacity) == FORM_UNKNOWN)
        status =
            io_fail(ATTN_INVALID_FILE, "%s holds no arrays: it begins as neither .npy, .npz nor safetensors", label);
    while (status == ATTN_OK && bytes->size == capacity) {
        unsigned char *more = capacity <= SIZE_MAX / 2 ? realloc(data, capacity * 2) : NULL;
        if (more == NULL) {
            status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory after %zu bytes", label, capacity);
            break;
        }
        data = more;
        capacity *= 2;
        status = fill(fd, label, data, capacity, &bytes->size);
    }
    if (status != ATTN_OK)
        free(data);
    else
        bytes->data = data;
    return status;
}

static attn_status take(struct file_bytes *bytes, int fd, const char *label)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot look at the file: %s", label, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return io_fail(ATTN_INVALID_FILE, "%s is a folder; expected a file", label);
    /* Standard input may stand behind the beginning of its file; its rest is read. */
    if (S_ISREG(info.st_mode) && info.st_size > 0 && (uintmax_t)info.st_size <= PTRDIFF_MAX && fd != STDIN_FILENO) {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map != MAP_FAILED) {
            *bytes = (struct file_bytes){.data = map, .size = (size_t)info.st_size, .mapped = true};
            return ATTN_OK;
        }
        /* Some file systems map nothing, and their files can be read. */
    }
    return read_all(bytes, fd, label);
}

/* There is no such file; perhaps there is one of another form with a name behind it, as m.gguf:NAME. */
static attn_status refuse_open(const char *path, int reason)
{
    const char *const colon = reason == ENOENT ? strrchr(path, ':') : NULL;
    char *file = colon != NULL ? strndup(path, (size_t)(colon - path)) : NULL;
    struct file_bytes *bytes = NULL;
    struct stat info;
    attn_status status = ATTN_OK;
    if (file != NULL && stat(file, &info) == 0 && S_ISREG(info.st_mode) && file_bytes_open(&bytes, file) == ATTN_OK) {
        status = form_refuse_foreign(bytes->data, bytes->size, file);
        if (status == ATTN_OK)
            status =
                io_fail(ATTN_INVALID_ARGUMENT,
                        "%s: cannot open: %s; a name may stand behind .npz and .safetensors, and %s ends in neither",
                        path, strerror(reason), file);
    }
    file_bytes_release(bytes);
    free(file);
    return status != ATTN_OK ? status : io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", path, strerror(reason));
}

attn_status file_bytes_open(struct file_bytes **out, const char *path)
{
    const char *label = file_bytes_label(path);
    const bool standard = label != path;
    *out = NULL;
    if (standard && standard_input != NULL) {
        *out = file_bytes_share(standard_input);
        return ATTN_OK;
    }
    struct file_bytes *bytes = calloc(1, sizeof *bytes);
    if (bytes == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", label);
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    attn_status status = fd >= 0 ? take(bytes, fd, label) : refuse_open(path, errno);
    if (fd >= 0 && !standard)
        close(fd);
    if (status != ATTN_OK) {
        free(bytes);
        return status;
    }
    bytes->users = 1;
    if (standard)
        standard_input = file_bytes_share(bytes);
    *out = bytes;
    return ATTN_OK;
}

struct file_bytes *file_bytes_share(struct file_bytes *bytes)
{
    bytes->users++;
    return bytes;
}

void file_bytes_release(struct file_bytes *bytes)
{
    if (bytes == NULL || --bytes->users > 0)
        return;
    if (bytes->mapped)
        munmap((void *)(uintptr_t)bytes->data, bytes->size);
    else
        free((void *)(uintptr_t)bytes->data);
    free(bytes);
}
