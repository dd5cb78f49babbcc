/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The .npy parser on headers written by hand: what numpy writes is read, and
 * everything else is refused with the sentence that fits. A table holds one
 * line for each way to be wrong; every line differs from an accepted header in
 * just that.
 */
#include "cmocka_all.h"

#include <math.h>

#include "io/npy.h"
#include "io/stored.h"

struct file {
    unsigned char bytes[70000];
    size_t size;
};

/* Assembles a file: preamble of the version, header text, data bytes. */
static struct file make(int major, const char *text, size_t data)
{
    static struct file f;
    memset(&f, 0, sizeof f);
    size_t length = strlen(text);
    memcpy(f.bytes, "\x93NUMPY", 6);
    f.bytes[6] = (unsigned char)major;
    f.bytes[8] = (unsigned char)(length & 0xff);
    f.bytes[9] = (unsigned char)(length >> 8 & 0xff);
    f.bytes[10] = (unsigned char)(length >> 16 & 0xff);
    size_t preamble = major == 1 ? 10 : 12;
    memcpy(f.bytes + preamble, text, length);
    f.size = preamble + length + data;
    return f;
}

static attn_status parse(const struct file *f, struct npy_header *header)
{
    size_t available = f->size < NPY_MAX_PREFIX ? f->size : NPY_MAX_PREFIX;
    return npy_parse(header, f->bytes, available, f->size, "x.npy");
}

static void reads_every_version_and_type(void **state)
{
    (void)state;
    static const struct {
        const char *code;
        enum array_dtype dtype;
        size_t size;
    } types[] = {{"<f4", ARRAY_F32, 4}, {"<f2", ARRAY_F16, 2},  {"|b1", ARRAY_BOOL, 1}, {"<i4", ARRAY_I32, 4},
                 {"<i8", ARRAY_I64, 8}, {"<V2", ARRAY_BF16, 2}, {"|V2", ARRAY_BF16, 2}};
    for (int major = 1; major <= 3; major++) {
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
            char text[200];
            snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }   \n",
                     types[i].code);
            struct file f = make(major, text, 6 * types[i].size);
            struct npy_header header;
            if (parse(&f, &header) != ATTN_OK)
                fail_msg("version %d, %s: %s", major, types[i].code, attn_last_error());
            assert_int_equal(header.is.dtype, types[i].dtype);
            assert_true(stored_as_is(&header.stored));
            assert_int_equal(header.stored.element_size, types[i].size);
            assert_int_equal(header.is.ndim, 2);
            assert_int_equal(header.is.shape[0], 2);
            assert_int_equal(header.is.shape[1], 3);
            assert_int_equal(header.data_size, 6 * types[i].size);
            assert_int_equal(header.data_offset, (major == 1 ? 10u : 12u) + strlen(text));
        }
    }
}

static struct npy_header accepts(const char *text, size_t data, int ndim)
{
    struct file f = make(1, text, data);
    struct npy_header header;
    if (parse(&f, &header) != ATTN_OK)
        fail_msg("%s was refused: %s", text, attn_last_error());
    assert_int_equal(header.is.ndim, ndim);
    assert_int_equal(header.data_size, data);
    return header;
}

static void describes_what_is_converted(void **state)
{
    (void)state;
    struct npy_header h = accepts("{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", 24, 1);
    assert_true(h.stored.is_f64 && !h.stored.swapped && !h.stored.fortran && h.is.dtype == ARRAY_F32);
    h = accepts("{'descr': '>f8', 'fortran_order': True, 'shape': (2, 3)}", 48, 2);
    assert_true(h.stored.is_f64 && h.stored.swapped && h.stored.fortran && h.stored.element_size == 8);
    h = accepts("{'descr': '>f2', 'fortran_order': False, 'shape': (3,)}", 6, 1);
    assert_true(!h.stored.is_f64 && h.stored.swapped && h.is.dtype == ARRAY_F16);
    h = accepts("{'descr': '>i8', 'fortran_order': False, 'shape': (3,)}", 24, 1);
    assert_true(h.stored.swapped && h.is.dtype == ARRAY_I64);
    h = accepts("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", 24, 2);
    assert_true(h.stored.fortran && !h.stored.swapped);
    /* Without data, or with one length that is not 1, an order is the other one. */
    h = accepts("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3)}", 12, 2);
    assert_true(stored_as_is(&h.stored));
}

