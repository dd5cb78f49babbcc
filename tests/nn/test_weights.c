/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named weights: files that are as they should be, files that are not, and
 * asking for what is missing, of another shape or of another type.
 */
#include "named.h"

#include <unistd.h>

static char path[64];

static const char *write_file(const void *data, size_t size)
{
    strcpy(path, "/tmp/attn_nn_XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    close(fd);
    return path;
}

/** A file of a header as given and data_size bytes of data. */
static const char *write_header(const char *header, size_t data_size)
{
    static unsigned char file[4096];
    const size_t length = strlen(header);
    assert_true(8 + length + data_size <= sizeof file);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data_size; i++)
        file[8 + length + i] = (unsigned char)(i % 64);
    return write_file(file, 8 + length + data_size);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(30); n++) {
        struct memory *m = memory_create("weights round_trip", n);
        struct named *named = named_create(m);
        const int64_t num = rng_range(&m->rng, 0, 12);
        for (int64_t i = 0; i < num; i++) {
            char name[32];
            snprintf(name, sizeof name, "t.%d", (int)((i * 7) % 13));
            named_add(named, m, random_dtype(m), RNG_PICK(&m->rng, 0, 2, 3, 9), rng_range(&m->rng, 1, 20), 1, 0, "",
                      name);
        }
        size_t size;
        const char *file = named_file(named, m, &size);
        attn_weights *sets[2];
        OK(attn_weights_open(&sets[0], write_file(file, size)));
        unlink(path);
        sets[1] = named_weights(named);
        for (int which = 0; which < 2; which++) {
            assert_int_equal(attn_weights_count(sets[which]), num);
            assert_null(attn_weights_name(sets[which], -1));
            assert_null(attn_weights_name(sets[which], num));
            assert_false(attn_weights_has(sets[which], "t.99"));
            for (int64_t i = 0; i < num; i++) {
                const attn_tensor *t = &named->tensors[i];
                const int64_t rows = t->shape[2] == 1 ? 0 : t->shape[2];
                attn_tensor got;
                assert_string_equal(attn_weights_name(sets[which], i), named->names[i]);
                assert_true(attn_weights_has(sets[which], named->names[i]));
                OK(attn_weights_get(sets[which], named->names[i], rows, t->shape[3], &got));
                assert_true(got.dtype == t->dtype && equal_bits(&got, t));
                OK(attn_weights_get(sets[which], named->names[i], rows ? ATTN_ANY : 0, ATTN_ANY, &got));
                assert_true(equal_bits(&got, t));
            }
            attn_weights_destroy(sets[which]);
        }
        memory_destroy(m);
    }
    attn_weights_destroy(NULL);
}

