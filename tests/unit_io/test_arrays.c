/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of files, whatever the form: what is mapped and what is moved, names and
 * patterns, pipes, files of other programs, and allocations that fail.
 */
#include "cmocka_all.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failing_memory.h"
#include "sentences.h"
#include "io/output.h"

static char folder[] = "/tmp/attn-arrays-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    static const char *const names[] = {"a.npz",
                                        "a.safetensors",
                                        "x.npy",
                                        "m.safetensors",
                                        "p.npy",
                                        "x.npy.gz",
                                        "o.npz",
                                        "x.npz",
                                        "x.gguf",
                                        "x.h5",
                                        "model.onnx",
                                        "pytorch_model.bin",
                                        "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(names[i]);
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

static void put(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void put_array(const char *spec, const struct array *array)
{
    struct output_set set = {.compressed = true};
    assert_int_equal(output_add(&set, "-o", spec, array), ATTN_OK);
    if (output_write(&set) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    output_free(&set);
}

static struct array numbers(void)
{
    const struct array_shape is = {.dtype = ARRAY_F32, .ndim = 2, .shape = {3, 4}};
    struct array array;
    assert_int_equal(array_allocate(&array, "numbers", &is), ATTN_OK);
    for (int i = 0; i < 12; i++)
        ((float *)array.data)[i] = (float)i;
    return array;
}

/* A tensor at an odd address is moved, its neighbour is not. */
static void moves_what_is_not_aligned(void **state)
{
    (void)state;
    static const char header[] = "{\"b\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}";
    unsigned char file[8 + sizeof header + 5] = {sizeof header};
    const float value = 2.5f;
    memcpy(file + 8, header, sizeof header - 1);
    file[8 + sizeof header - 1] = ' ';
    file[8 + sizeof header] = 1;
    memcpy(file + 8 + sizeof header + 1, &value, sizeof value);
    put("m.safetensors", file, sizeof file);
    struct array b, f;
    assert_int_equal(array_load(&b, "m.safetensors:b"), ATTN_OK);
    assert_non_null(b.bytes);
    assert_int_equal(array_load(&f, "m.safetensors:f"), ATTN_OK);
    assert_null(f.bytes);
    assert_memory_equal(f.data, &value, sizeof value);
    array_free(&f);
    array_free(&b);
}

static void allocates_what_fits(void **state)
{
    (void)state;
    const struct array_shape is = {.dtype = ARRAY_F32, .ndim = 2, .shape = {INT64_C(1) << 40, INT64_C(1) << 40}};
    struct array array;
    assert_int_equal(array_allocate(&array, "numbers", &is), ATTN_SIZE_OVERFLOW);
    assert_string_equal(attn_last_error(), "numbers of shape (1099511627776, 1099511627776) exceeds the address space");
    assert_null(array.data);
}

static void keeps_the_mapping_of_a_replaced_file(void **state)
{
    (void)state;
    struct array array = numbers(), mapped;
    put_array("x.npy", &array);
    assert_int_equal(array_load(&mapped, "x.npy"), ATTN_OK);
    assert_non_null(mapped.bytes);
    memset(array.data, 0, array.size);
    put_array("x.npy", &array);
    assert_true(((const float *)mapped.data)[11] == 11);
    array_free(&mapped);
    array_free(&array);
}

static void reads_parts(void **state)
{
    (void)state;
    struct array array = numbers();
    put_array("x.npy", &array);
    put_array("a.npz:n", &array);
    static const char *const specs[] = {"x.npy", "a.npz:n", "a.npz"};
    for (int i = 0; i < 3; i++) {
        struct array_file file;
        float part[2];
        assert_int_equal(array_open(&file, specs[i]), ATTN_OK);
        assert_int_equal(array_read(&file, 5 * sizeof *part, part, sizeof part), ATTN_OK);
        assert_true(part[0] == 5 && part[1] == 6);
        assert_int_equal(array_read(&file, 0, part, sizeof part), ATTN_OK);
        assert_true(part[0] == 0 && part[1] == 1);
        array_close(&file);
    }
    array_free(&array);
}

static void names_arrays(void **state)
{
    (void)state;
    struct array array = numbers(), read;
    static const char *const names[] = {"layer10", "layer9", "other:x"};
    static const char *const files[] = {"a.npz", "a.safetensors"};
    for (int f = 0; f < 2; f++) {
        struct output_set set = {.count = 0};
        char spec[64];
        for (int i = 0; i < 3; i++) {
            snprintf(spec, sizeof spec, "%s:%s", files[f], names[i]);
            assert_int_equal(output_add(&set, "-o", spec, &array), ATTN_OK);
        }
        assert_int_equal(output_write(&set), ATTN_OK);
        output_free(&set);

        struct array_names found;
        snprintf(spec, sizeof spec, "%s:layer*", files[f]);
        assert_int_equal(array_names_open(&found, spec), ATTN_OK);
        assert_int_equal(found.count, 2);
        assert_string_equal(found.names[0], "layer9");
        assert_string_equal(found.path, files[f]);
        array_names_free(&found);
        assert_int_equal(array_names_open(&found, files[f]), ATTN_OK);
        assert_int_equal(found.count, 3);
        array_names_free(&found);
        snprintf(spec, sizeof spec, "%s:none*", files[f]);
        assert_int_equal(array_names_open(&found, spec), ATTN_INVALID_FILE);
        assert_says(attn_last_error(), "no tensor whose name matches 'none*'");

        snprintf(spec, sizeof spec, "%s:other:x", files[f]);
        assert_int_equal(array_load(&read, spec), ATTN_OK);
        array_free(&read);
        assert_int_equal(array_load(&read, files[f]), ATTN_INVALID_ARGUMENT);
        assert_says(attn_last_error(), ":NAME, one of 3: ");
        snprintf(spec, sizeof spec, "%s:", files[f]);
        assert_int_equal(array_load(&read, spec), ATTN_INVALID_ARGUMENT);
        char sentence[200];
        snprintf(sentence, sizeof sentence, "%s has an empty tensor name; expected %sNAME", spec, spec);
        assert_string_equal(attn_last_error(), sentence);
    }
    assert_int_equal(array_load(&read, ""), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(),
                        "the file name is empty; expected FILE.npy, FILE.npz:NAME or FILE.safetensors:NAME");
    put_array("x.npy", &array);
    assert_int_equal(rename("x.npy", "x.npz"), 0);
    assert_int_equal(array_load(&read, "x.npz:n"), ATTN_INVALID_FILE);
    assert_string_equal(attn_last_error(), "x.npz holds one array without a name; expected x.npz without ':n'");
    put_array("x.npy", &array);
    struct array_names none;
    assert_int_equal(array_names_open(&none, "x.npy"), ATTN_INVALID_ARGUMENT);
    assert_says(attn_last_error(), "x.npy is one array");
    array_free(&array);
}

/* A pipe with less and with more than its buffer, and the same from standard input, which is read once for all. */
static void reads_pipes(void **state)
{
    (void)state;
    struct array array = numbers(), first, second;
    put_array("a.safetensors:n", &array);
    int pipe_of[2], before = dup(STDIN_FILENO);
    unsigned char bytes[4096];
    assert_int_equal(pipe(pipe_of), 0);
    int fd = open("a.safetensors", O_RDONLY);
    ssize_t size = read(fd, bytes, sizeof bytes);
    close(fd);
    assert_true(size > 0 && write(pipe_of[1], bytes, (size_t)size) == size);
    close(pipe_of[1]);
    assert_int_equal(dup2(pipe_of[0], STDIN_FILENO), STDIN_FILENO);
    close(pipe_of[0]);
    assert_int_equal(array_load(&first, "-"), ATTN_OK);
    assert_int_equal(array_load(&second, "-:n"), ATTN_OK);
    assert_ptr_equal(first.data, second.data);
    assert_memory_equal(first.data, array.data, array.size);
    array_free(&first);
    assert_memory_equal(second.data, array.data, array.size);
    array_free(&second);
    assert_int_equal(array_load(&second, "-:x"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "standard input has no tensor 'x'");
    dup2(before, STDIN_FILENO);
    close(before);
    array_free(&array);

    assert_int_equal(array_load(&first, "/dev/zero"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "/dev/zero holds no arrays: it begins as neither .npy, .npz nor safetensors");
    assert_int_equal(array_load(&first, "/dev/null"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "/dev/null is not a .npy file: it does not begin with \\x93NUMPY");
    assert_int_equal(array_load(&first, "/"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "/ is a folder; expected a file");
}

static void says_what_to_do_with_other_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *bytes;
        size_t size; /* 0: of a text */
        const char *says;
    } table[] = {
        {"x.npy.gz", "\x1f\x8b\x08\0\0\0\0\0", 8, "compressed with gzip, which is not read: give what gunzip makes"},
        {"x.gguf", "GGUF\3\0\0\0\0\0\0\0{", 13, "is a GGUF file"},
        {"x.h5", "\x89HDF\r\n\x1a\n", 8, "is an HDF5 file"},
        {"model.onnx", "\x08\x07\x12\x04", 4,
         "model.onnx is an ONNX model, a graph and not arrays; libattn.onnx, in Python, runs its attention"},
        {"pytorch_model.bin", "\x80\x02\x8a\x0al\xfc\x9c\x46", 8, "safetensors.torch.save_file"},
        {"model.safetensors.index.json",
         "{\"metadata\": {}, \"weight_map\": {\"a\": \"m-2.safetensors\", \"b\": \"m-1.safetensors\", \"c\": 3}}", 0,
         "the index of a model's 2 files and holds no arrays; expected one of these files, such as "
         "m-1.safetensors:NAME"},
    };
    struct array array;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        put(table[i].name, table[i].bytes, table[i].size > 0 ? table[i].size : strlen(table[i].bytes));
        assert_int_equal(array_load(&array, table[i].name), ATTN_INVALID_FILE);
        assert_says(attn_last_error(), table[i].name);
        assert_says(attn_last_error(), table[i].says);
    }
}

/* What is said where memory is short. */
static struct sentences shortages[] = {
    {.words = "a.npz: out of memory"},
    {.words = "m.safetensors:f: out of memory"},
    {.words = "a.npz:n of shape (3, 4): out of memory for | bytes"},
    {.words = "m.safetensors:f of shape (1,): out of memory for 4 bytes"},
    {.words = "x.npy: out of memory"},
    {.words = "a.npz of shape (3, 4): out of memory for | bytes"},
    {.words = "a.npz:n: out of memory"},
    {.words = "m.safetensors: out of memory"},
    {0},
};

/* Each allocation of this code in turn; libzip's own are not reached. */
static void survives_failing_allocations(void **state)
{
    (void)state;
    struct array array = numbers(), read;
    put_array("a.npz:n", &array);
    put_array("x.npy", &array);
    static const char *const specs[] = {"a.npz:n", "a.npz", "x.npy", "m.safetensors:f"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        int failures = 0;
        for (int n = 1; n < 200; n++) {
            allocations.made = 0;
            allocations.fails_at = n;
            attn_status status = array_load(&read, specs[i]);
            allocations.fails_at = 0;
            if (status == ATTN_OK) {
                array_free(&read);
                break;
            }
            failures++;
            assert_int_equal(status, ATTN_OUT_OF_MEMORY);
            sentences_meet(shortages, attn_last_error());
        }
        assert_true(failures >= 2 && failures < 100);
    }
    sentences_end(shortages);
    array_free(&array);
}

/* A pipe of more bytes than are read at first. */
static void reads_a_pipe_with_failing_allocations(void **state)
{
    (void)state;
    static struct sentences of_pipes[] = {
        {.words = "/proc/self/fd/|: out of memory"},
        {.words = "/proc/self/fd/|: out of memory after 64 bytes"},
        {.words = "/proc/self/fd/|: out of memory after 128 bytes"},
        {0},
    };
    struct array array = numbers(), read_array;
    unsigned char bytes[4096];
    put_array("x.npy", &array);
    FILE *file = fopen("x.npy", "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    attn_status status = ATTN_OUT_OF_MEMORY;
    for (int n = 1; status != ATTN_OK && n < 100; n++) {
        int ends[2];
        char name[64];
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(write(ends[1], bytes, size), size);
        close(ends[1]);
        snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
        allocations.made = 0;
        allocations.fails_at = n;
        status = array_load(&read_array, name);
        allocations.fails_at = 0;
        close(ends[0]);
        if (status != ATTN_OK) {
            assert_int_equal(status, ATTN_OUT_OF_MEMORY);
            sentences_meet(of_pipes, attn_last_error());
        }
    }
    assert_int_equal(status, ATTN_OK);
    assert_memory_equal(read_array.data, array.data, array.size);
    sentences_end(of_pipes);
    array_free(&read_array);
    array_free(&array);
}

/* Nothing is written where an allocation of this code fails. */
static void writes_with_failing_allocations(void **state)
{
    (void)state;
    static struct sentences of_outputs[] = {
        {.words = "out of memory for 8 outputs"},
        {.words = "out of memory for 1 outputs"},
        {.words = "/o.npz: out of memory"},
        {.words = "/o.npz: cannot begin a zip archive: out of memory"},
        {0},
    };
    struct array array = numbers();
    attn_status status = ATTN_OUT_OF_MEMORY;
    for (int n = 1; status != ATTN_OK && n < 100; n++) {
        struct output_set set = {.count = 0};
        assert_int_equal(access("o.npz", F_OK), -1);
        allocations.made = 0;
        allocations.fails_at = n;
        status = output_add(&set, "-o", "o.npz:n", &array);
        if (status == ATTN_OK)
            status = output_write(&set);
        allocations.fails_at = 0;
        output_free(&set);
        if (status != ATTN_OK) {
            assert_int_equal(status, ATTN_OUT_OF_MEMORY);
            sentences_meet(of_outputs, attn_last_error());
        }
    }
    assert_int_equal(status, ATTN_OK);
    assert_int_equal(access("o.npz", F_OK), 0);
    sentences_end(of_outputs);
    array_free(&array);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_what_is_not_aligned),
        cmocka_unit_test(allocates_what_fits),
        cmocka_unit_test(keeps_the_mapping_of_a_replaced_file),
        cmocka_unit_test(reads_parts),
        cmocka_unit_test(names_arrays),
        cmocka_unit_test(reads_pipes),
        cmocka_unit_test(says_what_to_do_with_other_files),
        cmocka_unit_test(survives_failing_allocations),
        cmocka_unit_test(reads_a_pipe_with_failing_allocations),
        cmocka_unit_test(writes_with_failing_allocations),
    };
    return cmocka_run_group_tests_name("arrays", tests, enter, leave);
}
