/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans, and the simple call, which makes one on its stack.
 *
 * A plan keeps the shapes, the options and the geometry chosen for them. A run
 * checks its own arguments in full, then that they are what was planned.
 */
#include "api/check.h"
#include "api/describe.h"
#include "api/environment.h"
#include "api/error.h"
#include "dispatch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct attn_plan {
    struct attn_problem problem; /**< shapes and options; its pointers are only compared with NULL */
    struct attn_planned planned; /**< what is needed of the structs behind them */
    struct attn_geometry geometry;
};

static struct attn_kernels choose_kernels(const struct attn_problem *problem)
{
    const attn_params *params = &problem->params;
    const int f32 = params->rope || params->disentangled; /* these make floats of q and k */
    const int pairs = problem->v.dtype == ATTN_BF16 && !f32 &&
                      (params->qk == ATTN_QK_INT8 || (problem->q.dtype == ATTN_BF16 && problem->k.dtype == ATTN_BF16));
    const struct attn_demand demand = {.isa = params->isa == ATTN_ISA_AUTO ? attn_environment()->max_isa : params->isa,
                                       .insists = params->isa != ATTN_ISA_AUTO,
                                       .qk = params->qk,
                                       .pairs = pairs};
    struct attn_kernels kernels;
    attn_kernels_choose(&kernels, &demand);
    return kernels;
}

static void make_plan(struct attn_plan *plan, const struct attn_problem *problem)
{
    const attn_params *params = &problem->params;
    plan->problem = *problem;
    plan->planned = attn_planned_of(problem);
    const struct attn_kernels kernels = choose_kernels(problem);
    const int threads = params->num_threads ? params->num_threads : attn_default_num_threads();
    plan->geometry = attn_geometry_of(&plan->problem, &kernels, threads);
}

static size_t workspace_size(const struct attn_plan *plan)
{
    return plan->geometry.shared_size + (size_t)plan->geometry.threads * plan->geometry.scratch_size + ATTN_ALIGN;
}

static void *align(void *p)
{
    return (void *)(((uintptr_t)p + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN);
}

static double milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/** The threads' scratch memory, behind what they share. */
static void *scratch_of(const struct attn_plan *plan, void *workspace)
{
    return (char *)align(workspace) + plan->geometry.shared_size;
}

static void execute(const struct attn_plan *plan, struct attn_problem *problem, void *workspace)
{
    const double start = attn_environment()->verbose ? milliseconds() : 0.0;
    attn_summarise_labels(problem, plan->geometry.key_block, align(workspace));
    attn_run_parallel(problem, &plan->geometry, scratch_of(plan, workspace));
    if (!attn_environment()->verbose)
        return;
    char text[512];
    const double time = milliseconds() - start;
    attn_plan_describe(plan, text, sizeof text);
    fprintf(stderr, "attn: %s, %.3f ms\n", text, time);
}

attn_status attn_plan_create(attn_plan **plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                             const attn_tensor *out, const attn_params *params)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL; expected the address of a pointer");
    *plan = NULL;
    struct attn_problem problem;
    const attn_status status = attn_check(&problem, q, k, v, out, params, CHECK_SHAPES);
    if (status)
        return status;
    struct attn_plan *made = malloc(sizeof *made);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a plan of %zu bytes", sizeof *made);
    make_plan(made, &problem);
    *plan = made;
    return ATTN_OK;
}

void attn_plan_destroy(attn_plan *plan)
{
    free(plan);
}

int attn_plan_num_threads(const attn_plan *plan)
{
    return plan->geometry.threads;
}

size_t attn_plan_workspace_size(const attn_plan *plan)
{
    return workspace_size(plan);
}

/** The checks that both ways of running a plan share. */
static attn_status check_run(const attn_plan *plan, struct attn_problem *problem, const attn_tensor *q,
                             const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                             const attn_params *params, const void *workspace, size_t size)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL; expected one made by attn_plan_create()");
    attn_status status = attn_check(problem, q, k, v, out, params, CHECK_ALL);
    if (!status)
        status = attn_check_planned(problem, &plan->problem, &plan->planned);
    if (status)
        return status;
    if (!workspace)
        return attn_fail(ATTN_INVALID_ARGUMENT, "workspace is NULL; expected %zu bytes", workspace_size(plan));
    if (size < workspace_size(plan))
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", size,
                         workspace_size(plan));
    return ATTN_OK;
}

