/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the outputs of a command. Two outputs may share a container but
 * nothing else, and no output may replace a file that an input is read from:
 * of a safetensors file it would drop all the other tensors, and with .npy it
 * is a slip far more often than a wish. All temporary files are complete and
 * on the disk before the first one is renamed. When the reader of standard output
 * has gone, SIGPIPE is held like other signals, and ends the program when the
 * temporary files are gone, too.
 */
#include "io/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/npz.h"
#include "io/safetensors.h"

static bool ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

static bool is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

static const char *label(const struct output *item)
{
    return is_standard(item->path) ? "standard output" : item->path;
}

static bool is_npz(const struct output_set *set, const struct output *item)
{
    return is_standard(item->path) ? set->standard_npz : ends_with(item->path, ".npz");
}

/* Whether the new last output may stand beside an earlier one. */
static attn_status compatible(const struct output *a, const struct output *b)
{
    if (strcmp(a->path, b->path) != 0)
        return ATTN_OK;
    if (a->name == NULL || b->name == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s and %s both write %s; expected different files", a->option, b->option,
                       label(a));
    if (strcmp(a->name, b->name) == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s and %s both write the tensor '%s' of %s; expected different names",
                       a->option, b->option, a->name, label(a));
    return ATTN_OK;
}

/* Room for one more. */
static attn_status grow(struct output_set *set)
{
    if (set->count < set->space)
        return ATTN_OK;
    const int space = set->space > 0 ? 2 * set->space : 8;
    struct output *items = realloc(set->items, (size_t)space * sizeof *items);
    if (items == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %d outputs", space);
    set->items = items;
    set->space = space;
    return ATTN_OK;
}

/* Whether the form is clear, and what it holds may have that name. */
static attn_status check_form(const char *option, const char *spec, const struct file_spec *parts)
{
    const bool container = file_spec_is_container(parts->path);
    if (is_standard(parts->path))
        return !isatty(STDOUT_FILENO)
                   ? ATTN_OK
                   : io_fail(ATTN_INVALID_ARGUMENT,
                             "%s is '%s', but standard output is a terminal; expected a pipe or a file there", option,
                             spec);
    if (container && parts->name == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s '%s' names no tensor; expected %s:NAME", option, spec, spec);
    if (!container && !ends_with(parts->path, ".npy"))
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "%s '%s' has an unknown format; expected FILE.npy, FILE.npz:NAME, FILE.safetensors:NAME or -",
                       option, spec);
    return ATTN_OK;
}

attn_status output_add(struct output_set *set, const char *option, const char *spec, const struct array *array)
{
    struct file_spec parts;
    CHECK(grow(set));
    CHECK(file_spec_parse(&parts, spec));
    attn_status status = check_form(option, spec, &parts);
    struct output *item = &set->items[set->count];
    *item = (struct output){.option = option, .name = parts.name, .array = array};
    parts.name = NULL;
    if (status == ATTN_OK && is_standard(parts.path)) {
        item->path = parts.path;
        parts.path = NULL;
    } else if (status == ATTN_OK) {
        status = replace_target(&item->path, parts.path);
    }
    /* The file's real name decides, as that of a symbolic link may have another suffix. */
    if (status == ATTN_OK && item->name != NULL && !is_npz(set, item) && strcmp(item->name, "__metadata__") == 0)
        status =
            io_fail(ATTN_INVALID_ARGUMENT, "%s '%s': a safetensors file reserves the name __metadata__", option, spec);
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

attn_status output_spare_input(const struct output_set *set, const char *option, const char *input_spec)
{
    struct file_spec parts;
    CHECK(file_spec_parse(&parts, input_spec));
    struct stat input, output;
    attn_status status = ATTN_OK;
    /* An input that does not exist is reported by the one who opens it. */
    if (!is_standard(parts.path) && stat(parts.path, &input) == 0) {
        for (int i = 0; status == ATTN_OK && i < set->count; i++) {
            const struct output *item = &set->items[i];
            if (!is_standard(item->path) && stat(item->path, &output) == 0 && input.st_dev == output.st_dev &&
                input.st_ino == output.st_ino)
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
    CHECK(replace_write(file, header, npy_header_write(header, &array->is)));
    return replace_write(file, array->data, array->size);
}

static attn_status write_safetensors(struct replacement *file, const char *const *names,
                                     const struct array *const *arrays, size_t count, struct json_t *metadata)
{
    char *header;
    size_t length;
    CHECK(safetensors_header_write(&header, &length, names, arrays, count, metadata, file->path));
    attn_status status = replace_write(file, header, length);
    for (size_t i = 0; status == ATTN_OK && i < count; i++)
        status = replace_write(file, arrays[i]->data, arrays[i]->size);
    free(header);
    return status;
}

/* All arrays that go to the file of the first one. */
static attn_status write_container(struct replacement *file, const struct output_set *set, int first)
{
    const size_t most = (size_t)(set->count - first);
    const char **names = calloc(most, sizeof *names);
    const struct array **arrays = calloc(most, sizeof *arrays);
    size_t count = 0;
    attn_status status = ATTN_OK;
    if (names == NULL || arrays == NULL)
        status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", file->path);
    for (int i = first; status == ATTN_OK && i < set->count; i++) {
        if (strcmp(set->items[i].path, set->items[first].path) == 0) {
            names[count] = set->items[i].name;
            arrays[count++] = set->items[i].array;
        }
    }
    if (status == ATTN_OK)
        status = is_npz(set, &set->items[first]) ? npz_write(file, names, arrays, count, set->compressed)
                                                 : write_safetensors(file, names, arrays, count, set->metadata);
    free(names);
    free(arrays);
    return status;
}

static attn_status write_item(struct replacement *file, const struct output_set *set, int index)
{
    const struct output *item = &set->items[index];
    return item->name != NULL ? write_container(file, set, index) : write_npy(file, item->array);
}

/* An archive cannot be written to a pipe, as sizes are filled in behind; so it is written to a file without a name. */
static attn_status write_standard_npz(struct replacement *standard, const struct output_set *set, int index)
{
    char piece[65536];
    FILE *file = tmpfile();
    if (file == NULL)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot make a temporary file: %s", standard->path, strerror(errno));
    struct replacement temporary = {
        .path = standard->path, .fd = fileno(file), .written = set->written, .user = set->user};
    standard->written = NULL; /* the same bytes once more */
    attn_status status = write_item(&temporary, set, index);
    if (status == ATTN_OK && lseek(temporary.fd, 0, SEEK_SET) != 0)
        status = io_fail(ATTN_INVALID_FILE, "%s: cannot read the temporary file: %s", standard->path, strerror(errno));
    for (ssize_t got = 1; status == ATTN_OK && got > 0;) {
        got = read(temporary.fd, piece, sizeof piece);
        if (got < 0 && errno != EINTR)
            status =
                io_fail(ATTN_INVALID_FILE, "%s: cannot read the temporary file: %s", standard->path, strerror(errno));
        else if (got > 0)
            status = replace_write(standard, piece, (size_t)got);
        got = got < 0 ? 1 : got;
    }
    fclose(file);
    return status;
}

static attn_status write_standard(const struct output_set *set)
{
    char name[] = "standard output";
    struct replacement standard = {.path = name, .fd = STDOUT_FILENO, .written = set->written, .user = set->user};
    for (int i = 0; i < set->count; i++) {
        if (is_standard(set->items[i].path))
            return is_npz(set, &set->items[i]) && set->items[i].name != NULL ? write_standard_npz(&standard, set, i)
                                                                             : write_item(&standard, set, i);
    }
    return ATTN_OK;
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
    struct replacement *files = calloc((size_t)set->count + 1, sizeof *files);
    if (files == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %d outputs", set->count);
    int count = 0;
    attn_status status = ATTN_OK;
    struct replace_signals signals;
    replace_hold_signals(&signals);
    for (int i = 0; status == ATTN_OK && i < set->count; i++) {
        if (already_written(set, i) || is_standard(set->items[i].path))
            continue;
        struct replacement *file = &files[count++];
        status = replace_open(file, set->items[i].path);
        file->written = set->written;
        file->user = set->user;
        if (status == ATTN_OK)
            status = write_item(file, set, i);
        if (status == ATTN_OK)
            status = replace_finish(file);
    }
    if (status == ATTN_OK)
        status = write_standard(set);
    if (status == ATTN_OK)
        status = replace_commit(files, count);
    for (int i = 0; i < count; i++)
        replace_discard(&files[i]);
    replace_release_signals(&signals);
    free(files);
    return status;
}

void output_free(struct output_set *set)
{
    for (int i = 0; i < set->count; i++) {
        free(set->items[i].path);
        free(set->items[i].name);
    }
    free(set->items);
    set->items = NULL;
    set->count = set->space = 0;
}
