/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The byte-pair tokenizer of the examples on a vocabulary of some thirty tokens: the
 * expected ids follow by hand from the rules in pre_tokens.c and byte_pairs.c.
 * tests/models/check_byte_pairs.py compares with a real model's tokenizer.
 */
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "byte_pairs.h"
#include "failing_memory.h"
#include "pre_tokens.h"

/* In the order of their ids. U+0120 stands for a space, U+00C3 and U+00A9 for the bytes of é. */
enum { A, B, C, D, SP, E1, E2, QUOTE, S, ONE, AB, BC, ABC, SPA, AA, AAAA, E_ACUTE, SPAB, END, START, COUNT };

#define PRE                                                                                                            \
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["                                                 \
    "{\"type\": \"Digits\", \"individual_digits\": true},"                                                             \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}]}"
#define VOCAB                                                                                                            \
    "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"Ġ\": 4, \"Ã\": 5, \"©\": 6, \"'\": 7, \"s\": 8, \"1\": 9," \
    "\"ab\": 10, \"bc\": 11, \"abc\": 12, \"Ġa\": 13, \"aa\": 14, \"aaaa\": 15, \"Ã©\": 16, \"Ġab\": 17,"            \
    "\"<end>\": 18}"
/* Ranks are places: "b c" goes before "a b", so "abc" is a + bc, which is abc. One is in the older form. */
#define MERGES                                                                                                         \
    "\"merges\": [[\"b\", \"c\"], [\"a\", \"b\"], [\"a\", \"bc\"], \"Ġ a\", [\"a\", \"a\"], [\"aa\", \"aa\"],"        \
    "[\"Ã\", \"©\"], [\"Ġ\", \"ab\"]]"
#define ADDED                                                                                                          \
    "\"added_tokens\": [{\"id\": 18, \"content\": \"<end>\", \"special\": true},"                                      \
    "{\"id\": 19, \"content\": \"<start>\", \"special\": true}]"
#define FILE_OF(pre, vocab, merges, added)                                                                             \
    "{" added ", \"normalizer\": null, " pre ", \"model\": {\"type\": \"BPE\", " vocab ", " merges "}}"

static const char file[] = FILE_OF(PRE, VOCAB, MERGES, ADDED);

static struct byte_pairs *opened(void)
{
    struct byte_pairs *tokenizer;
    if (byte_pairs_parse(&tokenizer, file, sizeof file - 1, "file") != ATTN_OK)
        fail_msg("%s", attn_last_error());
    return tokenizer;
}

/* ---------------------------------------------------------------- pieces -- */

/* The pieces with | between them. */
static void cuts_into(const char *text, size_t size, const char *expected)
{
    char found[256];
    size_t used = 0;
    for (size_t at = 0, length; at < size; at += length) {
        length = pre_token(text + at, size - at);
        assert_in_range(length, 1, size - at);
        if (at > 0)
            found[used++] = '|';
        memcpy(found + used, text + at, length);
        used += length;
    }
    found[used] = '\0';
    assert_string_equal(found, expected);
}

