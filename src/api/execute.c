/* SPDX-License-Identifier: Apache-2.0 */
/* Running what has begun: the whole of it, or a share that a caller asks for; and how far it is. */
#include "api/execute.h"

#include "api/describe.h"
#include "api/environment.h"
#include "api/error.h"
#include "cpu/cancellation.h"

#include <stdio.h>
#include <time.h>

static double milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void attn_execute(struct attn_run *run)
{
    if (!attn_environment()->verbose) {
        attn_run_parallel(run);
        return;
    }
    char text[512];
    const double start = milliseconds();
    attn_run_parallel(run);
    const double time = milliseconds() - start;
    if (run->linear)
        attn_describe_linear_attention(run->linear, text, sizeof text);
    else if (run->linear_backward)
        attn_describe_linear_backward(run->linear_backward, text, sizeof text);
    else if (run->backward)
        attn_describe_backward(run->backward, text, sizeof text);
    else
        attn_describe(run->problem, run->geometry, text, sizeof text);
    ATTN_UNCANCELLED;
    fprintf(stderr, "attn: %s, %.3f ms\n", text, time);
}

int attn_fit(struct attn_geometry *geometry, size_t size, void (*cut)(void *call, int threads), void *call)
{
    for (int threads = geometry->threads; attn_run_size(geometry, 1) > size; cut(call, threads)) {
        if (threads >= ATTN_MAX_THREADS)
            return 0;
        threads *= 2;
    }
    const size_t room = (size - attn_run_size(geometry, 0)) / geometry->scratch_size;
    if (room < (size_t)geometry->threads)
        geometry->threads = geometry->parallel = (int)room;
    return 1;
}

attn_status attn_check_plan(const void *plan, const char *kind)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL; expected one made by %s_create()", kind);
    return ATTN_OK;
}

attn_status attn_check_plan_workspace(const void *workspace, size_t size, size_t needed)
{
    if (!workspace)
        return attn_fail(ATTN_INVALID_ARGUMENT, "workspace is NULL; expected %zu bytes", needed);
    if (size < needed)
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", size, needed);
    return ATTN_OK;
}

attn_status attn_run_checked_share(const void *plan, const char *kind, void *workspace, int phase, int ith, int nth)
{
    CHECK(attn_check_plan(plan, kind));
    if (!workspace || attn_run_in(workspace)->owner != plan)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "workspace is %s; expected one that %s_begin() has prepared for this plan",
                         workspace ? "not prepared" : "NULL", kind);
    struct attn_run *run = attn_run_in(workspace);
    const struct attn_geometry *geometry = run->geometry;
    if (phase < 0 || phase >= geometry->num_phases)
        return attn_fail(ATTN_INVALID_ARGUMENT, "phase is %d; expected 0 to %d", phase, geometry->num_phases - 1);
    if (nth < 1 || nth > geometry->threads)
        return attn_fail(ATTN_INVALID_ARGUMENT, "nth is %d; expected 1 to %d, the threads of the plan", nth,
                         geometry->threads);
    if (ith < 0 || ith >= nth)
        return attn_fail(ATTN_INVALID_ARGUMENT, "ith is %d; expected 0 to %d", ith, nth - 1);
    attn_run_share(run, phase, ith);
    return ATTN_OK;
}

attn_status attn_run_checked_progress(const struct attn_geometry *geometry, size_t wanted, const void *workspace,
                                      size_t size, int64_t *begun, int64_t *tasks)
{
    const struct {
        const char *name;
        const void *pointer;
    } needed[] = {{"plan", geometry}, {"workspace", workspace}, {"begun", begun}, {"tasks", tasks}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!needed[i].pointer)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %s", needed[i].name,
                             i == 0   ? "a plan"
                             : i == 1 ? "the workspace of a run"
                                      : "where the number goes");
    if (size < wanted)
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", size, wanted);
    attn_run_progress(workspace, geometry, begun, tasks);
    return ATTN_OK;
}
