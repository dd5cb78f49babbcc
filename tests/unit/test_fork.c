/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child made by fork() computes the same bits and does not hang, whether or
 * not its parent had started OpenMP's threads before: those threads do not
 * exist in the child, and a parallel region that waits for them would never
 * end. Each child runs under an alarm and reports by its exit code; the parent
 * goes on working afterwards, and so does a child of the child.
 */
#include "fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, TIME_LIMIT = 60 };

/** Exit codes of a child. */
enum { SAME = 0, CALL_FAILED = 10, OTHER_BITS = 11 };

static int compute_and_compare(const struct fixture *expected, int num_threads)
{
    struct fixture f;
    fixture_initialize(&f);
    f.params.num_threads = num_threads;
    if (fixture_forward(&f) != ATTN_OK)
        return CALL_FAILED;
    return expected && !fixture_outputs_equal(&f, expected) ? OTHER_BITS : SAME;
}

static int wait_for(pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status); /* 1014: it hung until the alarm */
}

/** The result of a child that computes with num_threads, depth generations down. */
static int result_in_child(const struct fixture *expected, int num_threads, int depth)
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
    struct fixture expected;
    assert_int_equal(result_in_child(NULL, THREADS, 1), SAME);
    fixture_initialize(&expected);
    expected.params.num_threads = 1;
    assert_int_equal(fixture_forward(&expected), ATTN_OK);
    assert_int_equal(result_in_child(&expected, THREADS, 1), SAME);
}

static void test_fork_after_threads(void **state)
{
    (void)state;
    struct fixture expected;
    fixture_initialize(&expected);
    expected.params.num_threads = THREADS;
    assert_int_equal(fixture_forward(&expected), ATTN_OK);
    for (int threads = 0; threads <= THREADS; threads++) /* 0: the default */
        assert_int_equal(result_in_child(&expected, threads, 1), SAME);
    assert_int_equal(result_in_child(&expected, THREADS, 2), SAME);
    assert_int_equal(compute_and_compare(&expected, THREADS), SAME); /* the parent's threads are still there */
}

static void test_plan_across_fork(void **state)
{
    (void)state;
    static unsigned char workspace[4 << 20];
    struct fixture f, expected;
    attn_plan *plan = NULL;
    fixture_initialize(&expected);
    expected.params.num_threads = 2;
    assert_int_equal(fixture_forward(&expected), ATTN_OK);
    assert_int_equal(
        attn_plan_create(&plan, expected.q_arg, expected.k_arg, expected.v_arg, expected.out_arg, expected.params_arg),
        ATTN_OK);
    assert_true(attn_plan_workspace_size(plan) <= sizeof workspace);
    fixture_initialize(&f);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(TIME_LIMIT);
        if (attn_plan_run(plan, f.q_arg, f.k_arg, f.v_arg, f.out_arg, f.params_arg, workspace, sizeof workspace) !=
            ATTN_OK)
            _exit(CALL_FAILED);
        _exit(fixture_outputs_equal(&f, &expected) ? SAME : OTHER_BITS);
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
