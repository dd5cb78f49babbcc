/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the outputs of a command. Two outputs may share a safetensors file but
 * nothing else, and no output may replace a file that an input is read from:
 * of a safetensors file it would drop all the other tensors, and with .npy it
 * is a slip far more often than a wish. All temporary files are complete and
 * on the disk before the first one is renamed.
 */
#include "io/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/replace.h"
#include "io/npy.h"
#include "io/safetensors.h"

static bool ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

/* Whether the new last output may stand beside an earlier one. */
static attn_status compatible(const struct output *a, const struct output *b)
{
    if (strcmp(a->path, b->path) != 0)
        return ATTN_OK;
    if (a->name == NULL || b->name == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s and %s both write %s; expected different files", a->option, b->option,
                       a->path);
    if (strcmp(a->name, b->name) == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s and %s both write the tensor '%s' of %s; expected different names",
                       a->option, b->option, a->name, a->path);
    return ATTN_OK;
}

attn_status output_add(struct output_set *set, const char *option, const char *spec, const struct array *array)
{
    struct file_spec parts;
    CHECK(file_spec_parse(&parts, spec));
    struct output *item = &set->items[set->count];
    *item = (struct output){.option = option, .name = parts.name, .array = array};
    parts.name = NULL;
    attn_status status = ATTN_OK;
    if (item->name == NULL && !ends_with(parts.path, ".npy"))
        status = io_fail(ATTN_INVALID_ARGUMENT,
                         "%s '%s' has an unknown format; expected FILE.npy or FILE.safetensors:NAME", option, spec);
    else if (item->name != NULL && strcmp(item->name, "__metadata__") == 0)
        status =
            io_fail(ATTN_INVALID_ARGUMENT, "%s '%s': a safetensors file reserves the name __metadata__", option, spec);
    if (status == ATTN_OK)
        status = replace_target(&item->path, parts.path);
    for (int i = 0; status == ATTN_OK && i < set->count; i++)
        status = compatible(&set->items[i], item);
    file_spec_free(&parts);
    if (status != ATTN_OK) {
        free(item->path);
        free(item->name);
        return status;
    }
    set->count++;
    return ATTN_OK;
}

attn_status output_holds(const struct output_set *set, const struct array *array, enum array_dtype dtype,
                         const char *why)
{
    for (int i = 0; i < set->count; i++) {
        const struct output *item = &set->items[i];
        if (item->array == array && item->name == NULL && dtype == ARRAY_BF16)
            return io_fail(ATTN_INVALID_ARGUMENT,
                           "%s would be bf16 (%s), which a .npy file cannot hold; expected "
                           "FILE.safetensors:NAME, or --out-dtype f32 or f16",
                           item->option, why);
    }
    return ATTN_OK;
}

attn_status output_spare_input(const struct output_set *set, const char *option, const char *input_spec)
{
    struct file_spec parts;
    CHECK(file_spec_parse(&parts, input_spec));
    struct stat input, output;
    attn_status status = ATTN_OK;
    /* An input that does not exist is reported by the one who opens it. */
    if (stat(parts.path, &input) == 0) {
        for (int i = 0; status == ATTN_OK && i < set->count; i++) {
            const struct output *item = &set->items[i];
            if (stat(item->path, &output) == 0 && input.st_dev == output.st_dev && input.st_ino == output.st_ino)
                status = io_fail(ATTN_INVALID_ARGUMENT, "%s would replace %s, which %s reads; expected another file",
                                 item->option, parts.path, option);
        }
    }
    file_spec_free(&parts);
    return status;
}

static attn_status write_npy(struct replacement *file, const struct array *array)
{
    char header[NPY_HEADER_SPACE];
    size_t length = npy_header_write(header, &array->is);
    if (length == 0)
        return io_fail(ATTN_INVALID_FILE, "%s: a .npy file cannot hold %s", file->path,
                       array_dtype_name(array->is.dtype));
    CHECK(replace_write(file, header, length));
    return replace_write(file, array->data, array->size);
}

static attn_status write_safetensors(struct replacement *file, const struct output_set *set, int first)
{
    const char *names[OUTPUT_MAX];
    const struct array *arrays[OUTPUT_MAX];
    size_t count = 0;
    for (int i = first; i < set->count; i++) {
        if (strcmp(set->items[i].path, set->items[first].path) == 0) {
            names[count] = set->items[i].name;
            arrays[count++] = set->items[i].array;
        }
    }
    char *header;
    size_t length;
    CHECK(safetensors_header_write(&header, &length, names, arrays, count, file->path));
    attn_status status = replace_write(file, header, length);
    for (size_t i = 0; status == ATTN_OK && i < count; i++)
        status = replace_write(file, arrays[i]->data, arrays[i]->size);
    free(header);
    return status;
}

/* Whether an earlier output of the same file has already brought this one along. */
static bool already_written(const struct output_set *set, int index)
{
    for (int i = 0; i < index; i++) {
        if (strcmp(set->items[i].path, set->items[index].path) == 0)
            return true;
    }
    return false;
}

attn_status output_write(const struct output_set *set)
{
    struct replacement files[OUTPUT_MAX];
    int count = 0;
    attn_status status = ATTN_OK;
    struct replace_signals signals;
    replace_hold_signals(&signals);
    for (int i = 0; status == ATTN_OK && i < set->count; i++) {
        if (already_written(set, i))
            continue;
        const struct output *item = &set->items[i];
        struct replacement *file = &files[count++];
        status = replace_open(file, item->path);
        if (status == ATTN_OK)
            status = item->name != NULL ? write_safetensors(file, set, i) : write_npy(file, item->array);
        if (status == ATTN_OK)
            status = replace_finish(file);
    }
    if (status == ATTN_OK)
        status = replace_commit(files, count);
    for (int i = 0; i < count; i++)
        replace_discard(&files[i]);
    replace_release_signals(&signals);
    return status;
}

void output_free(struct output_set *set)
{
    for (int i = 0; i < set->count; i++) {
        free(set->items[i].path);
        free(set->items[i].name);
    }
    set->count = 0;
}
