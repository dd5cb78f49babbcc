/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values rounded to 8 or 4 bits: the checks of attn_quantise(), in the order of its arguments. */
#include "attn/quantise.h"

#include "api/check_internal.h"
#include "api/environment.h"
#include "api/error.h"
#include "dispatch.h"

static attn_status check_x(const attn_tensor *x)
{
    CHECK(attn_check_tensor("x", x, CHECK_ALL));
    CHECK(attn_check_float("x", x->dtype));
    return attn_check_contiguous("x", x);
}

/** An output that has the first axes of x, and so many channels. */
static attn_status check_output(const char *name, const attn_tensor *t, const attn_tensor *x, int64_t channels,
                                const char *meaning)
{
    static const char *const axes[] = {"the batch of x", "the heads of x", "the tokens of x"};
    for (int axis = 0; axis < 3; axis++)
        CHECK(attn_check_axis(name, t, axis, x->shape[axis], axes[axis]));
    CHECK(attn_check_axis(name, t, 3, channels, meaning));
    CHECK(attn_check_distinct(name, t));
    return attn_check_apart(name, t, "x", x, 0);
}

static attn_status check_out(const attn_tensor *out, const attn_tensor *x)
{
    CHECK(attn_check_tensor("out", out, CHECK_ALL));
    if (!attn_is_quantised(out->dtype))
        return attn_fail(ATTN_UNSUPPORTED, "out.dtype is %s; expected i8, f8_e4m3 or i4", attn_dtype_name(out->dtype));
    CHECK(attn_check_contiguous("out", out));
    CHECK(attn_check_groups("out", out));
    return check_output("out", out, x, x->shape[3], "the channels of x");
}

attn_status attn_quantise(const attn_tensor *x, const attn_tensor *out, const attn_tensor *scale, int num_threads)
{
    CHECK(check_x(x));
    CHECK(check_out(out, x));
    CHECK(attn_check_tensor("scale", scale, CHECK_ALL));
    CHECK(attn_check_f32("scale", scale->dtype));
    CHECK(check_output("scale", scale, x, attn_row_scales(out->dtype, x->shape[3]), attn_scales_meaning(out->dtype)));
    if (out->dtype == ATTN_I4)
        CHECK(attn_check_contiguous("scale", scale));
    CHECK(attn_check_apart("scale", scale, "out", out, 0));
    if (num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_threads is %d; expected 0 or more", num_threads);
    const struct attn_kernels kernels = attn_kernels_plain(attn_environment()->max_isa);
    attn_run_quantise(&kernels, x, out, scale, num_threads ? num_threads : attn_default_num_threads());
    return ATTN_OK;
}
