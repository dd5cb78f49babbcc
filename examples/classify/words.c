/* SPDX-License-Identifier: Apache-2.0 */
/* Texts are taken apart into words. */
#include "words.h"

#include <stdlib.h>

void words_number(const struct vocabulary *vocabulary, struct words *words)
{
    for (int64_t i = 0; i < words->text.count; i++) {
        const int32_t id = vocabulary_find(vocabulary, words->text.text[i], words->text.size[i]);
        words->ids[i] = id < 0 ? WORD_UNKNOWN : id;
    }
}

static attn_status add_word(const char *word, size_t size, struct words *words)
{
    if (words->text.count == words->room) {
        const int64_t room = words->room ? 2 * words->room : 32;
        int32_t *ids = realloc(words->ids, (size_t)room * sizeof *ids);
        if (!ids)
            return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the words of a text");
        words->ids = ids;
        words->room = room;
    }
    CHECK(lines_add(&words->text, word, size));
    words->ids[words->text.count - 1] = WORD_UNKNOWN;
    for (char *p = words->text.text[words->text.count - 1]; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    return ATTN_OK;
}

static bool belongs_to_a_word(char byte)
{
    const unsigned char b = (unsigned char)byte;
    return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') || b == '\'' || b >= 0x80;
}

attn_status words_split(const struct vocabulary *vocabulary, const char *text, size_t size, struct words *words)
{
    lines_free(&words->text);
    for (size_t i = 0; i < size;) {
        size_t end = i;
        while (end < size && belongs_to_a_word(text[end]))
            end++;
        if (end > i)
            CHECK(add_word(text + i, end - i, words));
        i = end + 1;
    }
    if (words->text.count == 0)
        CHECK(add_word("<unk>", 5, words));
    if (vocabulary)
        words_number(vocabulary, words);
    return ATTN_OK;
}

void words_free(struct words *words)
{
    lines_free(&words->text);
    free(words->ids);
    *words = (struct words){0};
}
