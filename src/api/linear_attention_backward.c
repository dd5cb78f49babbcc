/* SPDX-License-Identifier: Apache-2.0 */
/* attn_linear_attention_backward(): the simple call, and plans. */
#include "attn/linear_attention_backward.h"

#include "api/check_linear_attention.h"
#include "api/describe.h"
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

/** Cuts it, and refuses what no memory can hold. */
static attn_status cut_checked(struct attn_linear_backward *call, int threads)
{
    cut(call, threads);
    if (call->cut.bytes < 0x1p62)
        return ATTN_OK;
    return attn_fail(ATTN_SIZE_OVERFLOW,
                     "q, k and v have shapes for which %g bytes of memory are kept; expected less than 2^62",
                     call->cut.bytes);
}

/** Checks a request and cuts it for as many threads as can start now. */
static attn_status make(struct attn_linear_backward *call, const attn_tensor *q, const attn_tensor *k,
                        const attn_tensor *v, const attn_tensor *out, const attn_linear_attention_params *params,
                        const attn_linear_attention_gradients *gradients, enum check_depth depth)
{
    CHECK(attn_check_linear_backward(call, q, k, v, out, params, gradients, depth));
    const attn_linear_attention_params *p = &call->forward.params;
    return cut_checked(call, attn_threads_now(p->executor, p->num_threads));
}

/* ---------------------------------------------------------- the simple call -- */

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

/* ------------------------------------------------------------------- plans -- */

struct attn_linear_attention_backward_plan {
    struct attn_linear_backward call; /**< shapes, options and geometry; its pointers are only compared with NULL */
};

attn_status attn_linear_attention_backward_plan_create(attn_linear_attention_backward_plan **plan, const attn_tensor *q,
                                                       const attn_tensor *k, const attn_tensor *v,
                                                       const attn_tensor *out,
                                                       const attn_linear_attention_params *params,
                                                       const attn_linear_attention_gradients *gradients)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL; expected the address of a pointer");
    *plan = NULL;
    struct attn_linear_backward call;
    CHECK(attn_check_linear_backward(&call, q, k, v, out, params, gradients, CHECK_SHAPES));
    const attn_linear_attention_params *p = &call.forward.params;
    CHECK(cut_checked(&call, attn_threads_asked(p->executor, p->num_threads)));
    struct attn_linear_attention_backward_plan *made = malloc(sizeof *made);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a plan of %zu bytes", sizeof *made);
    made->call = call;
    *plan = made;
    return ATTN_OK;
}

void attn_linear_attention_backward_plan_destroy(attn_linear_attention_backward_plan *plan)
{
    free(plan);
}

int attn_linear_attention_backward_plan_num_threads(const attn_linear_attention_backward_plan *plan)
{
    return plan ? plan->call.cut.geometry.threads : 0;
}

int attn_linear_attention_backward_plan_num_phases(const attn_linear_attention_backward_plan *plan)
{
    return plan ? plan->call.cut.geometry.num_phases : 0;
}

size_t attn_linear_attention_backward_plan_workspace_size(const attn_linear_attention_backward_plan *plan)
{
    return plan ? attn_run_size(&plan->call.cut.geometry, plan->call.cut.geometry.threads) : SIZE_MAX;
}

size_t attn_linear_attention_backward_plan_describe(const attn_linear_attention_backward_plan *plan, char *buffer,
                                                    size_t size)
{
    if (!buffer)
        size = 0;
    if (plan)
        return attn_describe_linear_backward(&plan->call, buffer, size);
    if (size > 0)
        buffer[0] = '\0';
    return 0;
}

/** Checks a run against its plan and fills call, cut as the plan is. */
static attn_status begin(const attn_linear_attention_backward_plan *plan, const attn_tensor *q, const attn_tensor *k,
                         const attn_tensor *v, const attn_tensor *out, const attn_linear_attention_params *params,
                         const attn_linear_attention_gradients *gradients, const void *workspace, size_t size,
                         enum check_depth depth, struct attn_linear_backward *call)
{
    CHECK(attn_check_plan(plan, "attn_linear_attention_backward_plan"));
    const size_t needed = attn_linear_attention_backward_plan_workspace_size(plan);
    CHECK(attn_check_linear_backward(call, q, k, v, out, params, gradients, depth));
    CHECK(attn_check_planned_linear_backward(call, &plan->call));
    CHECK(attn_check_plan_workspace(workspace, size, needed));
    call->cut = plan->call.cut;
    return ATTN_OK;
}

attn_status attn_linear_attention_backward_plan_run(const attn_linear_attention_backward_plan *plan,
                                                    const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                                    const attn_tensor *out, const attn_linear_attention_params *params,
                                                    const attn_linear_attention_gradients *gradients, void *workspace,
                                                    size_t workspace_size)
{
    struct attn_linear_backward call;
    CHECK(begin(plan, q, k, v, out, params, gradients, workspace, workspace_size, CHECK_ALL, &call));
    attn_execute(attn_linear_backward_begin(workspace, &call));
    return ATTN_OK;
}

attn_status attn_linear_attention_backward_plan_begin(const attn_linear_attention_backward_plan *plan,
                                                      const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                                      const attn_tensor *out,
                                                      const attn_linear_attention_params *params,
                                                      const attn_linear_attention_gradients *gradients, void *workspace,
                                                      size_t workspace_size)
{
    struct attn_linear_backward call;
    CHECK(begin(plan, q, k, v, out, params, gradients, workspace, workspace_size, CHECK_ALONE, &call));
    struct attn_run *run = attn_linear_backward_begin(workspace, &call);
    attn_linear_backward_keep(run);
    run->owner = plan;
    return ATTN_OK;
}

attn_status attn_linear_attention_backward_plan_run_share(const attn_linear_attention_backward_plan *plan,
                                                          void *workspace, int phase, int ith, int nth)
{
    return attn_run_checked_share(plan, "attn_linear_attention_backward_plan", workspace, phase, ith, nth);
}
