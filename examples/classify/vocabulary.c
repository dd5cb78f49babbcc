/* SPDX-License-Identifier: Apache-2.0 */
/* Texts are taken apart into words, and words looked up by halving. */
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

static int compare_words(const void *a, const void *b, void *lines)
{
    char *const *text = ((const struct lines *)lines)->text;
    return strcmp(text[*(const int32_t *)a], text[*(const int32_t *)b]);
}

attn_status vocabulary_sort(struct vocabulary *v)
{
    v->sorted = malloc(((size_t)v->words.count + 1) * sizeof *v->sorted);
    if (!v->sorted)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a vocabulary of %lld words", (long long)v->words.count);
    for (int64_t i = 0; i < v->words.count; i++)
        v->sorted[i] = (int32_t)i;
    qsort_r(v->sorted, (size_t)v->words.count, sizeof *v->sorted, compare_words, &v->words);
    return ATTN_OK;
}

void vocabulary_free(struct vocabulary *v)
{
    lines_free(&v->words);
    free(v->sorted);
    *v = (struct vocabulary){0};
}

static int32_t find(const struct vocabulary *v, const char *word)
{
    int64_t low = 0, high = v->words.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = strcmp(word, v->words.text[v->sorted[middle]]);
        if (order == 0)
            return v->sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return WORD_UNKNOWN;
}

void vocabulary_number(const struct vocabulary *v, struct words *words)
{
    for (int64_t i = 0; i < words->text.count; i++)
        words->ids[i] = find(v, words->text.text[i]);
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

attn_status vocabulary_words(const struct vocabulary *v, const char *text, size_t size, struct words *words)
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
    if (v)
        vocabulary_number(v, words);
    return ATTN_OK;
}

void words_free(struct words *words)
{
    lines_free(&words->text);
    free(words->ids);
    *words = (struct words){0};
}
