/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes what is asked of .npz archives. libzip's parser is not ours, but what it
 * says of a bad archive is believed only as far as npz.c checks it: each array that
 * is found is unpacked to an allocation of exactly the size that its header
 * describes, which its packed bytes must be able to become. Accepted is an archive
 * of which every array could be unpacked.
 */
#include "fuzz.h"

#include <string.h>
#include <unistd.h>

#include "io/npz.h"

unsigned long fuzz_accepted;

const char *const fuzz_words[] = {"PK\1\2", "PK\3\4", "PK\5\6", "PK\6\6",           ".npy", "a.npy",
                                  "<f8",    "True",   "(2,",    "\xff\xff\xff\xff", NULL};

/* What npz_write() makes of two arrays, stored and deflated. */
size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    float numbers[24] = {1, 2, 3};
    const struct array a = {.is = {.dtype = ARRAY_F32, .ndim = 2, .shape = {4, 6}}, .data = numbers, .size = 96};
    const struct array b = {.is = {.dtype = ARRAY_BF16, .ndim = 1, .shape = {5}}, .data = numbers, .size = 10};
    const struct array *const arrays[] = {&a, &b};
    const char *const names[] = {"a", "layer/b"};
    if (index >= 2)
        return 0;
    char path[] = "fuzz.npz";
    FILE *file = tmpfile();
    FUZZ_CHECK(file != NULL);
    struct replacement to = {.path = path, .fd = fileno(file)};
    FUZZ_CHECK(npz_write(&to, names, arrays, 2, index == 1) == ATTN_OK);
    const ssize_t size = pread(to.fd, out, capacity, 0);
    fclose(file);
    FUZZ_CHECK(size > 0 && (size_t)size < capacity);
    return (size_t)size;
}

static bool unpack_all(struct npz *npz, size_t size)
{
    bool all = npz_count(npz) > 0;
    for (size_t i = 0; i < npz_count(npz); i++) {
        struct npy_header header;
        size_t index;
        char *name;
        FUZZ_CHECK(npz_name(npz, i, &name) == ATTN_OK);
        bool good = name != NULL && npz_find(npz, name, &index, &header) == ATTN_OK;
        free(name);
        if (good) {
            FUZZ_CHECK(header.data_size <= 1033 * (size + 1033));
            void *data = malloc(header.data_size > 0 ? (size_t)header.data_size : 1);
            FUZZ_CHECK(data != NULL);
            good = npz_read(npz, index, &header, data) == ATTN_OK;
            free(data);
        }
        all = all && good;
    }
    return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    struct npz *npz;
    bool good = npz_open(&npz, copy, size, "fuzz.npz") == ATTN_OK;
    if (good)
        good = unpack_all(npz, size);
    npz_close(npz);
    free(copy);
    fuzz_accepted += good;
    if (!good)
        FUZZ_CHECK(strchr(attn_last_error(), '\n') == NULL);
    return 0;
}
