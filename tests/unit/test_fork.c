/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child made by fork() computes the same bits and does not hang, whether or
 * not its parent had started OpenMP's threads before: those threads do not
 * exist in the child, and a parallel region that waits for them would never
 * end. Each child runs under an alarm and reports by its exit code; the parent
 * goes on working afterwards, and so does a child of the child.
 */
#include "fixture.h"
#include "large.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, TIME_LIMIT = 60 };

/** Exit codes of a child. */
enum { SAME = 0, CALL_FAILED = 10, OTHER_BITS = 11 };

static int compute_and_compare(const struct large *expected, int num_threads)
{
    static struct large l;
    large_initialize(&l, num_threads);
    if (large_forward(&l) != ATTN_OK)
        return CALL_FAILED;
    return expected && !large_equal(&l, expected) ? OTHER_BITS : SAME;
}

static int wait_for(pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status); /* 1014: it hung until the alarm */
}

/** The result of a child that computes with num_threads, depth generations down. */
static int result_in_child(const struct large *expected, int num_threads, int depth)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(TIME_LIMIT);
        int result = compute_and_compare(expected, num_threads);
        if (result == SAME && depth > 1) {
            const int below = result_in_child(expected, num_threads, depth - 1);
            result = below > 255 || below < 0 ? 255 : below;
        }
        _exit(result);
    }
    assert_true(child > 0);
    return wait_for(child);
}

/** Runs first: nothing has been computed in this process yet. */
static void test_fork_before_use(void **state)
{
    (void)state;
    static struct large expected;
    assert_int_equal(result_in_child(NULL, THREADS, 1), SAME);
    large_initialize(&expected, 1);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    assert_int_equal(result_in_child(&expected, THREADS, 1), SAME);
}

static void test_fork_after_threads(void **state)
{
    (void)state;
    static struct large expected;
    large_initialize(&expected, THREADS);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    for (int threads = 0; threads <= THREADS; threads++) /* 0: the default */
        assert_int_equal(result_in_child(&expected, threads, 1), SAME);
    assert_int_equal(result_in_child(&expected, THREADS, 2), SAME);
    assert_int_equal(compute_and_compare(&expected, THREADS), SAME); /* the parent's threads are still there */
}

static void test_plan_across_fork(void **state)
{
    (void)state;
    static unsigned char workspace[4 << 20];
    static struct large l, expected;
    attn_plan *plan = NULL;
    large_initialize(&expected, 2);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    assert_int_equal(attn_plan_create(&plan, &expected.q, &expected.k, &expected.v, &expected.out, &expected.params),
                     ATTN_OK);
    assert_int_equal(attn_plan_num_threads(plan), 2); /* else nothing here would be shown */
    assert_true(attn_plan_workspace_size(plan) <= sizeof workspace);
    large_initialize(&l, 2);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(TIME_LIMIT);
        if (attn_plan_run(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace, sizeof workspace) != ATTN_OK)
            _exit(CALL_FAILED);
        _exit(large_equal(&l, &expected) ? SAME : OTHER_BITS);
    }
    assert_true(child > 0);
    assert_int_equal(wait_for(child), SAME);
    attn_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_before_use),
        cmocka_unit_test(test_fork_after_threads),
        cmocka_unit_test(test_plan_across_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
