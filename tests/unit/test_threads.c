/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several threads of the caller in attn_forward() at once, each with OpenMP
 * threads of its own below it or not, in all three types at once; and the sentence about an error, which
 * belongs to the thread whose call failed.
 */
#include "fixture.h"
#include "arguments.h"
#include "large.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 6 };

struct thread {
    pthread_t id;
    int number;
    pthread_barrier_t *barrier;
    const struct large *expected;
    int wrong_status, wrong_bits, wrong_sentence;
};

static void *compute(void *argument)
{
    struct thread *t = argument;
    char number[16];
    struct large *l = malloc(sizeof *l);
    snprintf(number, sizeof number, "%d", -100 - t->number);
    pthread_barrier_wait(t->barrier);
    t->wrong_sentence += attn_last_error()[0] != 0; /* nothing has failed on this thread */
    const int rounds = surroundings_are_slow() ? 10 : 20;
    for (int i = 0; i < rounds && l; i++) {
        large_initialize(l, 1 + (t->number + i) % 3);
        large_narrow(l, t->expected->q.dtype);
        t->wrong_status += large_forward(l) != ATTN_OK;
        t->wrong_bits += !large_equal(l, t->expected);
        l->params.num_threads = -100 - t->number;
        t->wrong_status += large_forward(l) != ATTN_INVALID_ARGUMENT;
        t->wrong_sentence += strstr(attn_last_error(), number) == NULL;
    }
    t->wrong_status += l == NULL;
    free(l);
    return NULL;
}

/** expected[n] is what a call of type n gives; a third of the threads make calls of each. */
static void run_all(const struct large expected[3])
{
    static struct thread threads[THREADS];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.number = i, .barrier = &barrier, .expected = &expected[i % 3]};
        assert_int_equal(pthread_create(&threads[i].id, NULL, compute, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i].id, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(threads[i].wrong_status, 0);
        assert_int_equal(threads[i].wrong_bits, 0);
        assert_int_equal(threads[i].wrong_sentence, 0);
    }
    pthread_barrier_destroy(&barrier);
}

static void test_concurrent_calls(void **state)
{
    (void)state;
    static struct large expected[3];
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        large_initialize(&expected[dtype], 1);
        large_narrow(&expected[dtype], (attn_dtype)dtype);
        assert_int_equal(large_forward(&expected[dtype]), ATTN_OK);
    }
    run_all(expected);
    run_all(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_concurrent_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