/* From Fortran order, big-endian doubles: every conversion at once, one element of which exceeds the range. */
static void converts_element_by_element(void **state)
{
    (void)state;
    const struct array_shape is = {.dtype = ARRAY_F32, .ndim = 3, .shape = {2, 3, 2}};
    const struct array_storage stored = {.element_size = 8, .is_f64 = true, .swapped = true, .fortran = true};
    unsigned char file[1 + 12 * 8];
    for (int a = 0; a < 2; a++) {
        for (int b = 0; b < 3; b++) {
            for (int c = 0; c < 2; c++) {
                const double value = a == 1 && b == 2 && c == 1 ? -1e300 : 100 * a + 10 * b + c + 0.1;
                unsigned char bytes[8];
                memcpy(bytes, &value, sizeof bytes);
                for (int i = 0; i < 8; i++)
                    file[1 + 8 * (a + 2 * (b + 3 * c)) + i] = bytes[7 - i];
            }
        }
    }
    float got[12];
    stored_convert(got, &is, &stored, file + 1, "x.npy");
    for (int i = 0; i < 11; i++)
        assert_true(got[i] == (float)(100 * (i / 6) + 10 * (i / 2 % 3) + i % 2 + 0.1));
    assert_true(got[11] == -INFINITY);
}

static void reads_unusual_but_valid_headers(void **state)
{
    (void)state;
    accepts("{'shape': (), 'fortran_order': False, 'descr': '<f4'}", 4, 0);
    accepts("{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (5,)}\n", 20, 1);
    accepts("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 7)}", 0, 2);
    accepts("{'descr':'<f4','fortran_order':False,'shape':(1,1,1,1,1,1,1,2)}", 8, 8);
    /* Both orders are the same bytes. */
    accepts("{'descr': '<f4', 'fortran_order': True, 'shape': (5,)}", 20, 1);
    accepts("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 5, 1)}", 20, 3);
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t data;
        const char *says;
    } table[] = {
        {"{'descr': '>b1', 'fortran_order': False, 'shape': (3,)}", 3, "not read"},
        {"{'descr': '>V2', 'fortran_order': False, 'shape': (3,)}", 6, "not read"},
        {"{'descr': '|V4', 'fortran_order': False, 'shape': (3,)}", 12, "raw bytes"},
        {"{'descr': '<V1', 'fortran_order': False, 'shape': (3,)}", 3, "float8_e4m3fn"},
        {"{'descr': '<f1', 'fortran_order': False, 'shape': (3,)}", 3, "float8_e5m2"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (3,)}", 48,
         "x.npy: dtype '<f16' (long double) is not read; expected"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", 12, "(3,) of float64 needs 24 bytes"},
        {"{'descr': '<f8', 'fortran_order': True, 'shape': (1152921504606846976, 1)}", 0, "overflows"},
        {"{'descr': '|f2', 'fortran_order': False, 'shape': (3,)}", 6, "not read"},
        {"{'descr': '=f2', 'fortran_order': False, 'shape': (3,)}", 6, "not read"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (3,)}", 5, "(3,) of float16 needs 6 bytes"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (3,)}", 7, "1 bytes stand after"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (4611686018427387904,)}", 0, "overflows"},
        {"{'descr': '<bf16', 'fortran_order': False, 'shape': (3,)}", 6, "not read"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", 3, "uint8"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", 24, "Python objects"},
        {"{'descr': '=f4', 'fortran_order': False, 'shape': (3,)}", 12, "not read"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (3,)}", 12, "not read"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", 12,
         "x.npy: the dtype is structured; expected float32, float64, float16, bfloat16, bool, int32 or int64"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 23, "truncated"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 0, "truncated"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 25, "1 bytes stand after"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (8589934592,)}", 0, "needs 34359738368 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 0,
         "x.npy: the shape (4294967296, 4294967296) overflows: its size in bytes exceeds 63 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}", 0, "overflows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2305843009213693952,)}", 0, "overflows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 0,
         "x.npy: a length in the shape exceeds 63 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", 0,
         "x.npy: a length in the shape exceeds 63 bits"},
        {"{'a key of thirty-two characters..': '<f4'}", 4, "malformed at its byte 1"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
         "x.npy: the array has more than 8 dimensions; expected at most that"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", 12, "a length of the shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", 12, "a comma"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,,)}", 12, "malformed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,", 12, "malformed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': [3]}", 12, "malformed"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}", 12,
         "x.npy: the .npy header is malformed at its byte 34; expected True or False"},
        {"{'descr': '<f4', 'shape': (3,)}", 12, "lacks the key 'fortran_order'"},
        {"{'fortran_order': False, 'shape': (3,)}", 12, "x.npy: the .npy header lacks the key 'descr'"},
        {"{'descr': '<f4', 'fortran_order': False}", 4, "lacks the key 'shape'"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 12,
         "x.npy: the .npy header has the key 'descr' twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}", 12,
         "x.npy: the .npy header has the unknown key 'more'"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}", 12, "malformed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x", 12, "after '}'"},
        {"{'descr': '<f4, 'fortran_order': False, 'shape': (3,)}", 12, "not read"},
        {"{'descr': '<f\\x34', 'fortran_order': False, 'shape': (3,)}", 12, "malformed"},
        {"", 12, "malformed"},
        {"[]", 12, "malformed"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct file f = make(1, table[i].text, table[i].data);
        struct npy_header header;
        if (parse(&f, &header) == ATTN_OK)
            fail_msg("%s was accepted", table[i].text);
        assert_says(attn_last_error(), table[i].says);
        assert_says(attn_last_error(), "x.npy");
    }
}

