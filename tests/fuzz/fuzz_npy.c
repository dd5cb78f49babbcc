/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the .npy parser. The input goes to an allocation of exactly the size
 * that the parser is told, so that a sanitizer or valgrind sees a read past the
 * end. Of an accepted file it is checked, with other arithmetic, that the shape
 * times the element size is the rest of the file; of a refused one, that there
 * is a sentence of one line.
 */
#include "fuzz.h"

#include <string.h>

#include "io/npy.h"
#include "io/stored.h"

unsigned long fuzz_accepted;

const char *const fuzz_words[] = {"'descr': ",
                                  "'fortran_order': ",
                                  "'shape': ",
                                  "True",
                                  "False",
                                  "(",
                                  ")",
                                  "{",
                                  "}",
                                  ",",
                                  ":",
                                  "'<f4'",
                                  "'|b1'",
                                  "'>f4'",
                                  "'<i8'",
                                  "'<f8'",
                                  "'<V2'",
                                  "[",
                                  "]",
                                  "4294967296",
                                  "9223372036854775807",
                                  "18446744073709551616",
                                  "0",
                                  "1",
                                  "-1",
                                  "(0, 9223372036854775807, 2)",
                                  NULL};

size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    static const struct array_shape shapes[] = {
        {.dtype = ARRAY_F32, .ndim = 2, .shape = {2, 3}},
        {.dtype = ARRAY_BOOL, .ndim = 4, .shape = {1, 2, 1, 5}},
        {.dtype = ARRAY_I64, .ndim = 0},
        {.dtype = ARRAY_I32, .ndim = 1, .shape = {4}},
        {.dtype = ARRAY_F32, .ndim = 3, .shape = {0, 3, 7}},
        {.dtype = ARRAY_F16, .ndim = 2, .shape = {3, 5}},
        {.dtype = ARRAY_I32, .ndim = 3, .shape = {3, 2, 2}},
    };
    if (index >= sizeof shapes / sizeof shapes[0])
        return 0;
    uint64_t bytes;
    FUZZ_CHECK(array_bytes(shapes[index].shape, shapes[index].ndim, array_dtype_size(shapes[index].dtype), &bytes));
    char header[NPY_HEADER_SPACE] = "";
    size_t length = npy_header_write(header, &shapes[index]);
    header[length] = '\0';
    /* The last ones are big-endian, and in Fortran order. */
    if (index >= 5)
        memcpy(strstr(header + 10, "'<"), "'>", 2);
    if (index >= 6)
        memcpy(strstr(header + 10, "False"), "True ", 5);
    FUZZ_CHECK(length + bytes <= capacity);
    memcpy(out, header, length);
    memset(out + length, 1, (size_t)bytes);
    return length + (size_t)bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t available = size < NPY_MAX_PREFIX ? size : NPY_MAX_PREFIX;
    unsigned char *copy = malloc(available > 0 ? available : 1);
    FUZZ_CHECK(copy != NULL);
    if (available > 0)
        memcpy(copy, data, available);
    struct npy_header header;
    if (npy_parse(&header, copy, available, size, "fuzz.npy") == ATTN_OK) {
        fuzz_accepted++;
        FUZZ_CHECK(header.is.ndim >= 0 && header.is.ndim <= ARRAY_MAX_DIMS);
        FUZZ_CHECK(header.data_offset <= available && header.data_offset + header.data_size == size);
        __extension__ unsigned __int128 product = header.stored.element_size;
        for (int i = 0; i < header.is.ndim; i++) {
            FUZZ_CHECK(header.is.shape[i] >= 0);
            product *= (uint64_t)header.is.shape[i];
            FUZZ_CHECK(product <= UINT64_MAX);
        }
        FUZZ_CHECK(product == header.data_size);
        /* Every element is read from inside of the file, in whatever order it has. */
        unsigned char *whole = malloc(size), *converted = malloc(size + 1);
        FUZZ_CHECK(whole != NULL && converted != NULL);
        memcpy(whole, data, size);
        if (header.data_size > 0 && !stored_as_is(&header.stored) && !header.stored.is_f64)
            stored_convert(converted, &header.is, &header.stored, whole + header.data_offset, "fuzz.npy");
        free(whole);
        free(converted);
    } else {
        FUZZ_CHECK(attn_last_error()[0] != '\0');
        FUZZ_CHECK(strchr(attn_last_error(), '\n') == NULL);
    }
    free(copy);
    return 0;
}
