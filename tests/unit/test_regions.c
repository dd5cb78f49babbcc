/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls from OpenMP regions of the program's: of the runtime that the library uses, one region in another too, and of
 * another runtime that is in the process beside it, as a program has it that loads libraries of several compilers.
 *
 * Usage: test_regions [MODULE], a shared library of another compiler whose run_region() has regions of its own
 */
#include "fixture.h"
#include "large.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { THREADS = 3, ROUNDS = 4 };

static struct large expected;
static atomic_int calls, wrong;

/* A call with 1 to 4 threads, from thread number of a region. */
static void call(int number)
{
    struct large *l = malloc(sizeof *l);
    if (l) {
        large_initialize(l, 1 + number % 4);
        if (large_forward(l) != ATTN_OK || !large_equal(l, &expected))
            atomic_fetch_add(&wrong, 1);
    } else {
        atomic_fetch_add(&wrong, 1);
    }
    free(l);
    atomic_fetch_add(&calls, 1);
}

static void expect_calls(int least)
{
    assert_int_equal(atomic_exchange(&wrong, 0), 0);
    assert_true(atomic_exchange(&calls, 0) >= least);
}

static void test_regions(void **state)
{
    (void)state;
#ifdef _OPENMP
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel num_threads(THREADS)
        call(omp_get_thread_num() + round);
        expect_calls(1);
        call(round); /* and outside of them */
    }
    omp_set_max_active_levels(3); /* so that calls in regions may have threads */
#pragma omp parallel num_threads(2)
    {
#pragma omp parallel num_threads(2)
        call(2 * omp_get_ancestor_thread_num(1) + omp_get_thread_num());
    }
    expect_calls(1);
#pragma omp parallel for num_threads(THREADS) schedule(dynamic)
    for (int i = 0; i < 8; i++)
        call(i);
    expect_calls(8);
#pragma omp parallel num_threads(THREADS)
#pragma omp single
    for (int i = 0; i < 8; i++) {
#pragma omp task firstprivate(i)
        call(i);
    }
    expect_calls(8);
    omp_set_max_active_levels(1);
#else
    skip();
#endif
}

/* ---------------------------------------------------------- another runtime -- */

static const char *module;

static int count_runtimes(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    static const char *const names[] = {"libgomp", "libomp", "libiomp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(info->dlpi_name, names[i]))
            ++*(int *)found;
    return 0;
}

static void test_other_runtime(void **state)
{
    (void)state;
    int runtimes = 0;
    if (!module)
        skip();
    void *library = dlopen(module, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        print_message("%s\n", dlerror());
        fail();
    }
    void (*run_region)(int threads, void (*body)(int number));
    *(void **)&run_region = dlsym(library, "run_region");
    assert_non_null(*(void **)&run_region);
    dl_iterate_phdr(count_runtimes, &runtimes);
    assert_int_equal(runtimes, 2);
    for (int round = 0; round < ROUNDS; round++) {
        run_region(THREADS, call);
        expect_calls(THREADS);
        call(3);
#ifdef _OPENMP
#pragma omp parallel num_threads(2)
        run_region(2, call);
        expect_calls(1 + 2);
#endif
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_other_runtime),
    };
    module = argc > 1 ? argv[1] : NULL;
    large_initialize(&expected, 1);
    if (large_forward(&expected) != ATTN_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