attn_status attn_plan_run(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                          const attn_tensor *out, const attn_params *params, void *workspace, size_t size)
{
    struct attn_problem problem;
    const attn_status status = check_run(plan, &problem, q, k, v, out, params, workspace, size);
    if (!status)
        execute(plan, &problem, workspace);
    return status;
}

attn_status attn_plan_run_share(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                const attn_tensor *out, const attn_params *params, void *workspace, size_t size,
                                int ith, int nth)
{
    struct attn_problem problem;
    const attn_status status = check_run(plan, &problem, q, k, v, out, params, workspace, size);
    if (status)
        return status;
    const struct attn_geometry *geometry = &plan->geometry;
    if (nth < 1 || nth > geometry->threads)
        return attn_fail(ATTN_INVALID_ARGUMENT, "nth is %d; expected 1 to %d, the threads of the plan", nth,
                         geometry->threads);
    if (ith < 0 || ith >= nth)
        return attn_fail(ATTN_INVALID_ARGUMENT, "ith is %d; expected 0 to %d", ith, nth - 1);
    attn_summarise_labels(&problem, geometry->key_block, align(workspace));
    void *scratch = (char *)scratch_of(plan, workspace) + (size_t)ith * geometry->scratch_size;
    for (int64_t task = ith; task < geometry->tasks; task += nth)
        attn_run_task(&problem, geometry, task, scratch);
    return ATTN_OK;
}

size_t attn_plan_describe(const attn_plan *plan, char *buffer, size_t size)
{
    return attn_describe(&plan->problem, &plan->geometry, buffer, size);
}

/* ------------------------------------------------------- without a plan -- */

/** A plan on the caller's stack. Nobody else can join: scratch for those threads that start. */
static void make_own_plan(struct attn_plan *plan, const struct attn_problem *problem)
{
    make_plan(plan, problem);
    plan->geometry.threads = plan->geometry.parallel;
}

attn_status attn_forward_check(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                               const attn_params *params)
{
    struct attn_problem problem;
    return attn_check(&problem, q, k, v, out, params, CHECK_ALL);
}

attn_status attn_forward_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                        const attn_tensor *out, const attn_params *params, size_t *size)
{
    struct attn_plan plan;
    struct attn_problem problem;
    if (!size)
        return attn_fail(ATTN_INVALID_ARGUMENT, "size is NULL; expected where to put the number of bytes");
    const attn_status status = attn_check(&problem, q, k, v, out, params, CHECK_SHAPES);
    if (status)
        return status;
    make_own_plan(&plan, &problem);
    *size = workspace_size(&plan);
    return ATTN_OK;
}

attn_status attn_forward_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                            const attn_params *params, void *workspace, size_t size)
{
    struct attn_plan plan;
    struct attn_problem problem;
    const attn_status status = attn_check(&problem, q, k, v, out, params, CHECK_ALL);
    if (status)
        return status;
    make_own_plan(&plan, &problem);
    if (!workspace)
        return attn_fail(ATTN_INVALID_ARGUMENT, "workspace is NULL; expected %zu bytes", workspace_size(&plan));
    if (size < workspace_size(&plan))
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", size,
                         workspace_size(&plan));
    execute(&plan, &problem, workspace);
    return ATTN_OK;
}

attn_status attn_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                         const attn_params *params)
{
    struct attn_plan plan;
    struct attn_problem problem;
    const attn_status status = attn_check(&problem, q, k, v, out, params, CHECK_ALL);
    if (status)
        return status;
    make_own_plan(&plan, &problem);
    void *workspace = malloc(workspace_size(&plan));
    if (!workspace)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", workspace_size(&plan));
    execute(&plan, &problem, workspace);
    free(workspace);
    return ATTN_OK;
}
