/* SPDX-License-Identifier: Apache-2.0 */
/* attn_linear_attention_backward(). */
#include "attn/linear_attention_backward.h"

#include "api/check_linear_attention.h"
#include "api/environment.h"
#include "api/error.h"
#include "api/execute.h"
#include "api/executor.h"
#include "dispatch.h"
#include "driver/linear_backward.h"

#include <stdlib.h>

/** Cuts a checked call for so many threads. */
static void cut(void *context, int threads)
{
    struct attn_linear_backward *call = context;
    const int isa = call->forward.isa;
    const struct attn_kernels kernels = attn_kernels_plain(isa ? isa : attn_environment()->max_isa);
    attn_linear_backward_cut(call, &kernels, threads);
}

/** Checks a request and cuts it for as many threads as can start now. */
static attn_status make(struct attn_linear_backward *call, const attn_tensor *q, const attn_tensor *k,
                        const attn_tensor *v, const attn_tensor *out, const attn_linear_attention_params *params,
                        const attn_linear_attention_gradients *gradients, enum check_depth depth)
{
    CHECK(attn_check_linear_backward(call, q, k, v, out, params, gradients, depth));
    const attn_linear_attention_params *p = &call->forward.params;
    cut(call, attn_threads_now(p->executor, p->num_threads));
    if (call->cut.bytes < 0x1p62)
        return ATTN_OK;
    return attn_fail(ATTN_SIZE_OVERFLOW,
                     "q, k and v have shapes for which %g bytes of memory are kept; expected less than 2^62",
                     call->cut.bytes);
}

attn_status attn_linear_attention_backward_workspace_size(const attn_tensor *q, const attn_tensor *k,
                                                          const attn_tensor *v, const attn_tensor *out,
                                                          const attn_linear_attention_params *params,
                                                          const attn_linear_attention_gradients *gradients,
                                                          size_t *size)
{
    struct attn_linear_backward call;
    if (!size)
        return attn_fail(ATTN_INVALID_ARGUMENT, "size is NULL; expected where to put the number of bytes");
    CHECK(make(&call, q, k, v, out, params, gradients, CHECK_SHAPES));
    *size = attn_run_size(&call.cut.geometry, call.cut.geometry.threads);
    return ATTN_OK;
}

attn_status attn_linear_attention_backward_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                              const attn_tensor *out, const attn_linear_attention_params *params,
                                              const attn_linear_attention_gradients *gradients, void *workspace,
                                              size_t workspace_size)
{
    struct attn_linear_backward call;
    CHECK(make(&call, q, k, v, out, params, gradients, CHECK_ALL));
    const size_t wanted = attn_run_size(&call.cut.geometry, call.cut.geometry.threads);
    const size_t least = attn_run_size(&call.cut.geometry, 1);
    if (!workspace)
        return attn_fail(ATTN_INVALID_ARGUMENT, "workspace is NULL; expected %zu bytes", wanted);
    if (!attn_fit(&call.cut.geometry, workspace_size, cut, &call))
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", workspace_size,
                         least);
    attn_execute(attn_linear_backward_begin(workspace, &call));
    return ATTN_OK;
}

attn_status attn_linear_attention_backward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                           const attn_tensor *out, const attn_linear_attention_params *params,
                                           const attn_linear_attention_gradients *gradients)
{
    struct attn_linear_backward call;
    CHECK(make(&call, q, k, v, out, params, gradients, CHECK_ALL));
    const size_t size = attn_run_size(&call.cut.geometry, call.cut.geometry.threads);
    void *workspace = malloc(size);
    if (!workspace)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", size);
    attn_execute(attn_linear_backward_begin(workspace, &call));
    free(workspace);
    return ATTN_OK;
}
