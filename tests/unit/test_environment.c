/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment variables. They are read once per process, at the first
 * call, so the parent calls nothing that looks at them: for each setting it forks a
 * child that makes two calls and prints what it sees, and then looks at that
 * and at what came on the child's stderr. (Fork without exec, so that it also
 * works under an emulator.)
 */
#include "fixture.h"
#include "large.h"
#include "test_isa.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

/** What a child printed. */
struct observed {
    char isa[32], kernel[32], bf16_kernel[32]; /**< attn_isa_active(), and whose kernels plans of f32 and bf16 get */
    int threads, plan_threads, supported;      /**< bit n of supported: instruction set n */
    int permitted;                             /**< the system has been asked for matrix registers, and gave them */
    char errors[4096];
    int error_lines;
};

/** The word before "kernel" in a plan's description. */
static void name_kernel(const attn_plan *plan, char *name, size_t size)
{
    char text[512];
    attn_plan_describe(plan, text, sizeof text);
    char *end = strstr(text, " kernel");
    if (end)
        *end = 0;
    const char *word = end ? strrchr(text, ' ') : NULL;
    snprintf(name, size, "%.31s", word ? word + 1 : "none");
}

/** Whether this process may use AMX's registers, which nobody may who has not asked; not asked without AMX. */
static int may_use_matrix(void)
{
#if defined(__x86_64__) && defined(__linux__)
    enum { GET_PERMISSION = 0x1022, TILE_DATA = 18 }; /* ARCH_GET_XCOMP_PERM */
    unsigned a, b, c, d;
    uint64_t permitted = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && d & (1u << 24) &&
        syscall(SYS_arch_prctl, GET_PERMISSION, &permitted) == 0)
        return permitted >> TILE_DATA & 1;
#endif
    return 0;
}

static int run_as_child(void)
{
    static struct large l;
    attn_plan *plan = NULL, *bf16_plan = NULL;
    char kernel[32], bf16_kernel[32];
    large_initialize(&l, 0);
    if (large_forward(&l) != ATTN_OK || large_forward(&l) != ATTN_OK ||
        attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params) != ATTN_OK) {
        printf("failed: %s\n", attn_last_error());
        return 1;
    }
    l.q.dtype = l.k.dtype = l.v.dtype = ATTN_BF16;
    if (attn_plan_create(&bf16_plan, &l.q, &l.k, &l.v, &l.out, &l.params) != ATTN_OK) {
        printf("failed: %s\n", attn_last_error());
        return 1;
    }
    name_kernel(plan, kernel, sizeof kernel);
    name_kernel(bf16_plan, bf16_kernel, sizeof bf16_kernel);
    attn_plan_destroy(bf16_plan);
    const int permitted = may_use_matrix(); /* before the question below asks for more */
    int supported = 0;
    for (int isa = 0; attn_isa_name(isa); isa++)
        supported |= (attn_isa_supported(attn_isa_name(isa)) != 0) << isa;
    printf("%s %s %s %d %d %d %d\n", attn_isa_active(), kernel, bf16_kernel, attn_default_num_threads(),
           attn_plan_num_threads(plan), supported, permitted);
    attn_plan_destroy(plan);
    return 0;
}

static void read_file(const char *path, char *buffer, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    buffer[fread(buffer, 1, size - 1, file)] = 0;
    fclose(file);
}

/** What a process sees that has one variable set (NULL: none). */
static struct observed observe(const char *name, const char *value)
{
    struct observed seen;
    char out_path[] = "/tmp/attn-test-out-XXXXXX", error_path[] = "/tmp/attn-test-err-XXXXXX", output[256];
    const int out = mkstemp(out_path), error = mkstemp(error_path);
    int status = -1;
    memset(&seen, 0, sizeof seen);
    assert_true(out >= 0 && error >= 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        unsetenv("ATTN_MAX_CPU_ISA");
        unsetenv("ATTN_NUM_THREADS");
        unsetenv("ATTN_VERBOSE");
        if (name)
            setenv(name, value, 1);
        dup2(out, STDOUT_FILENO);
        dup2(error, STDERR_FILENO);
        const int result = run_as_child();
        fflush(NULL);
        _exit(result);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    close(out);
    close(error);
    read_file(out_path, output, sizeof output);
    read_file(error_path, seen.errors, sizeof seen.errors);
    unlink(out_path);
    unlink(error_path);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("with %s=%s the child ended with status %d: %s%s", name ? name : "nothing", value ? value : "", status,
                 output, seen.errors);
    assert_int_equal(sscanf(output, "%31s %31s %31s %d %d %d %d", seen.isa, seen.kernel, seen.bf16_kernel,
                            &seen.threads, &seen.plan_threads, &seen.supported, &seen.permitted),
                     7);
    for (const char *c = seen.errors; *c; c++)
        seen.error_lines += *c == '\n';
    return seen;
}

static void test_silent_by_default(void **state)
{
    (void)state;
    const struct observed seen = observe(NULL, NULL);
    assert_string_equal(seen.errors, "");
    assert_string_equal(observe("ATTN_VERBOSE", "0").errors, "");
}

static void test_isa_cap(void **state)
{
    (void)state;
    struct observed seen = observe("ATTN_MAX_CPU_ISA", "scalar");
    assert_string_equal(seen.isa, "scalar");
    assert_string_equal(seen.errors, "");
    /*
     * Each set with whose kernels f32 gets then. Kernels of bf16 pairs are only found where the cap names them, and
     * only where they are faster on this processor, which attn_isa_active() says: bf16 gets no others.
     */
    const int supported = seen.supported;
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (!(supported >> isa & 1))
            continue;
        const char *const cap = attn_isa_name(isa), *const of_floats = test_isa_of_floats(cap);
        seen = observe("ATTN_MAX_CPU_ISA", cap);
        assert_true(strcmp(seen.isa, cap) == 0 || strcmp(seen.isa, of_floats) == 0);
        assert_string_equal(seen.bf16_kernel, seen.isa);
        assert_string_equal(seen.kernel, of_floats);
        assert_string_equal(seen.errors, "");
    }
}

