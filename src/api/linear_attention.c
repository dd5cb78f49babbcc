/* SPDX-License-Identifier: Apache-2.0 */
/* attn_linear_attention(): the simple call, and plans. */
#include "attn/linear_attention.h"

#include "api/check_linear_attention.h"
#include "api/describe.h"
#include "api/environment.h"
#include "api/error.h"
#include "api/execute.h"
#include "api/executor.h"
#include "dispatch.h"

#include <stdlib.h>

/** Cuts a checked call for so many threads. */
static void cut(void *context, int threads)
{
    struct attn_linear_attention *call = context;
    const struct attn_kernels kernels = attn_kernels_plain(call->isa ? call->isa : attn_environment()->max_isa);
    attn_linear_attention_cut(call, &kernels, threads);
}

/** For as many as can start now. */
static void cut_now(struct attn_linear_attention *call)
{
    const attn_linear_attention_params *p = &call->params;
    cut(call, attn_threads_now(p->executor, p->num_threads));
}

/* ---------------------------------------------------------- the simple call -- */

attn_status attn_linear_attention_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                                 const attn_tensor *out, const attn_linear_attention_params *params,
                                                 size_t *size)
{
    struct attn_linear_attention call;
    if (!size)
        return attn_fail(ATTN_INVALID_ARGUMENT, "size is NULL; expected where to put the number of bytes");
    CHECK(attn_check_linear_attention(&call, q, k, v, out, params, 0, CHECK_SHAPES));
    cut_now(&call);
    *size = attn_run_size(&call.cut.geometry, call.cut.geometry.threads);
    return ATTN_OK;
}

attn_status attn_linear_attention_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                     const attn_tensor *out, const attn_linear_attention_params *params,
                                     void *workspace, size_t workspace_size)
{
    struct attn_linear_attention call;
    CHECK(attn_check_linear_attention(&call, q, k, v, out, params, 0, CHECK_ALL));
    cut_now(&call);
    const size_t wanted = attn_run_size(&call.cut.geometry, call.cut.geometry.threads);
    const size_t least = attn_run_size(&call.cut.geometry, 1);
    if (!workspace)
        return attn_fail(ATTN_INVALID_ARGUMENT, "workspace is NULL; expected %zu bytes", wanted);
    if (!attn_fit(&call.cut.geometry, workspace_size, cut, &call))
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", workspace_size,
                         least);
    attn_execute(attn_linear_attention_begin(workspace, &call));
    return ATTN_OK;
}

attn_status attn_linear_attention(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                  const attn_tensor *out, const attn_linear_attention_params *params)
{
    struct attn_linear_attention call;
    CHECK(attn_check_linear_attention(&call, q, k, v, out, params, 0, CHECK_ALL));
    cut_now(&call);
    const size_t size = attn_run_size(&call.cut.geometry, call.cut.geometry.threads);
    void *workspace = malloc(size);
    if (!workspace)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", size);
    attn_execute(attn_linear_attention_begin(workspace, &call));
    free(workspace);
    return ATTN_OK;
}

/* ------------------------------------------------------------------- plans -- */

struct attn_linear_attention_plan {
    struct attn_linear_attention call; /**< shapes, options and geometry; its pointers are only compared with NULL */
};

attn_status attn_linear_attention_plan_create(attn_linear_attention_plan **plan, const attn_tensor *q,
                                              const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                                              const attn_linear_attention_params *params)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL; expected the address of a pointer");
    *plan = NULL;
    struct attn_linear_attention call;
    CHECK(attn_check_linear_attention(&call, q, k, v, out, params, 0, CHECK_SHAPES));
    struct attn_linear_attention_plan *made = malloc(sizeof *made);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a plan of %zu bytes", sizeof *made);
    cut(&call, attn_threads_asked(call.params.executor, call.params.num_threads));
    made->call = call;
    *plan = made;
    return ATTN_OK;
}

void attn_linear_attention_plan_destroy(attn_linear_attention_plan *plan)
{
    free(plan);
}

int attn_linear_attention_plan_num_threads(const attn_linear_attention_plan *plan)
{
    return plan ? plan->call.cut.geometry.threads : 0;
}

int attn_linear_attention_plan_num_phases(const attn_linear_attention_plan *plan)
{
    return plan ? plan->call.cut.geometry.num_phases : 0;
}

size_t attn_linear_attention_plan_workspace_size(const attn_linear_attention_plan *plan)
{
    return plan ? attn_run_size(&plan->call.cut.geometry, plan->call.cut.geometry.threads) : SIZE_MAX;
}

attn_status attn_linear_attention_plan_progress(const attn_linear_attention_plan *plan, const void *workspace,
                                                size_t workspace_size, int64_t *begun, int64_t *tasks)
{
    return attn_run_checked_progress(plan ? &plan->call.cut.geometry : NULL,
                                     attn_linear_attention_plan_workspace_size(plan), workspace, workspace_size, begun,
                                     tasks);
}

size_t attn_linear_attention_plan_describe(const attn_linear_attention_plan *plan, char *buffer, size_t size)
{
    if (!buffer)
        size = 0;
    if (plan)
        return attn_describe_linear_attention(&plan->call, buffer, size);
    if (size > 0)
        buffer[0] = '\0';
    return 0;
}

/** Checks a run against its plan and fills call, cut as the plan is. */
static attn_status begin(const attn_linear_attention_plan *plan, const attn_tensor *q, const attn_tensor *k,
                         const attn_tensor *v, const attn_tensor *out, const attn_linear_attention_params *params,
                         const void *workspace, size_t size, enum check_depth depth, struct attn_linear_attention *call)
{
    CHECK(attn_check_plan(plan, "attn_linear_attention_plan"));
    const size_t needed = attn_linear_attention_plan_workspace_size(plan);
    CHECK(attn_check_linear_attention(call, q, k, v, out, params, 0, depth));
    CHECK(attn_check_planned_linear_attention(call, &plan->call));
    CHECK(attn_check_plan_workspace(workspace, size, needed));
    call->cut = plan->call.cut;
    return ATTN_OK;
}

attn_status attn_linear_attention_plan_run(const attn_linear_attention_plan *plan, const attn_tensor *q,
                                           const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                                           const attn_linear_attention_params *params, void *workspace,
                                           size_t workspace_size)
{
    struct attn_linear_attention call;
    CHECK(begin(plan, q, k, v, out, params, workspace, workspace_size, CHECK_ALL, &call));
    attn_execute(attn_linear_attention_begin(workspace, &call));
    return ATTN_OK;
}

attn_status attn_linear_attention_plan_begin(const attn_linear_attention_plan *plan, const attn_tensor *q,
                                             const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                                             const attn_linear_attention_params *params, void *workspace,
                                             size_t workspace_size)
{
    struct attn_linear_attention call;
    CHECK(begin(plan, q, k, v, out, params, workspace, workspace_size, CHECK_ALONE, &call));
    struct attn_run *run = attn_linear_attention_begin(workspace, &call);
    attn_linear_attention_keep(run);
    run->owner = plan;
    return ATTN_OK;
}

attn_status attn_linear_attention_plan_run_share(const attn_linear_attention_plan *plan, void *workspace, int phase,
                                                 int ith, int nth)
{
    return attn_run_checked_share(plan, "attn_linear_attention_plan", workspace, phase, ith, nth);
}
