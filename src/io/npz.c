/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads arrays of an archive in memory. Before any memory is asked for, the
 * size that an entry claims must be one that its packed bytes can become, and
 * the .npy header, of which 64 KiB are unpacked, must describe just that size:
 * deflate makes at most 1032 bytes of one, so a small archive cannot claim much.
 */
#include "io/npz.h"

#include <stdlib.h>
#include <string.h>
#include <zip.h>

/* What deflate makes of a byte at most, and some bytes for the ends of streams. */
#define MOST_INFLATED  1032
#define INFLATED_SLACK 1032

struct npz {
    zip_t *zip;
    const char *path; /* the caller's */
};

static attn_status fail_archive(const struct npz *npz, const char *what, zip_error_t *error)
{
    attn_status status = zip_error_code_zip(error) == ZIP_ER_MEMORY ? ATTN_OUT_OF_MEMORY : ATTN_INVALID_FILE;
    return io_fail(status, "%s: cannot read %s: %s", npz->path, what, zip_error_strerror(error));
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

static bool is_pytorch(zip_t *zip)
{
    for (zip_int64_t i = 0; i < zip_get_num_entries(zip, 0); i++) {
        const char *name = zip_get_name(zip, (zip_uint64_t)i, 0);
        if (name != NULL && (strcmp(name, "data.pkl") == 0 || ends_with(name, "/data.pkl")))
            return true;
    }
    return false;
}

attn_status npz_open(struct npz **out, const unsigned char *bytes, size_t size, const char *path)
{
    zip_error_t error;
    *out = NULL;
    struct npz *npz = calloc(1, sizeof *npz);
    if (npz == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    npz->path = path;
    zip_error_init(&error);
    zip_source_t *source = zip_source_buffer_create(bytes, size, 0, &error);
    if (source != NULL)
        npz->zip = zip_open_from_source(source, ZIP_RDONLY, &error);
    attn_status status = npz->zip != NULL ? ATTN_OK : fail_archive(npz, "the zip archive", &error);
    if (npz->zip == NULL && source != NULL)
        zip_source_free(source);
    zip_error_fini(&error);
    if (status == ATTN_OK && is_pytorch(npz->zip))
        status =
            io_fail(ATTN_INVALID_FILE,
                    "%s is a file of PyTorch's, which is not read: its pickle is code; save the tensors in Python with "
                    "safetensors.torch.save_file",
                    path);
    if (status != ATTN_OK)
        npz_close(npz);
    else
        *out = npz;
    return status;
}

void npz_close(struct npz *npz)
{
    if (npz == NULL)
        return;
    if (npz->zip != NULL)
        zip_discard(npz->zip);
    free(npz);
}

size_t npz_count(const struct npz *npz)
{
    zip_int64_t count = zip_get_num_entries(npz->zip, 0);
    return count > 0 ? (size_t)count : 0;
}

attn_status npz_name(struct npz *npz, size_t index, char **name)
{
    const char *entry = zip_get_name(npz->zip, index, 0);
    *name = NULL;
    if (entry == NULL || !ends_with(entry, ".npy"))
        return ATTN_OK;
    *name = strndup(entry, strlen(entry) - 4);
    return *name != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", npz->path);
}

/* The entry of an array, or a sentence with the names that there are. */
static attn_status locate(struct npz *npz, const char *name, size_t *index)
{
    char some[512] = "";
    size_t used = 0, found = 0, arrays = 0, shown = 0;
    for (size_t i = 0; i < npz_count(npz); i++) {
        const char *entry = zip_get_name(npz->zip, i, 0);
        if (entry == NULL || !ends_with(entry, ".npy"))
            continue;
        const size_t length = strlen(entry) - 4;
        arrays++;
        if (length == strlen(name) && memcmp(entry, name, length) == 0) {
            *index = i;
            found++;
        } else if (shown < 6 && used + length + 8 < sizeof some) {
            used += (size_t)snprintf(some + used, sizeof some - used, "%s'%.*s'", shown > 0 ? ", " : "", (int)length,
                                     entry);
            shown++;
        }
    }
    if (found == 1)
        return ATTN_OK;
    if (found > 1)
        return io_fail(ATTN_INVALID_FILE, "%s holds the array '%s' %zu times; expected one", npz->path, name, found);
    if (arrays == 0)
        return io_fail(ATTN_INVALID_FILE, "%s has no array '%s'; it has none at all", npz->path, name);
    return io_fail(ATTN_INVALID_FILE, "%s has no array '%s'; it has %zu: %s%s", npz->path, name, arrays, some,
                   shown < arrays ? ", ..." : "");
}

/* Whether an entry is packed in a way that numpy uses, and its size one that its packed bytes can become. */
static attn_status check_entry(struct npz *npz, size_t index, const char *name, uint64_t *size)
{
    zip_stat_t is; /* libzip knows all of it of an entry that is read */
    if (zip_stat_index(npz->zip, index, 0, &is) != 0)
        return fail_archive(npz, name, zip_get_error(npz->zip));
    if (is.encryption_method != ZIP_EM_NONE)
        return io_fail(ATTN_INVALID_FILE, "%s: array '%s' is encrypted; expected an archive that is not", npz->path,
                       name);
    if (is.comp_method != ZIP_CM_STORE && is.comp_method != ZIP_CM_DEFLATE)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: array '%s' is packed by method %u; expected stored (0) or deflated (8), as numpy packs",
                       npz->path, name, is.comp_method);
    const bool stored = is.comp_method == ZIP_CM_STORE;
    if (stored ? is.size != is.comp_size : is.size / MOST_INFLATED > is.comp_size + INFLATED_SLACK)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: array '%s' claims %llu bytes, but the %llu that it is packed in cannot become so many",
                       npz->path, name, (unsigned long long)is.size, (unsigned long long)is.comp_size);
    *size = is.size;
    return ATTN_OK;
}

