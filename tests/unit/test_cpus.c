/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many threads a process has of itself: those of the processors that its mask
 * allows, as cpusets and taskset set it, and no more than its control group has a
 * quota for. A process learns its mask when it starts, so this program starts itself.
 */
#include "fixture.h"

#include "cpu/quota.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT = 200 };

static const char *program;

/** The default of threads in a new process that may use the first count processors of those that this one may use. */
static int threads_on(int count)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cpu_set_t all, some;
        CPU_ZERO(&some);
        if (sched_getaffinity(0, sizeof all, &all) != 0)
            _exit(CANNOT);
        for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < count; cpu++)
            if (CPU_ISSET(cpu, &all))
                CPU_SET(cpu, &some);
        if (CPU_COUNT(&some) < count || sched_setaffinity(0, sizeof some, &some) != 0)
            _exit(CANNOT);
        unsetenv("OMP_NUM_THREADS");
        unsetenv("ATTN_NUM_THREADS");
        execl(program, program, "--threads", (char *)NULL);
        _exit(CANNOT);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_mask(void **state)
{
    (void)state;
    const int quota = attn_cpu_quota();
    for (int count = 1; count <= 2; count++) {
        const int threads = threads_on(count);
        if (threads == CANNOT)
            skip(); /* there is one processor only, or an emulator whose programs the system does not start */
#ifdef HAS_OPENMP
        assert_int_equal(threads, quota > 0 && quota < count ? quota : count);
#else
        (void)quota;
        assert_int_equal(threads, 1);
#endif
    }
}

/* ------------------------------------------------------------------- quota -- */

static char folder[64];

static void write_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int quota(void)
{
    char membership[128];
    snprintf(membership, sizeof membership, "%s/membership", folder);
    return attn_cpu_quota_of(membership, folder);
}

static void test_quota(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/attn-quota-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(quota(), 0); /* there are no files */
    write_file("membership", "0::/a/b\n");
    assert_int_equal(quota(), 0);
    write_file("a/b/cpu.max", "max 100000\n");
    assert_int_equal(quota(), 0);
    write_file("a/b/cpu.max", "200000 100000\n");
    assert_int_equal(quota(), 2);
    write_file("a/b/cpu.max", "150000 100000\n");
    assert_int_equal(quota(), 2);
    write_file("a/b/cpu.max", "1000 100000\n");
    assert_int_equal(quota(), 1);
    write_file("a/b/cpu.max", "400000 100000\n"); /* the group around it has less */
    write_file("a/cpu.max", "300000 100000\n");
    assert_int_equal(quota(), 3);
    write_file("cpu.max", "max 100000\n");
    assert_int_equal(quota(), 3);
    write_file("membership", "0::/\n"); /* as in a namespace of its own */
    assert_int_equal(quota(), 0);
    write_file("cpu.max", "500000 100000\n");
    assert_int_equal(quota(), 5);
    static const char *const broken[] = {"", "100000", "x y", "-1 100000", "0 100000", "100000 0", "100000 -5"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_file("cpu.max", broken[i]);
        assert_int_equal(quota(), 0);
    }
    write_file("cpu.max", "9223372036854775807 1\n");
    assert_int_equal(quota(), 2147483647);
    write_file("cpu.max", "");
    write_file("membership", "3:cpuset:/d\n2:cpuacct,cpu:/c\n1:name=systemd:/e\nno line\n4:cpu\n");
    write_file("cpu/c/cpu.cfs_quota_us", "700000\n");
    assert_int_equal(quota(), 0); /* no period */
    write_file("cpu/c/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(), 7);
    write_file("cpu/c/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(quota(), 0);
    write_file("cpu/d/cpu.cfs_quota_us", "100000\n"); /* of another controller's group */
    write_file("cpu/d/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(), 0);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--threads") == 0)
        return attn_default_num_threads();
    program = argv[0];
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mask), cmocka_unit_test(test_quota)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
