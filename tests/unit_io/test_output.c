/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaced files and sets of outputs, in a folder of their own: an abandoned file
 * leaves nothing, a finished one replaces the old content whole and keeps its
 * permissions, symbolic links are followed, and only regular files are written.
 */
#include "cmocka_all.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/npz.h"
#include "io/replace.h"
#include "io/output.h"

static char folder[] = "/tmp/attn-test-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int count_files(void)
{
    DIR *directory = opendir(".");
    assert_non_null(directory);
    int count = 0;
    for (struct dirent *e; (e = readdir(directory)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(directory);
    return count;
}

static int empty(void **state)
{
    (void)state;
    DIR *directory = opendir(".");
    if (directory == NULL)
        return 1;
    for (struct dirent *e; (e = readdir(directory)) != NULL;) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && remove(e->d_name) != 0)
            return 1;
    }
    return closedir(directory);
}

static int leave(void **state)
{
    return empty(state) != 0 || chdir("/") != 0 || rmdir(folder) != 0;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_content(const char *name, const char *text)
{
    char content[100] = "";
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    size_t length = fread(content, 1, sizeof content - 1, file);
    content[length] = '\0';
    fclose(file);
    assert_string_equal(content, text);
}

static struct replacement begin(const char *name, const char *text)
{
    char *target;
    struct replacement file = {.fd = -1};
    if (replace_target(&target, name) != ATTN_OK || replace_open(&file, target) != ATTN_OK ||
        replace_write(&file, text, strlen(text)) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    free(target);
    return file;
}

static void discards_without_a_trace(void **state)
{
    (void)state;
    put("a", "old");
    struct replacement file = begin("a", "new");
    assert_content("a", "old");
    assert_int_equal(count_files(), 2);
    replace_discard(&file);
    assert_content("a", "old");
    assert_int_equal(count_files(), 1);
}

static void replaces_and_keeps_permissions(void **state)
{
    (void)state;
    struct stat status;
    put("a", "old and longer");
    assert_int_equal(chmod("a", 0640), 0);
    struct replacement file = begin("a", "new");
    assert_int_equal(replace_finish(&file), ATTN_OK);
    assert_content("a", "old and longer");
    assert_int_equal(replace_commit(&file, 1), ATTN_OK);
    replace_discard(&file);
    assert_content("a", "new");
    assert_int_equal(stat("a", &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);
    assert_int_equal(count_files(), 1);
}

static void follows_links(void **state)
{
    (void)state;
    struct stat status;
    put("real", "old");
    assert_int_equal(symlink("real", "link"), 0);
    struct replacement file = begin("link", "new");
    assert_int_equal(replace_finish(&file), ATTN_OK);
    assert_int_equal(replace_commit(&file, 1), ATTN_OK);
    replace_discard(&file);
    assert_content("real", "new");
    assert_int_equal(lstat("link", &status), 0);
    assert_true(S_ISLNK(status.st_mode));
}

static void refuses_bad_targets(void **state)
{
    (void)state;
    char *target;
    assert_int_equal(replace_target(&target, ""), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "'' cannot be written: it names no file");
    assert_int_equal(replace_target(&target, "absent/a"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "absent/a: cannot be written: No such file or directory");
    assert_int_equal(mkdir("d", 0777), 0);
    assert_int_equal(replace_target(&target, "d"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "d: cannot be written: it exists and is not a regular file");
    assert_int_equal(replace_target(&target, "d/"), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "'d/' cannot be written: it names no file");
    assert_int_equal(mkfifo("fifo", 0666), 0);
    assert_int_equal(replace_target(&target, "fifo"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "not a regular file");
    assert_int_equal(replace_target(&target, "/dev/null"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "not a regular file");
}

/* In a process of its own, which gives up the rights of the superuser. */
static void refuses_a_folder_that_is_not_ours(void **state)
{
    (void)state;
    int status;
    assert_int_equal(mkdir("d", 0555), 0);
    assert_int_equal(chmod(".", 0755), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *target;
        const bool given_up = geteuid() != 0 || setuid(65534) == 0;
        _exit(!given_up || replace_target(&target, "d/a") != ATTN_INVALID_FILE ||
              strcmp(attn_last_error(), "d/a: cannot write to its folder: Permission denied") != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What happens to a target after it has been looked at. */
static void meets_changed_targets(void **state)
{
    (void)state;
    char *target;
    struct replacement file;
    assert_int_equal(mkdir("d", 0777), 0);
    assert_int_equal(replace_target(&target, "d/a"), ATTN_OK);
    assert_int_equal(rmdir("d"), 0);
    assert_int_equal(replace_open(&file, target), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "/d/a: cannot make a temporary file beside it: No such file or directory");
    replace_discard(&file);
    free(target);

    file = begin("a", "new");
    assert_int_equal(replace_finish(&file), ATTN_OK);
    assert_int_equal(mkdir("a", 0777), 0);
    assert_int_equal(replace_commit(&file, 1), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "/a: cannot rename the finished file: Is a directory");
    replace_discard(&file);
    assert_int_equal(count_files(), 1);
}

static int calls;

static void count_call(int number)
{
    calls += number == SIGTERM;
}

/* What came before the commit prevents it; a handler of the program's own is called, once the files are dealt with. */
static void holds_signals(void **state)
{
    (void)state;
    struct replace_signals signals;
    put("a", "old");
    assert_true(signal(SIGTERM, count_call) != SIG_ERR);
    assert_true(signal(SIGHUP, SIG_IGN) != SIG_ERR);
    for (int early = 0; early < 2; early++) {
        calls = 0;
        replace_hold_signals(&signals);
        raise(SIGHUP);
        struct replacement file = begin("a", "new");
        assert_int_equal(replace_finish(&file), ATTN_OK);
        if (early != 0)
            raise(SIGTERM);
        assert_int_equal(replace_commit(&file, 1), early == 0 ? ATTN_OK : ATTN_INVALID_FILE);
        if (early != 0)
            assert_says(attn_last_error(), "/a: not written, as a signal ended the program");
        if (early == 0)
            raise(SIGTERM);
        replace_discard(&file);
        assert_int_equal(calls, 0);
        replace_release_signals(&signals);
        assert_int_equal(calls, 1);
        assert_content("a", early != 0 ? "old" : "new");
        assert_int_equal(count_files(), 1);
        put("a", "old");
    }
    raise(SIGTERM);
    assert_int_equal(calls, 2);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

static void count_written(void *total, size_t bytes)
{
    *(size_t *)total += bytes;
}

static void writes_sets(void **state)
{
    (void)state;
    struct array a, b, c, read;
    struct array_shape one = {.dtype = ARRAY_F32, .ndim = 1, .shape = {3}};
    assert_int_equal(array_allocate(&a, "a", &one), ATTN_OK);
    assert_int_equal(array_allocate(&b, "b", &one), ATTN_OK);
    assert_int_equal(array_allocate(&c, "c", &one), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        ((float *)a.data)[i] = (float)i;
        ((float *)b.data)[i] = (float)(10 * i);
        ((float *)c.data)[i] = (float)(100 * i);
    }
    struct output_set set = {.count = 0};
    assert_int_equal(output_add(&set, "-o", "s.safetensors:a", &a), ATTN_OK);
    assert_int_equal(output_add(&set, "--lse", "c.npy", &c), ATTN_OK);
    assert_int_equal(output_add(&set, "--weights", "./s.safetensors:b", &b), ATTN_OK);

    /* What would collide is refused and not added. */
    assert_int_equal(output_add(&set, "-x", "s.safetensors:b", &b), ATTN_INVALID_ARGUMENT);
    assert_says(attn_last_error(), "--weights and -x both write the tensor 'b'");
    assert_int_equal(output_add(&set, "-x", "./c.npy", &b), ATTN_INVALID_ARGUMENT);
    assert_int_equal(output_add(&set, "-x", "c.txt", &b), ATTN_INVALID_ARGUMENT);
    assert_int_equal(output_add(&set, "-x", "t.safetensors", &b), ATTN_INVALID_ARGUMENT);
    assert_int_equal(output_add(&set, "-x", "t.safetensors:__metadata__", &b), ATTN_INVALID_ARGUMENT);
    assert_int_equal(set.count, 3);

    size_t written = 0;
    set.written = count_written;
    set.user = &written;
    assert_int_equal(count_files(), 0);
    assert_int_equal(output_write(&set), ATTN_OK);
    assert_int_equal(count_files(), 2);
    struct stat first, second;
    assert_int_equal(stat("s.safetensors", &first), 0);
    assert_int_equal(stat("c.npy", &second), 0);
    assert_int_equal(written, first.st_size + second.st_size);
    static const char *const specs[] = {"s.safetensors:a", "s.safetensors:b", "c.npy"};
    const struct array *const wanted[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) {
        if (array_load(&read, specs[i]) != ATTN_OK)
            fail_msg("%s", attn_last_error());
        assert_int_equal(read.size, 12);
        assert_memory_equal(read.data, wanted[i]->data, 12);
        array_free(&read);
    }
    assert_int_equal(output_spare_input(&set, "-q", "s.safetensors:z"), ATTN_INVALID_ARGUMENT);
    assert_says(attn_last_error(), "-o would replace s.safetensors, which -q reads");
    assert_int_equal(link("c.npy", "hard.npy"), 0);
    assert_int_equal(output_spare_input(&set, "-k", "hard.npy"), ATTN_INVALID_ARGUMENT);
    assert_int_equal(output_spare_input(&set, "-k", "other.npy"), ATTN_OK);
    output_free(&set);
    array_free(&a);
    array_free(&b);
    array_free(&c);
}

/* bfloat16 and float16 in every form, more arrays than a set has room for at first, and archives of the same bytes. */
static void writes_every_form(void **state)
{
    (void)state;
    static const char *const files[] = {"s.safetensors", "n.npz"};
    struct array arrays[2][12] = {0};
    struct output_set set = {.count = 0};
    for (int f = 0; f < 2; f++) {
        for (int i = 0; i < 12; i++) {
            struct array_shape half = {.dtype = i % 2 == 0 ? ARRAY_BF16 : ARRAY_F16, .ndim = 2, .shape = {i, 3}};
            char spec[64];
            struct array *a = &arrays[f][i];
            assert_int_equal(array_allocate(a, "a", &half), ATTN_OK);
            memset(a->data, 'a' + i, a->size);
            snprintf(spec, sizeof spec, "%s:layer/%d.w", files[f], i);
            assert_int_equal(output_add(&set, "-o", spec, a), ATTN_OK);
        }
    }
    assert_int_equal(output_add(&set, "-x", "b.npy", &arrays[0][2]), ATTN_OK);
    assert_int_equal(output_add(&set, "-y", "n.npz:__metadata__", &arrays[0][2]), ATTN_OK);
    assert_int_equal(output_add(&set, "-y", "n.npz", &arrays[0][2]), ATTN_INVALID_ARGUMENT);
    assert_int_equal(output_add(&set, "-y", "-:a", &arrays[0][2]), ATTN_OK);
    assert_int_equal(output_add(&set, "-z", "-", &arrays[0][2]), ATTN_INVALID_ARGUMENT);
    assert_says(attn_last_error(), "-y and -z both write standard output; expected different files");
    set.count--;
    free(set.items[set.count].path);
    free(set.items[set.count].name);
    for (int compressed = 0; compressed < 2; compressed++) {
        struct array read;
        set.compressed = compressed != 0;
        if (output_write(&set) != ATTN_OK)
            fail_msg("%s", attn_last_error());
        for (int n = 0; n < 24; n++) {
            const struct array *want = &arrays[n / 12][n % 12];
            char spec[64];
            snprintf(spec, sizeof spec, "%s:layer/%d.w", files[n / 12], n % 12);
            if (array_load(&read, spec) != ATTN_OK)
                fail_msg("%s", attn_last_error());
            assert_int_equal(read.is.dtype, want->is.dtype);
            assert_int_equal(read.is.shape[0], n % 12);
            assert_int_equal(read.size, want->size);
            assert_memory_equal(read.data, want->data, want->size);
            assert_int_equal((uintptr_t)read.data % 2, 0);
            /* What is dense in its file is not copied. */
            assert_true((read.bytes != NULL) == (n < 12));
            array_free(&read);
        }
        assert_int_equal(array_load(&read, "b.npy"), ATTN_OK);
        assert_int_equal(read.is.dtype, ARRAY_BF16);
        assert_memory_equal(read.data, arrays[0][2].data, 12);
        array_free(&read);
        assert_int_equal(count_files(), 3);
    }
    output_free(&set);
    for (int n = 0; n < 24; n++)
        array_free(&arrays[n / 12][n % 12]);
}

static void refuses_archives(void **state)
{
    (void)state;
    float data[3] = {0};
    const struct array array = {.is = {.dtype = ARRAY_F32, .ndim = 1, .shape = {3}}, .data = data, .size = sizeof data};
    struct output_set set = {.count = 0};
    assert_int_equal(output_add(&set, "-o", "n.npz:\xff", &array), ATTN_OK);
    assert_int_equal(output_write(&set), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "/n.npz: cannot write an array named '\xff': Invalid argument");
    output_free(&set);
    assert_int_equal(count_files(), 0);

    /* Sizes are written behind, which a pipe does not allow; so one gets what a temporary file has held. */
    int ends[2];
    char path[] = "a pipe";
    const char *const name = "x";
    const struct array *const arrays = &array;
    assert_int_equal(pipe(ends), 0);
    struct replacement file = {.path = path, .fd = ends[1]};
    assert_int_equal(npz_write(&file, &name, &arrays, 1, false), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "a pipe: cannot write the zip archive: ");
    assert_says(attn_last_error(), "Illegal seek");
    close(ends[0]);
    close(ends[1]);

    struct rlimit before, none;
    set = (struct output_set){.standard_npz = true};
    assert_int_equal(output_add(&set, "-o", "-:x", &array), ATTN_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const attn_status status = output_write(&set);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, ATTN_INVALID_FILE);
    assert_string_equal(attn_last_error(), "standard output: cannot make a temporary file: Too many open files");
    output_free(&set);
}

static void replaces_control_characters_in_sentences(void **state)
{
    (void)state;
    struct array_file file;
    assert_int_equal(array_open(&file, "a\n\x1b[31mb.npy"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "a??[31mb.npy: cannot open");
    assert_null(strchr(attn_last_error(), '\n'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(discards_without_a_trace, empty),
        cmocka_unit_test_setup(replaces_and_keeps_permissions, empty),
        cmocka_unit_test_setup(follows_links, empty),
        cmocka_unit_test_setup(refuses_bad_targets, empty),
        cmocka_unit_test_setup(refuses_a_folder_that_is_not_ours, empty),
        cmocka_unit_test_setup(meets_changed_targets, empty),
        cmocka_unit_test_setup(holds_signals, empty),
        cmocka_unit_test_setup(writes_sets, empty),
        cmocka_unit_test_setup(writes_every_form, empty),
        cmocka_unit_test_setup(refuses_archives, empty),
        cmocka_unit_test(replaces_control_characters_in_sentences),
    };
    return cmocka_run_group_tests_name("output", tests, enter, leave);
}
