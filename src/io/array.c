/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of a file whose bytes are in memory, mapped or read. The parsers see
 * these bytes and their number, and only what lies inside of them is believed. So
 * a file of 80 bytes that describes 32 GiB costs 80 bytes.
 *
 * Where the elements lie in the file as they are needed, at addresses that are
 * multiples of their size, nothing is copied: q, k and v of a call are read by the
 * library from the file's pages. Otherwise the data is unpacked, converted or moved
 * when it is first asked for.
 */
#include "io/array.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/container.h"
#include "io/forms.h"
#include "io/npy.h"
#include "io/stored.h"

/* Where the data of an array is. */
struct array_contents {
    struct file_bytes *bytes;
    struct array_storage stored;
    const unsigned char *raw; /* as the file holds it; NULL in an archive */
    struct container *in;     /* the archive, if it is one */
    struct container_entry entry;
    struct array made; /* its data is NULL until it has been unpacked, converted or moved */
};

/* ----------------------------------------------------------------- opening -- */

static attn_status open_npy(struct array_file *file, const char *label)
{
    struct array_contents *c = file->contents;
    struct npy_header header;
    size_t available = c->bytes->size < NPY_MAX_PREFIX ? c->bytes->size : NPY_MAX_PREFIX;
    CHECK(npy_parse(&header, c->bytes->data, available, c->bytes->size, label));
    file->is = header.is;
    c->stored = header.stored;
    c->raw = c->bytes->data + header.data_offset;
    return ATTN_OK;
}

static attn_status take_entry(struct array_file *file, struct container *container, const char *name)
{
    struct array_contents *c = file->contents;
    CHECK(container_find(container, name, &c->entry));
    file->is = c->entry.is;
    c->stored = c->entry.stored;
    c->raw = c->entry.data;
    if (c->raw == NULL)
        c->in = container_share(container);
    return ATTN_OK;
}

static attn_status open_member(struct array_file *file, const struct file_spec *parts)
{
    struct container *container;
    CHECK(container_open(&container, file->contents->bytes, parts->path));
    char *only = NULL;
    attn_status status = parts->name == NULL ? container_only(container, file->spec, &only) : ATTN_OK;
    if (status == ATTN_OK)
        status = take_entry(file, container, parts->name != NULL ? parts->name : only);
    free(only);
    container_release(container);
    return status;
}

/* What the file holds of it is no smaller, and the parsers have seen that its size is no overflow. */
static void set_size(struct array_file *file)
{
    const bool fits = array_bytes(file->is.shape, file->is.ndim, array_dtype_size(file->is.dtype), &file->size);
    assert(fits);
    (void)fits;
}

static attn_status open_parts(struct array_file *file, const struct file_spec *parts)
{
    const char *label = file_bytes_label(parts->path);
    CHECK(file_bytes_open(&file->contents->bytes, parts->path));
    const struct file_bytes *bytes = file->contents->bytes;
    CHECK(form_refuse_foreign(bytes->data, bytes->size, label));
    enum file_form form = form_of_bytes(bytes->data, bytes->size);
    const bool member =
        parts->name != NULL || file_spec_is_container(parts->path) || form == FORM_ZIP || form == FORM_SAFETENSORS;
    CHECK(form == FORM_NPY || !member ? open_npy(file, label) : open_member(file, parts));
    if (form == FORM_NPY && parts->name != NULL)
        return io_fail(ATTN_INVALID_FILE, "%s holds one array without a name; expected %s without ':%s'", label,
                       parts->path, parts->name);
    set_size(file);
    return ATTN_OK;
}

attn_status array_open_member(struct array_file *file, struct container *container, const char *name)
{
    *file = (struct array_file){.contents = calloc(1, sizeof *file->contents)};
    if (asprintf(&file->spec, "%s:%s", container->label, name) < 0)
        file->spec = NULL;
    attn_status status = ATTN_OK;
    if (file->spec == NULL || file->contents == NULL)
        status = io_fail(ATTN_OUT_OF_MEMORY, "%s:%s: out of memory", container->label, name);
    if (status == ATTN_OK) {
        file->contents->bytes = file_bytes_share(container->bytes);
        status = take_entry(file, container, name);
    }
    if (status == ATTN_OK)
        set_size(file);
    if (status != ATTN_OK)
        array_close(file);
    return status;
}

