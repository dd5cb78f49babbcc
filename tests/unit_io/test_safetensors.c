/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors parser on headers written by hand: accepted ones, a table of
 * refused ones with the sentence each must give, lookups, and that the writer's
 * headers are read back.
 */
#include "cmocka_all.h"

#include <jansson.h>
#include <stdlib.h>

#include "io/safetensors.h"

static attn_status parse(struct safetensors *index, const char *text, uint64_t data)
{
    return safetensors_parse(index, text, strlen(text), data, "x.safetensors");
}

static void reads_a_file(void **state)
{
    (void)state;
    static const char text[] = "{\"__metadata__\":{\"who\":\"me\"},"
                               "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
                               "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,3],\"data_offsets\":[32,32]},"
                               "\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                               "\"new\":{\"dtype\":\"Q7\",\"shape\":[9],\"data_offsets\":[32,39]},"
                               "\"scalar\":{\"shape\":[],\"data_offsets\":[39,47],\"dtype\":\"I64\"}}      ";
    struct safetensors index;
    if (parse(&index, text, 47) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    assert_int_equal(index.count, 5);
    const struct safetensors_entry *entry;
    struct array_shape is;
    struct array_storage stored;

    assert_int_equal(safetensors_find(&index, "b", "x", &entry), ATTN_OK);
    assert_int_equal(safetensors_usable(entry, "x", &is, &stored), ATTN_OK);
    assert_int_equal(entry->begin, 8);
    assert_int_equal(entry->end, 32);
    assert_int_equal(is.dtype, ARRAY_F32);
    assert_int_equal(is.ndim, 2);
    assert_int_equal(is.shape[0], 2);
    assert_int_equal(is.shape[1], 3);

    assert_int_equal(safetensors_find(&index, "scalar", "x", &entry), ATTN_OK);
    assert_int_equal(safetensors_usable(entry, "x", &is, &stored), ATTN_OK);
    assert_int_equal(is.dtype, ARRAY_I64);
    assert_int_equal(is.ndim, 0);

    assert_int_equal(safetensors_find(&index, "a", "x", &entry), ATTN_OK);
    assert_int_equal(safetensors_usable(entry, "x", &is, &stored), ATTN_OK);
    assert_int_equal(is.dtype, ARRAY_BF16);
    assert_int_equal(entry->end - entry->begin, 4 * array_dtype_size(is.dtype));
    assert_int_equal(safetensors_find(&index, "empty", "x", &entry), ATTN_OK);
    assert_int_equal(safetensors_usable(entry, "x", &is, &stored), ATTN_OK);
    assert_int_equal(is.dtype, ARRAY_F16);

    /* Other types may be there and are refused only by name. */
    assert_int_equal(safetensors_find(&index, "new", "x", &entry), ATTN_OK);
    assert_int_equal(safetensors_usable(entry, "x", &is, &stored), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "Q7");

    assert_int_equal(safetensors_find(&index, "c", "x", &entry), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "no tensor 'c'");
    assert_says(attn_last_error(), "'scalar'");
    safetensors_free(&index);

    assert_int_equal(parse(&index, "{}", 0), ATTN_OK);
    assert_int_equal(safetensors_find(&index, "c", "x", &entry), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "x has no tensor 'c'; it has none at all");
    safetensors_free(&index);
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t data;
        const char *says;
    } table[] = {
        {"", 0, "x.safetensors is not a safetensors file: its header does not begin with '{'"},
        {" {}", 0, "x.safetensors is not a safetensors file: its header does not begin with '{'"},
        {"[]", 0, "x.safetensors is not a safetensors file: its header does not begin with '{'"},
        {"{", 0, "x.safetensors: the safetensors header is not valid JSON: "},
        {"{} {}", 0, "not valid JSON"},
        {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid JSON"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", 4, "not valid JSON"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "x.safetensors: the safetensors header holds a name twice, near its byte 57"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a name twice"},
        {"{\"__metadata__\":{\"n\":1}}", 0, "x.safetensors: __metadata__ is not an object of strings"},
        {"{\"__metadata__\":7}", 0, "x.safetensors: __metadata__ is not an object of strings"},
        {"{\"a\":7}", 0, "x.safetensors: tensor 'a' is not described by exactly dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
         "x.safetensors: tensor 'a' is not described by exactly dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"order\":\"F\"}}", 4,
         "x.safetensors: tensor 'a' is not described by exactly dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype that is not a string"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4,
         "x.safetensors: tensor 'a' has no array of lengths as its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
         "x.safetensors: tensor 'a' has a length in its shape that is not a whole number from 0 up"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
         "x.safetensors: tensor 'a' has a length in its shape that is not a whole number from 0 up"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets that are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, "data_offsets that are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "data_offsets that are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "data_offsets 4 to 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4,
         "x.safetensors: tensor 'a' has data_offsets 0 to 8; expected them in order and at most 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "takes 4 bytes; expected 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
         "x.safetensors: tensor 'a' has a shape that overflows: its size exceeds 64 bits"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[65536,65536,65536,65536],\"data_offsets\":[0,0]}}", 0, "overflows"},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[0,12]}}", 12, "takes 12 bytes; expected 6"},
        {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,5]}}", 5, "takes 5 bytes; expected 6"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "takes 1 bytes; expected 2"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "hole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
         12, "x.safetensors: the data has a hole: bytes 4 to 8 belong to no tensor"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         12, "'a' and 'b' overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         8, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5,
         "x.safetensors: the last 1 bytes of the file belong to no tensor"},
        {"{}", 1, "x.safetensors: the last 1 bytes of the file belong to no tensor"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct safetensors index;
        if (parse(&index, table[i].text, table[i].data) == ATTN_OK)
            fail_msg("%s was accepted", table[i].text);
        assert_says(attn_last_error(), table[i].says);
        assert_says(attn_last_error(), "x.safetensors");
    }
}

