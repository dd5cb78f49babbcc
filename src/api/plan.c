/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans, and the simple call, which makes one on its stack.
 *
 * A plan keeps the shapes, the options and the geometry chosen for them. A run
 * checks its own arguments in full, unless they differ from the planned ones in
 * addresses alone, then that they are what was planned, once: the checked problem
 * lies in the workspace, where all shares find it.
 */
#include "api/call.h"
#include "api/describe.h"
#include "api/environment.h"
#include "api/error.h"
#include "api/execute.h"
#include "api/executor.h"
#include "api/held.h"
#include "dispatch.h"
#include "driver/threads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct attn_plan {
    struct attn_call call;           /**< shapes, options and geometry; its pointers are only compared with NULL */
    struct attn_planned planned;     /**< what else is needed to know a run again */
    int keeps;                       /**< arrays have been looked at, and stay */
    struct attn_label_range *labels; /**< what has been derived from them; NULL: nothing */
};

/** Whether bf16 has the numbers of k and v exactly, and rows of k are whole words of pairs, as rows of q are. */
static int takes_exact_pairs(const struct attn_problem *problem)
{
    const attn_dtype dtype = problem->k.dtype;
    return dtype == problem->v.dtype && (dtype == ATTN_I4 || (dtype == ATTN_F8_E4M3 && problem->k.shape[3] % 2 == 0));
}

static struct attn_kernels choose_kernels(const struct attn_problem *problem)
{
    const attn_params *params = &problem->params;
    /* Rope and disentangled terms make floats of q and k, which are rounded only if they may be; a callback gets
     * floats. */
    const int rounds = params->inputs == ATTN_INPUTS_MAY_BE_BF16;
    const int f32 = (params->rope && !rounds) || params->disentangled || params->weight_callback;
    const int qk_pairs =
        params->qk == ATTN_QK_INT8 || rounds || (problem->q.dtype == ATTN_BF16 && problem->k.dtype == ATTN_BF16);
    const int pairs = (problem->v.dtype == ATTN_BF16 || rounds) && qk_pairs && !f32;
    const int free = !params->ragged && attn_sums_are_free(problem, problem->q.shape[2]);
    const int exact_pairs = free && takes_exact_pairs(problem) && (rounds || problem->q.dtype == ATTN_BF16) && !f32;
    const struct attn_demand demand = {.isa = problem->isa ? problem->isa : attn_environment()->max_isa,
                                       .insists = problem->isa != 0,
                                       .qk = params->qk,
                                       .free = free,
                                       .pairs = pairs,
                                       .exact_pairs = exact_pairs};
    struct attn_kernels kernels;
    attn_kernels_choose(&kernels, &demand);
    return kernels;
}

/* ------------------------------------------------------------- one call -- */

/** The geometry for threads threads. */
static void cut(struct attn_call *call, int threads)
{
    const struct attn_kernels kernels = choose_kernels(&call->problem);
    call->geometry = attn_geometry_of(&call->problem, &kernels, threads);
    call->held_size = attn_held_size(&call->problem, &call->geometry);
}

/** Without the look at scales, if it can wait until the geometry says whether it has to wait for the run (held.c). */
static enum check_depth before_cut(const attn_tensor *k, const attn_tensor *v, enum check_depth depth)
{
    const int waits = k && k->dtype == ATTN_I4 && v && v->dtype == ATTN_I4 && depth == CHECK_ALL;
    return waits ? CHECK_BUT_SCALES : depth;
}

/** What was left out before, unless it waits for the run: as nothing else has to. */
static attn_status check_rest(struct attn_call *call, enum check_depth depth, enum check_depth done)
{
    if (depth != CHECK_ALL && depth != CHECK_SHAPES)
        call->held_size = 0;
    return done == depth || call->held_size > 0 ? ATTN_OK : attn_check_quantised(&call->problem, depth);
}

