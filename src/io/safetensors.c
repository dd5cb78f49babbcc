/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of safetensors headers. The length is bounded by the format's
 * 100 MB and by the file before anything is read. jansson parses the JSON and
 * refuses duplicate names. Then each tensor's extent must be its shape times
 * its element size, and the extents, sorted, must cover the data exactly: a
 * hole could hide bytes that nobody checks, an overlap makes two names one.
 *
 * Tensors of types that the tools cannot use may be in a file; they are refused
 * only when they are asked for. A type whose name is unknown (the format grows)
 * has an extent that cannot be checked against its shape, but it takes part in
 * the check of holes and overlaps.
 */
#include "io/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bits of an element, or 0 for an unknown type. */
static unsigned dtype_bits(const char *dtype)
{
    static const struct {
        const char *name;
        unsigned bits;
    } table[] = {{"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
                 {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
                 {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
                 {"F32", 32}, {"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(dtype, table[i].name) == 0)
            return table[i].bits;
    }
    return 0;
}

attn_status safetensors_header_length(size_t *length, const unsigned char prefix[SAFETENSORS_PREFIX],
                                      uint64_t file_size, const char *path)
{
    if (file_size < SAFETENSORS_PREFIX)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: the safetensors file is truncated: it has %" PRIu64 " bytes; expected at least 8", path,
                       file_size);
    uint64_t value = 0;
    for (int i = 0; i < SAFETENSORS_PREFIX; i++)
        value |= (uint64_t)prefix[i] << (8 * i);
    if (value > SAFETENSORS_MAX_HEADER)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: the safetensors header claims %" PRIu64 " bytes; expected at most %" PRIu64, path, value,
                       SAFETENSORS_MAX_HEADER);
    if (value > file_size - SAFETENSORS_PREFIX)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: the safetensors file is truncated: its header claims %" PRIu64 " bytes, but %" PRIu64
                       " follow",
                       path, value, file_size - SAFETENSORS_PREFIX);
    *length = (size_t)value;
    return ATTN_OK;
}

static bool read_index(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

/* Multiplies the lengths into bits, counting 0 as 1 for the overflow check alone. */
static attn_status read_shape(struct safetensors_entry *entry, const json_t *shape, uint64_t element_bits,
                              uint64_t *bits, const char *path)
{
    if (!json_is_array(shape))
        return io_fail(ATTN_INVALID_FILE, "%s: tensor '%s' has no array of lengths as its shape", path, entry->name);
    uint64_t bound = element_bits > 0 ? element_bits : 1;
    *bits = element_bits;
    entry->ndim = json_array_size(shape);
    for (size_t i = 0; i < entry->ndim; i++) {
        uint64_t length;
        if (!read_index(json_array_get(shape, i), &length))
            return io_fail(ATTN_INVALID_FILE,
                           "%s: tensor '%s' has a length in its shape that is not a whole number from 0 up", path,
                           entry->name);
        if (length > 0 && bound > UINT64_MAX / length)
            return io_fail(ATTN_INVALID_FILE, "%s: tensor '%s' has a shape that overflows: its size exceeds 64 bits",
                           path, entry->name);
        bound *= length > 0 ? length : 1;
        *bits *= length;
        if (i < ARRAY_MAX_DIMS)
            entry->shape[i] = (int64_t)length;
    }
    return ATTN_OK;
}

static attn_status read_entry(struct safetensors_entry *entry, const char *name, json_t *value, uint64_t data_size,
                              const char *path)
{
    *entry = (struct safetensors_entry){.name = name};
    const json_t *dtype = json_object_get(value, "dtype");
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *shape = json_object_get(value, "shape");
    if (!json_is_object(value) || json_object_size(value) != 3 || dtype == NULL || offsets == NULL || shape == NULL)
        return io_fail(ATTN_INVALID_FILE, "%s: tensor '%s' is not described by exactly dtype, shape and data_offsets",
                       path, name);
    if (!json_is_string(dtype))
        return io_fail(ATTN_INVALID_FILE, "%s: tensor '%s' has a dtype that is not a string", path, name);
    entry->dtype = json_string_value(dtype);
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !read_index(json_array_get(offsets, 0), &entry->begin) || !read_index(json_array_get(offsets, 1), &entry->end))
        return io_fail(ATTN_INVALID_FILE, "%s: tensor '%s' has data_offsets that are not two whole numbers from 0 up",
                       path, name);
    if (entry->begin > entry->end || entry->end > data_size)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: tensor '%s' has data_offsets %" PRIu64 " to %" PRIu64
                       "; expected them in order and at most %" PRIu64 ", the bytes of data in the file",
                       path, name, entry->begin, entry->end, data_size);
    uint64_t element_bits = dtype_bits(entry->dtype), bits = 0;
    CHECK(read_shape(entry, shape, element_bits, &bits, path));
    if (element_bits > 0 && (bits % 8 != 0 || bits / 8 != entry->end - entry->begin))
        return io_fail(ATTN_INVALID_FILE,
                       "%s: tensor '%s' takes %" PRIu64 " bytes; expected %" PRIu64 " for its shape and dtype %s", path,
                       name, entry->end - entry->begin, bits / 8 + (bits % 8 != 0), entry->dtype);
    return ATTN_OK;
}

