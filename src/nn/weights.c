/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named weights: sets, and what is found in them.
 *
 * Names are looked up one after another. A model asks once for each of its
 * tensors, a few hundred, which is nothing beside packing them.
 */
#include "nn/weights_set.h"

#include "cpu/cancellation.h"
#include "nn/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void set_label(struct attn_weights *weights, const char *path)
{
    const size_t length = strlen(path);
    if (length < WEIGHTS_LABEL) {
        memcpy(weights->label, path, length + 1);
        return;
    }
    const char *tail = path + length - (WEIGHTS_LABEL - 4);
    /* Not from the middle of a character. */
    while (((unsigned char)*tail & 0xc0) == 0x80)
        tail++;
    snprintf(weights->label, WEIGHTS_LABEL, "...%s", tail);
}

void attn_weights_destroy(attn_weights *weights)
{
    if (!weights)
        return;
    if (weights->map)
        munmap(weights->map, weights->map_size);
    for (size_t i = 0; i < weights->num_shards; i++)
        attn_weights_destroy(weights->shards[i]);
    free(weights->shards);
    safetensors_free(&weights->index);
    free(weights->aligned);
    free(weights->names);
    free(weights->entries);
    for (int64_t i = 0; i < weights->num_ignored; i++)
        free(weights->ignored[i]);
    free(weights->ignored);
    free(weights);
}

/** A set without anything, or a sentence. */
static attn_status new_set(attn_weights **out, const char *label)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a set of weights could not be allocated");
    set_label(*out, label);
    return ATTN_OK;
}

/** Hands a set to the caller, or takes it away again. */
static attn_status keep(attn_weights **out, attn_weights *weights, attn_status status)
{
    if (status)
        attn_weights_destroy(weights);
    else
        *out = weights;
    return status;
}

