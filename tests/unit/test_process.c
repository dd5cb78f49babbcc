/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls at odd moments of a process: in handlers of atexit() and in destructors, while the process ends, under signals,
 * and on threads that have been cancelled. Each runs in a child under an alarm, whose exit code says what went wrong.
 */
#include "arguments.h"
#include "fixture.h"
#include "large.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, TIME_LIMIT = 60 };

/** Exit codes of a child. */
enum { SAME = 0, CALL_FAILED = 10, OTHER_BITS = 11, NOT_CANCELLED = 12, NO_CALL = 13, NO_SIGNALS = 14 };

static int compute_and_compare(const struct large *expected, int num_threads, struct large *l)
{
    large_initialize(l, num_threads);
    if (large_forward(l) != ATTN_OK)
        return CALL_FAILED;
    return large_equal(l, expected) ? SAME : OTHER_BITS;
}

static struct large expected, late;

static int exit_code_of(void (*body)(void))
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(TIME_LIMIT);
        body();
        _exit(255); /* it has to end by itself */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status); /* 1014: it hung until the alarm */
}

/* --------------------------------------------------------------------- exit -- */

static int at_the_end = -1; /* -1: no call is wanted there */

static void call_at_exit(void)
{
    const int found = compute_and_compare(&expected, THREADS, &late);
    if (found != SAME)
        _exit(found);
    at_the_end = SAME; /* and once more, in the destructor */
}

/* Of the program, which is unloaded before its libraries. */
__attribute__((destructor)) static void call_in_destructor(void)
{
    if (at_the_end == SAME)
        _exit(compute_and_compare(&expected, THREADS, &late));
}

static void exit_with_calls(void)
{
    static struct large l;
    atexit(call_at_exit);
    const int found = compute_and_compare(&expected, THREADS, &l);
    exit(found == SAME ? NO_CALL : found); /* the destructor has the last word */
}

static void exit_with_first_call(void)
{
    atexit(call_at_exit);
    exit(NO_CALL);
}

static void *compute_for_ever(void *argument)
{
    struct large *l = malloc(sizeof *l);
    atomic_int *calls = argument;
    for (;;) {
        if (!l || compute_and_compare(&expected, 2, l) != SAME)
            _exit(CALL_FAILED);
        atomic_fetch_add(calls, 1);
    }
    return NULL;
}

static void exit_while_others_compute(void)
{
    pthread_t threads[THREADS];
    static atomic_int calls;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, compute_for_ever, &calls))
            _exit(CALL_FAILED);
    while (atomic_load(&calls) < 2 * THREADS)
        usleep(1000);
    exit(SAME);
}

/** No child inherits threads that have computed: the parent has used its own alone. */
static void test_exit(void **state)
{
    (void)state;
    large_initialize(&expected, 1);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    assert_int_equal(exit_code_of(exit_with_calls), SAME);
    assert_int_equal(exit_code_of(exit_with_first_call), SAME);
#ifdef __clang__ /* LLVM's runtime aborts such a process now and then */
    const int rounds = 0;
#else
    const int rounds = surroundings_are_slow() ? 3 : 10;
#endif
    for (int i = 0; i < rounds; i++)
        assert_int_equal(exit_code_of(exit_while_others_compute), SAME);
}

/* ------------------------------------------------------------------ signals -- */

static atomic_int signals;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

/* System calls are interrupted, not begun again. */
static void compute_under_signals(void)
{
    static struct large l;
    const struct sigaction action = {.sa_handler = count_signal};
    const struct itimerval often = {{0, 500}, {0, 500}}; /* microseconds */
    if (sigaction(SIGPROF, &action, NULL) || setitimer(ITIMER_PROF, &often, NULL))
        _exit(CALL_FAILED);
    for (int i = 0; i < 100000 && (i < 60 || atomic_load(&signals) < 5); i++) {
        const int found = compute_and_compare(&expected, 1 + i % 4, &l);
        if (found != SAME)
            _exit(found);
    }
    _exit(atomic_load(&signals) < 5 ? NO_SIGNALS : SAME);
}

static void test_signals(void **state)
{
    (void)state;
    assert_int_equal(exit_code_of(compute_under_signals), SAME);
}

/* ------------------------------------------------------------- cancellation -- */

enum { CANCELLED_CALLS = 3 };

static atomic_int computed;
static struct large cancelled[CANCELLED_CALLS];

/* Cancelled before the first call of all, which reads the environment and counts the threads that can be started. */
static void *compute_cancelled(void *argument)
{
    (void)argument;
    pthread_cancel(pthread_self());
    for (int i = 0; i < CANCELLED_CALLS; i++) {
        large_initialize(&cancelled[i], 2 + 2 * i);
        if (large_forward(&cancelled[i]) != ATTN_OK)
            _exit(CALL_FAILED);
        attn_cache_size(1); /* reads files */
        atomic_fetch_add(&computed, 1);
    }
    pthread_testcancel();
    return NULL;
}

/* What is ignored in the environment, and each call, are said on stderr, and writing is a cancellation point. */
static void cancel_thread(void)
{
    pthread_t thread;
    void *result = NULL;
    setenv("ATTN_VERBOSE", "1", 1);
    setenv("ATTN_NUM_THREADS", "many", 1);
    if (!freopen("/dev/null", "w", stderr) || setvbuf(stderr, NULL, _IONBF, 0) ||
        pthread_create(&thread, NULL, compute_cancelled, NULL) || pthread_join(thread, &result))
        _exit(CALL_FAILED);
    if (result != PTHREAD_CANCELED || atomic_load(&computed) != CANCELLED_CALLS)
        _exit(NOT_CANCELLED);
    large_initialize(&expected, 8); /* nothing is locked that the thread has left */
    if (large_forward(&expected) != ATTN_OK)
        _exit(CALL_FAILED);
    for (int i = 0; i < CANCELLED_CALLS; i++)
        if (!large_equal(&cancelled[i], &expected))
            _exit(OTHER_BITS);
    _exit(SAME);
}

/** Runs first: nothing has read the environment yet. */
static void test_cancellation(void **state)
{
    (void)state;
    assert_int_equal(exit_code_of(cancel_thread), SAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancellation),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