static attn_status check_metadata(json_t *metadata, const char *path)
{
    bool fits = json_is_object(metadata);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) fits = fits && json_is_string(value);
    return fits ? ATTN_OK : io_fail(ATTN_INVALID_FILE, "%s: __metadata__ is not an object of strings", path);
}

static int by_position(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static attn_status check_cover(struct safetensors *index, uint64_t data_size, const char *path)
{
    if (index->count > 0)
        qsort(index->entries, index->count, sizeof index->entries[0], by_position);
    uint64_t covered = 0;
    for (size_t i = 0; i < index->count; i++) {
        const struct safetensors_entry *entry = &index->entries[i];
        if (entry->begin > covered)
            return io_fail(ATTN_INVALID_FILE,
                           "%s: the data has a hole: bytes %" PRIu64 " to %" PRIu64 " belong to no tensor", path,
                           covered, entry->begin);
        if (entry->begin < covered)
            return io_fail(ATTN_INVALID_FILE, "%s: tensors '%s' and '%s' overlap", path, index->entries[i - 1].name,
                           entry->name);
        covered = entry->end;
    }
    if (covered != data_size)
        return io_fail(ATTN_INVALID_FILE, "%s: the last %" PRIu64 " bytes of the file belong to no tensor", path,
                       data_size - covered);
    return ATTN_OK;
}

static attn_status parse_json(json_t **root, const char *text, size_t length, const char *path)
{
    if (length == 0 || text[0] != '{')
        return io_fail(ATTN_INVALID_FILE, "%s is not a safetensors file: its header does not begin with '{'", path);
    json_error_t problem;
    *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    if (*root != NULL)
        return ATTN_OK;
    if (*problem.text == '\0') /* all that jansson says where memory is short */
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory for the safetensors header", path);
    if (json_error_code(&problem) == json_error_duplicate_key)
        return io_fail(ATTN_INVALID_FILE, "%s: the safetensors header holds a name twice, near its byte %d", path,
                       problem.position);
    return io_fail(ATTN_INVALID_FILE, "%s: the safetensors header is not valid JSON: %s", path, problem.text);
}

attn_status safetensors_parse(struct safetensors *index, const char *text, size_t length, uint64_t data_size,
                              const char *path)
{
    *index = (struct safetensors){0};
    CHECK(parse_json(&index->root, text, length, path));
    size_t members = json_object_size(index->root);
    index->entries = calloc(members > 0 ? members : 1, sizeof index->entries[0]);
    attn_status status = index->entries != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    const char *key;
    json_t *value;
    json_object_foreach(index->root, key, value)
    {
        if (status != ATTN_OK)
            break;
        if (strcmp(key, "__metadata__") == 0)
            status = check_metadata(value, path);
        else
            status = read_entry(&index->entries[index->count++], key, value, data_size, path);
    }
    if (status == ATTN_OK)
        status = check_cover(index, data_size, path);
    if (status != ATTN_OK)
        safetensors_free(index);
    return status;
}

void safetensors_free(struct safetensors *index)
{
    json_decref(index->root);
    free(index->entries);
    *index = (struct safetensors){0};
}

attn_status safetensors_find(const struct safetensors *index, const char *name, const char *path,
                             const struct safetensors_entry **entry)
{
    for (size_t i = 0; i < index->count; i++) {
        if (strcmp(index->entries[i].name, name) == 0) {
            *entry = &index->entries[i];
            return ATTN_OK;
        }
    }
    if (index->count == 0)
        return io_fail(ATTN_INVALID_FILE, "%s has no tensor '%s'; it has none at all", path, name);
    char some[512] = "";
    size_t used = 0, shown = 0;
    for (; shown < index->count && shown < 6; shown++) {
        const char *next = index->entries[shown].name;
        if (used + strlen(next) + 8 > sizeof some)
            break;
        used += (size_t)snprintf(some + used, sizeof some - used, "%s'%s'", shown > 0 ? ", " : "", next);
    }
    return io_fail(ATTN_INVALID_FILE, "%s has no tensor '%s'; it has %zu: %s%s", path, name, index->count, some,
                   shown < index->count ? ", ..." : "");
}

attn_status safetensors_usable(const struct safetensors_entry *entry, const char *path, struct array_shape *is,
                               struct array_storage *stored)
{
    static const struct {
        const char *name;
        enum array_dtype dtype;
    } table[] = {{"F32", ARRAY_F32},   {"F64", ARRAY_F32}, {"F16", ARRAY_F16}, {"BF16", ARRAY_BF16},
                 {"BOOL", ARRAY_BOOL}, {"I32", ARRAY_I32}, {"I64", ARRAY_I64}};
    if (entry->ndim > ARRAY_MAX_DIMS)
        return io_fail(ATTN_INVALID_FILE, "%s: tensor '%s' has %zu dimensions; expected at most %d", path, entry->name,
                       entry->ndim, ARRAY_MAX_DIMS);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(entry->dtype, table[i].name) == 0) {
            *is = (struct array_shape){.dtype = table[i].dtype, .ndim = (int)entry->ndim};
            memcpy(is->shape, entry->shape, sizeof is->shape);
            *stored = (struct array_storage){.is_f64 = strcmp(entry->dtype, "F64") == 0};
            stored->element_size = stored->is_f64 ? 8 : array_dtype_size(is->dtype);
            return ATTN_OK;
        }
    }
    return io_fail(ATTN_INVALID_FILE,
                   "%s: tensor '%s' has dtype %s, which is not read; expected F32, F64, F16, BF16, BOOL, I32 or I64",
                   path, entry->name, entry->dtype);
}

