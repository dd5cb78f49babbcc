/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and reading arrays. The order matters: the file must be a regular
 * file, its size comes from fstat, the parser sees at most the first bytes and
 * that size, and only when the described extent lies inside the file is memory
 * asked for. So a file of 80 bytes that describes 32 GiB costs 80 bytes.
 *
 * Data is read, not mapped: a file that shrinks while it is in use then gives a
 * sentence and not a SIGBUS, and an output may replace its own input's name.
 */
#include "io/array.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/npy.h"
#include "io/safetensors.h"

#define SAFETENSORS_SUFFIX ".safetensors"

const char *array_dtype_name(enum array_dtype dtype)
{
    static const char *const names[] = {"float32", "bool", "int32", "int64", "float16", "bfloat16"};
    return names[dtype];
}

size_t array_dtype_size(enum array_dtype dtype)
{
    static const size_t sizes[] = {4, 1, 4, 8, 2, 2};
    return sizes[dtype];
}

const char *array_shape_text(const struct array_shape *is, char text[ARRAY_SHAPE_TEXT])
{
    /* Eight lengths of at most 20 characters and separators always fit. */
    int at = snprintf(text, ARRAY_SHAPE_TEXT, "(");
    for (int i = 0; i < is->ndim; i++)
        at += snprintf(text + at, ARRAY_SHAPE_TEXT - (size_t)at, i > 0 ? ", %" PRId64 : "%" PRId64, is->shape[i]);
    snprintf(text + at, ARRAY_SHAPE_TEXT - (size_t)at, is->ndim == 1 ? ",)" : ")");
    return text;
}

bool array_bytes(const int64_t *shape, int ndim, size_t element_size, uint64_t *bytes)
{
    uint64_t bound = element_size, product = element_size;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return false;
        uint64_t length = (uint64_t)shape[i];
        if (length > 0 && bound > (uint64_t)INT64_MAX / length)
            return false;
        bound *= length > 0 ? length : 1;
        product *= length;
    }
    *bytes = product;
    return true;
}

