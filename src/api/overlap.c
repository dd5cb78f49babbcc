/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an output lies on an input, or on another output. Comparing the
 * first and last addresses is not enough: queries, keys, values and outputs are
 * often slices of one buffer, whose rows lie between each other's without
 * touching. Where the ranges of addresses are apart, which is the rule, nothing
 * more is done.
 *
 * The rows of a tensor are a lattice: with the axes by falling step, the
 * elements of all later axes together are, in an output, shorter than a step of
 * an earlier one. So an address range meets few places of each axis, and a
 * search down the axes is short. The differences between the rows of two
 * tensors are a lattice too, on the axes of both, those of equal step joined:
 * where slices of one buffer share their steps, one search answers. Where it
 * might take long, there is a search for each row of the input.
 */
#include "api/check.h"

#include "api/error.h"

#include <inttypes.h>

/** More bytes than there are addresses, and few enough that sums of some such spans do not overflow. */
#define MOST_BYTES (INT64_MAX / 8)

/** Places that the search of differences may visit; beyond, rows are searched one by one. */
#define MOST_PLACES 4096

enum { AXES = 4 };

struct axis {
    int64_t step, count; /**< bytes, 1 or more; 2 or more */
    int64_t reach;       /**< bytes that the later axes and a row span */
};

/** Rows of bytes, whose first (lowest) one is at start. */
struct lattice {
    int64_t start;
    int64_t bytes; /**< of a row */
    int num_axes;
    struct axis axes[2 * AXES]; /**< by falling step, all different */
};

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/** Axes whose elements have addresses of their own: channels of ATTN_I4 do not. */
static int axes_of(const attn_tensor *t)
{
    return t->dtype == ATTN_I4 ? AXES - 1 : AXES;
}

/** Bytes of what lies at such an address. */
static int64_t unit_of(const attn_tensor *t)
{
    return t->dtype == ATTN_I4 ? attn_row_bytes(t->dtype, t->shape[3]) : attn_element_size(t->dtype);
}

/* check_strides() has bounded it. */
struct attn_span attn_span_of(const attn_tensor *t)
{
    struct attn_span all = {0, unit_of(t)};
    for (int i = 0; i < axes_of(t); i++) {
        const int64_t span = t->shape[i] > 1 ? attn_bytes_of(t->dtype, (t->shape[i] - 1) * t->stride[i]) : 0;
        all.below += span < 0 ? span : 0;
        all.bytes += span < 0 ? -span : span;
    }
    return all;
}

/** The lowest byte of a tensor that is not empty, and how many bytes it spans. */
static int64_t span_of(const attn_tensor *t, int64_t *start)
{
    const struct attn_span span = attn_span_of(t);
    *start = (int64_t)(intptr_t)t->data + span.below;
    return span.bytes;
}

struct attn_extent attn_extent_of(const attn_tensor *t)
{
    if (!t->data || attn_is_empty(t))
        return (struct attn_extent){INT64_MAX, INT64_MIN};
    int64_t start;
    const int64_t bytes = span_of(t, &start);
    if (bytes > MOST_BYTES) /* attn_check_apart() says so */
        return (struct attn_extent){INT64_MIN, INT64_MAX};
    return (struct attn_extent){start, start + bytes};
}

static void add_axis(struct lattice *rows, int64_t step, int64_t count)
{
    int at = 0;
    while (at < rows->num_axes && rows->axes[at].step > step)
        at++;
    if (at < rows->num_axes && rows->axes[at].step == step) {
        rows->axes[at].count += count - 1;
        return;
    }
    for (int i = rows->num_axes++; i > at; i--)
        rows->axes[i] = rows->axes[i - 1];
    rows->axes[at] = (struct axis){step, count, 0};
}

