/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_merge(): checks of its arguments, and the choice of kernel and threads.
 */
#include "api/check_internal.h"
#include "api/environment.h"
#include "api/error.h"
#include "cpu/cancellation.h"
#include "dispatch.h"

#include <inttypes.h>
#include <stdio.h>

/** Names a tensor of an array, "parts[3]". */
struct name {
    char text[48];
};

static struct name name_of(const char *array, int64_t n)
{
    struct name name;
    snprintf(name.text, sizeof name.text, "%s[%" PRId64 "]", array, n);
    return name;
}

static attn_status check_values(const char *name, const attn_tensor *t)
{
    const attn_status status = attn_check_tensor(name, t, CHECK_ALL);
    if (status)
        return status;
    if (t->dtype != ATTN_F32 && t->dtype != ATTN_BF16 && t->dtype != ATTN_F16)
        return attn_fail(ATTN_UNSUPPORTED, "%s.dtype is %s; expected f32, bf16 or f16", name,
                         attn_dtype_name(t->dtype));
    return attn_check_contiguous(name, t);
}

/** Shape and type of lse or lses[n], for an out whose shape has been checked. */
static attn_status check_lse(const char *name, const attn_tensor *t, const attn_tensor *out)
{
    const attn_status status = attn_check_tensor(name, t, CHECK_ALL);
    if (status)
        return status;
    if (t->dtype != ATTN_F32)
        return attn_fail(ATTN_UNSUPPORTED, "%s.dtype is %s; expected f32", name, attn_dtype_name(t->dtype));
    for (int axis = 0; axis < 4; axis++)
        CHECK(attn_check_axis(name, t, axis, axis < 3 ? out->shape[axis] : 1,
                              axis < 3 ? "that of out" : "a number for each query"));
    return ATTN_OK;
}

static attn_status check_outputs(const struct attn_merge_work *p)
{
    attn_status status = check_values("out", p->out);
    if (!status)
        status = attn_check_distinct("out", p->out);
    if (!status && p->lse)
        status = check_lse("lse", p->lse, p->out);
    if (!status && p->lse)
        status = attn_check_distinct("lse", p->lse);
    if (!status && p->lse)
        status = attn_check_apart("lse", p->lse, "out", p->out, 0);
    return status;
}

static attn_status check_part(const struct attn_merge_work *p, int64_t n)
{
    const struct name part = name_of("parts", n), lse = name_of("lses", n);
    const attn_tensor *t = &p->parts[n];
    attn_status status = check_values(part.text, t);
    for (int axis = 0; axis < 4 && !status; axis++)
        status = attn_check_axis(part.text, t, axis, p->out->shape[axis], "that of out");
    if (!status)
        status = check_lse(lse.text, &p->lses[n], p->out);
    if (!status)
        status = attn_check_apart("out", p->out, part.text, t, 1);
    if (!status)
        status = attn_check_apart("out", p->out, lse.text, &p->lses[n], 0);
    if (!status && p->lse)
        status = attn_check_apart("lse", p->lse, part.text, t, 0);
    if (!status && p->lse)
        status = attn_check_apart("lse", p->lse, lse.text, &p->lses[n], 1);
    return status;
}

static attn_status check_merge(const struct attn_merge_work *p, int num_threads)
{
    if (p->num_parts < 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_parts is %" PRId64 "; expected 1 or more", p->num_parts);
    if (!p->parts)
        return attn_fail(ATTN_INVALID_ARGUMENT, "parts is NULL; expected %" PRId64 " tensors", p->num_parts);
    if (!p->lses)
        return attn_fail(ATTN_INVALID_ARGUMENT, "lses is NULL; expected %" PRId64 " tensors", p->num_parts);
    if (!p->out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "out is NULL; expected a tensor");
    if (num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_threads is %d; expected 0 or more", num_threads);
    attn_status status = check_outputs(p);
    for (int64_t n = 0; n < p->num_parts && !status; n++)
        status = check_part(p, n);
    return status;
}

attn_status attn_merge(int64_t num_parts, const attn_tensor *parts, const attn_tensor *lses, const attn_tensor *out,
                       const attn_tensor *lse, int num_threads)
{
    struct attn_merge_work merge = {num_parts, parts, lses, out, lse, 0, 0};
    const attn_status status = check_merge(&merge, num_threads);
    if (status)
        return status;
    if (attn_is_empty(out) && (!lse || attn_is_empty(lse)))
        return ATTN_OK;
    merge.num_rows = out->shape[0] * out->shape[1] * out->shape[2];
    const struct attn_kernels kernels = attn_kernels_plain(attn_environment()->max_isa);
    if (attn_environment()->verbose) {
        ATTN_UNCANCELLED;
        fprintf(stderr,
                "attn: merge of %" PRId64 " parts out=%s B=%" PRId64 " H=%" PRId64 " T=%" PRId64 " dv=%" PRId64
                ": %s kernel\n",
                num_parts, attn_dtype_name(out->dtype), out->shape[0], out->shape[1], out->shape[2], out->shape[3],
                kernels.isa);
    }
    attn_run_merge(&kernels, &merge, num_threads ? num_threads : attn_default_num_threads());
    return ATTN_OK;
}