attn_status file_spec_parse(struct file_spec *out, const char *spec)
{
    *out = (struct file_spec){NULL, NULL};
    size_t length = strlen(spec), suffix = strlen(SAFETENSORS_SUFFIX);
    const char *mark = strstr(spec, SAFETENSORS_SUFFIX ":");
    if (length == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "the file name is empty; expected FILE.npy or FILE.safetensors:NAME");
    if (mark == NULL && length >= suffix && strcmp(spec + length - suffix, SAFETENSORS_SUFFIX) == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s names no tensor; expected FILE.safetensors:NAME", spec);
    if (mark != NULL && mark[suffix + 1] == '\0')
        return io_fail(ATTN_INVALID_ARGUMENT, "%s has an empty tensor name; expected FILE.safetensors:NAME", spec);
    out->path = mark == NULL ? strdup(spec) : strndup(spec, (size_t)(mark - spec) + suffix);
    out->name = mark == NULL ? NULL : strdup(mark + suffix + 1);
    if (out->path == NULL || (mark != NULL && out->name == NULL)) {
        file_spec_free(out);
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", spec);
    }
    return ATTN_OK;
}

void file_spec_free(struct file_spec *spec)
{
    free(spec->path);
    free(spec->name);
    *spec = (struct file_spec){NULL, NULL};
}

static attn_status read_at(int fd, const char *path, uint64_t offset, void *dst, size_t size)
{
    unsigned char *to = dst;
    while (size > 0) {
        /* Linux reads at most 2 GiB - 4 KiB at once. */
        ssize_t got = pread(fd, to, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return io_fail(ATTN_INVALID_FILE, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0)
            return io_fail(ATTN_INVALID_FILE, "%s: the file became shorter while it was read", path);
        to += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return ATTN_OK;
}

static attn_status open_npy(struct array_file *file, uint64_t file_size)
{
    size_t available = file_size < NPY_MAX_PREFIX ? (size_t)file_size : NPY_MAX_PREFIX;
    unsigned char *prefix = malloc(available > 0 ? available : 1);
    if (prefix == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", file->path);
    struct npy_header header;
    attn_status status = read_at(file->fd, file->path, 0, prefix, available);
    if (status == ATTN_OK)
        status = npy_parse(&header, prefix, available, file_size, file->path);
    free(prefix);
    if (status != ATTN_OK)
        return status;
    file->is = header.is;
    file->offset = header.data_offset;
    file->size = header.data_size;
    return ATTN_OK;
}

/* Reads the header; *data is where the data begins. On failure there is nothing to free. */
static attn_status read_index(int fd, const char *path, uint64_t file_size, struct safetensors *index, uint64_t *data)
{
    unsigned char prefix[SAFETENSORS_PREFIX];
    size_t length;
    size_t available = file_size < sizeof prefix ? (size_t)file_size : sizeof prefix;
    CHECK(read_at(fd, path, 0, prefix, available));
    CHECK(safetensors_header_length(&length, prefix, file_size, path));
    char *text = malloc(length > 0 ? length : 1);
    if (text == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory for a header of %zu bytes", path, length);
    *data = sizeof prefix + length;
    attn_status status = read_at(fd, path, sizeof prefix, text, length);
    if (status == ATTN_OK)
        status = safetensors_parse(index, text, length, file_size - *data, path);
    free(text);
    return status;
}

static attn_status open_safetensors(struct array_file *file, const char *name, uint64_t file_size)
{
    struct safetensors index;
    uint64_t data_offset;
    const struct safetensors_entry *entry = NULL;
    CHECK(read_index(file->fd, file->path, file_size, &index, &data_offset));
    attn_status status = safetensors_find(&index, name, file->path, &entry);
    if (status == ATTN_OK)
        status = safetensors_usable(entry, file->path, &file->is);
    if (status == ATTN_OK) {
        file->offset = data_offset + entry->begin;
        file->size = entry->end - entry->begin;
    }
    safetensors_free(&index);
    return status;
}

static attn_status open_regular(const char *path, int *fd, uint64_t *size)
{
    struct stat info;
    /* Without O_NONBLOCK opening a FIFO would wait for a writer before it can be refused. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(*fd, &info) != 0)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot look at the file: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return io_fail(ATTN_INVALID_FILE, "%s is not a regular file", path);
    *size = (uint64_t)info.st_size;
    return ATTN_OK;
}

attn_status array_open(struct array_file *file, const char *spec)
{
    *file = (struct array_file){.fd = -1};
    struct file_spec parts;
    CHECK(file_spec_parse(&parts, spec));
    file->path = parts.path;
    parts.path = NULL;
    file->spec = strdup(spec);

    attn_status status = file->spec != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", spec);
    uint64_t size = 0;
    if (status == ATTN_OK)
        status = open_regular(file->path, &file->fd, &size);
    if (status == ATTN_OK)
        status = parts.name != NULL ? open_safetensors(file, parts.name, size) : open_npy(file, size);
    file_spec_free(&parts);
    if (status != ATTN_OK)
        array_close(file);
    return status;
}

static int by_number(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

/* The names that match, in the order of the numbers in them. */
static attn_status matching(const struct safetensors *index, const char *pattern, const char *path, char ***names,
                            size_t *count)
{
    *names = calloc(index->count + 1, sizeof **names);
    for (size_t i = 0; *names != NULL && i < index->count; i++) {
        if (fnmatch(pattern, index->entries[i].name, 0) != 0)
            continue;
        (*names)[*count] = strdup(index->entries[i].name);
        *count += (*names)[*count] != NULL;
    }
    if (*names == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    if (*count == 0)
        return io_fail(ATTN_INVALID_FILE, "%s holds no tensor whose name matches '%s'", path, pattern);
    qsort(*names, *count, sizeof **names, by_number);
    return ATTN_OK;
}

attn_status array_names(const char *spec, char ***names, size_t *count)
{
    struct file_spec parts;
    const size_t length = strlen(spec), suffix = strlen(SAFETENSORS_SUFFIX);
    *names = NULL;
    *count = 0;
    if (length >= suffix && strcmp(spec + length - suffix, SAFETENSORS_SUFFIX) == 0) {
        parts = (struct file_spec){strdup(spec), strdup("*")};
        if (parts.path == NULL || parts.name == NULL) {
            file_spec_free(&parts);
            return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", spec);
        }
    } else {
        CHECK(file_spec_parse(&parts, spec));
    }
    int fd = -1;
    uint64_t size = 0, data;
    struct safetensors index = {0};
    attn_status status = parts.name != NULL
                             ? open_regular(parts.path, &fd, &size)
                             : io_fail(ATTN_INVALID_ARGUMENT,
                                       "%s is one array; expected FILE.safetensors:PATTERN, * being anything", spec);
    if (status == ATTN_OK)
        status = read_index(fd, parts.path, size, &index, &data);
    if (status == ATTN_OK) {
        status = matching(&index, parts.name, parts.path, names, count);
        safetensors_free(&index);
    }
    if (fd >= 0)
        close(fd);
    file_spec_free(&parts);
    if (status != ATTN_OK) {
        array_names_free(*names, *count);
        *names = NULL;
        *count = 0;
    }
    return status;
}

void array_names_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

attn_status array_read(const struct array_file *file, uint64_t first, void *dst, size_t size)
{
    return read_at(file->fd, file->path, file->offset + first, dst, size);
}

void array_close(struct array_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file->spec);
    *file = (struct array_file){.fd = -1};
}

attn_status array_allocate(struct array *array, const char *what, const struct array_shape *is)
{
    char text[ARRAY_SHAPE_TEXT];
    uint64_t bytes;
    *array = (struct array){.is = *is};
    if (!array_bytes(is->shape, is->ndim, array_dtype_size(is->dtype), &bytes) || bytes > PTRDIFF_MAX)
        return io_fail(ATTN_SIZE_OVERFLOW, "%s of shape %s exceeds the address space", what,
                       array_shape_text(is, text));
    array->size = (size_t)bytes;
    array->data = calloc(array->size > 0 ? array->size : 1, 1);
    if (array->data == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s of shape %s: out of memory for %zu bytes", what,
                       array_shape_text(is, text), array->size);
    return ATTN_OK;
}

attn_status array_load(struct array *array, const char *spec)
{
    *array = (struct array){.size = 0};
    struct array_file file;
    CHECK(array_open(&file, spec));
    attn_status status = array_allocate(array, spec, &file.is);
    if (status == ATTN_OK)
        status = array_read(&file, 0, array->data, array->size);
    array_close(&file);
    if (status != ATTN_OK)
        array_free(array);
    return status;
}

void array_free(struct array *array)
{
    free(array->data);
    array->data = NULL;
    array->size = 0;
}
