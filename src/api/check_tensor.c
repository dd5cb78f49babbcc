/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of one tensor: type, sizes, strides, data; and of the size of an array.
 *
 * Sizes and strides come from outside and may be anything: products are
 * computed with overflow checks, and the furthest byte that a view reaches
 * must be addressable by ptrdiff_t, so that no later product can overflow.
 */
#include "api/check_internal.h"

#include "api/error.h"

#include <inttypes.h>

/**
 * Whether no product of the sizes, and none with a stride, can be too large, seen at a glance, as in a call of a
 * microsecond: sizes below 2^15, and strides below 2^31 either way.
 */
static int is_small(const attn_tensor *t)
{
    uint64_t sizes = 0, strides = 0;
    for (int axis = 0; axis < 4; axis++) {
        sizes |= (uint64_t)t->shape[axis];
        strides |= (uint64_t)t->stride[axis] + ((uint64_t)1 << 31);
    }
    return sizes >> 15 == 0 && strides >> 32 == 0;
}

static attn_status check_sizes(const char *name, const attn_tensor *t)
{
    int64_t elements = attn_element_size(t->dtype);
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

/** Distance of neighbours along an axis, in elements; check_strides() has made sure that it can be negated. */
static int64_t step_of(const attn_tensor *t, int axis)
{
    return t->stride[axis] < 0 ? -t->stride[axis] : t->stride[axis];
}

static attn_status check_strides(const char *name, const attn_tensor *t)
{
    const int64_t size = attn_element_size(t->dtype);
    int64_t reach = size;
    for (int axis = 0; axis < 4; axis++) {
        int64_t step, span;
        if (t->shape[axis] <= 1)
            continue;
        if (t->stride[axis] == INT64_MIN || __builtin_mul_overflow(step_of(t, axis), size, &step) ||
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
    if ((unsigned)t->dtype > ATTN_I4)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.dtype is %d; expected an attn_dtype", name, (int)t->dtype);
    const int small = is_small(t);
    if (!small)
        CHECK(check_sizes(name, t));
    if (!(depth & CHECK_TENSORS) || attn_is_empty(t))
        return ATTN_OK;
    if (!small)
        CHECK(check_strides(name, t));
    if (!t->data)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "%s.data is NULL; expected %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " elements",
                         name, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    const ptrdiff_t size = attn_element_size(t->dtype);
    if ((uintptr_t)t->data & (uintptr_t)(size - 1))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.data is %p; expected an address aligned to %td bytes", name,
                         t->data, size);
    return ATTN_OK;
}

attn_status attn_check_float(const char *name, attn_dtype dtype)
{
    if (dtype != ATTN_F32 && dtype != ATTN_BF16 && dtype != ATTN_F16)
        return attn_fail(ATTN_UNSUPPORTED, "%s.dtype is %s; expected f32, bf16 or f16", name, attn_dtype_name(dtype));
    return ATTN_OK;
}

attn_status attn_check_f32(const char *name, attn_dtype dtype)
{
    if (dtype != ATTN_F32)
        return attn_fail(ATTN_UNSUPPORTED, "%s.dtype is %s; expected f32, the only type of this tensor", name,
                         attn_dtype_name(dtype));
    return ATTN_OK;
}

attn_status attn_fail_axis(const char *name, const attn_tensor *t, int axis, int64_t expected, const char *meaning)
{
    return attn_fail(ATTN_SHAPE_MISMATCH, "%s.shape[%d] is %" PRId64 "; expected %" PRId64 ", %s", name, axis,
                     t->shape[axis], expected, meaning);
}

attn_status attn_check_one_or(const char *name, const attn_tensor *t, int axis, int64_t expected)
{
    if (t->shape[axis] != 1 && t->shape[axis] != expected)
        return attn_fail(ATTN_SHAPE_MISMATCH, "%s.shape[%d] is %" PRId64 "; expected 1 or %" PRId64, name, axis,
                         t->shape[axis], expected);
    return ATTN_OK;
}

attn_status attn_check_count(const char *name, size_t size, int64_t n0, int64_t n1, int64_t n2)
{
    const int64_t counts[] = {n0, n1, n2};
    int64_t bytes = (int64_t)size;
    int overflow = 0;
    for (int i = 0; i < 3; i++) /* as with tensors, a zero excuses nothing */
        overflow = overflow || (counts[i] > 0 && __builtin_mul_overflow(bytes, counts[i], &bytes));
    if (overflow || bytes > INT64_MAX - (int64_t)size)
        return attn_fail(ATTN_SIZE_OVERFLOW,
                         "%s has %" PRId64 " x %" PRId64 " x %" PRId64
                         " entries of %zu bytes; expected fewer than 2^63 bytes in all",
                         name, n0, n1, n2, size);
    return ATTN_OK;
}

static int is_contiguous(const attn_tensor *t)
{
    return t->shape[3] <= 1 || t->stride[3] == 1 || attn_is_empty(t);
}

attn_status attn_check_contiguous(const char *name, const attn_tensor *t)
{
    if (!is_contiguous(t))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.stride[3] is %" PRId64 "; expected 1, as channels are contiguous",
                         name, t->stride[3]);
    return ATTN_OK;
}

attn_status attn_check_groups(const char *name, const attn_tensor *t)
{
    if (t->dtype != ATTN_I4 || attn_is_empty(t))
        return ATTN_OK;
    for (int axis = 0; axis < 3; axis++)
        if (t->shape[axis] > 1 && t->stride[axis] % ATTN_I4_GROUP != 0)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "%s.stride[%d] is %" PRId64
                             "; expected a multiple of %d, as rows of i4 begin with a group",
                             name, axis, t->stride[axis], ATTN_I4_GROUP);
    return ATTN_OK;
}

/** The axes of more than one element, by rising stride. Returns how many there are. */
static int stepping_axes(const attn_tensor *t, int axes[4])
{
    int count = 0;
    for (int axis = 0; axis < 4; axis++) {
        if (t->shape[axis] <= 1)
            continue;
        int at = count++;
        for (; at > 0 && step_of(t, axes[at - 1]) > step_of(t, axis); at--)
            axes[at] = axes[at - 1];
        axes[at] = axis;
    }
    return count;
}

/** The axis along which elements lie on others, or -1. */
static int overlapping_axis(const attn_tensor *t)
{
    int axes[4];
    if (attn_is_empty(t))
        return -1;
    const int count = stepping_axes(t, axes);
    int64_t reach = 0; /* how far the axes of smaller stride go */
    for (int i = 0; i < count; i++) {
        if (step_of(t, axes[i]) <= reach)
            return axes[i];
        reach += step_of(t, axes[i]) * (t->shape[axes[i]] - 1);
    }
    return -1;
}

attn_status attn_check_distinct(const char *name, const attn_tensor *t)
{
    const int axis = overlapping_axis(t);
    if (axis < 0)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT,
                     "%s.stride[%d] is %" PRId64 "; expected an output whose elements do not overlap", name, axis,
                     t->stride[axis]);
}

int attn_is_sound(const attn_tensor *t, int written)
{
    return is_small(t) && !attn_is_empty(t) && is_contiguous(t) && (!written || overlapping_axis(t) < 0);
}
