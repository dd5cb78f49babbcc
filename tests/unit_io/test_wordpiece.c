/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer of the encoder examples on a vocabulary of some forty tokens:
 * the expected ids follow by hand from the rules in basic_tokens.c and
 * wordpiece.c. tests/models/check_wordpiece.py compares with a real model's
 * tokenizer.
 */
#include "cmocka_all.h"

#include <stdlib.h>
#include <unistd.h>

#include "failing_memory.h"
#include "wordpiece.h"

/* In the order of their ids. E2 is at the end of the file without a newline. */
enum {
    PAD,
    UNK,
    CLS,
    SEP,
    MASK,
    A,
    B,
    AB,
    XB,
    XC,
    UN,
    XAFF,
    XABLE,
    BANG,
    DOT,
    OPEN,
    CLOSE,
    LOWER_SEP,
    XA,
    ZHONG,
    WEN,
    I,
    SS,
    SIGMA,
    XSIGMA,
    OMICRON,
    SEMICOLON,
    EQUALS,
    DOLLAR,
    HYPHEN,
    XVIRAMA,
    XTONE,
    XTONE2,
    TONE,
    HA,
    XA_JAMO,
    XE_ACUTE,
    E,
    XPOINT,
    EURO,
    HASH,
    E2,
    COUNT
};

