/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the safetensors parser. The header goes to an allocation of exactly its
 * size. Of an accepted file it is checked that every byte of the data belongs to
 * exactly one tensor, by painting them, and that each usable tensor's shape is
 * its extent; of a refused one, that there is a sentence of one line.
 */
#include "fuzz.h"

#include <string.h>

#include "io/safetensors.h"

unsigned long fuzz_accepted;

const char *const fuzz_words[] = {"\"dtype\":",
                                  "\"shape\":",
                                  "\"data_offsets\":",
                                  "\"F32\"",
                                  "\"BOOL\"",
                                  "\"I64\"",
                                  "\"F4\"",
                                  "\"BF16\"",
                                  "\"XX\"",
                                  "[0,8]",
                                  "[8,16]",
                                  "[]",
                                  "[0,0]",
                                  "{",
                                  "}",
                                  ",",
                                  "\"a\":",
                                  "\"b\":",
                                  "4294967296",
                                  "9223372036854775807",
                                  "18446744073709551616",
                                  "0",
                                  "1",
                                  "-1",
                                  "1e3",
                                  "\"__metadata__\":{}",
                                  "\\u0000",
                                  "\xff",
                                  NULL};

size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    static const struct {
        const char *header;
        size_t data;
    } seeds[] = {
        {"{}", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[8,16]}}",
         16},
        {"{\"__metadata__\":{\"k\":\"v\"},\"m\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[4,7]},"
         "\"h\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         7},
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"s\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]}}  ",
         4},
    };
    if (index >= sizeof seeds / sizeof seeds[0])
        return 0;
    size_t length = strlen(seeds[index].header), total = SAFETENSORS_PREFIX + length + seeds[index].data;
    FUZZ_CHECK(total <= capacity);
    memset(out, 0, total);
    out[0] = (uint8_t)length;
    FUZZ_CHECK(length < 256);
    memcpy(out + SAFETENSORS_PREFIX, seeds[index].header, length);
    return total;
}

static void check_cover(const struct safetensors *index, size_t data_size)
{
    unsigned char *owners = calloc(data_size > 0 ? data_size : 1, 1);
    FUZZ_CHECK(owners != NULL);
    for (size_t i = 0; i < index->count; i++) {
        const struct safetensors_entry *entry = &index->entries[i];
        FUZZ_CHECK(entry->begin <= entry->end && entry->end <= data_size);
        for (uint64_t at = entry->begin; at < entry->end; at++)
            FUZZ_CHECK(owners[at]++ == 0);
    }
    for (size_t at = 0; at < data_size; at++)
        FUZZ_CHECK(owners[at] == 1);
    free(owners);
}

static void check_shapes(const struct safetensors *index)
{
    for (size_t i = 0; i < index->count; i++) {
        const struct safetensors_entry *entry = &index->entries[i], *found;
        struct array_shape is;
        struct array_storage stored;
        FUZZ_CHECK(safetensors_find(index, entry->name, "fuzz", &found) == ATTN_OK && found == entry);
        if (safetensors_usable(entry, "fuzz", &is, &stored) != ATTN_OK) {
            FUZZ_CHECK(attn_last_error()[0] != '\0');
            continue;
        }
        uint64_t bytes;
        FUZZ_CHECK(array_bytes(is.shape, is.ndim, stored.element_size, &bytes) || entry->begin == entry->end);
        FUZZ_CHECK(entry->begin == entry->end || bytes == entry->end - entry->begin);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char prefix[SAFETENSORS_PREFIX] = {0};
    memcpy(prefix, data, size < sizeof prefix ? size : sizeof prefix);
    size_t length = 0;
    struct safetensors index;
    bool ok = safetensors_header_length(&length, prefix, size, "fuzz") == ATTN_OK;
    if (ok) {
        FUZZ_CHECK(length <= size - SAFETENSORS_PREFIX);
        size_t data_size = size - SAFETENSORS_PREFIX - length;
        char *copy = malloc(length > 0 ? length : 1);
        FUZZ_CHECK(copy != NULL);
        memcpy(copy, data + SAFETENSORS_PREFIX, length);
        ok = safetensors_parse(&index, copy, length, data_size, "fuzz") == ATTN_OK;
        free(copy);
        if (ok) {
            fuzz_accepted++;
            check_cover(&index, data_size);
            check_shapes(&index);
            safetensors_free(&index);
        }
    }
    if (!ok) {
        FUZZ_CHECK(attn_last_error()[0] != '\0');
        FUZZ_CHECK(strchr(attn_last_error(), '\n') == NULL);
    }
    return 0;
}