/** attn_call_make() of a rectangle, or of a whole problem. */
static attn_status make(struct attn_call *call, const struct attn_rectangle *rectangle, const attn_tensor *q,
                        const attn_tensor *k, const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                        enum check_depth depth)
{
    const enum check_depth first = before_cut(k, v, depth);
    CHECK(attn_check_rectangle(&call->problem, rectangle, q, k, v, out, params, first));
    const attn_params *p = &call->problem.params;
    cut(call, attn_threads_now(p->executor, p->num_threads));
    call->geometry.threads = call->geometry.parallel;
    return check_rest(call, depth, first);
}

attn_status attn_call_make(struct attn_call *call, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                           const attn_tensor *out, const attn_params *params, enum check_depth depth)
{
    return make(call, NULL, q, k, v, out, params, depth);
}

size_t attn_call_size(const struct attn_call *call)
{
    return attn_run_size(&call->geometry, call->geometry.threads) + call->held_size;
}

/** Fewer queries in a block, as many threads would have them, take less scratch, and keys that are not split less of
 * what threads share. */
static struct attn_geometry smaller(const struct attn_call *call, int threads)
{
    struct attn_geometry geometry = attn_geometry_of(&call->problem, &call->geometry.kernels, threads);
    attn_geometry_unsplit(&geometry);
    return geometry;
}

size_t attn_call_least_size(const struct attn_call *call)
{
    const struct attn_geometry least = smaller(call, ATTN_MAX_THREADS);
    struct attn_geometry unsplit = call->geometry;
    attn_geometry_unsplit(&unsplit);
    const size_t size = attn_run_size(&least, 1), own = attn_run_size(&unsplit, 1);
    return size < own ? size : own;
}

/**
 * Cuts a call to what a workspace of size bytes has room for. The size was perhaps asked for where there were fewer
 * threads, or more, and blocks of queries had other sizes. Returns whether there is room for one thread.
 */
static int fit(const struct attn_call *call, size_t size, struct attn_geometry *geometry)
{
    *geometry = call->geometry;
    if (attn_run_size(geometry, 1) > size)
        attn_geometry_unsplit(geometry);
    for (int threads = call->geometry.parallel; attn_run_size(geometry, 1) > size; *geometry = smaller(call, threads)) {
        if (threads == ATTN_MAX_THREADS)
            return 0;
        threads = threads < ATTN_MAX_THREADS / 2 ? 2 * threads : ATTN_MAX_THREADS;
    }
    const size_t room = (size - attn_run_size(geometry, 0)) / geometry->scratch_size;
    geometry->parallel = call->geometry.parallel;
    if (room < (size_t)geometry->parallel)
        geometry->parallel = (int)room;
    geometry->threads = geometry->parallel;
    geometry->begun = call->geometry.begun;
    return 1;
}

/** Runs a call whose results wait until all scales have been looked at. */
static attn_status run_held(const struct attn_call *call, void *workspace)
{
    struct attn_problem problem = call->problem;
    struct attn_held held;
    attn_execute(attn_held_begin(&held, &problem, &call->geometry, workspace));
    return attn_held_end(&held, &problem, &call->geometry);
}

attn_status attn_call_run(const struct attn_call *call, void *workspace, size_t size)
{
    struct attn_geometry geometry;
    if (!workspace)
        return attn_fail(ATTN_INVALID_ARGUMENT, "workspace is NULL; expected %zu bytes", attn_call_size(call));
    if (size >= attn_call_size(call) && call->held_size > 0)
        return run_held(call, workspace);
    if (size >= attn_call_size(call)) {
        attn_execute(attn_run_begin(workspace, &call->problem, &call->geometry));
        return ATTN_OK;
    }
    if (!fit(call, size, &geometry))
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", size,
                         attn_call_least_size(call));
    if (call->held_size > 0) {
        struct attn_problem problem = call->problem;
        CHECK(attn_check_quantised(&problem, CHECK_ALL));
    }
    attn_execute(attn_run_begin(workspace, &call->problem, &geometry));
    return ATTN_OK;
}