static void cuts_texts(void **state)
{
    (void)state;
    static const char *const table[][2] = {
        {"", ""},
        {"a", "a"},
        {"Hello world", "Hello| world"},
        {"Hello, world!", "Hello|,| world|!"},
        {"don't I'll we've you're I'm he'd it's", "don|'t| I|'ll| we|'ve| you|'re| I|'m| he|'d| it|'s"},
        {"IT'S 'tis ''s", "IT|'|S| '|tis| ''|s"},
        {"'s", "'s"},
        {"'x", "'|x"},
        {"a  b", "a| | b"},
        {"a   b", "a|  | b"},
        {"a \n b", "a| \n| b"},
        {"a\nb", "a|\n|b"},
        {"a\n\n\nb", "a|\n\n|\n|b"},
        {"a\n ", "a|\n "},
        {"  ", "  "},
        {" ", " "},
        {"  !?", " | !?"},
        {"123", "1|2|3"},
        {"a1b", "a|1|b"},
        {"a 12", "a| |1|2"},
        {"a   1", "a|   |1"},
        {"x² ½ Ⅻ ٣", "x|²| |½| |Ⅻ| |٣"},
        {"naïve straße", "naïve| straße"},
        {"日本語、中文", "日本語|、|中文"},
        {"e\u0301a", "e|\u0301|a"},
        {"\u3000a\u00a0\u00a0b", "\u3000|a|\u00a0|\u00a0|b"},
        {" 🙂🙂 a", " 🙂🙂| a"},
        {"<|im_end|>", "<||im|_|end||>"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        cuts_into(table[i][0], strlen(table[i][0]), table[i][1]);
    /* Bytes that are no UTF-8, and one more byte that is cut off. */
    cuts_into("a\xff\xe4\xb8z", 5, "a|\xff\xe4\xb8|z");
    cuts_into("aé", 2, "a|\xc3");
}

/* ---------------------------------------------------------------- tokens -- */

static void encodes_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int count;
        int32_t ids[8];
    } table[] = {
        {"", 0, {0}},
        {"a", 1, {A}},
        {"abc", 1, {ABC}},
        {"ab", 1, {AB}},
        {"bc", 1, {BC}},
        {"abab", 2, {AB, AB}},
        {"abbc", 2, {AB, BC}},
        {" ab", 1, {SPAB}},
        {" abc", 2, {SP, ABC}},
        /* Of equal ranks the leftmost first. */
        {"aaa", 2, {AA, A}},
        {"aaaa", 1, {AAAA}},
        {"aaaaaaa", 3, {AAAA, AA, A}},
        /* A cut that no token goes over. */
        {"a1a", 3, {A, ONE, A}},
        {"a'sa", 4, {A, QUOTE, S, A}},
        {"a a", 2, {A, SPA}},
        {"é", 1, {E_ACUTE}},
        /* Bytes that are not in the vocabulary vanish before their neighbours meet. */
        {"zaz", 1, {A}},
        {"azb", 1, {AB}},
        {"z", 0, {0}},
        /* Names of special tokens are text. */
        {"<end>", 1, {D}},
    };
    struct byte_pairs *tokenizer = opened();
    struct token_ids ids = {0};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const size_t size = strlen(table[i].text);
        /* Exactly the size, so that valgrind sees a byte that is read beyond. */
        char *text = malloc(size > 0 ? size : 1);
        memcpy(text, table[i].text, size);
        ids.count = 0;
        assert_int_equal(byte_pairs_encode(tokenizer, text, size, &ids), ATTN_OK);
        free(text);
        const size_t count = (size_t)table[i].count;
        if (ids.count != count || (count > 0 && memcmp(ids.ids, table[i].ids, count * sizeof *ids.ids) != 0))
            fail_msg("\"%s\" became %zu tokens, the first being %d", table[i].text, ids.count,
                     ids.count ? ids.ids[0] : -1);
    }
    /* What is there already stays. */
    const size_t before = ids.count;
    assert_int_equal(byte_pairs_encode(tokenizer, "ab", 2, &ids), ATTN_OK);
    assert_int_equal(ids.count, before + 1);
    assert_int_equal(byte_pairs_encode(tokenizer, "ab\xc3", 3, &ids), ATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_last_error(), "byte 2 of the text is 0xc3"));
    assert_int_equal(ids.count, before + 1);
    token_ids_free(&ids);
    byte_pairs_close(tokenizer);
}

static void knows_tokens(void **state)
{
    (void)state;
    struct byte_pairs *t = opened();
    size_t length;
    assert_int_equal(byte_pairs_size(t), COUNT);
    assert_memory_equal(byte_pairs_bytes(t, SPAB, &length), " ab", 3);
    assert_int_equal(length, 3);
    assert_memory_equal(byte_pairs_bytes(t, E_ACUTE, &length), "é", 2);
    assert_int_equal(length, 2);
    byte_pairs_bytes(t, START, &length);
    assert_int_equal(length, 0);
    byte_pairs_bytes(t, COUNT, &length);
    assert_int_equal(length, 0);
    byte_pairs_bytes(t, -1, &length);
    assert_int_equal(length, 0);
    assert_string_equal(byte_pairs_token(t, SPA), "Ġa");
    assert_null(byte_pairs_token(t, COUNT));
    assert_null(byte_pairs_token(t, -1));
    assert_int_equal(byte_pairs_special(t, "<start>"), START);
    assert_int_equal(byte_pairs_special(t, "<end>"), END);
    assert_int_equal(byte_pairs_special(t, "ab"), -1);
    byte_pairs_close(t);
    byte_pairs_close(NULL);
}

