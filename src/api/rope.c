/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotation of a tensor by a table: the checks of attn_rope(), in the order of
 * its arguments.
 */
#include "attn/rope.h"

#include "api/check.h"
#include "api/environment.h"
#include "api/error.h"
#include "dispatch.h"

#include <inttypes.h>

static attn_status check_x(const attn_tensor *x)
{
    CHECK(attn_check_tensor("x", x, CHECK_ALL));
    if (x->dtype != ATTN_F32 && x->dtype != ATTN_BF16 && x->dtype != ATTN_F16)
        return attn_fail(ATTN_UNSUPPORTED, "x.dtype is %s; expected f32, bf16 or f16", attn_dtype_name(x->dtype));
    return attn_check_contiguous("x", x);
}

static attn_status check_table(const attn_tensor *table, const attn_tensor *x)
{
    static const char *const axes[] = {"batch", "heads"};
    CHECK(attn_check_tensor("table", table, CHECK_ALL));
    if (table->dtype != ATTN_F32)
        return attn_fail(ATTN_UNSUPPORTED, "table.dtype is %s; expected f32", attn_dtype_name(table->dtype));
    for (int axis = 0; axis < 2; axis++)
        if (table->shape[axis] != 1 && table->shape[axis] != x->shape[axis])
            return attn_fail(ATTN_SHAPE_MISMATCH,
                             "table.shape[%d] is %" PRId64 "; expected 1 or %" PRId64 ", the %s of x", axis,
                             table->shape[axis], x->shape[axis], axes[axis]);
    if (table->shape[2] != x->shape[2])
        return attn_fail(ATTN_SHAPE_MISMATCH, "table.shape[2] is %" PRId64 "; expected %" PRId64 ", the tokens of x",
                         table->shape[2], x->shape[2]);
    if (table->shape[3] % 2 != 0 || table->shape[3] > x->shape[3])
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "table.shape[3] is %" PRId64 "; expected an even number up to %" PRId64 ", the head size of x",
                         table->shape[3], x->shape[3]);
    return attn_check_contiguous("table", table);
}

static attn_status check_out(const attn_tensor *out, const attn_tensor *x, const attn_tensor *table)
{
    CHECK(attn_check_tensor("out", out, CHECK_ALL));
    if (out->dtype != x->dtype)
        return attn_fail(ATTN_UNSUPPORTED, "out.dtype is %s; expected %s, the type of x", attn_dtype_name(out->dtype),
                         attn_dtype_name(x->dtype));
    for (int axis = 0; axis < 4; axis++)
        if (out->shape[axis] != x->shape[axis])
            return attn_fail(ATTN_SHAPE_MISMATCH, "out.shape[%d] is %" PRId64 "; expected %" PRId64 ", as of x", axis,
                             out->shape[axis], x->shape[axis]);
    CHECK(attn_check_contiguous("out", out));
    CHECK(attn_check_distinct("out", out));
    CHECK(attn_check_apart("out", out, "x", x, 1));
    return attn_check_apart("out", out, "table", table, 0);
}

attn_status attn_rope(const attn_tensor *x, const attn_tensor *table, attn_rope_layout layout, const attn_tensor *out,
                      int num_threads)
{
    CHECK(check_x(x));
    CHECK(check_table(table, x));
    if ((unsigned)layout > ATTN_ROPE_INTERLEAVED)
        return attn_fail(ATTN_INVALID_ARGUMENT, "layout is %d; expected an attn_rope_layout", (int)layout);
    CHECK(check_out(out, x, table));
    if (num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_threads is %d; expected 0 or more", num_threads);
    const struct attn_kernels kernels = attn_kernels_plain(attn_environment()->max_isa);
    attn_rotate(&kernels, x, table, layout, out, num_threads ? num_threads : attn_default_num_threads());
    return ATTN_OK;
}
