/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor of a process, and how many threads a call asks for: its own
 * num_threads, else ATTN_NUM_THREADS, else what its executor or OpenMP has.
 */
#include "api/executor.h"

#include "api/check.h"
#include "api/environment.h"
#include "api/error.h"
#include "driver/threads.h"

attn_status attn_check_executor(const char *name, const attn_executor *executor)
{
    if (!executor)
        return ATTN_OK;
    attn_executor known;
    CHECK(attn_take_struct(name, &known, sizeof known, ATTN_FIRST_SIZE(attn_executor, user), executor));
    if (executor->num_threads < 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.num_threads is %d; expected 1 or more", name,
                         executor->num_threads);
    if (!executor->run)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.run is NULL; expected a function", name);
    return ATTN_OK;
}

attn_status attn_set_executor(const attn_executor *executor)
{
    const attn_status status = attn_check_executor("executor", executor);
    if (!status)
        attn_use_executor(executor);
    return status;
}

int attn_threads_asked(const attn_executor *own, int num_threads)
{
    const attn_executor *executor = attn_executor_of(own);
    int threads = num_threads ? num_threads : attn_environment()->num_threads;
    if (!threads)
        threads = executor ? executor->num_threads : attn_openmp_threads();
    return threads < ATTN_MAX_THREADS ? threads : ATTN_MAX_THREADS;
}

int attn_threads_now(const attn_executor *own, int num_threads)
{
    const int asked = attn_threads_asked(own, num_threads), most = attn_most_threads(attn_executor_of(own));
    return asked < most ? asked : most;
}

int attn_default_num_threads(void)
{
    return attn_threads_asked(NULL, 0);
}
