/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each allocation of declaring and writing outputs, and of reading them again, fails in turn: the status is that of
 * memory, files are as they were, and nothing else is left in their folder.
 */
#include "cmocka_all.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "failing_strings.h"
#include "io/array.h"
#include "io/output.h"

enum { MOST = 300 };

static char folder[] = "/tmp/attn-memory-XXXXXX";

static const char *const specs[] = {"a.npy", "b.safetensors:x", "b.safetensors:y", "c.npz:x", "c.npz:z"};
enum { OUTPUTS = sizeof specs / sizeof *specs, FILES = 3 };

static int enter(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int leave(void **state)
{
    (void)state;
    return unlink("a.npy") != 0 || unlink("b.safetensors") != 0 || unlink("c.npz") != 0 || chdir("/") != 0 ||
           rmdir(folder) != 0;
}

static int count_files(void)
{
    DIR *directory = opendir(".");
    assert_non_null(directory);
    int count = 0;
    for (struct dirent *e; (e = readdir(directory)) != NULL;)
        count += e->d_name[0] != '.';
    closedir(directory);
    return count;
}

/* All arrays are of two numbers, both of them value. */
static attn_status write_all(float value)
{
    float numbers[2] = {value, value};
    const struct array array = {
        .is = {.dtype = ARRAY_F32, .ndim = 1, .shape = {2}}, .data = numbers, .size = sizeof numbers};
    struct output_set set = {0};
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < OUTPUTS; i++)
        status = output_add(&set, "--out", specs[i], &array);
    if (status == ATTN_OK)
        status = output_write(&set);
    output_free(&set);
    return status;
}

static attn_status read_all(float expected)
{
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < OUTPUTS; i++) {
        struct array array;
        status = array_load(&array, specs[i]);
        if (status != ATTN_OK)
            break;
        assert_int_equal(array.size, 2 * sizeof(float));
        assert_true(((float *)array.data)[0] == expected && ((float *)array.data)[1] == expected);
        array_free(&array);
    }
    return status;
}

/* Names of containers, and the one that is there when none is given. */
static attn_status list_all(void)
{
    for (int i = 1; i < OUTPUTS; i += 2) {
        struct array_names names;
        char path[32];
        snprintf(path, sizeof path, "%.*s", (int)(strchr(specs[i], ':') - specs[i]), specs[i]);
        const attn_status status = array_names_open(&names, path);
        if (status != ATTN_OK)
            return status;
        assert_int_equal(names.count, 2);
        array_names_free(&names);
    }
    return ATTN_OK;
}

static void arm(int n)
{
    allocations.made = 0;
    allocations.fails_at = n;
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    int failed[3] = {0};
    assert_int_equal(write_all(1), ATTN_OK);
    for (int which = 0; which < 3; which++) {
        attn_status status = ATTN_OUT_OF_MEMORY;
        for (int n = 1; status != ATTN_OK && n < MOST; n++) {
            arm(n);
            status = which == 0 ? write_all(2) : which == 1 ? read_all(2) : list_all();
            arm(0);
            if (status == ATTN_OK)
                break;
            failed[which]++;
            if (status != ATTN_OUT_OF_MEMORY || strstr(attn_last_error(), "emory") == NULL)
                fail_msg("allocation %d of %d: %d, %s", n, which, (int)status, attn_last_error());
            assert_int_equal(count_files(), FILES);
            assert_int_equal(read_all(which == 0 ? 1 : 2), ATTN_OK);
        }
        assert_int_equal(status, ATTN_OK);
    }
    assert_int_equal(read_all(2), ATTN_OK);
    assert_true(failed[0] > 5 * OUTPUTS && failed[1] > 2 * OUTPUTS && failed[2] > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_failing_allocations)};
    return cmocka_run_group_tests_name("output memory", tests, enter, leave);
}
