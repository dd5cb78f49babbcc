/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor of a process, and how many threads a call asks for: its own
 * num_threads, else ATTN_NUM_THREADS, else what its executor or OpenMP has.
 */
#include "api/executor.h"

#include "api/environment.h"
#include "api/error.h"
#include "driver/threads.h"

/* Bytes by which a later version's struct may be longer than ours. */
#define MOST_BEHIND 4096

attn_status attn_check_executor(const char *name, const attn_executor *executor)
{
    if (!executor)
        return ATTN_OK;
    const size_t size = executor->struct_size, ours = sizeof *executor;
    if (size < ours || size - ours > MOST_BEHIND)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "%s->struct_size is %zu; expected %zu: start from attn_executor_default()", name, size, ours);
    for (size_t i = ours; i < size; i++)
        if (((const unsigned char *)executor)[i])
            return attn_fail(ATTN_UNSUPPORTED,
                             "%s->struct_size is %zu and a field behind the %zu bytes that version %s knows is set",
                             name, size, ours, attn_version_string());
    if (executor->num_threads < 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s->num_threads is %d; expected 1 or more", name,
                         executor->num_threads);
    if (!executor->run)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s->run is NULL; expected a function", name);
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

int attn_default_num_threads(void)
{
    return attn_threads_asked(NULL, 0);
}