/* --------------------------------------------------------- the simple call -- */

attn_status attn_forward_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                        const attn_tensor *out, const attn_params *params, size_t *size)
{
    struct attn_call call;
    if (!size)
        return attn_fail(ATTN_INVALID_ARGUMENT, "size is NULL; expected where to put the number of bytes");
    CHECK(attn_call_make(&call, q, k, v, out, params, CHECK_SHAPES));
    *size = attn_call_size(&call);
    return ATTN_OK;
}

attn_status attn_forward_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                            const attn_params *params, void *workspace, size_t size)
{
    struct attn_call call;
    CHECK(attn_call_make(&call, q, k, v, out, params, CHECK_ALL));
    return attn_call_run(&call, workspace, size);
}

/* Bytes of workspace that a call finds on the stack: a short one, for which malloc() would be a tenth of its time. */
#define SMALL_WORKSPACE 16384

static __attribute__((noinline)) attn_status run_on_stack(const struct attn_call *call)
{
    _Alignas(ATTN_ALIGN) char workspace[SMALL_WORKSPACE];
    return attn_call_run(call, workspace, sizeof workspace);
}

attn_status attn_forward_rectangle(const struct attn_rectangle *rectangle, const attn_tensor *q, const attn_tensor *k,
                                   const attn_tensor *v, const attn_tensor *out, const attn_params *params)
{
    struct attn_call call;
    CHECK(make(&call, rectangle, q, k, v, out, params, CHECK_ALL));
    const size_t size = attn_call_size(&call);
    if (size <= SMALL_WORKSPACE)
        return run_on_stack(&call);
    void *workspace = malloc(size);
    if (!workspace)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", size);
    const attn_status status = attn_call_run(&call, workspace, size);
    free(workspace);
    return status;
}

attn_status attn_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                         const attn_params *params)
{
    return attn_forward_rectangle(NULL, q, k, v, out, params);
}

/* ------------------------------------------------------------------- plans -- */

attn_status attn_plan_create(attn_plan **plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                             const attn_tensor *out, const attn_params *params)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL; expected the address of a pointer");
    *plan = NULL;
    struct attn_problem problem;
    CHECK(attn_check(&problem, q, k, v, out, params, CHECK_SHAPES));
    struct attn_plan *made = malloc(sizeof *made);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a plan of %zu bytes", sizeof *made);
    made->call.problem = problem;
    made->planned = attn_planned_of(&problem);
    made->keeps = 0;
    made->labels = NULL;
    cut(&made->call, attn_threads_asked(problem.params.executor, problem.params.num_threads));
    *plan = made;
    return ATTN_OK;
}

/** What the first phase of each run would do. */
static attn_status keep_labels(attn_plan *plan, const struct attn_problem *problem)
{
    struct attn_geometry *geometry = &plan->call.geometry;
    struct attn_label_range *labels = malloc(geometry->labels_size);
    if (!labels)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for %zu bytes about documents", geometry->labels_size);
    const struct attn_run run = {.problem = problem, .geometry = geometry, .labels = labels};
    for (int64_t s = 0; s < problem->num_sequences; s++)
        attn_summarise_labels(&run, s, NULL);
    plan->labels = labels;
    geometry->shared_size -= geometry->labels_size;
    geometry->order_at -= geometry->ordered ? geometry->labels_size : 0;
    geometry->labels_size = 0;
    geometry->num_phases--; /* the first one goes */
    memmove(geometry->phases, geometry->phases + 1, (size_t)geometry->num_phases * sizeof *geometry->phases);
    return ATTN_OK;
}

