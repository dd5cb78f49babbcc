/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the tokenizer of the encoder examples. The input is a vocabulary, a
 * NUL byte, and a text that is encoded if the vocabulary is accepted. A '+' at
 * the beginning stands for the four tokens that must be there, which chance
 * would hardly spell. Checked is that every id has a token that is found again, that
 * [CLS] and [SEP] stand where they must, and that a limit leaves off the end and
 * changes nothing before it; of a refused vocabulary, that there is a sentence
 * of one line.
 */
#include "fuzz.h"

#include <string.h>

#include "wordpiece.h"

unsigned long fuzz_accepted;

const char *const fuzz_words[] = {"[PAD]\n",
                                  "[UNK]\n",
                                  "[CLS]\n",
                                  "[SEP]\n",
                                  "[MASK]\n",
                                  "[MASK]",
                                  "[SEP]",
                                  "##",
                                  "\n",
                                  "\r\n",
                                  " ",
                                  "ab",
                                  "##b",
                                  "中",
                                  "\u0301",
                                  "\u302e",
                                  "\u1b44",
                                  "\u200d",
                                  "İ",
                                  "Σ",
                                  "하",
                                  "!",
                                  "\xff",
                                  "\xe4\xb8",
                                  "\xed\xa0\x80",
                                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                  NULL};

#define SPECIAL "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"

size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    static const char *const seeds[][2] = {
        {SPECIAL "[MASK]\na\nb\n##b\n##c\nab\n", "Abc [MASK] àb,c"},
        {"+i\n##σ\n中\nᄒ\n##ᅡ\n##\u302e\n", "İΣ中하\u302e\u1b44 \u200d\u0301[SEP]\xff"},
        {"+a\r\n##a\r\n!", "aaaaaaaaaaaaaaaaaaaa!!aaa"},
    };
    if (index >= sizeof seeds / sizeof seeds[0])
        return 0;
    size_t vocabulary = strlen(seeds[index][0]) + 1, text = strlen(seeds[index][1]);
    FUZZ_CHECK(vocabulary + text <= capacity);
    memcpy(out, seeds[index][0], vocabulary);
    memcpy(out + vocabulary, seeds[index][1], text);
    return vocabulary + text;
}

/* Both parts in an allocation of exactly their size, so that a sanitizer or valgrind sees a read past the end. */
static char *exact_copy(const uint8_t *first, size_t first_size, const uint8_t *second, size_t second_size)
{
    char *copy = malloc(first_size + second_size > 0 ? first_size + second_size : 1);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, first, first_size);
    if (second_size > 0)
        memcpy(copy + first_size, second, second_size);
    return copy;
}

static void check_text(const struct wordpiece *tokenizer, const char *text, size_t size)
{
    struct token_ids all = {0}, some = {0};
    FUZZ_CHECK(wordpiece_encode(tokenizer, text, size, SIZE_MAX, &all) == ATTN_OK);
    FUZZ_CHECK(all.count >= 2 && all.count <= size + 2);
    FUZZ_CHECK(all.ids[0] == wordpiece_id(tokenizer, "[CLS]"));
    FUZZ_CHECK(all.ids[all.count - 1] == wordpiece_id(tokenizer, "[SEP]"));
    for (size_t i = 0; i < all.count; i++) {
        const char *token = wordpiece_token(tokenizer, all.ids[i]);
        FUZZ_CHECK(token != NULL && wordpiece_id(tokenizer, token) == all.ids[i]);
    }
    size_t limit = 2 + size % 7;
    FUZZ_CHECK(wordpiece_encode(tokenizer, text, size, limit, &some) == ATTN_OK);
    FUZZ_CHECK(!all.cut && some.cut == (all.count > limit));
    FUZZ_CHECK(some.count == (all.count < limit ? all.count : limit));
    FUZZ_CHECK(memcmp(some.ids, all.ids, (some.count - 1) * sizeof *all.ids) == 0);
    FUZZ_CHECK(some.ids[some.count - 1] == all.ids[all.count - 1]);
    token_ids_free(&all);
    token_ids_free(&some);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size > 0 ? memchr(data, '\0', size) : NULL;
    size_t length = nul != NULL ? (size_t)(nul - data) : size, rest = nul != NULL ? size - length - 1 : 0;
    bool plus = length > 0 && data[0] == '+';
    size_t special = plus ? strlen(SPECIAL) : 0;
    char *vocabulary = exact_copy((const uint8_t *)SPECIAL, special, data + plus, length - plus);
    length += special - plus;
    struct wordpiece *tokenizer;
    if (wordpiece_parse(&tokenizer, vocabulary, length, "fuzz") == ATTN_OK) {
        fuzz_accepted++;
        char *text = exact_copy((const uint8_t *)"", 0, data + size - rest, rest);
        check_text(tokenizer, text, rest);
        free(text);
        wordpiece_close(tokenizer);
    } else {
        FUZZ_CHECK(attn_last_error()[0] != '\0');
        FUZZ_CHECK(strchr(attn_last_error(), '\n') == NULL && strchr(attn_last_error(), '\r') == NULL);
    }
    free(vocabulary);
    return 0;
}
