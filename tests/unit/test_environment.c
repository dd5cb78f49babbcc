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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/** What a child printed. */
struct observed {
    char isa[32], kernel[32], bf16_kernel[32]; /**< attn_isa_active(), and whose kernels plans of f32 and bf16 get */
    int threads, plan_threads, supported;      /**< bit n of supported: instruction set n */
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
    int supported = 0;
    for (int isa = 0; attn_isa_name(isa); isa++)
        supported |= (attn_isa_supported(attn_isa_name(isa)) != 0) << isa;
    printf("%s %s %s %d %d %d\n", attn_isa_active(), kernel, bf16_kernel, attn_default_num_threads(),
           attn_plan_num_threads(plan), supported);
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
    assert_int_equal(sscanf(output, "%31s %31s %31s %d %d %d", seen.isa, seen.kernel, seen.bf16_kernel, &seen.threads,
                            &seen.plan_threads, &seen.supported),
                     6);
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
        cmocka_unit_test(test_silent_by_default), cmocka_unit_test(test_isa_cap), cmocka_unit_test(test_unknown_values),
        cmocka_unit_test(test_num_threads),       cmocka_unit_test(test_verbose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