static void refuses_bad_preambles(void **state)
{
    (void)state;
    static const char good[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    struct npy_header header;
    struct file f = make(1, good, 4);
    f.bytes[1] = 'n';
    assert_int_equal(parse(&f, &header), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "not a .npy file");

    f = make(4, good, 4);
    assert_int_equal(parse(&f, &header), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "version 4.0");

    f = make(1, good, 4);
    f.bytes[7] = 1;
    assert_int_equal(parse(&f, &header), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "x.npy: .npy version 1.1 is unknown; expected 1.0, 2.0 or 3.0");

    /* A header that claims 4 GiB, and one that claims a byte more than the limit. */
    f = make(2, good, 4);
    memset(f.bytes + 8, 0xff, 4);
    assert_int_equal(parse(&f, &header), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "claims 4294967295 bytes");
    f = make(2, good, 4);
    f.bytes[8] = 1, f.bytes[9] = 0, f.bytes[10] = 1;
    assert_int_equal(parse(&f, &header), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "x.npy: the .npy header claims 65537 bytes");
}

/* Every length from nothing to one byte too few. */
static void refuses_every_truncation(void **state)
{
    (void)state;
    struct file f = make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 24);
    size_t whole = f.size;
    struct npy_header header;
    for (f.size = 0; f.size < whole; f.size++) {
        if (parse(&f, &header) == ATTN_OK)
            fail_msg("%zu of %zu bytes were accepted", f.size, whole);
    }
    assert_int_equal(parse(&f, &header), ATTN_OK);
    static const struct {
        int major;
        size_t size;
    } preambles[] = {{1, 9}, {2, 9}, {2, 11}, {3, 10}};
    for (size_t i = 0; i < sizeof preambles / sizeof preambles[0]; i++) {
        char sentence[100];
        f = make(preambles[i].major, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4);
        f.size = preambles[i].size;
        assert_int_equal(parse(&f, &header), ATTN_INVALID_FILE);
        snprintf(sentence, sizeof sentence,
                 "x.npy: the .npy file is truncated: it ends after %zu bytes, inside its preamble", f.size);
        assert_string_equal(attn_last_error(), sentence);
    }
}

/* The largest header allowed is read, and the same header one byte longer is not. */
static void reads_the_longest_header(void **state)
{
    (void)state;
    static char text[NPY_MAX_HEADER + 2];
    memset(text, ' ', NPY_MAX_HEADER + 1);
    static const char start[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    memcpy(text, start, sizeof start - 1);
    text[NPY_MAX_HEADER] = '\0';
    struct npy_header header;
    struct file f = make(2, text, 4);
    if (parse(&f, &header) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    text[NPY_MAX_HEADER] = ' ';
    f = make(2, text, 4);
    assert_int_equal(parse(&f, &header), ATTN_INVALID_FILE);
}

static void reads_what_it_writes(void **state)
{
    (void)state;
    static const enum array_dtype dtypes[] = {ARRAY_I64, ARRAY_BF16, ARRAY_F32, ARRAY_F16, ARRAY_BOOL};
    for (int ndim = 0; ndim <= ARRAY_MAX_DIMS; ndim++) {
        struct array_shape is = {.dtype = dtypes[ndim % 5], .ndim = ndim};
        size_t bytes = array_dtype_size(is.dtype);
        for (int i = 0; i < ndim; i++) {
            is.shape[i] = i + 1;
            bytes *= (size_t)i + 1;
        }
        char text[NPY_HEADER_SPACE];
        size_t length = npy_header_write(text, &is);
        assert_int_equal(length % 64, 0);
        assert_int_equal(text[length - 1], '\n');
        struct npy_header header;
        if (npy_parse(&header, (unsigned char *)text, length, length + bytes, "y.npy") != ATTN_OK)
            fail_msg("%s", attn_last_error());
        assert_int_equal(header.data_offset, length);
        assert_int_equal(header.is.dtype, is.dtype);
        assert_int_equal(header.is.ndim, ndim);
        assert_memory_equal(header.is.shape, is.shape, (size_t)ndim * sizeof is.shape[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_version_and_type), cmocka_unit_test(reads_unusual_but_valid_headers),
        cmocka_unit_test(refuses_bad_headers),          cmocka_unit_test(refuses_bad_preambles),
        cmocka_unit_test(refuses_every_truncation),     cmocka_unit_test(reads_the_longest_header),
        cmocka_unit_test(reads_what_it_writes),         cmocka_unit_test(describes_what_is_converted),
        cmocka_unit_test(converts_element_by_element),
    };
    return cmocka_run_group_tests_name("npy", tests, NULL, NULL);
}