/** The order is that of the data, whatever that of the header is; __metadata__ is no tensor; sizes of 0 are allowed. */
static void test_order(void **state)
{
    (void)state;
    attn_weights *w;
    attn_tensor t;
    OK(attn_weights_open(&w,
                         write_header("{\"__metadata__\":{\"format\":\"pt\"},"
                                      "\"last\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]},"
                                      "\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[8,16]},"
                                      "\"first\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                                      "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[40,40]},"
                                      "\"odd\":{\"dtype\":\"Q7\",\"shape\":[2],\"data_offsets\":[44,48]},"
                                      "\"cube\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[40,44]}}    ",
                                      48)));
    assert_int_equal(attn_weights_count(w), 6);
    assert_string_equal(attn_weights_name(w, 0), "first");
    assert_string_equal(attn_weights_name(w, 1), "ids");
    assert_string_equal(attn_weights_name(w, 2), "last");
    OK(attn_weights_get(w, "first", 0, 4, &t));
    assert_true(t.dtype == ATTN_BF16 && t.shape[0] == 1 && t.shape[1] == 1 && t.shape[2] == 1 && t.shape[3] == 4);
    OK(attn_weights_get(w, "last", 2, ATTN_ANY, &t));
    assert_true(t.dtype == ATTN_F32 && t.shape[2] == 2 && t.shape[3] == 3 && t.stride[3] == 1 && t.stride[2] == 3);
    const attn_tensor before = t;
    REFUSES(NULL, attn_weights_get(w, "ids", 0, 1, &t), ATTN_UNSUPPORTED, "ids|I64");
    REFUSES(NULL, attn_weights_get(w, "odd", 0, 2, &t), ATTN_UNSUPPORTED, "odd|Q7");
    REFUSES(NULL, attn_weights_get(w, "cube", ATTN_ANY, ATTN_ANY, &t), ATTN_SHAPE_MISMATCH, "cube");
    REFUSES(NULL, attn_weights_get(w, "first", 0, 5, &t), ATTN_SHAPE_MISMATCH, "first|4|5");
    REFUSES(NULL, attn_weights_get(w, "first", 4, 1, &t), ATTN_SHAPE_MISMATCH, "first|4");
    REFUSES(NULL, attn_weights_get(w, "last", 3, 3, &t), ATTN_SHAPE_MISMATCH, "last|2|3");
    REFUSES(NULL, attn_weights_get(w, "last", 2, 2, &t), ATTN_SHAPE_MISMATCH, "last|3|2");
    REFUSES(NULL, attn_weights_get(w, "last", 0, 6, &t), ATTN_SHAPE_MISMATCH, "last|2|3|6");
    REFUSES(NULL, attn_weights_get(w, "lost", 2, 3, &t), ATTN_INVALID_ARGUMENT, "lost");
    assert_true(strstr(attn_last_error(), path) != NULL);
    REFUSES(NULL, attn_weights_get(NULL, "last", 2, 3, &t), ATTN_INVALID_ARGUMENT, "weights|NULL");
    REFUSES(NULL, attn_weights_get(w, NULL, 2, 3, &t), ATTN_INVALID_ARGUMENT,
            "name is NULL; expected the name of a tensor");
    REFUSES(NULL, attn_weights_get(w, "last", 2, 3, NULL), ATTN_INVALID_ARGUMENT,
            "tensor is NULL; expected where to put the view");
    REFUSES(NULL, attn_weights_get(w, "last", -5, 3, &t), ATTN_INVALID_ARGUMENT, "rows|-5");
    REFUSES(NULL, attn_weights_get(w, "last", 2, -7, &t), ATTN_INVALID_ARGUMENT, "columns|-7");
    assert_memory_equal(&before, &t, sizeof t);
    nn_end_refusals();
    attn_weights_destroy(w);
    unlink(path);
}

static void refuses_file(const char *file, const char *words)
{
    attn_weights *w = (attn_weights *)(void *)path;
    REFUSES(NULL, attn_weights_open(&w, file), ATTN_INVALID_FILE, words);
    if (!strstr(attn_last_error(), file))
        printf("no file name in \"%s\"\n", attn_last_error());
    assert_non_null(strstr(attn_last_error(), file));
    assert_null(w);
    if (strcmp(file, path) == 0)
        unlink(file);
}