static int allocations_left;

static void *allocate_few(size_t size)
{
    return allocations_left-- > 0 ? malloc(size) : NULL;
}

/* Each allocation of jansson's in turn. Without room for a text it takes what is there for bad JSON. */
static void survives_failing_allocations(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    attn_status status = ATTN_INVALID_FILE;
    int shortages = 0, n = 0;
    for (; status != ATTN_OK && n < 100; n++) {
        struct safetensors index;
        allocations_left = n;
        json_set_alloc_funcs(allocate_few, free);
        status = parse(&index, text, 4);
        json_set_alloc_funcs(malloc, free);
        if (status == ATTN_OK) {
            safetensors_free(&index);
        } else if (status == ATTN_OUT_OF_MEMORY) {
            shortages++;
            assert_string_equal(attn_last_error(), "x.safetensors: out of memory for the safetensors header");
        } else {
            assert_says(attn_last_error(), "x.safetensors: the safetensors header is not valid JSON: ");
        }
    }
    assert_true(status == ATTN_OK && n > 5 && shortages > 3);
}

static void refuses_bad_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t claimed, file;
        const char *says; /* NULL: accepted */
    } table[] = {
        {2, 10, NULL},
        {0, 8, NULL},
        {100000000, 100000008, NULL},
        {2, 7, "truncated: it has 7 bytes"},
        {2, 0, "truncated: it has 0 bytes"},
        {3, 10, "x.safetensors: the safetensors file is truncated: its header claims 3 bytes, but 2 follow"},
        {100000001, 1000000000,
         "x.safetensors: the safetensors header claims 100000001 bytes; expected at most 100000000"},
        {UINT64_MAX, 10, "claims 18446744073709551615 bytes"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        unsigned char prefix[SAFETENSORS_PREFIX];
        for (int b = 0; b < SAFETENSORS_PREFIX; b++)
            prefix[b] = (unsigned char)(table[i].claimed >> (8 * b));
        size_t length = 0;
        bool ok = safetensors_header_length(&length, prefix, table[i].file, "x.safetensors") == ATTN_OK;
        assert_int_equal(ok, table[i].says == NULL);
        if (ok)
            assert_int_equal(length, table[i].claimed);
        else
            assert_says(attn_last_error(), table[i].says);
    }
}

static void refuses_too_many_dimensions_by_name_only(void **state)
{
    (void)state;
    struct safetensors index;
    assert_int_equal(
        parse(&index, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4), ATTN_OK);
    const struct safetensors_entry *entry;
    struct array_shape is;
    struct array_storage stored;
    assert_int_equal(safetensors_find(&index, "a", "x", &entry), ATTN_OK);
    assert_int_equal(safetensors_usable(entry, "x", &is, &stored), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "x: tensor 'a' has 9 dimensions; expected at most 8");
    safetensors_free(&index);
}

static void reads_what_it_writes(void **state)
{
    (void)state;
    float data[6] = {0};
    struct array a = {.is = {.dtype = ARRAY_F32, .ndim = 2, .shape = {2, 3}}, .data = data, .size = 24};
    struct array b = {.is = {.dtype = ARRAY_F32, .ndim = 0}, .data = data, .size = 4};
    struct array c = {.is = {.dtype = ARRAY_BF16, .ndim = 1, .shape = {3}}, .data = data, .size = 6};
    struct array d = {.is = {.dtype = ARRAY_F16, .ndim = 2, .shape = {1, 2}}, .data = data, .size = 4};
    const struct array *arrays[] = {&a, &b, &c, &d};
    const char *names[] = {"with \"quotes\" and \\", "b", "c", "d"};
    char *text;
    size_t length;
    assert_int_equal(safetensors_header_write(&text, &length, names, arrays, 4, NULL, "y.safetensors"), ATTN_OK);
    assert_int_equal(length % 8, 0);
    size_t claimed;
    assert_int_equal(safetensors_header_length(&claimed, (unsigned char *)text, length + 38, "y"), ATTN_OK);
    assert_int_equal(claimed, length - 8);
    struct safetensors index;
    if (safetensors_parse(&index, text + 8, claimed, 38, "y") != ATTN_OK)
        fail_msg("%s", attn_last_error());
    assert_int_equal(index.count, 4);
    assert_string_equal(index.entries[0].name, names[0]);
    assert_int_equal(index.entries[1].begin, 24);
    for (size_t i = 0; i < 4; i++) {
        struct array_shape is;
        struct array_storage stored;
        assert_int_equal(safetensors_usable(&index.entries[i], "y", &is, &stored), ATTN_OK);
        assert_int_equal(is.dtype, arrays[i]->is.dtype);
        assert_int_equal(is.ndim, arrays[i]->is.ndim);
        assert_int_equal(index.entries[i].end - index.entries[i].begin, arrays[i]->size);
    }
    safetensors_free(&index);
    free(text);

    names[1] = "\xff not UTF-8";
    assert_int_equal(safetensors_header_write(&text, &length, names, arrays, 2, NULL, "y.safetensors"),
                     ATTN_INVALID_FILE);
    assert_says(attn_last_error(), " not UTF-8'; expected a name in UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_file),         cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_bad_lengths),  cmocka_unit_test(refuses_too_many_dimensions_by_name_only),
        cmocka_unit_test(reads_what_it_writes), cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
