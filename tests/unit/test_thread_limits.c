/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that may not start the threads that a call would like computes with
 * those that it can have, and the same bits: an OpenMP runtime that runs out of
 * threads would end it. Each case is a child with a limit on threads. The limit
 * counts for a user, and not for root, so root's child becomes a user that has
 * no other process; anybody else's cannot start any thread.
 */
#include "fixture.h"
#include "large.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNUSED_USER = 61234 };

/** Exit codes of a child. */
enum { SAME = 0, CALL_FAILED = 10, OTHER_BITS = 11, NO_LIMIT = 12 };

static int compute(const struct large *expected, int num_threads)
{
    static struct large l;
    large_initialize(&l, num_threads);
    if (large_forward(&l) != ATTN_OK)
        return CALL_FAILED;
    return large_equal(&l, expected) ? SAME : OTHER_BITS;
}

/** In a process that may have so many threads: more and more are asked for. */
static int compute_within(const struct large *expected, int limit)
{
    static const int asked[] = {2, 3, 4, 2, 8, 64, 3, 100000, 0};
    const struct rlimit most = {(rlim_t)limit, (rlim_t)limit};
    alarm(60);
    if ((getuid() == 0 && setresuid(UNUSED_USER, UNUSED_USER, UNUSED_USER) != 0) || setrlimit(RLIMIT_NPROC, &most) != 0)
        return NO_LIMIT;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const int result = compute(expected, asked[i]);
        if (result != SAME)
            return result;
    }
    return SAME;
}

static void test_limits(void **state)
{
    (void)state;
    static struct large expected;
    large_initialize(&expected,
                     1); /* nothing here starts a thread: a child of a process with threads would not, either */
    assert_int_equal(large_forward(&expected), ATTN_OK);
    for (int limit = 1; limit <= 6; limit++) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0)
            _exit(compute_within(&expected, limit));
        assert_true(child > 0);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == NO_LIMIT)
            skip();
        if (!WIFEXITED(status) || WEXITSTATUS(status) != SAME)
            fail_msg("with %d threads at most: status %d, signal %d", limit, WEXITSTATUS(status), WTERMSIG(status));
    }
}

/** A number that is far beyond what any machine has. */
static void test_very_many(void **state)
{
    (void)state;
    static struct large expected;
    large_initialize(&expected, 1);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    assert_int_equal(compute(&expected, 100000), SAME);
    assert_int_equal(compute(&expected, 2), SAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_very_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
