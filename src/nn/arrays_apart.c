/* SPDX-License-Identifier: Apache-2.0 */
/* Many arrays, and whether they lie apart. */
#include "nn/arrays_apart.h"

#include "nn/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void nn_arrays_add(struct nn_arrays *arrays, const attn_tensor *tensor, const struct nn_array *as)
{
    const struct attn_extent extent = attn_extent_of(tensor);
    if (!tensor->data || extent.end <= extent.start)
        return;
    struct nn_array *array = &arrays->list[arrays->count++];
    *array = *as;
    array->start = extent.start;
    array->end = extent.end;
}

static int compare(const void *a, const void *b)
{
    const struct nn_array *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static struct nn_name name_of(const struct nn_array *array)
{
    char of_layer[32] = "";
    struct nn_name name;
    if (array->layer >= 0)
        snprintf(of_layer, sizeof of_layer, "[%" PRId64 "]", array->layer);
    snprintf(name.text, sizeof name.text, "%s%s%s", array->owner, array->name, of_layer);
    return name;
}

static int is_shared(const struct nn_array *a, const struct nn_array *b)
{
    return a->weights && a->weights == b->weights && a->start == b->start && a->end == b->end;
}

/** Of two arrays, one before the other or NULL, that which reaches further. */
static const struct nn_array *further(const struct nn_array *a, const struct nn_array *b)
{
    return !a || b->end > a->end ? b : a;
}

static attn_status check_pair(const struct nn_array *a, const struct nn_array *b)
{
    if (!a || b->start >= a->end || is_shared(a, b))
        return ATTN_OK;
    const struct nn_array *written = b->written ? b : a, *other = b->written ? a : b;
    return attn_fail(ATTN_INVALID_ARGUMENT, "%s overlaps %s; expected arrays that lie apart", name_of(written).text,
                     name_of(other).text);
}

attn_status nn_arrays_check(struct nn_arrays *arrays)
{
    const struct nn_array *written = NULL, *read = NULL; /* of those before, the ones that reach furthest */
    qsort(arrays->list, (size_t)arrays->count, sizeof *arrays->list, compare);
    for (int64_t i = 0; i < arrays->count; i++) {
        const struct nn_array *array = &arrays->list[i];
        CHECK(check_pair(written, array));
        if (array->written)
            CHECK(check_pair(read, array));
        if (array->written)
            written = further(written, array);
        else
            read = further(read, array);
    }
    return ATTN_OK;
}
