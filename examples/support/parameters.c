/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a training in memory and in safetensors files. */
#include "parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "io/error.h"
#include "io/safetensors.h"

enum { KINDS = 3, ARRAYS_MOST = KINDS * PARAMETERS_MOST + 8, NAME_SIZE = 96 };
static const char *const prefixes[KINDS] = {"", "mean.", "square."};

attn_status parameters_add(struct parameters *p, const char *name, int64_t rows, int64_t columns, int *which)
{
    const int64_t count = (rows ? rows : 1) * columns;
    const int i = p->count;
    if (i == PARAMETERS_MOST)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s is one parameter too many; expected at most %d", name,
                       PARAMETERS_MOST);
    float *memory = calloc((size_t)count + 1, 4 * sizeof *memory);
    p->names[i] = strdup(name);
    p->all[i] = (attn_parameter){.values = memory, .count = count, .decays = 1};
    p->count++;
    if (!memory || !p->names[i])
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the parameter %s", name);
    p->all[i].gradients = memory + count;
    p->all[i].mean = memory + 2 * count;
    p->all[i].square = memory + 3 * count;
    p->values[i] = attn_matrix(memory, rows ? rows : 1, columns);
    p->gradients[i] = attn_matrix(memory + count, rows ? rows : 1, columns);
    p->vector[i] = rows == 0;
    *which = i;
    return ATTN_OK;
}

void parameters_free(struct parameters *p)
{
    for (int i = 0; i < p->count; i++) {
        free(p->names[i]);
        free(p->all[i].values);
    }
    *p = (struct parameters){0};
}

/* Of kind: the values, the means, the squares. */
static struct array array_of(const struct parameters *p, int i, int kind)
{
    const attn_parameter *of = &p->all[i];
    struct array a = {.is = {.dtype = ARRAY_F32, .ndim = p->vector[i] ? 1 : 2},
                      .data = kind == 0   ? of->values
                              : kind == 1 ? of->mean
                                          : of->square,
                      .size = (size_t)of->count * sizeof(float)};
    a.is.shape[0] = p->vector[i] ? of->count : p->values[i].shape[2];
    a.is.shape[1] = p->values[i].shape[3];
    return a;
}

/* What a file holds, in its order. */
struct contents {
    int count;
    char names[ARRAYS_MOST][NAME_SIZE];
    struct array arrays[ARRAYS_MOST];
};

static void list(struct contents *c, const struct parameters *p, int kinds, const struct extra *extras, int num_extras)
{
    c->count = 0;
    for (int e = 0; e < num_extras; e++) {
        snprintf(c->names[c->count], NAME_SIZE, "%s", extras[e].name);
        c->arrays[c->count++] = *extras[e].array;
    }
    for (int kind = 0; kind < kinds; kind++)
        for (int i = 0; i < p->count; i++) {
            snprintf(c->names[c->count], NAME_SIZE, "%s%s", prefixes[kind], p->names[i]);
            c->arrays[c->count++] = array_of(p, i, kind);
        }
}

/* Header and data, one after the other. */
static attn_status gather(const struct contents *c, const char *path, struct file_part *parts, char **header)
{
    const char *names[ARRAYS_MOST];
    const struct array *arrays[ARRAYS_MOST];
    size_t length;
    for (int i = 0; i < c->count; i++) {
        names[i] = c->names[i];
        arrays[i] = &c->arrays[i];
        parts[i + 1] = (struct file_part){c->arrays[i].data, c->arrays[i].size};
    }
    CHECK(safetensors_header_write(header, &length, names, arrays, (size_t)c->count, NULL, path));
    parts[0] = (struct file_part){*header, length};
    return ATTN_OK;
}

attn_status parameters_write(const struct parameters *p, const char *path, bool moments, const struct extra *extras,
                             int num_extras)
{
    struct contents *c = malloc(sizeof *c);
    if (!c)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    struct file_part parts[ARRAYS_MOST + 1];
    char *header = NULL;
    list(c, p, moments ? KINDS : 1, extras, num_extras);
    attn_status status = gather(c, path, parts, &header);
    if (status == ATTN_OK)
        status = file_write(path, parts, c->count + 1);
    free(header);
    free(c);
    return status;
}

/* One array of a file, of which nothing but the name is known. */
static attn_status load(struct array *array, const char *path, const char *name)
{
    char *spec;
    if (asprintf(&spec, "%s:%s", path, name) < 0)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    const attn_status status = array_load(array, spec);
    free(spec);
    return status;
}

static attn_status load_parameter(struct array *to, const char *path, const char *name)
{
    struct array array;
    char expected[ARRAY_SHAPE_TEXT], found[ARRAY_SHAPE_TEXT];
    CHECK(load(&array, path, name));
    attn_status status = ATTN_OK;
    if (array.is.dtype != to->is.dtype || array.is.ndim != to->is.ndim ||
        memcmp(array.is.shape, to->is.shape, (size_t)to->is.ndim * sizeof *to->is.shape) != 0)
        status = io_fail(ATTN_INVALID_FILE, "%s: %s is %s %s; expected %s %s", path, name,
                         array_dtype_name(array.is.dtype), array_shape_text(&array.is, found),
                         array_dtype_name(to->is.dtype), array_shape_text(&to->is, expected));
    else
        memcpy(to->data, array.data, to->size);
    array_free(&array);
    return status;
}

attn_status parameters_read(struct parameters *p, const char *path, const struct extra *extras, int num_extras)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < p->count; i++) {
            char name[NAME_SIZE];
            struct array to = array_of(p, i, kind);
            snprintf(name, sizeof name, "%s%s", prefixes[kind], p->names[i]);
            CHECK(load_parameter(&to, path, name));
        }
    for (int e = 0; e < num_extras; e++)
        CHECK(load(extras[e].array, path, extras[e].name));
    return ATTN_OK;
}