static void test_bad_files(void **state)
{
    (void)state;
    attn_weights *w;
    refuses_file("/nonexistent/model.safetensors", "/nonexistent/model.safetensors");
    refuses_file("/tmp", "/tmp");
    refuses_file(write_file("", 0), "");
    refuses_file(write_file("\x02\0\0", 3), "");
    refuses_file(write_file("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "");
    refuses_file(write_file("\x10\0\0\0\0\0\0\0{}", 10), "");
    refuses_file(write_header("", 0), "");
    refuses_file(write_header("[]", 0), "");
    refuses_file(write_header("{", 0), "");
    refuses_file(write_header("{\"a\":1}", 0), "a");
#define ENTRY(name, dtype, shape, begin, end)                                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"
    refuses_file(write_header("{" ENTRY("a.b", "F32", "2", 0, 8) "}", 7), "a.b");
    refuses_file(write_header("{" ENTRY("a.b", "F32", "2", 0, 8) "}", 9), "");
    refuses_file(write_header("{" ENTRY("a.b", "F32", "3", 0, 8) "}", 8), "a.b|3");
    refuses_file(write_header("{" ENTRY("a.b", "F32", "2", 8, 0) "}", 8), "a.b");
    refuses_file(write_header("{" ENTRY("a.b", "F32", "-2", 0, 8) "}", 8), "a.b");
    refuses_file(write_header("{" ENTRY("a.b", "F32", "4294967296,4294967296", 0, 8) "}", 8), "a.b");
    refuses_file(write_header("{" ENTRY("a", "F32", "2", 0, 8) "," ENTRY("b.c", "F32", "2", 4, 12) "}", 12), "b.c");
    refuses_file(write_header("{" ENTRY("a", "F32", "2", 0, 8) "," ENTRY("b.c", "F32", "2", 12, 20) "}", 20), "8|12");
    refuses_file(write_header("{" ENTRY("a.b", "F32", "2", 0, 8) "," ENTRY("a.b", "F32", "2", 8, 16) "}", 16), "twice");
    refuses_file(write_header("{\"a.b\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8), "a.b");
    refuses_file(write_header("{\"a.b\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8), "a.b");
    /* Files of the kernel have a size and cannot be mapped. */
    static const char of_kernel[] = "/sys/devices/system/cpu/online";
    if (access(of_kernel, R_OK) == 0)
        refuses_file(of_kernel, "/sys/devices/system/cpu/online: cannot map the file: ");
    REFUSES(NULL, attn_weights_open(NULL, "/tmp/x"), ATTN_INVALID_ARGUMENT,
            "weights is NULL; expected where to put the set");
    w = (attn_weights *)(void *)path;
    REFUSES(NULL, attn_weights_open(&w, NULL), ATTN_INVALID_ARGUMENT,
            "path is NULL; expected the name of a safetensors file");
    assert_null(w);
    nn_end_refusals();
}

/** Sentences have the end of a long name, whole characters of it; an empty file has no name that could be meant. */
static void test_long_names(void **state)
{
    (void)state;
    enum { LETTERS = 90 };
    for (int shift = 0; shift < 2; shift++) {
        char name[2 * LETTERS + 32] = "/tmp/attn_";
        attn_weights *w;
        attn_tensor t;
        strcat(name, shift ? "x" : "");
        for (int i = 0; i < LETTERS; i++)
            strcat(name, "\xc3\xa9");
        assert_int_equal(rename(write_header("{}", 0), name), 0);
        OK(attn_weights_open(&w, name));
        REFUSES(NULL, attn_weights_get(w, "a", 0, 4, &t), ATTN_INVALID_ARGUMENT,
                "...\xc3\xa9|\xc3\xa9 has no tensor 'a'; it has none at all");
        assert_null(strstr(attn_last_error(), "/tmp/attn_"));
        attn_weights_destroy(w);
        unlink(name);
    }
    nn_end_refusals();
}

/** Every way to cut a real file short, and some of its bytes changed: refused or right, never a crash. */
static void test_spoilt_files(void **state)
{
    (void)state;
    struct memory *m = memory_create("weights spoilt_files", 0);
    struct named *named = named_create(m);
    named_add(named, m, ATTN_F32, 3, 4, 1, 0, "", "some.weight");
    named_add(named, m, ATTN_F16, 0, 4, 1, 0, "", "some.bias");
    size_t size;
    volatile float last = 0;
    char *file = named_file(named, m, &size);
    for (size_t length = 0; length < size; length++) {
        attn_weights *w;
        assert_int_equal(attn_weights_open(&w, write_file(file, length)), ATTN_INVALID_FILE);
        assert_null(w);
        unlink(path);
    }
    for (int n = 0; n < 400; n++) {
        const size_t at = (size_t)rng_range(&m->rng, 0, (int64_t)size - 57);
        const char was = file[at];
        attn_weights *w;
        file[at] = (char)rng_range(&m->rng, 0, 255);
        if (attn_weights_open(&w, write_file(file, size)) == ATTN_OK) {
            attn_tensor t;
            for (int64_t i = 0; i < attn_weights_count(w); i++)
                if (attn_weights_get(w, attn_weights_name(w, i), ATTN_ANY, ATTN_ANY, &t) == ATTN_OK)
                    for (int64_t c = 0; c < t.shape[3]; c++)
                        last = t.shape[2] ? tensor_get(&t, 0, 0, t.shape[2] - 1, c) : 0; /* is mapped */
            attn_weights_destroy(w);
        } else {
            assert_null(w);
        }
        unlink(path);
        file[at] = was;
    }
    (void)last;
    memory_destroy(m);
}

static void test_create_refuses(void **state)
{
    (void)state;
    const float data[6] = {1, 2, 3, 4, 5, 6};
    const char *names[2] = {"a", "b"};
    attn_tensor tensors[2] = {attn_matrix(data, 2, 3), attn_vector(data, 6)};
    attn_weights *w = (attn_weights *)(void *)path;
    REFUSES(NULL, attn_weights_create(NULL, 2, names, tensors), ATTN_INVALID_ARGUMENT, "weights|NULL");
    REFUSES(NULL, attn_weights_create(&w, -1, names, tensors), ATTN_INVALID_ARGUMENT, "num|-1");
    assert_null(w);
    REFUSES(NULL, attn_weights_create(&w, 2, NULL, tensors), ATTN_INVALID_ARGUMENT, "names is NULL; expected 2 names");
    REFUSES(NULL, attn_weights_create(&w, 2, names, NULL), ATTN_INVALID_ARGUMENT,
            "tensors is NULL; expected 2 tensors");
    names[1] = "a";
    REFUSES(NULL, attn_weights_create(&w, 2, names, tensors), ATTN_INVALID_ARGUMENT,
            "names[1] is 'a', as is names[0]; expected names that differ");
    assert_null(w);
    names[1] = NULL;
    REFUSES(NULL, attn_weights_create(&w, 2, names, tensors), ATTN_INVALID_ARGUMENT,
            "names[1] is NULL; expected a name");
    names[1] = "b";
    tensors[1].shape[3] = -6;
    REFUSES(NULL, attn_weights_create(&w, 2, names, tensors), ATTN_INVALID_ARGUMENT, "tensors[1]|-6");
    OK(attn_weights_create(&w, 0, NULL, NULL));
    assert_int_equal(attn_weights_count(w), 0);
    attn_weights_destroy(w);
    /* Names are copied. */
    char name[] = "changing";
    const char *its_name = name;
    OK(attn_weights_create(&w, 1, &its_name, tensors));
    strcpy(name, "another_");
    assert_true(attn_weights_has(w, "changing"));
    attn_weights_destroy(w);
    nn_end_refusals();
}

/** nn.MultiheadAttention from a file, with and without biases, in one matrix or three; each tensor missing or spoilt.
 */
static void test_load_mha(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(8); n++) {
        struct memory *m = memory_create("weights load_mha", n);
        struct named *named = named_create(m);
        const int biases = n % 2, separate = n / 2 % 2;
        const int64_t memory_width = separate ? 10 : 12;
        if (separate) {
            named_add(named, m, ATTN_F32, 12, 12, 0.3, 0, "a.", "q_proj_weight");
            named_add(named, m, ATTN_F32, 12, 10, 0.3, 0, "a.", "k_proj_weight");
            named_add(named, m, ATTN_F32, 12, 10, 0.3, 0, "a.", "v_proj_weight");
        } else {
            named_add(named, m, ATTN_BF16, 36, 12, 0.3, 0, "a.", "in_proj_weight");
        }
        if (biases)
            named_add(named, m, ATTN_F32, 0, 36, 0.3, 0, "a.", "in_proj_bias");
        named_add_dense(named, m, 12, 12, biases, "a.", "out_proj");
        size_t size;
        char *file = named_file(named, m, &size);
        attn_weights *w;
        attn_mha *mha;
        OK(attn_weights_open(&w, write_file(file, size)));
        attn_mha_config c = attn_mha_config_default();
        c.d_model = 12, c.heads = 3, c.d_memory = memory_width;
        REFUSES(NULL, attn_mha_load(&mha, &c, w, "b."), ATTN_INVALID_ARGUMENT, "b.");
        assert_null(mha);
        OK(attn_mha_load(&mha, &c, w, "a."));
        attn_weights_destroy(w); /* layers keep copies */
        unlink(path);

        const attn_tensor x = random_rows(m, 2, 7, 12), memory = random_rows(m, 2, 6, memory_width);
        const attn_tensor out = place_rows(m, 2, 7, 12);
        OK(attn_mha_forward(mha, &x, &memory, &out, NULL, NULL, 0));
        const double *b = named_values(named, "a.", "in_proj_bias"), *all = named_values(named, "a.", "in_proj_weight");
        const double *q = all ? all : named_values(named, "a.", "q_proj_weight");
        const double *k = all ? all + 144 : named_values(named, "a.", "k_proj_weight");
        const double *v = all ? all + 288 : named_values(named, "a.", "v_proj_weight");
        const struct oracle_mha oracle = {3,
                                          3,
                                          4,
                                          4,
                                          {12, 12, q, b},
                                          {12, memory_width, k, b ? b + 12 : NULL},
                                          {12, memory_width, v, b ? b + 24 : NULL},
                                          named_dense(named, 12, 12, "a.", "out_proj")};
        const struct trio y = trio(m, 2 * 7 * 12);
        const double *xs = read_all(m, &x), *ms = read_all(m, &memory);
        for (int which = 0; which < ORACLES; which++)
            oracle_take(which)->mha(&oracle, 2, 7, xs, 6, ms, NULL, y.of[which], NULL);
        judge(NN_MHA, "out", &out, y.of, NULL);
        attn_mha_destroy(mha);

        for (int64_t i = 0; i < named->num; i++)
            for (int change = 0; change < 2; change++) {
                struct named *copy = bytes(m, sizeof *copy);
                memcpy(copy, named, sizeof *copy);
                const char *name = named->names[i];
                if (change == 0)
                    named_remove(copy, name, "");
                else
                    copy->tensors[i].shape[3]--;
                w = named_weights(copy);
                if (change == 0 && strstr(name, "bias")) { /* the only one of its kind: may be missing */
                    OK(attn_mha_load(&mha, &c, w, "a."));
                    attn_mha_destroy(mha);
                } else { /* without in_proj_weight other names are looked for */
                    REFUSES(NULL, attn_mha_load(&mha, &c, w, "a."),
                            change ? ATTN_SHAPE_MISMATCH : ATTN_INVALID_ARGUMENT,
                            change == 0 && strstr(name, "in_proj_weight") ? "a." : name);
                    assert_null(mha);
                }
                attn_weights_destroy(w);
            }
        named_add(named, m, ATTN_F32, 0, 12, 0.3, 0, "a.", "bias_k");
        w = named_weights(named);
        REFUSES(NULL, attn_mha_load(&mha, &c, w, "a."), ATTN_UNSUPPORTED,
                "a.bias_k or bias_v is in the weights; extra keys (add_bias_kv) are not supported");
        attn_weights_destroy(w);
        memory_destroy(m);
    }
    nn_end_refusals();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_bad_files),    cmocka_unit_test(test_long_names),
                                       cmocka_unit_test(test_spoilt_files), cmocka_unit_test(test_create_refuses),
                                       cmocka_unit_test(test_load_mha)};
    return NN_MAIN(tests);
}