/* Unpacks exactly size bytes. */
static attn_status unpack(struct npz *npz, zip_file_t *file, const char *what, unsigned char *to, uint64_t size)
{
    while (size > 0) {
        zip_int64_t got = zip_fread(file, to, size);
        if (got < 0)
            return fail_archive(npz, what, zip_file_get_error(file));
        if (got == 0)
            return io_fail(ATTN_INVALID_FILE, "%s: %s ends before the size that the archive claims", npz->path, what);
        to += got;
        size -= (uint64_t)got;
    }
    return ATTN_OK;
}

attn_status npz_find(struct npz *npz, const char *name, size_t *index, struct npy_header *header)
{
    uint64_t size = 0;
    CHECK(locate(npz, name, index));
    CHECK(check_entry(npz, *index, name, &size));
    size_t available = size < NPY_MAX_PREFIX ? (size_t)size : NPY_MAX_PREFIX;
    unsigned char *prefix = malloc(available > 0 ? available : 1);
    char *label = NULL;
    attn_status status = ATTN_OK;
    if (prefix == NULL || asprintf(&label, "%s:%s", npz->path, name) < 0) {
        label = NULL; /* of which asprintf() does not say what it leaves there */
        status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", npz->path);
    }
    zip_file_t *file = status == ATTN_OK ? zip_fopen_index(npz->zip, *index, 0) : NULL;
    if (status == ATTN_OK && file == NULL)
        status = fail_archive(npz, name, zip_get_error(npz->zip));
    if (status == ATTN_OK)
        status = unpack(npz, file, name, prefix, available);
    if (status == ATTN_OK)
        status = npy_parse(header, prefix, available, size, label);
    if (file != NULL)
        zip_fclose(file);
    free(prefix);
    free(label);
    return status;
}

attn_status npz_read(struct npz *npz, size_t index, const struct npy_header *header, void *dst)
{
    const char *name = zip_get_name(npz->zip, index, 0);
    unsigned char *skipped = malloc(header->data_offset), more;
    zip_file_t *file = skipped != NULL ? zip_fopen_index(npz->zip, index, 0) : NULL;
    attn_status status = skipped != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", npz->path);
    if (status == ATTN_OK && file == NULL)
        status = fail_archive(npz, name, zip_get_error(npz->zip));
    if (status == ATTN_OK)
        status = unpack(npz, file, name, skipped, header->data_offset);
    if (status == ATTN_OK)
        status = unpack(npz, file, name, dst, header->data_size);
    /* The checksum is compared at the end, which is found by reading on. */
    if (status == ATTN_OK) {
        zip_int64_t got = zip_fread(file, &more, 1);
        if (got < 0)
            status = fail_archive(npz, name, zip_file_get_error(file));
        else if (got > 0)
            status =
                io_fail(ATTN_INVALID_FILE, "%s: %s goes on after the size that the archive claims", npz->path, name);
    }
    if (file != NULL)
        zip_fclose(file);
    free(skipped);
    return status;
}
