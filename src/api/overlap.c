/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an output lies on an input. Comparing the first and last addresses
 * is not enough: parts of one computation are usually slices of one tensor,
 * whose rows lie between each other's without touching.
 *
 * The rows of an output, which are known not to overlap each other, are a
 * lattice: with the axes by falling stride, the elements of all later axes
 * together are shorter than a step of an earlier one. So an address range
 * meets few places of each axis, and a search down the axes is short. Where
 * the input has the output's strides, the differences of their rows are such a
 * lattice too and one search answers; otherwise there is one for each row of
 * the input.
 */
#include "api/check.h"

#include "api/error.h"

#include <inttypes.h>

/** More bytes than there are addresses, and few enough that sums of some such spans do not overflow. */
#define MOST_BYTES (INT64_MAX / 8)

enum { AXES = 3 };

struct axis {
    int64_t step, count; /**< bytes, 1 or more */
    int64_t reach;       /**< bytes that the later axes and a row span */
};

/** Rows of bytes, whose first (lowest) one is at start. */
struct lattice {
    int64_t start;
    int64_t bytes;          /**< of a row */
    struct axis axes[AXES]; /**< by falling step; those that do not step have a count of 1 */
};

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/** The rows of a tensor without empty axes; those that an axis of stride 0 repeats count once. */
static struct lattice lattice_of(const attn_tensor *t)
{
    const int64_t size = (int64_t)attn_dtype_size(t->dtype);
    struct lattice rows = {.start = (int64_t)(intptr_t)t->data, .bytes = t->shape[3] * size};
    for (int i = 0; i < AXES; i++) {
        struct axis axis = {1, 1, 0};
        if (t->shape[i] > 1 && t->stride[i] != 0)
            axis = (struct axis){t->stride[i] * size, t->shape[i], 0};
        if (axis.step < 0) {
            rows.start += axis.step * (axis.count - 1);
            axis.step = -axis.step;
        }
        int at = i;
        for (; at > 0 && rows.axes[at - 1].step < axis.step; at--)
            rows.axes[at] = rows.axes[at - 1];
        rows.axes[at] = axis;
    }
    return rows;
}

/** Fills in reach; returns the bytes from the first row to the end of the last. */
static int64_t measure(struct lattice *rows)
{
    int64_t reach = rows->bytes;
    for (int i = AXES - 1; i >= 0; i--) {
        rows->axes[i].reach = reach;
        reach += rows->axes[i].step * (rows->axes[i].count - 1);
    }
    return reach;
}

/** Whether the bytes from x to x + length - 1, counted from the lattice's start, meet a row; axes before i are done. */
static int meets(const struct lattice *rows, int i, int64_t x, int64_t length)
{
    if (i == AXES)
        return x < rows->bytes && x + length > 0;
    const struct axis *axis = &rows->axes[i];
    int64_t first = floor_div(x - axis->reach, axis->step) + 1, last = floor_div(x + length - 1, axis->step);
    first = first < 0 ? 0 : first;
    last = last > axis->count - 1 ? axis->count - 1 : last;
    for (int64_t k = first; k <= last; k++)
        if (meets(rows, i + 1, x - k * axis->step, length))
            return 1;
    return 0;
}

static int same_axes(const struct lattice *a, const struct lattice *b)
{
    for (int i = 0; i < AXES; i++)
        if (a->axes[i].step != b->axes[i].step || a->axes[i].count != b->axes[i].count)
            return 0;
    return 1;
}

/** For lattices of the same axes: whether a row of the one meets a row of the other. */
static int same_axes_meet(const struct lattice *a, const struct lattice *b)
{
    struct lattice differences = *a; /* a row of a less how far any row of b is from its first, from the least on */
    for (int i = 0; i < AXES; i++) {
        differences.start -= a->axes[i].step * (a->axes[i].count - 1);
        differences.axes[i].count = 2 * a->axes[i].count - 1;
    }
    measure(&differences);
    return meets(&differences, 0, b->start - differences.start, b->bytes);
}

static int any_row_meets(const struct lattice *rows, const struct lattice *other)
{
    const struct axis *axes = other->axes;
    const int64_t x = other->start - rows->start;
    for (int64_t i = 0; i < axes[0].count; i++)
        for (int64_t j = 0; j < axes[1].count; j++)
            for (int64_t k = 0; k < axes[2].count; k++)
                if (meets(rows, 0, x + i * axes[0].step + j * axes[1].step + k * axes[2].step, other->bytes))
                    return 1;
    return 0;
}

static int is_empty(const attn_tensor *t)
{
    return !t->shape[0] || !t->shape[1] || !t->shape[2] || !t->shape[3];
}

/** Whether two views have the same type, the same shape and each element at the same address. */
static int same_view(const attn_tensor *a, const attn_tensor *b)
{
    if (a->data != b->data || a->dtype != b->dtype)
        return 0;
    for (int axis = 0; axis < 4; axis++)
        if (a->shape[axis] != b->shape[axis] || (a->shape[axis] > 1 && a->stride[axis] != b->stride[axis]))
            return 0;
    return 1;
}

attn_status attn_check_apart(const char *out_name, const attn_tensor *out, const char *other_name,
                             const attn_tensor *other, int may_be_same)
{
    if (is_empty(out) || is_empty(other) || (may_be_same && same_view(out, other)))
        return ATTN_OK;
    struct lattice a = lattice_of(out), b = lattice_of(other);
    const int64_t a_bytes = measure(&a), b_bytes = measure(&b);
    if (a_bytes > MOST_BYTES || b_bytes > MOST_BYTES)
        return attn_fail(ATTN_SIZE_OVERFLOW, "%s spans %" PRId64 " bytes; expected no more than an address space has",
                         a_bytes > MOST_BYTES ? out_name : other_name, a_bytes > MOST_BYTES ? a_bytes : b_bytes);
    if (a.start >= b.start + b_bytes || b.start >= a.start + a_bytes)
        return ATTN_OK;
    if (same_axes(&a, &b) ? !same_axes_meet(&a, &b) : !any_row_meets(&a, &b))
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT, "%s overlaps %s; expected memory of its own%s", out_name, other_name,
                     may_be_same ? ", or the same view" : "");
}