/** The rows of a tensor that is not empty; those that an axis of stride 0 repeats count once. */
static struct lattice lattice_of(const attn_tensor *t)
{
    struct lattice rows = {.bytes = unit_of(t)};
    span_of(t, &rows.start);
    for (int i = 0; i < axes_of(t); i++) {
        const int64_t step = t->stride[i] < 0 ? -t->stride[i] : t->stride[i];
        if (t->shape[i] <= 1 || step == 0)
            continue;
        if (i == 3 && step == 1)
            rows.bytes = attn_row_bytes(t->dtype, t->shape[i]);
        else
            add_axis(&rows, attn_bytes_of(t->dtype, step), t->shape[i]);
    }
    return rows;
}

/** Fills in reach. */
static void measure(struct lattice *rows)
{
    int64_t reach = rows->bytes;
    for (int i = rows->num_axes - 1; i >= 0; i--) {
        rows->axes[i].reach = reach;
        reach += rows->axes[i].step * (rows->axes[i].count - 1);
    }
}

/** Whether the bytes from x to x + length - 1, counted from the lattice's start, meet a row; axes before i are done. */
static int meets(const struct lattice *rows, int i, int64_t x, int64_t length)
{
    if (i == rows->num_axes)
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

/** What a row of a lies ahead of a row of b, for all pairs of them, from the least on. */
static struct lattice differences_of(const struct lattice *a, const struct lattice *b)
{
    struct lattice differences = *a;
    for (int i = 0; i < b->num_axes; i++) {
        add_axis(&differences, b->axes[i].step, b->axes[i].count);
        differences.start -= b->axes[i].step * (b->axes[i].count - 1);
    }
    measure(&differences);
    return differences;
}

/** Whether a search for a range of so many bytes visits few places, wherever the range is. */
static int is_short_search(const struct lattice *rows, int64_t length)
{
    int64_t places = 1;
    for (int i = 0; i < rows->num_axes && places <= MOST_PLACES; i++) {
        const int64_t met = (rows->axes[i].reach + length) / rows->axes[i].step + 1;
        places *= met < rows->axes[i].count ? met < MOST_PLACES ? met : MOST_PLACES + 1 : rows->axes[i].count;
    }
    return places <= MOST_PLACES;
}

/** Searches a lattice for each row of another, whose axes before i are done. */
static int any_row_meets(const struct lattice *rows, const struct lattice *other, int i, int64_t x)
{
    if (i == other->num_axes)
        return meets(rows, 0, x, other->bytes);
    for (int64_t k = 0; k < other->axes[i].count; k++)
        if (any_row_meets(rows, other, i + 1, x + k * other->axes[i].step))
            return 1;
    return 0;
}

static int lattices_meet(struct lattice *out, const struct lattice *other)
{
    const struct lattice differences = differences_of(out, other);
    if (is_short_search(&differences, other->bytes))
        return meets(&differences, 0, other->start - differences.start, other->bytes);
    measure(out);
    return any_row_meets(out, other, 0, other->start - out->start);
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
    if (attn_is_empty(out) || attn_is_empty(other) || (may_be_same && same_view(out, other)))
        return ATTN_OK;
    int64_t out_start, other_start;
    const int64_t out_bytes = span_of(out, &out_start), other_bytes = span_of(other, &other_start);
    if (out_bytes > MOST_BYTES || other_bytes > MOST_BYTES)
        return attn_fail(ATTN_SIZE_OVERFLOW, "%s spans %" PRId64 " bytes; expected no more than an address space has",
                         out_bytes > MOST_BYTES ? out_name : other_name,
                         out_bytes > MOST_BYTES ? out_bytes : other_bytes);
    if (out_start >= other_start + other_bytes || other_start >= out_start + out_bytes)
        return ATTN_OK;
    struct lattice a = lattice_of(out);
    const struct lattice b = lattice_of(other);
    if (!lattices_meet(&a, &b))
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT, "%s overlaps %s; expected memory of its own%s", out_name, other_name,
                     may_be_same ? ", or the same view" : "");
}
