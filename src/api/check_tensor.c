/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of one tensor: type, sizes, strides, data.
 *
 * Sizes and strides come from outside and may be anything: products are
 * computed with overflow checks, and the furthest byte that a view reaches
 * must be addressable by ptrdiff_t, so that no later product can overflow.
 */
#include "api/check.h"

#include "api/error.h"

#include <inttypes.h>

static attn_status check_sizes(const char *name, const attn_tensor *t)
{
    int64_t elements = (int64_t)attn_dtype_size(t->dtype);
    for (int axis = 0; axis < 4; axis++) {
        if (t->shape[axis] < 0)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s.shape[%d] is %" PRId64 "; expected 0 or more", name, axis,
                             t->shape[axis]);
    }
    for (int axis = 0; axis < 4; axis++) {
        /* A zero elsewhere does not excuse a product that no counter can hold. */
        if (t->shape[axis] > 0 && __builtin_mul_overflow(elements, t->shape[axis], &elements))
            return attn_fail(ATTN_SIZE_OVERFLOW,
                             "%s.shape is %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
                             "; expected fewer than 2^63 bytes in all",
                             name, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    }
    return ATTN_OK;
}

static attn_status check_strides(const char *name, const attn_tensor *t)
{
    const int64_t size = (int64_t)attn_dtype_size(t->dtype);
    int64_t reach = size;
    for (int axis = 0; axis < 4; axis++) {
        int64_t step, span;
        if (t->shape[axis] <= 1)
            continue;
        if (t->stride[axis] == INT64_MIN ||
            __builtin_mul_overflow(t->stride[axis] < 0 ? -t->stride[axis] : t->stride[axis], size, &step) ||
            __builtin_mul_overflow(step, t->shape[axis] - 1, &span) || __builtin_add_overflow(reach, span, &reach))
            return attn_fail(ATTN_SIZE_OVERFLOW,
                             "%s.stride[%d] is %" PRId64 " for %" PRId64
                             " elements; expected a view that spans less than 2^63 bytes",
                             name, axis, t->stride[axis], t->shape[axis]);
    }
    return ATTN_OK;
}

attn_status attn_check_tensor(const char *name, const attn_tensor *t, enum check_depth depth)
{
    if (!t)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected a tensor", name);
    const size_t size = attn_dtype_size(t->dtype);
    if (size == 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.dtype is %d; expected an attn_dtype", name, (int)t->dtype);
    attn_status status = check_sizes(name, t);
    if (status || depth == CHECK_SHAPES)
        return status;
    status = check_strides(name, t);
    if (status)
        return status;
    const int empty = !t->shape[0] || !t->shape[1] || !t->shape[2] || !t->shape[3];
    if (!t->data && !empty)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "%s.data is NULL; expected %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " elements",
                         name, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    if ((uintptr_t)t->data % size)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.data is %p; expected an address aligned to %zu bytes", name,
                         t->data, size);
    return ATTN_OK;
}

attn_status attn_check_contiguous(const char *name, const attn_tensor *t)
{
    if (t->shape[3] > 1 && t->stride[3] != 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.stride[3] is %" PRId64 "; expected 1, as channels are contiguous",
                         name, t->stride[3]);
    return ATTN_OK;
}

attn_status attn_check_distinct(const char *name, const attn_tensor *t)
{
    int64_t reach = 0; /* of the axes that step less than the one in hand */
    int64_t bound = 0;
    for (int round = 0; round < 4; round++) {
        int next = -1;
        int64_t smallest = INT64_MAX;
        for (int axis = 0; axis < 4; axis++) { /* the smallest step that is not done yet, ties by axis */
            const int64_t step = t->stride[axis] < 0 ? -t->stride[axis] : t->stride[axis];
            const int64_t key = step;
            if (t->shape[axis] > 1 && key >= bound && key < smallest) {
                smallest = key;
                next = axis;
            }
        }
        if (next < 0)
            break;
        for (int axis = 0; axis < 4; axis++) {
            const int64_t step = t->stride[axis] < 0 ? -t->stride[axis] : t->stride[axis];
            if (t->shape[axis] > 1 && step == smallest && (axis != next || step <= reach))
                return attn_fail(ATTN_INVALID_ARGUMENT,
                                 "%s.stride[%d] is %" PRId64 "; expected an output whose elements do not overlap", name,
                                 axis, t->stride[axis]);
        }
        reach += smallest * (t->shape[next] - 1);
        bound = smallest + 1;
    }
    return ATTN_OK;
}