attn_status attn_plan_keep(attn_plan *plan, const attn_params *params)
{
    struct attn_problem problem;
    CHECK(attn_check_plan(plan, "attn_plan"));
    if (plan->keeps)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan keeps its arrays already; expected a new one for others");
    const struct attn_problem *was = &plan->call.problem;
    CHECK(attn_check(&problem, &was->q, &was->k, &was->v, &was->out, params, CHECK_ARRAYS));
    CHECK(attn_check_planned(&problem, was, &plan->planned));
    if (plan->call.geometry.labels_size > 0)
        CHECK(keep_labels(plan, &problem));
    plan->keeps = 1;
    return ATTN_OK;
}

void attn_plan_destroy(attn_plan *plan)
{
    if (plan)
        free(plan->labels);
    free(plan);
}

int attn_plan_num_threads(const attn_plan *plan)
{
    return plan ? plan->call.geometry.threads : 0;
}

int attn_plan_num_phases(const attn_plan *plan)
{
    return plan ? plan->call.geometry.num_phases : 0;
}

attn_status attn_plan_progress(const attn_plan *plan, const void *workspace, size_t size, int64_t *begun,
                               int64_t *tasks)
{
    return attn_run_checked_progress(plan ? &plan->call.geometry : NULL, attn_plan_workspace_size(plan), workspace,
                                     size, begun, tasks);
}

size_t attn_plan_workspace_size(const attn_plan *plan)
{
    return plan ? attn_call_size(&plan->call) : SIZE_MAX;
}

size_t attn_plan_describe(const attn_plan *plan, char *buffer, size_t size)
{
    if (!buffer)
        size = 0;
    if (plan)
        return attn_describe(&plan->call.problem, &plan->call.geometry, buffer, size);
    if (size > 0)
        buffer[0] = '\0';
    return 0;
}

/** Fills problem, which the run goes on looking at. held: where its results may wait for a look at scales; NULL: that
 * is done first. */
static attn_status begin(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                         const attn_tensor *out, const attn_params *params, void *workspace, size_t size,
                         enum check_depth depth, struct attn_problem *problem, struct attn_held *held)
{
    CHECK(attn_check_plan(plan, "attn_plan"));
    const size_t needed = attn_plan_workspace_size(plan);
    const struct attn_problem *was = &plan->call.problem;
    if (!attn_is_repeat(problem, was, &plan->planned, q, k, v, out, params)) {
        const enum check_depth first = held ? CHECK_BUT_SCALES : depth;
        CHECK(attn_check(problem, q, k, v, out, params, plan->keeps ? CHECK_TENSORS : first));
        CHECK(attn_check_planned(problem, was, &plan->planned));
    }
    CHECK(attn_check_plan_workspace(workspace, size, needed));
    const struct attn_geometry *geometry = &plan->call.geometry;
    struct attn_run *run =
        held ? attn_held_begin(held, problem, geometry, workspace) : attn_run_begin(workspace, problem, geometry);
    run->owner = plan;
    if (plan->labels)
        run->labels = plan->labels;
    return ATTN_OK;
}

attn_status attn_plan_begin(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                            const attn_tensor *out, const attn_params *params, void *workspace, size_t size)
{
    struct attn_problem problem;
    CHECK(begin(plan, q, k, v, out, params, workspace, size, CHECK_ALONE, &problem, NULL));
    attn_run_keep(attn_run_in(workspace));
    return ATTN_OK;
}

attn_status attn_plan_run(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                          const attn_tensor *out, const attn_params *params, void *workspace, size_t size)
{
    struct attn_problem problem;
    struct attn_held results, *const held = plan && plan->call.held_size > 0 && !plan->keeps ? &results : NULL;
    CHECK(begin(plan, q, k, v, out, params, workspace, size, CHECK_ALL, &problem, held));
    struct attn_run *run = attn_run_in(workspace);
    attn_execute(run);
    run->owner = NULL; /* the problem ends here */
    return held ? attn_held_end(held, &problem, &plan->call.geometry) : ATTN_OK;
}

attn_status attn_plan_run_share(const attn_plan *plan, void *workspace, int phase, int ith, int nth)
{
    return attn_run_checked_share(plan, "attn_plan", workspace, phase, ith, nth);
}
