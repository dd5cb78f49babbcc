/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights by prefix and name, and copies of those that are not packed.
 */
#include "nn/names.h"

#include "nn/check.h"
#include "nn/weights_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

attn_status nn_reader_open(struct nn_reader *reader, const char *loader, const attn_weights *weights,
                           const char *prefix)
{
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected a set of named tensors");
    if (!prefix)
        return attn_fail(ATTN_INVALID_ARGUMENT, "prefix is NULL; expected what stands before the names, or an empty "
                                                "string");
    *reader = (struct nn_reader){.weights = weights, .loader = loader};
    reader->was_read = calloc((size_t)weights->count + 1, 1);
    if (!reader->was_read)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a list of %" PRId64 " tensors could not be allocated", weights->count);
    return ATTN_OK;
}

void nn_reader_close(struct nn_reader *reader)
{
    free(reader->was_read);
}

/** Of a tensor that layers can take; 0 of another. */
static int64_t bytes_of(const struct weights_entry *entry)
{
    const attn_tensor *view = &entry->view;
    return entry->readable ? view->shape[2] * view->shape[3] * attn_element_size(view->dtype) : 0;
}

void nn_reader_watch(struct nn_reader *reader, void (*progress)(void *user, int64_t done, int64_t total), void *user)
{
    reader->progress = progress;
    reader->progress_user = user;
    for (int64_t i = 0; i < reader->weights->count; i++)
        reader->bytes += bytes_of(&reader->weights->entries[i]);
}

void nn_reader_done(struct nn_reader *reader)
{
    if (reader->progress)
        reader->progress(reader->progress_user, reader->bytes, reader->bytes);
}

/** Notes that a tensor is read. */
static void read_entry(struct nn_reader *reader, int64_t entry)
{
    if (reader->progress)
        reader->progress(reader->progress_user, reader->bytes_read, reader->bytes);
    if (!reader->was_read[entry])
        reader->bytes_read += bytes_of(&reader->weights->entries[entry]);
    reader->was_read[entry] = 1;
}

attn_status nn_check_all_read(const struct nn_reader *reader, const char *prefix, const char *const *known)
{
    const attn_weights *weights = reader->weights;
    const size_t length = strlen(prefix);
    for (int64_t i = 0; i < weights->count; i++) {
        const char *name = weights->entries[i].name;
        if (reader->was_read[i] || strncmp(name, prefix, length) != 0 || nn_weights_ignored(weights, name))
            continue;
        const char *const *pattern = known;
        while (pattern && *pattern && !nn_weights_match(*pattern, name + length))
            pattern++;
        if (pattern && *pattern)
            continue;
        return io_fail(
            ATTN_UNSUPPORTED,
            "%s: tensor '%s' is unknown to %s(), and without it the result is not the model's; expected no such "
            "tensor, or its name given to attn_weights_ignore()",
            weights->entries[i].label ? weights->entries[i].label : weights->label, name, reader->loader);
    }
    return ATTN_OK;
}

static attn_status too_long(const char *prefix)
{
    return attn_fail(ATTN_INVALID_ARGUMENT, "prefix has %zu bytes; expected names of less than %zu", strlen(prefix),
                     sizeof((struct nn_prefix *)0)->text);
}

attn_status nn_joined(struct nn_prefix *out, const char *prefix, const char *name)
{
    const int length = snprintf(out->text, sizeof out->text, "%s%s", prefix, name);
    return length < 0 || (size_t)length >= sizeof out->text ? too_long(prefix) : ATTN_OK;
}

attn_status nn_numbered(struct nn_prefix *out, const char *prefix, const char *middle, int64_t number)
{
    const int length = snprintf(out->text, sizeof out->text, "%s%s%" PRId64 ".", prefix, middle, number);
    return length < 0 || (size_t)length >= sizeof out->text ? too_long(prefix) : ATTN_OK;
}

int nn_has(const struct nn_reader *reader, const char *prefix, const char *name)
{
    struct nn_prefix full;
    return !nn_joined(&full, prefix, name) && attn_weights_has(reader->weights, full.text);
}

attn_status nn_get(struct nn_reader *reader, const char *prefix, const char *name, int64_t rows, int64_t columns,
                   attn_tensor *tensor)
{
    struct nn_prefix full;
    CHECK(nn_joined(&full, prefix, name));
    CHECK(attn_weights_get(reader->weights, full.text, rows, columns, tensor));
    read_entry(reader, nn_weights_find(reader->weights, full.text));
    return ATTN_OK;
}

attn_status nn_get_optional(struct nn_reader *reader, const char *prefix, const char *name, int64_t rows,
                            int64_t columns, attn_tensor *tensor)
{
    memset(tensor, 0, sizeof *tensor);
    return nn_has(reader, prefix, name) ? nn_get(reader, prefix, name, rows, columns, tensor) : ATTN_OK;
}

attn_status nn_get_norm(struct nn_reader *reader, const char *prefix, const char *name, int64_t n, attn_tensor *gamma,
                        attn_tensor *beta)
{
    struct nn_prefix full;
    CHECK(nn_joined(&full, prefix, name));
    const int old = !nn_has(reader, full.text, ".weight") && nn_has(reader, full.text, ".gamma");
    CHECK(nn_get(reader, full.text, old ? ".gamma" : ".weight", 0, n, gamma));
    return nn_get_optional(reader, full.text, old ? ".beta" : ".bias", 0, n, beta);
}

/** Memory for a copy in a type. */
static attn_status allocate_copy(const attn_tensor *tensor, attn_dtype dtype, void **copy)
{
    const int64_t rows = tensor->shape[2], columns = tensor->shape[3];
    *copy = malloc((size_t)(rows * columns * attn_element_size(dtype)) + 1);
    if (!*copy)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a copy of %" PRId64 " x %" PRId64 " weights could not be allocated", rows,
                         columns);
    return ATTN_OK;
}

attn_status nn_copy_weights(const attn_tensor *tensor, attn_tensor *copy)
{
    const int64_t rows = tensor->shape[2], columns = tensor->shape[3];
    const ptrdiff_t size = attn_element_size(tensor->dtype);
    *copy = attn_matrix(NULL, rows, columns);
    copy->dtype = tensor->dtype;
    if (!tensor->data)
        return ATTN_OK;
    CHECK(allocate_copy(tensor, tensor->dtype, &copy->data));
    const int64_t together = columns <= 1 || tensor->stride[3] == 1 ? columns : 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c += together)
            memcpy((char *)copy->data + (r * columns + c) * size, nn_weight_address(tensor, r, c),
                   (size_t)(together * size));
    return ATTN_OK;
}

attn_status nn_copy_floats(const attn_tensor *tensor, float **copy)
{
    void *floats = NULL;
    *copy = NULL;
    if (!tensor->data)
        return ATTN_OK;
    const int64_t rows = tensor->shape[2], columns = tensor->shape[3];
    CHECK(allocate_copy(tensor, ATTN_F32, &floats));
    *copy = floats;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            (*copy)[r * columns + c] = nn_weight_at(tensor, r, c);
    return ATTN_OK;
}
