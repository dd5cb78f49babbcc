/* SPDX-License-Identifier: Apache-2.0 */
/* How attn generate makes text of tokens that come one by one: whole characters, and texts that end it. */
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "models/growing_text.h"

/* Byte-pair tokens: a, b, the bytes of é (2 and 3), those of 🙂 (4 to 7), a space, and one that no text has. */
enum { A, B, E1, E2, S1, S2, S3, S4, SPACE, END };
static const char tokenizer_json[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [{\"id\": 9, \"content\": "
    "\"<end>\","
    "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}],"
    "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
    "true,"
    "\"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
    "false,"
    "\"trim_offsets\": true, \"use_regex\": true}, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": "
    "null,"
    "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false,"
    "\"vocab\": {\"a\": 0, \"b\": 1, \"Ã\": 2, \"©\": 3, \"ð\": 4, \"Ł\": 5, \"Ļ\": 6, \"Ĥ\": 7, \"Ġ\": 8}, "
    "\"merges\": []}}";

static attn_tokenizer *open_tokenizer(void)
{
    attn_tokenizer *tokenizer;
    if (attn_tokenizer_parse(&tokenizer, tokenizer_json, sizeof tokenizer_json - 1, "tokenizer.json") != ATTN_OK)
        fail_msg("%s", attn_last_error());
    return tokenizer;
}

/* What is shown after each of ids[count], joined by '|'; those before first are only what the text goes on with. */
static char *shown(const int32_t *ids, int64_t first, int64_t count, const struct stop_texts *stops, bool *stopped)
{
    attn_tokenizer *tokenizer = open_tokenizer();
    struct growing_text g = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    for (int64_t n = first + 1; n <= count && !g.stopped; n++) {
        size_t new;
        assert_int_equal(growing_text_take(&g, tokenizer, ids, first, n, stops, n == count), ATTN_OK);
        const char *bytes = growing_text_new(&g, stops, n == count, &new);
        fwrite(bytes, 1, new, to);
        if (n < count)
            fputc('|', to);
    }
    *stopped = g.stopped;
    fclose(to);
    growing_text_free(&g);
    attn_tokenizer_close(tokenizer);
    return text;
}

#define COUNT(ids) ((int64_t)(sizeof(ids) / sizeof *(ids)))

static void expect(const int32_t *ids, int64_t first, int64_t count, const char *const *stops, int64_t num_stops,
                   const char *expected, bool stops_there)
{
    const struct stop_texts texts = {stops, num_stops};
    bool stopped;
    char *text = shown(ids, first, count, &texts, &stopped);
    assert_string_equal(text, expected);
    assert_int_equal(stopped, stops_there);
    free(text);
}

static void whole_characters(void **state)
{
    (void)state;
    static const int32_t plain[] = {A, B, SPACE, A}, accent[] = {A, E1, E2, B}, smile[] = {S1, S2, S3, S4};
    static const int32_t cut[] = {A, S1, S2}, wrong[] = {E1, A, E2, B}, end[] = {A, END, B}, none[] = {END};
    expect(plain, 0, COUNT(plain), NULL, 0, "a|b| |a", false);
    expect(accent, 0, COUNT(accent), NULL, 0, "a||é|b", false);
    expect(smile, 0, COUNT(smile), NULL, 0, "|||🙂", false);
    /* A character that never ends, and bytes that are none: U+FFFD when it is certain. */
    expect(cut, 0, COUNT(cut), NULL, 0, "a||\xef\xbf\xbd", false);
    expect(wrong, 0, COUNT(wrong), NULL, 0,
           "|\xef\xbf\xbd"
           "a||\xef\xbf\xbd"
           "b",
           false);
    expect(end, 0, COUNT(end), NULL, 0, "a||b", false);
    expect(none, 0, COUNT(none), NULL, 0, "", false);
    /* What was there before is no part of it; half a character of it is made whole. */
    expect(plain, 2, COUNT(plain), NULL, 0, " |a", false);
    expect(accent, 2, COUNT(accent), NULL, 0, "é|b", false);
}

static void stop_texts(void **state)
{
    (void)state;
    static const int32_t ids[] = {A, B, A, B, B, SPACE, E1, E2, A};
    static const char *const bb[] = {"bb"}, *const several[] = {"never", "b a", "bb ", "abb"}, *const accent[] = {"é"};
    static const char *const first[] = {"a"}, *const no[] = {"é b"};
    /* A b may be the beginning of "bb", and waits for what comes. */
    expect(ids, 0, COUNT(ids), bb, 1, "a||ba|||", true);
    expect(ids, 0, COUNT(ids), several, 4, "||ab|||", true);
    expect(ids, 0, COUNT(ids), accent, 1, "a|b|a|b|b| |||", true);
    expect(ids, 0, COUNT(ids), first, 1, "|", true);
    expect(ids, 0, COUNT(ids), no, 1, "a|b|a|b|b| |||éa", false);
    /* At the end nothing is held back. */
    expect(ids, 0, 4, bb, 1, "a||ba|b", false);
}

/* Texts that are made in other ways have the same bytes. */
static void random_tokens(void **state)
{
    (void)state;
    uint64_t x = 3;
    attn_tokenizer *tokenizer = open_tokenizer();
    for (int turn = 0; turn < 300; turn++) {
        int32_t ids[24];
        char whole[256];
        size_t size;
        const int64_t count = 1 + turn % COUNT(ids);
        for (int64_t i = 0; i < count; i++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
            ids[i] = (int32_t)(x >> 33) % (END + 1);
        }
        assert_int_equal(attn_tokenizer_decode(tokenizer, ids, count, 0, whole, sizeof whole, &size), ATTN_OK);
        bool stopped;
        char *text = shown(ids, 0, count, &(struct stop_texts){NULL, 0}, &stopped);
        size_t kept = 0;
        for (const char *c = text; *c != '\0'; c++)
            if (*c != '|')
                text[kept++] = *c;
        assert_int_equal(kept, size);
        assert_memory_equal(text, whole, size);
        free(text);
    }
    attn_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_characters),
        cmocka_unit_test(stop_texts),
        cmocka_unit_test(random_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
