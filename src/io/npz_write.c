/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes an archive through a source of libzip's that goes to a file which is
 * to replace another. libzip writes each entry's size when it has been packed,
 * and seeks back for that, so the file must be one that can be sought in. Entries are
 * dated 1980, the beginning of zip's time, as numpy dates them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "io/npz.h"

/* 1 January 1980, as MS-DOS writes it. */
#define FIRST_DAY 0x21

struct sink {
    struct replacement *file;
    attn_status status; /* of the first write that failed; its sentence is the last error */
    zip_error_t error;
    zip_int64_t size;
};

static zip_int64_t seek_to(struct sink *sink, void *data, zip_uint64_t length)
{
    const zip_source_args_seek_t *to = ZIP_SOURCE_GET_ARGS(zip_source_args_seek_t, data, length, &sink->error);
    if (to == NULL)
        return -1;
    if (lseek(sink->file->fd, to->offset, to->whence) >= 0)
        return 0;
    zip_error_set(&sink->error, ZIP_ER_SEEK, errno);
    return -1;
}

static zip_int64_t tell(struct sink *sink)
{
    const off_t at = lseek(sink->file->fd, 0, SEEK_CUR);
    if (at < 0)
        zip_error_set(&sink->error, ZIP_ER_TELL, errno);
    return at;
}

static zip_int64_t write_to(struct sink *sink, const void *data, zip_uint64_t length)
{
    sink->status = replace_write(sink->file, data, length);
    if (sink->status == ATTN_OK)
        return (zip_int64_t)length;
    zip_error_set(&sink->error, ZIP_ER_WRITE, errno);
    return -1;
}

/* What libzip asks of a source that is written only; that there is no archive yet is said by stat. */
static zip_int64_t answer(void *state, void *data, zip_uint64_t length, zip_source_cmd_t command)
{
    struct sink *sink = state;
    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_WRITABLE;
    case ZIP_SOURCE_STAT:
        zip_error_set(&sink->error, ZIP_ER_READ, ENOENT);
        return -1;
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&sink->error, data, length);
    case ZIP_SOURCE_BEGIN_WRITE:
    case ZIP_SOURCE_COMMIT_WRITE:
    case ZIP_SOURCE_ROLLBACK_WRITE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_WRITE:
        return write_to(sink, data, length);
    case ZIP_SOURCE_SEEK_WRITE:
        return seek_to(sink, data, length);
    case ZIP_SOURCE_TELL_WRITE:
        return tell(sink);
    default:
        zip_error_set(&sink->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* Adds NAME.npy; header has NPY_HEADER_SPACE bytes, and stays until the archive is closed. */
static attn_status add(zip_t *zip, const char *name, const struct array *array, char *header, bool compressed,
                       const char *path)
{
    const zip_buffer_fragment_t pieces[2] = {{(zip_uint8_t *)header, npy_header_write(header, &array->is)},
                                             {array->data, array->size}};
    char *entry;
    if (asprintf(&entry, "%s.npy", name) < 0)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    zip_source_t *source = zip_source_buffer_fragment(zip, pieces, array->size > 0 ? 2 : 1, 0);
    zip_int64_t index = source != NULL ? zip_file_add(zip, entry, source, ZIP_FL_ENC_UTF_8) : -1;
    attn_status status = ATTN_OK;
    if (index < 0 || zip_file_set_dostime(zip, (zip_uint64_t)index, 0, FIRST_DAY, 0) != 0 ||
        zip_set_file_compression(zip, (zip_uint64_t)index, compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0) != 0)
        status = io_fail(ATTN_INVALID_FILE, "%s: cannot write an array named '%s': %s", path, name, zip_strerror(zip));
    if (index < 0 && source != NULL)
        zip_source_free(source);
    free(entry);
    return status;
}

attn_status npz_write(struct replacement *file, const char *const *names, const struct array *const *arrays,
                      size_t count, bool compressed)
{
    struct sink sink = {.file = file, .status = ATTN_OK};
    zip_error_t error;
    zip_error_init(&error);
    zip_error_init(&sink.error);
    char *headers = calloc(count > 0 ? count : 1, NPY_HEADER_SPACE);
    zip_source_t *source = headers != NULL ? zip_source_function_create(answer, &sink, &error) : NULL;
    zip_t *zip = source != NULL ? zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error) : NULL;
    attn_status status = ATTN_OK;
    if (zip == NULL) {
        status = io_fail(ATTN_OUT_OF_MEMORY, "%s: cannot begin a zip archive: %s", file->path,
                         headers != NULL ? zip_error_strerror(&error) : "out of memory");
        if (source != NULL)
            zip_source_free(source);
    }
    for (size_t i = 0; status == ATTN_OK && i < count; i++)
        status = add(zip, names[i], arrays[i], headers + i * NPY_HEADER_SPACE, compressed, file->path);
    if (status == ATTN_OK && zip_close(zip) != 0) {
        status = sink.status;
        if (status == ATTN_OK)
            status = io_fail(ATTN_INVALID_FILE, "%s: cannot write the zip archive: %s", file->path, zip_strerror(zip));
        zip_discard(zip);
    } else if (status != ATTN_OK && zip != NULL) {
        zip_discard(zip);
    }
    zip_error_fini(&sink.error);
    zip_error_fini(&error);
    free(headers);
    return status;
}