attn_status attn_weights_open(attn_weights **weights_out, const char *path)
{
    struct attn_weights *weights;
    ATTN_UNCANCELLED;
    if (!weights_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected where to put the set");
    *weights_out = NULL;
    if (!path)
        return attn_fail(ATTN_INVALID_ARGUMENT, "path is NULL; expected the name of a safetensors file");
    CHECK(new_set(&weights, path));
    return keep(weights_out, weights,
                nn_weights_is_index(path) ? nn_weights_read_index(weights, path) : nn_weights_read(weights, path));
}

/* -------------------------------------------------------- tensors in memory -- */

static attn_status check_memory(int64_t num, const char *const *names, const attn_tensor *tensors)
{
    CHECK(nn_check_length("num", num, 0));
    if (!names && num)
        return attn_fail(ATTN_INVALID_ARGUMENT, "names is NULL; expected %" PRId64 " names", num);
    if (!tensors && num)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tensors is NULL; expected %" PRId64 " tensors", num);
    for (int64_t i = 0; i < num; i++) {
        if (!names[i])
            return attn_fail(ATTN_INVALID_ARGUMENT, "names[%" PRId64 "] is NULL; expected a name", i);
        for (int64_t before = 0; before < i; before++)
            if (strcmp(names[before], names[i]) == 0)
                return attn_fail(ATTN_INVALID_ARGUMENT,
                                 "names[%" PRId64 "] is '%s', as is names[%" PRId64 "]; expected names that differ", i,
                                 names[i], before);
        CHECK(attn_check_tensor(nn_name_of("tensors", i, NULL).text, &tensors[i], CHECK_ALL));
    }
    return ATTN_OK;
}

static attn_status name_tensors(struct attn_weights *weights, int64_t num, const char *const *names,
                                const attn_tensor *tensors)
{
    size_t bytes = 1;
    for (int64_t i = 0; i < num; i++)
        bytes += strlen(names[i]) + 1;
    weights->entries = calloc((size_t)num + 1, sizeof *weights->entries);
    weights->names = malloc(bytes);
    if (!weights->entries || !weights->names)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a list of %" PRId64 " tensors could not be allocated", num);
    char *name = weights->names;
    for (int64_t i = 0; i < num; i++) {
        struct weights_entry *entry = &weights->entries[i];
        const int64_t *shape = tensors[i].shape;
        entry->name = strcpy(name, names[i]);
        entry->type = attn_dtype_name(tensors[i].dtype);
        entry->view = tensors[i];
        entry->readable = tensors[i].dtype == ATTN_F32 || tensors[i].dtype == ATTN_BF16 || tensors[i].dtype == ATTN_F16;
        entry->ndim = shape[0] != 1 || shape[1] != 1 ? 4 : shape[2] != 1 ? 2 : 1;
        entry->either = entry->ndim == 1;
        memcpy(entry->shape, shape + (4 - entry->ndim), entry->ndim * sizeof *shape);
        name += strlen(name) + 1;
    }
    weights->count = num;
    return ATTN_OK;
}

attn_status attn_weights_create(attn_weights **weights_out, int64_t num, const char *const *names,
                                const attn_tensor *tensors)
{
    struct attn_weights *weights;
    if (!weights_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected where to put the set");
    *weights_out = NULL;
    CHECK(check_memory(num, names, tensors));
    CHECK(new_set(&weights, "the set of weights"));
    return keep(weights_out, weights, name_tensors(weights, num, names, tensors));
}

/* -------------------------------------------------- what may be left unread -- */

attn_status attn_weights_ignore(attn_weights *weights, int64_t num, const char *const *patterns)
{
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected a set of weights");
    CHECK(nn_check_length("num", num, 0));
    if (!patterns && num)
        return attn_fail(ATTN_INVALID_ARGUMENT, "patterns is NULL; expected %" PRId64 " names", num);
    for (int64_t i = 0; i < num; i++)
        if (!patterns[i])
            return attn_fail(ATTN_INVALID_ARGUMENT, "patterns[%" PRId64 "] is NULL; expected a name", i);
    CHECK(attn_check_count("num", sizeof(char *), num, 1, 1));
    const int64_t before = weights->num_ignored;
    char **all = realloc(weights->ignored, (size_t)(before + num + 1) * sizeof *all);
    if (all)
        weights->ignored = all;
    for (int64_t i = 0; all && i < num; i++) {
        const size_t size = strlen(patterns[i]) + 1;
        char *copy = malloc(size);
        if (copy)
            all[weights->num_ignored++] = memcpy(copy, patterns[i], size);
        else
            all = NULL;
    }
    if (all)
        return ATTN_OK;
    while (weights->num_ignored > before)
        free(weights->ignored[--weights->num_ignored]);
    return attn_fail(ATTN_OUT_OF_MEMORY, "a list of %" PRId64 " names could not be allocated", num);
}

int nn_weights_match(const char *pattern, const char *name)
{
    /* Where the last '*' is, and what it stands for so far: more, whenever what follows it does not fit. */
    const char *star = NULL, *covered = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            covered = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++covered;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

int nn_weights_ignored(const attn_weights *weights, const char *name)
{
    for (int64_t i = 0; i < weights->num_ignored; i++)
        if (nn_weights_match(weights->ignored[i], name))
            return 1;
    return 0;
}

/* ------------------------------------------------------------------ lookups -- */

int64_t attn_weights_count(const attn_weights *weights)
{
    return weights->count;
}

const char *attn_weights_name(const attn_weights *weights, int64_t i)
{
    return i >= 0 && i < weights->count ? weights->entries[i].name : NULL;
}

int64_t nn_weights_find(const attn_weights *weights, const char *name)
{
    for (int64_t i = 0; i < weights->count; i++)
        if (strcmp(weights->entries[i].name, name) == 0)
            return i;
    return -1;
}

int attn_weights_has(const attn_weights *weights, const char *name)
{
    return name && nn_weights_find(weights, name) >= 0;
}

/* Characters of a name that count when the nearest one is sought. */
#define COMPARED 128

/** Insertions, deletions and replacements that turn one name into another (Levenshtein 1966). */
static int edits(const char *a, const char *b)
{
    int row[COMPARED + 1];
    const int n = (int)strnlen(b, COMPARED);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 0; i < COMPARED && a[i]; i++) {
        int diagonal = row[0]++;
        for (int j = 1; j <= n; j++) {
            const int replaced = diagonal + (a[i] != b[j - 1]);
            diagonal = row[j];
            const int shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];
            row[j] = replaced < shorter + 1 ? replaced : shorter + 1;
        }
    }
    return row[n];
}

static attn_status fail_missing(const attn_weights *weights, const char *name)
{
    if (weights->count == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s has no tensor '%s'; it has none at all", weights->label, name);
    int64_t nearest = 0;
    int fewest = COMPARED + 1;
    for (int64_t i = 0; i < weights->count; i++) {
        const int needed = edits(name, weights->entries[i].name);
        if (needed < fewest) {
            fewest = needed;
            nearest = i;
        }
    }
    return io_fail(ATTN_INVALID_ARGUMENT, "%s has no tensor '%s'; the nearest name among its %" PRId64 " is '%s'",
                   weights->label, name, weights->count, weights->entries[nearest].name);
}

/** "5", or "any". */
static void length_text(int64_t length, char text[24])
{
    if (length == ATTN_ANY)
        strcpy(text, "any");
    else
        snprintf(text, 24, "%" PRId64, length);
}

static attn_status fail_other(attn_status status, const attn_weights *weights, const struct weights_entry *entry,
                              int64_t rows, int64_t columns)
{
    char is[ARRAY_SHAPE_TEXT], row[24], column[24];
    struct array_shape shape = {.ndim = entry->ndim < ARRAY_MAX_DIMS ? (int)entry->ndim : ARRAY_MAX_DIMS};
    memcpy(shape.shape, entry->shape, sizeof shape.shape);
    length_text(rows, row);
    length_text(columns, column);
    return io_fail(status, "%s: tensor '%s' is %s %s%s; expected F32, BF16 or F16 (%s,%s%s)",
                   entry->label ? entry->label : weights->label, entry->name, entry->type, array_shape_text(&shape, is),
                   entry->ndim > ARRAY_MAX_DIMS ? " and more" : "", rows ? row : column, rows ? " " : "",
                   rows ? column : "");
}

/** Whether a tensor is a matrix or, with rows 0, a vector of these lengths. */
static int fits(const struct weights_entry *entry, int64_t rows, int64_t columns)
{
    const int is_vector = entry->ndim == 1, is_matrix = entry->ndim == 2 || entry->either;
    return (rows == 0 ? is_vector : is_matrix) && (rows <= 0 || entry->view.shape[2] == rows) &&
           (columns == ATTN_ANY || entry->view.shape[3] == columns);
}

attn_status attn_weights_get(const attn_weights *weights, const char *name, int64_t rows, int64_t columns,
                             attn_tensor *tensor)
{
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected a set of weights");
    if (!name)
        return attn_fail(ATTN_INVALID_ARGUMENT, "name is NULL; expected the name of a tensor");
    if (!tensor)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tensor is NULL; expected where to put the view");
    CHECK(nn_check_length("rows", rows, ATTN_ANY));
    CHECK(nn_check_length("columns", columns, ATTN_ANY));
    const int64_t number = nn_weights_find(weights, name);
    if (number < 0)
        return fail_missing(weights, name);
    const struct weights_entry *entry = &weights->entries[number];
    if (!entry->readable)
        return fail_other(ATTN_UNSUPPORTED, weights, entry, rows, columns);
    if (!fits(entry, rows, columns))
        return fail_other(ATTN_SHAPE_MISMATCH, weights, entry, rows, columns);
    *tensor = entry->view;
    return ATTN_OK;
}