json_t *safetensors_metadata(const struct safetensors *index)
{
    return json_object_get(index->root, "__metadata__");
}

static json_t *describe(const struct array *array, uint64_t begin)
{
    static const char *const names[] = {"F32", "BOOL", "I32", "I64", "F16", "BF16"};
    json_t *shape = json_array();
    for (int i = 0; i < array->is.ndim; i++)
        json_array_append_new(shape, json_integer(array->is.shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", names[array->is.dtype], "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + array->size));
}

attn_status safetensors_header_write(char **out, size_t *length, const char *const *names,
                                     const struct array *const *arrays, size_t count, json_t *metadata,
                                     const char *path)
{
    json_t *root = json_object();
    uint64_t begin = 0;
    attn_status status = root != NULL && (metadata == NULL || json_object_set(root, "__metadata__", metadata) == 0)
                             ? ATTN_OK
                             : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; status == ATTN_OK && i < count; i++) {
        /* Sets nothing and returns -1 when the name is not UTF-8 or memory is short. */
        if (json_object_set_new(root, names[i], describe(arrays[i], begin)) != 0)
            status = io_fail(ATTN_INVALID_FILE, "%s: cannot write a tensor named '%s'; expected a name in UTF-8", path,
                             names[i]);
        begin += arrays[i]->size;
    }
    char *text = status == ATTN_OK ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (status != ATTN_OK)
        return status;
    size_t used = text != NULL ? strlen(text) : 0;
    size_t padded = (used + 7) / 8 * 8;
    *out = text != NULL ? malloc(SAFETENSORS_PREFIX + padded) : NULL;
    if (*out == NULL) {
        free(text);
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    for (int i = 0; i < SAFETENSORS_PREFIX; i++)
        (*out)[i] = (char)(unsigned char)(padded >> (8 * i) & 0xff);
    memset(*out + SAFETENSORS_PREFIX, ' ', padded);
    memcpy(*out + SAFETENSORS_PREFIX, text, used);
    free(text);
    *length = SAFETENSORS_PREFIX + padded;
    return ATTN_OK;
}