/** A cap below AMX leaves it out, and the system is not asked for its registers, which cost each thread some KiB. */
static void test_cap_below_matrix(void **state)
{
    (void)state;
    for (int isa = 0; attn_isa_name(isa) && strcmp(attn_isa_name(isa), "amx_bf16") != 0; isa++) {
        const struct observed seen = observe("ATTN_MAX_CPU_ISA", attn_isa_name(isa));
        assert_string_not_equal(seen.isa, "amx_bf16");
        assert_string_not_equal(seen.bf16_kernel, "amx_bf16");
        assert_int_equal(seen.permitted, 0);
    }
}

/** What bf16 gets where the system refuses matrix registers: the exit code of a child, 0 if it is another set. */
static int refused_as_child(void)
{
    /* Linux refuses them to a process that has a stack for signals on which they would not fit. */
    static char small[8192];
    const stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
    if (sigaltstack(&stack, NULL) != 0) {
        printf("skipped: the system takes no small stack for signals\n");
        return TEST_SKIPPED;
    }
    const int supported = attn_isa_supported("amx_bf16");
    if (may_use_matrix()) {
        printf("skipped: the system gives matrix registers in spite of a small stack for signals\n");
        return TEST_SKIPPED;
    }
    return supported || strcmp(attn_isa_active(), "amx_bf16") == 0 || run_as_child() != 0;
}

static void test_refused_matrix(void **state)
{
    (void)state;
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        unsetenv("ATTN_MAX_CPU_ISA");
        const int result = refused_as_child();
        fflush(NULL);
        _exit(result);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == TEST_SKIPPED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/** One warning for a process, which names the variable and the value; the value has no other effect. */
static void test_unknown_values(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"ATTN_MAX_CPU_ISA", "sse9"}, {"ATTN_MAX_CPU_ISA", "AVX2 "},
                                           {"ATTN_MAX_CPU_ISA", "bf16"}, {"ATTN_NUM_THREADS", "many"},
                                           {"ATTN_NUM_THREADS", "-2"},   {"ATTN_NUM_THREADS", "3x"},
                                           {"ATTN_NUM_THREADS", "0x2"},  {"ATTN_NUM_THREADS", "99999999999999999999"},
                                           {"ATTN_VERBOSE", "loud"}};
    const struct observed normal = observe(NULL, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct observed seen = observe(wrong[i][0], wrong[i][1]);
        if (seen.error_lines != 1 || !strstr(seen.errors, wrong[i][0]) || !strstr(seen.errors, wrong[i][1]))
            fail_msg("%s=%s: expected one warning with both, got \"%s\"", wrong[i][0], wrong[i][1], seen.errors);
        assert_string_equal(seen.isa, normal.isa);
        assert_int_equal(seen.threads, normal.threads);
    }
}

static void test_num_threads(void **state)
{
    (void)state;
    const struct observed seen = observe("ATTN_NUM_THREADS", "3");
    assert_int_equal(seen.threads, 3);
    assert_int_equal(seen.plan_threads, 3);
    assert_string_equal(seen.errors, "");
}

static void test_verbose(void **state)
{
    (void)state;
    const struct observed seen = observe("ATTN_VERBOSE", "1");
    assert_int_equal(seen.error_lines, 2); /* the child makes two calls */
    assert_non_null(strstr(seen.errors, seen.kernel));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_by_default), cmocka_unit_test(test_isa_cap),
        cmocka_unit_test(test_cap_below_matrix),  cmocka_unit_test(test_refused_matrix),
        cmocka_unit_test(test_unknown_values),    cmocka_unit_test(test_num_threads),
        cmocka_unit_test(test_verbose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
