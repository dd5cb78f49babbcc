/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the arrays of a file with type, shape and size. Those of types that the
 * command does not read are in the list, too, by the name that the file gives to
 * their type.
 */
#include "file_info.h"

#include <stdlib.h>
#include <string.h>

#include "io/container.h"
#include "io/forms.h"

/* Appends an object that was just made, which is NULL when memory is short. */
static attn_status append(json_t *arrays, json_t *array, const char *label)
{
    return json_array_append_new(arrays, array) == 0 ? ATTN_OK
                                                     : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", label);
}

/* is and stored say how the array lies in the file. name is NULL in a .npy file. */
static json_t *describe(const char *name, const struct array_shape *is, const struct array_storage *stored,
                        uint64_t bytes)
{
    json_t *shape = json_array();
    for (int i = 0; i < is->ndim; i++)
        json_array_append_new(shape, json_integer(is->shape[i]));
    return json_pack("{s:s?, s:s, s:o, s:I, s:b, s:b}", "name", name, "dtype",
                     stored->is_f64 ? "float64" : array_dtype_name(is->dtype), "shape", shape, "bytes",
                     (json_int_t)bytes, "fortran_order", stored->fortran, "big_endian", stored->swapped);
}

/* An array whose type or rank is not read: of its shape the first lengths are known. */
static json_t *describe_unread(const struct safetensors_entry *entry)
{
    json_t *shape = json_array();
    for (size_t i = 0; i < entry->ndim && i < ARRAY_MAX_DIMS; i++)
        json_array_append_new(shape, json_integer(entry->shape[i]));
    for (size_t i = ARRAY_MAX_DIMS; i < entry->ndim; i++)
        json_array_append_new(shape, json_null());
    return json_pack("{s:s, s:s, s:o, s:I, s:b, s:b}", "name", entry->name, "dtype", entry->dtype, "shape", shape,
                     "bytes", (json_int_t)(entry->end - entry->begin), "fortran_order", 0, "big_endian", 0);
}

static attn_status list_safetensors(json_t *arrays, const struct container *c)
{
    for (size_t i = 0; i < c->index.count; i++) {
        const struct safetensors_entry *entry = &c->index.entries[i];
        struct array_shape is;
        struct array_storage stored;
        const bool read = safetensors_usable(entry, c->label, &is, &stored) == ATTN_OK;
        CHECK(append(arrays,
                     read ? describe(entry->name, &is, &stored, entry->end - entry->begin) : describe_unread(entry),
                     c->label));
    }
    return ATTN_OK;
}

static attn_status list_npz(json_t *arrays, struct container *c)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < npz_count(c->npz); i++) {
        struct npy_header header;
        size_t index;
        char *name;
        status = npz_name(c->npz, i, &name);
        if (status != ATTN_OK || name == NULL)
            continue;
        status = npz_find(c->npz, name, &index, &header);
        if (status == ATTN_OK)
            status = append(arrays, describe(name, &header.is, &header.stored, header.data_size), c->label);
        free(name);
    }
    return status;
}

static attn_status list_npy(json_t *arrays, const struct file_bytes *bytes, const char *label)
{
    struct npy_header header;
    CHECK(npy_parse(&header, bytes->data, bytes->size < NPY_MAX_PREFIX ? bytes->size : NPY_MAX_PREFIX, bytes->size,
                    label));
    return append(arrays, describe(NULL, &header.is, &header.stored, header.data_size), label);
}

static attn_status list(json_t *arrays, struct file_bytes *bytes, const char *path, const char **form,
                        json_t **metadata)
{
    const char *label = file_bytes_label(path);
    CHECK(form_refuse_foreign(bytes->data, bytes->size, label));
    const enum file_form is = form_of_bytes(bytes->data, bytes->size);
    if (is == FORM_NPY || (is == FORM_UNKNOWN && !file_spec_is_container(path))) {
        *form = "npy";
        return list_npy(arrays, bytes, label);
    }
    struct container *c;
    CHECK(container_open(&c, bytes, path));
    *form = c->npz != NULL ? "npz" : "safetensors";
    attn_status status = c->npz != NULL ? list_npz(arrays, c) : list_safetensors(arrays, c);
    *metadata = json_incref(container_metadata(c));
    container_release(c);
    return status;
}

attn_status file_describe(json_t **info, const char *path)
{
    struct file_bytes *bytes;
    const char *form = NULL;
    json_t *arrays = json_array(), *metadata = NULL;
    *info = NULL;
    attn_status status = file_bytes_open(&bytes, path);
    if (status == ATTN_OK) {
        status = list(arrays, bytes, path, &form, &metadata);
        json_t *name = json_string(path);
        if (status == ATTN_OK)
            *info = json_pack("{s:o, s:s, s:I, s:O, s:O}", "path", name != NULL ? name : json_string("(not UTF-8)"),
                              "form", form, "bytes", (json_int_t)bytes->size, "metadata",
                              metadata != NULL ? metadata : json_null(), "arrays", arrays);
        else
            json_decref(name);
        file_bytes_release(bytes);
    }
    json_decref(metadata);
    json_decref(arrays);
    if (status == ATTN_OK && *info == NULL)
        status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    return status;
}
