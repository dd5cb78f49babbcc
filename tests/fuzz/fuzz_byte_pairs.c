/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the byte-pair tokenizer of the examples. The input is a tokenizer.json, a NUL
 * byte, and a text that is encoded if the file is accepted. Checked is that every id
 * has a token, and that the tokens spell the text less the bytes that the
 * vocabulary lacks; that a text which is refused leaves no ids; of a refused file,
 * that there is a sentence of one line.
 */
#include "fuzz.h"

#include <string.h>

#include "byte_pairs.h"

unsigned long fuzz_accepted;

#define HEAD                                                                                                           \
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"   \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]},\"model\":{\"type\":\"BPE\","

const char *const fuzz_words[] = {"\"a\":",  "\"Ġ\":",   "[\"a\",\"b\"]",
                                  "\"a b\"", ",",        "{}",
                                  "[]",      "null",     "true",
                                  "0",       "1",        "\"merges\"",
                                  "Ã",       "©",        "'s",
                                  " ",       "  ",       "\n",
                                  "12",      "é",        "中",
                                  "\xff",    "\xe4\xb8", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                  "abab",    "\u00a0",   NULL};

size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    static const char *const seeds[][2] = {
        {HEAD "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"Ġ\":3,\"Ġa\":4},\"merges\":[[\"a\",\"b\"],\"Ġ a\"]}}",
         "ab abab  a 12 ba"},
        {HEAD "\"vocab\":{\"Ã\":0,\"©\":1,\"Ã©\":2,\"'\":3,\"s\":4},\"merges\":[[\"Ã\",\"©\"]]},"
              "\"added_tokens\":[{\"id\":5,\"content\":\"<e>\",\"special\":true}]}",
         "é's éé's<e>中"},
        {HEAD "\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2},\"merges\":[\"a a\",\"aa aa\"]}}", "aaaaaaaaaaaaa a aaa"},
    };
    if (index >= sizeof seeds / sizeof seeds[0])
        return 0;
    const size_t file = strlen(seeds[index][0]) + 1, text = strlen(seeds[index][1]);
    FUZZ_CHECK(file + text <= capacity);
    memcpy(out, seeds[index][0], file);
    memcpy(out + file, seeds[index][1], text);
    return file + text;
}

/* An allocation of exactly the size, so that a sanitizer or valgrind sees a read past the end. */
static char *exact_copy(const uint8_t *bytes, size_t size)
{
    char *copy = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

static void check_text(const struct byte_pairs *tokenizer, const char *text, size_t size)
{
    struct token_ids ids = {0};
    bool known[256] = {false};
    size_t at = 0, length;
    for (int32_t id = 0; id < byte_pairs_size(tokenizer); id++) {
        const char *bytes = byte_pairs_bytes(tokenizer, id, &length);
        FUZZ_CHECK(byte_pairs_token(tokenizer, id) != NULL);
        if (length == 1)
            known[(unsigned char)bytes[0]] = true;
    }
    if (byte_pairs_encode(tokenizer, text, size, &ids) != ATTN_OK) {
        FUZZ_CHECK(ids.count == 0);
    } else {
        for (size_t i = 0; i < ids.count; i++) {
            const char *bytes = byte_pairs_bytes(tokenizer, ids.ids[i], &length);
            FUZZ_CHECK(length > 0);
            for (size_t b = 0; b < length; b++) {
                while (at < size && !known[(unsigned char)text[at]])
                    at++;
                FUZZ_CHECK(at < size && text[at++] == bytes[b]);
            }
        }
        while (at < size && !known[(unsigned char)text[at]])
            at++;
        FUZZ_CHECK(at == size);
    }
    token_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size > 0 ? memchr(data, '\0', size) : NULL;
    const size_t length = nul != NULL ? (size_t)(nul - data) : size, rest = nul != NULL ? size - length - 1 : 0;
    char *file = exact_copy(data, length);
    struct byte_pairs *tokenizer;
    if (byte_pairs_parse(&tokenizer, file, length, "fuzz") == ATTN_OK) {
        fuzz_accepted++;
        char *text = exact_copy(data + size - rest, rest);
        check_text(tokenizer, text, rest);
        free(text);
        byte_pairs_close(tokenizer);
    } else {
        FUZZ_CHECK(attn_last_error()[0] != '\0');
        FUZZ_CHECK(strchr(attn_last_error(), '\n') == NULL && strchr(attn_last_error(), '\r') == NULL);
    }
    free(file);
    return 0;
}
