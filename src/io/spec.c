/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How users name arrays in files: FILE, FILE:NAME of a file that holds several, and
 * FILE:PATTERN for some of them. A path may have colons of its own, so a name begins
 * behind the suffix of such a file, or behind the "-" of standard input.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "io/container.h"
#include "io/forms.h"

static const char *const suffixes[] = {".safetensors", ".npz"};

bool file_spec_is_container(const char *path)
{
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t tail = strlen(suffixes[i]);
        if (length >= tail && strcmp(path + length - tail, suffixes[i]) == 0)
            return true;
    }
    return false;
}

/* The colon before the name, or NULL. */
static const char *find_colon(const char *spec)
{
    if (strncmp(spec, "-:", 2) == 0)
        return spec + 1;
    for (const char *colon = strchr(spec, ':'); colon != NULL; colon = strchr(colon + 1, ':')) {
        for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
            const size_t tail = strlen(suffixes[i]);
            if ((size_t)(colon - spec) >= tail && strncmp(colon - tail, suffixes[i], tail) == 0)
                return colon;
        }
    }
    return NULL;
}

attn_status file_spec_parse(struct file_spec *out, const char *spec)
{
    const char *colon = find_colon(spec);
    *out = (struct file_spec){NULL, NULL};
    if (spec[0] == '\0')
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "the file name is empty; expected FILE.npy, FILE.npz:NAME or FILE.safetensors:NAME");
    if (colon != NULL && colon[1] == '\0')
        return io_fail(ATTN_INVALID_ARGUMENT, "%s has an empty tensor name; expected %sNAME", spec, spec);
    out->path = colon == NULL ? strdup(spec) : strndup(spec, (size_t)(colon - spec));
    out->name = colon == NULL ? NULL : strdup(colon + 1);
    if (out->path == NULL || (colon != NULL && out->name == NULL)) {
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

/* ---------------------------------------------------------------- patterns -- */

static int by_number(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

/* Keeps the names that match, in the order of the numbers in them. */
static attn_status keep_matching(struct array_names *names, const char *pattern)
{
    size_t kept = 0;
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(pattern, names->names[i]) == 0 || fnmatch(pattern, names->names[i], 0) == 0)
            names->names[kept++] = names->names[i];
        else
            free(names->names[i]);
    }
    names->count = kept;
    if (kept == 0)
        return io_fail(ATTN_INVALID_FILE, "%s holds no tensor whose name matches '%s'", file_bytes_label(names->path),
                       pattern);
    qsort(names->names, kept, sizeof *names->names, by_number);
    return ATTN_OK;
}

attn_status array_names_open(struct array_names *out, const char *spec)
{
    struct file_spec parts;
    struct file_bytes *bytes = NULL;
    *out = (struct array_names){.count = 0};
    CHECK(file_spec_parse(&parts, spec));
    out->path = parts.path;
    parts.path = NULL;
    /* A name behind any other path would not be found again. */
    const bool one = !file_spec_is_container(out->path) && strcmp(out->path, "-") != 0;
    attn_status status = file_bytes_open(&bytes, out->path);
    const char *label = file_bytes_label(out->path);
    if (status == ATTN_OK)
        status = form_refuse_foreign(bytes->data, bytes->size, label);
    const enum file_form form = status == ATTN_OK ? form_of_bytes(bytes->data, bytes->size) : FORM_UNKNOWN;
    if (status == ATTN_OK && form == FORM_NPY)
        status =
            io_fail(ATTN_INVALID_ARGUMENT,
                    "%s is one array; expected FILE.safetensors:PATTERN or FILE.npz:PATTERN, * being anything", spec);
    if (status == ATTN_OK && one && form == FORM_UNKNOWN)
        status =
            io_fail(ATTN_INVALID_FILE, "%s holds no arrays: it begins as neither .npy, .npz nor safetensors", label);
    if (status == ATTN_OK)
        status = container_open(&out->container, bytes, out->path);
    if (status == ATTN_OK && one)
        status = io_fail(ATTN_INVALID_ARGUMENT,
                         "%s holds named arrays, but its name ends in neither .npz nor .safetensors; expected such a "
                         "name",
                         label);
    if (status == ATTN_OK)
        status = container_names(out->container, &out->names, &out->count);
    if (status == ATTN_OK)
        status = keep_matching(out, parts.name != NULL ? parts.name : "*");
    file_bytes_release(bytes);
    file_spec_free(&parts);
    if (status != ATTN_OK)
        array_names_free(out);
    return status;
}

void array_names_free(struct array_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    container_release(names->container);
    free(names->path);
    *names = (struct array_names){.count = 0};
}