static const char vocabulary[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nab\n##b\n##c\nun\n##aff\n##able\n!\n.\n[\n]\n"
    "sep\n##a\n中\n文\ni\nß\nσ\n##σ\nο\n;\n=\n$\n‐\n##\u1b44\n##\u302e\n##\u302f\n\u302e\nᄒ\n##ᅡ\n##é\ne\n"
    "##\U000e0fff\n€\n#\nee";

static char path[] = "/tmp/attn-test-vocab-XXXXXX";

static void put(const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static struct wordpiece *opened(void)
{
    struct wordpiece *tokenizer;
    put(vocabulary, sizeof vocabulary - 1);
    if (wordpiece_open(&tokenizer, path) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    return tokenizer;
}

static int enter(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file < 0 || close(file) != 0;
}

static int leave(void **state)
{
    (void)state;
    return unlink(path);
}

struct expectation {
    const char *text;
    size_t size;
    int32_t ids[16]; /* between [CLS] and [SEP]; 0, which is [PAD], ends them */
};

#define TEXT(literal) literal, sizeof literal - 1

static void check_with(struct wordpiece *tokenizer, const struct expectation *table, size_t count)
{
    struct token_ids ids = {0};
    for (size_t i = 0; i < count; i++) {
        /* Exactly the size, so that valgrind sees a byte that is read beyond. */
        char *text = malloc(table[i].size);
        memcpy(text, table[i].text, table[i].size);
        if (wordpiece_encode(tokenizer, text, table[i].size, 0, &ids) != ATTN_OK)
            fail_msg("text %zu: %s", i, attn_last_error());
        free(text);
        size_t expected = 0;
        while (table[i].ids[expected] != PAD)
            expected++;
        if (ids.count != expected + 2)
            fail_msg("text %zu, \"%s\", became %zu tokens; expected %zu", i, table[i].text, ids.count, expected + 2);
        assert_int_equal(ids.ids[0], CLS);
        assert_int_equal(ids.ids[ids.count - 1], SEP);
        for (size_t t = 0; t < expected; t++) {
            if (ids.ids[t + 1] != table[i].ids[t])
                fail_msg("token %zu of text %zu, \"%s\", is %d; expected %d", t + 1, i, table[i].text, ids.ids[t + 1],
                         table[i].ids[t]);
        }
    }
    token_ids_free(&ids);
    wordpiece_close(tokenizer);
}

static void check(const struct expectation *table, size_t count)
{
    check_with(opened(), table, count);
}

static void cuts_words_into_pieces(void **state)
{
    (void)state;
    static const struct expectation table[] = {
        {TEXT(""), {PAD}},
        {TEXT("a"), {A}},
        {TEXT("ab"), {AB}},
        {TEXT("abc"), {AB, XC}},
        {TEXT("abb"), {AB, XB}},
        {TEXT("unaffable"), {UN, XAFF, XABLE}},
        {TEXT("unaable"), {UN, XA, XABLE}},
        /* The longest piece is taken even when what is left then has none. */
        {TEXT("unaff b"), {UN, XAFF, B}},
        {TEXT("unaf"), {UNK}},
        {TEXT("c"), {UNK}},
        {TEXT("abx a"), {UNK, A}},
        {TEXT("ee e"), {E2, E}},
        /* '#' is punctuation, so a text cannot name a later piece. */
        {TEXT("##b"), {HASH, HASH, B}},
    };
    check(table, sizeof table / sizeof table[0]);
}

static void cleans_text(void **state)
{
    (void)state;
    static const struct expectation table[] = {
        {TEXT("   \t\r\n \u00a0\u3000\u2028\u2029 "), {PAD}},
        {TEXT(" a\tb\nc\ra "), {A, B, UNK, A}},
        {TEXT("a\u00a0b\u2003b\u3000a\u2028b\u1680a"), {A, B, B, A, B, A}},
        /* NUL, control and format characters, private use and U+FFFD join; so do \v and \f, which are no space here. */
        {TEXT("a\0b"), {AB}},
        {TEXT("\0"), {PAD}},
        {TEXT("a\x01"
              "b a\vb a\fb a\x7f"
              "b a\xc2\x85"
              "b"),
         {AB, AB, AB, AB, AB}},
        {TEXT("a\u200bb a\u200db a\ufeffb a\u00adb a\ue000b a\U0010fffdb a\ufffdb"), {AB, AB, AB, AB, AB, AB, AB}},
        /* An unassigned character stays. */
        {TEXT("a\U000e0fff"), {A, XPOINT}},
        /* Ideographs stand alone; kana do not. */
        {TEXT("中文"), {ZHONG, WEN}},
        {TEXT("a中b"), {A, ZHONG, B}},
        {TEXT("aアb"), {UNK}},
        {TEXT("a\U0002b820"
              "b"),
         {UNK}},
        {TEXT("a\U0002b920"
              "b"),
         {A, UNK, B}},
    };
    check(table, sizeof table / sizeof table[0]);
}

static void splits_punctuation(void **state)
{
    (void)state;
    static const struct expectation table[] = {
        {TEXT("a!b."), {A, BANG, B, DOT}},
        {TEXT("!!"), {BANG, BANG}},
        /* Symbols split in ASCII, and not elsewhere. */
        {TEXT("a$b=a"), {A, DOLLAR, B, EQUALS, A}},
        {TEXT("a€b €"), {UNK, EURO}},
        {TEXT("a\u2010b"), {A, HYPHEN, B}},
        {TEXT("a_b"), {A, UNK, B}},
    };
    check(table, sizeof table / sizeof table[0]);
}

static void lowers_and_strips(void **state)
{
    (void)state;
    static const struct expectation table[] = {
        {TEXT("AB Ab aB"), {AB, AB, AB}},
        {TEXT("à a\u0300 À A\u0300\u0323"), {A, A, A, A}},
        {TEXT("\u0301 \u0301a"), {A}},
        /* The vocabulary has é as a piece, which no text can reach. */
        {TEXT("aé"), {UNK}},
        {TEXT("İ I i"), {I, I, I}},
        {TEXT("ẞ ß"), {SS, SS}},
        /* A capital sigma at the end is σ, not ς, which is no piece here. */
        {TEXT("ΟΣ Σ ος"), {OMICRON, XSIGMA, SIGMA, UNK}},
        {TEXT("ΣΣ"), {SIGMA, XSIGMA}},
        {TEXT("Ο"), {OMICRON}},
        /* Decompositions that are punctuation: U+037E is a semicolon, U+2260 is = and a stroke. */
        {TEXT("a\u037eb"), {A, SEMICOLON, B}},
        {TEXT("a≠b"), {A, EQUALS, B}},
        /* Only canonical ones: a full-width letter is none of ours. */
        {TEXT("ａ"), {UNK}},
        {TEXT("하"), {HA, XA_JAMO}},
        /* Spacing marks come in the order of their classes, 9 and 224, but not across U+034F of class 0. */
        {TEXT("a\u302e\u1b44"), {A, XVIRAMA, XTONE}},
        {TEXT("a\u1b44\u302e"), {A, XVIRAMA, XTONE}},
        {TEXT("a\u302e\u0301\u1b44\u1b44"), {A, XVIRAMA, XVIRAMA, XTONE}},
        {TEXT("a\u302f\u302e"), {A, XTONE2, XTONE}}, /* of one class */
        {TEXT("a\u302e\u302f"), {A, XTONE, XTONE2}},
        {TEXT("a\u302e\u034f\u1b44"), {A, XTONE, XVIRAMA}},
        {TEXT("a\u302e\u200d\u1b44"), {A, XVIRAMA, XTONE}},
    };
    check(table, sizeof table / sizeof table[0]);
}

/* A cased model's words: capitals and accents stay, everything else is as in an uncased one's. */
static void keeps_case(void **state)
{
    (void)state;
    static const struct expectation table[] = {
        {TEXT("a A"), {A, UNK}},
        {TEXT("aé e"), {A, XE_ACUTE, E}},
        {TEXT("é"), {UNK}},
        {TEXT("ae\u0301"), {UNK}}, /* what is decomposed stays so */
        {TEXT("a\u00adb!"), {AB, BANG}},
        {TEXT("a\tb\n中文"), {A, B, ZHONG, WEN}},
        {TEXT("[SEP]unaffable[sep]"), {SEP, UN, XAFF, XABLE, OPEN, LOWER_SEP, CLOSE}},
    };
    struct wordpiece *tokenizer = opened();
    wordpiece_keep_case(tokenizer);
    check_with(tokenizer, table, sizeof table / sizeof *table);
}

static void drops_what_is_not_utf8(void **state)
{
    (void)state;
    static const struct expectation table[] = {
        {TEXT("\xff"), {PAD}},
        {TEXT("a\xff"
              "b"),
         {AB}},
        {TEXT("a\xe4\xb8"
              "b"),
         {AB}},
        {TEXT("a\xe4\xb8"), {A}},
        {TEXT("a\xe4"), {A}},
        {TEXT("a\x80\xbf"
              "b"),
         {AB}},
        {TEXT("a\xc1\xa1"
              "b"),
         {AB}}, /* an overlong 'a' */
        {TEXT("a\xed\xa0\x80"
              "b"),
         {AB}}, /* a surrogate */
        {TEXT("a\xf4\x90\x80\x80"
              "b"),
         {AB}}, /* beyond U+10FFFF */
        {TEXT("a\xf0\x9f\x98 b"), {A, B}},
        {TEXT("a\xe4中"), {A, ZHONG}},
    };
    check(table, sizeof table / sizeof table[0]);
}

static void finds_special_tokens_in_text(void **state)
{
    (void)state;
    static const struct expectation table[] = {
        {TEXT("[SEP]"), {SEP}},
        {TEXT("a[SEP]b"), {A, SEP, B}},
        {TEXT("ab [MASK] [UNK][CLS]!"), {AB, MASK, UNK, CLS, BANG}},
        {TEXT("[sep]"), {OPEN, LOWER_SEP, CLOSE}},
        {TEXT("[[SEP]]"), {OPEN, SEP, CLOSE}},
        {TEXT("[SEP"), {OPEN, LOWER_SEP}},
        {TEXT("[ SEP]"), {OPEN, LOWER_SEP, CLOSE}},
        /* They are looked for before the text is cleaned. */
        {TEXT("[S\0EP]"), {OPEN, LOWER_SEP, CLOSE}},
        {TEXT("\xff[SEP]\xff"), {SEP}},
        {TEXT("a[SEP]\u0301b"), {A, SEP, B}},
    };
    check(table, sizeof table / sizeof table[0]);

    struct expectation padding = {TEXT("a[PAD]b"), {PAD}};
    struct wordpiece *tokenizer = opened();
    struct token_ids ids = {0};
    assert_int_equal(wordpiece_encode(tokenizer, padding.text, padding.size, 0, &ids), ATTN_OK);
    static const int32_t expected[] = {CLS, A, PAD, B, SEP};
    assert_int_equal(ids.count, 5);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    token_ids_free(&ids);
    wordpiece_close(tokenizer);
}

/* A vocabulary without [MASK] is one of a model that does not know it. */
static void mask_may_be_missing(void **state)
{
    (void)state;
    static const char lines[] = "[UNK]\r\n[PAD]  \r\n[SEP]\t\n[CLS]\r\n[\r\n]\r\nmask\n";
    struct wordpiece *tokenizer;
    struct token_ids ids = {0};
    assert_int_equal(wordpiece_parse(&tokenizer, lines, sizeof lines - 1, "x"), ATTN_OK);
    assert_int_equal(wordpiece_size(tokenizer), 7);
    assert_int_equal(wordpiece_encode(tokenizer, "[MASK][SEP]", 11, 0, &ids), ATTN_OK);
    static const int32_t expected[] = {3, 4, 6, 5, 2, 2};
    assert_int_equal(ids.count, 6);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    token_ids_free(&ids);
    wordpiece_close(tokenizer);
}

/* Words of an "e" and a character n times after it: 100 characters are cut into pieces, 101 are [UNK]. */
static void limits_words(void **state)
{
    (void)state;
    static const struct {
        const char *character;
        int32_t piece;
    } table[] = {{"a", XA}, {"B", XB}, {"Σ", XSIGMA}, {"\u302e", XTONE}, {"à", XA}, {"\U000e0fff", XPOINT}};
    struct wordpiece *tokenizer = opened();
    struct token_ids ids = {0};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        for (size_t more = 98; more <= 300; more = more < 101 ? more + 1 : more + 199) {
            char text[2000] = "e";
            for (size_t n = 0; n < more; n++)
                strcat(text, table[i].character);
            strcat(text, " a");
            assert_int_equal(wordpiece_encode(tokenizer, text, strlen(text), 0, &ids), ATTN_OK);
            bool fits = more + 1 <= 100;
            assert_int_equal(ids.count, fits ? more + 4 : 4);
            assert_int_equal(ids.ids[1], fits ? E : UNK);
            assert_int_equal(ids.ids[2], fits ? table[i].piece : A);
            assert_int_equal(ids.ids[ids.count - 2], A);
        }
    }
    /* Marks alone make a word too. */
    for (size_t marks = 99; marks <= 102; marks++) {
        char text[2000] = "";
        for (size_t n = 0; n < marks; n++)
            strcat(text, "\u302e");
        assert_int_equal(wordpiece_encode(tokenizer, text, strlen(text), 0, &ids), ATTN_OK);
        assert_int_equal(ids.count, marks <= 100 ? marks + 2 : 3);
        assert_int_equal(ids.ids[1], marks <= 100 ? TONE : UNK);
    }
    /* Marks that vanish and characters that are removed do not count. */
    char text[2000] = "a";
    for (int n = 0; n < 300; n++)
        strcat(text, n % 2 == 0 ? "\u0301" : "\u200d");
    assert_int_equal(wordpiece_encode(tokenizer, text, strlen(text), 0, &ids), ATTN_OK);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.ids[1], A);
    token_ids_free(&ids);
    wordpiece_close(tokenizer);
}

static void truncates(void **state)
{
    (void)state;
    static const char text[] = "abb [SEP] unaffable a";
    static const int32_t all[] = {CLS, AB, XB, SEP, UN, XAFF, XABLE, A};
    struct wordpiece *tokenizer = opened();
    struct token_ids ids = {0};
    for (size_t limit = 2; limit <= 12; limit++) {
        assert_int_equal(wordpiece_encode(tokenizer, text, sizeof text - 1, limit, &ids), ATTN_OK);
        size_t kept = limit - 1 < 8 ? limit - 1 : 8;
        assert_int_equal(ids.count, kept + 1);
        assert_memory_equal(ids.ids, all, kept * sizeof *all);
        assert_int_equal(ids.ids[kept], SEP);
        /* What ends with the last token that there is room for is whole, white space behind it or not. */
        assert_int_equal(ids.cut, limit < 9);
        assert_int_equal(wordpiece_encode(tokenizer, text, sizeof text - 3, limit, &ids), ATTN_OK);
        assert_int_equal(ids.cut, limit < 8);
        assert_int_equal(wordpiece_encode(tokenizer, text, sizeof text - 2, limit, &ids), ATTN_OK);
        assert_int_equal(ids.cut, limit < 8);
    }
    assert_int_equal(wordpiece_encode(tokenizer, text, sizeof text - 1, 1, &ids), ATTN_INVALID_ARGUMENT);
    assert_says(attn_last_error(), "max_tokens is 1; expected at least 2");
    assert_int_equal(ids.count, 0);

    /* Three million words: the default limit, none, and one in between. */
    size_t words = 3000000;
    char *book = malloc(2 * words);
    for (size_t i = 0; i < words; i++)
        memcpy(book + 2 * i, i % 2 == 0 ? "a " : "b\n", 2);
    assert_int_equal(wordpiece_encode(tokenizer, book, 2 * words, 0, &ids), ATTN_OK);
    assert_int_equal(ids.count, WORDPIECE_DEFAULT_TOKENS);
    assert_int_equal(wordpiece_encode(tokenizer, book, 2 * words, SIZE_MAX, &ids), ATTN_OK);
    assert_int_equal(ids.count, words + 2);
    assert_int_equal(ids.ids[words], B);
    assert_int_equal(wordpiece_encode(tokenizer, book, 2 * words, 1000, &ids), ATTN_OK);
    assert_int_equal(ids.count, 1000);
    free(book);

    /* The array is used again, and no text at all is an empty one. */
    assert_int_equal(wordpiece_encode(tokenizer, NULL, 0, 0, &ids), ATTN_OK);
    assert_int_equal(ids.count, 2);
    token_ids_free(&ids);
    assert_null(ids.ids);
    wordpiece_close(tokenizer);
}

static void names_tokens(void **state)
{
    (void)state;
    struct wordpiece *tokenizer = opened();
    assert_int_equal(wordpiece_size(tokenizer), COUNT);
    assert_string_equal(wordpiece_token(tokenizer, PAD), "[PAD]");
    assert_string_equal(wordpiece_token(tokenizer, XAFF), "##aff");
    assert_string_equal(wordpiece_token(tokenizer, E2), "ee");
    assert_null(wordpiece_token(tokenizer, -1));
    assert_null(wordpiece_token(tokenizer, COUNT));
    for (int32_t id = 0; id < COUNT; id++)
        assert_int_equal(wordpiece_id(tokenizer, wordpiece_token(tokenizer, id)), id);
    assert_int_equal(wordpiece_id(tokenizer, ""), -1);
    assert_int_equal(wordpiece_id(tokenizer, "[PAD"), -1);
    assert_int_equal(wordpiece_id(tokenizer, "[PAD]]"), -1);
    wordpiece_close(tokenizer);
    wordpiece_close(NULL);
}

static void refuses_bad_vocabularies(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } table[] = {
        {TEXT(""), "is empty"},
        {TEXT("\n"), "line 1 is empty"},
        {TEXT("[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n"), "line 3 is empty"},
        {TEXT("[PAD]\n \t\r\n[UNK]\n[CLS]\n[SEP]\n"), "line 2 is empty"},
        {TEXT("[PAD]\n[UNK]\n[CLS]\n[SEP]\n\n"), "line 5 is empty"},
        {TEXT("[PAD]\na\n[UNK]\n[CLS]\na\n[SEP]\n"), "line 5 repeats line 2"},
        {TEXT("[PAD]\na\n[UNK]\n[CLS]\n[SEP]\na \r"), "line 6 repeats line 2"},
        {TEXT("[PAD]\n[UNK]\n\xff\n[CLS]\n[SEP]\n"), "line 3 is not valid UTF-8"},
        {TEXT("[PAD]\n[UNK]\n[CLS]\n[SEP]\n\xe4\xb8"), "line 5 is not valid UTF-8"},
        {TEXT("[PAD]\n[UNK]\n[CLS]\na\0b\n[SEP]\n"), "line 4 is not valid UTF-8"},
        {TEXT("[PAD]\n[UNK]\n[CLS]\n\0\n[SEP]\n"), "line 4 is not valid UTF-8"},
        {TEXT("[UNK]\n[CLS]\n[SEP]\n"), "none of its 3 lines is [PAD]"},
        {TEXT("[PAD]\n[CLS]\n[SEP]\n"), "none of its 3 lines is [UNK]"},
        {TEXT("[PAD]\n[UNK]\n[SEP]\n"), "none of its 3 lines is [CLS]"},
        {TEXT("[PAD]\n[UNK]\n[CLS]\n"), "none of its 3 lines is [SEP]"},
        {TEXT("[PAD]\n[unk]\n[CLS]\n[SEP]\n"), "none of its 4 lines is [UNK]"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct wordpiece *tokenizer = (struct wordpiece *)&table;
        put(table[i].bytes, table[i].size);
        if (wordpiece_open(&tokenizer, path) == ATTN_OK)
            fail_msg("vocabulary %zu was accepted", i);
        assert_null(tokenizer);
        assert_says(attn_last_error(), table[i].says);
        assert_says(attn_last_error(), path);
    }
}

static void refuses_bad_files(void **state)
{
    (void)state;
    struct wordpiece *tokenizer;
    assert_int_equal(wordpiece_open(&tokenizer, "/tmp/absent/vocab.txt"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "/tmp/absent/vocab.txt: cannot open: No such file or directory");
    assert_int_equal(wordpiece_open(&tokenizer, "/tmp"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "/tmp: cannot read: Is a directory");
    put("", 0);
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    assert_int_equal(wordpiece_open(&tokenizer, path), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "has more than 67108864 bytes");
    assert_int_equal(truncate(path, 64 << 20), 0);
    assert_int_equal(wordpiece_open(&tokenizer, path), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "line 1 is not valid UTF-8");
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    int failures = 0;
    put(vocabulary, sizeof vocabulary - 1);
    char text[600];
    memset(text, '!', sizeof text);
    for (bool done = false; !done; failures += !done) {
        struct wordpiece *tokenizer;
        struct token_ids ids = {0};
        allocations.made = 0;
        allocations.fails_at = failures + 1;
        bool open = wordpiece_open(&tokenizer, path) == ATTN_OK;
        done = open && wordpiece_encode(tokenizer, text, sizeof text, SIZE_MAX, &ids) == ATTN_OK;
        allocations.fails_at = 0;
        if (!done)
            assert_says(attn_last_error(), "out of memory");
        assert_int_equal(ids.count, done ? sizeof text + 2 : 0);
        assert_true(open || tokenizer == NULL);
        token_ids_free(&ids);
        wordpiece_close(tokenizer);
    }
    /* The file, the tokenizer, its three arrays, and ids of 64, 128, ... 1024. */
    assert_int_equal(failures, 1 + 1 + 3 + 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_words_into_pieces),
        cmocka_unit_test(cleans_text),
        cmocka_unit_test(splits_punctuation),
        cmocka_unit_test(lowers_and_strips),
        cmocka_unit_test(keeps_case),
        cmocka_unit_test(drops_what_is_not_utf8),
        cmocka_unit_test(finds_special_tokens_in_text),
        cmocka_unit_test(mask_may_be_missing),
        cmocka_unit_test(limits_words),
        cmocka_unit_test(truncates),
        cmocka_unit_test(names_tokens),
        cmocka_unit_test(refuses_bad_vocabularies),
        cmocka_unit_test(refuses_bad_files),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests_name("wordpiece", tests, enter, leave);
}