attn_status array_open(struct array_file *file, const char *spec)
{
    struct file_spec parts;
    *file = (struct array_file){.size = 0};
    CHECK(file_spec_parse(&parts, spec));
    file->spec = strdup(spec);
    file->contents = calloc(1, sizeof *file->contents);
    attn_status status = file->spec != NULL && file->contents != NULL
                             ? open_parts(file, &parts)
                             : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", spec);
    file_spec_free(&parts);
    if (status != ATTN_OK)
        array_close(file);
    return status;
}

void array_close(struct array_file *file)
{
    if (file->contents != NULL) {
        array_free(&file->contents->made);
        container_release(file->contents->in);
        file_bytes_release(file->contents->bytes);
    }
    free(file->contents);
    free(file->spec);
    *file = (struct array_file){.size = 0};
}

/* -------------------------------------------------------------------- data -- */

/* Unpacks, converts or moves what does not lie in the file as it is needed. */
static attn_status make(const struct array_file *file)
{
    struct array_contents *c = file->contents;
    const bool as_is = stored_as_is(&c->stored);
    unsigned char *unpacked = NULL;
    CHECK(array_allocate(&c->made, file->spec, &file->is));
    attn_status status = ATTN_OK;
    if (c->raw == NULL && !as_is) {
        const size_t size = c->made.size / array_dtype_size(file->is.dtype) * c->stored.element_size;
        unpacked = malloc(size > 0 ? size : 1);
        if (unpacked == NULL)
            status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory for %zu bytes", file->spec, size);
    }
    const unsigned char *from = c->raw;
    if (status == ATTN_OK && c->raw == NULL) {
        from = as_is ? c->made.data : unpacked;
        status = container_unpack(c->in, &c->entry, as_is ? c->made.data : unpacked);
    }
    if (status == ATTN_OK && !as_is)
        stored_convert(c->made.data, &file->is, &c->stored, from, file->spec);
    else if (status == ATTN_OK && c->raw != NULL && c->made.size > 0)
        memcpy(c->made.data, c->raw, c->made.size);
    free(unpacked);
    if (status != ATTN_OK)
        array_free(&c->made);
    return status;
}

/* Whether the file's bytes can be used where they are. */
static bool in_place(const struct array_file *file)
{
    const struct array_contents *c = file->contents;
    return c->raw != NULL && stored_as_is(&c->stored) && (uintptr_t)c->raw % array_dtype_size(file->is.dtype) == 0;
}

attn_status array_read(const struct array_file *file, uint64_t first, void *dst, size_t size)
{
    struct array_contents *c = file->contents;
    if (c->made.data == NULL && !in_place(file))
        CHECK(make(file));
    const unsigned char *data = c->made.data != NULL ? c->made.data : c->raw;
    if (size > 0)
        memcpy(dst, data + first, size);
    return ATTN_OK;
}

attn_status array_take(struct array *array, struct array_file *file)
{
    struct array_contents *c = file->contents;
    *array = (struct array){.size = 0};
    if (in_place(file)) {
        *array = (struct array){.is = file->is,
                                .data = (void *)(uintptr_t)c->raw,
                                .size = (size_t)file->size,
                                .bytes = file_bytes_share(c->bytes)};
        return ATTN_OK;
    }
    if (c->made.data == NULL)
        CHECK(make(file));
    *array = c->made;
    c->made = (struct array){.size = 0};
    return ATTN_OK;
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
    attn_status status = array_take(array, &file);
    array_close(&file);
    return status;
}

void array_free(struct array *array)
{
    if (array->bytes != NULL)
        file_bytes_release(array->bytes);
    else
        free(array->data);
    array->bytes = NULL;
    array->data = NULL;
    array->size = 0;
}