/* A text of one piece takes n log n steps: n² of these would not end. */
static void encodes_long_pieces(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 19 };
    struct byte_pairs *tokenizer = opened();
    struct token_ids ids = {0};
    char *text = malloc(LENGTH);
    memset(text, 'a', LENGTH);
    assert_int_equal(byte_pairs_encode(tokenizer, text, LENGTH, &ids), ATTN_OK);
    assert_int_equal(ids.count, LENGTH / 4);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(ids.ids[i], AAAA);
    free(text);
    token_ids_free(&ids);
    byte_pairs_close(tokenizer);
}

/* --------------------------------------------------------------- bad files -- */

static void refuses(const char *json, attn_status status, const char *word)
{
    struct byte_pairs *tokenizer;
    const attn_status found = byte_pairs_parse(&tokenizer, json, strlen(json), "file");
    if (found != status)
        fail_msg("%s gave %s (%s); expected %s", json, attn_status_string(found), attn_last_error(),
                 attn_status_string(status));
    assert_null(tokenizer);
    assert_non_null(strstr(attn_last_error(), "file"));
    if (!strstr(attn_last_error(), word))
        fail_msg("'%s' does not name %s", attn_last_error(), word);
}

static void refuses_files(void **state)
{
    (void)state;
    static const char *const settings[][2] = {
        {"\"dropout\": 0.1", "model.dropout"},
        {"\"unk_token\": \"a\"", "model.unk_token"},
        {"\"continuing_subword_prefix\": \"##\"", "model.continuing_subword_prefix"},
        {"\"end_of_word_suffix\": \"</w>\"", "model.end_of_word_suffix"},
        {"\"fuse_unk\": true", "model.fuse_unk"},
        {"\"byte_fallback\": true", "model.byte_fallback"},
        {"\"ignore_merges\": true", "model.ignore_merges"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        char json[4096];
        snprintf(json, sizeof json, "{" PRE ", \"model\": {\"type\": \"BPE\", " VOCAB ", " MERGES ", %s}}",
                 settings[i][0]);
        refuses(json, ATTN_UNSUPPORTED, settings[i][1]);
    }
    refuses("", ATTN_INVALID_FILE, "line");
    refuses("[]", ATTN_INVALID_FILE, "not a JSON object");
    refuses("{}", ATTN_UNSUPPORTED, "model.type");
    refuses("{\"model\": {\"type\": \"Unigram\"}}", ATTN_UNSUPPORTED, "'Unigram'");
    refuses("{\"model\": {\"type\": \"BPE\"}}", ATTN_UNSUPPORTED, "pre_tokenizer");
    refuses("{\"normalizer\": {\"type\": \"NFC\"}, \"model\": {\"type\": \"BPE\"}}", ATTN_UNSUPPORTED, "normalizer");
    refuses("{\"truncation\": {}, \"model\": {\"type\": \"BPE\"}}", ATTN_UNSUPPORTED, "truncation");
    refuses("{\"post_processor\": {\"type\": \"TemplateProcessing\"}, " PRE ", \"model\": {\"type\": \"BPE\"}}",
            ATTN_UNSUPPORTED, "'TemplateProcessing'");
    refuses(
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": {\"type\": \"BPE\"}}",
        ATTN_UNSUPPORTED, "pre_tokenizer");
    refuses("{" PRE ", \"model\": {\"type\": \"BPE\"}}", ATTN_INVALID_FILE, "model.vocab");
#define WITH(vocab, merges, added) FILE_OF(PRE, "\"vocab\": " vocab, "\"merges\": " merges, "\"added_tokens\": " added)
    refuses(WITH("{}", "[]", "[]"), ATTN_INVALID_FILE, "empty");
    refuses(WITH("{\"a\": 1}", "[]", "[]"), ATTN_INVALID_FILE, "'a'");
    refuses(WITH("{\"a\": -1}", "[]", "[]"), ATTN_INVALID_FILE, "from 0 to 0");
    refuses(WITH("{\"a\": 0.0}", "[]", "[]"), ATTN_INVALID_FILE, "whole number");
    refuses(WITH("{\"a\": 0, \"b\": 0}", "[]", "[]"), ATTN_INVALID_FILE, "same id, 0");
    refuses(WITH("{\"a\": 0, \"a\": 0}", "[]", "[]"), ATTN_INVALID_FILE, "duplicate");
    refuses(WITH("{\"a\": 0}", "[]", "[{\"id\": 2, \"content\": \"x\", \"special\": true}, {}]"), ATTN_INVALID_FILE,
            "added_tokens[1]");
    refuses(WITH("{\"a\": 0}", "[]",
                 "[{\"id\": 0, \"content\": \"a\", \"special\": true}, {\"id\": 2, \"content\": \"x\","
                 "\"special\": true}]"),
            ATTN_INVALID_FILE, "no token has the id 1");
    refuses(WITH("{\"a\": 0}", "[]", "[{\"id\": 1, \"content\": \"x\", \"special\": false}]"), ATTN_UNSUPPORTED, "'x'");
    refuses(WITH("{\"a\": 0}", "[]", "[{\"id\": 0, \"content\": \"x\", \"special\": true}]"), ATTN_INVALID_FILE,
            "same id, 0");
    refuses(WITH("{\"a b\": 0}", "[]", "[]"), ATTN_INVALID_FILE, "alphabet of bytes");
    refuses(WITH("{\"中\": 0}", "[]", "[]"), ATTN_INVALID_FILE, "alphabet of bytes");
    refuses(WITH("{\"\": 0}", "[]", "[]"), ATTN_INVALID_FILE, "alphabet of bytes");
    refuses(WITH("{\"a\": 0}", "{}", "[]"), ATTN_INVALID_FILE, "model.merges");
    refuses(WITH("{\"a\": 0}", "[1]", "[]"), ATTN_INVALID_FILE, "model.merges[0]");
    refuses(WITH("{\"a\": 0}", "[\"aa\"]", "[]"), ATTN_INVALID_FILE, "model.merges[0]");
    refuses(WITH("{\"a\": 0}", "[\"a a a\"]", "[]"), ATTN_INVALID_FILE, "model.merges[0]");
    refuses(WITH("{\"a\": 0}", "[[\"a\"]]", "[]"), ATTN_INVALID_FILE, "model.merges[0]");
    refuses(WITH("{\"a\": 0}", "[[\"a\", \"a\"]]", "[]"), ATTN_INVALID_FILE, "make a token");
    refuses(WITH("{\"a\": 0, \"aa\": 1}", "[\"a a\", [\"a\", \"a\"]]", "[]"), ATTN_INVALID_FILE,
            "as model.merges[0] is");
    refuses(WITH("{\"a\": 0, \"aa\": 1}", "[\"a a\"]", "[{\"id\": 1, \"content\": \"aa\", \"special\": true}]"),
            ATTN_INVALID_FILE, "make a token");
    struct byte_pairs *tokenizer;
    assert_int_equal(byte_pairs_open(&tokenizer, "/nonexistent/tokenizer.json"), ATTN_INVALID_FILE);
    assert_non_null(strstr(attn_last_error(), "/nonexistent/tokenizer.json"));
}

/* --------------------------------------------------------- short of memory -- */

static void survives_failing_allocations(void **state)
{
    (void)state;
    bool done = false;
    for (int n = 1; !done; n++) {
        struct byte_pairs *tokenizer = NULL;
        struct token_ids ids = {0};
        allocations.made = 0;
        allocations.fails_at = n;
        attn_status status = byte_pairs_parse(&tokenizer, file, sizeof file - 1, "file");
        if (status == ATTN_OK) {
            status = byte_pairs_encode(tokenizer, "ab abc aaaaaaaaaaaaaaaaaaaaa", 28, &ids);
            assert_true(status == ATTN_OK || ids.count == 0);
        }
        done = allocations.made < n;
        allocations.fails_at = 0;
        assert_int_equal(status, done ? ATTN_OK : ATTN_OUT_OF_MEMORY);
        token_ids_free(&ids);
        byte_pairs_close(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_texts),    cmocka_unit_test(encodes_texts),
        cmocka_unit_test(knows_tokens),  cmocka_unit_test(encodes_long_pieces),
        cmocka_unit_test(refuses_files), cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
